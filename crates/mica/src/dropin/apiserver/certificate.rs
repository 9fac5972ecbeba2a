//! The certificate that the server shows, and those that it trusts clients by.

use std::path::Path;
use std::time::SystemTime;

use anyhow::Context as _;
use mica_server::pki::{Authority, Issued, serving_names, write_private};
use mica_server::tls::{ClientRoots, ServingCertificates, certified_key};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use super::settings::{Certificate, Settings};

/// The name in the certificate that signs ours, as upstream has it.
const AUTHORITY_NAME: &str = "mica-ca";
const CERTIFICATE: &str = "apiserver.crt";
const KEY: &str = "apiserver.key";

/// Where upstream's own certificate says it is, beside its addresses.
const NAMES: [&str; 3] = ["kubernetes", "kubernetes.default", "kubernetes.default.svc"];

pub fn serving(settings: &Settings) -> anyhow::Result<ServingCertificates> {
    let pair = match &settings.certificate {
        Certificate::Files { certificate, key } => (read(certificate)?, read(key)?),
        Certificate::Directory(directory) => kept(directory, settings)?,
    };
    let (certificate_pem, key_pem) = pair;
    let issued = Issued {
        certificate_pem,
        key_pem,
        renew_at: SystemTime::now(),
    };
    Ok(ServingCertificates::new(certified_key(&issued)?))
}

pub fn client_roots(settings: &Settings) -> anyhow::Result<ClientRoots> {
    let Some(file) = &settings.client_ca else {
        return Ok(ClientRoots::new(&[])?);
    };
    let named = || format!("client-ca-file {}", file.display());
    let text = std::fs::read(file).with_context(named)?;
    let authorities: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(&text)
        .collect::<Result<_, _>>()
        .with_context(named)?;
    ClientRoots::new(&authorities).with_context(named)
}

/// The pair in a directory, made if there is none.
fn kept(directory: &Path, settings: &Settings) -> anyhow::Result<(String, String)> {
    let (certificate, key) = (directory.join(CERTIFICATE), directory.join(KEY));
    if certificate.exists() && key.exists() {
        return Ok((read(&certificate)?, read(&key)?));
    }
    let now = SystemTime::now();
    let hosts = NAMES.map(str::to_owned).into_iter().chain([
        settings.listen.ip().to_string(),
        settings.advertise.to_string(),
        settings.services.range.server().to_string(),
    ]);
    let authority = Authority::generate(AUTHORITY_NAME, now)?;
    let issued = authority.issue_serving("kube-apiserver", &serving_names(hosts), now)?;
    // The authority's certificate goes along, so that a client can trust the file.
    let chain = format!("{}{}", issued.certificate_pem, authority.certificate_pem());
    std::fs::create_dir_all(directory).with_context(|| format!("cert-dir {}", directory.display()))?;
    write_private(&key, issued.key_pem.as_bytes())?;
    std::fs::write(&certificate, &chain).with_context(|| certificate.display().to_string())?;
    tracing::info!("made a certificate for the server: {}", certificate.display());
    Ok((chain, issued.key_pem))
}

fn read(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| path.display().to_string())
}

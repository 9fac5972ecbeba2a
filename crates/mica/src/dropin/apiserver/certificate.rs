//! The certificate that the server shows, and those that it trusts clients by.

use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::Context as _;
use mica_server::authn::reload::Reload;
use mica_server::pki::{Authority, Issued, PkiError, serving_names, write_private};
use mica_server::tls::{ClientRoots, ServingCertificates, certified_key};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::sign::CertifiedKey;

use super::settings::{Certificate, Settings};

/// The name in the certificate that signs ours, as upstream has it.
const AUTHORITY_NAME: &str = "mica-ca";
const CERTIFICATE: &str = "apiserver.crt";
const KEY: &str = "apiserver.key";

/// Where upstream's own certificate says it is, beside its addresses.
const NAMES: [&str; 3] = ["kubernetes", "kubernetes.default", "kubernetes.default.svc"];

/// The certificate that the server shows. One in files that were named is taken over when they change.
pub fn serving(settings: &Settings) -> anyhow::Result<Arc<ServingCertificates>> {
    match &settings.certificate {
        Certificate::Files { certificate, key } => followed(certificate, key, &settings.reload),
        Certificate::Directory(directory) => {
            let pair = kept(directory, settings)?;
            Ok(Arc::new(ServingCertificates::new(paired(pair)?)))
        }
    }
}

fn paired((certificate_pem, key_pem): (String, String)) -> Result<CertifiedKey, PkiError> {
    certified_key(&Issued {
        certificate_pem,
        key_pem,
        renew_at: SystemTime::now(),
    })
}

fn followed(certificate: &Path, key: &Path, reload: &Reload) -> anyhow::Result<Arc<ServingCertificates>> {
    let pair = (read(certificate)?, read(key)?);
    let contents = [(certificate, pair.0.clone()), (key, pair.1.clone())];
    let shown = Arc::new(ServingCertificates::new(paired(pair)?));
    for (path, content) in contents {
        let (certificate, key, shown) = (certificate.to_owned(), key.to_owned(), shown.clone());
        // The files change one after the other: only a pair that belongs together counts.
        reload.follow(path, content.as_bytes(), move |_| {
            let pair = read(&certificate).and_then(|certificate| Ok((certificate, read(&key)?)));
            let pair = pair.map_err(|error| format!("{error:#}"))?;
            shown.replace(paired(pair).map_err(|error| error.to_string())?);
            Ok(())
        });
    }
    Ok(shown)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_pair_of_files_is_shown_once_both_have_changed() {
        let home = tempfile::tempdir().unwrap();
        let (certificate, key) = (home.path().join("tls.crt"), home.path().join("tls.key"));
        let issue = || {
            let now = SystemTime::now();
            let authority = Authority::generate(AUTHORITY_NAME, now).unwrap();
            authority.issue_serving("server", &serving_names([]), now).unwrap()
        };
        let (old, new) = (issue(), issue());
        let leaf = |issued: &Issued| CertificateDer::from_pem_slice(issued.certificate_pem.as_bytes()).unwrap();
        std::fs::write(&certificate, &old.certificate_pem).unwrap();
        std::fs::write(&key, &old.key_pem).unwrap();
        let reload = Reload::default();
        let serving = followed(&certificate, &key, &reload).unwrap();
        let shown = || serving.shown().end_entity_cert().unwrap().clone().into_owned();
        std::fs::write(&certificate, &new.certificate_pem).unwrap();
        reload.look();
        assert_eq!(shown(), leaf(&old), "the key is still the old one's");
        std::fs::write(&key, &new.key_pem).unwrap();
        reload.look();
        assert_eq!(shown(), leaf(&new));
    }
}

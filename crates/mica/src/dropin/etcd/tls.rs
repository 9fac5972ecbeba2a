//! TLS for the stub, as etcd's flags say it.

use std::sync::Arc;
use std::time::SystemTime;

use anyhow::Context as _;
use mica_server::pki::{Authority, serving_names};
use mica_server::tls;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use tokio_rustls::TlsAcceptor;

use crate::dropin::flag::Flags;

/// `None` if no certificate is named.
pub fn acceptor(flags: &Flags) -> anyhow::Result<Option<TlsAcceptor>> {
    let file = |name: &str| -> anyhow::Result<Option<Vec<u8>>> {
        match flags.last(name).filter(|file| !file.is_empty()) {
            Some(file) => Ok(Some(std::fs::read(file).with_context(|| format!("{name} {file}"))?)),
            None => Ok(None),
        }
    };
    let pair = match (file("cert-file")?, file("key-file")?) {
        (Some(certificate), Some(key)) => (certificate, key),
        _ if flags.is_on("auto-tls", false) => {
            let now = SystemTime::now();
            let issued = Authority::generate("etcd", now)?.issue_serving("etcd", &serving_names([]), now)?;
            (issued.certificate_pem.into_bytes(), issued.key_pem.into_bytes())
        }
        _ => return Ok(None),
    };
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(&pair.0)
        .collect::<Result<_, _>>()
        .context("cert-file")?;
    let key = PrivateKeyDer::from_pem_slice(&pair.1).context("key-file")?;
    let builder = rustls::ServerConfig::builder_with_provider(tls::provider()).with_safe_default_protocol_versions()?;
    let builder = match file("trusted-ca-file")? {
        Some(authorities) if flags.is_on("client-cert-auth", false) => {
            let mut roots = RootCertStore::empty();
            for authority in CertificateDer::pem_slice_iter(&authorities) {
                roots.add(authority.context("trusted-ca-file")?)?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), tls::provider()).build()?;
            builder.with_client_cert_verifier(verifier)
        }
        _ => builder.with_no_client_auth(),
    };
    let mut config = builder.with_single_cert(chain, key).context("cert-file and key-file")?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Some(TlsAcceptor::from(Arc::new(config))))
}

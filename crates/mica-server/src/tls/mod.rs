//! TLS: the server's configuration, the certificates it shows, and what client certificates are worth.
//!
//! A bad client certificate does not fail the handshake: upstream answers such requests with 401, so the chain is judged when
//! a request asks ([`PresentedCertificates`]). What the handshake does prove is that the client holds the key.

mod client;
mod options;
mod serving;

use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::server::NoServerSessionStorage;

pub(crate) use client::REUSE;
pub use client::{ClientRoots, PresentedCertificates, RefusedCertificate, UnusableRoots};
pub use options::{BadTls, TlsOptions};
pub use serving::{IsKnownHost, ServingCertificates, certified_key};

/// The one place that names the cryptography in use.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// The server side of TLS 1.2 and 1.3, offering HTTP/2 and HTTP/1.1.
pub fn server_config(certificates: Arc<ServingCertificates>, options: &TlsOptions) -> Arc<rustls::ServerConfig> {
    let provider = options.provider();
    let mut config = rustls::ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(options.versions())
        .expect("the suites of TLS 1.3 are always there")
        .with_client_cert_verifier(Arc::new(client::ProofOfPossession::new(&provider)))
        .with_cert_resolver(certificates);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    // Sessions are not resumed: client-go does not ask, a table of sessions costs memory, and a resumed one would carry an
    // identity past the roots it was proven under.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Arc::new(config)
}

//! What a call shows to the far side: a certificate, a token, and the name by which the far side is known.
//!
//! Only the platform's own files name credentials; no tenant's object can. Nothing here prints a secret.

use std::fmt;
use std::sync::Arc;

use http::HeaderValue;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;

/// A certificate and its key, both in PEM.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Identity(Arc<(Vec<u8>, Vec<u8>)>);

impl Identity {
    pub(super) fn new(certificate: Vec<u8>, key: Vec<u8>) -> Self {
        Self(Arc::new((certificate, key)))
    }

    pub(super) fn certificate(&self) -> &[u8] {
        &self.0.0
    }

    pub(super) fn key(&self) -> Option<PrivateKeyDer<'static>> {
        PrivateKeyDer::from_pem_slice(&self.0.1).ok()
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Identity")
    }
}

#[derive(Clone, PartialEq, Eq, Default)]
pub(super) struct Credentials {
    /// Whom the far side's certificate must be for, if not for its host.
    pub server_name: Option<String>,
    pub identity: Option<Identity>,
    /// The value of a header, marked as a secret.
    pub token: Option<HeaderValue>,
}

impl Credentials {
    pub(super) fn authorization(&self) -> Option<HeaderValue> {
        self.token.clone()
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").finish_non_exhaustive()
    }
}

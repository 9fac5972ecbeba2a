//! What of TLS a server offers: by default everything that is good, which is 1.2 and 1.3 with forward secrecy.

use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::version::{TLS12, TLS13};
use rustls::{CipherSuite, SupportedProtocolVersion};

static NEWEST: [&SupportedProtocolVersion; 1] = [&TLS13];
static BOTH: [&SupportedProtocolVersion; 2] = [&TLS13, &TLS12];

/// Names that Go had for suites before they got those of the standard.
const OLD_NAMES: [(&str, &str); 2] = [
    (
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
    ),
    (
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305",
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    ),
];

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadTls {
    #[error("unknown tls version {0:?}")]
    UnknownVersion(String),
    #[error("{0} is not offered: VersionTLS12 is the oldest that is")]
    OldVersion(String),
    #[error("Cipher suite {0} not supported or doesn't exist")]
    UnknownSuite(String),
}

/// The oldest version and the suites of TLS 1.2. Those of 1.3 are always offered, as by Go.
#[derive(Clone, Debug, Default)]
pub struct TlsOptions {
    newest_only: bool,
    suites: Option<Vec<CipherSuite>>,
}

impl TlsOptions {
    /// By upstream's names; empty means all.
    pub fn new(min_version: &str, suites: &[&str]) -> Result<Self, BadTls> {
        let newest_only = match min_version {
            "" | "VersionTLS12" => false,
            "VersionTLS13" => true,
            "VersionTLS10" | "VersionTLS11" => return Err(BadTls::OldVersion(min_version.to_owned())),
            _ => return Err(BadTls::UnknownVersion(min_version.to_owned())),
        };
        let suites = suites.iter().map(|name| suite(name)).collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            newest_only,
            suites: (!suites.is_empty()).then_some(suites),
        })
    }

    pub(super) fn versions(&self) -> &'static [&'static SupportedProtocolVersion] {
        if self.newest_only { &NEWEST } else { &BOTH }
    }

    pub(super) fn provider(&self) -> Arc<CryptoProvider> {
        let mut provider = (*super::provider()).clone();
        if let Some(suites) = &self.suites {
            let offered =
                |suite: &rustls::SupportedCipherSuite| suite.tls13().is_some() || suites.contains(&suite.suite());
            provider.cipher_suites.retain(offered);
        }
        Arc::new(provider)
    }
}

fn suite(name: &str) -> Result<CipherSuite, BadTls> {
    let standard = OLD_NAMES
        .iter()
        .find(|(old, _)| *old == name)
        .map_or(name, |(_, new)| new);
    let suites = super::provider().cipher_suites.clone();
    let found = suites.iter().map(rustls::SupportedCipherSuite::suite).find(|suite| {
        let known = suite.as_str().unwrap_or_default();
        known == standard || known.strip_prefix("TLS13_") == standard.strip_prefix("TLS_")
    });
    found.ok_or_else(|| BadTls::UnknownSuite(name.to_owned()))
}

#[cfg(test)]
mod tests {
    use rustls::SupportedCipherSuite;

    use super::*;

    #[test]
    fn only_good_versions_and_suites_are_offered() {
        let all = TlsOptions::default();
        for suite in &all.provider().cipher_suites {
            let name = suite.suite().as_str().unwrap().to_owned();
            let forward = name.starts_with("TLS13_") || name.starts_with("TLS_ECDHE_");
            assert!(
                forward && (name.contains("_GCM_") || name.contains("CHACHA20")),
                "{name}"
            );
        }
        assert_eq!(all.versions().len(), 2);
        let one = TlsOptions::new("VersionTLS12", &["TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305"]).unwrap();
        let names: Vec<_> = one
            .provider()
            .cipher_suites
            .iter()
            .map(SupportedCipherSuite::suite)
            .collect();
        assert_eq!(names.len(), 4, "{names:?}");
        assert!(names.contains(&CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256));
        assert!(TlsOptions::new("", &["TLS_AES_128_GCM_SHA256"]).is_ok());
        assert_eq!(TlsOptions::new("VersionTLS13", &[]).unwrap().versions().len(), 1);
        let refused = |version: &str, suites: &[&str]| TlsOptions::new(version, suites).unwrap_err().to_string();
        assert_eq!(refused("1.2", &[]), "unknown tls version \"1.2\"");
        assert_eq!(
            refused("VersionTLS10", &[]),
            "VersionTLS10 is not offered: VersionTLS12 is the oldest that is"
        );
        assert_eq!(
            refused("", &["TLS_RSA_WITH_AES_128_CBC_SHA"]),
            "Cipher suite TLS_RSA_WITH_AES_128_CBC_SHA not supported or doesn't exist"
        );
    }
}

//! Which certificates a called server may show, and what is said about the others.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use jiff::Timestamp;
use quick_cache::sync::Cache;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use super::credential::Identity;
use crate::tls;

/// Sets of authorities that stay compiled. Most planes that have webhooks share theirs, or ask seldom.
const CONFIGS: usize = 256;

/// What a TLS configuration is made from: the authorities that it trusts, and what it shows.
type Basis = (Arc<[u8]>, Option<Identity>);

/// TLS configurations by the authorities they trust.
pub(super) struct Trust {
    configs: Cache<Basis, Arc<ClientConfig>>,
    /// The one that trusts what this machine trusts.
    system: OnceLock<Arc<ClientConfig>>,
}

impl Default for Trust {
    fn default() -> Self {
        Self {
            configs: Cache::new(CONFIGS),
            system: OnceLock::new(),
        }
    }
}

impl Trust {
    /// The configuration for a bundle in PEM, of which an empty one means this machine's authorities, and for what is shown.
    pub(super) fn config(&self, bundle: &Arc<[u8]>, identity: Option<&Identity>) -> Result<Arc<ClientConfig>, String> {
        if bundle.is_empty() && identity.is_none() {
            let made = || client_config(system_roots(), None).expect("nothing is shown that could be wrong");
            return Ok(self.system.get_or_init(made).clone());
        }
        self.configs
            .get_or_insert_with(&(bundle.clone(), identity.cloned()), || {
                if bundle.is_empty() {
                    return client_config(system_roots(), identity);
                }
                let roots = certificates(bundle);
                if roots.is_empty() {
                    return Err("unable to load root certificates: unable to parse bytes as PEM block".to_owned());
                }
                client_config(roots, identity)
            })
    }
}

/// The certificates of a PEM file, as Go reads one: what is none is skipped.
fn certificates(pem: &[u8]) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem).filter_map(Result::ok).collect()
}

/// Where distributions keep what they trust, in the order in which Go looks.
const FILES: [&str; 6] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/cacert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// What this machine trusts, read once.
fn system_roots() -> Vec<CertificateDer<'static>> {
    let read = |path: &Path| std::fs::read(path).map(|pem| certificates(&pem)).unwrap_or_default();
    if let Some(named) = std::env::var_os("SSL_CERT_FILE") {
        return read(Path::new(&named));
    }
    let found = FILES.iter().map(|path| read(Path::new(path)));
    found.into_iter().find(|roots| !roots.is_empty()).unwrap_or_default()
}

fn client_config(
    roots: Vec<CertificateDer<'static>>,
    identity: Option<&Identity>,
) -> Result<Arc<ClientConfig>, String> {
    let provider = tls::provider();
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(roots.iter().cloned());
    let chains = (!store.is_empty()).then(|| {
        WebPkiServerVerifier::builder_with_provider(Arc::new(store), provider.clone())
            .build()
            .expect("there are roots and no revocation lists")
    });
    let verifier = Verifier {
        chains,
        roots,
        algorithms: provider.signature_verification_algorithms,
    };
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring has cipher suites for both versions")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            let key = identity.key().ok_or("tls: failed to find any PEM data in key input")?;
            builder
                .with_client_auth_cert(certificates(identity.certificate()), key)
                .map_err(|error| format!("tls: {error}"))?
        }
    };
    // As upstream: connections of HTTP/2 would all go to one of several backends.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Verifies as Go does: by a chain to a root, or because the server's certificate itself is among the roots, which webhooks
/// with a self-signed certificate count on.
#[derive(Debug)]
struct Verifier {
    /// `None` where nothing is trusted.
    chains: Option<Arc<WebPkiServerVerifier>>,
    roots: Vec<CertificateDer<'static>>,
    algorithms: rustls::crypto::WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if self.roots.iter().any(|root| root == end_entity) {
            check_times(end_entity, now)?;
            let parsed = ParsedCertificate::try_from(end_entity)?;
            rustls::client::verify_server_name(&parsed, server_name)?;
            return Ok(ServerCertVerified::assertion());
        }
        match &self.chains {
            Some(chains) => chains.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now),
            None => Err(CertificateError::UnknownIssuer.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

fn check_times(certificate: &CertificateDer<'_>, now: UnixTime) -> Result<(), rustls::Error> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).map_err(|_| CertificateError::BadEncoding)?;
    let unix = |seconds: i64| {
        let seconds = u64::try_from(seconds).unwrap_or(0);
        UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds))
    };
    let (not_before, not_after) = (
        unix(parsed.validity().not_before.timestamp()),
        unix(parsed.validity().not_after.timestamp()),
    );
    if now.as_secs() < not_before.as_secs() {
        return Err(CertificateError::NotValidYetContext { time: now, not_before }.into());
    }
    if now.as_secs() > not_after.as_secs() {
        return Err(CertificateError::ExpiredContext { time: now, not_after }.into());
    }
    Ok(())
}

/// Go's words for a handshake that failed.
pub(super) fn handshake_error(error: &std::io::Error, name: &ServerName<'_>) -> String {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match inner {
        Some(rustls::Error::InvalidCertificate(error)) => {
            format!(
                "tls: failed to verify certificate: x509: {}",
                certificate_error(error, name)
            )
        }
        Some(rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType)) => {
            "tls: first record does not look like a TLS handshake".to_owned()
        }
        Some(rustls::Error::AlertReceived(alert)) => format!("remote error: tls: {}", alert_text(*alert)),
        Some(error) => format!("tls: {error}"),
        None => match error.kind() {
            std::io::ErrorKind::UnexpectedEof => "EOF".to_owned(),
            std::io::ErrorKind::ConnectionReset => "read: connection reset by peer".to_owned(),
            _ => error.to_string(),
        },
    }
}

fn certificate_error(error: &CertificateError, name: &ServerName<'_>) -> String {
    const VALIDITY: &str = "certificate has expired or is not yet valid";
    match error {
        // A bad signature is that of another authority with the same name.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "certificate signed by unknown authority".to_owned()
        }
        CertificateError::ExpiredContext { time, not_after } => {
            format!("{VALIDITY}: current time {} is after {}", text(*time), text(*not_after))
        }
        CertificateError::NotValidYetContext { time, not_before } => {
            format!(
                "{VALIDITY}: current time {} is before {}",
                text(*time),
                text(*not_before)
            )
        }
        CertificateError::NotValidForNameContext { presented, .. } => name_error(presented, name),
        other => other.to_string(),
    }
}

/// Rustls lists a certificate's names as `DnsName("a.example")` and `IpAddress(10.0.0.1)`.
fn name_error(presented: &[String], name: &ServerName<'_>) -> String {
    let wanted = name.to_str();
    let kind = match name {
        ServerName::IpAddress(_) => "IpAddress",
        _ => "DnsName",
    };
    let names: Vec<&str> = presented
        .iter()
        .filter_map(|shown| Some(shown.strip_prefix(kind)?.trim_matches(['(', ')', '"'])))
        .collect();
    if !names.is_empty() {
        return format!("certificate is valid for {}, not {wanted}", names.join(", "));
    }
    if kind == "IpAddress" {
        return format!("cannot validate certificate for {wanted} because it doesn't contain any IP SANs");
    }
    format!("certificate is not valid for any names, but wanted to match {wanted}")
}

fn alert_text(alert: rustls::AlertDescription) -> String {
    use rustls::AlertDescription as Alert;
    match alert {
        Alert::BadCertificate => "bad certificate".to_owned(),
        Alert::CertificateRequired => "certificate required".to_owned(),
        Alert::HandshakeFailure => "handshake failure".to_owned(),
        Alert::InternalError => "internal error".to_owned(),
        Alert::NoApplicationProtocol => "no application protocol".to_owned(),
        Alert::ProtocolVersion => "protocol version not supported".to_owned(),
        Alert::UnrecognisedName => "unrecognized name".to_owned(),
        other => format!("{other:?}"),
    }
}

fn text(time: UnixTime) -> String {
    let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    Timestamp::from_second(seconds).map_or_else(|_| String::new(), |time| time.to_string())
}

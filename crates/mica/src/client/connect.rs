//! Opening a connection: TLS as a kubeconfig says, or none for a local collector.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST};
use http::{Request, StatusCode};
use http_body_util::Full;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use mica_server::tls;
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::kubeconfig::{Kubeconfig, Trust};
use super::{Outgoing, collect};

/// Time to connect and shake hands.
const PATIENCE: Duration = Duration::from_secs(10);

pub(super) async fn open(config: &Kubeconfig) -> anyhow::Result<SendRequest<Outgoing>> {
    let uri: http::Uri = config.server.parse().context("not an address")?;
    let host = uri
        .host()
        .context("not an address")?
        .trim_matches(['[', ']'])
        .to_owned();
    if uri.scheme_str() != Some("https") {
        bail!("only https:// is spoken");
    }
    let port = uri.port_u16().unwrap_or(443);
    let name = config.tls_server_name.clone().unwrap_or_else(|| host.clone());
    let name = ServerName::try_from(name).context("the server's name")?;
    let tls = Arc::new(client_config(config)?);
    let connecting = async {
        let tcp = TcpStream::connect((host.as_str(), port)).await?;
        tcp.set_nodelay(true)?;
        TlsConnector::from(tls).connect(name, tcp).await
    };
    let stream = tokio::time::timeout(PATIENCE, connecting)
        .await
        .map_err(|_| anyhow!("no connection in time"))??;
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender)
}

fn client_config(config: &Kubeconfig) -> anyhow::Result<rustls::ClientConfig> {
    let builder = rustls::ClientConfig::builder_with_provider(tls::provider()).with_safe_default_protocol_versions()?;
    let builder = match &config.trust {
        Trust::Authority(pem) => {
            let mut roots = RootCertStore::empty();
            for certificate in CertificateDer::pem_slice_iter(pem) {
                roots.add(certificate.context("the certificate authority")?)?;
            }
            let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), tls::provider()).build()?;
            builder.with_webpki_verifier(verifier)
        }
        Trust::Anybody => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyServer)),
    };
    let mut client = match &config.certificate {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain = CertificateDer::pem_slice_iter(certificate)
                .collect::<Result<Vec<_>, _>>()
                .context("the client certificate")?;
            let key = PrivateKeyDer::from_pem_slice(key).context("the client key")?;
            builder
                .with_client_auth_cert(chain, key)
                .context("the client certificate and key")?
        }
    };
    client.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(client)
}

/// For `insecure-skip-tls-verify`: what it says.
#[derive(Debug)]
struct AnyServer;

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = tls::provider().signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, dss, &algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = tls::provider().signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, &algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        tls::provider().signature_verification_algorithms.supported_schemes()
    }
}

/// Posts JSON over plain HTTP, on a connection of its own.
pub async fn plain_post(url: &http::Uri, json: Bytes) -> anyhow::Result<StatusCode> {
    let host = url.host().context("no host")?;
    let posting = async {
        let tcp = TcpStream::connect((host.trim_matches(['[', ']']), url.port_u16().unwrap_or(80))).await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(tcp)).await?;
        tokio::spawn(connection);
        let request = Request::post(url.path())
            .header(HOST, url.authority().map(ToString::to_string).unwrap_or_default())
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(json))?;
        let response = sender.send_request(request).await?;
        let status = response.status();
        collect(response, 64 * 1024).await?;
        anyhow::Ok(status)
    };
    tokio::time::timeout(PATIENCE, posting)
        .await
        .map_err(|_| anyhow!("no answer in time"))?
}

//! What is behind `--etcd-servers`: etcd, the stub that stands in for it, or nothing yet.
//!
//! Whatever answers is asked whether it is the stub. Only a yes selects the embedded store; any other answer means an etcd,
//! and no answer means that one has to be waited for.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use bytes::Bytes;
use http::Request;
use http::header::HOST;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use mica_server::tls;
use mica_store::EtcdStore;
use mica_store::embedded::Durability;
use mica_store::etcd::{EtcdConfig, TlsFiles};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::TlsConnector;

use super::settings::Settings;
use crate::dropin::handshake::{PATH, Stub};
use crate::up::DataDir;
use crate::up::backend::{OpenStore, open_embedded};

/// How soon an address where nothing is yet is tried again: whoever waits for us waits for this, too.
const ASK_AGAIN: Duration = Duration::from_millis(5);
/// How long one answer is waited for. An etcd that is starting takes connections before it answers.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// A stub's answer is a path and a few words.
const MAX_ANSWER: usize = 64 << 10;
/// At least as long is tried to talk to an etcd that has answered.
const CONNECT_AT_LEAST: Duration = Duration::from_secs(5);

/// What was found at an address.
enum Found {
    Stub(Stub),
    /// Something that is no stub.
    Other,
    /// Nothing that answers, yet.
    Nothing(String),
}

/// Opens what the settings name. The directory is held while the store is open.
pub async fn open(settings: &Settings) -> anyhow::Result<(Option<DataDir>, OpenStore)> {
    match find(&settings.etcd, settings.wait).await? {
        Some(stub) => {
            let directory = data_directory(&stub.directory, &settings.etcd.prefix);
            let mut home = DataDir::take(&directory)?;
            home.note(&format!("https://{}", settings.listen))?;
            let durability = if stub.durable {
                Durability::Power
            } else {
                Durability::Process
            };
            let store = open_embedded(home.path(), durability).await?;
            tracing::info!(directory = %directory.display(), "etcd is Mica's stub: the data is in its directory");
            Ok((Some(home), OpenStore::Embedded(store)))
        }
        None => {
            let mut config = settings.etcd.clone();
            config.connect_timeout = settings.wait.max(CONNECT_AT_LEAST);
            let store = EtcdStore::connect(config).await.context("etcd")?;
            Ok((None, OpenStore::Etcd(Arc::new(store))))
        }
    }
}

/// Where the data of one prefix is. Two servers with different prefixes may share an etcd, and so a stub.
fn data_directory(stub: &Path, prefix: &str) -> PathBuf {
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || "-._".contains(c) {
            c
        } else {
            '_'
        }
    };
    let name: String = prefix.trim_matches('/').chars().map(plain).collect();
    let name = match name.as_str() {
        "" | "." | ".." => "_",
        name => name,
    };
    stub.join("mica").join(name)
}

/// Asks every address until one answers. `None` is an etcd.
async fn find(config: &EtcdConfig, wait: Duration) -> anyhow::Result<Option<Stub>> {
    let deadline = Instant::now() + wait;
    let mut told = false;
    loop {
        let mut nothing = String::new();
        for endpoint in &config.endpoints {
            match ask(endpoint, config.tls.as_ref()).await? {
                Found::Stub(stub) => return Ok(Some(stub)),
                Found::Other => return Ok(None),
                Found::Nothing(why) => nothing = format!("{endpoint}: {why}"),
            }
        }
        if Instant::now() >= deadline {
            bail!("etcd did not answer within {wait:?}: {nothing}");
        }
        if !told {
            tracing::info!("waiting for etcd: {nothing}");
            told = true;
        }
        sleep(ASK_AGAIN).await;
    }
}

async fn ask(endpoint: &str, files: Option<&TlsFiles>) -> anyhow::Result<Found> {
    let uri: http::Uri = endpoint
        .parse()
        .map_err(|_| anyhow!("etcd-servers: {endpoint:?} is not http://HOST:PORT"))?;
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    let port = uri.port_u16().unwrap_or(2379);
    let secure = match uri.scheme_str() {
        Some("http") => None,
        Some("https") => Some((client_config(files)?, ServerName::try_from(host.clone())?)),
        _ => bail!("etcd-servers: {endpoint:?} is not http://HOST:PORT"),
    };
    let tcp = match timeout(ANSWER_WITHIN, TcpStream::connect((host.as_str(), port))).await {
        Ok(Ok(tcp)) => tcp,
        Ok(Err(error)) => return Ok(Found::Nothing(error.to_string())),
        Err(_elapsed) => return Ok(Found::Nothing("no connection in time".to_owned())),
    };
    let authority = uri.authority().map_or("", http::uri::Authority::as_str);
    let answered = match secure {
        None => timeout(ANSWER_WITHIN, exchange(tcp, authority)).await,
        Some((config, name)) => {
            let secured = async {
                let stream = TlsConnector::from(Arc::new(config)).connect(name, tcp).await?;
                exchange(stream, authority).await
            };
            timeout(ANSWER_WITHIN, secured).await
        }
    };
    Ok(match answered {
        Ok(Ok(body)) => Stub::read(&body).map_or(Found::Other, Found::Stub),
        // An etcd whose port is for gRPC only hangs up on a question like this.
        Ok(Err(error)) => {
            tracing::debug!("{endpoint} does not speak plain HTTP: {error:#}");
            Found::Other
        }
        Err(_elapsed) => Found::Nothing("no answer in time".to_owned()),
    })
}

async fn exchange(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static, host: &str) -> anyhow::Result<Bytes> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let request = Request::get(PATH).header(HOST, host).body(Empty::<Bytes>::new())?;
    let response = sender.send_request(request).await?;
    let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await;
    Ok(body.map_err(|error| anyhow!(error))?.to_bytes())
}

fn client_config(files: Option<&TlsFiles>) -> anyhow::Result<rustls::ClientConfig> {
    let files = files.context("etcd-servers: https needs --etcd-cafile")?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&files.ca) {
        roots.add(certificate.context("etcd-cafile")?)?;
    }
    let builder = rustls::ClientConfig::builder_with_provider(tls::provider())
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots);
    let mut config = match &files.identity {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain = CertificateDer::pem_slice_iter(certificate)
                .collect::<Result<Vec<_>, _>>()
                .context("etcd-certfile")?;
            let key = PrivateKeyDer::from_pem_slice(key).context("etcd-keyfile")?;
            builder.with_client_auth_cert(chain, key).context("etcd-certfile")?
        }
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_prefix_has_a_directory_inside_the_stubs() {
        let of = |prefix: &str| data_directory(Path::new("/d"), prefix);
        assert_eq!(of("/registry"), Path::new("/d/mica/registry"));
        assert_eq!(of("a/../b"), Path::new("/d/mica/a_.._b"));
        for odd in ["", "/", "..", "/../"] {
            assert_eq!(of(odd), Path::new("/d/mica/_"), "{odd:?}");
        }
    }
}

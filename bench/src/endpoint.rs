//! Where a server is and how to be let in: read from a kubeconfig, so that any server can be measured.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde::Deserialize;
use tokio::io::BufReader;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// A connection. Reads as much as there is in one go: the TLS library by itself asks for 4 KiB at a time.
pub type Stream = TlsStream<BufReader<TcpStream>>;

const READ: usize = 128 * 1024;

/// Which protocol to offer in the handshake; the server must take it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    Http1,
    Http2,
}

/// A server's address, a path prefix below which its API is, and credentials.
#[derive(Clone)]
pub struct Endpoint {
    pub authority: String,
    pub prefix: String,
    pub token: Option<String>,
    server_name: ServerName<'static>,
    http1: Arc<ClientConfig>,
    http2: Arc<ClientConfig>,
}

impl Endpoint {
    /// Reads the current context's server and user.
    pub fn from_kubeconfig(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let config: Kubeconfig =
            serde_saphyr::from_str(&text).with_context(|| format!("{} is no kubeconfig", path.display()))?;
        let folder = path.parent().unwrap_or(Path::new("."));
        let (server, user) = config.current()?;
        let Some((authority, prefix)) = server
            .server
            .strip_prefix("https://")
            .map(|rest| rest.split_once('/').unwrap_or((rest, "")))
        else {
            bail!("{} is not an https address", server.server)
        };
        let host = authority
            .rsplit_once(':')
            .map_or(authority, |(host, _)| host)
            .trim_matches(['[', ']']);
        let ca = pem(
            server.certificate_authority_data.as_ref(),
            server.certificate_authority.as_ref(),
            folder,
        )?
        .context("the kubeconfig has no certificate authority")?;
        let certificate = pem(
            user.client_certificate_data.as_ref(),
            user.client_certificate.as_ref(),
            folder,
        )?;
        let key = pem(user.client_key_data.as_ref(), user.client_key.as_ref(), folder)?;
        let identity = certificate.zip(key);
        Ok(Self {
            authority: if authority.contains(':') {
                authority.to_owned()
            } else {
                format!("{authority}:443")
            },
            prefix: if prefix.is_empty() {
                String::new()
            } else {
                format!("/{}", prefix.trim_end_matches('/'))
            },
            token: user.token.clone(),
            server_name: ServerName::try_from(host.to_owned()).context("the server's name")?,
            http1: Arc::new(client_config(&ca, identity.as_ref(), b"http/1.1")?),
            http2: Arc::new(client_config(&ca, identity.as_ref(), b"h2")?),
        })
    }

    /// The same server below another prefix.
    pub fn at(&self, prefix: &str) -> Self {
        Self {
            prefix: prefix.to_owned(),
            ..self.clone()
        }
    }

    pub async fn connect(&self, protocol: Protocol) -> Result<Stream> {
        let tcp = TcpStream::connect(&self.authority)
            .await
            .with_context(|| format!("connect {}", self.authority))?;
        tcp.set_nodelay(true)?;
        let config = match protocol {
            Protocol::Http1 => &self.http1,
            Protocol::Http2 => &self.http2,
        };
        let tcp = BufReader::with_capacity(READ, tcp);
        let tls = TlsConnector::from(config.clone()).connect(self.server_name.clone(), tcp);
        tls.await.with_context(|| format!("TLS with {}", self.authority))
    }

    /// A whole HTTP/1.1 request, ready to be written to a connection.
    pub fn request(&self, method: &str, path: &str, body: &[u8]) -> Vec<u8> {
        self.typed_request(method, path, "application/json", body)
    }

    /// A request whose body is of another type than JSON: patches have their own.
    pub fn typed_request(&self, method: &str, path: &str, content_type: &str, body: &[u8]) -> Vec<u8> {
        let mut head = format!(
            "{method} {}{path} HTTP/1.1\r\nHost: {}\r\nUser-Agent: mica-bench\r\nAccept: application/json\r\n",
            self.prefix, self.authority
        );
        if let Some(token) = &self.token {
            head.push_str(&format!("Authorization: Bearer {token}\r\n"));
        }
        if !body.is_empty() {
            head.push_str(&format!(
                "Content-Type: {content_type}\r\nContent-Length: {}\r\n",
                body.len()
            ));
        }
        head.push_str("\r\n");
        let mut request = head.into_bytes();
        request.extend_from_slice(body);
        request
    }
}

fn client_config(ca: &[u8], identity: Option<&(Vec<u8>, Vec<u8>)>, alpn: &[u8]) -> Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(ca) {
        roots.add(certificate?)?;
    }
    let builder = ClientConfig::builder().with_root_certificates(roots);
    let mut config = match identity {
        Some((certificate, key)) => {
            let chain = CertificateDer::pem_slice_iter(certificate).collect::<Result<Vec<_>, _>>()?;
            builder.with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(key)?)?
        }
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![alpn.to_vec()];
    Ok(config)
}

/// PEM that stands in the kubeconfig itself, or in a file that it names.
fn pem(inline: Option<&String>, file: Option<&String>, folder: &Path) -> Result<Option<Vec<u8>>> {
    Ok(match (inline, file) {
        (Some(text), _) => Some(STANDARD.decode(text.trim()).context("base64 in the kubeconfig")?),
        (None, Some(path)) => Some(std::fs::read(folder.join(path)).with_context(|| format!("cannot read {path}"))?),
        (None, None) => None,
    })
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Kubeconfig {
    #[serde(default)]
    current_context: String,
    contexts: Vec<NamedContext>,
    clusters: Vec<NamedServer>,
    users: Vec<NamedUser>,
}

impl Kubeconfig {
    fn current(&self) -> Result<(&KubeServer, &KubeUser)> {
        let context = self
            .contexts
            .iter()
            .find(|c| c.name == self.current_context)
            .or(self.contexts.first());
        let context = &context.context("the kubeconfig has no context")?.context;
        let server = self
            .clusters
            .iter()
            .find(|c| c.name == context.cluster)
            .context("the context's server")?;
        let user = self
            .users
            .iter()
            .find(|u| u.name == context.user)
            .context("the context's user")?;
        Ok((&server.cluster, &user.user))
    }
}

#[derive(Deserialize)]
struct NamedContext {
    name: String,
    context: KubeContext,
}

#[derive(Deserialize)]
struct KubeContext {
    cluster: String,
    user: String,
}

#[derive(Deserialize)]
struct NamedServer {
    name: String,
    cluster: KubeServer,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct KubeServer {
    server: String,
    certificate_authority_data: Option<String>,
    certificate_authority: Option<String>,
}

#[derive(Deserialize)]
struct NamedUser {
    name: String,
    user: KubeUser,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct KubeUser {
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_certificate: Option<String>,
    client_key_data: Option<String>,
    client_key: Option<String>,
}

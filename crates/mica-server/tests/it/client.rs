//! A client that shows what the wire shows: one connection, HTTP/1.1 or HTTP/2, with or without a certificate.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use mica_server::pki::Issued;
use mica_server::tls;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

pub enum Connection {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

pub struct Dial<'a> {
    pub addr: SocketAddr,
    pub authority: &'a CertificateDer<'static>,
    pub host: &'a str,
    pub alpn: &'a [&'a str],
    pub certificate: Option<&'a Issued>,
}

impl Dial<'_> {
    pub async fn tls(&self) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(self.authority.clone()).unwrap();
        let builder = rustls::ClientConfig::builder_with_provider(tls::provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match self.certificate {
            None => builder.with_no_client_auth(),
            Some(issued) => {
                let chain = vec![CertificateDer::from_pem_slice(issued.certificate_pem.as_bytes()).unwrap()];
                let key = PrivateKeyDer::from_pem_slice(issued.key_pem.as_bytes()).unwrap();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        };
        config.alpn_protocols = self.alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        let tcp = TcpStream::connect(self.addr).await?;
        let name = ServerName::try_from(self.host.to_owned()).unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, tcp).await
    }

    pub async fn connect(&self) -> std::io::Result<Connection> {
        let tls = self.tls().await?;
        let http2 = tls.get_ref().1.alpn_protocol() == Some(b"h2");
        let io = TokioIo::new(tls);
        Ok(if http2 {
            let (sender, connection) = http2::handshake(TokioExecutor::new(), io)
                .await
                .map_err(std::io::Error::other)?;
            tokio::spawn(connection);
            Connection::Http2(sender)
        } else {
            let (sender, connection) = http1::handshake(io).await.map_err(std::io::Error::other)?;
            tokio::spawn(connection.with_upgrades());
            Connection::Http1(sender)
        })
    }
}

impl Connection {
    pub async fn send(&mut self, mut request: Request<Full<Bytes>>) -> Result<Response<Incoming>, hyper::Error> {
        match self {
            Self::Http1(sender) => {
                request.headers_mut().insert("host", "localhost".parse().unwrap());
                sender.ready().await?;
                sender.send_request(request).await
            }
            Self::Http2(sender) => {
                *request.uri_mut() = format!("https://localhost{}", request.uri()).parse().unwrap();
                sender.ready().await?;
                sender.send_request(request).await
            }
        }
    }

    pub async fn get(&mut self, path: &str) -> Result<Response<Incoming>, hyper::Error> {
        self.send(Request::get(path).body(Full::default()).unwrap()).await
    }

    pub async fn get_text(&mut self, path: &str) -> String {
        let response = self.get(path).await.unwrap();
        text(response).await.unwrap()
    }

    /// Resolves when the server has closed the connection or asked to.
    pub async fn closed(&mut self) {
        loop {
            let ready = match self {
                Self::Http1(sender) => sender.ready().await,
                Self::Http2(sender) => sender.ready().await,
            };
            if ready.is_err() {
                return;
            }
            tokio::task::yield_now().await;
        }
    }
}

pub async fn text(response: Response<Incoming>) -> Result<String, hyper::Error> {
    Ok(String::from_utf8(response.into_body().collect().await?.to_bytes().to_vec()).unwrap())
}

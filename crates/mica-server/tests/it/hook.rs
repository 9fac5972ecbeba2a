//! A webhook server over real TLS that answers as told, well or badly.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mica_server::pki::{Authority, Issued};
use mica_server::tls::provider;
use parking_lot::Mutex;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufStream};
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

/// A request as it came.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Request line and headers.
    pub head: String,
    pub body: Value,
}

impl Seen {
    pub fn path(&self) -> &str {
        self.head.split(' ').nth(1).unwrap_or_default()
    }
}

/// What is done about a request.
pub enum Answer {
    /// 200 with a JSON body.
    Json(Value),
    Reply {
        code: u16,
        content_type: Option<&'static str>,
        body: String,
    },
    /// These bytes, and the end of the connection.
    Raw(Vec<u8>),
    /// A good answer, after which the connection ends without a word.
    JsonThenClose(Value),
    /// These bytes, and then nothing for ever.
    Hang(Vec<u8>),
}

type Handler = Arc<dyn Fn(&Seen) -> Answer + Send + Sync>;

pub struct Hook {
    pub addr: SocketAddr,
    ca_pem: String,
    seen: Arc<Mutex<Vec<Seen>>>,
    connections: Arc<AtomicUsize>,
    serving: JoinHandle<()>,
}

impl Drop for Hook {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Hook {
    /// Ends the server and every conversation, and waits until its address is free.
    pub async fn stop(mut self) {
        self.serving.abort();
        let _ = (&mut self.serving).await;
    }
}

pub fn authority() -> Authority {
    Authority::generate("hook-ca", SystemTime::now()).unwrap()
}

pub fn serving(authority: &Authority, hosts: &[&str]) -> Issued {
    let hosts: Vec<String> = hosts.iter().map(|&host| host.to_owned()).collect();
    authority.issue_serving("hook", &hosts, SystemTime::now()).unwrap()
}

impl Hook {
    pub async fn start(handler: impl Fn(&Seen) -> Answer + Send + Sync + 'static) -> Self {
        let authority = authority();
        let issued = serving(&authority, &["127.0.0.1", "localhost", "svc.ns.svc"]);
        Self::with(authority.certificate_pem(), &issued, handler).await
    }

    /// Shows this certificate, and names that authority to callers.
    pub async fn with(
        ca_pem: &str,
        issued: &Issued,
        handler: impl Fn(&Seen) -> Answer + Send + Sync + 'static,
    ) -> Self {
        Self::at((Ipv4Addr::LOCALHOST, 0).into(), ca_pem, issued, handler).await
    }

    /// The same at an address, where another may have been.
    pub async fn at(
        addr: SocketAddr,
        ca_pem: &str,
        issued: &Issued,
        handler: impl Fn(&Seen) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(addr).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (seen, connections) = (Arc::default(), Arc::new(AtomicUsize::new(0)));
        let acceptor = acceptor(issued);
        let handler: Handler = Arc::new(handler);
        let (log, count) = (Arc::clone(&seen), connections.clone());
        let serving = tokio::spawn(async move {
            // Conversations end with the server.
            let mut conversations = JoinSet::new();
            loop {
                let (tcp, _) = listener.accept().await.unwrap();
                count.fetch_add(1, Ordering::SeqCst);
                let (acceptor, handler, log) = (acceptor.clone(), handler.clone(), Arc::clone(&log));
                conversations.spawn(async move {
                    if let Ok(tls) = acceptor.accept(tcp).await {
                        let _ = converse(BufStream::new(tls), &handler, &log).await;
                    }
                });
            }
        });
        Self {
            addr,
            ca_pem: ca_pem.to_owned(),
            seen,
            connections,
            serving,
        }
    }

    /// How to call it, at a path.
    pub fn client_config(&self, path: &str) -> Value {
        self.client_config_at(&format!("https://{}{path}", self.addr))
    }

    pub fn client_config_at(&self, url: &str) -> Value {
        json!({"url": url, "caBundle": STANDARD.encode(&self.ca_pem)})
    }

    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// A kubeconfig that leads here and shows a token.
    pub fn kubeconfig(&self, path: &str, token: &str) -> String {
        format!(
            "current-context: c\ncontexts: [{{name: c, context: {{cluster: far, user: me}}}}]\n\
             clusters: [{{name: far, cluster: {{server: 'https://{}{path}', certificate-authority-data: {}}}}}]\n\
             users: [{{name: me, user: {{token: {token}}}}}]\n",
            self.addr,
            STANDARD.encode(&self.ca_pem)
        )
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().clone()
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// Waits until so many requests have come.
    pub async fn saw(&self, count: usize) {
        let coming = async {
            while self.seen.lock().len() < count {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), coming)
            .await
            .expect("requests come");
    }
}

fn acceptor(issued: &Issued) -> TlsAcceptor {
    let chain = CertificateDer::pem_slice_iter(issued.certificate_pem.as_bytes());
    let chain = chain.collect::<Result<Vec<_>, _>>().unwrap();
    let key = PrivateKeyDer::from_pem_slice(issued.key_pem.as_bytes()).unwrap();
    let config = rustls::ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}

async fn converse<S>(mut stream: BufStream<S>, handler: &Handler, log: &Mutex<Vec<Seen>>) -> std::io::Result<()>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if stream.read_line(&mut head).await? == 0 {
                return Ok(());
            }
        }
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length")
                .then(|| value.trim().parse().ok())?
        });
        let mut body = vec![0; length.unwrap_or(0)];
        stream.read_exact(&mut body).await?;
        let seen = Seen {
            head,
            body: serde_json::from_slice(&body).unwrap_or(Value::Null),
        };
        let answer = handler(&seen);
        log.lock().push(seen);
        let (bytes, next) = match answer {
            Answer::Json(value) => (reply(200, Some("application/json"), &value.to_string()), Next::Again),
            Answer::Reply {
                code,
                content_type,
                body,
            } => (reply(code, content_type, &body), Next::Again),
            Answer::JsonThenClose(value) => (reply(200, Some("application/json"), &value.to_string()), Next::Close),
            Answer::Raw(bytes) => (bytes, Next::Close),
            Answer::Hang(bytes) => (bytes, Next::Hang),
        };
        stream.write_all(&bytes).await?;
        stream.flush().await?;
        match next {
            Next::Again => {}
            Next::Close => return stream.shutdown().await,
            Next::Hang => std::future::pending().await,
        }
    }
}

enum Next {
    Again,
    Close,
    Hang,
}

pub fn reply(code: u16, content_type: Option<&str>, body: &str) -> Vec<u8> {
    let content_type = content_type.map_or_else(String::new, |text| format!("Content-Type: {text}\r\n"));
    let location = if code / 100 == 3 {
        "Location: /elsewhere\r\n"
    } else {
        ""
    };
    let length = body.len();
    format!("HTTP/1.1 {code} Said\r\n{content_type}{location}Content-Length: {length}\r\n\r\n{body}").into_bytes()
}

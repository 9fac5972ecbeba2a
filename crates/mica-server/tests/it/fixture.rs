//! A server with a service that is good for looking at connections.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream;
use http::{Request, Response, StatusCode};
use mica_server::http::{
    Body, Context, Drain, Envelope, EnvelopeOptions, Frames, ListenOptions, Listener, Protocol, RequestBody, Service,
    read_body, upgrade_watch,
};
use mica_server::metrics::{HttpMetrics, Registry};
use mica_server::pki::{Authority, Identity, Issued, serving_names};
use mica_server::tls::{ClientRoots, ServingCertificates, certified_key};
use rustls::pki_types::UnixTime;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::client::{Connection, Dial};

pub const HTTP1: &[&str] = &["http/1.1"];
pub const HTTP2: &[&str] = &["h2", "http/1.1"];
pub const PLANE_HOST: &str = "milo-apiserver.project-a.svc.cluster.local";

/// Answers by path; see `call`.
pub struct Sample {
    /// `/wait` answers when told.
    pub go_on: Arc<Notify>,
    /// Told when a request has reached `/wait`.
    pub waiting: Arc<Notify>,
}

impl Service for Sample {
    async fn call(&self, context: &Context, mut request: Request<RequestBody>) -> Response<Body> {
        let drain = context.peer.drain().clone();
        match request.uri().path() {
            "/whoami" => Response::new(Body::full(describe(context))),
            "/panic" => panic!("a bug"),
            "/echo" => match read_body(request.into_body(), 1024 * 1024, Duration::from_secs(10)).await {
                Ok(body) => Response::new(Body::full(body)),
                Err(error) => {
                    let mut response = Response::new(Body::full(error.to_string()));
                    *response.status_mut() = StatusCode::PAYLOAD_TOO_LARGE;
                    response
                }
            },
            "/wait" => {
                self.waiting.notify_one();
                self.go_on.notified().await;
                Response::new(Body::full("done"))
            }
            "/large" => Response::new(Body::full(vec![b'x'; 1_000_000])),
            "/endless" => Response::new(Body::stream(stream::repeat(Bytes::from(vec![b'x'; 64 * 1024])))),
            "/endless-watch" => Response::new(Body::watch(stream::repeat(Bytes::from(vec![b'x'; 64 * 1024])), drain)),
            "/watch" => Response::new(Body::watch(
                stream::iter([Bytes::from("event\n")]).chain(stream::pending()),
                drain,
            )),
            "/socket" => {
                let events = stream::iter(["{\"type\":\"ADDED\"}\n", "{\"type\":\"MODIFIED\"}\n"].map(Bytes::from));
                let more = stream::iter(std::iter::repeat_n(Bytes::from("more"), 0)).chain(stream::pending());
                upgrade_watch(&context.peer, &mut request, Frames::Text, events.chain(more)).unwrap_or_else(|error| {
                    let mut response = Response::new(Body::full(error.to_string()));
                    *response.status_mut() = error.code();
                    response
                })
            }
            other => panic!("no sample at {other}"),
        }
    }
}

fn describe(context: &Context) -> String {
    let who = match context.peer.verified_chain(UnixTime::now()) {
        Ok(None) => "anonymous".to_owned(),
        Ok(Some(chain)) => X509Certificate::from_der(&chain[0]).unwrap().1.subject().to_string(),
        Err(_) => "refused".to_owned(),
    };
    let protocol = match context.peer.protocol() {
        Protocol::Http1 => "http1",
        Protocol::Http2 => "http2",
        Protocol::InProcess => "in process",
    };
    format!(
        "{who} over {protocol} to {}",
        context.peer.server_name().unwrap_or("no name")
    )
}

pub struct Server {
    pub addr: SocketAddr,
    pub authority: Arc<Authority>,
    pub certificates: Arc<ServingCertificates>,
    pub roots: Arc<ClientRoots>,
    pub registry: Arc<Registry>,
    pub go_on: Arc<Notify>,
    pub waiting: Arc<Notify>,
    pub drain: CancellationToken,
    pub ended: JoinHandle<Drain>,
}

impl Server {
    pub async fn start() -> Self {
        Self::start_with(ListenOptions::default()).await
    }

    pub async fn start_with(options: ListenOptions) -> Self {
        let now = SystemTime::now();
        let authority = Arc::new(Authority::generate("test-ca", now).unwrap());
        let main = authority.issue_serving("mica", &serving_names([]), now).unwrap();
        let certificates = Arc::new(ServingCertificates::new(certified_key(&main).unwrap()).with_hosts(
            authority.clone(),
            Box::new(|host| Box::pin(async move { host == PLANE_HOST })),
        ));
        let roots = Arc::new(ClientRoots::new(&[authority.certificate().clone()]).unwrap());
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let listener = Listener::bind(any, certificates.clone(), roots.clone(), options)
            .await
            .unwrap();
        let addr = listener.local_addr().unwrap();
        let registry = Arc::new(Registry::new());
        let (go_on, waiting) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let sample = Sample {
            go_on: go_on.clone(),
            waiting: waiting.clone(),
        };
        let envelope = Envelope::new(sample, EnvelopeOptions::default(), HttpMetrics::new(&registry));
        let drain = CancellationToken::new();
        let ended = tokio::spawn(listener.serve(Arc::new(envelope), drain.clone()));
        Self {
            addr,
            authority,
            certificates,
            roots,
            registry,
            go_on,
            waiting,
            drain,
            ended,
        }
    }

    pub fn dial<'a>(&'a self, alpn: &'a [&'a str]) -> Dial<'a> {
        Dial {
            addr: self.addr,
            authority: self.authority.certificate(),
            host: "localhost",
            alpn,
            certificate: None,
        }
    }

    pub async fn connect(&self, alpn: &[&str]) -> Connection {
        self.dial(alpn).connect().await.unwrap()
    }

    pub fn client_certificate(&self, name: &str) -> Issued {
        client_certificate(&self.authority, name)
    }

    /// Cancels and waits: a server that does not end would hang the test.
    pub async fn stop(self) -> Drain {
        self.drain.cancel();
        self.ended.await.unwrap()
    }
}

/// An administrator's certificate.
pub fn client_certificate(authority: &Authority, name: &str) -> Issued {
    certificate_in(authority, name, Some("system:masters"))
}

pub fn certificate_in(authority: &Authority, name: &str, group: Option<&str>) -> Issued {
    let identity = Identity {
        name: name.to_owned(),
        group: group.map(str::to_owned),
    };
    authority.issue_client(&identity, SystemTime::now()).unwrap()
}

//! The small servers of a manager: probes and metrics, over plain HTTP/1.1, for the pod's own network.
//!
//! They answer from memory and never wait, so that a probe tells how the process is and not how busy its servers are.

mod health;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use health::{Check, Checks};

/// Who asks is a kubelet and a scraper or two.
const MOST_CONNECTIONS: usize = 64;
/// How long a client may take to send its request.
const HEADERS: Duration = Duration::from_secs(10);
/// How long to wait when no connection can be accepted, as when the process has too many files open.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// What is answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) content: &'static str,
    pub(crate) body: String,
}

pub(crate) const TEXT: &str = "text/plain; charset=utf-8";
pub(crate) const JSON: &str = "application/json";

impl Answer {
    pub(crate) fn ok(content: &'static str, body: String) -> Self {
        Self {
            status: StatusCode::OK,
            content,
            body,
        }
    }
}

/// Answers a path and a query; `None` is 404.
pub(crate) type Routes = dyn Fn(&str, &str) -> Option<Answer> + Send + Sync;

/// A server that has its address and does not answer yet.
pub(crate) struct Endpoint {
    listener: std::net::TcpListener,
    address: SocketAddr,
}

impl Endpoint {
    pub(crate) fn bind(address: SocketAddr) -> std::io::Result<Self> {
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until it is stopped.
    pub(crate) async fn serve(self, routes: Arc<Routes>, stop: CancellationToken) -> std::io::Result<()> {
        let listener = TcpListener::from_std(self.listener)?;
        let (places, tasks) = (Arc::new(Semaphore::new(MOST_CONNECTIONS)), TaskTracker::new());
        while !stop.is_cancelled() {
            let accepted = async {
                let place = places.clone().acquire_owned().await.expect("it is never closed");
                (listener.accept().await, place)
            };
            let Some((accepted, place)) = stop.run_until_cancelled(accepted).await else {
                break;
            };
            let Ok((stream, _)) = accepted else {
                tokio::time::sleep(ACCEPT_AGAIN).await;
                continue;
            };
            let (routes, stop) = (routes.clone(), stop.clone());
            tasks.spawn(async move {
                let service = service_fn(move |request| std::future::ready(answer(&routes, &request)));
                let connection = http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(HEADERS)
                    .serve_connection(TokioIo::new(stream), service);
                // A client that goes away in the middle is its own matter.
                let _ = stop.run_until_cancelled(connection).await;
                drop(place);
            });
        }
        tasks.close();
        tasks.wait().await;
        Ok(())
    }
}

fn answer(routes: &Arc<Routes>, request: &Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let uri = request.uri();
    let answer = match *request.method() {
        Method::GET | Method::HEAD => routes(uri.path(), uri.query().unwrap_or_default()).unwrap_or(Answer {
            status: StatusCode::NOT_FOUND,
            content: TEXT,
            body: "404 page not found\n".to_owned(),
        }),
        _ => Answer {
            status: StatusCode::METHOD_NOT_ALLOWED,
            content: TEXT,
            body: "only GET is served\n".to_owned(),
        },
    };
    let mut response = Response::new(Full::new(Bytes::from(answer.body)));
    *response.status_mut() = answer.status;
    let content = HeaderValue::from_static(answer.content);
    response.headers_mut().insert(CONTENT_TYPE, content);
    Ok(response)
}

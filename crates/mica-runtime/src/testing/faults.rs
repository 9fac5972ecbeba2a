//! Faults between a client and its server: refused credentials, expired watches, slowness, and a network that is cut.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _};
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, BodyStream, Full, StreamBody};
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tower::Service;

use crate::cluster::Access;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// What goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// 401: the credentials are not accepted.
    Unauthorized,
    /// 410: the revision is too old, as when a watch comes back after long.
    Expired,
    /// 429, with the advice to come again in a second.
    TooManyRequests,
    /// 500.
    Broken,
    /// It is answered, after this time.
    Slow(Duration),
    /// There is no answer but an error, as from a connection that was reset.
    Unreachable,
}

/// How often.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Times {
    /// Until it is healed.
    Always,
    /// For so many requests that it concerns.
    Next(u32),
}

/// A request that came by.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sent {
    pub method: Method,
    /// With its query.
    pub path: String,
}

impl Sent {
    /// Whether it opens a watch.
    pub fn is_watch(&self) -> bool {
        let query = self.path.split_once('?').map_or("", |(_, query)| query);
        query
            .split('&')
            .any(|pair| pair.starts_with("watch=") && pair != "watch=false")
    }
}

type Concerns = dyn Fn(&Sent) -> bool + Send + Sync;

struct Rule {
    fault: Fault,
    times: Times,
    concerns: Box<Concerns>,
}

/// Stands between clients and a server. Clones stand at the same place.
#[derive(Clone)]
pub struct Faults(Arc<Inner>);

struct Inner {
    server: kube::Client,
    rules: Mutex<Vec<Rule>>,
    sent: Mutex<Vec<Sent>>,
    /// Cancelled when what is open is cut.
    line: Mutex<CancellationToken>,
}

impl Faults {
    /// In front of a server. Nothing goes wrong yet.
    pub fn before(server: kube::Client) -> Self {
        Self(Arc::new(Inner {
            server,
            rules: Mutex::default(),
            sent: Mutex::default(),
            line: Mutex::default(),
        }))
    }

    /// The way to the server that passes here.
    pub fn access(&self) -> Access {
        Access::in_process(self.clone())
    }

    /// A client of the server that passes here.
    pub fn client(&self) -> kube::Client {
        self.access().client()
    }

    /// From now on this goes wrong with the requests that it concerns. Of several faults the first counts.
    pub fn inject(&self, fault: Fault, times: Times, concerns: impl Fn(&Sent) -> bool + Send + Sync + 'static) {
        let concerns = Box::new(concerns);
        self.0.rules.lock().push(Rule { fault, times, concerns });
    }

    /// The network is cut: what is open breaks, and nothing gets through until it is healed.
    pub fn partition(&self) {
        let rule = Rule {
            fault: Fault::Unreachable,
            times: Times::Always,
            concerns: Box::new(|_| true),
        };
        // Before all others: where nothing gets through, nothing is slow.
        self.0.rules.lock().insert(0, rule);
        self.cut();
    }

    /// What is open breaks, such as watches; what comes next gets through.
    pub fn cut(&self) {
        std::mem::take(&mut *self.0.line.lock()).cancel();
    }

    /// Nothing goes wrong any more.
    pub fn heal(&self) {
        self.0.rules.lock().clear();
    }

    /// How many such requests came by, whatever became of them.
    pub fn count(&self, such: impl Fn(&Sent) -> bool) -> usize {
        self.0.sent.lock().iter().filter(|sent| such(sent)).count()
    }

    /// Which fault a request meets.
    fn fault(&self, sent: &Sent) -> Option<Fault> {
        let mut rules = self.0.rules.lock();
        let at = rules.iter().position(|rule| (rule.concerns)(sent))?;
        let fault = rules[at].fault;
        if let Times::Next(left) = &mut rules[at].times {
            *left = left.saturating_sub(1);
            if *left == 0 {
                rules.remove(at);
            }
        }
        Some(fault)
    }

    async fn pass(self, request: Request<Body>) -> Result<Answer, BoxError> {
        let line = self.0.line.lock().clone();
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
        let sent = Sent {
            method: request.method().clone(),
            path: path.to_owned(),
        };
        let fault = self.fault(&sent);
        self.0.sent.lock().push(sent);
        match fault {
            None => {}
            Some(Fault::Slow(delay)) => tokio::time::sleep(delay).await,
            Some(Fault::Unreachable) => return Err(reset().into()),
            Some(Fault::Unauthorized) => return Ok(status(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized")),
            Some(Fault::Expired) => {
                let message = "too old resource version: 1 (2)";
                return Ok(status(StatusCode::GONE, "Expired", message));
            }
            Some(Fault::TooManyRequests) => {
                let message = "too many requests, please try again later";
                let mut answer = status(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message);
                let second = http::HeaderValue::from_static("1");
                answer.headers_mut().insert(http::header::RETRY_AFTER, second);
                return Ok(answer);
            }
            Some(Fault::Broken) => {
                let message = "an injected fault";
                return Ok(status(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message));
            }
        }
        let answered = line.run_until_cancelled(self.0.server.send(request)).await;
        let (parts, body) = answered.ok_or_else(reset)??.into_parts();
        let open = futures::stream::unfold(Some((BodyStream::new(body), line)), |open| async move {
            let (mut body, line) = open?;
            tokio::select! {
                biased;
                () = line.cancelled() => Some((Err(BoxError::from(reset())), None)),
                frame = body.next() => Some((frame?.map_err(BoxError::from), Some((body, line)))),
            }
        });
        Ok(Response::from_parts(parts, StreamBody::new(open).boxed_unsync()))
    }
}

type Answer = Response<UnsyncBoxBody<Bytes, BoxError>>;

impl Service<Request<Body>> for Faults {
    type Response = Answer;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Answer, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        self.clone().pass(request).boxed()
    }
}

fn reset() -> std::io::Error {
    std::io::Error::new(
        std::io::ErrorKind::ConnectionReset,
        "an injected fault: the connection is cut",
    )
}

fn status(code: StatusCode, reason: &str, message: &str) -> Answer {
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code.as_u16(),
    });
    let body = Full::new(Bytes::from(body.to_string())).map_err(|never| match never {});
    let mut answer = Response::new(body.boxed_unsync());
    *answer.status_mut() = code;
    let json = http::HeaderValue::from_static("application/json");
    answer.headers_mut().insert(http::header::CONTENT_TYPE, json);
    answer
}

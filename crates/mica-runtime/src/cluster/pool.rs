//! Connections to one place: HTTP/2, shared by everything behind it.
//!
//! Watches have connections apart from other requests, so that a list of many megabytes holds up no event. A connection
//! takes so many requests at once, and then there is another: watches do not end, so one that waited for room would wait
//! for ever. Servers that speak only HTTP/1.1, and requests that upgrade, go through an ordinary pool.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::uri::{Authority, Scheme};
use http::{Request, Response, Uri};
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client as Http1;
use hyper_util::client::legacy::connect::{Connection as _, HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::Body;
use parking_lot::Mutex;
use tokio::time::Instant;
use tower::{BoxError, Service as _};

/// Requests on one connection at once, unless its server wants fewer: what API servers allow by default.
const STREAMS: usize = 100;
/// What one answer may have under way before it is read. The connection has room for that of all of them, so that one
/// that is not read holds up no other.
const STREAM_WINDOW: u32 = 256 << 10;
/// Connections for requests that end; what does not fit waits its turn in them.
const ORDINARY_CONNECTIONS: usize = 4;
/// Connections for watches to one place, so at most 25,600 watches: more is a mistake, or asks for the wildcard.
const WATCH_CONNECTIONS: usize = 256;
/// How often a request is tried that provably was not sent, because its connection ended.
const TRIES: usize = 3;
/// A connection on which nothing was heard is asked whether it is alive, and given up if it does not say so.
const PING_EVERY: Duration = Duration::from_secs(20);
const PING_TIMEOUT: Duration = Duration::from_secs(10);
/// For how long a connection is kept that nothing uses.
const IDLE_FOR: Duration = Duration::from_secs(90);
/// How often that is looked at.
const IDLE_LOOK: Duration = Duration::from_secs(30);
/// Idle connections of HTTP/1.1 that are kept.
const IDLE: usize = 16;

/// The body of an answer, wherever it comes from.
pub(super) type AnswerBody = UnsyncBoxBody<Bytes, BoxError>;

/// Where a server is.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Origin {
    pub(super) scheme: Scheme,
    pub(super) authority: Authority,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme, self.authority)
    }
}

/// A connection could not be made. Everybody who waited for it is told the same.
#[derive(Clone, Debug, thiserror::Error)]
#[error("cannot connect to {place}")]
pub(super) struct DialError {
    place: String,
    #[source]
    cause: Arc<dyn std::error::Error + Send + Sync>,
}

#[derive(Debug, thiserror::Error)]
#[error("no answer in {0:?}")]
struct TooSlow(Duration);

#[derive(Debug, thiserror::Error)]
#[error("{} watches of one server are open", WATCH_CONNECTIONS * STREAMS)]
struct TooManyWatches;

/// The connections to one place.
pub(super) struct Pool {
    origin: Origin,
    connector: HttpsConnector<HttpConnector>,
    connect_timeout: Duration,
    h1: Http1<HttpsConnector<HttpConnector>, Body>,
    /// The server was seen not to speak HTTP/2.
    only_h1: AtomicBool,
    ordinary: Arc<Lane>,
    watches: Arc<Lane>,
}

/// Connections for one sort of request.
#[derive(Default)]
struct Lane {
    links: Mutex<Vec<Link>>,
    /// Held by who makes a connection, with how the last attempt failed, if it did.
    dialing: tokio::sync::Mutex<Option<(Instant, DialError)>>,
}

#[derive(Clone)]
struct Link {
    send: SendRequest<Body>,
    open: Arc<AtomicUsize>,
    /// How many may be open.
    room: Arc<AtomicUsize>,
}

/// Counts a request as open on its connection until its answer has been read or dropped.
struct Open(Arc<AtomicUsize>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

enum Dialed {
    H2(Link),
    OnlyH1,
}

impl Pool {
    pub(super) fn new(
        origin: Origin,
        h2: HttpsConnector<HttpConnector>,
        h1: HttpsConnector<HttpConnector>,
        connect_timeout: Duration,
    ) -> Self {
        let h1 = Http1::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_max_idle_per_host(IDLE)
            .pool_idle_timeout(IDLE_FOR)
            .build(h1);
        Self {
            // Without TLS nothing says that the server speaks HTTP/2.
            only_h1: AtomicBool::new(origin.scheme == Scheme::HTTP),
            origin,
            connector: h2,
            connect_timeout,
            h1,
            ordinary: Arc::default(),
            watches: Arc::default(),
        }
    }

    /// Whether anything is connected.
    pub(super) fn in_use(&self) -> bool {
        [&self.ordinary, &self.watches]
            .iter()
            .any(|lane| lane.links.lock().iter().any(|link| !link.send.is_closed()))
    }

    /// Sends a request whose URI is absolute.
    pub(super) async fn send(&self, mut request: Request<Body>) -> Result<Response<AnswerBody>, BoxError> {
        let (lane, most) = match is_long(request.uri()) {
            true => (&self.watches, WATCH_CONNECTIONS),
            false => (&self.ordinary, ORDINARY_CONNECTIONS),
        };
        let mut tries = 0;
        loop {
            if self.only_h1.load(Ordering::Relaxed) || request.headers().contains_key(http::header::UPGRADE) {
                let response = Box::pin(self.h1.request(request)).await?;
                return Ok(response.map(|body| body.map_err(BoxError::from).boxed_unsync()));
            }
            let (mut link, open) = match self.link(lane, most).await {
                Ok(Some(found)) => found,
                Ok(None) => {
                    self.only_h1.store(true, Ordering::Relaxed);
                    continue;
                }
                Err(error) => return Err(error),
            };
            tries += 1;
            match link.send.try_send_request(request).await {
                Ok(response) => return Ok(response.map(|incoming| Streamed { incoming, _open: open }.boxed_unsync())),
                Err(mut error) => match error.take_message() {
                    Some(unsent) if tries < TRIES => request = unsent,
                    _ => return Err(error.into_error().into()),
                },
            }
        }
    }

    /// A connection with room, made if there is none. `None` if the server does not speak HTTP/2.
    async fn link(&self, lane: &Arc<Lane>, most: usize) -> Result<Option<(Link, Open)>, BoxError> {
        if let Some(found) = lane.find() {
            return Ok(Some(found));
        }
        let asked = Instant::now();
        let mut last = lane.dialing.lock().await;
        if let Some(found) = lane.find() {
            return Ok(Some(found));
        }
        if let Some((when, error)) = &*last
            && *when >= asked
        {
            // It failed while this one waited: trying again would make the last of many wait for all of them.
            return Err(error.clone().into());
        }
        if let Some(least) = lane.least_of(most) {
            return match most == WATCH_CONNECTIONS {
                true => Err(TooManyWatches.into()),
                false => Ok(Some(least)),
            };
        }
        // Seldom, and large: not in every request.
        match Box::pin(self.dial()).await {
            Ok(Dialed::H2(link)) => {
                *last = None;
                tokio::spawn(retire(Arc::downgrade(lane), Arc::downgrade(&link.open)));
                let opened = link.open();
                lane.links.lock().push(link);
                Ok(Some(opened))
            }
            Ok(Dialed::OnlyH1) => Ok(None),
            Err(cause) => {
                let error = DialError {
                    place: self.origin.to_string(),
                    cause: cause.into(),
                };
                *last = Some((Instant::now(), error.clone()));
                Err(error.into())
            }
        }
    }

    async fn dial(&self) -> Result<Dialed, BoxError> {
        let uri = Uri::builder()
            .scheme(self.origin.scheme.clone())
            .authority(self.origin.authority.clone())
            .path_and_query("/")
            .build()?;
        let dialing = async {
            let mut connector = self.connector.clone();
            let stream = match connector.call(uri).await {
                Ok(stream) => stream,
                Err(error) => return Err(error),
            };
            if !stream.connected().is_negotiated_h2() {
                return Ok(Dialed::OnlyH1);
            }
            let (send, mut connection) = http2::Builder::new(TokioExecutor::new())
                .timer(TokioTimer::new())
                .keep_alive_interval(PING_EVERY)
                .keep_alive_timeout(PING_TIMEOUT)
                .initial_stream_window_size(STREAM_WINDOW)
                .initial_connection_window_size(STREAM_WINDOW * STREAMS as u32)
                .handshake(stream)
                .await?;
            let room = Arc::new(AtomicUsize::new(STREAMS));
            let seen = room.clone();
            // Lives as long as somebody may send on it or reads from it. What the server wants at most it says later.
            tokio::spawn(async move {
                let ended = std::future::poll_fn(|cx| {
                    let polled = Pin::new(&mut connection).poll(cx);
                    seen.store(STREAMS.min(connection.current_max_send_streams()), Ordering::Relaxed);
                    polled
                });
                if let Err(error) = ended.await {
                    tracing::debug!(%error, "a connection ended");
                }
            });
            let open = Arc::default();
            Ok(Dialed::H2(Link { send, open, room }))
        };
        match tokio::time::timeout(self.connect_timeout, dialing).await {
            Ok(dialed) => dialed,
            Err(_) => Err(TooSlow(self.connect_timeout).into()),
        }
    }
}

impl Lane {
    /// A connection with room. The first, so that few are used.
    fn find(&self) -> Option<(Link, Open)> {
        let mut links = self.links.lock();
        links.retain(|link| !link.send.is_closed());
        let room = |link: &&Link| link.open.load(Ordering::Relaxed) < link.room.load(Ordering::Relaxed);
        links.iter().find(room).map(Link::open)
    }

    /// The connection with the most room, if there are as many as there may be.
    fn least_of(&self, most: usize) -> Option<(Link, Open)> {
        let links = self.links.lock();
        if links.len() < most {
            return None;
        }
        links
            .iter()
            .min_by_key(|link| link.open.load(Ordering::Relaxed))
            .map(Link::open)
    }
}

impl Link {
    fn open(&self) -> (Self, Open) {
        self.open.fetch_add(1, Ordering::Relaxed);
        (self.clone(), Open(self.open.clone()))
    }
}

/// Lets a connection go that nothing has used for a while: a cluster that nobody asks anything has none.
async fn retire(lane: Weak<Lane>, open: Weak<AtomicUsize>) {
    let mut idle = Duration::ZERO;
    while idle < IDLE_FOR {
        tokio::time::sleep(IDLE_LOOK).await;
        match open.upgrade() {
            None => return,
            Some(open) if open.load(Ordering::Relaxed) == 0 => idle += IDLE_LOOK,
            Some(_) => idle = Duration::ZERO,
        }
        if idle >= IDLE_FOR
            && let (Some(lane), Some(open)) = (lane.upgrade(), open.upgrade())
        {
            // Requests take a connection under this lock, so none can take one that goes.
            let mut links = lane.links.lock();
            if open.load(Ordering::Relaxed) > 0 {
                idle = Duration::ZERO;
            } else {
                links.retain(|link| !Arc::ptr_eq(&link.open, &open));
            }
        }
    }
}

/// Whether a request goes on until somebody ends it: a watch, or a log that is followed.
fn is_long(uri: &Uri) -> bool {
    let long = |pair: &str| matches!(pair, "watch=true" | "watch=1" | "follow=true" | "follow=1");
    uri.query().is_some_and(|query| query.split('&').any(long))
}

pin_project_lite::pin_project! {
    /// The body of an answer that still counts on its connection.
    struct Streamed {
        #[pin]
        incoming: Incoming,
        _open: Open,
    }
}

impl http_body::Body for Streamed {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.project().incoming.poll_frame(cx).map_err(BoxError::from)
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

/// Fails what takes longer than it may.
pub(super) async fn within<T>(
    limit: Duration,
    answer: impl Future<Output = Result<T, BoxError>>,
) -> Result<T, BoxError> {
    match tokio::time::timeout(limit, answer).await {
        Ok(answer) => answer,
        Err(_) => Err(TooSlow(limit).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_that_do_not_end_are_known_by_their_query() {
        let cases = [
            ("/api/v1/pods", false),
            ("/api/v1/pods?limit=500", false),
            ("/api/v1/pods?watch=false", false),
            ("/api/v1/pods?labelSelector=watch%3Dtrue", false),
            ("/api/v1/pods?&watch=true&resourceVersion=1", true),
            ("/api/v1/pods?watch=1", true),
            ("/api/v1/namespaces/a/pods/b/log?follow=true", true),
        ];
        for (uri, long) in cases {
            assert_eq!(is_long(&uri.parse().unwrap()), long, "{uri}");
        }
    }
}

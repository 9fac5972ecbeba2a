//! A way to a server that counts requests, and can be told to fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use kube::client::Body;
use mica_runtime::Access;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tower::BoxError;
use tower::util::service_fn;

type TapBody = UnsyncBoxBody<Bytes, BoxError>;

#[derive(Clone)]
pub struct Tap(Arc<State>);

struct State {
    client: kube::Client,
    requests: Mutex<Vec<String>>,
    /// Watches that are open end when this is cancelled.
    open: Mutex<CancellationToken>,
    /// So many watches that resume are told that their version is too old.
    expire: AtomicUsize,
    /// So many requests get no answer.
    lose: AtomicUsize,
    /// What a path must not hold for the server to have it.
    hidden: Mutex<Option<&'static str>>,
    /// Requests wait while this is false.
    flows: watch::Sender<bool>,
}

impl Tap {
    /// In front of what the client reaches.
    pub fn new(client: kube::Client) -> Self {
        Self(Arc::new(State {
            client,
            requests: Mutex::default(),
            open: Mutex::default(),
            expire: AtomicUsize::new(0),
            lose: AtomicUsize::new(0),
            hidden: Mutex::default(),
            flows: watch::Sender::new(true),
        }))
    }

    /// The root of the server, through the tap.
    pub fn access(&self) -> Access {
        let tap = self.clone();
        Access::in_process(service_fn(move |request: Request<Body>| {
            let tap = tap.clone();
            async move { tap.answer(request).await }
        }))
    }

    /// Ends every watch that is open.
    pub fn cut(&self) {
        std::mem::take(&mut *self.0.open.lock()).cancel();
    }

    /// The next watches that resume are answered with 410.
    pub fn expire(&self, watches: usize) {
        self.0.expire.store(watches, Ordering::SeqCst);
    }

    /// The next requests get no answer.
    pub fn lose(&self, requests: usize) {
        self.0.lose.store(requests, Ordering::SeqCst);
    }

    /// Addresses with this in them are not found from now on, as on a server that never had them.
    pub fn hide(&self, part: &'static str) {
        *self.0.hidden.lock() = Some(part);
    }

    /// Requests wait from now on.
    pub fn pause(&self) {
        self.0.flows.send_replace(false);
    }

    pub fn resume(&self) {
        self.0.flows.send_replace(true);
    }

    /// How many lists and streamed lists there were of what a path holds.
    pub fn lists(&self, path: &str) -> usize {
        self.count(|request| request.contains(path) && is_list(request))
    }

    pub fn count(&self, matches: impl Fn(&str) -> bool) -> usize {
        self.0.requests.lock().iter().filter(|request| matches(request)).count()
    }

    async fn answer(&self, request: Request<Body>) -> Result<Response<TapBody>, BoxError> {
        let flows = self.0.flows.subscribe().wait_for(|flows| *flows).await.map(|_| ());
        flows.map_err(BoxError::from)?;
        let shown = format!("{} {}", request.method(), request.uri());
        self.0.requests.lock().push(shown.clone());
        if take_one(&self.0.lose) {
            return Err("lost on purpose".into());
        }
        if self.0.hidden.lock().is_some_and(|part| shown.contains(part)) {
            let body = Full::new(Bytes::from_static(b"404 page not found\n"));
            let mut response = Response::new(body.map_err(BoxError::from).boxed_unsync());
            *response.status_mut() = http::StatusCode::NOT_FOUND;
            return Ok(response);
        }
        let watches = shown.contains("watch=true");
        if watches && !is_list(&shown) && take_one(&self.0.expire) {
            let event = r#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old resource version","reason":"Expired","code":410}}"#;
            let body = Full::new(Bytes::from(format!("{event}\n")));
            return Ok(Response::new(body.map_err(BoxError::from).boxed_unsync()));
        }
        let open = self.0.open.lock().clone();
        let response = self.0.client.send(request).await?;
        Ok(response.map(|body| {
            let frames = body
                .into_data_stream()
                .map_ok(http_body::Frame::data)
                .map_err(BoxError::from);
            let until_cut = frames.take_until(async move {
                if watches {
                    open.cancelled_owned().await;
                } else {
                    std::future::pending::<()>().await;
                }
            });
            BodyExt::boxed_unsync(StreamBody::new(until_cut))
        }))
    }
}

/// Lists, and watches that begin with one.
fn is_list(request: &str) -> bool {
    request.starts_with("GET") && (!request.contains("watch=true") || request.contains("sendInitialEvents=true"))
}

fn take_one(left: &AtomicUsize) -> bool {
    left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1))
        .is_ok()
}

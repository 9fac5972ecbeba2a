//! The one service around all others: what every request gets, whatever it asks for.
//!
//! Order matters: the panic catcher is inside the deadline, so that a request that panics late is still answered; headers are
//! put on last, so that refusals made here have them too.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{self, Poll};
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use http::header::{ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER, VARY};
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use tokio::time::Sleep;
use tracing::Instrument as _;

use super::body::{Body, Lasting};
use super::duration::parse_go_duration;
use super::receive::RequestBody;
use super::{Context, Peer, Service, gzip, limit};
use crate::error::ApiError;
use crate::metrics::{HttpMetrics, Pending};
use crate::request::Query;

pub const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");
const STRICT_TRANSPORT_SECURITY: HeaderName = HeaderName::from_static("strict-transport-security");
const NO_CACHE: HeaderValue = HeaderValue::from_static("no-cache, private");
const GZIP: HeaderValue = HeaderValue::from_static("gzip");

#[derive(Clone, Debug)]
pub struct EnvelopeOptions {
    /// The most time a request that is not long-running gets.
    pub request_timeout: Duration,
    /// The directives of `Strict-Transport-Security`, if it is to be sent.
    pub hsts: Option<HeaderValue>,
}

impl Default for EnvelopeOptions {
    fn default() -> Self {
        Self {
            request_timeout: limit::REQUEST_TIMEOUT,
            hsts: None,
        }
    }
}

/// The value of `Strict-Transport-Security`, checked as upstream checks its flag; none if nothing is to be sent.
pub fn strict_transport(directives: &[&str]) -> Result<Option<HeaderValue>, String> {
    const ALLOWED: &str = "--strict-transport-security-directives invalid, allowed values: max-age=expireTime, includeSubDomains, preload. see https://tools.ietf.org/html/rfc6797#section-6.1 for more information";
    for directive in directives {
        if directive.trim().is_empty() {
            return Err("empty value in strict-transport-security-directives".to_owned());
        }
        let is_age = matches!(directive.split('=').collect::<Vec<_>>()[..], ["max-age", _]);
        if !is_age && !["includeSubDomains", "preload"].contains(directive) {
            return Err(ALLOWED.to_owned());
        }
    }
    if directives.is_empty() {
        return Ok(None);
    }
    HeaderValue::from_str(&directives.join("; "))
        .map(Some)
        .map_err(|_| ALLOWED.to_owned())
}

/// Wraps a service so that every answer has the common headers, keeps its deadline and is counted.
pub struct Envelope<S> {
    service: S,
    options: EnvelopeOptions,
    metrics: Arc<HttpMetrics>,
}

impl<S: Service> Envelope<S> {
    pub fn new(service: S, options: EnvelopeOptions, metrics: Arc<HttpMetrics>) -> Self {
        Self {
            service,
            options,
            metrics,
        }
    }

    pub fn metrics(&self) -> &Arc<HttpMetrics> {
        &self.metrics
    }

    /// Answers a request that came over `peer`'s connection.
    pub async fn answer(&self, peer: Arc<Peer>, request: Request<RequestBody>) -> Response<Body> {
        let span = request_span(&request);
        if span.is_disabled() {
            return self.framed(peer, request).await;
        }
        let response = Box::pin(self.framed(peer, request).instrument(span.clone())).await;
        span.record("http.response.status_code", response.status().as_u16());
        response
    }

    async fn framed(&self, peer: Arc<Peer>, request: Request<RequestBody>) -> Response<Body> {
        let mut context = Context {
            peer,
            audit_id: request
                .headers()
                .get(AUDIT_ID)
                .filter(|id| !id.is_empty())
                .cloned()
                .unwrap_or_else(new_audit_id),
            received: Instant::now(),
            deadline: None,
            labels: OnceLock::new(),
            proven: OnceLock::new(),
            acting: OnceLock::new(),
            audit: OnceLock::new(),
        };
        let pending = self.metrics.started(request.method(), context.received);
        let head = request.method() == Method::HEAD;
        let compress = gzip::accepted(request.headers().get(ACCEPT_ENCODING)) && !head;
        let mut response = match self.deadline(&request, context.received) {
            Ok(deadline) => {
                context.deadline = deadline;
                self.guarded(&context, request).await
            }
            Err(refusal) => status_response(&refusal),
        };
        if let Some(trail) = context.audit.take() {
            response = trail.answered(response);
        }
        self.put_headers(&mut response, &context);
        if head {
            // HTTP/2 counts a body here as a broken protocol.
            response = response.map(|_| Body::empty());
        }
        if compress && may_compress(&response) && exceeds(response.body_mut(), limit::GZIP_THRESHOLD).await {
            let headers = response.headers_mut();
            headers.insert(CONTENT_ENCODING, GZIP);
            headers.append(VARY, HeaderValue::from_static("Accept-Encoding"));
            headers.remove(CONTENT_LENGTH);
            response = response.map(Body::gzipped);
        }
        observe(pending, &context, response).map(Body::stall_watched)
    }

    /// When the request must be answered. Long-running ones have no deadline, and their `timeout` is not looked at.
    fn deadline(&self, request: &Request<RequestBody>, received: Instant) -> Result<Option<Instant>, ApiError> {
        if self.service.lasting(request) == Lasting::LongRunning {
            return Ok(None);
        }
        let query = request.uri().query().unwrap_or_default();
        let mut most = self.options.request_timeout;
        if query.contains("timeout")
            && let Some(text) = Query::parse(Some(query)).get("timeout").filter(|text| !text.is_empty())
        {
            let asked = parse_go_duration(text).map_err(|error| {
                ApiError::bad_request(format!("invalid timeout specified in the request URL - {error}"))
            })?;
            if !asked.is_zero() {
                most = most.min(asked);
            }
        }
        Ok(Some(received + most))
    }

    async fn guarded(&self, context: &Context, request: Request<RequestBody>) -> Response<Body> {
        let line = RequestLine::of(&request);
        let called = AssertUnwindSafe(self.service.call(context, request)).catch_unwind();
        let deadline = Deadline {
            called,
            at: context.deadline,
            timer: None,
        };
        match deadline.await {
            Ok(Ok(response)) => response,
            Ok(Err(panic)) => {
                tracing::error!(
                    request = %line, audit_id = ?context.audit_id, panic = panic_text(&*panic),
                    "a request panicked"
                );
                if let Some(trail) = context.audit.get() {
                    trail.panicked(panic_text(&*panic));
                }
                status_response(&ApiError::new(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "InternalError",
                    "This request caused apiserver to panic. Look in the logs for details.",
                ))
            }
            Err(Elapsed) => {
                self.metrics.timed_out(context.labels.get());
                let late = ApiError::timeout("Timeout: request did not complete within the allotted timeout");
                if let Some(trail) = context.audit.get() {
                    trail.refused(&late);
                }
                status_response(&late)
            }
        }
    }

    fn put_headers(&self, response: &mut Response<Body>, context: &Context) {
        let headers = response.headers_mut();
        headers.entry(AUDIT_ID).or_insert_with(|| context.audit_id.clone());
        headers.entry(CACHE_CONTROL).or_insert(NO_CACHE);
        if let Some(directives) = &self.options.hsts {
            headers
                .entry(STRICT_TRANSPORT_SECURITY)
                .or_insert_with(|| directives.clone());
        }
    }
}

pin_project_lite::pin_project! {
    /// A call that is given up at its deadline. Most are answered at once: a timer is made only for one that is not.
    struct Deadline<F> {
        #[pin]
        called: F,
        at: Option<Instant>,
        timer: Option<Pin<Box<Sleep>>>,
    }
}

struct Elapsed;

impl<F: Future> Future for Deadline<F> {
    type Output = Result<F::Output, Elapsed>;

    fn poll(self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if let Poll::Ready(answer) = this.called.poll(cx) {
            return Poll::Ready(Ok(answer));
        }
        let Some(at) = *this.at else {
            return Poll::Pending;
        };
        let timer = this
            .timer
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(at.into())));
        timer.as_mut().poll(cx).map(|()| Err(Elapsed))
    }
}

/// Whether more than `limit` bytes are to come, without making a future where that is known.
async fn exceeds(body: &mut Body, limit: usize) -> bool {
    match body.len() {
        Some(len) => len > limit as u64,
        None => Box::pin(body.exceeds(limit)).await,
    }
}

/// The span of a request, for traces. At DEBUG and under a target of its own, so that it is nothing unless a collector asks.
fn request_span(request: &Request<RequestBody>) -> tracing::Span {
    let header = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok());
    tracing::debug_span!(
        target: "mica::request",
        "request",
        traceparent = header("traceparent"),
        http.request.method = request.method().as_str(),
        url.path = request.uri().path(),
        user_agent.original = header("user-agent"),
        http.response.status_code = tracing::field::Empty,
    )
}

/// The method and path, kept for the log line of a panic: a `Uri` clones without copying its text.
struct RequestLine(Method, http::Uri);

impl RequestLine {
    fn of(request: &Request<RequestBody>) -> Self {
        Self(request.method().clone(), request.uri().clone())
    }
}

impl std::fmt::Display for RequestLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.0, self.1.path())
    }
}

pub(super) fn new_audit_id() -> HeaderValue {
    // Not `Uuid::new_v4`: that asks the operating system each time, and an audit id need not be unguessable.
    let id = uuid::Builder::from_random_bytes(rand::random()).into_uuid();
    let mut text = [0; uuid::fmt::Hyphenated::LENGTH];
    HeaderValue::from_str(id.hyphenated().encode_lower(&mut text)).expect("a UUID is ASCII")
}

/// A `Status` in JSON, for refusals made before anything is negotiated.
pub fn status_response(error: &ApiError) -> Response<Body> {
    let text = serde_json::to_vec(&error.to_status()).expect("a Status is plain JSON");
    let mut response = Response::new(Body::full(text));
    *response.status_mut() = error.code();
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(after) = error.retry_after() {
        response
            .headers_mut()
            .insert(RETRY_AFTER, HeaderValue::from(after.as_secs()));
    }
    response
}

fn may_compress(response: &Response<Body>) -> bool {
    response.status() != StatusCode::SWITCHING_PROTOCOLS
        && !response.headers().contains_key(CONTENT_ENCODING)
        && response.body().lasting() == Lasting::Finite
}

/// Counts the request: at once when its whole answer is in hand, otherwise when its body ends.
fn observe(pending: Pending<'_>, context: &Context, response: Response<Body>) -> Response<Body> {
    let (labels, code) = (context.labels.get(), response.status());
    match response.body().len() {
        Some(len) => {
            pending.finish(labels, code, len);
            response
        }
        None => {
            let answered = pending.answered(labels, code, response.body().lasting());
            response.map(|body| body.observed(Box::new(answered)))
        }
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("of no text")
}

#[cfg(test)]
mod tests;

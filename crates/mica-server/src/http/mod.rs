//! The outside of the server: connections, and the frame around every request.
//!
//! [`listen`] accepts, speaks TLS and HTTP/1.1 or HTTP/2, and hands each request to a [`Service`]. [`Envelope`] is the one
//! service around all others: deadline, audit id, panic containment, compression, common headers, metrics.
//! Nothing here knows a path or a kind.

mod aside;
mod body;
mod coalesce;
mod crowd;
mod duration;
mod envelope;
mod gzip;
mod inside;
pub mod limit;
mod listen;
mod patience;
mod peer;
mod pool;
mod receive;
mod stall;
mod websocket;

use std::future::Future;
use std::sync::Arc;
use std::sync::OnceLock;
use std::time::Instant;

use ::http::{HeaderValue, Request, Response};

pub use body::{Body, BoxError, Lasting, Observer};
pub use duration::parse_go_duration;
pub use envelope::{Envelope, EnvelopeOptions, status_response, strict_transport};
pub use inside::InProcess;
pub use listen::{Drain, ListenOptions, Listener};
pub use peer::{Peer, Protocol};
pub use receive::{ReadBodyError, RequestBody, discard_unread, read_body};
pub use websocket::{Frames, bearer_token, is_websocket, upgrade_watch};

use crate::audit::Trail;
use crate::authz::User;
use crate::metrics::RequestLabels;
use crate::request::Query;

/// What answers requests. Cheap to share: one instance serves every connection.
pub trait Service: Send + Sync + 'static {
    fn call(&self, context: &Context, request: Request<RequestBody>) -> impl Future<Output = Response<Body>> + Send;

    /// Whether a request gets a deadline. Watches do not; a service that knows of other long work says so here.
    fn lasting(&self, request: &Request<RequestBody>) -> Lasting {
        if is_watch(request) {
            Lasting::LongRunning
        } else {
            Lasting::Finite
        }
    }
}

/// Whether a request asks for a watch, by its query or by the old form of its path.
pub fn is_watch<B>(request: &Request<B>) -> bool {
    let query = request.uri().query().unwrap_or_default();
    // Most requests do not have the word: spare them the parsing.
    (query.contains("watch") && Query::parse(Some(query)).flag("watch")) || request.uri().path().contains("/watch/")
}

/// What is known about a request beside the request itself.
pub struct Context {
    pub peer: Arc<Peer>,
    /// The client's `Audit-ID`, or one that we made; answered in the header of the same name.
    pub audit_id: HeaderValue,
    pub received: Instant,
    /// When the answer is given up; none for long-running requests.
    pub deadline: Option<Instant>,
    /// How metrics count this request. Set once, by whoever has understood the path; before that only the method is known.
    pub labels: OnceLock<RequestLabels>,
    /// Who proved themselves, before they act as anybody else.
    pub proven: OnceLock<Arc<User>>,
    /// Whom they act as, if they do.
    pub acting: OnceLock<Arc<User>>,
    /// What is written down of this request, if anything is.
    pub audit: OnceLock<Box<Trail>>,
}

impl Context {
    /// For requests that do not come over a connection.
    pub fn new(peer: Arc<Peer>) -> Self {
        Self {
            peer,
            audit_id: envelope::new_audit_id(),
            received: Instant::now(),
            deadline: None,
            labels: OnceLock::new(),
            proven: OnceLock::new(),
            acting: OnceLock::new(),
            audit: OnceLock::new(),
        }
    }
}

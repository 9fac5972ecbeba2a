//! Requests from inside this process: the same frame and the same service as for connections, without one.

use std::sync::Arc;

use http::{Request, Response};
use http_body_util::BodyExt as _;

use super::Service;
use super::body::Body;
use super::envelope::Envelope;
use super::peer::Peer;
use super::receive::RequestBody;

/// Calls a server as somebody. Cheap to clone.
pub struct InProcess<S> {
    envelope: Arc<Envelope<S>>,
    peer: Arc<Peer>,
}

impl<S> Clone for InProcess<S> {
    fn clone(&self) -> Self {
        Self {
            envelope: self.envelope.clone(),
            peer: self.peer.clone(),
        }
    }
}

impl<S: Service> InProcess<S> {
    pub fn new(envelope: Arc<Envelope<S>>, peer: Peer) -> Self {
        Self {
            envelope,
            peer: Arc::new(peer),
        }
    }

    /// Answers a request. Its body is read whole first, as callers in this process have it whole.
    pub async fn call<B>(&self, request: Request<B>) -> Result<Response<Body>, B::Error>
    where
        B: http_body::Body + Send,
        B::Data: Send,
    {
        let (parts, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let request = Request::from_parts(parts, RequestBody::from(body));
        Ok(self.envelope.answer(self.peer.clone(), request).await)
    }
}

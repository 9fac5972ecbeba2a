//! Requests from inside this process: the same frame and the same service as for connections, without one.

use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use parking_lot::Mutex;

use super::Service;
use super::body::{Body, BoxError};
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

    /// Answers a request. A body whose caller has it whole is taken at once; what only passes through goes piece by piece.
    pub async fn call<B>(&self, request: Request<B>) -> Result<Response<Body>, B::Error>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let (parts, body) = request.into_parts();
        let body = match body.size_hint().exact() {
            Some(_) => RequestBody::from(body.collect().await?.to_bytes()),
            None => RequestBody::Passing(Mutex::new(body.map_err(Into::into).boxed_unsync())),
        };
        let request = Request::from_parts(parts, body);
        Ok(self.envelope.answer(self.peer.clone(), request).await)
    }
}

//! Watches over websockets: one message per event.
//!
//! Upstream's watch handler takes no notice of the subprotocol beyond echoing it (`base64.binary.k8s.io` changes log
//! streams, not watches); more than one offered is a bad request there, and so it is here.

use std::pin::pin;

use base64::Engine as _;
use bytes::Bytes;
use futures::stream::{Stream, StreamExt as _};
use futures::{SinkExt as _, future};
use http::header::{
    CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig, frame::coding::CloseCode};
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};

use super::body::Body;
use super::limit::WRITE_STALL;
use super::peer::Peer;
use crate::error::ApiError;

/// Clients have nothing to say on a watch: what they send is read only to see them close.
const MAX_MESSAGE: usize = 16 * 1024;
const BUFFER: usize = 4 * 1024;

/// How events are framed: encodings that are text (JSON) go in text messages, protobuf in binary ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Frames {
    Text,
    Binary,
}

/// Whether a request asks for a websocket.
pub fn is_websocket(headers: &HeaderMap) -> bool {
    has_token(headers, UPGRADE, "websocket") && has_token(headers, CONNECTION, "upgrade")
}

fn has_token(headers: &HeaderMap, name: HeaderName, token: &str) -> bool {
    headers
        .get_all(name)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|word| word.trim().eq_ignore_ascii_case(token))
}

/// Answers a watch over a websocket: each item of `events` is one message. Ends with a normal close when the events end or
/// the server drains, and at once when the client closes.
pub fn upgrade_watch<B>(
    peer: &Peer,
    request: &mut Request<B>,
    frames: Frames,
    events: impl Stream<Item = Bytes> + Send + 'static,
) -> Result<Response<Body>, ApiError> {
    let headers = request.headers();
    let key = headers
        .get(SEC_WEBSOCKET_KEY)
        .filter(|_| is_websocket(headers) && request.method() == Method::GET);
    let key = key.ok_or_else(|| ApiError::bad_request("not a websocket handshake"))?;
    if headers.get(SEC_WEBSOCKET_VERSION).is_none_or(|version| version != "13") {
        return Err(ApiError::bad_request("missing or bad WebSocket Version"));
    }
    let protocol = single_protocol(headers)?;
    let accept = derive_accept_key(key.as_bytes());
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let answer = response.headers_mut();
    answer.insert(UPGRADE, HeaderValue::from_static("websocket"));
    answer.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    answer.insert(
        SEC_WEBSOCKET_ACCEPT,
        HeaderValue::from_str(&accept).expect("base64 is ASCII"),
    );
    if let Some(protocol) = protocol {
        answer.insert(SEC_WEBSOCKET_PROTOCOL, protocol);
    }
    let upgraded = hyper::upgrade::on(request);
    let drain = peer.drain().clone();
    peer.spawn(async move {
        let Ok(upgraded) = upgraded.await else { return };
        let config = WebSocketConfig::default()
            .read_buffer_size(BUFFER)
            .write_buffer_size(0)
            .max_message_size(Some(MAX_MESSAGE))
            .max_frame_size(Some(MAX_MESSAGE));
        let socket = WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, Some(config)).await;
        relay(socket, frames, events.take_until(drain.cancelled_owned())).await;
    });
    Ok(response)
}

/// The one subprotocol offered, if any. A bearer token offered as a subprotocol (browsers cannot set headers) is not echoed.
fn single_protocol(headers: &HeaderMap) -> Result<Option<HeaderValue>, ApiError> {
    let mut offered = headers
        .get_all(SEC_WEBSOCKET_PROTOCOL)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .filter(|protocol| !protocol.is_empty() && !protocol.starts_with(BEARER_PROTOCOL));
    let first = offered.next();
    if offered.next().is_some() {
        return Err(ApiError::bad_request("bad WebSocket Protocol"));
    }
    Ok(first.and_then(|protocol| HeaderValue::from_str(protocol).ok()))
}

const BEARER_PROTOCOL: &str = "base64url.bearer.authorization.k8s.io.";

/// The bearer token that a browser client carries among its subprotocols.
pub fn bearer_token(headers: &HeaderMap) -> Option<String> {
    let encoded = headers
        .get_all(SEC_WEBSOCKET_PROTOCOL)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .find_map(|protocol| protocol.trim().strip_prefix(BEARER_PROTOCOL))?;
    let token = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(encoded).ok()?;
    String::from_utf8(token).ok()
}

async fn relay<IO>(socket: WebSocketStream<IO>, frames: Frames, events: impl Stream<Item = Bytes>)
where
    IO: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    let (mut outgoing, mut incoming) = socket.split();
    let mut events = pin!(events);
    // Reading also answers pings and finishes the closing handshake.
    let mut gone = pin!(async {
        while let Some(Ok(message)) = incoming.next().await {
            if message.is_close() {
                break;
            }
        }
    });
    loop {
        let next = match future::select(gone.as_mut(), events.next()).await {
            future::Either::Left(((), _)) => return,
            future::Either::Right((next, _)) => next,
        };
        let Some(event) = next else { break };
        let Some(message) = message(frames, event) else { break };
        if !matches!(
            tokio::time::timeout(WRITE_STALL, outgoing.send(message)).await,
            Ok(Ok(()))
        ) {
            return;
        }
    }
    let close = CloseFrame {
        code: CloseCode::Normal,
        reason: Utf8Bytes::default(),
    };
    let closing = async {
        if outgoing.send(Message::Close(Some(close))).await.is_ok() {
            gone.await;
        }
    };
    let _ = tokio::time::timeout(CLOSE_PATIENCE, closing).await;
}

/// Time for a client to answer our close.
const CLOSE_PATIENCE: std::time::Duration = std::time::Duration::from_secs(5);

fn message(frames: Frames, event: Bytes) -> Option<Message> {
    match frames {
        Frames::Binary => Some(Message::Binary(event)),
        Frames::Text => Utf8Bytes::try_from(event).ok().map(Message::Text),
    }
}

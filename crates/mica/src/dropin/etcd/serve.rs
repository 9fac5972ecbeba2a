//! The stub's answers: health and version over HTTP, `Status` over gRPC, and to everything else that it is no etcd.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::{BufMut as _, Bytes, BytesMut};
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use serde_json::json;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::dropin::handshake::{PATH, Stub};

type Body = UnsyncBoxBody<Bytes, Infallible>;

const STATUS: &str = "/etcdserverpb.Maintenance/Status";
const NO_KEYS: &str = "this is Mica's stub of etcd: it holds no keys";

/// All that the stub can say.
pub struct Answers {
    stub: String,
    version: &'static str,
}

impl Answers {
    pub fn new(stub: &Stub, version: &'static str) -> Self {
        Self {
            stub: stub.to_json(),
            version,
        }
    }

    fn answer(&self, request: &Request<Incoming>) -> Response<Body> {
        let content_type = request.headers().get(CONTENT_TYPE);
        if content_type.is_some_and(|value| value.as_bytes().starts_with(b"application/grpc")) {
            return if request.uri().path() == STATUS {
                grpc(Some(self.status()), 0, "")
            } else {
                grpc(None, 12, NO_KEYS)
            };
        }
        let version = self.version;
        match request.uri().path() {
            PATH => text(StatusCode::OK, "application/json", self.stub.clone()),
            "/health" => text(
                StatusCode::OK,
                "application/json",
                json!({"health": "true", "reason": ""}).to_string(),
            ),
            "/version" => text(
                StatusCode::OK,
                "application/json",
                json!({"etcdserver": version, "etcdcluster": version, "storage": version, "stub": "mica"}).to_string(),
            ),
            "/livez" | "/readyz" => text(StatusCode::OK, "text/plain; charset=utf-8", "ok\n".to_owned()),
            _ => text(
                StatusCode::NOT_FOUND,
                "text/plain; charset=utf-8",
                format!("{NO_KEYS}\n"),
            ),
        }
    }

    /// A `StatusResponse` with a version and nothing else.
    fn status(&self) -> Bytes {
        const VERSION_FIELD: u8 = 2 << 3 | 2;
        let mut message = BytesMut::new();
        message.put_u8(VERSION_FIELD);
        message.put_u8(u8::try_from(self.version.len()).expect("a version is short"));
        message.put_slice(self.version.as_bytes());
        message.freeze()
    }
}

fn text(code: StatusCode, content_type: &'static str, text: String) -> Response<Body> {
    let mut response = Response::new(Full::from(text).boxed_unsync());
    *response.status_mut() = code;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// A gRPC answer: the message, if there is one, in its frame, and the status behind it.
fn grpc(message: Option<Bytes>, status: u16, why: &'static str) -> Response<Body> {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", status.into());
    if !why.is_empty() {
        trailers.insert("grpc-message", HeaderValue::from_static(why));
    }
    let framed = message.map(|message| {
        let mut frame = BytesMut::new();
        frame.put_u8(0);
        frame.put_u32(u32::try_from(message.len()).expect("a message is short"));
        frame.put_slice(&message);
        Frame::data(frame.freeze())
    });
    let frames = framed.into_iter().chain([Frame::trailers(trailers)]).map(Ok);
    let body = http_body_util::StreamBody::new(futures::stream::iter(frames));
    let mut response = Response::new(body.boxed_unsync());
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}

/// Serves until the process ends.
pub async fn listen(tcp: TcpListener, tls: Option<TlsAcceptor>, answers: Arc<Answers>) {
    loop {
        let Ok((stream, _)) = tcp.accept().await else {
            // Out of files, most likely: others must end first.
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            continue;
        };
        let (tls, answers) = (tls.clone(), answers.clone());
        tokio::spawn(async move {
            let service = service_fn(move |request: Request<Incoming>| {
                std::future::ready(Ok::<_, Infallible>(answers.answer(&request)))
            });
            let builder = auto::Builder::new(TokioExecutor::new());
            // A connection that breaks concerns nobody else.
            let _ = match tls {
                None => builder.serve_connection(TokioIo::new(stream), service).await,
                Some(acceptor) => match acceptor.accept(stream).await {
                    Ok(stream) => builder.serve_connection(TokioIo::new(stream), service).await,
                    Err(_) => return,
                },
            };
        });
    }
}

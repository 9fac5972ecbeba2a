//! A small client of our own server: one connection, HTTP/1.1 over TLS, JSON or streams.
//!
//! It exists so that the binary needs no second HTTP stack; it does nothing that the plane and store commands do not need.

mod connect;
mod kubeconfig;

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use anyhow::{Context as _, anyhow, bail};
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, USER_AGENT};
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http1::SendRequest;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};

pub use connect::plain_post;
pub use kubeconfig::Kubeconfig;

use crate::cli::ServerArgs;

/// Runs a command that talks to a server. One thread is enough, and starts fastest.
pub fn block_on(command: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("starting")?;
    runtime.block_on(command)
}

/// Answers that are read whole may be this large: lists of a hundred thousand planes fit.
const MAX_ANSWER: usize = 256 * 1024 * 1024;
/// Errors are read this far.
const MAX_STATUS: usize = 1024 * 1024;
/// What is read from a file at once.
const PIECE: usize = 64 * 1024;

pub struct Client {
    sender: SendRequest<Outgoing>,
    config: Kubeconfig,
}

/// A request body.
pub enum Outgoing {
    Empty,
    Json(Option<Bytes>),
    File(Box<dyn AsyncRead + Send + Unpin>),
}

impl Client {
    pub async fn connect(server: &ServerArgs) -> anyhow::Result<Self> {
        let config = Kubeconfig::load(server.kubeconfig.as_deref(), server.context.as_deref())?;
        let sender = connect::open(&config)
            .await
            .with_context(|| format!("cannot reach {}", config.server))?;
        Ok(Self { sender, config })
    }

    /// The same server at its root, wherever the kubeconfig's context is.
    pub async fn connect_root(server: &ServerArgs) -> anyhow::Result<Self> {
        let config = Kubeconfig::load(server.kubeconfig.as_deref(), server.context.as_deref())?.at_root();
        let sender = connect::open(&config)
            .await
            .with_context(|| format!("cannot reach {}", config.server))?;
        Ok(Self { sender, config })
    }

    /// Begins a new connection, after an answer that was not read to its end.
    pub async fn reconnect(&mut self) -> anyhow::Result<()> {
        let server = &self.config.server;
        self.sender = connect::open(&self.config)
            .await
            .with_context(|| format!("cannot reach {server}"))?;
        Ok(())
    }

    pub fn config(&self) -> &Kubeconfig {
        &self.config
    }

    /// Sends a request; an answer that is no success becomes an error with the server's own words.
    pub async fn send(
        &mut self,
        method: Method,
        path: &str,
        accept: &str,
        body: Outgoing,
    ) -> anyhow::Result<Response<Incoming>> {
        let uri: http::Uri = self.config.server.parse().context("the server's address")?;
        let prefix = uri.path().trim_end_matches('/');
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{prefix}{path}"))
            .header(HOST, uri.authority().map(ToString::to_string).unwrap_or_default())
            .header(USER_AGENT, concat!("mica/", env!("CARGO_PKG_VERSION")))
            .header(ACCEPT, accept);
        if let Some(token) = &self.config.token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        request = match &body {
            Outgoing::Empty => request,
            Outgoing::Json(_) => request.header(CONTENT_TYPE, "application/json"),
            Outgoing::File(_) => request.header(CONTENT_TYPE, "application/octet-stream"),
        };
        let request = request.body(body).context("building a request")?;
        let server = &self.config.server;
        self.sender.ready().await.map_err(|error| lost(server, error))?;
        let response = self
            .sender
            .send_request(request)
            .await
            .map_err(|error| lost(server, error))?;
        if response.status().is_success() {
            Ok(response)
        } else {
            Err(refusal(response).await)
        }
    }

    pub async fn json(&mut self, method: Method, path: &str, body: Option<Value>) -> anyhow::Result<Value> {
        let body = body.map_or(Outgoing::Empty, |value| Outgoing::Json(Some(value.to_string().into())));
        let response = self.send(method, path, JSON, body).await?;
        let bytes = collect(response, MAX_ANSWER).await?;
        serde_json::from_slice(&bytes).context("the server's answer is no JSON")
    }

    pub async fn table(&mut self, path: &str) -> anyhow::Result<Value> {
        let response = self.send(Method::GET, path, TABLE, Outgoing::Empty).await?;
        let bytes = collect(response, MAX_ANSWER).await?;
        serde_json::from_slice(&bytes).context("the server's answer is no JSON")
    }

    /// Copies an answer's body to `to` as it comes; returns the number of bytes.
    pub async fn download(&mut self, path: &str, to: &mut (impl AsyncWrite + Unpin)) -> anyhow::Result<u64> {
        let mut body = self.send(Method::GET, path, "*/*", Outgoing::Empty).await?.into_body();
        let mut bytes = 0;
        while let Some(frame) = body.frame().await {
            // A stream that the server cuts off must not look whole.
            let frame = frame.context("the answer broke off")?;
            if let Ok(piece) = frame.into_data() {
                to.write_all(&piece).await?;
                bytes += piece.len() as u64;
            }
        }
        to.flush().await?;
        Ok(bytes)
    }
}

/// A request without an answer. How TLS noticed the end of the connection is of no help to anybody.
fn lost(server: &str, error: hyper::Error) -> anyhow::Error {
    let eof = |cause: &(dyn std::error::Error + 'static)| {
        cause
            .downcast_ref::<io::Error>()
            .is_some_and(|error| error.kind() == io::ErrorKind::UnexpectedEof)
    };
    if error.is_incomplete_message() || std::error::Error::source(&error).is_some_and(eof) {
        return anyhow!("{server} hung up without an answer");
    }
    anyhow!(error).context(format!("{server} did not answer"))
}

const JSON: &str = "application/json";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

/// An error that carries the server's status code.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Refused {
    pub code: StatusCode,
    message: String,
}

/// What the server said, or at least its code.
async fn refusal(response: Response<Incoming>) -> anyhow::Error {
    let code = response.status();
    let text = collect(response, MAX_STATUS).await.unwrap_or_default();
    let status: Value = serde_json::from_slice(&text).unwrap_or_default();
    let message = match status["message"].as_str() {
        Some(message) if !message.is_empty() => message.to_owned(),
        _ => match String::from_utf8_lossy(&text).trim() {
            "" => format!("the server answered {code}"),
            text => format!("the server answered {code}: {text}"),
        },
    };
    anyhow!(Refused { code, message })
}

pub async fn collect(response: Response<Incoming>, limit: usize) -> anyhow::Result<Vec<u8>> {
    let mut body = response.into_body();
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        if let Ok(piece) = frame.context("the answer broke off")?.into_data() {
            if bytes.len() + piece.len() > limit {
                bail!("the answer is larger than {limit} bytes");
            }
            bytes.extend_from_slice(&piece);
        }
    }
    Ok(bytes)
}

impl http_body::Body for Outgoing {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match self.get_mut() {
            Self::Empty => Poll::Ready(None),
            Self::Json(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::File(file) => {
                let mut piece = vec![0; PIECE];
                let mut buffer = ReadBuf::new(&mut piece);
                std::task::ready!(Pin::new(file).poll_read(cx, &mut buffer))?;
                let filled = buffer.filled().len();
                piece.truncate(filled);
                Poll::Ready((filled > 0).then(|| Ok(Frame::data(piece.into()))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Empty | Self::Json(None))
    }

    fn size_hint(&self) -> http_body::SizeHint {
        match self {
            Self::Empty | Self::Json(None) => http_body::SizeHint::with_exact(0),
            Self::Json(Some(bytes)) => http_body::SizeHint::with_exact(bytes.len() as u64),
            Self::File(_) => http_body::SizeHint::default(),
        }
    }
}

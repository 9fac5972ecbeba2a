//! Many watches over few connections, as client-go opens them: HTTP/2, up to a hundred streams each.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};

use crate::endpoint::{Endpoint, Protocol};

/// What kube-apiserver lets one connection have, and so what every client copes with.
const STREAMS: usize = 100;
/// Room enough that the generator never makes a server wait.
const WINDOW: u32 = 4 << 20;

/// Open watches. They stay open while this is held: a connection whose sender is dropped ends.
pub struct Watches {
    pub answers: Vec<Response<Incoming>>,
    pub connections: Vec<SendRequest<Empty<Bytes>>>,
}

/// Opens so many watches of one path.
pub async fn open(endpoint: &Endpoint, path: &str, count: usize) -> Result<Watches> {
    let mut watches = Watches {
        answers: Vec::with_capacity(count),
        connections: Vec::new(),
    };
    while watches.answers.len() < count {
        let mut connection = connect(endpoint).await?;
        let streams = STREAMS.min(count - watches.answers.len());
        let mut answers = Vec::with_capacity(streams);
        for _ in 0..streams {
            connection.ready().await?;
            answers.push(tokio::spawn(connection.send_request(request(endpoint, path)?)));
        }
        for answer in answers {
            let answer = answer.await??;
            ensure!(answer.status() == 200, "a watch was answered with {}", answer.status());
            watches.answers.push(answer);
        }
        watches.connections.push(connection);
    }
    Ok(watches)
}

async fn connect(endpoint: &Endpoint) -> Result<SendRequest<Empty<Bytes>>> {
    let tls = endpoint.connect(Protocol::Http2).await?;
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(4 * WINDOW);
    let (sender, connection) = builder.handshake(TokioIo::new(tls)).await?;
    tokio::spawn(connection);
    Ok(sender)
}

fn request(endpoint: &Endpoint, path: &str) -> Result<Request<Empty<Bytes>>> {
    let uri = format!("https://{}{}{path}", endpoint.authority, endpoint.prefix);
    let mut request = Request::get(uri).header("accept", "application/json");
    if let Some(token) = &endpoint.token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    request.body(Empty::new()).context("a watch request")
}

/// Reads one watch to its end and counts its events: each is a line, and JSON has no line breaks inside.
///
/// `see` gets the bytes as they come, for the few watches whose delay is measured. Returns why the watch ended.
pub async fn count(
    watch: Response<Incoming>,
    counter: Arc<Vec<AtomicU64>>,
    index: usize,
    mut see: impl FnMut(&[u8]),
) -> String {
    let mut body = watch.into_body();
    loop {
        let frame = match body.frame().await {
            Some(Ok(frame)) => frame,
            Some(Err(err)) => return format!("{:#}", anyhow::Error::from(err)),
            None => return "the server ended the watch".to_owned(),
        };
        if let Some(data) = frame.data_ref() {
            see(data);
            counter[index].fetch_add(memchr::memchr_iter(b'\n', data).count() as u64, Ordering::Relaxed);
        }
    }
}

//! Connections that wait for the next call to the same place.
//!
//! A waiting connection is closed after [`IDLE`]; the task that sees to that exists only while any wait.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::client::TlsStream;

use super::failure::Cause;
use super::target::Place;

/// How long a connection waits to be used again.
pub(super) const IDLE: Duration = Duration::from_secs(30);
/// Waiting connections to one place: as many as a tenant's steady calls want, not as many as a burst made.
const IDLE_PER_PLACE: usize = 8;
/// Waiting connections in all.
const IDLE_IN_ALL: usize = 512;
/// Largest head of an answer.
const MAX_HEAD: usize = 64 << 10;

/// One connection, able to carry one call at a time.
pub(super) struct Connection {
    sender: SendRequest<Full<Bytes>>,
}

/// A call that got no answer.
pub(super) struct Unanswered {
    pub cause: Cause,
    /// Nothing of it went out.
    pub unsent: bool,
}

impl Connection {
    pub(super) async fn open(stream: TlsStream<TcpStream>) -> Result<Self, Cause> {
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(MAX_HEAD)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| Cause::Broken(broken(&error)))?;
        // Ends when the sender is dropped or the far side closes.
        tokio::spawn(connection);
        Ok(Self { sender })
    }

    pub(super) async fn send(&mut self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, Unanswered> {
        // A connection that was just used says when it can be used again.
        let ready = self.sender.ready().await;
        let sent = match ready {
            Ok(()) => self.sender.try_send_request(request).await,
            Err(error) => {
                return Err(Unanswered {
                    cause: Cause::Broken(broken(&error)),
                    unsent: true,
                });
            }
        };
        sent.map_err(|mut failed| Unanswered {
            unsent: failed.take_message().is_some(),
            cause: Cause::Broken(broken(failed.error())),
        })
    }

    fn is_open(&self) -> bool {
        !self.sender.is_closed()
    }
}

/// Go's words for a connection that ended.
pub(super) fn broken(error: &hyper::Error) -> String {
    let io = std::error::Error::source(error).and_then(|source| source.downcast_ref::<std::io::Error>());
    match io.map(std::io::Error::kind) {
        Some(std::io::ErrorKind::UnexpectedEof) => return "EOF".to_owned(),
        Some(std::io::ErrorKind::ConnectionReset | std::io::ErrorKind::BrokenPipe) => {
            return "read: connection reset by peer".to_owned();
        }
        _ => {}
    }
    if error.is_incomplete_message() || error.is_canceled() || error.is_closed() {
        "EOF".to_owned()
    } else if error.is_parse() {
        format!("net/http: HTTP/1.x transport connection broken: malformed HTTP response: {error}")
    } else {
        error.to_string()
    }
}

#[derive(Clone, Default)]
pub(super) struct Pool {
    idle: Arc<Mutex<Idle>>,
}

#[derive(Default)]
struct Idle {
    places: HashMap<Place, Vec<(Instant, Connection)>>,
    count: usize,
    reaping: bool,
}

impl Pool {
    /// A waiting connection: the one that waits for the shortest time, which is most likely alive.
    pub(super) fn take(&self, place: &Place) -> Option<Connection> {
        let mut idle = self.idle.lock();
        let waiting = idle.places.get_mut(place)?;
        let before = waiting.len();
        let mut found = None;
        while let Some((_, connection)) = waiting.pop() {
            if connection.is_open() {
                found = Some(connection);
                break;
            }
        }
        let left = waiting.len();
        if left == 0 {
            idle.places.remove(place);
        }
        idle.count -= before - left;
        found
    }

    pub(super) fn put(&self, place: Place, connection: Connection) {
        if !connection.is_open() {
            return;
        }
        let mut idle = self.idle.lock();
        if idle.count >= IDLE_IN_ALL
            || idle
                .places
                .get(&place)
                .is_some_and(|waiting| waiting.len() >= IDLE_PER_PLACE)
        {
            return;
        }
        idle.places.entry(place).or_default().push((Instant::now(), connection));
        idle.count += 1;
        if !idle.reaping {
            idle.reaping = true;
            tokio::spawn(reap(Arc::downgrade(&self.idle)));
        }
    }
}

/// Closes connections that waited for long enough, until none waits.
async fn reap(pool: std::sync::Weak<Mutex<Idle>>) {
    loop {
        tokio::time::sleep(IDLE / 2).await;
        let Some(pool) = pool.upgrade() else { return };
        let mut idle = pool.lock();
        let now = Instant::now();
        idle.places.retain(|_, waiting| {
            waiting.retain(|(since, connection)| now.duration_since(*since) < IDLE && connection.is_open());
            !waiting.is_empty()
        });
        idle.count = idle.places.values().map(Vec::len).sum();
        if idle.count == 0 {
            idle.reaping = false;
            return;
        }
    }
}

//! Accepting connections, speaking TLS and HTTP on them, and letting go of them in order.
//!
//! Draining has three steps: stop accepting; tell every connection (GOAWAY, `Connection: close`) and every watch; after a
//! deadline drop what is left. A connection costs one task; so does each request over HTTP/2 until it is answered.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures::future::BoxFuture;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::server::Acceptor;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::aside::Aside;
use super::body::Body;
use super::coalesce::gather;
use super::crowd::{Crowd, Guest};
use super::envelope::Envelope;
use super::patience::Patience;
use super::peer::{Peer, Protocol};
use super::pool::Pool;
use super::receive::RequestBody;
use super::stall::{StallGuard, StreamExecutor};
use super::{Service, limit};
use crate::quiet::Quiet;
use crate::tls::{self, ClientRoots, PresentedCertificates, ServingCertificates, TlsOptions};

#[derive(Clone, Debug)]
pub struct ListenOptions {
    pub max_connections: usize,
    /// Connections of one address. `None`: half of all, and for those on this machine all.
    pub connections_per_address: Option<usize>,
    pub handshake_timeout: Duration,
    pub idle_timeout: Duration,
    /// How long a client may take nothing.
    pub write_stall: Duration,
    /// How long requests may take to finish once draining began.
    pub drain_deadline: Duration,
    pub tls: TlsOptions,
}

impl Default for ListenOptions {
    fn default() -> Self {
        Self {
            max_connections: limit::MAX_CONNECTIONS,
            connections_per_address: None,
            handshake_timeout: limit::HANDSHAKE_TIMEOUT,
            idle_timeout: limit::IDLE_TIMEOUT,
            write_stall: limit::WRITE_STALL,
            drain_deadline: limit::DRAIN_DEADLINE,
            tls: TlsOptions::default(),
        }
    }
}

/// How draining ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Drain {
    Clean,
    /// Connections were still open at the deadline and were dropped.
    CutOff {
        connections: usize,
    },
}

/// A bound socket that does not accept yet.
pub struct Listener {
    tcp: TcpListener,
    certificates: Arc<ServingCertificates>,
    roots: Arc<ClientRoots>,
    options: ListenOptions,
}

impl Listener {
    pub async fn bind(
        addr: SocketAddr,
        certificates: Arc<ServingCertificates>,
        roots: Arc<ClientRoots>,
        options: ListenOptions,
    ) -> io::Result<Self> {
        Ok(Self {
            tcp: TcpListener::bind(addr).await?,
            certificates,
            roots,
            options,
        })
    }

    /// Takes over a socket bound before, so that a port in use is found out first.
    pub fn from_tcp(
        tcp: TcpListener,
        certificates: Arc<ServingCertificates>,
        roots: Arc<ClientRoots>,
        options: ListenOptions,
    ) -> Self {
        Self {
            tcp,
            certificates,
            roots,
            options,
        }
    }

    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }

    /// Serves until `drain` is cancelled and what is in flight has finished.
    pub async fn serve<S: Service>(self, service: Arc<Envelope<S>>, drain: CancellationToken) -> Drain {
        let drop_all = CancellationToken::new();
        let tasks = TaskTracker::new();
        let server = Arc::new(Connections {
            tls: tls::server_config(self.certificates.clone(), &self.options.tls),
            certificates: self.certificates,
            roots: self.roots,
            service,
            slots: Arc::new(Semaphore::new(self.options.max_connections)),
            crowd: Crowd::new(&self.options),
            drain: drain.clone(),
            drop_all: drop_all.clone(),
            tasks: tasks.clone(),
            aside: Aside::default(),
            options: self.options,
        });
        tokio::select! {
            () = accept(&self.tcp, &server) => unreachable!("accepting does not end by itself"),
            () = drain.cancelled() => {}
        }
        drop(self.tcp);
        tasks.close();
        if tokio::time::timeout(server.options.drain_deadline, tasks.wait())
            .await
            .is_ok()
        {
            return Drain::Clean;
        }
        let connections = tasks.len();
        drop_all.cancel();
        tasks.wait().await;
        Drain::CutOff { connections }
    }
}

/// A connection that speaks HTTP.
type Serving = BoxFuture<'static, Result<(), hyper::Error>>;

struct Connections<S> {
    tls: Arc<rustls::ServerConfig>,
    certificates: Arc<ServingCertificates>,
    roots: Arc<ClientRoots>,
    service: Arc<Envelope<S>>,
    slots: Arc<Semaphore>,
    crowd: Crowd,
    drain: CancellationToken,
    drop_all: CancellationToken,
    tasks: TaskTracker,
    aside: Aside,
    options: ListenOptions,
}

/// Pause after a failed accept: the usual reason is that no file descriptors are left, and only time frees some.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

async fn accept<S: Service>(tcp: &TcpListener, server: &Arc<Connections<S>>) {
    loop {
        let (stream, addr) = match tcp.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                if !is_peers_fault(&error) {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
                continue;
            }
        };
        let Ok(slot) = server.slots.clone().try_acquire_owned() else {
            tracing::warn!(%addr, limit = server.options.max_connections, "a connection was refused: too many are open");
            continue;
        };
        let Some(guest) = server.crowd.enter(addr.ip()) else {
            tracing::debug!(%addr, "a connection was refused: too many of this address are open");
            continue;
        };
        let connection = server.clone().connection(stream, addr, (slot, guest));
        server.tasks.spawn(connection);
    }
}

fn is_peers_fault(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

impl<S: Service> Connections<S> {
    /// One connection from its first byte to its last.
    async fn connection(self: Arc<Self>, stream: TcpStream, addr: SocketAddr, _held: (OwnedSemaphorePermit, Guest)) {
        let dropped = Quiet::new(self.drop_all.clone().cancelled_owned());
        // Boxed: a task is as large as its largest branch for as long as it lives.
        let Some((serving, peer)) = Box::pin(self.clone().greet(stream, addr)).await else {
            return;
        };
        let serving = Box::pin(async move {
            tokio::select! {
                biased;
                ended = serving => if let Err(error) = ended {
                    tracing::debug!(%addr, %error, "a connection ended with an error");
                },
                () = dropped => {}
            }
        });
        self.aside.run(serving, move || peer.is_loud()).await;
    }

    /// Speaks TLS with a new connection, and says how it goes on; `None` if it does not.
    async fn greet(self: Arc<Self>, stream: TcpStream, addr: SocketAddr) -> Option<(Serving, Arc<Peer>)> {
        if let Err(error) = tune(&stream) {
            tracing::debug!(%addr, %error, "socket options were refused");
        }
        let handshake = tokio::time::timeout(self.options.handshake_timeout, self.handshake(stream));
        // While draining nothing new begins: a peer in the middle of its handshake is let go.
        let accepted = tokio::select! {
            accepted = handshake => accepted,
            () = self.drain.cancelled() => return None,
        };
        let tls = match accepted {
            Ok(Ok(tls)) => tls,
            Ok(Err(error)) => {
                self.service.metrics().handshake_failed();
                tracing::debug!(%addr, %error, "TLS handshake error");
                return None;
            }
            Err(_elapsed) => {
                self.service.metrics().handshake_failed();
                tracing::debug!(%addr, "TLS handshake timed out");
                return None;
            }
        };
        Some(match tls.get_ref().1.alpn_protocol() {
            Some(b"h2") => {
                let peer = self.peer(addr, Protocol::Http2, &tls);
                (Box::pin(self.serve_http2(tls, peer.clone())), peer)
            }
            _ => {
                let peer = self.peer(addr, Protocol::Http1, &tls);
                (Box::pin(self.serve_http1(tls, peer.clone())), peer)
            }
        })
    }

    /// Reads the client's greeting first: the certificate for the host it names may have to be made.
    async fn handshake(&self, mut stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let mut first = [0];
        if stream.peek(&mut first).await? == 1 && first[0].is_ascii_uppercase() {
            // Read first: closing with unread bytes would reset the connection and take the answer with it.
            let _ = stream.read(&mut [0; 4096]).await?;
            stream.write_all(NOT_TLS).await?;
            stream.shutdown().await?;
            return Err(io::Error::new(io::ErrorKind::InvalidData, "plain HTTP"));
        }
        let greeted = LazyConfigAcceptor::new(Acceptor::default(), stream).await?;
        if let Some(host) = greeted.client_hello().server_name() {
            self.certificates.prepare(host, SystemTime::now()).await;
        }
        greeted.into_stream(self.tls.clone()).await
    }

    fn peer(&self, addr: SocketAddr, protocol: Protocol, tls: &TlsStream<TcpStream>) -> Arc<Peer> {
        let session = tls.get_ref().1;
        let certificates = session
            .peer_certificates()
            .filter(|chain| !chain.is_empty())
            .map(|chain| PresentedCertificates::new(chain.to_vec(), self.roots.clone()));
        let (drain, tasks) = (self.drain.clone(), self.tasks.clone());
        Arc::new(Peer::connected(
            addr,
            protocol,
            session.server_name(),
            certificates,
            drain,
            tasks,
        ))
    }

    async fn serve_http1(self: Arc<Self>, tls: TlsStream<TcpStream>, peer: Arc<Peer>) -> Result<(), hyper::Error> {
        // Neither boxed nor counted: an HTTP/1 connection has one request at a time, and its library one place for it.
        let service = service_fn(|request: Request<Incoming>| async {
            let request = request.map(RequestBody::Incoming);
            Ok::<_, Infallible>(self.service.answer(peer.clone(), request).await)
        });
        let connection = http1::Builder::new()
            .timer(Patience::default())
            .header_read_timeout(self.options.idle_timeout)
            .max_header_size(limit::MAX_HEADERS as usize)
            .max_buf_size(limit::CONNECTION_BUFFER)
            .serve_connection(TokioIo::new(StallGuard::new(tls, self.options.write_stall)), service)
            .with_upgrades();
        let mut connection = std::pin::pin!(connection);
        tokio::select! {
            biased;
            ended = connection.as_mut() => return ended,
            () = Quiet::new(self.drain.cancelled()) => {}
        }
        connection.as_mut().graceful_shutdown();
        connection.await
    }

    async fn serve_http2(self: Arc<Self>, tls: TlsStream<TcpStream>, peer: Arc<Peer>) -> Result<(), hyper::Error> {
        let service = service_fn(|request| answer(self.service.clone(), peer.clone(), request));
        let (io, outlet) = gather(StallGuard::new(tls, self.options.write_stall));
        let mut pool = Pool::new();
        let connection = http2::Builder::new(StreamExecutor {
            patience: self.options.write_stall,
            lasting: pool.entrance(),
        })
        .timer(TokioTimer::new())
        .max_concurrent_streams(limit::MAX_STREAMS)
        .initial_stream_window_size(limit::STREAM_WINDOW)
        .initial_connection_window_size(limit::CONNECTION_WINDOW)
        .max_send_buf_size(limit::STREAM_SEND_BUFFER)
        .max_header_list_size(limit::MAX_HEADERS)
        .max_pending_accept_reset_streams(limit::MAX_RESET_UNSEEN)
        .max_local_error_reset_streams(limit::MAX_BROKEN)
        .keep_alive_interval(limit::PING_INTERVAL)
        .keep_alive_timeout(limit::PING_TIMEOUT)
        .serve_connection(TokioIo::new(io), service);
        let mut connection = std::pin::pin!(connection);
        tokio::select! {
            biased;
            ended = outlet.run(connection.as_mut(), &mut pool) => return ended,
            () = Quiet::new(self.drain.cancelled()) => {}
        }
        connection.as_mut().graceful_shutdown();
        outlet.run(connection, &mut pool).await
    }
}

/// What Go's server answers to plain HTTP on a TLS port; people see it when they type `http://`. TLS begins with byte 22.
const NOT_TLS: &[u8] = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";

/// Boxed, because the task of an HTTP/2 stream keeps the room of this future while its body, perhaps a watch, is sent.
fn answer<S: Service>(
    service: Arc<Envelope<S>>,
    peer: Arc<Peer>,
    request: Request<Incoming>,
) -> BoxFuture<'static, Result<Response<Body>, Infallible>> {
    Box::pin(async move { Ok(service.answer(peer, request.map(RequestBody::Incoming)).await) })
}

fn tune(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let keepalive = socket2::TcpKeepalive::new()
        .with_time(limit::TCP_KEEPALIVE)
        .with_interval(limit::TCP_KEEPALIVE / 4);
    socket2::SockRef::from(stream).set_tcp_keepalive(&keepalive)
}

//! Requests to one of several etcd endpoints, with failover, retries and login.
//!
//! One connection carries all short requests; the long-lived watch has its own, so that a flood of events and a large list
//! do not stand in each other's way. When a connection breaks, the next endpoint in turn is dialled.
//!
//! Invariant: a request with [`Effect::Write`] is sent a second time only if the first certainly had no effect.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::Stream;
use parking_lot::RwLock;
use tokio::time::{Instant, timeout};
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::{AsciiMetadataValue, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic_prost::ProstCodec;

use super::config::{Credentials, EtcdConfig, InvalidConfig};
use super::failure::{Cause, Failure, Link};
use super::proto;
use crate::store::Revision;

/// One attempt to connect, handshakes included.
const DIAL_TIMEOUT: Duration = Duration::from_secs(3);
/// One request. etcd itself gives up after about seven seconds.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a request is tried again, where that is safe: an election takes a second or two.
const RETRY_FOR: Duration = Duration::from_secs(5);
const FIRST_BACKOFF: Duration = Duration::from_millis(20);
const LAST_BACKOFF: Duration = Duration::from_millis(500);
/// etcd closes connections that are pinged more often than every 5 s.
const PING_EVERY: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(5);
/// A page of a range is kept far below this; a single answer above it is not read.
const MAX_ANSWER: usize = 64 << 20;
/// etcd splits large watch answers, but not those that wait for a watch to be announced.
const MAX_WATCH_ANSWER: usize = 1 << 30;
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 16 << 20;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    Read,
    Write,
}

/// Shared by everything that talks to one etcd.
pub struct Client {
    targets: Vec<Target>,
    credentials: Option<Credentials>,
    current: RwLock<Option<Arc<Connection>>>,
    dialling: tokio::sync::Mutex<()>,
    logging_in: tokio::sync::Mutex<()>,
    token: RwLock<Option<AsciiMetadataValue>>,
    serial: AtomicU64,
    /// The newest revision that any answer has named.
    seen: AtomicU64,
    /// Told when `seen` grows.
    pub news: tokio::sync::Notify,
}

struct Target {
    endpoint: Endpoint,
    name: String,
}

/// A connection to one endpoint.
pub struct Connection {
    channel: Channel,
    pub target: usize,
    serial: u64,
}

/// The requests one stream sends, and the answers to them.
pub struct Conversation {
    pub say: tokio::sync::mpsc::Sender<proto::WatchRequest>,
    pub hear: tonic::Streaming<proto::WatchResponse>,
}

impl Client {
    pub fn new(config: &EtcdConfig) -> Result<Self, InvalidConfig> {
        let targets = config
            .endpoints
            .iter()
            .map(|name| target(name, config))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            targets,
            credentials: config.credentials.clone(),
            current: RwLock::new(None),
            dialling: tokio::sync::Mutex::new(()),
            logging_in: tokio::sync::Mutex::new(()),
            token: RwLock::new(None),
            serial: AtomicU64::new(0),
            seen: AtomicU64::new(0),
            news: tokio::sync::Notify::new(),
        })
    }

    /// The newest revision that etcd has told this process about.
    pub fn seen(&self) -> Revision {
        Revision(self.seen.load(Ordering::Acquire))
    }

    pub fn endpoint_names(&self) -> String {
        let names: Vec<_> = self.targets.iter().map(|target| target.name.as_str()).collect();
        names.join(", ")
    }

    pub fn endpoint_name(&self, target: usize) -> &str {
        &self.targets[target].name
    }

    pub async fn range(&self, request: proto::RangeRequest) -> Result<proto::RangeResponse, Failure> {
        let answer: proto::RangeResponse = self.unary(proto::RANGE, request, Effect::Read).await?;
        self.note(answer.header);
        Ok(answer)
    }

    pub async fn txn(&self, request: proto::TxnRequest, effect: Effect) -> Result<proto::TxnResponse, Failure> {
        let answer: proto::TxnResponse = self.unary(proto::TXN, request, effect).await?;
        self.note(answer.header);
        Ok(answer)
    }

    pub async fn compact(&self, revision: Revision) -> Result<(), Failure> {
        let request = proto::CompactionRequest {
            revision: signed(revision),
        };
        // Compacting twice is refused with `Compacted`, which callers take as done, so this may be sent again.
        let _: proto::CompactionResponse = self.unary(proto::COMPACT, request, Effect::Read).await?;
        Ok(())
    }

    /// A lease of which a lost answer leaves nothing but a lease that expires by itself.
    pub async fn grant(&self, ttl: i64) -> Result<i64, Failure> {
        let request = proto::LeaseGrantRequest { ttl };
        let answer: proto::LeaseGrantResponse = self.unary(proto::LEASE_GRANT, request, Effect::Read).await?;
        if answer.error.is_empty() {
            Ok(answer.id)
        } else {
            Err(Failure::not_done(answer.error))
        }
    }

    /// The version of the member behind a connection.
    pub async fn version(&self, connection: &Connection) -> Result<String, Failure> {
        let request = proto::StatusRequest {};
        let answer: proto::StatusResponse = self
            .call(connection, proto::STATUS, request)
            .await
            .map_err(|status| Failure::from_status(status).0)?;
        Ok(answer.version)
    }

    /// Opens a stream of watches that begins with `first`.
    pub async fn converse(&self, connection: &Connection, first: proto::WatchRequest) -> Result<Conversation, Failure> {
        // Holds the creation and a progress request or two; nobody waits for room.
        let (say, mut inbox) = tokio::sync::mpsc::channel(8);
        say.try_send(first).expect("the channel is new");
        let requests = futures::stream::poll_fn(move |cx| inbox.poll_recv(cx));
        let opening = self.open_stream(connection, requests);
        match timeout(REQUEST_TIMEOUT, opening).await {
            Ok(Ok(hear)) => Ok(Conversation { say, hear }),
            Ok(Err(status)) => Err(Failure::from_status(status).0),
            Err(_) => Err(Failure::lost("etcd did not answer in time")),
        }
    }

    async fn open_stream(
        &self,
        connection: &Connection,
        requests: impl Stream<Item = proto::WatchRequest> + Send + 'static,
    ) -> Result<tonic::Streaming<proto::WatchResponse>, tonic::Status> {
        let mut grpc = Grpc::new(connection.channel.clone()).max_decoding_message_size(MAX_WATCH_ANSWER);
        grpc.ready()
            .await
            .map_err(|err| tonic::Status::from_error(err.into()))?;
        let codec = ProstCodec::<proto::WatchRequest, proto::WatchResponse>::default();
        let path = PathAndQuery::from_static(proto::WATCH);
        Ok(grpc.streaming(self.request(requests), path, codec).await?.into_inner())
    }

    async fn unary<Q, A>(&self, path: &'static str, question: Q, effect: Effect) -> Result<A, Failure>
    where
        Q: prost::Message + Clone + 'static,
        A: prost::Message + Default + 'static,
    {
        let give_up = Instant::now() + RETRY_FOR;
        let mut backoff = FIRST_BACKOFF;
        let mut bad = None;
        loop {
            let token = self.token.read().clone();
            let failure = match self.attempt(path, question.clone(), bad.take()).await {
                Ok(answer) => return Ok(answer),
                Err((failure, serial)) => {
                    bad = serial;
                    failure
                }
            };
            let again = match &failure {
                Failure::NotDone(_) => true,
                Failure::Lost(_) => effect == Effect::Read,
                Failure::LoggedOut(_) => {
                    self.log_in_again(token).await?;
                    true
                }
                _ => false,
            };
            if !again || Instant::now() + backoff > give_up {
                return Err(failure);
            }
            tokio::time::sleep(jitter(backoff)).await;
            backoff = (backoff * 2).min(LAST_BACKOFF);
        }
    }

    /// One attempt. The serial in the error is that of a connection to be replaced.
    async fn attempt<Q, A>(
        &self,
        path: &'static str,
        question: Q,
        bad: Option<u64>,
    ) -> Result<A, (Failure, Option<u64>)>
    where
        Q: prost::Message + 'static,
        A: prost::Message + Default + 'static,
    {
        let connection = self.connection(bad).await.map_err(|failure| (failure, None))?;
        match timeout(REQUEST_TIMEOUT, self.call(&connection, path, question)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(status)) => {
                let (failure, link) = Failure::from_status(status);
                Err((failure, (link == Link::Bad).then_some(connection.serial)))
            }
            Err(_) => Err((Failure::lost("etcd did not answer in time"), Some(connection.serial))),
        }
    }

    async fn call<Q, A>(&self, connection: &Connection, path: &'static str, question: Q) -> Result<A, tonic::Status>
    where
        Q: prost::Message + 'static,
        A: prost::Message + Default + 'static,
    {
        let mut grpc = Grpc::new(connection.channel.clone()).max_decoding_message_size(MAX_ANSWER);
        grpc.ready()
            .await
            .map_err(|err| tonic::Status::from_error(err.into()))?;
        let path = PathAndQuery::from_static(path);
        Ok(grpc
            .unary(self.request(question), path, ProstCodec::<Q, A>::default())
            .await?
            .into_inner())
    }

    fn request<T>(&self, message: T) -> tonic::Request<T> {
        let mut request = tonic::Request::new(message);
        // A member that is cut off from its leader then refuses instead of letting us wait.
        request
            .metadata_mut()
            .insert("hasleader", MetadataValue::from_static("true"));
        if let Some(token) = &*self.token.read() {
            request.metadata_mut().insert("token", token.clone());
        }
        request
    }

    /// The shared connection, replaced if it is the one with serial `bad`.
    pub async fn connection(&self, bad: Option<u64>) -> Result<Arc<Connection>, Failure> {
        let usable = || {
            self.current
                .read()
                .clone()
                .filter(|connection| Some(connection.serial) != bad)
        };
        if let Some(connection) = usable() {
            return Ok(connection);
        }
        // Many requests fail at once when a connection breaks; the first of them replaces it for all.
        let _one_at_a_time = self.dialling.lock().await;
        if let Some(connection) = usable() {
            return Ok(connection);
        }
        let first = self.current.read().as_ref().map_or(0, |broken| broken.target + 1);
        let connection = Arc::new(self.dial(first, Pings::DuringRequests).await?);
        *self.current.write() = Some(connection.clone());
        Ok(connection)
    }

    /// Connects to the first endpoint that answers, beginning with number `first`.
    pub async fn dial(&self, first: usize, pings: Pings) -> Result<Connection, Failure> {
        let mut reasons: Vec<String> = Vec::new();
        for offset in 0..self.targets.len() {
            let number = (first + offset) % self.targets.len();
            let target = &self.targets[number];
            let endpoint = target.endpoint.clone().keep_alive_while_idle(pings == Pings::Always);
            let reason = match timeout(DIAL_TIMEOUT, endpoint.connect()).await {
                Ok(Ok(channel)) => {
                    let serial = self.serial.fetch_add(1, Ordering::Relaxed);
                    return Ok(Connection {
                        channel,
                        target: number,
                        serial,
                    });
                }
                Ok(Err(err)) => Cause::from(err).to_string(),
                Err(_) => "no answer in time".to_owned(),
            };
            reasons.push(format!("{}: {reason}", target.name));
        }
        Err(Failure::not_done(reasons.join("; ")))
    }

    /// Gets a token, if there is somebody to log in. An etcd without authentication lets everybody in.
    pub async fn log_in(&self) -> Result<(), Failure> {
        let Some(credentials) = &self.credentials else {
            return Err(Failure::Denied("etcd asks for a user name".into()));
        };
        let question = proto::AuthenticateRequest {
            name: credentials.username.clone(),
            password: credentials.password.clone(),
        };
        match self
            .attempt::<_, proto::AuthenticateResponse>(proto::AUTHENTICATE, question, None)
            .await
        {
            Ok(answer) => {
                let token = answer
                    .token
                    .parse()
                    .map_err(|_| Failure::not_done("etcd's token is not ASCII"))?;
                *self.token.write() = Some(token);
                Ok(())
            }
            Err((Failure::NotDone(err), _)) if err.to_string().contains("authentication is not enabled") => Ok(()),
            Err((failure, _)) => Err(failure),
        }
    }

    /// Logs in unless somebody else has, since a request with token `stale` was refused.
    async fn log_in_again(&self, stale: Option<AsciiMetadataValue>) -> Result<(), Failure> {
        let _one_at_a_time = self.logging_in.lock().await;
        if *self.token.read() == stale {
            self.log_in().await
        } else {
            Ok(())
        }
    }

    pub fn has_credentials(&self) -> bool {
        self.credentials.is_some()
    }

    fn note(&self, header: Option<proto::ResponseHeader>) {
        let revision = header.map_or(0, |header| unsigned(header.revision).0);
        if self.seen.fetch_max(revision, Ordering::AcqRel) < revision {
            self.news.notify_one();
        }
    }
}

/// When keep-alive pings are sent. etcd takes offence at pings on a connection without any stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pings {
    DuringRequests,
    Always,
}

fn target(name: &str, config: &EtcdConfig) -> Result<Target, InvalidConfig> {
    let unusable = |err| InvalidConfig::new(format!("cannot use {name}: {}", Cause::from(err)));
    let mut endpoint = Endpoint::from_shared(name.to_owned())
        .map_err(unusable)?
        .connect_timeout(DIAL_TIMEOUT)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_TIMEOUT)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW);
    if let Some(tls) = config.tls.as_ref().filter(|_| name.starts_with("https://")) {
        let mut files = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&tls.ca));
        if let Some((certificate, key)) = &tls.identity {
            files = files.identity(Identity::from_pem(certificate, key));
        }
        if let Some(server_name) = &tls.server_name {
            files = files.domain_name(server_name);
        }
        endpoint = endpoint.tls_config(files).map_err(unusable)?;
    }
    Ok(Target {
        endpoint,
        name: name.to_owned(),
    })
}

/// Between half and all of `backoff`, so that servers that failed together do not return together.
pub fn jitter(backoff: Duration) -> Duration {
    backoff.mul_f64(rand::random_range(0.5..1.0))
}

/// etcd's revisions are signed; none is negative.
pub fn unsigned(revision: i64) -> Revision {
    Revision(u64::try_from(revision).unwrap_or(0))
}

/// A revision beyond what etcd can count is as far in the future as can be said.
pub fn signed(revision: Revision) -> i64 {
    i64::try_from(revision.0).unwrap_or(i64::MAX)
}

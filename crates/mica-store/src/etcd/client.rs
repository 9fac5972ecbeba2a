//! Requests to etcd, with failover, retries and login.
//!
//! One connection carries all short requests; the long-lived watch has its own, so that a flood of events and a large list
//! do not stand in each other's way. When a connection turns out bad, the next endpoint in turn is dialled.
//!
//! Invariant: a request with [`Effect::Write`] is sent a second time only if the first certainly had no effect.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use futures::Stream;
use parking_lot::RwLock;
use tokio::time::{Instant, timeout};
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::{AsciiMetadataValue, MetadataValue};
use tonic_prost::ProstCodec;

use super::config::{Credentials, EtcdConfig, InvalidConfig};
use super::endpoint::{Connection, Endpoints, Pings};
use super::failure::{Failure, Link};
use super::proto;
use crate::store::Revision;

/// One write. etcd itself gives up after about seven seconds, and then we know more than by giving up first.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// One attempt to read. Shorter, because another member can be asked.
const READ_TIMEOUT: Duration = Duration::from_secs(4);
/// How long a request is tried again, where that is safe: an election takes a second or two, and a member that does not
/// answer at all takes [`READ_TIMEOUT`] to be given up.
const RETRY_FOR: Duration = Duration::from_secs(6);
const FIRST_BACKOFF: Duration = Duration::from_millis(20);
const LAST_BACKOFF: Duration = Duration::from_millis(500);
/// A page of a range is kept far below this; a single answer above it is not read.
const MAX_ANSWER: usize = 64 << 20;
/// etcd splits large watch answers, but not those that wait for a watch to be announced.
const MAX_WATCH_ANSWER: usize = 1 << 30;
/// Requests of a stream that are not sent yet: the creation of its watches and a progress request or two.
const SAY_BUFFER: usize = 8;
const NO_ANSWER: &str = "etcd did not answer in time";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    Read,
    Write,
}

/// Shared by everything that talks to one etcd.
pub struct Client {
    pub endpoints: Endpoints,
    current: RwLock<Option<Arc<Connection>>>,
    /// The endpoint to dial when there is no current connection.
    next_target: AtomicUsize,
    dialling: tokio::sync::Mutex<()>,
    credentials: Option<Credentials>,
    token: RwLock<Option<AsciiMetadataValue>>,
    logging_in: tokio::sync::Mutex<()>,
    /// The newest revision that any answer has named.
    seen: AtomicU64,
    /// Told when `seen` grows.
    pub news: tokio::sync::Notify,
}

/// The requests one stream sends, and the answers to them.
pub struct Conversation {
    pub say: tokio::sync::mpsc::Sender<proto::WatchRequest>,
    pub hear: tonic::Streaming<proto::WatchResponse>,
}

impl Client {
    pub fn new(config: &EtcdConfig) -> Result<Self, InvalidConfig> {
        Ok(Self {
            endpoints: Endpoints::new(config)?,
            current: RwLock::new(None),
            next_target: AtomicUsize::new(0),
            dialling: tokio::sync::Mutex::new(()),
            credentials: config.credentials.clone(),
            token: RwLock::new(None),
            logging_in: tokio::sync::Mutex::new(()),
            seen: AtomicU64::new(0),
            news: tokio::sync::Notify::new(),
        })
    }

    /// The newest revision that etcd has told this process about.
    pub fn seen(&self) -> Revision {
        Revision(self.seen.load(Ordering::Acquire))
    }

    /// For an etcd that was set back to an old backup.
    pub fn forget_seen(&self) {
        self.seen.store(0, Ordering::Release);
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
        let answer: proto::StatusResponse = self.ask(connection, proto::STATUS, proto::StatusRequest {}).await?;
        Ok(answer.version)
    }

    /// [`Client::range`] over a certain connection, once.
    pub async fn range_over(
        &self,
        connection: &Connection,
        request: proto::RangeRequest,
    ) -> Result<proto::RangeResponse, Failure> {
        let answer: proto::RangeResponse = self.ask(connection, proto::RANGE, request).await?;
        self.note(answer.header);
        Ok(answer)
    }

    /// Opens a stream of watches that begins with `first`.
    pub async fn converse(&self, connection: &Connection, first: proto::WatchRequest) -> Result<Conversation, Failure> {
        let (say, mut inbox) = tokio::sync::mpsc::channel(SAY_BUFFER);
        say.try_send(first).expect("the channel is new");
        let requests = futures::stream::poll_fn(move |cx| inbox.poll_recv(cx));
        match timeout(READ_TIMEOUT, self.open_stream(connection, requests)).await {
            Ok(Ok(hear)) => Ok(Conversation { say, hear }),
            Ok(Err(status)) => Err(Failure::from_status(status).0),
            Err(_) => Err(Failure::lost(NO_ANSWER)),
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
        loop {
            let token = self.token.read().clone();
            let failure = match self.attempt(path, question.clone(), effect).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
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

    /// One attempt over the shared connection, which is given up if it turns out bad.
    async fn attempt<Q, A>(&self, path: &'static str, question: Q, effect: Effect) -> Result<A, Failure>
    where
        Q: prost::Message + 'static,
        A: prost::Message + Default + 'static,
    {
        let connection = self.connection().await?;
        let patience = if effect == Effect::Write {
            WRITE_TIMEOUT
        } else {
            READ_TIMEOUT
        };
        let (failure, link) = match timeout(patience, self.call(&connection, path, question)).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(status)) => Failure::from_status(status),
            Err(_) => (Failure::lost(NO_ANSWER), Link::Bad),
        };
        if link == Link::Bad {
            self.discard(&connection);
        }
        Err(failure)
    }

    /// One attempt over a certain connection.
    async fn ask<Q, A>(&self, connection: &Connection, path: &'static str, question: Q) -> Result<A, Failure>
    where
        Q: prost::Message + 'static,
        A: prost::Message + Default + 'static,
    {
        match timeout(READ_TIMEOUT, self.call(connection, path, question)).await {
            Ok(outcome) => outcome.map_err(|status| Failure::from_status(status).0),
            Err(_) => Err(Failure::lost(NO_ANSWER)),
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

    /// The shared connection. Whether it still works is only known by using it.
    pub async fn connection(&self) -> Result<Arc<Connection>, Failure> {
        let current = || self.current.read().clone();
        if let Some(connection) = current() {
            return Ok(connection);
        }
        // Many requests fail at once when a connection breaks; the first of them replaces it for all.
        let _one_at_a_time = self.dialling.lock().await;
        if let Some(connection) = current() {
            return Ok(connection);
        }
        let first = self.next_target.load(Ordering::Relaxed);
        let connection = Arc::new(self.endpoints.dial(first, Pings::DuringRequests).await?);
        *self.current.write() = Some(connection.clone());
        Ok(connection)
    }

    /// Makes sure that a bad connection is not used again, and that another endpoint is tried first.
    fn discard(&self, bad: &Connection) {
        let mut current = self.current.write();
        if current.as_ref().is_some_and(|current| current.serial == bad.serial) {
            *current = None;
            self.next_target.store(bad.target + 1, Ordering::Relaxed);
        }
    }

    pub fn has_credentials(&self) -> bool {
        self.credentials.is_some()
    }

    /// Gets a token. An etcd without authentication gives none and lets everybody in.
    pub async fn log_in(&self) -> Result<(), Failure> {
        let Some(Credentials { username, password }) = self.credentials.clone() else {
            return Err(Failure::Denied("etcd asks for a user name".into()));
        };
        let question = proto::AuthenticateRequest {
            name: username,
            password,
        };
        let answer: Result<proto::AuthenticateResponse, _> =
            self.attempt(proto::AUTHENTICATE, question, Effect::Read).await;
        match answer {
            Ok(answer) => {
                let token = answer
                    .token
                    .parse()
                    .map_err(|_| Failure::not_done("etcd's token is not ASCII"))?;
                *self.token.write() = Some(token);
                Ok(())
            }
            Err(Failure::Refused(reason)) if reason.contains("authentication is not enabled") => Ok(()),
            Err(failure) => Err(failure),
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

    fn note(&self, header: Option<proto::ResponseHeader>) {
        let revision = header.map_or(0, |header| unsigned(header.revision).0);
        if self.seen.fetch_max(revision, Ordering::AcqRel) < revision {
            self.news.notify_one();
        }
    }
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

//! The one way out: HTTPS calls that the server makes because an object told it to.
//!
//! Conversion and admission webhooks, and later authenticators, authorizers and audit, POST JSON to a [`ClientConfig`] and get
//! JSON back. What a tenant wrote decides where a call goes, so everything here is bounded (calls, connections, bytes, time),
//! counted against the tenant, and checked against the addresses that tenant may reach ([`Networks`]) after its name was
//! resolved: the address that was checked is the one that is connected to. Redirects are not followed and no proxy is asked.
//! Failures read as they do in upstream's client, because they end up in answers.

mod address;
mod connect;
mod credential;
mod failure;
mod kubeconfig;
mod limit;
mod pool;
mod reply;
mod target;
mod trust;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HOST, USER_AGENT};
use http::{HeaderValue, Method, Request};
use http_body_util::Full;
use mica_api::PlaneId;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::client::TlsStream;

pub use address::{BadNetwork, Network, Networks};
pub use failure::{CallError, Cause};
pub use kubeconfig::BadKubeconfig;
pub use limit::{PROCESS_CALLS, TENANT_CALLS, TENANT_WAITING};
pub use target::{BadService, ClientConfig, ServiceReference, Services};

use connect::Connector;
use limit::Limits;
use pool::{Connection, Pool};
use reply::Reply;
use target::{Place, Target};

/// Largest answer of a webhook: a batch of objects, each of which may be as large as the store takes.
pub const MAX_REPLY: usize = 32 << 20;
/// Named as upstream's client, which webhooks may have been told to expect.
const USER_AGENT_NAME: HeaderValue = HeaderValue::from_static("kube-apiserver-admission");

/// Who a call is made for: what it counts against, and what decides where it may go.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Tenant {
    /// Whoever runs the server: root's objects, and the server's own configuration.
    Platform,
    Plane(PlaneId),
    /// A plane that uses what the platform defined for it: calls go where the platform's may, and count against the plane.
    PlatformFor(PlaneId),
}

impl Tenant {
    pub fn of(plane: PlaneId) -> Self {
        if plane == PlaneId::ROOT {
            Self::Platform
        } else {
            Self::Plane(plane)
        }
    }

    /// Who calls what is configured in one plane, for requests of another.
    pub fn of_user(home: PlaneId, user: PlaneId) -> Self {
        match Self::of(home) {
            Self::Platform if user != PlaneId::ROOT => Self::PlatformFor(user),
            own => own,
        }
    }
}

/// Whether a call may be sent again when a connection that was open for long turns out to be dead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Repeat {
    /// Asking twice does no harm.
    Safe,
    /// Only if nothing of it was sent.
    Never,
}

/// One call to be made.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    pub tenant: Tenant,
    pub to: &'a ClientConfig,
    /// For everything: waiting for a turn, connecting, and reading the answer.
    pub timeout: Duration,
    pub max_reply: usize,
    pub repeat: Repeat,
}

/// What operators say about calls.
#[derive(Clone, Debug, Default)]
pub struct EgressOptions {
    /// Where planes may go beside public addresses.
    pub allow: Networks,
    /// Where services are.
    pub services: Services,
}

/// How often a call is made again because the answer says when to. As upstream's client.
const RETRIES: usize = 10;

/// Makes calls.
#[derive(Clone)]
pub struct Egress {
    shared: Arc<Shared>,
}

/// Says where a plane may go beside what all planes may: what its class allows.
pub type Reach = Box<dyn Fn(PlaneId) -> BoxFuture<'static, Networks> + Send + Sync>;

struct Shared {
    reach: Option<Reach>,
    services: Services,
    limits: Limits,
    pool: Pool,
    connector: Connector,
}

impl Egress {
    pub fn new(options: EgressOptions) -> Self {
        Self::made(options, None)
    }

    /// The same where planes may go further than all may.
    pub fn reaching(options: EgressOptions, reach: Reach) -> Self {
        Self::made(options, Some(reach))
    }

    fn made(options: EgressOptions, reach: Option<Reach>) -> Self {
        Self {
            shared: Arc::new(Shared {
                reach,
                services: options.services,
                limits: Limits::default(),
                pool: Pool::default(),
                connector: Connector::new(options.allow),
            }),
        }
    }

    /// A connection of its own to where the platform's configuration leads. The caller bounds the time.
    pub(crate) async fn connect(&self, to: &ClientConfig) -> Result<TlsStream<TcpStream>, CallError> {
        let target = Target::document(to)?;
        let at = |cause: Cause| CallError::Transport {
            url: target.url(),
            cause,
        };
        let place = target.place(Tenant::Platform, &self.shared.services).map_err(at)?;
        self.shared.connector.connect(&place).await.map_err(at)
    }

    /// Reads a document, whatever is in it, if the answer is a good one.
    pub async fn get(&self, call: &Call<'_>) -> Result<Bytes, CallError> {
        let target = Target::document(call.to)?;
        let deadline = Instant::now() + call.timeout;
        let url = mica_machinery::field::quote(&target.url());
        let failed = |cause: Cause| CallError::Answer(format!("Get {url}: {cause}"));
        let _turn = match tokio::time::timeout_at(deadline, self.shared.limits.enter(call.tenant)).await {
            Ok(Ok(turn)) => turn,
            Ok(Err(full)) => return Err(failed(Cause::TooManyCalls(full))),
            Err(_) => return Err(failed(Cause::NoTurn)),
        };
        let place = target.place(call.tenant, &self.shared.services).map_err(failed)?;
        let attempt = Box::pin(self.attempt(call, &target, &place, Bytes::new(), deadline)).await;
        match attempt {
            Ok(reply) => reply.into_document(),
            Err(CallError::Transport { cause, .. }) => Err(failed(cause)),
            Err(other) => Err(other),
        }
    }

    /// Sends a JSON document and returns the JSON document of a good answer.
    pub async fn post(&self, call: &Call<'_>, body: Bytes) -> Result<Bytes, CallError> {
        self.ask(call, body).await?.into_json()
    }

    /// Sends a JSON document to somebody whose answer says nothing but whether it is good.
    pub async fn tell(&self, call: &Call<'_>, body: Bytes) -> Result<(), CallError> {
        self.ask(call, body).await?.into_nothing()
    }

    async fn ask(&self, call: &Call<'_>, body: Bytes) -> Result<Reply, CallError> {
        let target = Target::new(call.to, call.timeout)?;
        let deadline = Instant::now() + call.timeout;
        let at = |cause: Cause| CallError::Transport {
            url: target.url(),
            cause,
        };
        let _turn = match tokio::time::timeout_at(deadline, self.shared.limits.enter(call.tenant)).await {
            Ok(Ok(turn)) => turn,
            Ok(Err(full)) => return Err(at(Cause::TooManyCalls(full))),
            Err(_) => return Err(at(Cause::NoTurn)),
        };
        // Boxed: a call is long, and requests that make none should not carry its room.
        Box::pin(self.exchange(call, &target, body, deadline)).await
    }

    async fn exchange(
        &self,
        call: &Call<'_>,
        target: &Target<'_>,
        body: Bytes,
        deadline: Instant,
    ) -> Result<Reply, CallError> {
        let at = |cause: Cause| CallError::Transport {
            url: target.url(),
            cause,
        };
        let mut place = target.place(call.tenant, &self.shared.services).map_err(at)?;
        if let (Tenant::Plane(plane), Some(reach)) = (call.tenant, &self.shared.reach) {
            place.reach = reach(plane).await;
        }
        for _ in 0..RETRIES {
            let reply = self.attempt(call, target, &place, body.clone(), deadline).await?;
            let Some(pause) = reply.retry_after() else {
                return Ok(reply);
            };
            let then = Instant::now() + pause;
            if then >= deadline {
                // Upstream waits until there is no time left and says the same.
                return Err(at(Cause::NoTime));
            }
            tokio::time::sleep_until(then).await;
        }
        self.attempt(call, target, &place, body, deadline).await
    }

    /// Asks once, whatever the answer.
    async fn attempt(
        &self,
        call: &Call<'_>,
        target: &Target<'_>,
        place: &Place,
        body: Bytes,
        deadline: Instant,
    ) -> Result<Reply, CallError> {
        let at = |cause: Cause| CallError::Transport {
            url: target.url(),
            cause,
        };
        let mut again = true;
        loop {
            let pooled = if again { self.shared.pool.take(place) } else { None };
            let reused = pooled.is_some();
            let mut connection = match pooled {
                Some(connection) => connection,
                None => {
                    let connecting = self.shared.connector.connect(place);
                    let stream = tokio::time::timeout_at(deadline, connecting)
                        .await
                        .map_err(|_| at(Cause::NoConnection))?
                        .map_err(at)?;
                    Connection::open(stream).await.map_err(at)?
                }
            };
            let request = request(target, body.clone());
            let sent = tokio::time::timeout_at(deadline, connection.send(request)).await;
            let response = match sent {
                Err(_) => return Err(at(Cause::NoHeaders)),
                Ok(Ok(response)) => response,
                Ok(Err(failed)) => {
                    // The far side may close a connection that waits at any time; that is nobody's failure.
                    let harmless = failed.unsent || call.repeat == Repeat::Safe;
                    if reused && harmless {
                        again = failed.unsent;
                        continue;
                    }
                    return Err(at(failed.cause));
                }
            };
            let reply = reply::read(response, call.max_reply, deadline).await?;
            self.shared.pool.put(place.clone(), connection);
            return Ok(reply);
        }
    }
}

fn request(target: &Target<'_>, body: Bytes) -> Request<Full<Bytes>> {
    let length = body.len();
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = target.method();
    *request.uri_mut() = target.request_uri();
    let headers = request.headers_mut();
    headers.insert(HOST, target.host_header());
    headers.insert(USER_AGENT, USER_AGENT_NAME);
    headers.insert(ACCEPT, HeaderValue::from_static("application/json, */*"));
    if target.method() == Method::POST {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    if let Some(authorization) = target.authorization() {
        headers.insert(AUTHORIZATION, authorization);
    }
    request
}

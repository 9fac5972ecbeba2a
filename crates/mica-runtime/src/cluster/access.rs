//! How to reach an API: where it is, whom to trust, what to show; or a service in this process.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::header::{AUTHORIZATION, HOST, USER_AGENT};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Uri};
use http_body_util::BodyExt as _;
use kube::Config;
use kube::client::retry::RetryPolicy;
use kube::client::{Body, ConfigExt as _};
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use tower::retry::Retry;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Layer as _, Service, ServiceExt as _, service_fn};
use xxhash_rust::xxh3::xxh3_128;

use super::credentials::Credentials;
use super::pool::{AnswerBody, Origin, within};
use super::trust::Trust;
use crate::metrics::Metrics;

/// Until when an answer must begin. API servers give up after a minute themselves.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(65);
/// How a client waits when a server says that it is busy: from, to, and how often.
const BUSY_FIRST: Duration = Duration::from_millis(50);
const BUSY_LONGEST: Duration = Duration::from_secs(5);
const BUSY_TRIES: u32 = 5;
const AGENT: HeaderValue = HeaderValue::from_static(concat!("mica-runtime/", env!("CARGO_PKG_VERSION")));

/// An API cannot be reached in the way that was said.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AccessError {
    #[error("the kubeconfig cannot be used")]
    Kubeconfig(#[source] Box<kube::config::KubeconfigError>),
    #[error("no configuration was found")]
    Infer(#[source] Box<kube::config::InferConfigError>),
    #[error("the authority or the client certificate cannot be used")]
    Trust(#[source] BoxError),
    #[error("the token has characters that no header can hold")]
    Token,
    #[error("{0:?} is not an address of an API")]
    Url(String),
    #[error("{0:?} cannot be read")]
    File(String, #[source] std::io::Error),
    #[error("proxies are not supported, and {0:?} is one")]
    Proxy(String),
    /// A kubeconfig from elsewhere may not run commands here, nor have files of this machine read.
    #[error("{0:?} is not allowed in a kubeconfig that comes from elsewhere")]
    NotSelfContained(&'static str),
    #[error("{0} is another place than {1}")]
    OtherPlace(String, String),
}

/// How to reach an API. Cheap to clone; clones, and what [`Access::at`] gives, share credentials and connections.
///
/// There is one pool of HTTP/2 connections for each server, trust and client certificate, whoever uses it: a thousand
/// planes behind one address cost as many connections as one. Watches have connections of their own.
#[derive(Clone)]
pub struct Access {
    cell: Arc<Cell>,
    /// Another server with the same trust and credentials.
    elsewhere: Option<Origin>,
    /// Without a slash at its end; empty for the root.
    path: Arc<str>,
}

/// What can be exchanged under those who use it.
struct Cell(ArcSwap<Reach>);

struct Reach {
    way: Way,
    credentials: Credentials,
    headers: HeaderMap,
    namespace: String,
    /// Of all of this, to see whether it is another one.
    fingerprint: u128,
}

enum Way {
    Net { trust: Arc<Trust>, origin: Origin },
    InProcess { service: InProcess, id: u64 },
}

impl Way {
    fn place(&self) -> String {
        match self {
            Self::Net { origin, .. } => origin.to_string(),
            Self::InProcess { id, .. } => format!("process:{id}"),
        }
    }
}

type InProcess = BoxCloneSyncService<Request<Body>, Response<AnswerBody>, BoxError>;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum SendError {
    #[error("there are no credentials to show")]
    Credentials(#[source] BoxError),
    #[error("the server does not answer")]
    Unreachable(#[source] BoxError),
}

impl Access {
    /// From a kubeconfig's context, or its current one.
    pub fn from_kubeconfig(mut kubeconfig: Kubeconfig, options: &KubeConfigOptions) -> Result<Self, AccessError> {
        if options.context.is_some() {
            kubeconfig.current_context.clone_from(&options.context);
        }
        let config = Config::try_from(kubeconfig).map_err(|error| AccessError::Kubeconfig(Box::new(error)))?;
        Self::from_config(config)
    }

    /// From the current context of a kubeconfig in YAML.
    pub fn from_kubeconfig_yaml(yaml: &str) -> Result<Self, AccessError> {
        let kubeconfig = Kubeconfig::from_yaml(yaml).map_err(|error| AccessError::Kubeconfig(Box::new(error)))?;
        Self::from_kubeconfig(kubeconfig, &KubeConfigOptions::default())
    }

    /// From a kubeconfig that somebody else wrote, as in a Secret: it must hold everything itself. Plugins would run
    /// commands here, and paths would have files of this machine read and sent away.
    pub fn from_foreign_kubeconfig(yaml: &str) -> Result<Self, AccessError> {
        let kubeconfig = Kubeconfig::from_yaml(yaml).map_err(|error| AccessError::Kubeconfig(Box::new(error)))?;
        for cluster in kubeconfig.clusters.iter().filter_map(|named| named.cluster.as_ref()) {
            if cluster.certificate_authority.is_some() {
                return Err(AccessError::NotSelfContained("certificate-authority"));
            }
        }
        for user in kubeconfig
            .auth_infos
            .iter()
            .filter_map(|named| named.auth_info.as_ref())
        {
            let foreign = [
                (user.exec.is_some(), "exec"),
                (user.auth_provider.is_some(), "auth-provider"),
                (user.token_file.is_some(), "tokenFile"),
                (user.client_certificate.is_some(), "client-certificate"),
                (user.client_key.is_some(), "client-key"),
            ];
            if let Some((_, field)) = foreign.into_iter().find(|(present, _)| *present) {
                return Err(AccessError::NotSelfContained(field));
            }
        }
        Self::from_kubeconfig(kubeconfig, &KubeConfigOptions::default())
    }

    /// As kubectl and Pods find theirs: `$KUBECONFIG`, `~/.kube/config`, or the service account's files.
    pub async fn infer() -> Result<Self, AccessError> {
        let config = Config::infer()
            .await
            .map_err(|error| AccessError::Infer(Box::new(error)))?;
        Self::from_config(config)
    }

    pub fn from_config(mut config: Config) -> Result<Self, AccessError> {
        if let Some(proxy) = &config.proxy_url {
            return Err(AccessError::Proxy(proxy.to_string()));
        }
        let (origin, path) = split(&config.cluster_url)?;
        inline_files(&mut config.auth_info)?;
        let trust = Trust::of(&config)?;
        let headers = extra_headers(&config)?;
        let text = serde_json::to_vec(&config.auth_info).unwrap_or_default();
        let mut print = format!("{:p} {headers:?} ", Arc::as_ptr(&trust)).into_bytes();
        print.extend_from_slice(&text);
        let reach = Reach {
            credentials: Credentials::of(&config.auth_info)?,
            way: Way::Net { trust, origin },
            headers,
            namespace: config.default_namespace,
            fingerprint: xxh3_128(&print),
        };
        Ok(Self::new(reach, &path))
    }

    /// A service in this process that answers requests for the paths of an API, without a connection.
    pub fn in_process<S, B>(service: S) -> Self
    where
        S: Service<Request<Body>, Response = Response<B>> + Clone + Send + Sync + 'static,
        S::Future: Send,
        S::Error: Into<BoxError>,
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        static IDS: AtomicU64 = AtomicU64::new(1);
        let id = IDS.fetch_add(1, Ordering::Relaxed);
        let boxed = |response: Response<B>| response.map(|body| body.map_err(Into::into).boxed_unsync());
        let service = service.map_response(boxed).map_err(Into::into);
        let reach = Reach {
            way: Way::InProcess {
                service: BoxCloneSyncService::new(service),
                id,
            },
            credentials: Credentials::None,
            headers: HeaderMap::new(),
            namespace: "default".to_owned(),
            fingerprint: u128::from(id),
        };
        Self::new(reach, "")
    }

    fn new(reach: Reach, path: &str) -> Self {
        Self {
            cell: Arc::new(Cell(ArcSwap::from_pointee(reach))),
            elsewhere: None,
            path: trimmed(path),
        }
    }

    /// The same server, trust and credentials, at another path: it replaces the one that this has.
    #[must_use]
    pub fn at(&self, path: &str) -> Self {
        Self {
            path: trimmed(path),
            ..self.clone()
        }
    }

    /// The root of the same server.
    #[must_use]
    pub fn root(&self) -> Self {
        self.at("")
    }

    /// The root of another server, with the same scheme, trust and credentials.
    pub fn at_host(&self, authority: &str) -> Result<Self, AccessError> {
        let authority: Authority = authority.parse().map_err(|_| AccessError::Url(authority.to_owned()))?;
        let scheme = match &self.cell.0.load().way {
            Way::Net { origin, .. } => origin.scheme.clone(),
            Way::InProcess { .. } => return Err(AccessError::Url(authority.to_string())),
        };
        Ok(Self {
            elsewhere: Some(Origin { scheme, authority }),
            ..self.root()
        })
    }

    /// Another server and path, with the same trust and credentials.
    pub fn at_url(&self, url: &str) -> Result<Self, AccessError> {
        let uri: Uri = url.parse().map_err(|_| AccessError::Url(url.to_owned()))?;
        let (origin, path) = split(&uri)?;
        if matches!(self.cell.0.load().way, Way::InProcess { .. }) {
            return Err(AccessError::Url(url.to_owned()));
        }
        Ok(Self {
            elsewhere: Some(origin),
            ..self.at(&path)
        })
    }

    /// Where it is, as a URL without a slash at its end. Services in this process have one that nobody else can use.
    pub fn url(&self) -> String {
        self.place() + &self.path
    }

    fn place(&self) -> String {
        match &self.elsewhere {
            Some(origin) => origin.to_string(),
            None => self.cell.0.load().way.place(),
        }
    }

    /// The server's host and port, as metrics name it.
    pub(crate) fn host(&self) -> String {
        let place = self.place();
        place.rsplit("://").next().unwrap_or_default().to_owned()
    }

    /// The path of it on its server; empty for the root.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// A client. Making one is cheap, and nothing is connected before the first request.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime: kube's clients have a task, which ends with the last clone.
    pub fn client(&self) -> kube::Client {
        let access = self.clone();
        let send = service_fn(move |request: Request<Body>| {
            let access = access.clone();
            async move { access.send(request).await.map_err(BoxError::from) }
        });
        client(send, &self.namespace())
    }

    /// A client whose requests are counted.
    pub(crate) fn counted_client(&self, metrics: &Metrics) -> kube::Client {
        let (access, metrics, host) = (self.clone(), metrics.clone(), Arc::<str>::from(self.host()));
        let send = service_fn(move |request: Request<Body>| {
            let (access, metrics, host) = (access.clone(), metrics.clone(), host.clone());
            async move {
                let method = request.method().clone();
                let answer = access.send(request).await;
                metrics.answered(&method, &host, answer.as_ref().ok().map(Response::status));
                answer.map_err(BoxError::from)
            }
        });
        client(send, &self.namespace())
    }

    /// The namespace that clients use where none is said.
    pub fn namespace(&self) -> String {
        self.cell.0.load().namespace.clone()
    }

    /// Takes the trust and credentials of another access to the same place. Everything that shares this one uses them from
    /// its next request on; what is open stays open.
    pub fn rotate(&self, to: &Self) -> Result<(), AccessError> {
        let next = to.cell.0.load_full();
        let (mine, theirs) = (self.cell.0.load().way.place(), next.way.place());
        if mine != theirs {
            return Err(AccessError::OtherPlace(theirs, mine));
        }
        self.cell.0.store(next);
        Ok(())
    }

    /// Whether another one shows and trusts the same.
    pub(crate) fn shows_the_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.cell, &other.cell) || self.cell.0.load().fingerprint == other.cell.0.load().fingerprint
    }

    /// Sends a request whose URI is a path of the API.
    pub(super) async fn send(&self, mut request: Request<Body>) -> Result<Response<AnswerBody>, SendError> {
        let reach = self.cell.0.load_full();
        let again = reach.credentials.may_change().then(|| copy(&request)).flatten();
        let shown = self.prepare(&reach, &mut request).await?;
        let response = self.transmit(&reach, request).await?;
        if response.status() != StatusCode::UNAUTHORIZED {
            return Ok(response);
        }
        reach.credentials.refused().await;
        let Some(mut again) = again else { return Ok(response) };
        // The file or plugin may say something else by now; what is refused twice is refused.
        match self.prepare(&reach, &mut again).await {
            Ok(other) if other != shown => self.transmit(&reach, again).await,
            _ => Ok(response),
        }
    }

    /// Puts the place, the headers and the credentials into a request. What it shows.
    async fn prepare(&self, reach: &Reach, request: &mut Request<Body>) -> Result<Option<HeaderValue>, SendError> {
        let header = reach.credentials.header().await.map_err(SendError::Credentials)?;
        let origin = match (&self.elsewhere, &reach.way) {
            (Some(origin), _) | (None, Way::Net { origin, .. }) => Some(origin),
            (None, Way::InProcess { .. }) => None,
        };
        *request.uri_mut() =
            absolute(origin, &self.path, request.uri()).map_err(|error| SendError::Unreachable(error.into()))?;
        let headers = request.headers_mut();
        headers.remove(HOST);
        headers.entry(USER_AGENT).or_insert(AGENT);
        for (name, value) in &reach.headers {
            headers.append(name, value.clone());
        }
        if let Some(header) = &header {
            headers.insert(AUTHORIZATION, header.clone());
        }
        Ok(header)
    }

    async fn transmit(&self, reach: &Reach, request: Request<Body>) -> Result<Response<AnswerBody>, SendError> {
        let answer = async {
            match &reach.way {
                Way::Net { trust, origin } => {
                    let origin = self.elsewhere.as_ref().unwrap_or(origin);
                    trust.pool(origin).send(request).await
                }
                Way::InProcess { service, .. } => service.clone().oneshot(request).await,
            }
        };
        within(ANSWER_TIMEOUT, answer).await.map_err(SendError::Unreachable)
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Access").field(&self.url()).finish()
    }
}

/// A client over a service, which waits a little where a server says that it is busy.
pub(super) fn client<S>(service: S, namespace: &str) -> kube::Client
where
    S: Service<Request<Body>, Response = Response<AnswerBody>, Error = BoxError> + Clone + Send + 'static,
    S::Future: Send + 'static,
{
    let busy = RetryPolicy::new(BUSY_FIRST, BUSY_LONGEST, BUSY_TRIES, true).expect("the first wait is the shorter");
    kube::Client::new(Boxed(Retry::new(busy, service)), namespace)
}

/// Gives the futures of a service a name, so that kube can hold them.
struct Boxed<S>(S);

impl<S> Service<Request<Body>> for Boxed<S>
where
    S: Service<Request<Body>, Response = Response<AnswerBody>, Error = BoxError> + Clone + Send + 'static,
    S::Future: Send + 'static,
{
    type Response = Response<AnswerBody>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        self.0.clone().oneshot(request).boxed()
    }
}

fn split(url: &Uri) -> Result<(Origin, String), AccessError> {
    let bad = || AccessError::Url(url.to_string());
    let scheme = url.scheme().cloned().ok_or_else(bad)?;
    if scheme != Scheme::HTTP && scheme != Scheme::HTTPS {
        return Err(bad());
    }
    let authority = url.authority().cloned().ok_or_else(bad)?;
    Ok((Origin { scheme, authority }, url.path().to_owned()))
}

fn trimmed(path: &str) -> Arc<str> {
    let path = path.trim_end_matches('/');
    match path.is_empty() || path.starts_with('/') {
        true => path.into(),
        false => format!("/{path}").into(),
    }
}

/// The URI of a path below a prefix.
fn absolute(origin: Option<&Origin>, prefix: &str, uri: &Uri) -> Result<Uri, http::Error> {
    let rest = uri.path_and_query().map_or("/", PathAndQuery::as_str);
    let builder = Uri::builder().path_and_query(format!("{prefix}{rest}"));
    match origin {
        Some(origin) => builder
            .scheme(origin.scheme.clone())
            .authority(origin.authority.clone())
            .build(),
        None => builder.build(),
    }
}

/// Reads certificate and key, so that they are compared by what they are, and a changed file is another access.
fn inline_files(info: &mut AuthInfo) -> Result<(), AccessError> {
    use base64::Engine as _;
    let read = |path: &str| {
        let bytes = std::fs::read(path).map_err(|error| AccessError::File(path.to_owned(), error))?;
        Ok::<_, AccessError>(base64::engine::general_purpose::STANDARD.encode(bytes))
    };
    if let Some(path) = info.client_certificate.take()
        && info.client_certificate_data.is_none()
    {
        info.client_certificate_data = Some(read(&path)?);
    }
    if let Some(path) = info.client_key.take()
        && info.client_key_data.is_none()
    {
        info.client_key_data = Some(read(&path)?.into());
    }
    Ok(())
}

/// What a configuration adds to every request: whom to act as, and its own headers.
fn extra_headers(config: &Config) -> Result<HeaderMap, AccessError> {
    let layer = config
        .extra_headers_layer()
        .map_err(|error| AccessError::Trust(Box::new(error)))?;
    let echo = service_fn(|request: Request<()>| std::future::ready(Ok::<_, BoxError>(request.headers().clone())));
    let added = layer.layer(echo).call(Request::new(())).now_or_never();
    Ok(added.and_then(Result::ok).unwrap_or_default())
}

fn copy(request: &Request<Body>) -> Option<Request<Body>> {
    let mut copy = Request::new(request.body().try_clone()?);
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    *copy.extensions_mut() = request.extensions().clone();
    Some(copy)
}

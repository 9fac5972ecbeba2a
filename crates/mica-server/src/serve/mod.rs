//! From a request to an answer: which plane, who asks, what for.

pub(crate) mod body;
mod discover;
mod enter;
pub(crate) mod object;
pub mod pass;
pub(crate) mod resource;
pub(crate) mod stream;
mod warning;

use std::borrow::Cow;
use std::sync::Arc;

use http::header::{CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use http::{Request, Response, StatusCode};
use http_body::Body as _;
use mica_api::PlaneId;
use mica_machinery::facts::facts;
use mica_store::Store;

use crate::admission::Admissions;
use crate::audit::{Asking, Auditor, What};
use crate::authn::account::Accounts;
use crate::authn::reload::Reload;
use crate::authn::{Authenticator, AuthnMetrics};
use crate::authz::{Attempt, Authorizer, User, parent};
use crate::budget::{Budgets, Counted};
use crate::custom::Definitions;
use crate::egress::Egress;
use crate::encode;
use crate::error::ApiError;
use crate::fairness::{Classified, Fairness};
use crate::health::Health;
use crate::http::{Body, Context, Lasting, RequestBody, Service, discard_unread, is_watch, read_body};
use crate::negotiate::{self, Asked, Output};
use crate::openapi::OpenApi;
use crate::pki::PlaneAuthorities;
use crate::plane::Plane;
use crate::plane::directory::Directory;
use crate::plane::kind::{GROUP, PLURAL};
use crate::plane::lasting::Ending;
use crate::registry::{Registry, Warnings};
use crate::request::{self, Address, Located, Path, Query, ResourcePath};
use crate::scheme::Schemes;
use crate::seal::Sealing;
use crate::tenancy::{Tenancy, View};
use crate::tls::IsKnownHost;
use crate::{http::limit, metrics};
use enter::Visitor;
pub(crate) use warning::warn;

/// How often a request is started over because its plane changed under it.
const STALE_PLANE_TRIES: usize = 3;

/// Everything that answers requests.
pub struct Server {
    pub store: Arc<dyn Store>,
    pub registry: Registry,
    pub directory: Arc<Directory>,
    pub authenticator: Authenticator,
    pub(crate) authn_metrics: AuthnMetrics,
    pub(crate) reload: Reload,
    pub authorizer: Arc<Authorizer>,
    pub accounts: Arc<Accounts>,
    /// Sign for planes; none where the certificates of clients are others' affair.
    pub authorities: Option<Arc<PlaneAuthorities>>,
    /// What of the store is hidden.
    pub sealing: Option<Arc<Sealing>>,
    pub health: Health,
    pub metrics: Arc<metrics::Registry>,
    pub definitions: Arc<Definitions>,
    pub openapi: OpenApi,
    /// The way out, for whatever calls webhooks.
    pub egress: Egress,
    pub admissions: Arc<Admissions>,
    pub fairness: Fairness,
    pub budgets: Arc<Budgets>,
    pub auditor: Arc<Auditor>,
    pub(crate) schemes: Arc<Schemes>,
    pub(crate) tenancy: Tenancy,
    pub(crate) checks_policies: bool,
    /// Passes on what comes for planes that are elsewhere.
    pub(crate) passer: pass::Passer,
}

/// A request with its body read and its asker known.
pub(crate) struct Call<'a> {
    pub server: &'a Arc<Server>,
    pub context: &'a Context,
    pub parts: &'a mut http::request::Parts,
    pub body: bytes::Bytes,
    /// The body unread, where it may be larger than a request's.
    pub stream: Option<RequestBody>,
    pub query: Query,
    pub user: Arc<User>,
    pub located: Located,
    /// What clients are told whatever the answer is.
    pub warnings: Warnings,
    /// What counts a watch while it lasts.
    pub watching: Option<Counted>,
    /// What ends a watch before its time.
    pub ending: Option<Ending>,
}

impl Call<'_> {
    pub fn asked(&self) -> Asked<'_> {
        let header = |name: HeaderName| self.header(&name);
        Asked {
            accept: header(http::header::ACCEPT),
            user_agent: header(http::header::USER_AGENT),
            query: self.parts.uri.query().unwrap_or_default(),
        }
    }

    /// Lets the plane's own audit know of the request.
    pub fn enter(&self, what: What<'_>, plane: &Plane) {
        let asking = Asking {
            context: self.context,
            parts: self.parts,
            address: &self.located.address,
            what,
        };
        self.server.auditor.enter(&asking, plane);
    }

    pub fn header(&self, name: &HeaderName) -> &str {
        self.parts
            .headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    }
}

impl Service for Arc<Server> {
    /// Filling a plane takes as long as its content is large.
    fn lasting(&self, request: &Request<RequestBody>) -> Lasting {
        let path = request.uri().path();
        let long = ["/restore", "/fork", "/arrive", "/digest"];
        let fills = long.iter().any(|end| path.ends_with(end)) && path.contains("/planes/");
        if fills || is_watch(request) {
            Lasting::LongRunning
        } else {
            Lasting::Finite
        }
    }

    async fn call(&self, context: &Context, request: Request<RequestBody>) -> Response<Body> {
        let (mut parts, mut body) = request.into_parts();
        let mut classified = Classified::default();
        let mut response = match answer(self, context, &mut parts, &mut body, &mut classified).await {
            Ok(response) => response,
            Err(error) => {
                discard_unread(body, parts.version).await;
                if let Some(trail) = context.audit.get() {
                    trail.refused(&error);
                }
                let uri = parts.uri.path_and_query().map_or("", |uri| uri.as_str());
                refuse(&error, uri, negotiate::error_output(Asked::of(&parts)))
            }
        };
        classified.tell(response.headers_mut());
        response
    }
}

async fn answer(
    server: &Arc<Server>,
    context: &Context,
    parts: &mut http::request::Parts,
    incoming: &mut RequestBody,
    classified: &mut Classified,
) -> Result<Response<Body>, ApiError> {
    let located = match locate(server, context, parts).await {
        Ok(located) => located,
        Err(error) => {
            audit_unplaced(server, context, parts);
            return Err(error);
        }
    };
    let query = Query::parse(parts.uri.query());
    let authenticated = server.authenticate(context, &parts.headers, &located).await;
    let path = request::parse(&located.segments);
    let inside = match &path {
        Ok(Path::Resource(_)) => String::new(),
        _ => inside(parts, &located),
    };
    let asking = Asking {
        context,
        parts,
        address: &located.address,
        what: What::of(&path, &query, &inside),
    };
    server.auditor.begin(&asking);
    let user = match authenticated {
        Ok(user) => user,
        Err(error) => {
            // The plane may want to know who failed to enter it.
            if located.address != Address::AllPlanes
                && let Ok(plane) = server.plane(&located.address).await
            {
                server.auditor.enter(&asking, &plane);
                // What was good here is good nowhere once the plane is gone: who has it is told where, as anybody is.
                if pass::is_refused(&plane) {
                    return Err(crate::plane::moved::away(&plane));
                }
            }
            return Err(error);
        }
    };
    let user = server.with_parent(user, &located).await;
    let visitor = Visitor {
        user: &user,
        located: &located,
        path: &path,
        query: &query,
        parts,
        peer: &context.peer,
    };
    let mut entered = server.enter(&visitor, classified).await?;
    if let Some(plane) = server.moved(&located.address).await {
        let passing = pass::answer(
            server,
            context,
            parts,
            std::mem::take(incoming),
            &user,
            (&located, &plane),
        );
        return Ok(entered.until_made(Box::pin(passing).await?));
    }
    let (body, stream) = if is_streamed(&path) {
        (bytes::Bytes::new(), Some(std::mem::take(incoming)))
    } else if incoming.is_end_stream() {
        (bytes::Bytes::new(), None)
    } else {
        let read = read_body(
            std::mem::take(incoming),
            limit::MAX_REQUEST_BODY,
            limit::REQUEST_TIMEOUT,
        );
        (Box::pin(read).await?, None)
    };
    let mut call = Call {
        server,
        context,
        parts,
        body,
        stream,
        query,
        user,
        located,
        warnings: Warnings::default(),
        watching: entered.watching(),
        ending: None,
    };
    if let Some(trail) = context.audit.get() {
        trail.sent(&call.body, call.header(&CONTENT_TYPE));
    }
    match path? {
        Path::Resource(path) => {
            let response = answer_resource(&mut call, &path).await?;
            Ok(entered.until_made(response))
        }
        path => {
            authorize_path(&call, &path, &inside).await?;
            Box::pin(discover::answer(&call, &path)).await
        }
    }
}

/// Answers about a resource, and starts over if the plane turns out to have changed meanwhile.
async fn answer_resource(call: &mut Call<'_>, path: &ResourcePath) -> Result<Response<Body>, ApiError> {
    let mut answer = resource::answer(call, path).await;
    for _ in 1..STALE_PLANE_TRIES {
        if !answer.as_ref().is_err_and(ApiError::is_stale_plane) {
            break;
        }
        call.server.forget(&call.located.address).await;
        call.warnings.lock().clear();
        answer = resource::answer(call, path).await;
    }
    match answer {
        Ok(mut response) => {
            warn(&mut response, &call.warnings.lock());
            Ok(response)
        }
        Err(error) => Err(error.warned(&call.warnings.lock())),
    }
}

/// The path of a request as it is seen from inside its plane.
fn inside(parts: &http::request::Parts, located: &Located) -> String {
    let mut inside = format!("/{}", located.segments.join("/"));
    if parts.uri.path().ends_with('/') && !inside.ends_with('/') {
        inside.push('/');
    }
    inside
}

/// Audits a request that cannot be understood.
fn audit_unplaced(server: &Arc<Server>, context: &Context, parts: &http::request::Parts) {
    let asking = Asking {
        context,
        parts,
        address: &Address::Root,
        what: What::Path {
            inside: parts.uri.path(),
            answers_object: true,
        },
    };
    server.auditor.begin(&asking);
}

/// Decides about a request that is about no resource.
async fn authorize_path(call: &Call<'_>, path: &Path, inside: &str) -> Result<(), ApiError> {
    let verb = call.parts.method.as_str().to_ascii_lowercase();
    let authorizer = &call.server.authorizer;
    let reason = if call.located.address == Address::AllPlanes {
        authorizer.authorize_path_everywhere(&call.user, &verb, inside).await?
    } else {
        let attempt = Attempt::Path(&verb, inside);
        let plane = call
            .server
            .plane_for(&call.user, &call.located.address, &attempt)
            .await?;
        let answers_object = !matches!(path, Path::Other);
        call.enter(What::Path { inside, answers_object }, &plane);
        authorizer.authorize_path(&call.user, &plane, &verb, inside).await?
    };
    if let Some(trail) = call.context.audit.get() {
        trail.allowed(&reason, None);
    }
    Ok(())
}

/// Whether the body is read while it arrives: a plane's snapshot has no limit.
fn is_streamed(path: &Result<Path, ApiError>) -> bool {
    matches!(path, Ok(Path::Resource(path))
        if path.group == GROUP && path.resource == PLURAL
            && matches!(path.subresource.as_deref(), Some("restore" | "arrive")))
}

/// The plane that the request's host or path names. A host that a plane claims stands for the plane's root path.
async fn locate(server: &Server, context: &Context, parts: &http::request::Parts) -> Result<Located, ApiError> {
    let located = request::locate(parts.uri.path())?;
    let host = host(parts);
    let address = if may_be_claimed(&host) {
        Box::pin(server.claimed(&host)).await?
    } else {
        None
    };
    // The certificate that the client saw was for another host: whatever joined the two connections is mistaken.
    // Hosts that no plane claims are all the server itself, under whatever name.
    if let Some(name) = context.peer.server_name().map(normal_host).filter(|name| *name != host)
        && (address.is_some() || (may_be_claimed(&name) && Box::pin(server.claimed(&name)).await?.is_some()))
    {
        let message = format!("this connection was made to {name}, and cannot be used for {host}");
        return Err(ApiError::misdirected(message));
    }
    Ok(match address {
        Some(address) if located.address == Address::Root => Located { address, ..located },
        _ => located,
    })
}

/// The host that a request is for, without its port; empty if it names none.
fn host(parts: &http::request::Parts) -> Cow<'_, str> {
    let host = parts.uri.authority().map(http::uri::Authority::as_str);
    let host = host
        .or_else(|| parts.headers.get(http::header::HOST)?.to_str().ok())
        .unwrap_or_default();
    normal_host(host.rsplit_once(':').map_or(host, |(name, _)| name))
}

/// A host as names are compared: DNS knows neither case nor a last dot.
fn normal_host(host: &str) -> Cow<'_, str> {
    let host = host.strip_suffix('.').unwrap_or(host);
    if host.bytes().any(|b| b.is_ascii_uppercase()) {
        host.to_ascii_lowercase().into()
    } else {
        host.into()
    }
}

/// Addresses and single labels (127.0.0.1, localhost) are never claimed: most requests end here without a look.
fn may_be_claimed(host: &str) -> bool {
    host.contains('.') && !host.bytes().all(|b| b.is_ascii_digit() || b == b'.')
}

impl Server {
    /// The plane that a host stands for, if one claims it.
    async fn claimed(&self, host: &str) -> Result<Option<Address>, ApiError> {
        let project = host
            .strip_prefix("milo-apiserver.project-")
            .and_then(|rest| rest.strip_suffix(".svc.cluster.local"));
        Ok(match project {
            Some(project) => Some(Address::Project(project.to_owned())),
            None => self
                .directory
                .by_address("Host", host)
                .await?
                .map(|plane| Address::Plane(plane.name.to_string())),
        })
    }

    /// Tells of hosts in handshakes whether they are a plane's: by its project, or because the plane claims it.
    pub fn known_hosts(self: &Arc<Self>) -> IsKnownHost {
        let known = Arc::downgrade(self);
        Box::new(move |host| {
            let server = known.upgrade();
            Box::pin(async move {
                let Some(server) = server else { return false };
                match server.claimed(&host).await {
                    Ok(Some(address)) => server.plane(&address).await.is_ok(),
                    Ok(None) | Err(_) => false,
                }
            })
        })
    }

    /// The plane that an address names.
    pub(crate) async fn plane(&self, address: &Address) -> Result<Arc<Plane>, ApiError> {
        let missing = |group: &str, resource: &str, name: &str| {
            Err(ApiError::not_found(
                &mica_api::GroupResource::new(group, resource),
                name,
            ))
        };
        match address {
            Address::Root => Ok(self.directory.root()),
            Address::Plane(name) => self.directory.by_name(name).await,
            Address::Project(name) => match Box::pin(self.directory.by_address("Project", name)).await? {
                Some(plane) => Ok(plane),
                None => missing("resourcemanager.miloapis.com", "projects", name),
            },
            Address::Organization(_) | Address::User(_) if self.has_views() => {
                if let Some(view) = View::of(address) {
                    view.check_name()?;
                }
                Ok(self.directory.root())
            }
            Address::Organization(name) => missing("resourcemanager.miloapis.com", "organizations", name),
            Address::User(name) => missing("iam.miloapis.com", "users", name),
            Address::AllPlanes => Err(ApiError::bad_request(
                "this request is about one plane: name it instead of *",
            )),
        }
    }

    /// A user with what is stored about whose the plane is, and without what it claims of that itself.
    async fn with_parent(&self, user: Arc<User>, located: &Located) -> Arc<User> {
        let parent = match &located.address {
            address @ (Address::Plane(_) | Address::Project(_)) => {
                let plane = self.plane(address).await.ok();
                plane.and_then(|plane| plane.parent().cloned())
            }
            Address::AllPlanes => None,
            _ if self.has_views() => View::parent_of(located),
            _ => None,
        };
        parent::carried(user, parent.as_ref())
    }

    /// The plane that an address names. Who could not enter it does not learn that there is none.
    pub(crate) async fn plane_for(
        &self,
        user: &User,
        address: &Address,
        attempt: &Attempt<'_>,
    ) -> Result<Arc<Plane>, ApiError> {
        match self.plane(address).await {
            Err(error) if error.code() == StatusCode::NOT_FOUND => {
                let name = match address {
                    Address::Plane(name) | Address::Project(name) => name,
                    _ => return Err(error),
                };
                Err(self.authorizer.hide_missing(user, name, error, attempt).await)
            }
            found => found,
        }
    }

    /// Forgets what is believed of the plane that an address names: a write found it stale.
    async fn forget(&self, address: &Address) {
        if *address == Address::AllPlanes {
            self.definitions.forget(PlaneId::ROOT);
        } else if let Ok(plane) = self.plane(address).await {
            self.definitions.forget(plane.id);
        }
        match address {
            Address::Plane(name) => self.directory.forget(name),
            Address::Project(name) => self.directory.forget_address("Project", name),
            // Root and what is more than one plane are not cached.
            _ => {}
        }
    }
}

/// An error as the response to a request for an address. What happened inside is logged here, once.
pub fn refuse(error: &ApiError, uri: &str, output: Output) -> Response<Body> {
    if let Some(cause) = error.cause() {
        let (code, answer, cause) = (error.code().as_u16(), error.message(), Chain(cause));
        // What clients get wrong is theirs to know: they must not be able to fill our log.
        if error.code().is_server_error() {
            tracing::warn!(code, answer, %cause, "request failed");
        } else {
            tracing::debug!(code, answer, %cause, "request refused");
        }
    }
    if let Some(text) = error.plain(uri) {
        let mut response = respond(error.code(), "text/plain; charset=utf-8", Body::full(text));
        let headers = response.headers_mut();
        headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
        if let Some(after) = error.retry_after() {
            headers.insert(RETRY_AFTER, HeaderValue::from(after.as_secs()));
        }
        return response;
    }
    let body = encode::document(facts().well_known().status, &error.to_status(), output).unwrap_or_default();
    let mut response = respond(error.code(), output.format.media_type(), Body::full(body));
    if let Some(after) = error.retry_after() {
        response
            .headers_mut()
            .insert(RETRY_AFTER, HeaderValue::from(after.as_secs()));
    }
    warn(&mut response, error.warnings());
    response
}

/// Prints an error with everything behind it.
struct Chain<'a>(&'a (dyn std::error::Error + Send + Sync));

impl std::fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)?;
        let mut next = self.0.source();
        while let Some(error) = next {
            write!(f, ": {error}")?;
            next = error.source();
        }
        Ok(())
    }
}

pub(crate) fn respond(code: StatusCode, content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

impl From<crate::http::ReadBodyError> for ApiError {
    fn from(error: crate::http::ReadBodyError) -> Self {
        use crate::http::ReadBodyError;
        match error {
            ReadBodyError::TooLarge { .. } => Self::too_large(error.to_string()),
            ReadBodyError::Timeout => Self::timeout(error.to_string()),
            ReadBodyError::Broken(_) => Self::bad_request("the request body broke off").because(error),
        }
    }
}

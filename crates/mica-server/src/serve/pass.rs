//! Requests to a plane that has moved: passed on to where it is, as whoever asked, or told where that is.
//!
//! The new server lets this one say who asks because it shows a certificate that the new one trusts for that, as it would
//! trust any proxy in front of it (`docs/design/moving-planes.md`). What a client itself claims in such headers never gets
//! through. Each request has a connection of its own: this lasts for the time of a drain, and watches hold theirs anyway.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures::StreamExt as _;
use http::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, CONTENT_LENGTH, EXPECT, HOST, HeaderName, HeaderValue, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE,
};
use http::request::Parts;
use http::{HeaderMap, Request, Response, Uri};
use http_body_util::BodyExt as _;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::Server;
use crate::authn::REALM;
use crate::authz::{Realm, User};
use crate::egress::ClientConfig;
use crate::error::ApiError;
use crate::http::{Body, Context, RequestBody, is_websocket};
use crate::pki::{Authority, Identity, Issued};
use crate::plane::moved::{self, MovedTo, PASSER, Requests};
use crate::plane::{Plane, State};
use crate::request::{Address, Located, Query};

/// Requests passed on at once, watches included. More are told to wait.
const PASSED: usize = 10_000;
/// How long connecting may take.
const CONNECT: Duration = Duration::from_secs(10);
/// How long the far side may take to begin an answer: as long as requests may take there.
const ANSWER: Duration = Duration::from_secs(60);
/// When a new certificate is made: long before any that is shown ends.
const RENEW: Duration = Duration::from_secs(12 * 3600);
/// Largest head of an answer.
const MAX_HEAD: usize = 64 << 10;

/// What is between two neighbours only, or says who asks.
const NOT_PASSED: [HeaderName; 10] = [
    ACCEPT_ENCODING,
    AUTHORIZATION,
    CONNECTION,
    EXPECT,
    HOST,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
    HeaderName::from_static("keep-alive"),
];
const CLAIMS: [&str; 3] = ["x-remote-", "impersonate-", "proxy-"];

/// What it takes to pass requests on.
pub struct Passer {
    authority: Option<Arc<Authority>>,
    certificate: Mutex<Option<(SystemTime, Arc<Issued>)>>,
    places: Arc<Semaphore>,
}

impl Passer {
    pub fn new(authority: Option<Arc<Authority>>) -> Self {
        Self {
            authority,
            certificate: Mutex::new(None),
            places: Arc::new(Semaphore::new(PASSED)),
        }
    }

    fn certificate(&self) -> Result<Arc<Issued>, ApiError> {
        let now = SystemTime::now();
        let mut kept = self.certificate.lock();
        if let Some((made, issued)) = &*kept
            && now.duration_since(*made).is_ok_and(|age| age < RENEW)
        {
            return Ok(issued.clone());
        }
        let cannot = || ApiError::unavailable("this server cannot prove itself to the plane's new one");
        let authority = self.authority.as_ref().ok_or_else(cannot)?;
        let identity = Identity {
            name: PASSER.to_owned(),
            group: None,
        };
        let issued = authority
            .issue_client(&identity, now)
            .map_err(|error| cannot().because(error))?;
        let issued = Arc::new(issued);
        *kept = Some((now, issued.clone()));
        Ok(issued)
    }
}

impl Server {
    /// The plane that a request is for, if it is elsewhere.
    pub(super) async fn moved(&self, address: &Address) -> Option<Arc<Plane>> {
        match address {
            Address::Plane(_) | Address::Project(_) => {
                let plane = self.plane(address).await.ok()?;
                (plane.state == State::Moved).then_some(plane)
            }
            _ => None,
        }
    }
}

/// Whether whoever asks for a plane is told that it is elsewhere.
pub(super) fn is_refused(plane: &Plane) -> bool {
    let to = plane.moved_to();
    plane.state == State::Moved && to.is_some_and(|to| to.requests == Requests::Refuse)
}

/// Answers a request for a plane that is elsewhere.
pub(super) async fn answer(
    server: &Server,
    context: &Context,
    parts: &Parts,
    incoming: RequestBody,
    user: &User,
    (located, plane): (&Located, &Plane),
) -> Result<Response<Body>, ApiError> {
    let to = match plane.moved_to() {
        // A connection that becomes something else cannot be passed on: who wants one is told where.
        Some(to) if to.requests == Requests::Pass && !is_websocket(&parts.headers) => to,
        _ => return Err(moved::away(plane)),
    };
    let place = server.passer.places.clone().try_acquire_owned();
    let place = place.map_err(|_| ApiError::too_many_requests("too many requests to planes that have moved", 1))?;
    let issued = server.passer.certificate()?;
    let config = to.config()?.showing(&issued.certificate_pem, &issued.key_pem);
    let request = request(to, parts, incoming, user, located)?;
    let lasts = Query::parse(parts.uri.query()).flag("watch") || parts.uri.path().contains("/watch/");
    let answered = exchange(server, &config, request).await?;
    Ok(passed_back(
        answered,
        place,
        lasts.then(|| context.peer.drain().clone()),
    ))
}

/// The same request, for the new address.
fn request(
    to: &MovedTo,
    parts: &Parts,
    incoming: RequestBody,
    user: &User,
    located: &Located,
) -> Result<Request<RequestBody>, ApiError> {
    let unusable = || ApiError::internal("a plane's new address cannot be used");
    let server: Uri = to.server.parse().map_err(|_| unusable())?;
    let inside = parts.uri.path().strip_prefix(located.prefix.as_str());
    let inside = inside.ok_or_else(unusable)?.trim_start_matches('/');
    let mut path = format!("{}/{inside}", server.path().trim_end_matches('/'));
    if let Some(query) = parts.uri.query() {
        path = format!("{path}?{query}");
    }
    let mut request = Request::new(incoming);
    *request.method_mut() = parts.method.clone();
    *request.uri_mut() = path.parse().map_err(|_| unusable())?;
    let headers = request.headers_mut();
    copy(&parts.headers, headers);
    let host = server.authority().ok_or_else(unusable)?.as_str();
    headers.insert(HOST, HeaderValue::from_str(host).map_err(|_| unusable())?);
    name(user, headers)?;
    Ok(request)
}

/// Copies what is for the far end.
fn copy(from: &HeaderMap, to: &mut HeaderMap) {
    for (name, value) in from {
        let claims = CLAIMS.iter().any(|claim| name.as_str().starts_with(claim));
        if !claims && !NOT_PASSED.contains(name) {
            to.append(name, value.clone());
        }
    }
}

/// Says who asks.
fn name(user: &User, headers: &mut HeaderMap) -> Result<(), ApiError> {
    let unsayable = || ApiError::bad_request("your name cannot be said in a header: ask the new server yourself");
    let value = |text: &str| HeaderValue::from_bytes(text.as_bytes()).map_err(|_| unsayable());
    headers.insert("x-remote-user", value(&user.name)?);
    if !user.uid.is_empty() {
        headers.insert("x-remote-uid", value(&user.uid)?);
    }
    for group in &user.groups {
        headers.append("x-remote-group", value(group)?);
    }
    // One of the plane is one of the plane there, too.
    let realm = (REALM.to_owned(), vec!["plane".to_owned()]);
    let realm = (user.realm != Realm::Platform).then_some(&realm);
    for (key, values) in user.extra.iter().filter(|(key, _)| key != REALM).chain(realm) {
        let key = utf8_percent_encode(key, NON_ALPHANUMERIC).to_string();
        let header = HeaderName::from_bytes(format!("x-remote-extra-{key}").to_ascii_lowercase().as_bytes());
        let header = header.map_err(|_| unsayable())?;
        for one in values {
            headers.append(header.clone(), value(one)?);
        }
    }
    Ok(())
}

type Sender = http1::SendRequest<RequestBody>;

async fn exchange(
    server: &Server,
    config: &ClientConfig,
    request: Request<RequestBody>,
) -> Result<(Sender, Response<hyper::body::Incoming>), ApiError> {
    let away = || ApiError::unavailable("the plane's new server does not answer").with_retry_after(1);
    let connected = tokio::time::timeout(CONNECT, server.egress.connect(config)).await;
    let stream = connected
        .map_err(|error| away().because(error))?
        .map_err(|error| away().because(error))?;
    let shaken = http1::Builder::new()
        .max_buf_size(MAX_HEAD)
        .handshake(TokioIo::new(stream))
        .await;
    let (mut sender, connection) = shaken.map_err(|error| away().because(error))?;
    // Ends when the sender is dropped or the far side closes.
    tokio::spawn(async move { drop(connection.await) });
    let answered = tokio::time::timeout(ANSWER, sender.send_request(request)).await;
    let response = answered
        .map_err(|error| away().because(error))?
        .map_err(|error| away().because(error))?;
    Ok((sender, response))
}

/// The answer as it came. A watch ends between two pieces when this server drains.
fn passed_back(
    (sender, answered): (Sender, Response<hyper::body::Incoming>),
    place: OwnedSemaphorePermit,
    drain: Option<tokio_util::sync::CancellationToken>,
) -> Response<Body> {
    let (head, body) = answered.into_parts();
    // The connection and the place go with the last of the body.
    let held = (sender, place);
    let pieces = body.into_data_stream().map(move |piece| {
        let _ = &held;
        piece
    });
    let body = match drain {
        Some(drain) => Body::watch(
            pieces
                .take_while(|piece| std::future::ready(piece.is_ok()))
                .filter_map(|piece| std::future::ready(piece.ok())),
            drain,
        ),
        None => Body::try_stream(pieces),
    };
    let mut response = Response::new(body);
    *response.status_mut() = head.status;
    copy(&head.headers, response.headers_mut());
    response.headers_mut().remove(CONTENT_LENGTH);
    response
}

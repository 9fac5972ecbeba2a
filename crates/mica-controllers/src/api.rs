//! Requests to an API server, by path: one client reaches every plane of a server.
//!
//! Everything has a deadline. What a server refuses is a [`Refusal`] with its code and message; who asks decides what that
//! means.

use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, StreamExt as _, TryStreamExt as _, stream};
use http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};
use http::{Method, Request, Response};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use crate::echo;
use crate::meta::Meta;
use crate::turn::Turn;

/// What controllers are called in managed fields, as upstream's.
const AGENT: &str = "kube-controller-manager/mica";
const JSON: &str = "application/json";
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
/// What discovery is asked for: every group in one document.
const GROUPS: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
/// The most time an answer may take. Deleting a large collection takes the longest.
const PATIENCE: Duration = Duration::from_secs(75);
/// How long a watch may say nothing: servers send a bookmark every minute.
const SILENCE: Duration = Duration::from_secs(300);
/// Objects of a page.
const PAGE: usize = 500;
/// The longest line of a watch: objects are bounded by what servers store.
const LONGEST_EVENT: usize = 32 * 1024 * 1024;

/// Why something was not done.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    #[error("{message}")]
    Status { code: u16, reason: String, message: String },
    #[error("the server did not answer")]
    Unreachable(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("the server did not answer in time")]
    Late,
    #[error("the answer makes no sense")]
    Unreadable(#[source] serde_json::Error),
    #[error("no matches for kind {kind:?} in version {api_version:?}")]
    UnknownKind { api_version: String, kind: String },
    #[error("objects of kind {0:?} could not be read a moment ago")]
    Troubled(String),
    /// Somebody else who was asked, no API server, failed.
    #[error("{0}")]
    Elsewhere(String),
    #[error("another replica works")]
    NotOurTurn,
}

impl Refusal {
    pub fn code(&self) -> u16 {
        match self {
            Self::Status { code, .. } => *code,
            _ => 0,
        }
    }

    pub fn is_not_found(&self) -> bool {
        self.code() == 404
    }

    /// The server looked for the object and has none. Of a kind that it does not serve it says something else.
    pub fn is_object_not_found(&self) -> bool {
        matches!(self, Self::Status { code: 404, reason, .. } if reason == "NotFound")
    }

    /// The server does not serve the kind, or not any more.
    pub fn is_kind_not_served(&self) -> bool {
        matches!(self, Self::UnknownKind { .. }) || (self.is_not_found() && !self.is_object_not_found())
    }

    /// The server, or what it has to ask, is in trouble: the same request will not do better at once.
    pub fn is_trouble(&self) -> bool {
        matches!(self, Self::Late) || self.code() >= 500
    }

    /// Somebody else wrote meanwhile, or was first.
    pub fn is_conflict(&self) -> bool {
        self.code() == 409
    }

    /// Whether the same request may do better in a while, with nothing else changed.
    pub fn is_passing(&self) -> bool {
        let unsaid = matches!(
            self,
            Self::Unreachable(_) | Self::Late | Self::Unreadable(_) | Self::Troubled(_) | Self::Elsewhere(_)
        );
        unsaid || self.is_conflict() || self.code() == 429 || self.code() >= 500
    }

    /// Nothing new may be made there: the namespace or the plane is being deleted.
    pub fn is_going(&self) -> bool {
        match self {
            Self::Status {
                code: 403,
                message,
                reason,
            } => message.contains("because it is being terminated") || reason == "PlaneDraining",
            _ => false,
        }
    }

    /// The plane is on its way here, and takes no requests yet.
    pub fn is_arriving(&self) -> bool {
        matches!(self, Self::Status { reason, .. } if reason == "PlaneArriving")
    }

    /// The plane is on another server.
    pub fn is_moved(&self) -> bool {
        matches!(self, Self::Status { reason, .. } if reason == "PlaneMoved")
    }

    /// It has to be read from the beginning.
    pub fn is_expired(&self) -> bool {
        self.code() == 410
    }
}

/// What there is, without what is not.
pub trait Absent<T> {
    /// `None` where the server says that it is not there.
    fn or_absent(self) -> Result<Option<T>, Refusal>;

    /// `None` only where the server looked for the object and has none: that the kind is not served now is an error.
    fn or_object_absent(self) -> Result<Option<T>, Refusal>;
}

impl<T> Absent<T> for Result<T, Refusal> {
    fn or_absent(self) -> Result<Option<T>, Refusal> {
        match self {
            Ok(found) => Ok(Some(found)),
            Err(refusal) if refusal.is_not_found() => Ok(None),
            Err(refusal) => Err(refusal),
        }
    }

    fn or_object_absent(self) -> Result<Option<T>, Refusal> {
        match self {
            Ok(found) => Ok(Some(found)),
            Err(refusal) if refusal.is_object_not_found() => Ok(None),
            Err(refusal) => Err(refusal),
        }
    }
}

/// What becomes of the dependents of what is deleted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Propagation {
    Background,
    Foreground,
    Orphan,
}

impl Propagation {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Background => "Background",
            Self::Foreground => "Foreground",
            Self::Orphan => "Orphan",
        }
    }
}

/// An object of which only the metadata was asked for.
#[derive(Deserialize)]
pub struct Partial {
    #[serde(default)]
    pub metadata: Meta,
}

/// One line of a watch.
#[derive(Deserialize)]
pub struct Line<T> {
    #[serde(rename = "type")]
    pub kind: EventType,
    pub object: T,
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "UPPERCASE")]
pub enum EventType {
    Added,
    Modified,
    Deleted,
    Bookmark,
    Error,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Page<T> {
    #[serde(default)]
    metadata: ListMeta,
    #[serde(
        default = "Vec::new",
        deserialize_with = "none_is_empty",
        bound(deserialize = "T: Deserialize<'de>")
    )]
    items: Vec<T>,
}

/// A server may write an empty list of metadata as null.
fn none_is_empty<'de, T: Deserialize<'de>, D: Deserializer<'de>>(items: D) -> Result<Vec<T>, D::Error> {
    Ok(Option::deserialize(items)?.unwrap_or_default())
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ListMeta {
    resource_version: String,
    r#continue: String,
    remaining_item_count: Option<u64>,
}

/// A whole list, and the version that it is of.
pub struct Listed<T> {
    pub items: Vec<T>,
    pub version: String,
}

/// A client of one server.
#[derive(Clone)]
pub struct Api {
    client: kube::Client,
    turn: Turn,
}

impl Api {
    pub fn new(client: kube::Client) -> Self {
        Self {
            client,
            turn: Turn::always(),
        }
    }

    /// Changes something only in this turn.
    #[must_use]
    pub(crate) fn in_turn(self, turn: Turn) -> Self {
        Self { turn, ..self }
    }

    pub(crate) fn turn(&self) -> &Turn {
        &self.turn
    }

    /// Whether it is this replica's turn.
    pub(crate) fn is_in_turn(&self) -> bool {
        self.turn.is_ours()
    }

    pub async fn get(&self, path: &str) -> Result<Value, Refusal> {
        self.read(path, JSON).await
    }

    pub async fn metadata(&self, path: &str) -> Result<Meta, Refusal> {
        let partial: Partial = self.read(path, METADATA).await?;
        Ok(partial.metadata)
    }

    /// A discovery document: every group below `/api` or `/apis`.
    pub async fn groups(&self, path: &str) -> Result<Bytes, Refusal> {
        self.answer(self.request(Method::GET, path, GROUPS, None)).await
    }

    /// Everything that a collection has, page by page.
    pub async fn list(&self, path: &str, query: &str) -> Result<Listed<Value>, Refusal> {
        self.pages(path, query, JSON).await
    }

    pub async fn list_metadata(&self, path: &str, query: &str) -> Result<Listed<Partial>, Refusal> {
        self.pages(path, query, METADATA_LIST).await
    }

    /// How many objects a collection has. Costs one page where the server counts what is left.
    pub async fn count(&self, path: &str) -> Result<u64, Refusal> {
        let first: Page<Partial> = self.read(&format!("{path}?limit=1"), METADATA_LIST).await?;
        let seen = first.items.len() as u64;
        if first.metadata.r#continue.is_empty() {
            return Ok(seen);
        }
        match first.metadata.remaining_item_count {
            Some(more) => Ok(seen + more),
            None => Ok(self.list_metadata(path, "").await?.items.len() as u64),
        }
    }

    async fn pages<T: DeserializeOwned>(&self, path: &str, query: &str, accept: &str) -> Result<Listed<T>, Refusal> {
        let mut listed = Listed {
            items: Vec::new(),
            version: String::new(),
        };
        let mut token = String::new();
        loop {
            let mut at = format!("{path}?limit={PAGE}");
            for (name, value) in [("", query.to_owned()), ("continue=", crate::place::query_value(&token))] {
                if !value.is_empty() {
                    at.push('&');
                    at.push_str(name);
                    at.push_str(&value);
                }
            }
            let page: Page<T> = self.read(&at, accept).await?;
            listed.items.extend(page.items);
            listed.version = page.metadata.resource_version;
            token = page.metadata.r#continue;
            if token.is_empty() {
                return Ok(listed);
            }
        }
    }

    pub async fn create(&self, path: &str, object: &Value) -> Result<Value, Refusal> {
        self.write(Method::POST, path, JSON, object).await
    }

    /// Creates what nobody here looks at again.
    pub async fn tell(&self, path: &str, object: &Value) -> Result<(), Refusal> {
        let request = self.request(Method::POST, path, JSON, Some((JSON, object)));
        self.answer(request).await.map(drop)
    }

    pub async fn update(&self, path: &str, object: &Value) -> Result<Value, Refusal> {
        self.write(Method::PUT, path, JSON, object).await
    }

    /// A merge patch, which every kind takes.
    pub async fn merge(&self, path: &str, patch: &Value) -> Result<Value, Refusal> {
        self.write(Method::PATCH, path, "application/merge-patch+json", patch)
            .await
    }

    /// Makes an object of what is said, or makes what is there so: by server-side apply under a name, and by force. What is
    /// so already is not written.
    pub async fn apply(&self, path: &str, manager: &str, object: &Value) -> Result<Value, Refusal> {
        let at = format!("{path}?fieldManager={manager}&force=true");
        self.write(Method::PATCH, &at, "application/apply-patch+yaml", object)
            .await
    }

    /// Deletes the object with this uid, whatever became of it since it was looked at.
    pub async fn delete_uid(&self, path: &str, uid: &str) -> Result<(), Refusal> {
        self.delete_with(path, Propagation::Background, Some(json!({"uid": uid})))
            .await
    }

    /// Deletes an object if it is still the one that was looked at.
    pub async fn delete(&self, path: &str, meta: &Meta, propagation: Propagation) -> Result<(), Refusal> {
        let preconditions = json!({"uid": meta.uid, "resourceVersion": meta.resource_version});
        self.delete_with(path, propagation, Some(preconditions)).await
    }

    /// Deletes whatever is there: an object, or a collection.
    pub async fn delete_any(&self, path: &str) -> Result<(), Refusal> {
        self.delete_with(path, Propagation::Background, None).await
    }

    async fn delete_with(
        &self,
        path: &str,
        propagation: Propagation,
        preconditions: Option<Value>,
    ) -> Result<(), Refusal> {
        let mut options =
            json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": propagation.as_str()});
        if let Some(preconditions) = preconditions {
            options["preconditions"] = preconditions;
        }
        let request = self.request(Method::DELETE, path, JSON, Some((JSON, &options)));
        self.answer(request).await.map(drop)
    }

    /// The events of a collection, until the server ends the watch.
    pub async fn watch<T: DeserializeOwned + 'static>(
        &self,
        path: &str,
    ) -> Result<impl Stream<Item = Result<Line<T>, Refusal>> + Send + use<T>, Refusal> {
        let response = self.send(self.request(Method::GET, path, METADATA, None)).await?;
        let pieces = response.into_body().into_data_stream();
        let pieces = pieces.map_err(|error| Refusal::Unreachable(Box::new(error)));
        Ok(lines(pieces.boxed()).map(|line| read_line(&line?)))
    }

    /// What an address answers with, as it comes. Whoever reads it bounds how long that may take.
    pub async fn pour(&self, path: &str) -> Result<Body, Refusal> {
        let response = self.send(self.request(Method::GET, path, "*/*", None)).await?;
        Ok(response.into_body())
    }

    /// Posts what comes from elsewhere, without a deadline of its own: who has the other end knows whether it goes on.
    pub async fn fill(&self, path: &str, body: Body) -> Result<Value, Refusal> {
        let mut request = self.request(Method::POST, path, JSON, None);
        *request.body_mut() = body;
        let epoch = self.turn.epoch().ok_or(Refusal::NotOurTurn)?;
        let sending = async {
            let sent = self.client.send(request).await;
            let response = sent.map_err(|error| Refusal::Unreachable(Box::new(error)))?;
            collect(good(response).await?).await
        };
        // It may take long, and belongs to no item of work that would be given up.
        let bytes = tokio::select! {
            biased;
            () = self.turn.goes(epoch) => return Err(Refusal::NotOurTurn),
            bytes = sending => bytes?,
        };
        serde_json::from_slice(&bytes).map_err(Refusal::Unreadable)
    }

    async fn read<T: DeserializeOwned>(&self, path: &str, accept: &str) -> Result<T, Refusal> {
        let bytes = self.answer(self.request(Method::GET, path, accept, None)).await?;
        serde_json::from_slice(&bytes).map_err(Refusal::Unreadable)
    }

    async fn write(&self, method: Method, path: &str, form: &str, object: &Value) -> Result<Value, Refusal> {
        let bytes = self
            .answer(self.request(method, path, JSON, Some((form, object))))
            .await?;
        let stored = serde_json::from_slice(&bytes).map_err(Refusal::Unreadable)?;
        echo::note(&stored);
        Ok(stored)
    }

    fn request(&self, method: Method, path: &str, accept: &str, body: Option<(&str, &Value)>) -> Request<Body> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(ACCEPT, accept)
            .header(USER_AGENT, AGENT);
        let body = match body {
            None => Body::empty(),
            Some((form, value)) => {
                request = request.header(CONTENT_TYPE, form);
                Body::from(value.to_string().into_bytes())
            }
        };
        request
            .body(body)
            .expect("paths are escaped and headers are plain text")
    }

    /// Sends a request; the head of a good answer.
    async fn send(&self, request: Request<Body>) -> Result<Response<Body>, Refusal> {
        if *request.method() != Method::GET && !self.turn.may_write() {
            return Err(Refusal::NotOurTurn);
        }
        let sent = tokio::time::timeout(PATIENCE, self.client.send(request)).await;
        match sent {
            Err(_elapsed) => Err(Refusal::Late),
            Ok(Err(error)) => Err(Refusal::Unreachable(Box::new(error))),
            Ok(Ok(response)) => good(response).await,
        }
    }

    async fn answer(&self, request: Request<Body>) -> Result<Bytes, Refusal> {
        collect(self.send(request).await?).await
    }
}

/// An answer, if it is a good one.
async fn good(response: Response<Body>) -> Result<Response<Body>, Refusal> {
    if response.status().is_success() {
        return Ok(response);
    }
    let code = response.status().as_u16();
    let body = collect(response).await?;
    let status: Value = serde_json::from_slice(&body).unwrap_or_default();
    let text = |field: &str| status[field].as_str().map(str::to_owned);
    Err(Refusal::Status {
        code,
        reason: text("reason").unwrap_or_default(),
        message: text("message").unwrap_or_else(|| format!("the server answered with {code}")),
    })
}

async fn collect(response: Response<Body>) -> Result<Bytes, Refusal> {
    match tokio::time::timeout(PATIENCE, response.into_body().collect()).await {
        Err(_elapsed) => Err(Refusal::Late),
        Ok(Err(error)) => Err(Refusal::Unreachable(Box::new(error))),
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
    }
}

/// The lines of what comes in pieces.
fn lines(
    pieces: impl Stream<Item = Result<Bytes, Refusal>> + Send + Unpin,
) -> impl Stream<Item = Result<Vec<u8>, Refusal>> + Send {
    struct State<S> {
        pieces: S,
        /// What was read and not told yet, from `at` on.
        held: Vec<u8>,
        at: usize,
    }
    let state = State {
        pieces,
        held: Vec::new(),
        at: 0,
    };
    stream::try_unfold(state, |mut state| async move {
        loop {
            // What was looked at already has no end of line.
            if let Some(end) = state.held[state.at..].iter().position(|byte| *byte == b'\n') {
                let line = state.held[state.at..state.at + end].to_vec();
                state.at += end + 1;
                if line.is_empty() {
                    continue;
                }
                return Ok(Some((line, state)));
            }
            state.held.drain(..state.at);
            state.at = 0;
            if state.held.len() > LONGEST_EVENT {
                return Err(Refusal::Unreachable("an event is too long".into()));
            }
            match tokio::time::timeout(SILENCE, state.pieces.next()).await {
                Err(_elapsed) => return Err(Refusal::Late),
                Ok(None) => return Ok(None),
                Ok(Some(piece)) => state.held.extend_from_slice(&piece?),
            }
        }
    })
}

/// What a line of a watch says. An error in it is one.
fn read_line<T: DeserializeOwned>(line: &[u8]) -> Result<Line<T>, Refusal> {
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Status {
        code: u16,
        reason: String,
        message: String,
    }
    let read: Line<T> = serde_json::from_slice(line).map_err(Refusal::Unreadable)?;
    // Errors are few: only they are read twice.
    if read.kind == EventType::Error {
        let error: Line<Status> = serde_json::from_slice(line).map_err(Refusal::Unreadable)?;
        return Err(Refusal::Status {
            code: error.object.code,
            reason: error.object.reason,
            message: error.object.message,
        });
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_without_items_is_empty() {
        for list in ["{}", r#"{"items":null}"#, r#"{"items":[]}"#] {
            let page: Page<Partial> = serde_json::from_str(list).unwrap();
            assert_eq!(page.items.len(), 0, "{list}");
        }
        let page: Page<Partial> = serde_json::from_str(r#"{"items":[{"metadata":{"name":"a"}}]}"#).unwrap();
        assert_eq!(page.items[0].metadata.name, "a");
    }

    #[tokio::test]
    async fn events_are_read_however_they_are_cut() {
        let whole = b"{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"a\"}}}\n\n{\"type\":\"BOOKMARK\",\"object\":{}}\n{\"type\":\"ERROR\",\"object\":{\"code\":410,\"reason\":\"Expired\",\"message\":\"too old\"}}\n";
        for size in [1, 7, whole.len()] {
            let pieces: Vec<_> = whole
                .chunks(size)
                .map(|piece| Ok(Bytes::copy_from_slice(piece)))
                .collect();
            let events: Vec<_> = lines(stream::iter(pieces))
                .map(|line| read_line::<Partial>(&line?))
                .collect()
                .await;
            assert_eq!(events.len(), 3, "in pieces of {size}");
            assert_eq!(events[0].as_ref().unwrap().object.metadata.name, "a");
            assert_eq!(events[1].as_ref().unwrap().kind, EventType::Bookmark);
            assert!(events[2].as_ref().is_err_and(Refusal::is_expired));
        }
    }
}

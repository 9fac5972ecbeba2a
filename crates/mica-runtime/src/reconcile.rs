//! What an author of a controller writes against: the [`Reconciler`], its context [`Cx`], and what it may answer.

use std::error::Error as StdError;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::ObjectReference;
use tokio_util::sync::CancellationToken;

use crate::cluster::Cluster;
use crate::controller::FleetView;
use crate::events::{Events, Recorder};
use crate::ownership::{Epoch, Tenure};
use crate::queue::Priority;
use crate::request::Request;
use crate::source::Object;

type BoxError = Box<dyn StdError + Send + Sync>;

/// Makes what is into what should be, for one object at a time.
///
/// It is given no hint of what changed: it looks at the object and at whatever else it needs, and does what is missing. It
/// may be called at any time and any number of times for an object, but never twice at once for the same one. The same
/// reconciler serves every cluster.
#[async_trait]
pub trait Reconciler: Send + Sync + 'static {
    type Kind: Object;
    /// Any error is one that is tried again later. [`ReconcileError`] can also say otherwise.
    type Error: Into<ReconcileError> + Send;

    async fn reconcile(&self, cx: Cx<Self::Kind>) -> Result<Action, Self::Error>;
}

/// What is to follow when all went well.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Action {
    /// Nothing, until something changes.
    #[default]
    AwaitChange,
    /// The object is looked at again after this time, or when something changes.
    Requeue(Duration),
}

impl Action {
    pub fn await_change() -> Self {
        Self::AwaitChange
    }

    pub fn requeue(after: Duration) -> Self {
        Self::Requeue(after)
    }
}

/// Why a reconcile failed, and what is to follow. Made of any error by `?`: then it is tried again.
///
/// It is no [`std::error::Error`] itself, so that every error can become one.
pub enum ReconcileError {
    /// Tried again, after a time that doubles with each failure in a row.
    Transient(BoxError),
    /// Not tried again until something changes.
    Terminal(BoxError),
    /// Tried again after a time of the reconciler's choice.
    After(Duration, BoxError),
}

impl ReconcileError {
    pub fn transient(error: impl Into<BoxError>) -> Self {
        Self::Transient(error.into())
    }

    pub fn terminal(error: impl Into<BoxError>) -> Self {
        Self::Terminal(error.into())
    }

    pub fn after(delay: Duration, error: impl Into<BoxError>) -> Self {
        Self::After(delay, error.into())
    }

    fn cause(&self) -> &BoxError {
        match self {
            Self::Transient(cause) | Self::Terminal(cause) | Self::After(_, cause) => cause,
        }
    }
}

impl<E: StdError + Send + Sync + 'static> From<E> for ReconcileError {
    fn from(error: E) -> Self {
        Self::Transient(Box::new(error))
    }
}

impl fmt::Display for ReconcileError {
    /// With all causes, as it is logged.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut next: Option<&dyn StdError> = Some(&**self.cause());
        let mut said = String::new();
        while let Some(error) = next {
            let text = error.to_string();
            // Some libraries repeat their cause.
            if !said.ends_with(&text) {
                if !said.is_empty() {
                    said.push_str(": ");
                }
                said.push_str(&text);
            }
            next = error.source();
        }
        f.write_str(&said)
    }
}

impl fmt::Debug for ReconcileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self {
            Self::Transient(_) => "Transient".to_owned(),
            Self::Terminal(_) => "Terminal".to_owned(),
            Self::After(delay, _) => format!("After {delay:?}"),
        };
        write!(f, "{kind}({self})")
    }
}

/// Why an object is looked at, as far as that is known: several causes become one reconcile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// It was there before anybody looked, or it is time to look again.
    Known,
    /// It, or something that belongs to it, changed; or a time that the reconciler asked for has come.
    Changed,
    /// The last time failed.
    Retry,
}

/// What a reconcile is about, and what it may use.
pub struct Cx<K: Object> {
    parts: Arc<Parts<K>>,
}

impl<K: Object> Clone for Cx<K> {
    fn clone(&self) -> Self {
        Self {
            parts: self.parts.clone(),
        }
    }
}

pub(crate) struct Parts<K: Object> {
    pub(crate) controller: Arc<str>,
    pub(crate) request: Request,
    pub(crate) kind: K::DynamicType,
    pub(crate) object: Option<Arc<K>>,
    pub(crate) cluster: Cluster,
    pub(crate) tenure: Tenure,
    pub(crate) fleet: FleetView,
    pub(crate) events: Events,
    pub(crate) priority: Priority,
    pub(crate) failures: u32,
    pub(crate) stop: CancellationToken,
    pub(crate) client: OnceLock<kube::Client>,
}

impl<K: Object> Cx<K> {
    pub(crate) fn new(parts: Parts<K>) -> Self {
        Self { parts: Arc::new(parts) }
    }

    pub fn request(&self) -> &Request {
        &self.parts.request
    }

    /// The object as it was last seen. `None`: it is gone. A deletion that must not be missed needs a finalizer: while no
    /// process runs, objects go unseen.
    pub fn object(&self) -> Option<Arc<K>> {
        self.parts.object.clone()
    }

    /// What is needed beside the type to name the kind in requests: nothing for types that know it.
    pub fn kind(&self) -> &K::DynamicType {
        &self.parts.kind
    }

    pub fn cluster(&self) -> &Cluster {
        &self.parts.cluster
    }

    /// A client of the object's cluster. What it writes fails once the cluster is another replica's.
    pub fn client(&self) -> kube::Client {
        let parts = &self.parts;
        let client = parts
            .client
            .get_or_init(|| parts.cluster.client_of(Some(parts.tenure.epoch())));
        client.clone()
    }

    /// Counts the replicas that the cluster has been owned by: what a later one wrote has a higher number.
    pub fn epoch(&self) -> Epoch {
        self.parts.tenure.epoch()
    }

    /// A client of the local (management) cluster.
    pub fn local(&self) -> kube::Client {
        self.parts.fleet.local()
    }

    /// All clusters that this replica may use, and what is known of their objects.
    pub fn fleet(&self) -> &FleetView {
        &self.parts.fleet
    }

    /// For events about the object, which are written into its cluster.
    pub fn events(&self) -> Recorder {
        let parts = &self.parts;
        let regarding = match &parts.object {
            Some(object) => object.object_ref(&parts.kind),
            None => ObjectReference {
                api_version: Some(K::api_version(&parts.kind).into_owned()),
                kind: Some(K::kind(&parts.kind).into_owned()),
                namespace: parts.request.namespace.as_ref().map(ToString::to_string),
                name: Some(parts.request.name.to_string()),
                ..ObjectReference::default()
            },
        };
        let cluster = parts.request.cluster.clone();
        parts
            .events
            .about_reference(&parts.controller, cluster, self.client(), regarding)
    }

    pub fn reason(&self) -> Reason {
        match (self.parts.failures, self.parts.priority) {
            (0, Priority::Low) => Reason::Known,
            (0, _) => Reason::Changed,
            _ => Reason::Retry,
        }
    }

    pub fn priority(&self) -> Priority {
        self.parts.priority
    }

    /// How many times in a row it has failed before.
    pub fn failures(&self) -> u32 {
        self.parts.failures
    }

    /// Resolves when the controller is to stop: what takes long should end early then. When the cluster goes, or is
    /// another replica's, a reconcile is dropped at its next await in any case.
    pub async fn cancelled(&self) {
        self.parts.stop.cancelled().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("the quota is not written")]
    struct Outer(#[source] std::io::Error);

    #[test]
    fn any_error_is_tried_again_and_tells_its_causes_once() {
        let fails = || -> Result<(), ReconcileError> {
            Err(Outer(std::io::Error::other("the disk is full")))?;
            Ok(())
        };
        let error = fails().unwrap_err();
        assert_eq!(
            format!("{error:?}"),
            "Transient(the quota is not written: the disk is full)"
        );
        assert_eq!(ReconcileError::terminal("no such field").to_string(), "no such field");
        let later = ReconcileError::after(Duration::from_secs(2), "not yet");
        assert_eq!(format!("{later:?}"), "After 2s(not yet)");
    }
}

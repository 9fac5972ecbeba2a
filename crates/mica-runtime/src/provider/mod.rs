//! Where clusters come from.
//!
//! A provider says which clusters there are; what follows from that (engaging, disengaging, exchanging credentials,
//! starting over after an error) is the fleet's. So a new provider is a mapping: [`Mapped`] makes one of any kind of object
//! that stands for clusters, and most of those here are made of it.

mod fixed;
mod kubeconfig;
mod mapped;
mod milo;
mod multi;
mod planes;
mod registrations;
mod secrets;

use std::collections::BTreeMap;

use async_trait::async_trait;
use tower::BoxError;

pub use fixed::Static;
pub use kubeconfig::{Kubeconfig, Naming};
pub use mapped::Mapped;
pub use milo::{Discovery, Milo};
pub use multi::Multi;
pub use planes::{Draining, Planes};
pub use registrations::Registrations;
pub use secrets::{KUBECONFIG_KEY, KUBECONFIG_LABEL, SecretLabel};

use crate::cluster::{Access, AccessError, Health, Wildcard};
pub use crate::fleet::ClusterSink;
use crate::request::ClusterName;

/// What a provider says of a cluster. The fleet compares it with what was said before.
///
/// The same place and identity with other credentials is the same cluster: they are exchanged, and watches go on. Another
/// place or identity is another cluster of the same name: the old one goes first. Only one that may move
/// ([`Moving::IsTheSame`]) is what it was at another place.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClusterSpec {
    pub name: ClusterName,
    pub access: Access,
    /// What controllers can choose clusters by.
    pub labels: BTreeMap<String, String>,
    pub wildcard: Option<Wildcard>,
    /// What tells it from an earlier cluster of that name, such as a uid.
    pub identity: Option<String>,
    pub moving: Moving,
}

/// What a cluster is that is at another place under the same identity.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Moving {
    #[default]
    IsAnother,
    /// Its requests go there from then on, what waits to be reconciled stays, and it is read anew: what is not there any
    /// more is told to be deleted. Needs an identity, and is not for planes that are read together with others.
    IsTheSame,
}

impl ClusterSpec {
    pub fn new(name: ClusterName, access: Access) -> Self {
        Self {
            name,
            access,
            labels: BTreeMap::new(),
            wildcard: None,
            identity: None,
            moving: Moving::default(),
        }
    }

    #[must_use]
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.insert(key.into(), value.into());
        self
    }

    #[must_use]
    pub fn labels(mut self, labels: BTreeMap<String, String>) -> Self {
        self.labels = labels;
        self
    }

    #[must_use]
    pub fn identity(mut self, identity: impl Into<String>) -> Self {
        self.identity = Some(identity.into());
        self
    }

    /// It is the same wherever it is, while its identity is.
    #[must_use]
    pub fn wherever(mut self) -> Self {
        self.moving = Moving::IsTheSame;
        self
    }

    /// It is a plane of a Mica server, and shown by that server's watch of all planes.
    #[must_use]
    pub fn wildcard(mut self, wildcard: Wildcard) -> Self {
        self.wildcard = Some(wildcard);
        self
    }
}

/// A provider cannot go on, or could not write back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProviderError {
    #[error("the API refused")]
    Api(#[source] Box<kube::Error>),
    #[error("the objects cannot be followed")]
    Watch(#[source] Box<kube::runtime::watcher::Error>),
    #[error("a cluster cannot be reached as it is described")]
    Access(#[from] AccessError),
    #[error("{0}")]
    Invalid(String),
    #[error("the provider failed")]
    Other(#[source] BoxError),
}

impl From<kube::Error> for ProviderError {
    fn from(error: kube::Error) -> Self {
        Self::Api(Box::new(error))
    }
}

/// Says which clusters there are.
#[async_trait]
pub trait Provider: Send + Sync + 'static {
    /// A name for logs and metrics, one of its own in a fleet.
    fn name(&self) -> &str;

    /// Tells the sink of clusters as they come, change and go, and of [`ClusterSink::synced`] once all that there are have
    /// been told.
    ///
    /// It may run for ever, or end when there is nothing more to say; what it said stays then. After an error it is run
    /// again, later and later. What it said before the error stays too, except what it does not say again until it is
    /// synced. It is dropped at any await when the fleet stops.
    async fn run(&self, sink: ClusterSink) -> Result<(), ProviderError>;

    /// Writes down how a cluster of it is, where there is a place for that. Told once when it is engaged, and with every
    /// change; only by the replica that owns the cluster. An error is tried again.
    async fn report(&self, cluster: &ClusterName, health: &Health) -> Result<(), ProviderError> {
        let _ = (cluster, health);
        Ok(())
    }
}

//! The fleet as a reconciler sees it: its clusters, and what is known of their objects.

use std::ops::Deref;
use std::sync::Arc;

use crate::fleet::Fleet;
use crate::source::{Feeds, Object};
use crate::store::{Located, Store};

/// No controller watches the kind whole, so that nothing is known of it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no controller watches {0} without a selector")]
pub struct NotWatched(String);

/// A [`Fleet`] with the stores of what is watched in it. Clones are the same.
#[derive(Clone)]
pub struct FleetView {
    fleet: Fleet,
    local: kube::Client,
    feeds: Arc<Feeds>,
}

impl FleetView {
    pub(super) fn new(fleet: Fleet, local: kube::Client, feeds: Arc<Feeds>) -> Self {
        Self { fleet, local, feeds }
    }

    /// A client of the local (management) cluster.
    pub fn local(&self) -> kube::Client {
        self.local.clone()
    }

    /// The objects of a kind in all engaged clusters, as they were last seen. Costs no request. A cluster that has just been
    /// engaged may not have been read yet.
    pub fn list<K: Object>(&self) -> Result<Vec<Located<K>>, NotWatched>
    where
        K::DynamicType: Default,
    {
        Ok(self.store::<K>()?.list())
    }

    /// What is known of a kind.
    pub fn store<K: Object>(&self) -> Result<Arc<Store<K>>, NotWatched>
    where
        K::DynamicType: Default,
    {
        self.store_of(&K::DynamicType::default())
    }

    /// What is known of a kind that is known only now.
    pub fn store_of<K: Object>(&self, kind: &K::DynamicType) -> Result<Arc<Store<K>>, NotWatched> {
        match self.feeds.find::<K>(kind) {
            Some(feed) => Ok(feed.store().clone()),
            None => Err(NotWatched(K::kind(kind).into_owned())),
        }
    }
}

impl Deref for FleetView {
    type Target = Fleet;

    fn deref(&self) -> &Fleet {
        &self.fleet
    }
}

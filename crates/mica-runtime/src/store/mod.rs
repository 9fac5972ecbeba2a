//! What is known of one kind's objects, over all clusters.
//!
//! A store has one entry for each object, keyed by cluster, namespace and name; a cluster of which nothing is known costs
//! nothing. It is sharded by cluster, so that one cluster's storm does not keep readers of the others waiting, and what is
//! asked of one cluster takes one lock.
//!
//! Only the sources write. A reader gets `Arc`s of what is there: it never copies an object, and never holds a lock while
//! it looks at one.

mod shard;

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use kube::Resource;
use parking_lot::RwLock;

use crate::request::{ClusterName, Request};
pub use shard::INDEX_VALUES;
use shard::{Index, Shard};

/// Enough that a few writers and many readers seldom meet.
const SHARDS: usize = 16;

/// An object and the cluster it is in.
#[derive(Debug)]
pub struct Located<K> {
    pub cluster: ClusterName,
    pub object: Arc<K>,
}

impl<K> Clone for Located<K> {
    fn clone(&self) -> Self {
        Self {
            cluster: self.cluster.clone(),
            object: self.object.clone(),
        }
    }
}

/// What happened to an object, as far as the store has seen.
#[derive(Debug)]
pub enum Change<K> {
    Added(Arc<K>),
    Updated {
        old: Arc<K>,
        new: Arc<K>,
    },
    /// What it was before it went.
    Deleted(Arc<K>),
}

impl<K> Change<K> {
    pub fn old(&self) -> Option<&Arc<K>> {
        match self {
            Self::Added(_) => None,
            Self::Updated { old, .. } | Self::Deleted(old) => Some(old),
        }
    }

    #[allow(
        clippy::new_ret_no_self,
        clippy::wrong_self_convention,
        reason = "the new one, beside the old one"
    )]
    pub fn new(&self) -> Option<&Arc<K>> {
        match self {
            Self::Added(new) | Self::Updated { new, .. } => Some(new),
            Self::Deleted(_) => None,
        }
    }

    /// The newest that is known of it.
    pub fn object(&self) -> &Arc<K> {
        match self {
            Self::Added(object) | Self::Updated { new: object, .. } | Self::Deleted(object) => object,
        }
    }
}

/// Marks what one list showed, so that what it did not show can be found. No two lists of a store have the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ListId(u32);

impl ListId {
    /// Before the first list.
    pub(crate) const NONE: Self = Self(0);
}

/// The objects of one kind in all clusters.
pub struct Store<K> {
    shards: Box<[RwLock<Shard<K>>]>,
    hasher: RandomState,
    lists: AtomicU32,
}

impl<K> Default for Store<K> {
    fn default() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| RwLock::default()).collect(),
            hasher: RandomState::new(),
            lists: AtomicU32::new(0),
        }
    }
}

impl<K> Store<K> {
    pub fn get(&self, request: &Request) -> Option<Arc<K>> {
        self.shard(&request.cluster).read().get(request)
    }

    /// Everything, cluster by cluster; objects of one cluster are in the order of namespaces and names.
    pub fn list(&self) -> Vec<Located<K>> {
        let mut found = Vec::new();
        self.visit(|request, object| found.push(located(request, object)));
        found
    }

    /// The objects of one cluster, in the order of namespaces and names.
    pub fn list_in(&self, cluster: &ClusterName) -> Vec<Arc<K>> {
        let shard = self.shard(cluster).read();
        shard.of(cluster).map(|(_, object)| object.clone()).collect()
    }

    /// The objects of all clusters that an index has under a value. An index that was not declared has none.
    pub fn by_index(&self, index: &str, value: &str) -> Vec<Located<K>> {
        let mut found = Vec::new();
        for shard in &self.shards {
            let shard = shard.read();
            found.extend(
                shard
                    .by_index(index, value)
                    .map(|(request, object)| located(request, object)),
            );
        }
        found
    }

    /// The objects of one cluster that an index has under a value.
    pub fn by_index_in(&self, cluster: &ClusterName, index: &str, value: &str) -> Vec<Arc<K>> {
        let shard = self.shard(cluster).read();
        let found = shard.by_index(index, value);
        found
            .filter(|(request, _)| request.cluster == *cluster)
            .map(|(_, object)| object.clone())
            .collect()
    }

    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.read().len()).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Declares an index, or replaces the one of that name. What is there already is indexed before this returns.
    #[allow(clippy::type_complexity, reason = "it is what an index is")]
    pub(crate) fn add_index(&self, name: &str, values: Arc<dyn Fn(&K) -> Vec<String> + Send + Sync>) {
        for shard in &self.shards {
            shard.write().add_index(Index::new(name, values.clone()));
        }
    }

    /// Shows every object. Nothing is locked meanwhile: the visitor may look things up here.
    pub(crate) fn visit(&self, mut visitor: impl FnMut(&Request, &Arc<K>)) {
        for shard in &self.shards {
            let all: Vec<_> = {
                let shard = shard.read();
                let pairs = shard.all().map(|(request, object)| (request.clone(), object.clone()));
                pairs.collect()
            };
            all.iter().for_each(|(request, object)| visitor(request, object));
        }
    }

    /// Shows every object of one cluster, as [`Store::visit`] does.
    pub(crate) fn visit_in(&self, cluster: &ClusterName, mut visitor: impl FnMut(&Request, &Arc<K>)) {
        let all: Vec<_> = {
            let shard = self.shard(cluster).read();
            let pairs = shard
                .of(cluster)
                .map(|(request, object)| (request.clone(), object.clone()));
            pairs.collect()
        };
        all.iter().for_each(|(request, object)| visitor(request, object));
    }

    pub(crate) fn begin_list(&self) -> ListId {
        ListId(self.lists.fetch_add(1, Ordering::Relaxed).wrapping_add(1).max(1))
    }

    pub(crate) fn delete(&self, request: &Request) -> Option<Change<K>> {
        let old = self.shard(&request.cluster).write().remove(request)?;
        Some(Change::Deleted(old))
    }

    /// Forgets a cluster.
    pub(crate) fn purge(&self, cluster: &ClusterName) {
        self.shard(cluster).write().purge(cluster);
    }

    /// Removes what a list of one cluster did not show.
    pub(crate) fn sweep(&self, cluster: &ClusterName, list: ListId) -> Vec<(Request, Change<K>)> {
        let mut shard = self.shard(cluster).write();
        let gone = shard.unlisted_of(cluster, list);
        remove_all(&mut shard, gone)
    }

    /// Removes what a list of many clusters did not show.
    pub(crate) fn sweep_where(
        &self,
        list: ListId,
        covered: impl Fn(&ClusterName) -> bool,
    ) -> Vec<(Request, Change<K>)> {
        let mut changes = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.write();
            let gone = shard.unlisted(list, &covered);
            changes.extend(remove_all(&mut shard, gone));
        }
        changes
    }

    fn shard(&self, cluster: &ClusterName) -> &RwLock<Shard<K>> {
        let hash = self.hasher.hash_one(cluster);
        &self.shards[hash as usize % SHARDS]
    }
}

impl<K: Resource> Store<K> {
    /// Notes an object as a list or an event shows it. Nothing changed if it is the version that is known.
    pub(crate) fn apply(&self, request: &Request, object: Arc<K>, list: ListId) -> Option<Change<K>> {
        self.shard(&request.cluster).write().apply(request, object, list)
    }

    /// A list shows the object, but not in a way that can be read: what is known of it stays.
    pub(crate) fn keep(&self, request: &Request, list: ListId) {
        self.shard(&request.cluster).write().keep(request, list);
    }
}

fn located<K>(request: &Request, object: &Arc<K>) -> Located<K> {
    Located {
        cluster: request.cluster.clone(),
        object: object.clone(),
    }
}

fn remove_all<K>(shard: &mut Shard<K>, gone: Vec<Request>) -> Vec<(Request, Change<K>)> {
    let removed = gone.into_iter().filter_map(|request| {
        let old = shard.remove(&request)?;
        Some((request, Change::Deleted(old)))
    });
    removed.collect()
}

#[cfg(test)]
mod tests;

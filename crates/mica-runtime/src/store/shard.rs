//! The part of a store that one lock guards: entries in order, and the indexes over them.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use compact_str::CompactString;
use kube::Resource;

use super::{Change, ListId};
use crate::request::{ClusterName, Request};

/// Under how many values of one index an object is found. Values are made of what users write, and each costs an entry:
/// those beyond this many are left out.
pub const INDEX_VALUES: usize = 64;

type Values<K> = Arc<dyn Fn(&K) -> Vec<String> + Send + Sync>;

pub(super) struct Shard<K> {
    /// In the order of clusters, so that one cluster's objects stand together. Flat, because a map for each cluster would
    /// cost more than the few objects that most clusters have.
    entries: BTreeMap<Request, Entry<K>>,
    indexes: Vec<Index<K>>,
}

struct Entry<K> {
    object: Arc<K>,
    /// The last list that showed it, or the list that its stream had last when an event did.
    list: ListId,
}

pub(super) struct Index<K> {
    name: CompactString,
    values: Values<K>,
    found: BTreeMap<CompactString, BTreeSet<Request>>,
}

impl<K> Default for Shard<K> {
    fn default() -> Self {
        Self {
            entries: BTreeMap::new(),
            indexes: Vec::new(),
        }
    }
}

impl<K> Shard<K> {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn get(&self, request: &Request) -> Option<Arc<K>> {
        Some(self.entries.get(request)?.object.clone())
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (&Request, &Arc<K>)> {
        self.entries.iter().map(|(request, entry)| (request, &entry.object))
    }

    pub(super) fn of(&self, cluster: &ClusterName) -> impl Iterator<Item = (&Request, &Arc<K>)> {
        self.entries_of(cluster)
            .map(|(request, entry)| (request, &entry.object))
    }

    pub(super) fn by_index(&self, index: &str, value: &str) -> impl Iterator<Item = (&Request, &Arc<K>)> {
        let found = self
            .indexes
            .iter()
            .find(|known| known.name == index)
            .and_then(|index| index.found.get(value));
        found.into_iter().flatten().filter_map(|request| {
            let entry = self.entries.get(request)?;
            Some((request, &entry.object))
        })
    }

    pub(super) fn add_index(&mut self, mut index: Index<K>) {
        for (request, entry) in &self.entries {
            index.insert(request, &entry.object);
        }
        self.indexes.retain(|known| known.name != index.name);
        self.indexes.push(index);
    }

    pub(super) fn remove(&mut self, request: &Request) -> Option<Arc<K>> {
        let entry = self.entries.remove(request)?;
        for index in &mut self.indexes {
            index.remove(request, &entry.object);
        }
        Some(entry.object)
    }

    pub(super) fn purge(&mut self, cluster: &ClusterName) {
        let gone: Vec<_> = self.entries_of(cluster).map(|(request, _)| request.clone()).collect();
        for request in gone {
            self.remove(&request);
        }
    }

    pub(super) fn keep(&mut self, request: &Request, list: ListId) {
        if let Some(entry) = self.entries.get_mut(request) {
            entry.list = list;
        }
    }

    pub(super) fn unlisted_of(&self, cluster: &ClusterName, list: ListId) -> Vec<Request> {
        let unlisted = self.entries_of(cluster).filter(|(_, entry)| entry.list != list);
        unlisted.map(|(request, _)| request.clone()).collect()
    }

    pub(super) fn unlisted(&self, list: ListId, covered: &impl Fn(&ClusterName) -> bool) -> Vec<Request> {
        let unlisted = self
            .entries
            .iter()
            .filter(|(request, entry)| entry.list != list && covered(&request.cluster));
        unlisted.map(|(request, _)| request.clone()).collect()
    }

    fn entries_of(&self, cluster: &ClusterName) -> impl Iterator<Item = (&Request, &Entry<K>)> {
        let first = Request {
            cluster: cluster.clone(),
            namespace: None,
            name: CompactString::default(),
        };
        let cluster = cluster.clone();
        self.entries
            .range(first..)
            .take_while(move |(request, _)| request.cluster == cluster)
    }
}

impl<K: Resource> Shard<K> {
    pub(super) fn apply(&mut self, request: &Request, object: Arc<K>, list: ListId) -> Option<Change<K>> {
        let entry = Entry {
            object: object.clone(),
            list,
        };
        let Some(known) = self.entries.get_mut(request) else {
            for index in &mut self.indexes {
                index.insert(request, &object);
            }
            self.entries.insert(request.clone(), entry);
            return Some(Change::Added(object));
        };
        if same_version(&*known.object, &*object) {
            known.list = list;
            return None;
        }
        let old = std::mem::replace(known, entry).object;
        for index in &mut self.indexes {
            index.remove(request, &old);
            index.insert(request, &object);
        }
        Some(Change::Updated { old, new: object })
    }
}

fn same_version<K: Resource>(one: &K, other: &K) -> bool {
    let (one, other) = (one.meta(), other.meta());
    one.resource_version.is_some() && one.resource_version == other.resource_version && one.uid == other.uid
}

impl<K> Index<K> {
    pub(super) fn new(name: &str, values: Values<K>) -> Self {
        Self {
            name: name.into(),
            values,
            found: BTreeMap::new(),
        }
    }

    /// A function that panics costs the object its place in the index, and nothing else.
    fn values_of(&self, object: &K) -> Vec<String> {
        let values = catch_unwind(AssertUnwindSafe(|| (self.values)(object)));
        let mut values = values.unwrap_or_else(|_| {
            tracing::error!(index = %self.name, "the function of an index panicked");
            Vec::new()
        });
        values.truncate(INDEX_VALUES);
        values
    }

    fn insert(&mut self, request: &Request, object: &K) {
        for value in self.values_of(object) {
            self.found.entry(value.into()).or_default().insert(request.clone());
        }
    }

    fn remove(&mut self, request: &Request, object: &K) {
        for value in self.values_of(object) {
            let Some(requests) = self.found.get_mut(value.as_str()) else {
                continue;
            };
            requests.remove(request);
            if requests.is_empty() {
                self.found.remove(value.as_str());
            }
        }
    }
}

//! A store in memory, for tests: as plain as can be, so that it can be the oracle for the others.
//!
//! One lock, every version of every key in a sorted map, every signal since the last compaction in a list. Nothing is
//! bounded and nothing survives the process.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use mica_api::PlaneId;
use parking_lot::Mutex;

use crate::hub::{History, HistoryPage, Hub, Limits, revision_of};
use crate::key::{Key, KeyRange};
use crate::store::{
    AdvanceError, Change, CommitError, Committed, Compare, Event, FARTHEST, Page, RangeQuery, ReadError, Record,
    Revision, Signal, Store, StoreStatus, Txn, Usage, Watch, WatchError, Write,
};

/// An empty store has this revision: positive, as every revision is.
const FIRST: Revision = Revision(1);

/// A [`Store`] in memory. Clones share one store.
#[derive(Clone)]
pub struct MemStore {
    shared: Arc<Shared>,
}

struct Shared {
    hub: Hub,
    state: Mutex<State>,
}

struct State {
    revision: Revision,
    compacted: Revision,
    /// Every version of a key by its revision; `None` is its absence from then on.
    versions: BTreeMap<Key, BTreeMap<Revision, Option<Bytes>>>,
    changed: HashMap<PlaneId, Revision>,
    signals: Vec<Signal>,
}

impl MemStore {
    pub fn new() -> Self {
        Self::with_limits(Limits::default())
    }

    pub fn with_limits(limits: Limits) -> Self {
        let state = State {
            revision: FIRST,
            compacted: Revision(0),
            versions: BTreeMap::new(),
            changed: HashMap::new(),
            signals: Vec::new(),
        };
        Self {
            shared: Arc::new(Shared {
                hub: Hub::new(FIRST, limits),
                state: Mutex::new(state),
            }),
        }
    }
}

impl Default for MemStore {
    fn default() -> Self {
        Self::new()
    }
}

impl State {
    /// The value at a key right after a revision.
    fn read(&self, key: &Key, at: Revision) -> Option<Record> {
        let (revision, value) = self.versions.get(key)?.range(..=at).next_back()?;
        Some(Record {
            value: value.clone()?,
            revision: *revision,
        })
    }

    /// Fails if the states right after `at` and later are no longer all known for the range.
    fn check_readable(&self, range: &KeyRange, at: Revision) -> Result<(), ReadError> {
        let quiet = range
            .plane()
            .is_some_and(|plane| self.changed.get(&plane).is_none_or(|changed| *changed <= at));
        if at < self.compacted && !quiet {
            return Err(ReadError::Expired {
                compacted: self.compacted,
            });
        }
        Ok(())
    }

    fn first_failed(&self, compares: &[Compare]) -> Option<(usize, Option<Record>)> {
        compares.iter().enumerate().find_map(|(index, compare)| {
            let current = self.read(compare.key(), self.revision);
            let newest = current.as_ref().map(|record| record.revision);
            (!compare.holds(newest)).then_some((index, current))
        })
    }

    /// Does one write, and returns its revision if it changed something.
    fn apply(&mut self, write: &Write) -> Option<Revision> {
        let revision = Revision(self.revision.0 + 1);
        let (plane, signal) = match write {
            Write::Put { key, value, .. } => (key.plane(), self.set(key, revision, Some(value.clone()))),
            Write::Delete { key } => {
                self.read(key, self.revision)?;
                (key.plane(), self.set(key, revision, None))
            }
            Write::DropPlane(plane) => {
                for (_, versions) in self.versions.iter_mut().filter(|(key, _)| key.plane() == *plane) {
                    versions.insert(revision, None);
                }
                (*plane, Signal::Dropped(*plane, revision))
            }
        };
        self.revision = revision;
        self.changed.insert(plane, revision);
        self.signals.push(signal);
        Some(revision)
    }

    fn set(&mut self, key: &Key, revision: Revision, value: Option<Bytes>) -> Signal {
        let previous = self.read(key, self.revision);
        self.versions
            .entry(key.clone())
            .or_default()
            .insert(revision, value.clone());
        let change = value.map_or(Change::Delete, Change::Put);
        Signal::Event(Arc::new(Event::new(key.clone(), revision, change, previous)))
    }

    fn compact(&mut self, revision: Revision) {
        self.compacted = revision;
        self.signals.retain(|signal| revision_of(signal) > revision);
        for versions in self.versions.values_mut() {
            let Some(kept) = versions.range(..=revision).next_back().map(|(kept, _)| *kept) else {
                continue;
            };
            versions.retain(|version, value| *version > kept || (*version == kept && value.is_some()));
        }
        self.versions.retain(|_, versions| !versions.is_empty());
    }
}

impl Shared {
    fn commit(&self, txn: &Txn) -> Result<Committed, CommitError> {
        let mut state = self.state.lock();
        if let Some((compare, current)) = state.first_failed(&txn.compares) {
            return Err(CommitError::Conflict { compare, current });
        }
        let published = state.signals.len();
        let changed: Vec<_> = txn.writes.iter().map(|write| state.apply(write)).collect();
        let revision = state.revision;
        // With the state locked, so that transactions are published in their order.
        self.hub.publish(state.signals[published..].iter().cloned(), revision);
        let revisions = changed.into_iter().map(|changed| changed.unwrap_or(revision)).collect();
        Ok(Committed { revision, revisions })
    }
}

async fn expire(shared: Weak<Shared>, key: Key, revision: Revision, ttl: Duration) {
    tokio::time::sleep(ttl).await;
    if let Some(shared) = shared.upgrade() {
        let compares = vec![Compare::Unchanged(key.clone(), revision)];
        // A conflict means that the put whose time is over was replaced before.
        let _ = shared.commit(&Txn {
            compares,
            writes: vec![Write::Delete { key }],
        });
    }
}

#[async_trait]
impl Store for MemStore {
    async fn status(&self) -> Result<StoreStatus, ReadError> {
        let state = self.shared.state.lock();
        Ok(StoreStatus {
            revision: state.revision,
            compacted: state.compacted,
        })
    }

    async fn get(&self, key: &Key) -> Result<Option<Record>, ReadError> {
        let state = self.shared.state.lock();
        Ok(state.read(key, state.revision))
    }

    async fn range(&self, query: RangeQuery<'_>) -> Result<Page, ReadError> {
        let state = self.shared.state.lock();
        let at = query.at.unwrap_or(state.revision);
        if at > state.revision {
            return Err(ReadError::Future {
                current: state.revision,
            });
        }
        state.check_readable(query.range, at)?;
        // A quiet plane below the compaction is as it was at the compaction.
        let read_at = at.max(state.compacted);
        let wanted = |key: &&Key| query.range.contains(key) && query.after.is_none_or(|after| *key > after);
        let mut found = state
            .versions
            .keys()
            .filter(wanted)
            .filter_map(|key| Some((key.clone(), state.read(key, read_at)?)))
            .take(query.limit + 1);
        let records = found.by_ref().take(query.limit).collect();
        Ok(Page {
            records,
            revision: at,
            more: found.next().is_some(),
        })
    }

    async fn count(&self, range: &KeyRange, at: Option<Revision>, after: Option<&Key>) -> Result<u64, ReadError> {
        let limit = usize::MAX - 1;
        let page = self
            .range(RangeQuery {
                range,
                at,
                after,
                limit,
            })
            .await?;
        Ok(page.records.len() as u64)
    }

    async fn usage(&self, range: &KeyRange) -> Result<Usage, ReadError> {
        let state = self.shared.state.lock();
        let mut usage = Usage::default();
        for key in state.versions.keys().filter(|key| range.contains(key)) {
            if let Some(record) = state.read(key, state.revision) {
                usage.records += 1;
                usage.bytes += (key.as_str().len() + record.value.len()) as u64;
            }
        }
        Ok(usage)
    }

    async fn commit(&self, txn: Txn) -> Result<Committed, CommitError> {
        let committed = self.shared.commit(&txn)?;
        for (write, revision) in txn.writes.into_iter().zip(&committed.revisions) {
            if let Write::Put {
                key, ttl: Some(ttl), ..
            } = write
            {
                tokio::spawn(expire(Arc::downgrade(&self.shared), key, *revision, ttl));
            }
        }
        Ok(committed)
    }

    async fn watch(&self, range: KeyRange, after: Revision) -> Result<Watch, ReadError> {
        let after = {
            let state = self.shared.state.lock();
            state.check_readable(&range, after)?;
            // A quiet plane has nothing between a compacted revision and the compaction.
            after.max(state.compacted)
        };
        let history = Box::new(MemHistory {
            shared: self.shared.clone(),
        });
        Ok(Box::new(self.shared.hub.watch_with(range, after, history)))
    }

    async fn compact(&self, revision: Revision) -> Result<(), ReadError> {
        let mut state = self.shared.state.lock();
        if revision > state.revision {
            return Err(ReadError::Future {
                current: state.revision,
            });
        }
        if revision > state.compacted {
            state.compact(revision);
        }
        Ok(())
    }

    async fn advance(&self, to: Revision) -> Result<Revision, AdvanceError> {
        if to > FARTHEST {
            return Err(AdvanceError::TooFar);
        }
        let mut state = self.shared.state.lock();
        if to > state.revision {
            state.revision = to;
            self.shared.hub.publish([], to);
        }
        Ok(state.revision)
    }

    fn end_watches(&self, plane: mica_api::PlaneId) {
        self.shared.hub.end_plane(plane);
    }
}

struct MemHistory {
    shared: Arc<Shared>,
}

#[async_trait]
impl History for MemHistory {
    async fn page(&mut self, after: Revision) -> Result<HistoryPage, WatchError> {
        let state = self.shared.state.lock();
        if after < state.compacted {
            return Err(WatchError::Lagged);
        }
        let start = state.signals.partition_point(|signal| revision_of(signal) <= after);
        Ok(HistoryPage {
            signals: state.signals[start..].to_vec(),
            covered: state.revision,
        })
    }
}

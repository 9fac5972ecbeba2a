//! Where changes come from: lists and watches, kept going, written into stores, and told to controllers.
//!
//! - A [`Feed`] is one kind over all engaged clusters. Controllers that watch the same kind in the same way share it.
//! - A cluster that a Mica server shows together with its siblings is read from one stream for all of them
//!   (`wildcard`); any other has a stream of its own (`own`), also where the server refuses to show all planes at once. Who
//!   is told of changes sees no difference.
//! - Lists are compared with what the store has, so that reading one again tells only what changed.

mod born;
mod feed;
mod follow;
mod item;
mod own;
mod roster;
mod select;
mod unclaimed;
mod wildcard;

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::task::TaskTracker;

use crate::metrics::Metrics;

pub(crate) use feed::{AnyFeed, Feed, Listener};
pub use item::Object;
pub(crate) use roster::Roster;
pub use select::{Born, Select};

/// All kinds that are watched.
pub(crate) struct Feeds {
    roster: Arc<Roster>,
    known: Mutex<Known>,
    tasks: TaskTracker,
    metrics: Metrics,
}

#[derive(Default)]
struct Known {
    feeds: HashMap<Key, Entry>,
    private: u64,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    kind: TypeId,
    path: String,
    labels: Option<String>,
    fields: Option<String>,
    born: Born,
    /// Set for those that keep objects in a way of their own.
    private: Option<u64>,
}

struct Entry {
    feed: Arc<dyn AnyFeed>,
    typed: Arc<dyn Any + Send + Sync>,
}

impl Key {
    fn of<K: Object>(kind: &K::DynamicType) -> Self {
        Self {
            kind: TypeId::of::<K>(),
            path: K::url_path(kind, None),
            labels: None,
            fields: None,
            born: Born::Include,
            private: None,
        }
    }
}

impl Feeds {
    pub(crate) fn new(roster: Arc<Roster>, tasks: TaskTracker, metrics: Metrics) -> Self {
        Self {
            roster,
            known: Mutex::default(),
            tasks,
            metrics,
        }
    }

    /// The feed of a kind, made if there is none that watches it so.
    pub(crate) fn get_or_make<K: Object>(&self, kind: K::DynamicType, select: Select<K>) -> Arc<Feed<K>> {
        let mut known = self.known.lock();
        let mut key = Key {
            labels: select.labels.clone(),
            fields: select.fields.clone(),
            born: select.born,
            ..Key::of::<K>(&kind)
        };
        if select.prune.is_some() {
            known.private += 1;
            key.private = Some(known.private);
        }
        if let Some(feed) = known.feeds.get(&key).and_then(Entry::typed) {
            return feed;
        }
        let around = feed::Around {
            roster: self.roster.clone(),
            tasks: self.tasks.clone(),
            metrics: self.metrics.clone(),
        };
        let feed = Feed::new(kind, select, around);
        let entry = Entry {
            feed: feed.clone(),
            typed: feed.clone(),
        };
        known.feeds.insert(key, entry);
        feed
    }

    /// The feed that has all objects of a kind, if somebody watches it.
    pub(crate) fn find<K: Object>(&self, kind: &K::DynamicType) -> Option<Arc<Feed<K>>> {
        let known = self.known.lock();
        let key = Key::of::<K>(kind);
        let found = known.feeds.get(&key);
        // What is born is in no store: those without it have as much.
        let without = || {
            known.feeds.get(&Key {
                born: Born::Skip,
                ..key.clone()
            })
        };
        found.or_else(without)?.typed()
    }

    pub(crate) fn all(&self) -> Vec<Arc<dyn AnyFeed>> {
        self.known
            .lock()
            .feeds
            .values()
            .map(|entry| entry.feed.clone())
            .collect()
    }

    /// Ends all streams; what they told stays.
    pub(crate) fn halt(&self) {
        self.all().iter().for_each(|feed| feed.halt());
    }

    /// Ends the feeds that nobody listens to.
    pub(crate) fn release(&self) {
        let mut idle = Vec::new();
        self.known.lock().feeds.retain(|_, entry| {
            let keep = !entry.feed.is_idle();
            if !keep {
                idle.push(entry.feed.clone());
            }
            keep
        });
        idle.iter().for_each(|feed| feed.close());
    }
}

impl Entry {
    fn typed<K: Object>(&self) -> Option<Arc<Feed<K>>> {
        self.typed.clone().downcast().ok()
    }
}

//! What was read lately, so that it need not be read again: single records, and runs of neighbours.
//!
//! Bounded in bytes, whatever the store holds; everything here can be forgotten at any time.
//!
//! Invariant: what is found here is the newest visible state. The committer takes out what a group of changes touches
//! before the index shows the group, and a reader puts in what it read only if nothing has touched it since the moment
//! that it read at. Both happen under the lock of the same part of the cache, so neither can slip past the other.

mod record;
mod run;

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};

use mica_api::PlaneId;
use parking_lot::{Mutex, RwLock};

use crate::key::{Key, KeyRange};
use crate::store::{Change, Page, Record, Revision, Signal};
use record::Records;
pub(super) use run::Read;
use run::{Runs, Span};

/// Pages of fewer records are not kept as a run, unless the range ends with them: they would be too many.
const SMALLEST_RUN: usize = 64;
/// Dropped planes remembered before everything of theirs is looked for and taken out.
const DROPPED: usize = 1024;

pub(super) struct Cache {
    records: Records,
    runs: Mutex<Runs>,
    /// Planes whose records may still be among `records`, but are no longer there.
    dropped: RwLock<HashSet<PlaneId>>,
    any_dropped: AtomicBool,
}

/// Bytes that the cache may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    pub(super) records: usize,
    pub(super) runs: usize,
}

impl Cache {
    pub(super) fn new(budget: Budget) -> Self {
        Self {
            records: Records::new(budget.records),
            runs: Mutex::new(Runs::new(budget.runs)),
            dropped: RwLock::default(),
            any_dropped: AtomicBool::new(false),
        }
    }

    /// The newest record at a key. `None` says nothing.
    pub(super) fn get(&self, key: &Key) -> Option<Record> {
        let record = self.records.get(key)?;
        let gone = self.any_dropped.load(Ordering::Acquire) && self.dropped.read().contains(&key.plane());
        (!gone).then_some(record)
    }

    /// Keeps a record that was the newest at `seen`.
    pub(super) fn keep(&self, key: &Key, record: &Record, seen: Revision) {
        self.records.keep(key, record, seen);
    }

    /// A page of a range at a revision that is not compacted. `None` says nothing.
    pub(super) fn page(&self, range: &KeyRange, revision: Revision, after: Option<&Key>, limit: usize) -> Option<Page> {
        let span = Span::of(range, after)?;
        let (records, more) = self.runs.lock().page(&span, revision, limit)?;
        Some(Page {
            records,
            revision,
            more,
        })
    }

    /// How many records of a range follow a key at a revision that is not compacted. `None` says nothing.
    pub(super) fn count(&self, range: &KeyRange, revision: Revision, after: Option<&Key>) -> Option<u64> {
        let span = Span::of(range, after)?;
        self.runs.lock().count(&span, revision)
    }

    /// Keeps what was read of a range behind a key, and was the newest state at `seen`.
    pub(super) fn keep_run(&self, range: &KeyRange, after: Option<&Key>, read: &Read<'_>, seen: Revision) {
        if read.next.is_some() && read.records.len() < SMALLEST_RUN {
            return;
        }
        if let Some(span) = Span::of(range, after) {
            self.runs.lock().keep(&span, read, seen);
        }
    }

    /// Takes out what is about to change. Called by the committer alone, before the changes are visible.
    pub(super) fn begin(&self, signals: &[Signal]) {
        let mut runs = self.runs.lock();
        for signal in signals {
            match signal {
                Signal::Event(event) => {
                    self.records.forget(&event.key, event.revision);
                    runs.forget(&event.key, event.revision);
                }
                Signal::Dropped(plane, revision) => {
                    self.drop_plane(*plane, *revision);
                    runs.forget_plane(*plane, *revision);
                }
            }
        }
    }

    /// Puts in the new values of records that were here. Called by the committer once the changes are visible.
    pub(super) fn end(&self, signals: &[Signal]) {
        for signal in signals {
            if let Signal::Event(event) = signal {
                let value = match &event.change {
                    Change::Put(value) => Some(value),
                    Change::Delete => None,
                };
                self.records.renew(&event.key, value, event.revision);
            }
        }
    }

    fn drop_plane(&self, plane: PlaneId, revision: Revision) {
        let mut dropped = self.dropped.write();
        dropped.insert(plane);
        self.any_dropped.store(true, Ordering::Release);
        if dropped.len() >= DROPPED {
            self.records.forget_planes(&dropped, revision);
            dropped.clear();
            self.any_dropped.store(false, Ordering::Release);
        }
    }

    /// Forgets everything and keeps nothing from now on.
    pub(super) fn close(&self) {
        self.records.close();
        self.runs.lock().close();
    }

    /// Bytes held now.
    pub(super) fn bytes(&self) -> usize {
        self.records.bytes() + self.runs.lock().bytes()
    }
}

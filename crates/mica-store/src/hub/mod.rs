//! Fan-out of ordered events to open watches.
//!
//! A backend publishes its changes here in order, once; the hub hands each to the watches that want it. It never reads a
//! store: history older than its memory comes from the backend's [`History`].
//!
//! A watch is a cursor over three sources: the backend's history, the hub's ring of recent signals, and its own small live
//! buffer. It moves from one to the next only where the next one reaches back to the cursor, so nothing is skipped and
//! nothing comes twice. A reader that lets its live buffer fill up is taken off the live path and reads from the ring at
//! its own pace; when the ring has forgotten what it still needs, it ends with [`WatchError::Lagged`].
//! So a slow reader costs the publisher nothing and memory is bounded by the ring and one buffer for each reader.
//!
//! Locks are taken in the order ring, index, a watcher's queue.

mod index;
mod ring;
mod watch;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;

use async_trait::async_trait;
use parking_lot::{Mutex, RwLock};

use crate::key::KeyRange;
use crate::store::{Change, Event, Revision, Signal, WatchError};

use index::Index;
use ring::Ring;
pub use watch::HubWatch;

/// The bounds of a hub's memory.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Signals that wait for one reader before it has to read from the ring.
    pub buffer: usize,
    /// Bytes of events that wait for one reader before it has to read from the ring.
    pub buffer_bytes: usize,
    /// Recent signals kept for resuming and slow readers.
    pub ring: usize,
    /// Bytes of events kept for resuming and slow readers.
    pub ring_bytes: usize,
}

impl Default for Limits {
    /// The ring outlasts a reader that is away for some seconds at a usual write rate (who comes later reads the log); a
    /// thousand readers stuck at their buffers' bound pin about a gigabyte at most, and only if they share no event.
    fn default() -> Self {
        Self {
            buffer: 256,
            buffer_bytes: 1 << 20,
            ring: 32_768,
            ring_bytes: 4 << 20,
        }
    }
}

/// The place where a backend's changes meet its watches. Clones share one hub.
#[derive(Clone)]
pub struct Hub {
    shared: Arc<Shared>,
}

struct Shared {
    limits: Limits,
    /// Everything up to here has been handed to every live watcher. Written with the ring locked.
    position: AtomicU64,
    ring: RwLock<Ring>,
    index: Mutex<Index>,
    /// The list of whom the last batch woke, empty; kept for its room.
    woken: Mutex<Vec<Waker>>,
}

impl Hub {
    /// A hub that will be told every change after `position`.
    pub fn new(position: Revision, limits: Limits) -> Self {
        Self {
            shared: Arc::new(Shared {
                limits,
                position: AtomicU64::new(position.0),
                ring: RwLock::new(Ring::new(position)),
                index: Mutex::new(Index::default()),
                woken: Mutex::new(Vec::new()),
            }),
        }
    }

    /// The revision up to which changes have been published.
    pub fn position(&self) -> Revision {
        self.shared.position()
    }

    /// Hands on the changes after [`Hub::position`] up to and including `up_to`, in the order of their revisions.
    ///
    /// All signals of one revision belong into one call. Call it from one place at a time. With no signals it says that
    /// nothing happened up to `up_to`. Never waits for a reader.
    pub fn publish(&self, signals: impl IntoIterator<Item = Signal>, up_to: Revision) {
        let mut woken = std::mem::take(&mut *self.shared.woken.lock());
        {
            let mut ring = self.shared.ring.write();
            let mut index = self.shared.index.lock();
            for signal in signals {
                debug_assert!(revision_of(&signal) > self.position(), "published out of order");
                debug_assert!(
                    revision_of(&signal) <= up_to,
                    "published beyond what is said to be complete"
                );
                index.deliver(&signal, &self.shared.limits, &mut woken);
                ring.push(signal, &self.shared.limits);
            }
            ring.advance(up_to);
            self.shared.position.store(up_to.0, Ordering::Release);
        }
        // Outside the locks: a woken reader comes straight back for them.
        woken.drain(..).for_each(Waker::wake);
        *self.shared.woken.lock() = woken;
    }

    /// A watch of what is in memory: `None` if the hub no longer remembers everything after `after`.
    pub fn watch(&self, range: KeyRange, after: Revision) -> Option<HubWatch> {
        let reaches_back = self.shared.ring.read().reaches_back_to(after);
        reaches_back.then(|| HubWatch::new(self.shared.clone(), range, after, None))
    }

    /// Whether everything after `after` is still remembered. A moment later that may no longer be so.
    pub fn reaches_back_to(&self, after: Revision) -> bool {
        self.shared.ring.read().reaches_back_to(after)
    }

    /// A watch that begins with the backend's history and changes over to the hub where its memory begins.
    pub fn watch_with(&self, range: KeyRange, after: Revision, history: Box<dyn History>) -> HubWatch {
        HubWatch::new(self.shared.clone(), range, after, Some(history))
    }

    /// Ends every watch that has not read beyond `position` with [`WatchError::Lagged`], because changes before it were
    /// missed, and goes on from there.
    pub fn reset(&self, position: Revision) {
        let ended = {
            let mut ring = self.shared.ring.write();
            ring.forget(position);
            self.shared.position.store(position.0, Ordering::Release);
            self.shared.index.lock().end_all(index::End::Lagged)
        };
        ended.iter().for_each(|watcher| watcher.wake());
    }

    /// Ends every watch, now and from now on, with [`WatchError::Closed`] once it has read what is in its buffer.
    pub fn close(&self) {
        let ended = {
            let mut ring = self.shared.ring.write();
            ring.close();
            self.shared.index.lock().end_all(index::End::Closed)
        };
        ended.iter().for_each(|watcher| watcher.wake());
    }

    /// Ends the watches inside a plane that are on the live path with [`WatchError::Ended`], once each has read what is in
    /// its buffer.
    pub fn end_plane(&self, plane: mica_api::PlaneId) {
        let ended = {
            // With the ring locked, so that the position is that of what has been handed out.
            let ring = self.shared.ring.write();
            let position = ring.position();
            self.shared.index.lock().end_plane(plane, index::End::Asked(position))
        };
        ended.iter().for_each(|watcher| watcher.wake());
    }

    /// How many watches are on the live path.
    pub fn live_watchers(&self) -> usize {
        self.shared.index.lock().len()
    }
}

impl Shared {
    fn position(&self) -> Revision {
        Revision(self.position.load(Ordering::Acquire))
    }
}

/// A backend's record of what happened before the hub's memory begins, for one watched range.
#[async_trait]
pub trait History: Send {
    /// The changes in the range that follow `after`, as many as fit into a page of the source's choice.
    ///
    /// Called again with what the last page covered until the hub's memory reaches back to there. A page that covers
    /// nothing new ends the watch with [`WatchError::Lagged`]. If the future is dropped before it is ready, the next call
    /// has the same `after`.
    async fn page(&mut self, after: Revision) -> Result<HistoryPage, WatchError>;
}

pub struct HistoryPage {
    /// In the order of their revisions, all greater than `after`.
    pub signals: Vec<Signal>,
    /// Every change in the range from `after` up to and including this revision is in the page.
    pub covered: Revision,
}

/// The revision that a signal belongs to.
pub fn revision_of(signal: &Signal) -> Revision {
    match signal {
        Signal::Event(event) => event.revision,
        Signal::Dropped(_, revision) => *revision,
    }
}

/// Roughly what a signal keeps in memory.
fn weight_of(signal: &Signal) -> usize {
    const FIXED: usize = 160;
    match signal {
        Signal::Event(event) => FIXED + event_bytes(event),
        Signal::Dropped(..) => FIXED,
    }
}

fn event_bytes(event: &Event) -> usize {
    let value = match &event.change {
        Change::Put(value) => value.len(),
        Change::Delete => 0,
    };
    event.key.as_str().len() + value + event.previous.as_ref().map_or(0, |previous| previous.value.len())
}

#[cfg(test)]
mod tests;

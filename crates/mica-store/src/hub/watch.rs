//! The reader's end of a watch.
//!
//! See the parent module for the three sources. `cursor` is the revision up to which every signal of the range has been
//! taken from them; a source is read only where it is complete from the cursor on.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures::future::BoxFuture;

use crate::key::KeyRange;
use crate::store::{Revision, Signal, WatchError, WatchSource};

use super::index::{End, QueueState, Signals, Watcher};
use super::{History, HistoryPage, Shared, revision_of};

/// Ring entries looked at before the lock is given back, so that a long catch-up does not hold up the publisher.
const SCAN_CHUNK: usize = 512;

/// A watch of a hub. See [`crate::store::WatchSource`].
pub struct HubWatch {
    shared: Arc<Shared>,
    watcher: Arc<Watcher>,
    source: Source,
    history: Option<Box<dyn History>>,
    /// A page being read; it holds the history meanwhile.
    paging: Option<Paging>,
    /// Taken from the sources, not yet yielded.
    pending: Signals,
    cursor: Revision,
    /// Where the watch began.
    began: Revision,
    /// The revision of the last signal yielded, `began` before the first.
    yielded: Revision,
}

type Paging = BoxFuture<'static, (Box<dyn History>, Result<HistoryPage, WatchError>)>;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    History,
    Ring,
    Live,
    Ended(End),
}

enum Pumped {
    Pending,
    Again,
    /// Nothing until the watcher is woken.
    Idle,
    NeedsHistory,
    Ended(End),
}

impl HubWatch {
    pub(super) fn new(
        shared: Arc<Shared>,
        range: KeyRange,
        after: Revision,
        history: Option<Box<dyn History>>,
    ) -> Self {
        let watcher = Arc::new(Watcher::new(range));
        let pending = Signals::default();
        let source = Source::Ring;
        let mut watch = Self {
            shared,
            watcher,
            source,
            history,
            paging: None,
            pending,
            cursor: after,
            began: after,
            yielded: after,
        };
        // Goes live at once if it can, so that a watch that is not read yet cannot lose the ring under its cursor.
        watch.fill_to_pending();
        watch
    }

    /// Moves signals from the sources to `pending` until there is one or none can be had without waiting.
    fn fill_to_pending(&mut self) -> Pumped {
        loop {
            match self.pump() {
                Pumped::Again => {}
                other => return other,
            }
        }
    }

    fn pump(&mut self) -> Pumped {
        if !self.pending.is_empty() {
            return Pumped::Pending;
        }
        match self.source {
            Source::Live => self.pump_live(),
            Source::Ring => self.pump_ring(),
            Source::History => Pumped::NeedsHistory,
            Source::Ended(end) => Pumped::Ended(end),
        }
    }

    fn pump_live(&mut self) -> Pumped {
        let mut queue = self.watcher.queue.lock();
        queue.take_into(&mut self.pending);
        if !self.pending.is_empty() {
            return Pumped::Pending;
        }
        match queue.state {
            QueueState::Live => return Pumped::Idle,
            QueueState::Ended(end) => self.source = Source::Ended(end),
            QueueState::Detached | QueueState::Spilled => {
                self.cursor = queue.complete;
                self.source = Source::Ring;
            }
        }
        Pumped::Again
    }

    fn pump_ring(&mut self) -> Pumped {
        let ring = self.shared.ring.read();
        if ring.is_closed() {
            self.source = Source::Ended(End::Closed);
            return Pumped::Again;
        }
        if !ring.reaches_back_to(self.cursor) {
            self.source = if self.history.is_some() {
                Source::History
            } else {
                Source::Ended(End::Lagged)
            };
            return Pumped::Again;
        }
        let room = self.shared.limits.buffer;
        for (scanned, signal) in ring.after(self.cursor).enumerate() {
            let revision = revision_of(signal);
            // Only between revisions: the cursor cannot point into the middle of one.
            if revision > self.cursor && (scanned >= SCAN_CHUNK || self.pending.len() >= room) {
                return Pumped::Again;
            }
            self.cursor = revision;
            if let Some(end) = take(&self.watcher.range, signal, &mut self.pending) {
                self.source = Source::Ended(end);
                return Pumped::Again;
            }
        }
        self.cursor = self.cursor.max(ring.position());
        // With the ring still locked, so that nothing is published between the last look and going live.
        self.shared.index.lock().insert(&self.watcher, self.cursor);
        self.source = Source::Live;
        self.history = None;
        Pumped::Again
    }

    fn poll_history(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let paging = self.paging.get_or_insert_with(|| {
            let mut history = self.history.take().expect("only a watch with history reads from it");
            let after = self.cursor;
            Box::pin(async move {
                let page = history.page(after).await;
                (history, page)
            })
        });
        let (history, page) = ready!(paging.as_mut().poll(cx));
        (self.history, self.paging) = (Some(history), None);
        match page {
            Ok(page) if page.covered <= self.cursor => self.source = Source::Ended(End::Lagged),
            Ok(page) => {
                self.cursor = page.covered;
                self.source = Source::Ring;
                for signal in page.signals {
                    if let Some(end) = take(&self.watcher.range, &signal, &mut self.pending) {
                        self.source = Source::Ended(end);
                        break;
                    }
                }
            }
            Err(WatchError::Lagged) => self.source = Source::Ended(End::Lagged),
            Err(WatchError::Dropped) => self.source = Source::Ended(End::Dropped),
            Err(WatchError::Closed) => self.source = Source::Ended(End::Closed),
            Err(WatchError::Ended(position)) => self.source = Source::Ended(End::Asked(position)),
        }
        Poll::Ready(())
    }

    /// The next signal; waits for one.
    pub async fn next(&mut self) -> Result<Signal, WatchError> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    fn yield_pending(&mut self) -> Option<Signal> {
        let signal = self.pending.pop_front()?;
        self.yielded = revision_of(&signal);
        Some(signal)
    }
}

/// Keeps a signal that the range wants. The drop of the plane that holds the range is its end instead.
fn take(range: &KeyRange, signal: &Signal, pending: &mut Signals) -> Option<End> {
    match signal {
        Signal::Event(event) if !range.contains(&event.key) => None,
        Signal::Event(_) => {
            pending.push_back(signal.clone());
            None
        }
        Signal::Dropped(plane, _) => match range.plane() {
            Some(inner) => (inner == *plane).then_some(End::Dropped),
            None => {
                pending.push_back(signal.clone());
                None
            }
        },
    }
}

impl WatchSource for HubWatch {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Signal, WatchError>> {
        loop {
            // Before the look at the queue: what comes after it then wakes the reader.
            if self.pending.is_empty() {
                self.watcher.wake_later(cx.waker());
            }
            match self.fill_to_pending() {
                Pumped::Pending | Pumped::Again => {
                    if let Some(signal) = self.yield_pending() {
                        return Poll::Ready(Ok(signal));
                    }
                }
                Pumped::Idle => return Poll::Pending,
                Pumped::NeedsHistory => ready!(self.poll_history(cx)),
                Pumped::Ended(end) => return Poll::Ready(Err(end.into())),
            }
        }
    }

    fn try_next(&mut self) -> Option<Result<Signal, WatchError>> {
        match self.fill_to_pending() {
            Pumped::Pending | Pumped::Again => self.yield_pending().map(Ok),
            Pumped::Idle | Pumped::NeedsHistory => None,
            Pumped::Ended(end) => Some(Err(end.into())),
        }
    }

    fn caught_up(&mut self) -> Option<Revision> {
        // The position before the queue: what is published in between is then in the queue, or beyond the position.
        let position = self.shared.position();
        match self.fill_to_pending() {
            // Nothing yielded yet: a watch that began in the future has nothing to miss up to there.
            Pumped::Idle if self.yielded == self.began => Some(position.max(self.began)),
            // A signal beyond the position was yielded while its batch is still being handed out: siblings may follow.
            Pumped::Idle if self.yielded <= position => Some(position),
            _ => None,
        }
    }
}

impl From<End> for WatchError {
    fn from(end: End) -> Self {
        match end {
            End::Lagged => Self::Lagged,
            End::Dropped => Self::Dropped,
            End::Closed => Self::Closed,
            End::Asked(position) => Self::Ended(position),
        }
    }
}

impl Drop for HubWatch {
    fn drop(&mut self) {
        if self.source == Source::Live {
            self.shared.index.lock().remove(&self.watcher);
        }
    }
}

//! Events on their way to one place: a queue with bounds, that those who serve never wait for.
//!
//! Owns what was accepted until it is delivered or given up. An event that does not fit is counted and forgotten.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::metrics::Lost;

/// How much may be under way at once.
#[derive(Clone, Debug)]
pub struct Bounds {
    pub events: usize,
    pub bytes: usize,
    /// A bound that this queue has in common with others: what they hold together, and how much that may be.
    pub common: Option<(Arc<AtomicUsize>, usize)>,
}

/// When events are handed on, and how many together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    pub max_events: usize,
    pub max_bytes: usize,
    /// How long the first event of a batch waits for more.
    pub max_wait: Duration,
}

pub(super) struct Outbox {
    bounds: Bounds,
    lost: Lost,
    state: Mutex<State>,
    /// Something came, or nothing more will.
    changed: Notify,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Bytes>,
    /// Waiting or being delivered.
    events: usize,
    bytes: usize,
    since: Option<Instant>,
    closed: bool,
    /// What who delivers waits for.
    wanted: Option<Batch>,
}

/// Events that are being delivered. Their room is free again when this is dropped.
pub(super) struct Taken {
    pub events: Vec<Bytes>,
    bytes: usize,
    outbox: Arc<Outbox>,
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.outbox.free(self.events.len(), self.bytes);
    }
}

impl Taken {
    /// Gives these events up.
    pub(super) fn lose(&self, why: &dyn std::fmt::Display) {
        self.outbox.lost.undelivered(self.events.len(), why);
    }
}

impl Outbox {
    pub(super) fn new(bounds: Bounds, lost: Lost) -> Arc<Self> {
        Arc::new(Self {
            bounds,
            lost,
            state: Mutex::default(),
            changed: Notify::new(),
        })
    }

    /// Accepts an event, or counts it as lost. Never waits.
    pub(super) fn push(&self, event: Bytes) {
        let len = event.len();
        let mut state = self.state.lock();
        let fits = state.events < self.bounds.events && state.bytes + len <= self.bounds.bytes && !state.closed;
        if !fits || !self.reserve(len) {
            drop(state);
            self.lost.no_room();
            return;
        }
        state.events += 1;
        state.bytes += len;
        let first = state.since.is_none();
        state.since.get_or_insert_with(Instant::now);
        state.waiting.push_back(event);
        // In between nobody has to wake up: the first says when the batch is old.
        let matters = first || state.wanted.is_none_or(|batch| state.is_full(&batch));
        drop(state);
        if matters {
            self.changed.notify_one();
        }
    }

    fn reserve(&self, len: usize) -> bool {
        let Some((held, most)) = &self.bounds.common else {
            return true;
        };
        let grown = |held: usize| Some(held + len).filter(|held| held <= most);
        held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown).is_ok()
    }

    fn free(&self, events: usize, bytes: usize) {
        let mut state = self.state.lock();
        state.events -= events;
        state.bytes -= bytes;
        if let Some((held, _)) = &self.bounds.common {
            held.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// The next events, when there are enough or they waited for long enough. `None` when nothing more will come.
    pub(super) async fn next(self: &Arc<Self>, batch: &Batch) -> Option<Taken> {
        loop {
            let ready_at = {
                let mut state = self.state.lock();
                state.wanted = Some(*batch);
                match state.since {
                    None if state.closed => return None,
                    None => None,
                    Some(since) => {
                        let at = since + batch.max_wait;
                        if state.closed || at <= Instant::now() || state.is_full(batch) {
                            return Some(self.take(&mut state, batch));
                        }
                        Some(at)
                    }
                }
            };
            match ready_at {
                None => self.changed.notified().await,
                // Woken early it looks again.
                Some(at) => drop(tokio::time::timeout_at(at, self.changed.notified()).await),
            }
        }
    }

    fn take(self: &Arc<Self>, state: &mut State, batch: &Batch) -> Taken {
        let (mut events, mut bytes) = (Vec::new(), 0);
        while events.len() < batch.max_events
            && let Some(event) = state
                .waiting
                .pop_front_if(|event| bytes == 0 || bytes + event.len() <= batch.max_bytes)
        {
            bytes += event.len();
            events.push(event);
        }
        state.since = (!state.waiting.is_empty()).then(Instant::now);
        Taken {
            events,
            bytes,
            outbox: self.clone(),
        }
    }

    /// Nothing more is accepted; what is here is delivered without waiting for more.
    pub(super) fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_one();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state.lock().closed
    }

    /// Whether nothing waits and nothing is being delivered.
    pub(super) fn is_empty(&self) -> bool {
        self.state.lock().events == 0
    }
}

impl State {
    fn is_full(&self, batch: &Batch) -> bool {
        self.waiting.len() >= batch.max_events || self.bytes >= batch.max_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::super::metrics::Metrics;
    use super::*;

    fn outbox(bounds: Bounds) -> (Arc<Outbox>, Arc<Metrics>) {
        let metrics = Arc::new(Metrics::default());
        (Outbox::new(bounds, metrics.lost("test", "test")), metrics)
    }

    const BATCH: Batch = Batch {
        max_events: 2,
        max_bytes: 10,
        max_wait: Duration::from_secs(30),
    };

    #[tokio::test(start_paused = true)]
    async fn a_batch_goes_when_it_is_full_or_old_or_the_last() {
        let bounds = Bounds {
            events: 100,
            bytes: 1000,
            common: None,
        };
        let (outbox, _) = outbox(bounds);
        for event in ["a", "b", "c"] {
            outbox.push(event.into());
        }
        let begun = Instant::now();
        assert_eq!(outbox.next(&BATCH).await.unwrap().events, ["a", "b"]);
        assert_eq!(begun.elapsed(), Duration::ZERO);
        assert_eq!(outbox.next(&BATCH).await.unwrap().events, ["c"]);
        assert_eq!(begun.elapsed(), Duration::from_secs(30));
        outbox.push("d".into());
        outbox.close();
        assert_eq!(outbox.next(&BATCH).await.unwrap().events, ["d"]);
        assert!(outbox.next(&BATCH).await.is_none());
        assert!(outbox.is_empty());
    }

    #[tokio::test]
    async fn what_does_not_fit_is_counted_until_there_is_room_again() {
        let held = Arc::new(AtomicUsize::new(0));
        let bounds = Bounds {
            events: 3,
            bytes: 100,
            common: Some((held.clone(), 5)),
        };
        let (outbox, metrics) = outbox(bounds);
        outbox.push("1234".into());
        outbox.push("56".into());
        assert_eq!(metrics.dropped("test"), 1, "the common bound");
        outbox.push("5".into());
        let taken = outbox.next(&BATCH).await.unwrap();
        assert_eq!((taken.events.len(), held.load(Ordering::Relaxed)), (2, 5));
        outbox.push("6".into());
        assert_eq!(metrics.dropped("test"), 2, "what is being delivered still takes room");
        drop(taken);
        outbox.push("6".into());
        assert_eq!((metrics.dropped("test"), held.load(Ordering::Relaxed)), (2, 1));
        for _ in 0..3 {
            outbox.push("".into());
        }
        assert_eq!(metrics.dropped("test"), 3, "the bound of events");
    }
}

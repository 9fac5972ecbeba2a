//! The work queue: which object of which cluster is reconciled next.
//!
//! [`Lanes`] decides, without a clock or a lock of its own; [`Queue`] is what workers wait on.
//!
//! - An object is in the queue once, however often it was added, and is with one worker at a time. What is added while a
//!   worker has it is done again afterwards.
//! - Clusters take turns: however much one of them adds, the others' next item waits for at most one of its items.
//! - Within its turn a cluster's items go by priority, then by age. One turn in [`LOW_TURN`] goes to the lowest priority
//!   that waits, so that nothing waits for ever.
//! - A cluster never has more items with workers than its cap, and none while it is held (its server does not answer).
//! - A failed item comes back after a time that doubles with each failure in a row.

mod backoff;
mod lanes;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::request::{ClusterName, Request};
pub use backoff::Backoff;
pub use lanes::{LOW_TURN, Lanes, Limits, Next, Outcome, Priority, Work};

/// A queue that workers wait on.
pub struct Queue {
    lanes: Mutex<Lanes>,
    changed: Notify,
}

impl Queue {
    pub fn new(limits: Limits) -> Self {
        Self {
            lanes: Mutex::new(Lanes::new(limits)),
            changed: Notify::new(),
        }
    }

    pub fn add(&self, request: Request, priority: Priority) {
        self.lanes().add(request, priority, Instant::now());
        self.changed.notify_one();
    }

    pub fn add_after(&self, request: Request, delay: Duration) {
        self.lanes().add_after(request, delay, Instant::now());
        self.changed.notify_one();
    }

    /// The next item, as soon as there is one. It must be given back with [`Queue::done`].
    pub async fn take(&self) -> Work {
        loop {
            let changed = self.changed.notified();
            let next = self.lanes().take(Instant::now());
            match next {
                Next::Work(work) => {
                    // Another worker may find something too.
                    self.changed.notify_one();
                    return work;
                }
                Next::At(due) => {
                    let _ = tokio::time::timeout_at(due, changed).await;
                }
                Next::Nothing => changed.await,
            }
        }
    }

    /// A worker is through with an item.
    pub fn done(&self, request: &Request, outcome: Outcome) {
        self.lanes().done(request, outcome, Instant::now());
        self.changed.notify_one();
    }

    /// A cluster is gone: nothing of it is taken any more.
    pub fn purge(&self, cluster: &ClusterName) {
        self.lanes().purge(cluster);
    }

    /// Nothing of a cluster is taken until it is released; what is added waits.
    pub fn hold(&self, cluster: &ClusterName) {
        self.lanes().hold(cluster);
    }

    pub fn release(&self, cluster: &ClusterName) {
        self.lanes().release(cluster);
        self.changed.notify_one();
    }

    /// How many items wait for a worker now, those with a delay left out.
    pub fn depth(&self) -> usize {
        self.lanes().depth()
    }

    fn lanes(&self) -> MutexGuard<'_, Lanes> {
        // Nothing here panics half way through a change.
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;

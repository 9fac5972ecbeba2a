//! One time of holding something: what may begin, what is under way, and when it is over.

use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::Epoch;

/// A time of holding. Nothing begins once it is closed; it has ended when nothing is under way any more.
///
/// Closing and beginning must happen under one lock of the owner: between the two calls of `begin` another thread could
/// close.
pub(super) struct Term {
    epoch: Epoch,
    over: CancellationToken,
    running: TaskTracker,
}

impl Term {
    pub(super) fn new(epoch: Epoch) -> Self {
        Self {
            epoch,
            over: CancellationToken::new(),
            running: TaskTracker::new(),
        }
    }

    pub(super) fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The epoch, while work may begin.
    pub(super) fn begins(&self) -> Option<Epoch> {
        (!self.running.is_closed() && !self.over.is_cancelled()).then_some(self.epoch)
    }

    pub(super) fn begin(&self) -> Option<Tenure> {
        self.begins().map(|epoch| Tenure {
            epoch,
            over: self.over.clone(),
            _running: self.running.token(),
        })
    }

    /// Nothing begins any more.
    pub(super) fn close(&self) {
        self.running.close();
    }

    /// Also tells what is under way to stop.
    pub(super) fn end(&self) {
        self.close();
        self.over.cancel();
    }

    /// Closed, and nothing is under way.
    pub(super) fn is_through(&self) -> bool {
        self.running.is_closed() && self.running.is_empty()
    }

    /// Until it is closed and nothing is under way.
    pub(super) fn ended(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        let running = self.running.clone();
        async move { running.wait().await }
    }
}

/// The right to work on a cluster, and the fact that somebody does: keep it until the work is through.
#[derive(Clone, Debug)]
pub struct Tenure {
    epoch: Epoch,
    over: CancellationToken,
    _running: TaskTrackerToken,
}

impl Tenure {
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Resolves when the work must stop: another replica may have the cluster soon, and no longer waits.
    pub fn lost(&self) -> WaitForCancellationFuture<'_> {
        self.over.cancelled()
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[test]
    fn a_term_ends_when_it_is_closed_and_the_last_is_through() {
        let term = Term::new(7);
        let tenure = term.begin().unwrap();
        assert_eq!((term.begins(), tenure.epoch()), (Some(7), 7));
        let mut ended = Box::pin(term.ended());
        term.close();
        assert!(term.begin().is_none(), "closed");
        assert!((&mut ended).now_or_never().is_none(), "one is under way");
        assert!(tenure.lost().now_or_never().is_none(), "and may finish");
        term.end();
        assert!(tenure.lost().now_or_never().is_some());
        drop(tenure);
        assert!(ended.now_or_never().is_some());
    }
}

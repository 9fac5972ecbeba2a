//! Everything is this replica's: for a controller that runs once.

use async_trait::async_trait;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::term::{Tenure, Term};
use super::{Engages, Epoch, Ownership};
use crate::request::ClusterName;

/// Owns every cluster, always. Two replicas with it would both reconcile everything.
pub struct All {
    term: Term,
    changes: watch::Sender<u64>,
}

impl All {
    pub fn new() -> Self {
        Self {
            term: Term::new(0),
            changes: watch::Sender::new(0),
        }
    }
}

impl Default for All {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Ownership for All {
    fn owns(&self, _: &ClusterName) -> Option<Epoch> {
        self.term.begins()
    }

    fn holds(&self, _: &ClusterName) -> Option<Epoch> {
        Some(self.term.epoch())
    }

    fn begin(&self, _: &ClusterName) -> Option<Tenure> {
        self.term.begin()
    }

    fn engages(&self, _: &ClusterName) -> Engages {
        Engages::Yes
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    async fn run(&self, stop: CancellationToken) {
        stop.cancelled().await;
        self.term.end();
        self.term.ended().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_owned_under_one_epoch() {
        let all = All::new();
        for cluster in [ClusterName::local(), ClusterName::new("a")] {
            assert_eq!(all.owns(&cluster), all.holds(&cluster));
            assert_eq!(all.begin(&cluster).map(|tenure| tenure.epoch()), Some(0));
            assert_eq!(all.engages(&cluster), Engages::Yes);
        }
    }
}

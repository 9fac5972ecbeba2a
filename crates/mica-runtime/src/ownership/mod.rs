//! Which replica reconciles which cluster.
//!
//! [`Ownership`] is what the runtime asks before it begins work, and before it lets a request through. [`All`] is for one
//! replica alone, [`Leader`] for replicas of which one works at a time, [`Sharded`] for replicas that share the fleet.
//!
//! Under [`Sharded`], clusters fall into slots by their name, and each slot has at most one holder. Who holds what is in one
//! shared table that changes by compare and swap, so no two replicas can hold a slot; who is alive, each replica says for
//! itself in a lease that it renews. A replica that cannot renew in time stops before anybody may take its slots: all times
//! are measured by each replica's own clock, from when it saw a lease change, so clocks need not agree.
//!
//! [`next_moves`] decides what a replica does next; reading and writing leases is done elsewhere.

mod all;
mod election;
mod leader;
mod lease;
mod plan;
mod rendezvous;
mod replica;
mod sharded;
mod term;

use async_trait::async_trait;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub use all::All;
pub use leader::{Leader, LeaderBuilder, Standby};
pub use lease::{Timing, identity};
pub use plan::{Epoch, Holder, Move, Table, next_moves};
pub use rendezvous::{Peer, SLOTS, Slot, slot_of, wanted_holder};
pub use sharded::{GROUP_LABEL, Sharded, ShardedBuilder};
pub use term::Tenure;

use crate::metrics::Metrics;
use crate::request::ClusterName;

/// Whether a cluster is watched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Engages {
    /// It is watched; whether it is also reconciled, [`Ownership::owns`] says.
    Yes,
    No,
}

/// Says which clusters this replica may work on now.
///
/// The runtime enforces the answers, reconcilers need not ask: work begins only with a [`Tenure`], a cluster that is not
/// owned cannot be fetched, and requests that change something fail once the epoch they began under is over.
///
/// A cluster that is handed over goes through three answers: first nothing new begins (`owns` and `begin` say `None`) while
/// what is under way may finish (`holds` still names the epoch); then `holds` says `None` too; only then may another
/// replica own it.
#[async_trait]
pub trait Ownership: Send + Sync + 'static {
    /// The epoch under which new work on a cluster may begin now.
    fn owns(&self, cluster: &ClusterName) -> Option<Epoch>;

    /// The epoch whose work on a cluster may still write: also while it is being handed over.
    fn holds(&self, cluster: &ClusterName) -> Option<Epoch>;

    /// Begins work on a cluster. It counts as under way until the tenure is dropped, and no other replica begins before.
    fn begin(&self, cluster: &ClusterName) -> Option<Tenure>;

    /// Whether to watch a cluster. A standby that is to be warm watches what it does not own; the local cluster is always
    /// watched, since what it holds may be about any cluster.
    fn engages(&self, cluster: &ClusterName) -> Engages;

    /// Changes whenever answers may have.
    fn changes(&self) -> watch::Receiver<u64>;

    /// Where to report how it stands: once, before it runs.
    fn report_to(&self, _metrics: &Metrics) {}

    /// Takes part until stopped. Then nothing new begins, what is under way may finish for a while, and what is held is given
    /// to the others at once.
    async fn run(&self, stop: CancellationToken);
}

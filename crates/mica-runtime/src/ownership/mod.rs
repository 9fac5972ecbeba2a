//! Which replica reconciles which cluster.
//!
//! Clusters fall into slots by their name, and each slot has at most one holder. Who holds what is in one shared table that
//! changes by compare and swap, so no two replicas can hold a slot; who is alive, each replica says for itself in a lease
//! that it renews. A replica that cannot renew in time stops before anybody may take its slots: all times are measured by
//! each replica's own clock, from when it saw a lease change, so clocks need not agree.
//!
//! [`plan`] decides what a replica does next; reading and writing leases is done elsewhere.

mod plan;
mod rendezvous;

pub use plan::{Epoch, Holder, Move, Table, next_moves};
pub use rendezvous::{Peer, SLOTS, Slot, slot_of, wanted_holder};

//! What every replica is described by, whether it leads or shares: where leases are, what they are called, how long they last.

use std::time::Duration;

use super::lease::{Timing, identity};

/// How long work that is under way may take when what it is about is to be another replica's.
const HANDOVER: Duration = Duration::from_secs(10);

pub(super) struct Replica {
    pub(super) client: kube::Client,
    pub(super) namespace: String,
    /// Of the lease, or of the group of leases.
    pub(super) name: String,
    /// No two replicas have the same.
    pub(super) identity: String,
    pub(super) timing: Timing,
    pub(super) handover: Duration,
}

impl Replica {
    pub(super) fn new(client: kube::Client, namespace: &str, name: &str) -> Self {
        Self {
            client,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            identity: identity(),
            timing: Timing::default(),
            handover: HANDOVER,
        }
    }
}

//! The kinds of `apps`, and the replication controller, which is their elder.

pub mod daemonset;
pub mod deployment;
pub mod replicaset;
pub mod revision;
pub mod statefulset;

//! The etcd backend against real etcd processes, which these tests start and stop themselves.
#![allow(clippy::unwrap_used, reason = "tests")]

mod admin;
mod compaction;
mod conformance;
mod connect;
mod drop;
mod failover;
mod proxy;
mod server;
mod sharing;
mod size;
mod space;

//! Controllers beside a server, in root and in planes, seen through the API alone.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod account;
mod aggregation;
mod control_plane;
mod convention;
mod cost;
mod endpoint;
mod fleet;
mod foreign;
mod garbage;
mod leader;
mod milo;
mod namespace;
mod project;
mod quota;
mod registration;
mod restart;
mod sample;
mod world;

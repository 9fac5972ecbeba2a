//! The floors: what a minimal program on this machine can do, so that our numbers can be judged without a rival.

pub mod log;
pub mod server;

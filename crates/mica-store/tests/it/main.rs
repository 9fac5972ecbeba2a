//! The backends that need nothing but this machine, against the contract and against faults.
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod embedded;
mod mem;

//! The runtime against a real server in the test's own process.

#![allow(clippy::unwrap_used, reason = "a test may panic, also in its helpers")]

mod clusters;
mod controllers;
mod examples;
mod faults;
mod helpers;
mod manager;
mod ownership;
mod providers;
mod replicas;
mod span;
mod support;
mod trust;
mod wait;

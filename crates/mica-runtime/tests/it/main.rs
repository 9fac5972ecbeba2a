//! The runtime against a real server in the test's own process.

mod controllers;
mod helpers;
mod ownership;
mod wait;

//! The testkit as others use it, which is at once what kube-rs says of the server.

#![allow(clippy::unwrap_used, reason = "a test may panic, also in its helpers")]

mod kit;
mod kube_rs;

//! The binary as people run it: its output, its exit codes, its signals.

#![allow(clippy::unwrap_used, reason = "a test may panic, also in its helpers")]

mod commands;
mod control_plane;
mod controllers;
mod dedicated;
mod dropin;
mod etcd;
mod fake;
mod guide;
mod new;
mod process;
mod tenant;
mod trace;
mod up;

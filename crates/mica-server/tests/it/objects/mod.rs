//! The metadata of all objects: lists, watches, owners, and what a Plane says of its usage.

mod api;
mod embedded;
mod list;
mod owner;
mod usage;
mod watch;

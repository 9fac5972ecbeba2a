//! Controllers that run across every control plane of a fleet, 10 or 100,000, in one small process.
//!
//! A [`provider`] says which clusters there are; the [`fleet`] engages those that are this replica's, as [`cluster`]s with a
//! client, labels, health and a lifetime. [`controller`]s watch kinds in all of them ([`source`]), keep what they see
//! ([`store`]), and call a [`Reconciler`] for each object that changed, in whichever cluster.
//!
//! What decides does no I/O: the order of work ([`queue`]), which replica does it ([`ownership`]), and when a cluster counts
//! as dead ([`breaker`]). Reconcilers are helped with [`conditions`], [`finalizer`], [`apply`] and [`events`].

pub mod apply;
pub mod breaker;
pub mod cluster;
pub mod conditions;
pub mod controller;
pub mod events;
pub mod finalizer;
pub mod fleet;
pub mod metrics;
pub mod ownership;
pub mod provider;
pub mod queue;
pub mod reconcile;
pub mod request;
pub mod source;
pub mod store;

pub use cluster::{Access, Cluster, Health, Wildcard};
pub use controller::{Controller, Controllers};
pub use fleet::{Fleet, FleetError, FleetEvent};
pub use metrics::Metrics;
pub use ownership::Ownership;
pub use provider::{ClusterSink, ClusterSpec, Provider, ProviderError};
pub use reconcile::{Action, Cx, ReconcileError, Reconciler};
pub use request::{ClusterName, Request};

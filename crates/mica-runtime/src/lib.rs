//! Controllers that run across every control plane of a fleet, 10 or 100,000, in one small process.
//!
//! What is here decides and does no I/O: the order of work ([`queue`]), which replica does it ([`ownership`]), and when a
//! cluster counts as dead ([`breaker`]). Reconcilers are helped with [`conditions`], [`finalizer`], [`apply`] and [`events`].

pub mod apply;
pub mod breaker;
pub mod conditions;
pub mod events;
pub mod finalizer;
pub mod metrics;
pub mod ownership;
pub mod queue;
pub mod request;

pub use metrics::Metrics;
pub use ownership::Ownership;
pub use request::{ClusterName, Request};

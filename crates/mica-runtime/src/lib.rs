//! Controllers that run across every control plane of a fleet, 10 or 100,000, in one small process.
//!
//! A [`provider`] says which clusters there are; the [`fleet`] engages those that are this replica's, as [`cluster`]s with a
//! client, labels, health and a lifetime. [`controller`]s watch kinds in all of them ([`source`]), keep what they see
//! ([`store`]), and call a [`Reconciler`] for each object that changed, in whichever cluster.
//!
//! What decides does no I/O: the order of work ([`queue`]), which replica does it ([`ownership`]), and when a cluster counts
//! as dead ([`breaker`]). Reconcilers are helped with [`conditions`], [`finalizer`], [`apply`] and [`events`].
//!
//! A [`Manager`] puts it together and runs it:
//!
//! ```no_run
//! # use async_trait::async_trait;
//! # use k8s_openapi::api::core::v1::Namespace;
//! # use mica_runtime::provider::Planes;
//! # use mica_runtime::{Access, Action, Cx, Manager, ReconcileError, Reconciler};
//! struct Hello;
//!
//! #[async_trait]
//! impl Reconciler for Hello {
//!     type Kind = Namespace;
//!     type Error = ReconcileError;
//!
//!     async fn reconcile(&self, cx: Cx<Namespace>) -> Result<Action, ReconcileError> {
//!         println!("{} is there: {}", cx.request(), cx.object().is_some());
//!         Ok(Action::await_change())
//!     }
//! }
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let server = Access::infer().await?;
//! let manager = Manager::builder(server.clone()).provider(Planes::new(server)).build()?;
//! manager.controller("hello").for_::<Namespace>().reconcile(Hello)?;
//! manager.run_until(async { drop(tokio::signal::ctrl_c().await) }).await?;
//! # Ok(())
//! # }
//! ```

pub mod apply;
pub mod breaker;
pub mod cluster;
pub mod conditions;
pub mod controller;
pub mod events;
pub mod finalizer;
pub mod fleet;
pub mod manager;
pub mod metrics;
pub mod ownership;
pub mod provider;
pub mod queue;
pub mod reconcile;
pub mod request;
pub mod serve;
pub mod source;
pub mod store;
#[cfg(feature = "testing")]
pub mod testing;

pub use cluster::{Access, Cluster, Health, Wildcard};
pub use controller::{Controller, Controllers};
pub use fleet::{Fleet, FleetError, FleetEvent};
pub use manager::{Manager, ManagerBuilder, ManagerError};
pub use metrics::Metrics;
pub use ownership::Ownership;
pub use provider::{ClusterSink, ClusterSpec, Provider, ProviderError};
pub use reconcile::{Action, Cx, ReconcileError, Reconciler};
pub use request::{ClusterName, Request};

//! A Kubernetes API in the test's own process, for tests of controllers and of whatever else speaks to one.
//!
//! ```
//! # #[cfg(feature = "kube")]
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! use k8s_openapi::api::core::v1::Namespace;
//! use mica_testkit::TestServer;
//!
//! let server = TestServer::start().await;
//! // A control plane for this test alone, which costs as much as a few writes.
//! let plane = server.plane("my-test").await;
//! let namespaces = kube::Api::<Namespace>::all(plane.client().await);
//! assert!(namespaces.get("default").await.is_ok());
//! # });
//! ```
//!
//! A [`TestServer`] listens on a free port of this machine, over TLS, with a certificate authority of its own, and keeps
//! everything in memory unless told otherwise ([`Builder`]). It is the same server that runs elsewhere: nothing is faked.
//! Planes ([`TestPlane`]) share it and see nothing of each other, so that one server is enough for all tests of a process;
//! [`ControlPlanes`] is many of them at once.
//! What fails here fails the test: functions panic with a reason.

#![allow(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "a test that cannot be set up has failed"
)]

mod kubectl;
mod plane;
mod planes;
mod server;

pub use kubectl::{Kubectl, Ran};
pub use plane::TestPlane;
pub use planes::ControlPlanes;
pub use server::{Builder, TestServer};

#[cfg(feature = "kube")]
pub use kube;
pub use mica_machinery::kind::Profile;
pub use mica_machinery::kind::bootstrap::Companions;

//! Many control planes on one server, for tests of what works across them.

use std::sync::Arc;

use futures::StreamExt as _;

use crate::plane::TestPlane;
use crate::server::{Builder, TestServer};

/// How many planes are made at once.
const AT_ONCE: usize = 16;

/// `n` control planes on one server in this process: `plane-0`, `plane-1`, and so on. A clone is the same planes; the server ends
/// with the last of them.
///
/// ```
/// # #[cfg(feature = "kube")]
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// use k8s_openapi::api::core::v1::Namespace;
/// use mica_testkit::ControlPlanes;
///
/// let planes = ControlPlanes::new(3).await;
/// for name in planes.names() {
///     let namespaces = kube::Api::<Namespace>::all(planes.client(name).await);
///     assert!(namespaces.get("default").await.is_ok());
/// }
/// # });
/// ```
#[derive(Clone)]
pub struct ControlPlanes {
    server: Arc<TestServer>,
    names: Arc<[String]>,
}

impl ControlPlanes {
    pub async fn new(n: usize) -> Self {
        Self::on(TestServer::builder(), n).await
    }

    /// On a server that is made like this.
    pub async fn on(server: Builder, n: usize) -> Self {
        let server = Arc::new(server.start().await);
        let names: Vec<String> = (0..n).map(|i| format!("plane-{i}")).collect();
        futures::stream::iter(&names)
            .for_each_concurrent(AT_ONCE, async |name| drop(server.plane(name).await))
            .await;
        Self {
            server,
            names: names.into(),
        }
    }

    /// The server with all of them.
    pub fn server(&self) -> &TestServer {
        &self.server
    }

    /// The planes that were made at the start.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// A plane of this name, which must have been made.
    pub fn plane(&self, name: &str) -> TestPlane<'_> {
        TestPlane::known(&self.server, name)
    }

    /// A client of a plane, as the administrator.
    #[cfg(feature = "kube")]
    pub async fn client(&self, name: &str) -> kube::Client {
        self.plane(name).client().await
    }

    /// A client of root, as the administrator.
    #[cfg(feature = "kube")]
    pub async fn root(&self) -> kube::Client {
        self.server.client().await
    }

    /// Makes one more.
    pub async fn add(&self, name: &str) -> TestPlane<'_> {
        self.server.plane(name).await
    }

    /// Asks for a plane's end, which comes when it is empty.
    pub async fn remove(&self, name: &str) {
        TestPlane::known(&self.server, name).delete().await;
    }
}

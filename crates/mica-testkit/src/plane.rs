//! A control plane of a test's own.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use mica_machinery::kind::Profile;
use mica_server::http::{Context, Peer, RequestBody, Service as _};
use mica_server::pki::Issued;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::kubectl::Kubectl;
use crate::server::TestServer;

const PLANES: &str = "/apis/mica.dev/v1alpha1/planes";

/// A plane of a [`TestServer`]. It stays when this is dropped: the server goes, and everything with it.
pub struct TestPlane<'a> {
    server: &'a TestServer,
    name: String,
}

impl<'a> TestPlane<'a> {
    pub(crate) async fn make(server: &'a TestServer, name: &str, profile: Option<Profile>) -> Self {
        let mut plane = json!({"apiVersion": "mica.dev/v1alpha1", "kind": "Plane", "metadata": {"name": name}});
        if let Some(profile) = profile {
            plane["spec"] = json!({"profile": profile.as_str()});
        }
        let status = send(server, Method::POST, PLANES, plane.to_string()).await;
        assert_eq!(status, StatusCode::CREATED, "the plane {name:?} was not made");
        Self {
            server,
            name: name.to_owned(),
        }
    }

    /// One that was made before.
    pub(crate) fn known(server: &'a TestServer, name: &str) -> Self {
        Self {
            server,
            name: name.to_owned(),
        }
    }

    /// Asks for its end, which comes when it is empty.
    pub async fn delete(self) {
        let path = format!("{PLANES}/{}", self.name);
        let status = send(self.server, Method::DELETE, &path, String::new()).await;
        assert!(
            status.is_success(),
            "the plane {:?} was not deleted: {status}",
            self.name
        );
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn url(&self) -> String {
        format!("{}/clusters/{}/control-plane", self.server.url(), self.name)
    }

    /// The administrator's kubeconfig for this plane.
    pub fn kubeconfig(&self) -> String {
        self.server.kubeconfig_for(&self.url(), self.server.admin())
    }

    /// Somebody else's.
    pub fn kubeconfig_for(&self, user: &Issued) -> String {
        self.server.kubeconfig_for(&self.url(), user)
    }

    /// A client of this plane, as the administrator.
    #[cfg(feature = "kube")]
    pub async fn client(&self) -> kube::Client {
        crate::server::client(&self.kubeconfig()).await
    }

    /// `kubectl` for this plane, as the administrator.
    pub fn kubectl(&self) -> Kubectl {
        Kubectl::new(&self.kubeconfig())
    }
}

/// The same request as over the wire, without one.
async fn send(server: &TestServer, method: Method, path: &str, body: String) -> StatusCode {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", "application/json")
        .body(RequestBody::from(Bytes::from(body)))
        .expect("a request");
    let peer = Arc::new(Peer::in_process(CancellationToken::new()));
    server.server().call(&Context::new(peer), request).await.status()
}

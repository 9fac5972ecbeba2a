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
        // The same request as over the wire, without one.
        let request = Request::builder()
            .method(Method::POST)
            .uri(PLANES)
            .header("content-type", "application/json")
            .body(RequestBody::from(Bytes::from(plane.to_string())))
            .expect("a request");
        let peer = Arc::new(Peer::in_process(CancellationToken::new()));
        let response = server.server().call(&Context::new(peer), request).await;
        assert_eq!(
            response.status(),
            StatusCode::CREATED,
            "the plane {name:?} was not made"
        );
        Self {
            server,
            name: name.to_owned(),
        }
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

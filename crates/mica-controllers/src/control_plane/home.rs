//! Where planes of control planes live: a server, as its administrator reaches it.

use crate::api::Api;
use crate::place;
use crate::turn::Turn;

/// The kind of planes, which only Mica servers have.
pub const PLANE_API_VERSION: &str = "mica.dev/v1alpha1";
const PLANES: &str = "/apis/mica.dev/v1alpha1/planes";

/// A server that planes of control planes live on: the shared one, or one that is a control plane's own.
#[derive(Clone)]
pub struct Home {
    /// An administrator of its root, and so of every plane.
    pub api: Api,
    /// Its address without a slash at the end.
    pub url: String,
    /// Who signs its certificate, in PEM, if that is not known to everybody.
    pub ca: Option<String>,
}

impl Home {
    /// The same, changed only in this turn.
    #[must_use]
    pub(crate) fn in_turn(self, turn: &Turn) -> Self {
        Self {
            api: self.api.in_turn(turn.clone()),
            ..self
        }
    }

    /// The path of a plane on any server.
    pub fn plane_path(cluster_path: &str) -> String {
        format!("/clusters/{cluster_path}/control-plane")
    }

    /// The path of a Plane object in root.
    pub fn plane_object(cluster_path: &str) -> String {
        format!("{PLANES}/{cluster_path}")
    }

    /// The path of all Plane objects.
    pub fn plane_objects() -> &'static str {
        PLANES
    }

    /// The path of a collection inside a plane.
    pub fn collection(cluster_path: &str, api_version: &str, resource: &str, namespace: Option<&str>) -> String {
        let inside = place::collection(&place::Place::root(), api_version, resource, namespace);
        format!("{}{inside}", Self::plane_path(cluster_path))
    }

    /// The path of an object inside a plane.
    pub fn object(
        cluster_path: &str,
        api_version: &str,
        resource: &str,
        namespace: Option<&str>,
        name: &str,
    ) -> String {
        let inside = place::object(&place::Place::root(), api_version, resource, namespace, name);
        format!("{}{inside}", Self::plane_path(cluster_path))
    }

    /// The address of a plane.
    pub fn plane_url(&self, cluster_path: &str) -> String {
        format!("{}{}", self.url, Self::plane_path(cluster_path))
    }
}

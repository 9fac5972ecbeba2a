//! The planes of a Mica server.

use async_trait::async_trait;
use kube::ResourceExt as _;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};

use super::mapped::Mapped;
use super::{ClusterSink, ClusterSpec, Provider, ProviderError};
use crate::cluster::{Access, Wildcard};
use crate::request::ClusterName;

/// What becomes of planes that are being deleted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Draining {
    /// They stay until they are gone: controllers must see them to remove their finalizers, for which the drain waits.
    Stay,
    /// They go at once: for controllers without finalizers.
    Leave,
}

/// Engages every plane that takes requests, under its name. They share one watch of all planes for each kind, and need no
/// connection of their own.
pub struct Planes {
    mapped: Mapped,
}

impl Planes {
    /// `server` is the root of a Mica server, with the right to read all its planes.
    pub fn new(server: Access) -> Self {
        Self::with(server, Draining::Stay)
    }

    pub fn with(server: Access, draining: Draining) -> Self {
        let server = server.root();
        let kind = GroupVersionKind::gvk("mica.dev", "v1alpha1", "Plane");
        let kind = ApiResource::from_gvk_with_plural(&kind, "planes");
        let root = server.clone();
        let map = move |name, object: &DynamicObject| Ok(plane(&root, draining, name, object));
        Self {
            mapped: Mapped::new("planes", server, kind, map),
        }
    }

    /// Only planes with these labels.
    #[must_use]
    pub fn labels(mut self, selector: impl Into<String>) -> Self {
        self.mapped = self.mapped.labels(selector);
        self
    }

    /// Another name than `planes`, where a fleet has several.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.mapped = self.mapped.named(name);
        self
    }
}

fn plane(server: &Access, draining: Draining, cluster: ClusterName, object: &DynamicObject) -> Option<ClusterSpec> {
    let status = &object.data["status"];
    let engaged = match status["phase"].as_str()? {
        "Ready" => object.metadata.deletion_timestamp.is_none() || draining == Draining::Stay,
        "Draining" => draining == Draining::Stay,
        _ => false,
    };
    if !engaged {
        return None;
    }
    let (name, id) = (object.name_any(), status["id"].as_str()?.to_owned());
    let access = server.at(&format!("/clusters/{name}/control-plane"));
    let spec = ClusterSpec::new(cluster, access)
        .labels(object.labels().clone())
        .wildcard(Wildcard {
            server: server.clone(),
            plane: name,
            plane_id: id,
        });
    Some(spec)
}

#[async_trait]
impl Provider for Planes {
    fn name(&self) -> &str {
        self.mapped.name()
    }

    async fn run(&self, sink: ClusterSink) -> Result<(), ProviderError> {
        self.mapped.run(sink).await
    }
}

//! The projects of a Milo server, or of one that speaks its API.

use async_trait::async_trait;
use kube::ResourceExt as _;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};

use super::mapped::{Mapped, is_true};
use super::{ClusterSink, ClusterSpec, Provider, ProviderError};
use crate::cluster::Access;
use crate::request::ClusterName;

/// Where a project's API is, and which object says that it is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Discovery {
    /// Projects, which are Ready; each at its path of the server.
    External,
    /// ProjectControlPlanes, which are ControlPlaneReady; each at a host of its own inside the cluster.
    Internal,
}

/// Engages a project when its object is ready, under its name, and lets it go when it is not ready or gone.
///
/// A project that is being deleted stays while it is ready: controllers must see it to remove their finalizers.
pub struct Milo {
    mapped: Mapped,
}

impl Milo {
    /// Follows the objects at `watched`; projects are reached with its trust and credentials.
    pub fn new(watched: Access, discovery: Discovery) -> Self {
        let projects = watched.clone();
        Self::with_projects(watched, projects, discovery)
    }

    /// Projects are reached with another trust and other credentials than the objects that stand for them.
    pub fn with_projects(watched: Access, projects: Access, discovery: Discovery) -> Self {
        let (group, kind, plural) = match discovery {
            Discovery::External => ("resourcemanager.miloapis.com", "Project", "projects"),
            Discovery::Internal => (
                "infrastructure.miloapis.com",
                "ProjectControlPlane",
                "projectcontrolplanes",
            ),
        };
        let kind = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, "v1alpha1", kind), plural);
        let map = move |name, object: &DynamicObject| project(&projects, discovery, name, object);
        Self {
            mapped: Mapped::new("milo", watched, kind, map),
        }
    }

    /// Only projects whose object has these labels.
    #[must_use]
    pub fn labels(mut self, selector: impl Into<String>) -> Self {
        self.mapped = self.mapped.labels(selector);
        self
    }

    /// Another name than `milo`, where a fleet has several.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.mapped = self.mapped.named(name);
        self
    }
}

fn project(
    projects: &Access,
    discovery: Discovery,
    cluster: ClusterName,
    object: &DynamicObject,
) -> Result<Option<ClusterSpec>, ProviderError> {
    let condition = match discovery {
        Discovery::External => "Ready",
        Discovery::Internal => "ControlPlaneReady",
    };
    if !is_true(object, condition) {
        return Ok(None);
    }
    let name = object.name_any();
    let access = match discovery {
        Discovery::External => projects.at(&format!(
            "/apis/resourcemanager.miloapis.com/v1alpha1/projects/{name}/control-plane"
        )),
        Discovery::Internal => projects.at_host(&format!("milo-apiserver.project-{name}.svc.cluster.local:6443"))?,
    };
    let spec = ClusterSpec::new(cluster, access).labels(object.labels().clone());
    Ok(Some(ClusterSpec {
        identity: object.uid(),
        ..spec
    }))
}

#[async_trait]
impl Provider for Milo {
    fn name(&self) -> &str {
        self.mapped.name()
    }

    async fn run(&self, sink: ClusterSink) -> Result<(), ProviderError> {
        self.mapped.run(sink).await
    }
}

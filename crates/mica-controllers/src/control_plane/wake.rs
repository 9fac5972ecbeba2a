//! Who is to be looked at when something changes that many may be made from. Found by the server's indexes.

use mica_api::control_plane::{ADDON_LABEL, ADMIN_NAMESPACE, API_VERSION, CLASSES, CONTROL_PLANES, ENDPOINTS};
use mica_runtime::queue::{Outcome, Priority};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use super::{ControlPlanes, Home, plan};
use crate::api::{Absent as _, Refusal};
use crate::meta::Object;
use crate::place::{self, Place};

/// What ConfigMaps with addons are waited for under.
pub const ADDONS: &str = "addons";
/// What addons of a directory are told under.
const DIRECTORY: &str = "directory";
/// What the names of planes are waited for under.
pub const PLANES: &str = "planes";
/// What something inside a plane is told under.
pub const INSIDE: &str = "inside";
/// What names of management namespaces begin with.
const NAMESPACE_PREFIX: &str = "kplane-cp-";
/// What names of endpoints end with that gateways make.
const ENDPOINT_SUFFIX: &str = "-endpoint";

const ROOT_CA: &str = "kube-root-ca.crt";

/// Whether an object is a management namespace, or in one.
pub fn is_managed_namespace(object: &Object) -> bool {
    let namespace = object.meta.namespace.as_deref().unwrap_or(&object.meta.name);
    namespace.starts_with(NAMESPACE_PREFIX)
}

/// The ControlPlane whose namespace somebody else has, or may have put parameters into. Those with very long names are not told.
pub fn by_namespace(object: &Object) -> Option<&str> {
    let Some(namespace) = object.meta.namespace.as_deref() else {
        return object.meta.name.strip_prefix(NAMESPACE_PREFIX);
    };
    // Every namespace has it, and it says nothing of this one.
    if object.meta.name == ROOT_CA {
        return None;
    }
    namespace.strip_prefix(NAMESPACE_PREFIX)
}

impl ControlPlanes {
    /// Has everybody looked at who names something.
    pub(super) async fn wake_all(&self, resource: &str, name: &str) -> Result<Outcome, Refusal> {
        match resource {
            CLASSES => self.wake_where("spec.classRef.name", name).await?,
            ENDPOINTS => {
                self.wake_where("spec.endpointRef.name", name).await?;
                if let Some(control_plane) = name.strip_suffix(ENDPOINT_SUFFIX) {
                    self.waker.wake(control_plane, Priority::Normal);
                }
            }
            PLANES => {
                self.waker.wake(name, Priority::Normal);
                self.wake_where("spec.virtual.clusterPath", name).await?;
            }
            ADDONS => self.wake_addon(name).await?,
            DIRECTORY => self.wake_those_with(Some(name)).await?,
            _ => {}
        }
        Ok(Outcome::Done)
    }

    async fn wake_where(&self, field: &str, value: &str) -> Result<(), Refusal> {
        let path = place::collection(&Place::root(), API_VERSION, CONTROL_PLANES, None);
        let query = format!("fieldSelector={field}{}", place::query_value(&format!("={value}")));
        for found in self.api.list_metadata(&path, &query).await?.items {
            self.waker.wake(&found.metadata.name, Priority::Low);
        }
        Ok(())
    }

    /// A ConfigMap with manifests came, changed or went. What addon it was of is only known while it is there: if it went,
    /// everybody with a class that has addons is looked at.
    async fn wake_addon(&self, name: &str) -> Result<(), Refusal> {
        let path = place::object(&Place::root(), "v1", "configmaps", Some(ADMIN_NAMESPACE), name);
        let map = self.api.get(&path).await.or_absent()?;
        let addon = map.as_ref().map(|map| map["metadata"]["labels"][ADDON_LABEL].as_str());
        let addon = match addon {
            // Not one with manifests, at least not any more: then it went as an addon.
            Some(None) | None => None,
            Some(Some(addon)) => Some(addon),
        };
        self.wake_those_with(addon).await
    }

    /// Hears of addons in a directory that came, changed or went.
    pub(super) async fn follow_addons(&self) {
        loop {
            for name in self.library.changes().await {
                tracing::info!(addon = name, "an addon of the directory has changed");
                self.waker.wake_namers(DIRECTORY, &name, Priority::Normal);
            }
        }
    }

    /// Has everybody looked at whose class has an addon; or any, if which is not known.
    async fn wake_those_with(&self, addon: Option<&str>) -> Result<(), Refusal> {
        let classes = place::collection(&Place::root(), API_VERSION, CLASSES, None);
        for class in self.api.list(&classes, "").await?.items {
            let addons = class["spec"]["addons"].as_array().map_or(&[][..], Vec::as_slice);
            let concerned = match addon {
                Some(addon) => addons.iter().any(|one| one == addon),
                None => !addons.is_empty(),
            };
            if concerned {
                self.wake_where("spec.classRef.name", plan::text(&class, "/metadata/name"))
                    .await?;
            }
        }
        Ok(())
    }

    /// Something that is kept in a plane of the shared server changed.
    pub(super) async fn wake_owner(&self, place: &Place) -> Result<Outcome, Refusal> {
        let Some(name) = place.name() else {
            return Ok(Outcome::Done);
        };
        let plane = self
            .settings
            .home
            .api
            .metadata(&Home::plane_object(name))
            .await
            .or_absent()?;
        if let Some(owner) = plane.and_then(|plane| plane.annotations.control_plane) {
            self.waker.wake(&owner, Priority::Low);
        }
        Ok(Outcome::Done)
    }

    /// Hears what becomes of servers of dedicated control planes, and of those who copy planes.
    pub(super) async fn hear_changes(&self, mut changes: Receiver<String>) {
        loop {
            match changes.recv().await {
                Ok(name) => self.waker.wake(&name, Priority::Normal),
                // Too many at once to be told one by one: everybody is looked at.
                Err(RecvError::Lagged(_)) => {
                    let path = place::collection(&Place::root(), API_VERSION, CONTROL_PLANES, None);
                    match self.api.list_metadata(&path, "").await {
                        Ok(all) => all
                            .items
                            .iter()
                            .for_each(|one| self.waker.wake(&one.metadata.name, Priority::Low)),
                        Err(refusal) => tracing::warn!(%refusal, "control planes could not be listed"),
                    }
                }
                Err(RecvError::Closed) => return std::future::pending().await,
            }
        }
    }
}

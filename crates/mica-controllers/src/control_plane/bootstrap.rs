//! Puts into a plane what its administrator needs.

use mica_api::control_plane::{ADMIN, ADMIN_NAMESPACE};
use mica_machinery::kind::bootstrap::administrator::DEFAULT_ROLE;
use serde_json::Value;

use super::plan::inside::{self, Placed};
use super::plan::{Observed, has, text};
use super::provision::Made;
use super::reconcile::MANAGER;
use super::{ControlPlanes, Home};
use crate::api::{Absent as _, Refusal};

impl ControlPlanes {
    /// Has the administrator there, with the role that the class says. Returns the uid of its account, if it was looked at.
    pub(super) async fn inside(&self, at: &Observed, home: &Home, made: Made) -> Result<Option<String>, Refusal> {
        let path = at.cluster_path();
        let role = at.role();
        // A plane is born with one. If an older server made it, there is nobody to get a token for, and the next look sees to it.
        if made == Made::Now && role == DEFAULT_ROLE {
            return Ok(None);
        }
        let namespace = put(home, path, inside::namespace());
        futures::try_join!(namespace, bind(home, path, &role))?;
        let account = put(home, path, inside::account()).await?;
        Ok(Some(text(&account, "/metadata/uid").to_owned()))
    }

    /// Ends every credential of a control plane's administrator, at once.
    pub(super) async fn disown(&self, at: &Observed, home: &Home) -> Result<(), Refusal> {
        let path = at.cluster_path();
        let account = Home::object(path, "v1", "serviceaccounts", Some(ADMIN_NAMESPACE), ADMIN);
        let binding = Home::object(path, inside::RBAC, "clusterrolebindings", None, ADMIN);
        for object in [account, binding] {
            home.api.delete_any(&object).await.or_absent()?;
        }
        Ok(())
    }
}

/// Has an object there. It is read first, which costs less than to apply what is there already.
async fn put(home: &Home, plane: &str, placed: Placed) -> Result<Value, Refusal> {
    let Placed {
        api_version,
        resource,
        namespace,
        name,
        object,
    } = placed;
    let path = Home::object(plane, api_version, resource, namespace, name);
    if let Some(present) = home.api.get(&path).await.or_absent()?
        && has(&present, &object)
    {
        return Ok(present);
    }
    home.api.apply(&path, MANAGER, &object).await
}

/// A binding's role cannot be changed: one that is for another is made anew.
async fn bind(home: &Home, plane: &str, role: &str) -> Result<(), Refusal> {
    match put(home, plane, inside::binding(role)).await {
        Ok(_) => Ok(()),
        Err(refusal) if refusal.code() == 422 => {
            let path = Home::object(plane, inside::RBAC, "clusterrolebindings", None, ADMIN);
            home.api.delete_any(&path).await.or_absent()?;
            put(home, plane, inside::binding(role)).await.map(drop)
        }
        Err(refusal) => Err(refusal),
    }
}

//! Puts into a plane what its administrator needs.

use mica_api::control_plane::{ADMIN, ADMIN_NAMESPACE};

use super::plan::inside::{self, Placed};
use super::plan::{Observed, text};
use super::reconcile::MANAGER;
use super::{ControlPlanes, Home};
use crate::api::{Absent as _, Refusal};

impl ControlPlanes {
    /// Has the administrator there, with the role that the class says. Returns the uid of its account.
    pub(super) async fn inside(&self, at: &Observed, home: &Home) -> Result<String, Refusal> {
        let path = at.cluster_path();
        let role = at.role();
        let (_namespace, ()) = futures::try_join!(put(home, path, inside::namespace()), bind(home, path, &role))?;
        let account = put(home, path, inside::account()).await?;
        Ok(text(&account, "/metadata/uid").to_owned())
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

async fn put(home: &Home, plane: &str, placed: Placed) -> Result<serde_json::Value, Refusal> {
    let Placed {
        api_version,
        resource,
        namespace,
        name,
        object,
    } = placed;
    let path = Home::object(plane, api_version, resource, namespace, name);
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

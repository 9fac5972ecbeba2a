//! Puts into a plane what its administrator needs.

use mica_api::control_plane::{ADMIN, ADMIN_NAMESPACE, condition};
use serde_json::Value;

use super::plan::inside::{self, Placed};
use super::plan::{Observed, has, text};
use super::reconcile::MANAGER;
use super::{ControlPlanes, Home};
use crate::api::{Absent as _, Refusal};

impl ControlPlanes {
    /// Has the administrator there, with the role that the class says. Returns the uid of its account.
    pub(super) async fn inside(&self, at: &Observed, home: &Home) -> Result<String, Refusal> {
        let path = at.cluster_path();
        let role = at.role();
        let known = match at.is_true(condition::BOOTSTRAPPED) {
            true => Known::There,
            false => Known::New,
        };
        let namespace = put(home, path, known, inside::namespace());
        futures::try_join!(namespace, bind(home, path, known, &role))?;
        let account = put(home, path, known, inside::account()).await?;
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

/// Has an object there. One that was there at the last look is read first, which costs less than to apply it.
async fn put(home: &Home, plane: &str, known: Known, placed: Placed) -> Result<Value, Refusal> {
    let Placed {
        api_version,
        resource,
        namespace,
        name,
        object,
    } = placed;
    let path = Home::object(plane, api_version, resource, namespace, name);
    if known == Known::There
        && let Some(present) = home.api.get(&path).await.or_absent()?
        && has(&present, &object)
    {
        return Ok(present);
    }
    home.api.apply(&path, MANAGER, &object).await
}

/// Whether an administrator was made before.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Known {
    There,
    New,
}

/// A binding's role cannot be changed: one that is for another is made anew.
async fn bind(home: &Home, plane: &str, known: Known, role: &str) -> Result<(), Refusal> {
    match put(home, plane, known, inside::binding(role)).await {
        Ok(_) => Ok(()),
        Err(refusal) if refusal.code() == 422 => {
            let path = Home::object(plane, inside::RBAC, "clusterrolebindings", None, ADMIN);
            home.api.delete_any(&path).await.or_absent()?;
            put(home, plane, Known::New, inside::binding(role)).await.map(drop)
        }
        Err(refusal) => Err(refusal),
    }
}

//! What every control plane has inside for its administrator.

use mica_api::control_plane::{ADMIN, ADMIN_NAMESPACE};
use mica_machinery::kind::bootstrap::administrator;
pub use mica_machinery::kind::bootstrap::administrator::{RBAC, managed};
use serde_json::Value;

/// An object that is to be somewhere in a plane.
#[derive(Clone, PartialEq, Debug)]
pub struct Placed {
    pub api_version: &'static str,
    pub resource: &'static str,
    pub namespace: Option<&'static str>,
    pub name: &'static str,
    pub object: Value,
}

pub fn namespace() -> Placed {
    Placed {
        api_version: "v1",
        resource: "namespaces",
        namespace: None,
        name: ADMIN_NAMESPACE,
        object: administrator::namespace(),
    }
}

/// Who administers the plane.
pub fn account() -> Placed {
    Placed {
        api_version: "v1",
        resource: "serviceaccounts",
        namespace: Some(ADMIN_NAMESPACE),
        name: ADMIN,
        object: administrator::account(),
    }
}

/// What the administrator may do.
pub fn binding(role: &str) -> Placed {
    Placed {
        api_version: RBAC,
        resource: "clusterrolebindings",
        namespace: None,
        name: ADMIN,
        object: administrator::binding(role),
    }
}

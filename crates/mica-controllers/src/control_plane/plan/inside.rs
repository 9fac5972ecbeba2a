//! What every control plane has inside for its administrator.

use mica_api::control_plane::{ADMIN, ADMIN_NAMESPACE, MANAGED_LABEL};
use serde_json::{Value, json};

pub const RBAC: &str = "rbac.authorization.k8s.io/v1";
const RBAC_GROUP: &str = "rbac.authorization.k8s.io";

/// An object that is to be somewhere in a plane.
#[derive(Clone, PartialEq, Debug)]
pub struct Placed {
    pub api_version: &'static str,
    pub resource: &'static str,
    pub namespace: Option<&'static str>,
    pub name: &'static str,
    pub object: Value,
}

/// The labels of what the operator keeps in a plane.
pub fn managed() -> Value {
    json!({MANAGED_LABEL: "true"})
}

pub fn namespace() -> Placed {
    Placed {
        api_version: "v1",
        resource: "namespaces",
        namespace: None,
        name: ADMIN_NAMESPACE,
        object: json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": ADMIN_NAMESPACE, "labels": managed()}}),
    }
}

/// Who administers the plane.
pub fn account() -> Placed {
    Placed {
        api_version: "v1",
        resource: "serviceaccounts",
        namespace: Some(ADMIN_NAMESPACE),
        name: ADMIN,
        object: json!({"apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": ADMIN, "namespace": ADMIN_NAMESPACE, "labels": managed()}}),
    }
}

/// What the administrator may do.
pub fn binding(role: &str) -> Placed {
    Placed {
        api_version: RBAC,
        resource: "clusterrolebindings",
        namespace: None,
        name: ADMIN,
        object: json!({"apiVersion": RBAC, "kind": "ClusterRoleBinding",
            "metadata": {"name": ADMIN, "labels": managed()},
            "roleRef": {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": ADMIN, "namespace": ADMIN_NAMESPACE}]}),
    }
}

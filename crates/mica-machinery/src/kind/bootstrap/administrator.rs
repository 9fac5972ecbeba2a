//! What the plane of a ControlPlane has for its administrator: an account in a namespace of its own, and what it may do.

use mica_api::control_plane::{ADMIN, ADMIN_NAMESPACE, MANAGED_LABEL};
use serde_json::{Value, json};

/// The role of an administrator whose class says none.
pub const DEFAULT_ROLE: &str = "cluster-admin";

pub const RBAC: &str = "rbac.authorization.k8s.io/v1";
const RBAC_GROUP: &str = "rbac.authorization.k8s.io";

/// The labels of what the operator of control planes keeps in a plane.
pub fn managed() -> Value {
    json!({MANAGED_LABEL: "true"})
}

pub fn namespace() -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ADMIN_NAMESPACE, "labels": managed()}})
}

/// Who administers the plane.
pub fn account() -> Value {
    json!({"apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": ADMIN, "namespace": ADMIN_NAMESPACE, "labels": managed()}})
}

/// What the administrator may do.
pub fn binding(role: &str) -> Value {
    json!({"apiVersion": RBAC, "kind": "ClusterRoleBinding",
        "metadata": {"name": ADMIN, "labels": managed()},
        "roleRef": {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": ADMIN, "namespace": ADMIN_NAMESPACE}]})
}

//! What the operator may do on the cluster that holds its objects, and nothing more: as objects to be applied there.
//!
//! What it does on the server that control planes are made on is an administrator's. A test runs the operator with just these
//! roles, and sees that nothing is refused to it.

use mica_api::control_plane::{CLASSES, CONTROL_PLANES, ENDPOINTS, GROUP, REGISTRATIONS};
use serde_json::{Value, json};

/// The name of both roles.
pub const OPERATOR: &str = "mica-control-plane-operator";
/// Where the Lease is by which replicas agree.
pub const LEASE_NAMESPACE: &str = "kube-system";

/// A ClusterRole, and a Role for the Lease.
pub fn operator_roles() -> Vec<Value> {
    const LOOK: [&str; 3] = ["get", "list", "watch"];
    let with = |more: &[&'static str]| -> Vec<&str> { LOOK.iter().chain(more).copied().collect() };
    let ours = [CONTROL_PLANES, CLASSES, ENDPOINTS, REGISTRATIONS];
    let statuses: Vec<String> = ours.iter().map(|plural| format!("{plural}/status")).collect();
    let routes = ("gateway.networking.k8s.io", "httproutes");
    vec![
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": OPERATOR},
            "rules": [
                {"apiGroups": [GROUP], "resources": ours, "verbs": LOOK},
                // Its finalizer.
                {"apiGroups": [GROUP], "resources": [CONTROL_PLANES], "verbs": ["patch"]},
                {"apiGroups": [GROUP], "resources": statuses, "verbs": ["patch"]},
                // Where owners that block their deletion need it.
                {"apiGroups": [GROUP], "resources": [format!("{CONTROL_PLANES}/finalizers")], "verbs": ["update"]},
                {"apiGroups": [GROUP], "resources": [ENDPOINTS, REGISTRATIONS], "verbs": ["create", "patch", "delete"]},
                // Those of control planes have names that nobody knows beforehand, and registrations may name any Secret.
                {"apiGroups": [""], "resources": ["namespaces", "secrets"], "verbs": with(&["create", "patch", "delete"])},
                {"apiGroups": [""], "resources": ["configmaps"], "verbs": LOOK},
                {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]},
                {"apiGroups": [routes.0], "resources": [routes.1], "verbs": with(&["create", "patch"])},
                // What the cluster serves.
                {"apiGroups": ["apiextensions.k8s.io"], "resources": ["customresourcedefinitions"], "verbs": LOOK},
                {"apiGroups": ["apiregistration.k8s.io"], "resources": ["apiservices"], "verbs": LOOK},
            ],
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": {"name": OPERATOR, "namespace": LEASE_NAMESPACE},
            "rules": [{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "update"]}],
        }),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_roles_of_the_operator_have_no_star() {
        let text = json!(operator_roles()).to_string();
        assert!(!text.contains('*'), "{text}");
    }
}

//! `mica definitions`: what another cluster needs before our controllers serve it, as YAML to be applied.

use mica_api::control_plane::{self, CLASSES, CONTROL_PLANES, ENDPOINTS, GROUP, REGISTRATIONS};
use serde_json::{Value, json};

use crate::cli::Definitions;
use crate::output;

/// The role of the operator.
const OPERATOR: &str = "mica-control-plane-operator";

pub fn print(what: Definitions) -> anyhow::Result<()> {
    let all = match what {
        Definitions::ControlPlane => control_plane::definitions(),
        Definitions::ControlPlaneRoles => vec![operator()],
    };
    let documents: Vec<String> = all.iter().map(mica_machinery::yaml::from_json).collect();
    Ok(output::print(&documents.join("---\n"))?)
}

/// What the operator does on the cluster that holds its objects, and nothing more. What it does on the server that control
/// planes are made on is an administrator's.
fn operator() -> Value {
    let look = ["get", "list", "watch"];
    let with = |more: &[&str]| -> Vec<String> { look.iter().chain(more).map(|verb| (*verb).to_owned()).collect() };
    let ours = [CONTROL_PLANES, CLASSES, ENDPOINTS, REGISTRATIONS];
    let statuses: Vec<String> = ours.iter().map(|plural| format!("{plural}/status")).collect();
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": OPERATOR},
        "rules": [
            {"apiGroups": [GROUP], "resources": ours, "verbs": with(&["update", "patch"])},
            {"apiGroups": [GROUP], "resources": statuses, "verbs": ["get", "update", "patch"]},
            // Owners that block their deletion.
            {"apiGroups": [GROUP], "resources": [format!("{CONTROL_PLANES}/finalizers")], "verbs": ["update"]},
            {"apiGroups": [GROUP], "resources": [ENDPOINTS, REGISTRATIONS], "verbs": ["create", "delete"]},
            {"apiGroups": [""], "resources": ["namespaces", "secrets"], "verbs": with(&["create", "update", "patch", "delete"])},
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": look},
            {"apiGroups": ["", "events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch"]},
            {"apiGroups": ["gateway.networking.k8s.io"], "resources": ["httproutes"], "verbs": with(&["create", "update", "patch"])},
            {"apiGroups": ["apiextensions.k8s.io"], "resources": ["customresourcedefinitions"], "verbs": look},
            {"apiGroups": ["apiregistration.k8s.io"], "resources": ["apiservices"], "verbs": look},
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_role_of_the_operator_has_no_star() {
        let text = operator().to_string();
        assert!(!text.contains('*'), "{text}");
    }
}

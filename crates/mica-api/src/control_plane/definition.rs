//! The definitions that the kinds are served by, here and on any other cluster.
//!
//! What an object alone decides is said here. What takes a look at others (classes, endpoints, who has a path or a host) is
//! told by the operator in conditions, because it must also be told where the operator is a guest.

use serde_json::{Value, json};

use super::{CLASSES, CONTROL_PLANES, ENDPOINTS, GROUP, REGISTRATIONS, VERSION};
use crate::definition::{Kind, age_column, column, ready_column, reference, text, wide, with_conditions};

/// The path of a control plane: its own name if it says none.
const CLUSTER_PATH: &str = "(has(SELF.spec.virtual) && has(SELF.spec.virtual.clusterPath) ? SELF.spec.virtual.clusterPath : SELF.metadata.name)";
/// The longest URL.
const URL: u32 = 2048;

/// Every definition, as it can be applied.
pub fn definitions() -> Vec<Value> {
    vec![control_plane(), class(), endpoint(), registration()]
}

fn control_plane() -> Value {
    let path = |object: &str| CLUSTER_PATH.replace("SELF", object);
    Kind {
        group: GROUP,
        version: VERSION,
        kind: "ControlPlane",
        plural: CONTROL_PLANES,
        singular: "controlplane",
        scope: "Cluster",
        contexts: None,
        categories: &[],
        columns: json!([
            column("Mode", ".spec.mode"),
            wide(column("Endpoint", ".status.endpoint")),
            ready_column(),
            column("Phase", ".status.phase"),
            age_column(),
        ]),
        selectable: &[
            ".spec.classRef.name",
            ".spec.endpointRef.name",
            ".spec.virtual.clusterPath",
        ],
        spec: json!({"type": "object", "properties": {
            "classRef": optional_reference("What the control planes of a kind have in common."),
            "mode": one_of(&["Virtual", "Dedicated"], "Among others on a shared server, or on a server of its own.", Some("Virtual")),
            "endpointRef": reference("The ControlPlaneEndpoint that it is reached at."),
            "endpointPolicy": one_of(&["Template", "Reference"], "Whether endpoints come from the templates of the class, or from the ControlPlaneEndpoint that is named.", None),
            "deletionPolicy": deletion_policy(),
            "virtual": {"type": "object", "properties": {
                "clusterPath": {"type": "string", "maxLength": 63, "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
                    "description": "The name of its plane, for ever; the ControlPlane's own name if it says none."},
            }},
            "dedicated": {"type": "object", "properties": {
                "providerRef": typed_reference("Who runs its server: kind Process or Etcd."),
                "parametersRef": typed_reference("A ConfigMap or Secret of the management namespace with what the provider is to know."),
                "version": {"type": "string", "maxLength": 128, "description": "Which of the binaries that the provider knows."},
            }},
        }}),
        status: with_conditions(json!({
            "endpoint": text("Where it is reached from inside."),
            "endpoints": {"type": "array", "items": {"type": "object", "required": ["type", "url"], "properties": {
                "type": one_of(&["Internal", "External", "Join"], "Whom the address is for.", None),
                "url": {"type": "string"},
            }}, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
            "kubeconfigSecretRef": secret_reference("The Secret with its kubeconfigs."),
            "phase": one_of(&["Provisioning", "Ready", "Migrating", "Failed"], "All conditions in a word.", None),
            "migration": migration(),
            "version": text("What its server runs."),
            "observedGeneration": {"type": "integer", "format": "int64"},
        })),
        required: &["spec"],
        rules: Some(json!([{"rule": format!("{} == {}", path("self"), path("oldSelf")),
            "message": "spec.virtual.clusterPath is immutable: it names the data"}])),
    }
    .definition()
}

fn migration() -> Value {
    let mode = |description: &str| one_of(&["Virtual", "Dedicated"], description, None);
    json!({"type": "object", "required": ["step", "from", "to", "startedAt"], "properties": {
        "step": one_of(
            &["Provisioning", "Copying", "CatchingUp", "Switching", "Draining", "Decommissioning", "Completed", "Cancelled"],
            "How far it is.",
            None,
        ),
        "from": mode("Where it was."),
        "to": mode("Where it goes."),
        "startedAt": {"type": "string", "format": "date-time"},
        "stepStartedAt": {"type": "string", "format": "date-time"},
        "completedAt": {"type": "string", "format": "date-time"},
        "message": {"type": "string", "maxLength": 32768},
    }})
}

fn class() -> Value {
    let templates = |description: &str| json!({"type": "string", "maxLength": URL, "description": description});
    Kind {
        group: GROUP,
        version: VERSION,
        kind: "ControlPlaneClass",
        plural: CLASSES,
        singular: "controlplaneclass",
        scope: "Cluster",
        contexts: None,
        categories: &[],
        columns: json!([age_column()]),
        selectable: &[],
        spec: json!({"type": "object", "properties": {
            "addons": {"type": "array", "maxItems": 64, "items": {"type": "string", "maxLength": 253},
                "description": "Bundles of manifests that every control plane of the class has."},
            "deletionPolicy": deletion_policy(),
            "auth": {"type": "object", "properties": {
                "model": {"type": "string", "maxLength": 63,
                    "description": "How the administrator is let in: basic (or v0), by the token of a service account; others are refused."},
                "defaultRole": {"type": "string", "maxLength": 253,
                    "description": "The ClusterRole of a control plane's administrator; cluster-admin if it says none."},
            }},
            "modesAllowed": {"type": "array", "maxItems": 2,
                "items": one_of(&["Virtual", "Dedicated"], "A mode that its control planes may have; any if none is named.", None)},
            "endpoints": {"type": "object", "description": "URLs with {name}, {clusterPath} and {server} to be filled in.", "properties": {
                "internal": templates("For what runs near the server."),
                "external": templates("For everybody else."),
                "join": templates("For nodes."),
            }},
            "gateway": {"type": "object", "required": ["parentRef", "hostnameTemplate"], "properties": {
                "parentRef": secret_reference("The Gateway that routes belong to."),
                "hostnameTemplate": {"type": "string", "minLength": 1, "maxLength": 253,
                    "description": "The host of a control plane; {{.Name}} stands for its name."},
                "apiServerRef": {"type": "object", "properties": {
                    "name": {"type": "string"}, "namespace": {"type": "string"}, "port": {"type": "integer", "format": "int32"},
                }},
            }},
            "services": services("Services that every control plane of the class is registered for."),
            "planeClass": {"type": "string", "maxLength": 63, "description": "The PlaneClass of virtual control planes."},
            "profile": one_of(&["Generic", "Kubernetes"], "Which kinds its control planes are born with.", None),
            "limits": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                "description": "As spec.limits of a Plane."},
        }}),
        status: with_conditions(json!({"observedGeneration": {"type": "integer", "format": "int64"}})),
        required: &[],
        rules: None,
    }
    .definition()
}

fn endpoint() -> Value {
    let url = |description: &str| json!({"type": "string", "maxLength": URL, "description": description});
    let urls = || {
        json!({
            "endpoint": url("For what runs near the server."),
            "externalEndpoint": url("For everybody else; the one above if it says none."),
            "joinEndpoint": url("For nodes; the external one if it says none."),
        })
    };
    let mut observed = urls();
    observed["observedGeneration"] = json!({"type": "integer", "format": "int64"});
    Kind {
        group: GROUP,
        version: VERSION,
        kind: "ControlPlaneEndpoint",
        plural: ENDPOINTS,
        singular: "controlplaneendpoint",
        scope: "Cluster",
        contexts: None,
        categories: &[],
        columns: json!([
            wide(column("Endpoint", ".status.endpoint")),
            ready_column(),
            age_column()
        ]),
        selectable: &[],
        spec: json!({"type": "object", "properties": urls()}),
        status: with_conditions(observed),
        required: &[],
        rules: None,
    }
    .definition()
}

fn registration() -> Value {
    Kind {
        group: GROUP,
        version: VERSION,
        kind: "ControlPlaneRegistration",
        plural: REGISTRATIONS,
        singular: "controlplaneregistration",
        scope: "Cluster",
        contexts: None,
        categories: &[],
        columns: json!([
            wide(column("Endpoint", ".status.resolvedEndpoint")),
            {"name": "Ready", "type": "boolean", "jsonPath": ".status.ready"},
            age_column(),
        ]),
        selectable: &[".spec.controlPlaneRef.name", ".spec.endpointRef.name"],
        spec: json!({"type": "object", "required": ["controlPlaneRef"], "properties": {
            "controlPlaneRef": optional_reference("The control plane that services are to serve."),
            "endpointRef": reference("Another endpoint than the control plane's own."),
            "kubeconfigSecretRef": secret_reference("Another kubeconfig than the control plane's own."),
            "services": services("Who is to serve it."),
            "mode": one_of(&["Shared", "Dedicated"], "Whether one process may serve it together with others.", None),
        }}),
        status: with_conditions(json!({
            "ready": {"type": "boolean"},
            "resolvedEndpoint": text("Where it is reached."),
            "resolvedKubeconfigSecretRef": secret_reference("By what it is reached."),
            "observedGeneration": {"type": "integer", "format": "int64"},
        })),
        required: &["spec"],
        rules: None,
    }
    .definition()
}

fn one_of(values: &[&str], description: &str, default: Option<&str>) -> Value {
    let mut schema = json!({"type": "string", "enum": values, "description": description});
    if let Some(default) = default {
        schema["default"] = default.into();
    }
    schema
}

fn deletion_policy() -> Value {
    one_of(
        &["Retain", "Destroy"],
        "What happens to the data of a control plane that is deleted.",
        None,
    )
}

fn services(description: &str) -> Value {
    json!({"type": "array", "maxItems": 64, "description": description, "x-kubernetes-list-type": "set",
        "items": {"type": "string", "maxLength": 63, "pattern": "^[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?$"}})
}

/// A reference whose name may be empty, which is none.
fn optional_reference(description: &str) -> Value {
    json!({"type": "object", "description": description, "x-kubernetes-map-type": "atomic",
        "properties": {"name": {"type": "string", "default": "", "maxLength": 253}}})
}

fn typed_reference(description: &str) -> Value {
    json!({"type": "object", "description": description, "required": ["kind", "name"], "x-kubernetes-map-type": "atomic",
        "properties": {"apiGroup": {"type": "string"}, "kind": {"type": "string"}, "name": {"type": "string"}}})
}

fn secret_reference(description: &str) -> Value {
    json!({"type": "object", "description": description, "x-kubernetes-map-type": "atomic",
        "properties": {"name": {"type": "string"}, "namespace": {"type": "string"}}})
}

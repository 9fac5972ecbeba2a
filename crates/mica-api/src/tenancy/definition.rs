//! The definitions that root serves the kinds by.
//!
//! What can be said in a schema is said here; what takes a look at other objects is the server's admission.

use serde_json::{Value, json};

use super::{
    CONTEXTS_ANNOTATION, GROUP, INFRASTRUCTURE_GROUP, MEMBERSHIPS, ORGANIZATIONS, PROJECT_CONTROL_PLANES, PROJECTS,
    SUSPENSIONS, VERSION,
};

/// When conditions that nobody has set changed last.
const NEVER: &str = "1970-01-01T00:00:00Z";

/// Every definition, as it is installed in root.
pub fn definitions() -> Vec<Value> {
    vec![
        organization(),
        membership(),
        project(),
        suspension(),
        project_control_plane(),
    ]
}

/// What tells one definition from another.
struct Kind {
    group: &'static str,
    kind: &'static str,
    plural: &'static str,
    singular: &'static str,
    scope: &'static str,
    contexts: &'static str,
    categories: &'static [&'static str],
    columns: Value,
    selectable: &'static [&'static str],
    spec: Value,
    status: Value,
    required: &'static [&'static str],
}

impl Kind {
    fn definition(self) -> Value {
        let mut names = json!({"kind": self.kind, "listKind": format!("{}List", self.kind), "plural": self.plural,
            "singular": self.singular});
        if !self.categories.is_empty() {
            names["categories"] = json!(self.categories);
        }
        let mut schema = json!({"type": "object", "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": self.spec,
            "status": self.status,
        }});
        if !self.required.is_empty() {
            schema["required"] = json!(self.required);
        }
        let mut version = json!({"name": VERSION, "served": true, "storage": true, "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": schema}});
        if self.columns.as_array().is_some_and(|columns| !columns.is_empty()) {
            version["additionalPrinterColumns"] = self.columns;
        }
        if !self.selectable.is_empty() {
            let fields: Vec<Value> = self.selectable.iter().map(|path| json!({"jsonPath": path})).collect();
            version["selectableFields"] = fields.into();
        }
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {
                "name": format!("{}.{}", self.plural, self.group),
                "annotations": {CONTEXTS_ANNOTATION: self.contexts},
                "labels": {"app.kubernetes.io/managed-by": "mica"},
            },
            "spec": {"group": self.group, "scope": self.scope, "names": names, "versions": [version]},
        })
    }
}

fn organization() -> Value {
    let mut kind = text("Whether it is one person's or a company's.");
    kind["enum"] = json!(["Personal", "Standard"]);
    kind["default"] = "Standard".into();
    immutable(&mut kind, "organization type is immutable");
    Kind {
        group: GROUP,
        kind: "Organization",
        plural: ORGANIZATIONS,
        singular: "organization",
        scope: "Cluster",
        contexts: "Platform",
        categories: &["datum"],
        columns: json!([
            column("Display Name", DISPLAY_NAME),
            column("Type", ".spec.type"),
            ready_column(),
            age_column(),
        ]),
        selectable: &[],
        spec: json!({"type": "object", "default": {}, "properties": {"type": kind, "contactInfo": contact_info()}}),
        status: status(json!({"observedGeneration": {"type": "integer", "format": "int64"}})),
        required: &[],
    }
    .definition()
}

fn contact_info() -> Value {
    json!({"type": "object", "description": "Whom to write to about the organization.", "required": ["email", "name"],
    "properties": {
        "email": {"type": "string", "minLength": 1, "maxLength": 320},
        "name": {"type": "string", "minLength": 1, "maxLength": 256},
        "businessName": {"type": "string", "maxLength": 256},
        "address": {"type": "object", "properties": {
            "country": {"type": "string", "pattern": "^[A-Z]{2}$"},
            "line1": {"type": "string", "maxLength": 256},
            "line2": {"type": "string", "maxLength": 256},
            "city": {"type": "string", "maxLength": 256},
            "region": {"type": "string", "maxLength": 256},
            "postalCode": {"type": "string", "maxLength": 64},
        }},
    }})
}

fn membership() -> Value {
    let mut organization = reference("The organization that the user is a member of.");
    immutable(&mut organization, "organizationRef is immutable");
    let mut user = reference("The member.");
    immutable(&mut user, "userRef is immutable");
    let role = json!({"type": "object", "required": ["name"], "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 253},
        "namespace": {"type": "string", "maxLength": 63},
    }});
    let mut applied = role.clone();
    applied["required"] = json!(["name", "status"]);
    for (name, schema) in [
        (
            "status",
            json!({"type": "string", "enum": ["Applied", "Pending", "Failed"]}),
        ),
        ("message", json!({"type": "string"})),
        ("appliedAt", json!({"type": "string", "format": "date-time"})),
        (
            "policyBindingRef",
            json!({"type": "object", "properties": {"name": {"type": "string"}, "namespace": {"type": "string"}}}),
        ),
    ] {
        applied["properties"][name] = schema;
    }
    let words = |names: &[&str]| {
        let properties: serde_json::Map<String, Value> = names
            .iter()
            .map(|name| ((*name).to_owned(), json!({"type": "string"})))
            .collect();
        json!({"type": "object", "properties": properties})
    };
    Kind {
        group: GROUP,
        kind: "OrganizationMembership",
        plural: MEMBERSHIPS,
        singular: "organizationmembership",
        scope: "Namespaced",
        contexts: "Organization,User",
        categories: &[],
        columns: json!([
            column("Organization", ".spec.organizationRef.name"),
            column("Organization Type", ".status.organization.type"),
            column("Organization Display Name", ".status.organization.displayName"),
            column("User", ".spec.userRef.name"),
            wide(column("User Email", ".status.user.email")),
            wide(column("User Given Name", ".status.user.givenName")),
            wide(column("User Family Name", ".status.user.familyName")),
            ready_column(),
            age_column(),
        ]),
        selectable: &[".spec.userRef.name", ".spec.organizationRef.name"],
        spec: json!({"type": "object", "required": ["organizationRef", "userRef"], "properties": {
            "organizationRef": organization,
            "userRef": user,
            "roles": {"type": "array", "maxItems": 64, "items": role,
                "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        }}),
        status: status(json!({
            "observedGeneration": {"type": "integer", "format": "int64"},
            "user": words(&["email", "givenName", "familyName", "avatarUrl"]),
            "organization": words(&["type", "displayName"]),
            "appliedRoles": {"type": "array", "items": applied,
                "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        })),
        required: &["spec"],
    }
    .definition()
}

fn project() -> Value {
    let mut owner = json!({"type": "object", "description": "The organization that the project belongs to.",
    "required": ["kind", "name"], "properties": {
        "kind": {"type": "string", "enum": ["Organization"]},
        "name": {"type": "string", "minLength": 1, "maxLength": 63},
    }});
    immutable(&mut owner, "ownerRef is immutable");
    Kind {
        group: GROUP,
        kind: "Project",
        plural: PROJECTS,
        singular: "project",
        scope: "Cluster",
        contexts: "Organization",
        categories: &[],
        columns: json!([ready_column(), age_column()]),
        selectable: &[],
        spec: json!({"type": "object", "required": ["ownerRef"], "properties": {"ownerRef": owner}}),
        status: status(
            json!({"suspensions": {"type": "array", "x-kubernetes-list-type": "atomic", "items": {
                "type": "object",
                "required": ["reason", "suspendedAt", "reinstateAuthority"],
                "properties": {
                    "reason": {"type": "string"},
                    "suspendedAt": {"type": "string", "format": "date-time"},
                    "reinstateAuthority": {"type": "string"},
                },
            }}}),
        ),
        required: &["spec"],
    }
    .definition()
}

fn suspension() -> Value {
    let fixed = |mut schema: Value, name: &str| {
        immutable(&mut schema, &format!("{name} is immutable"));
        schema
    };
    let one_of = |values: &[&str]| json!({"type": "string", "enum": values});
    Kind {
        group: GROUP,
        kind: "ProjectSuspension",
        plural: SUSPENSIONS,
        singular: "projectsuspension",
        scope: "Cluster",
        contexts: "Platform",
        categories: &[],
        columns: json!([
            column("Project", ".spec.projectRef.name"),
            column("Reason", ".spec.reason"),
            column("Phase", ".status.phase"),
            age_column(),
        ]),
        selectable: &[".spec.projectRef.name"],
        spec: json!({"type": "object", "required": ["projectRef", "reason", "reinstateAuthority"],
        "x-kubernetes-validations": [{
            "rule": "has(self.requestedBy) == has(oldSelf.requestedBy)",
            "message": "requestedBy is immutable",
        }],
        "properties": {
            "projectRef": fixed(reference("The project that is suspended."), "projectRef"),
            "reason": fixed(one_of(&["Abuse", "Billing", "Compliance", "Administrative"]), "reason"),
            "reinstateAuthority": fixed(one_of(&["Operator", "Consumer"]), "reinstateAuthority"),
            "requestedBy": fixed(json!({"type": "string", "maxLength": 256}), "requestedBy"),
            "description": {"type": "string", "maxLength": 1024},
        }}),
        status: json!({"type": "object", "properties": {"phase": {"type": "string", "enum": ["Active", "Lifted"]}}}),
        required: &["spec"],
    }
    .definition()
}

fn project_control_plane() -> Value {
    let mut status = status(json!({}));
    let creating = json!([{"type": "ControlPlaneReady", "status": "False", "reason": "Creating",
        "message": "Creating a new control plane for the project", "lastTransitionTime": NEVER}]);
    status["default"] = json!({"conditions": creating});
    status["properties"]["conditions"]["default"] = creating;
    Kind {
        group: INFRASTRUCTURE_GROUP,
        kind: "ProjectControlPlane",
        plural: PROJECT_CONTROL_PLANES,
        singular: "projectcontrolplane",
        scope: "Cluster",
        contexts: "Platform",
        categories: &[],
        columns: json!([]),
        selectable: &[],
        spec: json!({"type": "object"}),
        status,
        required: &["spec"],
    }
    .definition()
}

const DISPLAY_NAME: &str = r".metadata.annotations.kubernetes\.io/display-name";

fn column(name: &str, path: &str) -> Value {
    json!({"name": name, "type": "string", "jsonPath": path})
}

fn wide(mut column: Value) -> Value {
    column["priority"] = 1.into();
    column
}

fn ready_column() -> Value {
    column("Ready", r#".status.conditions[?(@.type=="Ready")].status"#)
}

fn age_column() -> Value {
    json!({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"})
}

fn text(description: &str) -> Value {
    json!({"type": "string", "description": description})
}

fn reference(description: &str) -> Value {
    json!({"type": "object", "description": description, "required": ["name"],
        "properties": {"name": {"type": "string", "minLength": 1, "maxLength": 253}}})
}

fn immutable(schema: &mut Value, message: &str) {
    schema["x-kubernetes-validations"] = json!([{"rule": "self == oldSelf", "message": message}]);
}

/// A status with conditions: a fresh object already has one, which says that nothing is known yet.
fn status(more: Value) -> Value {
    let unknown = json!([{"type": "Ready", "status": "Unknown", "reason": "Unknown",
        "message": "Waiting for control plane to reconcile", "lastTransitionTime": NEVER}]);
    let mut status = json!({"type": "object", "default": {"conditions": unknown}, "properties": more});
    status["properties"]["conditions"] = json!({
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "default": unknown,
        "items": {
            "type": "object",
            "required": ["lastTransitionTime", "message", "reason", "status", "type"],
            "properties": {
                "type": {"type": "string", "maxLength": 316},
                "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
                "reason": {"type": "string", "minLength": 1, "maxLength": 1024},
                "message": {"type": "string", "maxLength": 32768},
                "lastTransitionTime": {"type": "string", "format": "date-time"},
                "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0},
            },
        },
    });
    status
}

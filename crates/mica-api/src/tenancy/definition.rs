//! The definitions that root serves the kinds by.
//!
//! What can be said in a schema is said here; what takes a look at other objects is the server's admission.

use serde_json::{Value, json};

use crate::definition::{Kind, age_column, column, immutable, ready_column, reference, text, wide, with_conditions};

use super::{
    GROUP, INFRASTRUCTURE_GROUP, MEMBERSHIPS, ORGANIZATIONS, PROJECT_CONTROL_PLANES, PROJECTS, SUSPENSIONS, VERSION,
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

fn organization() -> Value {
    let mut kind = text("Whether it is one person's or a company's.");
    kind["enum"] = json!(["Personal", "Standard"]);
    kind["default"] = "Standard".into();
    immutable(&mut kind, "organization type is immutable");
    Kind {
        group: GROUP,
        version: VERSION,
        kind: "Organization",
        plural: ORGANIZATIONS,
        singular: "organization",
        scope: "Cluster",
        contexts: Some("Platform"),
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
        rules: None,
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
        version: VERSION,
        kind: "OrganizationMembership",
        plural: MEMBERSHIPS,
        singular: "organizationmembership",
        scope: "Namespaced",
        contexts: Some("Organization,User"),
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
        rules: None,
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
        version: VERSION,
        kind: "Project",
        plural: PROJECTS,
        singular: "project",
        scope: "Cluster",
        contexts: Some("Organization"),
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
        rules: None,
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
        version: VERSION,
        kind: "ProjectSuspension",
        plural: SUSPENSIONS,
        singular: "projectsuspension",
        scope: "Cluster",
        contexts: Some("Platform"),
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
        rules: None,
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
        version: VERSION,
        kind: "ProjectControlPlane",
        plural: PROJECT_CONTROL_PLANES,
        singular: "projectcontrolplane",
        scope: "Cluster",
        contexts: Some("Platform"),
        categories: &[],
        columns: json!([]),
        selectable: &[],
        spec: json!({"type": "object"}),
        status,
        required: &["spec"],
        rules: None,
    }
    .definition()
}

const DISPLAY_NAME: &str = r".metadata.annotations.kubernetes\.io/display-name";

/// A status with conditions: a fresh object already has one, which says that nothing is known yet.
fn status(more: Value) -> Value {
    let unknown = json!([{"type": "Ready", "status": "Unknown", "reason": "Unknown",
        "message": "Waiting for control plane to reconcile", "lastTransitionTime": NEVER}]);
    let mut status = with_conditions(more);
    status["default"] = json!({"conditions": unknown});
    status["properties"]["conditions"]["default"] = unknown;
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scope, contexts, columns (those that are only shown when asked for in brackets) and selectable fields of a definition.
    fn brief(definition: &Value) -> String {
        let spec = &definition["spec"];
        let version = &spec["versions"][0];
        let list = |value: &Value, show: fn(&Value) -> String| {
            let all = value.as_array().map_or(&[][..], Vec::as_slice);
            all.iter().map(show).collect::<Vec<_>>().join(", ")
        };
        let columns = list(&version["additionalPrinterColumns"], |column| {
            let name = column["name"].as_str().unwrap_or_default();
            match column["priority"].as_i64() {
                Some(1..) => format!("({name})"),
                _ => name.to_owned(),
            }
        });
        let fields = list(&version["selectableFields"], |field| {
            field["jsonPath"].as_str().unwrap_or_default().to_owned()
        });
        let contexts = &definition["metadata"]["annotations"]["discovery.miloapis.com/parent-contexts"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        [
            text(&spec["names"]["kind"]),
            text(&spec["scope"]),
            text(contexts),
            columns,
            fields,
        ]
        .join(" | ")
    }

    #[test]
    fn kinds_are_shown_selected_and_served_where_milos_are() {
        let briefs: Vec<String> = definitions().iter().map(brief).collect();
        assert_eq!(
            briefs,
            [
                "Organization | Cluster | Platform | Display Name, Type, Ready, Age | ",
                "OrganizationMembership | Namespaced | Organization,User | Organization, Organization Type, \
                 Organization Display Name, User, (User Email), (User Given Name), (User Family Name), Ready, Age | \
                 .spec.userRef.name, .spec.organizationRef.name",
                "Project | Cluster | Organization | Ready, Age | ",
                "ProjectSuspension | Cluster | Platform | Project, Reason, Phase, Age | .spec.projectRef.name",
                "ProjectControlPlane | Cluster | Platform |  | ",
            ]
        );
        let version = |definition: &Value| definition["spec"]["versions"][0].clone();
        assert!(
            definitions()
                .iter()
                .all(|definition| version(definition)["subresources"]["status"].is_object())
        );
    }
}

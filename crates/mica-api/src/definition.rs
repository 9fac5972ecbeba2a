//! What definitions of our own kinds are made of.

use serde_json::{Value, json};

use crate::tenancy::CONTEXTS_ANNOTATION;

/// What tells one definition from another.
pub struct Kind {
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
    pub singular: &'static str,
    pub scope: &'static str,
    /// Where it is shown beside root.
    pub contexts: Option<&'static str>,
    pub categories: &'static [&'static str],
    pub columns: Value,
    pub selectable: &'static [&'static str],
    pub spec: Value,
    pub status: Value,
    pub required: &'static [&'static str],
    /// Rules about the whole object.
    pub rules: Option<Value>,
}

impl Kind {
    pub fn definition(self) -> Value {
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
        let mut version = json!({"name": self.version, "served": true, "storage": true, "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": schema}});
        if self.columns.as_array().is_some_and(|columns| !columns.is_empty()) {
            version["additionalPrinterColumns"] = self.columns;
        }
        if !self.selectable.is_empty() {
            let fields: Vec<Value> = self.selectable.iter().map(|path| json!({"jsonPath": path})).collect();
            version["selectableFields"] = fields.into();
        }
        let mut definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {
                "name": format!("{}.{}", self.plural, self.group),
                "labels": {"app.kubernetes.io/managed-by": "mica"},
            },
            "spec": {"group": self.group, "scope": self.scope, "names": names, "versions": [version]},
        });
        if let Some(contexts) = self.contexts {
            definition["metadata"]["annotations"] = json!({CONTEXTS_ANNOTATION: contexts});
        }
        if let Some(rules) = self.rules {
            definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["x-kubernetes-validations"] = rules;
        }
        definition
    }
}

pub fn column(name: &str, path: &str) -> Value {
    json!({"name": name, "type": "string", "jsonPath": path})
}

pub fn wide(mut column: Value) -> Value {
    column["priority"] = 1.into();
    column
}

pub fn ready_column() -> Value {
    column("Ready", r#".status.conditions[?(@.type=="Ready")].status"#)
}

pub fn age_column() -> Value {
    json!({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"})
}

pub fn text(description: &str) -> Value {
    json!({"type": "string", "description": description})
}

pub fn reference(description: &str) -> Value {
    json!({"type": "object", "description": description, "required": ["name"],
        "properties": {"name": {"type": "string", "minLength": 1, "maxLength": 253}}})
}

pub fn immutable(schema: &mut Value, message: &str) {
    schema["x-kubernetes-validations"] = json!([{"rule": "self == oldSelf", "message": message}]);
}

/// A status with conditions.
pub fn with_conditions(more: Value) -> Value {
    let mut status = json!({"type": "object", "properties": more});
    status["properties"]["conditions"] = json!({
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
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

//! Manifests of an addon, read and put into the order in which they are applied. Pure.

use mica_api::control_plane::{ADMIN_NAMESPACE, MANAGED_LABEL};
use mica_machinery::yaml;
use serde_json::{Value, json};

/// Objects that one addon may have: what is applied to every control plane of a class has to stay small.
const MOST_OBJECTS: usize = 1000;

/// An object of an addon.
#[derive(Clone, PartialEq, Debug)]
pub struct Manifest {
    pub object: Value,
}

/// What is wrong with an addon's manifests.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadManifest {
    #[error("{file}: {problem}")]
    Unreadable { file: String, problem: String },
    #[error("{file}: an object has no {field}")]
    Incomplete { file: String, field: &'static str },
    #[error("it has more than {MOST_OBJECTS} objects")]
    TooMany,
}

impl Manifest {
    fn new(file: &str, mut object: Value) -> Result<Self, BadManifest> {
        for (field, pointer) in [
            ("apiVersion", "/apiVersion"),
            ("kind", "/kind"),
            ("metadata.name", "/metadata/name"),
        ] {
            let said = object.pointer(pointer).and_then(Value::as_str);
            if said.unwrap_or_default().is_empty() {
                return Err(BadManifest::Incomplete {
                    file: file.to_owned(),
                    field,
                });
            }
        }
        if !object["metadata"]["labels"].is_object() {
            object["metadata"]["labels"] = json!({});
        }
        object["metadata"]["labels"][MANAGED_LABEL] = "true".into();
        Ok(Self { object })
    }

    pub fn text(&self, pointer: &str) -> &str {
        self.object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    pub fn kind(&self) -> &str {
        self.text("/kind")
    }

    /// Definitions first, then what holds others, then who may do what, then everything else.
    fn rank(&self) -> u8 {
        match self.kind() {
            "CustomResourceDefinition" => 0,
            "Namespace" => 1,
            "PriorityClass" | "ResourceQuota" | "LimitRange" => 2,
            "ServiceAccount" | "ClusterRole" | "ClusterRoleBinding" | "Role" | "RoleBinding" => 3,
            "ConfigMap" | "Secret" => 4,
            _ => 5,
        }
    }
}

/// Reads the files of an addon: YAML of one or many documents, or JSON.
pub fn read<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Vec<Manifest>, BadManifest> {
    let mut all = Vec::new();
    for (file, text) in files {
        for document in documents(text) {
            let unreadable = |problem: String| BadManifest::Unreadable {
                file: file.to_owned(),
                problem,
            };
            let json = yaml::to_json(document.as_bytes()).map_err(|error| unreadable(error.to_string()))?;
            let value: Value = serde_json::from_slice(&json.json).map_err(|error| unreadable(error.to_string()))?;
            match value {
                Value::Null => {}
                list if list["items"].is_array() && list["metadata"]["name"].is_null() => {
                    for item in list["items"].as_array().into_iter().flatten() {
                        all.push(Manifest::new(file, item.clone())?);
                    }
                }
                object => all.push(Manifest::new(file, object)?),
            }
            if all.len() > MOST_OBJECTS {
                return Err(BadManifest::TooMany);
            }
        }
    }
    Ok(all)
}

/// In the order in which they are applied; those of one rank stay as they were.
pub fn ordered(mut manifests: Vec<Manifest>) -> Vec<Manifest> {
    manifests.sort_by_key(Manifest::rank);
    manifests
}

/// The documents of a file, at lines that begin with three dashes.
fn documents(text: &str) -> impl Iterator<Item = String> {
    let mut all = vec![String::new()];
    for line in text.lines() {
        if line == "---" || line.starts_with("--- ") {
            all.push(String::new());
        } else if let Some(last) = all.last_mut() {
            last.push_str(line);
            last.push('\n');
        }
    }
    all.into_iter()
}

/// The addon that is always there.
pub const STARTER: &str = "starter";

/// The manifests of an addon that is built in.
pub fn built_in(name: &str) -> Option<Vec<Manifest>> {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ADMIN_NAMESPACE}});
    (name == STARTER).then(|| Manifest::new(STARTER, namespace).into_iter().collect())
}

/// Our own manifests, which need no file.
pub fn own(objects: Vec<Value>) -> Vec<Manifest> {
    let manifests = objects.into_iter().map(|object| Manifest::new("", object));
    manifests.filter_map(Result::ok).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_and_namespaces_come_before_what_needs_them() {
        let text = "kind: Widget\napiVersion: example.com/v1\nmetadata: {name: w}\n---\n# nothing\n---\napiVersion: v1\nkind: List\nitems:\n\
            - {apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: ns}}\n- {apiVersion: v1, kind: Namespace, metadata: {name: ns}}\n";
        let definition = r#"{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "widgets.example.com"}}"#;
        let read = read([("a.yaml", text), ("b.json", definition)]).expect("they are good");
        let ordered = ordered(read);
        let kinds: Vec<&str> = ordered.iter().map(Manifest::kind).collect();
        assert_eq!(kinds, ["CustomResourceDefinition", "Namespace", "ConfigMap", "Widget"]);
        assert!(
            ordered
                .iter()
                .all(|one| one.object["metadata"]["labels"][MANAGED_LABEL] == "true")
        );
    }

    #[test]
    fn what_cannot_be_applied_is_named() {
        let bad = |text: &str| read([("f.yaml", text)]).expect_err("it is bad").to_string();
        assert_eq!(
            bad("apiVersion: v1\nkind: ConfigMap\n"),
            "f.yaml: an object has no metadata.name"
        );
        assert_eq!(bad("metadata: {name: x}\n"), "f.yaml: an object has no apiVersion");
        assert!(bad("a: b: c").starts_with("f.yaml: yaml: "));
        assert!(built_in(STARTER).is_some() && built_in("other").is_none());
    }
}

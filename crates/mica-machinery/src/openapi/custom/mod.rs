//! OpenAPI of custom resources: what `/openapi/v3` and `/openapi/v2` say about the kinds of a definition.
//!
//! Upstream makes these by rules of their own (`apiextensions-apiserver/pkg/controller/openapi/builder`), so that they differ
//! from what built-in kinds get: no watch paths, no strategic merge, other media types, and a scale that says it is the
//! custom kind. A group and version has one OpenAPI 3.0 document, whoever defined its kinds; the Swagger document is the
//! built-in one with paths and definitions added.

mod operation;
mod publish;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::Describe;
use super::document::{define, types_of};
use super::operation::PathItem;
use super::schema::{self, Dialect};
use super::write::{GVK, Shared, path_of, swagger_path};
use crate::facts::facts;
use crate::kind::Scope;

/// One version of a custom resource, as far as its documents are concerned.
#[derive(Clone, PartialEq, Debug)]
pub struct CustomResource {
    pub group: String,
    pub version: String,
    pub kind: String,
    pub list_kind: String,
    pub plural: String,
    pub scope: Scope,
    /// Whether there is a `/status`.
    pub status: bool,
    /// Whether there is a `/scale`.
    pub scale: bool,
    /// Paths of selectable fields, without the leading dot.
    pub selectable: Vec<String>,
    /// `openAPIV3Schema` as it was stored.
    pub schema: Option<Arc<Value>>,
    /// Whether the whole definition is of the kind that keeps unknown fields.
    pub preserves_unknown: bool,
}

/// What tells one resource's documents from another's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContentHash([u8; 32]);

impl fmt::Debug for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl ContentHash {
    /// The hash of several things in that order.
    pub fn of(parts: impl IntoIterator<Item = ContentHash>) -> Self {
        let mut hasher = Sha256::new();
        parts.into_iter().for_each(|part| hasher.update(part.0));
        Self(hasher.finalize().into())
    }

    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl CustomResource {
    /// The served versions of a CustomResourceDefinition, in its order.
    pub fn served_by(definition: &Value) -> Vec<Self> {
        let versions = definition["spec"]["versions"].as_array().into_iter().flatten();
        versions
            .filter(|version| version["served"] == true)
            .map(|version| Self::new(definition, version))
            .collect()
    }

    /// One entry of a definition's `spec.versions`.
    pub fn new(definition: &Value, version: &Value) -> Self {
        let spec = &definition["spec"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let selectable = version["selectableFields"].as_array().into_iter().flatten();
        let subresource = |name: &str| !version["subresources"][name].is_null();
        Self {
            group: text(&spec["group"]),
            version: text(&version["name"]),
            kind: text(&spec["names"]["kind"]),
            list_kind: text(&spec["names"]["listKind"]),
            plural: text(&spec["names"]["plural"]),
            scope: if spec["scope"] == "Namespaced" {
                Scope::Namespaced
            } else {
                Scope::Cluster
            },
            status: subresource("status"),
            scale: subresource("scale"),
            selectable: selectable
                .filter_map(|field| field["jsonPath"].as_str())
                .map(|path| path.strip_prefix('.').unwrap_or(path).to_owned())
                .collect(),
            schema: Some(&version["schema"]["openAPIV3Schema"])
                .filter(|schema| schema.is_object())
                .map(|schema| Arc::new(schema.clone())),
            preserves_unknown: spec["preserveUnknownFields"] == true,
        }
    }

    /// What to share documents by. Computing it reads the whole schema, so callers keep it.
    pub fn content_hash(&self) -> ContentHash {
        let about = json!([
            self.group,
            self.version,
            self.kind,
            self.list_kind,
            self.plural,
            self.scope == Scope::Namespaced,
            self.status,
            self.scale,
            self.selectable,
            self.preserves_unknown,
        ]);
        let mut hasher = Sha256::new();
        hasher.update(about.to_string());
        if let Some(schema) = &self.schema {
            hasher.update(schema.to_string());
        }
        ContentHash(hasher.finalize().into())
    }

    /// `com.example.v1.Widget`.
    fn type_name(&self, kind: &str) -> String {
        let group: Vec<&str> = self.group.split('.').rev().collect();
        format!("{}.{}.{kind}", group.join("."), self.version)
    }
}

/// The OpenAPI 3.0 document of one group and version: of all custom resources that it has.
pub fn document<'a>(resources: impl IntoIterator<Item = &'a CustomResource>, describe: &dyn Describe) -> Value {
    let mut schemas = Map::new();
    let mut paths = Map::new();
    for resource in resources {
        let items = operation::paths(resource, describe);
        schemas.extend(publish::definitions(resource, Dialect::OpenApi3, describe));
        for name in shared_types(&items) {
            if !schemas.contains_key(&name) {
                let definition = define(&name, Dialect::OpenApi3, describe, &client_versions());
                schemas.insert(name, definition);
            }
        }
        paths.extend(items.iter().map(|item| (item.path.clone(), path_of(item))));
    }
    json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes CRD Swagger", "version": "v0.1.0"},
        "paths": paths,
        "components": {"schemas": schemas},
    })
}

/// What custom resources add to a Swagger document.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Addition {
    pub definitions: Map<String, Value>,
    pub parameters: Map<String, Value>,
    pub paths: Map<String, Value>,
}

/// What is in a Swagger document already, by name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Taken {
    definitions: BTreeSet<String>,
    parameters: BTreeSet<String>,
    paths: BTreeSet<String>,
}

impl Taken {
    pub fn by(document: &Value) -> Self {
        let names = |section: &str| {
            let section = document[section].as_object().into_iter().flatten();
            section.map(|(name, _)| name.clone()).collect()
        };
        Self {
            definitions: names("definitions"),
            parameters: names("parameters"),
            paths: names("paths"),
        }
    }
}

/// What these resources add to a Swagger document; what it has already stays as it is.
pub fn addition<'a>(
    resources: impl IntoIterator<Item = &'a CustomResource>,
    taken: &Taken,
    describe: &dyn Describe,
) -> Addition {
    let mut added = Addition::default();
    let mut shared = Shared::new();
    for resource in resources {
        let mut items = operation::paths(resource, describe);
        items.retain(|item| !taken.paths.contains(&item.path));
        if items.is_empty() {
            continue;
        }
        let mut own = publish::definitions(resource, Dialect::Swagger, describe);
        rename_taken(&mut own, &mut items, &|name| taken.definitions.contains(name));
        added.definitions.extend(own);
        for name in shared_types(&items) {
            if !taken.definitions.contains(&name) && !added.definitions.contains_key(&name) {
                let definition = define(&name, Dialect::Swagger, describe, &client_versions());
                added.definitions.insert(name, definition);
            }
        }
        let mut paths = items
            .iter()
            .map(|item| (item.path.clone(), swagger_path(item, &mut shared)));
        added.paths.extend(&mut paths);
    }
    let shared = shared
        .into_values()
        .filter(|(name, _)| !taken.parameters.contains(name));
    added.parameters = shared.collect();
    added
}

/// The types that the operations name, with the metadata of all objects, whether or not a schema refers to it.
fn shared_types(items: &[PathItem]) -> BTreeSet<String> {
    let mut names = types_of(items);
    schema::collect(facts().ty(facts().well_known().object_meta).openapi, &mut names);
    names
}

/// Definitions whose names the built-in document has are renamed, as are the references to them.
fn rename_taken(definitions: &mut Map<String, Value>, items: &mut [PathItem], is_taken: &dyn Fn(&str) -> bool) {
    let new_name = |name: &String| {
        let numbered = (2..).map(|number| format!("{name}_v{number}"));
        let mut free = numbered.into_iter().filter(|name| !is_taken(name));
        free.next().expect("there is always a higher number")
    };
    let taken: Vec<String> = definitions.keys().filter(|name| is_taken(name)).cloned().collect();
    let renames: BTreeMap<String, String> = taken.into_iter().map(|name| (name.clone(), new_name(&name))).collect();
    for (old, new) in &renames {
        if let Some(definition) = definitions.remove(old) {
            definitions.insert(new.clone(), definition);
        }
        // Of one resource's definitions only the list refers to another, to its items.
        let (from, to) = (Dialect::Swagger.reference(old), Dialect::Swagger.reference(new));
        for definition in definitions.values_mut() {
            if let Some(items) = definition
                .pointer_mut("/properties/items/items")
                .filter(|items| **items == from)
            {
                *items = to.clone();
            }
        }
    }
    let rename = |name: &mut String| {
        if let Some(new) = renames.get(name) {
            name.clone_from(new);
        }
    };
    for operation in items.iter_mut().flat_map(|item| &mut item.operations) {
        rename(&mut operation.answer);
        if let Some(body) = &mut operation.body {
            rename(&mut body.r#type);
        }
    }
}

/// Groups that the scheme of upstream's client library, by which these documents are made, does not have.
const NOT_IN_CLIENT: [&str; 6] = [
    "*",
    "admission.k8s.io",
    "apidiscovery.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "meta.k8s.io",
];

/// The groups and versions that DeleteOptions says it has.
fn client_versions() -> Vec<(&'static str, &'static str)> {
    let kinds = facts().kinds().iter();
    let known = kinds.filter(|kind| !NOT_IN_CLIENT.contains(&kind.group) && !kind.group.ends_with("mica.dev"));
    let versions: BTreeSet<(&str, &str)> = known.map(|kind| (kind.group, kind.version)).collect();
    versions.into_iter().collect()
}

/// `x-kubernetes-group-version-kind` of a definition.
fn kinds_of(resource: &CustomResource, kind: &str) -> (String, Value) {
    let kinds = json!([{"group": resource.group, "version": resource.version, "kind": kind}]);
    (GVK.to_owned(), kinds)
}

//! OpenAPI documents of what a server serves, made from the fact table and the table of resources.
//!
//! [`Api::document`] makes the OpenAPI 3.0 documents of `/openapi/v3`, [`Api::swagger`] the one of `/openapi/v2`; [`custom`] does
//! the same for custom resources; [`gnostic`] writes both kinds as protobuf. Descriptions are asked for through [`Describe`],
//! because they are no facts of ours.
//!
//! Building is work: some tens of milliseconds for everything. Callers keep what comes out, encoded.

mod connect;
pub mod custom;
mod document;
pub mod gnostic;
mod name;
mod operation;
mod parameter;
mod schema;
#[cfg(test)]
mod tests;
mod write;

pub use document::Api;
pub use schema::Dialect;

use crate::facts::{TypeId, facts};
use crate::kind::{self, Scope};

/// What types and fields mean, in upstream's words. Types go by OpenAPI name, fields by JSON name.
pub trait Describe {
    fn of_type(&self, name: &str) -> Option<&str>;
    fn of_field(&self, name: &str, field: &str) -> Option<&str>;
}

/// Knows no description.
pub struct Undescribed;

impl Describe for Undescribed {
    fn of_type(&self, _name: &str) -> Option<&str> {
        None
    }

    fn of_field(&self, _name: &str, _field: &str) -> Option<&str> {
        None
    }
}

/// One served resource, as far as its documents are concerned.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ApiResource {
    pub group: String,
    pub version: String,
    pub kind: String,
    pub plural: String,
    pub scope: Scope,
    pub verbs: Vec<String>,
    pub subresources: Vec<ApiSubresource>,
    /// OpenAPI name of the objects' type.
    pub r#type: String,
    /// OpenAPI name of the lists' type.
    pub list: String,
    pub deleted: Deleted,
    pub encodings: Encodings,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ApiSubresource {
    pub name: String,
    pub verbs: Vec<String>,
    /// Group, version and kind of its bodies.
    pub kind: [String; 3],
    /// OpenAPI name of its bodies' type.
    pub r#type: String,
    pub serves: Serves,
}

/// What a subresource answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Serves {
    /// Objects of its type.
    Objects,
    /// Whatever it connects to, as its type says, which are options.
    Connections,
    /// A text, as the query says by the options of this type.
    Text(&'static str),
}

/// What a deletion answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Deleted {
    Status,
    Object,
}

/// The encodings that a resource is served in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Encodings {
    /// JSON, YAML and protobuf.
    Protobuf,
    /// JSON and YAML.
    Text,
}

/// Kinds whose deletion answers the object although upstream's documents promise a Status.
const DELETED_UNSAID: [&str; 2] = ["CustomResourceDefinition", "Namespace"];

impl ApiResource {
    /// A resource whose kind is in the fact table, or is the metadata of others' objects.
    ///
    /// # Panics
    /// If it is not.
    pub fn built_in(resource: &kind::Resource) -> Self {
        let own = [resource.group, resource.version, resource.kind];
        let ty = facts().ty(known(own));
        let list = format!("{}List", resource.kind);
        // Review kinds have no list.
        let list = find([resource.group, resource.version, &list]).map(|list| facts().ty(list).openapi);
        Self {
            group: resource.group.to_owned(),
            version: resource.version.to_owned(),
            kind: resource.kind.to_owned(),
            plural: resource.plural.to_owned(),
            scope: resource.scope,
            verbs: strings(resource.verbs),
            subresources: resource
                .subresources
                .iter()
                .map(|sub| ApiSubresource::built_in(sub, own))
                .collect(),
            r#type: ty.openapi.to_owned(),
            list: list.unwrap_or_default().to_owned(),
            deleted: if resource.strategy.returns_deleted() && !DELETED_UNSAID.contains(&resource.kind) {
                Deleted::Object
            } else {
                Deleted::Status
            },
            encodings: if ty.protobuf {
                Encodings::Protobuf
            } else {
                Encodings::Text
            },
        }
    }
}

impl ApiSubresource {
    fn built_in(sub: &kind::Subresource, parent: [&str; 3]) -> Self {
        let kind = sub.kind.map_or(parent, |(group, version, kind)| [group, version, kind]);
        Self {
            name: sub.name.to_owned(),
            verbs: strings(sub.verbs),
            kind: kind.map(ToOwned::to_owned),
            r#type: facts().ty(known(kind)).openapi.to_owned(),
            serves: connect::serves(sub.name, kind[2]),
        }
    }
}

fn known(kind: [&str; 3]) -> TypeId {
    find(kind).unwrap_or_else(|| panic!("the fact table has {}", kind.join("/")))
}

fn find([group, version, kind]: [&str; 3]) -> Option<TypeId> {
    match kind {
        // Metadata may be served in any group.
        "PartialObjectMetadata" => Some(facts().well_known().partial_object_metadata),
        "PartialObjectMetadataList" => Some(facts().well_known().partial_object_metadata_list),
        _ => facts().kind(group, version, kind),
    }
}

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

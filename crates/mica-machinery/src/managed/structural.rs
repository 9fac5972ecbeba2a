//! A custom resource's schema as server-side apply sees it: what merges how.

use serde_json::Value;

use super::schema::{Atom, Fields, Keys, List, Map, Relation, Scalar, TypeRef, scalar};
use crate::facts::{MapKind, Shape, facts};
use crate::schema::{Additional, ListType, Node, NodeType, Types};

/// A place of a schema, with what the places around it mean for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Structural<'s> {
    node: &'s Node,
    unknown: Unknown,
    meta: Meta,
}

/// What becomes of members that the schema does not know; a place passes it on to those inside it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Unknown {
    Preserved,
    Refused,
}

/// Where a place has apiVersion, kind and metadata from, whatever its schema says of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Meta {
    /// It is the root of a resource.
    Root,
    /// It is a resource inside another.
    Embedded,
    None,
}

impl<'s> Structural<'s> {
    /// The root of a resource.
    pub(super) fn resource(root: &'s Node) -> Self {
        Self {
            meta: Meta::Root,
            ..Self::new(root, Unknown::Refused)
        }
    }

    fn new(node: &'s Node, around: Unknown) -> Self {
        let (preserve, embedded) = (node.flags.preserve, node.flags.embedded);
        Self {
            node,
            unknown: if preserve { Unknown::Preserved } else { around },
            meta: if embedded { Meta::Embedded } else { Meta::None },
        }
    }

    fn inside(self, node: &'s Node) -> TypeRef<'s> {
        TypeRef::schema(Self::new(node, self.unknown))
    }

    pub(super) fn resolve(self) -> Atom<'s> {
        // A resource is an object, whether its schema says so or not.
        let types = match self.meta {
            Meta::Root => Types::One(NodeType::Object),
            _ => self.node.types,
        };
        match types {
            Types::One(NodeType::Object) => Atom {
                map: Some(self.map()),
                ..Atom::default()
            },
            // Whichever fits the value.
            Types::Any | Types::IntOrString => Atom {
                scalar: Some(Scalar::Untyped),
                list: Some(self.list()),
                map: Some(self.map()),
            },
            Types::One(NodeType::Array) => Atom {
                list: Some(self.list()),
                ..Atom::default()
            },
            Types::One(NodeType::Integer | NodeType::Number) => scalar(Scalar::Numeric),
            Types::One(NodeType::Boolean) => scalar(Scalar::Boolean),
            Types::Unknown => scalar(Scalar::Untyped),
            Types::One(NodeType::String) if self.node.flags.formatted => scalar(Scalar::Untyped),
            Types::One(NodeType::String) => scalar(Scalar::String),
        }
    }

    fn list(self) -> List<'s> {
        let items = self.node.items.as_deref();
        List {
            relation: match &self.node.list {
                ListType::Atomic => Relation::Atomic,
                ListType::Set => Relation::Set,
                ListType::Map(keys) => Relation::Keys(Keys::Owned(keys)),
            },
            element: items.map_or(TypeRef::UNTYPED_ATOMIC, |items| self.inside(items)),
        }
    }

    fn map(self) -> Map<'s> {
        let node = self.node;
        let has_fields = !node.properties.is_empty() || self.meta != Meta::None;
        Map {
            kind: if node.flags.atomic_map {
                MapKind::Atomic
            } else {
                MapKind::Granular
            },
            fields: if has_fields { Fields::Schema(self) } else { Fields::None },
            element: match &node.additional {
                Additional::Schema(schema) => Some(self.inside(schema)),
                Additional::Any => Some(TypeRef::DEDUCED),
                Additional::None => None,
                Additional::Unsaid if self.unknown == Unknown::Preserved || !has_fields => Some(TypeRef::DEDUCED),
                Additional::Unsaid => None,
            },
        }
    }

    /// The type of a declared member.
    pub(super) fn field(self, name: &str) -> Option<TypeRef<'s>> {
        match (self.meta, name) {
            (Meta::Root | Meta::Embedded, "apiVersion" | "kind") => Some(TypeRef::fact(&Shape::String)),
            (Meta::Root | Meta::Embedded, "metadata") => Some(TypeRef::kind(facts().well_known().object_meta)),
            _ => self.node.properties.get(name).map(|property| self.inside(property)),
        }
    }

    /// The default of a declared member.
    pub(super) fn default(self, name: &str) -> Option<Value> {
        match (self.meta, name) {
            (Meta::Root | Meta::Embedded, "apiVersion" | "kind" | "metadata") => None,
            _ => self.node.properties.get(name)?.default.as_deref().cloned(),
        }
    }
}

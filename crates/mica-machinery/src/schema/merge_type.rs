//! A schema as server-side apply sees it: what merges how.

use std::collections::BTreeMap;

use super::node::{Additional, ListType as NodeList, Node, Type as NodeType, Types};
use crate::facts::{ListKind, MapKind, Shape, TypeId, facts};
use crate::managed::schema::{FieldType, ListType, MapType, OwnedListKind, Scalar, Type};

/// The type of a resource. Its metadata is that of all objects.
pub(crate) fn of_resource(root: &Node) -> Type {
    let mut map = map_of(root, Preserve::from(root, Preserve::No));
    add_meta(&mut map);
    Type::Map(map)
}

/// Whether members that the schema does not know are kept, which a place passes on to those inside it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Preserve {
    Yes,
    No,
}

impl Preserve {
    fn from(node: &Node, parent: Preserve) -> Self {
        if node.flags.preserve { Self::Yes } else { parent }
    }
}

fn of(node: &Node, preserve: Preserve) -> Type {
    let preserve = Preserve::from(node, preserve);
    match node.types {
        Types::Any | Types::IntOrString => Type::Any(list_of(node, preserve), map_of(node, preserve)),
        Types::One(NodeType::Object) => Type::Map(map_of(node, preserve)),
        Types::One(NodeType::Array) => Type::List(list_of(node, preserve)),
        Types::One(NodeType::Integer | NodeType::Number) => Type::Scalar(Scalar::Numeric),
        Types::One(NodeType::Boolean) => Type::Scalar(Scalar::Boolean),
        Types::One(NodeType::String) => {
            let format = node.checks.as_ref().and_then(|checks| checks.format.as_ref());
            let plain = format.is_none_or(|(name, _)| name == "byte");
            Type::Scalar(if plain { Scalar::String } else { Scalar::Untyped })
        }
    }
}

fn list_of(node: &Node, preserve: Preserve) -> ListType {
    let kind = match &node.list {
        NodeList::Atomic => OwnedListKind::Atomic,
        NodeList::Set => OwnedListKind::Set,
        NodeList::Map(keys) => OwnedListKind::Map(keys.iter().map(ToString::to_string).collect()),
    };
    let element = node
        .items
        .as_ref()
        .map_or(Type::UntypedAtomic, |items| of(items, preserve));
    ListType {
        kind,
        element: Box::new(element),
    }
}

fn map_of(node: &Node, preserve: Preserve) -> MapType {
    let fields = node.properties.iter().map(|(name, property)| {
        let field = FieldType {
            ty: of(property, preserve),
            default: property.default.clone(),
        };
        (name.to_string(), field)
    });
    let element = match &node.additional {
        Additional::Schema(schema) => Some(of(schema, preserve)),
        Additional::Any => Some(Type::Deduced),
        Additional::None => None,
        Additional::Unsaid if preserve == Preserve::Yes || node.properties.is_empty() => Some(Type::Deduced),
        Additional::Unsaid => None,
    };
    let mut map = MapType {
        kind: if node.flags.atomic_map {
            MapKind::Atomic
        } else {
            MapKind::Granular
        },
        fields: fields.collect(),
        element: element.map(Box::new),
    };
    if node.flags.embedded {
        add_meta(&mut map);
    }
    map
}

/// Adds what every resource has.
fn add_meta(map: &mut MapType) {
    let text = || FieldType {
        ty: Type::Scalar(Scalar::String),
        default: None,
    };
    map.fields.insert("apiVersion".to_owned(), text());
    map.fields.insert("kind".to_owned(), text());
    let metadata = FieldType {
        ty: of_struct(facts().well_known().object_meta, None),
        default: None,
    };
    map.fields.insert("metadata".to_owned(), metadata);
}

fn of_struct(id: TypeId, field: Option<MapKind>) -> Type {
    let ty = facts().ty(id);
    let fields: BTreeMap<String, FieldType> = ty
        .fields
        .iter()
        .map(|field| {
            let ty = of_shape(&field.shape, &field.list, Some(field.map));
            (
                field.json.to_owned(),
                FieldType {
                    ty,
                    default: field.default_value(),
                },
            )
        })
        .collect();
    let element = fields.is_empty().then(|| Box::new(Type::Deduced));
    Type::Map(MapType {
        kind: field.unwrap_or(ty.map),
        fields,
        element,
    })
}

fn of_shape(shape: &Shape, list: &ListKind, map: Option<MapKind>) -> Type {
    let list_type = |element: Type| {
        let kind = match list {
            ListKind::Atomic => OwnedListKind::Atomic,
            ListKind::Set => OwnedListKind::Set,
            ListKind::Map(keys) => OwnedListKind::Map(keys.iter().map(ToString::to_string).collect()),
        };
        Type::List(ListType {
            kind,
            element: Box::new(element),
        })
    };
    let map_type = |element: Type| {
        Type::Map(MapType {
            kind: map.unwrap_or_default(),
            fields: BTreeMap::new(),
            element: Some(Box::new(element)),
        })
    };
    match shape {
        Shape::String | Shape::Bytes | Shape::Duration => Type::Scalar(Scalar::String),
        Shape::Bool => Type::Scalar(Scalar::Boolean),
        Shape::Time | Shape::MicroTime | Shape::Quantity | Shape::IntOrString => Type::Scalar(Scalar::Untyped),
        Shape::Raw => Type::UntypedAtomic,
        Shape::Json | Shape::SchemaOrBool(_) | Shape::SchemaOrArray(_) | Shape::SchemaOrStringArray(_) => Type::Deduced,
        Shape::FieldsV1 => map_type(Type::Deduced),
        Shape::Struct(id) => of_struct(*id, map),
        Shape::List(element) => list_type(of_shape(element, &ListKind::Atomic, None)),
        Shape::StringList => list_type(Type::Scalar(Scalar::String)),
        Shape::Map(element) => map_type(of_shape(element, &ListKind::Atomic, None)),
        _ => Type::Scalar(Scalar::Numeric),
    }
}

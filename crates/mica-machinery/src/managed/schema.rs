//! How values of a type merge: what is a leaf, what has members of its own, what identifies an item of a list.
//!
//! Built-in kinds read the table of [`facts`](crate::facts); custom resources build a [`Type`]; objects without any
//! schema use [`TypeRef::DEDUCED`]. Walkers see only [`TypeRef`], which is small and resolved one level at a time.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::codec;
use crate::facts::{self, ListKind, MapKind, Shape, TypeId, facts};

/// What kind of scalar a field may hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scalar {
    Numeric,
    String,
    Boolean,
    /// Any scalar: quantities, times, int-or-string.
    Untyped,
}

/// A type that is not in the table of facts.
#[derive(Clone, PartialEq, Debug)]
pub enum Type {
    /// Anything; maps have members of their own, lists are leaves.
    Deduced,
    /// Anything, as one leaf.
    UntypedAtomic,
    Scalar(Scalar),
    List(ListType),
    Map(MapType),
    /// A schema without a type: whichever of these fits the value.
    Any(ListType, MapType),
}

#[derive(Clone, PartialEq, Debug)]
pub struct ListType {
    pub kind: OwnedListKind,
    pub element: Box<Type>,
}

#[derive(Clone, PartialEq, Debug)]
pub enum OwnedListKind {
    Atomic,
    Set,
    Map(Vec<String>),
}

#[derive(Clone, PartialEq, Debug)]
pub struct MapType {
    pub kind: MapKind,
    pub fields: BTreeMap<String, FieldType>,
    /// The type of members that are no fields; `None` refuses them.
    pub element: Option<Box<Type>>,
}

#[derive(Clone, PartialEq, Debug)]
pub struct FieldType {
    pub ty: Type,
    pub default: Option<Value>,
}

/// A type, wherever it is described.
#[derive(Clone, Copy, Debug)]
pub struct TypeRef<'s>(Inner<'s>);

#[derive(Clone, Copy, Debug)]
enum Inner<'s> {
    Fact {
        shape: &'static Shape,
        list: &'static ListKind,
        /// What the field says; an element of a list or map has nothing but its type's own word.
        map: Option<MapKind>,
    },
    Kind(TypeId),
    Owned(&'s Type),
    UntypedAtomic,
    Deduced,
}

/// What a value of a type can be; for most types exactly one of the three.
#[derive(Clone, Copy, Debug, Default)]
pub struct Atom<'s> {
    pub scalar: Option<Scalar>,
    pub list: Option<List<'s>>,
    pub map: Option<Map<'s>>,
}

#[derive(Clone, Copy, Debug)]
pub struct List<'s> {
    pub relation: Relation<'s>,
    pub element: TypeRef<'s>,
}

/// What identifies an item.
#[derive(Clone, Copy, Debug)]
pub enum Relation<'s> {
    /// Nothing: the list is one leaf.
    Atomic,
    /// Its value.
    Set,
    /// The values of these fields.
    Keys(Keys<'s>),
}

#[derive(Clone, Copy, Debug)]
pub enum Keys<'s> {
    Static(&'static [&'static str]),
    Owned(&'s [String]),
}

#[derive(Clone, Copy, Debug)]
pub struct Map<'s> {
    /// One leaf, whatever is in it.
    pub kind: MapKind,
    fields: Fields<'s>,
    /// The type of members that are no fields; `None` refuses them.
    pub element: Option<TypeRef<'s>>,
}

#[derive(Clone, Copy, Debug)]
enum Fields<'s> {
    None,
    Facts(&'static facts::Type),
    Owned(&'s BTreeMap<String, FieldType>),
}

impl<'s> TypeRef<'s> {
    /// For objects without a schema.
    pub const DEDUCED: TypeRef<'static> = TypeRef(Inner::Deduced);

    /// A built-in kind.
    pub fn kind(ty: TypeId) -> TypeRef<'static> {
        TypeRef(Inner::Kind(ty))
    }

    pub fn owned(ty: &'s Type) -> Self {
        match ty {
            Type::Deduced => Self(Inner::Deduced),
            Type::UntypedAtomic => Self(Inner::UntypedAtomic),
            _ => Self(Inner::Owned(ty)),
        }
    }

    fn fact(shape: &'static Shape) -> TypeRef<'static> {
        TypeRef(Inner::Fact {
            shape,
            list: &ListKind::Atomic,
            map: None,
        })
    }

    /// What an object of this type is before anybody wrote to it: built-in kinds print some members even then.
    pub fn zero(self) -> Value {
        match self.0 {
            Inner::Kind(ty) => codec::zero(&Shape::Struct(ty)),
            _ => Value::Object(serde_json::Map::new()),
        }
    }

    pub fn resolve(self) -> Atom<'s> {
        match self.0 {
            Inner::Fact { shape, list, map } => resolve_fact(shape, list, map),
            Inner::Kind(ty) => struct_atom(ty, None),
            Inner::Owned(ty) => resolve_owned(ty),
            Inner::UntypedAtomic => Atom {
                scalar: Some(Scalar::Untyped),
                list: Some(List {
                    relation: Relation::Atomic,
                    element: self,
                }),
                map: Some(Map {
                    kind: MapKind::Atomic,
                    fields: Fields::None,
                    element: Some(self),
                }),
            },
            Inner::Deduced => Atom {
                scalar: Some(Scalar::Untyped),
                list: Some(List {
                    relation: Relation::Atomic,
                    element: TypeRef(Inner::UntypedAtomic),
                }),
                map: Some(Map {
                    kind: MapKind::Granular,
                    fields: Fields::None,
                    element: Some(self),
                }),
            },
        }
    }

    pub(super) fn is_deduced(self) -> bool {
        matches!(self.0, Inner::Deduced)
    }
}

impl<'s> Map<'s> {
    /// The type of a declared field.
    pub fn field(&self, name: &str) -> Option<TypeRef<'s>> {
        match self.fields {
            Fields::None => None,
            Fields::Facts(ty) => ty.field(name).map(|field| {
                TypeRef(Inner::Fact {
                    shape: &field.shape,
                    list: &field.list,
                    map: Some(field.map),
                })
            }),
            Fields::Owned(fields) => fields.get(name).map(|field| TypeRef::owned(&field.ty)),
        }
    }

    /// The type of any member: its field's, or that of members that are no fields.
    pub fn member(&self, name: &str) -> Option<TypeRef<'s>> {
        self.field(name).or(self.element)
    }

    pub fn has_fields(&self) -> bool {
        !matches!(self.fields, Fields::None)
    }

    /// The default of a field, which stands in for a key that an item leaves out.
    pub fn default(&self, name: &str) -> Option<Value> {
        match self.fields {
            Fields::None => None,
            Fields::Facts(ty) => ty.field(name).and_then(default_of),
            Fields::Owned(fields) => fields.get(name).and_then(|field| field.default.clone()),
        }
    }
}

impl List<'_> {
    /// Whether the list is one leaf.
    pub fn is_atomic(&self) -> bool {
        matches!(self.relation, Relation::Atomic)
    }
}

impl<'s> Keys<'s> {
    pub fn iter(self) -> impl Iterator<Item = &'s str> {
        let (fixed, owned): (&[&'static str], &[String]) = match self {
            Self::Static(keys) => (keys, &[]),
            Self::Owned(keys) => (&[], keys),
        };
        fixed.iter().copied().chain(owned.iter().map(String::as_str))
    }
}

/// The default in OpenAPI: what is marked, or the zero of a scalar that Go always prints.
fn default_of(field: &facts::Field) -> Option<Value> {
    let zero = || match field.shape {
        _ if field.omit_empty || field.omit_zero || field.pointer => None,
        Shape::String | Shape::Bool | Shape::Int32 | Shape::Int64 => Some(codec::zero(&field.shape)),
        _ => None,
    };
    field.default_value().or_else(zero)
}

fn scalar(scalar: Scalar) -> Atom<'static> {
    Atom {
        scalar: Some(scalar),
        ..Atom::default()
    }
}

fn struct_atom(ty: TypeId, field: Option<MapKind>) -> Atom<'static> {
    let ty = facts().ty(ty);
    let kind = field.unwrap_or(ty.map);
    // An object without properties may hold anything.
    let element = ty.fields.is_empty().then_some(TypeRef::DEDUCED);
    Atom {
        map: Some(Map {
            kind,
            fields: Fields::Facts(ty),
            element,
        }),
        ..Atom::default()
    }
}

fn resolve_fact(shape: &'static Shape, list: &'static ListKind, map: Option<MapKind>) -> Atom<'static> {
    let relation = match list {
        ListKind::Atomic => Relation::Atomic,
        ListKind::Set => Relation::Set,
        ListKind::Map(keys) => Relation::Keys(Keys::Static(keys)),
    };
    match shape {
        Shape::String | Shape::Bytes | Shape::Duration => scalar(Scalar::String),
        Shape::Bool => scalar(Scalar::Boolean),
        Shape::Time | Shape::MicroTime | Shape::Quantity | Shape::IntOrString => scalar(Scalar::Untyped),
        Shape::Raw => TypeRef(Inner::UntypedAtomic).resolve(),
        Shape::Json | Shape::SchemaOrBool(_) | Shape::SchemaOrArray(_) | Shape::SchemaOrStringArray(_) => {
            TypeRef::DEDUCED.resolve()
        }
        Shape::FieldsV1 => {
            let map = Map {
                kind: MapKind::Granular,
                fields: Fields::None,
                element: Some(TypeRef::DEDUCED),
            };
            Atom {
                map: Some(map),
                ..Atom::default()
            }
        }
        Shape::Struct(ty) => struct_atom(*ty, map),
        Shape::List(element) => Atom {
            list: Some(List {
                relation,
                element: TypeRef::fact(element),
            }),
            ..Atom::default()
        },
        Shape::StringList => Atom {
            list: Some(List {
                relation,
                element: TypeRef::fact(&Shape::String),
            }),
            ..Atom::default()
        },
        Shape::Map(element) => {
            let map = Map {
                kind: map.unwrap_or_default(),
                fields: Fields::None,
                element: Some(TypeRef::fact(element)),
            };
            Atom {
                map: Some(map),
                ..Atom::default()
            }
        }
        _ => scalar(Scalar::Numeric),
    }
}

fn resolve_owned(ty: &Type) -> Atom<'_> {
    match ty {
        Type::Deduced | Type::UntypedAtomic => TypeRef::owned(ty).resolve(),
        Type::Scalar(kind) => scalar(*kind),
        Type::List(list) => Atom {
            list: Some(owned_list(list)),
            ..Atom::default()
        },
        Type::Map(map) => Atom {
            map: Some(owned_map(map)),
            ..Atom::default()
        },
        Type::Any(list, map) => Atom {
            scalar: Some(Scalar::Untyped),
            list: Some(owned_list(list)),
            map: Some(owned_map(map)),
        },
    }
}

fn owned_list(list: &ListType) -> List<'_> {
    let relation = match &list.kind {
        OwnedListKind::Atomic => Relation::Atomic,
        OwnedListKind::Set => Relation::Set,
        OwnedListKind::Map(keys) => Relation::Keys(Keys::Owned(keys)),
    };
    List {
        relation,
        element: TypeRef::owned(&list.element),
    }
}

fn owned_map(map: &MapType) -> Map<'_> {
    let fields = if map.fields.is_empty() {
        Fields::None
    } else {
        Fields::Owned(&map.fields)
    };
    Map {
        kind: map.kind,
        fields,
        element: map.element.as_deref().map(TypeRef::owned),
    }
}

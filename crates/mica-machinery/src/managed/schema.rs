//! How values of a type merge: what is a leaf, what has members of its own, what identifies an item of a list.
//!
//! Built-in kinds read the table of [`facts`](crate::facts), custom resources their compiled schema (`structural`);
//! objects without any schema use [`TypeRef::DEDUCED`]. Nothing is built for it: walkers see only [`TypeRef`], which is
//! small and resolved one level at a time.

use compact_str::CompactString;
use serde_json::Value;

use super::structural::Structural;

use crate::codec;
use crate::facts::{self, ListKind, MapKind, Shape, TypeId, facts};
use crate::schema::Node;

/// What kind of scalar a field may hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scalar {
    Numeric,
    String,
    Boolean,
    /// Any scalar: quantities, times, int-or-string.
    Untyped,
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
    Schema(Structural<'s>),
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
    Owned(&'s [CompactString]),
}

#[derive(Clone, Copy, Debug)]
pub struct Map<'s> {
    /// One leaf, whatever is in it.
    pub kind: MapKind,
    pub(super) fields: Fields<'s>,
    /// The type of members that are no fields; `None` refuses them.
    pub element: Option<TypeRef<'s>>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Fields<'s> {
    None,
    Facts(&'static facts::Type),
    Schema(Structural<'s>),
}

impl<'s> TypeRef<'s> {
    /// For objects without a schema.
    pub const DEDUCED: TypeRef<'static> = TypeRef(Inner::Deduced);

    /// Whether decoding did not already see to it that objects are of this type.
    pub(super) fn is_custom(self) -> bool {
        matches!(self.0, Inner::Schema(_))
    }

    /// A built-in kind.
    pub fn kind(ty: TypeId) -> TypeRef<'static> {
        TypeRef(Inner::Kind(ty))
    }

    /// Anything, as one leaf.
    pub(super) const UNTYPED_ATOMIC: TypeRef<'static> = TypeRef(Inner::UntypedAtomic);

    /// A custom resource of this schema.
    pub(crate) fn resource(root: &'s Node) -> Self {
        Self::schema(Structural::resource(root))
    }

    pub(super) fn schema(place: Structural<'s>) -> Self {
        Self(Inner::Schema(place))
    }

    pub(super) fn fact(shape: &'static Shape) -> TypeRef<'static> {
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
            Inner::Schema(place) => place.resolve(),
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
            Fields::Schema(place) => place.field(name),
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
            Fields::Schema(place) => place.default(name),
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
        let (fixed, owned): (&[&'static str], &[CompactString]) = match self {
            Self::Static(keys) => (keys, &[]),
            Self::Owned(keys) => (&[], keys),
        };
        fixed.iter().copied().chain(owned.iter().map(CompactString::as_str))
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

pub(super) fn scalar(scalar: Scalar) -> Atom<'static> {
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

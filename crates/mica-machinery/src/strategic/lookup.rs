//! What a patch may find at a place: the type there, and how it merges.

use crate::facts::{Field, PatchStrategy, Shape, TypeId, facts};

use super::merge::MergeError;

/// The Go type at a place, as far as merging asks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    kind: Kind,
    pointer: bool,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Struct(TypeId),
    /// A struct that is one value in JSON, by its name: its fields have no JSON names, so none is ever found.
    Opaque(&'static str),
    /// Anything else, by Go's word for it.
    Plain(&'static str),
}

/// How the value of a field merges.
#[derive(Clone, Copy, Debug)]
pub(super) struct Strategy {
    pub(super) merge: Merge,
    /// The field of an element that tells it from others; empty if none does.
    pub(super) key: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Merge {
    /// No strategy: maps merge, lists are replaced.
    Default,
    /// Lists merge too: by key, or by value where there is none.
    ByKey,
    Replace,
}

impl Node {
    pub(super) fn of(ty: TypeId) -> Self {
        Node {
            kind: Kind::Struct(ty),
            pointer: false,
        }
    }

    /// The type of a field that holds an object.
    pub(super) fn member(self, name: &str) -> Result<(Node, Strategy), MergeError> {
        let field = self.field(name)?;
        Ok((node(&field.shape, field.pointer), strategy(field)))
    }

    /// The type of the elements of a field that holds a list.
    pub(super) fn element(self, name: &str) -> Result<(Node, Strategy), MergeError> {
        let field = self.field(name)?;
        let element = match &field.shape {
            Shape::List(element) => match **element {
                Shape::List(_) | Shape::StringList | Shape::Bytes => {
                    return Err(MergeError::Other("unexpected slice of slice".to_owned()));
                }
                ref element => node(element, false),
            },
            Shape::StringList => node(&Shape::String, false),
            Shape::Bytes => node(&Shape::Uint8, false),
            shape if field.pointer => node(shape, false),
            _ => {
                let text = format!("expected slice or array type, but got: {}", self.go_kind());
                return Err(MergeError::Other(text));
            }
        };
        Ok((element, strategy(field)))
    }

    /// Go's word for the kind of this type.
    pub(super) fn go_kind(self) -> &'static str {
        match self.kind {
            _ if self.pointer => "ptr",
            Kind::Struct(_) | Kind::Opaque(_) => "struct",
            Kind::Plain(word) => word,
        }
    }

    fn field(self, name: &str) -> Result<&'static Field, MergeError> {
        let missing = |ty: &str| {
            MergeError::Other(format!(
                "unable to find api field in struct {ty} for the json field {name:?}"
            ))
        };
        match self.kind {
            Kind::Struct(id) => {
                let ty = facts().ty(id);
                let folded = || ty.fields.iter().find(|field| field.json.eq_ignore_ascii_case(name));
                ty.field(name).or_else(folded).ok_or_else(|| missing(ty.name))
            }
            Kind::Opaque(ty) => Err(missing(ty)),
            Kind::Plain(word) => Err(MergeError::Other(format!(
                "merging an object in json but data type is not struct, instead is: {word}"
            ))),
        }
    }
}

fn strategy(field: &'static Field) -> Strategy {
    let merge = match field.patch_strategy {
        PatchStrategy::None | PatchStrategy::RetainKeys => Merge::Default,
        PatchStrategy::Merge | PatchStrategy::MergeRetainKeys => Merge::ByKey,
        PatchStrategy::Replace => Merge::Replace,
    };
    Strategy {
        merge,
        key: field.patch_key,
    }
}

fn node(shape: &Shape, pointer: bool) -> Node {
    let kind = match shape {
        Shape::Struct(id) => Kind::Struct(*id),
        Shape::Time => Kind::Opaque("Time"),
        Shape::MicroTime => Kind::Opaque("MicroTime"),
        Shape::Duration => Kind::Opaque("Duration"),
        Shape::Quantity => Kind::Opaque("Quantity"),
        Shape::IntOrString => Kind::Opaque("IntOrString"),
        Shape::Raw => Kind::Opaque("RawExtension"),
        Shape::FieldsV1 => Kind::Opaque("FieldsV1"),
        Shape::Json => Kind::Opaque("JSON"),
        Shape::SchemaOrBool(_) => Kind::Opaque("JSONSchemaPropsOrBool"),
        Shape::SchemaOrArray(_) => Kind::Opaque("JSONSchemaPropsOrArray"),
        Shape::SchemaOrStringArray(_) => Kind::Opaque("JSONSchemaPropsOrStringArray"),
        Shape::List(_) | Shape::StringList | Shape::Bytes => Kind::Plain("slice"),
        Shape::Map(_) => Kind::Plain("map"),
        Shape::String => Kind::Plain("string"),
        Shape::Bool => Kind::Plain("bool"),
        Shape::Int32 => Kind::Plain("int32"),
        Shape::Int64 => Kind::Plain("int64"),
        Shape::Uint8 => Kind::Plain("uint8"),
        Shape::Uint16 => Kind::Plain("uint16"),
        Shape::Uint32 => Kind::Plain("uint32"),
        Shape::Uint64 => Kind::Plain("uint64"),
        Shape::Float32 => Kind::Plain("float32"),
        Shape::Float64 => Kind::Plain("float64"),
    };
    Node { kind, pointer }
}

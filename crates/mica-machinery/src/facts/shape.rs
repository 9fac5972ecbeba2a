//! The vocabulary of the fact table: what a field can hold, and how lists and maps merge.

/// A type's place in the table. Only meaningful with [`facts`](super::facts).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TypeId(pub(crate) u16);

impl TypeId {
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// What a field, list element or map value holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shape {
    String,
    Bool,
    Int32,
    Int64,
    Uint8,
    Uint16,
    Uint32,
    Uint64,
    Float32,
    Float64,
    /// Base64 text in JSON.
    Bytes,
    /// RFC 3339 in UTC to the second.
    Time,
    /// RFC 3339 in UTC with six decimals.
    MicroTime,
    /// Go's duration text, `1h2m3s`.
    Duration,
    Quantity,
    IntOrString,
    /// `runtime.RawExtension`: any JSON, null included.
    Raw,
    FieldsV1,
    /// Any JSON (`apiextensions.JSON`).
    Json,
    /// A schema, or true or false.
    SchemaOrBool(TypeId),
    /// A schema, or a list of schemas.
    SchemaOrArray(TypeId),
    /// A schema, or a list of strings.
    SchemaOrStringArray(TypeId),
    Struct(TypeId),
    List(Box<Shape>),
    /// A list of strings that is a message of its own in protobuf (`Verbs`, `ExtraValue`); a plain list everywhere else.
    StringList,
    /// Keys are always strings.
    Map(Box<Shape>),
}

/// Shapes that are one value to apply and strategic merge although JSON may show structure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Special {
    /// A scalar in JSON.
    Scalar,
    /// Any JSON at all.
    Any,
}

impl Shape {
    /// What the shape is to code that only asks scalar or not; `None` for structs, lists and maps.
    pub fn special(&self) -> Option<Special> {
        match self {
            Shape::Struct(_) | Shape::List(_) | Shape::StringList | Shape::Map(_) => None,
            Shape::Raw
            | Shape::FieldsV1
            | Shape::Json
            | Shape::SchemaOrBool(_)
            | Shape::SchemaOrArray(_)
            | Shape::SchemaOrStringArray(_) => Some(Special::Any),
            _ => Some(Special::Scalar),
        }
    }
}

/// How apply merges a list (`+listType`). Unmarked lists are atomic.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ListKind {
    #[default]
    Atomic,
    Set,
    /// Keyed by these JSON fields of the element, in the marker's order.
    Map(Vec<&'static str>),
}

/// How apply merges a map or struct (`+mapType`, `+structType`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MapKind {
    #[default]
    Granular,
    Atomic,
}

/// How strategic merge treats a field (`patchStrategy` tag).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PatchStrategy {
    /// No tag: lists are replaced, maps and structs merged.
    #[default]
    None,
    Merge,
    Replace,
    RetainKeys,
    MergeRetainKeys,
}

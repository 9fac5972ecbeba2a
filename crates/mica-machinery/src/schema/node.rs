//! One place of a compiled schema.

use std::sync::Arc;

use compact_str::CompactString;
use serde_json::Value;

use super::format::Format;
use super::matcher::Pattern;

/// A place of a schema.
#[derive(Debug, Default)]
pub(crate) struct Node {
    pub(crate) types: Types,
    pub(crate) flags: Flags,
    pub(crate) list: ListType,
    pub(crate) default: Option<Box<Value>>,
    pub(crate) properties: Properties,
    pub(crate) additional: Additional,
    pub(crate) items: Option<Arc<Node>>,
    pub(crate) required: Box<[CompactString]>,
    /// What restricts values further; most places have nothing of it.
    pub(crate) checks: Option<Box<Checks>>,
    /// The place's number if it has rules: the key of its program.
    pub(crate) rules: Option<u32>,
    /// Whether this place or any below it has rules, so that those without are not walked.
    pub(crate) leads_to_rules: Reach,
}

/// Whether rules can be met from a place on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Reach {
    Rules,
    #[default]
    Nothing,
}

/// What a value may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Types {
    #[default]
    Any,
    One(Type),
    IntOrString,
    /// A type that does not exist, of a schema that judges defaults: nothing is of it. [`Checks::unknown_type`] is its name.
    Unknown,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Type {
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
}

/// The yes-or-no words of a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Flags {
    pub(crate) nullable: bool,
    pub(crate) preserve: bool,
    pub(crate) embedded: bool,
    pub(crate) atomic_map: bool,
    pub(crate) int_or_string: bool,
    /// It has a format, known or not, which is not that of bytes: to apply its texts may be any scalar.
    pub(crate) formatted: bool,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) enum ListType {
    #[default]
    Atomic,
    Set,
    Map(Box<[CompactString]>),
}

/// What members that are no properties may be.
#[derive(Debug, Default)]
pub(crate) enum Additional {
    /// The schema does not say.
    #[default]
    Unsaid,
    Any,
    None,
    Schema(Arc<Node>),
}

/// The properties of a place, in the order of their names.
///
/// Not a tree: schemas are many and do not change, and a tree's nodes are half empty. Names lie apart from what they name:
/// a search reads names only.
#[derive(Debug, Default)]
pub(crate) struct Properties {
    names: Box<[CompactString]>,
    nodes: Box<[Arc<Node>]>,
}

impl Properties {
    pub(crate) fn get(&self, name: &str) -> Option<&Node> {
        let at = self.names.binary_search_by(|own| own.as_str().cmp(name)).ok()?;
        Some(&self.nodes[at])
    }

    pub(crate) fn contains(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&CompactString, &Node)> {
        self.names.iter().zip(self.nodes.iter().map(|node| &**node))
    }
}

impl FromIterator<(CompactString, Arc<Node>)> for Properties {
    fn from_iter<I: IntoIterator<Item = (CompactString, Arc<Node>)>>(properties: I) -> Self {
        let mut sorted: Vec<_> = properties.into_iter().collect();
        sorted.sort_by(|(a, _), (b, _)| a.cmp(b));
        let (names, nodes): (Vec<_>, Vec<_>) = sorted.into_iter().unzip();
        Self {
            names: names.into(),
            nodes: nodes.into(),
        }
    }
}

/// What restricts the values of a place. What few places have is boxed: there are thousands of these.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    pub(crate) unknown_type: Option<Box<str>>,
    pub(crate) format: Option<(CompactString, Format)>,
    pub(crate) numbers: Option<Box<Numbers>>,
    pub(crate) max_length: Option<i64>,
    pub(crate) min_length: Option<i64>,
    pub(crate) pattern: Option<Box<Pattern>>,
    pub(crate) sizes: Option<Box<Sizes>>,
    pub(crate) enumeration: Box<[Value]>,
    pub(crate) junctors: Option<Box<Junctors>>,
}

#[derive(PartialEq, Debug, Default)]
pub(crate) struct Numbers {
    pub(crate) maximum: Option<Bound>,
    pub(crate) minimum: Option<Bound>,
    pub(crate) multiple_of: Option<f64>,
}

/// Of lists and objects.
#[derive(PartialEq, Debug, Default)]
pub(crate) struct Sizes {
    pub(crate) max_items: Option<i64>,
    pub(crate) min_items: Option<i64>,
    pub(crate) max_properties: Option<i64>,
    pub(crate) min_properties: Option<i64>,
    pub(crate) unique_items: bool,
}

/// Schemas that a value must fit beside its own.
#[derive(Debug, Default)]
pub(crate) struct Junctors {
    pub(crate) all_of: Vec<Node>,
    pub(crate) any_of: Vec<Node>,
    pub(crate) one_of: Vec<Node>,
    pub(crate) not: Option<Node>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Bound {
    pub(crate) value: f64,
    pub(crate) exclusive: bool,
}

impl Type {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "object" => Self::Object,
            "array" => Self::Array,
            "string" => Self::String,
            "integer" => Self::Integer,
            "number" => Self::Number,
            "boolean" => Self::Boolean,
            _ => return None,
        })
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
        }
    }

    /// The type of a value; null has none.
    pub(crate) fn of(value: &Value) -> Option<Self> {
        Some(match value {
            Value::Null => return None,
            Value::Bool(_) => Self::Boolean,
            Value::Number(number) if number.is_f64() => Self::Number,
            Value::Number(_) => Self::Integer,
            Value::String(_) => Self::String,
            Value::Array(_) => Self::Array,
            Value::Object(_) => Self::Object,
        })
    }
}

impl Types {
    pub(crate) fn contains(self, ty: Type) -> bool {
        match self {
            Self::Any | Self::Unknown => false,
            Self::One(one) => one == ty,
            Self::IntOrString => matches!(ty, Type::Integer | Type::String),
        }
    }

    /// As errors print them.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Any | Self::Unknown => "",
            Self::One(one) => one.name(),
            Self::IntOrString => "integer,string",
        }
    }
}

impl Node {
    /// The name of its type, as errors print it.
    pub(crate) fn type_name(&self) -> &str {
        let unknown = self.checks.as_ref().and_then(|checks| checks.unknown_type.as_deref());
        unknown.unwrap_or_else(|| self.types.name())
    }

    /// The schema of a member: its property's, else that of other members.
    pub(crate) fn member(&self, name: &str) -> Option<&Node> {
        self.properties.get(name).or(match &self.additional {
            Additional::Schema(node) => Some(node),
            _ => None,
        })
    }

    /// Whether members that are no properties are known to the schema at all, so that they are not pruned.
    pub(crate) fn takes_members(&self) -> bool {
        !matches!(self.additional, Additional::Unsaid)
    }
}

/// Where a schema stands: only the root and embedded resources have apiVersion, kind and metadata by themselves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    ResourceRoot,
    Inside,
}

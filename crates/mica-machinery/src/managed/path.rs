//! Steps of a path into an object, in the order and the two text forms that upstream gives them.

use std::cmp::Ordering;
use std::fmt;

use compact_str::CompactString;
use serde_json::Value;

use super::value;
use crate::codec::{encode_untyped, write_string};

/// One step: a field of a map or struct, or an item of a list.
#[derive(Clone, Debug)]
pub enum PathElement {
    Field(CompactString),
    /// The item of an associative list whose key fields have these values; sorted by name.
    Key(Vec<(CompactString, Value)>),
    /// The item of a set that is this value.
    Value(Value),
    Index(i64),
}

/// Steps from the root of an object.
pub type Path = Vec<PathElement>;

/// Why a text is no path element.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum ElementError {
    /// Of a kind that a later version may know; such are skipped.
    #[error("unknown path element type")]
    Unknown,
    #[error("{0}")]
    Malformed(String),
}

impl PathElement {
    pub fn field(name: &str) -> Self {
        Self::Field(name.into())
    }

    /// The element of a member name in FieldsV1: `f:name`, `k:{"a":1}`, `v:"x"`, `i:3`.
    pub(super) fn from_text(text: &str) -> Result<Self, ElementError> {
        let malformed = |reason: &str| ElementError::Malformed(reason.to_owned());
        if text.len() < 2 {
            return Err(malformed("key must be 2 characters long:"));
        }
        let rest = text.get(2..).filter(|_| text.as_bytes()[1] == b':');
        let rest = rest.ok_or_else(|| ElementError::Malformed(format!("missing colon: {text}")))?;
        let json = || serde_json::from_str::<Value>(rest).map_err(|error| ElementError::Malformed(error.to_string()));
        match text.as_bytes()[0] {
            b'f' => Ok(Self::Field(rest.into())),
            b'v' => json().map(Self::Value),
            b'k' => match json()? {
                Value::Object(fields) => Ok(Self::Key(
                    fields.into_iter().map(|(name, value)| (name.into(), value)).collect(),
                )),
                _ => Err(malformed("a key is an object")),
            },
            b'i' => rest
                .parse()
                .map(Self::Index)
                .map_err(|_| malformed("an index is a number")),
            _ => Err(ElementError::Unknown),
        }
    }

    /// The member name of this element in FieldsV1.
    pub(super) fn to_text(&self) -> String {
        match self {
            Self::Field(name) => format!("f:{name}"),
            Self::Key(fields) => {
                let mut out = b"k:{".to_vec();
                for (at, (name, value)) in fields.iter().enumerate() {
                    if at > 0 {
                        out.push(b',');
                    }
                    write_string(name, &mut out);
                    out.push(b':');
                    encode_untyped(value, &mut out);
                }
                out.push(b'}');
                String::from_utf8(out).expect("JSON is text")
            }
            Self::Value(value) => {
                let mut out = b"v:".to_vec();
                encode_untyped(value, &mut out);
                String::from_utf8(out).expect("JSON is text")
            }
            Self::Index(index) => format!("i:{index}"),
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Field(_) => 0,
            Self::Key(_) => 1,
            Self::Value(_) => 2,
            Self::Index(_) => 3,
        }
    }
}

impl Ord for PathElement {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Field(a), Self::Field(b)) => a.cmp(b),
            (Self::Key(a), Self::Key(b)) => {
                for ((a_name, a_value), (b_name, b_value)) in a.iter().zip(b) {
                    let order = a_name.cmp(b_name).then_with(|| value::order(a_value, b_value));
                    if order != Ordering::Equal {
                        return order;
                    }
                }
                a.len().cmp(&b.len())
            }
            (Self::Value(a), Self::Value(b)) => value::order(a, b),
            (Self::Index(a), Self::Index(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for PathElement {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for PathElement {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for PathElement {}

impl fmt::Display for PathElement {
    /// As conflicts name fields: `.spec`, `[name="a"]`, `[="x"]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(fields) => {
                f.write_str("[")?;
                for (at, (name, key)) in fields.iter().enumerate() {
                    let comma = if at > 0 { "," } else { "" };
                    write!(f, "{comma}{name}={}", value::text(key))?;
                }
                f.write_str("]")
            }
            Self::Value(item) => write!(f, "[={}]", value::text(item)),
            Self::Index(index) => write!(f, "[{index}]"),
        }
    }
}

/// A path as conflicts print it: `.spec.ports[port=80]`.
pub fn path_text(path: &[PathElement]) -> String {
    path.iter().map(ToString::to_string).collect()
}

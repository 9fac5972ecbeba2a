//! FieldsV1, the form of a set in `metadata.managedFields`: `{"f:data":{".":{},"f:k":{}}}`.
//!
//! `.` says that the field around it is a member too; an empty object is a member and nothing else.

use serde_json::{Map, Value};

use super::path::{ElementError, PathElement};
use super::set::{Node, Set};

/// Why a value is no set.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct FieldsError(String);

impl Set {
    /// Reads FieldsV1. Steps of a kind that is not known are dropped, as upstream drops them.
    pub fn from_fields(fields: &Value) -> Result<Self, FieldsError> {
        read(fields).map(|node| node.below)
    }

    pub fn to_fields(&self) -> Value {
        let mut map = Map::new();
        for entry in self.entries() {
            let mut inner = entry.node.below.to_fields();
            if entry.node.member
                && let Some(map) = inner.as_object_mut().filter(|map| !map.is_empty())
            {
                map.insert(".".to_owned(), Value::Object(Map::new()));
            }
            map.insert(entry.element.to_text(), inner);
        }
        Value::Object(map)
    }
}

fn read(value: &Value) -> Result<Node, FieldsError> {
    let map = value
        .as_object()
        .ok_or_else(|| FieldsError(format!("expected an object, found {value}")))?;
    let mut node = Node::default();
    let mut below = Vec::with_capacity(map.len());
    for (key, value) in map {
        if key == "." {
            node.member = true;
            continue;
        }
        let element = match PathElement::from_text(key) {
            Ok(element) => element,
            Err(ElementError::Unknown) => continue,
            Err(error) => return Err(FieldsError(format!("parsing key as path element: {error}"))),
        };
        below.push((element, read(value)?));
    }
    node.below = Set::from_unsorted(below);
    // A step that leads nowhere is a member.
    node.member |= node.below.is_empty();
    Ok(node)
}

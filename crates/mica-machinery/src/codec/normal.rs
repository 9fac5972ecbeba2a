//! What Go leaves out and what it prints although nobody set it.
//!
//! A decoded value is in normal form when it equals what Go's encoder would print for it: empty fields marked omitempty
//! are absent, all other fields are present, with their zero value if need be.

use serde_json::{Map, Value};

use crate::facts::{Field, Shape, Type, facts};

/// Whether Go prints the field even when nothing was set.
pub(crate) fn is_always_printed(field: &Field) -> bool {
    if field.omit_zero {
        return false;
    }
    !field.omit_empty || !(field.pointer || can_be_empty(&field.shape))
}

/// Whether Go leaves the field out, given a value for it.
pub(super) fn is_omitted(field: &Field, value: &Value) -> bool {
    if field.pointer {
        // A schema union that is set to nothing prints null; every other null pointer is absent.
        return field.omit_empty && value.is_null() && !is_schema_union(&field.shape);
    }
    if field.omit_zero && value.is_null() {
        return true;
    }
    field.omit_empty && can_be_empty(&field.shape) && is_empty(value)
}

fn is_schema_union(shape: &Shape) -> bool {
    matches!(
        shape,
        Shape::SchemaOrBool(_) | Shape::SchemaOrArray(_) | Shape::SchemaOrStringArray(_)
    )
}

/// Whether Go's omitempty can apply: it never does to structs, and most special types are structs.
fn can_be_empty(shape: &Shape) -> bool {
    matches!(
        shape,
        Shape::String
            | Shape::Bool
            | Shape::Bytes
            | Shape::List(_)
            | Shape::StringList
            | Shape::Map(_)
            | Shape::Int32
            | Shape::Int64
            | Shape::Uint8
            | Shape::Uint16
            | Shape::Uint32
            | Shape::Uint64
            | Shape::Float32
            | Shape::Float64
    )
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(set) => !set,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}

/// The value that Go prints for an unset field, element or map value of this shape.
pub(crate) fn zero(shape: &Shape) -> Value {
    match shape {
        Shape::String => Value::String(String::new()),
        Shape::Bool | Shape::SchemaOrBool(_) => Value::Bool(false),
        Shape::Int32 | Shape::Int64 | Shape::Uint8 | Shape::Uint16 | Shape::Uint32 | Shape::Uint64 => 0.into(),
        Shape::Float32 | Shape::Float64 | Shape::IntOrString => 0.into(),
        Shape::Duration => "0s".into(),
        Shape::Quantity => "0".into(),
        Shape::Struct(id) => {
            let mut map = Map::new();
            add_always_printed(facts().ty(*id), &mut map);
            Value::Object(map)
        }
        _ => Value::Null,
    }
}

/// Adds the zero values of fields that Go always prints.
pub(crate) fn add_always_printed(ty: &Type, map: &mut Map<String, Value>) {
    for at in &ty.always {
        let field = &ty.fields[usize::from(*at)];
        if !field.pointer && map.get(field.json).is_none_or(Value::is_null) {
            map.insert(field.json.to_owned(), zero(&field.shape));
        } else if field.pointer && !map.contains_key(field.json) {
            map.insert(field.json.to_owned(), Value::Null);
        }
    }
}

/// Drops the field if Go would not print its value.
pub(crate) fn drop_if_omitted(field: &Field, map: &mut Map<String, Value>) {
    if map.get(field.json).is_some_and(|value| is_omitted(field, value)) {
        map.remove(field.json);
    }
}

/// Forgets the difference between nil and empty, which a trip through upstream's storage loses.
///
/// Upstream stores most built-in kinds as protobuf, which has no empty lists and maps: what clients sent as `[]` in a
/// field that is always printed comes back as null, and a null in a map of bytes comes back as empty.
pub fn forget_empty(shape: &Shape, value: &mut Value) {
    match (shape, &mut *value) {
        (Shape::Struct(id), Value::Object(map)) => {
            let ty = facts().ty(*id);
            for (name, inner) in map.iter_mut() {
                if let Some(field) = ty.field(name) {
                    forget_empty(&field.shape, inner);
                }
            }
        }
        (Shape::List(_) | Shape::StringList, Value::Array(list)) if list.is_empty() => *value = Value::Null,
        (Shape::List(element), Value::Array(list)) => list.iter_mut().for_each(|v| forget_empty(element, v)),
        (Shape::Map(_), Value::Object(map)) if map.is_empty() => *value = Value::Null,
        (Shape::Map(element), Value::Object(map)) => {
            for inner in map.values_mut() {
                if **element == Shape::Bytes && inner.is_null() {
                    *inner = Value::String(String::new());
                }
                forget_empty(element, inner);
            }
        }
        _ => {}
    }
}

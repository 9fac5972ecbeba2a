//! Whether a merged document fits its type, in upstream's words.
//!
//! After a strategic merge kube-apiserver fills the Go struct from the tree, not from JSON text, and that conversion has
//! texts and leniencies of its own: integers too large for their type wrap around, and a float that is whole is an integer.
//! It goes by the fields of the type, not by the text, and stops at the first that it cannot fill.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::codec;
use crate::facts::{Field, Shape, TypeId, facts};

/// The first thing that does not fit. Numbers are brought into the form that the type holds.
pub(super) fn check(ty: TypeId, value: &mut Value) -> Result<(), String> {
    let Value::Object(members) = value else {
        return Err(format!("cannot restore struct from: {}", go_kind(value)));
    };
    for field in &facts().ty(ty).fields {
        if let Some(member) = members.get_mut(field.json) {
            check_shape(&field.shape, field, 0, member)?;
        }
    }
    Ok(())
}

fn check_shape(shape: &Shape, field: &Field, level: usize, value: &mut Value) -> Result<(), String> {
    if value.is_null() {
        return Ok(());
    }
    match shape {
        Shape::Struct(id) => check(*id, value),
        Shape::List(element) => check_list(element, field, level, value),
        Shape::StringList => check_list(&Shape::String, field, level, value),
        Shape::Map(element) => {
            let Value::Object(members) = value else {
                return Err(format!("cannot restore map from {}", go_kind(value)));
            };
            let mut members = members.values_mut();
            members.try_for_each(|member| check_shape(element, field, level + 1, member))
        }
        Shape::Bytes if value.is_string() => {
            codec::check_part(shape, value).map_err(|error| format!("error decoding from json: {error}"))
        }
        Shape::Bytes if value.is_array() => check_bytes(field, level, value),
        Shape::Bytes => Err(format!("cannot restore slice from {}", go_kind(value))),
        Shape::String if value.is_string() => Ok(()),
        // Go can make a text of an integer, though not this one, and of nothing else.
        Shape::String if value.is_i64() || value.is_u64() => Err(cannot_convert(value, "string", field, level)),
        Shape::String => Err("unrecognized type: string".to_owned()),
        Shape::Bool if value.is_boolean() => Ok(()),
        Shape::Bool => Err("unrecognized type: bool".to_owned()),
        Shape::Float32 | Shape::Float64 if value.is_number() => Ok(()),
        Shape::Float32 => Err("unrecognized type: float32".to_owned()),
        Shape::Float64 => Err("unrecognized type: float64".to_owned()),
        Shape::Int32 => check_integer(value, "int32", field, level, |n| i64::from(n as i32)),
        Shape::Int64 => check_integer(value, "int64", field, level, |n| n),
        Shape::Uint8 => check_integer(value, "uint8", field, level, |n| i64::from(n as u8)),
        Shape::Uint16 => check_integer(value, "uint16", field, level, |n| i64::from(n as u16)),
        Shape::Uint32 => check_integer(value, "uint32", field, level, |n| i64::from(n as u32)),
        Shape::Uint64 => check_integer(value, "uint64", field, level, |n| n),
        // These decode themselves from JSON, and name no field outside of them.
        Shape::Time
        | Shape::MicroTime
        | Shape::Duration
        | Shape::Quantity
        | Shape::IntOrString
        | Shape::Raw
        | Shape::FieldsV1
        | Shape::Json
        | Shape::SchemaOrBool(_)
        | Shape::SchemaOrArray(_)
        | Shape::SchemaOrStringArray(_) => codec::check_part(shape, value).map_err(|error| error.to_string()),
    }
}

fn check_list(element: &Shape, field: &Field, level: usize, value: &mut Value) -> Result<(), String> {
    let Value::Array(items) = value else {
        return Err(format!("cannot restore slice from {}", go_kind(value)));
    };
    items
        .iter_mut()
        .try_for_each(|item| check_shape(element, field, level + 1, item))
}

/// Bytes may be a list of numbers, too.
fn check_bytes(field: &Field, level: usize, value: &mut Value) -> Result<(), String> {
    let mut bytes = Vec::new();
    for item in value.as_array_mut().into_iter().flatten() {
        if !item.is_null() {
            check_shape(&Shape::Uint8, field, level + 1, item)?;
        }
        // What fits has been wrapped around to a byte.
        bytes.push(item.as_u64().unwrap_or_default() as u8);
    }
    *value = STANDARD.encode(bytes).into();
    Ok(())
}

fn check_integer(
    value: &mut Value,
    kind: &str,
    field: &Field,
    level: usize,
    wrap: fn(i64) -> i64,
) -> Result<(), String> {
    let number = match value {
        Value::Number(number) => number.clone(),
        _ => return Err(format!("unrecognized type: {kind}")),
    };
    let whole = match (number.as_i64(), number.as_f64()) {
        (Some(integer), _) => integer,
        (None, Some(float)) if float == float.trunc() => float as i64,
        _ => return Err(cannot_convert(value, kind, field, level)),
    };
    *value = wrap(whole).into();
    Ok(())
}

/// Named types print by their name, `v1.Protocol`; pointers print what they point to.
fn cannot_convert(value: &Value, kind: &str, field: &Field, level: usize) -> String {
    let name = field.go_type(level).trim_start_matches('*');
    let name = if name.is_empty() || name == "interface {}" {
        kind
    } else {
        name
    };
    format!("cannot convert {} to {name}", go_kind(value))
}

fn go_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "invalid",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "slice",
        Value::Object(_) => "map",
    }
}

//! Equality, order and text of values as managed fields see them: `1` equals `1.0`, and any two values can be sorted.

use std::cmp::Ordering;

use serde_json::Value;

use crate::codec::text::write_float;
use crate::field::quote;

/// Whether two values are the same.
pub(super) fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(x), Value::Number(y)) => x == y || x.as_f64() == y.as_f64(),
        (Value::Array(x), Value::Array(y)) => x.len() == y.len() && x.iter().zip(y).all(|(x, y)| equal(x, y)),
        (Value::Object(x), Value::Object(y)) => {
            x.len() == y.len() && x.iter().zip(y).all(|((k, x), (l, y))| k == l && equal(x, y))
        }
        _ => a == b,
    }
}

/// Numbers, then strings, booleans, lists, maps and null.
pub(super) fn order(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Number(x), Value::Number(y)) => match (x.as_i64(), y.as_i64()) {
            (Some(x), Some(y)) => x.cmp(&y),
            _ => x.as_f64().partial_cmp(&y.as_f64()).unwrap_or(Ordering::Equal),
        },
        (Value::String(x), Value::String(y)) => x.cmp(y),
        (Value::Bool(x), Value::Bool(y)) => x.cmp(y),
        (Value::Array(x), Value::Array(y)) => {
            let unequal = x
                .iter()
                .zip(y)
                .map(|(x, y)| order(x, y))
                .find(|order| *order != Ordering::Equal);
            unequal.unwrap_or_else(|| x.len().cmp(&y.len()))
        }
        (Value::Object(x), Value::Object(y)) => {
            // The map that has the smaller key first comes first.
            let unequal = x
                .iter()
                .zip(y)
                .map(|((k, x), (l, y))| k.cmp(l).then_with(|| order(x, y)))
                .find(|order| *order != Ordering::Equal);
            unequal.unwrap_or_else(|| x.len().cmp(&y.len()))
        }
        _ => rank(a).cmp(&rank(b)),
    }
}

fn rank(value: &Value) -> u8 {
    match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    }
}

/// A value for people, in conflicts and errors.
pub(super) fn text(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) if number.is_f64() => {
            let mut out = Vec::new();
            write_float(&mut out, number.as_f64().unwrap_or_default());
            String::from_utf8_lossy(&out).into_owned()
        }
        Value::Number(number) => number.to_string(),
        Value::String(text) => quote(text),
        Value::Array(items) => format!("[{}]", items.iter().map(text).collect::<Vec<_>>().join(",")),
        Value::Object(map) => map
            .iter()
            .map(|(key, value)| format!("{key}={}", text(value)))
            .collect(),
    }
}

//! Values that stand in schemas: defaults, examples and enums.
//!
//! Upstream reads them into Go's `any` and prints them again, so that `1.0` is shown as `1` and `1e3` as `1000`. They are
//! in that form from the beginning, before anything is checked or compared.

use serde_json::Value;

/// Below this, floats without a fraction are the same numbers as integers.
const EXACT_BELOW: f64 = (1_u64 << 53) as f64;

/// Brings the values in a schema, and in all schemas inside it, into form.
pub(super) fn normalize(schema: &mut Value) {
    match schema {
        Value::Array(schemas) => schemas.iter_mut().for_each(normalize),
        Value::Object(words) => {
            for (word, value) in words {
                match word.as_str() {
                    "default" | "example" | "enum" => normalize_value(value),
                    // What stands there are names.
                    "properties" | "patternProperties" | "definitions" | "dependencies" => {
                        value
                            .as_object_mut()
                            .into_iter()
                            .flatten()
                            .for_each(|(_, inner)| normalize(inner));
                    }
                    _ => normalize(value),
                }
            }
        }
        _ => {}
    }
}

fn normalize_value(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(normalize_value),
        Value::Object(members) => members.values_mut().for_each(normalize_value),
        Value::Number(number) if !number.is_i64() => {
            let float = number.as_f64().unwrap_or_default();
            // Larger ones stay floats, as which they are judged before they are printed.
            *value = if float.fract() == 0.0 && float.abs() < EXACT_BELOW {
                Value::from(float as i64)
            } else {
                Value::from(float)
            };
        }
        _ => {}
    }
}

//! Printer columns: the cells of a table's row.

use jiff::Timestamp;
use serde_json::Value;

use super::go;
use super::jsonpath::{Found, JsonPath};
use crate::time::{Precision, Time};
use crate::{codec, duration};

/// Below this, every integer is a float.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// A column of a definition.
#[derive(Clone, PartialEq, Debug)]
pub struct Column {
    pub name: String,
    pub r#type: String,
    pub format: String,
    pub description: String,
    pub priority: i64,
    path: JsonPath,
}

impl Column {
    /// The columns of a version. From the first whose path cannot be parsed on there are none, as upstream.
    pub fn all(definitions: &[Value]) -> Vec<Column> {
        definitions.iter().map_while(Column::new).collect()
    }

    fn new(definition: &Value) -> Option<Column> {
        let text = |name: &str| definition.get(name).and_then(Value::as_str).unwrap_or_default();
        let path = text("jsonPath");
        let description = match text("description") {
            "" => format!("Custom resource definition column (in JSONPath format): {path}"),
            description => description.to_owned(),
        };
        Some(Column {
            name: text("name").to_owned(),
            r#type: text("type").to_owned(),
            format: text("format").to_owned(),
            description,
            priority: definition.get("priority").and_then(Value::as_i64).unwrap_or_default(),
            path: JsonPath::parse(path).ok()?,
        })
    }

    /// The cell for an object; null where the path finds nothing, or nothing of the column's type.
    pub fn cell(&self, object: &Value, now: Timestamp) -> Value {
        let found = self.path.find(object).unwrap_or_default();
        match found.first() {
            None => Value::Null,
            Some(found) if self.r#type == "string" => Value::String(text(found.value())),
            // A number in the path itself is of a type that cells do not know.
            Some(Found::Constant(Value::Number(number))) if !number.is_f64() => Value::Null,
            Some(found) => typed(&self.r#type, found.value(), now),
        }
    }
}

/// Anything as text: structures as JSON that is safe inside HTML, an explicit null as Go's templates print it.
fn text(value: &Value) -> String {
    match value {
        Value::Null => "<no value>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(number) => go::number(number),
        other => {
            let mut json = Vec::new();
            codec::encode_untyped(other, &mut json);
            String::from_utf8_lossy(&json).into_owned()
        }
    }
}

fn typed(ty: &str, value: &Value, now: Timestamp) -> Value {
    match (ty, value) {
        ("integer", Value::Number(number)) => match number.as_i64() {
            Some(integer) => integer.into(),
            None => number.as_f64().map_or(Value::Null, |float| go::integer(float).into()),
        },
        ("number", Value::Number(number)) => number.as_f64().map_or(Value::Null, |float| match number.as_i64() {
            Some(_) if float.abs() < EXACT => value.clone(),
            _ => float.into(),
        }),
        ("boolean", Value::Bool(_)) => value.clone(),
        ("date", Value::String(text)) if text.is_empty() || text == "null" => "<unknown>".into(),
        ("date", Value::String(text)) => match Time::parse(text, Precision::Second) {
            Ok(_) => duration::age(text, now).into(),
            Err(_) => "<invalid>".into(),
        },
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn cells_have_the_columns_type_or_are_null() {
        let object = json!({
            "metadata": {"creationTimestamp": "2024-01-01T00:00:00Z"},
            "spec": {"s": "x", "n": 3, "big": i64::MAX, "f": 2.5, "b": true, "l": [1, "a"], "none": null, "when": "soon", "h": {"x": "<&"}, "huge": 1e19},
        });
        let now: Timestamp = "2024-01-01T01:00:00Z".parse().expect("a time");
        let cell = |ty: &str, path: &str| {
            let columns = Column::all(&[json!({"name": "c", "type": ty, "jsonPath": path})]);
            columns[0].cell(&object, now)
        };
        assert_eq!(cell("string", ".spec.s"), json!("x"));
        assert_eq!(cell("string", ".spec.n"), json!("3"));
        assert_eq!(cell("string", ".spec.l"), json!(r#"[1,"a"]"#));
        assert_eq!(cell("string", ".spec.h"), json!(r#"{"x":"\u003c\u0026"}"#));
        assert_eq!(cell("integer", "7"), json!(null));
        assert_eq!(cell("string", "7"), json!("7"));
        assert_eq!(cell("string", ".spec.none"), json!("<no value>"));
        assert_eq!(cell("string", ".spec.missing"), json!(null));
        assert_eq!(cell("integer", ".spec.n"), json!(3));
        assert_eq!(cell("integer", ".spec.f"), json!(2));
        assert_eq!(cell("integer", ".spec.huge"), json!(i64::MIN));
        assert_eq!(cell("integer", ".spec.s"), json!(null));
        assert_eq!(cell("number", ".spec.f"), json!(2.5));
        assert_eq!(cell("number", ".spec.n"), json!(3));
        assert_eq!(cell("number", ".spec.big"), json!(9_223_372_036_854_775_807_i64 as f64));
        assert_eq!(cell("boolean", ".spec.b"), json!(true));
        assert_eq!(cell("date", ".metadata.creationTimestamp"), json!("60m"));
        assert_eq!(cell("date", ".spec.when"), json!("<invalid>"));
    }

    #[test]
    fn columns_end_at_the_first_bad_path() {
        let good = json!({"name": "a", "type": "string", "jsonPath": ".a"});
        let bad = json!({"name": "b", "type": "string", "jsonPath": ".a["});
        let open = json!({"name": "c", "type": "string", "jsonPath": ".a\\"});
        assert_eq!(Column::all(&[good.clone(), bad, good.clone()]).len(), 1);
        assert_eq!(Column::all(&[good.clone(), open, good]).len(), 1);
    }
}

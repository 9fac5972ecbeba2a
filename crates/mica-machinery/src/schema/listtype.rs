//! Lists that are sets or maps: no item, or no item's key, may be there twice.
//!
//! Each repeated value is reported once, at its second place. Upstream compares scalars as values, so that `80` and `80.0`
//! differ, and all else as the JSON that Go writes, in which both are `80`.

use std::collections::HashMap;
use std::hash::Hash;

use serde_json::{Map, Value};

use super::failure::show_as_go;
use super::node::{ListType, Node};
use crate::field::{Error, ErrorList, Path};

pub(crate) fn check(node: &Node, value: &Value, path: &Path, errors: &mut ErrorList) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                if let Some(property) = node.properties.get(name) {
                    check(property, member, &path.child(name), errors);
                } else if let Some(schema) = node.member(name) {
                    check(schema, member, &path.key(name), errors);
                }
            }
        }
        Value::Array(items) => {
            match &node.list {
                ListType::Atomic => {}
                ListType::Set => {
                    for at in repeated(items) {
                        errors.push(show_as_go(Error::duplicate(&path.index(at), shown(&items[at]))));
                    }
                }
                ListType::Map(keys) => check_keys(keys, items, path, errors),
            }
            if let Some(element) = &node.items {
                for (at, item) in items.iter().enumerate() {
                    check(element, item, &path.index(at), errors);
                }
            }
        }
        _ => {}
    }
}

fn check_keys(keys: &[compact_str::CompactString], items: &[Value], path: &Path, errors: &mut ErrorList) {
    let wrong = items.iter().position(|item| !item.is_null() && !item.is_object());
    if let Some(at) = wrong {
        let detail = "must be an object for an array of list-type map";
        errors.push(show_as_go(Error::invalid(&path.index(at), items[at].clone(), detail)));
        return;
    }
    let key_of = |item: &Value| {
        let held = keys
            .iter()
            .filter_map(|key| Some((key.to_string(), item.get(key.as_str())?.clone())));
        Value::Object(held.collect::<Map<_, _>>())
    };
    let found: Vec<Value> = items.iter().map(key_of).collect();
    let again = match keys {
        // An only key is compared as the value it is, several as the object they make.
        [key] => repeated_by(&found, |held| held.get(key.as_str()).map(identity)),
        _ => repeated(&found),
    };
    for at in again {
        errors.push(Error::duplicate(&path.index(at), shown(&found[at])));
    }
}

fn repeated(items: &[Value]) -> Vec<usize> {
    repeated_by(items, identity)
}

/// The second place of each value that is there more than once.
fn repeated_by<K: Eq + Hash>(items: &[Value], key: impl Fn(&Value) -> K) -> Vec<usize> {
    let mut seen: HashMap<K, usize> = HashMap::with_capacity(items.len());
    let mut again = Vec::new();
    for (at, item) in items.iter().enumerate() {
        let times = seen.entry(key(item)).or_default();
        *times += 1;
        if *times == 2 {
            again.push(at);
        }
    }
    again
}

/// What equal values have in common.
fn identity(value: &Value) -> String {
    shown(value).to_string()
}

/// A value as Go's JSON has it: within objects and lists, whole floats are written like integers.
fn shown(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let members = members.iter().map(|(name, member)| (name.clone(), written(member)));
            Value::Object(members.collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(written).collect()),
        scalar => scalar.clone(),
    }
}

fn written(value: &Value) -> Value {
    match value {
        Value::Number(number) if number.is_f64() => {
            // The shortest digits, which is what Go writes too.
            let digits = number.as_f64().map(|float| float.to_string());
            let whole = digits.and_then(|digits| digits.parse::<i64>().ok());
            whole.map_or_else(|| value.clone(), Value::from)
        }
        other => shown(other),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::node::Place;
    use crate::schema::read::Reader;

    #[track_caller]
    fn check(schema: &Value, value: &Value, expected: &[&str]) {
        let mut schema = schema.clone();
        schema["type"] = "array".into();
        let node = Reader::default().read(&schema, Place::Inside);
        let mut errors = ErrorList::new();
        super::check(&node, value, &Path::new("f"), &mut errors);
        let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(errors, expected, "{value}");
    }

    #[test]
    fn whole_floats_are_integers_within_what_is_compared_as_json() {
        let several = json!({"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k", "p"]});
        let one = json!({"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["p"]});
        let set = json!({"x-kubernetes-list-type": "set"});
        for (schema, value, expected) in [
            (
                &several,
                json!([{"k": "a", "p": 80}, {"k": "a", "p": 80.0}]),
                &[r#"f[1]: Duplicate value: {"k":"a","p":80}"#] as &[&str],
            ),
            (&several, json!([{"k": "a", "p": 80}, {"k": "a", "p": 80.5}]), &[]),
            (&one, json!([{"p": 80}, {"p": 80.0}]), &[]),
            (
                &one,
                json!([{"p": 80.0}, {"p": 80.0}]),
                &[r#"f[1]: Duplicate value: {"p":80}"#],
            ),
            (&one, json!([{}, {}, {"p": null}]), &["f[1]: Duplicate value: {}"]),
            (
                &set,
                json!([{"x": [1]}, {"x": [1.0]}]),
                &[r#"f[1]: Duplicate value: {"x":[1]}"#],
            ),
            (&set, json!([80, 80.0]), &[]),
            (&set, json!([80.0, 80.0]), &["f[1]: Duplicate value: 80"]),
        ] {
            check(schema, &value, expected);
        }
    }
}

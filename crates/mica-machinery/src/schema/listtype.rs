//! Lists that are sets or maps: no item, or no item's key, may be there twice.
//!
//! Each repeated value is reported once, at its second place.

use std::collections::HashMap;

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
                        errors.push(show_as_go(Error::duplicate(&path.index(at), items[at].clone())));
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
    for at in repeated(&found) {
        errors.push(Error::duplicate(&path.index(at), found[at].clone()));
    }
}

/// The second place of each value that is there more than once.
fn repeated(items: &[Value]) -> Vec<usize> {
    let mut seen: HashMap<String, usize> = HashMap::with_capacity(items.len());
    let mut again = Vec::new();
    for (at, item) in items.iter().enumerate() {
        let times = seen.entry(item.to_string()).or_default();
        *times += 1;
        if *times == 2 {
            again.push(at);
        }
    }
    again
}

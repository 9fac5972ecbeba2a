//! Filling in defaults.
//!
//! A default is set where a member is missing, or null and not nullable; then the defaults inside it apply to it as well.

use serde_json::Value;

use super::node::{Additional, Node};

pub(crate) fn fill(node: &Node, value: &mut Value) {
    match value {
        Value::Object(members) => {
            for (name, property) in node.properties.iter() {
                let Some(default) = &property.default else { continue };
                match members.get(name.as_str()) {
                    Some(found) if !is_missing(found, property) => {}
                    _ => drop(members.insert(name.to_string(), (**default).clone())),
                }
            }
            for (name, value) in members {
                match (node.properties.get(name.as_str()), &node.additional) {
                    (Some(property), _) => fill(property, value),
                    (None, Additional::Schema(schema)) => fill_in_place(schema, value),
                    _ => {}
                }
            }
        }
        Value::Array(items) => {
            if let Some(element) = &node.items {
                items.iter_mut().for_each(|item| fill_in_place(element, item));
            }
        }
        _ => {}
    }
}

fn fill_in_place(node: &Node, value: &mut Value) {
    if is_missing(value, node) {
        *value = node.default.as_deref().cloned().unwrap_or_default();
    }
    fill(node, value);
}

fn is_missing(value: &Value, node: &Node) -> bool {
    value.is_null() && !node.flags.nullable
}

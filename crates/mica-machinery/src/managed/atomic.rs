//! Which parts of a value only its whole may change.

use serde_json::Value;

use super::path::PathElement;
use super::schema::TypeRef;
use crate::facts::MapKind;

/// Paths of the atomic lists, maps and structs that a value holds, in its order.
pub fn atomics_of(value: &Value, ty: TypeRef<'_>) -> Vec<String> {
    let mut found = Vec::new();
    visit(value, ty, "", &mut found);
    found
}

fn visit(value: &Value, ty: TypeRef<'_>, path: &str, found: &mut Vec<String>) {
    let atom = ty.resolve();
    match (value, atom.map, atom.list) {
        (Value::Object(members), Some(map), _) => {
            if map.kind == MapKind::Atomic {
                found.push(path.to_owned());
            }
            for (name, member) in members {
                // As upstream: what is no declared field is not looked into.
                if let Some(ty) = map.field(name) {
                    visit(member, ty, &format!("{path}{}", PathElement::field(name)), found);
                }
            }
        }
        (Value::Array(items), _, Some(list)) => {
            if list.is_atomic() {
                found.push(path.to_owned());
            }
            for (at, item) in items.iter().enumerate() {
                let element = PathElement::Index(i64::try_from(at).unwrap_or(i64::MAX));
                visit(item, list.element, &format!("{path}{element}"), found);
            }
        }
        _ => {}
    }
}

//! Taking fields out of an object.

use serde_json::{Map as JsonMap, Value};

use super::path::PathElement;
use super::schema::TypeRef;
use super::set::Set;
use super::typed::{Form, form, item_element};
use crate::facts::MapKind;

/// `object` without the fields in `gone`. A container that loses all it has becomes null.
pub(super) fn remove(object: &Value, gone: &Set, ty: TypeRef<'_>) -> Value {
    match (form(&ty.resolve(), object), object) {
        (Ok(Form::Scalar(_)), value) => value.clone(),
        (Ok(Form::Map(map)), Value::Object(members)) if map.kind != MapKind::Atomic && !members.is_empty() => {
            let mut out = JsonMap::new();
            for (name, value) in members {
                let node = gone.node(&PathElement::field(name));
                match node {
                    Some(node) if node.member => {}
                    Some(node) => {
                        let inner = map
                            .member(name)
                            .map_or(Value::Null, |ty| remove(value, &node.below, ty));
                        out.insert(name.clone(), inner);
                    }
                    None => drop(out.insert(name.clone(), value.clone())),
                }
            }
            if out.is_empty() {
                Value::Null
            } else {
                Value::Object(out)
            }
        }
        (Ok(Form::List(list)), Value::Array(items)) if !list.is_atomic() && !items.is_empty() => {
            let mut out = Vec::with_capacity(items.len());
            for item in items {
                let node = item_element(&list, item).ok().and_then(|element| gone.node(&element));
                match node {
                    Some(node) if node.member => {}
                    Some(node) => out.push(remove(item, &node.below, list.element)),
                    None => out.push(item.clone()),
                }
            }
            if out.is_empty() { Value::Null } else { Value::Array(out) }
        }
        // An atomic value is reached only if something inside of it is to go, which means all of it.
        _ => Value::Null,
    }
}

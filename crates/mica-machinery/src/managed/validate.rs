//! Whether a value fits its type, with the texts that an applier sees if not.

use serde_json::Value;

use super::path::PathElement;
use super::schema::{List, Map, TypeRef};
use super::typed::{Form, TypeErrors, check_scalar, form, go_value, item_element};

/// Whether items of a list may repeat: what is applied may not, what is stored may.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Duplicates {
    Allowed,
    Refused,
}

/// Checks a whole object.
pub fn validate(value: &Value, ty: TypeRef<'_>, duplicates: Duplicates) -> Result<(), TypeErrors> {
    visit(value, ty, duplicates).into_result()
}

fn visit(value: &Value, ty: TypeRef<'_>, duplicates: Duplicates) -> TypeErrors {
    let form = match form(&ty.resolve(), value) {
        Ok(form) => form,
        Err(errors) => return errors,
    };
    match (form, value) {
        (Form::Scalar(scalar), value) => check_scalar(scalar, value, "").err().unwrap_or_default(),
        (_, Value::Null) => TypeErrors::default(),
        (Form::Map(map), Value::Object(members)) => visit_map(&map, members, duplicates),
        (Form::Map(_), other) => TypeErrors::one(format!("expected map, got {}", go_value(other))),
        (Form::List(list), Value::Array(items)) => visit_list(&list, items, duplicates),
        (Form::List(_), other) => TypeErrors::one(format!("expected list, got {}", go_value(other))),
    }
}

fn visit_map(map: &Map<'_>, members: &serde_json::Map<String, Value>, duplicates: Duplicates) -> TypeErrors {
    let mut errors = TypeErrors::default();
    for (name, value) in members {
        let element = PathElement::field(name);
        match map.member(name) {
            Some(ty) => errors.extend(visit(value, ty, duplicates).under(&element)),
            None => {
                // Upstream stops at the first unknown field of a map.
                errors.extend(TypeErrors::one("field not declared in schema").under(&element));
                break;
            }
        }
    }
    errors
}

fn visit_list(list: &List<'_>, items: &[Value], duplicates: Duplicates) -> TypeErrors {
    let mut errors = TypeErrors::default();
    let mut seen: Vec<PathElement> = Vec::new();
    for (at, item) in items.iter().enumerate() {
        let element = if list.is_atomic() {
            PathElement::Index(at as i64)
        } else {
            match item_element(list, item) {
                Ok(element) => element,
                Err(text) => {
                    errors.extend(TypeErrors::one(format!("element {at}: {text}")));
                    return errors;
                }
            }
        };
        if !list.is_atomic() {
            match seen.binary_search(&element) {
                Ok(_) if duplicates == Duplicates::Refused => {
                    errors.extend(TypeErrors::one(format!("duplicate entries for key {element}")));
                }
                Ok(_) => {}
                Err(place) => seen.insert(place, element.clone()),
            }
        }
        errors.extend(visit(item, list.element, duplicates).under(&element));
    }
    errors
}

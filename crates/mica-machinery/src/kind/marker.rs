//! Defaults that upstream marks in its types (`+default`), taken from the fact table.

use serde_json::Value;

use super::check::is_empty;
use crate::facts::{Field, Shape, TypeId, facts};

/// Sets the marked defaults of a value of the type with this OpenAPI name, and of all that it holds.
pub fn fill(value: &mut Value, openapi: &str) {
    if let Some(id) = facts().openapi(openapi) {
        fill_struct(value, id);
    }
}

fn fill_struct(value: &mut Value, id: TypeId) {
    let Some(object) = value.as_object_mut() else { return };
    for field in &facts().ty(id).fields {
        if let Some(held) = object.get_mut(field.json) {
            fill_in(held, &field.shape);
        }
        if let Some(default) = wanted(field, object.get(field.json)) {
            object.insert(field.json.to_owned(), default);
        }
    }
}

/// The default that a field takes, given what it holds. One that is empty and would not be printed is none.
fn wanted(field: &Field, held: Option<&Value>) -> Option<Value> {
    let missing = if field.pointer {
        held.is_none_or(Value::is_null)
    } else {
        held.is_none_or(is_empty)
    };
    let default = field.default_value().filter(|_| missing)?;
    (field.pointer || !is_empty(&default)).then_some(default)
}

fn fill_in(value: &mut Value, shape: &Shape) {
    match (shape, value) {
        (Shape::Struct(id), value) => fill_struct(value, *id),
        (Shape::List(item), Value::Array(items)) => items.iter_mut().for_each(|one| fill_in(one, item)),
        _ => {}
    }
}

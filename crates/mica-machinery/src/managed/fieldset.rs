//! The fields that an object mentions: what an applier claims.
//!
//! Leaves, and items of lists and members of maps that have leaves; structs are not claimed by naming a field in them.

use serde_json::Value;

use super::path::PathElement;
use super::schema::TypeRef;
use super::set::{Node, Set};
use super::typed::{Form, TypeErrors, form, index_items, items, members};
use crate::facts::MapKind;

/// The fields that `object` mentions.
pub fn fields_of(object: &Value, ty: TypeRef<'_>) -> Result<Set, TypeErrors> {
    visit(object, ty).map(|node| node.below)
}

fn visit(value: &Value, ty: TypeRef<'_>) -> Result<Node, TypeErrors> {
    let mut below = Set::new();
    match form(&ty.resolve(), value)? {
        Form::Scalar(_) => return Ok(Node::LEAF),
        Form::Map(map) if map.kind == MapKind::Atomic => return Ok(Node::LEAF),
        Form::List(list) if list.is_atomic() => return Ok(Node::LEAF),
        Form::Map(map) => {
            for (name, value) in members(value).into_iter().flatten() {
                let element = PathElement::field(name);
                let ty = map
                    .member(name)
                    .ok_or_else(|| TypeErrors::one("field not declared in schema").under(&element))?;
                let mut node = visit(value, ty).map_err(|errors| errors.under(&element))?;
                let empty = value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty);
                node.member |= empty || map.field(name).is_none();
                below.push(element, node);
            }
        }
        Form::List(list) => {
            for (element, items) in index_items(&list, items(value))? {
                let mut node = match &items[..] {
                    [item] => visit(item, list.element).map_err(|errors| errors.under(&element))?,
                    // Items that cannot be told apart are one leaf.
                    _ => Node::default(),
                };
                node.member = true;
                below.push(element, node);
            }
        }
    }
    Ok(Node { member: false, below })
}

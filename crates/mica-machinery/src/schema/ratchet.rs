//! Which part of the old object a part of the new one stands for, and whether it is unchanged.
//!
//! Errors about unchanged parts are dropped, so that a schema may be tightened while old objects live on. Members stand for
//! members of the same name, items of a keyed list for items of the same key; items of other lists stand for nothing.

use std::collections::HashMap;

use serde_json::Value;

use super::node::{ListType, Node};

/// The old value that a member's value replaces. Without a schema for the member there is none.
pub(crate) fn old_member<'o>(node: &Node, old: Option<&'o Value>, name: &str) -> Option<&'o Value> {
    node.member(name)?;
    old?.as_object()?.get(name)
}

/// The items of an old list by key, if its items have keys.
pub(crate) struct OldItems<'n, 'o> {
    keys: &'n [compact_str::CompactString],
    items: HashMap<String, &'o Value>,
}

impl<'n, 'o> OldItems<'n, 'o> {
    pub(crate) fn of(node: &'n Node, old: Option<&'o Value>) -> Self {
        let keys: &[_] = match &node.list {
            ListType::Map(keys) => keys,
            _ => &[],
        };
        let mut items = HashMap::new();
        if !keys.is_empty() && node.items.is_some() {
            for item in old.and_then(Value::as_array).into_iter().flatten() {
                // Of several items with one key, the first counts.
                if let Some(key) = key_of(keys, item) {
                    items.entry(key).or_insert(item);
                }
            }
        }
        OldItems { keys, items }
    }

    /// The old item with the same key.
    pub(crate) fn get(&self, item: &Value) -> Option<&'o Value> {
        if self.items.is_empty() {
            return None;
        }
        self.items.get(&key_of(self.keys, item)?).copied()
    }
}

/// Items that lack a key, or whose key is no scalar, stand for nothing.
fn key_of(keys: &[compact_str::CompactString], item: &Value) -> Option<String> {
    let members = item.as_object()?;
    let mut text = String::new();
    for key in keys {
        match members.get(key.as_str())? {
            Value::Null | Value::Array(_) | Value::Object(_) => return None,
            scalar => {
                text.push_str(&scalar.to_string());
                text.push('\n');
            }
        }
    }
    Some(text)
}

/// Whether a value equals the one it replaces.
///
/// Not quite equality: members that the schema does not know are never equal, and keyed lists may be in another order.
pub(crate) fn unchanged(node: &Node, new: &Value, old: &Value) -> bool {
    match (new, old) {
        (Value::Object(new), Value::Object(old)) => {
            let same = |(name, value): (&String, &Value)| match (node.member(name), old.get(name)) {
                (Some(member), Some(old)) => unchanged(member, value, old),
                _ => false,
            };
            new.len() == old.len() && new.iter().all(same)
        }
        (Value::Array(items), Value::Array(old_items)) => {
            let (ListType::Map(_), Some(element)) = (&node.list, &node.items) else {
                return items == old_items;
            };
            let known = OldItems::of(node, Some(old));
            let same = |item: &Value| known.get(item).is_some_and(|old| unchanged(element, item, old));
            items.len() == old_items.len() && items.iter().all(same)
        }
        _ => new == old,
    }
}

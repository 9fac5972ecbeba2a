//! JSON merge patch.

use std::collections::BTreeMap;

use super::node::{Container, Node};

const BAD_PATCH: &str = "Invalid JSON Patch";
const BAD_DOCUMENT: &str = "Invalid JSON Document";

/// The patched document, or upstream's word for what is wrong.
pub(super) fn apply(document: &str, patch: &str) -> Result<Vec<u8>, &'static str> {
    if !is_json(patch) {
        return Err(BAD_PATCH);
    }
    let mut document = Node::from_text(document);
    let mut patch = Node::from_text(patch);
    let mut out = Vec::new();
    match (document.open_object(), patch.open()) {
        (None, _) => return Err(BAD_DOCUMENT),
        (_, None) => return Err(BAD_PATCH),
        (Some(document), Some(Container::Object(members))) => merge(document, std::mem::take(members)),
        (Some(_), Some(Container::Array(_))) => {
            // A list is no patch; it takes the document's place, and decoding refuses it.
            prune(&mut patch);
            document = patch;
        }
    }
    document.write(&mut out);
    Ok(out)
}

fn is_json(text: &str) -> bool {
    serde_json::from_str::<&serde_json::value::RawValue>(text).is_ok()
}

fn merge<'a>(document: &mut BTreeMap<String, Node<'a>>, patch: BTreeMap<String, Node<'a>>) {
    for (key, mut value) in patch {
        if matches!(value, Node::Null) {
            document.remove(&key);
            continue;
        }
        match document.get_mut(&key).and_then(Node::open_object) {
            Some(members) => match value.open_object() {
                Some(changes) => merge(members, std::mem::take(changes)),
                None => drop(document.insert(key, value)),
            },
            None => {
                prune(&mut value);
                document.insert(key, value);
            }
        }
    }
}

/// A new value has no nulls to delete anything with; nulls in lists stay.
fn prune(value: &mut Node<'_>) {
    match value.open() {
        Some(Container::Object(members)) => {
            members.retain(|_, value| !matches!(value, Node::Null));
            members.values_mut().for_each(prune);
        }
        Some(Container::Array(items)) => items.iter_mut().for_each(prune),
        None => {}
    }
}

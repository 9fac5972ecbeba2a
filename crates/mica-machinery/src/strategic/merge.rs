//! Merging objects: directives of maps, then member by member.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::lookup::{Merge, Node};
use super::{list, print};

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM_LIST: &str = "$deleteFromPrimitiveList";
pub(super) const SET_ORDER: &str = "$setElementOrder";

const BAD_DELETE_LIST: &str = "invalid patch format of primitive list";
const BAD_RETAIN_KEYS: &str = "invalid patch format of retainKeys";
pub(super) const BAD_ORDER: &str = "invalid patch format of setElementOrder list";

pub(super) type Members = Map<String, Value>;

/// Why two values do not merge.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum MergeError {
    /// A directive of the wrong form.
    #[error("{0}")]
    Format(&'static str),
    #[error("lists of lists are not supported")]
    ListOfLists,
    #[error("{0}")]
    Other(String),
}

/// What `$patch` says, if it is there.
pub(super) fn directive(members: &Members) -> Option<&Value> {
    members.get(DIRECTIVE)
}

pub(super) fn unknown_directive(directive: &Value, members: &Members) -> MergeError {
    MergeError::Other(format!(
        "unknown patch type: {} in map: {}",
        print::text(directive),
        print::plain(&Value::Object(members.clone()))
    ))
}

pub(super) fn wrong_type(expected: &str, found: &Value) -> MergeError {
    MergeError::Other(format!(
        "expected a {expected}, but received a {}",
        print::go_type(found)
    ))
}

/// The merged object. The patch loses its directives on the way.
pub(super) fn merge_map(mut original: Members, patch: &mut Members, node: Node) -> Result<Members, MergeError> {
    match directive(patch) {
        None => {}
        Some(Value::String(text)) if text == "replace" => {
            patch.remove(DIRECTIVE);
            return Ok(patch.clone());
        }
        Some(Value::String(text)) if text == "delete" => return Ok(Members::new()),
        Some(other) => return Err(unknown_directive(other, patch)),
    }
    retain_keys(&mut original, patch)?;
    list::apply_orders(&mut original, patch, node)?;
    let names: Vec<String> = patch.keys().cloned().collect();
    for name in names {
        let (target, deletes) = match name.strip_prefix(DELETE_FROM_LIST) {
            None => (name.as_str(), Deletes::No),
            Some(rest) => match rest.strip_prefix('/').ok_or(MergeError::Format(BAD_DELETE_LIST))? {
                "" => (name.as_str(), Deletes::Yes),
                target => (target, Deletes::Yes),
            },
        };
        if let Some(value) = patch.get_mut(&name) {
            merge_member(&mut original, target, value, deletes, node)?;
        }
    }
    Ok(original)
}

/// Whether the patch's list names what to delete from the list rather than what to merge into it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Deletes {
    Yes,
    No,
}

fn merge_member(
    original: &mut Members,
    name: &str,
    patch: &mut Value,
    deletes: Deletes,
    node: Node,
) -> Result<(), MergeError> {
    if patch.is_null() {
        original.remove(name);
        return Ok(());
    }
    let Some(slot) = original.get_mut(name) else {
        if deletes == Deletes::No {
            replace_member(original, name, patch);
        }
        return Ok(());
    };
    match (std::mem::take(slot), &mut *patch) {
        (Value::Object(own), Value::Object(changes)) => {
            let (child, strategy) = node.member(name)?;
            *slot = Value::Object(match strategy.merge {
                Merge::Replace => changes.clone(),
                Merge::Default | Merge::ByKey => merge_map(own, changes, child)?,
            });
        }
        (Value::Array(own), Value::Array(changes)) => {
            let (element, strategy) = node.element(name)?;
            *slot = Value::Array(match (strategy.merge, deletes) {
                (Merge::ByKey, _) | (_, Deletes::Yes) => list::merge(own, changes, element, strategy.key, deletes)?,
                _ => changes.clone(),
            });
        }
        (own, changes) => {
            let same_type = print::go_type(&own) == print::go_type(changes);
            *slot = own;
            if same_type {
                *slot = changes.clone();
            } else if deletes == Deletes::No {
                replace_member(original, name, patch);
            }
        }
    }
    Ok(())
}

/// Takes the patch's value without its nulls and directives; a value that is itself a directive leaves nothing.
fn replace_member(original: &mut Members, name: &str, patch: &mut Value) {
    discard_nulls(patch);
    match remove_directives(patch) {
        Keep::Yes => drop(original.insert(name.to_owned(), patch.clone())),
        Keep::No => drop(original.remove(name)),
    }
}

fn discard_nulls(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|_, value| !value.is_null());
            members.values_mut().for_each(discard_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(discard_nulls),
        _ => {}
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Keep {
    Yes,
    No,
}

/// Drops what carries a `$patch` directive; other directives stay, as unknown fields.
pub(super) fn remove_directives(value: &mut Value) -> Keep {
    match value {
        Value::Object(members) if members.contains_key(DIRECTIVE) => return Keep::No,
        Value::Object(members) => members.retain(|_, value| remove_directives(value) == Keep::Yes),
        Value::Array(items) => items.retain_mut(|item| remove_directives(item) == Keep::Yes),
        _ => {}
    }
    Keep::Yes
}

fn retain_keys(original: &mut Members, patch: &mut Members) -> Result<(), MergeError> {
    let Some(keys) = patch.remove(RETAIN_KEYS) else {
        return Ok(());
    };
    let Value::Array(keys) = keys else {
        return Err(MergeError::Format(BAD_RETAIN_KEYS));
    };
    let keys: BTreeSet<&str> = keys.iter().filter_map(Value::as_str).collect();
    let allowed = |name: &str, value: &Value| {
        value.is_null() || name.starts_with(DELETE_FROM_LIST) || name.starts_with(SET_ORDER) || keys.contains(name)
    };
    if !patch.iter().all(|(name, value)| allowed(name, value)) {
        return Err(MergeError::Format(BAD_RETAIN_KEYS));
    }
    original.retain(|name, _| keys.contains(name.as_str()));
    Ok(())
}

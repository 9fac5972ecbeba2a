//! Merging lists: by value or by key, keeping the order that the patch asks for.
//!
//! Order is settled by `$setElementOrder`, then by the patch's list, then by the list that was there.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::lookup::{Merge, Node};
use super::merge::{
    BAD_ORDER, Deletes, Keep, Members, MergeError, SET_ORDER, directive, merge_map, remove_directives,
    unknown_directive, wrong_type,
};
use super::print;

const LIST: &str = "[]interface {}";
const MAP: &str = "map[string]interface {}";

/// Upstream sorts with a comparison that contradicts itself where an item has no place in the order. Up to this many
/// items its sort is a plain insertion sort, whose outcome can be copied.
const INSERTION_SORT_LIMIT: usize = 20;

/// What tells elements of a list apart: their merge key, or they themselves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Elements {
    Maps,
    Scalars,
}

/// The merged list.
pub(super) fn merge(
    mut original: Vec<Value>,
    patch: &mut [Value],
    element: Node,
    key: &str,
    deletes: Deletes,
) -> Result<Vec<Value>, MergeError> {
    if original.is_empty() && patch.is_empty() {
        return Ok(original);
    }
    let elements = element_type(&original, patch)?;
    let mut additions: Vec<Value> = patch.to_vec();
    let merged = match elements {
        Elements::Scalars if deletes == Deletes::Yes => {
            let unwanted: HashSet<String> = patch.iter().map(identity).collect();
            original.retain(|item| !unwanted.contains(&identity(item)));
            return Ok(original);
        }
        Elements::Scalars => {
            let mut seen = HashSet::new();
            let both = original.iter().chain(additions.iter());
            both.filter(|item| seen.insert(identity(item))).cloned().collect()
        }
        Elements::Maps if key.is_empty() => {
            let text = format!("cannot merge lists without merge key for {}", element.go_kind());
            return Err(MergeError::Other(text));
        }
        Elements::Maps => {
            (original, additions) = obey_directives(original, patch, key)?;
            merge_by_key(original.clone(), &mut additions, element, key)?
        }
    };
    let (asked, others) = partition(merged, &additions, key)?;
    order(asked, others, &additions, &original, key, elements)
}

/// Applies every `$setElementOrder` of a patch, together with the patch's list of the same name.
pub(super) fn apply_orders(original: &mut Members, patch: &mut Members, node: Node) -> Result<(), MergeError> {
    let names: Vec<String> = patch
        .keys()
        .filter(|name| name.starts_with(SET_ORDER))
        .cloned()
        .collect();
    for name in names {
        let wanted = match patch.remove(&name).unwrap_or_default() {
            Value::Array(wanted) => wanted,
            other => return Err(wrong_type(LIST, &other)),
        };
        let target = name.split_once('/').filter(|(prefix, _)| *prefix == SET_ORDER);
        let (_, target) = target.ok_or(MergeError::Format(BAD_ORDER))?;
        let own = as_list(original.get(target))?;
        let mut changes = as_list(patch.get(target))?;
        let (element, strategy) = node.element(target)?;
        agree(changes.as_deref().unwrap_or_default(), &wanted, strategy.key)?;
        let merged = match (&own, &mut changes) {
            (None, None) => continue,
            (Some(own), None) => own.clone(),
            (None, Some(changes)) => {
                changes.retain_mut(|item| remove_directives(item) == Keep::Yes);
                changes.clone()
            }
            (Some(own), Some(changes)) if strategy.merge == Merge::ByKey => {
                merge(own.clone(), changes, element, strategy.key, Deletes::No)?
            }
            (Some(_), Some(changes)) => changes.clone(),
        };
        let (asked, others) = partition(merged, &wanted, strategy.key)?;
        let own = own.unwrap_or_default();
        let elements = element_type(&own, changes.as_deref().unwrap_or_default())?;
        let ordered = order(asked, others, &wanted, &own, strategy.key, elements)?;
        original.insert(target.to_owned(), Value::Array(ordered));
        patch.remove(target);
    }
    Ok(())
}

fn as_list(value: Option<&Value>) -> Result<Option<Vec<Value>>, MergeError> {
    match value {
        None => Ok(None),
        Some(Value::Array(items)) => Ok(Some(items.clone())),
        Some(other) => Err(wrong_type(LIST, other)),
    }
}

/// Whether the patch's list follows the order that it asks for.
fn agree(patch: &[Value], wanted: &[Value], key: &str) -> Result<(), MergeError> {
    if patch.is_empty() || wanted.is_empty() {
        return Ok(());
    }
    let mut kept: Vec<&Value> = Vec::with_capacity(patch.len());
    for item in patch {
        if key.is_empty() {
            kept.push(item);
            continue;
        }
        let members = as_map(item)?;
        if directive(members).and_then(Value::as_str) != Some("delete") {
            kept.push(item);
        }
    }
    let (mut at, mut place) = (0, 0);
    while at < kept.len() && place < wanted.len() {
        if kept[at].as_object().is_some_and(|members| directive(members).is_some()) {
            at += 1;
            continue;
        }
        if key_of(kept[at], key)? == key_of(&wanted[place], key)? {
            at += 1;
        }
        place += 1;
    }
    if at < kept.len() && place >= wanted.len() {
        let (patch, wanted) = (print::plain_list(patch), print::plain_list(wanted));
        return Err(MergeError::Other(format!(
            "The order in patch list:\n{patch}\n doesn't match {SET_ORDER} list:\n{wanted}\n"
        )));
    }
    Ok(())
}

/// The elements' common kind.
fn element_type(original: &[Value], patch: &[Value]) -> Result<Elements, MergeError> {
    let mut items = original.iter().chain(patch);
    let Some(first) = items.next() else {
        return Err(MergeError::Other("no elements in any of the given slices".to_owned()));
    };
    if first.is_array() {
        return Err(MergeError::ListOfLists);
    }
    // A null before all others makes upstream panic; this is what it says about one after others.
    if first.is_null() || items.any(|item| print::go_type(item) != print::go_type(first)) {
        let (original, patch) = (print::plain_list(original), print::plain_list(patch));
        return Err(MergeError::Other(format!(
            "list element types are not identical: [{original} {patch}]"
        )));
    }
    Ok(if first.is_object() {
        Elements::Maps
    } else {
        Elements::Scalars
    })
}

/// Carries out the elements that are directives; what is left is the list to merge into and the list to merge.
fn obey_directives(
    mut original: Vec<Value>,
    patch: &[Value],
    key: &str,
) -> Result<(Vec<Value>, Vec<Value>), MergeError> {
    let mut plain = Vec::with_capacity(patch.len());
    let mut unwanted = HashSet::new();
    let mut replace = false;
    for item in patch {
        let members = as_map(item)?;
        match directive(members) {
            None => plain.push(item.clone()),
            Some(Value::String(text)) if text == "delete" => {
                unwanted.insert(identity(key_of(item, key)?));
            }
            Some(Value::String(text)) if text == "replace" => replace = true,
            Some(Value::String(text)) if text == "merge" => {
                let text = "merging lists cannot yet be specified in the patch";
                return Err(MergeError::Other(text.to_owned()));
            }
            Some(other) => return Err(unknown_directive(other, members)),
        }
    }
    if replace {
        return Ok((plain, Vec::new()));
    }
    original.retain(|item| item.get(key).is_none_or(|value| !unwanted.contains(&identity(value))));
    Ok((original, plain))
}

fn merge_by_key(
    mut original: Vec<Value>,
    patch: &mut [Value],
    element: Node,
    key: &str,
) -> Result<Vec<Value>, MergeError> {
    let mut places: HashMap<String, usize> = HashMap::with_capacity(original.len());
    for (at, item) in original.iter().enumerate() {
        if let Some(value) = item.get(key) {
            places.entry(identity(value)).or_insert(at);
        }
    }
    for item in patch {
        let name = identity(key_of(item, key)?);
        let place = places.get(&name).copied();
        match (place.map(|at| std::mem::take(&mut original[at])), place) {
            (Some(Value::Object(own)), Some(at)) => {
                let changes = item.as_object_mut().expect("an item with a merge key is a map");
                original[at] = Value::Object(merge_map(own, changes, element)?);
            }
            _ => {
                places.insert(name, original.len());
                original.push(item.clone());
            }
        }
    }
    Ok(original)
}

/// The items that `by` names, and the others.
fn partition(items: Vec<Value>, by: &[Value], key: &str) -> Result<(Vec<Value>, Vec<Value>), MergeError> {
    let mut names = HashSet::with_capacity(by.len());
    let mut not_a_map = None;
    for (at, item) in by.iter().enumerate() {
        if key.is_empty() {
            names.insert(identity(item));
        } else if let Some(members) = item.as_object() {
            names.extend(members.get(key).map(identity));
        } else {
            not_a_map = not_a_map.or(Some(at));
        }
    }
    let (mut asked, mut others) = (Vec::new(), Vec::new());
    for item in items {
        let name = identity(key_of(&item, key)?);
        if names.contains(&name) {
            asked.push(item);
        } else if let Some(at) = not_a_map {
            return Err(MergeError::Other(format!("value for key {at} is not a map")));
        } else {
            others.push(item);
        }
    }
    Ok((asked, others))
}

/// Sorts the asked-for items as the patch orders them, the others as they stood, and slips the others in between.
fn order(
    asked: Vec<Value>,
    others: Vec<Value>,
    asked_order: &[Value],
    own_order: &[Value],
    key: &str,
    elements: Elements,
) -> Result<Vec<Value>, MergeError> {
    let asked = sort(asked, asked_order, key, elements)?;
    let others = sort(others, own_order, key, elements)?;
    let places = Places::of(own_order, key, elements);
    let mut all = Vec::with_capacity(asked.len() + others.len());
    let mut asked = asked.into_iter().peekable();
    for other in others {
        let place = places.get(&other);
        while let Some(next) = asked.peek() {
            if matches!((place, places.get(next)), (Some(own), Some(next)) if own < next) {
                break;
            }
            all.extend(asked.next());
        }
        all.push(other);
    }
    all.extend(asked);
    Ok(all)
}

fn sort(mut items: Vec<Value>, wanted: &[Value], key: &str, elements: Elements) -> Result<Vec<Value>, MergeError> {
    let mut deletions = Vec::new();
    if elements == Elements::Maps {
        for item in items.iter().chain(wanted) {
            key_of(item, key)?;
        }
        let is_deletion = |item: &Value| item.as_object().and_then(directive).and_then(Value::as_str) == Some("delete");
        deletions = items.extract_if(.., |item| is_deletion(item)).collect();
    }
    let places = Places::of(wanted, key, elements);
    let place = |item: &Value| places.get(item);
    if items.len() <= INSERTION_SORT_LIMIT {
        let before = |a: &Value, b: &Value| !matches!((place(a), place(b)), (Some(a), Some(b)) if a >= b);
        for start in 1..items.len() {
            let mut at = start;
            while at > 0 && before(&items[at], &items[at - 1]) {
                items.swap(at, at - 1);
                at -= 1;
            }
        }
    } else {
        items.sort_by_key(|item| place(item).unwrap_or(0));
    }
    items.append(&mut deletions);
    Ok(items)
}

/// Where each item of a list stands, by what tells it apart.
struct Places<'k> {
    places: HashMap<String, usize>,
    key: &'k str,
    elements: Elements,
}

impl<'k> Places<'k> {
    fn of(list: &[Value], key: &'k str, elements: Elements) -> Self {
        let mut places = Places {
            places: HashMap::with_capacity(list.len()),
            key,
            elements,
        };
        for (at, item) in list.iter().enumerate() {
            places.places.entry(places.name(item)).or_insert(at);
        }
        places
    }

    fn get(&self, item: &Value) -> Option<usize> {
        self.places.get(&self.name(item)).copied()
    }

    fn name(&self, item: &Value) -> String {
        match self.elements {
            Elements::Maps => identity(item.get(self.key).unwrap_or(&Value::Null)),
            Elements::Scalars => identity(item),
        }
    }
}

fn as_map(item: &Value) -> Result<&Members, MergeError> {
    item.as_object().ok_or_else(|| wrong_type(MAP, item))
}

/// What tells an item apart: the value of its merge key, or itself where there is none.
fn key_of<'v>(item: &'v Value, key: &str) -> Result<&'v Value, MergeError> {
    if key.is_empty() {
        return Ok(item);
    }
    let missing = || {
        let item = print::plain(item);
        MergeError::Other(format!("map: {item} does not contain declared merge key: {key}"))
    };
    as_map(item)?.get(key).ok_or_else(missing)
}

/// Equal texts exactly for equal values: JSON tells `1` from `1.0`, as Go tells int64 from float64.
fn identity(value: &Value) -> String {
    value.to_string()
}

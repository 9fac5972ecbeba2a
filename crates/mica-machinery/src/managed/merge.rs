//! Merging what is applied into what is there.
//!
//! Nothing is removed. Lists of items keep the order they have if the applied one does not touch it, and follow the
//! applied order where it does.

use std::collections::BTreeSet;

use serde_json::{Map as JsonMap, Value};

use super::path::PathElement;
use super::schema::{List, Map, TypeRef};
use super::typed::{Form, TypeErrors, check_scalar, form, forms_of_both, item_element, items, members};
use crate::facts::MapKind;

/// `live` with everything that `applied` says.
pub fn merge(live: &Value, applied: &Value, ty: TypeRef<'_>) -> Result<Value, TypeErrors> {
    merge_optional(Some(live), Some(applied), ty).map(Option::unwrap_or_default)
}

/// `None` where nothing is left to say: a map without members is no map.
fn merge_optional(live: Option<&Value>, applied: Option<&Value>, ty: TypeRef<'_>) -> Result<Option<Value>, TypeErrors> {
    let (live, applied) = match (live, applied) {
        (None, None) => return Ok(None),
        // With nothing on the other side a merge is a copy.
        (Some(only), None) | (None, Some(only)) => {
            form(&ty.resolve(), only)?;
            return Ok(Some(only.clone()));
        }
        (Some(live), Some(applied)) => (live, applied),
    };
    let (first, form) = forms_of_both(&ty.resolve(), live, applied)?;
    if let Some(first) = first {
        merge_as(first, live, applied)?;
    }
    merge_as(form, live, applied)
}

fn merge_as(form: Form<'_>, live: &Value, applied: &Value) -> Result<Option<Value>, TypeErrors> {
    let leaf = || Ok(Some(applied.clone()));
    match form {
        Form::Scalar(scalar) => {
            let (left, right) = (
                check_scalar(scalar, live, "lhs: "),
                check_scalar(scalar, applied, "rhs: "),
            );
            if let (Err(mut left), Err(right)) = (left, right) {
                left.extend(right);
                return Err(left);
            }
            leaf()
        }
        Form::Map(map) => {
            let empty = JsonMap::new();
            let (a, b) = (members(live).unwrap_or(&empty), members(applied).unwrap_or(&empty));
            if map.kind == MapKind::Atomic || (a.is_empty() && b.is_empty()) {
                return leaf();
            }
            merge_maps(&map, a, b)
        }
        Form::List(list) => {
            let (a, b) = (items(live), items(applied));
            if list.is_atomic() || (a.is_empty() && b.is_empty()) {
                return leaf();
            }
            merge_lists(&list, a, b)
        }
    }
}

fn merge_maps(
    map: &Map<'_>,
    live: &JsonMap<String, Value>,
    applied: &JsonMap<String, Value>,
) -> Result<Option<Value>, TypeErrors> {
    let mut out = JsonMap::new();
    let names = live
        .keys()
        .chain(applied.keys().filter(|name| !live.contains_key(*name)));
    for name in names {
        let element = PathElement::field(name);
        let ty = map
            .member(name)
            .ok_or_else(|| TypeErrors::one("field not declared in schema").under(&element))?;
        let merged = merge_optional(live.get(name), applied.get(name), ty).map_err(|errors| errors.under(&element))?;
        if let Some(merged) = merged {
            out.insert(name.clone(), merged);
        }
    }
    Ok(if out.is_empty() { None } else { Some(Value::Object(out)) })
}

/// Items of a list with their elements, in the order of the list.
struct Items<'v> {
    named: Vec<(PathElement, &'v Value)>,
    /// Sorted elements, each with its place in `named`; `None` if several items have it.
    index: Vec<(PathElement, Option<usize>)>,
}

impl<'v> Items<'v> {
    fn new(list: &List<'_>, items: &'v [Value]) -> Result<Self, TypeErrors> {
        let mut named = Vec::with_capacity(items.len());
        let mut index: Vec<(PathElement, Option<usize>)> = Vec::with_capacity(items.len());
        for (at, item) in items.iter().enumerate() {
            let element = item_element(list, item).map_err(|text| TypeErrors::one(format!("element {at}: {text}")))?;
            match index.binary_search_by(|(known, _)| known.cmp(&element)) {
                Ok(place) => index[place].1 = None,
                Err(place) => index.insert(place, (element.clone(), Some(at))),
            }
            named.push((element, item));
        }
        Ok(Self { named, index })
    }

    fn has(&self, element: &PathElement) -> bool {
        self.index.binary_search_by(|(known, _)| known.cmp(element)).is_ok()
    }

    /// The one item of this element.
    fn get(&self, element: &PathElement) -> Option<&'v Value> {
        let place = self.index.binary_search_by(|(known, _)| known.cmp(element)).ok()?;
        self.index[place].1.map(|at| self.named[at].1)
    }

    fn duplicate(&self) -> Option<&PathElement> {
        self.index
            .iter()
            .find(|(_, at)| at.is_none())
            .map(|(element, _)| element)
    }
}

fn merge_lists(list: &List<'_>, live: &[Value], applied: &[Value]) -> Result<Option<Value>, TypeErrors> {
    let applied = Items::new(list, applied)?;
    if let Some(element) = applied.duplicate() {
        return Err(TypeErrors::one(format!("duplicate entries for key {element}")));
    }
    let live = Items::new(list, live)?;
    let mut walk = ListMerge {
        list,
        out: Vec::new(),
        merged: BTreeSet::new(),
    };
    // Elements on both sides, in applied order: the next one that live items may be merged with.
    let mut shared = applied
        .named
        .iter()
        .map(|(element, _)| element)
        .filter(|element| live.has(element))
        .peekable();
    let (mut l, mut r) = (0, 0);
    while l < live.named.len() || r < applied.named.len() {
        if let (Some((left, _)), Some((right, _))) = (live.named.get(l), applied.named.get(r)) {
            if left == right {
                walk.take(left, live.get(left), applied.get(left))?;
                (l, r) = (l + 1, r + 1);
                shared.next();
                continue;
            }
            if applied.has(left) && shared.peek().is_some_and(|next| *next != left) {
                // On both sides, but its turn comes later.
                l += 1;
                continue;
            }
        }
        if let Some((left, item)) = live.named.get(l) {
            if !applied.has(left) {
                walk.take(left, Some(item), None)?;
                l += 1;
                continue;
            }
            if walk.merged.contains(left) {
                l += 1;
            }
        }
        if let Some((right, item)) = applied.named.get(r) {
            walk.take(right, live.get(right), Some(item))?;
            r += 1;
            if shared.peek().is_some_and(|next| *next == right) {
                shared.next();
            }
        }
    }
    Ok(if walk.out.is_empty() {
        None
    } else {
        Some(Value::Array(walk.out))
    })
}

struct ListMerge<'l, 's> {
    list: &'l List<'s>,
    out: Vec<Value>,
    /// Applied elements that are in `out`.
    merged: BTreeSet<PathElement>,
}

impl ListMerge<'_, '_> {
    fn take(&mut self, element: &PathElement, live: Option<&Value>, applied: Option<&Value>) -> Result<(), TypeErrors> {
        if applied.is_some() {
            self.merged.insert(element.clone());
        }
        let merged = merge_optional(live, applied, self.list.element).map_err(|errors| errors.under(element))?;
        self.out.extend(merged);
        Ok(())
    }
}

//! Names that several definitions of a group want: one takes them, on whatever server.
//!
//! Who takes a name compares that nobody else who wants it has changed since, and leaves each of them work. Who did not see
//! the other, because that one is newer, is told by exactly that: its own record of work has changed.

use std::collections::BTreeSet;

use mica_machinery::object;
use mica_store::{Compare, Key, PlaneKeys, Store};
use serde_json::Value;

use super::work::{pending, record_of};
use super::{PAGE, definitions};
use crate::error::ApiError;
use crate::pages::Pages;
use crate::plane::Plane;
use crate::plane::side::Side;

/// What the server's own change of a definition's accepted names is compared and written with. An error if another has one
/// of them by now.
pub async fn taking(store: &dyn Store, plane: &Plane, new: &Value, old: &Value) -> Result<Side, ApiError> {
    let (before, after) = (accepted(old), accepted(new));
    let taken: BTreeSet<&Name> = after.difference(&before).collect();
    let mut side = Side::default();
    if taken.is_empty() {
        return Ok(side);
    }
    // Looked at first: whoever takes a name from now on changes it.
    let own = record_of(&key(plane.keys(), new));
    side.compares.push(match store.get(&own).await? {
        Some(record) => Compare::Unchanged(own, record.revision),
        None => Compare::Absent(own),
    });
    let range = plane.keys().resource(&definitions());
    let mut pages = Pages::new(store, &range, PAGE);
    while let Some(page) = pages.next().await? {
        for (at, record) in page {
            let Some(stored) = plane
                .read(&at, &record)?
                .object()
                .filter(|_| at.name() != object::name(new))
            else {
                continue;
            };
            let other: Value = serde_json::from_slice(stored.json())
                .map_err(|error| ApiError::internal("stored data is damaged").because(error))?;
            if other["spec"]["group"] != new["spec"]["group"] {
                continue;
            }
            if accepted(&other).iter().any(|name| taken.contains(name)) {
                return Err(ApiError::stale_plane());
            }
            if names(&other["spec"]["names"]).iter().any(|name| taken.contains(name)) {
                side.writes.push(pending(&at));
                side.compares.push(Compare::Unchanged(at, record.revision));
            }
        }
    }
    Ok(side)
}

/// A name in paths, or a kind: one of each may be the same.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Name {
    Resource(String),
    Kind(String),
}

fn key(keys: PlaneKeys, definition: &Value) -> Key {
    keys.object(&definitions(), None, object::name(definition))
}

fn accepted(definition: &Value) -> BTreeSet<Name> {
    names(&definition["status"]["acceptedNames"])
}

fn names(names: &Value) -> BTreeSet<Name> {
    let text = |field: &str| names[field].as_str().filter(|name| !name.is_empty()).map(str::to_owned);
    let short = object::list(names, &["shortNames"]).iter();
    let short = short.filter_map(|name| name.as_str().map(str::to_owned));
    let resources = ["plural", "singular"].into_iter().filter_map(text).chain(short);
    let kinds = ["kind", "listKind"].into_iter().filter_map(text);
    resources.map(Name::Resource).chain(kinds.map(Name::Kind)).collect()
}

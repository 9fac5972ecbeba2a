//! Managed fields of every write that is not an apply: create, update and the patches.
//!
//! The writer comes to own what it changed, and everybody else loses what was changed or removed. A write that changes
//! nothing leaves the list as it was, times included.

use std::collections::HashMap;

use jiff::Timestamp;
use serde_json::Value;

use super::compare::{Comparison, compare_objects};
use super::entry::{Entries, Entry, Manager, Operation};
use super::reconcile::reconcile;
use super::schema::TypeRef;
use super::set::Set;
use super::typed::TypeErrors;
use super::validate::{Duplicates, validate};
use crate::object;
use crate::time::now_text;

/// How many updaters are kept apart; beyond, the oldest are merged.
const MAX_UPDATERS: usize = 10;
/// Who owns what the oldest updaters did.
const ANCIENT: &str = "ancient-changes";

/// A write, as managed fields record it.
#[derive(Clone, Copy)]
pub struct Write<'a> {
    /// From the query or the User-Agent; empty counts as `unknown`.
    pub manager: &'a str,
    /// Of the request: `apps/v1`.
    pub api_version: &'a str,
    /// Empty for the object itself.
    pub subresource: &'a str,
    pub time: Timestamp,
    /// The type of the objects, which are in the version of the request.
    pub schema: TypeRef<'a>,
    /// Fields that this resource or subresource does not write, and that are therefore never recorded.
    pub reset: &'a Set,
    /// Other versions that existing entries may be in.
    pub versions: &'a dyn Versions,
}

/// Conversion between the versions of a kind.
pub trait Versions {
    /// The object in another version, with that version's type and reset fields; `None` if there is no such version.
    fn convert(&self, object: &Value, api_version: &str) -> Option<Versioned<'_>>;
}

/// An object in some version.
pub struct Versioned<'a> {
    pub object: Value,
    pub schema: TypeRef<'a>,
    pub reset: Set,
}

/// A kind that is served in the request's version only.
pub struct OneVersion;

impl Versions for OneVersion {
    fn convert(&self, _: &Value, _: &str) -> Option<Versioned<'_>> {
        None
    }
}

/// What the request says about managed fields, which decoding an object loses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request {
    /// The list in the new object counts, if it has any.
    Usual,
    /// It has `managedFields: []`: forget all managers.
    Reset,
}

/// Records a write in `new.metadata.managedFields`. `live` is the object before; `None` on create.
pub fn update(live: Option<&Value>, new: &mut Value, request: Request, write: &Write<'_>) {
    let given = take_managed_fields(new);
    let entries = entries_before(live, given.as_ref(), request, write.subresource);
    // An object that nobody tracks stays that, until somebody applies to it.
    if entries.is_empty() && live.is_some_and(|live| !object::string(live, &["metadata", "uid"]).is_empty()) {
        return;
    }
    let zero;
    let live = match live {
        Some(live) => live,
        None => {
            zero = write.schema.zero();
            &zero
        }
    };
    // An object that does not fit its schema cannot be tracked; upstream drops the list too.
    if fits(new, write.schema, Duplicates::Allowed).is_err() || fits(live, write.schema, Duplicates::Allowed).is_err() {
        return;
    }
    if let Ok(entries) = record(live, new, entries, write) {
        set_managed_fields(new, &cap(entries));
    }
}

/// Whether an object is what its schema says. Those of built-in kinds always are: decoding them saw to it.
pub(super) fn fits(object: &Value, schema: TypeRef<'_>, duplicates: Duplicates) -> Result<(), TypeErrors> {
    if schema.is_custom() {
        validate(object, schema, duplicates)
    } else {
        Ok(())
    }
}

/// The managers before this write.
fn entries_before(live: Option<&Value>, given: Option<&Value>, request: Request, subresource: &str) -> Entries {
    let of_live = || live.map(Entries::of).unwrap_or_default();
    // Nobody manages managers through a subresource.
    if !subresource.is_empty() {
        return of_live();
    }
    let list = given.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    if request == Request::Reset || matches!(list, [only] if only.as_object().is_some_and(serde_json::Map::is_empty)) {
        return Entries::default();
    }
    // Clients that do not know managed fields must not delete them by leaving them out.
    match Entries::from_list(list) {
        Ok(entries) if !entries.is_empty() => entries,
        _ => of_live(),
    }
}

/// The managers after this write.
pub(super) fn record(
    live: &Value,
    new: &Value,
    entries: Entries,
    write: &Write<'_>,
) -> Result<Entries, IncomparableError> {
    let entries = reconciled(live, entries, write).map_err(IncomparableError::Live)?;
    let comparisons = Comparisons::new(live, new, write, &entries)?;
    let mut entries = comparisons.take_from_others(entries, None);
    let own = &comparisons.own;
    let fields = own.modified.union(&own.added).recursive_difference(write.reset);
    if fields.is_empty() {
        return Ok(entries);
    }
    let name = if write.manager.is_empty() {
        "unknown"
    } else {
        write.manager
    };
    let manager = Manager::new(name, Operation::Update, write.api_version, write.subresource);
    let fields = match entries.get(&manager) {
        Some(previous) => fields.union(&previous.fields),
        None => fields,
    };
    let time = Some(now_text(write.time));
    entries.put(Entry {
        manager,
        api_version: write.api_version.to_owned(),
        time,
        fields,
    });
    Ok(entries)
}

/// Entries fitted to today's schemas; those of versions that are gone are dropped. The object must fit the others.
pub(super) fn reconciled(live: &Value, mut entries: Entries, write: &Write<'_>) -> Result<Entries, TypeErrors> {
    // Converting an object may cost much: once for each version, however many entries are of it.
    let mut schemas: HashMap<String, Option<TypeRef<'_>>> = HashMap::new();
    schemas.insert(write.api_version.to_owned(), Some(write.schema));
    for version in entries.iter().map(|entry| &entry.api_version) {
        if !schemas.contains_key(version) {
            let converted = write.versions.convert(live, version);
            if let Some(converted) = &converted {
                fits(&converted.object, converted.schema, Duplicates::Refused)?;
            }
            schemas.insert(version.clone(), converted.map(|converted| converted.schema));
        }
    }
    entries.0.retain(|_, entry| {
        let Some(schema) = schemas.get(&entry.api_version).copied().flatten() else {
            return false;
        };
        let fitted = reconcile(&entry.fields, schema);
        if let Some(fields) = fitted {
            entry.fields = fields;
        }
        true
    });
    Ok(entries)
}

/// What changed, in each version that somebody manages fields in.
pub(super) struct Comparisons<'a> {
    write: &'a Write<'a>,
    pub(super) own: Comparison,
    others: HashMap<String, Comparison>,
}

/// Why two objects cannot be compared in the versions that their managers wrote them in.
#[derive(Debug, thiserror::Error)]
pub(super) enum IncomparableError {
    #[error("{0}")]
    Live(TypeErrors),
    #[error("failed to compare objects: {0}")]
    Compare(TypeErrors),
    #[error("failed to convert new object: {0}")]
    Convert(TypeErrors),
}

impl<'a> Comparisons<'a> {
    /// Compares in the write's version and in those of all entries. Versions that are gone are left out; an object that
    /// cannot be had in one that is there is an error.
    pub(super) fn new(
        live: &Value,
        new: &Value,
        write: &'a Write<'a>,
        entries: &Entries,
    ) -> Result<Self, IncomparableError> {
        let compare = |live: &Value, new: &Value, schema: TypeRef<'_>| {
            compare_objects(live, new, schema).map_err(IncomparableError::Compare)
        };
        let own = compare(live, new, write.schema)?.without(write.reset);
        let mut others: HashMap<String, Comparison> = HashMap::new();
        for version in entries.iter().map(|entry| entry.api_version.as_str()) {
            if version == write.api_version || others.contains_key(version) {
                continue;
            }
            let converted = |object| write.versions.convert(object, version);
            if let (Some(live), Some(new)) = (converted(live), converted(new)) {
                fits(&new.object, new.schema, Duplicates::Refused).map_err(IncomparableError::Convert)?;
                let changes = compare(&live.object, &new.object, new.schema)?;
                others.insert(version.to_owned(), changes.without(&new.reset));
            }
        }
        Ok(Self { write, own, others })
    }

    /// The comparison in a version; `None` if that version is gone.
    fn at(&self, api_version: &str) -> Option<&Comparison> {
        if api_version == self.write.api_version {
            return Some(&self.own);
        }
        self.others.get(api_version)
    }

    /// What each manager but `except` would lose: fields that it owns and that changed.
    pub(super) fn conflicts(&self, entries: &Entries, except: &Manager) -> Vec<(Manager, Set)> {
        let mut conflicts = Vec::new();
        for entry in entries.iter().filter(|entry| entry.manager != *except) {
            let Some(changes) = self.at(&entry.api_version) else {
                continue;
            };
            let modified = entry.fields.intersection(&changes.modified);
            let lost = modified.union(&entry.fields.intersection(&changes.added));
            if !lost.is_empty() {
                conflicts.push((entry.manager.clone(), lost));
            }
        }
        conflicts
    }

    /// Takes what changed or is gone from every manager but `except`; who has nothing left is gone too.
    pub(super) fn take_from_others(&self, mut entries: Entries, except: Option<&Manager>) -> Entries {
        entries.0.retain(|_, entry| {
            if except == Some(&entry.manager) {
                return !entry.fields.is_empty();
            }
            let Some(changes) = self.at(&entry.api_version) else {
                return false;
            };
            for change in [&changes.modified, &changes.added, &changes.removed] {
                if !change.is_empty() {
                    entry.fields = entry.fields.difference(change);
                }
            }
            !entry.fields.is_empty()
        });
        entries
    }
}

/// Merges the oldest updaters of each version until there are few enough.
pub(super) fn cap(mut entries: Entries) -> Entries {
    let mut updaters: Vec<Entry> = entries.iter().filter(|entry| !entry.is_applied()).cloned().collect();
    let mut count = updaters.len();
    if count <= MAX_UPDATERS {
        return entries;
    }
    updaters.sort_by(|a, b| {
        a.compare_age(b)
            .then_with(|| a.manager.identifier().cmp(&b.manager.identifier()))
    });
    let mut first_of: HashMap<String, Manager> = HashMap::new();
    for updater in updaters {
        if count <= MAX_UPDATERS {
            break;
        }
        let version = &updater.api_version;
        let Some(first) = first_of.get(version) else {
            first_of.insert(version.clone(), updater.manager.clone());
            continue;
        };
        let bucket = Manager::new(ANCIENT, Operation::Update, version, "");
        if entries.get(&bucket).is_none()
            && let Some(first) = entries.remove(first)
        {
            entries.put(Entry {
                manager: bucket.clone(),
                ..first
            });
        }
        let merged = entries.get(&bucket).map(|bucket| updater.fields.union(&bucket.fields));
        entries.remove(&updater.manager);
        count -= 1;
        let fields = merged.unwrap_or_else(|| updater.fields.clone());
        entries.put(Entry {
            manager: bucket,
            fields,
            ..updater
        });
    }
    entries
}

/// Takes the times of managed fields back if nothing but them changed, so that such a write is none.
///
/// To be called when the new object is complete: defaults and admission may have undone a change.
pub fn keep_times_of_noop(new: &mut Value, old: &Value) {
    let path = ["metadata", "managedFields"];
    let (new_list, old_list) = (object::list(new, &path), object::list(old, &path));
    if new_list.is_empty() || new_list.len() != old_list.len() || new_list == old_list {
        return;
    }
    let same_but_time = |(a, b): (&Value, &Value)| object::equal_without(&["time"], Some(a), Some(b));
    if !new_list.iter().zip(old_list).all(same_but_time) || !equal_but_for_managers(new, old) {
        return;
    }
    let old_list = old_list.to_vec();
    object::set(new, &path, old_list);
}

/// Whether two objects are the same but for who manages what.
pub fn equal_but_for_managers(new: &Value, old: &Value) -> bool {
    object::equal_without(&["metadata"], Some(new), Some(old))
        && object::equal_without(
            &["managedFields", "resourceVersion"],
            new.get("metadata"),
            old.get("metadata"),
        )
}

/// The manager's name that a User-Agent stands for: what comes before the first slash, as far as it is printable.
/// What is no UTF-8 is shown as such, byte for byte.
pub fn manager_of_user_agent(user_agent: &[u8]) -> String {
    let first = user_agent.split(|byte| *byte == b'/').next().unwrap_or_default();
    let chars = first.utf8_chunks().flat_map(|chunk| {
        let broken = std::iter::repeat_n(char::REPLACEMENT_CHARACTER, chunk.invalid().len());
        chunk.valid().chars().chain(broken)
    });
    let mut name = String::new();
    for c in chars.filter(|c| crate::meta::is_print(*c)) {
        if name.len() + c.len_utf8() > crate::meta::FIELD_MANAGER_MAX {
            break;
        }
        name.push(c);
    }
    name
}

pub(super) fn take_managed_fields(object: &mut Value) -> Option<Value> {
    object::remove(object, &["metadata", "managedFields"])
}

pub(super) fn set_managed_fields(object: &mut Value, entries: &Entries) {
    if let Some(list) = entries.to_list() {
        object::set(object, &["metadata", "managedFields"], list);
    }
}

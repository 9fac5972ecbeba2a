//! Server-side apply: merge what is applied, take away what its applier no longer applies, refuse what others manage.

use std::collections::BTreeMap;

use serde_json::Value;

use super::compare::compare_objects;
use super::conflict::Conflicts;
use super::entry::{Entries, Entry, Manager, Operation};
use super::fieldset::fields_of;
use super::merge::merge;
use super::remove::remove;
use super::schema::TypeRef;
use super::set::Set;
use super::typed::TypeErrors;
use super::update::{Comparisons, Write, cap, fits, reconciled, record, set_managed_fields, take_managed_fields};
use super::validate::{Duplicates, validate};
use super::value;
use crate::codec::encode_untyped;
use crate::names::TOTAL_ANNOTATION_BYTES;
use crate::object;
use crate::time::now_text;

/// Who manages what was there before anybody applied.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";
/// The one manager that may take over what it wrote by client-side apply.
const KUBECTL: &str = "kubectl";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Fields that no set may hold.
const STRIPPED: [&[&str]; 12] = [
    &["apiVersion"],
    &["kind"],
    &["metadata"],
    &["metadata", "clusterName"],
    &["metadata", "creationTimestamp"],
    &["metadata", "generation"],
    &["metadata", "managedFields"],
    &["metadata", "name"],
    &["metadata", "namespace"],
    &["metadata", "resourceVersion"],
    &["metadata", "selfLink"],
    &["metadata", "uid"],
];

/// What to do about fields that others manage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnConflict {
    Refuse,
    Force,
}

/// Why nothing was applied.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ApplyError {
    /// 400 BadRequest.
    #[error("{0}")]
    BadRequest(String),
    /// 409 Conflict with causes.
    #[error("{0}")]
    Conflict(Conflicts),
    /// 500 without a reason, as upstream answers for what does not fit its type.
    #[error("{0}")]
    Internal(String),
}

/// Applies `applied` to `live` (`None` if there is no object yet) and returns the object to be stored, managed fields
/// included. The result is not yet decoded, defaulted or validated; null members stand for what was taken away.
pub fn apply(
    live: Option<&Value>,
    applied: &Value,
    kind: &str,
    on_conflict: OnConflict,
    write: &Write<'_>,
) -> Result<Value, ApplyError> {
    check_type(applied, kind, write)?;
    let mut live = live.cloned().unwrap_or_else(|| write.schema.zero());
    let list = take_managed_fields(&mut live);
    let list = list.as_ref().and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let mut entries = Entries::from_list(list)
        .map_err(|error| ApplyError::Internal(format!("failed to decode managed fields: {error}")))?;
    if entries.is_empty() {
        entries = before_first_apply(&live, write)?;
    }
    let apply = Apply {
        live: &live,
        applied,
        write,
    };
    let may_retry = (write.manager == KUBECTL).then(|| entries.clone());
    let (mut object, entries) = match (apply.run(entries, on_conflict), may_retry) {
        (Err(ApplyError::Conflict(conflicts)), Some(entries)) => {
            // What kubectl wrote by client-side apply is its own, whoever the list names.
            let allowed = apply.last_applied_fields();
            if !allowed
                .as_ref()
                .is_some_and(|allowed| conflicts.fields().difference(allowed).is_empty())
            {
                let conflicts = allowed.map_or(conflicts.clone(), |allowed| conflicts.without(&allowed));
                return Err(ApplyError::Conflict(conflicts));
            }
            apply.run(entries, OnConflict::Force)?
        }
        (result, _) => result?,
    };
    if write.manager == KUBECTL {
        renew_last_applied(&mut object, applied);
    }
    take_managed_fields(&mut object);
    set_managed_fields(&mut object, &entries);
    Ok(object)
}

/// The error for a merged object that its type cannot hold; `reason` is upstream's converter's.
pub fn undecodable(applied: &Value, reason: &str, write: &Write<'_>) -> ApplyError {
    let kind = kind_text(object::string(applied, &["kind"]), write);
    let object = described(applied, write);
    ApplyError::Internal(format!(
        "failed to convert new object ({object}) to proper version: unable to convert unstructured object to {kind}: {reason}"
    ))
}

/// Namespace, name and type, as upstream's errors name an object.
fn described(object: &Value, write: &Write<'_>) -> String {
    let kind = kind_text(object::string(object, &["kind"]), write);
    format!("{}/{}; {kind}", object::namespace(object), object::name(object))
}

fn kind_text(kind: &str, write: &Write<'_>) -> String {
    let slash = if write.api_version.contains('/') { "" } else { "/" };
    format!("{slash}{}, Kind={kind}", write.api_version)
}

fn check_type(applied: &Value, kind: &str, write: &Write<'_>) -> Result<(), ApplyError> {
    let (given_version, given_kind) = (
        object::string(applied, &["apiVersion"]),
        object::string(applied, &["kind"]),
    );
    if given_version == write.api_version && given_kind == kind {
        return Ok(());
    }
    let shown = match given_version.split_once('/') {
        None if given_version.is_empty() => "/".to_owned(),
        None => format!("/{given_version}"),
        Some(_) => given_version.to_owned(),
    };
    Err(ApplyError::BadRequest(format!(
        "invalid object type: {shown}, Kind={given_kind}"
    )))
}

/// Everything that an object has that nobody is known to manage.
fn before_first_apply(live: &Value, write: &Write<'_>) -> Result<Entries, ApplyError> {
    let write = Write {
        manager: BEFORE_FIRST_APPLY,
        ..*write
    };
    let failed = |why: &dyn std::fmt::Display| {
        ApplyError::Internal(format!("failed to create manager for existing fields: {why}"))
    };
    fits(live, write.schema, Duplicates::Allowed).map_err(|errors| {
        let object = described(live, &write);
        failed(&format!(
            "failed to convert new object ({object}) to smd typed: {errors}"
        ))
    })?;
    let entries = record(&write.schema.zero(), live, Entries::default(), &write).map_err(|error| failed(&error))?;
    Ok(cap(entries))
}

struct Apply<'a> {
    live: &'a Value,
    applied: &'a Value,
    write: &'a Write<'a>,
}

impl Apply<'_> {
    /// The merged object and its managers.
    fn run(&self, entries: Entries, on_conflict: OnConflict) -> Result<(Value, Entries), ApplyError> {
        let write = self.write;
        if self
            .applied
            .get("metadata")
            .and_then(|metadata| metadata.get("managedFields"))
            .is_some_and(Value::is_array)
        {
            return Err(ApplyError::BadRequest("metadata.managedFields must be nil".to_owned()));
        }
        self.typed("patch", self.applied, Duplicates::Refused)?;
        self.typed("live", self.live, Duplicates::Allowed)?;
        let mut entries =
            reconciled(self.live, entries, write).map_err(|errors| ApplyError::Internal(errors.to_string()))?;
        let failed = |what: &str| {
            let what = what.to_owned();
            move |errors: TypeErrors| ApplyError::Internal(format!("{what}: {errors}"))
        };
        let merged = merge(self.live, self.applied, write.schema).map_err(failed("failed to merge config"))?;
        let claimed = fields_of(self.applied, write.schema).map_err(failed("failed to get field set"))?;
        let claimed = claimed.recursive_difference(write.reset);
        let recorded = claimed.difference(&Set::of_fields(&STRIPPED));

        let manager = Manager::new(write.manager, Operation::Apply, write.api_version, write.subresource);
        let last = entries.get(&manager).cloned();
        let time = last.as_ref().and_then(|last| last.time.clone());
        let entry = Entry {
            manager,
            api_version: write.api_version.to_owned(),
            time,
            fields: claimed,
        };
        // While pruning the applier owns the name it applied too: that keeps metadata when all else in it goes.
        entries.put(entry.clone());
        let merged = self
            .prune(merged, &entries, last.as_ref())
            .map_err(failed("failed to prune fields"))?;
        let entry = Entry {
            fields: recorded,
            ..entry
        };
        entries.put(entry.clone());

        let comparisons = Comparisons::new(self.live, &merged, write, &entries)
            .map_err(|error| ApplyError::Internal(error.to_string()))?;
        let conflicts = Conflicts::new(comparisons.conflicts(&entries, &entry.manager));
        if on_conflict == OnConflict::Refuse && !conflicts.is_empty() {
            return Err(ApplyError::Conflict(conflicts));
        }
        let mut entries = comparisons.take_from_others(entries, Some(&entry.manager));
        if !value::equal(self.live, &merged)
            && let Some(own) = entries.get_mut(&entry.manager)
        {
            own.time = Some(now_text(write.time));
        }
        Ok((merged, entries))
    }

    fn typed(&self, what: &str, object: &Value, duplicates: Duplicates) -> Result<(), ApplyError> {
        validate(object, self.write.schema, duplicates).map_err(|errors| {
            let object = described(object, self.write);
            ApplyError::Internal(format!("failed to create typed {what} object ({object}): {errors}"))
        })
    }

    /// Takes away what this applier applied last time and nobody owns now.
    fn prune(&self, merged: Value, entries: &Entries, last: Option<&Entry>) -> Result<Value, TypeErrors> {
        let Some(last) = last.filter(|last| !last.fields.is_empty()) else {
            return Ok(merged);
        };
        let merged = Typed {
            object: merged,
            schema: self.write.schema,
            version: self.write.api_version.to_owned(),
        };
        let Some(at_last) = merged.at(&last.api_version, self.write) else {
            return Ok(merged.object);
        };
        let dropped = last.fields.with_named_fields(Some(at_last.schema));
        let pruned = at_last.with(remove(&at_last.object, &dropped, at_last.schema));
        let pruned = self.add_back_owned(&at_last, pruned, entries)?;
        let Some(pruned) = pruned.at(&last.api_version, self.write) else {
            return Ok(merged.object);
        };
        // Only what the applier owned may go; what was never anybody's stays.
        let gone = at_last.fields()?.difference(&pruned.fields()?).intersection(&dropped);
        let pruned = at_last.with(remove(&at_last.object, &gone, at_last.schema));
        Ok(pruned
            .at(self.write.api_version, self.write)
            .map_or(merged.object, |pruned| pruned.object))
    }

    /// Puts back what other managers, or the applier itself, own.
    fn add_back_owned<'s>(
        &'s self,
        merged: &Typed<'s>,
        pruned: Typed<'s>,
        entries: &Entries,
    ) -> Result<Typed<'s>, TypeErrors> {
        let mut by_version: BTreeMap<&str, Set> = BTreeMap::new();
        for entry in entries.iter() {
            let owned = by_version.entry(&entry.api_version).or_default();
            *owned = owned.union(&entry.fields);
        }
        let first = by_version.remove_entry(merged.version.as_str());
        let mut pruned = pruned;
        for (version, owned) in first.into_iter().chain(by_version) {
            let (Some(merged), Some(at_version)) = (merged.at(version, self.write), pruned.at(version, self.write))
            else {
                continue;
            };
            let kept = at_version
                .fields()?
                .union(&owned.with_named_fields(Some(merged.schema)));
            let gone = merged.fields()?.difference(&kept);
            pruned = merged.with(remove(&merged.object, &gone, merged.schema));
        }
        Ok(pruned)
    }

    /// What kubectl's annotation says it applied and the object still has.
    fn last_applied_fields(&self) -> Option<Set> {
        let annotation = object::string(self.live, &["metadata", "annotations", LAST_APPLIED]);
        let last: Value = serde_json::from_str(annotation).ok()?;
        if object::string(&last, &["apiVersion"]) != self.write.api_version {
            return None;
        }
        let schema = self.write.schema;
        validate(&last, schema, Duplicates::Refused).ok()?;
        validate(self.live, schema, Duplicates::Refused).ok()?;
        let changes = compare_objects(&last, self.live, schema).ok()?;
        let fields = fields_of(&last, schema).ok()?;
        Some(
            fields
                .difference(&changes.modified)
                .difference(&changes.added)
                .difference(&changes.removed),
        )
    }
}

/// An object in some version.
struct Typed<'s> {
    object: Value,
    schema: TypeRef<'s>,
    version: String,
}

impl<'s> Typed<'s> {
    fn with(&self, object: Value) -> Self {
        Self {
            object,
            schema: self.schema,
            version: self.version.clone(),
        }
    }

    /// The same object in another version; `None` if there is no such version.
    fn at(&self, version: &str, write: &'s Write<'s>) -> Option<Self> {
        if version == self.version {
            return Some(self.with(self.object.clone()));
        }
        let converted = write.versions.convert(&self.object, version)?;
        Some(Self {
            object: converted.object,
            schema: converted.schema,
            version: version.to_owned(),
        })
    }

    /// Its fields, structs that lead to them included.
    fn fields(&self) -> Result<Set, TypeErrors> {
        Ok(fields_of(&self.object, self.schema)?.with_named_fields(Some(self.schema)))
    }
}

/// Keeps the annotation of client-side apply up to date where it exists.
fn renew_last_applied(object: &mut Value, applied: &Value) {
    let path = ["metadata", "annotations", LAST_APPLIED];
    if object::string(object, &path).is_empty() {
        return;
    }
    let mut last = applied.clone();
    object::remove(&mut last, &path);
    let mut text = Vec::new();
    encode_untyped(&last, &mut text);
    text.push(b'\n');
    object::set(object, &path, String::from_utf8_lossy(&text).into_owned());
    let size: usize = object::map(object, &["metadata", "annotations"])
        .into_iter()
        .flatten()
        .map(|(key, value)| key.len() + value.as_str().map_or(0, str::len))
        .sum();
    if size > TOTAL_ANNOTATION_BYTES {
        object::remove(object, &path);
    }
}

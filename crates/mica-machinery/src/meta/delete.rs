//! What a DELETE does: remove the object, or mark it and wait for its finalizers or its grace period.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::{DELETE_DEPENDENTS, ORPHAN_DEPENDENTS};
use crate::object::{self, object_mut};
use crate::time::{Precision, Time, now_text};

/// The options of a DELETE, from its body or its query.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DeleteOptions {
    pub grace_period_seconds: Option<i64>,
    pub uid: Option<String>,
    pub resource_version: Option<String>,
    /// Whether there was a `preconditions` member, even an empty one.
    pub has_preconditions: bool,
    pub orphan_dependents: Option<bool>,
    pub propagation_policy: Option<String>,
    pub dry_run: Vec<String>,
    pub ignore_store_read_error: bool,
}

impl DeleteOptions {
    /// Reads decoded `metav1.DeleteOptions`.
    pub fn from_value(options: &Value) -> Self {
        let text = |path: &[&str]| object::get(options, path).and_then(Value::as_str).map(str::to_owned);
        let flag = |field: &str| options.get(field).and_then(Value::as_bool);
        let dry_run = object::list(options, &["dryRun"])
            .iter()
            .filter_map(Value::as_str)
            .map(str::to_owned);
        Self {
            grace_period_seconds: object::int(options, &["gracePeriodSeconds"]),
            uid: text(&["preconditions", "uid"]),
            resource_version: text(&["preconditions", "resourceVersion"]),
            has_preconditions: options.get("preconditions").is_some_and(|value| !value.is_null()),
            orphan_dependents: flag("orphanDependents"),
            propagation_policy: text(&["propagationPolicy"]),
            dry_run: dry_run.collect(),
            ignore_store_read_error: flag("ignoreStoreReadErrorWithClusterBreakingPotential").unwrap_or_default(),
        }
    }

    /// The grace period, a negative one taken for one second.
    fn grace(&self) -> Option<i64> {
        self.grace_period_seconds
            .map(|seconds| if seconds < 0 { 1 } else { seconds })
    }
}

/// What a kind does with dependents if the request says nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum GarbagePolicy {
    #[default]
    DeleteDependents,
    OrphanDependents,
    /// The kind takes no part in garbage collection and gets none of its finalizers (events).
    Unsupported,
}

/// What to do with the object.
#[derive(Clone, PartialEq, Debug)]
pub enum Deletion {
    /// It is being deleted gracefully already and this request changes nothing.
    Pending,
    /// Remove it.
    Now,
    /// Write this metadata first.
    Mark { metadata: Value, next: Next },
}

/// What comes after an object is marked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// It stays until its finalizers are gone or its grace period is over.
    Keep,
    /// It is removed at once.
    Remove,
}

/// What a deletion asks of the object, and what is there instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unmet {
    field: &'static str,
    wanted: String,
    actual: String,
}

impl Unmet {
    /// The words of kinds that upstream deletes in a way of their own.
    pub fn of_itself(&self) -> String {
        let Unmet { field, wanted, actual } = self;
        format!("Precondition failed: {field} in precondition: {wanted}, {field} in object meta: {actual}")
    }
}

impl std::fmt::Display for Unmet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Unmet { field, wanted, actual } = self;
        let end = match *field {
            "UID" => "deleted and then recreated",
            _ => "modified",
        };
        write!(
            f,
            "the {field} in the precondition ({wanted}) does not match the {field} in record ({actual}). The object might have been {end}"
        )
    }
}

/// The precondition of a deletion that the object does not meet.
pub fn unmet_precondition(metadata: &Value, options: &DeleteOptions) -> Option<Unmet> {
    let check = |wanted: &Option<String>, json: &str, field| {
        let actual = object::string(metadata, &[json]);
        let wanted = wanted.as_deref().filter(|wanted| *wanted != actual)?;
        Some(Unmet {
            field,
            wanted: wanted.to_owned(),
            actual: actual.to_owned(),
        })
    };
    check(&options.uid, "uid", "UID").or_else(|| check(&options.resource_version, "resourceVersion", "ResourceVersion"))
}

/// Decides a deletion. `graceful` is the kind's rule: given the requested grace period, the one to use, or `None` if the
/// kind has no graceful deletion (all but pods).
pub fn deletion_plan(
    metadata: &Value,
    options: &DeleteOptions,
    policy: GarbagePolicy,
    graceful: impl FnOnce(Option<i64>) -> Option<i64>,
    now: Timestamp,
) -> Deletion {
    let mut metadata = metadata.clone();
    let grace = match mark_gracefully(&mut metadata, options, graceful, now) {
        Grace::Pending => return Deletion::Pending,
        Grace::None => None,
        Grace::Seconds(seconds) => Some(seconds),
    };
    if let Some(finalizers) = finalizers_for_deletion(&metadata, options, policy) {
        set_finalizers(&mut metadata, finalizers);
    }
    let held = !object::list(&metadata, &["finalizers"]).is_empty();
    match grace {
        None if !held => Deletion::Now,
        None => {
            mark(&mut metadata, now);
            Deletion::Mark {
                metadata,
                next: Next::Keep,
            }
        }
        Some(seconds) => {
            let next = if held || seconds > 0 { Next::Keep } else { Next::Remove };
            Deletion::Mark { metadata, next }
        }
    }
}

enum Grace {
    None,
    Pending,
    Seconds(i64),
}

fn mark_gracefully(
    metadata: &mut Value,
    options: &DeleteOptions,
    graceful: impl FnOnce(Option<i64>) -> Option<i64>,
    now: Timestamp,
) -> Grace {
    let requested = options.grace();
    let deletion_time = Time::parse(object::string(metadata, &["deletionTimestamp"]), Precision::Second).ok();
    let Some(deletion_time) = deletion_time else {
        let Some(seconds) = graceful(requested) else {
            return Grace::None;
        };
        let at = now.saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(now);
        set_deletion(metadata, &now_text(at), seconds);
        bump_generation(metadata);
        return Grace::Seconds(seconds);
    };
    // A kind without grace is marked with zero seconds, so it never gets past here.
    let current = match object::int(metadata, &["deletionGracePeriodSeconds"]) {
        None | Some(0) => return Grace::None,
        Some(seconds) => seconds.max(1),
    };
    let Some(mut period) = requested.filter(|period| *period < current) else {
        return Grace::Pending;
    };
    let mut at = deletion_time.plus_seconds(period - current);
    if at < Time::from(now) {
        at = Time::from(now);
        // Somebody still has to see the change and delete for good.
        period = period.min(1);
    }
    set_deletion(metadata, &at.format(Precision::Second), period);
    Grace::Seconds(period)
}

/// The finalizers an object gets when deletion begins, if they differ from those it has.
pub fn finalizers_for_deletion(
    metadata: &Value,
    options: &DeleteOptions,
    policy: GarbagePolicy,
) -> Option<Vec<String>> {
    let old: Vec<&str> = object::list(metadata, &["finalizers"])
        .iter()
        .filter_map(Value::as_str)
        .collect();
    let dependents = dependents(&old, options, policy);
    let mut new: Vec<&str> = old
        .iter()
        .copied()
        .filter(|name| ![ORPHAN_DEPENDENTS, DELETE_DEPENDENTS].contains(name))
        .collect();
    match dependents {
        Dependents::Orphan => new.push(ORPHAN_DEPENDENTS),
        Dependents::Foreground => new.push(DELETE_DEPENDENTS),
        Dependents::Background => {}
    }
    let sets: [BTreeSet<&str>; 2] = [old, new.clone()].map(|names| names.into_iter().collect());
    if sets[0] == sets[1] {
        None
    } else {
        Some(new.into_iter().map(str::to_owned).collect())
    }
}

enum Dependents {
    Orphan,
    Foreground,
    Background,
}

/// The request decides, else a finalizer that is there, else the kind.
fn dependents(finalizers: &[&str], options: &DeleteOptions, policy: GarbagePolicy) -> Dependents {
    if policy == GarbagePolicy::Unsupported {
        return Dependents::Background;
    }
    if let Some(orphan) = options.orphan_dependents {
        return if orphan {
            Dependents::Orphan
        } else {
            Dependents::Background
        };
    }
    match options.propagation_policy.as_deref() {
        Some("Orphan") => return Dependents::Orphan,
        Some("Foreground") => return Dependents::Foreground,
        Some("Background") => return Dependents::Background,
        _ => {}
    }
    for finalizer in finalizers {
        match *finalizer {
            ORPHAN_DEPENDENTS => return Dependents::Orphan,
            DELETE_DEPENDENTS => return Dependents::Foreground,
            _ => {}
        }
    }
    if policy == GarbagePolicy::OrphanDependents {
        Dependents::Orphan
    } else {
        Dependents::Background
    }
}

/// Marks an object of a kind without grace, which waits for its finalizers.
fn mark(metadata: &mut Value, now: Timestamp) {
    let existing = Time::parse(object::string(metadata, &["deletionTimestamp"]), Precision::Second).ok();
    if existing.is_none() {
        bump_generation(metadata);
    }
    let at = match existing {
        Some(time) if time <= Time::from(now) => time.format(Precision::Second),
        _ => now_text(now),
    };
    set_deletion(metadata, &at, 0);
}

/// Whether an update that leaves no finalizers ends the life of an object that waits for that.
pub fn is_deleted_by_update(new: &Value, old: &Value) -> bool {
    object::list(new, &["finalizers"]).is_empty()
        && !object::string(old, &["deletionTimestamp"]).is_empty()
        && object::int(old, &["deletionGracePeriodSeconds"]).unwrap_or_default() == 0
}

fn set_deletion(metadata: &mut Value, at: &str, seconds: i64) {
    let metadata = object_mut(metadata);
    metadata.insert("deletionTimestamp".to_owned(), at.into());
    metadata.insert("deletionGracePeriodSeconds".to_owned(), seconds.into());
}

/// Controllers must notice the change; kinds that do not count generations stay at none.
fn bump_generation(metadata: &mut Value) {
    let generation = object::int(metadata, &["generation"]).unwrap_or_default();
    if generation > 0 {
        object_mut(metadata).insert("generation".to_owned(), (generation + 1).into());
    }
}

fn set_finalizers(metadata: &mut Value, finalizers: Vec<String>) {
    if finalizers.is_empty() {
        object_mut(metadata).remove("finalizers");
    } else {
        object_mut(metadata).insert("finalizers".to_owned(), finalizers.into());
    }
}

//! What is wrong with a change of metadata.

use std::collections::BTreeSet;

use serde_json::Value;

use super::create::{Finalizers, common_errors, create_errors};
use crate::field::{Error, ErrorList, Path, quote};
use crate::kind::Scope;
use crate::names::name_is_path_segment;
use crate::object;

/// What every update is checked for before its kind's own rules.
pub fn before_update_errors(new: &Value, old: &Value, scope: Scope, path: &Path) -> ErrorList {
    let mut errors = create_errors(new, scope, name_is_path_segment, path);
    errors.extend(update_errors(new, old, path));
    errors
}

/// The errors of a change from `old` metadata to `new`, after the server has kept what clients may not change.
pub fn update_errors(new: &Value, old: &Value, path: &Path) -> ErrorList {
    let mut errors = ErrorList::new();
    if !object::string(old, &["deletionTimestamp"]).is_empty() {
        new_finalizer_errors(new, old, &path.child("finalizers"), &mut errors);
    }
    if object::string(new, &["resourceVersion"]).is_empty() {
        errors.push(Error::invalid(
            &path.child("resourceVersion"),
            "",
            "must be specified for an update",
        ));
    }
    let generation = |metadata| object::int(metadata, &["generation"]).unwrap_or_default();
    if generation(new) < generation(old) {
        errors.push(Error::invalid(
            &path.child("generation"),
            generation(new),
            "must not be decremented",
        ));
    }
    for field in ["name", "namespace", "uid"] {
        let value = object::string(new, &[field]);
        if value != object::string(old, &[field]) {
            errors.push(Error::invalid(&path.child(field), value, "field is immutable"));
        }
    }
    for field in ["creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        let value = |metadata: &Value| metadata.get(field).cloned().unwrap_or(Value::Null);
        if value(new) != value(old) {
            errors.push(Error::invalid(&path.child(field), value(new), "field is immutable"));
        }
    }
    errors.extend(common_errors(new, path, Finalizers::Unchecked));
    errors
}

fn new_finalizer_errors(new: &Value, old: &Value, path: &Path, errors: &mut ErrorList) {
    let set = |metadata| -> BTreeSet<&str> {
        object::list(metadata, &["finalizers"])
            .iter()
            .filter_map(Value::as_str)
            .collect()
    };
    let (new, old) = (set(new), set(old));
    let extra: Vec<String> = new.difference(&old).map(|name| quote(name)).collect();
    if !extra.is_empty() {
        let detail = format!(
            "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
            extra.join(", ")
        );
        errors.push(Error::forbidden(path, detail));
    }
}

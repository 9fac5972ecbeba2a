//! What is wrong with the options of a write, and with the managed fields a client sent.

use serde_json::Value;

use super::DeleteOptions;
use crate::field::{Error, ErrorList, Path, quote};
use crate::object;

/// How long a field manager's name may be.
pub const FIELD_MANAGER_MAX: usize = 128;

const SUBRESOURCE_MAX: usize = 256;

/// A manager's name must be short and printable; empty means none was given.
pub fn field_manager_errors(manager: &str, path: &Path) -> ErrorList {
    let mut errors = ErrorList::new();
    if manager.len() > FIELD_MANAGER_MAX {
        errors.push(Error::too_long(path, FIELD_MANAGER_MAX));
    }
    for (at, c) in manager.char_indices().filter(|(_, c)| !is_print(*c)) {
        let detail = format!("invalid character U+{:04X} (at position {at})", u32::from(c));
        errors.push(Error::invalid(path, manager, detail));
    }
    errors
}

/// Whether Go would print the character as it is.
pub(crate) fn is_print(c: char) -> bool {
    if c.is_ascii() {
        return (' '..='~').contains(&c);
    }
    quote(c.encode_utf8(&mut [0; 4])).chars().nth(1) == Some(c)
}

pub fn dry_run_errors(dry_run: &[String], path: &Path) -> ErrorList {
    if dry_run.iter().all(|value| value == "All") {
        return ErrorList::new();
    }
    vec![Error::not_supported(path, dry_run.to_vec(), &["All"])]
}

pub fn field_validation_errors(value: &str, path: &Path) -> ErrorList {
    const ALLOWED: [&str; 4] = ["", "Ignore", "Strict", "Warn"];
    if ALLOWED.contains(&value) {
        return ErrorList::new();
    }
    vec![Error::not_supported(path, value, &ALLOWED)]
}

/// What is wrong with the options of a DELETE.
pub fn delete_options_errors(options: &DeleteOptions) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("propagationPolicy");
    if let Some(policy) = options.propagation_policy.as_deref() {
        if options.orphan_dependents.is_some() {
            let detail = "orphanDependents and deletionPropagation cannot be both set";
            errors.push(Error::invalid(&path, policy, detail));
        }
        if !["Foreground", "Background", "Orphan"].contains(&policy) {
            errors.push(Error::not_supported(
                &path,
                policy,
                &["Foreground", "Background", "Orphan", "nil"],
            ));
        }
    }
    errors.extend(dry_run_errors(&options.dry_run, &Path::new("dryRun")));
    errors.extend(unsafe_delete_errors(options));
    errors
}

/// Deleting what cannot be read excludes every other option.
fn unsafe_delete_errors(options: &DeleteOptions) -> ErrorList {
    if !options.ignore_store_read_error {
        return ErrorList::new();
    }
    let path = Path::new("ignoreStoreReadErrorWithClusterBreakingPotential");
    [
        (!options.dry_run.is_empty(), "dryRun"),
        (options.propagation_policy.is_some(), "propagationPolicy"),
        (options.orphan_dependents.is_some(), "orphanDependents"),
        (options.grace_period_seconds.is_some(), "gracePeriodSeconds"),
        (options.has_preconditions, "preconditions"),
    ]
    .into_iter()
    .filter(|(set, _)| *set)
    .map(|(_, field)| Error::invalid(&path, true, format!("cannot be set together with .{field}")))
    .collect()
}

/// What is wrong with `metadata.managedFields`.
pub fn managed_fields_errors(metadata: &Value, path: &Path) -> ErrorList {
    let mut errors = ErrorList::new();
    for (at, entry) in object::list(metadata, &["managedFields"]).iter().enumerate() {
        let path = path.index(at);
        let text = |field: &str| object::string(entry, &[field]);
        if !["Apply", "Update"].contains(&text("operation")) {
            errors.push(Error::invalid(
                &path.child("operation"),
                text("operation"),
                "must be `Apply` or `Update`",
            ));
        }
        if !["", "FieldsV1"].contains(&text("fieldsType")) {
            errors.push(Error::invalid(
                &path.child("fieldsType"),
                text("fieldsType"),
                "must be `FieldsV1`",
            ));
        }
        errors.extend(field_manager_errors(text("manager"), &path.child("manager")));
        if text("subresource").len() > SUBRESOURCE_MAX {
            errors.push(Error::too_long(&path.child("subresource"), SUBRESOURCE_MAX));
        }
    }
    errors
}

//! Validation of `metav1.Condition` lists.

use std::collections::BTreeSet;

use serde_json::Value;

use super::check::invalid_each;
use crate::field::{Error, ErrorList, Path};
use crate::{names, object};

const STATUSES: [&str; 3] = ["False", "True", "Unknown"];
const MAX_REASON_BYTES: usize = 1024;
const MAX_MESSAGE_BYTES: usize = 32 * 1024;
const REASON_FMT: &str = "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?";
const REASON_TEXT: &str = "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric characters or '_,:', and must end with an alphanumeric character or '_'";
const REASON_EXAMPLES: [&str; 5] = ["my_name", "MY_NAME", "MyName", "ReasonA,ReasonB", "ReasonA:ReasonB"];

pub fn validate_all(conditions: &[Value], path: &Path) -> ErrorList {
    let mut errors = ErrorList::new();
    let mut seen = BTreeSet::new();
    for (i, condition) in conditions.iter().enumerate() {
        let (path, r#type) = (path.index(i), object::string(condition, &["type"]));
        if !seen.insert(r#type) {
            errors.push(Error::duplicate(&path.child("type"), r#type));
        }
        validate(condition, &path, &mut errors);
    }
    errors
}

fn validate(condition: &Value, path: &Path, errors: &mut ErrorList) {
    let of = |field| object::string(condition, &[field]);
    errors.extend(invalid_each(
        &path.child("type"),
        of("type"),
        names::label_key(of("type")),
    ));
    if !STATUSES.contains(&of("status")) {
        errors.push(Error::not_supported(&path.child("status"), of("status"), &STATUSES));
    }
    if let Some(generation) = object::int(condition, &["observedGeneration"]).filter(|number| *number < 0) {
        let detail = "must be greater than or equal to zero";
        errors.push(Error::invalid(&path.child("observedGeneration"), generation, detail));
    }
    if of("lastTransitionTime").is_empty() {
        errors.push(Error::required(&path.child("lastTransitionTime"), ""));
    }
    let (reason, path_reason) = (of("reason"), path.child("reason"));
    if reason.is_empty() {
        errors.push(Error::required(&path_reason, ""));
    } else {
        if !is_reason(reason) {
            let detail = names::regex_error(REASON_TEXT, REASON_FMT, &REASON_EXAMPLES);
            errors.push(Error::invalid(&path_reason, reason, detail));
        }
        if reason.len() > MAX_REASON_BYTES {
            errors.push(Error::too_long(&path_reason, MAX_REASON_BYTES));
        }
    }
    if of("message").len() > MAX_MESSAGE_BYTES {
        errors.push(Error::too_long(&path.child("message"), MAX_MESSAGE_BYTES));
    }
}

fn is_reason(text: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.ends_with(word)
        && text.chars().all(|c| word(c) || c == ',' || c == ':')
}

/// Whether a condition of this type is there with this status.
pub fn has(conditions: &[Value], r#type: &str, status: &str) -> bool {
    conditions
        .iter()
        .any(|one| object::string(one, &["type"]) == r#type && object::string(one, &["status"]) == status)
}

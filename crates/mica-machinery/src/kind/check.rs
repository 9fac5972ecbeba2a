//! Checks that many kinds share, with upstream's sentences.

use serde_json::Value;

use crate::field::{Error, ErrorList, Path, Reason};
use crate::object;

const IMMUTABLE: &str = "field is immutable";

/// Refuses a change of a string; absent is the same as empty.
pub fn immutable_string(new: &Value, old: &Value, at: &[&str], path: &Path, errors: &mut ErrorList) {
    let (new, old) = (object::string(new, at), object::string(old, at));
    if new != old {
        errors.push(Error::invalid(path, new, IMMUTABLE));
    }
}

/// Refuses a change of an integer; absent is the same as zero.
pub fn immutable_int(new: &Value, old: &Value, at: &[&str], path: &Path, errors: &mut ErrorList) {
    let (new, old) = (
        object::int(new, at).unwrap_or_default(),
        object::int(old, at).unwrap_or_default(),
    );
    if new != old {
        errors.push(Error::invalid(path, new, IMMUTABLE));
    }
}

/// Refuses a change of anything; `shown` is how upstream prints the new value.
pub fn immutable(new: &Value, old: &Value, at: &[&str], path: &Path, shown: &str, errors: &mut ErrorList) {
    if !same(object::get(new, at), object::get(old, at)) {
        errors.push(invalid_as(path, shown, IMMUTABLE));
    }
}

/// Whether two values are equal where absent, null and empty are one.
pub fn same(a: Option<&Value>, b: Option<&Value>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => a == b || (is_empty(a) && is_empty(b)),
        (Some(one), None) | (None, Some(one)) => is_empty(one),
        (None, None) => true,
    }
}

/// Whether Go would leave the value out of an `omitempty` field, or prints it as its zero.
pub fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(value) => value.as_f64() == Some(0.0),
        Value::String(value) => value.is_empty(),
        Value::Array(value) => value.is_empty(),
        Value::Object(value) => value.is_empty(),
    }
}

/// An invalid value that upstream prints in its own way: internal types show Go's field names in Go's order.
pub fn invalid_as(path: &Path, shown: &str, detail: &str) -> Error {
    Error {
        reason: Reason::Invalid,
        field: path.to_string(),
        value: None,
        detail: format!("{shown}: {detail}"),
    }
}

/// Each sentence as an error about one value.
pub fn invalid_each(path: &Path, value: &str, texts: Vec<String>) -> impl Iterator<Item = Error> {
    texts.into_iter().map(move |text| Error::invalid(path, value, text))
}

/// A required value out of a known set: absence and an unknown value are different errors.
pub fn one_of(path: &Path, value: &str, supported: &[&str], errors: &mut ErrorList) {
    if value.is_empty() {
        errors.push(Error::required(path, ""));
    } else if !supported.contains(&value) {
        errors.push(Error::not_supported(path, value, supported));
    }
}

/// The map at a path as pairs, sorted by key (upstream: any order).
pub fn entries<'a>(value: &'a Value, at: &[&str]) -> impl Iterator<Item = (&'a str, &'a Value)> + use<'a> {
    object::map(value, at)
        .into_iter()
        .flatten()
        .map(|(key, value)| (key.as_str(), value))
}

/// A list of strings at a path.
pub fn strings<'a>(value: &'a Value, at: &[&str]) -> Vec<&'a str> {
    object::list(value, at).iter().filter_map(Value::as_str).collect()
}

/// Whether there is anything but null at a path: whether a Go pointer is set.
pub fn is_set(value: &Value, at: &[&str]) -> bool {
    present(value, at).is_some()
}

/// What is at a path, null aside.
pub fn present<'a>(value: &'a Value, at: &[&str]) -> Option<&'a Value> {
    object::get(value, at).filter(|value| !value.is_null())
}

/// Sets a value that is absent, null or empty.
pub fn set_default(value: &mut Value, at: &[&str], default: impl Into<Value>) {
    if object::get(value, at).is_none_or(is_empty) {
        object::set(value, at, default);
    }
}

/// Sets a value behind a Go pointer: only absent and null are replaced, zero stays.
pub fn set_default_pointer(value: &mut Value, at: &[&str], default: impl Into<Value>) {
    if !is_set(value, at) {
        object::set(value, at, default);
    }
}

/// The mutable list at a path; empty if absent.
pub fn list_mut<'a>(value: &'a mut Value, at: &[&str]) -> &'a mut [Value] {
    let found = at.iter().try_fold(value, |at, name| at.get_mut(*name));
    found.and_then(Value::as_array_mut).map_or(&mut [], Vec::as_mut_slice)
}

/// Leaves metadata as it was on a write to `status`, but for what tells versions and managers apart.
pub fn keep_metadata(new: &mut Value, old: &Value) {
    for field in [
        "deletionTimestamp",
        "generation",
        "selfLink",
        "labels",
        "annotations",
        "finalizers",
        "ownerReferences",
    ] {
        object::copy(old, new, &["metadata", field]);
    }
}

/// An unsupported value that upstream prints in its own way.
pub fn not_supported_as(path: &Path, shown: &str, supported: &[&str]) -> Error {
    let error = Error::not_supported(path, Value::Null, supported);
    Error {
        value: None,
        detail: format!("{shown}: {}", error.detail),
        ..error
    }
}

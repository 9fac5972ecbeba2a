//! Owner references: what is wrong with them, and the merging of duplicates.

use serde_json::Value;

use crate::field::{Error, ErrorList, Path, Reason};
use crate::object;

pub(super) fn owner_reference_errors(metadata: &Value, path: &Path) -> ErrorList {
    let mut errors = ErrorList::new();
    let references = object::list(metadata, &["ownerReferences"]);
    let mut controller: Option<String> = None;
    for reference in references {
        reference_errors(reference, path, &mut errors);
        if reference.get("controller").and_then(Value::as_bool) != Some(true) {
            continue;
        }
        let name = format!(
            "{}/{}",
            object::string(reference, &["kind"]),
            object::string(reference, &["name"])
        );
        match &controller {
            None => controller = Some(name),
            Some(first) => {
                let shown: Vec<String> = references.iter().map(as_go_prints).collect();
                let detail = format!(
                    "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {name}"
                );
                errors.push(invalid_as(path, &format!("[{}]", shown.join(",")), &detail));
            }
        }
    }
    errors
}

fn reference_errors(reference: &Value, path: &Path, errors: &mut ErrorList) {
    let text = |field: &str| object::string(reference, &[field]);
    let (group, version) = group_version(text("apiVersion"));
    if version.is_empty() {
        errors.push(Error::invalid(
            &path.child("apiVersion"),
            text("apiVersion"),
            "version must not be empty",
        ));
    }
    for field in ["kind", "name", "uid"] {
        if text(field).is_empty() {
            errors.push(Error::invalid(&path.child(field), text(field), "must not be empty"));
        }
    }
    if (group, version, text("kind")) == ("", "v1", "Event") {
        let detail = "/v1, Kind=Event is disallowed from being an owner";
        errors.push(invalid_as(path, &as_go_prints(reference), detail));
    }
}

/// Group and version; both empty for what has more than one slash.
fn group_version(api_version: &str) -> (&str, &str) {
    match api_version.split_once('/') {
        None => ("", api_version),
        Some((_, rest)) if rest.contains('/') => ("", ""),
        Some(parts) => parts,
    }
}

/// The reference as JSON in the order of Go's fields.
fn as_go_prints(reference: &Value) -> String {
    let mut parts = Vec::new();
    for field in ["apiVersion", "kind", "name", "uid"] {
        parts.push(format!(
            "\"{field}\":{}",
            Value::from(object::string(reference, &[field]))
        ));
    }
    for field in ["controller", "blockOwnerDeletion"] {
        if let Some(value) = reference.get(field).filter(|value| !value.is_null()) {
            parts.push(format!("\"{field}\":{value}"));
        }
    }
    format!("{{{}}}", parts.join(","))
}

fn invalid_as(path: &Path, shown: &str, detail: &str) -> Error {
    Error {
        reason: Reason::Invalid,
        field: path.to_string(),
        value: None,
        detail: format!("{shown}: {detail}"),
    }
}

/// Whether mutating admission has already run; the warning says so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Admission {
    Before,
    After,
}

/// Drops repeated owner references and returns the warning about them, if there were any.
///
/// Upstream does this before and after admission on create and update, and only after it on patch.
pub fn dedup_owner_references(metadata: &mut Value, admission: Admission) -> Option<String> {
    let references = metadata.get_mut("ownerReferences")?.as_array_mut()?;
    let mut duplicates: Vec<String> = Vec::new();
    let mut kept: Vec<Value> = Vec::with_capacity(references.len());
    for reference in references.drain(..) {
        if kept.contains(&reference) {
            duplicates.push(object::string(&reference, &["uid"]).to_owned());
        } else {
            kept.push(reference);
        }
    }
    *references = kept;
    if duplicates.is_empty() {
        return None;
    }
    let after = match admission {
        Admission::Before => "",
        Admission::After => " after mutating admission happens",
    };
    Some(format!(
        ".metadata.ownerReferences contains duplicate entries{after}; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
        duplicates.join(", ")
    ))
}

/// Whether two states of an object differ in nothing but what the garbage collector changes: owners and finalizers.
pub fn only_garbage_fields_differ(new: &Value, old: &Value) -> bool {
    const IGNORED: [&str; 6] = [
        "ownerReferences",
        "finalizers",
        "managedFields",
        "selfLink",
        "resourceVersion",
        "generation",
    ];
    let rest = |object: &Value| {
        let mut object = object.clone();
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            for field in IGNORED {
                metadata.remove(field);
            }
        }
        object
    };
    rest(new) == rest(old)
}

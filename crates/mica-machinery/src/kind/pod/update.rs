//! What of a pod may change: nearly nothing, since it may run already.

use serde_json::Value;

use super::apparmor;
use super::place::validate_tolerations;
use super::validate::{self, validate_pod};
use crate::field::{Error, ErrorList, Path, quote};
use crate::kind::check::{entries, is_set, list_mut, present, same};
use crate::kind::diff;
use crate::{names, object};

const SPEC: &str = "io.k8s.api.core.v1.PodSpec";
const MIRROR: &str = "kubernetes.io/config.mirror";
const CHANGEABLE: &str = "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

pub fn validate(new: &Value, old: &Value) -> ErrorList {
    let mut errors = validate_pod(new);
    validate_annotations(new, old, &mut errors);
    let path = Path::new("spec");
    for list in ["containers", "initContainers"] {
        if !same_count(new, old, list, &path, &mut errors) {
            return errors;
        }
    }
    if !validate_deadline(new, old, &path.child("activeDeadlineSeconds"), &mut errors) {
        return errors;
    }
    validate_added_tolerations(new, old, &path.child("tolerations"), &mut errors);
    validate_removed_gates(new, old, &path.child("schedulingGates"), &mut errors);
    let null = Value::Null;
    let (spec, before) = (new.get("spec").unwrap_or(&null), old.get("spec").unwrap_or(&null));
    if same(Some(spec), Some(before)) {
        return errors;
    }
    let spec = fixed(spec, before, &path, &mut errors);
    if !same(Some(&spec), Some(before)) {
        let shown = diff::unified(before, &spec, SPEC);
        let detail = format!("pod updates may not change fields other than {CHANGEABLE}\n{shown}");
        errors.push(Error::forbidden(&path, detail));
    }
    errors
}

fn same_count(new: &Value, old: &Value, list: &str, path: &Path, errors: &mut ErrorList) -> bool {
    let path = path.child(list);
    let containers = object::list(new, &["spec", list]);
    if containers.len() != object::list(old, &["spec", list]).len() {
        let detail = "pod updates may not add or remove containers";
        errors.push(Error::forbidden(&path, detail));
        return false;
    }
    for (i, container) in containers.iter().enumerate() {
        let (path, image) = (path.index(i).child("image"), object::string(container, &["image"]));
        if image.is_empty() {
            errors.push(Error::required(&path, ""));
        }
        if image.trim() != image {
            let detail = "must not have leading or trailing whitespace";
            errors.push(Error::invalid(&path, image, detail));
        }
    }
    true
}

/// Returns whether it makes sense to look on.
fn validate_deadline(new: &Value, old: &Value, path: &Path, errors: &mut ErrorList) -> bool {
    let seconds = |object| object::int(object, &["spec", "activeDeadlineSeconds"]);
    match (seconds(new), seconds(old)) {
        (Some(seconds), _) if !(0..=i64::from(i32::MAX)).contains(&seconds) => {
            let detail = names::inclusive_range_error(0, i64::from(i32::MAX));
            errors.push(Error::invalid(path, seconds, detail));
            false
        }
        (Some(seconds), Some(before)) if before < seconds => {
            let detail = "must be less than or equal to previous value";
            errors.push(Error::invalid(path, seconds, detail));
            false
        }
        (None, Some(_)) => {
            let detail = "must not update from a positive integer to nil value";
            errors.push(Error::invalid(path, Value::Null, detail));
            true
        }
        _ => true,
    }
}

fn validate_added_tolerations(new: &Value, old: &Value, path: &Path, errors: &mut ErrorList) {
    let without_time = |toleration: &Value| {
        let mut toleration = toleration.clone();
        object::remove(&mut toleration, &["tolerationSeconds"]);
        toleration
    };
    let now: Vec<Value> = object::list(new, &["spec", "tolerations"])
        .iter()
        .map(without_time)
        .collect();
    let kept = object::list(old, &["spec", "tolerations"])
        .iter()
        .all(|toleration| now.contains(&without_time(toleration)));
    if !kept {
        let detail = "existing toleration can not be modified except its tolerationSeconds";
        errors.push(Error::forbidden(path, detail));
        return;
    }
    validate_tolerations(&new["spec"], path, errors);
}

fn validate_removed_gates(new: &Value, old: &Value, path: &Path, errors: &mut ErrorList) {
    let name = |gate| object::string(gate, &["name"]);
    let before: Vec<&str> = object::list(old, &["spec", "schedulingGates"])
        .iter()
        .map(name)
        .collect();
    for (i, gate) in object::list(new, &["spec", "schedulingGates"]).iter().enumerate() {
        if !before.contains(&name(gate)) {
            let detail = format!(
                "only deletion is allowed, but found new scheduling gate '{}'",
                name(gate)
            );
            errors.push(Error::forbidden(&path.index(i).child("name"), detail));
        }
    }
}

/// The new spec with what may change set back to what it was.
fn fixed(spec: &Value, before: &Value, path: &Path, errors: &mut ErrorList) -> Value {
    let mut fixed = spec.clone();
    for list in ["containers", "initContainers"] {
        let old = object::list(before, &[list]).to_vec();
        for (container, old) in list_mut(&mut fixed, &[list]).iter_mut().zip(&old) {
            object::copy(old, container, &["image"]);
        }
    }
    for field in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        object::copy(before, &mut fixed, &[field]);
    }
    let grace = |spec| object::int(spec, &["terminationGracePeriodSeconds"]);
    if grace(before).is_some_and(|grace| grace < 0) && grace(spec) == Some(1) {
        object::copy(before, &mut fixed, &["terminationGracePeriodSeconds"]);
    }
    if !object::list(before, &["schedulingGates"]).is_empty() {
        narrow(&mut fixed, before, path, errors);
    }
    fixed
}

/// A pod that waits at a gate may still be told where to go, if that leaves fewer places.
fn narrow(spec: &mut Value, before: &Value, path: &Path, errors: &mut ErrorList) {
    let kept =
        entries(before, &["nodeSelector"]).all(|(key, value)| object::get(spec, &["nodeSelector", key]) == Some(value));
    if !kept {
        let path = path.child("nodeSelector");
        let shown = spec.get("nodeSelector").cloned().unwrap_or_default();
        let detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
        errors.push(Error::invalid(&path, shown, detail));
    }
    object::copy(before, spec, &["nodeSelector"]);
    let at = ["affinity", "nodeAffinity"];
    if !same(object::get(spec, &at), object::get(before, &at)) {
        let null = Value::Null;
        let (now, old) = (
            object::get(spec, &at).cloned().unwrap_or_default(),
            object::get(before, &at).unwrap_or(&null),
        );
        narrow_affinity(&now, old, &path.child("affinity").child("nodeAffinity"), errors);
        object::copy(before, spec, &at);
        if !is_set(before, &["affinity"]) && object::map(spec, &["affinity"]).is_some_and(serde_json::Map::is_empty) {
            object::remove(spec, &["affinity"]);
        }
    }
}

fn narrow_affinity(now: &Value, old: &Value, path: &Path, errors: &mut ErrorList) {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    let terms = |affinity: &Value| {
        let required = present(affinity, &[REQUIRED])?;
        Some(object::list(required, &["nodeSelectorTerms"]).to_vec())
    };
    let Some(old_terms) = terms(old).filter(|terms| !terms.is_empty()) else {
        return;
    };
    let path = path.child(REQUIRED).child("nodeSelectorTerms");
    let new_terms = terms(now).unwrap_or_default();
    if new_terms.len() != old_terms.len() {
        let detail = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        errors.push(Error::invalid(&path, new_terms, detail));
        return;
    }
    for (i, (now, old)) in new_terms.iter().zip(&old_terms).enumerate() {
        let begins = |field: &str| object::list(now, &[field]).starts_with(object::list(old, &[field]));
        let empty =
            object::list(old, &["matchExpressions"]).is_empty() && object::list(old, &["matchFields"]).is_empty();
        let grew = !same(Some(now), Some(old));
        if (empty && grew) || !begins("matchExpressions") || !begins("matchFields") {
            let detail = "only additions are allowed (no mutations or deletions)";
            errors.push(Error::invalid(&path.index(i), now.clone(), detail));
        }
    }
}

/// Annotations that only whoever made the pod sets.
pub fn validate_annotations(new: &Value, old: &Value, errors: &mut ErrorList) {
    let path = Path::new("metadata").child("annotations");
    let value = |object: &Value, key: &str| object::get(object, &["metadata", "annotations", key]).cloned();
    for (key, before) in entries(old, &["metadata", "annotations"]) {
        if value(new, key).as_ref() == Some(before) {
            continue;
        }
        if key.starts_with(apparmor::PREFIX) {
            let detail = "may not remove or update AppArmor annotations";
            errors.push(Error::forbidden(&path.key(key), detail));
        }
        if key == MIRROR {
            let detail = "may not remove or update mirror pod annotation";
            errors.push(Error::forbidden(&path.key(key), detail));
        }
    }
    for (key, _) in entries(new, &["metadata", "annotations"]) {
        if value(old, key).is_some() {
            continue;
        }
        if key.starts_with(apparmor::PREFIX) {
            errors.push(Error::forbidden(&path.key(key), "may not add AppArmor annotations"));
        }
        if key == MIRROR {
            errors.push(Error::forbidden(&path.key(key), "may not add mirror pod annotation"));
        }
    }
    // What is wrong with them is said once more.
    let null = Value::Null;
    let of = |field| new.get(field).unwrap_or(&null);
    validate::validate_annotations(of("metadata"), of("spec"), &path, errors);
}

/// A refusal that upstream makes without a field.
pub fn nowhere(detail: &str) -> Error {
    Error {
        field: String::new(),
        ..Error::forbidden(&Path::new("spec"), detail)
    }
}

/// Containers that are added to a running pod stay as they were added.
pub fn validate_ephemeral(new: &Value, old: &Value) -> ErrorList {
    const TYPE: &str = "io.k8s.api.core.v1.EphemeralContainer";
    let mut errors = validate_pod(new);
    validate_annotations(new, old, &mut errors);
    if object::get(old, &["metadata", "annotations", MIRROR]).is_some() {
        let detail = "static pods do not support ephemeral containers";
        return vec![nowhere(detail)];
    }
    let path = Path::new("spec").child("ephemeralContainers");
    let name = |container| object::string(container, &["name"]);
    let now = object::list(new, &["spec", "ephemeralContainers"]);
    for before in object::list(old, &["spec", "ephemeralContainers"]) {
        let quoted = quote(name(before));
        match now.iter().find(|container| name(container) == name(before)) {
            None => {
                let detail = format!("existing ephemeral containers {quoted} may not be removed\n");
                errors.push(Error::forbidden(&path, detail));
            }
            Some(now) if !same(Some(now), Some(before)) => {
                let shown = diff::unified(before, now, TYPE);
                let detail = format!("existing ephemeral containers {quoted} may not be changed\n{shown}");
                errors.push(Error::forbidden(&path, detail));
            }
            Some(_) => {}
        }
    }
    errors
}

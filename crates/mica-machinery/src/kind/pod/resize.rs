//! The `resize` subresource: other resources for containers that may run already.

use serde_json::Value;

use super::prepare::quality;
use super::update::nowhere;
use super::validate::validate_pod;
use crate::field::{Error, ErrorList, Path};
use crate::kind::check::{entries, list_mut, present, same};
use crate::object;

const MIRROR: &str = "kubernetes.io/config.mirror";
const LISTS: [&str; 2] = ["containers", "initContainers"];

/// Leaves all but resources and their policies as they were. Containers that come, go or change their names stay for
/// validation to refuse.
pub fn prepare(new: &mut Value, old: &Value) {
    let list = |pod: &Value, list: &str| object::list(pod, &["spec", list]).to_vec();
    if LISTS.iter().any(|name| list(new, name).len() != list(old, name).len()) {
        return;
    }
    let wanted = LISTS.map(|name| list(new, name));
    let resources = object::get(new, &["spec", "resources"]).cloned();
    object::copy(old, new, &["spec"]);
    object::copy(old, new, &["status"]);
    crate::kind::check::keep_metadata(new, old);
    match resources {
        Some(resources) => object::set(new, &["spec", "resources"], resources),
        None => drop(object::remove(new, &["spec", "resources"])),
    }
    for (name, wanted) in LISTS.iter().zip(wanted) {
        let held = list_mut(new, &["spec", name]);
        if held
            .iter()
            .zip(&wanted)
            .any(|(held, wanted)| held["name"] != wanted["name"])
        {
            object::set(new, &["spec", name], wanted);
            continue;
        }
        for (held, wanted) in held.iter_mut().zip(&wanted) {
            for field in ["resources", "resizePolicy"] {
                object::copy(wanted, held, &[field]);
            }
        }
    }
}

pub fn validate(new: &Value, old: &Value) -> ErrorList {
    let mut errors = validate_pod(new);
    if object::get(old, &["metadata", "annotations", MIRROR]).is_some() {
        return vec![nowhere("static pods cannot be resized")];
    }
    if object::string(old, &["spec", "os", "name"]) == "windows" {
        return vec![nowhere("windows pods cannot be resized")];
    }
    let path = Path::new("spec");
    if quality(old) != quality(new) {
        let class = object::string(new, &["status", "qosClass"]);
        let detail = "Pod QOS Class may not change as a result of resizing";
        errors.push(Error::invalid(&path, class, detail));
    }
    if !is_supported(old) {
        let detail = "Pod running on node without support for resize";
        errors.push(Error::forbidden(&path, detail));
    }
    let before = errors.len();
    for list in LISTS {
        validate_order(new, old, list, &path, &mut errors);
    }
    if errors.len() > before {
        return errors;
    }
    for list in ["initContainers", "containers"] {
        validate_removals(new, old, list, &path, &mut errors);
    }
    for list in LISTS {
        validate_rest(new, old, list, &path, &mut errors);
    }
    errors
}

/// Whether the node that the pod runs on, if it does, tells what its containers got.
fn is_supported(pod: &Value) -> bool {
    let statuses = object::list(pod, &["status", "containerStatuses"]);
    let running = statuses
        .iter()
        .find(|status| present(status, &["state", "running"]).is_some());
    running.is_none_or(|status| present(status, &["resources"]).is_some())
}

fn pairs<'a>(
    new: &'a Value,
    old: &'a Value,
    list: &str,
) -> impl Iterator<Item = (usize, &'a Value, &'a Value)> + use<'a> {
    let (now, before) = (object::list(new, &["spec", list]), object::list(old, &["spec", list]));
    now.iter()
        .zip(before)
        .enumerate()
        .map(|(i, (now, before))| (i, now, before))
}

fn validate_order(new: &Value, old: &Value, list: &str, path: &Path, errors: &mut ErrorList) {
    let path = path.child(list);
    let count = |pod| object::list(pod, &["spec", list]).len();
    if count(new) != count(old) {
        errors.push(Error::forbidden(
            &path,
            format!("{list} may not be added or removed on resize"),
        ));
        return;
    }
    for (i, now, before) in pairs(new, old, list) {
        if now.get("name") != before.get("name") {
            let detail = format!("{list} may not be renamed or reordered on resize");
            errors.push(Error::forbidden(&path.index(i).child("name"), detail));
        }
    }
}

fn is_restartable(container: &Value) -> bool {
    object::string(container, &["restartPolicy"]) == "Always"
}

fn validate_removals(new: &Value, old: &Value, list: &str, path: &Path, errors: &mut ErrorList) {
    for (i, now, before) in pairs(new, old, list) {
        if list == "initContainers" && !is_restartable(before) {
            continue;
        }
        for field in ["requests", "limits"] {
            let gone = entries(before, &["resources", field])
                .any(|(name, _)| object::get(now, &["resources", field, name]).is_none());
            if gone {
                let path = path.child(list).index(i).child("resources").child(field);
                errors.push(Error::forbidden(&path, format!("resource {field} cannot be removed")));
            }
        }
    }
}

/// What differs once processor and memory are set aside.
fn validate_rest(new: &Value, old: &Value, list: &str, path: &Path, errors: &mut ErrorList) {
    for (i, now, before) in pairs(new, old, list) {
        if same(Some(now), Some(before)) {
            continue;
        }
        if list == "initContainers" && !is_restartable(now) {
            let detail = "resources for non-sidecar init containers are immutable";
            errors.push(Error::forbidden(path, detail));
            continue;
        }
        let mut rest = now.clone();
        for field in ["requests", "limits"] {
            for name in ["cpu", "memory"] {
                object::copy(before, &mut rest, &["resources", field, name]);
            }
            if object::map(&rest, &["resources", field]).is_some_and(serde_json::Map::is_empty) {
                object::remove(&mut rest, &["resources", field]);
            }
        }
        object::copy(before, &mut rest, &["resizePolicy"]);
        if !same(Some(&rest), Some(before)) {
            let (path, detail) = if list == "containers" {
                (path.clone(), "only cpu and memory resources are mutable")
            } else {
                let detail = "only cpu and memory resources for init or sidecar containers are mutable";
                (path.child(list).index(i), detail)
            };
            errors.push(Error::forbidden(&path, detail));
        }
    }
}

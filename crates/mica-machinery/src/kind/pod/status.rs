//! A pod's status: what its kubelet may tell.

use serde_json::Value;

use super::update::validate_annotations;
use crate::field::{Error, ErrorList, Path};
use crate::kind::check::{immutable_string, invalid_each, present};
use crate::kind::workload::number;
use crate::names::{ip_errors_legacy, parse_ip_sloppy};
use crate::{names, object};

const SYSTEM_CONDITIONS: [&str; 3] = ["PodScheduled", "Ready", "Initialized"];

pub fn validate(new: &Value, old: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    validate_annotations(new, old, &mut errors);
    let path = Path::new("status");
    for (i, condition) in object::list(new, &["status", "conditions"]).iter().enumerate() {
        let path = path.child("conditions").index(i);
        let generation = number(condition, &["observedGeneration"]);
        if generation < 0 {
            let detail = "must be a non-negative integer";
            errors.push(Error::invalid(&path.child("observedGeneration"), generation, detail));
        }
        let r#type = object::string(condition, &["type"]);
        if !SYSTEM_CONDITIONS.contains(&r#type) {
            errors.extend(invalid_each(&path.child("Type"), r#type, names::qualified_name(r#type)));
        }
    }
    let nominated = |pod| object::string(pod, &["status", "nominatedNodeName"]);
    if nominated(new) != nominated(old) && !nominated(new).is_empty() {
        let texts = names::dns1123_subdomain(nominated(new));
        let path = path.child("nominatedNodeName");
        errors.extend(invalid_each(&path, nominated(new), texts));
        if !object::string(old, &["spec", "nodeName"]).is_empty() {
            let detail = "may not be set on pods that are already bound to a node";
            errors.push(Error::forbidden(&path, detail));
        }
    }
    let generation = number(new, &["status", "observedGeneration"]);
    if generation < 0 {
        let detail = "must be a non-negative integer";
        errors.push(Error::invalid(&path.child("observedGeneration"), generation, detail));
    }
    immutable_string(new, old, &["status", "qosClass"], &path.child("qosClass"), &mut errors);
    validate_transitions(new, old, &path, &mut errors);
    validate_addresses(new, old, "podIPs", &path, &mut errors);
    validate_addresses(new, old, "hostIPs", &path, &mut errors);
    errors
}

/// A container that ended for good does not run again.
fn validate_transitions(new: &Value, old: &Value, path: &Path, errors: &mut ErrorList) {
    let restart = object::string(old, &["spec", "restartPolicy"]);
    for (statuses, containers) in [
        ("containerStatuses", "containers"),
        ("initContainerStatuses", "initContainers"),
    ] {
        let name = |one| object::string(one, &["name"]);
        let now = object::list(new, &["status", statuses]);
        for before in object::list(old, &["status", statuses]) {
            let Some(ended) = present(before, &["state", "terminated"]) else {
                continue;
            };
            let declared = object::list(old, &["spec", containers])
                .iter()
                .find(|container| name(container) == name(before));
            let own = declared.map(|container| object::string(container, &["restartPolicy"]));
            let policy = match own {
                Some(own) if !own.is_empty() => own,
                _ if statuses == "initContainerStatuses" && restart == "Always" => "OnFailure",
                _ => restart,
            };
            let failed = number(ended, &["exitCode"]) != 0;
            if policy == "Always" || (policy == "OnFailure" && failed) {
                continue;
            }
            let found = now.iter().enumerate().find(|(_, one)| name(one) == name(before));
            if let Some((i, status)) = found
                && present(status, &["state", "terminated"]).is_none()
            {
                let path = path.child(statuses).index(i).child("state");
                errors.push(Error::forbidden(
                    &path,
                    "may not be transitioned to non-terminated state",
                ));
            }
        }
    }
}

fn validate_addresses(new: &Value, old: &Value, field: &str, path: &Path, errors: &mut ErrorList) {
    let addresses = |pod| -> Vec<&str> {
        let list = object::list(pod, &["status", field]);
        list.iter().map(|one| object::string(one, &["ip"])).collect()
    };
    let (now, before) = (addresses(new), addresses(old));
    let path = path.child(field);
    let host = object::string(new, &["status", "hostIP"]);
    if let Some(first) = now.first().filter(|first| field == "hostIPs" && **first != host) {
        let detail = "must be equal to `hostIP`";
        errors.push(Error::invalid(&path.index(0).child("ip"), *first, detail));
    }
    for (i, address) in now.iter().enumerate() {
        errors.extend(ip_errors_legacy(&path.index(i), address, &before));
    }
    if now.len() > 1 {
        let families: Vec<bool> = now
            .iter()
            .filter_map(|address| parse_ip_sloppy(address))
            .map(|address| address.is_ipv6())
            .collect();
        let dual = families.contains(&true) && families.contains(&false);
        if !dual || now.len() > 2 {
            let shown = object::get(new, &["status", field]).cloned().unwrap_or_default();
            let detail = "may specify no more than one IP for each IP family";
            errors.push(Error::invalid(&path, shown, detail));
        }
    }
}

/// Addresses of a pod in old form and new: one is the first of the other.
pub fn settle_addresses(pod: &mut Value) {
    let first = object::list(pod, &["status", "podIPs"])
        .first()
        .map(|one| object::string(one, &["ip"]).to_owned());
    let old = object::string(pod, &["status", "podIP"]).to_owned();
    match first {
        Some(first) if old.is_empty() => object::set(pod, &["status", "podIP"], first),
        // Where they differ, the old field is right: who writes it may not know the other.
        first if !old.is_empty() && first.as_ref() != Some(&old) => {
            object::set(pod, &["status", "podIPs"], serde_json::json!([{"ip": old}]));
        }
        _ => {}
    }
}

/// Generations that conditions were told about stay where a writer does not tell them.
pub fn keep_observed(new: &mut Value, old: &Value) {
    if number(new, &["status", "observedGeneration"]) == 0 {
        object::copy(old, new, &["status", "observedGeneration"]);
    }
    let mut known: Vec<(String, Value)> = object::list(old, &["status", "conditions"])
        .iter()
        .filter_map(|condition| {
            let generation = condition.get("observedGeneration")?.clone();
            Some((object::string(condition, &["type"]).to_owned(), generation))
        })
        .collect();
    for condition in crate::kind::check::list_mut(new, &["status", "conditions"]) {
        let r#type = object::string(condition, &["type"]);
        let Some(at) = known.iter().position(|(known, _)| known == r#type) else {
            continue;
        };
        let (_, generation) = known.remove(at);
        if number(condition, &["observedGeneration"]) == 0 {
            object::set(condition, &["observedGeneration"], generation);
        }
    }
}

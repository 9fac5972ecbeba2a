//! What containers and pods use at most and at least.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::field::{Error, ErrorList, Path};
use crate::kind::check::{entries, invalid_each, is_set, present};
use crate::kind::core::resource::{may_overcommit, quantity, validate_amount, validate_container_name, validate_name};
use crate::quantity::Quantity;
use crate::{names, object};

const HUGE_PAGES: &str = "hugepages-";
/// What can be limited for a pod as a whole; huge pages beside these.
const OF_PODS: [&str; 2] = ["cpu", "memory"];
const OF_PODS_TOLD: [&str; 3] = ["cpu", "hugepages-", "memory"];

/// Whose resources they are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    Container,
    Pod,
}

pub fn validate(resources: &Value, owner: Owner, claims: &BTreeSet<&str>, path: &Path, errors: &mut ErrorList) {
    let (limits_path, requests_path) = (path.child("limits"), path.child("requests"));
    let (mut plain, mut pages) = (false, false);
    for (name, amount) in entries(resources, &["limits"]) {
        validate_one(name, amount, owner, &limits_path.key(name), errors);
        validate_pages(name, amount, &limits_path.key(name), errors);
        plain |= OF_PODS.contains(&name);
        pages |= name.starts_with(HUGE_PAGES);
    }
    for (name, amount) in entries(resources, &["requests"]) {
        validate_one(name, amount, owner, &requests_path.key(name), errors);
        let wanted = quantity(amount);
        match object::get(resources, &["limits", name]).map(quantity) {
            Some(limit) if wanted != limit && !may_overcommit(name) => {
                let detail = format!("must be equal to {name} limit of {limit}");
                errors.push(Error::invalid(&requests_path, wanted.to_string(), detail));
            }
            Some(limit) if wanted > limit => {
                let detail = format!("must be less than or equal to {name} limit of {limit}");
                errors.push(Error::invalid(&requests_path, wanted.to_string(), detail));
            }
            None if !may_overcommit(name) => {
                let detail = "Limit must be set for non overcommitable resources";
                errors.push(Error::required(&limits_path, detail));
            }
            _ => {}
        }
        validate_pages(name, amount, &requests_path.key(name), errors);
        plain |= OF_PODS.contains(&name);
        pages |= name.starts_with(HUGE_PAGES);
    }
    if pages && !plain {
        errors.push(Error::forbidden(path, "HugePages require cpu or memory"));
    }
    validate_claims(resources, claims, &path.child("claims"), errors);
}

fn validate_one(name: &str, amount: &Value, owner: Owner, path: &Path, errors: &mut ErrorList) {
    match owner {
        Owner::Container => errors.extend(validate_container_name(name, path)),
        Owner::Pod => {
            let found = validate_name(name, path);
            if found.is_empty() && !OF_PODS.contains(&name) && !name.starts_with(HUGE_PAGES) {
                errors.push(Error::not_supported(path, name, &OF_PODS_TOLD));
            }
            errors.extend(found);
        }
    }
    errors.extend(validate_amount(name, amount, path));
}

/// Huge pages come whole.
fn validate_pages(name: &str, amount: &Value, path: &Path, errors: &mut ErrorList) {
    let amount = quantity(amount);
    if name.starts_with(HUGE_PAGES) && !is_divisible(name, &amount) {
        let detail = format!("{amount} is not positive integer multiple of {name}");
        errors.push(Error::invalid(path, amount.to_string(), detail));
    }
}

/// Whether an amount is a number of whole pages.
fn is_divisible(name: &str, amount: &Quantity) -> bool {
    let size = name
        .strip_prefix(HUGE_PAGES)
        .and_then(|size| Quantity::parse(size).ok());
    match size.map(|size| size.value()) {
        Some(size) if size > 0 => amount.value() % size == 0,
        _ => false,
    }
}

fn validate_claims(resources: &Value, known: &BTreeSet<&str>, path: &Path, errors: &mut ErrorList) {
    let mut seen: BTreeSet<String> = BTreeSet::new();
    for (i, claim) in object::list(resources, &["claims"]).iter().enumerate() {
        let path = path.index(i);
        let (name, request) = (object::string(claim, &["name"]), object::string(claim, &["request"]));
        if name.is_empty() {
            errors.push(Error::required(&path, ""));
            continue;
        }
        if seen.contains(name) {
            errors.push(Error::duplicate(&path, name));
        } else {
            let key = if request.is_empty() {
                name.to_owned()
            } else {
                let texts = names::dns1123_label(request);
                errors.extend(invalid_each(&path.child("request"), request, texts));
                format!("{name}/{request}")
            };
            let part = |held: &&String| held.split_once('/').is_some_and(|(claim, _)| claim == name);
            if seen.contains(&key) {
                errors.push(Error::duplicate(&path, key.as_str()));
            } else if request.is_empty() && seen.iter().any(|held| part(&held)) {
                errors.push(Error::duplicate(&path, name));
            }
            seen.insert(key);
        }
        if !known.contains(name) {
            let names: Vec<&str> = known.iter().copied().collect();
            let end = if names.is_empty() {
                " which is empty".to_owned()
            } else {
                format!(": {}", names.join(", "))
            };
            errors.push(Error {
                detail: format!("must be one of the names in pod.spec.resourceClaims{end}"),
                ..Error::not_found(&path, name)
            });
        }
    }
}

/// Resources of a pod as a whole, which its containers share.
pub fn validate_of_pod(spec: &Value, claims: &BTreeSet<&str>, path: &Path, errors: &mut ErrorList) {
    let Some(resources) = present(spec, &["resources"]) else {
        return;
    };
    let at = path.child("resources");
    if object::string(spec, &["os", "name"]) == "windows" {
        errors.push(Error::forbidden(&at, "may not be set for a windows pod"));
        return;
    }
    if is_set(resources, &["claims"]) {
        let detail = "claims may not be set for Resources at pod-level";
        errors.push(Error::forbidden(&at.child("claims"), detail));
    }
    validate(resources, Owner::Pod, claims, &at, errors);
    for (name, total) in total_requests(spec) {
        let Some(held) = object::get(resources, &["requests", &name]).map(quantity) else {
            continue;
        };
        if total > held {
            let detail = format!("must be greater than or equal to aggregate container requests of {total}");
            errors.push(Error::invalid(
                &at.child("requests").key(&name),
                held.to_string(),
                detail,
            ));
        }
    }
    for (i, container) in object::list(spec, &["containers"]).iter().enumerate() {
        for (name, limit) in entries(container, &["resources", "limits"]) {
            let Some(held) = object::get(resources, &["limits", name]).map(quantity) else {
                continue;
            };
            let limit = quantity(limit);
            if limit > held {
                let path = at.child("containers").index(i).key(name).child("limits");
                let detail = format!("must be less than or equal to pod limits of {held}");
                errors.push(Error::invalid(&path, limit.to_string(), detail));
            }
        }
    }
}

/// What a pod's containers request at once: those that run on together, or one that runs before with those that
/// already run on.
pub fn total_requests(spec: &Value) -> Vec<(String, Quantity)> {
    use std::collections::BTreeMap;
    fn add(sum: &mut BTreeMap<String, Quantity>, container: &Value) {
        for (name, amount) in entries(container, &["resources", "requests"]) {
            let amount = quantity(amount);
            let held = sum.entry(name.to_owned()).or_insert_with(Quantity::zero);
            *held = if held.is_zero() { amount } else { held.plus(&amount) };
        }
    }
    let mut total = BTreeMap::new();
    for container in object::list(spec, &["containers"]) {
        add(&mut total, container);
    }
    let mut lasting = BTreeMap::new();
    let mut highest: BTreeMap<String, Quantity> = BTreeMap::new();
    for container in object::list(spec, &["initContainers"]) {
        let mut now = lasting.clone();
        add(&mut now, container);
        if object::string(container, &["restartPolicy"]) == "Always" {
            add(&mut lasting, container);
            add(&mut total, container);
            now = lasting.clone();
        }
        for (name, amount) in now {
            if highest.get(&name).is_none_or(|held| amount > *held) {
                highest.insert(name, amount);
            }
        }
    }
    for (name, amount) in highest {
        if total.get(&name).is_none_or(|held| amount > *held) {
            total.insert(name, amount);
        }
    }
    total.into_iter().collect()
}

//! Names of countable resources (`cpu`, `requests.storage`, `count/things.example.com`) and amounts of them.

use serde_json::Value;

use crate::field::{Error, ErrorList, Path};
use crate::kind::check::{invalid_each, is_empty};
use crate::quantity::Quantity;
use crate::{names, object};

const HUGE_PAGES: &str = "hugepages-";
const REQUESTS: &str = "requests.";
/// The domain whose resources are Kubernetes' own.
const NATIVE_DOMAIN: &str = "kubernetes.io/";

/// Objects that a quota counts, in whole numbers.
const COUNTED: [&str; 9] = [
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];

/// What containers use, alone and as requests and limits.
const COMPUTE: [&str; 10] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.storage",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
];

pub fn is_standard_for_quota(name: &str) -> bool {
    COMPUTE.contains(&name)
        || COUNTED.contains(&name)
        || name.starts_with(HUGE_PAGES)
        || name
            .strip_prefix(REQUESTS)
            .is_some_and(|rest| rest.starts_with(HUGE_PAGES))
}

/// `storage` is a resource of claims, but not one of quotas.
fn is_standard(name: &str) -> bool {
    name == "storage" || is_standard_for_quota(name)
}

fn is_standard_for_containers(name: &str) -> bool {
    ["cpu", "memory", "ephemeral-storage"].contains(&name) || name.starts_with(HUGE_PAGES)
}

fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains(NATIVE_DOMAIN)
}

fn is_extended(name: &str) -> bool {
    !is_native(name) && !name.starts_with(REQUESTS) && names::qualified_name(&format!("{REQUESTS}{name}")).is_empty()
}

/// Whether limits may be higher than requests.
pub fn may_overcommit(name: &str) -> bool {
    is_native(name) && !name.starts_with(HUGE_PAGES)
}

fn is_integer(name: &str) -> bool {
    COUNTED.contains(&name) || is_extended(name)
}

/// A resource's name: a standard one or one with a domain.
pub fn validate_name(name: &str, path: &Path) -> ErrorList {
    let mut errors: ErrorList = invalid_each(path, name, names::qualified_name(name)).collect();
    if errors.is_empty() && !name.contains('/') && !is_standard(name) {
        errors.push(Error::invalid(
            path,
            name,
            "must be a standard resource type or fully qualified",
        ));
    }
    errors
}

pub fn validate_quota_name(name: &str, path: &Path) -> ErrorList {
    let mut errors = validate_name(name, path);
    if !name.contains('/') && !is_standard_for_quota(name) {
        errors.push(Error::invalid(path, name, "must be a standard resource for quota"));
    }
    errors
}

pub fn validate_container_name(name: &str, path: &Path) -> ErrorList {
    let mut errors = validate_name(name, path);
    if !name.contains('/') {
        if !is_standard_for_containers(name) {
            errors.push(Error::invalid(path, name, "must be a standard resource for containers"));
        }
    } else if !is_native(name) && !is_extended(name) {
        errors.push(Error::invalid(
            path,
            name,
            "doesn't follow extended resource name standard",
        ));
    }
    errors
}

/// An amount: not negative, and whole where the resource is counted.
pub fn validate_amount(name: &str, value: &Value, path: &Path) -> ErrorList {
    let mut errors = ErrorList::new();
    let amount = quantity(value);
    if amount.signum() < 0 {
        errors.push(Error::invalid(
            path,
            amount.to_string(),
            "must be greater than or equal to 0",
        ));
    }
    if is_integer(name) && amount.milli_value() % 1000 != 0 {
        errors.push(Error::invalid(path, amount.to_string(), "must be an integer"));
    }
    errors
}

/// The quantity of a JSON value; zero if it is none, which decoding has refused before.
pub fn quantity(value: &Value) -> Quantity {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    Quantity::parse(&text).unwrap_or_else(|_| Quantity::zero())
}

/// Rounds a list of amounts up to thousandths, the finest that upstream keeps.
pub fn round_up(object: &mut Value, at: &[&str]) {
    let found = at.iter().try_fold(object, |at, name| at.get_mut(*name));
    for (_, amount) in found.and_then(Value::as_object_mut).into_iter().flatten() {
        let exact = quantity(amount);
        let rounded = Quantity::milli(exact.milli_value(), exact.format());
        // Beyond i64 thousandths there is nothing to round.
        if rounded != exact && exact.milli_value().unsigned_abs() < i64::MAX as u64 {
            *amount = rounded.to_string().into();
        }
    }
}

/// Copies the amounts of one list that another lacks. The target is made if absent.
pub fn fill(object: &mut Value, from: &str, to: &str) {
    let missing: Vec<(String, Value)> = object::map(object, &[from])
        .into_iter()
        .flatten()
        .filter(|(name, _)| object::get(object, &[to, name]).is_none())
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    for (name, value) in missing {
        object::set(object, &[to, &name], value);
    }
    if object::get(object, &[to]).is_some_and(is_empty) {
        object::remove(object, &[to]);
    }
}

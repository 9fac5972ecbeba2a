//! LimitRanges: what containers get that say nothing, and what pods and claims may ask for.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::object;
use crate::quantity::Quantity;

/// Amounts of resources, by name.
pub type Amounts = BTreeMap<String, Quantity>;

const ANNOTATION: &str = "kubernetes.io/limit-ranger";
/// What counts for a pod as a whole.
const POD_LEVEL: [&str; 2] = ["cpu", "memory"];

/// The amounts at a path. What is no amount is none.
pub fn amounts(of: &Value, path: &[&str]) -> Amounts {
    let listed = object::map(of, path).into_iter().flatten();
    let parsed = listed.filter_map(|(name, value)| Some((name.clone(), Quantity::parse(value.as_str()?).ok()?)));
    parsed.collect()
}

pub(super) fn add(to: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        let sum = to.get(name).map_or_else(|| amount.clone(), |held| held.plus(amount));
        to.insert(name.clone(), sum);
    }
}

pub(super) fn raise(to: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        if to.get(name).is_none_or(|held| amount > held) {
            to.insert(name.clone(), amount.clone());
        }
    }
}

/// What a pod needs at once: `requests` or `limits` of its containers, or of the largest step of its initialization.
pub fn pod_amounts(pod: &Value, of: &str) -> Amounts {
    let mut all = Amounts::new();
    for container in object::list(pod, &["spec", "containers"]) {
        add(&mut all, &amounts(container, &["resources", of]));
    }
    let (mut lasting, mut largest) = (Amounts::new(), Amounts::new());
    for container in object::list(pod, &["spec", "initContainers"]) {
        let own = amounts(container, &["resources", of]);
        let step = if object::string(container, &["restartPolicy"]) == "Always" {
            add(&mut all, &own);
            add(&mut lasting, &own);
            lasting.clone()
        } else {
            let mut step = own;
            add(&mut step, &lasting);
            step
        };
        raise(&mut largest, &step);
    }
    raise(&mut all, &largest);
    for (name, amount) in amounts(pod, &["spec", "resources", of]) {
        if POD_LEVEL.contains(&name.as_str()) {
            all.insert(name, amount);
        }
    }
    all
}

/// Gives containers what a LimitRange says they have unless they say otherwise.
pub fn default_pod(range: &Value, pod: &mut Value) {
    let (mut requests, mut limits) = (BTreeMap::new(), BTreeMap::new());
    for limit in object::list(range, &["spec", "limits"]) {
        if object::string(limit, &["type"]) == "Container" {
            requests.extend(entries(limit, "defaultRequest"));
            limits.extend(entries(limit, "default"));
        }
    }
    if requests.is_empty() && limits.is_empty() {
        return;
    }
    let mut told = Vec::new();
    for (list, what) in [("containers", "container"), ("initContainers", "init container")] {
        let containers = pod.pointer_mut(&format!("/spec/{list}")).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            let name = object::string(container, &["name"]).to_owned();
            let set_limits = fill(container, "limits", &limits);
            let set_requests = fill(container, "requests", &requests);
            for (set, word) in [(set_requests, "request"), (set_limits, "limit")] {
                if !set.is_empty() {
                    let set: Vec<String> = set.into_iter().collect();
                    told.push(format!("{} {word} for {what} {name}", set.join(", ")));
                }
            }
        }
    }
    if !told.is_empty() {
        let text = format!("LimitRanger plugin set: {}", told.join("; "));
        object::set(pod, &["metadata", "annotations", ANNOTATION], text);
    }
}

fn entries(limit: &Value, field: &str) -> BTreeMap<String, Value> {
    let listed = object::map(limit, &[field]).into_iter().flatten();
    listed.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Sets what is missing, and returns the names of what that was.
fn fill(container: &mut Value, of: &str, defaults: &BTreeMap<String, Value>) -> BTreeSet<String> {
    let missing = defaults
        .iter()
        .filter(|(name, _)| object::get(container, &["resources", of, name]).is_none());
    let missing: Vec<(String, Value)> = missing.map(|(name, value)| (name.clone(), value.clone())).collect();
    for (name, value) in &missing {
        object::set(container, &["resources", of, name], value.clone());
    }
    missing.into_iter().map(|(name, _)| name).collect()
}

/// Why a pod may not be, by a LimitRange.
pub fn check_pod(range: &Value, pod: &Value) -> Option<String> {
    let mut errors = Vec::new();
    for limit in object::list(range, &["spec", "limits"]) {
        match object::string(limit, &["type"]) {
            "Container" => {
                for list in ["containers", "initContainers"] {
                    for container in object::list(pod, &["spec", list]) {
                        let of = |field| amounts(container, &["resources", field]);
                        check(limit, "Container", &of("requests"), &of("limits"), &mut errors);
                    }
                }
            }
            "Pod" => {
                let (requests, limits) = (pod_amounts(pod, "requests"), pod_amounts(pod, "limits"));
                check(limit, "Pod", &requests, &limits, &mut errors);
            }
            _ => {}
        }
    }
    aggregate(errors)
}

/// The same for a claim of storage.
pub fn check_claim(range: &Value, claim: &Value) -> Option<String> {
    const TYPE: &str = "PersistentVolumeClaim";
    let mut errors = Vec::new();
    let requests = amounts(claim, &["spec", "resources", "requests"]);
    for limit in object::list(range, &["spec", "limits"]) {
        if object::string(limit, &["type"]) != TYPE {
            continue;
        }
        for (name, enforced) in amounts(limit, &["min"]) {
            errors.extend(min(TYPE, &name, &enforced, &requests, &Amounts::new()));
        }
        for (name, enforced) in amounts(limit, &["max"]) {
            errors.extend(max_request(TYPE, &name, &enforced, &requests));
        }
    }
    aggregate(errors)
}

fn aggregate(errors: Vec<String>) -> Option<String> {
    match errors.as_slice() {
        [] => None,
        [one] => Some(one.clone()),
        many => Some(format!("[{}]", many.join(", "))),
    }
}

fn check(limit: &Value, of: &str, requests: &Amounts, limits: &Amounts, errors: &mut Vec<String>) {
    for (name, enforced) in amounts(limit, &["min"]) {
        errors.extend(min(of, &name, &enforced, requests, limits));
    }
    for (name, enforced) in amounts(limit, &["max"]) {
        errors.extend(max(of, &name, &enforced, requests, limits));
    }
    for (name, enforced) in amounts(limit, &["maxLimitRequestRatio"]) {
        errors.extend(ratio(of, &name, &enforced, requests, limits));
    }
}

fn min(of: &str, name: &str, enforced: &Quantity, requests: &Amounts, limits: &Amounts) -> Option<String> {
    let bound = format!("minimum {name} usage per {of} is {enforced}");
    match (requests.get(name), limits.get(name)) {
        (None, _) => Some(format!("{bound}.  No request is specified")),
        (Some(request), _) if request < enforced => Some(format!("{bound}, but request is {request}")),
        (_, Some(limit)) if limit < enforced => Some(format!("{bound}, but limit is {limit}")),
        _ => None,
    }
}

fn max(of: &str, name: &str, enforced: &Quantity, requests: &Amounts, limits: &Amounts) -> Option<String> {
    let bound = format!("maximum {name} usage per {of} is {enforced}");
    match (requests.get(name), limits.get(name)) {
        (_, None) => Some(format!("{bound}.  No limit is specified")),
        (_, Some(limit)) if limit > enforced => Some(format!("{bound}, but limit is {limit}")),
        (Some(request), _) if request > enforced => Some(format!("{bound}, but request is {request}")),
        _ => None,
    }
}

fn max_request(of: &str, name: &str, enforced: &Quantity, requests: &Amounts) -> Option<String> {
    let bound = format!("maximum {name} usage per {of} is {enforced}");
    match requests.get(name) {
        None => Some(format!("{bound}.  No request is specified")),
        Some(request) if request > enforced => Some(format!("{bound}, but request is {request}")),
        Some(_) => None,
    }
}

fn ratio(of: &str, name: &str, enforced: &Quantity, requests: &Amounts, limits: &Amounts) -> Option<String> {
    let bound = format!("{name} max limit to request ratio per {of} is {enforced}");
    let given = |amounts: &Amounts| amounts.get(name).filter(|amount| !amount.is_zero()).cloned();
    let Some(request) = given(requests) else {
        return Some(format!("{bound}, but no request is specified or request is 0"));
    };
    let Some(limit) = given(limits) else {
        return Some(format!("{bound}, but no limit is specified or limit is 0"));
    };
    let observed = limit.as_f64() / request.as_f64();
    (observed > enforced.as_f64()).then(|| format!("{bound}, but provided ratio is {observed:.6}"))
}

/// The projected volume that a service account's token is mounted from.
pub fn token_volume(name: &str) -> Value {
    json!({"name": name, "projected": {"defaultMode": 420, "sources": [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}}]}})
}

//! Which nodes and which other pods a pod wants to be near to.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::field::{Error, ErrorList, Path};
use crate::kind::check::{entries, invalid_each, present, strings};
use crate::kind::workload::number;
use crate::select::{Tolerance, label_selector_errors};
use crate::{names, object};

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

pub fn validate(spec: &Value, path: &Path, errors: &mut ErrorList) {
    let Some(affinity) = present(spec, &["affinity"]) else {
        return;
    };
    if let Some(nodes) = present(affinity, &["nodeAffinity"]) {
        let path = path.child("nodeAffinity");
        if let Some(required) = present(nodes, &[REQUIRED]) {
            validate_node_selector(required, &path.child(REQUIRED), errors);
        }
        for (i, term) in object::list(nodes, &[PREFERRED]).iter().enumerate() {
            let path = path.child(PREFERRED).index(i);
            validate_weight(term, &path, errors);
            let preference = term.get("preference").unwrap_or(&Value::Null);
            validate_term(preference, Values::Any, &path.child("preference"), errors);
        }
    }
    for field in ["podAffinity", "podAntiAffinity"] {
        let Some(pods) = present(affinity, &[field]) else {
            continue;
        };
        let path = path.child(field);
        for (i, term) in object::list(pods, &[REQUIRED]).iter().enumerate() {
            validate_pod_term(term, &path.child(REQUIRED).index(i), errors);
        }
        for (i, term) in object::list(pods, &[PREFERRED]).iter().enumerate() {
            let path = path.child(PREFERRED).index(i);
            validate_weight(term, &path, errors);
            let inner = term.get("podAffinityTerm").unwrap_or(&Value::Null);
            validate_pod_term(inner, &path.child("podAffinityTerm"), errors);
        }
    }
}

fn validate_weight(term: &Value, path: &Path, errors: &mut ErrorList) {
    let weight = number(term, &["weight"]);
    if !(1..=100).contains(&weight) {
        errors.push(Error::invalid(
            &path.child("weight"),
            weight,
            "must be in the range 1-100",
        ));
    }
}

/// Whether values must be what labels can have.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Values {
    Labels,
    Any,
}

/// Terms of which one must hold.
pub fn validate_node_selector(selector: &Value, path: &Path, errors: &mut ErrorList) {
    let (path, terms) = (
        path.child("nodeSelectorTerms"),
        object::list(selector, &["nodeSelectorTerms"]),
    );
    if terms.is_empty() {
        errors.push(Error::required(&path, "must have at least one node selector term"));
    }
    for (i, term) in terms.iter().enumerate() {
        validate_term(term, Values::Labels, &path.index(i), errors);
    }
}

pub fn validate_term(term: &Value, values: Values, path: &Path, errors: &mut ErrorList) {
    for (i, requirement) in object::list(term, &["matchExpressions"]).iter().enumerate() {
        validate_requirement(requirement, values, &path.child("matchExpressions").index(i), errors);
    }
    for (i, requirement) in object::list(term, &["matchFields"]).iter().enumerate() {
        validate_field(requirement, &path.child("matchFields").index(i), errors);
    }
}

fn validate_requirement(requirement: &Value, rule: Values, path: &Path, errors: &mut ErrorList) {
    let values = strings(requirement, &["values"]);
    let at = path.child("values");
    match object::string(requirement, &["operator"]) {
        "In" | "NotIn" if values.is_empty() => {
            let detail = "must be specified when `operator` is 'In' or 'NotIn'";
            errors.push(Error::required(&at, detail));
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            errors.push(Error::forbidden(&at, detail));
        }
        "Gt" | "Lt" if values.len() != 1 => {
            let detail = "must be specified single value when `operator` is 'Lt' or 'Gt'";
            errors.push(Error::required(&at, detail));
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
        other => {
            let detail = "not a valid selector operator";
            errors.push(Error::invalid(&path.child("operator"), other, detail));
        }
    }
    let key = object::string(requirement, &["key"]);
    errors.extend(invalid_each(&path.child("key"), key, names::label_key(key)));
    if rule == Values::Labels {
        for (i, value) in values.iter().enumerate() {
            errors.extend(invalid_each(&at.index(i), value, names::label_value(value)));
        }
    }
}

fn validate_field(requirement: &Value, path: &Path, errors: &mut ErrorList) {
    let values = strings(requirement, &["values"]);
    match object::string(requirement, &["operator"]) {
        "In" | "NotIn" => {
            if values.len() != 1 {
                let detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
                errors.push(Error::required(&path.child("values"), detail));
            }
        }
        other => {
            let detail = "not a valid selector operator";
            errors.push(Error::invalid(&path.child("operator"), other, detail));
        }
    }
    match object::string(requirement, &["key"]) {
        "metadata.name" => {
            for (i, value) in values.iter().enumerate() {
                let path = path.child("values").index(i);
                errors.extend(invalid_each(&path, value, names::dns1123_subdomain(value)));
            }
        }
        key => {
            let detail = "not a valid field selector key";
            errors.push(Error::invalid(&path.child("key"), key, detail));
        }
    }
}

fn validate_pod_term(term: &Value, path: &Path, errors: &mut ErrorList) {
    for field in ["labelSelector", "namespaceSelector"] {
        if let Some(selector) = present(term, &[field]) {
            errors.extend(label_selector_errors(selector, Tolerance::None, &path.child(field)));
        }
    }
    for name in strings(term, &["namespaces"]) {
        errors.extend(invalid_each(&path.child("namespace"), name, names::dns1123_label(name)));
    }
    validate_label_keys(term, path, errors);
    let key = object::string(term, &["topologyKey"]);
    if key.is_empty() {
        errors.push(Error::required(&path.child("topologyKey"), "can not be empty"));
    }
    errors.extend(invalid_each(&path.child("topologyKey"), key, names::label_key(key)));
}

/// Keys whose values the pod's own labels give.
pub fn validate_label_keys(term: &Value, path: &Path, errors: &mut ErrorList) {
    let selector = present(term, &["labelSelector"]);
    for field in ["matchLabelKeys", "mismatchLabelKeys"] {
        let (keys, path) = (strings(term, &[field]), path.child(field));
        if !keys.is_empty() && selector.is_none() {
            let detail = "must not be specified when labelSelector is not set";
            errors.push(Error::forbidden(&path, detail));
            continue;
        }
        for (i, key) in keys.iter().enumerate() {
            errors.extend(invalid_each(&path.index(i), key, names::label_key(key)));
        }
    }
    let (matching, other) = (
        strings(term, &["matchLabelKeys"]),
        strings(term, &["mismatchLabelKeys"]),
    );
    if let Some(selector) = selector {
        let mut seen: BTreeSet<&str> = entries(selector, &["matchLabels"]).map(|(key, _)| key).collect();
        for expression in object::list(selector, &["matchExpressions"]) {
            let key = object::string(expression, &["key"]);
            let at = matching.iter().position(|held| *held == key);
            if let Some(at) = at.filter(|_| seen.contains(key)) {
                let detail = "exists in both matchLabelKeys and labelSelector";
                errors.push(Error::invalid(&path.index(at), key, detail));
            }
            seen.insert(key);
        }
    }
    for (i, key) in matching.iter().enumerate() {
        if other.contains(key) {
            let detail = "exists in both matchLabelKeys and mismatchLabelKeys";
            errors.push(Error::invalid(&path.child("matchLabelKeys").index(i), *key, detail));
        }
    }
}

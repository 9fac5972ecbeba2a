//! What admission applies to: rules over groups, versions, resources and operations, and the selectors around them.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::field::{Error, ErrorList, Path};
use crate::kind::check::{invalid_each, list_mut, present, set_default_pointer, strings};
use crate::select::{Tolerance, label_selector_errors};
use crate::{names, object};

const OPERATIONS: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
const MUTATING_OPERATIONS: [&str; 4] = ["*", "CONNECT", "CREATE", "UPDATE"];
const SCOPES: [&str; 3] = ["*", "Cluster", "Namespaced"];
pub const FAILURE_POLICIES: [&str; 2] = ["Fail", "Ignore"];
pub const MATCH_POLICIES: [&str; 2] = ["Equivalent", "Exact"];
pub const REINVOCATION_POLICIES: [&str; 2] = ["IfNeeded", "Never"];

/// Fills in what rules leave out.
pub fn default_rules(object: &mut Value, at: &[&str]) {
    for rule in list_mut(object, at) {
        set_default_pointer(rule, &["scope"], "*");
    }
}

/// Fills in `MatchResources` at a path, if it is there.
pub fn default_match_resources(object: &mut Value, at: &[&str]) {
    if present(object, at).is_none() {
        return;
    }
    let mut child = at.to_vec();
    for (field, default) in [
        ("matchPolicy", json!("Equivalent")),
        ("namespaceSelector", json!({})),
        ("objectSelector", json!({})),
    ] {
        child.push(field);
        set_default_pointer(object, &child, default);
        child.pop();
    }
    for field in ["resourceRules", "excludeResourceRules"] {
        child.push(field);
        default_rules(object, &child);
        child.pop();
    }
}

/// A rule with operations, as webhooks have.
pub fn validate_rule(rule: &Value, path: &Path) -> ErrorList {
    let mut errors = ErrorList::new();
    wildcard_alone(rule, "operations", "other operations", path, &mut errors);
    for (i, operation) in strings(rule, &["operations"]).iter().enumerate() {
        if !OPERATIONS.contains(operation) {
            errors.push(Error::not_supported(
                &path.child("operations").index(i),
                *operation,
                &OPERATIONS,
            ));
        }
    }
    wildcard_alone(rule, "apiGroups", "other API groups", path, &mut errors);
    wildcard_alone(rule, "apiVersions", "other API versions", path, &mut errors);
    for (i, version) in strings(rule, &["apiVersions"]).iter().enumerate() {
        if version.is_empty() {
            errors.push(Error::required(&path.child("apiVersions").index(i), ""));
        }
    }
    validate_resources(&strings(rule, &["resources"]), &path.child("resources"), &mut errors);
    if let Some(scope) = present(rule, &["scope"])
        .and_then(Value::as_str)
        .filter(|scope| !SCOPES.contains(scope))
    {
        errors.push(Error::not_supported(&path.child("scope"), scope, &SCOPES));
    }
    errors
}

/// A list that is required, and holds nothing but `*` if it holds that.
fn wildcard_alone(rule: &Value, field: &str, others: &str, path: &Path, errors: &mut ErrorList) {
    let values = strings(rule, &[field]);
    if values.is_empty() {
        errors.push(Error::required(&path.child(field), ""));
    }
    if values.len() > 1 && values.contains(&"*") {
        let detail = format!("if '*' is present, must not specify {others}");
        errors.push(Error::invalid(&path.child(field), json!(values), detail));
    }
}

fn validate_resources(resources: &[&str], path: &Path, errors: &mut ErrorList) {
    if resources.is_empty() {
        errors.push(Error::required(path, ""));
    }
    let (mut whole_resources, mut whole_subresources) = (BTreeSet::new(), BTreeSet::new());
    // Upstream remembers only the last resource without a subresource here.
    let mut has_plain_resource = false;
    for (i, resource) in resources.iter().enumerate() {
        let path = path.index(i);
        if resource.is_empty() {
            errors.push(Error::required(&path, ""));
            continue;
        }
        let Some((name, subresource)) = resource.split_once('/') else {
            has_plain_resource = *resource != "*";
            continue;
        };
        if whole_resources.contains(name) {
            let detail = format!("if '{name}/*' is present, must not specify {resource}");
            errors.push(Error::invalid(&path, *resource, detail));
        }
        if whole_subresources.contains(subresource) {
            let detail = format!("if '*/{subresource}' is present, must not specify {resource}");
            errors.push(Error::invalid(&path, *resource, detail));
        }
        if subresource == "*" {
            whole_resources.insert(name);
        }
        if name == "*" {
            whole_subresources.insert(subresource);
        }
    }
    if resources.len() > 1 && resources.contains(&"*/*") {
        let detail = "if '*/*' is present, must not specify other resources";
        errors.push(Error::invalid(path, json!(resources), detail));
    }
    if has_plain_resource && resources.contains(&"*") {
        let detail = "if '*' is present, must not specify other resources without subresources";
        errors.push(Error::invalid(path, json!(resources), detail));
    }
}

/// The resources that a policy or a binding matches.
pub fn validate_match_resources(resources: &Value, path: &Path) -> ErrorList {
    let mut errors = ErrorList::new();
    match present(resources, &["matchPolicy"]).and_then(Value::as_str) {
        None => errors.push(Error::required(&path.child("matchPolicy"), "")),
        Some(policy) if !MATCH_POLICIES.contains(&policy) => {
            errors.push(Error::not_supported(
                &path.child("matchPolicy"),
                policy,
                &MATCH_POLICIES,
            ));
        }
        Some(_) => {}
    }
    for field in ["namespaceSelector", "objectSelector"] {
        match present(resources, &[field]) {
            None => errors.push(Error::required(&path.child(field), "")),
            Some(selector) => errors.extend(label_selector_errors(selector, Tolerance::None, &path.child(field))),
        }
    }
    for field in ["resourceRules", "excludeResourceRules"] {
        for (i, rule) in object::list(resources, &[field]).iter().enumerate() {
            let path = path.child(field).index(i);
            validate_resource_names(rule, &path.child("resourceNames"), &mut errors);
            errors.extend(validate_rule(rule, &path));
        }
    }
    errors
}

fn validate_resource_names(rule: &Value, path: &Path, errors: &mut ErrorList) {
    let mut seen = BTreeSet::new();
    for (i, name) in strings(rule, &["resourceNames"]).into_iter().enumerate() {
        errors.extend(invalid_each(&path.index(i), name, names::path_segment_name(name)));
        if !seen.insert(name) {
            errors.push(Error::duplicate(&path.index(i), name));
        }
    }
}

/// Mutation knows no deletion.
pub fn validate_mutating_operations(resources: &Value, path: &Path) -> ErrorList {
    let path = path.child("resourceRules").child("operations");
    let rules = object::list(resources, &["resourceRules"]).iter();
    rules
        .flat_map(|rule| strings(rule, &["operations"]))
        .filter(|operation| !MUTATING_OPERATIONS.contains(operation))
        .map(|operation| Error::not_supported(&path, operation, &MUTATING_OPERATIONS))
        .collect()
}

//! ResourceQuotas: amounts, scopes and the numbers in their status.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::resource::{is_standard_for_quota, quantity, round_up, validate_amount, validate_quota_name};
use crate::field::{Error, ErrorList, Path};
use crate::kind::check::{entries, invalid_as, present, strings};
use crate::kind::column::{AGE, NAME, age, text};
use crate::kind::{Column, NameUse, Strategy, WriteContext};
use crate::{names, object};

/// Scopes, and the resources that each may limit; a scope limits nothing else.
const SCOPES: [(&str, &[&str]); 7] = [
    ("Terminating", PODS),
    ("NotTerminating", PODS),
    ("BestEffort", &["pods"]),
    ("NotBestEffort", PODS),
    ("PriorityClass", PODS),
    ("VolumeAttributesClass", &["persistentvolumeclaims", "requests.storage"]),
    ("CrossNamespacePodAffinity", PODS),
];
const PODS: &[&str] = &[
    "pods",
    "cpu",
    "memory",
    "limits.cpu",
    "limits.memory",
    "requests.cpu",
    "requests.memory",
];
const CONFLICTING: [[&str; 2]; 2] = [["BestEffort", "NotBestEffort"], ["Terminating", "NotTerminating"]];
const EXISTS_ONLY: [&str; 5] = [
    "BestEffort",
    "NotBestEffort",
    "Terminating",
    "NotTerminating",
    "CrossNamespacePodAffinity",
];

#[derive(Debug)]
pub struct ResourceQuota;

impl Strategy for ResourceQuota {
    fn default(&self, object: &mut Value) {
        for at in [["spec", "hard"], ["status", "hard"], ["status", "used"]] {
            round_up(object, &at);
        }
    }

    fn prepare_create(&self, _ctx: &WriteContext<'_>, object: &mut Value) {
        object::set(object, &["status"], json!({}));
    }

    fn prepare_update(&self, ctx: &WriteContext<'_>, new: &mut Value, old: &Value) {
        object::copy(
            old,
            new,
            if ctx.subresource == "status" {
                &["spec"]
            } else {
                &["status"]
            },
        );
    }

    fn validate(&self, _ctx: &WriteContext<'_>, object: &Value) -> ErrorList {
        let mut errors = validate_spec(object);
        errors.extend(validate_status(object));
        errors
    }

    fn validate_update(&self, ctx: &WriteContext<'_>, new: &Value, old: &Value) -> ErrorList {
        if ctx.subresource == "status" {
            let mut errors = ErrorList::new();
            if object::string(new, &["metadata", "resourceVersion"]).is_empty() {
                errors.push(Error::required(&Path::new("resourceVersion"), ""));
            }
            errors.extend(validate_status(new));
            return errors;
        }
        let mut errors = validate_spec(new);
        let scopes = |object| {
            strings(object, &["spec", "scopes"])
                .into_iter()
                .collect::<BTreeSet<_>>()
        };
        if scopes(new) != scopes(old) {
            let path = Path::new("spec").child("scopes");
            errors.push(invalid_as(&path, &shown_scopes(new), "field is immutable"));
        }
        errors
    }

    fn warnings(&self, _ctx: &WriteContext<'_>, new: &Value, old: Option<&Value>) -> Vec<String> {
        if old.is_some() { Vec::new() } else { warnings(new) }
    }

    fn name_errors(&self, name: &str, name_use: NameUse) -> Vec<String> {
        names::name_is_dns_subdomain(name, name_use)
    }

    fn columns(&self) -> &'static [Column] {
        const REQUEST: &str = "Request represents a minimum amount of cpu/memory that a container may consume.";
        const LIMIT: &str = "Limits control the maximum amount of cpu/memory that a container may use independent of contention on the node.";
        const COLUMNS: &[Column] = &[NAME, text("Request", REQUEST), text("Limit", LIMIT), AGE];
        COLUMNS
    }

    fn cells(&self, object: &Value, now: jiff::Timestamp) -> Vec<Value> {
        let (mut requests, mut limits) = (Vec::new(), Vec::new());
        for (name, hard) in entries(object, &["status", "hard"]) {
            let used = object::get(object, &["status", "used", name])
                .map_or("0".to_owned(), |used| quantity(used).to_string());
            let cell = format!("{name}: {used}/{}", quantity(hard));
            if name.starts_with("limits.") {
                limits.push(cell);
            } else {
                requests.push(cell);
            }
        }
        vec![
            object::name(object).into(),
            requests.join(", ").into(),
            limits.join(", ").into(),
            age(object, now),
        ]
    }

    fn returns_deleted(&self) -> bool {
        true
    }

    fn reset_fields(&self, subresource: &str) -> &'static [&'static [&'static str]] {
        if subresource == "status" {
            &[&["spec"]]
        } else {
            &[&["status"]]
        }
    }
}

fn validate_amounts(object: &Value, at: [&str; 2], errors: &mut ErrorList) {
    let path = Path::new(at[0]).child(at[1]);
    for (name, amount) in entries(object, &at) {
        errors.extend(validate_quota_name(name, &path.key(name)));
        errors.extend(validate_amount(name, amount, &path.key(name)));
    }
}

fn validate_status(object: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    validate_amounts(object, ["status", "hard"], &mut errors);
    validate_amounts(object, ["status", "used"], &mut errors);
    errors
}

fn validate_spec(object: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    validate_amounts(object, ["spec", "hard"], &mut errors);
    validate_scopes(object, &mut errors);
    if let Some(selector) = present(object, &["spec", "scopeSelector"]) {
        validate_selector(object, selector, &mut errors);
    }
    errors
}

fn shown_scopes(object: &Value) -> String {
    object::get(object, &["spec", "scopes"])
        .unwrap_or(&Value::Null)
        .to_string()
}

/// How many of the quota's standard resources a scope cannot limit.
fn misfits(object: &Value, scope: &str) -> usize {
    let Some((_, resources)) = SCOPES.iter().find(|(name, _)| *name == scope) else {
        return 0;
    };
    entries(object, &["spec", "hard"])
        .filter(|(name, _)| is_standard_for_quota(name) && !resources.contains(name))
        .count()
}

fn is_scope(name: &str) -> bool {
    SCOPES.iter().any(|(scope, _)| *scope == name)
}

fn validate_scopes(object: &Value, errors: &mut ErrorList) {
    let scopes = strings(object, &["spec", "scopes"]);
    let path = Path::new("spec").child("scopes");
    let invalid = |detail| invalid_as(&path, &shown_scopes(object), detail);
    for scope in &scopes {
        if !is_scope(scope) {
            errors.push(invalid("unsupported scope"));
        }
        errors.extend((0..misfits(object, scope)).map(|_| invalid("unsupported scope applied to resource")));
    }
    let conflicts = CONFLICTING
        .iter()
        .filter(|pair| pair.iter().all(|scope| scopes.contains(scope)));
    errors.extend(conflicts.map(|_| invalid("conflicting scopes")));
}

fn validate_selector(object: &Value, selector: &Value, errors: &mut ErrorList) {
    let path = Path::new("spec").child("scopeSelector").child("matchExpressions");
    let expressions = object::list(selector, &["matchExpressions"]);
    for expression in expressions {
        let scope = object::string(expression, &["scopeName"]);
        if !is_scope(scope) {
            errors.push(Error::invalid(&path.child("scopeName"), scope, "unsupported scope"));
        }
        let misfit = || {
            invalid_as(
                &path,
                &shown_selector(expressions),
                "unsupported scope applied to resource",
            )
        };
        errors.extend((0..misfits(object, scope)).map(|_| misfit()));
        validate_operator(expression, scope, &path, errors);
    }
    let has = |scope: &&str| {
        expressions
            .iter()
            .any(|one| object::string(one, &["scopeName"]) == *scope)
    };
    let conflicts = CONFLICTING.iter().filter(|pair| pair.iter().all(has));
    errors.extend(conflicts.map(|_| invalid_as(&path, &shown_scopes(object), "conflicting scopes")));
}

fn validate_operator(expression: &Value, scope: &str, path: &Path, errors: &mut ErrorList) {
    let operator = object::string(expression, &["operator"]);
    if EXISTS_ONLY.contains(&scope) && operator != "Exists" {
        let detail = "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity";
        errors.push(Error::invalid(&path.child("operator"), operator, detail));
    }
    let values = object::list(expression, &["values"]);
    match operator {
        "In" | "NotIn" if values.is_empty() => {
            let detail = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector";
            errors.push(Error::required(&path.child("values"), detail));
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            let detail = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector";
            errors.push(Error::invalid(&path.child("values"), values.to_vec(), detail));
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        _ => errors.push(Error::invalid(
            &path.child("operator"),
            operator,
            "not a valid selector operator",
        )),
    }
}

/// A scope selector as upstream's errors print the internal type.
fn shown_selector(expressions: &[Value]) -> String {
    let quoted = |one: &Value, field| crate::field::quote(object::string(one, &[field]));
    let parts: Vec<String> = expressions
        .iter()
        .map(|one| {
            let values = one.get("values").unwrap_or(&Value::Null);
            format!(
                r#"{{"ScopeName":{},"Operator":{},"Values":{values}}}"#,
                quoted(one, "scopeName"),
                quoted(one, "operator")
            )
        })
        .collect();
    format!(r#"{{"MatchExpressions":[{}]}}"#, parts.join(","))
}

/// Requests that are higher than the limits beside them.
fn warnings(object: &Value) -> Vec<String> {
    let amount = |name: &str| object::get(object, &["spec", "hard", name]).map(quantity);
    let mut warnings = Vec::new();
    for resource in ["cpu", "memory", "storage", "ephemeral-storage"] {
        let mut request_name = format!("requests.{resource}");
        let mut request = amount(&request_name);
        if request.is_none() && ["cpu", "memory"].contains(&resource) {
            request = amount(resource);
            resource.clone_into(&mut request_name);
        }
        let limit_name = format!("limits.{resource}");
        if let (Some(request), Some(limit)) = (request, amount(&limit_name))
            && request > limit
        {
            let should = format!("should be less than {limit_name} ({limit})");
            warnings.push(format!("ResourceQuota {request_name} ({request}) {should}"));
        }
    }
    warnings
}

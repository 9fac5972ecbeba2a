//! What kinds that make pods share: counts, percentages, selectors and the cells about containers.

use serde_json::Value;

use super::WriteContext;
use super::check::{entries, immutable, present};
use super::internal;
use super::pod::{template_warnings, validate_template};
use crate::field::{Error, ErrorList, Path};
use crate::select::{LabelSelector, Tolerance, label_selector_errors};
use crate::{names, object};

const SELECTOR: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector";

/// Refuses numbers below zero; absent ones are fine.
pub fn non_negative(object: &Value, parent: &[&str], fields: &[&str], path: &Path, errors: &mut ErrorList) {
    for field in fields {
        let mut at = parent.to_vec();
        at.push(field);
        if let Some(number) = object::int(object, &at) {
            errors.extend(names::non_negative(number, &path.child(field)));
        }
    }
}

/// Refuses counts of a status that are higher than another one.
pub fn not_above(status: &Value, fields: &[&str], limit: &str, detail: &str, errors: &mut ErrorList) {
    let number = |field| object::int(status, &[field]).unwrap_or_default();
    for field in fields {
        if number(field) > number(limit) {
            errors.push(Error::invalid(&Path::new("status").child(field), number(field), detail));
        }
    }
}

/// Refuses a status whose counts of replicas are negative, or higher than the counts they are a part of.
pub fn check_replicas(status: &Value, counts: &[&str], parts: &[&str], errors: &mut ErrorList) {
    non_negative(status, &[], counts, &Path::new("status"), errors);
    not_above(
        status,
        parts,
        "replicas",
        "cannot be greater than status.replicas",
        errors,
    );
    let detail = "cannot be greater than readyReplicas";
    not_above(status, &["availableReplicas"], "readyReplicas", detail, errors);
}

/// A count that only grows.
pub fn not_decremented(new: &Value, old: &Value, errors: &mut ErrorList) {
    let at = ["status", "collisionCount"];
    let (now, before) = (object::int(new, &at), object::int(old, &at));
    if before.is_some_and(|before| now.is_none_or(|now| now < before)) {
        let path = Path::new("status").child("collisionCount");
        errors.push(Error::invalid(&path, now.unwrap_or_default(), "cannot be decremented"));
    }
}

/// A whole number that is not negative, or a percentage.
pub fn int_or_percent(value: &Value, path: &Path, errors: &mut ErrorList) {
    match value {
        Value::String(text) => {
            let texts = names::percent(text).into_iter();
            errors.extend(texts.map(|detail| Error::invalid(path, text.as_str(), detail)));
        }
        value => errors.extend(names::non_negative(value.as_i64().unwrap_or_default(), path)),
    }
}

/// The number of a whole number or a percentage.
pub fn int_or_percent_value(value: Option<&Value>) -> i64 {
    match value {
        Some(Value::String(text)) if names::percent(text).is_empty() => percent_of(text),
        // Go reads what it can of other texts as a number.
        Some(Value::String(text)) => text.parse().unwrap_or_default(),
        Some(value) => value.as_i64().unwrap_or_default(),
        None => 0,
    }
}

fn percent_of(text: &str) -> i64 {
    text.trim_end_matches('%').parse().unwrap_or(i64::MAX)
}

pub fn at_most_100_percent(value: &Value, path: &Path, errors: &mut ErrorList) {
    if let Value::String(text) = value
        && names::percent(text).is_empty()
        && percent_of(text) > 100
    {
        errors.push(Error::invalid(path, text.as_str(), "must not be greater than 100%"));
    }
}

/// What the rules about a selector and a template differ in.
pub struct SelectorRule {
    /// In `empty selector is invalid for …`.
    pub kind: &'static str,
    /// Of a selector that cannot be compiled.
    pub uncompiled: &'static str,
}

/// Checks a required selector; returns what it selects if it can be compiled.
pub fn validate_selector(
    spec: &Value,
    rule: &SelectorRule,
    path: &Path,
    errors: &mut ErrorList,
) -> Option<LabelSelector> {
    let (path, selector) = (path.child("selector"), present(spec, &["selector"]));
    match selector {
        None => errors.push(Error::required(&path, "")),
        Some(selector) => {
            errors.extend(label_selector_errors(selector, Tolerance::None, &path));
            if is_empty_selector(selector) {
                let detail = format!("empty selector is invalid for {}", rule.kind);
                errors.push(Error::invalid(&path, selector_shown(selector), detail));
            }
        }
    }
    match LabelSelector::from_value(selector) {
        Ok(compiled) => Some(compiled),
        Err(_) => {
            let shown = selector.map(selector_shown).unwrap_or_default();
            errors.push(Error::invalid(&path, shown, rule.uncompiled));
            None
        }
    }
}

pub fn is_empty_selector(selector: &Value) -> bool {
    object::map(selector, &["matchLabels"]).is_none_or(serde_json::Map::is_empty)
        && object::list(selector, &["matchExpressions"]).is_empty()
}

/// A selector as errors show it: Go's JSON of it.
pub fn selector_shown(selector: &Value) -> Value {
    serde_json::from_str(&internal::shown(selector, SELECTOR)).unwrap_or_default()
}

/// Refuses a selector that does not select the template's own labels.
pub fn validate_match(selector: &LabelSelector, template: &Value, path: &Path, errors: &mut ErrorList) {
    let labels = present(template, &["metadata", "labels"]).cloned().unwrap_or_default();
    if !selector.matches(&labels) {
        let path = path.child("metadata").child("labels");
        errors.push(Error::invalid(
            &path,
            labels,
            "`selector` does not match template `labels`",
        ));
    }
}

/// A template whose pods always run: its selector, its pods, and what only other pods may say.
pub fn validate_lasting_template(
    template: &Value,
    selector: Option<&LabelSelector>,
    controller: &str,
    path: &Path,
    errors: &mut ErrorList,
) {
    if let Some(selector) = selector.filter(|selector| !selector.is_everything()) {
        validate_match(selector, template, path, errors);
    }
    errors.extend(validate_template(template, path));
    only_always(template, controller, path, errors);
}

/// Pods that are replaced when they end cannot end by themselves.
pub fn only_always(template: &Value, controller: &str, path: &Path, errors: &mut ErrorList) {
    let policy = object::string(template, &["spec", "restartPolicy"]);
    if policy != "Always" {
        let path = path.child("spec").child("restartPolicy");
        errors.push(Error::not_supported(&path, policy, &["Always"]));
    }
    if present(template, &["spec", "activeDeadlineSeconds"]).is_some() {
        let path = path.child("spec").child("activeDeadlineSeconds");
        let detail = format!("activeDeadlineSeconds in {controller} is not Supported");
        errors.push(Error::forbidden(&path, detail));
    }
}

pub fn immutable_selector(new: &Value, old: &Value, errors: &mut ErrorList) {
    let shown = present(new, &["spec", "selector"]).map_or("null".to_owned(), |one| internal::shown(one, SELECTOR));
    let path = Path::new("spec").child("selector");
    immutable(new, old, &["spec", "selector"], &path, &shown, errors);
}

/// What a template is warned of, when it is new and when the spec changed.
pub fn warnings(_ctx: &WriteContext<'_>, new: &Value, old: Option<&Value>) -> Vec<String> {
    let generation = |object: &Value| object::int(object, &["metadata", "generation"]);
    if old.is_some_and(|old| generation(old) == generation(new)) {
        return Vec::new();
    }
    let template = |object| object::get(object, &["spec", "template"]);
    let path = Path::new("spec").child("template");
    template_warnings(template(new), old.and_then(template), &path)
}

/// The same for kinds whose names become those of pods.
pub fn named_warnings(ctx: &WriteContext<'_>, new: &Value, old: Option<&Value>) -> Vec<String> {
    let mut found = Vec::new();
    let texts = names::dns1123_label(object::name(new));
    if old.is_none() && !texts.is_empty() {
        found.push(format!(
            "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended: [{}]",
            texts.join(" ")
        ));
    }
    found.extend(warnings(ctx, new, old));
    found
}

/// Names and images of containers, each joined.
pub fn container_cells(template: Option<&Value>) -> [Value; 2] {
    let containers = template.map_or(&[][..], |template| object::list(template, &["spec", "containers"]));
    ["name", "image"].map(|field| {
        let all: Vec<&str> = containers.iter().map(|one| object::string(one, &[field])).collect();
        all.join(",").into()
    })
}

/// A selector in a cell.
pub fn selector_cell(selector: Option<&Value>) -> Value {
    let text = match LabelSelector::from_value(selector) {
        Ok(selector) => selector.to_string(),
        Err(_) => return "<error>".into(),
    };
    if text.is_empty() { "<none>".into() } else { text.into() }
}

/// A map of labels in a cell.
pub fn labels_cell(object: &Value, at: &[&str]) -> Value {
    let labels: Vec<String> = entries(object, at)
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    if labels.is_empty() {
        "<none>".into()
    } else {
        labels.join(",").into()
    }
}

/// The number at a path, zero if absent.
pub fn number(object: &Value, at: &[&str]) -> i64 {
    object::int(object, at).unwrap_or_default()
}

//! Mutating- and ValidatingWebhookConfigurations.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::expression::validate_match_conditions;
use super::rule::{FAILURE_POLICIES, MATCH_POLICIES, REINVOCATION_POLICIES, default_rules, validate_rule};
use super::static_suffix_warning;
use crate::cel::admission::Params;
use crate::field::{Error, ErrorList, Path};
use crate::kind::check::{invalid_each, list_mut, present, same, set_default_pointer, strings};
use crate::kind::column::{AGE, NAME, age, integer};
use crate::kind::{Column, MetadataCheck, NameUse, Strategy, WriteContext, selector, webhook};
use crate::select::{Tolerance as Selectors, label_selector_errors};
use crate::{names, object};

const REVIEW_VERSIONS: [&str; 2] = ["v1", "v1beta1"];
const NO_SIDE_EFFECTS: [&str; 2] = ["None", "NoneOnDryRun"];
const SIDE_EFFECTS: [&str; 4] = ["None", "NoneOnDryRun", "Some", "Unknown"];
const MAX_TIMEOUT_SECONDS: i64 = 30;

/// Which of the two configurations: only mutating webhooks may be called again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Webhooks {
    Mutating,
    Validating,
}

impl Strategy for Webhooks {
    fn default(&self, object: &mut Value) {
        for hook in list_mut(object, &["webhooks"]) {
            set_default_pointer(hook, &["failurePolicy"], "Fail");
            set_default_pointer(hook, &["matchPolicy"], "Equivalent");
            set_default_pointer(hook, &["namespaceSelector"], json!({}));
            set_default_pointer(hook, &["objectSelector"], json!({}));
            set_default_pointer(hook, &["timeoutSeconds"], 10);
            if *self == Self::Mutating {
                set_default_pointer(hook, &["reinvocationPolicy"], "Never");
            }
            default_rules(hook, &["rules"]);
            if present(hook, &["clientConfig", "service"]).is_some() {
                set_default_pointer(hook, &["clientConfig", "service", "port"], 443);
            }
        }
    }

    fn validate(&self, _ctx: &WriteContext<'_>, object: &Value) -> ErrorList {
        self.validate_all(object, &Tolerance::none())
    }

    fn validate_update(&self, _ctx: &WriteContext<'_>, new: &Value, old: &Value) -> ErrorList {
        self.validate_all(new, &Tolerance::of(new, old))
    }

    fn warnings(&self, _ctx: &WriteContext<'_>, new: &Value, _old: Option<&Value>) -> Vec<String> {
        static_suffix_warning(new)
    }

    fn metadata_check(&self, _ctx: &WriteContext<'_>) -> MetadataCheck {
        MetadataCheck::Whole
    }

    fn name_errors(&self, name: &str, name_use: NameUse) -> Vec<String> {
        names::name_is_dns_subdomain(name, name_use)
    }

    fn columns(&self) -> &'static [Column] {
        const COUNT: &str = "Webhooks indicates the number of webhooks registered in this configuration";
        const COLUMNS: &[Column] = &[NAME, integer("Webhooks", COUNT), AGE];
        COLUMNS
    }

    fn cells(&self, object: &Value, now: jiff::Timestamp) -> Vec<Value> {
        vec![
            object::name(object).into(),
            json!(hooks(object).len()),
            age(object, now),
        ]
    }

    fn unconditional_update(&self) -> bool {
        false
    }

    fn generation_fields(&self) -> &'static [&'static str] {
        &["webhooks"]
    }
}

fn hooks(object: &Value) -> &[Value] {
    object::list(object, &["webhooks"])
}

/// What an object already got wrong and may keep.
struct Tolerance {
    match_conditions: bool,
    side_effects: bool,
    review_versions: bool,
    repeated_names: bool,
    selectors: Selectors,
}

impl Tolerance {
    fn none() -> Self {
        Self {
            match_conditions: false,
            side_effects: false,
            review_versions: false,
            repeated_names: false,
            selectors: Selectors::None,
        }
    }

    fn of(new: &Value, old: &Value) -> Self {
        let (new, old) = (hooks(new), hooks(old));
        let has_effects = |hook: &Value| !NO_SIDE_EFFECTS.contains(&object::string(hook, &["sideEffects"]));
        let unknown_versions = |hook: &Value| {
            let versions = strings(hook, &["admissionReviewVersions"]);
            !versions.is_empty() && !versions.iter().any(|version| REVIEW_VERSIONS.contains(version))
        };
        let names: BTreeSet<&str> = old.iter().map(|hook| object::string(hook, &["name"])).collect();
        let bad_selector = |hook: &Value| {
            ["namespaceSelector", "objectSelector"]
                .iter()
                .any(|field| present(hook, &[field]).is_some_and(|selector| !selector::is_valid(selector)))
        };
        let unchanged = |(new, old): (&Value, &Value)| same(new.get("matchConditions"), old.get("matchConditions"));
        Self {
            match_conditions: new.len() == old.len() && new.iter().zip(old).all(unchanged),
            side_effects: old.iter().any(has_effects),
            review_versions: old.iter().any(unknown_versions),
            repeated_names: names.len() != old.len(),
            selectors: if old.iter().any(bad_selector) {
                Selectors::InvalidValues
            } else {
                Selectors::None
            },
        }
    }
}

impl Webhooks {
    fn validate_all(self, object: &Value, tolerance: &Tolerance) -> ErrorList {
        let mut errors = ErrorList::new();
        let mut seen = BTreeSet::new();
        for (i, hook) in hooks(object).iter().enumerate() {
            let path = Path::new("webhooks").index(i);
            self.validate_hook(hook, tolerance, &path, &mut errors);
            validate_review_versions(hook, tolerance, &path.child("admissionReviewVersions"), &mut errors);
            let name = object::string(hook, &["name"]);
            if !tolerance.repeated_names && !name.is_empty() && !seen.insert(name) {
                errors.push(Error::duplicate(&path.child("name"), name));
            }
        }
        errors
    }

    fn validate_hook(self, hook: &Value, tolerance: &Tolerance, path: &Path, errors: &mut ErrorList) {
        errors.extend(names::fully_qualified_name(
            &path.child("name"),
            object::string(hook, &["name"]),
        ));
        for (i, rule) in object::list(hook, &["rules"]).iter().enumerate() {
            errors.extend(validate_rule(rule, &path.child("rules").index(i)));
        }
        supported(hook, "failurePolicy", &FAILURE_POLICIES, path, errors);
        supported(hook, "matchPolicy", &MATCH_POLICIES, path, errors);
        let effects: &[&str] = if tolerance.side_effects {
            &SIDE_EFFECTS
        } else {
            &NO_SIDE_EFFECTS
        };
        if present(hook, &["sideEffects"]).is_none() {
            let detail = format!("must specify one of {}", effects.join(", "));
            errors.push(Error::required(&path.child("sideEffects"), detail));
        }
        supported(hook, "sideEffects", effects, path, errors);
        if let Some(seconds) = object::int(hook, &["timeoutSeconds"]).filter(|s| !(1..=MAX_TIMEOUT_SECONDS).contains(s))
        {
            let detail = "the timeout value must be between 1 and 30 seconds";
            errors.push(Error::invalid(&path.child("timeoutSeconds"), seconds, detail));
        }
        for field in ["namespaceSelector", "objectSelector"] {
            if let Some(selector) = present(hook, &[field]) {
                errors.extend(label_selector_errors(selector, tolerance.selectors, &path.child(field)));
            }
        }
        if self == Self::Mutating {
            supported(hook, "reinvocationPolicy", &REINVOCATION_POLICIES, path, errors);
        }
        validate_client(hook, &path.child("clientConfig"), errors);
        if !tolerance.match_conditions {
            let conditions = object::list(hook, &["matchConditions"]);
            errors.extend(validate_match_conditions(
                conditions,
                Params::Absent,
                &path.child("matchConditions"),
            ));
        }
    }
}

/// A value that may be absent, but not any other than these.
fn supported(hook: &Value, field: &str, values: &[&str], path: &Path, errors: &mut ErrorList) {
    if let Some(value) = present(hook, &[field])
        .and_then(Value::as_str)
        .filter(|value| !values.contains(value))
    {
        errors.push(Error::not_supported(&path.child(field), value, values));
    }
}

fn validate_client(hook: &Value, path: &Path, errors: &mut ErrorList) {
    let url = present(hook, &["clientConfig", "url"]).and_then(Value::as_str);
    let service = present(hook, &["clientConfig", "service"]);
    match (url, service) {
        (Some(url), None) => errors.extend(webhook::validate_url(url, &path.child("url"))),
        (None, Some(service)) => errors.extend(webhook::validate_service(service, &path.child("service"))),
        _ => errors.push(Error::required(path, "exactly one of url or service is required")),
    }
}

fn validate_review_versions(hook: &Value, tolerance: &Tolerance, path: &Path, errors: &mut ErrorList) {
    let versions = strings(hook, &["admissionReviewVersions"]);
    let known = REVIEW_VERSIONS.join(", ");
    if versions.is_empty() {
        errors.push(Error::required(path, format!("must specify one of {known}")));
        return;
    }
    let mut seen = BTreeSet::new();
    for (i, version) in versions.iter().enumerate() {
        if !seen.insert(version) {
            errors.push(Error::invalid(&path.index(i), *version, "duplicate version"));
            continue;
        }
        errors.extend(invalid_each(&path.index(i), version, names::dns1035_label(version)));
    }
    if !tolerance.review_versions && !versions.iter().any(|version| REVIEW_VERSIONS.contains(version)) {
        errors.push(Error::invalid(
            path,
            json!(versions),
            format!("must include at least one of {known}"),
        ));
    }
}

//! Bindings of admission policies to parameters and resources.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::rule::{default_match_resources, validate_match_resources, validate_mutating_operations};
use super::static_suffix_warning;
use crate::field::{Error, ErrorList, Path};
use crate::kind::check::{invalid_each, present, strings};
use crate::kind::column::{AGE, NAME, age, text};
use crate::kind::{Column, MetadataCheck, NameUse, Strategy, WriteContext, selector};
use crate::select::{Tolerance, label_selector_errors};
use crate::{names, object};

const ACTIONS: [&str; 3] = ["Audit", "Deny", "Warn"];

/// Which of the two bindings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Binding {
    Mutating,
    Validating,
}

impl Strategy for Binding {
    fn default(&self, object: &mut Value) {
        default_match_resources(object, &["spec", "matchResources"]);
    }

    fn validate(&self, _ctx: &WriteContext<'_>, object: &Value) -> ErrorList {
        self.validate_spec(object)
    }

    fn validate_update(&self, _ctx: &WriteContext<'_>, new: &Value, _old: &Value) -> ErrorList {
        self.validate_spec(new)
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
        const POLICY: &str = "PolicyName indicates the policy definition which the policy binding binded to";
        const PARAM: &str = "ParamRef indicates the param resource which sets the configuration param";
        const COLUMNS: &[Column] = &[NAME, text("PolicyName", POLICY), text("ParamRef", PARAM), AGE];
        COLUMNS
    }

    fn cells(&self, object: &Value, now: jiff::Timestamp) -> Vec<Value> {
        let policy = object::string(object, &["spec", "policyName"]);
        vec![
            object::name(object).into(),
            policy.into(),
            param(object).into(),
            age(object, now),
        ]
    }

    fn unconditional_update(&self) -> bool {
        false
    }

    fn generation_fields(&self) -> &'static [&'static str] {
        &["spec"]
    }
}

fn param(object: &Value) -> String {
    let of = |field| object::string(object, &["spec", "paramRef", field]);
    match (of("name"), of("namespace")) {
        ("", _) => match present(object, &["spec", "paramRef", "selector"]) {
            Some(selector) => selector::shown(selector),
            None => "<unset>".to_owned(),
        },
        // Whether the parameter has a namespace cannot be told from here.
        (name, "") => format!("*/{name}"),
        (name, namespace) => format!("{namespace}/{name}"),
    }
}

impl Binding {
    fn validate_spec(self, object: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        let path = Path::new("spec");
        match object::string(object, &["spec", "policyName"]) {
            "" => errors.push(Error::required(&path.child("policyName"), "")),
            name => errors.extend(invalid_each(
                &path.child("policyName"),
                name,
                names::dns1123_subdomain(name),
            )),
        }
        if let Some(param) = present(object, &["spec", "paramRef"]) {
            validate_param(param, &path.child("paramRef"), &mut errors);
        }
        if let Some(resources) = present(object, &["spec", "matchResources"]) {
            let path = path.child("matchResources");
            errors.extend(validate_match_resources(resources, &path));
            if self == Self::Mutating {
                errors.extend(validate_mutating_operations(resources, &path));
            }
        }
        if self == Self::Validating {
            validate_actions(
                &strings(object, &["spec", "validationActions"]),
                &path.child("validationActions"),
                &mut errors,
            );
        }
        errors
    }
}

fn validate_param(param: &Value, path: &Path, errors: &mut ErrorList) {
    const EXCLUSIVE: &str = "name and selector are mutually exclusive";
    let name = object::string(param, &["name"]);
    let selector = present(param, &["selector"]);
    if !name.is_empty() {
        errors.extend(invalid_each(&path.child("name"), name, names::path_segment_name(name)));
        if selector.is_some() {
            errors.push(Error::forbidden(&path.child("name"), EXCLUSIVE));
        }
    }
    if let Some(selector) = selector {
        errors.extend(label_selector_errors(
            selector,
            Tolerance::None,
            &path.child("selector"),
        ));
        if !name.is_empty() {
            errors.push(Error::forbidden(&path.child("selector"), EXCLUSIVE));
        }
    } else if name.is_empty() {
        errors.push(Error::required(path, "one of name or selector must be specified"));
    }
    let path = path.child("parameterNotFoundAction");
    match object::string(param, &["parameterNotFoundAction"]) {
        "" => errors.push(Error::required(&path, "")),
        "Allow" | "Deny" => {}
        action => errors.push(Error::not_supported(&path, action, &["Deny", "Allow"])),
    }
}

fn validate_actions(actions: &[&str], path: &Path, errors: &mut ErrorList) {
    let mut seen = BTreeSet::new();
    for (i, action) in actions.iter().enumerate() {
        if !ACTIONS.contains(action) {
            errors.push(Error::not_supported(&path.index(i), *action, &ACTIONS));
        }
        if !seen.insert(*action) {
            errors.push(Error::duplicate(&path.index(i), *action));
        }
    }
    if seen.contains("Deny") && seen.contains("Warn") {
        let detail = "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)";
        errors.push(Error::invalid(path, json!(actions), detail));
    }
    if actions.is_empty() {
        errors.push(Error::required(path, "at least one validation action is required"));
    }
}

//! What definitions are refused for because of their schemas.
//!
//! A definition hands every schema it holds to [`validate`], once for all versions that share it, with the path that upstream
//! reports: `spec.validation` if all versions share one, else that of the version. An update is judged no harder than
//! the definition it replaces: what was wrong there before is tolerated.

mod openapi;
mod rule;
#[cfg(test)]
mod tests;

use serde_json::Value;

use crate::field::{Error, ErrorList, Path};
use crate::kind::check::{invalid_as, is_empty, present};
use crate::kind::internal;
use crate::schema::default_check::{self, Unpruned};
use crate::schema::rule::RuleCompiler;
use crate::schema::{selectable, structural};

/// Whether the status subresource is on, which restricts the schema's root.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StatusSubresource {
    On,
    Off,
}

/// What a schema is held to.
#[derive(Clone, Copy, Debug)]
pub struct Demands {
    pub structural: bool,
    pub pruned_defaults: bool,
    pub atomic_set_items: bool,
    pub map_keys: bool,
    pub valid_types: bool,
    /// Whether each rule is held to the limit on its cost: not if the version's schema is as it was.
    pub rule_cost: bool,
}

/// The most fields of a version that may be selectable; a version that had more may keep them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TooManySelectable {
    Refused,
    Tolerated,
}

impl Demands {
    /// Everything, as for a definition that is created.
    pub const ALL: Demands = Demands {
        structural: true,
        pruned_defaults: true,
        atomic_set_items: true,
        map_keys: true,
        valid_types: true,
        rule_cost: true,
    };

    /// What an update is held to, given all schemas of the definition before and after.
    pub fn of_update(old: &[&Value], new: &[&Value], preserves_unknown: bool) -> Self {
        let any_old = |is: &dyn Fn(&Value) -> bool| old.iter().any(|schema| openapi::any(schema, is));
        let any_new = |is: &dyn Fn(&Value) -> bool| new.iter().any(|schema| openapi::any(schema, is));
        let is_loose = |schema: &&Value| {
            structural::unsupported(schema).is_some() || !structural::errors(schema, &Path::default()).is_empty()
        };
        let was_structural = || !old.iter().any(is_loose);
        Demands {
            structural: !preserves_unknown
                || was_structural()
                || any_new(&openapi::has_default)
                || any_new(&openapi::has_extension),
            pruned_defaults: !old.iter().any(|schema| default_check::has_unpruned(schema)),
            atomic_set_items: !any_old(&openapi::is_loose_set),
            map_keys: !any_old(&|schema| !openapi::map_key_errors(schema, &Path::default()).is_empty()),
            valid_types: !any_old(&openapi::has_invalid_type),
            rule_cost: true,
        }
    }
}

/// Whether a schema holds a default anywhere.
pub fn has_default(schema: &Value) -> bool {
    openapi::any(schema, &openapi::has_default)
}

/// Whether a schema names a type anywhere that there is not.
pub fn has_invalid_type(schema: &Value) -> bool {
    openapi::any(schema, &openapi::has_invalid_type)
}

/// What is wrong with `openAPIV3Schema` in `validation`.
pub fn validate(
    validation: &Value,
    status: StatusSubresource,
    path: &Path,
    demands: Demands,
    compiler: &dyn RuleCompiler,
) -> ErrorList {
    let mut errors = ErrorList::new();
    let Some(schema) = present(validation, &["openAPIV3Schema"]) else {
        return errors;
    };
    let path = path.child("openAPIV3Schema");
    if status == StatusSubresource::On {
        errors.extend(check_root(schema, &path));
    }
    if schema.get("nullable") == Some(&Value::Bool(true)) {
        errors.push(Error::forbidden(
            &path.child("nullable"),
            "nullable cannot be true at the root",
        ));
    }
    let mut unsupported = None;
    let mut runs_rules = false;
    if demands.structural {
        unsupported = structural::unsupported(schema);
        if unsupported.is_none() {
            let mut found = structural::errors(schema, &path);
            if found.is_empty() {
                let unpruned = if demands.pruned_defaults {
                    Unpruned::Refused
                } else {
                    Unpruned::Tolerated
                };
                found = default_check::errors(schema, &path, unpruned, compiler);
            }
            runs_rules = found.is_empty();
            errors.append(&mut found);
        }
    }
    let compiler = runs_rules.then_some(compiler);
    let (mut found, mut cost) = openapi::check(schema, &path, demands, compiler);
    errors.append(&mut found);
    if let (true, Some(text)) = (errors.is_empty(), unsupported) {
        errors.push(Error::invalid(&path, "", text));
    }
    cost.report(&path, &mut errors);
    errors
}

/// With a status subresource the root may only say what also holds for the status alone.
fn check_root(schema: &Value, path: &Path) -> Option<Error> {
    const ALLOWED: [(&str, &str); 22] = [
        ("description", "Description"),
        ("type", "Type"),
        ("format", "Format"),
        ("title", "Title"),
        ("maximum", "Maximum"),
        ("exclusiveMaximum", "ExclusiveMaximum"),
        ("minimum", "Minimum"),
        ("exclusiveMinimum", "ExclusiveMinimum"),
        ("maxLength", "MaxLength"),
        ("minLength", "MinLength"),
        ("pattern", "Pattern"),
        ("maxItems", "MaxItems"),
        ("minItems", "MinItems"),
        ("uniqueItems", "UniqueItems"),
        ("multipleOf", "MultipleOf"),
        ("required", "Required"),
        ("items", "Items"),
        ("properties", "Properties"),
        ("externalDocs", "ExternalDocs"),
        ("example", "Example"),
        ("x-kubernetes-preserve-unknown-fields", "XPreserveUnknownFields"),
        ("x-kubernetes-validations", "XValidations"),
    ];
    // What is said even where it is empty.
    const POINTERS: [&str; 7] = [
        "additionalItems",
        "additionalProperties",
        "default",
        "maxProperties",
        "minProperties",
        "not",
        "x-kubernetes-map-type",
    ];
    let ty = schema.get("type").and_then(Value::as_str).unwrap_or_default();
    if !ty.is_empty() && ty != "object" {
        let detail =
            r#"only "object" is allowed as the type at the root of the schema if the status subresource is enabled"#;
        return Some(Error::invalid(&path.child("type"), ty, detail));
    }
    let words = schema
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(word, value)| !is_empty(value) || (POINTERS.contains(&word.as_str()) && !value.is_null()));
    let is_allowed = |word: &str| ALLOWED.iter().any(|(allowed, _)| *allowed == word);
    let refused = words.into_iter().any(|(word, _)| !is_allowed(word));
    refused.then(|| {
        let names: Vec<&str> = ALLOWED.iter().map(|(_, name)| *name).collect();
        let detail = format!(
            "only [{}] fields are allowed at the root of the schema if the status subresource is enabled",
            names.join(" ")
        );
        let name = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";
        invalid_as(path, &internal::shown(schema, name), &detail)
    })
}

/// What is wrong with selectable fields, given the schema they point into. `without` is the text for there being none.
pub fn validate_selectable(
    fields: &[Value],
    validation: Option<&Value>,
    path: &Path,
    too_many: TooManySelectable,
    without: &str,
) -> ErrorList {
    let Some(schema) = validation.and_then(|validation| present(validation, &["openAPIV3Schema"])) else {
        return vec![Error::invalid(path, "", without)];
    };
    let mut errors = selectable::check(fields, schema, path);
    if too_many == TooManySelectable::Tolerated {
        errors.retain(|error| error.reason != crate::field::Reason::TooMany);
    }
    errors
}

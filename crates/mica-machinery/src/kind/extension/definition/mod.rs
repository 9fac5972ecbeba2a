//! CustomResourceDefinitions: names, versions, conversion and status. What their schemas say is [`super::schema`]'s.
//!
//! Surprise: upstream validates a form in which what all versions share (schema, subresources, columns) stands once at the
//! top, under other names; error paths are of that form even for one version: `spec.validation.openAPIV3Schema`.

mod conversion;
mod naming;
mod settle;
mod value;
mod version;

use serde_json::{Value, json};

use crate::field::{Error, ErrorList, Path};
use crate::kind::check::{
    immutable_string, invalid_as, is_set, list_mut, one_of, set_default, set_default_pointer, strings,
};
use crate::kind::{NameUse, Strategy, WriteContext, condition};
use crate::meta::FinalizerRule;
use crate::schema::default_check;
use crate::{names, object, time};
use conversion::validate_conversion;
use naming::{validate_approval, validate_name, validate_names};
pub use settle::{removed, settled};
use version::{has_default, shared_schema, validate_shared, validate_versions};

/// The finalizer that holds a definition until its objects are gone.
pub const CLEANUP_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

#[derive(Debug)]
pub struct Definition;

impl Strategy for Definition {
    fn default(&self, object: &mut Value) {
        schemas_mut(object).for_each(value::normalize);
        let kind = object::string(object, &["spec", "names", "kind"]).to_owned();
        set_default(object, &["spec", "names", "singular"], kind.to_lowercase());
        if !kind.is_empty() {
            set_default(object, &["spec", "names", "listKind"], format!("{kind}List"));
        }
        set_default_pointer(object, &["spec", "conversion"], json!({"strategy": "None"}));
        // Upstream's own form has no place for a webhook that says nothing.
        let says = |field: &str| is_set(object, &["spec", "conversion", "webhook", field]);
        if !says("clientConfig") && !says("conversionReviewVersions") {
            object::remove(object, &["spec", "conversion", "webhook"]);
        }
        if is_set(object, &["spec", "conversion", "webhook", "clientConfig", "service"]) {
            let at = ["spec", "conversion", "webhook", "clientConfig", "service", "port"];
            set_default_pointer(object, &at, 443);
        }
        if object::list(object, &["status", "storedVersions"]).is_empty()
            && let Some(version) = storage_version(object)
        {
            object::set(object, &["status", "storedVersions"], json!([version]));
        }
    }

    fn prepare_create(&self, _ctx: &WriteContext<'_>, object: &mut Value) {
        let stored: Vec<String> = storage_version(object).into_iter().collect();
        let stored = if stored.is_empty() { Value::Null } else { json!(stored) };
        let names = json!({"plural": "", "kind": ""});
        object::set(
            object,
            &["status"],
            json!({"conditions": null, "acceptedNames": names, "storedVersions": stored}),
        );
    }

    fn prepare_update(&self, ctx: &WriteContext<'_>, new: &mut Value, old: &Value) {
        if ctx.subresource == "status" {
            object::copy(old, new, &["spec"]);
            return;
        }
        object::copy(old, new, &["status"]);
        if let Some(version) = storage_version(new) {
            let mut stored = object::list(new, &["status", "storedVersions"]).to_vec();
            if !stored.iter().any(|one| *one == version) {
                stored.push(version.into());
                object::set(new, &["status", "storedVersions"], stored);
            }
        }
    }

    fn validate(&self, _ctx: &WriteContext<'_>, object: &Value) -> ErrorList {
        let mut errors = validate_name(object);
        errors.extend(validate_all(object, None));
        errors
    }

    fn validate_update(&self, ctx: &WriteContext<'_>, new: &Value, old: &Value) -> ErrorList {
        if ctx.subresource == "status" {
            return validate_names(new, &["status", "acceptedNames"]);
        }
        validate_all(new, Some(old))
    }

    fn canonicalize(&self, object: &mut Value) {
        schemas_mut(object).for_each(default_check::coerce);
    }

    fn warnings(&self, ctx: &WriteContext<'_>, new: &Value, old: Option<&Value>) -> Vec<String> {
        if ctx.subresource == "status" {
            return Vec::new();
        }
        let known = old.map(unrecognized_formats).unwrap_or_default();
        let mut found = unrecognized_formats(new);
        found.retain(|format| !known.contains(format));
        let text = |format: &String| format!("unrecognized format {}", crate::field::quote(format));
        found.iter().map(text).collect()
    }

    // The rule depends on group and plural, so validation checks the name.
    fn name_errors(&self, _name: &str, _name_use: NameUse) -> Vec<String> {
        Vec::new()
    }

    fn unconditional_update(&self) -> bool {
        false
    }

    fn returns_deleted(&self) -> bool {
        true
    }

    fn finalizer_rule(&self) -> FinalizerRule {
        FinalizerRule::Qualified
    }

    fn generation_fields(&self) -> &'static [&'static str] {
        &["spec"]
    }

    fn reset_fields(&self, subresource: &str) -> &'static [&'static [&'static str]] {
        if subresource == "status" {
            &[&["spec"]]
        } else {
            &[&["status"]]
        }
    }
}

/// Marks a definition as being deleted: its objects go first, so it gets the cleanup finalizer and a condition.
pub fn begin_delete(definition: &mut Value, now: jiff::Timestamp) {
    if object::string(definition, &["metadata", "deletionTimestamp"]).is_empty() {
        object::set(definition, &["metadata", "deletionTimestamp"], time::now_text(now));
    }
    let mut finalizers = object::list(definition, &["metadata", "finalizers"]).to_vec();
    if !finalizers.iter().any(|name| name == CLEANUP_FINALIZER) {
        finalizers.push(CLEANUP_FINALIZER.into());
        object::set(definition, &["metadata", "finalizers"], finalizers);
    }
    let message = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
    set_condition(
        definition,
        "Terminating",
        "True",
        ["InstanceDeletionPending", message],
        now,
    );
}

/// Sets a condition of a definition; the time changes only with the status. `why` is reason and message.
pub fn set_condition(definition: &mut Value, r#type: &str, status: &str, why: [&str; 2], now: jiff::Timestamp) {
    let is_it = |one: &&mut Value| object::string(one, &["type"]) == r#type;
    let now = time::now_text(now);
    if let Some(found) = list_mut(definition, &["status", "conditions"]).iter_mut().find(is_it) {
        if object::string(found, &["status"]) != status {
            object::set(found, &["status"], status);
            object::set(found, &["lastTransitionTime"], now);
        }
        object::set(found, &["reason"], why[0]);
        object::set(found, &["message"], why[1]);
        return;
    }
    let mut conditions = object::list(definition, &["status", "conditions"]).to_vec();
    conditions.push(json!({
        "type": r#type, "status": status, "lastTransitionTime": now, "reason": why[0], "message": why[1],
    }));
    object::set(definition, &["status", "conditions"], conditions);
}

/// The formats in a definition's schemas that mean nothing. A schema that all versions share counts once.
fn unrecognized_formats(definition: &Value) -> Vec<String> {
    let schemas = versions(definition)
        .iter()
        .map(|version| &version["schema"]["openAPIV3Schema"]);
    let mut schemas: Vec<&Value> = schemas.collect();
    if schemas.windows(2).all(|pair| pair[0] == pair[1]) {
        schemas.truncate(1);
    }
    schemas
        .into_iter()
        .flat_map(crate::schema::format::unrecognized)
        .collect()
}

fn schemas_mut(object: &mut Value) -> impl Iterator<Item = &mut Value> {
    let versions = list_mut(object, &["spec", "versions"]).iter_mut();
    versions.filter_map(|version| version.pointer_mut("/schema/openAPIV3Schema"))
}

fn versions(object: &Value) -> &[Value] {
    object::list(object, &["spec", "versions"])
}

pub(crate) fn flag(value: &Value, field: &str) -> bool {
    value.get(field).and_then(Value::as_bool).unwrap_or_default()
}

pub(crate) fn storage_version(object: &Value) -> Option<String> {
    let version = versions(object).iter().find(|version| flag(version, "storage"))?;
    Some(object::string(version, &["name"]).to_owned())
}

fn validate_all(object: &Value, old: Option<&Value>) -> ErrorList {
    let mut errors = validate_spec(object, old);
    if let Some(old) = old {
        let path = Path::new("spec");
        if condition::has(object::list(old, &["status", "conditions"]), "Established", "True") {
            immutable_string(object, old, &["spec", "scope"], &path.child("scope"), &mut errors);
            let path = path.child("names").child("kind");
            immutable_string(object, old, &["spec", "names", "kind"], &path, &mut errors);
        }
        immutable_string(object, old, &["spec", "group"], &path.child("group"), &mut errors);
        let path = path.child("names").child("plural");
        immutable_string(object, old, &["spec", "names", "plural"], &path, &mut errors);
    }
    errors.extend(validate_names(object, &["status", "acceptedNames"]));
    validate_stored_versions(object, &mut errors);
    errors.extend(validate_approval(object, old));
    let preserves = |object| object::get(object, &["spec", "preserveUnknownFields"]) == Some(&Value::Bool(true));
    if preserves(object) && !old.is_some_and(preserves) {
        let detail =
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        errors.push(Error::invalid(
            &Path::new("spec").child("preserveUnknownFields"),
            true,
            detail,
        ));
    }
    errors
}

fn validate_spec(object: &Value, old: Option<&Value>) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("spec");
    let group = object::string(object, &["spec", "group"]);
    let texts = names::dns1123_subdomain(group);
    match group {
        "" => errors.push(Error::required(&path.child("group"), "")),
        _ if !texts.is_empty() => errors.push(Error::invalid(&path.child("group"), group, texts.join(","))),
        _ if !group.contains('.') => {
            errors.push(Error::invalid(
                &path.child("group"),
                group,
                "should be a domain with at least one dot",
            ));
        }
        _ => {}
    }
    let scope = object::string(object, &["spec", "scope"]);
    one_of(&path.child("scope"), scope, &["Cluster", "Namespaced"], &mut errors);
    let has_schema = |version: &Value| is_set(version, &["schema", "openAPIV3Schema"]);
    if old.is_none_or(|old| versions(old).iter().all(has_schema)) && !shared_schema(object).is_some_and(has_schema) {
        for (i, _) in versions(object)
            .iter()
            .enumerate()
            .filter(|(_, version)| !has_schema(version))
        {
            let path = path.child("versions").index(i).child("schema").child("openAPIV3Schema");
            errors.push(Error::required(&path, ""));
        }
    }
    if versions(object).iter().any(has_default)
        && object::get(object, &["spec", "preserveUnknownFields"]) == Some(&Value::Bool(true))
    {
        let detail = "must be false in order to use defaults in the schema";
        errors.push(Error::invalid(&path.child("preserveUnknownFields"), true, detail));
    }
    validate_versions(object, old, &path, &mut errors);
    for field in ["plural", "singular", "kind", "listKind"] {
        if object::string(object, &["spec", "names", field]).is_empty() {
            errors.push(Error::required(&path.child("names").child(field), ""));
        }
    }
    errors.extend(validate_names(object, &["spec", "names"]));
    validate_shared(object, old, &path, &mut errors);
    validate_conversion(object, old, &path.child("conversion"), &mut errors);
    errors
}

fn validate_stored_versions(object: &Value, errors: &mut ErrorList) {
    let path = Path::new("status").child("storedVersions");
    let stored = strings(object, &["status", "storedVersions"]);
    if stored.is_empty() {
        errors.push(invalid_as(&path, "null", "must have at least one stored version"));
        return;
    }
    // The first version of a name takes it: another of the same name finds none.
    let mut left = stored.clone();
    for version in versions(object) {
        let name = object::string(version, &["name"]);
        let is_stored = left.contains(&name);
        left.retain(|stored| *stored != name);
        if flag(version, "storage") && !is_stored {
            errors.push(Error::invalid(
                &path,
                json!(stored),
                format!("must have the storage version {name}"),
            ));
        }
    }
    for (i, name) in stored.iter().enumerate() {
        if !versions(object)
            .iter()
            .any(|version| object::string(version, &["name"]) == *name)
        {
            let detail = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"
            );
            errors.push(Error::invalid(&path.index(i), *name, detail));
        }
    }
}

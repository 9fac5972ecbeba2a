//! CustomResourceDefinitions: names, versions, conversion and status. What their schemas say is [`super::schema`]'s.
//!
//! Surprise: upstream validates a form in which what all versions share (schema, subresources, columns) stands once at the
//! top, under other names; error paths are of that form even for one version: `spec.validation.openAPIV3Schema`.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::schema::{self, StatusSubresource};
use crate::field::{Error, ErrorList, Path};
use crate::kind::check::{
    immutable_string, invalid_as, invalid_each, is_set, list_mut, one_of, present, same, set_default,
    set_default_pointer, strings,
};
use crate::kind::{NameUse, Strategy, WriteContext, condition, internal, webhook};
use crate::{names, object, time};

/// The finalizer that holds a definition until its objects are gone.
pub const CLEANUP_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";
const APPROVED: &str = "api-approved.kubernetes.io";
const REVIEW_VERSIONS: [&str; 2] = ["v1", "v1beta1"];
const COLUMN_TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
const COLUMN_FORMATS: [&str; 8] = [
    "byte",
    "date",
    "date-time",
    "double",
    "float",
    "int32",
    "int64",
    "password",
];
const MAX_WARNING_BYTES: usize = 256;

#[derive(Debug)]
pub struct Definition;

impl Strategy for Definition {
    fn default(&self, object: &mut Value) {
        let kind = object::string(object, &["spec", "names", "kind"]).to_owned();
        set_default(object, &["spec", "names", "singular"], kind.to_lowercase());
        if !kind.is_empty() {
            set_default(object, &["spec", "names", "listKind"], format!("{kind}List"));
        }
        set_default_pointer(object, &["spec", "conversion"], json!({"strategy": "None"}));
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

fn versions(object: &Value) -> &[Value] {
    object::list(object, &["spec", "versions"])
}

fn flag(value: &Value, field: &str) -> bool {
    value.get(field).and_then(Value::as_bool).unwrap_or_default()
}

fn storage_version(object: &Value) -> Option<String> {
    let version = versions(object).iter().find(|version| flag(version, "storage"))?;
    Some(object::string(version, &["name"]).to_owned())
}

fn validate_name(object: &Value) -> ErrorList {
    let name = object::name(object);
    if name.is_empty() {
        return ErrorList::new();
    }
    let wanted = format!(
        "{}.{}",
        object::string(object, &["spec", "names", "plural"]),
        object::string(object, &["spec", "group"])
    );
    let mut texts = names::name_is_dns_subdomain(name, NameUse::Name);
    if name != wanted {
        texts.push("must be spec.names.plural+\".\"+spec.group".to_owned());
    }
    invalid_each(&Path::new("metadata").child("name"), name, texts).collect()
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
    validate_versions(object, &path, &mut errors);
    for field in ["plural", "singular", "kind", "listKind"] {
        if object::string(object, &["spec", "names", field]).is_empty() {
            errors.push(Error::required(&path.child("names").child(field), ""));
        }
    }
    errors.extend(validate_names(object, &["spec", "names"]));
    validate_shared(object, &path, &mut errors);
    validate_conversion(object, old, &path.child("conversion"), &mut errors);
    errors
}

/// A version that holds the schema of all, if all have the same.
fn shared_schema(object: &Value) -> Option<&Value> {
    is_shared(object, "schema").then(|| versions(object).first()).flatten()
}

/// Whether all versions hold the same in a field.
fn is_shared(object: &Value, field: &str) -> bool {
    let mut versions = versions(object).iter();
    let Some(first) = versions.next() else { return false };
    versions.all(|version| same(version.get(field), first.get(field)))
}

fn status_subresource(version: &Value) -> StatusSubresource {
    if is_set(version, &["subresources", "status"]) {
        StatusSubresource::On
    } else {
        StatusSubresource::Off
    }
}

fn validate_versions(object: &Value, path: &Path, errors: &mut ErrorList) {
    let path_versions = path.child("versions");
    for (i, version) in versions(object).iter().enumerate() {
        let path = path_versions.index(i);
        let name = object::string(version, &["name"]);
        let texts = names::dns1035_label(name);
        if !texts.is_empty() {
            errors.push(Error::invalid(&path.child("name"), name, texts.join(",")));
        }
        validate_deprecation(version, &path.child("deprecationWarning"), errors);
        validate_parts(object, version, &path, Place::Version, errors);
    }
    let names: BTreeSet<&str> = versions(object)
        .iter()
        .map(|one| object::string(one, &["name"]))
        .collect();
    if names.len() != versions(object).len() {
        errors.push(invalid_as(
            &path_versions,
            &shown_versions(object),
            "must contain unique version names",
        ));
    }
    if versions(object)
        .iter()
        .filter(|version| flag(version, "storage"))
        .count()
        != 1
    {
        let detail = "must have exactly one version marked as storage version";
        errors.push(invalid_as(&path_versions, &shown_versions(object), detail));
    }
}

/// Where upstream keeps what a version holds: with it, or at the top because all versions share it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Version,
    Shared,
}

fn validate_shared(object: &Value, path: &Path, errors: &mut ErrorList) {
    if let Some(first) = versions(object).first() {
        validate_parts(object, first, path, Place::Shared, errors);
    }
}

/// Checks those parts of a version that are in the given place.
fn validate_parts(object: &Value, version: &Value, path: &Path, place: Place, errors: &mut ErrorList) {
    let is_here = |field| is_shared(object, field) == (place == Place::Shared);
    if is_here("schema")
        && let Some(validation) = present(version, &["schema"])
    {
        let path = path.child(if place == Place::Shared { "validation" } else { "schema" });
        errors.extend(schema::validate(validation, status_subresource(version), &path));
    }
    if is_here("subresources")
        && let Some(scale) = present(version, &["subresources", "scale"])
    {
        validate_scale(scale, &path.child("subresources"), errors);
    }
    if is_here("additionalPrinterColumns") {
        for (i, column) in object::list(version, &["additionalPrinterColumns"]).iter().enumerate() {
            validate_column(column, &path.child("additionalPrinterColumns").index(i), errors);
        }
    }
    let selectable = object::list(version, &["selectableFields"]);
    if is_here("selectableFields") && !selectable.is_empty() {
        let path = path.child("selectableFields");
        errors.extend(schema::validate_selectable(
            selectable,
            present(version, &["schema"]),
            &path,
        ));
    }
}

/// The versions as upstream's errors print them: without what they share.
fn shown_versions(object: &Value) -> String {
    let shown = versions(object).iter().map(|version| {
        let mut version = version.clone();
        for field in ["schema", "subresources", "additionalPrinterColumns", "selectableFields"] {
            if is_shared(object, field) {
                object::remove(&mut version, &[field]);
            }
        }
        let name = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinitionVersion";
        internal::shown(&version, name)
    });
    format!("[{}]", shown.collect::<Vec<_>>().join(","))
}

fn validate_deprecation(version: &Value, path: &Path, errors: &mut ErrorList) {
    let Some(warning) = present(version, &["deprecationWarning"]).and_then(Value::as_str) else {
        return;
    };
    let mut invalid = |detail: String| errors.push(Error::invalid(path, warning, detail));
    if !flag(version, "deprecated") {
        invalid("can only be set for deprecated versions".to_owned());
        return;
    }
    if warning.len() > MAX_WARNING_BYTES {
        invalid(format!("must be <= {MAX_WARNING_BYTES} characters long"));
    }
    if warning.is_empty() {
        invalid("must not be an empty string".to_owned());
    }
    if let Some((at, _)) = warning
        .char_indices()
        .find(|(_, c)| c.is_control() || (c.is_whitespace() && *c != ' '))
    {
        invalid(format!(
            "must only contain printable UTF-8 characters; non-printable character found at index {at}"
        ));
    }
}

fn validate_scale(scale: &Value, path: &Path, errors: &mut ErrorList) {
    let of = |field| object::string(scale, &[field]);
    for (field, roots, where_to) in [
        ("specReplicasPath", &[".spec."] as &[&str], "under .spec"),
        ("statusReplicasPath", &[".status."], "under .status"),
        (
            "labelSelectorPath",
            &[".spec.", ".status."],
            "under either .spec or .status",
        ),
    ] {
        let path = path.child("scale").child(field);
        if of(field).is_empty() {
            if field != "labelSelectorPath" {
                errors.push(Error::required(&path, ""));
            }
        } else if !of(field).starts_with('.') {
            errors.push(Error::invalid(
                &path,
                of(field),
                "must be a simple json path starting with .",
            ));
        } else if !roots.iter().any(|root| of(field).starts_with(root)) {
            errors.push(Error::invalid(
                &path,
                of(field),
                format!("should be a json path {where_to}"),
            ));
        }
    }
}

fn validate_column(column: &Value, path: &Path, errors: &mut ErrorList) {
    let of = |field| object::string(column, &[field]);
    if of("name").is_empty() {
        errors.push(Error::required(&path.child("name"), ""));
    }
    let types = format!("must be one of {}", COLUMN_TYPES.join(","));
    if of("type").is_empty() {
        errors.push(Error::required(&path.child("type"), types));
    } else if !COLUMN_TYPES.contains(&of("type")) {
        errors.push(Error::invalid(&path.child("type"), of("type"), types));
    }
    if !of("format").is_empty() && !COLUMN_FORMATS.contains(&of("format")) {
        let detail = format!("must be one of {}", COLUMN_FORMATS.join(","));
        errors.push(Error::invalid(&path.child("format"), of("format"), detail));
    }
    // Upstream writes the field's Go name here.
    let path = path.child("JSONPath");
    match of("jsonPath") {
        "" => errors.push(Error::required(&path, "")),
        text if !text.starts_with('.') => {
            errors.push(Error::invalid(
                &path,
                text,
                "must be a simple json path starting with .",
            ));
        }
        _ => {}
    }
}

fn validate_names(object: &Value, at: &[&str; 2]) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new(at[0]).child(at[1]);
    let of = |field| object::string(object, &[at[0], at[1], field]);
    for field in ["plural", "singular"] {
        let texts = names::dns1035_label(of(field));
        if !of(field).is_empty() && !texts.is_empty() {
            errors.push(Error::invalid(&path.child(field), of(field), texts.join(",")));
        }
    }
    for field in ["kind", "listKind"] {
        let texts = names::dns1035_label(&of(field).to_lowercase());
        if !of(field).is_empty() && !texts.is_empty() {
            let detail = format!("may have mixed case, but should otherwise match: {}", texts.join(","));
            errors.push(Error::invalid(&path.child(field), of(field), detail));
        }
    }
    let mut each = |field: &str| {
        for (i, name) in strings(object, &[at[0], at[1], field]).into_iter().enumerate() {
            let texts = names::dns1035_label(name);
            if !texts.is_empty() {
                errors.push(Error::invalid(&path.child(field).index(i), name, texts.join(",")));
            }
        }
    };
    each("shortNames");
    each("categories");
    if !of("kind").is_empty() && of("kind") == of("listKind") {
        let detail = "kind and listKind may not be the same";
        errors.push(Error::invalid(&path.child("listKind"), of("listKind"), detail));
    }
    errors
}

fn validate_conversion(object: &Value, old: Option<&Value>, path: &Path, errors: &mut ErrorList) {
    let Some(conversion) = present(object, &["spec", "conversion"]) else {
        return;
    };
    let strategy = object::string(conversion, &["strategy"]);
    if strategy != "None" && object::get(object, &["spec", "preserveUnknownFields"]) == Some(&Value::Bool(true)) {
        let detail = "must be None if spec.preserveUnknownFields is true";
        errors.push(Error::invalid(&path.child("strategy"), strategy, detail));
    }
    one_of(&path.child("strategy"), strategy, &["None", "Webhook"], errors);
    let client = present(conversion, &["webhook", "clientConfig"]);
    let reviews = strings(conversion, &["webhook", "conversionReviewVersions"]);
    if strategy != "Webhook" {
        let detail = "should not be set when strategy is not set to Webhook";
        if client.is_some() {
            errors.push(Error::forbidden(&path.child("webhookClientConfig"), detail));
        }
        if !reviews.is_empty() {
            errors.push(Error::forbidden(&path.child("conversionReviewVersions"), detail));
        }
        return;
    }
    let path_client = path.child("webhookClientConfig");
    match client {
        None => errors.push(Error::required(
            &path_client,
            "required when strategy is set to Webhook",
        )),
        Some(client) => validate_client(client, old, &path_client, errors),
    }
    validate_reviews(&reviews, old, &path.child("conversionReviewVersions"), errors);
}

fn validate_client(client: &Value, old: Option<&Value>, path: &Path, errors: &mut ErrorList) {
    let url = present(client, &["url"]).and_then(Value::as_str);
    match (url, present(client, &["service"])) {
        (Some(url), None) => errors.extend(webhook::validate_url(url, &path.child("url"))),
        (None, Some(service)) => errors.extend(webhook::validate_service(service, &path.child("service"))),
        _ => errors.push(Error::required(path, "exactly one of url or service is required")),
    }
    // A bad bundle is refused only where a good one was; elsewhere it keeps the definition from being established.
    let bundle = object::string(client, &["caBundle"]);
    let was_good = old.is_some_and(|old| {
        let bundle = object::string(old, &["spec", "conversion", "webhook", "clientConfig", "caBundle"]);
        condition::has(object::list(old, &["status", "conditions"]), "Established", "True")
            && webhook::ca_bundle_error(bundle).is_none()
    });
    if was_good && let Some(detail) = webhook::ca_bundle_error(bundle) {
        errors.push(Error::invalid(&path.child("caBundle"), bundle, detail));
    }
}

fn validate_reviews(versions: &[&str], old: Option<&Value>, path: &Path, errors: &mut ErrorList) {
    if versions.is_empty() {
        errors.push(Error::required(path, ""));
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
    let known = |versions: &[&str]| versions.is_empty() || versions.iter().any(|one| REVIEW_VERSIONS.contains(one));
    let was_known = old.is_none_or(|old| {
        known(&strings(
            old,
            &["spec", "conversion", "webhook", "conversionReviewVersions"],
        ))
    });
    if was_known && !known(versions) {
        let detail = format!("must include at least one of {}", REVIEW_VERSIONS.join(", "));
        errors.push(Error::invalid(path, json!(versions), detail));
    }
}

fn validate_stored_versions(object: &Value, errors: &mut ErrorList) {
    let path = Path::new("status").child("storedVersions");
    let stored = strings(object, &["status", "storedVersions"]);
    if stored.is_empty() {
        errors.push(invalid_as(&path, "null", "must have at least one stored version"));
        return;
    }
    for version in versions(object).iter().filter(|version| flag(version, "storage")) {
        let name = object::string(version, &["name"]);
        if !stored.contains(&name) {
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

/// How a definition in a protected group says it was approved.
#[derive(PartialEq, Eq)]
enum Approval {
    Missing,
    Bypassed,
    Given,
    Invalid,
}

fn approval(object: &Value) -> Approval {
    let text = object::string(object, &["metadata", "annotations", APPROVED]);
    let is_url = || {
        text.split_once("://").is_some_and(|(scheme, rest)| {
            scheme.bytes().all(|c| c.is_ascii_alphanumeric())
                && !scheme.is_empty()
                && !rest.is_empty()
                && !rest.starts_with('/')
        })
    };
    match text {
        "" => Approval::Missing,
        _ if text.starts_with("unapproved") => Approval::Bypassed,
        _ if is_url() => Approval::Given,
        _ => Approval::Invalid,
    }
}

fn validate_approval(object: &Value, old: Option<&Value>) -> Option<Error> {
    let group = object::string(object, &["spec", "group"]);
    let protected = ["k8s.io", "kubernetes.io"]
        .iter()
        .any(|domain| group == *domain || group.ends_with(&format!(".{domain}")));
    let state = approval(object);
    if !protected || old.is_some_and(|old| approval(old) == state) {
        return None;
    }
    let path = Path::new("metadata").child("annotations").key(APPROVED);
    let see = "see https://github.com/kubernetes/enhancements/pull/1111";
    let must = format!("protected groups must have approval annotation \"{APPROVED}\"");
    match state {
        Approval::Missing => Some(Error::required(&path, format!("{must}, {see}"))),
        Approval::Invalid => {
            let found = object::string(object, &["metadata", "annotations", APPROVED]);
            let detail = format!("{must} with either a URL or a reason starting with \"unapproved\", {see}");
            Some(Error::invalid(&path, found, detail))
        }
        Approval::Bypassed | Approval::Given => None,
    }
}

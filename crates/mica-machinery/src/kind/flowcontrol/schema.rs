//! FlowSchemas: which requests go to which priority level.

use serde_json::{Value, json};

use super::validate_status;
use crate::field::{Error, ErrorList, Path};
use crate::kind::bootstrap::flow;
use crate::kind::check::{
    invalid_as, invalid_each, is_set, keep_metadata, not_supported_as, present, same, set_default, strings,
};
use crate::kind::column::{AGE, NAME, age, text};
use crate::kind::{Column, MetadataCheck, NameUse, Strategy, WriteContext, internal};
use crate::{names, object};

const MAX_PRECEDENCE: i64 = 10_000;
const DISTINGUISHERS: [&str; 2] = ["ByNamespace", "ByUser"];
const VERBS: [&str; 9] = [
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "proxy",
    "update",
    "watch",
];
/// Kinds of subjects, and the field that holds each.
const SUBJECTS: [(&str, &str); 3] = [
    ("Group", "group"),
    ("ServiceAccount", "serviceAccount"),
    ("User", "user"),
];

#[derive(Debug)]
pub struct FlowSchema;

impl Strategy for FlowSchema {
    fn default(&self, object: &mut Value) {
        set_default(object, &["spec", "matchingPrecedence"], 1000);
    }

    fn prepare_create(&self, _ctx: &WriteContext<'_>, object: &mut Value) {
        object::set(object, &["status"], json!({}));
    }

    fn prepare_update(&self, ctx: &WriteContext<'_>, new: &mut Value, old: &Value) {
        if ctx.subresource == "status" {
            keep_metadata(new, old);
            object::copy(old, new, &["spec"]);
        } else {
            object::copy(old, new, &["status"]);
        }
    }

    fn validate(&self, _ctx: &WriteContext<'_>, object: &Value) -> ErrorList {
        let mut errors = validate_spec(object);
        if let Some(fixed) = flow::mandatory("FlowSchema", object::name(object))
            && !same(object.get("spec"), fixed.get("spec"))
        {
            let spec = object.get("spec").unwrap_or(&Value::Null);
            let shown = internal::shown(spec, "io.k8s.api.flowcontrol.v1.FlowSchemaSpec");
            let detail = format!("spec of '{}' must equal the fixed value", object::name(object));
            errors.push(invalid_as(&Path::new("spec"), &shown, &detail));
        }
        errors.extend(validate_status(object));
        errors
    }

    fn validate_update(&self, ctx: &WriteContext<'_>, new: &Value, _old: &Value) -> ErrorList {
        if ctx.subresource == "status" {
            validate_status(new)
        } else {
            self.validate(ctx, new)
        }
    }

    fn metadata_check(&self, ctx: &WriteContext<'_>) -> MetadataCheck {
        MetadataCheck::whole_object(ctx)
    }

    fn name_errors(&self, name: &str, name_use: NameUse) -> Vec<String> {
        names::name_is_dns_subdomain(name, name_use)
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn table_order(&self) -> Option<fn(&Value) -> i64> {
        Some(|object| object::int(object, &["spec", "matchingPrecedence"]).unwrap_or_default())
    }

    fn cells(&self, object: &Value, now: jiff::Timestamp) -> Vec<Value> {
        let method = present(object, &["spec", "distinguisherMethod"]);
        let conditions = object::list(object, &["status", "conditions"]);
        let dangling = conditions
            .iter()
            .find(|one| object::string(one, &["type"]) == "Dangling");
        vec![
            object::name(object).into(),
            object::string(object, &["spec", "priorityLevelConfiguration", "name"]).into(),
            object::int(object, &["spec", "matchingPrecedence"])
                .unwrap_or_default()
                .into(),
            method
                .map_or("<none>", |method| object::string(method, &["type"]))
                .into(),
            age(object, now),
            dangling
                .map_or("?", |condition| object::string(condition, &["status"]))
                .into(),
        ]
    }

    fn generation_fields(&self) -> &'static [&'static str] {
        &["spec"]
    }

    fn reset_fields(&self, subresource: &str) -> &'static [&'static [&'static str]] {
        if subresource == "status" {
            &[&["metadata"], &["spec"]]
        } else {
            &[&["status"]]
        }
    }
}

fn validate_spec(object: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("spec");
    let precedence = object::int(object, &["spec", "matchingPrecedence"]).unwrap_or_default();
    let mut precedence_error =
        |detail: String| errors.push(Error::invalid(&path.child("matchingPrecedence"), precedence, detail));
    if precedence <= 0 {
        precedence_error("must be a positive value".to_owned());
    }
    if precedence > MAX_PRECEDENCE {
        precedence_error(format!("must not be greater than {MAX_PRECEDENCE}"));
    }
    if precedence == 1 && object::name(object) != "exempt" {
        precedence_error("only the schema named 'exempt' may have matchingPrecedence 1".to_owned());
    }
    if let Some(method) = present(object, &["spec", "distinguisherMethod"])
        && !DISTINGUISHERS.contains(&object::string(method, &["type"]))
    {
        let shown = internal::shown(method, "io.k8s.api.flowcontrol.v1.FlowDistinguisherMethod");
        errors.push(not_supported_as(
            &path.child("distinguisherMethod").child("type"),
            &shown,
            &DISTINGUISHERS,
        ));
    }
    let path_level = path.child("priorityLevelConfiguration").child("name");
    match object::string(object, &["spec", "priorityLevelConfiguration", "name"]) {
        "" => errors.push(Error::required(&path_level, "must reference a priority level")),
        level => errors.extend(invalid_each(&path_level, level, names::dns1123_subdomain(level))),
    }
    for (i, rule) in object::list(object, &["spec", "rules"]).iter().enumerate() {
        validate_rule(rule, &path.child("rules").index(i), &mut errors);
    }
    errors
}

fn validate_rule(rule: &Value, path: &Path, errors: &mut ErrorList) {
    let subjects = object::list(rule, &["subjects"]);
    if subjects.is_empty() {
        errors.push(Error::required(
            &path.child("subjects"),
            "subjects must contain at least one value",
        ));
    }
    for (i, subject) in subjects.iter().enumerate() {
        validate_subject(subject, &path.child("subjects").index(i), errors);
    }
    let (resource, other) = (
        object::list(rule, &["resourceRules"]),
        object::list(rule, &["nonResourceRules"]),
    );
    if resource.is_empty() && other.is_empty() {
        let detail = "at least one of resourceRules and nonResourceRules has to be non-empty";
        errors.push(Error::required(path, detail));
    }
    for (i, rule) in resource.iter().enumerate() {
        validate_resource_rule(rule, &path.child("resourceRules").index(i), errors);
    }
    for (i, rule) in other.iter().enumerate() {
        let path = path.child("nonResourceRules").index(i);
        validate_verbs(rule, &path, errors);
        validate_urls(
            &strings(rule, &["nonResourceURLs"]),
            &path.child("nonResourceURLs"),
            errors,
        );
    }
}

fn validate_subject(subject: &Value, path: &Path, errors: &mut ErrorList) {
    let kind = object::string(subject, &["kind"]);
    let Some((_, field)) = SUBJECTS.iter().find(|(name, _)| *name == kind) else {
        errors.push(Error::not_supported(
            &path.child("kind"),
            kind,
            &SUBJECTS.map(|(name, _)| name),
        ));
        return;
    };
    match present(subject, &[field]) {
        None => {
            let detail = format!("{field} is required when subject kind is '{kind}'");
            errors.push(Error::required(&path.child(field), detail));
        }
        Some(named) => validate_named(named, kind, &path.child(field), errors),
    }
    // Upstream looks at the others in this order.
    for (other, field) in [
        ("ServiceAccount", "serviceAccount"),
        ("User", "user"),
        ("Group", "group"),
    ] {
        if other != kind && is_set(subject, &[field]) {
            let detail = format!("{field} is forbidden when subject kind is not '{other}'");
            errors.push(Error::forbidden(&path.child(field), detail));
        }
    }
}

fn validate_named(subject: &Value, kind: &str, path: &Path, errors: &mut ErrorList) {
    let (name, is_account) = (object::string(subject, &["name"]), kind == "ServiceAccount");
    if name.is_empty() {
        errors.push(Error::required(&path.child("name"), ""));
    } else if is_account && name != "*" {
        errors.extend(invalid_each(&path.child("name"), name, names::dns1123_subdomain(name)));
    }
    if !is_account {
        return;
    }
    let path = path.child("namespace");
    match object::string(subject, &["namespace"]) {
        "" => errors.push(Error::required(&path, "must specify namespace for service account")),
        namespace => errors.extend(invalid_each(&path, namespace, names::dns1123_label(namespace))),
    }
}

/// Whether a list has a wildcard, and the error if it has more than that.
fn wildcard(values: &[&str], path: &Path, others: &str, errors: &mut ErrorList) -> bool {
    let has = values.contains(&"*");
    if has && values.len() > 1 {
        let detail = format!("if '*' is present, must not specify other {others}");
        errors.push(Error::invalid(path, json!(values), detail));
    }
    has
}

fn validate_verbs(rule: &Value, path: &Path, errors: &mut ErrorList) {
    let (verbs, path) = (strings(rule, &["verbs"]), path.child("verbs"));
    if verbs.is_empty() {
        errors.push(Error::required(&path, "verbs must contain at least one value"));
    } else if !wildcard(&verbs, &path, "verbs", errors) && !verbs.iter().all(|verb| VERBS.contains(verb)) {
        errors.push(Error::not_supported(&path, json!(verbs), &VERBS));
    }
}

fn validate_resource_rule(rule: &Value, path: &Path, errors: &mut ErrorList) {
    validate_verbs(rule, path, errors);
    for (field, one, others) in [
        ("apiGroups", "api group", "api groups"),
        ("resources", "resource", "resources"),
    ] {
        let (values, path) = (strings(rule, &[field]), path.child(field));
        if values.is_empty() {
            errors.push(Error::required(
                &path,
                format!("resource rules must supply at least one {one}"),
            ));
        }
        wildcard(&values, &path, others, errors);
    }
    let (namespaces, path) = (strings(rule, &["namespaces"]), path.child("namespaces"));
    let cluster = rule.get("clusterScope").and_then(Value::as_bool).unwrap_or_default();
    if namespaces.is_empty() && !cluster {
        let detail = "resource rules that are not cluster scoped must supply at least one namespace";
        errors.push(Error::required(&path, detail));
    } else if !wildcard(&namespaces, &path, "namespaces", errors) {
        for (i, namespace) in namespaces.into_iter().enumerate() {
            let texts = names::dns1123_label(namespace).into_iter();
            let texts = texts.map(|text| format!("each member of this list must be '*' or a DNS-1123 label; {text}"));
            errors.extend(invalid_each(&path.index(i), namespace, texts.collect()));
        }
    }
}

fn validate_urls(urls: &[&str], path: &Path, errors: &mut ErrorList) {
    if urls.is_empty() {
        errors.push(Error::required(path, "nonResourceURLs must contain at least one value"));
    } else if !wildcard(urls, path, "non-resource URLs", errors) {
        let bad = urls
            .iter()
            .enumerate()
            .filter_map(|(i, url)| Some((i, url, url_error(url)?)));
        errors.extend(bad.map(|(i, url, detail)| Error::invalid(&path.index(i), *url, detail)));
    }
}

fn url_error(url: &str) -> Option<&'static str> {
    let wildcards = url.matches('*').count();
    match () {
        () if url.is_empty() => Some("must not be empty"),
        () if url == "/" => None,
        () if !url.starts_with('/') => Some("must start with slash"),
        () if url.contains(' ') => Some("must not contain white-space"),
        () if url.contains("//") => Some("must not contain double slash"),
        () if wildcards > 1 || (wildcards == 1 && !url.ends_with("/*")) => Some("wildcard can only do suffix matching"),
        () => None,
    }
}

const PRECEDENCE: &str = "`matchingPrecedence` is used to choose among the FlowSchemas that match a given request. The chosen FlowSchema is among those with the numerically lowest (which we take to be logically highest) MatchingPrecedence.  Each MatchingPrecedence value must be ranged in [1,10000]. Note that if the precedence is not specified, it will be set to 1000 as default.";
const METHOD: &str = "`distinguisherMethod` defines how to compute the flow distinguisher for requests that match this schema. `nil` specifies that the distinguisher is disabled and thus will always be the empty string.";

const COLUMNS: &[Column] = &[
    NAME,
    text(
        "PriorityLevel",
        "`name` is the name of the priority level configuration being referenced Required.",
    ),
    text("MatchingPrecedence", PRECEDENCE),
    text("DistinguisherMethod", METHOD),
    AGE,
    text(
        "MissingPL",
        "references a broken or non-existent PriorityLevelConfiguration",
    ),
];

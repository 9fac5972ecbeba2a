//! CertificateSigningRequests: who asks, what for, and the conditions that approve or deny.
//!
//! Surprise: a change of spec is not refused but ignored. Approvals change only through `approval`, the certificate only
//! through `status`, and only once.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::prelude::FromDer;

pub use super::request_pem::parse;
use super::request_pem::{validate_certificate, validate_request};
use super::request_print::{COLUMNS, state};
use super::validate_signer;
use crate::field::{Error, ErrorList, Path};
use crate::kind::check::{invalid_as, list_mut, strings};
use crate::kind::column::age;
use crate::kind::{Column, MetadataCheck, NameUse, Strategy, WriteContext};
use crate::{duration, object};

const LEGACY_SIGNER: &str = "kubernetes.io/legacy-unknown";
const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";
const MIN_SECONDS: i64 = 600;
/// Conditions that are either absent or true, and never go away.
const LASTING: [&str; 3] = ["Approved", "Denied", "Failed"];
const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

#[derive(Debug)]
pub struct SigningRequest;

impl Strategy for SigningRequest {
    fn prepare_create(&self, ctx: &WriteContext<'_>, object: &mut Value) {
        for field in ["username", "uid", "groups", "extra"] {
            object::remove(object, &["spec", field]);
        }
        let user = ctx.user;
        for (field, value) in [("username", user.name), ("uid", user.uid)] {
            if !value.is_empty() {
                object::set(object, &["spec", field], value);
            }
        }
        if !user.groups.is_empty() {
            object::set(object, &["spec", "groups"], json!(user.groups));
        }
        if !user.extra.is_empty() {
            let extra: Map<String, Value> = user
                .extra
                .iter()
                .map(|(key, values)| (key.clone(), json!(values)))
                .collect();
            object::set(object, &["spec", "extra"], extra);
        }
        object::set(object, &["status"], json!({}));
    }

    fn prepare_update(&self, ctx: &WriteContext<'_>, new: &mut Value, old: &Value) {
        match ctx.subresource {
            "status" => {
                object::copy(old, new, &["spec"]);
                preserve_conditions(new, old, "Approved");
                preserve_conditions(new, old, "Denied");
                stamp_conditions(new, old, ctx.now);
            }
            "approval" => {
                stamp_conditions(new, old, ctx.now);
                let conditions = object::remove(new, &["status", "conditions"]);
                object::copy(old, new, &["spec"]);
                object::copy(old, new, &["status"]);
                object::remove(new, &["status", "conditions"]);
                if let Some(conditions) = conditions {
                    object::set(new, &["status", "conditions"], conditions);
                }
            }
            _ => {
                object::copy(old, new, &["spec"]);
                object::copy(old, new, &["status"]);
            }
        }
    }

    fn validate(&self, _ctx: &WriteContext<'_>, object: &Value) -> ErrorList {
        validate(object, None)
    }

    fn validate_update(&self, ctx: &WriteContext<'_>, new: &Value, old: &Value) -> ErrorList {
        let mut errors = validate(new, Some(old));
        validate_changed_conditions(ctx, new, old, &mut errors);
        let certificate = |object| object::string(object, &["status", "certificate"]);
        if certificate(new) != certificate(old) {
            let path = Path::new("status").child("certificate");
            if ctx.subresource != "status" {
                errors.push(Error::forbidden(&path, "updates may not set certificate content"));
            } else if !certificate(old).is_empty() {
                errors.push(Error::forbidden(
                    &path,
                    "updates may not modify existing certificate content",
                ));
            }
        }
        errors
    }

    fn metadata_check(&self, _ctx: &WriteContext<'_>) -> MetadataCheck {
        MetadataCheck::Both
    }

    fn forbidden(&self, request: &Value) -> Option<String> {
        forbidden_subject(request)
    }

    fn name_errors(&self, _name: &str, _name_use: NameUse) -> Vec<String> {
        Vec::new()
    }

    fn selectable(&self, object: &Value) -> Vec<(&'static str, String)> {
        vec![(
            "spec.signerName",
            object::string(object, &["spec", "signerName"]).to_owned(),
        )]
    }

    fn selectable_labels(&self) -> &'static [&'static str] {
        &["spec.signerName"]
    }

    fn selector_error(&self, label: &str) -> Option<String> {
        let known = ["spec.signerName", "metadata.name"].contains(&label);
        (!known).then(|| format!("field label not supported: {label}"))
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn cells(&self, object: &Value, now: jiff::Timestamp) -> Vec<Value> {
        let signer = match object::string(object, &["spec", "signerName"]) {
            "" => "<none>",
            signer => signer,
        };
        let seconds = object::int(object, &["spec", "expirationSeconds"]);
        let requested = seconds.map_or("<none>".to_owned(), |seconds| {
            duration::human(jiff::SignedDuration::from_secs(seconds))
        });
        vec![
            object::name(object).into(),
            age(object, now),
            signer.into(),
            object::string(object, &["spec", "username"]).into(),
            requested.into(),
            state(object).into(),
        ]
    }

    fn reset_fields(&self, subresource: &str) -> &'static [&'static [&'static str]] {
        match subresource {
            "status" => &[&["spec"], &["status", "conditions"]],
            "approval" => &[&["spec"], &["status", "certificate"]],
            _ => &[&["spec"], &["status"]],
        }
    }
}

/// Why the request's subject is not for its signer, if it is not: nobody gets a client certificate of the admins' group.
pub fn forbidden_subject(request: &Value) -> Option<String> {
    if object::string(request, &["spec", "signerName"]) != CLIENT_SIGNER {
        return None;
    }
    let der = parse(request).ok()?;
    let (_, parsed) = X509CertificationRequest::from_der(&der).ok()?;
    let groups = parsed
        .certification_request_info
        .subject
        .iter_organization()
        .filter_map(|name| name.as_str().ok());
    groups
        .into_iter()
        .any(|group| group == "system:masters")
        .then(|| format!("use of {CLIENT_SIGNER} signer with system:masters group is not allowed"))
}

fn conditions(object: &Value) -> &[Value] {
    object::list(object, &["status", "conditions"])
}

pub(super) fn of_type<'a>(object: &'a Value, r#type: &str) -> Vec<&'a Value> {
    conditions(object)
        .iter()
        .filter(|one| object::string(one, &["type"]) == r#type)
        .collect()
}

/// Keeps conditions that `status` may not touch, unless their number changed, which validation refuses.
fn preserve_conditions(new: &mut Value, old: &Value, r#type: &str) {
    let kept = of_type(old, r#type);
    if of_type(new, r#type).len() != kept.len() {
        return;
    }
    let replaced = list_mut(new, &["status", "conditions"])
        .iter_mut()
        .filter(|one| object::string(one, &["type"]) == r#type);
    for (condition, kept) in replaced.zip(kept) {
        *condition = kept.clone();
    }
}

fn stamp_conditions(new: &mut Value, old: &Value, now: jiff::Timestamp) {
    let now = crate::time::now_text(now);
    for condition in list_mut(new, &["status", "conditions"]) {
        if object::string(condition, &["lastUpdateTime"]).is_empty() {
            object::set(condition, &["lastUpdateTime"], now.as_str());
        }
        if object::string(condition, &["lastTransitionTime"]).is_empty() {
            let same = |one: &&Value| {
                ["type", "status"]
                    .iter()
                    .all(|field| object::string(one, &[field]) == object::string(condition, &[field]))
            };
            let since = conditions(old)
                .iter()
                .filter(same)
                .map(|one| object::string(one, &["lastTransitionTime"]));
            let since = since
                .into_iter()
                .find(|time| !time.is_empty())
                .unwrap_or(&now)
                .to_owned();
            object::set(condition, &["lastTransitionTime"], since);
        }
    }
}

/// `old` is what the request was; what it already got wrong stays allowed.
fn validate(object: &Value, old: Option<&Value>) -> ErrorList {
    let mut errors = ErrorList::new();
    let spec = Path::new("spec");
    if let Err(detail) = validate_request(object) {
        let shown = object::get(object, &["spec", "request"]).unwrap_or(&Value::Null);
        errors.push(invalid_as(&spec.child("request"), &shown.to_string(), &detail));
    }
    validate_usages(object, old, &spec.child("usages"), &mut errors);
    let signer = object::string(object, &["spec", "signerName"]);
    let was_legacy = old.is_some_and(|old| object::string(old, &["spec", "signerName"]) == LEGACY_SIGNER);
    if signer == LEGACY_SIGNER && !was_legacy {
        let detail = "the legacy signerName is not allowed via this API version";
        errors.push(Error::invalid(&spec.child("signerName"), signer, detail));
    } else {
        errors.extend(validate_signer(signer, &spec.child("signerName")));
    }
    if let Some(seconds) = object::int(object, &["spec", "expirationSeconds"]).filter(|seconds| *seconds < MIN_SECONDS)
    {
        let detail = "may not specify a duration less than 600 seconds (10 minutes)";
        errors.push(Error::invalid(&spec.child("expirationSeconds"), seconds, detail));
    }
    validate_conditions(object, old, &mut errors);
    let certificate = |object| object::string(object, &["status", "certificate"]);
    let tolerated = old
        .is_some_and(|old| certificate(old) == certificate(object) || validate_certificate(certificate(old)).is_err());
    if !tolerated && let Err(detail) = validate_certificate(certificate(object)) {
        errors.push(Error::invalid(
            &Path::new("status").child("certificate"),
            "<certificate data>",
            detail,
        ));
    }
    errors
}

fn validate_usages(object: &Value, old: Option<&Value>, path: &Path, errors: &mut ErrorList) {
    let usages = strings(object, &["spec", "usages"]);
    if usages.is_empty() {
        errors.push(Error::required(path, ""));
    }
    let before = old.map(|old| strings(old, &["spec", "usages"])).unwrap_or_default();
    if before.iter().all(|usage| USAGES.contains(usage)) {
        for (i, usage) in usages.iter().enumerate().filter(|(_, usage)| !USAGES.contains(usage)) {
            errors.push(Error::not_supported(&path.index(i), *usage, &USAGES));
        }
    }
    if repeated(&before).is_empty() {
        errors.extend(
            repeated(&usages)
                .into_iter()
                .map(|i| Error::duplicate(&path.index(i), usages[i])),
        );
    }
}

/// The places of what stood before already.
fn repeated(values: &[&str]) -> Vec<usize> {
    let mut seen = BTreeSet::new();
    (0..values.len()).filter(|i| !seen.insert(values[*i])).collect()
}

fn condition_types(object: &Value) -> Vec<&str> {
    conditions(object)
        .iter()
        .map(|one| object::string(one, &["type"]))
        .collect()
}

fn validate_conditions(object: &Value, old: Option<&Value>, errors: &mut ErrorList) {
    let path = Path::new("status").child("conditions");
    let before = old.map(condition_types).unwrap_or_default();
    let both = ["Approved", "Denied"];
    let had_both = both.iter().all(|r#type| before.contains(r#type));
    let mut seen = BTreeSet::new();
    for (i, condition) in conditions(object).iter().enumerate() {
        let (path_i, r#type) = (path.index(i), object::string(condition, &["type"]));
        if r#type.is_empty() && !before.contains(&"") {
            errors.push(Error::required(&path_i.child("type"), ""));
        }
        let allowed: &[&str] = if LASTING.contains(&r#type) {
            &["True"]
        } else {
            &["False", "True", "Unknown"]
        };
        match object::string(condition, &["status"]) {
            "" => errors.push(Error::required(&path_i.child("status"), "")),
            status if !allowed.contains(&status) => {
                errors.push(Error::not_supported(&path_i.child("status"), status, allowed));
            }
            _ => {}
        }
        let excluded = both.contains(&r#type) && both.iter().any(|other| *other != r#type && seen.contains(other));
        if excluded && !had_both {
            let detail = "Approved and Denied conditions are mutually exclusive";
            errors.push(Error::invalid(&path, r#type, detail));
        }
        if !seen.insert(r#type) && repeated(&before).is_empty() {
            errors.push(Error::duplicate(&path_i.child("type"), r#type));
        }
    }
}

fn validate_changed_conditions(ctx: &WriteContext<'_>, new: &Value, old: &Value, errors: &mut ErrorList) {
    let path = Path::new("status").child("conditions");
    for r#type in LASTING {
        if of_type(new, r#type).len() < of_type(old, r#type).len() {
            let detail = format!("updates may not remove a condition of type \"{type}\"", r#type = r#type);
            errors.push(Error::forbidden(&path, detail));
        }
    }
    if ctx.subresource == "approval" {
        return;
    }
    for r#type in ["Approved", "Denied"] {
        let (new, old) = (of_type(new, r#type), of_type(old, r#type));
        let verb = match new.len().cmp(&old.len()) {
            std::cmp::Ordering::Greater => "add",
            std::cmp::Ordering::Equal if new != old => "modify",
            _ => continue,
        };
        let detail = format!("updates may not {verb} a condition of type \"{type}\"", r#type = r#type);
        errors.push(Error::forbidden(&path, detail));
    }
}

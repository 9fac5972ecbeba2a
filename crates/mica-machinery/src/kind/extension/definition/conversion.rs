//! How objects of a definition are converted between its versions.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::field::{Error, ErrorList, Path};
use crate::kind::check::{invalid_each, one_of, present, strings};
use crate::kind::{condition, webhook};
use crate::{names, object};

const REVIEW_VERSIONS: [&str; 2] = ["v1", "v1beta1"];

pub(super) fn validate_conversion(object: &Value, old: Option<&Value>, path: &Path, errors: &mut ErrorList) {
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

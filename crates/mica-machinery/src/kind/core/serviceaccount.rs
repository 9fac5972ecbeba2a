//! Service accounts, and the requests for their tokens.

use serde_json::{Value, json};

use crate::field::{Error, ErrorList, Path};
use crate::kind::check::{list_mut, set_default_pointer};
use crate::kind::column::{AGE, NAME, age};
use crate::kind::{Column, MetadataCheck, NameUse, Strategy, WriteContext};
use crate::{names, object};

const ENFORCE_MOUNTABLE: &str = "kubernetes.io/enforce-mountable-secrets";
const MIN_TOKEN_SECONDS: i64 = 10 * 60;
const MAX_TOKEN_SECONDS: i64 = 1 << 32;

#[derive(Debug)]
pub struct ServiceAccount;

impl Strategy for ServiceAccount {
    fn prepare_create(&self, _ctx: &WriteContext<'_>, object: &mut Value) {
        keep_names_of_secrets(object);
    }

    fn prepare_update(&self, _ctx: &WriteContext<'_>, new: &mut Value, _old: &Value) {
        keep_names_of_secrets(new);
    }

    fn warnings(&self, _ctx: &WriteContext<'_>, new: &Value, old: Option<&Value>) -> Vec<String> {
        let enforces = |object| object::get(object, &["metadata", "annotations", ENFORCE_MOUNTABLE]).is_some();
        if old.is_some_and(enforces) || !enforces(new) {
            return Vec::new();
        }
        let advice = "deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets";
        vec![format!("metadata.annotations[{ENFORCE_MOUNTABLE}]: {advice}")]
    }

    fn metadata_check(&self, _ctx: &WriteContext<'_>) -> MetadataCheck {
        MetadataCheck::ChangeThenWhole
    }

    fn name_errors(&self, name: &str, name_use: NameUse) -> Vec<String> {
        names::name_is_dns_subdomain(name, name_use)
    }

    fn columns(&self) -> &'static [Column] {
        const COLUMNS: &[Column] = &[NAME, AGE];
        COLUMNS
    }

    fn cells(&self, object: &Value, now: jiff::Timestamp) -> Vec<Value> {
        vec![object::name(object).into(), age(object, now)]
    }

    fn returns_deleted(&self) -> bool {
        true
    }
}

/// Of references to secrets only the name counts; upstream drops the rest silently.
fn keep_names_of_secrets(object: &mut Value) {
    for secret in list_mut(object, &["secrets"]) {
        *secret = match object::string(secret, &["name"]) {
            "" => json!({}),
            name => json!({"name": name}),
        };
    }
}

/// Fills in a TokenRequest (`authentication.k8s.io/v1`): tokens live for an hour.
pub fn default_token_request(request: &mut Value) {
    set_default_pointer(request, &["spec", "expirationSeconds"], 60 * 60);
}

/// What is wrong with a TokenRequest.
pub fn validate_token_request(request: &Value) -> ErrorList {
    let seconds = object::int(request, &["spec", "expirationSeconds"]).unwrap_or_default();
    let path = Path::new("spec").child("expirationSeconds");
    let mut errors = ErrorList::new();
    if seconds < MIN_TOKEN_SECONDS {
        errors.push(Error::invalid(
            &path,
            seconds,
            "may not specify a duration less than 10 minutes",
        ));
    }
    if seconds > MAX_TOKEN_SECONDS {
        errors.push(Error::invalid(
            &path,
            seconds,
            "may not specify a duration larger than 2^32 seconds",
        ));
    }
    errors
}

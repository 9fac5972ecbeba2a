//! Secrets: what each type must hold, `stringData`, size and immutability.
//!
//! Surprise: `stringData` is write-only and is merged into `data` while decoding, so managed fields record it as `data`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::field::{Error, ErrorList, Path};
use crate::kind::check::{entries, immutable_string, invalid_each, same, set_default};
use crate::kind::column::{AGE, NAME, age, text};
use crate::kind::{Column, MetadataCheck, NameUse, Strategy, WriteContext, pem};
use crate::{codec, names, object};

/// All data of a secret or a configmap together, decoded.
pub(super) const MAX_DATA_BYTES: usize = 1024 * 1024;
pub(super) const IMMUTABLE_DATA: &str = "field is immutable when `immutable` is set";
const SERVICE_ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";

#[derive(Debug)]
pub struct Secret;

impl Strategy for Secret {
    fn default(&self, object: &mut Value) {
        if let Some(Value::Object(strings)) = object::remove(object, &["stringData"]) {
            for (key, value) in strings {
                let encoded = STANDARD.encode(value.as_str().unwrap_or_default());
                object::set(object, &["data", &key], encoded);
            }
        }
        set_default(object, &["type"], "Opaque");
    }

    fn prepare_update(&self, _ctx: &WriteContext<'_>, new: &mut Value, old: &Value) {
        if object::string(new, &["type"]).is_empty() {
            object::copy(old, new, &["type"]);
        }
    }

    fn validate(&self, _ctx: &WriteContext<'_>, object: &Value) -> ErrorList {
        validate(object)
    }

    fn validate_update(&self, _ctx: &WriteContext<'_>, new: &Value, old: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        immutable_string(new, old, &["type"], &Path::new("type"), &mut errors);
        if is_immutable(old) {
            if !is_immutable(new) {
                errors.push(Error::forbidden(&Path::new("immutable"), IMMUTABLE_DATA));
            }
            if !same(new.get("data"), old.get("data")) {
                errors.push(Error::forbidden(&Path::new("data"), IMMUTABLE_DATA));
            }
        }
        errors.extend(validate(new));
        errors
    }

    fn warnings(&self, _ctx: &WriteContext<'_>, new: &Value, _old: Option<&Value>) -> Vec<String> {
        if object::string(new, &["type"]) != "kubernetes.io/tls" {
            return Vec::new();
        }
        let data = |key| decoded(new, key).unwrap_or_default();
        pem::key_pair_error(&data("tls.crt"), &data("tls.key"))
            .into_iter()
            .collect()
    }

    fn metadata_check(&self, _ctx: &WriteContext<'_>) -> MetadataCheck {
        MetadataCheck::ChangeThenWhole
    }

    fn name_errors(&self, name: &str, name_use: NameUse) -> Vec<String> {
        names::name_is_dns_subdomain(name, name_use)
    }

    fn selectable(&self, object: &Value) -> Vec<(&'static str, String)> {
        vec![("type", object::string(object, &["type"]).to_owned())]
    }

    fn selectable_labels(&self) -> &'static [&'static str] {
        &["type"]
    }

    fn columns(&self) -> &'static [Column] {
        const TYPE: &str = "Used to facilitate programmatic handling of secret data. More info: https://kubernetes.io/docs/concepts/configuration/secret/#secret-types";
        const DATA: &str = "Data contains the secret data. Each key must consist of alphanumeric characters, '-', '_' or '.'. The serialized form of the secret data is a base64 encoded string, representing the arbitrary (possibly non-string) data value here. Described in https://tools.ietf.org/html/rfc4648#section-4";
        const COLUMNS: &[Column] = &[NAME, text("Type", TYPE), text("Data", DATA), AGE];
        COLUMNS
    }

    fn cells(&self, object: &Value, now: jiff::Timestamp) -> Vec<Value> {
        let count = entries(object, &["data"]).count();
        let r#type = object::string(object, &["type"]);
        vec![
            object::name(object).into(),
            r#type.into(),
            json!(count),
            age(object, now),
        ]
    }
}

/// Whether an object's data may not change any more.
pub(super) fn is_immutable(object: &Value) -> bool {
    object.get("immutable").and_then(Value::as_bool).unwrap_or_default()
}

/// How many bytes a base64 text holds.
pub(super) fn base64_len(value: &Value) -> usize {
    let text = value.as_str().unwrap_or_default();
    let padding = text.bytes().rev().take_while(|c| *c == b'=').count();
    (text.len() / 4 * 3).saturating_sub(padding)
}

fn decoded(object: &Value, key: &str) -> Option<Vec<u8>> {
    let text = object::get(object, &["data", key])?.as_str()?;
    STANDARD.decode(text).ok()
}

fn validate(object: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("data");
    let mut bytes = 0;
    for (key, value) in entries(object, &["data"]) {
        errors.extend(invalid_each(&path.key(key), key, names::config_map_key(key)));
        bytes += base64_len(value);
    }
    if bytes > MAX_DATA_BYTES {
        errors.push(Error::too_long(&path, MAX_DATA_BYTES));
    }
    validate_type(object, &path, &mut errors);
    errors
}

fn validate_type(object: &Value, path: &Path, errors: &mut ErrorList) {
    let missing = |key: &str| object::get(object, &["data", key]).is_none();
    let mut require = |key: &str| errors.push(Error::required(&path.key(key), ""));
    match object::string(object, &["type"]) {
        "kubernetes.io/service-account-token"
            if object::string(object, &["metadata", "annotations", SERVICE_ACCOUNT_NAME]).is_empty() =>
        {
            let path = Path::new("metadata").child("annotations").key(SERVICE_ACCOUNT_NAME);
            errors.push(Error::required(&path, ""));
        }
        "kubernetes.io/dockercfg" => errors.extend(validate_json(object, path, ".dockercfg")),
        "kubernetes.io/dockerconfigjson" => errors.extend(validate_json(object, path, ".dockerconfigjson")),
        "kubernetes.io/basic-auth" if missing("username") && missing("password") => {
            require("username");
            require("password");
        }
        "kubernetes.io/ssh-auth" if object::string(object, &["data", "ssh-privatekey"]).is_empty() => {
            require("ssh-privatekey");
        }
        "kubernetes.io/tls" => ["tls.crt", "tls.key"]
            .into_iter()
            .filter(|key| missing(key))
            .for_each(require),
        _ => {}
    }
}

fn validate_json(object: &Value, path: &Path, key: &str) -> Option<Error> {
    let path = path.key(key);
    let Some(text) = decoded(object, key) else {
        return Some(Error::required(&path, ""));
    };
    let error = codec::decode_object(&text).err()?;
    Some(Error::invalid(&path, "<secret contents redacted>", error.to_string()))
}

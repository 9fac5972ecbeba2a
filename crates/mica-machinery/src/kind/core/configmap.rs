//! ConfigMaps: keys, size and immutability.

use serde_json::{Value, json};

use super::secret::{IMMUTABLE_DATA, MAX_DATA_BYTES, base64_len, is_immutable};
use crate::field::{Error, ErrorList, Path};
use crate::kind::check::{entries, invalid_each, same};
use crate::kind::column::{AGE, NAME, age, text};
use crate::kind::{Column, MetadataCheck, NameUse, Strategy, WriteContext};
use crate::{names, object};

#[derive(Debug)]
pub struct ConfigMap;

impl Strategy for ConfigMap {
    fn validate(&self, _ctx: &WriteContext<'_>, object: &Value) -> ErrorList {
        validate(object)
    }

    fn validate_update(&self, _ctx: &WriteContext<'_>, new: &Value, old: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        if is_immutable(old) {
            if !is_immutable(new) {
                errors.push(Error::forbidden(&Path::new("immutable"), IMMUTABLE_DATA));
            }
            for field in ["data", "binaryData"] {
                if !same(new.get(field), old.get(field)) {
                    errors.push(Error::forbidden(&Path::new(field), IMMUTABLE_DATA));
                }
            }
        }
        errors.extend(validate(new));
        errors
    }

    fn metadata_check(&self, _ctx: &WriteContext<'_>) -> MetadataCheck {
        MetadataCheck::ChangeThenWhole
    }

    fn name_errors(&self, name: &str, name_use: NameUse) -> Vec<String> {
        names::name_is_dns_subdomain(name, name_use)
    }

    fn columns(&self) -> &'static [Column] {
        const DATA: &str = "Data contains the configuration data. Each key must consist of alphanumeric characters, '-', '_' or '.'. Values with non-UTF-8 byte sequences must use the BinaryData field. The keys stored in Data must not overlap with the keys in the BinaryData field, this is enforced during validation process.";
        const COLUMNS: &[Column] = &[NAME, text("Data", DATA), AGE];
        COLUMNS
    }

    fn cells(&self, object: &Value, now: jiff::Timestamp) -> Vec<Value> {
        let count = entries(object, &["data"]).count() + entries(object, &["binaryData"]).count();
        vec![object::name(object).into(), json!(count), age(object, now)]
    }
}

fn validate(object: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let mut bytes = 0;
    let binary = object::map(object, &["binaryData"]);
    for (key, value) in entries(object, &["data"]) {
        let path = Path::new("data").key(key);
        errors.extend(invalid_each(&path, key, names::config_map_key(key)));
        if binary.is_some_and(|binary| binary.contains_key(key)) {
            errors.push(Error::invalid(&path, key, "duplicate of key present in binaryData"));
        }
        bytes += value.as_str().map_or(0, str::len);
    }
    for (key, value) in entries(object, &["binaryData"]) {
        errors.extend(invalid_each(
            &Path::new("binaryData").key(key),
            key,
            names::config_map_key(key),
        ));
        bytes += base64_len(value);
    }
    if bytes > MAX_DATA_BYTES {
        // Upstream means the whole object, and its path of an empty name prints so.
        errors.push(Error::too_long(&Path::new("[]"), MAX_DATA_BYTES));
    }
    errors
}

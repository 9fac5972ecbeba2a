//! Label keys and values, annotations, and the maps of them in an object's metadata.

use serde_json::Value;

use super::{SUBDOMAIN_FMT, SUBDOMAIN_TEXT, framed, is_subdomain, regex_error};
use crate::field::{Error, ErrorList, Path};

const KEY_FMT: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const KEY_TEXT: &str =
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
const VALUE_TEXT: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
const KEY_EXAMPLES: [&str; 3] = ["MyName", "my.name", "123-abc"];
const NAME_MAX: usize = 63;
const VALUE_MAX: usize = 63;
const PREFIX_MAX: usize = 253;

/// All keys and values of an object's annotations together.
pub const TOTAL_ANNOTATION_BYTES: usize = 256 * 1024;

/// What upstream calls a qualified name: finalizers, condition types, annotation keys.
pub fn qualified_name(value: &str) -> Vec<String> {
    label_key(value)
}

/// An optional DNS prefix and a slash, then a name.
pub fn label_key(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    let name = match value.split_once('/') {
        None => value,
        Some((_, rest)) if rest.contains('/') => {
            return vec![format!(
                "a valid label key {} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
                regex_error(KEY_TEXT, KEY_FMT, &KEY_EXAMPLES)
            )];
        }
        Some((prefix, name)) => {
            prefix_errors(prefix, &mut errors);
            name
        }
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".to_owned());
    } else if name.len() > NAME_MAX {
        errors.push(format!("name part must be no more than {NAME_MAX} bytes"));
    }
    if !is_key_name(name) {
        errors.push(format!("name part {}", regex_error(KEY_TEXT, KEY_FMT, &KEY_EXAMPLES)));
    }
    errors
}

fn prefix_errors(prefix: &str, errors: &mut Vec<String>) {
    if prefix.is_empty() {
        errors.push("prefix part must be non-empty".to_owned());
        return;
    }
    if prefix.len() > PREFIX_MAX {
        errors.push(format!("prefix part must be no more than {PREFIX_MAX} bytes"));
    }
    if !is_subdomain(prefix) {
        errors.push(format!(
            "prefix part {}",
            regex_error(SUBDOMAIN_TEXT, SUBDOMAIN_FMT, &["example.com"])
        ));
    }
}

pub fn label_value(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > VALUE_MAX {
        errors.push(format!("must be no more than {VALUE_MAX} bytes"));
    }
    if !value.is_empty() && !is_key_name(value) {
        let regex = format!("({KEY_FMT})?");
        errors.push(regex_error(VALUE_TEXT, &regex, &["MyValue", "my_value", "12345"]));
    }
    errors
}

/// The errors of a map of labels; keys in sorted order (upstream: any order).
pub fn label_errors(labels: &Value, path: &Path) -> ErrorList {
    let mut errors = ErrorList::new();
    for (key, value) in labels.as_object().into_iter().flatten() {
        errors.extend(
            label_key(key)
                .into_iter()
                .map(|text| Error::invalid(path, key.as_str(), text)),
        );
        let value = value.as_str().unwrap_or_default();
        errors.extend(
            label_value(value)
                .into_iter()
                .map(|text| Error::invalid(path, value, text)),
        );
    }
    errors
}

/// The errors of a map of annotations. Keys may have upper case in their prefix, unlike labels.
pub fn annotation_errors(annotations: &Value, path: &Path) -> ErrorList {
    let mut errors = ErrorList::new();
    let mut bytes = 0;
    for (key, value) in annotations.as_object().into_iter().flatten() {
        bytes += key.len() + value.as_str().map_or(0, str::len);
        if plain_annotation_key(key) {
            continue;
        }
        let texts = label_key(&key.to_lowercase());
        errors.extend(texts.into_iter().map(|text| Error::invalid(path, key.as_str(), text)));
    }
    if bytes > TOTAL_ANNOTATION_BYTES {
        errors.push(Error::too_long(path, TOTAL_ANNOTATION_BYTES));
    }
    errors
}

/// Whether a key is good as it stands, so that no lower-case copy is needed.
fn plain_annotation_key(key: &str) -> bool {
    !key.bytes().any(|c| c.is_ascii_uppercase() || !c.is_ascii()) && label_key(key).is_empty()
}

fn is_key_name(name: &str) -> bool {
    let alphanumeric = |c: u8| c.is_ascii_alphanumeric();
    framed(
        name,
        alphanumeric,
        |c| alphanumeric(c) || b"-_.".contains(&c),
        alphanumeric,
    )
}

//! What may be a name, a key, a label, a port: upstream's format checks, each with the sentences clients see.
//!
//! A check returns what is wrong, nothing if all is well (an empty `Vec` does not allocate).
//! Surprise: length limits speak of "characters" for names and of "bytes" for label keys and values, because upstream
//! has two sets of the same functions; both are kept apart here on purpose.

mod ip;
mod label;
#[cfg(test)]
mod tests;

use crate::field::{Error, ErrorList, Path};
use crate::kind::NameUse;

pub use ip::{
    Cidr, cidr_errors, cidr_errors_legacy, cidr_warnings, interface_address_errors, ip_errors, ip_errors_legacy,
    ip_warnings, parse_cidr_sloppy, parse_ip_sloppy,
};
pub use label::{TOTAL_ANNOTATION_BYTES, annotation_errors, label_errors, label_key, label_value, qualified_name};

pub const DNS1123_LABEL_MAX: usize = 63;
pub const DNS1123_SUBDOMAIN_MAX: usize = 253;
pub const DNS1035_LABEL_MAX: usize = 63;

const LABEL_FMT: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const LABEL_TEXT: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character";
const SUBDOMAIN_FMT: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const SUBDOMAIN_TEXT: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character";
const UNDERSCORE_FMT: &str = r"_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*";
const UNDERSCORE_TEXT: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must start and end with an alphanumeric character";
const DNS1035_FMT: &str = "[a-z]([-a-z0-9]*[a-z0-9])?";
const DNS1035_TEXT: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character";
const WILDCARD_FMT: &str = r"\*\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const WILDCARD_TEXT: &str = "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character";

/// A name that is a DNS subdomain, the rule of most kinds.
pub fn name_is_dns_subdomain(name: &str, name_use: NameUse) -> Vec<String> {
    dns1123_subdomain(&masked(name, name_use))
}

/// A name that is one DNS label, the rule of namespaces.
pub fn name_is_dns_label(name: &str, name_use: NameUse) -> Vec<String> {
    dns1123_label(&masked(name, name_use))
}

/// A name that is an RFC 1035 label, the rule of services.
pub fn name_is_dns1035_label(name: &str, name_use: NameUse) -> Vec<String> {
    dns1035_label(&masked(name, name_use))
}

/// A name that only has to fit into a URL, the rule of RBAC.
pub fn name_is_path_segment(name: &str, name_use: NameUse) -> Vec<String> {
    match name_use {
        NameUse::Name => path_segment_name(name),
        NameUse::Prefix => path_segment_prefix(name),
    }
}

/// A prefix may end in a dash, so the end is masked before the name rule looks at it.
///
/// Upstream cuts two characters, not one: the character before the dash is never checked.
fn masked(name: &str, name_use: NameUse) -> std::borrow::Cow<'_, str> {
    if name_use == NameUse::Prefix && name.len() > 1 && name.ends_with('-') {
        // What is not ASCII fails every name rule, masked or not.
        if let Some(kept) = name.get(..name.len() - 2) {
            return format!("{kept}a").into();
        }
    }
    name.into()
}

pub fn dns1123_label(value: &str) -> Vec<String> {
    let mut errors = too_long_characters(value, DNS1123_LABEL_MAX);
    if !is_label(value) {
        errors.push(if is_subdomain(value) {
            "must not contain dots".to_owned()
        } else {
            regex_error(LABEL_TEXT, LABEL_FMT, &["my-name", "123-abc"])
        });
    }
    errors
}

pub fn dns1123_subdomain(value: &str) -> Vec<String> {
    let mut errors = too_long_characters(value, DNS1123_SUBDOMAIN_MAX);
    if !is_subdomain(value) {
        errors.push(regex_error(SUBDOMAIN_TEXT, SUBDOMAIN_FMT, &["example.com"]));
    }
    errors
}

/// As [`dns1123_subdomain`], with underscores inside and at the start of each label.
pub fn dns1123_subdomain_with_underscore(value: &str) -> Vec<String> {
    let label = |label: &str| {
        let label = label.strip_prefix('_').unwrap_or(label);
        framed(
            label,
            lower_alphanumeric,
            |c| lower_alphanumeric(c) || c == b'-' || c == b'_',
            lower_alphanumeric,
        )
    };
    let mut errors = too_long_characters(value, DNS1123_SUBDOMAIN_MAX);
    if !value.split('.').all(label) {
        errors.push(regex_error(UNDERSCORE_TEXT, UNDERSCORE_FMT, &["example.com"]));
    }
    errors
}

pub fn dns1035_label(value: &str) -> Vec<String> {
    let mut errors = too_long_characters(value, DNS1035_LABEL_MAX);
    if !framed(value, |c| c.is_ascii_lowercase(), label_byte, lower_alphanumeric) {
        errors.push(regex_error(DNS1035_TEXT, DNS1035_FMT, &["my-name", "abc-123"]));
    }
    errors
}

pub fn wildcard_dns1123_subdomain(value: &str) -> Vec<String> {
    let mut errors = too_long_characters(value, DNS1123_SUBDOMAIN_MAX);
    if !value.strip_prefix("*.").is_some_and(is_subdomain) {
        errors.push(regex_error(WILDCARD_TEXT, WILDCARD_FMT, &["*.example.com"]));
    }
    errors
}

/// A domain of at least two labels, a trailing dot allowed.
pub fn fully_qualified_domain_name(path: &Path, name: &str) -> ErrorList {
    if name.is_empty() {
        return vec![Error::required(path, "")];
    }
    let name = name.strip_suffix('.').unwrap_or(name);
    let errors = dns1123_subdomain(name);
    if !errors.is_empty() {
        return vec![Error::invalid(path, name, errors.join(","))];
    }
    if !name.contains('.') {
        return vec![Error::invalid(
            path,
            name,
            "should be a domain with at least two segments separated by dots",
        )];
    }
    for label in name.split('.') {
        let errors = dns1123_label(label);
        if !errors.is_empty() {
            return vec![Error::invalid(path, label, errors.join(","))];
        }
    }
    ErrorList::new()
}

/// A domain of at least three labels: signer names' hosts, webhook names.
pub fn fully_qualified_name(path: &Path, name: &str) -> ErrorList {
    if name.is_empty() {
        return vec![Error::required(path, "")];
    }
    let errors = dns1123_subdomain(name);
    if !errors.is_empty() {
        return vec![Error::invalid(path, name, errors.join(","))];
    }
    if name.split('.').count() < 3 {
        return vec![Error::invalid(
            path,
            name,
            "should be a domain with at least three segments separated by dots",
        )];
    }
    ErrorList::new()
}

/// `acme.io/foo`: a subdomain, a slash and anything that may stand in a URL's path.
pub fn domain_prefixed_path(path: &Path, value: &str) -> ErrorList {
    const FMT: &str = "[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+";
    if value.is_empty() {
        return vec![Error::required(path, "")];
    }
    let Some((host, rest)) = value
        .split_once('/')
        .filter(|(host, rest)| !host.is_empty() && !rest.is_empty())
    else {
        return vec![Error::invalid(
            path,
            value,
            "must be a domain-prefixed path (such as \"acme.io/foo\")",
        )];
    };
    let mut errors: ErrorList = dns1123_subdomain(host)
        .into_iter()
        .map(|text| Error::invalid(path, host, text))
        .collect();
    if !rest
        .bytes()
        .all(|c| c.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&c))
    {
        errors.push(Error::invalid(path, rest, regex_error("Invalid path", FMT, &[])));
    }
    errors
}

/// `acme.io/foo`: a label key that has a prefix.
pub fn domain_prefixed_key(path: &Path, key: &str) -> ErrorList {
    if key.is_empty() {
        return vec![Error::required(path, "")];
    }
    let errors: ErrorList = label_key(key)
        .into_iter()
        .map(|text| Error::invalid(path, key, text))
        .collect();
    if errors.is_empty() && key.split('/').count() != 2 {
        return vec![Error::invalid(
            path,
            key,
            "must be a domain-prefixed key (such as \"acme.io/foo\")",
        )];
    }
    errors
}

/// What may be one segment of a URL's path. Says nothing about empty or long ones.
pub fn path_segment_name(name: &str) -> Vec<String> {
    match name {
        "." | ".." => vec![format!("may not be '{name}'")],
        _ => path_segment_prefix(name),
    }
}

pub fn path_segment_prefix(name: &str) -> Vec<String> {
    ["/", "%"]
        .iter()
        .filter(|bad| name.contains(**bad))
        .map(|bad| format!("may not contain '{bad}'"))
        .collect()
}

/// A key of a ConfigMap or a Secret: a file's name.
pub fn config_map_key(value: &str) -> Vec<String> {
    let mut errors = too_long_characters(value, DNS1123_SUBDOMAIN_MAX);
    if value.is_empty() || !value.bytes().all(|c| c.is_ascii_alphanumeric() || b"-._".contains(&c)) {
        let text = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'";
        errors.push(regex_error(
            text,
            "[-._a-zA-Z0-9]+",
            &["key.name", "KEY_NAME", "key-name"],
        ));
    }
    errors.extend(parent_directory(value));
    errors
}

pub fn env_var_name(value: &str) -> Vec<String> {
    const TEXT: &str = "a valid environment variable name must consist of alphabetic characters, digits, '_', '-', or '.', and must not start with a digit";
    let mut errors = Vec::new();
    let good = |c: u8| c.is_ascii_alphanumeric() || b"-._".contains(&c);
    if !(value.bytes().all(good) && value.bytes().next().is_some_and(|c| !c.is_ascii_digit())) {
        let examples = ["my.env-name", "MY_ENV.NAME", "MyEnvName1"];
        errors.push(regex_error(TEXT, "[-._a-zA-Z][-._a-zA-Z0-9]*", &examples));
    }
    errors.extend(parent_directory(value));
    errors
}

/// As [`env_var_name`] since upstream let any printable ASCII but `=` in.
pub fn relaxed_env_var_name(value: &str) -> Vec<String> {
    const TEXT: &str =
        "a valid environment variable name must consist only of printable ASCII characters other than '='";
    let mut errors = Vec::new();
    if value.is_empty() {
        errors.push("environment variable name must be non-empty".to_owned());
    }
    if !value.bytes().all(|c| (0x20..0x7f).contains(&c) && c != b'=') {
        errors.push(TEXT.to_owned());
    }
    errors
}

pub fn c_identifier(value: &str) -> Vec<String> {
    const TEXT: &str = "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters or '_'";
    let first = |c: u8| c.is_ascii_alphabetic() || c == b'_';
    if value.bytes().next().is_some_and(first) && value.bytes().all(|c| first(c) || c.is_ascii_digit()) {
        return Vec::new();
    }
    vec![regex_error(
        TEXT,
        "[A-Za-z_][A-Za-z0-9_]*",
        &["my_name", "MY_NAME", "MyName"],
    )]
}

pub fn port_number(port: i64) -> Vec<String> {
    in_range(port, 1, 65535)
}

pub fn port_name(port: &str) -> Vec<String> {
    let mut errors = too_long_characters(port, 15);
    let mut refuse = |bad: bool, text: &str| {
        if bad {
            errors.push(text.to_owned());
        }
    };
    let charset = !port.is_empty() && port.bytes().all(label_byte);
    refuse(
        !charset,
        "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
    );
    refuse(
        !port.bytes().any(|c| c.is_ascii_lowercase()),
        "must contain at least one letter (a-z)",
    );
    refuse(port.contains("--"), "must not contain consecutive hyphens");
    refuse(
        port.starts_with('-') || port.ends_with('-'),
        "must not begin or end with a hyphen",
    );
    errors
}

pub fn percent(value: &str) -> Vec<String> {
    let digits = value.strip_suffix('%').unwrap_or_default();
    if !digits.is_empty() && digits.bytes().all(|c| c.is_ascii_digit()) {
        return Vec::new();
    }
    let text = "a valid percent string must be a numeric string followed by an ending '%'";
    vec![regex_error(text, "[0-9]+%", &["1%", "93%"])]
}

pub fn http_header_name(value: &str) -> Vec<String> {
    if !value.is_empty() && value.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-') {
        return Vec::new();
    }
    let text = "a valid HTTP header must consist of alphanumeric characters or '-'";
    vec![regex_error(text, "[-A-Za-z0-9]+", &["X-Header-Name"])]
}

pub fn in_range(value: i64, min: i64, max: i64) -> Vec<String> {
    if (min..=max).contains(&value) {
        Vec::new()
    } else {
        vec![inclusive_range_error(min, max)]
    }
}

/// A Unix user or group id.
pub fn unix_id(id: i64) -> Vec<String> {
    in_range(id, 0, i64::from(i32::MAX))
}

pub fn inclusive_range_error(min: i64, max: i64) -> String {
    format!("must be between {min} and {max}, inclusive")
}

pub fn non_negative(value: i64, path: &Path) -> ErrorList {
    if value < 0 {
        return vec![Error::invalid(path, value, "must be greater than or equal to 0")];
    }
    ErrorList::new()
}

/// The sentence of a value that no regular expression let pass.
pub fn regex_error(text: &str, regex: &str, examples: &[&str]) -> String {
    if examples.is_empty() {
        return format!("{text} (regex used for validation is '{regex}')");
    }
    let quoted: Vec<String> = examples.iter().map(|example| format!("'{example}', ")).collect();
    format!(
        "{text} (e.g. {}regex used for validation is '{regex}')",
        quoted.join(" or ")
    )
}

pub fn max_length_error(characters: usize) -> String {
    format!("must be no more than {characters} characters")
}

fn too_long_characters(value: &str, max: usize) -> Vec<String> {
    if value.len() > max {
        vec![max_length_error(max)]
    } else {
        Vec::new()
    }
}

fn parent_directory(value: &str) -> Option<String> {
    match value {
        "." | ".." => Some(format!("must not be '{value}'")),
        _ if value.starts_with("..") => Some("must not start with '..'".to_owned()),
        _ => None,
    }
}

fn is_label(value: &str) -> bool {
    framed(value, lower_alphanumeric, label_byte, lower_alphanumeric)
}

fn is_subdomain(value: &str) -> bool {
    value.split('.').all(is_label)
}

fn lower_alphanumeric(c: u8) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit()
}

fn label_byte(c: u8) -> bool {
    lower_alphanumeric(c) || c == b'-'
}

/// Not empty, with the first, every, and the last byte as asked.
fn framed(value: &str, first: impl Fn(u8) -> bool, every: impl Fn(u8) -> bool, last: impl Fn(u8) -> bool) -> bool {
    match value.as_bytes() {
        [] => false,
        bytes => first(bytes[0]) && last(bytes[bytes.len() - 1]) && bytes.iter().all(|c| every(*c)),
    }
}

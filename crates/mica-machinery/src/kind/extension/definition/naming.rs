//! The names of a definition, and who may use protected groups.

use serde_json::Value;

use crate::field::{Error, ErrorList, Path};
use crate::kind::NameUse;
use crate::kind::check::{invalid_each, strings};
use crate::{names, object};

const APPROVED: &str = "api-approved.kubernetes.io";

pub(super) fn validate_name(object: &Value) -> ErrorList {
    let name = object::name(object);
    if name.is_empty() {
        return ErrorList::new();
    }
    let wanted = format!(
        "{}.{}",
        object::string(object, &["spec", "names", "plural"]),
        object::string(object, &["spec", "group"])
    );
    let must = || "must be spec.names.plural+\".\"+spec.group".to_owned();
    let metadata = Path::new("metadata");
    let mut errors = ErrorList::new();
    // Upstream asks the same of what a name would be made from, although there is one.
    let stem = object::string(object, &["metadata", "generateName"]);
    if !stem.is_empty() {
        let mut texts = names::name_is_dns_subdomain(stem, NameUse::Prefix);
        if stem != wanted {
            texts.push(must());
        }
        errors.extend(invalid_each(&metadata.child("generateName"), stem, texts));
    }
    let mut texts = names::name_is_dns_subdomain(name, NameUse::Name);
    if name != wanted {
        texts.push(must());
    }
    errors.extend(invalid_each(&metadata.child("name"), name, texts));
    errors
}

pub(super) fn validate_names(object: &Value, at: &[&str; 2]) -> ErrorList {
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

fn is_protected(object: &Value) -> bool {
    let group = object::string(object, &["spec", "group"]);
    ["k8s.io", "kubernetes.io"]
        .iter()
        .any(|domain| group == *domain || group.ends_with(&format!(".{domain}")))
}

/// What a state of approval is called in errors and conditions.
fn reason(object: &Value, state: &Approval) -> String {
    let found = object::string(object, &["metadata", "annotations", APPROVED]);
    let see = "see https://github.com/kubernetes/enhancements/pull/1111";
    let must = format!("protected groups must have approval annotation \"{APPROVED}\"");
    match state {
        Approval::Missing => format!("{must}, {see}"),
        Approval::Invalid => format!("{must} with either a URL or a reason starting with \"unapproved\", {see}"),
        Approval::Bypassed => format!("not approved: {}", crate::field::quote(found)),
        Approval::Given => format!("approved in {found}"),
    }
}

/// The condition of a definition in a protected group: status, reason and message.
pub(super) fn approval_condition(object: &Value) -> Option<[String; 3]> {
    let state = is_protected(object).then(|| approval(object))?;
    let (status, why) = match state {
        Approval::Invalid => ("False", "InvalidAnnotation"),
        Approval::Missing => ("False", "MissingAnnotation"),
        Approval::Given => ("True", "ApprovedAnnotation"),
        Approval::Bypassed => ("False", "UnapprovedAnnotation"),
    };
    Some([status.to_owned(), why.to_owned(), reason(object, &state)])
}

pub(super) fn validate_approval(object: &Value, old: Option<&Value>) -> Option<Error> {
    let state = approval(object);
    if !is_protected(object) || old.is_some_and(|old| approval(old) == state) {
        return None;
    }
    let path = Path::new("metadata").child("annotations").key(APPROVED);
    let detail = reason(object, &state);
    match state {
        Approval::Missing => Some(Error::required(&path, detail)),
        Approval::Invalid => {
            let found = object::string(object, &["metadata", "annotations", APPROVED]);
            Some(Error::invalid(&path, found, detail))
        }
        Approval::Bypassed | Approval::Given => None,
    }
}

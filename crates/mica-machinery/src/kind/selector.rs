//! What fields of kinds ask of label selectors beyond [`crate::select`].

use serde_json::Value;

use super::check::{entries, strings};
use crate::field::{Error, ErrorList, Path};
use crate::object;
use crate::select::{Tolerance, label_selector_errors};

/// Whether a selector can select.
pub fn is_valid(selector: &Value) -> bool {
    label_selector_errors(selector, Tolerance::None, &Path::default()).is_empty()
}

/// A requirement of a field selector in an access review: operators that nobody knows pass.
pub fn field_requirement_errors(requirement: &Value, path: &Path) -> ErrorList {
    let mut errors = ErrorList::new();
    if object::string(requirement, &["key"]).is_empty() {
        errors.push(Error::required(&path.child("key"), "must be specified"));
    }
    let has_values = !object::list(requirement, &["values"]).is_empty();
    match object::string(requirement, &["operator"]) {
        "In" | "NotIn" if !has_values => {
            let detail = "must be specified when `operator` is 'In' or 'NotIn'";
            errors.push(Error::required(&path.child("values"), detail));
        }
        "Exists" | "DoesNotExist" if has_values => {
            let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            errors.push(Error::forbidden(&path.child("values"), detail));
        }
        _ => {}
    }
    errors
}

/// A selector as upstream's tables print it.
pub fn shown(selector: &Value) -> String {
    let labels: String = entries(selector, &["matchLabels"])
        .map(|(key, value)| format!("{key}: {},", value.as_str().unwrap_or_default()))
        .collect();
    let expressions: String = object::list(selector, &["matchExpressions"])
        .iter()
        .map(|one| {
            let of = |field| object::string(one, &[field]);
            let values = strings(one, &["values"]).join(" ");
            format!(
                "LabelSelectorRequirement{{Key:{},Operator:{},Values:[{values}],}},",
                of("key"),
                of("operator")
            )
        })
        .collect();
    let labels = format!("MatchLabels:map[string]string{{{labels}}}");
    format!("&LabelSelector{{{labels},MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}")
}

//! The kinds of flowcontrol.apiserver.k8s.io.

pub mod level;
pub mod schema;

use std::collections::BTreeSet;

use serde_json::Value;

use crate::field::{Error, ErrorList, Path};
use crate::object;

/// Conditions of both kinds: each type once, and named.
fn validate_status(object: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let mut seen = BTreeSet::new();
    for (i, condition) in object::list(object, &["status", "conditions"]).iter().enumerate() {
        let path = Path::new("status").child("conditions").index(i).child("type");
        let r#type = object::string(condition, &["type"]);
        if !seen.insert(r#type) {
            errors.push(Error::duplicate(&path, r#type));
        }
        if r#type.is_empty() {
            errors.push(Error::required(&path, ""));
        }
    }
    errors
}

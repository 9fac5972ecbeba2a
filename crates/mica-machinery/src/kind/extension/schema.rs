//! The seam for schemas of custom resources.
//!
//! A definition hands every schema it holds to [`validate`], once for all versions that share it, with the path that
//! upstream reports: `spec.validation` if all versions share one, else that of the version.

use serde_json::Value;

use crate::field::{ErrorList, Path};

/// Whether the status subresource is on, which restricts the schema's root.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StatusSubresource {
    On,
    Off,
}

/// What is wrong with `openAPIV3Schema` in `validation`.
// TODO-correctness(#3): structural schemas, defaults and rules are not checked yet; any schema passes.
pub fn validate(_validation: &Value, _status: StatusSubresource, _path: &Path) -> ErrorList {
    ErrorList::new()
}

/// What is wrong with selectable fields, given the schema they point into.
// TODO-correctness(#3): needs the structural schema.
pub fn validate_selectable(_fields: &[Value], _validation: Option<&Value>, _path: &Path) -> ErrorList {
    ErrorList::new()
}

//! The kinds of admissionregistration.k8s.io: webhook configurations, policies and their bindings.

pub mod binding;
mod expression;
pub mod policy;
mod rule;
pub mod webhook;

use crate::object;

const STATIC_SUFFIX: &str = ".static.k8s.io";

/// A warning for names that upstream keeps for configuration from files.
fn static_suffix_warning(object: &serde_json::Value) -> Vec<String> {
    if !object::name(object).ends_with(STATIC_SUFFIX) {
        return Vec::new();
    }
    let why = "are reserved for static manifest-based configurations and cannot be managed via the API";
    vec![format!("metadata.name: names ending with \"{STATIC_SUFFIX}\" {why}")]
}

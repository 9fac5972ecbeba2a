//! What a pod may ask about itself: its fields, and the resources of its containers.

use serde_json::Value;

use crate::field::{Error, ErrorList, Path};
use crate::kind::check::invalid_each;
use crate::kind::core::resource::quantity;
use crate::{names, object};

/// Where the answer goes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum FieldUse {
    Environment,
    Volume,
}

const ENVIRONMENT: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
const VOLUME: [&str; 5] = [
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
];
/// Fields that upstream can convert at all.
const KNOWN: [&str; 12] = [
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.serviceAccountName",
    "spec.schedulerName",
    "status.phase",
    "status.hostIP",
    "status.hostIPs",
];
const KNOWN_ADDRESSES: [&str; 2] = ["status.podIP", "status.podIPs"];
const RESOURCES: [&str; 6] = [
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];
const SIZES: [&str; 13] = [
    "1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei",
];

pub fn validate_field_ref(reference: &Value, field_use: FieldUse, path: &Path, errors: &mut ErrorList) {
    let of = |field| object::string(reference, &[field]);
    for field in ["apiVersion", "fieldPath"] {
        if of(field).is_empty() {
            errors.push(Error::required(&path.child(field), ""));
            return;
        }
    }
    let at = path.child("fieldPath");
    let asked = of("fieldPath");
    if of("apiVersion") != "v1" {
        let detail = format!(
            "error converting fieldPath: unsupported pod version: {}",
            of("apiVersion")
        );
        errors.push(Error::invalid(&at, asked, detail));
        return;
    }
    if let Some((field, subscript)) = subscripted(asked) {
        match field {
            "metadata.annotations" => {
                let key = subscript.to_lowercase();
                errors.extend(invalid_each(path, &key, names::qualified_name(&key)));
            }
            "metadata.labels" => errors.extend(invalid_each(path, subscript, names::qualified_name(subscript))),
            _ => {
                let detail = format!("error converting fieldPath: field label does not support subscript: {asked}");
                errors.push(Error::invalid(&at, asked, detail));
            }
        }
        return;
    }
    // An old name that upstream turns into the new one.
    let field = if asked == "spec.host" { "spec.nodeName" } else { asked };
    if !KNOWN.contains(&field) && !KNOWN_ADDRESSES.contains(&field) {
        let detail = format!("error converting fieldPath: field label not supported: {asked}");
        errors.push(Error::invalid(&at, asked, detail));
        return;
    }
    let allowed: &[&str] = match field_use {
        FieldUse::Environment => &ENVIRONMENT,
        FieldUse::Volume => &VOLUME,
    };
    if !allowed.contains(&field) {
        errors.push(Error::not_supported(&at, field, allowed));
    }
}

/// `metadata.labels['a']` taken apart.
fn subscripted(path: &str) -> Option<(&str, &str)> {
    let inner = path.strip_suffix("']")?;
    let (field, key) = inner.split_once("['")?;
    (!field.is_empty()).then_some((field, key))
}

pub fn validate_resource_ref(reference: &Value, field_use: FieldUse, path: &Path, errors: &mut ErrorList) {
    let of = |field| object::string(reference, &[field]);
    let resource = of("resource");
    let pages = resource.starts_with("requests.hugepages-") || resource.starts_with("limits.hugepages-");
    if field_use == FieldUse::Volume && of("containerName").is_empty() {
        errors.push(Error::required(&path.child("containerName"), ""));
    } else if resource.is_empty() {
        errors.push(Error::required(&path.child("resource"), ""));
    } else if !RESOURCES.contains(&resource) && !pages {
        errors.push(Error::not_supported(&path.child("resource"), resource, &RESOURCES));
    }
    let divisor = quantity(reference.get("divisor").unwrap_or(&Value::Null));
    if divisor.is_zero() {
        return;
    }
    let (allowed, told): (&[&str], &str) = match resource.split_once('.').map(|(_, name)| name) {
        Some("cpu") => (&["1m", "1"], "1m and 1 are supported with the cpu resource"),
        Some("memory") => (&SIZES, "memory"),
        Some("ephemeral-storage") => (&SIZES, "local ephemeral storage"),
        _ if pages => (&SIZES, "hugepages"),
        _ => return,
    };
    if !allowed.contains(&divisor.to_string().as_str()) {
        let detail = if allowed.len() == 2 {
            format!("only divisor's values {told}")
        } else {
            let sizes = SIZES.join(", ");
            format!("only divisor's values {sizes} are supported with the {told} resource")
        };
        errors.push(Error::invalid(&path.child("divisor"), resource, detail));
    }
}

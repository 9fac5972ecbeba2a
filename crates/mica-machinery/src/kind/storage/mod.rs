//! Volumes and claims, and the kinds of `storage.k8s.io`.

pub mod attachment;
pub mod claim;
pub mod class;
pub mod driver;
pub(super) mod source;
mod source_file;
pub mod volume;

use serde_json::Value;

use crate::field::{Error, ErrorList, Path};
use crate::kind::check::{invalid_each, strings};
use crate::{names, object};

const ACCESS_MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
const VOLUME_MODES: [&str; 2] = ["Block", "Filesystem"];

/// Access modes, of which one tolerates no other.
fn validate_access_modes(spec: &Value, path: &Path, errors: &mut ErrorList) {
    let path = path.child("accessModes");
    let modes = strings(spec, &["accessModes"]);
    for mode in modes.iter().filter(|mode| !ACCESS_MODES.contains(mode)) {
        errors.push(Error::not_supported(&path, *mode, &ACCESS_MODES));
    }
    let alone = |mode: &&&str| **mode == "ReadWriteOncePod";
    let others = modes.iter().filter(|mode| !alone(mode) && ACCESS_MODES.contains(mode));
    if modes.iter().any(|mode| alone(&mode)) && others.count() > 0 {
        let detail = "may not use ReadWriteOncePod with other access modes";
        errors.push(Error::forbidden(&path, detail));
    }
}

fn validate_class_name(spec: &Value, field: &str, path: &Path, errors: &mut ErrorList) {
    let name = object::string(spec, &[field]);
    if !name.is_empty() {
        errors.extend(invalid_each(&path.child(field), name, names::dns1123_subdomain(name)));
    }
}

/// Access modes in a cell.
fn access_modes(object: &Value, at: &[&str]) -> String {
    let modes = strings(object, at);
    let known = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let found: Vec<&str> = known
        .iter()
        .filter(|(mode, _)| modes.contains(mode))
        .map(|(_, short)| *short)
        .collect();
    found.join(",")
}

/// The class of a volume or claim: an old annotation goes before the field.
fn class_name(object: &Value) -> &str {
    const OLD: &str = "volume.beta.kubernetes.io/storage-class";
    match object::get(object, &["metadata", "annotations", OLD]).and_then(Value::as_str) {
        Some(class) => class,
        None => object::string(object, &["spec", "storageClassName"]),
    }
}

/// The name of a CSI driver.
fn validate_driver_name(name: &str, path: &Path, errors: &mut ErrorList) {
    const MAX_NAME: usize = 63;
    if name.is_empty() {
        errors.push(Error::required(path, ""));
    }
    if name.len() > MAX_NAME {
        errors.push(Error::too_long(path, MAX_NAME));
    }
    errors.extend(invalid_each(path, name, names::dns1123_subdomain(&name.to_lowercase())));
}

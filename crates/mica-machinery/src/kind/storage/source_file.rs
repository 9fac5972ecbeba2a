//! Volumes that are made of files: keys of secrets and config maps, a pod's own fields, and several of these in one.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::field::{Error, ErrorList, Path};
use crate::kind::check::{invalid_as, is_set, present};
use crate::kind::internal;
use crate::kind::pod::reference::{FieldUse, validate_field_ref, validate_resource_ref};
use crate::object;
use crate::select::{Tolerance, label_selector_errors};

const MODE: &str = "must be a number between 0 and 0777 (octal), both inclusive";
const HOST_PATH_TYPES: [&str; 8] = [
    "",
    "BlockDevice",
    "CharDevice",
    "Directory",
    "DirectoryOrCreate",
    "File",
    "FileOrCreate",
    "Socket",
];
const KEY_TYPES: [&str; 6] = ["RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"];
/// Bounds of a projected token's life, in seconds.
const MIN_TOKEN: i64 = 10 * 60;
const MAX_TOKEN: i64 = 1 << 32;

pub fn no_backsteps(path: &str, at: &Path, errors: &mut ErrorList) {
    if path.split('/').any(|part| part == "..") {
        errors.push(Error::invalid(at, path, "must not contain '..'"));
    }
}

pub fn local_descending(path: &str, at: &Path, errors: &mut ErrorList) {
    if path.starts_with('/') {
        errors.push(Error::invalid(at, path, "must be a relative path"));
    }
    no_backsteps(path, at, errors);
}

/// A path below a volume's root that the kubelet does not use itself.
pub fn local_not_reserved(path: &str, at: &Path, errors: &mut ErrorList) {
    local_descending(path, at, errors);
    if path.starts_with("..") && !path.starts_with("../") {
        errors.push(Error::invalid(at, path, "must not start with '..'"));
    }
}

pub fn validate_host_path_type(value: &Value, path: &Path, errors: &mut ErrorList) {
    let found = present(value, &["type"]).and_then(Value::as_str);
    if let Some(found) = found.filter(|found| !HOST_PATH_TYPES.contains(found)) {
        errors.push(Error::not_supported(path, found, &HOST_PATH_TYPES));
    }
}

fn mode(value: &Value, field: &str, path: &Path, errors: &mut ErrorList) {
    if let Some(mode) = object::int(value, &[field]).filter(|mode| !(0..=0o777).contains(mode)) {
        errors.push(Error::invalid(&path.child(field), mode, MODE));
    }
}

pub fn validate_keys(value: &Value, path: &Path, errors: &mut ErrorList) {
    mode(value, "defaultMode", path, errors);
    for (i, item) in object::list(value, &["items"]).iter().enumerate() {
        validate_key(item, &path.child("items").index(i), errors);
    }
}

fn validate_key(item: &Value, path: &Path, errors: &mut ErrorList) {
    for field in ["key", "path"] {
        if object::string(item, &[field]).is_empty() {
            errors.push(Error::required(&path.child(field), ""));
        }
    }
    local_not_reserved(object::string(item, &["path"]), &path.child("path"), errors);
    mode(item, "mode", path, errors);
}

/// Upstream names the volume where it means one of its files.
pub fn validate_downward(value: &Value, path: &Path, errors: &mut ErrorList) {
    mode(value, "defaultMode", path, errors);
    for file in object::list(value, &["items"]) {
        validate_downward_file(file, path, errors);
    }
}

fn validate_downward_file(file: &Value, path: &Path, errors: &mut ErrorList) {
    let at = object::string(file, &["path"]);
    if at.is_empty() {
        errors.push(Error::required(&path.child("path"), ""));
    }
    local_not_reserved(at, &path.child("path"), errors);
    match (present(file, &["fieldRef"]), present(file, &["resourceFieldRef"])) {
        (Some(field), resource) => {
            validate_field_ref(field, FieldUse::Volume, &path.child("fieldRef"), errors);
            if resource.is_some() {
                let detail = "fieldRef and resourceFieldRef can not be specified simultaneously";
                errors.push(Error::invalid(path, "resource", detail));
            }
        }
        (None, Some(resource)) => {
            validate_resource_ref(resource, FieldUse::Volume, &path.child("resourceFieldRef"), errors);
        }
        (None, None) => {
            let detail = "one of fieldRef and resourceFieldRef is required";
            errors.push(Error::required(path, detail));
        }
    }
    mode(file, "mode", path, errors);
}

pub fn validate_projected(value: &Value, path: &Path, errors: &mut ErrorList) {
    mode(value, "defaultMode", path, errors);
    let mut paths = BTreeSet::new();
    for (i, source) in object::list(value, &["sources"]).iter().enumerate() {
        let at = path.child("sources").index(i);
        validate_projection(source, path, &at, &mut paths, errors);
        let kinds = [
            "secret",
            "configMap",
            "downwardAPI",
            "serviceAccountToken",
            "clusterTrustBundle",
            "podCertificate",
        ];
        if kinds.iter().filter(|kind| is_set(source, &[kind])).count() > 1 {
            let detail = "may not specify more than 1 volume type per source";
            errors.push(Error::forbidden(&at, detail));
        }
    }
}

/// One source. `path` is the volume's, `at` the source's.
fn validate_projection<'a>(
    source: &'a Value,
    path: &Path,
    at: &Path,
    paths: &mut BTreeSet<&'a str>,
    errors: &mut ErrorList,
) {
    const CONFLICT: &str = "conflicting duplicate paths";
    for kind in ["secret", "configMap"] {
        let Some(held) = present(source, &[kind]) else { continue };
        let at = at.child(kind);
        let name = object::string(held, &["name"]);
        if name.is_empty() {
            errors.push(Error::required(&at.child("name"), ""));
        }
        for (i, item) in object::list(held, &["items"]).iter().enumerate() {
            validate_key(item, &at.child("items").index(i), errors);
            let file = object::string(item, &["path"]);
            if !file.is_empty() && !paths.insert(file) {
                errors.push(Error::invalid(path, name, CONFLICT));
            }
        }
    }
    if let Some(held) = present(source, &["downwardAPI"]) {
        for item in object::list(held, &["items"]) {
            validate_downward_file(item, &at.child("downwardAPI"), errors);
            let file = object::string(item, &["path"]);
            if !file.is_empty() && !paths.insert(file) {
                errors.push(Error::invalid(path, file, CONFLICT));
            }
        }
    }
    if let Some(token) = present(source, &["serviceAccountToken"]) {
        validate_token(token, path, &at.child("serviceAccountToken"), errors);
    }
    if let Some(bundle) = present(source, &["clusterTrustBundle"]) {
        let at = at.child("clusterTrustBundle");
        validate_bundle(bundle, &at, errors);
        let file = object::string(bundle, &["path"]);
        if !paths.insert(file) {
            errors.push(Error::invalid(path, file, CONFLICT));
        }
    }
    if let Some(certificate) = present(source, &["podCertificate"]) {
        let at = at.child("podCertificate");
        validate_certificate(certificate, &at, errors);
        for field in ["credentialBundlePath", "keyPath", "certificateChainPath"] {
            let file = object::string(certificate, &[field]);
            if !file.is_empty() && !paths.insert(file) {
                errors.push(Error::invalid(path, file, CONFLICT));
            }
        }
    }
}

fn validate_token(token: &Value, path: &Path, at: &Path, errors: &mut ErrorList) {
    let seconds = object::int(token, &["expirationSeconds"]).unwrap_or_default();
    let at = at.child("expirationSeconds");
    if seconds < MIN_TOKEN {
        let detail = "may not specify a duration less than 10 minutes";
        errors.push(Error::invalid(&at, seconds, detail));
    }
    if seconds > MAX_TOKEN {
        let detail = "may not specify a duration larger than 2^32 seconds";
        errors.push(Error::invalid(&at, seconds, detail));
    }
    match object::string(token, &["path"]) {
        "" => errors.push(Error::required(&path.child("path"), "")),
        file => local_not_reserved(file, &path.child("path"), errors),
    }
}

fn validate_bundle(bundle: &Value, at: &Path, errors: &mut ErrorList) {
    let text = |field| present(bundle, &[field]).and_then(Value::as_str);
    let selector = present(bundle, &["labelSelector"]);
    match (text("name"), text("signerName")) {
        (Some(_), Some(_)) => {
            let shown = internal::shown(bundle, "io.k8s.api.core.v1.ClusterTrustBundleProjection");
            let detail = "only one of name and signerName may be used";
            errors.push(invalid_as(at, &shown, detail));
        }
        (Some(name), None) => {
            if name.is_empty() {
                errors.push(Error::required(&at.child("name"), "must be a valid object name"));
            }
            if let Some(selector) = selector {
                let shown = crate::kind::workload::selector_shown(selector);
                let detail = "labelSelector must be unset if name is specified";
                errors.push(Error::invalid(&at.child("labelSelector"), shown, detail));
            }
        }
        (None, Some(signer)) => {
            let path = at.child("signerName");
            if signer.is_empty() {
                errors.push(Error::required(&path, "must be a valid signer name"));
            }
            errors.extend(crate::kind::certificates::validate_signer(signer, &path));
            if let Some(selector) = selector {
                let path = at.child("labelSelector");
                errors.extend(label_selector_errors(selector, Tolerance::None, &path));
            }
        }
        (None, None) => {
            let detail = "either name or signerName must be specified";
            errors.push(Error::required(at, detail));
        }
    }
    let file = object::string(bundle, &["path"]);
    if file.is_empty() {
        errors.push(Error::required(&at.child("path"), ""));
    }
    local_not_reserved(file, &at.child("path"), errors);
}

fn validate_certificate(certificate: &Value, at: &Path, errors: &mut ErrorList) {
    const MIN_LIFE: i64 = 3600;
    let text = |field| object::string(certificate, &[field]);
    let signer = text("signerName");
    errors.extend(crate::kind::certificates::validate_signer(
        signer,
        &at.child("signerName"),
    ));
    if !KEY_TYPES.contains(&text("keyType")) {
        errors.push(Error::not_supported(&at.child("keyType"), text("keyType"), &KEY_TYPES));
    }
    if let Some(seconds) = object::int(certificate, &["maxExpirationSeconds"]) {
        let path = at.child("maxExpirationSeconds");
        let longest = if signer.starts_with("kubernetes.io/") {
            86_400
        } else {
            7_862_400
        };
        if seconds < MIN_LIFE {
            let detail = "if provided, maxExpirationSeconds must be >= 3600";
            errors.push(Error::invalid(&path, seconds, detail));
        }
        if seconds > longest {
            let detail = format!("if provided, maxExpirationSeconds must be <= {longest}");
            errors.push(Error::invalid(&path, seconds, detail));
        }
    }
    let files = ["credentialBundlePath", "keyPath", "certificateChainPath"];
    for field in files.iter().filter(|field| !text(field).is_empty()) {
        local_not_reserved(text(field), &at.child(field), errors);
    }
    if files.iter().all(|field| text(field).is_empty()) {
        let detail = "specify at least one of credentialBundlePath, keyPath, and certificateChainPath";
        errors.push(Error::required(at, detail));
    }
}

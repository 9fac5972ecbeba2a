//! A container's environment.

use serde_json::Value;

use super::reference::{FieldUse, validate_field_ref, validate_resource_ref};
use crate::field::{Error, ErrorList, Path};
use crate::kind::check::{invalid_each, present};
use crate::{names, object};

pub fn validate(container: &Value, path: &Path, errors: &mut ErrorList) {
    for (i, variable) in object::list(container, &["env"]).iter().enumerate() {
        let path = path.child("env").index(i);
        match object::string(variable, &["name"]) {
            "" => errors.push(Error::required(&path.child("name"), "")),
            name => errors.extend(invalid_each(
                &path.child("name"),
                name,
                names::relaxed_env_var_name(name),
            )),
        }
        if let Some(source) = present(variable, &["valueFrom"]) {
            let value = object::string(variable, &["value"]);
            validate_source(source, value, &path.child("valueFrom"), errors);
        }
    }
    let all = path.child("envFrom");
    for (i, source) in object::list(container, &["envFrom"]).iter().enumerate() {
        validate_all_of(source, &all, &all.index(i), errors);
    }
}

fn validate_source(source: &Value, value: &str, path: &Path, errors: &mut ErrorList) {
    let mut found = 0;
    if let Some(field) = present(source, &["fieldRef"]) {
        found += 1;
        validate_field_ref(field, FieldUse::Environment, &path.child("fieldRef"), errors);
    }
    if let Some(resource) = present(source, &["resourceFieldRef"]) {
        found += 1;
        validate_resource_ref(resource, FieldUse::Environment, &path.child("resourceFieldRef"), errors);
    }
    for field in ["configMapKeyRef", "secretKeyRef"] {
        if let Some(key) = present(source, &[field]) {
            found += 1;
            validate_key(key, &path.child(field), errors);
        }
    }
    if let Some(file) = present(source, &["fileKeyRef"]) {
        found += 1;
        validate_file(file, &path.child("fileKeyRef"), errors);
    }
    let detail = match found {
        0 => "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`",
        _ if !value.is_empty() => "may not be specified when `value` is not empty",
        1 => return,
        _ => "may not have more than one field specified at a time",
    };
    errors.push(Error::invalid(path, "", detail));
}

fn validate_key(reference: &Value, path: &Path, errors: &mut ErrorList) {
    let of = |field| object::string(reference, &[field]);
    let texts = names::dns1123_subdomain(of("name"));
    errors.extend(invalid_each(&path.child("name"), of("name"), texts));
    match of("key") {
        "" => errors.push(Error::required(&path.child("key"), "")),
        key => errors.extend(invalid_each(&path.child("key"), key, names::config_map_key(key))),
    }
}

fn validate_file(reference: &Value, path: &Path, errors: &mut ErrorList) {
    let of = |field| object::string(reference, &[field]);
    match of("key") {
        "" => errors.push(Error::required(&path.child("key"), "")),
        key => errors.extend(invalid_each(&path.child("key"), key, names::relaxed_env_var_name(key))),
    }
    match of("volumeName") {
        "" => errors.push(Error::required(&path.child("volumeName"), "")),
        name => errors.extend(invalid_each(
            &path.child("volumeName"),
            name,
            names::dns1123_label(name),
        )),
    }
    match of("path") {
        "" => errors.push(Error::required(&path.child("path"), "")),
        file if file.split('/').any(|part| part == "..") => {
            errors.push(Error::invalid(&path.child("path"), file, "must not contain '..'"));
        }
        _ => {}
    }
}

/// All keys of an object as variables. Upstream names the list where it means one of it.
fn validate_all_of(source: &Value, all: &Path, path: &Path, errors: &mut ErrorList) {
    let prefix = object::string(source, &["prefix"]);
    if !prefix.is_empty() {
        let texts = names::relaxed_env_var_name(prefix);
        errors.extend(invalid_each(&path.child("prefix"), prefix, texts));
    }
    let mut found = 0;
    for field in ["configMapRef", "secretRef"] {
        let Some(reference) = present(source, &[field]) else {
            continue;
        };
        found += 1;
        let path = path.child(field).child("name");
        match object::string(reference, &["name"]) {
            "" => errors.push(Error::required(&path, "")),
            name => {
                let texts = names::name_is_dns_subdomain(name, crate::kind::NameUse::Prefix);
                errors.extend(invalid_each(&path, name, texts));
            }
        }
    }
    let detail = match found {
        0 => "must specify one of: `configMapRef` or `secretRef`",
        1 => return,
        _ => "may not have more than one field specified at a time",
    };
    errors.push(Error::invalid(all, "", detail));
}

//! StorageClasses and VolumeAttributesClasses.

use serde_json::Value;

use super::claim::{add_finalizer, immutable_json};
use crate::field::{Error, ErrorList, Path};
use crate::kind::MetadataCheck;
use crate::kind::check::{entries, immutable_string, invalid_each, is_set, same, set_default_pointer, strings};
use crate::kind::column::age;
use crate::kind::plain::Plain;
use crate::kind::pod::old_label;
use crate::{names, object};

/// Keeps a class of attributes that volumes use.
const PROTECTION: &str = "kubernetes.io/vac-protection";
/// Upstream's bounds of parameters: how many, and how many bytes.
const MAX_PARAMETERS: usize = 512;
const MAX_PARAMETER_BYTES: usize = 256 * 1024;
const POLICIES: [&str; 2] = ["Delete", "Retain"];
const MODES: [&str; 2] = ["Immediate", "WaitForFirstConsumer"];

pub const STORAGE_CLASS: Plain = Plain {
    default: |object| {
        set_default_pointer(object, &["reclaimPolicy"], "Delete");
        set_default_pointer(object, &["volumeBindingMode"], "Immediate");
    },
    validate: |_, object| validate_storage_class(object),
    validate_update: |_, new, old| {
        let mut errors = ErrorList::new();
        immutable_json(new, old, "parameters", &mut errors);
        for field in ["provisioner", "reclaimPolicy", "volumeBindingMode"] {
            immutable_string(new, old, &[field], &Path::new(field), &mut errors);
        }
        errors
    },
    cells: storage_class_cells,
    warnings: |_, new, _| topology_warnings(new),
    returns_deleted: true,
    ..Plain::new("storage.k8s.io/storageclasses", "io.k8s.api.storage.v1.StorageClass")
};

pub const ATTRIBUTES_CLASS: Plain = Plain {
    prepare: |_, new, old| {
        if old.is_none() {
            add_finalizer(new, PROTECTION);
        }
    },
    validate: |_, object| validate_attributes_class(object),
    validate_update: |_, new, old| {
        let mut errors = ErrorList::new();
        for field in ["driverName", "parameters"] {
            if !same(new.get(field), old.get(field)) {
                let detail = format!("updates to {field} are forbidden.");
                errors.push(Error::forbidden(&Path::new(field), detail));
            }
        }
        errors.extend(validate_attributes_class(new));
        errors
    },
    metadata_check: MetadataCheck::Both,
    cells: |object, now| {
        vec![
            object::name(object).into(),
            object::string(object, &["driverName"]).into(),
            age(object, now),
        ]
    },
    returns_deleted: true,
    ..Plain::new(
        "storage.k8s.io/volumeattributesclasses",
        "io.k8s.api.storage.v1.VolumeAttributesClass",
    )
};

fn validate_provisioner(object: &Value, field: &str, errors: &mut ErrorList) {
    let path = Path::new(field);
    match object::string(object, &[field]) {
        "" => errors.push(Error::required(&path, "")),
        name => {
            let name = name.to_lowercase();
            errors.extend(invalid_each(&path, &name, names::qualified_name(&name)));
        }
    }
}

fn validate_parameters(object: &Value, errors: &mut ErrorList) {
    let path = Path::new("parameters");
    let parameters: Vec<(&str, &Value)> = entries(object, &["parameters"]).collect();
    if parameters.len() > MAX_PARAMETERS {
        errors.push(Error::too_long(&path, MAX_PARAMETERS));
        return;
    }
    if parameters.iter().any(|(key, _)| key.is_empty()) {
        errors.push(Error::invalid(&path, "", "field can not be empty."));
    }
    let bytes: usize = parameters
        .iter()
        .map(|(key, value)| key.len() + value.as_str().unwrap_or_default().len())
        .sum();
    if bytes > MAX_PARAMETER_BYTES {
        errors.push(Error::too_long(&path, MAX_PARAMETER_BYTES));
    }
}

fn validate_storage_class(object: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    validate_provisioner(object, "provisioner", &mut errors);
    validate_parameters(object, &mut errors);
    let policy = object::string(object, &["reclaimPolicy"]);
    if !policy.is_empty() && !POLICIES.contains(&policy) {
        errors.push(Error::not_supported(&Path::new("reclaimPolicy"), policy, &POLICIES));
    }
    let (mode, path) = (
        object::string(object, &["volumeBindingMode"]),
        Path::new("volumeBindingMode"),
    );
    if !is_set(object, &["volumeBindingMode"]) {
        errors.push(Error::required(&path, ""));
    } else if !MODES.contains(&mode) {
        errors.push(Error::not_supported(&path, mode, &MODES));
    }
    validate_topologies(object, &mut errors);
    errors
}

fn topology_warnings(class: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    for (i, term) in object::list(class, &["allowedTopologies"]).iter().enumerate() {
        let path = Path::new("allowedTopologies").index(i).child("matchLabelExpressions");
        for (j, expression) in object::list(term, &["matchLabelExpressions"]).iter().enumerate() {
            if let Some(text) = old_label(object::string(expression, &["key"])) {
                warnings.push(format!("{}: {text}", path.index(j).child("key")));
            }
        }
    }
    warnings
}

fn validate_topologies(object: &Value, errors: &mut ErrorList) {
    let mut seen: Vec<&[Value]> = Vec::new();
    for (i, term) in object::list(object, &["allowedTopologies"]).iter().enumerate() {
        let path = Path::new("allowedTopologies").index(i).child("matchLabelExpressions");
        let expressions = object::list(term, &["matchLabelExpressions"]);
        let mut keys = Vec::new();
        for (j, expression) in expressions.iter().enumerate() {
            let (path, key) = (path.index(j), object::string(expression, &["key"]));
            let values = strings(expression, &["values"]);
            if values.is_empty() {
                errors.push(Error::required(&path.child("values"), ""));
            }
            for (k, value) in values.iter().enumerate() {
                if values[..k].contains(value) {
                    errors.push(Error::duplicate(&path.child("values").index(k), *value));
                }
            }
            errors.extend(invalid_each(&path.child("key"), key, names::label_key(key)));
            if keys.contains(&key) {
                errors.push(Error::duplicate(&path.child("key"), key));
            }
            keys.push(key);
        }
        if seen.contains(&expressions) {
            errors.push(Error::duplicate(&path, ""));
        }
        seen.push(expressions);
    }
}

fn validate_attributes_class(object: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    validate_provisioner(object, "driverName", &mut errors);
    validate_parameters(object, &mut errors);
    if entries(object, &["parameters"]).next().is_none() {
        let detail = "must contain at least one key/value pair";
        errors.push(Error::required(&Path::new("parameters"), detail));
    }
    errors
}

fn storage_class_cells(object: &Value, now: jiff::Timestamp) -> Vec<Value> {
    let annotations = [
        "storageclass.kubernetes.io/is-default-class",
        "storageclass.beta.kubernetes.io/is-default-class",
    ];
    let is_default = annotations
        .iter()
        .any(|name| object::string(object, &["metadata", "annotations", name]) == "true");
    let name = object::name(object);
    let name = if is_default {
        format!("{name} (default)")
    } else {
        name.to_owned()
    };
    let of = |field, absent: &'static str| match object::get(object, &[field]).and_then(Value::as_str) {
        Some(text) => text.to_owned(),
        None => absent.to_owned(),
    };
    let expands = object.get("allowVolumeExpansion") == Some(&Value::Bool(true));
    vec![
        name.into(),
        object::string(object, &["provisioner"]).into(),
        of("reclaimPolicy", "Delete").into(),
        of("volumeBindingMode", "Immediate").into(),
        expands.into(),
        age(object, now),
    ]
}

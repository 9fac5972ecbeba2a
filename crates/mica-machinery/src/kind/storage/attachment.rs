//! VolumeAttachments.

use serde_json::Value;

use super::validate_driver_name;
use crate::field::{Error, ErrorList, Path};
use crate::kind::check::{entries, immutable, invalid_each, is_set, present};
use crate::kind::column::age;
use crate::kind::plain::{Plain, Status};
use crate::kind::{MetadataCheck, internal};
use crate::{names, object};

/// Upstream's bounds.
const MAX_METADATA_BYTES: usize = 256 * 1024;
const MAX_MESSAGE_BYTES: usize = 1024;

pub const ATTACHMENT: Plain = Plain {
    validate: |_, object| validate(object),
    validate_update: |_, new, old| {
        let mut errors = validate(new);
        let spec = new.get("spec").unwrap_or(&Value::Null);
        let shown = internal::shown(spec, "io.k8s.api.storage.v1.VolumeAttachmentSpec");
        immutable(new, old, &["spec"], &Path::new("spec"), &shown, &mut errors);
        errors
    },
    metadata_check: MetadataCheck::Whole,
    status: Status::ApartFromMetadata,
    cells: |object, now| {
        let attached = object::get(object, &["status", "attached"]) == Some(&Value::Bool(true));
        vec![
            object::name(object).into(),
            object::string(object, &["spec", "attacher"]).into(),
            object::string(object, &["spec", "source", "persistentVolumeName"]).into(),
            object::string(object, &["spec", "nodeName"]).into(),
            attached.into(),
            age(object, now),
        ]
    },
    unconditional_update: false,
    returns_deleted: true,
    ..Plain::new(
        "storage.k8s.io/volumeattachments",
        "io.k8s.api.storage.v1.VolumeAttachment",
    )
};

fn validate(object: &Value) -> ErrorList {
    const ONE: &str = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    let null = Value::Null;
    let (spec, path) = (object.get("spec").unwrap_or(&null), Path::new("spec"));
    let mut errors = ErrorList::new();
    validate_driver_name(
        object::string(spec, &["attacher"]),
        &path.child("attacher"),
        &mut errors,
    );
    let source = path.child("source");
    let name = present(spec, &["source", "persistentVolumeName"]).and_then(Value::as_str);
    match (is_set(spec, &["source", "inlineVolumeSpec"]), name) {
        (false, None) => errors.push(Error::required(&source, ONE)),
        (true, Some(_)) => errors.push(Error::forbidden(&source, ONE)),
        (false, Some("")) => {
            let detail = "must specify non empty persistentVolumeName";
            errors.push(Error::required(&source.child("persistentVolumeName"), detail));
        }
        _ => {}
    }
    let node = object::string(spec, &["nodeName"]);
    errors.extend(invalid_each(
        &path.child("nodeName"),
        node,
        names::dns1123_subdomain(node),
    ));
    validate_status(object.get("status").unwrap_or(&null), &mut errors);
    if let Some(name) = name {
        let path = source.child("persistentVolumeName");
        errors.extend(invalid_each(&path, name, names::dns1123_subdomain(name)));
    }
    errors
}

fn validate_status(status: &Value, errors: &mut ErrorList) {
    let path = Path::new("status");
    let bytes: usize = entries(status, &["attachmentMetadata"])
        .map(|(key, value)| key.len() + value.as_str().unwrap_or_default().len())
        .sum();
    if bytes > MAX_METADATA_BYTES {
        errors.push(Error::too_long(&path.child("attachmentMetadata"), MAX_METADATA_BYTES));
    }
    for field in ["attachError", "detachError"] {
        let Some(error) = present(status, &[field]) else {
            continue;
        };
        let path = path.child(field);
        if object::string(error, &["message"]).len() > MAX_MESSAGE_BYTES {
            // Upstream tells the wrong bound.
            errors.push(Error::too_long(&path.child("message"), MAX_METADATA_BYTES));
        }
        if let Some(code) = object::int(error, &["errorCode"]).filter(|code| *code < 0) {
            let detail = names::inclusive_range_error(0, i64::from(i32::MAX));
            errors.push(Error::invalid(&path.child("errorCode"), code, detail));
        }
    }
}

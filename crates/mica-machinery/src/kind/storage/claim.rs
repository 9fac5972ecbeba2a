//! PersistentVolumeClaims.

use serde_json::{Value, json};

use super::{VOLUME_MODES, access_modes, class_name, validate_access_modes, validate_class_name};
use crate::field::{Error, ErrorList, Path};
use crate::kind::check::{
    entries, immutable, immutable_string, invalid_each, is_set, present, same, set_default, set_default_pointer,
};
use crate::kind::column::age;
use crate::kind::core::resource::{quantity, round_up, validate_amount};
use crate::kind::plain::{Plain, Status};
use crate::kind::pod::fraction_warning;
use crate::kind::{MetadataCheck, WriteContext, diff};
use crate::select::{Tolerance, label_selector_errors};
use crate::{names, object};

const SPEC: &str = "io.k8s.api.core.v1.PersistentVolumeClaimSpec";
const STORAGE: [&str; 4] = ["spec", "resources", "requests", "storage"];
const OLD_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
/// Keeps a claim that a pod uses.
const PROTECTION: &str = "kubernetes.io/pvc-protection";
const RESIZE_STATES: [&str; 5] = [
    "ControllerResizeInProgress",
    "ControllerResizeInfeasible",
    "NodeResizeInProgress",
    "NodeResizeInfeasible",
    "NodeResizePending",
];

pub const CLAIM: Plain = Plain {
    default,
    prepare,
    validate: |_, object| validate(object),
    validate_update: |_, new, old| {
        let mut errors = validate(new);
        validate_change(new, old, &mut errors);
        errors
    },
    metadata_check: MetadataCheck::ChangeThenWhole,
    status: Status::Apart,
    validate_status,
    cells,
    warnings: |ctx, new, _| match ctx.subresource {
        "status" => Vec::new(),
        _ => warnings(new),
    },
    returns_deleted: true,
    ..Plain::new("persistentvolumeclaims", "io.k8s.api.core.v1.PersistentVolumeClaim")
};

fn warnings(claim: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    if object::get(claim, &["metadata", "annotations", OLD_CLASS]).is_some() {
        let path = Path::new("metadata").child("annotations").key(OLD_CLASS);
        warnings.push(format!(
            r#"{path}: deprecated since v1.8; use "storageClassName" attribute instead"#
        ));
    }
    warnings.extend(spec_warnings(claim, &Path::new("spec")));
    warnings
}

/// What a claim's spec is warned of, in a template or not.
pub fn spec_warnings(claim: &Value, path: &Path) -> Vec<String> {
    let warning = |field: &&str| {
        let amount = object::get(claim, &["spec", "resources", field, "storage"]);
        fraction_warning(amount, &path.child("resources").child(field).key("storage"))
    };
    ["requests", "limits"].iter().filter_map(warning).collect()
}

pub fn default(object: &mut Value) {
    set_default(object, &["status", "phase"], "Pending");
    for at in [["spec", "resources", "limits"], ["spec", "resources", "requests"]] {
        round_up(object, &at);
    }
    for field in ["capacity", "allocatedResources"] {
        round_up(object, &["status", field]);
    }
    set_default_pointer(object, &["spec", "volumeMode"], "Filesystem");
}

fn prepare(ctx: &WriteContext<'_>, new: &mut Value, old: Option<&Value>) {
    if ctx.subresource == "status" {
        return;
    }
    if old.is_none() {
        object::set(new, &["status"], json!({"phase": "Pending"}));
        add_finalizer(new, PROTECTION);
    }
    // The old field and the new one name the same source, so each is filled in from the other.
    const REF: [&str; 2] = ["spec", "dataSourceRef"];
    const SOURCE: [&str; 2] = ["spec", "dataSource"];
    match (present(new, &SOURCE).cloned(), present(new, &REF).cloned()) {
        (Some(source), None) if is_known_source(&source) => object::set(new, &REF, source),
        (Some(_), None) => drop(object::remove(new, &SOURCE)),
        (None, Some(mut reference)) if object::string(&reference, &["namespace"]).is_empty() => {
            object::remove(&mut reference, &["namespace"]);
            object::set(new, &SOURCE, reference);
        }
        _ => {}
    }
}

/// Whether the old field may hold it: claims and snapshots. Anything else is dropped there.
fn is_known_source(source: &Value) -> bool {
    let of = |field| object::string(source, &[field]);
    let (group, kind) = (of("apiGroup"), of("kind"));
    (group.is_empty() && kind == "PersistentVolumeClaim")
        || (group == "snapshot.storage.k8s.io" && kind == "VolumeSnapshot")
}

pub(super) fn add_finalizer(object: &mut Value, finalizer: &str) {
    let mut finalizers = object::list(object, &["metadata", "finalizers"]).to_vec();
    if !finalizers.iter().any(|held| held == finalizer) {
        finalizers.push(finalizer.into());
        object::set(object, &["metadata", "finalizers"], finalizers);
    }
}

fn validate(object: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    validate_spec(
        object.get("spec").unwrap_or(&Value::Null),
        &Path::new("spec"),
        &mut errors,
    );
    errors
}

/// What is wrong with a claim's spec, in a template or not.
pub fn validate_spec(spec: &Value, path: &Path, errors: &mut ErrorList) {
    if object::list(spec, &["accessModes"]).is_empty() {
        let detail = "at least 1 access mode is required";
        errors.push(Error::required(&path.child("accessModes"), detail));
    }
    if let Some(selector) = present(spec, &["selector"]) {
        errors.extend(label_selector_errors(
            selector,
            Tolerance::None,
            &path.child("selector"),
        ));
    }
    validate_access_modes(spec, path, errors);
    let storage = path.child("resources").key("storage");
    match object::get(spec, &["resources", "requests", "storage"]) {
        None => errors.push(Error::required(&storage, "")),
        Some(amount) if quantity(amount).signum() <= 0 => {
            let shown = quantity(amount).to_string();
            errors.push(Error::invalid(&storage, shown, "must be greater than zero"));
        }
        Some(amount) => errors.extend(validate_amount("storage", amount, &storage)),
    }
    validate_class_name(spec, "storageClassName", path, errors);
    let mode = object::string(spec, &["volumeMode"]);
    if is_set(spec, &["volumeMode"]) && !VOLUME_MODES.contains(&mode) {
        errors.push(Error::not_supported(&path.child("volumeMode"), mode, &VOLUME_MODES));
    }
    for field in ["dataSource", "dataSourceRef"] {
        if let Some(source) = present(spec, &[field]) {
            validate_source(source, &path.child(field), errors);
        }
    }
    validate_sources(spec, path, errors);
    validate_class_name(spec, "volumeAttributesClassName", path, errors);
}

fn validate_source(source: &Value, path: &Path, errors: &mut ErrorList) {
    let of = |field| object::string(source, &[field]);
    for field in ["name", "kind"] {
        if of(field).is_empty() {
            errors.push(Error::required(&path.child(field), ""));
        }
    }
    let (group, kind, namespace) = (of("apiGroup"), of("kind"), of("namespace"));
    if group.is_empty() && kind != "PersistentVolumeClaim" {
        let detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
        errors.push(Error::invalid(path, kind, detail));
    }
    if !group.is_empty() {
        let texts = names::dns1123_subdomain(group);
        errors.extend(invalid_each(&path.child("apiGroup"), group, texts));
    }
    if !namespace.is_empty() {
        let texts = names::dns1123_label(namespace);
        errors.extend(invalid_each(&path.child("namespace"), namespace, texts));
    }
}

fn validate_sources(spec: &Value, path: &Path, errors: &mut ErrorList) {
    let (Some(source), Some(reference)) = (present(spec, &["dataSource"]), present(spec, &["dataSourceRef"])) else {
        return;
    };
    let elsewhere = !object::string(reference, &["namespace"]).is_empty();
    let equal = ["apiGroup", "kind", "name"]
        .iter()
        .all(|field| object::string(source, &[field]) == object::string(reference, &[field]));
    let detail = match (elsewhere, equal) {
        (true, _) => "may not be specified when dataSourceRef.namespace is specified",
        (false, false) => "must match dataSourceRef",
        (false, true) => return,
    };
    // Upstream shows the path where it means the value, and a path is an empty struct to JSON.
    errors.push(Error::invalid(path, json!({}), detail));
}

fn validate_change(new: &Value, old: &Value, errors: &mut ErrorList) {
    let (mut changed, mut before) = (new.clone(), old.clone());
    if object::string(old, &["spec", "volumeName"]).is_empty() {
        object::copy(new, &mut before, &["spec", "volumeName"]);
    }
    let class = |object| present(object, &["spec", "storageClassName"]).and_then(Value::as_str);
    let annotation = |object| object::get(object, &["metadata", "annotations", OLD_CLASS]).and_then(Value::as_str);
    let (old_annotation, new_annotation) = (annotation(old), annotation(new));
    let moved = old_annotation.is_some()
        && class(old).is_none()
        && class(new) == old_annotation
        && new_annotation.is_none_or(|class| Some(class) == old_annotation);
    if moved {
        object::remove(&mut changed, &["spec", "storageClassName"]);
    } else {
        let path = Path::new("metadata").child("annotations").key(OLD_CLASS);
        if new_annotation.unwrap_or_default() != old_annotation.unwrap_or_default() {
            errors.push(Error::invalid(
                &path,
                new_annotation.unwrap_or_default(),
                "field is immutable",
            ));
        }
        let first = class(old).is_none() && class(new).is_some();
        if first && old_annotation.is_none_or(|old| class(new) == Some(old)) {
            object::copy(old, &mut changed, &["spec", "storageClassName"]);
        }
    }
    if object::string(new, &["status", "phase"]) == "Bound" {
        if present(&changed, &["spec", "resources", "requests"]).is_some() {
            object::copy(old, &mut changed, &STORAGE);
        }
        object::copy(old, &mut changed, &["spec", "volumeAttributesClassName"]);
    }
    if !same(changed.get("spec"), before.get("spec")) {
        let shown = diff::unified(&before["spec"], &changed["spec"], SPEC);
        let detail = format!(
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n{shown}"
        );
        errors.push(Error::forbidden(&Path::new("spec"), detail));
    }
    let size = |object, at: &[&str]| quantity(object::get(object, at).unwrap_or(&Value::Null));
    let wanted = size(new, &STORAGE);
    if wanted < size(old, &STORAGE) && wanted <= size(old, &["status", "capacity", "storage"]) {
        let path = Path::new("spec").child("resources").child("requests").child("storage");
        errors.push(Error::forbidden(&path, "field can not be less than status.capacity"));
    }
    immutable_string(new, old, &["spec", "volumeMode"], &Path::new("volumeMode"), errors);
    validate_attributes_class(new, old, errors);
}

fn validate_attributes_class(new: &Value, old: &Value, errors: &mut ErrorList) {
    const AT: [&str; 2] = ["spec", "volumeAttributesClassName"];
    let value = |object| present(object, &AT).and_then(Value::as_str);
    if value(new) == value(old) || !is_set(old, &["status", "currentVolumeAttributesClassName"]) {
        return;
    }
    let what = match value(new) {
        None => "nil",
        Some("") => "empty string",
        Some(_) => return,
    };
    let path = Path::new("spec").child("volumeAttributesClassName");
    let detail = format!("update to {what} is forbidden when status.currentVolumeAttributesClassName is not nil");
    errors.push(Error::forbidden(&path, detail));
}

fn validate_status(new: &Value, _old: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    if object::list(new, &["spec", "accessModes"]).is_empty() {
        errors.push(Error::required(&Path::new("Spec").child("accessModes"), ""));
    }
    let status = Path::new("status");
    for (name, amount) in entries(new, &["status", "capacity"]) {
        validate_positive(amount, &status.child("capacity").key(name), &mut errors);
    }
    let path = status.child("allocatedResourceStatuses");
    for (name, state) in entries(new, &["status", "allocatedResourceStatuses"]) {
        validate_key(name, &path, &mut errors);
        if !RESIZE_STATES.contains(&state.as_str().unwrap_or_default()) {
            errors.push(Error::not_supported(&path, name, &RESIZE_STATES));
        }
    }
    let path = status.child("allocatedResources");
    for (name, amount) in entries(new, &["status", "allocatedResources"]) {
        let count = errors.len();
        validate_key(name, &path, &mut errors);
        if errors.len() == count {
            validate_positive(amount, &path.key(name), &mut errors);
        }
    }
    errors
}

fn validate_key(name: &str, path: &Path, errors: &mut ErrorList) {
    let texts = names::qualified_name(name);
    if !texts.is_empty() {
        errors.extend(invalid_each(path, name, texts));
    } else if (!name.contains('/') || name.contains("kubernetes.io/")) && name != "storage" {
        errors.push(Error::not_supported(path, name, &["storage"]));
    }
}

pub(super) fn validate_positive(amount: &Value, path: &Path, errors: &mut ErrorList) {
    let amount = quantity(amount);
    if amount.signum() < 0 {
        let detail = "must be a valid resource quantity";
        errors.push(Error::invalid(path, amount.value(), detail));
    }
}

fn cells(object: &Value, now: jiff::Timestamp) -> Vec<Value> {
    let of = |at: &[&str]| object::string(object, at).to_owned();
    let phase = if of(&["metadata", "deletionTimestamp"]).is_empty() {
        of(&["status", "phase"])
    } else {
        "Terminating".to_owned()
    };
    let volume = of(&["spec", "volumeName"]);
    let (capacity, modes) = if volume.is_empty() {
        (String::new(), String::new())
    } else {
        let storage = object::get(object, &["status", "capacity", "storage"]);
        (
            storage.map_or("0".to_owned(), |amount| quantity(amount).to_string()),
            access_modes(object, &["status", "accessModes"]),
        )
    };
    let or_unset = |field| present(object, &["spec", field]).cloned().unwrap_or("<unset>".into());
    vec![
        object::name(object).into(),
        phase.into(),
        volume.into(),
        capacity.into(),
        modes.into(),
        class_name(object).into(),
        or_unset("volumeAttributesClassName"),
        age(object, now),
        or_unset("volumeMode"),
    ]
}

/// Refuses a change of a map or struct, shown as JSON.
pub(super) fn immutable_json(new: &Value, old: &Value, field: &str, errors: &mut ErrorList) {
    let shown = new.get(field).unwrap_or(&Value::Null).to_string();
    immutable(new, old, &[field], &Path::new(field), &shown, errors);
}

//! PersistentVolumes.

use serde_json::{Value, json};

use super::claim::{add_finalizer, validate_positive};
use super::source::{self, Holder};
use super::{VOLUME_MODES, access_modes, class_name, validate_access_modes, validate_class_name};
use crate::field::{Error, ErrorList, Path};
use crate::kind::check::{entries, immutable_string, is_set, present, same, set_default, set_default_pointer};
use crate::kind::column::age;
use crate::kind::core::resource::{quantity, round_up};
use crate::kind::plain::{Plain, Status};
use crate::kind::pod::affinity::validate_node_selector;
use crate::kind::pod::{expression_warnings, old_source};
use crate::kind::{MetadataCheck, WriteContext, diff};
use crate::object;
use crate::time::now_text;

/// Keeps a volume that is bound.
const PROTECTION: &str = "kubernetes.io/pv-protection";
const POLICIES: [&str; 3] = ["Delete", "Recycle", "Retain"];
const CHANGED: [&str; 2] = ["status", "lastPhaseTransitionTime"];

pub const VOLUME: Plain = Plain {
    default,
    prepare,
    validate: |_, object| validate(object),
    validate_update: |_, new, old| {
        let mut errors = validate(new);
        validate_change(new, old, &mut errors);
        errors
    },
    metadata_check: MetadataCheck::Whole,
    status: Status::Apart,
    cells,
    warnings: |ctx, new, _| match ctx.subresource {
        "status" => Vec::new(),
        _ => warnings(new),
    },
    returns_deleted: true,
    ..Plain::new("persistentvolumes", "io.k8s.api.core.v1.PersistentVolume")
};

const MOUNT_OPTIONS: &str = "volume.beta.kubernetes.io/mount-options";
const OLD_ANNOTATIONS: [(&str, &str); 2] = [
    (
        "volume.beta.kubernetes.io/storage-class",
        r#"deprecated since v1.8; use "storageClassName" attribute instead"#,
    ),
    (
        MOUNT_OPTIONS,
        r#"deprecated since v1.31; use "mountOptions" attribute instead"#,
    ),
];
/// Sources that went, of which volumes are warned as pods are.
const GONE: [&str; 6] = [
    "cephfs",
    "photonPersistentDisk",
    "scaleIO",
    "storageos",
    "glusterfs",
    "rbd",
];
/// Sources that are mounted with options.
const MOUNTED: [&str; 13] = [
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "nfs",
    "rbd",
    "quobyte",
    "iscsi",
    "cinder",
    "cephfs",
    "azureFile",
    "vsphereVolume",
    "azureDisk",
    "photonPersistentDisk",
];

fn warnings(volume: &Value) -> Vec<String> {
    let (mut warnings, spec) = (Vec::new(), Path::new("spec"));
    let annotations = Path::new("metadata").child("annotations");
    for (key, text) in OLD_ANNOTATIONS {
        if object::get(volume, &["metadata", "annotations", key]).is_some() {
            warnings.push(format!("{}: {text}", annotations.key(key)));
        }
    }
    if object::string(volume, &["spec", "persistentVolumeReclaimPolicy"]) == "Recycle" {
        let text = "The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.";
        warnings.push(format!("{}: {text}", spec.child("persistentVolumeReclaimPolicy")));
    }
    let terms = object::list(volume, &["spec", "nodeAffinity", "required", "nodeSelectorTerms"]);
    for (i, term) in terms.iter().enumerate() {
        let path = spec.child("nodeAffinity").child("required").child("nodeSelectorTerms");
        warnings.extend(expression_warnings(term, &path.index(i)));
    }
    let gone = GONE.iter().filter(|field| is_set(volume, &["spec", field]));
    for (shown, text) in gone.filter_map(|field| old_source(field)) {
        warnings.push(format!("{}: {text}", spec.child(shown)));
    }
    warnings
}

fn validate_mount_options(volume: &Value, errors: &mut ErrorList) {
    let has_options = object::get(volume, &["metadata", "annotations", MOUNT_OPTIONS]).is_some();
    if has_options && !MOUNTED.iter().any(|field| is_set(volume, &["spec", field])) {
        let path = Path::new("metadata").child("annotations").child(MOUNT_OPTIONS);
        let detail = "may not specify mount options for this volume type";
        errors.push(Error::forbidden(&path, detail));
    }
}

fn default(object: &mut Value) {
    set_default(object, &["status", "phase"], "Pending");
    set_default(object, &["spec", "persistentVolumeReclaimPolicy"], "Retain");
    set_default_pointer(object, &["spec", "volumeMode"], "Filesystem");
    round_up(object, &["spec", "capacity"]);
    if is_set(object, &["spec", "hostPath"]) {
        set_default_pointer(object, &["spec", "hostPath", "type"], "");
    }
}

fn prepare(ctx: &WriteContext<'_>, new: &mut Value, old: Option<&Value>) {
    let now = now_text(ctx.now);
    let Some(old) = old else {
        object::set(new, &["status"], json!({"phase": "Pending"}));
        object::set(new, &CHANGED, now);
        add_finalizer(new, PROTECTION);
        return;
    };
    if ctx.subresource != "status" {
        return;
    }
    let phase = |object| object::string(object, &["status", "phase"]);
    let untold = !is_set(new, &CHANGED);
    let stale = same(object::get(new, &CHANGED), object::get(old, &CHANGED));
    if phase(new) == phase(old) && untold {
        object::copy(old, new, &CHANGED);
    } else if phase(new) != phase(old) && (untold || stale) {
        object::set(new, &CHANGED, now);
    }
}

fn validate(object: &Value) -> ErrorList {
    let null = Value::Null;
    let (spec, path) = (object.get("spec").unwrap_or(&null), Path::new("spec"));
    let mut errors = ErrorList::new();
    if object::list(spec, &["accessModes"]).is_empty() {
        errors.push(Error::required(&path.child("accessModes"), ""));
    }
    validate_access_modes(spec, &path, &mut errors);
    validate_capacity(spec, &path.child("capacity"), &mut errors);
    let policy = object::string(spec, &["persistentVolumeReclaimPolicy"]);
    let policy_path = path.child("persistentVolumeReclaimPolicy");
    if !policy.is_empty() && !POLICIES.contains(&policy) {
        errors.push(Error::not_supported(&policy_path, policy, &POLICIES));
    }
    let placed = validate_affinity(spec, &path.child("nodeAffinity"), &mut errors);
    source::validate(spec, Holder::Volume(object::name(object)), &path, &mut errors);
    if is_set(spec, &["local"]) && !placed {
        let detail = "Local volume requires node affinity";
        errors.push(Error::required(&path.child("nodeAffinity"), detail));
    }
    let root = object::string(spec, &["hostPath", "path"]);
    if is_set(spec, &["hostPath"]) && is_root(root) && policy == "Recycle" {
        let detail = "may not be 'recycle' for a hostPath mount of '/'";
        errors.push(Error::forbidden(&policy_path, detail));
    }
    validate_class_name(spec, "storageClassName", &path, &mut errors);
    let mode = object::string(spec, &["volumeMode"]);
    if is_set(spec, &["volumeMode"]) && !VOLUME_MODES.contains(&mode) {
        errors.push(Error::not_supported(&path.child("volumeMode"), mode, &VOLUME_MODES));
    }
    if is_set(spec, &["volumeAttributesClassName"]) {
        if object::string(spec, &["volumeAttributesClassName"]).is_empty() {
            let detail = "an empty string is disallowed";
            errors.push(Error::required(&path.child("volumeAttributesClassName"), detail));
        }
        validate_class_name(spec, "volumeAttributesClassName", &path, &mut errors);
        if !is_set(spec, &["csi"]) {
            let detail = "has to be specified when using volumeAttributesClassName";
            errors.push(Error::required(&path.child("csi"), detail));
        }
    }
    validate_mount_options(object, &mut errors);
    errors
}

fn is_root(path: &str) -> bool {
    !path.is_empty() && path.starts_with('/') && path.split('/').all(|part| part.is_empty() || part == ".")
}

fn validate_capacity(spec: &Value, path: &Path, errors: &mut ErrorList) {
    let capacity: Vec<(&str, &Value)> = entries(spec, &["capacity"]).collect();
    if capacity.is_empty() {
        errors.push(Error::required(path, ""));
    }
    if capacity.len() != 1 || capacity[0].0 != "storage" {
        let shown = spec.get("capacity").cloned().unwrap_or(json!({}));
        errors.push(Error::not_supported(path, shown, &["storage"]));
    }
    for (name, amount) in capacity {
        validate_positive(amount, &path.key(name), errors);
        if quantity(amount).signum() <= 0 {
            let shown = quantity(amount).to_string();
            errors.push(Error::invalid(&path.key(name), shown, "must be greater than zero"));
        }
    }
}

/// Checks where the volume can be reached from; returns whether it says so.
fn validate_affinity(spec: &Value, path: &Path, errors: &mut ErrorList) -> bool {
    let Some(affinity) = present(spec, &["nodeAffinity"]) else {
        return false;
    };
    match present(affinity, &["required"]) {
        Some(required) => {
            validate_node_selector(required, &path.child("required"), errors);
            true
        }
        None => {
            let detail = "must specify required node constraints";
            errors.push(Error::required(&path.child("required"), detail));
            true
        }
    }
}

fn sources(object: &Value) -> Value {
    let spec = object::map(object, &["spec"]).into_iter().flatten();
    let sources = spec.filter(|(field, value)| source::is_source(field) && !value.is_null());
    Value::Object(sources.map(|(field, value)| (field.clone(), value.clone())).collect())
}

fn validate_change(new: &Value, old: &Value, errors: &mut ErrorList) {
    const EXPAND: [&str; 2] = ["csi", "controllerExpandSecretRef"];
    let (mut now, before) = (sources(new), sources(old));
    if is_set(&before, &["csi"]) && !is_set(&before, &EXPAND) {
        object::remove(&mut now, &EXPAND);
    }
    if now != before {
        let shown = diff::unified(&before, &now, "io.k8s.api.core.v1.PersistentVolumeSource");
        let detail = format!("spec.persistentvolumesource is immutable after creation\n{shown}");
        errors.push(Error::forbidden(
            &Path::new("spec").child("persistentvolumesource"),
            detail,
        ));
    }
    immutable_string(new, old, &["spec", "volumeMode"], &Path::new("volumeMode"), errors);
    let class = ["spec", "volumeAttributesClassName"];
    if is_set(old, &class) && !is_set(new, &class) {
        let path = Path::new("spec").child("volumeAttributesClassName");
        errors.push(Error::forbidden(&path, "update from non-nil value to nil is forbidden"));
    }
}

fn cells(object: &Value, now: jiff::Timestamp) -> Vec<Value> {
    let of = |at: &[&str]| object::string(object, at).to_owned();
    let claim = present(object, &["spec", "claimRef"]).map_or(String::new(), |claim| {
        let of = |field| object::string(claim, &[field]);
        format!("{}/{}", of("namespace"), of("name"))
    });
    let size = object::get(object, &["spec", "capacity", "storage"]);
    let phase = if of(&["metadata", "deletionTimestamp"]).is_empty() {
        of(&["status", "phase"])
    } else {
        "Terminating".to_owned()
    };
    let or_unset = |field| present(object, &["spec", field]).cloned().unwrap_or("<unset>".into());
    vec![
        object::name(object).into(),
        size.map_or("0".to_owned(), |amount| quantity(amount).to_string())
            .into(),
        access_modes(object, &["spec", "accessModes"]).into(),
        of(&["spec", "persistentVolumeReclaimPolicy"]).into(),
        phase.into(),
        claim.into(),
        class_name(object).into(),
        or_unset("volumeAttributesClassName"),
        of(&["status", "reason"]).into(),
        age(object, now),
        or_unset("volumeMode"),
    ]
}

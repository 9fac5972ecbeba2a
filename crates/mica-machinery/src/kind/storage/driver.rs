//! CSIDrivers, CSINodes and CSIStorageCapacities: what drivers say about themselves.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::validate_driver_name;
use crate::field::{Error, ErrorList, Path};
use crate::kind::check::{
    entries, immutable, immutable_string, invalid_as, invalid_each, is_set, present, same, set_default_pointer, strings,
};
use crate::kind::column::age;
use crate::kind::core::resource::quantity;
use crate::kind::plain::Plain;
use crate::kind::pod::{expression_warnings, old_label};
use crate::kind::workload::{non_negative, selector_shown};
use crate::kind::{MetadataCheck, WriteContext, internal};
use crate::select::{Tolerance, label_selector_errors};
use crate::{names, object};

const GROUP_POLICIES: [&str; 3] = ["File", "None", "ReadWriteOnceWithFSType"];
const LIFECYCLES: [&str; 2] = ["Persistent", "Ephemeral"];
const MAX_NODE_ID: usize = 256;
const MIN_PERIOD: i64 = 10;
const MIN_TOKEN: i64 = 10 * 60;
const MAX_TOKEN: i64 = 1 << 32;

pub const DRIVER: Plain = Plain {
    default: default_driver,
    prepare: count_driver_changes,
    validate: |_, object| validate_driver(object),
    validate_update: |_, new, old| {
        let mut errors = validate_driver(new);
        for (field, shown) in [
            ("attachRequired", "attachedRequired"),
            ("volumeLifecycleModes", "volumeLifecycleModes"),
        ] {
            let value = object::get(new, &["spec", field]).unwrap_or(&Value::Null).to_string();
            let path = Path::new("spec").child(shown);
            immutable(new, old, &["spec", field], &path, &value, &mut errors);
        }
        errors
    },
    cells: driver_cells,
    warnings: |_, new, old| driver_warnings(new, old),
    unconditional_update: false,
    returns_deleted: true,
    ..Plain::new("storage.k8s.io/csidrivers", "io.k8s.api.storage.v1.CSIDriver")
};

pub const NODE: Plain = Plain {
    validate: |_, object| validate_node(object),
    validate_update: |_, new, old| {
        let mut errors = validate_node(new);
        validate_node_change(new, old, &mut errors);
        errors
    },
    metadata_check: MetadataCheck::Whole,
    cells: |object, now| {
        let drivers = object::list(object, &["spec", "drivers"]).len();
        vec![object::name(object).into(), drivers.into(), age(object, now)]
    },
    unconditional_update: false,
    returns_deleted: true,
    ..Plain::new("storage.k8s.io/csinodes", "io.k8s.api.storage.v1.CSINode")
};

pub const CAPACITY: Plain = Plain {
    validate: |_, object| validate_capacity(object),
    validate_update: |_, new, old| {
        let mut errors = ErrorList::new();
        if !same(new.get("nodeTopology"), old.get("nodeTopology")) {
            let shown = new.get("nodeTopology").map(selector_shown).unwrap_or_default();
            errors.push(Error::invalid(&Path::new("nodeTopology"), shown, "field is immutable"));
        }
        let path = Path::new("storageClassName");
        immutable_string(new, old, &["storageClassName"], &path, &mut errors);
        errors
    },
    warnings: |_, new, _| capacity_warnings(new),
    unconditional_update: false,
    ..Plain::new(
        "storage.k8s.io/csistoragecapacities",
        "io.k8s.api.storage.v1.CSIStorageCapacity",
    )
};

/// Tokens that are asked for anew should come where they are not logged.
fn driver_warnings(new: &Value, old: Option<&Value>) -> Vec<String> {
    const REQUESTS: [&str; 2] = ["spec", "tokenRequests"];
    let changed = old.is_none_or(|old| !same(object::get(old, &REQUESTS), object::get(new, &REQUESTS)));
    let asks = !object::list(new, &REQUESTS).is_empty();
    if changed && asks && present(new, &["spec", "serviceAccountTokenInSecrets"]).is_none() {
        let text = "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible logging of tokens in volume attributes";
        return vec![text.to_owned()];
    }
    Vec::new()
}

fn capacity_warnings(capacity: &Value) -> Vec<String> {
    let path = Path::new("nodeTopology");
    let selector = present(capacity, &["nodeTopology"]).unwrap_or(&Value::Null);
    let mut warnings = expression_warnings(selector, &path);
    for (label, _) in entries(selector, &["matchLabels"]) {
        if let Some(text) = old_label(label) {
            warnings.push(format!("{}: {text}", path.child("matchLabels").child(label)));
        }
    }
    warnings
}

fn default_driver(object: &mut Value) {
    for (field, default) in [
        ("attachRequired", json!(true)),
        ("podInfoOnMount", json!(false)),
        ("storageCapacity", json!(false)),
        ("fsGroupPolicy", json!("ReadWriteOnceWithFSType")),
        ("requiresRepublish", json!(false)),
        ("seLinuxMount", json!(false)),
    ] {
        set_default_pointer(object, &["spec", field], default);
    }
    if object::list(object, &["spec", "volumeLifecycleModes"]).is_empty() {
        object::set(object, &["spec", "volumeLifecycleModes"], json!(["Persistent"]));
    }
}

/// A driver counts changes of its spec, but does not begin with one.
fn count_driver_changes(_ctx: &WriteContext<'_>, new: &mut Value, old: Option<&Value>) {
    if let Some(old) = old
        && !same(new.get("spec"), old.get("spec"))
    {
        let generation = object::int(old, &["metadata", "generation"]).unwrap_or_default();
        object::set(new, &["metadata", "generation"], generation + 1);
    }
}

fn validate_driver(object: &Value) -> ErrorList {
    let null = Value::Null;
    let (spec, path) = (object.get("spec").unwrap_or(&null), Path::new("spec"));
    let mut errors = ErrorList::new();
    for (field, shown) in [
        ("attachRequired", "attachedRequired"),
        ("podInfoOnMount", "podInfoOnMount"),
        ("storageCapacity", "storageCapacity"),
    ] {
        if !is_set(spec, &[field]) {
            errors.push(Error::required(&path.child(shown), ""));
        }
    }
    let policy = object::string(spec, &["fsGroupPolicy"]);
    if is_set(spec, &["fsGroupPolicy"]) && !GROUP_POLICIES.contains(&policy) {
        errors.push(Error::not_supported(
            &path.child("fsGroupPolicy"),
            policy,
            &GROUP_POLICIES,
        ));
    }
    validate_token_requests(spec, &path.child("tokenRequests"), &mut errors);
    for mode in strings(spec, &["volumeLifecycleModes"]) {
        if !LIFECYCLES.contains(&mode) {
            errors.push(Error::not_supported(
                &path.child("volumeLifecycleModes"),
                mode,
                &LIFECYCLES,
            ));
        }
    }
    if !is_set(spec, &["seLinuxMount"]) {
        errors.push(Error::required(&path.child("seLinuxMount"), ""));
    }
    let period = object::int(spec, &["nodeAllocatableUpdatePeriodSeconds"]);
    if let Some(period) = period.filter(|period| *period < MIN_PERIOD) {
        let path = path.child("nodeAllocatableUpdatePeriodSeconds");
        errors.push(Error::invalid(
            &path,
            period,
            "must be greater than or equal to 10 seconds",
        ));
    }
    if let Some(kept) = present(spec, &["serviceAccountTokenInSecrets"])
        && object::list(spec, &["tokenRequests"]).is_empty()
    {
        let path = path.child("serviceAccountTokenInSecrets");
        let detail = "serviceAccountTokenInSecrets is set but no tokenRequests are specified";
        errors.push(Error::invalid(&path, kept.clone(), detail));
    }
    errors
}

fn validate_token_requests(spec: &Value, path: &Path, errors: &mut ErrorList) {
    let mut audiences = BTreeSet::new();
    for (i, request) in object::list(spec, &["tokenRequests"]).iter().enumerate() {
        let (path, audience) = (path.index(i), object::string(request, &["audience"]));
        if !audiences.insert(audience) {
            errors.push(Error::duplicate(&path.child("audience"), audience));
            continue;
        }
        let Some(seconds) = object::int(request, &["expirationSeconds"]) else {
            continue;
        };
        let path = path.child("expirationSeconds");
        if seconds < MIN_TOKEN {
            let detail = "may not specify a duration less than 10 minutes";
            errors.push(Error::invalid(&path, seconds, detail));
        }
        if seconds > MAX_TOKEN {
            let detail = "may not specify a duration larger than 2^32 seconds";
            errors.push(Error::invalid(&path, seconds, detail));
        }
    }
}

fn driver_cells(object: &Value, now: jiff::Timestamp) -> Vec<Value> {
    let flag = |field, absent: bool| {
        object::get(object, &["spec", field])
            .and_then(Value::as_bool)
            .unwrap_or(absent)
    };
    let modes = strings(object, &["spec", "volumeLifecycleModes"]).join(",");
    let requests = match present(object, &["spec", "tokenRequests"]).and_then(Value::as_array) {
        None => "<unset>".to_owned(),
        Some(requests) => {
            let all: Vec<&str> = requests.iter().map(|one| object::string(one, &["audience"])).collect();
            all.join(",")
        }
    };
    vec![
        object::name(object).into(),
        flag("attachRequired", true).into(),
        flag("podInfoOnMount", false).into(),
        flag("storageCapacity", false).into(),
        requests.into(),
        flag("requiresRepublish", false).into(),
        if modes.is_empty() {
            "<none>".into()
        } else {
            modes.into()
        },
        age(object, now),
    ]
}

fn validate_node(object: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let mut seen = BTreeSet::new();
    for (i, driver) in object::list(object, &["spec", "drivers"]).iter().enumerate() {
        let path = Path::new("spec").child("drivers").index(i);
        let name = object::string(driver, &["name"]);
        validate_driver_name(name, &path.child("name"), &mut errors);
        let (id, id_path) = (object::string(driver, &["nodeID"]), path.child("nodeID"));
        if id.is_empty() {
            errors.push(Error::required(&id_path, ""));
        }
        if id.len() > MAX_NODE_ID {
            let detail = format!("must be {MAX_NODE_ID} characters or less");
            errors.push(Error::invalid(&id_path, id, detail));
        }
        let allocatable = path.child("allocatable");
        non_negative(driver, &["allocatable"], &["count"], &allocatable, &mut errors);
        if !seen.insert(name) {
            errors.push(Error::duplicate(&path.child("name"), name));
        }
        let mut keys = BTreeSet::new();
        for key in strings(driver, &["topologyKeys"]) {
            if key.is_empty() {
                errors.push(Error::required(&path, ""));
            }
            if !keys.insert(key) {
                errors.push(Error::duplicate(&path, key));
            }
            errors.extend(invalid_each(&path, key, names::qualified_name(key)));
        }
    }
    errors
}

fn validate_node_change(new: &Value, old: &Value, errors: &mut ErrorList) {
    for before in object::list(old, &["spec", "drivers"]) {
        for now in object::list(new, &["spec", "drivers"]) {
            if before.get("name") != now.get("name") {
                continue;
            }
            let (mut before, mut now) = (before.clone(), now.clone());
            for driver in [&mut before, &mut now] {
                object::remove(driver, &["allocatable"]);
            }
            if !same(Some(&before), Some(&now)) {
                let shown = internal::shown(&now, "io.k8s.api.storage.v1.CSINodeDriver");
                let path = Path::new("spec").child("drivers");
                errors.push(invalid_as(&path, &shown, "field is immutable"));
            }
        }
    }
}

fn validate_capacity(object: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    if let Some(selector) = present(object, &["nodeTopology"]) {
        errors.extend(label_selector_errors(
            selector,
            Tolerance::None,
            &Path::new("nodeTopology"),
        ));
    }
    let class = object::string(object, &["storageClassName"]);
    let texts = names::dns1123_subdomain(class);
    errors.extend(invalid_each(&Path::new("storageClassName"), class, texts));
    if let Some(capacity) = present(object, &["capacity"]).map(quantity)
        && capacity.signum() < 0
    {
        let detail = "must be greater than or equal to 0";
        errors.push(Error::invalid(&Path::new("capacity"), capacity.to_string(), detail));
    }
    errors
}

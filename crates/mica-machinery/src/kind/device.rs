//! The kinds of `resource.k8s.io`: devices, who has them, and who wants them.
//!
//! They are served as data: filled in and shown as upstream does, and checked only for their shape.

use serde_json::{Value, json};

use super::check::{immutable, list_mut, present, set_default};
use super::column::age;
use super::internal;
use super::plain::{Plain, Status};
use super::workload::number;
use crate::field::{ErrorList, Path};
use crate::object;

pub const DEVICE_CLASS: Plain = Plain {
    generation: &["spec"],
    cells: name_and_age,
    returns_deleted: true,
    ..Plain::new("resource.k8s.io/deviceclasses", "io.k8s.api.resource.v1.DeviceClass")
};

pub const CLAIM: Plain = Plain {
    default: |object| default_requests(object, &["spec", "devices", "requests"]),
    validate_update: |_, new, old| fixed_spec(new, old, "io.k8s.api.resource.v1.ResourceClaimSpec"),
    status: Status::ApartFromMetadata,
    cells: |object, now| vec![object::name(object).into(), state(object).into(), age(object, now)],
    returns_deleted: true,
    ..Plain::new("resource.k8s.io/resourceclaims", "io.k8s.api.resource.v1.ResourceClaim")
};

pub const CLAIM_TEMPLATE: Plain = Plain {
    default: |object| default_requests(object, &["spec", "spec", "devices", "requests"]),
    validate_update: |_, new, old| fixed_spec(new, old, "io.k8s.api.resource.v1.ResourceClaimTemplateSpec"),
    cells: name_and_age,
    returns_deleted: true,
    ..Plain::new(
        "resource.k8s.io/resourceclaimtemplates",
        "io.k8s.api.resource.v1.ResourceClaimTemplate",
    )
};

pub const SLICE: Plain = Plain {
    generation: &["spec"],
    selectable: &["spec.nodeName", "spec.driver"],
    cells: |object, now| {
        let of = |at: &[&str]| Value::from(object::string(object, at));
        vec![
            object::name(object).into(),
            of(&["spec", "nodeName"]),
            of(&["spec", "driver"]),
            of(&["spec", "pool", "name"]),
            age(object, now),
        ]
    },
    returns_deleted: true,
    ..Plain::new("resource.k8s.io/resourceslices", "io.k8s.api.resource.v1.ResourceSlice")
};

fn name_and_age(object: &Value, now: jiff::Timestamp) -> Vec<Value> {
    vec![object::name(object).into(), age(object, now)]
}

fn default_requests(object: &mut Value, at: &[&str]) {
    let default = |request: &mut Value| {
        set_default(request, &["allocationMode"], "ExactCount");
        if object::string(request, &["allocationMode"]) == "ExactCount" && number(request, &["count"]) == 0 {
            object::set(request, &["count"], json!(1));
        }
    };
    for request in list_mut(object, at) {
        if let Some(exact) = request.get_mut("exactly").filter(|exact| exact.is_object()) {
            default(exact);
        }
        list_mut(request, &["firstAvailable"]).iter_mut().for_each(default);
    }
}

fn fixed_spec(new: &Value, old: &Value, openapi: &str) -> ErrorList {
    let mut errors = ErrorList::new();
    let shown = internal::shown(new.get("spec").unwrap_or(&Value::Null), openapi);
    immutable(new, old, &["spec"], &Path::new("spec"), &shown, &mut errors);
    errors
}

fn state(claim: &Value) -> String {
    let leaving = !object::string(claim, &["metadata", "deletionTimestamp"]).is_empty();
    let allocated = present(claim, &["status", "allocation"]).is_some();
    let reserved = !object::list(claim, &["status", "reservedFor"]).is_empty();
    let states = [
        (leaving, "deleted"),
        (!allocated && !leaving, "pending"),
        (allocated, "allocated"),
        (allocated && reserved, "reserved"),
    ];
    let told: Vec<&str> = states.iter().filter(|(is, _)| *is).map(|(_, state)| *state).collect();
    told.join(",")
}

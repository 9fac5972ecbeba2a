//! ReplicaSets and ReplicationControllers.

use serde_json::Value;

use crate::field::{Error, ErrorList, Path};
use crate::kind::check::{entries, present, set_default, set_default_pointer};
use crate::kind::column::age;
use crate::kind::plain::{Plain, Status};
use crate::kind::pod::{default_template, validate_template};
use crate::kind::workload::{
    SelectorRule, check_replicas, container_cells, immutable_selector, labels_cell, non_negative, number, only_always,
    selector_cell, validate_lasting_template, validate_selector, warnings,
};
use crate::meta::GarbagePolicy;
use crate::{names, object};

pub const REPLICA_SET: Plain = Plain {
    default: |object| {
        default_template(object, &["spec", "template"]);
        set_default_pointer(object, &["spec", "replicas"], 1);
    },
    validate: |_, object| validate_set(object),
    validate_update: |_, new, old| {
        let mut errors = validate_set(new);
        immutable_selector(new, old, &mut errors);
        errors
    },
    status: Status::Apart,
    validate_status: |new, _| validate_status(new),
    cells: |object, now| cells(object, now, selector_cell(object::get(object, &["spec", "selector"]))),
    warnings,
    generation: &["spec"],
    ..Plain::new("apps/replicasets", "io.k8s.api.apps.v1.ReplicaSet")
};

pub const REPLICATION_CONTROLLER: Plain = Plain {
    default: default_controller,
    validate: |_, object| validate_controller(object),
    validate_update: |_, new, _| validate_controller(new),
    status: Status::Apart,
    validate_status: |new, _| validate_status(new),
    cells: |object, now| cells(object, now, labels_cell(object, &["spec", "selector"])),
    warnings,
    generation: &["spec"],
    selectable: &["status.replicas"],
    garbage: (GarbagePolicy::OrphanDependents, None),
    ..Plain::new("replicationcontrollers", "io.k8s.api.core.v1.ReplicationController")
};

fn validate_set(object: &Value) -> ErrorList {
    // Upstream's word, though this is none.
    const RULE: SelectorRule = SelectorRule {
        kind: "deployment",
        uncompiled: "invalid label selector",
    };
    let null = Value::Null;
    let (spec, path) = (object.get("spec").unwrap_or(&null), Path::new("spec"));
    let mut errors = ErrorList::new();
    non_negative(spec, &[], &["replicas", "minReadySeconds"], &path, &mut errors);
    if let Some(selector) = validate_selector(spec, &RULE, &path, &mut errors) {
        let template = spec.get("template").unwrap_or(&null);
        validate_lasting_template(
            template,
            Some(&selector),
            "ReplicaSet",
            &path.child("template"),
            &mut errors,
        );
    }
    errors
}

fn default_controller(object: &mut Value) {
    default_template(object, &["spec", "template"]);
    if let Some(labels) = present(object, &["spec", "template", "metadata", "labels"]).cloned() {
        set_default(object, &["spec", "selector"], labels.clone());
        set_default(object, &["metadata", "labels"], labels);
    }
    set_default_pointer(object, &["spec", "replicas"], 1);
}

fn validate_controller(object: &Value) -> ErrorList {
    let null = Value::Null;
    let (spec, path) = (object.get("spec").unwrap_or(&null), Path::new("spec"));
    let mut errors = ErrorList::new();
    non_negative(spec, &[], &["minReadySeconds"], &path, &mut errors);
    let wanted: Vec<(&str, &Value)> = entries(spec, &["selector"]).collect();
    if wanted.is_empty() {
        errors.push(Error::required(&path.child("selector"), ""));
    }
    if present(spec, &["replicas"]).is_none() {
        errors.push(Error::required(&path.child("replicas"), ""));
    }
    non_negative(spec, &[], &["replicas"], &path, &mut errors);
    let path = path.child("template");
    let Some(template) = present(spec, &["template"]) else {
        errors.push(Error::required(&path, ""));
        return errors;
    };
    let labels = present(template, &["metadata", "labels"]).cloned().unwrap_or_default();
    let texts = |(key, value): &(&str, &Value)| labels.get(*key) == Some(*value);
    let valid = wanted.iter().all(|(key, value)| {
        names::label_key(key).is_empty() && names::label_value(value.as_str().unwrap_or_default()).is_empty()
    });
    if !wanted.is_empty() && valid && !wanted.iter().all(texts) {
        let path = path.child("metadata").child("labels");
        errors.push(Error::invalid(
            &path,
            labels,
            "`selector` does not match template `labels`",
        ));
    }
    errors.extend(validate_template(template, &path));
    only_always(template, "ReplicationController", &path, &mut errors);
    errors
}

fn validate_status(new: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let null = Value::Null;
    let status = new.get("status").unwrap_or(&null);
    let counts = [
        "replicas",
        "fullyLabeledReplicas",
        "readyReplicas",
        "availableReplicas",
        "observedGeneration",
        "terminatingReplicas",
    ];
    let parts = ["fullyLabeledReplicas", "readyReplicas", "availableReplicas"];
    check_replicas(status, &counts, &parts, &mut errors);
    errors
}

fn cells(object: &Value, now: jiff::Timestamp, selector: Value) -> Vec<Value> {
    let [names, images] = container_cells(object::get(object, &["spec", "template"]));
    vec![
        object::name(object).into(),
        number(object, &["spec", "replicas"]).into(),
        number(object, &["status", "replicas"]).into(),
        number(object, &["status", "readyReplicas"]).into(),
        age(object, now),
        names,
        images,
        selector,
    ]
}

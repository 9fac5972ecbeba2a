//! Deployments.

use serde_json::{Value, json};

use crate::field::{Error, ErrorList, Path};
use crate::kind::check::{invalid_as, is_set, not_supported_as, present, set_default, set_default_pointer};
use crate::kind::column::age;
use crate::kind::internal;
use crate::kind::plain::{Plain, Status};
use crate::kind::pod::default_template;
use crate::kind::workload::{
    SelectorRule, at_most_100_percent, check_replicas, container_cells, immutable_selector, int_or_percent,
    int_or_percent_value, named_warnings, non_negative, not_decremented, number, validate_lasting_template,
    validate_selector,
};
use crate::object;
use crate::select::LabelSelector;

pub const DEPLOYMENT: Plain = Plain {
    default,
    validate: |_, object| validate_spec(object),
    validate_update: |_, new, old| {
        let mut errors = validate_spec(new);
        immutable_selector(new, old, &mut errors);
        errors
    },
    status: Status::ApartFromLabels,
    validate_status,
    cells,
    // Annotations count because replica sets get copies of them.
    warnings: named_warnings,
    generation: &["spec", "metadata.annotations"],
    ..Plain::new("apps/deployments", "io.k8s.api.apps.v1.Deployment")
};

fn default(object: &mut Value) {
    default_template(object, &["spec", "template"]);
    set_default_pointer(object, &["spec", "replicas"], 1);
    set_default(object, &["spec", "strategy", "type"], "RollingUpdate");
    if object::string(object, &["spec", "strategy", "type"]) == "RollingUpdate" {
        for field in ["maxUnavailable", "maxSurge"] {
            set_default_pointer(object, &["spec", "strategy", "rollingUpdate", field], "25%");
        }
    }
    set_default_pointer(object, &["spec", "revisionHistoryLimit"], 10);
    set_default_pointer(object, &["spec", "progressDeadlineSeconds"], 600);
}

fn validate_spec(object: &Value) -> ErrorList {
    const RULE: SelectorRule = SelectorRule {
        kind: "deployment",
        uncompiled: "invalid label selector",
    };
    let null = Value::Null;
    let (spec, path) = (object.get("spec").unwrap_or(&null), Path::new("spec"));
    let mut errors = ErrorList::new();
    non_negative(spec, &[], &["replicas"], &path, &mut errors);
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
    validate_strategy(
        spec.get("strategy").unwrap_or(&null),
        &path.child("strategy"),
        &mut errors,
    );
    let counts = ["minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"];
    non_negative(spec, &[], &counts, &path, &mut errors);
    if let Some(deadline) = object::int(spec, &["progressDeadlineSeconds"])
        && deadline <= number(spec, &["minReadySeconds"])
    {
        let path = path.child("progressDeadlineSeconds");
        errors.push(Error::invalid(&path, deadline, "must be greater than minReadySeconds"));
    }
    errors
}

fn validate_strategy(strategy: &Value, path: &Path, errors: &mut ErrorList) {
    let rolling = present(strategy, &["rollingUpdate"]);
    match object::string(strategy, &["type"]) {
        "Recreate" if rolling.is_some() => {
            let detail = "may not be specified when strategy `type` is 'Recreate'";
            errors.push(Error::forbidden(&path.child("rollingUpdate"), detail));
        }
        "Recreate" => {}
        "RollingUpdate" => validate_rolling(rolling.unwrap_or(&Value::Null), &path.child("rollingUpdate"), errors),
        _ => {
            let shown = internal::shown(strategy, "io.k8s.api.apps.v1.DeploymentStrategy");
            errors.push(not_supported_as(path, &shown, &["Recreate", "RollingUpdate"]));
        }
    }
}

fn validate_rolling(rolling: &Value, path: &Path, errors: &mut ErrorList) {
    let zero = json!(0);
    let of = |field: &str| present(rolling, &[field]).unwrap_or(&zero);
    for field in ["maxUnavailable", "maxSurge"] {
        int_or_percent(of(field), &path.child(field), errors);
    }
    let unavailable = of("maxUnavailable");
    if int_or_percent_value(Some(unavailable)) == 0 && int_or_percent_value(Some(of("maxSurge"))) == 0 {
        let detail = "may not be 0 when `maxSurge` is 0";
        errors.push(Error::invalid(
            &path.child("maxUnavailable"),
            unavailable.clone(),
            detail,
        ));
    }
    at_most_100_percent(unavailable, &path.child("maxUnavailable"), errors);
}

fn validate_status(new: &Value, old: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let null = Value::Null;
    let status = new.get("status").unwrap_or(&null);
    let counts = [
        "observedGeneration",
        "replicas",
        "updatedReplicas",
        "readyReplicas",
        "availableReplicas",
        "unavailableReplicas",
        "terminatingReplicas",
        "collisionCount",
    ];
    let parts = ["updatedReplicas", "readyReplicas", "availableReplicas"];
    check_replicas(status, &counts, &parts, &mut errors);
    not_decremented(new, old, &mut errors);
    errors
}

fn cells(object: &Value, now: jiff::Timestamp) -> Vec<Value> {
    let status = |field| number(object, &["status", field]);
    let selector = match LabelSelector::from_value(object::get(object, &["spec", "selector"])) {
        Ok(selector) => selector.to_string(),
        Err(_) => "<invalid>".to_owned(),
    };
    let ready = format!("{}/{}", status("readyReplicas"), number(object, &["spec", "replicas"]));
    let [names, images] = container_cells(object::get(object, &["spec", "template"]));
    vec![
        object::name(object).into(),
        ready.into(),
        status("updatedReplicas").into(),
        status("availableReplicas").into(),
        age(object, now),
        names,
        images,
        selector.into(),
    ]
}

/// The strategy that a stateful set or a daemon set was given, as errors show it.
pub(super) fn shown_strategy(strategy: &Value, openapi: &str, path: &Path, detail: &str) -> Error {
    invalid_as(path, &internal::shown(strategy, openapi), detail)
}

/// Whether a value of a strategy is set.
pub(super) fn has_rolling(strategy: &Value) -> bool {
    is_set(strategy, &["rollingUpdate"])
}

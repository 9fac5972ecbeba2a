//! DaemonSets.
//!
//! Surprise: how often the template changed is kept in an annotation, which the server counts and clients cannot set.

use serde_json::{Value, json};

use crate::field::{Error, ErrorList, Path};
use crate::kind::check::{not_supported_as, present, same, set_default, set_default_pointer};
use crate::kind::column::age;
use crate::kind::plain::{Plain, Status};
use crate::kind::pod::{default_template, validate_template};
use crate::kind::workload::{
    at_most_100_percent, container_cells, immutable_selector, int_or_percent, int_or_percent_value, is_empty_selector,
    labels_cell, non_negative, not_decremented, number, only_always, selector_cell, selector_shown, validate_match,
    warnings,
};
use crate::kind::{WriteContext, internal};
use crate::object;
use crate::select::{LabelSelector, Tolerance, label_selector_errors};

/// Where the count of template changes is kept.
const TEMPLATE_GENERATION: [&str; 3] = ["metadata", "annotations", "deprecated.daemonset.template.generation"];

pub const DAEMON_SET: Plain = Plain {
    default,
    prepare,
    validate: |_, object| validate_spec(object),
    validate_update: |_, new, old| {
        let mut errors = ErrorList::new();
        immutable_selector(new, old, &mut errors);
        errors.extend(validate_spec(new));
        errors
    },
    status: Status::Apart,
    validate_status,
    cells,
    warnings,
    generation: &["spec"],
    ..Plain::new("apps/daemonsets", "io.k8s.api.apps.v1.DaemonSet")
};

fn default(object: &mut Value) {
    default_template(object, &["spec", "template"]);
    set_default(object, &["spec", "updateStrategy", "type"], "RollingUpdate");
    if object::string(object, &["spec", "updateStrategy", "type"]) == "RollingUpdate" {
        set_default_pointer(
            object,
            &["spec", "updateStrategy", "rollingUpdate", "maxUnavailable"],
            1,
        );
        set_default_pointer(object, &["spec", "updateStrategy", "rollingUpdate", "maxSurge"], 0);
    }
    set_default_pointer(object, &["spec", "revisionHistoryLimit"], 10);
    set_default_pointer(object, &TEMPLATE_GENERATION, "0");
}

fn template_generation(object: &Value) -> i64 {
    object::string(object, &TEMPLATE_GENERATION).parse().unwrap_or_default()
}

fn prepare(ctx: &WriteContext<'_>, new: &mut Value, old: Option<&Value>) {
    let at = ["spec", "template"];
    let generation = match old {
        None => template_generation(new).max(1),
        Some(_) if ctx.subresource == "status" => return,
        Some(old) => {
            let changed = !same(object::get(new, &at), object::get(old, &at));
            template_generation(old) + i64::from(changed)
        }
    };
    object::set(new, &TEMPLATE_GENERATION, generation.to_string());
}

fn validate_spec(object: &Value) -> ErrorList {
    let null = Value::Null;
    let (spec, path) = (object.get("spec").unwrap_or(&null), Path::new("spec"));
    let template = spec.get("template").unwrap_or(&null);
    let mut errors = ErrorList::new();
    let selector = present(spec, &["selector"]);
    if let Some(selector) = selector {
        errors.extend(label_selector_errors(
            selector,
            Tolerance::None,
            &path.child("selector"),
        ));
    }
    if let Ok(selector) = LabelSelector::from_value(selector) {
        validate_match(&selector, template, &path.child("template"), &mut errors);
    }
    if let Some(selector) = selector.filter(|selector| is_empty_selector(selector)) {
        let detail = "empty selector is invalid for daemonset";
        errors.push(Error::invalid(
            &path.child("selector"),
            selector_shown(selector),
            detail,
        ));
    }
    errors.extend(validate_template(template, &path.child("template")));
    only_always(template, "DaemonSet", &path.child("template"), &mut errors);
    non_negative(spec, &[], &["minReadySeconds"], &path, &mut errors);
    let strategy = spec.get("updateStrategy").unwrap_or(&null);
    validate_strategy(strategy, &path.child("updateStrategy"), &mut errors);
    non_negative(spec, &[], &["revisionHistoryLimit"], &path, &mut errors);
    errors
}

fn validate_strategy(strategy: &Value, path: &Path, errors: &mut ErrorList) {
    match object::string(strategy, &["type"]) {
        "OnDelete" => {}
        "RollingUpdate" => match present(strategy, &["rollingUpdate"]) {
            None => errors.push(Error::required(&path.child("rollingUpdate"), "")),
            Some(rolling) => validate_rolling(rolling, &path.child("rollingUpdate"), errors),
        },
        _ => {
            let shown = internal::shown(strategy, "io.k8s.api.apps.v1.DaemonSetUpdateStrategy");
            errors.push(not_supported_as(path, &shown, &["RollingUpdate", "OnDelete"]));
        }
    }
}

fn validate_rolling(rolling: &Value, path: &Path, errors: &mut ErrorList) {
    const FIELDS: [&str; 2] = ["maxUnavailable", "maxSurge"];
    let zero = json!(0);
    let of = |field: &str| present(rolling, &[field]).unwrap_or(&zero);
    for field in FIELDS {
        int_or_percent(of(field), &path.child(field), errors);
    }
    for field in FIELDS {
        at_most_100_percent(of(field), &path.child(field), errors);
    }
    match FIELDS.map(|field| int_or_percent_value(Some(of(field))) != 0) {
        [true, true] => {
            let detail = "may not be set when maxUnavailable is non-zero";
            errors.push(Error::invalid(&path.child("maxSurge"), of("maxSurge").clone(), detail));
        }
        [false, false] => {
            let detail = "cannot be 0 when maxSurge is 0";
            errors.push(Error::required(&path.child("maxUnavailable"), detail));
        }
        _ => {}
    }
}

fn validate_status(new: &Value, old: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let counts = [
        "currentNumberScheduled",
        "numberMisscheduled",
        "desiredNumberScheduled",
        "numberReady",
        "observedGeneration",
        "updatedNumberScheduled",
        "numberAvailable",
        "numberUnavailable",
        "collisionCount",
    ];
    non_negative(new, &["status"], &counts, &Path::new("status"), &mut errors);
    not_decremented(new, old, &mut errors);
    errors
}

fn cells(object: &Value, now: jiff::Timestamp) -> Vec<Value> {
    let mut cells = vec![object::name(object).into()];
    for field in [
        "desiredNumberScheduled",
        "currentNumberScheduled",
        "numberReady",
        "updatedNumberScheduled",
        "numberAvailable",
    ] {
        cells.push(number(object, &["status", field]).into());
    }
    cells.push(labels_cell(object, &["spec", "template", "spec", "nodeSelector"]));
    cells.push(age(object, now));
    cells.extend(container_cells(object::get(object, &["spec", "template"])));
    cells.push(selector_cell(object::get(object, &["spec", "selector"])));
    cells
}

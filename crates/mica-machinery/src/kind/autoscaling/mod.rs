//! HorizontalPodAutoscalers: stored in the second version, seen in both.

mod metric;
mod old;
mod print;

pub use old::{from_stored, to_stored};

use serde_json::{Value, json};

use super::check::{invalid_each, is_set, present, set_default_pointer};
use super::plain::{Plain, Status};
use super::workload::{non_negative, number};
use crate::field::{Error, ErrorList, Path};
use crate::kind::core::resource::quantity;
use crate::{names, object};

/// Upstream's bounds, in seconds.
const MAX_PERIOD: i64 = 1800;
const MAX_WINDOW: i64 = 3600;
const SELECT: [&str; 3] = ["Disabled", "Max", "Min"];
const POLICIES: [&str; 2] = ["Percent", "Pods"];

pub const AUTOSCALER: Plain = Plain {
    default,
    validate: |_, object| validate(object),
    validate_update: |_, new, _| validate(new),
    status: Status::Apart,
    validate_status: |new, _| {
        let mut errors = ErrorList::new();
        let counts = ["currentReplicas", "desiredReplicas"];
        non_negative(new, &["status"], &counts, &Path::new("status"), &mut errors);
        errors
    },
    cells: print::cells,
    ..Plain::new(
        "autoscaling/horizontalpodautoscalers",
        "io.k8s.api.autoscaling.v2.HorizontalPodAutoscaler",
    )
};

/// The same in the first version, which has defaults of its own before it is turned into the second.
pub const OLD_AUTOSCALER: Plain = Plain {
    ty: "io.k8s.api.autoscaling.v1.HorizontalPodAutoscaler",
    ..AUTOSCALER
};

fn default(object: &mut Value) {
    set_default_pointer(object, &["spec", "minReplicas"], 1);
    if object::list(object, &["spec", "metrics"]).is_empty() {
        let metric = json!({
            "type": "Resource",
            "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
        });
        object::set(object, &["spec", "metrics"], json!([metric]));
    }
    if !is_set(object, &["spec", "behavior"]) {
        return;
    }
    let pods = json!({"type": "Pods", "value": 4, "periodSeconds": 15});
    let percent = json!({"type": "Percent", "value": 100, "periodSeconds": 15});
    set_default_pointer(
        object,
        &["spec", "behavior", "scaleUp", "stabilizationWindowSeconds"],
        0,
    );
    for (field, policies) in [("scaleUp", json!([pods, percent])), ("scaleDown", json!([percent]))] {
        set_default_pointer(object, &["spec", "behavior", field, "selectPolicy"], "Max");
        set_default_pointer(object, &["spec", "behavior", field, "policies"], policies);
    }
}

fn validate(object: &Value) -> ErrorList {
    let null = Value::Null;
    let (spec, path) = (object.get("spec").unwrap_or(&null), Path::new("spec"));
    let mut errors = ErrorList::new();
    let (min, max) = (object::int(spec, &["minReplicas"]), number(spec, &["maxReplicas"]));
    if let Some(min) = min.filter(|min| *min < 1) {
        let detail = "must be greater than or equal to 1";
        errors.push(Error::invalid(&path.child("minReplicas"), min, detail));
    }
    let at = path.child("maxReplicas");
    match max {
        0 => errors.push(Error::required(&at, "must be set and greater than 0")),
        ..0 => errors.push(Error::invalid(&at, max, "must be greater than or equal to 1")),
        _ => {}
    }
    if min.is_some_and(|min| max < min) {
        let detail = "must be greater than or equal to `minReplicas`";
        errors.push(Error::invalid(&at, max, detail));
    }
    let target = spec.get("scaleTargetRef").unwrap_or(&null);
    validate_reference(target, &path.child("scaleTargetRef"), &mut errors);
    metric::validate_all(spec, &path.child("metrics"), &mut errors);
    for field in ["scaleUp", "scaleDown"] {
        if let Some(rules) = present(spec, &["behavior", field]) {
            validate_rules(rules, &path.child("behavior").child(field), &mut errors);
        }
    }
    errors
}

/// An object of any kind but the core group's.
fn validate_reference(reference: &Value, path: &Path, errors: &mut ErrorList) {
    for field in ["kind", "name"] {
        match object::string(reference, &[field]) {
            "" => errors.push(Error::required(&path.child(field), "")),
            text => errors.extend(invalid_each(&path.child(field), text, names::path_segment_name(text))),
        }
    }
    let (version, kind) = (
        object::string(reference, &["apiVersion"]),
        object::string(reference, &["kind"]),
    );
    let at = path.child("apiVersion");
    if version.matches('/').count() > 1 {
        let detail = format!("unexpected GroupVersion string: {version}");
        errors.push(Error::invalid(&at, version, detail));
    } else if !version.contains('/') && !(kind == "ReplicationController" && version == "v1") {
        let detail = "apiVersion must specify API group";
        errors.push(Error::invalid(&at, version, detail));
    }
}

fn validate_rules(rules: &Value, path: &Path, errors: &mut ErrorList) {
    let (window, at) = (
        object::int(rules, &["stabilizationWindowSeconds"]),
        path.child("stabilizationWindowSeconds"),
    );
    if let Some(window) = window.filter(|window| *window < 0) {
        errors.push(Error::invalid(&at, window, "must be greater than or equal to zero"));
    }
    if let Some(window) = window.filter(|window| *window > MAX_WINDOW) {
        let detail = format!("must be less than or equal to {MAX_WINDOW}");
        errors.push(Error::invalid(&at, window, detail));
    }
    if let Some(select) = present(rules, &["selectPolicy"]).and_then(Value::as_str)
        && !SELECT.contains(&select)
    {
        errors.push(Error::not_supported(&path.child("selectPolicy"), select, &SELECT));
    }
    let (policies, at) = (object::list(rules, &["policies"]), path.child("policies"));
    if policies.is_empty() {
        errors.push(Error::required(&at, "must specify at least one Policy"));
    }
    for (i, policy) in policies.iter().enumerate() {
        let (path, r#type) = (at.index(i), object::string(policy, &["type"]));
        if !POLICIES.contains(&r#type) {
            errors.push(Error::not_supported(&path.child("type"), r#type, &POLICIES));
        }
        for field in ["value", "periodSeconds"] {
            let found = number(policy, &[field]);
            if found <= 0 {
                errors.push(Error::invalid(&path.child(field), found, "must be greater than zero"));
            }
        }
        let period = number(policy, &["periodSeconds"]);
        if period > MAX_PERIOD {
            let detail = format!("must be less than or equal to {MAX_PERIOD}");
            errors.push(Error::invalid(&path.child("periodSeconds"), period, detail));
        }
    }
    if let Some(tolerance) = present(rules, &["tolerance"]).map(quantity)
        && tolerance.signum() < 0
    {
        let detail = "must be greater than or equal to 0";
        errors.push(Error::invalid(&path.child("tolerance"), tolerance.to_string(), detail));
    }
}

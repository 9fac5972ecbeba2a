//! HorizontalPodAutoscalers: stored in the second version, seen in both. And Scale, which they change (`scale`).

mod metric;
mod old;
mod print;
pub mod scale;

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
    validate: |_, object| validate(object, None),
    validate_update: |_, new, old| validate(new, Some(old)),
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

fn validate(object: &Value, old: Option<&Value>) -> ErrorList {
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
    let kept = |field: &str| {
        let at = ["spec", "scaleTargetRef", field];
        old.is_some_and(|old| object::string(old, &at) == object::string(object, &at))
    };
    let rule = match object::string(target, &["kind"]) {
        _ if kept("apiVersion") && kept("kind") => Version::Unchecked,
        // The one kind of the core group that can be scaled.
        "ReplicationController" => Version::Any,
        _ => Version::WithGroup,
    };
    validate_reference(target, rule, &path.child("scaleTargetRef"), &mut errors);
    metric::validate_all(spec, &path.child("metrics"), &mut errors);
    for field in ["scaleUp", "scaleDown"] {
        if let Some(rules) = present(spec, &["behavior", field]) {
            validate_rules(rules, &path.child("behavior").child(field), &mut errors);
        }
    }
    errors
}

/// What the version of a reference must say.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Version {
    /// A group, since nothing of the core group is meant.
    WithGroup,
    Any,
    /// It was so before.
    Unchecked,
}

fn validate_reference(reference: &Value, rule: Version, path: &Path, errors: &mut ErrorList) {
    for field in ["kind", "name"] {
        match object::string(reference, &[field]) {
            "" => errors.push(Error::required(&path.child(field), "")),
            text => errors.extend(invalid_each(&path.child(field), text, names::path_segment_name(text))),
        }
    }
    let version = object::string(reference, &["apiVersion"]);
    let why = match version.matches('/').count() {
        _ if rule == Version::Unchecked => return,
        0 if rule == Version::WithGroup => "apiVersion must specify API group".to_owned(),
        0 | 1 => return,
        _ => format!("unexpected GroupVersion string: {version}"),
    };
    errors.push(Error::invalid(&path.child("apiVersion"), version, why));
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

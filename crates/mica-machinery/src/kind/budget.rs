//! PodDisruptionBudgets and PriorityClasses: which pods may be disturbed, and which come first.

use serde_json::Value;

use super::check::{immutable_string, invalid_as, is_set, one_of, present, set_default_pointer};
use super::column::age;
use super::plain::{Plain, Status};
use super::workload::{at_most_100_percent, int_or_percent, non_negative, number};
use super::{MetadataCheck, condition, internal};
use crate::field::{Error, ErrorList, Path};
use crate::select::{Tolerance, label_selector_errors};
use crate::{names, object};

const EVICTION: [&str; 2] = ["AlwaysAllow", "IfHealthyBudget"];
const PREEMPTION: [&str; 2] = ["PreemptLowerPriority", "Never"];
/// The highest priority that is not the system's.
const HIGHEST: i64 = 1_000_000_000;
/// Classes that the system has, with their values.
pub const SYSTEM_CLASSES: [(&str, i64, &str); 2] = [
    (
        "system-cluster-critical",
        2_000_000_000,
        "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
    ),
    (
        "system-node-critical",
        2_000_001_000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
];

pub const DISRUPTION_BUDGET: Plain = Plain {
    // Upstream forgets to look at the name.
    name: names::name_is_path_segment,
    validate: |_, object| validate_budget(object),
    validate_update: |_, new, _| validate_budget(new),
    metadata_check: MetadataCheck::Neither,
    status: Status::Apart,
    validate_status: |new, _| {
        let path = Path::new("status");
        let conditions = object::list(new, &["status", "conditions"]);
        let mut errors = condition::validate_all(conditions, &path.child("conditions"));
        let counts = ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"];
        non_negative(new, &["status"], &counts, &path, &mut errors);
        errors
    },
    generation: &["spec"],
    cells: |object, now| {
        let bound = |field| match present(object, &["spec", field]) {
            Some(Value::String(text)) => text.clone(),
            Some(number) => number.to_string(),
            None => "N/A".to_owned(),
        };
        vec![
            object::name(object).into(),
            bound("minAvailable").into(),
            bound("maxUnavailable").into(),
            number(object, &["status", "disruptionsAllowed"]).into(),
            age(object, now),
        ]
    },
    unconditional_update: false,
    ..Plain::new(
        "policy/poddisruptionbudgets",
        "io.k8s.api.policy.v1.PodDisruptionBudget",
    )
};

pub const PRIORITY_CLASS: Plain = Plain {
    default: |object| set_default_pointer(object, &["preemptionPolicy"], "PreemptLowerPriority"),
    validate: |_, object| validate_class(object),
    validate_update: |_, new, old| {
        let mut errors = ErrorList::new();
        if number(new, &["value"]) != number(old, &["value"]) {
            let detail = "may not be changed in an update.";
            errors.push(Error::forbidden(&Path::new("value"), detail));
        }
        let path = Path::new("preemptionPolicy");
        immutable_string(new, old, &["preemptionPolicy"], &path, &mut errors);
        errors
    },
    // It has a generation that nothing raises: what it counts cannot change.
    generation: &["value"],
    cells: |object, now| {
        let global = object.get("globalDefault") == Some(&Value::Bool(true));
        vec![
            object::name(object).into(),
            number(object, &["value"]).into(),
            global.into(),
            age(object, now),
            object::string(object, &["preemptionPolicy"]).into(),
        ]
    },
    ..Plain::new(
        "scheduling.k8s.io/priorityclasses",
        "io.k8s.api.scheduling.v1.PriorityClass",
    )
};

fn validate_budget(object: &Value) -> ErrorList {
    let null = Value::Null;
    let (spec, path) = (object.get("spec").unwrap_or(&null), Path::new("spec"));
    let mut errors = ErrorList::new();
    let bounds = ["minAvailable", "maxUnavailable"];
    if bounds.iter().all(|field| is_set(spec, &[field])) {
        let shown = internal::shown(spec, "io.k8s.api.policy.v1.PodDisruptionBudgetSpec");
        let detail = "minAvailable and maxUnavailable cannot be both set";
        errors.push(invalid_as(&path, &shown, detail));
    }
    for field in bounds {
        if let Some(bound) = present(spec, &[field]) {
            int_or_percent(bound, &path.child(field), &mut errors);
            at_most_100_percent(bound, &path.child(field), &mut errors);
        }
    }
    if let Some(selector) = present(spec, &["selector"]) {
        errors.extend(label_selector_errors(
            selector,
            Tolerance::None,
            &path.child("selector"),
        ));
    }
    if let Some(policy) = present(spec, &["unhealthyPodEvictionPolicy"]).and_then(Value::as_str)
        && !EVICTION.contains(&policy)
    {
        let path = path.child("unhealthyPodEvictionPolicy");
        errors.push(Error::not_supported(&path, policy, &EVICTION));
    }
    errors
}

fn validate_class(object: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let (name, value) = (object::name(object), number(object, &["value"]));
    let global = object.get("globalDefault") == Some(&Value::Bool(true));
    if name.starts_with("system-") {
        let why = match SYSTEM_CLASSES.iter().find(|(known, ..)| *known == name) {
            None => Some(format!("{name} is not a known system priority class")),
            Some((_, known, _)) if *known != value => Some(format!("value of {name} PriorityClass must be {known}")),
            Some(_) if global => Some(format!("globalDefault of {name} PriorityClass must be false")),
            Some(_) => None,
        };
        if let Some(why) = why {
            let path = Path::new("metadata").child("name");
            let detail =
                format!("priority class names with 'system-' prefix are reserved for system use only. error: {why}");
            errors.push(Error::forbidden(&path, detail));
        }
    } else if value > HIGHEST {
        let detail = format!("maximum allowed value of a user defined priority is {HIGHEST}");
        errors.push(Error::forbidden(&Path::new("value"), detail));
    }
    if is_set(object, &["preemptionPolicy"]) {
        let policy = object::string(object, &["preemptionPolicy"]);
        one_of(&Path::new("preemptionPolicy"), policy, &PREEMPTION, &mut errors);
    }
    errors
}

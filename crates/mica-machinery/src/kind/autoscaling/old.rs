//! The first version of autoscalers, which knows one metric: what else there is, it carries in annotations.

use serde_json::{Map, Value, json};

use crate::kind::check::present;
use crate::object;

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
const CPU: [&str; 2] = ["spec", "targetCPUUtilizationPercentage"];
const CURRENT_CPU: [&str; 2] = ["status", "currentCPUUtilizationPercentage"];

/// A place in the second version, and its name in the first.
type Place = (&'static [&'static str], &'static str);

/// Each source: its field, and how the second version's places are called in the first.
const SOURCES: [(&str, &[Place]); 5] = [
    (
        "object",
        &[
            (&["describedObject"], "target"),
            (&["metric", "name"], "metricName"),
            (&["metric", "selector"], "selector"),
            (&["target", "value"], "targetValue"),
            (&["target", "averageValue"], "averageValue"),
        ],
    ),
    (
        "pods",
        &[
            (&["metric", "name"], "metricName"),
            (&["metric", "selector"], "selector"),
            (&["target", "averageValue"], "targetAverageValue"),
        ],
    ),
    (
        "resource",
        &[
            (&["name"], "name"),
            (&["target", "averageUtilization"], "targetAverageUtilization"),
            (&["target", "averageValue"], "targetAverageValue"),
        ],
    ),
    (
        "containerResource",
        &[
            (&["name"], "name"),
            (&["container"], "container"),
            (&["target", "averageUtilization"], "targetAverageUtilization"),
            (&["target", "averageValue"], "targetAverageValue"),
        ],
    ),
    (
        "external",
        &[
            (&["metric", "name"], "metricName"),
            (&["metric", "selector"], "metricSelector"),
            (&["target", "value"], "targetValue"),
            (&["target", "averageValue"], "targetAverageValue"),
        ],
    ),
];

/// Whether a metric is the one that the first version has a field for.
fn is_cpu(metric: &Value) -> bool {
    object::string(metric, &["resource", "name"]) == "cpu"
        && present(metric, &["resource", "target", "averageUtilization"]).is_some()
}

fn old_metric(metric: &Value) -> Value {
    let mut old = json!({"type": metric.get("type")});
    for (field, places) in SOURCES {
        let Some(source) = present(metric, &[field]) else {
            continue;
        };
        let held = places
            .iter()
            .filter_map(|(at, name)| present(source, at).map(|value| ((*name).to_owned(), value.clone())));
        old[field] = Value::Object(held.collect());
    }
    old
}

fn new_metric(metric: &Value) -> Value {
    let mut new = json!({"type": metric.get("type")});
    for (field, places) in SOURCES {
        let Some(source) = present(metric, &[field]) else {
            continue;
        };
        let mut held = Value::Object(Map::new());
        for (at, name) in places {
            if let Some(value) = present(source, &[name]) {
                object::set(&mut held, at, value.clone());
            }
        }
        let has = |place: &str| present(&held, &["target", place]).is_some();
        let r#type = match () {
            () if has("averageUtilization") => "Utilization",
            () if has("value") => "Value",
            () => "AverageValue",
        };
        object::set(&mut held, &["target", "type"], r#type);
        new[field] = held;
    }
    new
}

/// From what clients of the first version send to what is stored.
pub fn to_stored(mut object: Value) -> Value {
    let cpu = object::remove(&mut object, &CPU).filter(|value| !value.is_null());
    let mut metrics: Vec<Value> = annotation(&mut object, METRICS)
        .and_then(|value| value.as_array().map(|all| all.iter().map(new_metric).collect()))
        .unwrap_or_default();
    if let Some(cpu) = cpu {
        let target = json!({"type": "Utilization", "averageUtilization": cpu});
        metrics.push(json!({"type": "Resource", "resource": {"name": "cpu", "target": target}}));
    }
    if !metrics.is_empty() {
        object::set(&mut object, &["spec", "metrics"], metrics);
    }
    if let Some(behavior) = annotation(&mut object, BEHAVIOR) {
        object::set(&mut object, &["spec", "behavior"], lower_first(behavior));
    }
    if let Some(conditions) = annotation(&mut object, CONDITIONS) {
        object::set(&mut object, &["status", "conditions"], conditions);
    }
    let current = object::remove(&mut object, &CURRENT_CPU).filter(|value| !value.is_null());
    let told = annotation(&mut object, CURRENT);
    if let Some(current) = current {
        let metric = json!({"name": "cpu", "current": {"averageUtilization": current}});
        let metric = json!([{"type": "Resource", "resource": metric}]);
        object::set(&mut object, &["status", "currentMetrics"], metric);
    } else if let Some(told) = told {
        object::set(&mut object, &["status", "currentMetrics"], told);
    }
    object
}

/// Takes what an annotation says, and the annotation away.
fn annotation(object: &mut Value, key: &str) -> Option<Value> {
    let text = object::remove(object, &["metadata", "annotations", key])?;
    if object::map(object, &["metadata", "annotations"]).is_some_and(Map::is_empty) {
        object::remove(object, &["metadata", "annotations"]);
    }
    serde_json::from_str(text.as_str()?).ok()
}

/// Behaviour is told with Go's names.
fn lower_first(value: Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .into_iter()
            .map(|(name, value)| {
                let mut characters = name.chars();
                let first = characters.next().map(|c| c.to_lowercase().to_string());
                (first.unwrap_or_default() + characters.as_str(), lower_first(value))
            })
            .collect(),
        Value::Array(items) => items.into_iter().map(lower_first).collect(),
        value => value,
    }
}

/// From what is stored to what clients of the first version see.
pub fn from_stored(mut object: Value) -> Value {
    let metrics = object::remove(&mut object, &["spec", "metrics"]);
    let metrics = metrics.and_then(|value| value.as_array().cloned()).unwrap_or_default();
    if let Some(cpu) = metrics.iter().find(|metric| is_cpu(metric)) {
        let target = cpu["resource"]["target"]["averageUtilization"].clone();
        object::set(&mut object, &CPU, target);
    }
    let others: Vec<Value> = metrics
        .iter()
        .filter(|metric| !is_cpu(metric))
        .map(old_metric)
        .collect();
    let mut told = Vec::new();
    if !others.is_empty() {
        told.push((METRICS, Value::from(others)));
    }
    if let Some(behavior) = object::remove(&mut object, &["spec", "behavior"]).filter(|value| !value.is_null()) {
        told.push((BEHAVIOR, upper_first(behavior)));
    }
    let current = object::remove(&mut object, &["status", "currentMetrics"]);
    if let Some(Value::Array(current)) = current.filter(|value| value.as_array().is_some_and(|all| !all.is_empty())) {
        let cpu = current.iter().find_map(|metric| {
            let is_cpu = object::string(metric, &["resource", "name"]) == "cpu";
            present(metric, &["resource", "current", "averageUtilization"]).filter(|_| is_cpu)
        });
        if let Some(cpu) = cpu.cloned() {
            object::set(&mut object, &CURRENT_CPU, cpu);
        }
        told.push((CURRENT, Value::from(current)));
    }
    let conditions = object::remove(&mut object, &["status", "conditions"]);
    if let Some(conditions) = conditions.filter(|value| value.as_array().is_some_and(|all| !all.is_empty())) {
        told.push((CONDITIONS, conditions));
    }
    for (key, value) in told {
        object::set(&mut object, &["metadata", "annotations", key], value.to_string());
    }
    object
}

fn upper_first(value: Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .into_iter()
            .map(|(name, value)| {
                let mut characters = name.chars();
                let first = characters.next().map(|c| c.to_uppercase().to_string());
                (first.unwrap_or_default() + characters.as_str(), upper_first(value))
            })
            .collect(),
        Value::Array(items) => items.into_iter().map(upper_first).collect(),
        value => value,
    }
}

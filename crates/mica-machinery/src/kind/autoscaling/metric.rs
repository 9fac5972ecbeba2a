//! What an autoscaler looks at.

use serde_json::Value;

use super::{Version, validate_reference};
use crate::field::{Error, ErrorList, Path};
use crate::kind::check::{invalid_each, is_set, present};
use crate::kind::core::resource::{quantity, validate_container_name};
use crate::kind::workload::number;
use crate::select::{Tolerance, label_selector_errors};
use crate::{names, object};

const TYPES: [&str; 5] = ["ContainerResource", "External", "Object", "Pods", "Resource"];
/// Sources in upstream's order, by field.
const SOURCES: [&str; 5] = ["object", "external", "pods", "resource", "containerResource"];
const TARGETS: [&str; 3] = ["Utilization", "Value", "AverageValue"];

pub fn validate_all(spec: &Value, path: &Path, errors: &mut ErrorList) {
    for (i, metric) in object::list(spec, &["metrics"]).iter().enumerate() {
        validate(metric, &path.index(i), errors);
    }
}

/// The field that belongs to a type.
fn field_of(r#type: &str) -> Option<&'static str> {
    Some(match r#type {
        "Object" => "object",
        "External" => "external",
        "Pods" => "pods",
        "Resource" => "resource",
        "ContainerResource" => "containerResource",
        _ => return None,
    })
}

fn validate(metric: &Value, path: &Path, errors: &mut ErrorList) {
    let r#type = object::string(metric, &["type"]);
    if r#type.is_empty() {
        let detail = "must specify a metric source type";
        errors.push(Error::required(&path.child("type"), detail));
    }
    if !TYPES.contains(&r#type) {
        errors.push(Error::not_supported(&path.child("type"), r#type, &TYPES));
    }
    let found: Vec<&str> = SOURCES.into_iter().filter(|field| is_set(metric, &[field])).collect();
    if let Some(first) = found.first() {
        validate_source(first, &metric[*first], &path.child(first), errors);
    }
    let expected = field_of(r#type);
    match expected {
        Some(field) if !found.contains(&field) => {
            let detail = "must populate information for the given metric source";
            errors.push(Error::required(&path.child(field), detail));
        }
        Some(_) => {}
        None => errors.push(Error::not_supported(&path.child("type"), r#type, &TYPES)),
    }
    if found.len() != 1 {
        for field in found.into_iter().filter(|field| Some(*field) != expected) {
            let detail = "must populate the given metric source only";
            errors.push(Error::forbidden(&path.child(field), detail));
        }
    }
}

fn validate_source(field: &str, source: &Value, path: &Path, errors: &mut ErrorList) {
    let null = Value::Null;
    if field == "object" {
        let described = source.get("describedObject").unwrap_or(&null);
        validate_reference(described, Version::Any, &path.child("describedObject"), errors);
    }
    match field {
        "resource" | "containerResource" => {
            match object::string(source, &["name"]) {
                "" => {
                    let detail = "must specify a resource name";
                    errors.push(Error::required(&path.child("name"), detail));
                }
                name if field == "containerResource" => {
                    errors.extend(validate_container_name(name, &path.child("name")));
                }
                _ => {}
            }
            if field == "containerResource" {
                match object::string(source, &["container"]) {
                    "" => {
                        let detail = "must specify a container";
                        errors.push(Error::required(&path.child("container"), detail));
                    }
                    name => {
                        let texts = names::dns1123_label(name);
                        errors.extend(invalid_each(&path.child("container"), name, texts));
                    }
                }
            }
        }
        _ => validate_metric(source.get("metric").unwrap_or(&null), &path.child("metric"), errors),
    }
    let (target, at) = (source.get("target").unwrap_or(&null), path.child("target"));
    validate_target(target, &at, errors);
    let has = |field| is_set(target, &[field]);
    let (value, average, utilization) = (has("value"), has("averageValue"), has("averageUtilization"));
    let average_path = at.child("averageValue");
    match field {
        "object" if !value && !average => {
            let detail = "must set either a target value or averageValue";
            errors.push(Error::required(&average_path, detail));
        }
        "external" if !value && !average => {
            let detail = "must set either a target value for metric or a per-pod target";
            errors.push(Error::required(&average_path, detail));
        }
        "external" if value && average => {
            let detail = "may not set both a target value for metric and a per-pod target";
            errors.push(Error::forbidden(&at.child("value"), detail));
        }
        "pods" if !average => {
            let detail = "must specify a positive target averageValue";
            errors.push(Error::required(&average_path, detail));
        }
        "resource" | "containerResource" if !utilization && !average => {
            let detail = "must set either a target raw value or a target utilization";
            errors.push(Error::required(&at.child("averageUtilization"), detail));
        }
        "resource" | "containerResource" if utilization && average => {
            let detail = "may not set both a target raw value and a target utilization";
            errors.push(Error::forbidden(&average_path, detail));
        }
        _ => {}
    }
}

fn validate_metric(metric: &Value, path: &Path, errors: &mut ErrorList) {
    match object::string(metric, &["name"]) {
        "" => errors.push(Error::required(&path.child("name"), "must specify a metric name")),
        name => errors.extend(invalid_each(&path.child("name"), name, names::path_segment_name(name))),
    }
    if let Some(selector) = present(metric, &["selector"]) {
        errors.extend(label_selector_errors(
            selector,
            Tolerance::None,
            &path.child("selector"),
        ));
    }
}

fn validate_target(target: &Value, path: &Path, errors: &mut ErrorList) {
    let r#type = object::string(target, &["type"]);
    if r#type.is_empty() {
        let detail = "must specify a metric target type";
        errors.push(Error::required(&path.child("type"), detail));
    }
    if !TARGETS.contains(&r#type) {
        let detail = "must be either Utilization, Value, or AverageValue";
        errors.push(Error::invalid(&path.child("type"), r#type, detail));
    }
    for field in ["value", "averageValue"] {
        if let Some(amount) = present(target, &[field]).map(quantity)
            && amount.signum() <= 0
        {
            errors.push(Error::invalid(
                &path.child(field),
                amount.to_string(),
                "must be positive",
            ));
        }
    }
    let utilization = number(target, &["averageUtilization"]);
    if is_set(target, &["averageUtilization"]) && utilization < 1 {
        let path = path.child("averageUtilization");
        errors.push(Error::invalid(&path, utilization, "must be greater than 0"));
    }
}

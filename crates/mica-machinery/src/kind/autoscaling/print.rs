//! An autoscaler's row.

use serde_json::Value;

use crate::kind::check::present;
use crate::kind::column::age;
use crate::kind::core::resource::quantity;
use crate::kind::workload::number;
use crate::object;

/// Metrics that a row shows.
const SHOWN: usize = 2;

pub fn cells(object: &Value, now: jiff::Timestamp) -> Vec<Value> {
    let target = |field| object::string(object, &["spec", "scaleTargetRef", field]);
    let min = object::int(object, &["spec", "minReplicas"]);
    vec![
        object::name(object).into(),
        format!("{}/{}", target("kind"), target("name")).into(),
        metrics(object).into(),
        min.map_or("<unset>".to_owned(), |min| min.to_string()).into(),
        number(object, &["spec", "maxReplicas"]).into(),
        number(object, &["status", "currentReplicas"]).into(),
        age(object, now),
    ]
}

fn metrics(object: &Value) -> String {
    let statuses = object::list(object, &["status", "currentMetrics"]);
    let all: Vec<String> = object::list(object, &["spec", "metrics"])
        .iter()
        .enumerate()
        .map(|(i, metric)| shown(metric, statuses.get(i)))
        .collect();
    if all.is_empty() {
        return "<none>".to_owned();
    }
    let first = all[..all.len().min(SHOWN)].join(", ");
    match all.len().checked_sub(SHOWN) {
        Some(more @ 1..) => format!("{first} + {more} more..."),
        _ => first,
    }
}

fn shown(metric: &Value, status: Option<&Value>) -> String {
    const UNKNOWN: &str = "<unknown>";
    let field = match object::string(metric, &["type"]) {
        "External" => "external",
        "Pods" => "pods",
        "Object" => "object",
        "Resource" => "resource",
        "ContainerResource" => "containerResource",
        _ => return "<unknown type>".to_owned(),
    };
    let target = |name: &str| present(metric, &[field, "target", name]);
    let current = |name: &str| {
        let source = status.and_then(|status| present(status, &[field]))?;
        present(source, &["current", name])
    };
    let amount =
        |value: Option<&Value>, absent: &str| value.map_or(absent.to_owned(), |value| quantity(value).to_string());
    let per_pod = target("averageValue").is_some();
    match field {
        "external" | "object" if per_pod => {
            let now = amount(current("averageValue"), UNKNOWN);
            format!("{now}/{} (avg)", amount(target("averageValue"), ""))
        }
        "external" | "object" => {
            let now = amount(current("value"), UNKNOWN);
            format!("{now}/{}", amount(target("value"), "<nil>"))
        }
        "pods" => {
            let now = amount(current("averageValue"), UNKNOWN);
            format!("{now}/{}", amount(target("averageValue"), "<nil>"))
        }
        _ => {
            let name = object::string(metric, &[field, "name"]);
            if per_pod {
                let now = amount(current("averageValue"), UNKNOWN);
                return format!("{name}: {now}/{}", amount(target("averageValue"), ""));
            }
            let percent = |value: Option<&Value>, absent: &str| {
                value
                    .and_then(Value::as_i64)
                    .map_or(absent.to_owned(), |number| format!("{number}%"))
            };
            let now = percent(current("averageUtilization"), UNKNOWN);
            format!("{name}: {now}/{}", percent(target("averageUtilization"), "<auto>"))
        }
    }
}

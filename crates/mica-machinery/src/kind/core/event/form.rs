//! The two forms of an event: that of core/v1, which is stored, and that of `events.k8s.io/v1`.

use serde_json::{Map, Value, json};

/// The fields that have another name in `events.k8s.io`, core's name first.
const RENAMED: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// The fields that core/v1 always prints, and what as.
const ALWAYS: [&str; 7] = [
    "eventTime",
    "firstTimestamp",
    "lastTimestamp",
    "involvedObject",
    "source",
    "reportingComponent",
    "reportingInstance",
];

/// Turns an `events.k8s.io/v1` event into the stored one.
pub fn to_core(event: Value) -> Value {
    let mut core = renamed(event, "v1", RENAMED.map(|(core, new)| (new, core)));
    for field in ALWAYS {
        let zero = match field {
            "involvedObject" | "source" => json!({}),
            "reportingComponent" | "reportingInstance" => json!(""),
            _ => Value::Null,
        };
        core.entry(field).or_insert(zero);
    }
    Value::Object(core)
}

/// Turns a stored event into one of `events.k8s.io/v1`.
pub fn to_events(event: Value) -> Value {
    let mut new = renamed(event, "events.k8s.io/v1", RENAMED);
    for field in ["reportingController", "reportingInstance"] {
        if new.get(field).is_some_and(|value| value == "") {
            new.remove(field);
        }
    }
    Value::Object(new)
}

fn renamed<const N: usize>(event: Value, version: &str, names: [(&str, &str); N]) -> Map<String, Value> {
    let Value::Object(mut event) = event else {
        return Map::new();
    };
    for (from, to) in names {
        if let Some(value) = event.remove(from) {
            event.insert(to.to_owned(), value);
        }
    }
    event.insert("apiVersion".to_owned(), version.into());
    event
}

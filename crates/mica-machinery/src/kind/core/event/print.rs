//! Events as rows of a table.

use serde_json::Value;

use super::{controller, first, time};
use crate::kind::Column;
use crate::kind::column::{NAME, since, text, wide};
use crate::object;

const SUBOBJECT: &str = "If referring to a piece of an object instead of an entire object, this string should contain a valid JSON/Go field access statement, such as desiredState.manifest.containers[2]. For example, if the object reference is to a container within a pod, this would take on a value like: \"spec.containers{name}\" (where \"name\" refers to the name of the container that triggered the event) or if no container name is specified \"spec.containers[2]\" (container with index 2 in this pod). This syntax is chosen only to have some well-defined way of referencing a part of an object.";

pub(super) const COLUMNS: &[Column] = &[
    text(
        "Last Seen",
        "The time at which the most recent occurrence of this event was recorded.",
    ),
    text(
        "Type",
        "Type of this event (Normal, Warning), new types could be added in the future",
    ),
    text(
        "Reason",
        "This should be a short, machine understandable string that gives the reason for the transition into the object's current status.",
    ),
    text("Object", "The object that this event is about."),
    wide(text("Subobject", SUBOBJECT)),
    wide(text(
        "Source",
        "The component reporting this event. Should be a short machine understandable string.",
    )),
    text(
        "Message",
        "A human-readable description of the status of this operation.",
    ),
    wide(text(
        "First Seen",
        "The time at which the event was first recorded. (Time of server receipt is in TypeMeta.)",
    )),
    wide(text("Count", "The number of times this event has occurred.")),
    wide(NAME),
];

pub(super) fn cells(event: &Value, now: jiff::Timestamp) -> Vec<Value> {
    let first_seen = since(first(time(event, "firstTimestamp"), time(event, "eventTime")), now);
    let mut last_seen = match time(event, "lastTimestamp") {
        "" => first_seen.clone(),
        time => since(time, now),
    };
    // Events of the new group that happened once have no count.
    let mut count = object::int(event, &["count"]).filter(|count| *count != 0).unwrap_or(1);
    if let Some(series) = event.get("series").filter(|series| series.is_object()) {
        last_seen = since(time(series, "lastObservedTime"), now);
        count = object::int(series, &["count"]).unwrap_or_default();
    }
    let involved = |field| object::string(event, &["involvedObject", field]);
    let kind = involved("kind").to_lowercase();
    let target = if involved("name").is_empty() {
        kind
    } else {
        format!("{kind}/{}", involved("name"))
    };
    let component = first(object::string(event, &["source", "component"]), controller(event));
    let host = first(
        object::string(event, &["source", "host"]),
        object::string(event, &["reportingInstance"]),
    );
    let source = if host.is_empty() {
        component.to_owned()
    } else {
        format!("{component}, {host}")
    };
    vec![
        last_seen.into(),
        object::string(event, &["type"]).into(),
        object::string(event, &["reason"]).into(),
        target.into(),
        involved("fieldPath").into(),
        source.into(),
        object::string(event, &["message"]).trim().into(),
        first_seen.into(),
        count.into(),
        object::name(event).into(),
    ]
}

//! Events of both groups over one storage, the form of core/v1.
//!
//! Surprise: validation depends on the group a client writes in; one written in `events.k8s.io` may change only its series,
//! one in core/v1 may change entirely. Error paths are those of the stored form except for the reporting controller.

use serde_json::{Map, Value, json};

use crate::field::{Error, ErrorList, Path, quote};
use crate::kind::check::{immutable, immutable_int, immutable_string, invalid_as, invalid_each, same};
use crate::kind::column::{NAME, since, text, wide};
use crate::kind::{Column, NameUse, Strategy, WriteContext};
use crate::{names, object};

const TTL: std::time::Duration = std::time::Duration::from_secs(60 * 60);
const MAX_NOTE_BYTES: usize = 1024;
const MAX_FIELD_BYTES: usize = 128;

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

/// Events as core/v1 clients write them.
#[derive(Debug)]
pub struct CoreEvent;

/// Events as `events.k8s.io/v1` clients write them.
#[derive(Debug)]
pub struct NewEvent;

impl Strategy for CoreEvent {
    fn validate(&self, _ctx: &WriteContext<'_>, object: &Value) -> ErrorList {
        validate_any(object, "reportingComponent")
    }

    fn validate_update(&self, _ctx: &WriteContext<'_>, new: &Value, _old: &Value) -> ErrorList {
        validate_any(new, "reportingComponent")
    }

    fn name_errors(&self, name: &str, name_use: NameUse) -> Vec<String> {
        names::name_is_path_segment(name, name_use)
    }

    fn selectable(&self, object: &Value) -> Vec<(&'static str, String)> {
        selectable(object, self.selectable_labels())
    }

    fn selectable_labels(&self) -> &'static [&'static str] {
        &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ]
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn cells(&self, object: &Value, now: jiff::Timestamp) -> Vec<Value> {
        cells(object, now)
    }

    fn creates_on_update(&self) -> bool {
        true
    }

    fn collects_garbage(&self) -> bool {
        false
    }

    fn ttl(&self) -> Option<std::time::Duration> {
        Some(TTL)
    }
}

impl Strategy for NewEvent {
    fn validate(&self, _ctx: &WriteContext<'_>, object: &Value) -> ErrorList {
        let mut errors = validate_any(object, "reportingController");
        errors.extend(validate_series(object));
        if time(object, "eventTime").is_empty() {
            errors.push(Error::required(&Path::new("eventTime"), ""));
        }
        let r#type = object::string(object, &["type"]);
        if !["Normal", "Warning"].contains(&r#type) {
            errors.push(Error::invalid(
                &Path::new("type"),
                "",
                format!("has invalid value: {type}", r#type = r#type),
            ));
        }
        let source = ["component", "host"]
            .iter()
            .any(|part| !object::string(object, &["source", part]).is_empty());
        let unset = [
            ("firstTimestamp", time(object, "firstTimestamp").is_empty()),
            ("lastTimestamp", time(object, "lastTimestamp").is_empty()),
            ("count", object::int(object, &["count"]).unwrap_or_default() == 0),
            ("source", !source),
        ];
        for (field, _) in unset.into_iter().filter(|(_, is_unset)| !is_unset) {
            errors.push(Error::invalid(&Path::new(field), "", "needs to be unset"));
        }
        errors
    }

    fn validate_update(&self, _ctx: &WriteContext<'_>, new: &Value, old: &Value) -> ErrorList {
        let mut errors = validate_any(new, "reportingController");
        if !same(new.get("series"), old.get("series")) {
            errors.extend(validate_series(new));
        }
        validate_immutable(new, old, &mut errors);
        errors
    }

    fn name_errors(&self, name: &str, name_use: NameUse) -> Vec<String> {
        names::name_is_dns_subdomain(name, name_use)
    }

    fn selectable(&self, object: &Value) -> Vec<(&'static str, String)> {
        selectable(object, self.selectable_labels())
    }

    fn selectable_labels(&self) -> &'static [&'static str] {
        &[
            "regarding.kind",
            "regarding.namespace",
            "regarding.name",
            "regarding.uid",
            "regarding.apiVersion",
            "regarding.resourceVersion",
            "regarding.fieldPath",
            "reason",
            "reportingController",
            "type",
        ]
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn cells(&self, object: &Value, now: jiff::Timestamp) -> Vec<Value> {
        cells(object, now)
    }

    fn creates_on_update(&self) -> bool {
        true
    }

    fn collects_garbage(&self) -> bool {
        false
    }

    fn ttl(&self) -> Option<std::time::Duration> {
        Some(TTL)
    }
}

/// The values of field selectors, of either group's labels.
fn selectable(event: &Value, labels: &[&'static str]) -> Vec<(&'static str, String)> {
    let value = |label: &str| match label {
        "source" => first(object::string(event, &["source", "component"]), controller(event)),
        "reportingController" | "reportingComponent" => controller(event),
        _ => match label.rsplit_once('.') {
            Some((_, field)) => object::string(event, &["involvedObject", field]),
            None => object::string(event, &[label]),
        },
    };
    labels.iter().map(|label| (*label, value(label).to_owned())).collect()
}

fn first<'a>(one: &'a str, other: &'a str) -> &'a str {
    if one.is_empty() { other } else { one }
}

fn controller(event: &Value) -> &str {
    object::string(event, &["reportingComponent"])
}

fn time<'a>(event: &'a Value, field: &str) -> &'a str {
    object::string(event, &[field])
}

/// The rules for events of either group; `controller_field` is what the group calls the reporting controller.
fn validate_any(event: &Value, controller_field: &str) -> ErrorList {
    let mut errors = ErrorList::new();
    let namespace = object::namespace(event);
    let involved = object::string(event, &["involvedObject", "namespace"]);
    let is_new = !time(event, "eventTime").is_empty();
    let matches = match (is_new, involved) {
        (true, "") => ["default", "kube-system"].contains(&namespace),
        (true, _) => true,
        (false, "") => ["", "default"].contains(&namespace),
        (false, involved) => involved == namespace,
    };
    if !matches {
        let path = Path::new("involvedObject").child("namespace");
        errors.push(Error::invalid(&path, involved, "does not match event.namespace"));
    }
    if is_new {
        validate_reporter(event, controller_field, &mut errors);
    }
    errors.extend(invalid_each(
        &Path::new("namespace"),
        namespace,
        names::dns1123_subdomain(namespace),
    ));
    errors
}

fn validate_reporter(event: &Value, controller_field: &str, errors: &mut ErrorList) {
    let path = Path::new(controller_field);
    let controller = controller(event);
    if controller.is_empty() {
        errors.push(Error::required(&path, ""));
    }
    errors.extend(invalid_each(&path, controller, names::qualified_name(controller)));
    for field in ["reportingInstance", "action", "reason"] {
        let (path, value) = (Path::new(field), object::string(event, &[field]));
        if value.is_empty() {
            errors.push(Error::required(&path, ""));
        }
        if value.len() > MAX_FIELD_BYTES {
            errors.push(Error::invalid(
                &path,
                "",
                format!("can have at most {MAX_FIELD_BYTES} characters"),
            ));
        }
    }
    if object::string(event, &["message"]).len() > MAX_NOTE_BYTES {
        let detail = format!("can have at most {MAX_NOTE_BYTES} characters");
        errors.push(Error::invalid(&Path::new("message"), "", detail));
    }
}

fn validate_series(event: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let Some(series) = event.get("series").filter(|series| series.is_object()) else {
        return errors;
    };
    if object::int(series, &["count"]).unwrap_or_default() < 2 {
        errors.push(Error::invalid(&Path::new("series.count"), "", "should be at least 2"));
    }
    if time(series, "lastObservedTime").is_empty() {
        errors.push(Error::required(&Path::new("series.lastObservedTime"), ""));
    }
    errors
}

fn validate_immutable(new: &Value, old: &Value, errors: &mut ErrorList) {
    let path = Path::new;
    let shown = reference(new.get("involvedObject"));
    immutable(new, old, &["involvedObject"], &path("involvedObject"), &shown, errors);
    immutable_string(new, old, &["reason"], &path("reason"), errors);
    immutable_string(new, old, &["message"], &path("message"), errors);
    let source = |field| quote(object::string(new, &["source", field]));
    let shown = format!(r#"{{"Component":{},"Host":{}}}"#, source("component"), source("host"));
    immutable(new, old, &["source"], &path("source"), &shown, errors);
    immutable_time(new, old, "firstTimestamp", errors);
    immutable_time(new, old, "lastTimestamp", errors);
    immutable_int(new, old, &["count"], &path("count"), errors);
    // Upstream checks the reason twice, and answers it twice.
    immutable_string(new, old, &["reason"], &path("reason"), errors);
    immutable_string(new, old, &["type"], &path("type"), errors);
    immutable_time(new, old, "eventTime", errors);
    immutable_string(new, old, &["action"], &path("action"), errors);
    let shown = reference(new.get("related"));
    immutable(new, old, &["related"], &path("related"), &shown, errors);
    if controller(new) != controller(old) {
        errors.push(Error::invalid(
            &path("reportingController"),
            controller(new),
            "field is immutable",
        ));
    }
    immutable_string(new, old, &["reportingInstance"], &path("reportingInstance"), errors);
}

fn immutable_time(new: &Value, old: &Value, field: &str, errors: &mut ErrorList) {
    let shown = match time(new, field) {
        "" => "null".to_owned(),
        time => quote(time),
    };
    if time(new, field) != time(old, field) {
        errors.push(invalid_as(&Path::new(field), &shown, "field is immutable"));
    }
}

/// An object reference as upstream's errors print the internal type.
fn reference(value: Option<&Value>) -> String {
    let Some(value) = value.filter(|value| value.is_object()) else {
        return "null".to_owned();
    };
    let fields = [
        "Kind",
        "Namespace",
        "Name",
        "UID",
        "APIVersion",
        "ResourceVersion",
        "FieldPath",
    ];
    let json = [
        "kind",
        "namespace",
        "name",
        "uid",
        "apiVersion",
        "resourceVersion",
        "fieldPath",
    ];
    let parts: Vec<String> = fields
        .iter()
        .zip(json)
        .map(|(go, json)| format!("\"{go}\":{}", quote(object::string(value, &[json]))))
        .collect();
    format!("{{{}}}", parts.join(","))
}

const SUBOBJECT: &str = "If referring to a piece of an object instead of an entire object, this string should contain a valid JSON/Go field access statement, such as desiredState.manifest.containers[2]. For example, if the object reference is to a container within a pod, this would take on a value like: \"spec.containers{name}\" (where \"name\" refers to the name of the container that triggered the event) or if no container name is specified \"spec.containers[2]\" (container with index 2 in this pod). This syntax is chosen only to have some well-defined way of referencing a part of an object.";

const COLUMNS: &[Column] = &[
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

fn cells(event: &Value, now: jiff::Timestamp) -> Vec<Value> {
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

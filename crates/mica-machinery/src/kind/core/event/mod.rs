//! Events of both groups over one storage, the form of core/v1.
//!
//! Surprise: validation depends on the group a client writes in; one written in `events.k8s.io` may change only its series,
//! one in core/v1 may change entirely. Error paths are those of the stored form except for the reporting controller.

mod form;
mod print;

use serde_json::Value;

use crate::field::{Error, ErrorList, Path, quote};
use crate::kind::check::{immutable, immutable_int, immutable_string, invalid_as, invalid_each, same};
use crate::kind::{Column, MetadataCheck, NameUse, Strategy, WriteContext};
use crate::meta::GarbagePolicy;
use crate::{names, object};
pub use form::{to_core, to_events};
use print::{COLUMNS, cells};

const TTL: std::time::Duration = std::time::Duration::from_secs(60 * 60);
const MAX_NOTE_BYTES: usize = 1024;
const MAX_FIELD_BYTES: usize = 128;

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

    fn metadata_check(&self, _ctx: &WriteContext<'_>) -> MetadataCheck {
        MetadataCheck::Neither
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

    fn garbage_policy(&self) -> GarbagePolicy {
        GarbagePolicy::Unsupported
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

    fn garbage_policy(&self) -> GarbagePolicy {
        GarbagePolicy::Unsupported
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

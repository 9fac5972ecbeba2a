//! Managed fields and server-side apply.

use std::sync::LazyLock;

use jiff::Timestamp;
use mica_machinery::managed::schema::TypeRef;
use mica_machinery::managed::{self, Entries, OnConflict, OneVersion, Request, Set, Write};
use mica_machinery::schema::Compiled;
use mica_machinery::schema::rule::NoRules;
use mica_machinery::{codec, object};
use serde_json::{Value, json};

use crate::{built_in, line, parts};

/// FieldsV1.
pub fn fields_v1(data: &[u8]) {
    let Some(fields) = crate::json(data) else { return };
    let Ok(set) = Set::from_fields(&fields) else { return };
    let printed = set.to_fields();
    let again = Set::from_fields(&printed).expect("what was printed can be read");
    assert_eq!(again, set, "{printed}");
    assert_eq!(set.paths().len(), set.len());
    assert!(set.paths().iter().all(|path| set.has(path)));
    assert_eq!(set.union(&set), set);
    assert_eq!(set.intersection(&set), set);
    assert!(set.difference(&set).is_empty());
    let leaves = set.leaves();
    assert!(leaves.difference(&set).is_empty());
    let _ = set.with_named_fields(Some(TypeRef::kind(built_in("v1 Pod").ty)));
    let texts: Vec<String> = set.paths().iter().map(|path| managed::path_text(path)).collect();
    assert_eq!(texts.len(), set.len());
}

/// A custom resource with every kind of list and map.
static WIDGET: LazyLock<Compiled> = LazyLock::new(|| {
    let text = json!({"type": "string"});
    let item = json!({"type": "object", "required": ["name"], "properties": {
        "name": text, "port": {"type": "integer", "default": 80}, "v": text, "deep": {"type": "object", "properties": {
            "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": text}}}}});
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "items": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name", "port"], "items": item},
        "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": text},
        "whole": {"type": "array", "x-kubernetes-list-type": "atomic", "items": text},
        "amap": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": text},
        "map": {"type": "object", "additionalProperties": text},
        "either": {"x-kubernetes-int-or-string": true},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}});
    Compiled::new(&schema, &NoRules)
});

/// The kind on the first line (`Widget` is a custom one), then a story: each part is `manager`, `manager!` (by force) or
/// `=manager` (an update) on its first line, and an object.
pub fn apply(data: &[u8]) {
    let (name, rest) = line(data);
    let kind = built_in(name);
    let (schema, kind_name, api_version) = match name {
        "Widget" => (WIDGET.merge_type(), "Widget", "g.io/v1".to_owned()),
        "Free" => (TypeRef::DEDUCED, "Free", "g.io/v1".to_owned()),
        _ if kind.group.is_empty() => (TypeRef::kind(kind.ty), kind.kind, kind.version.to_owned()),
        _ => (
            TypeRef::kind(kind.ty),
            kind.kind,
            format!("{}/{}", kind.group, kind.version),
        ),
    };
    let reset = Set::of_fields(&[&["status"]]);
    let mut live: Option<Value> = None;
    for (second, part) in parts(rest).into_iter().take(6).enumerate() {
        let (who, body) = line(part);
        let Some(mut body) = crate::json(body).filter(Value::is_object) else {
            continue;
        };
        let write = Write {
            manager: who.trim_matches(['!', '=']),
            api_version: &api_version,
            subresource: "",
            time: Timestamp::from_second(second as i64).expect("a small number"),
            schema,
            reset: &reset,
            versions: &OneVersion,
        };
        if body.get("apiVersion").is_none() {
            body["apiVersion"] = api_version.as_str().into();
            body["kind"] = kind_name.into();
        }
        let normal = |object: Value| match name {
            "Widget" | "Free" => Some(object),
            _ => {
                let mut decoded = codec::decode_value(kind.ty, &object).ok()?.value;
                for word in ["apiVersion", "kind"] {
                    object::set(&mut decoded, &[word], object[word].clone());
                }
                Some(decoded)
            }
        };
        if who.starts_with('=') {
            let request = managed::request_of(body.to_string().as_bytes());
            let Some(mut new) = normal(body) else { continue };
            if new.get("metadata").is_some_and(|metadata| !metadata.is_object()) {
                continue;
            }
            managed::update(live.as_ref(), &mut new, request, &write);
            live = Some(new);
            continue;
        }
        let on_conflict = if who.ends_with('!') {
            OnConflict::Force
        } else {
            OnConflict::Refuse
        };
        let Ok(new) = managed::apply(live.as_ref(), &body, kind_name, on_conflict, &write) else {
            continue;
        };
        check_entries(&new);
        let Some(new) = normal(new) else { continue };
        let apply_again = |object: &Value, second: i64| {
            let later = Write {
                time: Timestamp::from_second(second).expect("a small number"),
                ..write
            };
            let again = managed::apply(Some(object), &body, kind_name, OnConflict::Refuse, &later);
            let again = again.expect("an applier does not conflict with itself");
            let mut again = normal(again).expect("it was fit once");
            managed::keep_times_of_noop(&mut again, object);
            again
        };
        let mut new = new;
        let mut again = apply_again(&new, 1000);
        if has_null(&new) {
            // A map that loses its last member becomes null, and only applying it empty again makes it a map: as upstream.
            (new, again) = (again.clone(), apply_again(&again, 1001));
        }
        assert_eq!(again, new, "applying twice");
        live = Some(new);
    }
    if let Some(mut live) = live {
        let old = live.clone();
        let write = Write {
            manager: "last",
            api_version: &api_version,
            subresource: "",
            time: Timestamp::from_second(2000).expect("a small number"),
            schema,
            reset: &reset,
            versions: &OneVersion,
        };
        managed::update(Some(&old), &mut live, Request::Usual, &write);
    }
}

/// Whether there is a null anywhere.
fn has_null(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(members) => members.values().any(has_null),
        Value::Array(items) => items.iter().any(has_null),
        _ => false,
    }
}

/// Entries can be read back, and nobody is there without a field.
fn check_entries(object: &Value) {
    let list = object::list(object, &["metadata", "managedFields"]);
    let entries = Entries::from_list(list).expect("what was recorded can be read");
    assert_eq!(entries.to_list().unwrap_or(json!([])), json!(list));
}

//! What a webhook may make of one object.

use mica_machinery::field::{self, Path};
use mica_machinery::{codec, names, object};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// Whether an object is nothing but its type: such are not sent.
pub(super) fn is_bare(value: &Value) -> bool {
    value
        .as_object()
        .is_some_and(|map| map.len() == 2 && map.contains_key("kind") && map.contains_key("apiVersion"))
}

/// `group/version, Kind=kind`.
pub(super) fn group_version_kind(value: &Value) -> String {
    let api_version = object::string(value, &["apiVersion"]);
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    format!("{group}/{version}, Kind={}", object::string(value, &["kind"]))
}

/// The object that a webhook made of another, or why it is none; `index` is its place in the review.
pub(super) fn accept(original: Value, raw: &RawValue, desired: &str, index: usize) -> Result<Value, String> {
    let mut converted = decode(raw)?;
    let about = group_version_kind(&original);
    let received = object::string(&converted, &["apiVersion"]);
    if received != desired {
        return Err(format!(
            "conversion webhook for {about} returned invalid object at index {index}: invalid groupVersion (expected {desired}, received {received})"
        ));
    }
    let (kind, received) = (
        object::string(&original, &["kind"]),
        object::string(&converted, &["kind"]),
    );
    if received != kind {
        return Err(format!(
            "conversion webhook for {about} returned invalid object at index {index}: invalid kind (expected {kind}, received {received})"
        ));
    }
    for (name, path) in [("name", "name"), ("namespace", "namespace"), ("UID", "uid")] {
        let (sent, got) = (
            object::string(&original, &["metadata", path]),
            object::string(&converted, &["metadata", path]),
        );
        if sent != got {
            return Err(format!(
                "conversion webhook for {about} returned invalid object: must have the same {name}: {sent} != {got}"
            ));
        }
    }
    restore_metadata(original, &mut converted)
        .map_err(|why| format!("conversion webhook for {about} returned invalid metadata: {why}"))?;
    Ok(converted)
}

/// As upstream reads an object of unknown type.
fn decode(raw: &RawValue) -> Result<Value, String> {
    let text = raw.get();
    if text == "null" {
        return Err("unexpected end of JSON input".to_owned());
    }
    let value = codec::decode_object(text.as_bytes())
        .map_err(|error| error.to_string())?
        .value;
    let readable = object::string(&value, &["apiVersion"]).matches('/').count() < 2;
    if object::string(&value, &["kind"]).is_empty() || !readable {
        return Err(format!("Object 'Kind' is missing in '{text}'"));
    }
    Ok(value)
}

/// Puts the original's metadata in place of the converted object's, but for labels and annotations.
fn restore_metadata(mut original: Value, converted: &mut Value) -> Result<(), String> {
    let response = match object::object_mut(converted).remove("metadata") {
        None => return Err("missing metadata in converted object".to_owned()),
        Some(Value::Object(metadata)) => metadata,
        Some(other) => {
            return Err(format!(
                "invalid metadata of type {} in converted object",
                object::go_type(&other)
            ));
        }
    };
    let mut metadata = match object::object_mut(&mut original).remove("metadata") {
        None => Map::new(),
        Some(Value::Object(metadata)) => metadata,
        Some(other) => {
            return Err(format!(
                "invalid metadata of type {} in input object",
                object::go_type(&other)
            ));
        }
    };
    let mut response = response;
    for name in ["labels", "annotations"] {
        let texts = match response.remove(name) {
            None | Some(Value::Null) => {
                metadata.remove(name);
                continue;
            }
            Some(texts @ Value::Object(_)) => texts,
            Some(other) => {
                let found = object::go_type(&other);
                return Err(format!("invalid metadata.{name} of type {found} in converted object"));
            }
        };
        for (key, value) in texts.as_object().into_iter().flatten() {
            if !value.is_string() {
                let found = object::go_type(value);
                return Err(format!(
                    "metadata.{name}[{key}] must be a string, but is {found} in converted object"
                ));
            }
        }
        // What was there before may be of a time with other rules.
        if metadata.get(name) != Some(&texts) {
            check_texts(name, &texts)?;
        }
        metadata.insert(name.to_owned(), texts);
    }
    object::object_mut(converted).insert("metadata".to_owned(), Value::Object(metadata));
    Ok(())
}

fn check_texts(name: &str, texts: &Value) -> Result<(), String> {
    let path = Path::new("metadata");
    let errors = if name == "labels" {
        names::label_errors(texts, &path.child("labels"))
    } else {
        // Upstream's slip, in the path alone.
        names::annotation_errors(texts, &path.child("annotation"))
    };
    if errors.is_empty() {
        Ok(())
    } else {
        Err(field::aggregate(&errors))
    }
}

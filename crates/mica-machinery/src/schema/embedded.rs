//! Resources inside resources (`x-kubernetes-embedded-resource`): their apiVersion, kind and metadata.
//!
//! Metadata is brought into the form that objects of built-in kinds have, dropping what it does not know.

use serde_json::Value;

use super::node::Node;
use crate::codec;
use crate::facts::facts;
use crate::field::{Error, ErrorList, Path};
use crate::kind::Scope;
use crate::{meta, names};

/// What becomes of metadata that has the wrong types: a request is refused, a stored object is repaired.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Malformed {
    Refuse,
    Drop,
}

/// Brings the metadata of embedded resources into form; unknown fields are dropped and reported.
pub(crate) fn coerce(
    node: &Node,
    value: &mut Value,
    path: &Path,
    malformed: Malformed,
    unknown: &mut Vec<String>,
) -> Result<(), Error> {
    match value {
        Value::Object(members) => {
            if node.flags.embedded {
                coerce_type_meta(members, path, malformed)?;
                if let Some(metadata) = members.get_mut("metadata") {
                    coerce_metadata(metadata, &path.child("metadata"), malformed, unknown)?;
                }
            }
            for (name, member) in members {
                if let Some(property) = node.properties.get(name) {
                    coerce(property, member, &path.child(name), malformed, unknown)?;
                } else if let Some(schema) = node.member(name) {
                    coerce(schema, member, &path.key(name), malformed, unknown)?;
                }
            }
            Ok(())
        }
        Value::Array(items) => {
            let Some(element) = &node.items else { return Ok(()) };
            for (at, item) in items.iter_mut().enumerate() {
                coerce(element, item, &path.index(at), malformed, unknown)?;
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

fn coerce_type_meta(
    members: &mut serde_json::Map<String, Value>,
    path: &Path,
    malformed: Malformed,
) -> Result<(), Error> {
    for name in ["apiVersion", "kind"] {
        match (members.get(name), malformed) {
            (None | Some(Value::String(_)), _) => {}
            (Some(_), Malformed::Drop) => drop(members.remove(name)),
            (Some(other), Malformed::Refuse) => {
                return Err(Error::invalid(&path.child(name), other.clone(), "must be a string"));
            }
        }
    }
    Ok(())
}

/// Brings metadata into form, also that of the resource itself.
pub(crate) fn coerce_metadata(
    metadata: &mut Value,
    path: &Path,
    malformed: Malformed,
    unknown: &mut Vec<String>,
) -> Result<(), Error> {
    let ty = facts().well_known().object_meta;
    match codec::decode_value(ty, metadata) {
        Ok(decoded) => {
            report(&decoded.strict, path, unknown);
            *metadata = without_zero_time(decoded.value);
            Ok(())
        }
        Err(error) if malformed == Malformed::Refuse => Err(Error::invalid(path, metadata.clone(), error.to_string())),
        Err(_) => {
            // Field by field, what decodes stays.
            let Value::Object(members) = metadata else {
                return Ok(());
            };
            members.retain(|name, value| {
                let mut alone = serde_json::Map::new();
                alone.insert(name.clone(), value.clone());
                codec::decode_value(ty, &Value::Object(alone)).is_ok()
            });
            if let Ok(decoded) = codec::decode_value(ty, metadata) {
                report(&decoded.strict, path, unknown);
                *metadata = without_zero_time(decoded.value);
            }
            Ok(())
        }
    }
}

fn without_zero_time(mut metadata: Value) -> Value {
    if let Some(members) = metadata.as_object_mut()
        && members.get("creationTimestamp").is_some_and(Value::is_null)
    {
        members.remove("creationTimestamp");
    }
    metadata
}

/// Reports are sentences about a field; only the field is wanted, below its parent.
fn report(reports: &[String], path: &Path, unknown: &mut Vec<String>) {
    let fields = reports.iter().filter_map(|report| report.split('"').nth(1));
    unknown.extend(fields.map(|field| format!("{path}.{field}")));
}

/// What is wrong with embedded resources.
pub(crate) fn check(node: &Node, value: &Value, path: &Path, errors: &mut ErrorList) {
    match value {
        Value::Object(members) => {
            if node.flags.embedded {
                check_resource(value, path, errors);
            }
            for (name, member) in members {
                if let Some(property) = node.properties.get(name) {
                    check(property, member, &path.child(name), errors);
                } else if let Some(schema) = node.member(name) {
                    check(schema, member, &path.key(name), errors);
                }
            }
        }
        Value::Array(items) => {
            let Some(element) = &node.items else { return };
            for (at, item) in items.iter().enumerate() {
                check(element, item, &path.index(at), errors);
            }
        }
        _ => {}
    }
}

/// What is wrong with one resource: it has an apiVersion and a kind, and metadata that would be accepted anywhere.
pub(crate) fn check_resource(value: &Value, path: &Path, errors: &mut ErrorList) {
    for name in ["apiVersion", "kind"] {
        if value.get(name).is_none() {
            errors.push(Error::required(&path.child(name), ""));
        }
    }
    for name in ["apiVersion", "kind"] {
        let path = path.child(name);
        let invalid = |detail: &str| Error::invalid(&path, value[name].clone(), detail);
        match value.get(name) {
            None => {}
            Some(Value::String(text)) if text.is_empty() => errors.push(invalid("must not be empty")),
            Some(Value::String(text)) if name == "apiVersion" && text.matches('/').count() > 1 => {
                errors.push(invalid(&format!("unexpected GroupVersion string: {text}")));
            }
            Some(Value::String(_)) if name == "apiVersion" => {}
            Some(Value::String(text)) => {
                let texts = names::dns1035_label(&text.to_lowercase());
                if !texts.is_empty() {
                    let detail = format!("may have mixed case, but should otherwise match: {}", texts.join(","));
                    errors.push(invalid(&detail));
                }
            }
            Some(_) => errors.push(invalid("must be a string")),
        }
    }
    let Some(metadata) = value.get("metadata") else { return };
    let path = path.child("metadata");
    match codec::decode_value(facts().well_known().object_meta, metadata) {
        Err(error) => errors.push(Error::invalid(&path, metadata.clone(), error.to_string())),
        Ok(decoded) => {
            let mut metadata = decoded.value;
            if metadata
                .get("name")
                .and_then(Value::as_str)
                .unwrap_or_default()
                .is_empty()
            {
                metadata["name"] = "fakename".into();
            }
            let namespace = metadata.get("namespace").and_then(Value::as_str).unwrap_or_default();
            let scope = if namespace.is_empty() {
                Scope::Cluster
            } else {
                Scope::Namespaced
            };
            errors.extend(meta::create_errors(
                &metadata,
                scope,
                names::name_is_path_segment,
                &path,
            ));
        }
    }
}

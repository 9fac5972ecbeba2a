//! Values as upstream's errors print them.
//!
//! Upstream validates unversioned copies of its types that mostly have no JSON names, so an error that shows a struct shows Go's
//! field names in Go's order, zero values included. Types of `meta/v1` are the exception: they print as plain JSON.

use serde_json::Value;

use super::check::is_empty;
use crate::codec;
use crate::facts::{Field, Shape, Type, TypeId, facts};

/// A value of the type with this OpenAPI name.
pub fn shown(value: &Value, openapi: &str) -> String {
    match facts().openapi(openapi) {
        Some(id) => shown_struct(value, id),
        None => plain(value),
    }
}

/// The `items` of a schema that are a list of schemas, or nothing.
pub fn shown_schemas(items: &Value) -> String {
    let parts = items.as_array().map(|items| {
        let parts: Vec<String> = items.iter().map(|item| shown(item, SCHEMA)).collect();
        format!("[{}]", parts.join(","))
    });
    let parts = parts.as_deref().unwrap_or("null");
    format!("{{\"Schema\":null,\"JSONSchemas\":{parts}}}")
}

/// A value as Go prints it: with its floats, and its escapes.
fn plain(value: &Value) -> String {
    let mut json = Vec::new();
    codec::encode_untyped(value, &mut json);
    String::from_utf8(json).expect("JSON is UTF-8")
}

const SCHEMA: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";
const POD_SPEC: &str = "io.k8s.api.core.v1.PodSpec";

/// What the unversioned PodSpec has in its security context.
const OF_HOST: [&str; 5] = [
    "hostNetwork",
    "hostPID",
    "hostIPC",
    "shareProcessNamespace",
    "hostUsers",
];

/// What the unversioned PodSpec has elsewhere than the versioned one: a field, and the one that it follows.
const MOVED: [(&str, &str); 3] = [
    ("setHostnameAsFQDN", "subdomain"),
    ("preemptionPolicy", "priority"),
    ("overhead", "runtimeClassName"),
];

/// The PodSpec, whose unversioned form has another order and keeps what is about the host elsewhere.
fn shown_pod_spec(spec: &Value, ty: &Type) -> String {
    let part = |field: &Field, shown: String| format!("\"{}\":{shown}", field.go);
    let plain = |field: &Field| part(field, shown_field(&spec[field.json], field));
    let named = |name: &str| ty.fields.iter().find(|field| field.json == name);
    let of_host = || OF_HOST.iter().filter_map(|name| named(name)).map(plain);
    let mut parts = Vec::with_capacity(ty.fields.len());
    for field in &ty.fields {
        match field.json {
            "serviceAccount" => {}
            name if OF_HOST.contains(&name) || MOVED.iter().any(|(moved, _)| *moved == name) => {}
            "securityContext" if spec[field.json].is_object() => {
                let own = shown_field(&spec[field.json], field);
                let own = own.trim_start_matches('{');
                parts.push(part(
                    field,
                    format!("{{{},{own}", of_host().collect::<Vec<_>>().join(",")),
                ));
            }
            _ => parts.push(plain(field)),
        }
        let moved = MOVED.iter().filter(|(_, before)| *before == field.json);
        parts.extend(moved.filter_map(|(name, _)| named(name)).map(plain));
    }
    format!("{{{}}}", parts.join(","))
}

/// The fields as the unversioned type has them.
fn in_order(ty: &'static Type) -> impl Iterator<Item = &'static Field> {
    let is_schema = ty.openapi == SCHEMA;
    let moves = move |field: &&Field| is_schema && field.json == "nullable";
    ty.fields
        .iter()
        .filter(move |field| !moves(field))
        .flat_map(move |field| {
            let follows = is_schema && field.json == "type";
            std::iter::once(field).chain(ty.fields.iter().filter(move |field| follows && moves(field)))
        })
}

fn shown_struct(value: &Value, id: TypeId) -> String {
    let ty = facts().ty(id);
    if value.is_null() {
        return "null".to_owned();
    }
    if ty.openapi == POD_SPEC {
        return shown_pod_spec(value, ty);
    }
    let plain = ty.openapi.starts_with("io.k8s.apimachinery.");
    let null = Value::Null;
    let mut parts = Vec::with_capacity(ty.fields.len());
    for field in in_order(ty) {
        let held = value.get(field.json).unwrap_or(&null);
        if plain && field.omit_empty && is_empty(held) {
            continue;
        }
        let name = if plain { field.json } else { field.go };
        parts.push(format!("\"{name}\":{}", shown_field(held, field)));
    }
    format!("{{{}}}", parts.join(","))
}

fn shown_field(value: &Value, field: &Field) -> String {
    if value.is_null() && field.pointer {
        "null".to_owned()
    } else {
        shown_shape(value, &field.shape)
    }
}

fn shown_shape(value: &Value, shape: &Shape) -> String {
    match (shape, value) {
        (Shape::Struct(id), Value::Null) => shown_struct(&Value::Object(serde_json::Map::new()), *id),
        (Shape::Struct(id), _) => shown_struct(value, *id),
        (Shape::List(item), Value::Array(items)) => {
            let parts: Vec<String> = items.iter().map(|one| shown_shape(one, item)).collect();
            format!("[{}]", parts.join(","))
        }
        (Shape::Map(item), Value::Object(entries)) => {
            let parts: Vec<String> = entries
                .iter()
                .map(|(key, one)| format!("{}:{}", plain(&key.as_str().into()), shown_shape(one, item)))
                .collect();
            format!("{{{}}}", parts.join(","))
        }
        (Shape::String, Value::Null) => "\"\"".to_owned(),
        (Shape::Bool, Value::Null) => "false".to_owned(),
        (Shape::Int32 | Shape::Int64, Value::Null) => "0".to_owned(),
        (Shape::SchemaOrBool(_), Value::Bool(allows)) => format!("{{\"Allows\":{allows},\"Schema\":null}}"),
        (Shape::SchemaOrBool(id), Value::Object(_)) => {
            format!("{{\"Allows\":true,\"Schema\":{}}}", shown_struct(value, *id))
        }
        (Shape::SchemaOrArray(id), Value::Object(_)) => {
            format!("{{\"Schema\":{},\"JSONSchemas\":null}}", shown_struct(value, *id))
        }
        (Shape::SchemaOrArray(_), Value::Array(_)) => shown_schemas(value),
        (Shape::SchemaOrStringArray(id), Value::Object(_)) => {
            format!("{{\"Schema\":{},\"Property\":null}}", shown_struct(value, *id))
        }
        (Shape::SchemaOrStringArray(_), Value::Array(_)) => {
            format!("{{\"Schema\":null,\"Property\":{}}}", plain(value))
        }
        (Shape::Quantity, Value::Null) => "\"0\"".to_owned(),
        _ => plain(value),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn structs_show_gos_names_in_gos_order() {
        let reference = json!({"name": "z", "kind": "ConfigMap"});
        assert_eq!(
            shown(&reference, "io.k8s.api.core.v1.ObjectReference"),
            r#"{"Kind":"ConfigMap","Namespace":"","Name":"z","UID":"","APIVersion":"","ResourceVersion":"","FieldPath":""}"#
        );
        let method = json!({"type": "ByHat"});
        assert_eq!(
            shown(&method, "io.k8s.api.flowcontrol.v1.FlowDistinguisherMethod"),
            r#"{"Type":"ByHat"}"#
        );
    }

    #[test]
    fn a_schema_is_shown_as_its_unversioned_form() {
        let schema = json!({"type": "array", "nullable": true, "items": {"type": "string"}, "additionalProperties": false,
            "dependencies": {"a": ["b"]}, "default": "<&>", "minimum": 1e19});
        let shown = shown(&schema, SCHEMA);
        for part in [
            r#""Type":"array","Nullable":true,"Format":"""#,
            r#""Default":"\u003c\u0026\u003e""#,
            r#""Minimum":10000000000000000000"#,
            r#""Items":{"Schema":{"ID":"""#,
            r#""AdditionalProperties":{"Allows":false,"Schema":null}"#,
            r#""Dependencies":{"a":{"Schema":null,"Property":["b"]}}"#,
        ] {
            assert!(shown.contains(part), "{part} in {shown}");
        }
    }

    #[test]
    fn a_pod_keeps_what_is_about_its_host_in_its_security_context() {
        let spec = json!({"serviceAccount": "a", "serviceAccountName": "a", "hostPID": true, "securityContext": {},
            "preemptionPolicy": "Never"});
        let shown = shown(&spec, POD_SPEC);
        let host = r#""NodeName":"","SecurityContext":{"HostNetwork":false,"HostPID":true,"HostIPC":false,"ShareProcessNamespace":null,"HostUsers":null,"SELinuxOptions":null,"#;
        assert!(shown.contains(host), "{shown}");
        assert!(
            shown.contains(r#""Priority":null,"PreemptionPolicy":"Never","DNSConfig""#),
            "{shown}"
        );
        assert!(!shown.contains("DeprecatedServiceAccount"), "{shown}");
        assert_eq!(shown.matches("HostPID").count(), 1, "{shown}");
    }

    #[test]
    fn types_of_meta_show_json_names() {
        let selector = json!({"matchLabels": {"b": "1", "a": "2"}});
        let name = "io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector";
        assert_eq!(shown(&selector, name), r#"{"matchLabels":{"a":"2","b":"1"}}"#);
    }
}

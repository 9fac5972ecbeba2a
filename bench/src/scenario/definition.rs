//! Custom resources to measure with: a small one of 1 KiB and a wide one of 160 fields, their definitions and objects.
//!
//! Definitions are built as values, so that they are JSON by construction. Objects are bodies for a [`Template`].

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::{Map, Value, json};

use super::requests::padded;
use super::{COUNTER, OBJECT_NUMBER, Subject, Template, call, remove};
use crate::endpoint::Endpoint;
use crate::wire::{Body, Connection};

const GROUP: &str = "bench.example.com";
pub const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// A definition that is not served by then never will be.
pub const SERVED_WITHIN: Duration = Duration::from_secs(60);
/// A wide object has so many parts, each with [`FIELDS_OF_A_PART`] fields of all types.
const PARTS: usize = 16;
const FIELDS_OF_A_PART: usize = 10;
pub const FIELDS: usize = PARTS * FIELDS_OF_A_PART;

/// A kind with its definition and one object, in which [`OBJECT_NUMBER`] and [`COUNTER`] stand for numbers.
pub struct Custom {
    plural: String,
    definition: Value,
    pub object: Vec<u8>,
}

impl Custom {
    /// The kind whose objects are 1 KiB of JSON, like the configmaps of other scenarios.
    pub fn small() -> Self {
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "t": {"type": "string", "maxLength": 16},
            "v": {"type": "string", "maxLength": 1024},
        }}}});
        let head = format!(
            r#"{{"apiVersion":"{GROUP}/v1","kind":"Note","metadata":{{"name":"c-{OBJECT_NUMBER}","labels":{{"app":"bench"}}}},"spec":{{"t":"{COUNTER}","v":""#
        );
        Self {
            plural: "notes".to_owned(),
            definition: definition("notes", "Note", &schema),
            object: padded(head.into_bytes(), br#""}}"#),
        }
    }

    /// Number n of the kinds with 160 fields. No two have a name or a description of a field in common.
    pub fn wide(n: usize) -> Self {
        let (plural, kind) = (format!("wides{n}"), format!("Wide{n}"));
        let mut properties = Map::from_iter([("t".to_owned(), json!({"type": "string", "maxLength": 16}))]);
        let mut spec = Map::from_iter([("t".to_owned(), json!(COUNTER))]);
        for part in 0..PARTS {
            let name = format!("part{part}Of{n}");
            properties.insert(name.clone(), part_schema(&name));
            spec.insert(name.clone(), part_value(&name));
        }
        let parts = [format!("part0Of{n}"), format!("part1Of{n}")];
        let rule = format!(
            "self.{0}.replicas{0} <= self.{1}.size{1} * 100",
            parts[0].as_str(),
            parts[1].as_str()
        );
        let schema = json!({"type": "object", "required": ["spec"], "properties": {"spec": {
            "type": "object",
            "properties": properties,
            "required": parts,
            "x-kubernetes-validations": [{"rule": rule, "message": "too many replicas for that size"}],
        }}});
        let object = json!({
            "apiVersion": format!("{GROUP}/v1"),
            "kind": kind,
            "metadata": {"name": format!("c-{OBJECT_NUMBER}"), "labels": {"app": "bench"}},
            "spec": spec,
        });
        Self {
            definition: definition(&plural, &kind, &schema),
            plural,
            object: object.to_string().into_bytes(),
        }
    }

    /// Bytes of JSON that define it.
    pub fn definition_size(&self) -> usize {
        self.definition.to_string().len()
    }

    pub fn collection(&self, namespace: &str) -> String {
        format!("/apis/{GROUP}/v1/namespaces/{namespace}/{}", self.plural)
    }

    pub fn object_path(&self, namespace: &str) -> String {
        format!("{}/c-{OBJECT_NUMBER}", self.collection(namespace))
    }

    /// Creates the definition; it may not be served yet.
    pub async fn install(&self, endpoint: &Endpoint) -> Result<()> {
        let body = self.definition.to_string();
        call(endpoint, "POST", DEFINITIONS, body.as_bytes()).await?;
        Ok(())
    }

    /// Asks until the kind is listed and an object would be created: then everything that serves it is built.
    pub async fn served(&self, endpoint: &Endpoint, namespace: &str) -> Result<()> {
        let collection = self.collection(namespace);
        let mut create = Vec::new();
        Template::new(endpoint.request("POST", &format!("{collection}?dryRun=All"), &self.object)).write(
            0,
            0,
            &mut create,
        );
        let mut connection = Connection::open(endpoint).await?;
        let deadline = Instant::now() + SERVED_WITHIN;
        for request in [endpoint.request("GET", &collection, b""), create] {
            loop {
                let reply = connection.exchange(&request, Body::Skip).await?;
                if reply.status < 300 {
                    break;
                }
                // Not known yet, or its storage is being made; any other refusal is for good.
                ensure!(
                    [404, 429, 503].contains(&reply.status) && Instant::now() < deadline,
                    "{collection} is not served: {} {}",
                    reply.status,
                    String::from_utf8_lossy(&reply.body)
                );
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        Ok(())
    }

    /// Takes the kind and its objects away from a server that is not ours.
    pub async fn clean_up(&self, subject: &Subject, endpoint: &Endpoint) {
        remove(subject, endpoint, &format!("{DEFINITIONS}/{}.{GROUP}", self.plural)).await;
    }
}

fn definition(plural: &str, kind: &str, schema: &Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{GROUP}")},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List")},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    })
}

/// Ten fields, three of which have a default and are never sent.
fn part_schema(part: &str) -> Value {
    let mut fields = Map::new();
    let mut add = |name: &str, schema: Value| {
        let Value::Object(mut schema) = schema else {
            unreachable!("every schema here is an object")
        };
        schema.insert(
            "description".to_owned(),
            json!(format!("What {name} of {part} means, and to whom.")),
        );
        fields.insert(format!("{name}{part}"), schema.into());
    };
    let text = |most: u32| json!({"type": "string", "maxLength": most});
    add(
        "name",
        json!({"type": "string", "pattern": "^[a-z][a-z0-9-]*$", "maxLength": 63}),
    );
    add(
        "size",
        json!({"type": "integer", "format": "int32", "minimum": 1, "maximum": 1000}),
    );
    add("ratio", json!({"type": "number", "minimum": 0}));
    add("since", json!({"type": "string", "format": "date-time"}));
    add(
        "zones",
        json!({"type": "array", "maxItems": 8, "x-kubernetes-list-type": "set", "items": text(20)}),
    );
    add(
        "notes",
        json!({"type": "object", "maxProperties": 8, "additionalProperties": text(40)}),
    );
    add(
        "tier",
        json!({"type": "string", "enum": ["basic", "standard", "premium"], "default": "standard"}),
    );
    add("replicas", json!({"type": "integer", "minimum": 0, "default": 2}));
    add("enabled", json!({"type": "boolean", "default": true}));
    add(
        "ports",
        json!({
            "type": "array", "maxItems": 8, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
            "items": {"type": "object", "required": ["name"], "properties": {
                "name": text(15),
                "port": {"type": "integer", "minimum": 1, "maximum": 65_535},
                "protocol": {"type": "string", "default": "TCP", "maxLength": 4},
            }},
        }),
    );
    let mut schema = json!({"type": "object", "properties": fields, "required": [format!("name{part}")]});
    // A few rules, as real definitions have them: over one object, over a list, over what was before.
    let rule = match part.split_once("Of").map(|(number, _)| number) {
        Some("part0") => format!("self.name{part} == oldSelf.name{part}"),
        Some("part1") => format!("self.ports{part}.all(p, p.port < 60000)"),
        Some("part2") => format!("!self.enabled{part} || self.replicas{part} <= self.size{part}"),
        _ => return schema,
    };
    schema["x-kubernetes-validations"] = json!([{"rule": rule, "message": "that does not fit together"}]);
    schema
}

fn part_value(part: &str) -> Value {
    let mut fields = Map::new();
    let mut add = |name: &str, value: Value| fields.insert(format!("{name}{part}"), value);
    add("name", json!("the-name-of-it"));
    add("size", json!(8));
    add("ratio", json!(0.75));
    add("since", json!("2026-01-02T03:04:05Z"));
    add("zones", json!(["north-1", "south-2"]));
    add("notes", json!({"owner": "somebody", "cost-center": "1234"}));
    add(
        "ports",
        json!([{"name": "web", "port": 8080}, {"name": "admin", "port": 8443, "protocol": "TCP"}]),
    );
    fields.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wide_definition_has_160_fields_of_which_48_have_defaults() {
        let wide = Custom::wide(7);
        let parts =
            &wide.definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
        let fields: Vec<_> = parts
            .as_object()
            .unwrap()
            .values()
            .filter_map(|part| part["properties"].as_object())
            .flat_map(|part| part.values())
            .collect();
        assert_eq!(fields.len(), FIELDS);
        assert_eq!(
            fields.iter().filter(|field| field.get("default").is_some()).count(),
            3 * PARTS
        );
    }

    #[test]
    fn two_wide_kinds_have_no_part_in_common() {
        let names = |n| {
            let object: Value = serde_json::from_slice(&Custom::wide(n).object).unwrap();
            object["spec"].as_object().unwrap().keys().cloned().collect::<Vec<_>>()
        };
        let (one, other) = (names(1), names(11));
        assert_eq!(one.len(), PARTS + 1);
        assert_eq!(
            one.iter().filter(|name| other.contains(name)).collect::<Vec<_>>(),
            ["t"]
        );
    }

    #[test]
    fn the_small_object_is_json_of_one_kibibyte() {
        let small = Custom::small();
        assert_eq!(small.object.len(), 1024);
        let parsed: Value = serde_json::from_slice(&small.object).unwrap();
        assert_eq!(parsed["spec"]["t"], COUNTER);
    }
}

//! How paths and operations are written in either dialect.
//!
//! Swagger documents share parameters: each that stands in many operations stands once, and is referred to.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::operation::{Operation, PathItem};
use super::parameter::Parameter;
use super::schema::Dialect;

pub const GVK: &str = "x-kubernetes-group-version-kind";

/// What both dialects write of an operation in the same way.
fn common(operation: &Operation) -> Map<String, Value> {
    let mut out = Map::new();
    out.insert("tags".to_owned(), json!([operation.tag]));
    out.insert("description".to_owned(), operation.description.as_str().into());
    out.insert("operationId".to_owned(), operation.id.as_str().into());
    if !operation.action.is_empty() {
        out.insert("x-kubernetes-action".to_owned(), operation.action.into());
    }
    if let Some([group, version, kind]) = &operation.kind {
        out.insert(
            GVK.to_owned(),
            json!({"group": group, "version": version, "kind": kind}),
        );
    }
    out
}

fn responses(operation: &Operation, describe: impl Fn(&str) -> Map<String, Value>) -> Value {
    let mut responses = Map::new();
    for (code, text) in operation.responses {
        responses.insert((*code).to_owned(), describe(text).into());
    }
    responses.insert("401".to_owned(), json!({"description": "Unauthorized"}));
    responses.into()
}

/// A path of an OpenAPI 3.0 document.
pub fn path_of(item: &PathItem) -> Value {
    let mut out = Map::new();
    let content = |types: &[&str], name: &str| -> Value {
        let schema = json!({"schema": Dialect::OpenApi3.reference(name)});
        types
            .iter()
            .map(|media| ((*media).to_owned(), schema.clone()))
            .collect::<Map<String, Value>>()
            .into()
    };
    let write = |parameters: &[Parameter]| -> Value {
        parameters
            .iter()
            .map(|parameter| parameter.to_json(Dialect::OpenApi3))
            .collect::<Vec<_>>()
            .into()
    };
    for operation in &item.operations {
        let mut method = common(operation);
        if !operation.parameters.is_empty() {
            method.insert("parameters".to_owned(), write(&operation.parameters));
        }
        if let Some(body) = &operation.body {
            let mut request = json!({"content": content(operation.consumes, &body.r#type)});
            if body.required {
                request["required"] = true.into();
            }
            method.insert("requestBody".to_owned(), request);
        }
        let answer = content(operation.produces, &operation.answer);
        let describe = |text: &str| {
            let described = [
                ("description".to_owned(), text.into()),
                ("content".to_owned(), answer.clone()),
            ];
            Map::from_iter(described)
        };
        method.insert("responses".to_owned(), responses(operation, describe));
        out.insert(operation.method.to_owned(), method.into());
    }
    if !item.parameters.is_empty() {
        out.insert("parameters".to_owned(), write(&item.parameters));
    }
    out.into()
}

/// Parameters that stand once in the Swagger document, by their text: their name there and what they are.
pub type Shared = BTreeMap<String, (String, Value)>;

/// A path of a Swagger document, whose shared parameters are added to `shared`.
pub fn swagger_path(item: &PathItem, shared: &mut Shared) -> Value {
    let mut out = Map::new();
    for operation in &item.operations {
        let mut method = common(operation);
        if !operation.consumes.is_empty() {
            method.insert("consumes".to_owned(), operation.consumes.into());
        }
        method.insert("produces".to_owned(), operation.produces.into());
        method.insert("schemes".to_owned(), json!(["https"]));
        let mut parameters: Vec<Value> = Vec::new();
        if let Some(body) = &operation.body {
            let mut parameter =
                json!({"name": "body", "in": "body", "schema": Dialect::Swagger.reference(&body.r#type)});
            if body.required {
                parameter["required"] = true.into();
            }
            let generic = body.r#type.starts_with("io.k8s.apimachinery.");
            parameters.push(if generic { share(parameter, shared) } else { parameter });
        }
        parameters.extend(operation.parameters.iter().map(|own| swagger_parameter(own, shared)));
        if !parameters.is_empty() {
            method.insert("parameters".to_owned(), parameters.into());
        }
        let schema = Dialect::Swagger.reference(&operation.answer);
        let describe = |text: &str| {
            let described = [
                ("description".to_owned(), text.into()),
                ("schema".to_owned(), schema.clone()),
            ];
            Map::from_iter(described)
        };
        method.insert("responses".to_owned(), responses(operation, describe));
        out.insert(operation.method.to_owned(), method.into());
    }
    if !item.parameters.is_empty() {
        let parameters: Vec<Value> = item
            .parameters
            .iter()
            .map(|own| swagger_parameter(own, shared))
            .collect();
        out.insert("parameters".to_owned(), parameters.into());
    }
    out.into()
}

/// Parameters that stay where they are: the name's text has the kind in it, and old kubectls look for the others.
const UNSHARED: [&str; 3] = ["name", "fieldValidation", "dryRun"];

fn swagger_parameter(parameter: &Parameter, shared: &mut Shared) -> Value {
    let written = parameter.to_json(Dialect::Swagger);
    if UNSHARED.contains(&parameter.name) {
        written
    } else {
        share(written, shared)
    }
}

/// Puts a parameter among the shared ones and refers to it there. Its name ends with a hash of what it is.
fn share(parameter: Value, shared: &mut Shared) -> Value {
    let text = parameter.to_string();
    let (name, _) = shared.entry(text).or_insert_with_key(|text| {
        let hash = URL_SAFE.encode(&Sha256::digest(text)[..6]);
        (
            format!("{}-{hash}", parameter["name"].as_str().unwrap_or_default()),
            parameter,
        )
    });
    json!({"$ref": format!("#/parameters/{name}")})
}

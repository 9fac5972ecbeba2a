//! Reading the document: what it may hold, and what is said about the rest.

use serde_json::Value;

use crate::field::quote;
use crate::{codec, object, yaml};

const GROUP: &str = "apiserver.config.k8s.io";
const KIND: &str = "AuthenticationConfiguration";

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unreadable(String);

/// What a value may be.
enum Shape {
    Scalar,
    Object(&'static [(&'static str, Shape)]),
    List(&'static Shape),
}

use Shape::{List, Object, Scalar};

const MAPPING: Shape = Object(&[("claim", Scalar), ("prefix", Scalar), ("expression", Scalar)]);
const JWT: Shape = Object(&[
    (
        "issuer",
        Object(&[
            ("url", Scalar),
            ("discoveryURL", Scalar),
            ("certificateAuthority", Scalar),
            ("audiences", List(&Scalar)),
            ("audienceMatchPolicy", Scalar),
            ("egressSelectorType", Scalar),
        ]),
    ),
    (
        "claimValidationRules",
        List(&Object(&[
            ("claim", Scalar),
            ("requiredValue", Scalar),
            ("expression", Scalar),
            ("message", Scalar),
        ])),
    ),
    (
        "claimMappings",
        Object(&[
            ("username", MAPPING),
            ("groups", MAPPING),
            ("uid", Object(&[("claim", Scalar), ("expression", Scalar)])),
            ("extra", List(&Object(&[("key", Scalar), ("valueExpression", Scalar)]))),
        ]),
    ),
    (
        "userValidationRules",
        List(&Object(&[("expression", Scalar), ("message", Scalar)])),
    ),
]);
const DOCUMENT: Shape = Object(&[
    ("apiVersion", Scalar),
    ("kind", Scalar),
    ("jwt", List(&JWT)),
    (
        "anonymous",
        Object(&[("enabled", Scalar), ("conditions", List(&Object(&[("path", Scalar)])))]),
    ),
]);

/// Reads a file in YAML or JSON, strictly.
pub fn parse(text: &[u8]) -> Result<Value, Unreadable> {
    if text.is_empty() {
        return Err(Unreadable("empty config data".to_owned()));
    }
    let converted = yaml::to_json(text).map_err(|error| Unreadable(error.to_string()))?;
    let decoded = codec::decode_object(&converted.json).map_err(|error| Unreadable(error.to_string()))?;
    let document = decoded.value;
    let (version, kind) = (
        object::string(&document, &["apiVersion"]),
        object::string(&document, &["kind"]),
    );
    if kind.is_empty() {
        return Err(Unreadable("Object 'Kind' is missing".to_owned()));
    }
    let known = ["v1", "v1beta1", "v1alpha1"].map(|version| format!("{GROUP}/{version}"));
    if kind != KIND || !known.iter().any(|known| known == version) {
        return Err(Unreadable(format!(
            "no kind {} is registered for version {}",
            quote(kind),
            quote(version)
        )));
    }
    let mut problems: Vec<String> = converted.strict.into_iter().collect();
    unknown(&document, &DOCUMENT, "", &mut problems);
    if problems.is_empty() {
        Ok(document)
    } else {
        Err(Unreadable(format!("strict decoding error: {}", problems.join(", "))))
    }
}

fn unknown(value: &Value, shape: &Shape, path: &str, problems: &mut Vec<String>) {
    let at = |name: &str| match path {
        "" => name.to_owned(),
        _ => format!("{path}.{name}"),
    };
    match (shape, value) {
        (_, Value::Null) => {}
        (Object(fields), Value::Object(map)) => {
            for (name, value) in map {
                match fields.iter().find(|(known, _)| known == name) {
                    Some((_, shape)) => unknown(value, shape, &at(name), problems),
                    None => problems.push(format!("unknown field {}", quote(&at(name)))),
                }
            }
        }
        (List(of), Value::Array(items)) => {
            for (i, item) in items.iter().enumerate() {
                unknown(item, of, &format!("{path}[{i}]"), problems);
            }
        }
        (Scalar, Value::Bool(_)) if path.ends_with(".enabled") => {}
        (Scalar, Value::String(_)) if !path.ends_with(".enabled") => {}
        _ => problems.push(format!("{path} has the wrong type: {}", object::go_type(value))),
    }
}

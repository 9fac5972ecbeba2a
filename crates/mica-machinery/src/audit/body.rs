//! Bodies as events show them: JSON, whatever they were sent as, without what must not be kept.

use serde_json::Value;

use crate::facts::facts;
use crate::{object, protobuf, yaml};

/// What a body was sent as.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    Json,
    Yaml,
    Protobuf,
}

impl Form {
    /// By a content type; none for what is no object.
    pub fn of(content_type: &str) -> Option<Self> {
        let media = content_type.split(';').next().unwrap_or_default().trim();
        match media {
            "application/json" | "" => Some(Self::Json),
            "application/yaml" => Some(Self::Yaml),
            "application/vnd.kubernetes.protobuf" => Some(Self::Protobuf),
            media if media.ends_with("+json") => Some(Self::Json),
            media if media.ends_with("+yaml") => Some(Self::Yaml),
            _ => None,
        }
    }
}

/// Whether managed fields are shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Managed {
    Shown,
    Omitted,
}

/// What an event leaves out of a body.
#[derive(Clone, Copy, Debug)]
pub struct Omit {
    pub managed: Managed,
    /// Where a secret is that opens doors, by the resource; such bodies need not say what they are.
    pub secret: Option<&'static [&'static str]>,
}

impl Omit {
    /// For the bodies of a resource. A token opens what it is for to whoever reads the log, so none is kept, at any level.
    pub fn of(group: &str, resource: &str, subresource: &str, managed: Managed) -> Self {
        let secret: Option<&'static [&'static str]> = match (group, resource, subresource) {
            ("authentication.k8s.io", "tokenreviews", _) => Some(&["spec", "token"]),
            ("", "serviceaccounts", "token") => Some(&["status", "token"]),
            _ => None,
        };
        Self { managed, secret }
    }
}

/// A body as JSON; `None` for what cannot be read. What must not be kept is not in it.
pub fn shown(body: &[u8], form: Form, omit: Omit) -> Option<Vec<u8>> {
    let value = match form {
        // Nearly always there is nothing to take out, and the bytes are good as they are.
        Form::Json if !mentions(body, omit) => {
            let raw: &serde_json::value::RawValue = serde_json::from_slice(body).ok()?;
            return Some(one_line(raw.get()));
        }
        Form::Json => serde_json::from_slice(body).ok()?,
        Form::Yaml => serde_json::from_slice(&yaml::to_json(body).ok()?.json).ok()?,
        Form::Protobuf => from_protobuf(body)?,
    };
    serde_json::to_vec(&cleaned(value, omit)).ok()
}

/// An object as JSON.
pub fn of_value(value: Value, omit: Omit) -> Vec<u8> {
    serde_json::to_vec(&cleaned(value, omit)).expect("a tree is plain JSON")
}

/// The Status that an answer is, if it is one.
pub fn status(body: &[u8], form: Form) -> Option<Value> {
    /// A Status is small, and says what it is at its beginning.
    const BEGINNING: usize = 64;
    let begins = &body[..body.len().min(BEGINNING)];
    memchr::memmem::find(begins, b"Status")?;
    let value: Value = match form {
        Form::Json => serde_json::from_slice(body).ok()?,
        Form::Yaml => serde_json::from_slice(&yaml::to_json(body).ok()?.json).ok()?,
        Form::Protobuf => from_protobuf(body)?,
    };
    (value["kind"] == "Status" && value["apiVersion"] == "v1").then_some(value)
}

fn from_protobuf(body: &[u8]) -> Option<Value> {
    let envelope = protobuf::open(body).ok()?;
    let version = envelope.api_version.as_str();
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let known = facts();
    let ty = match (group, envelope.kind.as_str()) {
        ("", "Status") => known.well_known().status,
        (group, kind) => known.kind(group, version, kind)?,
    };
    let mut value = protobuf::decode(ty, envelope.raw).ok()?;
    object::set(&mut value, &["kind"], envelope.kind);
    object::set(&mut value, &["apiVersion"], envelope.api_version);
    Some(value)
}

/// Whether a JSON text may hold something that is to be taken out.
fn mentions(json: &[u8], omit: Omit) -> bool {
    let has = |word: &[u8]| memchr::memmem::find(json, word).is_some();
    // Escapes could hide the word: such texts are read.
    omit.secret.is_some() || (omit.managed == Managed::Omitted && (has(b"managedFields") || has(b"\\u")))
}

/// Line breaks of a pretty body would end the event's line.
fn one_line(json: &str) -> Vec<u8> {
    // Inside strings they are escaped, so all that are here are between tokens.
    json.bytes().filter(|b| !matches!(b, b'\n' | b'\r')).collect()
}

fn cleaned(mut value: Value, omit: Omit) -> Value {
    if let Some(path) = omit.secret {
        object::remove(&mut value, path);
    }
    if omit.managed == Managed::Shown {
        return value;
    }
    forget_managers(&mut value);
    if let Some(Value::Array(items)) = value.get_mut("items") {
        items.iter_mut().for_each(forget_managers);
    }
    if let Some(Value::Array(rows)) = value.get_mut("rows") {
        let objects = rows.iter_mut().filter_map(|row| row.get_mut("object"));
        objects.for_each(forget_managers);
    }
    value
}

fn forget_managers(object: &mut Value) {
    object::remove(object, &["metadata", "managedFields"]);
}

//! What is asked for, as admission sees it.

use serde_json::{Map, Value, json};

use crate::kind::User;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Operation {
    Create,
    Update,
    Delete,
    Connect,
}

impl Operation {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

/// A resource of one group and version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Resource<'a> {
    pub group: &'a str,
    pub version: &'a str,
    pub resource: &'a str,
}

/// A kind of one group and version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kind<'a> {
    pub group: &'a str,
    pub version: &'a str,
    pub kind: &'a str,
}

/// One of the resources under which the same objects are served, and the kind that they are of there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Face<'a> {
    pub resource: Resource<'a>,
    pub kind: Kind<'a>,
}

/// A request.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'a> {
    /// What the client named.
    pub face: Face<'a>,
    /// Under which other resources the same object is served.
    pub equivalents: &'a [Face<'a>],
    pub subresource: &'a str,
    /// Empty if it is still to be generated.
    pub name: &'a str,
    /// Of a namespace this is its own name.
    pub namespace: &'a str,
    pub operation: Operation,
    pub user: User<'a>,
    pub dry_run: bool,
    /// CreateOptions, UpdateOptions or DeleteOptions.
    pub options: &'a Value,
}

/// What is written, and what was there before.
#[derive(Clone, Copy, Debug, Default)]
pub struct Objects<'a> {
    pub object: Option<&'a Value>,
    pub old: Option<&'a Value>,
}

/// The AdmissionRequest for the object in the form of `face`, without the objects: `request` in expressions, and the rest of
/// what webhooks get.
pub fn request_value(attributes: &Attributes<'_>, face: Face<'_>) -> Map<String, Value> {
    let kind = |kind: Kind<'_>| json!({"group": kind.group, "version": kind.version, "kind": kind.kind});
    let resource = |r: Resource<'_>| json!({"group": r.group, "version": r.version, "resource": r.resource});
    let mut request = Map::new();
    let mut put = |field: &str, value: Value| {
        request.insert(field.to_owned(), value);
    };
    put("kind", kind(face.kind));
    put("resource", resource(face.resource));
    if !attributes.subresource.is_empty() {
        put("subResource", attributes.subresource.into());
    }
    put("requestKind", kind(attributes.face.kind));
    put("requestResource", resource(attributes.face.resource));
    if !attributes.subresource.is_empty() {
        put("requestSubResource", attributes.subresource.into());
    }
    if !attributes.name.is_empty() {
        put("name", attributes.name.into());
    }
    if !attributes.namespace.is_empty() {
        put("namespace", attributes.namespace.into());
    }
    put("operation", attributes.operation.as_str().into());
    put("userInfo", user_value(&attributes.user));
    put("dryRun", attributes.dry_run.into());
    put("options", attributes.options.clone());
    request
}

fn user_value(user: &User<'_>) -> Value {
    let mut info = Map::new();
    for (field, text) in [("username", user.name), ("uid", user.uid)] {
        if !text.is_empty() {
            info.insert(field.to_owned(), text.into());
        }
    }
    if !user.groups.is_empty() {
        info.insert("groups".to_owned(), json!(user.groups));
    }
    if !user.extra.is_empty() {
        let extra: Map<String, Value> = user
            .extra
            .iter()
            .map(|(key, values)| (key.clone(), json!(values)))
            .collect();
        info.insert("extra".to_owned(), Value::Object(extra));
    }
    Value::Object(info)
}

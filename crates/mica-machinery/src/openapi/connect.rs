//! Subresources that answer no object: connections to something (exec, proxies), and texts (logs).
//!
//! What they are told is in the query, by the fields of a type of options, which no document has in it otherwise. The texts of
//! these parameters are ours, as those of others.

use super::name::{Case, identifier};
use super::operation::{Across, BODIES, Operation, PathItem, Route};
use super::parameter::{Options, Parameter, Place};
use super::schema::TEXT;
use super::{ApiSubresource, Serves};
use crate::facts::{Shape, facts};

/// The methods of a connection, the verbs that they need, and how operations are named after them.
const METHODS: [(&str, &str, &str); 7] = [
    ("get", "get", "Get"),
    ("put", "update", "Put"),
    ("post", "create", "Post"),
    ("delete", "delete", "Delete"),
    ("options", PROXIED, "Options"),
    ("head", PROXIED, "Head"),
    ("patch", "patch", "Patch"),
];

/// The verb of what takes every method there is, and every path below its own.
const PROXIED: &str = "update";

const ANYTHING: &[&str] = &["*/*"];
const TEXT_OR_OBJECT: &[&str] = &[
    "text/plain",
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
];

/// The fields of options, whatever they are options of, and what they are for.
const TEXTS: &[(&str, &str)] = &[
    (
        "command",
        "The command and its arguments, one parameter each. No shell reads them.",
    ),
    (
        "container",
        "The container that is meant. It may be left out if the pod has one only.",
    ),
    ("follow", "Goes on with what is logged from now on."),
    (
        "insecureSkipTLSVerifyBackend",
        "Does not ask the kubelet for a certificate that the server trusts.",
    ),
    ("limitBytes", "About how many bytes are answered at most."),
    ("path", "The path of the request that is passed on, with its query."),
    ("ports", "The ports that are forwarded. WebSockets need them."),
    ("previous", "Reads the log of the container that ran before."),
    (
        "sinceSeconds",
        "Leaves out what was logged longer ago than that many seconds.",
    ),
    ("stderr", "Connects the standard error stream."),
    ("stdin", "Connects the standard input stream."),
    ("stdout", "Connects the standard output stream."),
    (
        "stream",
        "The stream that is read: All (the default), Stdout or Stderr.",
    ),
    ("tailLines", "Begins that many lines before the end."),
    ("timestamps", "Puts the time before each line."),
    ("tty", "Allocates a terminal."),
];

/// The paths of a connection, and what can be done with them.
pub fn connections(route: &Route<'_>, sub: &ApiSubresource, path: &str) -> Vec<PathItem> {
    let operations = |below: &str| -> Vec<Operation> {
        METHODS
            .iter()
            .filter(|(_, verb, _)| sub.can(verb).is_some())
            .map(|(method, _, word)| connection(route, sub, (method, word), below))
            .collect()
    };
    let mut paths = vec![PathItem::new(path.to_owned(), operations(""))];
    if sub.can(PROXIED).is_some() {
        let mut below = operations("WithPath");
        for operation in &mut below {
            operation.parameters.push(Parameter {
                name: "path",
                place: Place::Path,
                r#type: "string",
                description: "path of the request that is passed on".into(),
            });
        }
        paths.push(PathItem::new(format!("{path}/{{path}}"), below));
    }
    paths
}

fn connection(route: &Route<'_>, sub: &ApiSubresource, (method, word): (&'static str, &str), below: &str) -> Operation {
    let suffix = format!("{}{below}", identifier(&sub.name, Case::Upper));
    let kind = &route.resource.kind;
    Operation {
        action: "connect",
        kind: Some(sub.kind.clone()),
        parameters: {
            let mut parameters = route.places(Across::One, Some(&sub.kind[2]));
            parameters.extend(query(&sub.r#type));
            parameters
        },
        description: format!("connect {} requests to {} of {kind}", method.to_uppercase(), sub.name),
        consumes: BODIES,
        produces: ANYTHING,
        answer: TEXT.to_owned(),
        ..route.operation(method, "connect", word, Across::One, &suffix)
    }
}

/// A read whose answer is text, and which its options tell what to read.
pub fn reading(route: &Route<'_>, sub: &ApiSubresource, options: &str, path: &str) -> Option<PathItem> {
    let mut read = route.read(Some(sub))?;
    read.parameters = route.parameters(Options::Read, Across::One, Some(&sub.kind[2]));
    read.parameters.extend(query(options));
    read.produces = TEXT_OR_OBJECT;
    read.answer = TEXT.to_owned();
    Some(PathItem::new(path.to_owned(), vec![read]))
}

/// What a subresource of that name and kind answers.
pub fn serves(name: &str, kind: &str) -> Serves {
    match name {
        _ if kind.ends_with("Options") => Serves::Connections,
        "log" => Serves::Text("io.k8s.api.core.v1.PodLogOptions"),
        _ => Serves::Objects,
    }
}

/// The parameters that a type of options has fields for. Times are left out, as they are upstream.
fn query(options: &str) -> Vec<Parameter> {
    let Some(ty) = facts().openapi(options) else {
        return Vec::new();
    };
    let fields = facts().ty(ty).fields.iter().filter(|field| field.embedded.is_empty());
    let parameter = |field: &crate::facts::Field| {
        let text = TEXTS.iter().find(|(name, _)| *name == field.json);
        Some(Parameter {
            name: field.json,
            place: Place::Query,
            r#type: r#type(&field.shape)?,
            description: text.map_or("", |(_, text)| text).into(),
        })
    };
    fields.filter_map(parameter).collect()
}

/// A list is given by several parameters of what it holds.
fn r#type(shape: &Shape) -> Option<&'static str> {
    match shape {
        Shape::String => Some("string"),
        Shape::Bool => Some("boolean"),
        Shape::Int32 | Shape::Int64 => Some("integer"),
        Shape::List(inner) => r#type(inner),
        _ => None,
    }
}

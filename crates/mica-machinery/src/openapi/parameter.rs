//! The parameters of operations: which there are, what they are for, and how they are written.
//!
//! Names and types are upstream's, which makes them from its option structs; so are the sets. The texts are ours, but for
//! those of deletion, whose options are a published type.

use std::borrow::Cow;

use serde_json::{Value, json};

use super::Describe;
use super::schema::Dialect;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Place {
    Path,
    Query,
}

/// One parameter of an operation, or of all operations of a path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parameter {
    pub name: &'static str,
    pub place: Place,
    /// OpenAPI's type.
    pub r#type: &'static str,
    pub description: Cow<'static, str>,
}

impl Parameter {
    /// The name of an object in the path.
    pub fn name_of(kind: &str) -> Self {
        Self {
            name: "name",
            place: Place::Path,
            r#type: "string",
            description: format!("name of the {kind}").into(),
        }
    }

    pub fn namespace() -> Self {
        let description = "namespace that the object is in".into();
        Self {
            name: "namespace",
            place: Place::Path,
            r#type: "string",
            description,
        }
    }

    fn query((name, r#type, description): (&'static str, &'static str, &'static str)) -> Self {
        Self {
            name,
            place: Place::Query,
            r#type,
            description: description.into(),
        }
    }

    pub fn to_json(&self, dialect: Dialect) -> Value {
        let mut parameter = json!({"name": self.name, "in": if self.place == Place::Path { "path" } else { "query" }});
        if !self.description.is_empty() {
            parameter["description"] = self.description.as_ref().into();
        }
        if self.place == Place::Path {
            parameter["required"] = true.into();
        }
        // Upstream says uniqueItems of what is no list.
        let shape = json!({"type": self.r#type, "uniqueItems": true});
        match (dialect, shape) {
            (Dialect::OpenApi3, shape) => parameter["schema"] = shape,
            (Dialect::Swagger, shape) => {
                parameter["type"] = shape["type"].clone();
                parameter["uniqueItems"] = true.into();
            }
        }
        parameter
    }
}

const PRETTY: (&str, &str, &str) = (
    "pretty",
    "string",
    "'true' indents the answer. Browsers, curl and wget get it indented unless this is 'false'.",
);

const DRY_RUN: (&str, &str, &str) = (
    "dryRun",
    "string",
    "'All' does everything that the request asks for but storing it. There is no other value.",
);

const LIST: &[(&str, &str, &str)] = &[
    (
        "allowWatchBookmarks",
        "boolean",
        "Asks for BOOKMARK events, which tell a watch how far it has come. They may not come.",
    ),
    (
        "continue",
        "string",
        "The continue token of the previous answer, to read the next part of the same list with otherwise the same \
         parameters. A token expires after a while: 410 is answered then, with a token that goes on at the current state.",
    ),
    (
        "fieldSelector",
        "string",
        "Restricts the answer to objects whose fields have these values. All objects by default.",
    ),
    (
        "labelSelector",
        "string",
        "Restricts the answer to objects that have these labels. All objects by default.",
    ),
    (
        "limit",
        "integer",
        "The most objects that an answer may hold. If there are more, its metadata.continue is the token for the next part.",
    ),
    (
        "resourceVersion",
        "string",
        "The version to start from. A list is at least that new, unless resourceVersionMatch says otherwise; a watch begins \
         after it. The most recent state if unset.",
    ),
    (
        "resourceVersionMatch",
        "string",
        "How a list applies resourceVersion: Exact or NotOlderThan. It may only be set together with resourceVersion or \
         sendInitialEvents.",
    ),
    (
        "sendInitialEvents",
        "boolean",
        "Begins a watch with an ADDED event for every object there is, then a BOOKMARK annotated with \
         k8s.io/initial-events-end, and goes on with the changes after that. It needs resourceVersionMatch=NotOlderThan.",
    ),
    (
        "shardSelector",
        "string",
        "Restricts the answer to one shard of the objects. All objects by default.",
    ),
    (
        "timeoutSeconds",
        "integer",
        "Ends the call after that many seconds, whatever happens meanwhile.",
    ),
    ("watch", "boolean", "Answers a stream of changes instead of a list."),
];

/// What only makes sense for watches, which deletecollection therefore has not.
const WATCH_ONLY: [&str; 2] = ["watch", "allowWatchBookmarks"];

const FIELD_VALIDATION: (&str, &str, &str) = (
    "fieldValidation",
    "string",
    "What becomes of unknown and duplicate fields: Ignore drops them, Warn (the default) drops them and answers a warning \
     for each, Strict refuses the request.",
);

const WRITE: &[(&str, &str, &str)] = &[
    DRY_RUN,
    (
        "fieldManager",
        "string",
        "The name of whoever makes the change, for metadata.managedFields: at most 128 printable characters. What stands \
         before the first slash of the user agent by default.",
    ),
    FIELD_VALIDATION,
];

const PATCH: &[(&str, &str, &str)] = &[
    DRY_RUN,
    (
        "fieldManager",
        "string",
        "The name of whoever makes the change, for metadata.managedFields: at most 128 printable characters. Apply patches \
         need it; for others it is what stands before the first slash of the user agent by default.",
    ),
    FIELD_VALIDATION,
    (
        "force",
        "boolean",
        "Takes fields that others manage over instead of answering a conflict. Only for apply patches.",
    ),
];

/// The options of deletion that are query parameters too, and their types.
const DELETE: &[(&str, &str)] = &[
    ("gracePeriodSeconds", "integer"),
    ("ignoreStoreReadErrorWithClusterBreakingPotential", "boolean"),
    ("orphanDependents", "boolean"),
    ("propagationPolicy", "string"),
];

/// A set of query parameters that go with a verb.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Options {
    Read,
    /// Upstream shows for custom resources alone that a read may ask for a version.
    ReadCustom,
    List,
    Write,
    Patch,
    Delete,
    DeleteCollection,
}

/// The query parameters of an operation.
pub fn options(options: Options, describe: &dyn Describe) -> Vec<Parameter> {
    let of = |table: &[(&'static str, &'static str, &'static str)]| -> Vec<Parameter> {
        table.iter().copied().map(Parameter::query).collect()
    };
    let mut parameters = vec![Parameter::query(PRETTY)];
    match options {
        Options::Read => {}
        Options::ReadCustom => parameters.extend(of(LIST).into_iter().filter(|own| own.name == "resourceVersion")),
        Options::List => parameters.extend(of(LIST)),
        Options::Write => parameters.extend(of(WRITE)),
        Options::Patch => parameters.extend(of(PATCH)),
        Options::Delete => parameters.extend(delete(describe)),
        Options::DeleteCollection => {
            parameters.extend(delete(describe));
            parameters.extend(
                of(LIST)
                    .into_iter()
                    .filter(|parameter| !WATCH_ONLY.contains(&parameter.name)),
            );
        }
    }
    parameters
}

fn delete(describe: &dyn Describe) -> Vec<Parameter> {
    let mut parameters = vec![Parameter::query(DRY_RUN)];
    parameters.extend(DELETE.iter().map(|(name, r#type)| {
        let text = describe.of_field("io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions", name);
        let description = text.map_or(Cow::Borrowed(""), |text| text.to_owned().into());
        Parameter {
            name,
            place: Place::Query,
            r#type,
            description,
        }
    }));
    parameters
}

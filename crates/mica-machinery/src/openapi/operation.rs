//! What can be done with a resource: its paths and operations, in no dialect yet.
//!
//! Names, texts and sets are upstream's (`apiserver/pkg/endpoints/installer.go`): clients generate code from the operation
//! ids, and kubectl finds out by the parameters of a kind's patch operation what a server can do.

use super::name::{Case, Names, article, identifier, root_path};
use super::parameter::{Options, Parameter, options};
use super::schema::PATCH;
use super::{ApiResource, ApiSubresource, Deleted, Describe, Encodings, Serves, connect};
use crate::kind::Scope;

pub const JSON: &str = "application/json";
pub const BODIES: &[&str] = &["*/*"];
const PATCHES: &[&str] = &[
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];
pub const STATUS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Status";
pub const DELETE_OPTIONS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";
const WATCH_EVENT: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.WatchEvent";

/// A path and what can be done with it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PathItem {
    pub path: String,
    /// Those that all operations have.
    pub parameters: Vec<Parameter>,
    pub operations: Vec<Operation>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Operation {
    pub method: &'static str,
    pub id: String,
    pub tag: String,
    pub description: String,
    /// Empty for discovery, which is about no object.
    pub action: &'static str,
    pub kind: Option<[String; 3]>,
    pub parameters: Vec<Parameter>,
    pub body: Option<Body>,
    /// What successful answers hold: a code and its text; the type is the same.
    pub responses: &'static [(&'static str, &'static str)],
    pub answer: String,
    pub consumes: &'static [&'static str],
    pub produces: &'static [&'static str],
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Body {
    pub r#type: String,
    pub required: bool,
}

pub const OK: &[(&str, &str)] = &[("200", "OK")];
pub const OK_CREATED: &[(&str, &str)] = &[("200", "OK"), ("201", "Created")];
pub const OK_ACCEPTED: &[(&str, &str)] = &[("200", "OK"), ("202", "Accepted")];
pub const OK_CREATED_ACCEPTED: &[(&str, &str)] = &[("200", "OK"), ("201", "Created"), ("202", "Accepted")];

impl PathItem {
    /// Moves the parameters that all operations have to the path, as upstream does to keep documents small.
    pub fn new(path: String, mut operations: Vec<Operation>) -> Self {
        let same = |a: &Parameter, b: &Parameter| a.name == b.name && a.place == b.place;
        let everywhere = |parameter: &Parameter| {
            operations
                .iter()
                .all(|operation| operation.parameters.iter().any(|other| same(parameter, other)))
        };
        let mut parameters: Vec<Parameter> = operations
            .first()
            .map(|first| first.parameters.iter().filter(|p| everywhere(p)).cloned().collect())
            .unwrap_or_default();
        for operation in &mut operations {
            operation
                .parameters
                .retain(|own| !parameters.iter().any(|common| same(own, common)));
            sort(&mut operation.parameters);
        }
        sort(&mut parameters);
        Self {
            path,
            parameters,
            operations,
        }
    }
}

fn sort(parameters: &mut [Parameter]) {
    parameters.sort_by_key(|parameter| (parameter.name, parameter.place));
}

/// The paths of a resource and its subresources.
pub fn paths(resource: &ApiResource, describe: &dyn Describe) -> Vec<PathItem> {
    let route = Route {
        resource,
        describe,
        names: Names::new(&resource.group, &resource.version),
    };
    let root = root_path(&resource.group, &resource.version);
    let plural = &resource.plural;
    let mut paths = Vec::new();
    let mut add = |path: String, operations: Vec<Option<Operation>>| {
        let operations: Vec<Operation> = operations.into_iter().flatten().collect();
        if !operations.is_empty() {
            paths.push(PathItem::new(path, operations));
        }
    };
    let namespaced = resource.scope == Scope::Namespaced;
    let within = if namespaced { "/namespaces/{namespace}" } else { "" };
    if namespaced {
        add(format!("{root}/{plural}"), vec![route.list(Across::Namespaces)]);
        add(
            format!("{root}/watch/{plural}"),
            vec![route.watch_list(Across::Namespaces)],
        );
    }
    let collection = vec![route.list(Across::One), route.create(), route.delete_collection()];
    add(format!("{root}{within}/{plural}"), collection);
    add(
        format!("{root}/watch{within}/{plural}"),
        vec![route.watch_list(Across::One)],
    );
    let object = vec![route.read(None), route.replace(None), route.delete(), route.patch(None)];
    add(format!("{root}{within}/{plural}/{{name}}"), object);
    add(format!("{root}/watch{within}/{plural}/{{name}}"), vec![route.watch()]);
    for sub in &resource.subresources {
        let path = format!("{root}{within}/{plural}/{{name}}/{}", sub.name);
        paths.extend(route.under_it(sub, path));
    }
    paths
}

/// Whether a list is that of one namespace (or of a resource that has none), or of all of them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Across {
    One,
    Namespaces,
}

pub struct Route<'a> {
    pub resource: &'a ApiResource,
    describe: &'a dyn Describe,
    names: Names,
}

impl Route<'_> {
    /// The paths of a subresource.
    fn under_it(&self, sub: &ApiSubresource, path: String) -> Vec<PathItem> {
        match sub.serves {
            Serves::Connections => connect::connections(self, sub, &path),
            Serves::Text(options) => connect::reading(self, sub, options, &path).into_iter().collect(),
            Serves::Objects => {
                let operations: Vec<Operation> = [
                    self.read(Some(sub)),
                    self.replace(Some(sub)),
                    self.create_under(sub),
                    self.patch(Some(sub)),
                ]
                .into_iter()
                .flatten()
                .collect();
                let some = !operations.is_empty();
                some.then(|| PathItem::new(path, operations)).into_iter().collect()
            }
        }
    }

    fn list(&self, across: Across) -> Option<Operation> {
        self.can("list")?;
        let what = if self.can("watch").is_some() {
            "list or watch"
        } else {
            "list"
        };
        Some(Operation {
            action: "list",
            produces: self.streams(),
            answer: self.resource.list.clone(),
            parameters: self.parameters(Options::List, across, None),
            description: format!("{what} objects of kind {}", self.resource.kind),
            ..self.operation("get", "list", "", across, "")
        })
    }

    fn watch_list(&self, across: Across) -> Option<Operation> {
        self.can("watch").and_then(|()| self.can("list"))?;
        let instead = "deprecated: use the 'watch' parameter with a list operation instead.";
        Some(Operation {
            action: "watchlist",
            produces: self.streams(),
            answer: WATCH_EVENT.to_owned(),
            parameters: self.parameters(Options::List, across, None),
            description: format!(
                "watch individual changes to a list of {}. {instead}",
                self.resource.kind
            ),
            ..self.operation("get", "watch", "", across, "List")
        })
    }

    fn watch(&self) -> Option<Operation> {
        self.can("watch").and_then(|()| self.can("get"))?;
        let instead = "deprecated: use the 'watch' parameter with a list operation instead, filtered to a single item \
                       with the 'fieldSelector' parameter.";
        Some(Operation {
            action: "watch",
            produces: self.streams(),
            answer: WATCH_EVENT.to_owned(),
            parameters: self.parameters(Options::List, Across::One, Some(&self.resource.kind)),
            description: format!("watch changes to an object of kind {}. {instead}", self.resource.kind),
            ..self.operation("get", "watch", "", Across::One, "")
        })
    }

    fn create(&self) -> Option<Operation> {
        self.can("create")?;
        let kind = &self.resource.kind;
        Some(Operation {
            action: "post",
            body: self.body(&self.resource.r#type),
            responses: OK_CREATED_ACCEPTED,
            parameters: self.parameters(Options::Write, Across::One, None),
            description: format!("create{}{kind}", article(kind)),
            ..self.operation("post", "create", "", Across::One, "")
        })
    }

    fn create_under(&self, sub: &ApiSubresource) -> Option<Operation> {
        sub.can("create")?;
        let kind = &self.resource.kind;
        Some(Operation {
            action: "post",
            body: self.body(&sub.r#type),
            responses: OK_CREATED_ACCEPTED,
            parameters: self.parameters(Options::Write, Across::One, Some(&sub.kind[2])),
            description: format!("create {} of{}{kind}", sub.name, article(kind)),
            ..self.under(sub, "post", "create")
        })
    }

    pub fn read(&self, sub: Option<&ApiSubresource>) -> Option<Operation> {
        self.can_either("get", sub)?;
        Some(Operation {
            action: "get",
            parameters: self.parameters(Options::Read, Across::One, Some(self.kind_of(sub))),
            description: self.about("read", sub),
            ..self.one("get", "read", sub)
        })
    }

    fn replace(&self, sub: Option<&ApiSubresource>) -> Option<Operation> {
        self.can_either("update", sub)?;
        Some(Operation {
            action: "put",
            body: self.body(sub.map_or(&self.resource.r#type, |sub| &sub.r#type)),
            responses: OK_CREATED,
            parameters: self.parameters(Options::Write, Across::One, Some(self.kind_of(sub))),
            description: self.about("replace", sub),
            ..self.one("put", "replace", sub)
        })
    }

    fn patch(&self, sub: Option<&ApiSubresource>) -> Option<Operation> {
        self.can_either("patch", sub)?;
        Some(Operation {
            action: "patch",
            consumes: PATCHES,
            body: self.body(PATCH),
            responses: OK_CREATED,
            parameters: self.parameters(Options::Patch, Across::One, Some(self.kind_of(sub))),
            description: self.about("partially update", sub),
            ..self.one("patch", "patch", sub)
        })
    }

    fn delete(&self) -> Option<Operation> {
        self.can("delete")?;
        let kind = &self.resource.kind;
        let answer = match self.resource.deleted {
            Deleted::Status => STATUS.to_owned(),
            Deleted::Object => self.resource.r#type.clone(),
        };
        Some(Operation {
            action: "delete",
            body: Some(Body {
                r#type: DELETE_OPTIONS.to_owned(),
                required: false,
            }),
            responses: OK_ACCEPTED,
            answer,
            parameters: self.parameters(Options::Delete, Across::One, Some(kind)),
            description: format!("delete{}{kind}", article(kind)),
            ..self.operation("delete", "delete", "", Across::One, "")
        })
    }

    fn delete_collection(&self) -> Option<Operation> {
        self.can("deletecollection")?;
        Some(Operation {
            action: "deletecollection",
            body: Some(Body {
                r#type: DELETE_OPTIONS.to_owned(),
                required: false,
            }),
            answer: STATUS.to_owned(),
            parameters: self.parameters(Options::DeleteCollection, Across::One, None),
            description: format!("delete collection of {}", self.resource.kind),
            ..self.operation("delete", "delete", "Collection", Across::One, "")
        })
    }

    fn can(&self, verb: &str) -> Option<()> {
        self.resource.verbs.iter().any(|known| known == verb).then_some(())
    }

    fn can_either(&self, verb: &str, sub: Option<&ApiSubresource>) -> Option<()> {
        sub.map_or_else(|| self.can(verb), |sub| sub.can(verb))
    }

    fn kind_of<'b>(&'b self, sub: Option<&'b ApiSubresource>) -> &'b str {
        sub.map_or(&self.resource.kind, |sub| &sub.kind[2])
    }

    fn about(&self, what: &str, sub: Option<&ApiSubresource>) -> String {
        match sub {
            None => format!("{what} the specified {}", self.resource.kind),
            Some(sub) => format!("{what} {} of the specified {}", sub.name, self.resource.kind),
        }
    }

    fn body(&self, r#type: &str) -> Option<Body> {
        Some(Body {
            r#type: r#type.to_owned(),
            required: true,
        })
    }

    fn streams(&self) -> &'static [&'static str] {
        self.resource.encodings.streams()
    }

    pub fn parameters(&self, set: Options, across: Across, name: Option<&str>) -> Vec<Parameter> {
        let mut parameters = options(set, self.describe);
        parameters.extend(self.places(across, name));
        parameters
    }

    /// The parameters of a path.
    pub fn places(&self, across: Across, name: Option<&str>) -> Vec<Parameter> {
        let mut parameters = Vec::new();
        if self.resource.scope == Scope::Namespaced && across == Across::One {
            parameters.push(Parameter::namespace());
        }
        parameters.extend(name.map(Parameter::name_of));
        parameters
    }

    fn one(&self, method: &'static str, verb: &str, sub: Option<&ApiSubresource>) -> Operation {
        match sub {
            Some(sub) => self.under(sub, method, verb),
            None => self.operation(method, verb, "", Across::One, ""),
        }
    }

    fn under(&self, sub: &ApiSubresource, method: &'static str, verb: &str) -> Operation {
        Operation {
            answer: sub.r#type.clone(),
            kind: Some(sub.kind.clone()),
            ..self.operation(method, verb, "", Across::One, &identifier(&sub.name, Case::Upper))
        }
    }

    /// What most operations have in common: the answer is an object of the kind.
    pub fn operation(&self, method: &'static str, verb: &str, extra: &str, across: Across, suffix: &str) -> Operation {
        let resource = self.resource;
        let about = About {
            names: &self.names,
            kind: [&resource.group, &resource.version, &resource.kind],
            scope: resource.scope,
        };
        Operation {
            answer: resource.r#type.clone(),
            consumes: BODIES,
            produces: resource.encodings.plain(),
            ..about.operation(method, [verb, extra, suffix], across)
        }
    }
}

/// What operations are about.
pub struct About<'a> {
    pub names: &'a Names,
    /// Group, version and kind.
    pub kind: [&'a str; 3],
    pub scope: Scope,
}

impl About<'_> {
    /// An operation with its names, which are upstream's, and nothing else yet. `words` of its id: the verb, what stands after the
    /// group, and the end.
    pub fn operation(&self, method: &'static str, words: [&str; 3], across: Across) -> Operation {
        let ([verb, extra, suffix], kind) = (words, self.kind[2]);
        let namespaced = match (self.scope, across) {
            (Scope::Namespaced, Across::One) => "Namespaced",
            _ => "",
        };
        let all = match across {
            Across::Namespaces => "ForAllNamespaces",
            Across::One => "",
        };
        let about = identifier(&format!("{extra}{namespaced}{kind}{suffix}{all}"), Case::Upper);
        Operation {
            method,
            id: format!("{verb}{}{about}", self.names.id),
            tag: self.names.tag.clone(),
            description: String::new(),
            action: "",
            kind: Some(self.kind.map(ToOwned::to_owned)),
            parameters: Vec::new(),
            body: None,
            responses: OK,
            answer: String::new(),
            consumes: &[],
            produces: &[],
        }
    }
}

impl ApiSubresource {
    pub(super) fn can(&self, verb: &str) -> Option<()> {
        self.verbs.iter().any(|known| known == verb).then_some(())
    }
}

impl Encodings {
    /// The media types of a single answer.
    pub fn plain(self) -> &'static [&'static str] {
        match self {
            Encodings::Protobuf => &[JSON, "application/yaml", "application/vnd.kubernetes.protobuf"],
            Encodings::Text => &[JSON, "application/yaml"],
        }
    }

    /// The media types of an answer that may be a stream.
    fn streams(self) -> &'static [&'static str] {
        match self {
            Encodings::Protobuf => &[
                JSON,
                "application/yaml",
                "application/vnd.kubernetes.protobuf",
                "application/json;stream=watch",
                "application/vnd.kubernetes.protobuf;stream=watch",
            ],
            Encodings::Text => &[JSON, "application/yaml", "application/json;stream=watch"],
        }
    }
}

//! The paths and operations of a custom resource.

use super::CustomResource;
use crate::kind::Scope;
use crate::openapi::name::{Case, Names, article, identifier, root_path};
use crate::openapi::operation::{
    About, Across, Body, DELETE_OPTIONS, OK_ACCEPTED, OK_CREATED, OK_CREATED_ACCEPTED, Operation, PathItem, STATUS,
};
use crate::openapi::parameter::{Options, Parameter, options};
use crate::openapi::schema::PATCH;
use crate::openapi::{Describe, Encodings};

const SCALE: &str = "io.k8s.api.autoscaling.v1.Scale";
/// Strategic merge needs to know the type, so there is none.
const PATCHES: &[&str] = &[
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/apply-patch+yaml",
];

/// The paths of a resource and its subresources.
pub fn paths(resource: &CustomResource, describe: &dyn Describe) -> Vec<PathItem> {
    let route = Route {
        resource,
        describe,
        names: Names::new(&resource.group, &resource.version),
        r#type: resource.type_name(&resource.kind),
        list: resource.type_name(&resource.list_kind),
    };
    let root = root_path(&resource.group, &resource.version);
    let plural = &resource.plural;
    let mut paths = Vec::new();
    let mut within = "";
    if resource.scope == Scope::Namespaced {
        paths.push(PathItem::new(
            format!("{root}/{plural}"),
            vec![route.list(Across::Namespaces)],
        ));
        within = "/namespaces/{namespace}";
    }
    let collection = vec![route.list(Across::One), route.create(), route.delete_collection()];
    paths.push(PathItem::new(format!("{root}{within}/{plural}"), collection));
    let object = format!("{root}{within}/{plural}/{{name}}");
    let mut operations = route.on("", &route.r#type);
    operations.push(route.delete());
    paths.push(PathItem::new(object.clone(), operations));
    for (name, served, r#type) in [
        ("status", resource.status, route.r#type.as_str()),
        ("scale", resource.scale, SCALE),
    ] {
        if served {
            paths.push(PathItem::new(format!("{object}/{name}"), route.on(name, r#type)));
        }
    }
    paths
}

/// Whether a path ends with an object's name or comes before it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Named {
    Yes,
    No,
}

struct Route<'a> {
    resource: &'a CustomResource,
    describe: &'a dyn Describe,
    names: Names,
    r#type: String,
    list: String,
}

impl Route<'_> {
    fn list(&self, across: Across) -> Operation {
        Operation {
            action: "list",
            description: format!("list objects of kind {}", self.resource.kind),
            answer: self.list.clone(),
            parameters: self.parameters(Options::List, across, Named::No),
            ..self.operation("get", ["list", "", ""], across)
        }
    }

    fn create(&self) -> Operation {
        let kind = &self.resource.kind;
        Operation {
            action: "post",
            description: format!("create{}{kind}", article(kind)),
            body: required(&self.r#type),
            responses: OK_CREATED_ACCEPTED,
            parameters: self.parameters(Options::Write, Across::One, Named::No),
            ..self.operation("post", ["create", "", ""], Across::One)
        }
    }

    /// Unlike with built-in kinds, it has the parameters of a list and no others, and no body.
    fn delete_collection(&self) -> Operation {
        Operation {
            action: "deletecollection",
            description: format!("delete collection of {}", self.resource.kind),
            answer: STATUS.to_owned(),
            parameters: self.parameters(Options::List, Across::One, Named::No),
            ..self.operation("delete", ["delete", "Collection", ""], Across::One)
        }
    }

    fn delete(&self) -> Operation {
        let kind = &self.resource.kind;
        Operation {
            action: "delete",
            description: format!("delete{}{kind}", article(kind)),
            body: Some(Body {
                r#type: DELETE_OPTIONS.to_owned(),
                required: false,
            }),
            responses: OK_ACCEPTED,
            answer: STATUS.to_owned(),
            parameters: self.parameters(Options::Delete, Across::One, Named::Yes),
            ..self.operation("delete", ["delete", "", ""], Across::One)
        }
    }

    /// What an object and its subresources have in common: they are read, replaced and patched.
    fn on(&self, sub: &str, r#type: &str) -> Vec<Operation> {
        let of = if sub.is_empty() {
            String::new()
        } else {
            format!(" {sub} of")
        };
        let about = |verb: &str| format!("{verb}{of} the specified {}", self.resource.kind);
        let suffix = identifier(sub, Case::Upper);
        let operation = |method, verb: &str, set| Operation {
            answer: r#type.to_owned(),
            parameters: self.parameters(set, Across::One, Named::Yes),
            ..self.operation(method, [verb, "", &suffix], Across::One)
        };
        let get = Operation {
            action: "get",
            description: about("read"),
            ..operation("get", "read", Options::ReadCustom)
        };
        let put = Operation {
            action: "put",
            description: about("replace"),
            body: required(r#type),
            responses: OK_CREATED,
            ..operation("put", "replace", Options::Write)
        };
        let patch = Operation {
            action: "patch",
            description: about("partially update"),
            body: required(PATCH),
            consumes: PATCHES,
            ..operation("patch", "patch", Options::Patch)
        };
        vec![get, put, patch]
    }

    fn parameters(&self, set: Options, across: Across, named: Named) -> Vec<Parameter> {
        let mut parameters = options(set, self.describe);
        if self.resource.scope == Scope::Namespaced && across == Across::One {
            parameters.push(Parameter::namespace());
        }
        if named == Named::Yes {
            parameters.push(Parameter::name_of(&self.resource.kind));
        }
        parameters
    }

    fn operation(&self, method: &'static str, words: [&str; 3], across: Across) -> Operation {
        let resource = self.resource;
        let about = About {
            names: &self.names,
            kind: [&resource.group, &resource.version, &resource.kind],
            scope: resource.scope,
        };
        Operation {
            answer: self.r#type.clone(),
            consumes: Encodings::Text.plain(),
            produces: Encodings::Text.plain(),
            ..about.operation(method, words, across)
        }
    }
}

fn required(r#type: &str) -> Option<Body> {
    Some(Body {
        r#type: r#type.to_owned(),
        required: true,
    })
}

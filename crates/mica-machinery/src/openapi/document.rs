//! Whole documents: OpenAPI 3.0 for each group and version, Swagger 2.0 for all of them.
//!
//! A document of a group and version holds the schemas of what its operations name and everything that those refer to;
//! the Swagger document holds each type once, however many groups use it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::name::{Names, root_path};
use super::operation::{self, JSON, Operation, PathItem};
use super::schema::{self, Dialect, TEXT};
use super::write::{GVK, path_of, swagger_path};
use super::{ApiResource, Describe, Encodings};
use crate::facts::facts;

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

/// Everything that one server serves, ready to be described.
pub struct Api<'a> {
    /// In any order.
    pub resources: &'a [ApiResource],
    pub describe: &'a dyn Describe,
    /// For `info`: the minor release of Kubernetes that is served, such as `1.36`.
    pub version: &'a str,
}

impl Api<'_> {
    /// The names of the OpenAPI 3.0 documents, as in the index: `api/v1`, `apis/apps`, `version`.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = ["api", "apis", "version", ISSUER, KEYS].map(str::to_owned).into();
        for (group, versions) in self.versions() {
            if !group.is_empty() {
                names.push(format!("apis/{group}"));
            }
            names.extend(versions.iter().map(|version| root_path(group, version)[1..].to_owned()));
        }
        names
    }

    /// The OpenAPI 3.0 document of that name.
    pub fn document(&self, name: &str) -> Option<Value> {
        let segments: Vec<&str> = name.split('/').collect();
        let (group, version) = match segments[..] {
            ["api"] => return Some(self.write(&[legacy_versions()], None)),
            ["apis"] => return Some(self.write(&[groups()], None)),
            ["version"] => return Some(self.write(&[version()], None)),
            _ if name == ISSUER => return Some(self.write(&[issuer()], None)),
            _ if name == KEYS => return Some(self.write(&[keys()], None)),
            ["apis", group] if self.versions().contains_key(group) => {
                return Some(self.write(&[self.group(group)], None));
            }
            ["api", version] => ("", version),
            ["apis", group, version] if !group.is_empty() => (group, version),
            _ => return None,
        };
        let served = self
            .versions()
            .get(group)
            .is_some_and(|versions| versions.contains(version));
        served.then(|| self.write(&self.paths(group, version), Some((group, version))))
    }

    /// The resources that the document of that name is about. Where they are the same, so are the documents.
    pub fn resources_of(&self, name: &str) -> Vec<&ApiResource> {
        let of = |resource: &&ApiResource| &root_path(&resource.group, &resource.version)[1..] == name;
        self.resources.iter().filter(of).collect()
    }

    /// The Swagger 2.0 document.
    pub fn swagger(&self) -> Value {
        let mut paths = vec![legacy_versions(), groups(), version(), issuer(), keys()];
        let versions = self.versions();
        for (group, versions) in &versions {
            if !group.is_empty() {
                paths.push(self.group(group));
            }
            paths.extend(versions.iter().flat_map(|version| self.paths(group, version)));
        }
        let served: Vec<(&str, &str)> = versions
            .iter()
            .flat_map(|(group, versions)| versions.iter().map(|version| (*group, *version)))
            .collect();
        let definitions = self.definitions(&paths, Dialect::Swagger, &served);
        let mut shared = BTreeMap::new();
        let paths: Map<String, Value> = paths
            .iter()
            .map(|item| (item.path.clone(), swagger_path(item, &mut shared)))
            .collect();
        let parameters: Map<String, Value> = shared.into_values().collect();
        json!({
            "swagger": "2.0",
            "info": self.info(),
            "paths": paths,
            "definitions": definitions,
            "parameters": parameters,
            "securityDefinitions": security_schemes(),
            "security": [{"BearerToken": []}],
        })
    }

    fn write(&self, paths: &[PathItem], version: Option<(&str, &str)>) -> Value {
        let served: Vec<(&str, &str)> = version.into_iter().collect();
        let schemas = self.definitions(paths, Dialect::OpenApi3, &served);
        let paths: Map<String, Value> = paths.iter().map(|item| (item.path.clone(), path_of(item))).collect();
        let mut components = json!({"securitySchemes": security_schemes()});
        if schemas.as_object().is_some_and(|schemas| !schemas.is_empty()) {
            components["schemas"] = schemas;
        }
        json!({"openapi": "3.0.0", "info": self.info(), "paths": paths, "components": components})
    }

    fn info(&self) -> Value {
        json!({"title": "Kubernetes", "version": self.version})
    }

    /// Every group and its versions, sorted.
    fn versions(&self) -> BTreeMap<&str, BTreeSet<&str>> {
        let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for resource in self.resources {
            versions.entry(&resource.group).or_default().insert(&resource.version);
        }
        versions
    }

    fn paths(&self, group: &str, version: &str) -> Vec<PathItem> {
        let resources = || {
            self.resources
                .iter()
                .filter(|r| r.group == group && r.version == version)
        };
        let names = Names::new(group, version);
        let mut encodings = Encodings::Protobuf;
        if resources().all(|resource| resource.encodings == Encodings::Text) {
            encodings = Encodings::Text;
        }
        let list = discovery(
            format!("get{}APIResources", names.id),
            names.tag,
            "get available resources",
            "APIResourceList",
        );
        let list = Operation {
            produces: encodings.plain(),
            consumes: encodings.plain(),
            ..list
        };
        let mut paths = vec![PathItem::new(format!("{}/", root_path(group, version)), vec![list])];
        paths.extend(resources().flat_map(|resource| operation::paths(resource, self.describe)));
        paths
    }

    fn group(&self, group: &str) -> PathItem {
        let names = Names::of_group(group);
        let get = discovery(
            format!("get{}APIGroup", names.id),
            names.tag,
            "get information of a group",
            "APIGroup",
        );
        PathItem::new(format!("/apis/{group}/"), vec![get])
    }

    /// The schemas of all types that the operations name, and of those below them.
    fn definitions(&self, paths: &[PathItem], dialect: Dialect, served: &[(&str, &str)]) -> Value {
        let define = |name: String| {
            let mut definition = define(&name, dialect, self.describe, served);
            self.add_own_kinds(&name, &mut definition, served);
            (name, definition)
        };
        let names = types_of(paths).into_iter();
        names.map(define).collect::<Map<String, Value>>().into()
    }

    /// A type may be served as a kind that the fact table does not know it by.
    fn add_own_kinds(&self, name: &str, definition: &mut Value, served: &[(&str, &str)]) {
        let of_versions = self
            .resources
            .iter()
            .filter(|resource| served.contains(&(&resource.group, &resource.version)));
        for resource in of_versions {
            let kind = match name {
                _ if name == resource.r#type => resource.kind.clone(),
                _ if name == resource.list => format!("{}List", resource.kind),
                _ => continue,
            };
            let own = json!({"group": resource.group, "version": resource.version, "kind": kind});
            match definition.get_mut(GVK) {
                Some(Value::Array(kinds)) if kinds.contains(&own) => {}
                Some(Value::Array(kinds)) => kinds.push(own),
                _ => definition[GVK] = json!([own]),
            }
        }
    }
}

/// The names of all types that operations name, and of those below them.
pub(super) fn types_of(paths: &[PathItem]) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for operation in paths.iter().flat_map(|item| &item.operations) {
        schema::collect(&operation.answer, &mut names);
        if let Some(body) = &operation.body {
            schema::collect(&body.r#type, &mut names);
        }
    }
    names
}

/// The whole schema of a built-in type, in a document of the `served` versions.
pub(super) fn define(name: &str, dialect: Dialect, describe: &dyn Describe, served: &[(&str, &str)]) -> Value {
    let mut definition = schema::definition(name, dialect, describe);
    let kinds = kinds(name, served);
    if !kinds.is_empty() {
        definition.insert(GVK.to_owned(), kinds.into());
    }
    definition.into()
}

/// Kinds that every group and version has: bodies of deletions and events of watches.
const IN_EVERY_VERSION: [&str; 2] = ["DeleteOptions", "WatchEvent"];

/// The groups, versions and kinds that a type is, as far as they matter to a document of the `served` versions.
fn kinds(name: &str, served: &[(&str, &str)]) -> Vec<Value> {
    let Some(ty) = facts().openapi(name) else {
        return Vec::new();
    };
    let mut found = BTreeSet::new();
    for kind in facts().kinds().iter().filter(|kind| kind.ty == ty) {
        if kind.group != "*" {
            found.insert((kind.group, kind.version, kind.kind));
            continue;
        }
        found.insert(("", "v1", kind.kind));
        if IN_EVERY_VERSION.contains(&kind.kind) {
            found.extend(served.iter().map(|(group, version)| (*group, *version, kind.kind)));
        }
    }
    let describe = |(group, version, kind)| json!({"group": group, "version": version, "kind": kind});
    found.into_iter().map(describe).collect()
}

fn discovery(id: String, tag: String, description: &str, answer: &str) -> Operation {
    Operation {
        method: "get",
        id,
        tag,
        description: description.to_owned(),
        action: "",
        kind: None,
        parameters: Vec::new(),
        body: None,
        responses: operation::OK,
        answer: format!("{META}.{answer}"),
        consumes: Encodings::Protobuf.plain(),
        produces: Encodings::Protobuf.plain(),
    }
}

fn legacy_versions() -> PathItem {
    let get = discovery(
        "getCoreAPIVersions".to_owned(),
        "core".to_owned(),
        "get available API versions",
        "APIVersions",
    );
    PathItem::new("/api/".to_owned(), vec![get])
}

fn groups() -> PathItem {
    let get = discovery(
        "getAPIVersions".to_owned(),
        "apis".to_owned(),
        "get available API versions",
        "APIGroupList",
    );
    PathItem::new("/apis/".to_owned(), vec![get])
}

fn version() -> PathItem {
    let about = "get the version information for this server";
    let get = Operation {
        answer: "io.k8s.apimachinery.pkg.version.Info".to_owned(),
        consumes: &[JSON],
        produces: &[JSON],
        ..discovery("getCodeVersion".to_owned(), "version".to_owned(), about, "")
    };
    PathItem::new("/version/".to_owned(), vec![get])
}

/// The documents about what others need to check the tokens of service accounts.
const ISSUER: &str = ".well-known/openid-configuration";
const KEYS: &str = "openid/v1/jwks";

fn issuer() -> PathItem {
    let about = "get service account issuer OpenID configuration, also known as the 'OIDC discovery doc'";
    let get = discovery(
        "getServiceAccountIssuerOpenIDConfiguration".to_owned(),
        "WellKnown".to_owned(),
        about,
        "",
    );
    text(ISSUER, &[JSON], get)
}

fn keys() -> PathItem {
    let about = "get service account issuer OpenID JSON Web Key Set (contains public token verification keys)";
    let get = discovery(
        "getServiceAccountIssuerOpenIDKeyset".to_owned(),
        "openid".to_owned(),
        about,
        "",
    );
    text(KEYS, &["application/jwk-set+json"], get)
}

/// A document that is not of the API: upstream says of it that it is text.
fn text(name: &str, produces: &'static [&'static str], get: Operation) -> PathItem {
    let get = Operation {
        answer: TEXT.to_owned(),
        consumes: &[],
        produces,
        ..get
    };
    PathItem::new(format!("/{name}/"), vec![get])
}

fn security_schemes() -> Value {
    json!({"BearerToken": {
        "type": "apiKey", "description": "Bearer Token authentication", "name": "authorization", "in": "header",
    }})
}

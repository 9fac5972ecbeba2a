//! Claims about custom resources, held against what kube-apiserver 1.36.4 says about the same definitions.
//!
//! `fixtures/definitions.json` are definitions of ours; the other files are the real server's paths and definitions for them,
//! with the texts that come from elsewhere (those of parameters left out, those of what every kind has named as below).

use std::collections::{BTreeMap, BTreeSet};

use expect_test::expect;
use serde_json::{Value, json};

use super::*;
use crate::kind;
use crate::openapi::tests::{first_difference, references};
use crate::openapi::{Api, ApiResource, gnostic};

struct Marked;

impl Describe for Marked {
    fn of_type(&self, _name: &str) -> Option<&str> {
        None
    }

    fn of_field(&self, name: &str, field: &str) -> Option<&str> {
        match (name.rsplit('.').next()?, field) {
            ("ConfigMap", "apiVersion") => Some("apiVersion of a kind"),
            ("ConfigMap", "kind") => Some("kind of a kind"),
            ("ConfigMap", "metadata") => Some("metadata of a kind"),
            ("Status", "metadata") => Some("metadata of a list"),
            _ => None,
        }
    }
}

fn definitions() -> Vec<Value> {
    serde_json::from_str(include_str!("fixtures/definitions.json")).expect("JSON")
}

fn resources() -> Vec<CustomResource> {
    definitions().iter().flat_map(CustomResource::served_by).collect()
}

fn of_version<'a>(resources: &'a [CustomResource], version: &str) -> Vec<&'a CustomResource> {
    let name = |resource: &CustomResource| format!("{}/{}", resource.group, resource.version);
    resources.iter().filter(|resource| name(resource) == version).collect()
}

fn built_in_swagger() -> Value {
    let resources: Vec<ApiResource> = kind::resources().iter().map(ApiResource::built_in).collect();
    let api = Api {
        resources: &resources,
        describe: &Marked,
        version: "1.36",
    };
    api.swagger()
}

/// Puts shared parameters back and takes the texts of all parameters out.
fn plain_parameters(value: &mut Value, shared: &Map<String, Value>) {
    match value {
        Value::Object(object) => {
            let target = object.get("$ref").and_then(Value::as_str);
            if let Some(name) = target.and_then(|target| target.strip_prefix("#/parameters/")) {
                let parameter = shared
                    .get(name)
                    .unwrap_or_else(|| panic!("there is a parameter {name}"));
                *value = parameter.clone();
                return plain_parameters(value, shared);
            }
            if object.contains_key("in") && object.contains_key("name") {
                object.remove("description");
            }
            object.values_mut().for_each(|inner| plain_parameters(inner, shared));
        }
        Value::Array(list) => list.iter_mut().for_each(|inner| plain_parameters(inner, shared)),
        _ => {}
    }
}

/// Every member of `expected` must be in `actual` and the same.
fn check_members(what: &str, actual: &Value, expected: &Map<String, Value>) {
    for (name, expected) in expected {
        let found = first_difference(&actual[name], expected, &format!("{what} {name}"));
        assert_eq!(found, None);
    }
}

#[test]
fn openapi3_documents_are_upstreams() {
    let expected: BTreeMap<String, Map<String, Value>> =
        serde_json::from_str(include_str!("fixtures/openapi3.json")).expect("JSON");
    let resources = resources();
    for (what, expected) in &expected {
        let (section, version) = what.split_once(' ').expect("a section and a version");
        let mut document = document(of_version(&resources, version), &Marked);
        plain_parameters(&mut document, &Map::new());
        let actual = match section {
            "paths" => &document["paths"],
            _ => &document["components"]["schemas"],
        };
        check_members(what, actual, expected);
        if section == "definitions" {
            let schemas = actual.as_object().expect("schemas");
            let own: Vec<&String> = schemas.keys().filter(|name| !name.starts_with("io.k8s.ap")).collect();
            assert_eq!(own, expected.keys().collect::<Vec<_>>(), "{what}");
        }
    }
}

#[test]
fn swagger_documents_are_upstreams() {
    let expected: BTreeMap<String, Map<String, Value>> =
        serde_json::from_str(include_str!("fixtures/swagger.json")).expect("JSON");
    let built_in = built_in_swagger();
    let added = addition(&resources(), &Taken::by(&built_in), &Marked);
    // No built-in kind here has a scale.
    let names = added.definitions.keys();
    let own: Vec<&String> = names
        .filter(|name| !name.starts_with("io.k8s.api.autoscaling"))
        .collect();
    assert_eq!(own, expected["definitions"].keys().collect::<Vec<_>>());
    check_members(
        "definition",
        &added.definitions.clone().into(),
        &expected["definitions"],
    );
    let mut paths: Value = added.paths.into();
    plain_parameters(&mut paths, built_in["parameters"].as_object().expect("parameters"));
    check_members("path", &paths, &expected["paths"]);
}

#[test]
fn a_document_holds_what_upstreams_holds_and_no_more() {
    let resources = resources();
    let document = document(of_version(&resources, "test.k8s.io/v1alpha1"), &Marked);
    let paths: Vec<&String> = document["paths"].as_object().expect("paths").keys().collect();
    expect![[r#"
        [
            "/apis/test.k8s.io/v1alpha1/namespaces/{namespace}/things",
            "/apis/test.k8s.io/v1alpha1/namespaces/{namespace}/things/{name}",
            "/apis/test.k8s.io/v1alpha1/namespaces/{namespace}/things/{name}/scale",
            "/apis/test.k8s.io/v1alpha1/things",
        ]
    "#]]
    .assert_debug_eq(&paths);
    let schemas = document["components"]["schemas"].as_object().expect("schemas");
    let shared: Vec<&str> = schemas
        .keys()
        .filter_map(|name| name.strip_prefix("io.k8s.ap"))
        .collect();
    expect!["i.autoscaling.v1.Scale i.autoscaling.v1.ScaleSpec i.autoscaling.v1.ScaleStatus imachinery.pkg.apis.meta.v1.DeleteOptions imachinery.pkg.apis.meta.v1.FieldsV1 imachinery.pkg.apis.meta.v1.ListMeta imachinery.pkg.apis.meta.v1.ManagedFieldsEntry imachinery.pkg.apis.meta.v1.ObjectMeta imachinery.pkg.apis.meta.v1.OwnerReference imachinery.pkg.apis.meta.v1.Patch imachinery.pkg.apis.meta.v1.Preconditions imachinery.pkg.apis.meta.v1.ShardInfo imachinery.pkg.apis.meta.v1.Status imachinery.pkg.apis.meta.v1.StatusCause imachinery.pkg.apis.meta.v1.StatusDetails imachinery.pkg.apis.meta.v1.Time"].assert_eq(&shared.join(" "));
    let options = &schemas["io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"][GVK];
    assert_eq!(
        options.as_array().map(Vec::len),
        Some(53),
        "as upstream's client library has"
    );
    let rest: Vec<(&String, usize)> = document
        .as_object()
        .expect("an object")
        .iter()
        .map(|(key, value)| (key, value.as_object().map_or(0, Map::len)))
        .collect();
    expect![[r#"[("components", 1), ("info", 2), ("openapi", 0), ("paths", 4)]"#]].assert_eq(&format!("{rest:?}"));
}

#[test]
fn every_reference_resolves() {
    let resources = resources();
    let versions: BTreeSet<String> = resources.iter().map(|r| format!("{}/{}", r.group, r.version)).collect();
    for version in versions {
        let document = document(of_version(&resources, &version), &Marked);
        let mut targets = BTreeSet::new();
        references(&document, &mut targets);
        for target in targets {
            let pointer = target.strip_prefix('#').expect("a reference is local");
            assert!(document.pointer(pointer).is_some(), "{version}: {target}");
        }
    }
    let mut swagger = built_in_swagger();
    let added = addition(&resources, &Taken::by(&swagger), &Marked);
    for (section, added) in [
        ("definitions", added.definitions),
        ("parameters", added.parameters),
        ("paths", added.paths),
    ] {
        swagger[section].as_object_mut().expect("a section").extend(added);
    }
    let mut targets = BTreeSet::new();
    references(&swagger, &mut targets);
    for target in targets {
        let pointer = target.strip_prefix('#').expect("a reference is local");
        assert!(swagger.pointer(pointer).is_some(), "{target}");
    }
    let ids = swagger["paths"].as_object().expect("paths").values();
    let mut ids: Vec<&str> = ids
        .flat_map(|item| item.as_object().expect("an item").values())
        .filter_map(|operation| operation["operationId"].as_str())
        .collect();
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), all, "operation ids are unique");
}

#[test]
fn names_of_operations_are_identifiers_whatever_the_kind_is_called() {
    let mut definition = definitions()
        .into_iter()
        .find(|definition| definition["metadata"]["name"] == "news.example.com")
        .expect("a definition");
    definition["spec"]["names"]["kind"] = json!("late-news");
    let resources = CustomResource::served_by(&definition);
    let document = document(&resources, &Marked);
    let items = document["paths"].as_object().expect("paths").values();
    let ids: BTreeSet<&str> = items
        .filter_map(|item| item["get"]["operationId"].as_str())
        .filter(|id| id.contains("News"))
        .collect();
    expect![[r#"
        {"listExampleComV1LateNewsForAllNamespaces", "listExampleComV1NamespacedlateNews", "readExampleComV1NamespacedlateNews"}"#]]
    .assert_eq(&format!("{ids:?}"));
}

/// Bounds of zero look unset in these messages, upstream's included.
fn drop_zero_bounds(value: &mut Value) {
    match value {
        Value::Object(object) => {
            object.retain(|key, value| !(key.starts_with("min") && *value == 0));
            object.values_mut().for_each(drop_zero_bounds);
        }
        Value::Array(list) => list.iter_mut().for_each(drop_zero_bounds),
        _ => {}
    }
}

#[test]
fn protobuf_says_what_json_says() {
    let resources = resources();
    let mut document = document(of_version(&resources, "example.com/v1"), &Marked);
    drop_zero_bounds(&mut document);
    let mut read = gnostic::read::read_openapi3(&gnostic::openapi3(&document));
    // Defaults that are lists and objects have no place in these messages, upstream's included.
    let labels = "/components/schemas/com.example.v1.Widget/properties/spec/properties/labels/default";
    *read.pointer_mut(labels).expect("a default") = json!({"a": "b"});
    assert_eq!(first_difference(&read, &document, ""), None);
}

#[test]
fn what_is_added_may_follow_in_protobuf() {
    let mut swagger = built_in_swagger();
    let added = addition(&resources(), &Taken::by(&swagger), &Marked);
    let added = json!({"definitions": added.definitions, "parameters": added.parameters, "paths": added.paths});
    let bytes = [gnostic::swagger(&swagger), gnostic::swagger(&added)].concat();
    for (section, added) in added.as_object().expect("sections") {
        let section = swagger[section].as_object_mut().expect("a section");
        section.extend(added.as_object().expect("a section").clone());
    }
    drop_zero_bounds(&mut swagger);
    let read = gnostic::read::read_swagger(&bytes);
    assert_eq!(first_difference(&read, &swagger, ""), None);
}

#[test]
fn a_taken_name_is_not_taken_away() {
    let definition = json!({"spec": {
        "group": "core.api.k8s.io",
        "scope": "Cluster",
        "names": {"kind": "ConfigMap", "listKind": "ConfigMapList", "plural": "configmaps"},
        "versions": [{"name": "v1", "served": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
    }});
    let resources = CustomResource::served_by(&definition);
    let added = addition(&resources, &Taken::by(&built_in_swagger()), &Marked);
    expect![[r#"["io.k8s.api.core.v1.ConfigMapList_v2", "io.k8s.api.core.v1.ConfigMap_v2"]"#]]
        .assert_eq(&format!("{:?}", added.definitions.keys().collect::<Vec<_>>()));
    let mut targets = BTreeSet::new();
    references(&added.definitions.clone().into(), &mut targets);
    references(&added.paths.clone().into(), &mut targets);
    let own: Vec<&String> = targets.iter().filter(|target| target.contains("ConfigMap")).collect();
    expect![[
        r##"["#/definitions/io.k8s.api.core.v1.ConfigMapList_v2", "#/definitions/io.k8s.api.core.v1.ConfigMap_v2"]"##
    ]]
    .assert_eq(&format!("{own:?}"));
}

#[test]
fn paths_that_are_there_stay_as_they_are() {
    let definition = json!({"spec": {
        "group": "rbac.authorization.k8s.io",
        "scope": "Namespaced",
        "names": {"kind": "Part", "listKind": "PartList", "plural": "roles"},
        "versions": [{"name": "v1", "served": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
    }});
    let taken = Taken::by(&built_in_swagger());
    let added = addition(&CustomResource::served_by(&definition), &taken, &Marked);
    assert_eq!(added, Addition::default());
}

#[test]
fn whatever_changes_a_document_changes_the_hash() {
    let definition = definitions().swap_remove(0);
    let hash = |definition: &Value| CustomResource::served_by(definition)[0].content_hash();
    let before = hash(&definition);
    assert_eq!(before, hash(&definition.clone()));
    for (pointer, value) in [
        ("/spec/group", json!("b.example.com")),
        ("/spec/scope", json!("Namespaced")),
        ("/spec/names/plural", json!("pears")),
        ("/spec/names/kind", json!("Pear")),
        ("/spec/names/listKind", json!("PearList")),
        ("/spec/versions/0/name", json!("v7")),
        ("/spec/versions/0/subresources", json!({"scale": {}})),
        ("/spec/versions/0/schema/openAPIV3Schema/description", json!("new")),
        ("/spec/versions/0/selectableFields", json!([{"jsonPath": ".spec.a"}])),
        ("/spec/preserveUnknownFields", json!(true)),
    ] {
        let mut changed = definition.clone();
        let (parent, key) = pointer.rsplit_once('/').expect("a pointer");
        changed.pointer_mut(parent).expect("a parent")[key] = value;
        assert_ne!(before, hash(&changed), "{pointer}");
    }
    let mut unchanged = definition.clone();
    unchanged["metadata"]["name"] = "other".into();
    assert_eq!(before, hash(&unchanged), "what documents do not show");
}

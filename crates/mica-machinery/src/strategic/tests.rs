//! Cases from kube-apiserver's own recorded answers, and the corners around them.

use serde_json::{Value, json};

use super::*;
use crate::facts::facts;

#[track_caller]
fn merge(group: &str, kind: &str, document: Value, patch: Value) -> Result<Merged, StrategicError> {
    let ty = facts().kind(group, "v1", kind).expect("a built-in kind");
    strategic_merge(ty, &document, patch.to_string().as_bytes(), Strictness::Report)
}

#[track_caller]
fn error(kind: &str, document: Value, patch: Value) -> String {
    let group = if kind == "Deployment" { "apps" } else { "" };
    match merge(group, kind, document, patch).expect_err("the patch is refused") {
        StrategicError::BadRequest(text) => format!("400 {text}"),
        StrategicError::Unprocessable(text) => format!("422 {text}"),
        StrategicError::Internal(text) => format!("500 {text}"),
        StrategicError::Undecodable(error) => format!("422 {error}"),
    }
}

fn configmap(data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data})
}

fn with_finalizers(finalizers: &[&str]) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "finalizers": finalizers}})
}

#[track_caller]
fn check_data(before: Value, patch: Value, after: Value) {
    let merged = merge("", "ConfigMap", configmap(before), json!({"data": patch})).expect("the patch applies");
    assert_eq!(merged.value.get("data").unwrap_or(&Value::Null), &after);
}

#[track_caller]
fn check_finalizers(before: &[&str], patch: Value, after: &[&str]) {
    let document = with_finalizers(before);
    let merged = merge("", "ConfigMap", document, json!({"metadata": patch})).expect("the patch applies");
    assert_eq!(merged.value["metadata"]["finalizers"], json!(after));
}

fn deployment(pod: Value) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {"template": {"spec": pod}}})
}

#[track_caller]
fn check_pod(before: Value, patch: Value, pointer: &str, after: Value) {
    let merged = merge("apps", "Deployment", deployment(before), deployment(patch)).expect("the patch applies");
    let found = merged.value.pointer(&format!("/spec/template/spec{pointer}"));
    assert_eq!(found.unwrap_or(&Value::Null), &after);
}

#[test]
fn maps_merge_and_obey_directives() {
    let before = json!({"k": "v", "l": "w"});
    check_data(
        before.clone(),
        json!({"k": null, "m": "x"}),
        json!({"l": "w", "m": "x"}),
    );
    check_data(
        before.clone(),
        json!({"$patch": "replace", "z": "1"}),
        json!({"z": "1"}),
    );
    check_data(before.clone(), json!({"$patch": "delete"}), Value::Null);
    check_data(
        before.clone(),
        json!({"$retainKeys": ["k", "n"], "n": "1"}),
        json!({"k": "v", "n": "1"}),
    );
    check_data(before, json!({"nope": null}), json!({"k": "v", "l": "w"}));
}

#[test]
fn directives_that_make_no_sense_are_refused_in_upstreams_words() {
    let refused = |data: Value| error("ConfigMap", configmap(json!({"k": "v"})), json!({"data": data}));
    assert_eq!(
        refused(json!({"$patch": "merge", "l": "w"})),
        "500 unknown patch type: merge in map: map[$patch:merge l:w]"
    );
    assert_eq!(
        refused(json!({"$patch": 5})),
        "500 unknown patch type: %!s(int64=5) in map: map[$patch:5]"
    );
    assert_eq!(
        refused(json!({"$retainKeys": ["n"], "k": "2"})),
        "400 invalid patch format of retainKeys"
    );
    assert_eq!(
        refused(json!({"$retainKeys": "n"})),
        "400 invalid patch format of retainKeys"
    );
}

#[test]
fn a_document_that_no_longer_fits_its_type_is_422_and_shows_the_patch() {
    let refused = |patch: Value| error("ConfigMap", configmap(json!({"k": "v"})), patch);
    assert_eq!(
        refused(json!({"data": ["x"]})),
        r#"422 patch: Invalid value: "map[data:[x]]": cannot restore map from slice"#
    );
    assert_eq!(
        refused(json!({"data": {"k": 5}})),
        r#"422 patch: Invalid value: "map[data:map[k:5]]": cannot convert int64 to string"#
    );
    let replicas = |value: Value| {
        error(
            "Deployment",
            deployment(json!({})),
            json!({"spec": {"replicas": value}}),
        )
    };
    assert_eq!(
        replicas(json!("x")),
        r#"422 patch: Invalid value: "map[spec:map[replicas:x]]": unrecognized type: int32"#
    );
    assert_eq!(
        replicas(json!(1.5)),
        r#"422 patch: Invalid value: "map[spec:map[replicas:1.5]]": cannot convert float64 to int32"#
    );
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "data": {"k": "dg=="}});
    assert_eq!(
        error("Secret", secret, json!({"data": {"k": "***"}})),
        r#"422 patch: Invalid value: "map[data:map[k:***]]": error decoding from json: illegal base64 data at input byte 0"#
    );
}

#[test]
fn the_first_that_does_not_fit_is_the_first_of_the_type() {
    let refused = |patch: Value| {
        let text = error(
            "Pod",
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}),
            patch,
        );
        text.rsplit_once("]\": ").expect("a patch is shown").1.to_owned()
    };
    let quantity = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
    let limits = json!([{"name": "c", "resources": {"limits": {"cpu": "x"}}}]);
    // The text names startTime first, the type does the containers.
    assert_eq!(
        refused(json!({"status": {"startTime": "x"}, "spec": {"overhead": {"cpu": "x"}, "containers": limits}})),
        quantity
    );
    assert_eq!(
        refused(json!({"metadata": {"creationTimestamp": "x"}, "spec": {"containers": limits}})),
        r#"parsing time "x" as "2006-01-02T15:04:05Z07:00": cannot parse "x" as "2006""#
    );
    // Texts that are refused come before what is no text, too.
    assert_eq!(
        refused(json!({"metadata": {"creationTimestamp": 5}, "spec": {"priority": "x"}})),
        "json: cannot unmarshal number into Go value of type string"
    );
}

#[test]
fn what_decodes_itself_names_fields_from_there() {
    let properties = |schema: Value| json!({"spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": {"properties": {"a": schema}}}}]}});
    let merged = |schema: Value| {
        let document = json!({"kind": "CustomResourceDefinition", "apiVersion": "apiextensions.k8s.io/v1"});
        merge(
            "apiextensions.k8s.io",
            "CustomResourceDefinition",
            document,
            properties(schema),
        )
    };
    for (schema, expected) in [
        (
            json!({"items": {"properties": {"b": {"type": 5}}}}),
            "json: cannot unmarshal number into Go struct field JSONSchemaProps.properties.type of type string",
        ),
        (
            json!({"items": "x", "additionalProperties": {"properties": {"b": "x"}}}),
            "json: cannot unmarshal string into Go struct field JSONSchemaProps.properties of type v1.JSONSchemaProps",
        ),
        (json!({"type": 5}), "cannot convert int64 to string"),
    ] {
        match merged(schema) {
            Err(StrategicError::Undecodable(error)) => assert!(error.to_string().ends_with(expected), "{error}"),
            other => panic!("{other:?}"),
        }
    }
    // Keys of maps are not in the paths of what is unknown.
    assert_eq!(
        merged(json!({"x": 1, "properties": {"b": {"y": 1}, "c": {"y": 2}}}))
            .expect("it fits")
            .strict,
        [
            r#"unknown field "spec.versions[0].schema.openAPIV3Schema.properties.properties.y""#,
            r#"unknown field "spec.versions[0].schema.openAPIV3Schema.properties.properties.y""#,
            r#"unknown field "spec.versions[0].schema.openAPIV3Schema.properties.x""#,
        ]
    );
}

#[test]
fn bytes_may_be_a_list_of_numbers() {
    for (list, bytes) in [(json!([]), ""), (json!([1, 258, 3.0, null]), "AQIDAA==")] {
        let merged = merge(
            "",
            "ConfigMap",
            configmap(json!({})),
            json!({"binaryData": {"b": list}}),
        );
        assert_eq!(merged.expect("it fits").value["binaryData"]["b"], bytes);
    }
    let refused = error("ConfigMap", configmap(json!({})), json!({"binaryData": {"b": ["x"]}}));
    assert!(refused.contains("unrecognized type: uint8"), "{refused}");
}

#[test]
fn bodies_that_are_no_objects_are_400() {
    let ty = facts().kind("", "v1", "ConfigMap").expect("a built-in kind");
    let refused = |patch: &str| match strategic_merge(ty, &configmap(json!({})), patch.as_bytes(), Strictness::Ignore) {
        Err(StrategicError::BadRequest(text)) => text,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(""), "unexpected end of JSON input");
    assert_eq!(
        refused("[]"),
        "json: cannot unmarshal array into Go value of type map[string]interface {}"
    );
    assert!(strategic_merge(ty, &configmap(json!({})), b"null", Strictness::Ignore).is_ok());
}

#[test]
fn another_kind_in_the_patch_is_ignored() {
    let merged = merge(
        "",
        "ConfigMap",
        configmap(json!({})),
        json!({"kind": "Secret", "apiVersion": "v9"}),
    )
    .expect("the patch applies");
    assert_eq!(
        (&merged.value["kind"], &merged.value["apiVersion"]),
        (&json!("ConfigMap"), &json!("v1"))
    );
}

#[test]
fn lists_of_scalars_merge_delete_and_reorder() {
    check_finalizers(
        &["x.io/a", "x.io/b"],
        json!({"finalizers": ["x.io/c", "x.io/a"]}),
        &["x.io/c", "x.io/a", "x.io/b"],
    );
    check_finalizers(
        &["x.io/a", "x.io/b"],
        json!({"$deleteFromPrimitiveList/finalizers": ["x.io/a", "x.io/zz"]}),
        &["x.io/b"],
    );
    check_finalizers(
        &["x.io/b", "x.io/c"],
        json!({"$setElementOrder/finalizers": ["x.io/c", "x.io/b"]}),
        &["x.io/c", "x.io/b"],
    );
    let refused = |patch: Value| {
        error(
            "ConfigMap",
            with_finalizers(&["x.io/b", "x.io/a"]),
            json!({"metadata": patch}),
        )
    };
    assert_eq!(
        refused(json!({"$setElementOrder/finalizers": "x"})),
        "500 expected a []interface {}, but received a string"
    );
    assert_eq!(
        refused(json!({"$setElementOrder/finalizers": ["x.io/q"], "finalizers": ["x.io/b"]})),
        "500 The order in patch list:\n[x.io/b]\n doesn't match $setElementOrder list:\n[x.io/q]\n"
    );
    assert_eq!(
        refused(json!({"finalizers": [{"$patch": "replace"}, "x.io/z"]})),
        "500 list element types are not identical: [[x.io/b x.io/a] [map[$patch:replace] x.io/z]]"
    );
}

#[test]
fn lists_of_maps_merge_by_key() {
    let two = json!({"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "2"}]});
    check_pod(
        two.clone(),
        json!({"containers": [{"name": "b", "image": "3"}, {"name": "n", "image": "4"}]}),
        "/containers",
        json!([
            {"name": "a", "image": "1", "resources": {}},
            {"name": "b", "image": "3", "resources": {}},
            {"name": "n", "image": "4", "resources": {}}
        ]),
    );
    check_pod(
        two.clone(),
        json!({"containers": [{"name": "a", "$patch": "delete"}, {"name": "nope", "$patch": "delete"}]}),
        "/containers/0/name",
        json!("b"),
    );
    check_pod(
        two.clone(),
        json!({"containers": [{"$patch": "replace"}, {"name": "z"}]}),
        "/containers",
        json!([{"name": "z", "resources": {}}]),
    );
    check_pod(
        two,
        json!({"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}),
        "/containers/0/name",
        json!("b"),
    );
}

#[test]
fn container_ports_merge_by_number_alone() {
    let app = |ports: Value| json!({"containers": [{"name": "app", "ports": ports}]});
    check_pod(
        app(json!([{"containerPort": 80, "protocol": "TCP"}])),
        app(json!([{"containerPort": 80, "protocol": "UDP"}])),
        "/containers/0/ports",
        json!([{"containerPort": 80, "protocol": "UDP"}]),
    );
}

#[test]
fn volumes_keep_one_source_with_retain_keys() {
    check_pod(
        json!({"volumes": [{"name": "v", "configMap": {"name": "c"}}]}),
        json!({"volumes": [{"name": "v", "$retainKeys": ["name", "secret"], "secret": {"secretName": "s"}}]}),
        "/volumes",
        json!([{"name": "v", "secret": {"secretName": "s"}}]),
    );
}

#[test]
fn lists_of_maps_refuse_what_cannot_be_told_apart() {
    let refused = |pod: Value| {
        let before = json!({"containers": [{"name": "a", "env": [{"name": "A", "value": "a"}]}, {"name": "b"}]});
        error("Deployment", deployment(before), deployment(pod))
    };
    assert_eq!(
        refused(json!({"containers": [{"image": "x"}]})),
        "500 map: map[image:x] does not contain declared merge key: name"
    );
    assert_eq!(
        refused(json!({"containers": ["text"]})),
        "500 list element types are not identical: [[map[env:[map[name:A value:a]] name:a] map[name:b]] [text]]"
    );
    assert_eq!(
        refused(json!({"containers": [{"$patch": "merge"}]})),
        "500 merging lists cannot yet be specified in the patch"
    );
    assert_eq!(
        refused(json!({"$setElementOrder/containers": ["a"]})),
        "500 value for key 0 is not a map"
    );
    assert_eq!(
        refused(json!({"$setElementOrder/containers": [{"image": "x"}]})),
        "500 map: map[image:x] does not contain declared merge key: name"
    );
}

#[test]
fn an_object_under_a_map_of_objects_cannot_be_merged() {
    let definition = |title: &str| {
        json!({"kind": "CustomResourceDefinition", "apiVersion": "apiextensions.k8s.io/v1", "spec": {"versions": [{
            "name": "v1", "schema": {"openAPIV3Schema": {"properties": {"spec": {"title": title}}}}}]}})
    };
    // Versions have no merge strategy, so the list is replaced and nothing below merges.
    let merged = merge(
        "apiextensions.k8s.io",
        "CustomResourceDefinition",
        definition("a"),
        definition("b"),
    );
    assert!(merged.is_ok());
}

#[test]
fn reports_are_duplicates_first_and_then_sorted_unknown_fields() {
    let ty = facts().kind("", "v1", "ConfigMap").expect("a built-in kind");
    let patch = br#"{"zz": 1, "data": {"a": "1", "a": "2"}, "aa": 1}"#;
    let merged = strategic_merge(ty, &configmap(json!({})), patch, Strictness::Report).expect("the patch applies");
    assert_eq!(
        merged.strict,
        [
            r#"duplicate field "data.a""#,
            r#"unknown field "aa""#,
            r#"unknown field "zz""#
        ]
    );
    assert!(
        merged
            .refusal()
            .to_string()
            .contains("strict decoding error: duplicate field")
    );
}

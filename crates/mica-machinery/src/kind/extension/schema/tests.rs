//! What definitions are refused for, from kube-apiserver's recorded answers.

use serde_json::{Value, json};

use super::*;
use crate::field::aggregate;
use crate::schema::rule;

#[track_caller]
fn check(schema: Value, expected: &str) {
    let validation = json!({"openAPIV3Schema": schema});
    let path = Path::new("v");
    let errors = validate(
        &validation,
        StatusSubresource::Off,
        &path,
        Demands::ALL,
        rule::compiler(),
    );
    assert_eq!(aggregate(&errors).replace("v.openAPIV3Schema", "~"), expected);
}

/// The errors of a schema for `spec.f`, with the path to it cut.
#[track_caller]
fn check_f(schema: Value, expected: &str) {
    let root = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"f": schema}}}});
    let validation = json!({"openAPIV3Schema": root});
    let path = Path::new("v");
    let errors = validate(
        &validation,
        StatusSubresource::Off,
        &path,
        Demands::ALL,
        rule::compiler(),
    );
    let text = aggregate(&errors).replace("v.openAPIV3Schema.properties[spec].properties[f]", "f");
    assert_eq!(text.replace("v.openAPIV3Schema", "~"), expected);
}

#[test]
fn every_place_has_a_type() {
    check(
        json!({"properties": {}}),
        "~.type: Required value: must not be empty at the root",
    );
    check(
        json!({"type": "string"}),
        r#"~.type: Invalid value: "string": must be object at the root"#,
    );
    check_f(
        json!({"description": "x"}),
        "f.type: Required value: must not be empty for specified object fields",
    );
    check_f(json!({"type": "array"}), "f.items: Required value: must be specified");
    check_f(
        json!({"type": "array", "items": {}}),
        "f.items.type: Required value: must not be empty for specified array items",
    );
    check_f(
        json!({"type": "strnig"}),
        r#"f.type: Unsupported value: "strnig": supported values: "array", "boolean", "integer", "number", "object", "string""#,
    );
    check_f(
        json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]}),
        "",
    );
    check_f(
        json!({"type": "object", "x-kubernetes-embedded-resource": true}),
        "f.properties: Required value: must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields",
    );
}

#[test]
fn junctors_have_no_say_in_the_structure() {
    check_f(
        json!({"type": "string", "anyOf": [{"type": "string", "pattern": "a"}]}),
        "f.anyOf[0].type: Forbidden: must be empty to be structural",
    );
    check_f(
        json!({"type": "string", "allOf": [{"default": "x", "description": "d", "nullable": true}]}),
        "[f.allOf[0].default: Forbidden: must be undefined to be structural, f.allOf[0].description: Forbidden: must be empty to be structural, f.allOf[0].nullable: Forbidden: must be false to be structural]",
    );
    // Only the root's junctors are asked whether what they name is there.
    check_f(
        json!({"type": "object", "oneOf": [{"properties": {"a": {"minLength": 1}}}]}),
        "",
    );
    check(
        json!({"type": "object", "oneOf": [{"properties": {"a": {"minLength": 1}}}]}),
        "~.properties[a]: Required value: because it is defined in ~.oneOf[0].properties[a]",
    );
}

#[test]
fn words_that_are_not_supported_are_named() {
    check_f(
        json!({"$ref": "#/definitions/x"}),
        "f.$ref: Forbidden: $ref is not supported",
    );
    check_f(
        json!({"type": "array", "items": {"type": "string"}, "uniqueItems": true}),
        "f.uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
    );
    check_f(
        json!({"type": "object", "additionalProperties": {"type": "string"}, "properties": {"a": {"type": "string"}}}),
        "f.additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive",
    );
    check_f(
        json!({"type": "string", "pattern": "[a-"}),
        r#"f.pattern: Invalid value: "[a-": must be a valid regular expression, but isn't: error parsing regexp: missing closing ]: `[a-`"#,
    );
    check(
        json!({"type": "object", "$schema": "x"}),
        r#"~: Invalid value: "": OpenAPIV3Schema 'schema' is not supported"#,
    );
}

#[test]
fn lists_and_maps_say_how_they_merge() {
    let keyed = |keys: Value, items: Value| json!({"type": "array", "items": items, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys});
    let items = json!({"type": "object", "properties": {"k": {"type": "string"}}});
    check_f(
        keyed(json!(["k"]), items.clone()),
        "f.items.properties[k].default: Required value: this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property",
    );
    check_f(
        keyed(json!(["q"]), items.clone()),
        r#"f.x-kubernetes-list-map-keys: Invalid value: ["q"]: entries must all be names of item properties"#,
    );
    check_f(
        keyed(json!(["k"]), json!({"type": "string"})),
        r#"f.items.type: Invalid value: "string": must be object if parent array's x-kubernetes-list-type is map"#,
    );
    // Items that are no schema are kept as null.
    check_f(
        keyed(json!(["k"]), json!(null)),
        r#"[f.items: Required value: must be specified, f.items: Invalid value: {"Schema":null,"JSONSchemas":null}: must only have a single schema if x-kubernetes-list-type is map]"#,
    );
    check_f(
        json!({"type": "array", "items": items, "x-kubernetes-list-type": "set"}),
        "f.items.x-kubernetes-map-type: Invalid value: null: must be atomic as item of a list with x-kubernetes-list-type=set",
    );
    check_f(
        json!({"type": "object", "x-kubernetes-map-type": "loose"}),
        r#"f.x-kubernetes-map-type: Unsupported value: "loose": supported values: "atomic", "granular""#,
    );
}

#[test]
fn a_default_at_the_root_is_a_resource() {
    for (default, expected) in [
        (
            json!({}),
            "[~.default.apiVersion: Required value, ~.default.kind: Required value]",
        ),
        (json!({"apiVersion": "v1"}), "~.default.kind: Required value"),
        (json!({"apiVersion": "a.example.com/v1", "kind": "W"}), ""),
        (
            json!({"apiVersion": "a.example.com/v1", "kind": "W", "metadata": {"name": "x"}}),
            "",
        ),
    ] {
        check(json!({"type": "object", "default": default}), expected);
    }
}

#[test]
fn an_empty_default_is_one_at_the_root_with_a_status() {
    let refused = |schema: Value| {
        let validation = json!({"openAPIV3Schema": schema});
        let path = Path::new("v");
        let errors = validate(
            &validation,
            StatusSubresource::On,
            &path,
            Demands::ALL,
            rule::compiler(),
        );
        aggregate(&errors).contains("fields are allowed at the root of the schema")
    };
    assert!(refused(json!({"type": "object", "default": {}})));
    assert!(!refused(json!({"type": "object", "default": null})));
}

#[test]
fn defaults_must_be_acceptable_values() {
    check_f(
        json!({"type": "string", "default": 5}),
        r#"f.default: Invalid value: "integer":  in body must be of type string: "integer""#,
    );
    for default in [json!(1.5), json!(true), json!("x")] {
        check_f(json!({"x-kubernetes-int-or-string": true, "default": default}), "");
    }
    // With any format a default need not be of its type, if it is a text or a list.
    for (schema, expected) in [
        (json!({"type": "boolean", "format": "date", "default": true}), ""),
        (
            json!({"type": "boolean", "format": "date", "default": "2020-01-01"}),
            "",
        ),
        (json!({"type": "boolean", "format": "strange", "default": "x"}), ""),
        (
            json!({"type": "array", "items": {"type": "string"}, "format": "strange", "default": "x"}),
            "",
        ),
        (json!({"type": "string", "format": "strange", "default": []}), ""),
        (
            json!({"type": "boolean", "format": "date", "default": "x"}),
            r#"f.default: Invalid value: "x":  in body must be of type date: "x""#,
        ),
        (
            json!({"type": "boolean", "format": "date", "default": 5}),
            r#"f.default: Invalid value: "int64":  in body must be of type date: "int64""#,
        ),
        (
            json!({"type": "string", "format": "strange", "default": {}}),
            r#"f.default: Invalid value: "":  in body must be of type strange: """#,
        ),
        (
            json!({"type": "integer", "format": "date", "default": "2020-01-01"}),
            r#"f.default: Invalid value: "string":  in body must be of type integer: "string""#,
        ),
        (json!({"type": "number", "format": "int32", "default": 1e12}), ""),
        (
            json!({"type": "array", "items": {"type": "string"}, "maxItems": -1, "default": ["a"]}),
            "f.default: Too many: 1: has too many items",
        ),
        (
            json!({"type": "string", "maxLength": -1, "default": "a"}),
            "f.default: Too long: value is too long",
        ),
        (
            json!({"type": "string", "x-kubernetes-int-or-string": true, "default": 5}),
            r#"f.default: Invalid value: "integer":  in body must be of type string: "integer""#,
        ),
        (
            json!({"type": "int", "default": 3}),
            r#"[f.default: Invalid value: "integer":  in body must be of type int: "integer", f.type: Unsupported value: "int": supported values: "array", "boolean", "integer", "number", "object", "string"]"#,
        ),
    ] {
        check_f(schema, expected);
    }
    check_f(
        json!({"type": "object", "properties": {"a": {"type": "string"}}, "default": {"a": "x", "zz": 1}}),
        r#"f.default: Invalid value: {"a":"x","zz":1}: must not have unknown fields"#,
    );
    check_f(
        json!({"type": "string", "default": "no", "x-kubernetes-validations": [{"rule": "self == 'yes'"}]}),
        r#"f.default: Invalid value: "no": failed rule: self == 'yes'"#,
    );
    check_f(
        json!({"type": "array", "items": {"x-kubernetes-preserve-unknown-fields": true}, "default": [],
            "x-kubernetes-validations": [{"rule": "self.size() < 3"}]}),
        r#"f.default: Invalid value: "array": rule compiler initialization error: failed to convert to declType for CEL validation rules"#,
    );
    check(
        json!({"type": "object", "properties": {"metadata": {"type": "object",
            "properties": {"name": {"type": "string", "default": "x"}}}}}),
        "~.properties[metadata].properties[name].default: Forbidden: must not be set in top-level metadata",
    );
    let embedded = |default: Value| {
        json!({"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true,
            "properties": {"metadata": {"type": "object", "properties": {"labels": {"type": "object",
                "additionalProperties": {"type": "string"}, "default": default}}}}})
    };
    check_f(embedded(json!({"a": "b"})), "");
    check_f(
        embedded(json!({"a b": "c"})),
        r#"f.properties[metadata].properties[labels].default: Invalid value: {"a b":"c"}: must result in valid metadata: metadata.labels: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"#,
    );
}

#[test]
fn rules_must_compile_and_be_affordable() {
    check_f(
        json!({"type": "string", "x-kubernetes-validations": [{"rule": "self.size()"}]}),
        r#"f.x-kubernetes-validations[0].rule: Invalid value: {"Rule":"self.size()","Message":"","MessageExpression":"","Reason":null,"FieldPath":"","OptionalOldSelf":null}: cel expression must evaluate to a bool"#,
    );
    check_f(
        json!({"type": "string", "x-kubernetes-validations": [{"rule": "double('1.2.3')"}]}),
        r#"f.x-kubernetes-validations[0].rule: Invalid value: {"Rule":"double('1.2.3')","Message":"","MessageExpression":"","Reason":null,"FieldPath":"","OptionalOldSelf":null}: cel expression must evaluate to a bool"#,
    );
    check_f(
        json!({"type": "string", "x-kubernetes-validations": [{"rule": "self != ''", "message": "a\nb"}]}),
        r#"f.x-kubernetes-validations[0].message: Invalid value: "a\nb": must not contain line breaks"#,
    );
    let cost = "exceeds budget by factor of more than 100x (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)";
    check_f(
        json!({"type": "array", "items": {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf"}]}}),
        &format!(
            "[f.items.x-kubernetes-validations[0].rule: Forbidden: estimated rule cost {cost}, f.items.x-kubernetes-validations[0].rule: Invalid value: \"self == oldSelf\": oldSelf cannot be used on the uncorrelatable portion of the schema within f, f.items.x-kubernetes-validations[0].rule: Forbidden: contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema, ~: Forbidden: x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema {cost}]"
        ),
    );
}

#[test]
fn selectable_fields_lead_to_scalars() {
    let validation = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "a": {"type": "string"}, "o": {"type": "object", "properties": {"x": {"type": "string"}}}}}}}});
    let errors = |paths: &[&str]| {
        let fields: Vec<Value> = paths.iter().map(|path| json!({"jsonPath": path})).collect();
        let path = Path::new("s");
        aggregate(&validate_selectable(
            &fields,
            Some(&validation),
            &path,
            TooManySelectable::Refused,
            "",
        ))
    };
    assert_eq!(errors(&[".spec.a", ".spec.o.x"]), "");
    assert_eq!(
        errors(&[".spec.zz"]),
        r#"s[0].jsonPath: Invalid value: ".spec.zz": is an invalid path: does not refer to a valid field"#
    );
    assert_eq!(
        errors(&[".spec.a", ".spec.a"]),
        r#"s[1].jsonPath: Duplicate value: ".spec.a""#
    );
    assert_eq!(
        errors(&[".spec.l[0]"]),
        r#"s[0].jsonPath: Invalid value: ".spec.l[0]": is an invalid path: does not refer to a valid field"#
    );
}

#[test]
fn an_update_is_judged_no_harder_than_what_was_there() {
    let loose = json!({"type": "object", "properties": {"l": {"type": "array", "x-kubernetes-list-type": "set",
        "items": {"type": "object", "properties": {"a": {"type": "string"}}}}}});
    let demands = Demands::of_update(&[&loose], &[&loose], false);
    assert!(!demands.atomic_set_items && demands.structural && demands.map_keys && demands.pruned_defaults);
}

//! What custom resources are pruned to, filled with and refused for, from kube-apiserver's recorded answers.

use serde_json::{Value, json};

use super::rule::NoRules;
use super::*;

fn compiled(spec: Value) -> Compiled {
    Compiled::new(&json!({"type": "object", "properties": {"spec": spec}}), &NoRules)
}

fn object(spec: &Value) -> Value {
    json!({"apiVersion": "e.org/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": spec})
}

/// The errors of a `spec` under a schema of `spec`, as one refusal prints them.
#[track_caller]
fn check(schema: Value, spec: Value, expected: &str) {
    let compiled = compiled(schema);
    let mut object = object(&spec);
    compiled
        .prepare(&mut object, Malformed::Refuse)
        .expect("metadata is fine");
    compiled.default(&mut object);
    let checked = compiled.validate(&object, None, Earlier::default());
    assert_eq!(crate::field::aggregate(&checked.errors), expected);
}

/// The errors of a `spec.f`.
#[track_caller]
fn check_f(schema: Value, value: Value, expected: &str) {
    check(
        json!({"type": "object", "properties": {"f": schema}}),
        json!({"f": value}),
        expected,
    );
}

/// What becomes of a `spec`, and which fields are unknown.
#[track_caller]
fn check_prepared(schema: Value, spec: Value, expected: Value, unknown: &[&str]) {
    let compiled = compiled(schema);
    let mut object = object(&spec);
    let found = compiled
        .prepare(&mut object, Malformed::Refuse)
        .expect("metadata is fine");
    compiled.default(&mut object);
    assert_eq!(object["spec"], expected);
    assert_eq!(found, unknown);
}

#[test]
fn types() {
    let wrong = |found: &str, ty: &str| {
        format!(r#"spec.f: Invalid value: "{found}": spec.f in body must be of type {ty}: "{found}""#)
    };
    check_f(json!({"type": "string"}), json!(1), &wrong("integer", "string"));
    check_f(json!({"type": "string"}), json!({}), &wrong("object", "string"));
    check_f(json!({"type": "integer"}), json!("1"), &wrong("string", "integer"));
    check_f(json!({"type": "integer"}), json!(1.0), "");
    check_f(json!({"type": "number"}), json!(1), "");
    check_f(
        json!({"type": "integer"}),
        json!(1.5),
        r#"[spec.f: Invalid value: "number": spec.f in body must be of type integer: "number", <nil>: Invalid value: "": Checked value must be of type integer (default format) in spec.f]"#,
    );
    let list = json!({"type": "array", "items": {"type": "integer"}});
    check_f(
        list,
        json!([1, null]),
        r#"spec.f[1]: Invalid value: "null": spec.f[1] in body must be of type integer: "null""#,
    );
    check_f(
        json!({"x-kubernetes-int-or-string": true}),
        json!(1.5),
        r#"spec.f: Invalid value: "number": spec.f in body must be of type integer,string: "number""#,
    );
    check_f(json!({"x-kubernetes-int-or-string": true}), json!("80%"), "");
    check_f(json!({"type": "string", "nullable": true}), json!(null), "");
}

#[test]
fn values() {
    check_f(
        json!({"type": "string", "enum": ["red", "green"]}),
        json!("blue"),
        r#"spec.f: Unsupported value: "blue": supported values: "red", "green""#,
    );
    check_f(
        json!({"type": "integer", "enum": [1, 2, 3]}),
        json!(4),
        r#"spec.f: Unsupported value: 4: supported values: "1", "2", "3""#,
    );
    let bounds = json!({"type": "integer", "minimum": 1, "maximum": 10});
    check_f(
        bounds.clone(),
        json!(0),
        "spec.f: Invalid value: 0: spec.f in body should be greater than or equal to 1",
    );
    check_f(
        bounds,
        json!(11),
        "spec.f: Invalid value: 11: spec.f in body should be less than or equal to 10",
    );
    check_f(
        json!({"type": "number", "minimum": 0, "exclusiveMinimum": true}),
        json!(0),
        "spec.f: Invalid value: 0: spec.f in body should be greater than 0",
    );
    check_f(
        json!({"type": "number", "multipleOf": 0.5}),
        json!(1.3),
        "spec.f: Invalid value: 1.3: spec.f in body should be a multiple of 0.5",
    );
    // An integer is compared with what a bound is cut to, and out of range that is the smallest integer.
    check_f(
        json!({"type": "number", "maximum": 1e19}),
        json!(0),
        "spec.f: Invalid value: 0: spec.f in body should be less than or equal to -9223372036854775808",
    );
    check_f(
        json!({"type": "number", "multipleOf": 0.5}),
        json!(1),
        "spec.f: Invalid value: 0: factor MultipleOf declared for spec.f must be positive: 0",
    );
    check_f(
        json!({"type": "string", "minLength": 2, "maxLength": 4}),
        json!("a"),
        r#"spec.f: Invalid value: "a": spec.f in body should be at least 2 chars long"#,
    );
    check_f(json!({"type": "string", "maxLength": 4}), json!("äöüß"), "");
    check_f(
        json!({"type": "string", "maxLength": 4}),
        json!("abcde"),
        "spec.f: Too long: may not be more than 4 bytes",
    );
    check_f(
        json!({"type": "string", "pattern": "^[a-z]+-[0-9]{2}$"}),
        json!("ab-1"),
        r#"spec.f: Invalid value: "ab-1": spec.f in body should match '^[a-z]+-[0-9]{2}$'"#,
    );
    check_f(
        json!({"type": "string", "format": "date"}),
        json!("2023-02-29"),
        r#"spec.f: Invalid value: "2023-02-29": spec.f in body must be of type date: "2023-02-29""#,
    );
    check_f(
        json!({"type": "integer", "format": "int32"}),
        json!(2_147_483_648_i64),
        r#"<nil>: Invalid value: "": Checked value must be of type integer with format int32 in spec.f"#,
    );
}

#[test]
fn lists_and_maps() {
    let list = json!({"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 2});
    check_f(
        list.clone(),
        json!([]),
        "spec.f: Invalid value: 0: spec.f in body should have at least 1 items",
    );
    check_f(
        list,
        json!(["a", "b", "c"]),
        "spec.f: Too many: 3: must have at most 2 items",
    );
    let map =
        json!({"type": "object", "additionalProperties": {"type": "string"}, "minProperties": 1, "maxProperties": 2});
    check_f(
        map.clone(),
        json!({}),
        "spec.f: Invalid value: 0: spec.f in body should have at least 1 properties",
    );
    check_f(
        map,
        json!({"a": "x", "b": "y", "c": "z"}),
        "spec.f: Too many: 3: must have at most 2 items",
    );
    let required = json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]});
    check_f(required.clone(), json!({"a": null}), "spec.f.a: Required value");
    let maps = json!({"type": "object", "additionalProperties": required});
    check_f(maps, json!({"k.1": {}}), "spec.f.k.1.a: Required value");
    check_f(
        json!({"type": "object", "additionalProperties": false}),
        json!({"a": 1}),
        r#"spec.f: Invalid value: "a": spec.f.a in body is a forbidden property"#,
    );
}

#[test]
fn junctors() {
    let either = json!([{"required": ["a"]}, {"required": ["b"]}]);
    let properties = json!({"a": {"type": "string"}, "b": {"type": "string"}});
    let one_of = json!({"type": "object", "properties": properties, "oneOf": either});
    check_f(
        one_of.clone(),
        json!({}),
        r#"[<nil>: Invalid value: "": "spec.f" must validate one and only one schema (oneOf). Found none valid, spec.f.a: Required value]"#,
    );
    check_f(
        one_of,
        json!({"a": "x", "b": "y"}),
        r#"<nil>: Invalid value: "": "spec.f" must validate one and only one schema (oneOf). Found 2 valid alternatives"#,
    );
    let any_of = json!({"type": "object", "properties": properties, "anyOf": either});
    check_f(
        any_of,
        json!({}),
        r#"[<nil>: Invalid value: "": "spec.f" must validate at least one schema (anyOf), spec.f.a: Required value]"#,
    );
    let all_of = json!({"type": "string", "allOf": [{"minLength": 2}, {"pattern": "^a"}]});
    check_f(
        all_of.clone(),
        json!("b"),
        r#"[spec.f: Invalid value: "b": spec.f in body should be at least 2 chars long, spec.f: Invalid value: "b": spec.f in body should match '^a', <nil>: Invalid value: "": "spec.f" must validate all the schemas (allOf). None validated]"#,
    );
    check_f(
        all_of,
        json!("bb"),
        r#"[spec.f: Invalid value: "bb": spec.f in body should match '^a', <nil>: Invalid value: "": "spec.f" must validate all the schemas (allOf)]"#,
    );
    check_f(
        json!({"type": "string", "not": {"enum": ["no"]}}),
        json!("no"),
        r#"<nil>: Invalid value: "": "spec.f" must not validate the schema (not)"#,
    );
    check_f(
        json!({"type": "string", "anyOf": [{"pattern": "^a"}, {"maxLength": 1}]}),
        json!("xyz"),
        r#"[<nil>: Invalid value: "": "spec.f" must validate at least one schema (anyOf), spec.f: Invalid value: "xyz": spec.f in body should match '^a']"#,
    );
}

#[test]
fn sets_and_keyed_lists_hold_nothing_twice() {
    let set = json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"});
    check_f(
        set.clone(),
        json!(["a", "b", "a"]),
        r#"spec.f[2]: Duplicate value: "a""#,
    );
    check_f(set, json!(["a", "a", "a"]), r#"spec.f[1]: Duplicate value: "a""#);
    let keyed = json!({
        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k", "p"],
        "items": {"type": "object", "required": ["k"], "properties": {
            "k": {"type": "string"}, "p": {"type": "string", "default": "TCP"}, "v": {"type": "integer"}}}
    });
    check_f(keyed.clone(), json!([{"k": "a"}, {"k": "a", "p": "UDP"}]), "");
    check_f(
        keyed.clone(),
        json!([{"k": "a", "v": 1}, {"k": "b"}, {"k": "a", "v": 2}]),
        r#"spec.f[2]: Duplicate value: {"k":"a","p":"TCP"}"#,
    );
    check_f(keyed, json!([{"p": "x"}]), "spec.f[0].k: Required value");
}

#[test]
fn unknown_fields_are_pruned_at_every_level() {
    let schema = json!({"type": "object", "properties": {
        "l": {"type": "array", "items": {"type": "object", "properties": {"b": {"type": "string"}}}},
        "m": {"type": "object", "additionalProperties": {"type": "object", "properties": {"c": {"type": "string"}}}},
        "o": {"type": "object", "properties": {"a": {"type": "string"}}}}});
    check_prepared(
        schema,
        json!({"l": [{"b": "y", "u": 2}], "m": {"k": {"c": "z", "u": 3}}, "o": {"a": "x", "u": 1}, "u": 4}),
        json!({"l": [{"b": "y"}], "m": {"k": {"c": "z"}}, "o": {"a": "x"}}),
        &["spec.l[0].u", "spec.m.k.u", "spec.o.u", "spec.u"],
    );
    check_prepared(
        json!({"type": "object", "properties": {"f": {"type": "object", "additionalProperties": true}}}),
        json!({"f": {"a": 1, "b": {"c": [1, "x"]}}}),
        json!({"f": {"a": 1, "b": {}}}),
        &["spec.f.b.c"],
    );
    let island = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true,
        "properties": {"o": {"type": "object", "properties": {"a": {"type": "string"}}}}});
    check_prepared(
        island,
        json!({"any": {"deep": [1, {"x": null}]}, "o": {"a": "x", "u": 1}}),
        json!({"any": {"deep": [1, {"x": null}]}, "o": {"a": "x"}}),
        &["spec.o.u"],
    );
}

#[test]
fn nulls_go_where_they_may_not_be() {
    let schema = json!({"type": "object", "properties": {
        "f": {"type": "string"}, "m": {"type": "object", "additionalProperties": {"type": "string"}}}});
    check_prepared(
        schema,
        json!({"f": null, "m": {"a": null, "b": "x"}}),
        json!({"m": {"b": "x"}}),
        &[],
    );
    let schema = json!({"type": "object", "properties": {"a": {"type": "string", "default": "x"},
        "b": {"type": "string", "default": "y", "nullable": true}, "c": {"type": "string", "nullable": true}}});
    check_prepared(
        schema.clone(),
        json!({"a": null, "b": null, "c": null}),
        json!({"a": "x", "b": null, "c": null}),
        &[],
    );
    check_prepared(schema, json!({"a": ""}), json!({"a": "", "b": "y"}), &[]);
}

#[test]
fn defaults_reach_into_what_is_there() {
    let schema = json!({"type": "object", "properties": {
        "o": {"type": "object", "properties": {"n": {"type": "string", "default": "deep"}}},
        "p": {"type": "object", "default": {}, "properties": {"n": {"type": "string", "default": "deep"}}},
        "l": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer", "default": 1}}}},
        "m": {"type": "object", "additionalProperties": {"type": "object",
            "properties": {"k": {"type": "string", "default": "v"}}}}}});
    check_prepared(schema.clone(), json!({}), json!({"p": {"n": "deep"}}), &[]);
    check_prepared(
        schema,
        json!({"o": {}, "l": [{}], "m": {"x": {}}}),
        json!({"o": {"n": "deep"}, "p": {"n": "deep"}, "l": [{"n": 1}], "m": {"x": {"k": "v"}}}),
        &[],
    );
}

#[test]
fn embedded_resources_have_a_type_and_proper_metadata() {
    let schema = json!({"type": "object", "properties": {"t": {"type": "object",
        "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}}});
    check_prepared(
        schema.clone(),
        json!({"t": {"apiVersion": "v1", "kind": "Pod", "metadata": {"bogus": 1, "name": "p"}, "spec": {"any": 1}}}),
        json!({"t": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"any": 1}}}),
        &["spec.t.metadata.bogus"],
    );
    check(
        schema.clone(),
        json!({"t": {"metadata": {}}}),
        "[spec.t.apiVersion: Required value, spec.t.kind: Required value]",
    );
    check(
        schema.clone(),
        json!({"t": {"apiVersion": "a/b/c", "kind": "K"}}),
        r#"spec.t.apiVersion: Invalid value: "a/b/c": unexpected GroupVersion string: a/b/c"#,
    );
    let compiled = compiled(schema);
    let mut bad = object(&json!({"t": {"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"a": 1}}}}));
    assert_eq!(
        compiled
            .prepare(&mut bad.clone(), Malformed::Refuse)
            .unwrap_err()
            .to_string(),
        r#"spec.t.metadata: Invalid value: {"labels":{"a":1}}: json: cannot unmarshal number into Go struct field ObjectMeta.labels of type string"#
    );
    compiled
        .prepare(&mut bad, Malformed::Drop)
        .expect("what is malformed is dropped");
    assert_eq!(bad["spec"]["t"]["metadata"], json!({}));
}

#[test]
fn what_did_not_change_is_forgiven() {
    let schema = json!({"type": "object", "properties": {
        "f": {"type": "string", "maxLength": 3}, "g": {"type": "string"},
        "o": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}, "required": ["b"]},
        "l": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "integer", "maximum": 1}}}}}});
    let compiled = compiled(schema);
    let errors = |new: Value, old: Value| {
        let checked = compiled.validate(&object(&new), Some(&object(&old)), Earlier::default());
        crate::field::aggregate(&checked.errors)
    };
    let old = json!({"f": "long enough", "o": {"a": "x"}, "l": [{"k": "a", "v": 5}]});
    let mut new = old.clone();
    new["g"] = json!("y");
    new["l"] = json!([{"k": "b"}, {"k": "a", "v": 5}]);
    assert_eq!(errors(new.clone(), old.clone()), "");
    new["f"] = json!("still long");
    new["o"]["a"] = json!("y");
    new["l"][1]["v"] = json!(6);
    assert_eq!(
        errors(new, old),
        "[spec.f: Too long: may not be more than 3 bytes, spec.l[1].v: Invalid value: 6: spec.l[1].v in body should be less than or equal to 1, spec.o.b: Required value]"
    );
    // An item without its key stands for nothing, also if it did not change.
    let keyless = json!({"l": [{"v": 5}]});
    assert_eq!(
        errors(keyless.clone(), keyless),
        "spec.l[0].v: Invalid value: 5: spec.l[0].v in body should be less than or equal to 1"
    );
}

/// A schema whose rules are run.
fn ruled(spec: Value) -> Compiled {
    Compiled::new(
        &json!({"type": "object", "properties": {"spec": spec}}),
        rule::compiler(),
    )
}

#[track_caller]
fn check_rules(compiled: &Compiled, new: Value, old: Option<Value>, errors: &str, warnings: &[&str]) {
    let old = old.map(|old| object(&old));
    let checked = compiled.validate(&object(&new), old.as_ref(), Earlier::default());
    assert_eq!(crate::field::aggregate(&checked.errors), errors);
    assert_eq!(checked.warnings, warnings);
}

#[test]
fn rules_fail_in_their_own_words() {
    let compiled = ruled(json!({"type": "object",
        "x-kubernetes-validations": [
            {"rule": "!has(self.a) || self.a < self.b", "message": "a before b", "fieldPath": ".a"},
            {"rule": "!has(self.c) || self.c == 1", "reason": "FieldValueForbidden"}],
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}, "c": {"type": "integer"},
            "s": {"type": "string", "x-kubernetes-validations": [
                {"rule": "self.size() > 2", "messageExpression": "'too short: ' + self"}]}}}));
    check_rules(&compiled, json!({"a": 1, "b": 2}), None, "", &[]);
    check_rules(
        &compiled,
        json!({"a": 2, "b": 1}),
        None,
        "spec.a: Invalid value: a before b",
        &[],
    );
    check_rules(
        &compiled,
        json!({"a": 2}),
        None,
        r#"spec: Invalid value: "object": no such key: b evaluating rule: a before b"#,
        &[],
    );
    check_rules(
        &compiled,
        json!({"c": 2}),
        None,
        "spec: Forbidden: failed rule: !has(self.c) || self.c == 1",
        &[],
    );
    check_rules(
        &compiled,
        json!({"s": "ab"}),
        None,
        r#"spec.s: Invalid value: "ab": too short: ab"#,
        &[],
    );
}

#[test]
fn failures_are_reported_where_rules_say() {
    let rules = |path: &str, message: &str| json!([{"rule": "false", "fieldPath": path, "messageExpression": message}]);
    for (place, path, message, expected) in [
        ("top", ".labels.app", "'why'", "spec.labels[app]: Invalid value: why"),
        ("top", ".labels['app']", "'why'", "spec.labels[app]: Invalid value: why"),
        ("labels", ".app", "'why'", "spec.labels.[app]: Invalid value: why"),
        ("labels", "['app']", "'why'", "spec.labels.[app]: Invalid value: why"),
        // A message that is no expression takes the path with it.
        ("labels", ".app", "1", "spec.labels: Invalid value: failed rule: false"),
        ("top", ".labels", "'x' +", "spec: Invalid value: failed rule: false"),
    ] {
        let mut schema = json!({"type": "object", "properties": {
            "labels": {"type": "object", "additionalProperties": {"type": "string"}}}});
        let at = match place {
            "top" => &mut schema,
            place => &mut schema["properties"][place],
        };
        at["x-kubernetes-validations"] = rules(path, message);
        check_rules(&ruled(schema), json!({"labels": {}}), None, expected, &[]);
    }
}

#[test]
fn messages_see_the_plain_old_value_if_a_rule_asks_for_it() {
    for (rule, message, optional, expected) in [
        ("false", "string(oldSelf)", false, "failed rule: false"),
        ("oldSelf > 5", "string(oldSelf)", false, "1"),
        (
            "oldSelf.hasValue() && false",
            "oldSelf.hasValue() ? 'a' : 'b'",
            true,
            "failed rule: oldSelf.hasValue() && false",
        ),
        (
            "oldSelf.hasValue() && false",
            "type(oldSelf) == int ? 'i' : 'o'",
            true,
            "i",
        ),
    ] {
        let compiled = ruled(
            json!({"type": "object", "properties": {"o": {"type": "integer", "x-kubernetes-validations": [
            {"rule": rule, "messageExpression": message, "optionalOldSelf": optional}]}}}),
        );
        let expected = format!("spec.o: Invalid value: 2: {expected}");
        check_rules(&compiled, json!({"o": 2}), Some(json!({"o": 1})), &expected, &[]);
    }
}

#[test]
fn rules_wait_until_the_schema_is_met() {
    let compiled = ruled(
        json!({"type": "object", "properties": {"a": {"type": "string", "maxLength": 3}},
        "x-kubernetes-validations": [{"rule": "self.a == 'x'"}]}),
    );
    check_rules(
        &compiled,
        json!({"a": "toolong"}),
        None,
        "[spec.a: Too long: may not be more than 3 bytes, <nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation]",
        &[],
    );
    check_rules(
        &compiled,
        json!({"a": "y"}),
        None,
        "spec: Invalid value: failed rule: self.a == 'x'",
        &[],
    );
}

#[test]
fn transition_rules_run_where_there_was_a_value() {
    let compiled = ruled(json!({"type": "object", "properties": {
        "f": {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "f is immutable"}]},
        "o": {"type": "integer", "x-kubernetes-validations": [
            {"rule": "oldSelf.hasValue() ? self > oldSelf.value() : self == 0", "optionalOldSelf": true, "message": "no"}]},
        "l": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "string"},
                "n": {"type": "integer", "x-kubernetes-validations": [{"rule": "self >= oldSelf"}]}}}}}}));
    check_rules(&compiled, json!({"f": "x"}), None, "", &[]);
    check_rules(
        &compiled,
        json!({"f": "y"}),
        Some(json!({"f": "x"})),
        r#"spec.f: Invalid value: "y": f is immutable"#,
        &[],
    );
    check_rules(&compiled, json!({"o": 1}), None, "spec.o: Invalid value: 1: no", &[]);
    check_rules(&compiled, json!({"o": 1}), Some(json!({"o": 0})), "", &[]);
    check_rules(
        &compiled,
        json!({"l": [{"k": "b", "n": 0}, {"k": "a", "n": 7}]}),
        Some(json!({"l": [{"k": "a", "n": 5}, {"k": "b", "n": 5}]})),
        "spec.l[0].n: Invalid value: 0: failed rule: self >= oldSelf",
        &[],
    );
}

#[test]
fn a_rule_that_fails_on_an_unchanged_value_only_warns() {
    let compiled = ruled(json!({"type": "object", "properties": {
        "f": {"type": "string", "x-kubernetes-validations": [{"rule": "self == 'y'"}]}, "g": {"type": "string"}}}));
    check_rules(
        &compiled,
        json!({"f": "x", "g": "y"}),
        Some(json!({"f": "x"})),
        "",
        &[r#"spec.f: Invalid value: "x": failed rule: self == 'y'"#],
    );
    check_rules(
        &compiled,
        json!({"f": "z"}),
        Some(json!({"f": "x"})),
        r#"spec.f: Invalid value: "z": failed rule: self == 'y'"#,
        &[],
    );
}

#[test]
fn schemas_that_are_not_structural_are_a_condition() {
    let definition =
        |schema: Value| json!({"spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": schema}}]}});
    assert_eq!(structural::condition(&definition(json!({"type": "object"}))), None);
    assert_eq!(
        structural::condition(&definition(json!({"type": "object", "properties": {"spec": {}}}))),
        Some((
            "True",
            "Violations",
            "spec.versions[0].schema.openAPIV3Schema.properties[spec].type: Required value: must not be empty for specified object fields".to_owned()
        ))
    );
    assert_eq!(
        structural::condition(&definition(
            json!({"type": "object", "properties": {"a": {"$ref": "x"}}})
        )),
        Some((
            "Unknown",
            "StructuralError",
            "failed to check validation schema for version v1: OpenAPIV3Schema '$ref' is not supported".to_owned()
        ))
    );
}

#[test]
fn apply_sees_list_types_and_islands() {
    use crate::managed::schema::{Atom, Map, Relation, Scalar};
    let compiled = compiled(json!({"type": "object", "properties": {
        "keyed": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "properties": {"k": {"type": "string", "default": "d"}}}},
        "island": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        "when": {"type": "string", "format": "date-time"}}}));
    fn atom<'s>(map: &Map<'s>, name: &str) -> Atom<'s> {
        map.field(name).expect("declared").resolve()
    }
    fn map<'s>(of: &Map<'s>, name: &str) -> Map<'s> {
        atom(of, name).map.expect("an object")
    }
    let root = compiled.merge_type().resolve().map.expect("an object");
    assert!(map(&root, "metadata").field("ownerReferences").is_some());
    let spec = map(&root, "spec");
    let keyed = atom(&spec, "keyed").list.expect("a list");
    match keyed.relation {
        Relation::Keys(keys) => assert_eq!(keys.iter().collect::<Vec<_>>(), ["k"]),
        other => panic!("{other:?}"),
    }
    let item = keyed.element.resolve().map.expect("an object");
    assert_eq!(item.default("k"), Some(json!("d")));
    assert!(item.member("other").is_none(), "what is not declared is refused");
    assert!(map(&spec, "island").member("other").is_some());
    assert_eq!(atom(&spec, "when").scalar, Some(Scalar::Untyped));
}

#[test]
fn a_schema_costs_little_memory() {
    // 160 fields: the size of a place bounds what a definition costs, and 100 definitions are to stay below 200 KiB each.
    assert!(std::mem::size_of::<Node>() <= 256, "{}", std::mem::size_of::<Node>());
}

mod anything {
    use proptest::prelude::*;

    use super::*;
    use crate::schema::jsonpath::JsonPath;

    proptest! {
        #[test]
        fn no_pattern_panics(source in r"[a-z0\\\[\](){}|?*+^$.<>:=PQExpéΩ,-]{0,12}", text in ".{0,8}") {
            let _ = crate::schema::matcher::Pattern::new(&source).matches(&text);
        }

        #[test]
        fn no_path_panics(source in r#"[a-z0@$.\[\](){}?*'"\\=<>!:,é -]{0,16}"#) {
            if let Ok(path) = JsonPath::parse(&source) {
                let _ = path.find(&json!({"a": [1, {"b": "x"}], "c": null}));
            }
            let _ = crate::schema::selectable::field_path(&source, &json!({"properties": {"a": {}}}));
        }

        #[test]
        fn no_format_panics(text in ".{0,24}", digits in "[0-9a-fT:/@. +é-]{0,24}") {
            for format in ["uri", "email", "hostname", "ipv4", "cidr", "mac", "uuid", "isbn", "creditcard", "date", "datetime", "duration"] {
                for text in [&text, &digits] {
                    let schema = json!({"type": "object", "properties": {"f": {"type": "string", "format": format}}});
                    let compiled = compiled(schema);
                    let _ = compiled.validate(&object(&json!({"f": text})), None, Earlier::default());
                }
            }
        }
    }
}

#[test]
fn a_status_that_was_never_there_may_be_applied_as_null() {
    let status = json!({"type": "object", "properties": {"status": {"type": "object"}}});
    let compiled = Compiled::new(&status, &NoRules);
    let errors = |old: Value| {
        let checked = compiled.validate_status(&json!({"status": null}), &old, Earlier::default());
        crate::field::aggregate(&checked.errors)
    };
    assert_eq!(errors(json!({})), "");
    assert_eq!(
        errors(json!({"status": {}})),
        r#"status: Invalid value: "null":  in body must be of type object: "null""#
    );
}

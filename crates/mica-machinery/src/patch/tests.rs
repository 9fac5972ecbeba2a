//! Patches and what comes of them, as recorded from a real kube-apiserver and its library.

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;

const DOCUMENT: &str = r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","uid":"u","finalizers":["x","y"]},"data":{"k":"v","l":"\u003c"}}"#;

fn show(result: Result<Patched, PatchError>) -> String {
    match result {
        Ok(patched) => {
            let document = String::from_utf8(patched.document).unwrap();
            if patched.strict.is_empty() {
                document
            } else {
                format!("{document} {:?}", patched.strict)
            }
        }
        Err(PatchError::BadRequest(text)) => format!("400 {text}"),
        Err(error @ PatchError::TooManyOperations(_)) => format!("413 {error}"),
        Err(PatchError::Unprocessable(text)) => format!("422 ({text})"),
    }
}

fn check_json(patch: &str, expected: Expect) {
    expected.assert_eq(&show(json_patch(
        DOCUMENT.as_bytes(),
        patch.as_bytes(),
        Strictness::Report,
    )));
}

fn check_merge(patch: &str, expected: Expect) {
    expected.assert_eq(&show(merge_patch(
        DOCUMENT.as_bytes(),
        patch.as_bytes(),
        Strictness::Report,
    )));
}

#[test]
fn every_operation_works_and_only_what_is_touched_is_sorted() {
    check_json(
        r#"[{"op":"test","path":"/data/k","value":"v"},{"op":"add","path":"/data/n","value": {"b" : 1,"a":"<"}},
            {"op":"replace","path":"/data/k","value":"2"},{"op":"copy","from":"/data/k","path":"/data/c"},
            {"op":"move","from":"/data/l","path":"/data/m"}]"#,
        expect![[
            r#"{"apiVersion":"v1","data":{"c":"2","k":"2","m":"\u003c","n":{"b":1,"a":"\u003c"}},"kind":"ConfigMap","metadata":{"name":"a","uid":"u","finalizers":["x","y"]}}"#
        ]],
    );
    check_json(
        r#"[{"op":"add","path":"/metadata/finalizers/-","value":"z"},{"op":"add","path":"/metadata/finalizers/0","value":"w"},{"op":"remove","path":"/metadata/finalizers/1"},{"op":"replace","path":"/metadata/finalizers/-1","value":"q"}]"#,
        expect![[
            r#"{"apiVersion":"v1","data":{"k":"v","l":"\u003c"},"kind":"ConfigMap","metadata":{"finalizers":["w","y","q"],"name":"a","uid":"u"}}"#
        ]],
    );
    check_json(
        r#"[{"op":"add","path":"/data/a~1b~0c","value":"1"}]"#,
        expect![[
            r#"{"apiVersion":"v1","data":{"a/b~c":"1","k":"v","l":"\u003c"},"kind":"ConfigMap","metadata":{"name":"a","uid":"u","finalizers":["x","y"]}}"#
        ]],
    );
}

#[test]
fn an_empty_or_null_patch_changes_nothing_but_the_order() {
    for patch in ["[]", "null", " [ ] "] {
        check_json(
            patch,
            expect![[
                r#"{"apiVersion":"v1","data":{"k":"v","l":"\u003c"},"kind":"ConfigMap","metadata":{"name":"a","uid":"u","finalizers":["x","y"]}}"#
            ]],
        );
    }
}

#[test]
fn upstreams_leniency_is_kept() {
    check_json(
        r#"[{"op":"replace","path":"/data/new","value":1},{"op":"copy","from":"/data/zz","path":"/data/y"},{"op":"add","path":"/data/k"},{"op":"add","path":"x/data/z","value":2},{"op":"test","path":"/data/none"}]"#,
        expect![[
            r#"{"apiVersion":"v1","data":{"k":null,"l":"\u003c","new":1,"y":null,"z":2},"kind":"ConfigMap","metadata":{"name":"a","uid":"u","finalizers":["x","y"]}}"#
        ]],
    );
    check_json(
        r#"[{"op":"replace","path":"","value":{"b":1,"a":[]}}]"#,
        expect![[r#"{"a":[],"b":1}"#]],
    );
}

#[test]
fn operations_that_do_not_apply_are_unprocessable() {
    for patch in [
        r#"[{"op":"test","path":"/data/k","value":"no"}]"#,
        r#"[{"op":"test","path":"/data/zz","value":"no"}]"#,
        r#"[{"op":"test","path":"/data/l","value":"<"}]"#,
        r#"[{"op":"remove","path":"/data/zz"}]"#,
        r#"[{"op":"add","path":"/metadata/labels/x","value":"1"}]"#,
        r#"[{"op":"frob","path":"/data/k"}]"#,
        r#"[{"path":"/data/k","value":"1"}]"#,
        r#"[{"op":"add","path":"/metadata/finalizers/7","value":"1"}]"#,
        r#"[{"op":"add","path":"/metadata/name/x","value":"1"}]"#,
        r#"[{"op":"move","from":"/data/zz","path":"/data/y"}]"#,
        r#"[{"op":"add","path":"","value":{}}]"#,
        r#"[{"op":"replace","path":"","value":5}]"#,
        r#"[{"op":"add","value":{}}]"#,
        "[null]",
    ] {
        let result = json_patch(DOCUMENT.as_bytes(), patch.as_bytes(), Strictness::Report);
        assert!(
            matches!(result, Err(PatchError::Unprocessable(_))),
            "{patch}: {result:?}"
        );
    }
}

#[test]
fn patches_that_are_none_are_bad_requests() {
    check_json(
        "{}",
        expect!["400 error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp"],
    );
    check_json(
        r#"[{"op":"#,
        expect!["400 error decoding patch: unexpected end of JSON input"],
    );
    check_json(
        "[1]",
        expect!["400 error decoding patch: json: cannot unmarshal number into Go value of type handlers.jsonPatchOp"],
    );
    check_json(
        r#"[{"op":"add","path":1}]"#,
        expect![
            "400 error decoding patch: json: cannot unmarshal number into Go struct field jsonPatchOp.path of type string"
        ],
    );
    let ignored = |patch: &str| show(json_patch(DOCUMENT.as_bytes(), patch.as_bytes(), Strictness::Ignore));
    assert_eq!(
        ignored("{}"),
        "400 json: cannot unmarshal object into Go value of type jsonpatch.Patch"
    );
    assert_eq!(
        ignored("[1]"),
        "400 json: cannot unmarshal number into Go value of type jsonpatch.Operation"
    );
    let many = format!("[{}{{}}]", "{},".repeat(10_000));
    assert_eq!(
        ignored(&many),
        "413 The allowed maximum operations in a JSON patch is 10000, got 10001"
    );
}

#[test]
fn strict_reports_name_the_operation() {
    check_json(
        r#"[{"op":"add","path":"/frob","value":1},{"op":"add","path":"/metadata/frob","value":{"a":1,"a":2},"extra":1,"path":"/metadata/frob"}]"#,
        expect![[
            r#"{"apiVersion":"v1","data":{"k":"v","l":"\u003c"},"frob":1,"kind":"ConfigMap","metadata":{"finalizers":["x","y"],"frob":{"a":1,"a":2},"name":"a","uid":"u"}} ["json patch duplicate field \"[1].value.a\"", "json patch unknown field \"[1].extra\"", "json patch duplicate field \"[1].path\""]"#
        ]],
    );
}

#[test]
fn hostile_patches_are_bounded() {
    let copies = format!(
        r#"[{{"op":"add","path":"/data/big","value":"{}"}},{}]"#,
        "x".repeat(100_000),
        vec![r#"{"op":"copy","from":"/data/big","path":"/data/c"}"#; 40].join(",")
    );
    let result = show(json_patch(DOCUMENT.as_bytes(), copies.as_bytes(), Strictness::Report));
    assert_eq!(result, "422 (copies add more than 3145728 bytes)");
    let mut nest = vec![r#"{"op":"add","path":"/x","value":{}}"#.to_owned()];
    for _ in 0..2000 {
        nest.push(r#"{"op":"add","path":"/y","value":{"c":{}}},{"op":"move","from":"/x","path":"/y/c/k"},{"op":"move","from":"/y","path":"/x"}"#.to_owned());
    }
    let result = show(json_patch(
        DOCUMENT.as_bytes(),
        format!("[{}]", nest.join(",")).as_bytes(),
        Strictness::Ignore,
    ));
    assert_eq!(result, "422 (/y/c/k: nested too deeply)");
}

#[test]
fn a_merge_patch_sets_removes_and_adds() {
    check_merge(
        r#"{"data":{"k":null,"n":"1","zz":null},"metadata":{"labels":{"a":"b","c":null}}}"#,
        expect![[
            r#"{"apiVersion":"v1","data":{"l":"\u003c","n":"1"},"kind":"ConfigMap","metadata":{"finalizers":["x","y"],"labels":{"a":"b"},"name":"a","uid":"u"}}"#
        ]],
    );
    check_merge(
        r#"{"metadata":{"finalizers":[{"b":null,"a":1}, null]},"data":5}"#,
        expect![[
            r#"{"apiVersion":"v1","data":5,"kind":"ConfigMap","metadata":{"finalizers":[{"a":1},null],"name":"a","uid":"u"}}"#
        ]],
    );
    check_merge(
        r#"{"metadata":null}"#,
        expect![[r#"{"apiVersion":"v1","data":{"k":"v","l":"\u003c"},"kind":"ConfigMap"}"#]],
    );
}

#[test]
fn merge_patches_that_are_none_are_bad_requests() {
    check_merge(
        "[]",
        expect!["400 error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}"],
    );
    check_merge("null", expect!["400 Invalid JSON Patch"]);
    check_merge(
        r#"{"a""#,
        expect!["400 error decoding patch: unexpected end of JSON input"],
    );
    check_merge(
        r#"{"x":{"a":1,"a":2}}"#,
        expect![[
            r#"{"apiVersion":"v1","data":{"k":"v","l":"\u003c"},"kind":"ConfigMap","metadata":{"name":"a","uid":"u","finalizers":["x","y"]},"x":{"a":2}} ["duplicate field \"x.a\""]"#
        ]],
    );
    let ignored = |patch: &str| show(merge_patch(DOCUMENT.as_bytes(), patch.as_bytes(), Strictness::Ignore));
    assert_eq!(ignored(r#"{"a""#), "400 Invalid JSON Patch");
    assert_eq!(ignored("5"), "400 Invalid JSON Patch");
    assert_eq!(ignored(r#"[{"a":null}]"#), "[{}]");
}

#[test]
fn an_undecodable_result_is_shown_whole() {
    let error = undecodable(
        br#"{"data":{"k":5}}"#,
        "json: cannot unmarshal number into Go struct field ConfigMap.data of type string",
    );
    expect![[r#"patch: Invalid value: "{\"data\":{\"k\":5}}": json: cannot unmarshal number into Go struct field ConfigMap.data of type string"#]]
        .assert_eq(&error.to_string());
    assert_eq!(
        strict_reason(&["a".to_owned(), "b".to_owned()]),
        "strict decoding error: a, b"
    );
}

proptest! {
    #[test]
    fn no_patch_panics(patch in r#"(\[|\{|\]|\}|"op"|"path"|"value"|"from"|"add"|"move"|"/a"|"/a/-"|"a"|:|,|null|1| ){0,24}"#) {
        let document = br#"{"a":[1,{"b":null}],"c":"d"}"#;
        for strictness in [Strictness::Report, Strictness::Ignore] {
            let _ = json_patch(document, patch.as_bytes(), strictness);
            if let Ok(patched) = merge_patch(document, patch.as_bytes(), strictness) {
                prop_assert!(serde_json::from_slice::<serde_json::Value>(&patched.document).is_ok());
            }
        }
    }

    #[test]
    fn a_merge_patch_agrees_with_the_json_patch_crate(patch in json_value(), document in json_object()) {
        prop_assume!(patch.is_object());
        let patched = merge_patch(document.to_string().as_bytes(), patch.to_string().as_bytes(), Strictness::Report).unwrap();
        let mut expected = document;
        json_patch::merge(&mut expected, &patch);
        let patched: serde_json::Value = serde_json::from_slice(&patched.document).unwrap();
        // The library leaves nulls in values that replace something that is not an object.
        prop_assert_eq!(without_nulls(patched), without_nulls(expected));
    }
}

fn without_nulls(value: serde_json::Value) -> serde_json::Value {
    match value {
        serde_json::Value::Object(map) => map
            .into_iter()
            .filter(|(_, v)| !v.is_null())
            .map(|(k, v)| (k, without_nulls(v)))
            .collect(),
        serde_json::Value::Array(items) => items.into_iter().map(without_nulls).collect(),
        other => other,
    }
}

fn json_value() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<i8>().prop_map(Into::into),
        "[a-c<]{0,2}".prop_map(Into::into)
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(Into::into),
            proptest::collection::btree_map("[a-c]", inner, 0..4).prop_map(|map| map.into_iter().collect()),
        ]
    })
}

fn json_object() -> impl Strategy<Value = serde_json::Value> {
    proptest::collection::btree_map("[a-c]", json_value(), 0..4).prop_map(|map| map.into_iter().collect())
}

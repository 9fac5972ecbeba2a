//! Texts of selectors and their errors, matching, and the raw reader.

use expect_test::{Expect, expect};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::field::Path;

fn check_labels(texts: &[&str], expected: Expect) {
    let lines: Vec<String> = texts
        .iter()
        .map(|text| match LabelSelector::parse(text) {
            Ok(selector) => format!("{text} = {selector}"),
            Err(error) => format!("{text}: {error}"),
        })
        .collect();
    expected.assert_eq(&lines.join("\n"));
}

#[test]
fn label_selectors_print_in_canonical_form() {
    check_labels(
        &[
            "",
            "b=1,a==2",
            "x in (foo,,baz),y,z notin ()",
            "!a",
            "a!=b",
            "a>5,b<6",
            "a = , b",
            " a ",
            "in in (in,notin)",
            "a in (c,b)",
            "a in (,)",
            "x=a,x=b",
        ],
        expect![[r#"
             = 
            b=1,a==2 = a==2,b=1
            x in (foo,,baz),y,z notin () = x in (,baz,foo),y,z notin ()
            !a = !a
            a!=b = a!=b
            a>5,b<6 = a>5,b<6
            a = , b = a=,b
             a  = a
            in in (in,notin) = in in (in,notin)
            a in (c,b) = a in (b,c)
            a in (,) = a in ()
            x=a,x=b = x=a,x=b"#]],
    );
}

#[test]
fn bad_label_selectors_have_upstreams_sentences() {
    check_labels(
        &[
            "a in (b",
            "a b=c",
            "a=-x-",
            "=",
            "a=b,,c=d",
            "!",
            "a===b",
            "a in b",
            "a in (=)",
            "a>x",
            "a b",
            "-=1",
            "a=b c",
            "!a=b",
            "a,",
            "(",
            "a in (b c)",
            "a in (b,=",
            "a!",
            "é=1",
        ],
        expect![[r#"
            a in (b: unable to parse requirement: found '', expected: ',' or ')'
            a b=c: unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt
            a=-x-: unable to parse requirement: values[0][a]: Invalid value: "-x-": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')
            =: found '=', expected: !, identifier, or 'end of string'
            a=b,,c=d: found ',', expected: identifier after ','
            !: unable to parse requirement: found '', expected: identifier
            a===b: unable to parse requirement: found '=', expected: identifier
            a in b: unable to parse requirement: found 'b' expected: '('
            a in (=): unable to parse requirement: found '=', expected: ',', ')' or identifier
            a>x: unable to parse requirement: values[0]: Invalid value: "x": for 'Gt', 'Lt' operators, the value must be an integer
            a b: unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt
            -=1: unable to parse requirement: <nil>: Invalid value: "-": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
            a=b c: found 'c', expected: ',' or 'end of string'
            !a=b: found '=', expected: ',' or 'end of string'
            a,: found '', expected: identifier after ','
            (: found '(', expected: !, identifier, or 'end of string'
            a in (b c): unable to parse requirement: found 'c', expected: ',' or ')'
            a in (b,=: unable to parse requirement: found '=', expected: ',', or identifier
            a!: unable to parse requirement: found '!', expected: in, notin, =, ==, !=, gt, lt
            é=1: unable to parse requirement: <nil>: Invalid value: "é": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"#]],
    );
}

#[test]
fn label_selectors_match_decoded_and_raw_labels_alike() {
    let object = json!({"metadata": {"name": "x", "labels": {"a": "1", "n": "5", "e": ""}}});
    let bytes = object.to_string().into_bytes();
    let raw = RawMeta::parse(&bytes).unwrap();
    for (text, expected) in [
        ("", true),
        ("a", true),
        ("a=1", true),
        ("a!=1", false),
        ("b!=1", true),
        ("b notin (x)", true),
        ("a in (1,2)", true),
        ("!a", false),
        ("!b", true),
        ("e=", true),
        ("b=", false),
        ("n>4,n<6", true),
        ("n>5", false),
        ("e>1", false),
        ("a=1,a=2", false),
    ] {
        let selector = LabelSelector::parse(text).unwrap();
        assert_eq!(selector.matches_object(&object), expected, "{text}");
        assert_eq!(selector.matches(&raw), expected, "{text}");
    }
}

#[test]
fn an_absent_selector_selects_nothing_and_an_empty_one_everything() {
    let labels = json!({"a": "1"});
    assert!(!LabelSelector::from_value(None).unwrap().matches(&labels));
    assert!(LabelSelector::from_value(Some(&json!({}))).unwrap().matches(&labels));
    let selector = json!({"matchLabels": {"a": "1"}, "matchExpressions": [{"key": "b", "operator": "DoesNotExist"}]});
    let selector = LabelSelector::from_value(Some(&selector)).unwrap();
    assert!(selector.matches(&labels));
    assert_eq!(selector.to_string(), "a=1,!b");
    let bad = json!({"matchExpressions": [{"key": "b", "operator": "Frob"}]});
    let error = LabelSelector::from_value(Some(&bad)).unwrap_err();
    assert_eq!(error.to_string(), "\"Frob\" is not a valid label selector operator");
}

#[test]
fn selectors_in_objects_are_validated() {
    let selector = json!({"matchLabels": {"a": "-"}, "matchExpressions": [
        {"key": "a", "operator": "In"},
        {"key": "", "operator": "Exists", "values": ["x y"]},
        {"key": "a", "operator": "Frob"},
    ]});
    let errors = label_selector_errors(&selector, Tolerance::None, &Path::new("s"));
    let texts: Vec<String> = errors
        .iter()
        .map(|error| error.to_string()[..70.min(error.to_string().len())].to_owned())
        .collect();
    expect![[r#"
        s.matchLabels: Invalid value: "-": a valid label must be an empty stri
        s.matchExpressions[0].values: Required value: must be specified when `
        s.matchExpressions[1].values: Forbidden: may not be specified when `op
        s.matchExpressions[1].key: Invalid value: "": name part must be non-em
        s.matchExpressions[1].key: Invalid value: "": name part must consist o
        s.matchExpressions[1].values[0]: Invalid value: "x y": a valid label m
        s.matchExpressions[2].operator: Invalid value: "Frob": not a valid sel"#]]
    .assert_eq(&texts.join("\n"));
}

fn check_fields(texts: &[&str], expected: Expect) {
    let lines: Vec<String> = texts
        .iter()
        .map(|text| match FieldSelector::parse(text) {
            Ok(selector) => format!("{text} = {selector}"),
            Err(error) => format!("{text}: {error}"),
        })
        .collect();
    expected.assert_eq(&lines.join("\n"));
}

#[test]
fn field_selectors_escape_commas_and_equal_signs() {
    check_fields(
        &[
            "",
            "metadata.name=a",
            "b!=1,a==2",
            r"a=x\,y\=z\\",
            "metadata.name",
            r"a=\x",
            r"a=\",
            "a=b=c",
            "a=,,",
            "=x",
            "a===",
        ],
        expect![[r#"
             = 
            metadata.name=a = metadata.name=a
            b!=1,a==2 = a=2,b!=1
            a=x\,y\=z\\ = a=x\,y\=z\\
            metadata.name: invalid selector: 'metadata.name'; can't understand 'metadata.name'
            a=\x: invalid field selector: invalid escape sequence: \x
            a=\: invalid field selector: invalid escape sequence: \
            a=b=c: invalid field selector: unescaped character in value: 61
            a=,, = a=
            =x = =x
            a===: invalid field selector: unescaped character in value: 61"#]],
    );
    let selector = FieldSelector::parse("metadata.name=a,status.phase!=Running").unwrap();
    assert_eq!(selector.exact("metadata.name"), Some("a"));
    assert_eq!(selector.exact("status.phase"), None);
    assert!(selector.matches(|field| if field == "metadata.name" { "a" } else { "" }));
    assert!(!selector.matches(|field| if field == "metadata.name" { "a" } else { "Running" }));
}

#[test]
fn raw_metadata_is_read_without_the_rest() {
    let bytes = br#"{"kind":"X","metadata":{"name":"a\u0062","namespace":"n","uid":"u","managedFields":[{"x":{}}],"labels":{"k":"v"},
        "ownerReferences":[{"apiVersion":"v1","kind":"K","name":"o","uid":"ou","controller":true}],"finalizers":["f/x"],
        "deletionTimestamp":null,"generation":3},"spec":this is never read"#;
    let meta = RawMeta::parse(bytes).unwrap();
    assert_eq!((&*meta.name, &*meta.namespace, &*meta.uid), ("ab", "n", "u"));
    assert_eq!(meta.label("k"), Some("v"));
    assert_eq!(meta.owners[0].uid, "ou");
    assert_eq!(meta.finalizers, ["f/x"]);
    assert!(!meta.is_being_deleted());
    assert_eq!(RawMeta::parse(b"{}").unwrap(), RawMeta::default());
    assert!(RawMeta::parse(b"nonsense").is_err());
    assert!(RawMeta::parse(br#"{"metadata":{"name":"#).is_err());
}

#[test]
fn a_string_is_found_by_its_path_in_bytes() {
    let bytes = br#"{"a":{"b":[1,{"c":2}],"c":"x"},"t":"y","n":1}"#;
    assert_eq!(text_at(bytes, &["a", "c"]).as_deref(), Some("x"));
    assert_eq!(text_at(bytes, &["t"]).as_deref(), Some("y"));
    for path in [&["n"][..], &["a"], &["a", "b", "c"], &["z"]] {
        assert_eq!(text_at(bytes, path), None);
    }
}

proptest! {
    #[test]
    fn reading_a_selector_never_panics_and_printing_reads_back(text in "[a-c!=<>,()\\\\ \\PCin]{0,24}") {
        if let Ok(selector) = LabelSelector::parse(&text) {
            prop_assert_eq!(LabelSelector::parse(&selector.to_string()).unwrap(), selector);
        }
        if let Ok(selector) = FieldSelector::parse(&text) {
            prop_assert_eq!(FieldSelector::parse(&selector.to_string()).unwrap().to_string(), selector.to_string());
        }
    }

    #[test]
    fn any_bytes_are_safe_to_read(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        let _ = RawMeta::parse(&bytes);
        let _ = text_at(&bytes, &["metadata", "name"]);
    }
}

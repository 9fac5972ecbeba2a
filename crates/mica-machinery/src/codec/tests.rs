//! The codec against what upstream's own code made of the same inputs (see `facts/fixtures.go`).

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::*;
use crate::facts::{Kind, facts};

/// Shortens a form as the fixtures do.
pub(crate) fn hash(form: &[u8]) -> String {
    if form.is_empty() {
        return String::new();
    }
    Sha256::digest(form)
        .iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Calls `check` with each kind of the fixtures and its hashes.
pub(crate) fn for_each_kind(check: impl Fn(&Kind, &[&str])) {
    let fixtures = include_str!("../../testdata/kinds.tsv");
    let mut checked = 0;
    for line in fixtures.lines().filter(|line| !line.starts_with('#')) {
        let columns: Vec<&str> = line.split('\t').collect();
        let (group, version, kind) = (columns[0], columns[1], columns[2]);
        let ty = facts()
            .kind(group, version, kind)
            .expect("the fixtures name known kinds");
        let known = facts()
            .kinds()
            .iter()
            .find(|k| (k.group, k.version, k.kind) == (group, version, kind));
        check(known.expect("a known kind"), &columns[3..]);
        assert_eq!(known.expect("a known kind").ty, ty);
        checked += 1;
    }
    assert!(checked > 300, "{checked} kinds");
}

pub(crate) fn type_named(name: &str) -> TypeId {
    let mut parts = name.split('/');
    let mut next = || parts.next().expect("group/version/kind");
    facts()
        .kind(next(), next(), next())
        .unwrap_or_else(|| panic!("no kind {name}"))
}

fn encoded(ty: TypeId, value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    encode(ty, value, &mut out);
    out
}

#[test]
fn every_kind_encodes_to_the_bytes_that_go_prints() {
    for_each_kind(|kind, hashes| {
        let text = encoded(kind.ty, &fill::filled(kind.ty));
        assert_eq!(hash(&text), hashes[0], "{kind:?}: {}", String::from_utf8_lossy(&text));
        let zero = encoded(kind.ty, &Value::Object(serde_json::Map::new()));
        assert_eq!(hash(&zero), hashes[3], "{kind:?}: {}", String::from_utf8_lossy(&zero));
    });
}

#[test]
fn every_kind_decodes_to_what_parsing_its_encoding_gives() {
    for_each_kind(|kind, _| {
        let filled = fill::filled(kind.ty);
        let text = encoded(kind.ty, &filled);
        let decoded = decode(kind.ty, &text).unwrap_or_else(|e| panic!("{kind:?}: {e}"));
        assert_eq!(decoded.strict, Vec::<String>::new(), "{kind:?}");
        assert_eq!(
            decoded.value,
            serde_json::from_slice::<Value>(&text).expect("JSON"),
            "{kind:?}"
        );
        assert_eq!(decoded.value, filled, "{kind:?}");
    });
}

const REPLACEMENTS: [&str; 14] = [
    "null",
    "true",
    "5",
    "1.5",
    "\"x\"",
    "[]",
    "{}",
    "[1]",
    "{\"a\":1}",
    "\"\"",
    "-1",
    "9999999999999999999",
    "[null]",
    "{\"a\":null}",
];

#[test]
fn every_kind_with_a_value_replaced_decodes_as_in_go() {
    for_each_kind(|kind, hashes| {
        if kind.kind.ends_with("List") {
            return;
        }
        let outcomes = mutation_outcomes(kind.ty);
        assert_eq!(
            hash(outcomes.as_bytes()),
            hashes[5],
            "{kind:?}; compare with `go run . explain`:\n{outcomes}"
        );
    });
}

fn mutation_outcomes(ty: TypeId) -> String {
    let text = encoded(ty, &fill::filled(ty));
    let mut ranges = Vec::new();
    value_ranges(&text, 0, &mut ranges);
    let stride = ranges.len() / 40 + 1;
    let mut out = String::new();
    for (at, (start, end)) in ranges.iter().step_by(stride).enumerate() {
        let replacement = REPLACEMENTS[at % REPLACEMENTS.len()].as_bytes();
        let mutated = [&text[..*start], replacement, &text[*end..]].concat();
        match decode(ty, &mutated) {
            Err(error) => out.push_str(&format!("{start} error {error}\n")),
            Ok(decoded) => {
                let strict = decoded.strict.join(" ");
                out.push_str(&format!("{start} [{strict}] {}\n", hash(&encoded(ty, &decoded.value))));
            }
        }
    }
    out
}

/// Where each JSON value of a compact document begins and ends, outer ones first.
fn value_ranges(text: &[u8], at: usize, found: &mut Vec<(usize, usize)>) -> usize {
    let string = |mut at: usize| {
        at += 1;
        while text[at] != b'"' {
            at += if text[at] == b'\\' { 2 } else { 1 };
        }
        at + 1
    };
    let index = found.len();
    found.push((at, 0));
    let mut end = at;
    match text[at] {
        b'"' => end = string(at),
        open @ (b'{' | b'[') => {
            end += 1;
            while !matches!(text[end], b'}' | b']') {
                if text[end] == b',' {
                    end += 1;
                }
                if open == b'{' {
                    end = string(end) + 1;
                }
                end = value_ranges(text, end, found);
            }
            end += 1;
        }
        _ => end += text[at..].iter().take_while(|b| !b",]}".contains(b)).count(),
    }
    found[index].1 = end;
    end
}

#[derive(serde::Deserialize)]
struct Case {
    #[serde(rename = "type")]
    ty: String,
    #[serde(rename = "in")]
    input: String,
    in64: Option<String>,
    #[serde(default)]
    meta: String,
    #[serde(default)]
    error: String,
    #[serde(default)]
    strict: Vec<String>,
    #[serde(default)]
    out: String,
}

#[test]
fn documents_decode_as_in_go() {
    let mut wrong = Vec::new();
    for line in include_str!("../../testdata/decode.jsonl").lines() {
        let case: Case = serde_json::from_str(line).expect("a case");
        let input = match &case.in64 {
            Some(text) => base64::decode(text, base64::Alphabet::Standard).expect("base64"),
            None => case.input.clone().into_bytes(),
        };
        let shown = String::from_utf8_lossy(&input);
        let meta = interpreted(&input);
        if meta != case.meta {
            wrong.push(format!("{shown}\n  meta: {meta}\n  want: {}", case.meta));
        }
        let (ours, theirs) = (outcome(&case.ty, &input), (case.error, case.strict, case.out));
        if ours != theirs {
            wrong.push(format!("{} {shown}\n  have: {ours:?}\n  want: {theirs:?}", case.ty));
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

fn interpreted(input: &[u8]) -> String {
    match interpret(input) {
        Err(error) => format!("error: {error}"),
        Ok(Interpreted { api_version, kind }) if api_version.matches('/').count() > 1 => {
            // Splitting the apiVersion is the caller's.
            format!("error: unexpected GroupVersion string: {api_version}{}", &kind[..0])
        }
        Ok(Interpreted { api_version, kind }) => {
            let api_version = api_version.strip_prefix('/').unwrap_or(&api_version);
            format!("{api_version} {kind}")
        }
    }
}

fn outcome(ty: &str, input: &[u8]) -> (String, Vec<String>, String) {
    let mut out = Vec::new();
    let decoded = if ty.is_empty() {
        decode_object(input).inspect(|d| encode_untyped(&d.value, &mut out))
    } else {
        let ty = type_named(ty);
        decode(ty, input).inspect(|d| encode(ty, &d.value, &mut out))
    };
    match decoded {
        Err(error) => (error.to_string(), Vec::new(), String::new()),
        Ok(decoded) => (
            String::new(),
            decoded.strict,
            String::from_utf8(out).expect("JSON is UTF-8"),
        ),
    }
}

fn nested(open: &str, close: &str, depth: usize) -> String {
    format!("{}{}", open.repeat(depth), close.repeat(depth))
}

#[test]
fn nesting_is_refused_where_go_refuses_it_and_where_values_would_be_too_deep() {
    let config_map = type_named("/v1/ConfigMap");
    let error = |input: &str| {
        decode(config_map, input.as_bytes())
            .map(|d| d.strict)
            .map_err(|e| e.to_string())
    };
    let array = |depth| nested("[", "]", depth);
    assert_eq!(
        error(&array(10_001)),
        Err("invalid character '[' exceeded max depth".into())
    );
    assert_eq!(
        error(&array(10_000)),
        Err("json: cannot unmarshal array into Go value of type v1.ConfigMap".into())
    );
    let unknown = format!("{{\"frob\":{}}}", array(9_000));
    assert_eq!(error(&unknown), Ok(vec!["unknown field \"frob\"".into()]));
    let raw = format!("{{\"data\":{}}}", nested("[", "]", MAX_DEPTH + 1));
    let revision = type_named("apps/v1/ControllerRevision");
    assert_eq!(decode(revision, raw.as_bytes()), Err(DecodeError::TooDeep));
    assert_eq!(
        decode_untyped(array(MAX_DEPTH + 1).as_bytes()),
        Err(DecodeError::TooDeep)
    );
    assert!(decode_untyped(array(MAX_DEPTH).as_bytes()).is_ok());
    let schema = format!("{}{{}}{}", "{\"not\":".repeat(2000), "}".repeat(2000));
    let crd = format!("{{\"spec\":{{\"versions\":[{{\"schema\":{{\"openAPIV3Schema\":{schema}}}}}]}}}}");
    let ty = type_named("apiextensions.k8s.io/v1/CustomResourceDefinition");
    assert_eq!(decode(ty, crd.as_bytes()), Err(DecodeError::TooDeep));
}

#[test]
fn a_document_of_a_million_objects_is_refused() {
    let many = format!("[{}]", vec![r#"{"a":1}"#; 1_000_000].join(","));
    assert_eq!(decode_untyped(many.as_bytes()), Err(DecodeError::TooMany));
    let containers = format!(r#"{{"spec":{{"containers":[{}]}}}}"#, vec!["{}"; 1_000_000].join(","));
    assert_eq!(
        decode(type_named("/v1/Pod"), containers.as_bytes()),
        Err(DecodeError::TooMany)
    );
}

#[test]
fn strict_reports_stop_at_a_hundred() {
    let fields: Vec<String> = (0..150).map(|n| format!("\"x{n}\":1")).collect();
    let decoded = decode(
        type_named("/v1/ConfigMap"),
        format!("{{{}}}", fields.join(",")).as_bytes(),
    );
    assert_eq!(decoded.expect("decodes").strict.len(), 100);
}

#[test]
fn indenting_prints_what_go_prints_for_pretty() {
    let pretty = indent(br#"{"a":[],"b":{},"c":[1,{"d":"x, {\"y\": [\\"}],"e":[{}]}"#);
    expect_test::expect![[r#"
        {
          "a": [],
          "b": {},
          "c": [
            1,
            {
              "d": "x, {\"y\": [\\"
            }
          ],
          "e": [
            {}
          ]
        }"#]]
    .assert_eq(&String::from_utf8(pretty).expect("UTF-8"));
}

#[test]
fn raw_json_keeps_its_numbers_but_not_the_order_of_its_keys() {
    let ty = type_named("apps/v1/ControllerRevision");
    let decoded = decode(ty, br#"{"data":{"b":1.0,"a":18446744073709551615}}"#).expect("decodes");
    let text = String::from_utf8(encoded(ty, &decoded.value)).expect("UTF-8");
    assert_eq!(
        text,
        r#"{"metadata":{},"data":{"a":18446744073709551615,"b":1.0},"revision":0}"#
    );
}

#[test]
fn storage_forgets_empty_lists_and_maps() {
    let ty = type_named("rbac.authorization.k8s.io/v1/Role");
    let mut role = decode(ty, br#"{"rules":[]}"#).expect("decodes").value;
    assert_eq!(role["rules"], serde_json::json!([]));
    forget_empty(&Shape::Struct(ty), &mut role);
    assert_eq!(role["rules"], Value::Null);
}

proptest::proptest! {
    #[test]
    fn hostile_bytes_never_panic(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
        let _ = (interpret(&bytes), decode_untyped(&bytes), decode(type_named("/v1/Pod"), &bytes));
    }

    #[test]
    fn near_json_never_panics_and_what_decodes_is_in_normal_form(
        text in r#"(\{|\}|\[|\]|,|:|"spec"|"metadata"|"containers"|"name"|"ports"|"labels"|"a"|null|1|true| ){0,40}"#,
    ) {
        let pod = type_named("/v1/Pod");
        if let Ok(decoded) = decode(pod, text.as_bytes()) {
            let bytes = encoded(pod, &decoded.value);
            proptest::prop_assert_eq!(&serde_json::from_slice::<Value>(&bytes).expect("JSON"), &decoded.value);
            proptest::prop_assert_eq!(decode(pod, &bytes).expect("decodes again").value, decoded.value);
        }
    }

    #[test]
    fn untyped_values_survive_the_round_trip(text in "[\\PC\\x00-\\x1f]{0,20}", float in proptest::num::f64::NORMAL, int in proptest::num::i64::ANY) {
        let value = serde_json::json!({text.as_str(): [text.as_str(), int, {"f": float}]});
        let mut bytes = Vec::new();
        encode_untyped(&value, &mut bytes);
        let decoded = decode_untyped(&bytes).expect("decodes").value;
        proptest::prop_assert_eq!(decoded[&text][2]["f"].as_f64(), Some(float));
        proptest::prop_assert_eq!(&decoded[&text][0], &value[&text][0]);
    }
}

#[test]
fn what_is_special_is_found_wherever_it_stands() {
    let print = |text: &str| {
        let mut out = Vec::new();
        write_string(text, &mut out);
        String::from_utf8(out).unwrap()
    };
    for before in 0..40 {
        for after in [0, 1, 20] {
            let (head, tail) = ("x".repeat(before), "y".repeat(after));
            for (special, escaped) in [
                ("\"", "\\\""),
                ("\n", "\\n"),
                ("\u{1}", "\\u0001"),
                ("&", "\\u0026"),
                ("\u{2028}", "\\u2028"),
                ("\u{e8}\u{a8}", "\u{e8}\u{a8}"),
            ] {
                let text = format!("{head}{special}{tail}");
                let printed = print(&text);
                assert_eq!(printed, format!("\"{head}{escaped}{tail}\""));
                assert_eq!(decode_untyped(printed.as_bytes()).unwrap().value, text);
            }
            let broken = format!("\"{head}\u{1}{tail}\"");
            assert!(decode_untyped(broken.as_bytes()).is_err(), "{broken:?}");
            assert!(decode_untyped(format!("\"{head}").as_bytes()).is_err());
        }
    }
}

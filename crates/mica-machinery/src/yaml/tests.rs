//! YAML against what upstream's own library made of the same inputs (see `facts/yamlcases.go`).

use serde_json::Value;

use super::*;
use crate::codec::fill;
use crate::codec::tests::{for_each_kind, hash};

#[derive(serde::Deserialize)]
struct Case {
    yaml: String,
    #[serde(default)]
    json: String,
    #[serde(default)]
    error: String,
    #[serde(default)]
    strict: String,
}

fn cases(file: &str) -> impl Iterator<Item = Case> {
    file.lines().map(|line| serde_json::from_str(line).expect("a case"))
}

#[test]
fn documents_convert_as_in_go() {
    let mut wrong = Vec::new();
    for case in cases(include_str!("../../testdata/yaml_in.jsonl")) {
        let ours = match to_json(case.yaml.as_bytes()) {
            Err(error) => (String::new(), error.to_string(), String::new()),
            Ok(Converted { json, strict }) => (
                String::from_utf8(json).expect("UTF-8"),
                String::new(),
                strict.unwrap_or_default(),
            ),
        };
        let theirs = (case.json, case.error, case.strict);
        if ours != theirs {
            wrong.push(format!("{:?}\n  have: {ours:?}\n  want: {theirs:?}", case.yaml));
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn values_print_as_in_go_and_read_back() {
    let mut wrong = Vec::new();
    for case in cases(include_str!("../../testdata/yaml_out.jsonl")) {
        let value = codec::decode_raw(case.json.as_bytes()).expect("JSON");
        let ours = from_json(&value);
        if ours != case.yaml {
            wrong.push(format!("{}\n  have: {ours:?}\n  want: {:?}", case.json, case.yaml));
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn every_kind_prints_as_in_go_and_reads_back() {
    for_each_kind(|kind, hashes| {
        let filled = fill::filled(kind.ty);
        let yaml = from_json(&filled);
        assert_eq!(hash(yaml.as_bytes()), hashes[2], "{kind:?}:\n{yaml}");
        let back = to_json(yaml.as_bytes()).unwrap_or_else(|e| panic!("{kind:?}: {e}"));
        assert_eq!(
            serde_json::from_slice::<Value>(&back.json).expect("JSON"),
            filled,
            "{kind:?}"
        );
    });
}

#[test]
fn deep_nesting_is_refused() {
    for deep in ["[".repeat(200), "- ".repeat(200), format!("{}a", "{a: ".repeat(200))] {
        let error = to_json(deep.as_bytes()).expect_err("is too deep").to_string();
        assert!(error.ends_with("exceeded max depth"), "{error}");
    }
    for (deep, line) in [
        (format!("a: 1\nb:\n c: {}", "[".repeat(10_001)), "line 3: "),
        (format!("x: {}", "[\n".repeat(10_001)), "line 10001: "),
        ("- ".repeat(12_000), ""),
    ] {
        let error = to_json(deep.as_bytes()).expect_err("is too deep").to_string();
        assert_eq!(error, format!("yaml: {line}exceeded max depth of 10000"));
    }
}

#[test]
fn other_encodings_are_read_and_broken_ones_refused() {
    let utf16: Vec<u8> = "a: é".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let with_mark = [&[0xff, 0xfe], utf16.as_slice()].concat();
    assert_eq!(to_json(&with_mark).expect("UTF-16").json, "{\"a\":\"é\"}".as_bytes());
    let error = |data: &[u8]| to_json(data).expect_err("is refused").to_string();
    assert_eq!(error(b"a: \xff"), "yaml: invalid leading UTF-8 octet");
    assert_eq!(error(b"a: \xc3("), "yaml: invalid trailing UTF-8 octet");
    assert_eq!(error(b"a: \xc3"), "yaml: incomplete UTF-8 octet sequence");
    assert_eq!(error(b"a: \xc0\x80"), "yaml: invalid length of a UTF-8 sequence");
    assert_eq!(error(b"a: \xed\xa0\x80"), "yaml: invalid Unicode character");
    assert_eq!(error(b"\xff\xfea"), "yaml: incomplete UTF-16 character");
}

proptest::proptest! {
    #[test]
    fn hostile_text_never_panics(text in "[-?:,\\[\\]{}#&*!|>'\"%@` \n\ta-c0-2.\\\\é<~]{0,60}") {
        let _ = to_json(text.as_bytes());
    }

    #[test]
    fn hostile_bytes_never_panic(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..100)) {
        let _ = to_json(&bytes);
    }

    #[test]
    fn what_prints_reads_back(
        keys in proptest::collection::vec("[-?:,\\[\\]{}#&*!|>'\"%@` \n\ta-c0-2.\\\\é~\\PC]{0,12}", 0..6),
        texts in proptest::collection::vec("[-?:,\\[\\]{}#&*!|>'\"%@` \n\ta-c0-2.\\\\é~\\PC]{0,100}", 0..6),
        number in proptest::num::f64::NORMAL,
    ) {
        let mut value = serde_json::json!({"texts": texts, "number": number, "none": null, "empty": [[], {}]});
        // Upstream prints the key `<<` bare, and reads it back as a merge: see the next test.
        for (key, text) in keys.iter().zip(&texts).filter(|(key, _)| *key != "<<") {
            value[key.as_str()] = serde_json::json!([{key.as_str(): text}, text, [text]]);
        }
        let yaml = from_json(&value);
        let back = to_json(yaml.as_bytes());
        let back = back.map(|b| serde_json::from_slice::<Value>(&b.json).expect("JSON"));
        let mut json = Vec::new();
        codec::encode_untyped(&value, &mut json);
        let expected = serde_json::from_slice::<Value>(&json).expect("JSON");
        proptest::prop_assert_eq!(back.as_ref(), Ok(&expected), "{}", yaml);
    }
}

#[test]
fn a_byte_order_mark_is_a_character_after_the_start() {
    for (yaml, json) in [
        ("\u{feff}a: 1\n", r#"{"a":1}"#),
        ("\u{feff}\u{feff}a: 1\n", r#"{"a":1}"#),
        ("a: 1\n\u{feff}b: 2\n", "{\"a\":1,\"\u{feff}b\":2}"),
    ] {
        let converted = to_json(yaml.as_bytes()).expect("YAML");
        assert_eq!(String::from_utf8_lossy(&converted.json), json);
    }
}

#[test]
fn a_merge_key_prints_bare_and_does_not_read_back_as_in_go() {
    let yaml = from_json(&serde_json::json!({"<<": ["<<", "a"]}));
    assert_eq!(yaml, "<<:\n- <<\n- a\n");
    let error = to_json(yaml.as_bytes()).expect_err("is a merge").to_string();
    assert_eq!(error, "yaml: map merge requires map or sequence of maps as the value");
}

//! JSON, YAML and protobuf, into built-in kinds and into anything.

use mica_machinery::{codec, protobuf as wire, yaml as yaml_codec};
use serde_json::Value;

use crate::{SLACK, built_in, line};

/// A kind on the first line, then JSON of it.
pub fn json(data: &[u8]) {
    let (name, document) = line(data);
    let kind = built_in(name);
    let _ = codec::interpret(document);
    if let Ok(mut decoded) = codec::decode(kind.ty, document) {
        if kind.kind == "CustomResourceDefinition" {
            // A schema's `items` that is a text counts as there, and prints as null, which counts as not there: as in Go.
            decoded = codec::decode_value(kind.ty, &decoded.value).expect("a decoded value");
        }
        let mut out = Vec::new();
        codec::encode(kind.ty, &decoded.value, &mut out);
        let again = codec::decode(kind.ty, &out).expect("what was printed can be read");
        assert_eq!(again.value, decoded.value, "{}", String::from_utf8_lossy(&out));
        assert_eq!(
            again.strict,
            Vec::<String>::new(),
            "printed fields are known and single"
        );
        let indented = codec::decode(kind.ty, &codec::indent(&out)).expect("indented");
        assert_eq!(indented.value, decoded.value);
    }
    untyped(document);
    let _ = codec::decode_object(document);
}

fn untyped(document: &[u8]) {
    let Ok(decoded) = codec::decode_untyped(document) else {
        return;
    };
    let mut out = Vec::new();
    codec::encode_untyped(&decoded.value, &mut out);
    assert!(
        out.len() <= 6 * document.len() + SLACK,
        "{} bytes of {}",
        out.len(),
        document.len()
    );
    let again = codec::decode_untyped(&out).expect("what was printed can be read");
    assert_eq!(printed(&again.value), String::from_utf8_lossy(&out));
    // What is stored is read with the ordinary parser.
    serde_json::from_slice::<Value>(&out).expect("the ordinary parser reads it too");
}

/// A value as it is sent: a whole float and an integer look the same.
fn printed(value: &Value) -> String {
    let mut out = Vec::new();
    codec::encode_untyped(value, &mut out);
    String::from_utf8(out).expect("JSON is text")
}

/// YAML.
pub fn yaml(data: &[u8]) {
    let plain = yaml_codec::plain_object(data);
    let Ok(converted) = yaml_codec::to_json(data) else {
        assert!(plain.is_none(), "YAML refuses it");
        return;
    };
    assert!(
        converted.json.len() <= 100 * data.len() + 16 * SLACK,
        "a YAML bomb: {}",
        converted.json.len()
    );
    let Ok(decoded) = codec::decode_untyped(&converted.json) else {
        // YAML nests deeper than what is decoded, no more.
        return;
    };
    if let Some(plain) = plain {
        assert_eq!(converted.strict, None);
        assert_eq!(printed(&plain), printed(&decoded.value));
    }
    let yaml = yaml_codec::from_json(&decoded.value);
    let again = match yaml_codec::to_json(yaml.as_bytes()) {
        // Upstream prints a key `<<` bare, and does not read it back either.
        _ if yaml.contains("<<") => return,
        Ok(again) => again,
        Err(error) => panic!("{error}: {yaml}"),
    };
    let again = codec::decode_untyped(&again.json).expect("JSON of YAML of JSON");
    assert_eq!(printed(&again.value), printed(&decoded.value), "{yaml}");
}

/// A kind on the first line, then an enveloped message of it, or the message alone.
pub fn protobuf(data: &[u8]) {
    let (name, document) = line(data);
    let kind = built_in(name);
    let message = wire::open(document).map_or(document, |envelope| envelope.raw);
    let Ok(value) = wire::decode(kind.ty, message) else {
        return;
    };
    let mut out = Vec::new();
    codec::encode(kind.ty, &value, &mut out);
    let decoded = codec::decode(kind.ty, &out)
        .expect("a decoded message is in normal form")
        .value;
    assert_eq!(decoded, value, "{}", String::from_utf8_lossy(&out));
    let again = wire::encode(kind.ty, &value).expect("it has protobuf");
    let back = wire::decode(kind.ty, &again).expect("what was written can be read");
    assert_eq!(back, value);
}

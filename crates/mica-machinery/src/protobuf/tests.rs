//! Protobuf against what upstream's own code made of the same objects (see `facts/fixtures.go`).

use serde_json::Value;

use super::*;
use crate::codec::tests::{for_each_kind, hash, type_named};
use crate::codec::{self, fill};
use crate::facts::{Shape, Type};

fn known(ty: TypeId) -> &'static Type {
    facts().ty(ty)
}

/// Messages have no apiVersion and kind: the envelope has them, for the outermost object only.
fn without_type(shape: &Shape, value: &mut Value) {
    match (shape, value) {
        (Shape::Struct(id), Value::Object(map)) => {
            for field in &known(*id).fields {
                if field.embedded == "TypeMeta" {
                    map.remove(field.json);
                } else if let Some(inner) = map.get_mut(field.json) {
                    without_type(&field.shape, inner);
                }
            }
        }
        (Shape::List(element), Value::Array(list)) => list.iter_mut().for_each(|v| without_type(element, v)),
        _ => {}
    }
}

#[test]
fn every_kind_encodes_to_the_bytes_that_go_writes() {
    for_each_kind(|kind, hashes| {
        if !known(kind.ty).protobuf {
            assert_eq!((hashes[1], hashes[4]), ("", ""), "{kind:?}");
            return;
        }
        let wire = encode(kind.ty, &fill::filled(kind.ty)).expect("encodes");
        assert_eq!(hash(&wire), hashes[1], "{kind:?}");
        let zero = encode(kind.ty, &serde_json::json!({})).expect("encodes");
        assert_eq!(hash(&zero), hashes[4], "{kind:?}");
    });
}

#[test]
fn every_kind_survives_the_round_trip() {
    for_each_kind(|kind, _| {
        if known(kind.ty).protobuf {
            let mut filled = fill::filled(kind.ty);
            without_type(&Shape::Struct(kind.ty), &mut filled);
            let wire = encode(kind.ty, &filled).expect("encodes");
            assert_eq!(decode(kind.ty, &wire).expect("decodes"), filled, "{kind:?}");
            let empty = codec::decode(kind.ty, b"{}").expect("decodes").value;
            assert_eq!(decode(kind.ty, &[]).expect("decodes"), empty, "{kind:?}");
        }
    });
}

#[derive(serde::Deserialize)]
struct Case {
    #[serde(rename = "type")]
    ty: String,
    json: String,
    hex: String,
}

fn unhex(text: &str) -> Vec<u8> {
    let digit = |b: &u8| char::from(*b).to_digit(16).expect("hexadecimal") as u8;
    text.as_bytes()
        .chunks(2)
        .map(|pair| digit(&pair[0]) << 4 | digit(&pair[1]))
        .collect()
}

#[test]
fn envelopes_are_those_that_go_writes() {
    for line in include_str!("../../testdata/protobuf.jsonl").lines() {
        let case: Case = serde_json::from_str(line).expect("a case");
        let ty = type_named(&case.ty);
        let mut object = codec::decode(ty, case.json.as_bytes()).expect("decodes").value;
        let wire = unhex(&case.hex);
        assert_eq!(encode_object(ty, &object).expect("encodes"), wire, "{}", case.json);

        let envelope = open(&wire).expect("opens");
        assert_eq!(object["kind"], envelope.kind);
        assert_eq!(object["apiVersion"], envelope.api_version);
        let decoded = decode(ty, envelope.raw).expect("decodes");
        without_type(&Shape::Struct(ty), &mut object);
        assert_eq!(decoded, object, "{}", case.json);
    }
}

#[test]
fn a_watch_frame_holds_the_length_the_type_and_the_envelope() {
    let envelope = seal("v1", "ConfigMap", b"message");
    let frame = watch_frame("ADDED", &envelope);
    let (length, event) = frame.split_at(4);
    assert_eq!(
        u32::from_be_bytes(length.try_into().expect("four bytes")) as usize,
        event.len()
    );
    assert!(event.starts_with(b"\x0a\x05ADDED\x12"));
    assert!(event.ends_with(&envelope));
    assert_eq!(open(&envelope).expect("opens").raw, b"message");
}

#[test]
fn bodies_that_are_no_envelope_are_refused_in_upstream_words() {
    let error = |data: &[u8]| open(data).expect_err("is refused").to_string();
    assert_eq!(error(b""), "empty data");
    assert_eq!(error(b"k8s\0"), "empty body");
    let no_prefix = "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]";
    assert_eq!(error(b"{}"), no_prefix);
    assert_eq!(error(b"k8s\0\x0a\x05"), "unexpected EOF");
    assert_eq!(error(b"k8s\0\x08\x05"), "proto: wrong wireType = 0 for field TypeMeta");
    assert_eq!(error(b"k8s\0\x04"), "proto: Unknown: wiretype end group for non-group");
    assert_eq!(error(b"k8s\0\x02"), "proto: Unknown: illegal tag 0 (wire type 2)");
}

#[test]
fn broken_messages_are_refused_in_upstream_words() {
    let error = |data: &[u8]| decode(type_named("/v1/ConfigMap"), data).map_err(|e| e.to_string());
    assert_eq!(error(b"\x0a"), Err("unexpected EOF".into()));
    assert_eq!(error(b"\x0a\x02\x0a"), Err("unexpected EOF".into()));
    assert_eq!(
        error(b"\x22\x00"),
        Err("proto: wrong wireType = 2 for field Immutable".into())
    );
    assert_eq!(
        error(b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
        Err("proto: negative length found during unmarshaling".into())
    );
    assert_eq!(
        error(&[0x20, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]),
        Err("proto: integer overflow".into())
    );
    assert_eq!(error(b"\x57"), Err("proto: illegal wireType 7".into()));
    assert_eq!(error(b"\x53\x53\x54\x54"), Ok(serde_json::json!({"metadata": {}})));
    assert_eq!(error(b"\x53\x53\x54"), Err("unexpected EOF".into()));
    let quota = decode(
        type_named("/v1/ResourceQuota"),
        b"\x12\x0a\x0a\x08\x0a\x01c\x12\x03\x0a\x01x",
    );
    assert!(
        quota
            .expect_err("is no quantity")
            .to_string()
            .starts_with("quantities must match")
    );
}

#[test]
fn fields_given_twice_merge_and_numbers_may_be_packed() {
    let config_map = type_named("/v1/ConfigMap");
    let twice = b"\x0a\x03\x0a\x01a\x0a\x03\x1a\x01n\x12\x06\x0a\x01k\x12\x01v\x12\x06\x0a\x01l\x12\x01w";
    let merged = decode(config_map, twice).expect("decodes");
    assert_eq!(
        merged,
        serde_json::json!({"metadata": {"name": "a", "namespace": "n"}, "data": {"k": "v", "l": "w"}})
    );
    let context = facts()
        .openapi("io.k8s.api.core.v1.PodSecurityContext")
        .expect("a type");
    let packed = decode(context, b"\x22\x02\x05\x06\x20\x07").expect("decodes");
    assert_eq!(packed, serde_json::json!({"supplementalGroups": [5, 6, 7]}));
}

#[test]
fn entries_of_maps_may_lack_a_value_and_hold_unknown_fields() {
    let review = type_named("authentication.k8s.io/v1/TokenReview");
    let decoded = decode(review, b"\x1a\x06\x12\x04\x22\x02\x0a\x00").expect("decodes");
    assert_eq!(decoded["status"]["user"]["extra"], serde_json::json!({"": []}));
    let config_map = type_named("/v1/ConfigMap");
    let decoded = decode(config_map, b"\x12\x05\x00\x07\x0a\x01k").expect("decodes");
    assert_eq!(decoded["data"], serde_json::json!({"k": ""}));
}

#[test]
fn tables_have_no_protobuf() {
    let error = encode(type_named("meta.k8s.io/v1/Table"), &Value::Null)
        .expect_err("is refused")
        .to_string();
    assert_eq!(
        error,
        "object *v1.Table does not implement the protobuf marshalling interface and cannot be encoded to a protobuf message"
    );
}

#[test]
fn nesting_and_numbers_of_objects_are_bounded() {
    let schema = facts().openapi("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps");
    let schema = schema.expect("a type");
    let not = facts().ty(schema).field("not").expect("a field").number;
    let mut deep = Vec::new();
    for _ in 0..codec::MAX_DEPTH + 1 {
        let mut out = Backward::default();
        out.field_bytes(not, &deep);
        deep = out.finish();
    }
    assert_eq!(decode(schema, &deep), Err(ProtobufError::TooDeep));

    let pods = type_named("/v1/PodList");
    let many = b"\x12\x00".repeat(1_000_000);
    assert_eq!(decode(pods, &many), Err(ProtobufError::TooMany));
}

proptest::proptest! {
    #[test]
    fn hostile_bytes_never_panic(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..300)) {
        let _ = open(&bytes);
        let _ = decode(type_named("/v1/Pod"), &bytes);
        let _ = decode(type_named("apiextensions.k8s.io/v1/CustomResourceDefinition"), &bytes);
    }

    #[test]
    fn damaged_messages_never_panic(at in 0_usize..4000, byte in proptest::num::u8::ANY) {
        let pod = type_named("/v1/Pod");
        let mut wire = encode(pod, &fill::filled(pod)).expect("encodes");
        let at = at % wire.len();
        wire[at] = byte;
        if let Ok(value) = decode(pod, &wire) {
            // What decodes is in normal form, so it survives another trip.
            let again = decode(pod, &encode(pod, &value).expect("encodes"));
            proptest::prop_assert_eq!(again.expect("decodes"), value);
        }
    }
}

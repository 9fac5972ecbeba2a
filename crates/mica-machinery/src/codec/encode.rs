//! Values into the bytes that Go's encoder prints: field order of the Go structs, omitempty, HTML-safe escapes.

use serde_json::{Map, Value};

use super::normal;
use super::text::{plain_length, write_float};
use crate::facts::{Shape, Type, TypeId, facts};

/// Appends `value` as Go prints a value of this type. Fields that the type does not know are left out.
pub fn encode(ty: TypeId, value: &Value, out: &mut Vec<u8>) {
    write_shape(&Shape::Struct(ty), value, out);
}

/// Appends `value` as Go prints untyped JSON: keys sorted, floats in Go's form.
pub fn encode_untyped(value: &Value, out: &mut Vec<u8>) {
    write_untyped(value, Floats::Go, out);
}

/// Re-indents well-formed JSON by two spaces, as upstream does for `?pretty`.
pub fn indent(json: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(json.len() * 2);
    let mut depth = 0_usize;
    let mut in_string = false;
    let mut escaped = false;
    // A line break is due after an opening bracket, unless the closing one follows at once.
    let mut just_opened = false;
    for byte in json {
        if in_string {
            out.push(*byte);
            in_string = escaped || *byte != b'"';
            escaped = !escaped && *byte == b'\\';
            continue;
        }
        if byte.is_ascii_whitespace() {
            continue;
        }
        if matches!(byte, b'}' | b']') {
            depth = depth.saturating_sub(1);
            if !just_opened {
                new_line(&mut out, depth);
            }
            just_opened = false;
            out.push(*byte);
            continue;
        }
        if just_opened {
            new_line(&mut out, depth);
            just_opened = false;
        }
        out.push(*byte);
        match byte {
            b'{' | b'[' => {
                depth += 1;
                just_opened = true;
            }
            b',' => new_line(&mut out, depth),
            b':' => out.push(b' '),
            b'"' => in_string = true,
            _ => {}
        }
    }
    out
}

fn new_line(out: &mut Vec<u8>, depth: usize) {
    out.push(b'\n');
    out.extend(std::iter::repeat_n(b' ', depth * 2));
}

/// How floats print: Go drops the fraction of whole ones, raw bytes keep it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Floats {
    Go,
    Raw,
}

/// Whether a float could have been written with `.0`: larger ones have no room for a fraction.
fn is_small_whole(float: f64) -> bool {
    const EXACT_BELOW: f64 = (1_u64 << 53) as f64;
    float.fract() == 0.0 && float.abs() < EXACT_BELOW
}

fn write_shape(shape: &Shape, value: &Value, out: &mut Vec<u8>) {
    match (shape, value) {
        (Shape::Struct(id), Value::Object(map)) => write_struct(facts().ty(*id), map, out),
        (Shape::List(element), Value::Array(list)) => {
            write_list(list, out, |inner, out| write_element(element, inner, out));
        }
        (Shape::Map(element), Value::Object(map)) => {
            write_map(map, out, |inner, out| write_element(element, inner, out));
        }
        (Shape::SchemaOrBool(id) | Shape::SchemaOrArray(id) | Shape::SchemaOrStringArray(id), Value::Object(map)) => {
            write_struct(facts().ty(*id), map, out);
        }
        (Shape::SchemaOrArray(id), Value::Array(list)) => {
            write_list(list, out, |inner, out| write_element(&Shape::Struct(*id), inner, out));
        }
        (Shape::Raw | Shape::FieldsV1 | Shape::Json, _) => write_untyped(value, Floats::Raw, out),
        _ => write_untyped(value, Floats::Go, out),
    }
}

fn write_element(shape: &Shape, value: &Value, out: &mut Vec<u8>) {
    if value.is_null() {
        write_untyped(&normal::zero(shape), Floats::Go, out);
    } else {
        write_shape(shape, value, out);
    }
}

fn write_struct(ty: &Type, map: &Map<String, Value>, out: &mut Vec<u8>) {
    out.push(b'{');
    let mut first = true;
    for field in &ty.fields {
        let value = map.get(field.json);
        let absent = value.is_none_or(Value::is_null) && !field.pointer;
        if absent && !normal::is_always_printed(field) {
            continue;
        }
        let value = match value {
            Some(value) if normal::is_omitted(field, value) => continue,
            Some(value) => value,
            None if normal::is_always_printed(field) => &Value::Null,
            None => continue,
        };
        if !first {
            out.push(b',');
        }
        first = false;
        out.push(b'"');
        out.extend_from_slice(field.json.as_bytes());
        out.extend_from_slice(b"\":");
        if absent {
            write_shape(&field.shape, &normal::zero(&field.shape), out);
        } else {
            write_shape(&field.shape, value, out);
        }
    }
    out.push(b'}');
}

fn write_list(list: &[Value], out: &mut Vec<u8>, write: impl Fn(&Value, &mut Vec<u8>)) {
    out.push(b'[');
    for (at, inner) in list.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        write(inner, out);
    }
    out.push(b']');
}

fn write_map(map: &Map<String, Value>, out: &mut Vec<u8>, write: impl Fn(&Value, &mut Vec<u8>)) {
    out.push(b'{');
    for (at, (key, inner)) in map.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        write_string(key, out);
        out.push(b':');
        write(inner, out);
    }
    out.push(b'}');
}

fn write_untyped(value: &Value, floats: Floats, out: &mut Vec<u8>) {
    match value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Bool(true) => out.extend_from_slice(b"true"),
        Value::Bool(false) => out.extend_from_slice(b"false"),
        Value::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() && (floats == Floats::Go || !is_small_whole(float)) => {
                write_float(out, float);
            }
            _ => out.extend_from_slice(number.to_string().as_bytes()),
        },
        Value::String(text) => write_string(text, out),
        Value::Array(list) => write_list(list, out, |inner, out| write_untyped(inner, floats, out)),
        Value::Object(map) => write_map(map, out, |inner, out| write_untyped(inner, floats, out)),
    }
}

/// Appends a JSON string with Go's HTML-safe escapes.
pub fn write_string(text: &str, out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let special = |byte| {
        let html = (byte == b'<') | (byte == b'>') | (byte == b'&');
        // What U+2028 and U+2029 end with.
        let separator = (byte == 0xa8) | (byte == 0xa9);
        (byte < 0x20) | (byte == b'"') | (byte == b'\\') | html | separator
    };
    out.push(b'"');
    let bytes = text.as_bytes();
    let (mut at, mut copied) = (0, 0);
    loop {
        at += plain_length(&bytes[at..], special);
        let Some(byte) = bytes.get(at) else { break };
        at += 1;
        let before = &bytes[..at - 1];
        let escape: &[u8] = match byte {
            b'"' => b"\\\"",
            b'\\' => b"\\\\",
            b'\n' => b"\\n",
            b'\r' => b"\\r",
            b'\t' => b"\\t",
            0x08 => b"\\b",
            0x0c => b"\\f",
            b'<' | b'>' | b'&' | 0..0x20 => &[
                b'\\',
                b'u',
                b'0',
                b'0',
                HEX[usize::from(byte >> 4)],
                HEX[usize::from(byte & 15)],
            ],
            // U+2028 and U+2029 are E2 80 A8 and E2 80 A9.
            0xa8 if before.ends_with(&[0xe2, 0x80]) => b"\\u2028",
            0xa9 if before.ends_with(&[0xe2, 0x80]) => b"\\u2029",
            _ => continue,
        };
        let end = if *byte >= 0x80 { at - 3 } else { at - 1 };
        out.extend_from_slice(&bytes[copied..end]);
        out.extend_from_slice(escape);
        copied = at;
    }
    out.extend_from_slice(&bytes[copied..]);
    out.push(b'"');
}

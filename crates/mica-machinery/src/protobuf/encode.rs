//! Values into messages.
//!
//! Values are expected in normal form. Where one is not, it is treated as unset: a message is always well-formed.

use serde_json::{Map, Value};

use super::wire::Backward;
use crate::codec::base64::{self, Alphabet};
use crate::facts::{Shape, TypeId, WireTarget, facts};
use crate::time::{Precision, Time};

pub(super) fn encode(ty: TypeId, value: &Value) -> Vec<u8> {
    let mut out = Backward::default();
    if let Value::Object(map) = value {
        message(ty, map, &mut out);
    } else {
        message(ty, &Map::new(), &mut out);
    }
    out.finish()
}

fn message(ty: TypeId, map: &Map<String, Value>, out: &mut Backward) {
    let ty = facts().ty(ty);
    for wire in ty.wire.iter().rev() {
        match wire.target {
            WireTarget::Embedded(inner) => {
                let start = out.position();
                message(inner, map, out);
                out.close(wire.number, start);
            }
            WireTarget::Field(at) => {
                let field = &ty.fields[usize::from(at)];
                let value = map.get(field.json).unwrap_or(&Value::Null);
                // A pointer is written only when set, a plain field always.
                if !(field.pointer && value.is_null()) {
                    write_field(wire.number, &field.shape, value, out);
                }
            }
        }
    }
}

fn write_field(number: u32, shape: &Shape, value: &Value, out: &mut Backward) {
    match shape {
        Shape::List(element) => {
            for inner in value.as_array().into_iter().flatten().rev() {
                write_field(number, element, inner, out);
            }
        }
        Shape::Map(element) => {
            for (key, inner) in value.as_object().into_iter().flatten().rev() {
                let start = out.position();
                write_field(2, element, inner, out);
                out.field_bytes(1, key.as_bytes());
                out.close(number, start);
            }
        }
        Shape::String => out.field_bytes(number, value.as_str().unwrap_or_default().as_bytes()),
        Shape::Bool => out.field_varint(number, u64::from(value.as_bool().unwrap_or(false))),
        Shape::Int32 | Shape::Int64 => out.field_varint(number, value.as_i64().unwrap_or(0) as u64),
        Shape::Uint8 | Shape::Uint16 | Shape::Uint32 | Shape::Uint64 => {
            out.field_varint(number, value.as_u64().unwrap_or(0));
        }
        Shape::Float32 | Shape::Float64 => out.field_fixed64(number, value.as_f64().unwrap_or(0.0).to_bits()),
        Shape::Bytes => {
            if let Some(bytes) = value
                .as_str()
                .and_then(|text| base64::decode(text, Alphabet::Standard).ok())
            {
                out.field_bytes(number, &bytes);
            }
        }
        Shape::StringList if value.is_null() => {}
        _ => {
            let start = out.position();
            write_message(shape, value, out);
            out.close(number, start);
        }
    }
}

/// The content of a field that is a message.
fn write_message(shape: &Shape, value: &Value, out: &mut Backward) {
    match shape {
        Shape::Struct(id) => match value {
            Value::Object(map) => message(*id, map, out),
            _ => message(*id, &Map::new(), out),
        },
        Shape::StringList => write_field(1, &Shape::List(Box::new(Shape::String)), value, out),
        Shape::Time => write_time(Precision::Second, value, out),
        Shape::MicroTime => write_time(Precision::Micro, value, out),
        Shape::Duration => {
            let nanos = value.as_str().and_then(|text| crate::duration::parse_go(text).ok());
            out.field_varint(1, nanos.unwrap_or(0) as u64);
        }
        Shape::Quantity => out.field_bytes(1, value.as_str().unwrap_or("0").as_bytes()),
        Shape::IntOrString => {
            out.field_bytes(3, value.as_str().unwrap_or_default().as_bytes());
            out.field_varint(2, value.as_i64().unwrap_or(0) as u64);
            out.field_varint(1, u64::from(value.is_string()));
        }
        Shape::SchemaOrBool(id) => {
            if let Value::Object(_) = value {
                write_field(2, &Shape::Struct(*id), value, out);
            }
            out.field_varint(1, u64::from(value.is_object() || value == &Value::Bool(true)));
        }
        Shape::SchemaOrArray(id) => write_schema_or_list(*id, &Shape::Struct(*id), value, out),
        Shape::SchemaOrStringArray(id) => write_schema_or_list(*id, &Shape::String, value, out),
        // Raw JSON: null is absent.
        _ if value.is_null() => {}
        _ => out.field_bytes(1, value.to_string().as_bytes()),
    }
}

fn write_schema_or_list(id: TypeId, element: &Shape, value: &Value, out: &mut Backward) {
    for inner in value.as_array().into_iter().flatten().rev() {
        write_field(2, element, inner, out);
    }
    if let Value::Object(_) = value {
        write_field(1, &Shape::Struct(id), value, out);
    }
}

fn write_time(precision: Precision, value: &Value, out: &mut Backward) {
    let time = value.as_str().and_then(|text| Time::parse(text, precision).ok());
    if let Some(time) = time.filter(|time| !time.is_zero()) {
        let (seconds, nanos) = time.to_unix();
        let nanos = if precision == Precision::Micro {
            nanos / 1000 * 1000
        } else {
            0
        };
        out.field_varint(2, nanos as u64);
        out.field_varint(1, seconds as u64);
    }
}

//! Reads the messages back, for tests: nothing may be lost on the way.

use serde_json::{Map, Value, json};

use super::{Form, Look, Message, openapi3, swagger};
use crate::yaml;

pub(in crate::openapi) fn read_openapi3(bytes: &[u8]) -> Value {
    read_message(&openapi3::DOCUMENT, bytes).into()
}

pub(in crate::openapi) fn read_swagger(bytes: &[u8]) -> Value {
    read_message(&swagger::DOCUMENT, bytes).into()
}

enum Raw<'a> {
    Varint(u64),
    Fixed(u64),
    Bytes(&'a [u8]),
}

fn read_message(message: &Message, bytes: &[u8]) -> Map<String, Value> {
    let mut object = Map::new();
    for (number, raw) in fields(bytes) {
        if let Some((key, _, form)) = message.fields.iter().find(|(_, known, _)| *known == number) {
            let value = read_value(*form, &raw);
            match (form, object.get_mut(*key)) {
                (Form::List(_), Some(Value::Array(list))) => list.push(value),
                (Form::List(_), _) => drop(object.insert((*key).to_owned(), json!([value]))),
                // A message that comes again is merged with what came before.
                (Form::Message(_), Some(Value::Object(known))) => {
                    known.extend(value.as_object().cloned().unwrap_or_default());
                }
                _ => drop(object.insert((*key).to_owned(), value)),
            }
            continue;
        }
        let form = match message.rest {
            Some((known, form)) if known == number => form,
            _ if message.extensions == number => Form::Any,
            _ => panic!("no field {number}"),
        };
        let Raw::Bytes(entry) = raw else {
            panic!("an entry is a message")
        };
        let entry = fields(entry);
        let [(1, Raw::Bytes(name)), (2, value)] = &entry[..] else {
            panic!("an entry has a name and a value")
        };
        object.insert(
            String::from_utf8(name.to_vec()).expect("names are text"),
            read_value(form, value),
        );
    }
    object
}

fn read_value(form: Form, raw: &Raw<'_>) -> Value {
    match (form, raw) {
        (Form::Text, Raw::Bytes(text)) => String::from_utf8(text.to_vec()).expect("text").into(),
        (Form::Flag, Raw::Varint(flag)) => (*flag == 1).into(),
        (Form::Integer, Raw::Varint(integer)) => integer.cast_signed().into(),
        (Form::Number, Raw::Fixed(bits)) => whole(f64::from_bits(*bits)),
        (Form::Any, Raw::Bytes(any)) => {
            let any = fields(any);
            let [(2, Raw::Bytes(text))] = &any[..] else {
                panic!("any is YAML text")
            };
            let converted = yaml::to_json(text).expect("YAML");
            serde_json::from_slice(&converted.json).expect("JSON")
        }
        (Form::List(form), raw) => read_value(*form, raw),
        (Form::Message(message), Raw::Bytes(bytes)) => read_message(message, bytes).into(),
        (Form::Wrapped(form), Raw::Bytes(bytes)) => {
            let values: Vec<Value> = fields(bytes).iter().map(|(_, raw)| read_value(*form, raw)).collect();
            match (form, values.as_slice()) {
                // Types and items are written as lists and never are.
                (_, [single]) => single.clone(),
                _ => values.into(),
            }
        }
        (Form::OneOf(choices), Raw::Bytes(bytes)) => match &fields(bytes)[..] {
            [] => json!({}),
            [(number, raw)] => {
                let find = |(_, known, _): &&(Look, u32, Form)| known == number;
                let (_, _, form) = choices.iter().find(find).expect("a known choice");
                read_value(*form, raw)
            }
            _ => panic!("a choice has one field"),
        },
        _ => panic!("the wire type fits the form"),
    }
}

/// JSON tells 0 from 0.0, which defaults are not.
fn whole(number: f64) -> Value {
    if number.fract() == 0.0 && number.abs() < 1e15 {
        json!(number as i64)
    } else {
        json!(number)
    }
}

fn fields(mut bytes: &[u8]) -> Vec<(u32, Raw<'_>)> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        let raw = match tag & 7 {
            0 => Raw::Varint(varint(&mut bytes)),
            1 => {
                let (head, rest) = bytes.split_at(8);
                bytes = rest;
                Raw::Fixed(u64::from_le_bytes(head.try_into().expect("eight bytes")))
            }
            2 => {
                let length = usize::try_from(varint(&mut bytes)).expect("a length");
                let (head, rest) = bytes.split_at(length);
                bytes = rest;
                Raw::Bytes(head)
            }
            other => panic!("no wire type {other} is written"),
        };
        found.push((u32::try_from(tag >> 3).expect("a number"), raw));
    }
    found
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first().expect("a varint ends");
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if *byte < 0x80 {
            break;
        }
    }
    value
}

//! OpenAPI documents in protobuf, in the messages of Google's gnostic models: what kubectl asks for first.
//!
//! A document is JSON until the end, and written as messages by tables that say which key is which field. Keys that no
//! table has are left out, as unset. Fields that may be anything hold YAML text.
//!
//! The messages and numbers are facts of `OpenAPIv2.proto` and `OpenAPIv3.proto`; the tables have those that Kubernetes'
//! documents use.

mod openapi3;
#[cfg(test)]
pub(super) mod read;
mod swagger;

use serde_json::{Map, Value};

use crate::yaml;

/// An OpenAPI 3.0 document as `openapi.v3.Document`.
pub fn openapi3(document: &Value) -> Vec<u8> {
    encode(&openapi3::DOCUMENT, document)
}

/// A Swagger 2.0 document as `openapi.v2.Document`.
pub fn swagger(document: &Value) -> Vec<u8> {
    encode(&swagger::DOCUMENT, document)
}

/// How a JSON value becomes the value of a field.
#[derive(Clone, Copy)]
pub(super) enum Form {
    Text,
    Flag,
    Integer,
    Number,
    /// Any JSON, as a message with YAML text in field 2.
    Any,
    /// A list: the field repeats. A single value is a list of one.
    List(&'static Form),
    Message(&'static Message),
    /// A message whose field 1 is the value.
    Wrapped(&'static Form),
    /// A message with one of several fields, chosen by what the value looks like; the first that fits.
    OneOf(Choices),
}

/// What a value may look like, and the number and form of the field that it then is.
pub(super) type Choices = &'static [(Look, u32, Form)];

/// A message made from an object.
pub(super) struct Message {
    /// Key, number and form, by ascending number.
    pub(super) fields: &'static [(&'static str, u32, Form)],
    /// Where all other keys go, each as a message of name (1) and value (2).
    pub(super) rest: Option<(u32, Form)>,
    /// Number of the field that keeps keys beginning with `x-`, each with its name; 0 if there is none.
    pub(super) extensions: u32,
}

// What both versions have in common; of the other messages at least the numbers differ.

static SECURITY_REQUIREMENT: Message = Message {
    fields: &[],
    rest: Some((1, Form::Wrapped(&Form::List(&Form::Text)))),
    extensions: 0,
};

static EXTERNAL_DOCS: Message = Message {
    fields: &[("description", 1, Form::Text), ("url", 2, Form::Text)],
    rest: None,
    extensions: 3,
};

/// What a value looks like.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    Flag,
    Number,
    Text,
    /// An object with a `$ref`.
    Reference,
    /// A parameter in this place.
    In(&'static str),
    /// An object of this `type`.
    Type(&'static str),
    Object,
}

impl Look {
    fn fits(self, value: &Value) -> bool {
        match self {
            Look::Flag => value.is_boolean(),
            Look::Number => value.is_number(),
            Look::Text => value.is_string(),
            Look::Reference => value.get("$ref").is_some_and(Value::is_string),
            Look::In(place) => value.get("in").is_some_and(|found| found == place),
            Look::Type(name) => value.get("type").is_some_and(|found| found == name),
            Look::Object => value.is_object(),
        }
    }
}

fn encode(message: &Message, document: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    if let Value::Object(object) = document {
        write_message(&mut out, message, object);
    }
    out
}

/// Whether a field that has its type's zero value is written: alone it says nothing, in a list or a choice it does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Zero {
    Skip,
    Write,
}

fn write_message(out: &mut Vec<u8>, message: &Message, object: &Map<String, Value>) {
    for (key, number, form) in message.fields {
        if let Some(value) = object.get(*key) {
            write_field(out, *number, *form, value, Zero::Skip);
        }
    }
    if let Some((number, form)) = message.rest {
        let known = |key: &String| message.fields.iter().any(|(known, ..)| known == key);
        for (key, value) in object.iter().filter(|(key, _)| !known(key)) {
            write_named(out, number, key, form, value);
        }
    }
    if message.extensions != 0 {
        for (key, value) in object.iter().filter(|(key, _)| key.starts_with("x-")) {
            write_named(out, message.extensions, key, Form::Any, value);
        }
    }
}

fn write_named(out: &mut Vec<u8>, number: u32, key: &str, form: Form, value: &Value) {
    let mut inner = Vec::new();
    write_bytes(&mut inner, 1, key.as_bytes());
    write_field(&mut inner, 2, form, value, Zero::Write);
    write_bytes(out, number, &inner);
}

fn write_field(out: &mut Vec<u8>, number: u32, form: Form, value: &Value, zero: Zero) {
    match form {
        Form::Text => {
            if let Some(text) = value.as_str().filter(|text| zero == Zero::Write || !text.is_empty()) {
                write_bytes(out, number, text.as_bytes());
            }
        }
        Form::Flag => {
            if let Some(flag) = value.as_bool().filter(|flag| zero == Zero::Write || *flag) {
                write_varint(out, u64::from(number) << 3);
                out.push(u8::from(flag));
            }
        }
        Form::Integer => {
            if let Some(integer) = value.as_i64().filter(|integer| zero == Zero::Write || *integer != 0) {
                write_varint(out, u64::from(number) << 3);
                write_varint(out, integer.cast_unsigned());
            }
        }
        Form::Number => {
            if let Some(float) = value.as_f64().filter(|float| zero == Zero::Write || *float != 0.0) {
                write_varint(out, u64::from(number) << 3 | 1);
                out.extend_from_slice(&float.to_le_bytes());
            }
        }
        Form::Any => {
            let mut inner = Vec::new();
            write_bytes(&mut inner, 2, yaml::from_json(value).as_bytes());
            write_bytes(out, number, &inner);
        }
        Form::List(form) => {
            let single = std::slice::from_ref(value);
            for item in value.as_array().map_or(single, Vec::as_slice) {
                write_field(out, number, *form, item, Zero::Write);
            }
        }
        Form::Message(message) => {
            if let Value::Object(object) = value {
                let mut inner = Vec::new();
                write_message(&mut inner, message, object);
                write_bytes(out, number, &inner);
            }
        }
        Form::Wrapped(form) => {
            let mut inner = Vec::new();
            write_field(&mut inner, 1, *form, value, Zero::Write);
            write_bytes(out, number, &inner);
        }
        Form::OneOf(choices) => {
            let mut inner = Vec::new();
            // What fits nothing is an empty message: so upstream writes the default `{}`.
            if let Some((_, chosen, form)) = choices.iter().find(|(look, ..)| look.fits(value)) {
                write_field(&mut inner, *chosen, *form, value, Zero::Write);
            }
            write_bytes(out, number, &inner);
        }
    }
}

fn write_bytes(out: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    write_varint(out, u64::from(number) << 3 | 2);
    write_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn write_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

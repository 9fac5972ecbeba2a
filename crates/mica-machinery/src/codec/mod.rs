//! JSON of built-in kinds and of anything else, in and out, exactly as kube-apiserver reads and prints it.
//!
//! Owns decoding (with upstream's error texts and strict reports), encoding (Go's bytes) and the texts of special types.
//! Never knows a kind by name: what there is to know is in [`facts`](crate::facts).
//!
//! Invariant: a decoded value is in normal form: it equals what parsing Go's output for it would give. Encoding any value
//! prints its normal form. Raw JSON inside built-in kinds (`RawExtension`, schema defaults) is the one thing not kept
//! byte for byte: its keys come out sorted.

pub mod base64;
mod cursor;
mod encode;
#[cfg(test)]
pub(crate) mod fill;
mod normal;
mod special;
mod strict;
mod syntax;
#[cfg(test)]
pub(crate) mod tests;
pub mod text;
mod typed;
mod untyped;

use std::fmt;

use serde_json::Value;

pub use encode::{encode, encode_untyped, indent, write_string};
pub use normal::forget_empty;
pub(crate) use normal::{add_always_printed, drop_if_omitted, is_always_printed, zero};
pub(crate) use typed::float_value;

use crate::facts::{Shape, TypeId, facts};
use cursor::{Cursor, Token};
use strict::Strict;
use typed::{Place, Typed};
use untyped::{Numbers, Untyped};

/// How deep a decoded value may nest. Go allows 10,000; everything that walks values recurses, and nothing real comes
/// near this. It stays well below serde_json's own limit of 128, so that stored objects can always be read again, with
/// the managed fields that mirror their nesting. Deeper input that is only skipped (unknown fields) passes as upstream.
pub const MAX_DEPTH: usize = 100;

/// How many objects one document may hold. A body of 3 MiB can name a million empty ones, and each may grow to a
/// kilobyte of fields that are always printed; no real object comes near this.
const MAX_OBJECTS: u32 = 200_000;

/// What is left of [`MAX_OBJECTS`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Budget(u32);

impl Default for Budget {
    fn default() -> Self {
        Budget(MAX_OBJECTS)
    }
}

impl Budget {
    /// Takes one object; false when none is left.
    pub(crate) fn spend(&mut self) -> bool {
        self.0 = self.0.saturating_sub(1);
        self.0 > 0
    }
}

/// A decoded document and what strict field validation has to say about it.
#[derive(Debug, Clone, PartialEq)]
pub struct Decoded {
    pub value: Value,
    /// `unknown field "spec.x"`, `duplicate field "spec.y"`, in document order.
    pub strict: Vec<String>,
}

/// A document that cannot be decoded; the text is upstream's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Not JSON.
    #[error("{0}")]
    Syntax(String),
    /// JSON of the wrong type.
    #[error("{0}")]
    Type(TypeMismatch),
    /// A text that a special type refuses: bad quantity, time, base64, …
    #[error("{0}")]
    Invalid(String),
    /// Nested deeper than [`MAX_DEPTH`].
    #[error("exceeded max depth")]
    TooDeep,
    /// Holds more than [`MAX_OBJECTS`].
    #[error("too many objects in one document")]
    TooMany,
}

/// A JSON value where the Go type wants another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypeMismatch {
    /// What stands there: `number`, `object`, `number 1.5`, …
    found: String,
    go_type: &'static str,
    /// The struct that has the field; empty at the top and in anonymous structs.
    struct_name: &'static str,
    /// The dotted path to the field; empty at the top.
    field: String,
}

impl TypeMismatch {
    fn new(found: String, go_type: &'static str) -> Self {
        TypeMismatch {
            found,
            go_type,
            struct_name: "",
            field: String::new(),
        }
    }
}

impl fmt::Display for TypeMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TypeMismatch {
            found,
            go_type,
            struct_name,
            field,
        } = self;
        if struct_name.is_empty() && field.is_empty() {
            return write!(f, "json: cannot unmarshal {found} into Go value of type {go_type}");
        }
        write!(
            f,
            "json: cannot unmarshal {found} into Go struct field {struct_name}.{field} of type {go_type}"
        )
    }
}

/// The type that a document says it has.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Interpreted {
    pub api_version: String,
    pub kind: String,
}

/// Reads apiVersion and kind, which upstream does before it decodes anything.
///
/// Unlike decoding, this matches the two keys without regard to case. The caller still has to split the apiVersion.
pub fn interpret(data: &[u8]) -> Result<Interpreted, DecodeError> {
    Document::interpret(data).map(|(_, interpreted)| interpreted)
}

/// Bytes that are known to be JSON.
#[derive(Debug, Clone, Copy)]
pub struct Document<'a>(&'a [u8]);

impl<'a> Document<'a> {
    /// As [`interpret`], for who decodes the same bytes next: their syntax is checked once.
    pub fn interpret(data: &'a [u8]) -> Result<(Self, Interpreted), DecodeError> {
        let explain = |reason: &dyn fmt::Display| format!("couldn't get version/kind; json parse error: {reason}");
        syntax::check(data).map_err(|reason| DecodeError::Syntax(explain(&reason)))?;
        let interpreted = read_type(data).map_err(|reason| DecodeError::Invalid(explain(&reason)))?;
        Ok((Self(data), interpreted))
    }

    /// As [`decode`].
    pub fn decode(self, ty: TypeId) -> Result<Decoded, DecodeError> {
        decode_checked(ty, self.0)
    }
}

fn read_type(data: &[u8]) -> Result<Interpreted, TypeMismatch> {
    const GO_TYPE: &str =
        r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;
    let mut found = Interpreted::default();
    let mut cursor = Cursor::new(data);
    match cursor.peek() {
        Token::Object => cursor.open(),
        Token::Null => return Ok(found),
        token => return Err(TypeMismatch::new(typed::describe(token).into(), GO_TYPE)),
    }
    let mut wrong = None;
    while cursor.more() {
        let key = cursor.key();
        let (name, slot) = if folds_to(&key, "apiVersion") {
            ("apiVersion", &mut found.api_version)
        } else if folds_to(&key, "kind") {
            ("kind", &mut found.kind)
        } else {
            cursor.raw();
            continue;
        };
        match cursor.peek() {
            Token::String => *slot = cursor.string().into_owned(),
            Token::Null => {
                cursor.raw();
            }
            token => {
                cursor.raw();
                let mismatch = TypeMismatch::new(typed::describe(token).into(), "string");
                wrong.get_or_insert(TypeMismatch {
                    field: name.into(),
                    ..mismatch
                });
            }
        }
    }
    wrong.map_or(Ok(found), Err)
}

/// Whether Go's case folding takes `key` for `name`.
fn folds_to(key: &str, name: &str) -> bool {
    let fold = |c: char| match c {
        '\u{212a}' => 'k',
        '\u{17f}' => 's',
        _ => c.to_ascii_lowercase(),
    };
    key.chars().map(fold).eq(name.chars().map(fold))
}

/// Decodes a document into a built-in type.
pub fn decode(ty: TypeId, data: &[u8]) -> Result<Decoded, DecodeError> {
    syntax::check(data).map_err(DecodeError::Syntax)?;
    decode_checked(ty, data)
}

fn decode_checked(ty: TypeId, data: &[u8]) -> Result<Decoded, DecodeError> {
    decode_with(ty, data, Strict::default())
}

fn decode_with(ty: TypeId, data: &[u8], strict: Strict) -> Result<Decoded, DecodeError> {
    let mut decoder = Typed::new(data, Some(strict));
    let shape = Shape::Struct(ty);
    let mut value = Value::Null;
    decoder.value(
        Place {
            shape: &shape,
            names: facts().ty(ty).go,
            level: 0,
            pointer: false,
        },
        &mut value,
    )?;
    if let Some(error) = decoder.saved {
        return Err(error);
    }
    if value.is_null() {
        value = zero(&shape);
    }
    Ok(Decoded {
        value,
        strict: decoder.strict.map(Strict::into_reports).unwrap_or_default(),
    })
}

/// Decodes a value that is already parsed into a built-in type: the result of a patch, for example.
pub fn decode_value(ty: TypeId, value: &Value) -> Result<Decoded, DecodeError> {
    let mut data = Vec::new();
    encode_untyped(value, &mut data);
    decode(ty, &data)
}

/// As [`decode_value`], but reports unknown fields as upstream does where it fills a type from a tree: the keys of maps are
/// not in the paths.
pub(crate) fn decode_tree(ty: TypeId, value: &Value) -> Result<Decoded, DecodeError> {
    let mut data = Vec::new();
    encode_untyped(value, &mut data);
    syntax::check(&data).map_err(DecodeError::Syntax)?;
    decode_with(ty, &data, Strict::without_keys())
}

/// Whether a value that stands alone can be decoded as a shape.
pub(crate) fn check_part(shape: &Shape, value: &Value) -> Result<(), DecodeError> {
    let mut data = Vec::new();
    encode_untyped(value, &mut data);
    let mut decoder = Typed::new(&data, None);
    let place = Place {
        shape,
        names: "",
        level: 0,
        pointer: false,
    };
    decoder.value(place, &mut Value::Null)?;
    decoder.saved.map_or(Ok(()), Err)
}

/// Decodes any JSON: numbers are int64 where they can be, else float64; duplicate keys are reported, the last wins.
pub fn decode_untyped(data: &[u8]) -> Result<Decoded, DecodeError> {
    syntax::check(data).map_err(DecodeError::Syntax)?;
    let mut strict = Strict::default();
    let mut untyped = Untyped {
        numbers: Numbers::Go,
        strict: Some(&mut strict),
        saved: None,
        depth: 0,
        budget: Budget::default(),
    };
    let value = untyped.value(&mut Cursor::new(data))?;
    match untyped.saved {
        Some(mismatch) => Err(DecodeError::Type(mismatch)),
        None => Ok(Decoded {
            value,
            strict: strict.into_reports(),
        }),
    }
}

/// Decodes a JSON object without a type: a custom resource, or a patch. Null counts as an empty object.
pub fn decode_object(data: &[u8]) -> Result<Decoded, DecodeError> {
    syntax::check(data).map_err(DecodeError::Syntax)?;
    match Cursor::new(data).peek() {
        Token::Object => decode_untyped(data),
        Token::Null => Ok(Decoded {
            value: Value::Object(serde_json::Map::new()),
            strict: Vec::new(),
        }),
        token => {
            let mismatch = TypeMismatch::new(typed::describe(token).into(), "map[string]interface {}");
            Err(DecodeError::Type(mismatch))
        }
    }
}

/// Decodes JSON that upstream keeps as raw bytes; no duplicates are reported.
pub(crate) fn decode_raw(data: &[u8]) -> Result<Value, DecodeError> {
    syntax::check(data).map_err(DecodeError::Syntax)?;
    let mut untyped = Untyped {
        numbers: Numbers::Raw,
        strict: None,
        saved: None,
        depth: 0,
        budget: Budget::default(),
    };
    let value = untyped.value(&mut Cursor::new(data))?;
    untyped
        .saved
        .map_or(Ok(value), |mismatch| Err(DecodeError::Type(mismatch)))
}

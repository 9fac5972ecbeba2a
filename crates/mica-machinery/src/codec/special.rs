//! The types that decode themselves upstream: times, durations, quantities, numbers-or-strings and schema unions.
//!
//! They differ from all others in two ways: a text that they refuse ends decoding at once, and what they contain is
//! decoded leniently, so strict validation reports nothing inside them.

use serde_json::Value;

use super::DecodeError;
use super::cursor::Token;
use super::typed::{Place, Typed, describe};
use crate::duration;
use crate::facts::{Shape, TypeId};
use crate::quantity::Quantity;
use crate::time::{Precision, Time};

pub(super) fn is_self_decoding(shape: &Shape) -> bool {
    matches!(
        shape,
        Shape::Time
            | Shape::MicroTime
            | Shape::Duration
            | Shape::Quantity
            | Shape::IntOrString
            | Shape::SchemaOrBool(_)
            | Shape::SchemaOrArray(_)
            | Shape::SchemaOrStringArray(_)
    )
}

pub(super) fn not_a_schema() -> DecodeError {
    DecodeError::Invalid("boolean or JSON schema expected".into())
}

impl Typed<'_> {
    /// Types that have a decoder of their own upstream: what they refuse ends decoding.
    pub(super) fn special(&mut self, place: Place<'_>, token: Token, slot: &mut Value) -> Result<(), DecodeError> {
        match place.shape {
            Shape::Time => *slot = time_value(Precision::Second, &self.text(token)?)?,
            Shape::MicroTime => *slot = time_value(Precision::Micro, &self.text(token)?)?,
            Shape::Duration => {
                let nanos = duration::parse_go(&self.text(token)?).map_err(|e| DecodeError::Invalid(e.to_string()))?;
                *slot = Value::String(duration::format_go(nanos));
            }
            Shape::Quantity => *slot = quantity_value(self.cursor.raw())?,
            Shape::IntOrString if token == Token::String => *slot = Value::String(self.cursor.string().into_owned()),
            Shape::IntOrString => {
                let literal = self.literal();
                let number = literal.parse::<i32>().ok().filter(|_| token == Token::Number);
                *slot = match number {
                    Some(number) => number.into(),
                    None if token == Token::Number => return Err(self.fatal(format!("number {literal}"), "int32")),
                    None => return Err(self.fatal(describe(token).into(), "int32")),
                };
            }
            Shape::SchemaOrBool(id) => *slot = self.schema_or_bool(*id, token)?,
            Shape::SchemaOrArray(id) => {
                let list = Shape::List(Box::new(Shape::Struct(*id)));
                *slot = self.schema_or_list(*id, token, &list, "[]v1.JSONSchemaProps|v1.JSONSchemaProps")?;
            }
            Shape::SchemaOrStringArray(id) => {
                let list = Shape::List(Box::new(Shape::String));
                *slot = self.schema_or_list(*id, token, &list, "[]string|string")?;
            }
            _ => self.mismatch(token, place.go_type()),
        }
        Ok(())
    }

    /// The string that a time or duration must be.
    fn text(&mut self, token: Token) -> Result<String, DecodeError> {
        if token == Token::String {
            return Ok(self.cursor.string().into_owned());
        }
        Err(self.fatal(describe(token).into(), "string"))
    }

    fn schema_or_bool(&mut self, id: TypeId, token: Token) -> Result<Value, DecodeError> {
        match token {
            Token::Object => self.nested(&Shape::Struct(id), "v1.JSONSchemaProps"),
            Token::True | Token::False => {
                self.cursor.raw();
                Ok(Value::Bool(token == Token::True))
            }
            _ => Err(not_a_schema()),
        }
    }

    fn schema_or_list(
        &mut self,
        id: TypeId,
        token: Token,
        list: &Shape,
        names: &'static str,
    ) -> Result<Value, DecodeError> {
        match token {
            Token::Object => self.nested(&Shape::Struct(id), "v1.JSONSchemaProps"),
            Token::Array => {
                let value = self.nested(list, names)?;
                // An empty list is no list, and prints as null.
                Ok(if value.as_array().is_some_and(Vec::is_empty) {
                    Value::Null
                } else {
                    value
                })
            }
            _ => {
                self.cursor.raw();
                Ok(Value::Null)
            }
        }
    }

    /// Decodes a part that upstream hands to a decoder of its own: lenient, with error paths that start anew.
    fn nested(&mut self, shape: &Shape, names: &'static str) -> Result<Value, DecodeError> {
        let mut inner = Typed::new(self.cursor.raw(), None);
        (inner.depth, inner.budget) = (self.depth, self.budget);
        let mut value = Value::Null;
        let done = inner.value(
            Place {
                shape,
                names,
                level: 0,
                pointer: false,
            },
            &mut value,
        );
        self.budget = inner.budget;
        match done.err().or(inner.saved) {
            None => Ok(value),
            Some(DecodeError::Type(mismatch)) => Err(DecodeError::Type(self.in_context(mismatch))),
            Some(other) => Err(other),
        }
    }
}

fn time_value(precision: Precision, text: &str) -> Result<Value, DecodeError> {
    let time = Time::parse(text, precision).map_err(|e| DecodeError::Invalid(e.to_string()))?;
    Ok(if time.is_zero() {
        Value::Null
    } else {
        Value::String(time.format(precision))
    })
}

fn quantity_value(raw: &[u8]) -> Result<Value, DecodeError> {
    // Upstream reads the literal itself, quoted or not, without resolving escapes.
    let text = String::from_utf8_lossy(raw);
    let text = text
        .strip_prefix('"')
        .and_then(|t| t.strip_suffix('"'))
        .unwrap_or(&text);
    match Quantity::parse(text.trim()) {
        Ok(quantity) => Ok(Value::String(quantity.to_string())),
        Err(error) => Err(DecodeError::Invalid(error.to_string())),
    }
}

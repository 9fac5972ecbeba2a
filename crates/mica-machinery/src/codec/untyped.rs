//! JSON into a value without a type: custom resources, and the parts of built-in kinds that may hold anything.

use std::borrow::Cow;

use serde_json::{Map, Number, Value};

use super::cursor::{Cursor, Token};
use super::strict::Strict;
use super::{Budget, DecodeError, MAX_DEPTH, TypeMismatch};

/// How numbers beyond int64 are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Numbers {
    /// As Go's `interface{}` holds them: int64, else float64.
    Go,
    /// As close to the text as a value allows, for what upstream keeps as raw bytes.
    Raw,
}

pub(super) struct Untyped<'s> {
    pub(super) numbers: Numbers,
    /// Where duplicate keys are noted, if anywhere.
    pub(super) strict: Option<&'s mut Strict>,
    /// The first number that no value can hold.
    pub(super) saved: Option<TypeMismatch>,
    pub(super) depth: usize,
    pub(super) budget: Budget,
}

impl Untyped<'_> {
    pub(super) fn value(&mut self, cursor: &mut Cursor<'_>) -> Result<Value, DecodeError> {
        match cursor.peek() {
            Token::Object => {
                self.enter()?;
                let map = self.object(cursor)?;
                self.depth -= 1;
                Ok(Value::Object(map))
            }
            Token::Array => {
                self.enter()?;
                let list = self.array(cursor)?;
                self.depth -= 1;
                Ok(Value::Array(list))
            }
            Token::String => Ok(Value::String(cursor.string().into_owned())),
            Token::Number => {
                let literal = cursor.raw();
                Ok(self.number(literal))
            }
            token => {
                cursor.raw();
                Ok(match token {
                    Token::True => Value::Bool(true),
                    Token::False => Value::Bool(false),
                    _ => Value::Null,
                })
            }
        }
    }

    fn enter(&mut self) -> Result<(), DecodeError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            Err(DecodeError::TooDeep)
        } else {
            Ok(())
        }
    }

    fn array(&mut self, cursor: &mut Cursor<'_>) -> Result<Vec<Value>, DecodeError> {
        let mut list = Vec::new();
        cursor.open();
        while cursor.more() {
            if let Some(strict) = &mut self.strict {
                strict.push_index(list.len());
            }
            list.push(self.value(cursor)?);
            if let Some(strict) = &mut self.strict {
                strict.pop();
            }
        }
        Ok(list)
    }

    fn object(&mut self, cursor: &mut Cursor<'_>) -> Result<Map<String, Value>, DecodeError> {
        let mut map = Map::new();
        cursor.open();
        while cursor.more() {
            let at = cursor.offset();
            let key = cursor.key();
            if let Some(strict) = &mut self.strict {
                if map.contains_key(key.as_ref()) {
                    strict.duplicate(cursor, &key);
                }
                strict.push_key(at);
            }
            let value = self.value(cursor)?;
            if let Some(strict) = &mut self.strict {
                strict.pop();
            }
            map.insert(Cow::into_owned(key), value);
        }
        // Empty objects cost nothing, and managed fields are full of them.
        if !map.is_empty() && !self.budget.spend() {
            return Err(DecodeError::TooMany);
        }
        Ok(map)
    }

    fn number(&mut self, literal: &[u8]) -> Value {
        let text = std::str::from_utf8(literal).unwrap_or_default();
        if let Ok(integer) = text.parse::<i64>() {
            return integer.into();
        }
        if self.numbers == Numbers::Raw
            && let Ok(integer) = text.parse::<u64>()
        {
            return integer.into();
        }
        let float = text.parse::<f64>().ok().and_then(Number::from_f64);
        match float {
            Some(number) => Value::Number(number),
            None => {
                let mismatch = TypeMismatch::new(format!("number {text}"), "float64");
                self.saved.get_or_insert(mismatch);
                Value::Null
            }
        }
    }
}

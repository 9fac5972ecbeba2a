//! JSON into a built-in kind, as Go's decoder of upstream does it.
//!
//! Surprises it keeps: a wrong type is remembered and decoding goes on, so the first wrong type is reported only if
//! nothing worse follows; a text that a special type refuses (quantity, time) ends decoding at once; a field given
//! twice is decoded into what the first left, so objects merge and lists merge element by element.

use serde_json::{Map, Number, Value};

use super::base64::{self, Alphabet};
use super::cursor::{Cursor, Token};
use super::special::{is_self_decoding, not_a_schema};
use super::strict::Strict;
use super::untyped::{Numbers, Untyped};
use super::{Budget, DecodeError, MAX_DEPTH, TypeMismatch, normal};
use crate::facts::{Shape, Type, facts};

pub(super) struct Typed<'a> {
    pub(super) cursor: Cursor<'a>,
    /// None inside types that decode themselves upstream: those report nothing.
    pub(super) strict: Option<Strict>,
    /// The first wrong type or bad base64.
    pub(super) saved: Option<DecodeError>,
    /// The struct whose field is being decoded, and the path of fields to it.
    struct_name: Option<&'static str>,
    stack: Vec<&'static str>,
    pub(super) depth: usize,
    pub(super) budget: Budget,
}

/// Where a value goes: its shape and Go's names for it.
#[derive(Clone, Copy)]
pub(super) struct Place<'f> {
    pub(super) shape: &'f Shape,
    /// Go type names from the outside in, separated by `|`.
    pub(super) names: &'static str,
    pub(super) level: usize,
    pub(super) pointer: bool,
}

impl<'f> Place<'f> {
    pub(super) fn go_type(&self) -> &'static str {
        self.names.split('|').nth(self.level).unwrap_or("interface {}")
    }

    fn element(&self, shape: &'f Shape) -> Self {
        Place {
            shape,
            names: self.names,
            level: self.level + 1,
            pointer: false,
        }
    }
}

impl<'a> Typed<'a> {
    pub(super) fn new(data: &'a [u8], strict: Option<Strict>) -> Self {
        Typed {
            cursor: Cursor::new(data),
            strict,
            saved: None,
            struct_name: None,
            stack: Vec::new(),
            depth: 0,
            budget: Budget::default(),
        }
    }

    /// Decodes the value at the cursor into `slot`, where null stands for unset.
    pub(super) fn value(&mut self, place: Place<'_>, slot: &mut Value) -> Result<(), DecodeError> {
        let token = self.cursor.peek();
        if token == Token::Null {
            self.cursor.raw();
            return self.null(place, slot);
        }
        match (place.shape, token) {
            (Shape::String, Token::String) => *slot = Value::String(self.cursor.string().into_owned()),
            (Shape::Bool, Token::True | Token::False) => {
                self.cursor.raw();
                *slot = Value::Bool(token == Token::True);
            }
            (Shape::Struct(id), Token::Object) => self.object(facts().ty(*id), slot)?,
            (Shape::List(element), Token::Array) => self.list(place.element(element), slot)?,
            (Shape::StringList, Token::Array) => self.list(place.element(&Shape::String), slot)?,
            (Shape::Map(element), Token::Object) => self.map(place.element(element), slot)?,
            (Shape::Bytes, Token::String) => self.bytes(slot),
            (Shape::Bytes, Token::Array) => self.byte_array(place, slot)?,
            (Shape::Float32 | Shape::Float64, Token::Number) => self.float(place, slot),
            (_, Token::Number) if integer_bounds(place.shape).is_some() => self.integer(place, slot),
            (Shape::Raw | Shape::FieldsV1 | Shape::Json, _) => *slot = self.any()?,
            (shape, _) if is_self_decoding(shape) => self.special(place, token, slot)?,
            _ => self.mismatch(token, place.go_type()),
        }
        Ok(())
    }

    fn null(&mut self, place: Place<'_>, slot: &mut Value) -> Result<(), DecodeError> {
        if place.pointer {
            *slot = Value::Null;
            return Ok(());
        }
        match place.shape {
            Shape::List(_) | Shape::StringList | Shape::Map(_) | Shape::Bytes => *slot = Value::Null,
            Shape::Time | Shape::MicroTime | Shape::SchemaOrArray(_) | Shape::SchemaOrStringArray(_) => {
                *slot = Value::Null;
            }
            Shape::Quantity => *slot = "0".into(),
            Shape::IntOrString if !slot.is_number() => *slot = 0.into(),
            Shape::Duration => return Err(DecodeError::Invalid(r#"time: invalid duration """#.into())),
            Shape::SchemaOrBool(_) => return Err(not_a_schema()),
            // Go leaves numbers, strings, booleans and structs as they were.
            _ => {}
        }
        Ok(())
    }

    fn enter(&mut self) -> Result<(), DecodeError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            Err(DecodeError::TooDeep)
        } else {
            Ok(())
        }
    }

    /// Ends an object or map; only those that hold something cost memory worth counting.
    fn leave(&mut self, is_empty: bool) -> Result<(), DecodeError> {
        self.depth -= 1;
        if is_empty || self.budget.spend() {
            Ok(())
        } else {
            Err(DecodeError::TooMany)
        }
    }

    fn object(&mut self, ty: &'static Type, slot: &mut Value) -> Result<(), DecodeError> {
        self.enter()?;
        let map = object_of(slot);
        let outer = (self.struct_name, self.stack.len());
        let mut seen = 0_u128;
        self.cursor.open();
        while self.cursor.more() {
            let key = self.cursor.key();
            let Some(at) = ty.field_index(&key) else {
                if let Some(strict) = &mut self.strict {
                    strict.unknown(&self.cursor, &key);
                }
                self.cursor.raw();
                continue;
            };
            let field = &ty.fields[at];
            if let Some(strict) = &mut self.strict {
                if seen & 1 << at != 0 {
                    strict.duplicate(&self.cursor, field.json);
                }
                strict.push_field(field.json);
            }
            seen |= 1 << at;
            self.struct_name = Some(ty.name);
            self.stack
                .extend(field.embedded.split('.').filter(|name| !name.is_empty()));
            self.stack.push(field.json);

            let is_null = self.cursor.peek() == Token::Null;
            let place = Place {
                shape: &field.shape,
                names: field.go_types,
                level: 0,
                pointer: field.pointer,
            };
            self.value(place, map.entry(field.json).or_insert(Value::Null))?;
            if is_null && field.pointer {
                map.remove(field.json);
            }

            self.stack.truncate(outer.1);
            self.struct_name = outer.0;
            if let Some(strict) = &mut self.strict {
                strict.pop();
            }
        }
        for (at, field) in ty.fields.iter().enumerate() {
            if seen & 1 << at != 0 {
                normal::drop_if_omitted(field, map);
            }
        }
        normal::add_always_printed(ty, map);
        self.leave(map.is_empty())
    }

    fn list(&mut self, element: Place<'_>, slot: &mut Value) -> Result<(), DecodeError> {
        self.enter()?;
        if !slot.is_array() {
            *slot = Value::Array(Vec::new());
        }
        let Value::Array(list) = slot else { return Ok(()) };
        let mut count = 0;
        self.cursor.open();
        while self.cursor.more() {
            if let Some(strict) = &mut self.strict {
                strict.push_index(count);
            }
            if count == list.len() {
                list.push(Value::Null);
            }
            self.element(element, &mut list[count])?;
            if let Some(strict) = &mut self.strict {
                strict.pop();
            }
            count += 1;
        }
        list.truncate(count);
        self.depth -= 1;
        Ok(())
    }

    fn map(&mut self, element: Place<'_>, slot: &mut Value) -> Result<(), DecodeError> {
        self.enter()?;
        let map = object_of(slot);
        // Keys of this object alone: those left by an earlier duplicate of the field are no duplicates.
        let mut fresh = Map::new();
        self.cursor.open();
        while self.cursor.more() {
            let at = self.cursor.offset();
            let key = self.cursor.key();
            if let Some(strict) = &mut self.strict {
                if fresh.contains_key(key.as_ref()) {
                    strict.duplicate(&self.cursor, &key);
                }
                strict.push_key(at);
            }
            let mut value = Value::Null;
            self.element(element, &mut value)?;
            fresh.insert(key.into_owned(), value);
            if let Some(strict) = &mut self.strict {
                strict.pop();
            }
        }
        if map.is_empty() {
            *map = fresh;
        } else {
            map.extend(fresh);
        }
        self.leave(map.is_empty())
    }

    fn element(&mut self, place: Place<'_>, slot: &mut Value) -> Result<(), DecodeError> {
        self.value(place, slot)?;
        if slot.is_null() {
            *slot = normal::zero(place.shape);
        }
        Ok(())
    }

    fn bytes(&mut self, slot: &mut Value) {
        let text = self.cursor.string();
        match base64::decode(&text, Alphabet::Standard) {
            Ok(bytes) => *slot = Value::String(base64::encode(&bytes)),
            Err(corrupt) => self.save(DecodeError::Invalid(corrupt.to_string())),
        }
    }

    /// Go also takes bytes as a list of numbers.
    fn byte_array(&mut self, place: Place<'_>, slot: &mut Value) -> Result<(), DecodeError> {
        let mut numbers = Value::Null;
        self.list(place.element(&Shape::Uint8), &mut numbers)?;
        let bytes = numbers.as_array().into_iter().flatten();
        let bytes: Vec<u8> = bytes
            .map(|n| n.as_u64().and_then(|n| u8::try_from(n).ok()).unwrap_or(0))
            .collect();
        *slot = Value::String(base64::encode(&bytes));
        Ok(())
    }

    fn integer(&mut self, place: Place<'_>, slot: &mut Value) {
        let literal = self.literal();
        let (min, max) = integer_bounds(place.shape).expect("the caller has checked that it is an integer");
        match literal.parse::<i128>() {
            Ok(integer) if (min..=max).contains(&integer) => {
                *slot = Value::Number(Number::from_i128(integer).expect("within the bounds of 64 bits"));
            }
            _ => self.save_mismatch(format!("number {literal}"), place.go_type()),
        }
    }

    fn float(&mut self, place: Place<'_>, slot: &mut Value) {
        let literal = self.literal();
        match literal.parse::<f64>().ok().filter(|f| f.is_finite()) {
            Some(float) => *slot = float_value(float),
            None => self.save_mismatch(format!("number {literal}"), place.go_type()),
        }
    }

    pub(super) fn literal(&mut self) -> &'a str {
        std::str::from_utf8(self.cursor.raw()).unwrap_or_default()
    }

    fn any(&mut self) -> Result<Value, DecodeError> {
        let mut untyped = Untyped {
            numbers: Numbers::Raw,
            strict: None,
            saved: None,
            depth: self.depth,
            budget: self.budget,
        };
        let value = untyped.value(&mut self.cursor)?;
        self.budget = untyped.budget;
        if let Some(mismatch) = untyped.saved {
            self.save(DecodeError::Type(mismatch));
        }
        Ok(value)
    }

    pub(super) fn mismatch(&mut self, token: Token, go_type: &'static str) {
        self.cursor.raw();
        self.save_mismatch(describe(token).into(), go_type);
    }

    fn save_mismatch(&mut self, found: String, go_type: &'static str) {
        let error = self.fatal(found, go_type);
        self.save(error);
    }

    pub(super) fn fatal(&self, found: String, go_type: &'static str) -> DecodeError {
        DecodeError::Type(self.in_context(TypeMismatch::new(found, go_type)))
    }

    fn save(&mut self, error: DecodeError) {
        self.saved.get_or_insert(error);
    }

    pub(super) fn in_context(&self, mut mismatch: TypeMismatch) -> TypeMismatch {
        if let Some(name) = self.struct_name {
            mismatch.struct_name = name;
            let mut path = self.stack.join(".");
            if !mismatch.field.is_empty() {
                path.push('.');
                path.push_str(&mismatch.field);
            }
            mismatch.field = path;
        }
        mismatch
    }
}

fn object_of(slot: &mut Value) -> &mut Map<String, Value> {
    if !slot.is_object() {
        *slot = Value::Object(Map::new());
    }
    slot.as_object_mut().expect("just made an object")
}

fn integer_bounds(shape: &Shape) -> Option<(i128, i128)> {
    Some(match shape {
        Shape::Int32 => (i32::MIN.into(), i32::MAX.into()),
        Shape::Int64 => (i64::MIN.into(), i64::MAX.into()),
        Shape::Uint8 => (0, u8::MAX.into()),
        Shape::Uint16 => (0, u16::MAX.into()),
        Shape::Uint32 => (0, u32::MAX.into()),
        Shape::Uint64 => (0, u64::MAX.into()),
        _ => return None,
    })
}

/// Go's word for a JSON value of the wrong type.
pub(super) fn describe(token: Token) -> &'static str {
    match token {
        Token::Object => "object",
        Token::Array => "array",
        Token::String => "string",
        Token::Number => "number",
        Token::True | Token::False => "bool",
        Token::Null => "null",
    }
}

/// A float in normal form: Go prints whole numbers without a fraction, so they are integers to whoever reads them, all but `-0`.
pub(crate) fn float_value(float: f64) -> Value {
    const EXACT: f64 = (1_u64 << 53) as f64;
    let negative_zero = float == 0.0 && float.is_sign_negative();
    if float.fract() == 0.0 && float.abs() <= EXACT && !negative_zero {
        return Value::from(float as i64);
    }
    Number::from_f64(float).map_or(Value::Null, Value::Number)
}

//! Messages into values in normal form.
//!
//! A field given twice merges into what the first left, as in upstream's generated code. Unknown fields are skipped.

use serde_json::{Map, Value};

use super::wire::{self, ProtobufError, Reader, Tag, WireType};
use crate::codec::{self, Budget, MAX_DEPTH};
use crate::facts::{Shape, TypeId, WireTarget, facts};
use crate::quantity::Quantity;
use crate::time::{Precision, Time};

pub(super) fn decode(ty: TypeId, data: &[u8]) -> Result<Value, ProtobufError> {
    let known = facts().ty(ty);
    if !known.protobuf {
        return Err(ProtobufError::NoProtobuf(known.go));
    }
    let mut decoder = Decoder {
        depth: 0,
        budget: Budget::default(),
    };
    let mut value = Value::Null;
    decoder.object(ty, data, &mut value)?;
    Ok(value)
}

struct Decoder {
    depth: usize,
    budget: Budget,
}

impl Decoder {
    /// Decodes a message into an object and brings that into normal form.
    fn object(&mut self, ty: TypeId, data: &[u8], slot: &mut Value) -> Result<(), ProtobufError> {
        let map = object_of(slot);
        self.message(ty, data, map)?;
        let ty = facts().ty(ty);
        for field in &ty.fields {
            codec::drop_if_omitted(field, map);
        }
        codec::add_always_printed(ty, map);
        if !map.is_empty() && !self.budget.spend() {
            return Err(ProtobufError::TooMany);
        }
        Ok(())
    }

    fn message(&mut self, id: TypeId, data: &[u8], map: &mut Map<String, Value>) -> Result<(), ProtobufError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(ProtobufError::TooDeep);
        }
        let ty = facts().ty(id);
        let mut reader = Reader::new(data);
        while let Some(tag) = reader.tag(ty.name)? {
            let found = ty.wire.binary_search_by_key(&tag.number, |wire| wire.number);
            match found.map(|at| ty.wire[at].target) {
                Err(_) => reader.skip(tag)?,
                Ok(WireTarget::Embedded(inner)) => {
                    tag.expect(WireType::Bytes, facts().ty(inner).name)?;
                    self.message(inner, reader.bytes()?, map)?;
                }
                Ok(WireTarget::Field(at)) => {
                    let field = &ty.fields[usize::from(at)];
                    let slot = map.entry(field.json).or_insert(Value::Null);
                    self.field(tag, &field.shape, field.go, &mut reader, slot)?;
                }
            }
        }
        self.depth -= 1;
        Ok(())
    }

    fn field(
        &mut self,
        tag: Tag,
        shape: &Shape,
        name: &'static str,
        reader: &mut Reader<'_>,
        slot: &mut Value,
    ) -> Result<(), ProtobufError> {
        match shape {
            Shape::List(element) => {
                if !slot.is_array() {
                    *slot = Value::Array(Vec::new());
                }
                let Value::Array(list) = slot else { return Ok(()) };
                // Repeated numbers may come packed.
                if wire_type(element) == WireType::Varint && tag.is(WireType::Bytes) {
                    let mut packed = Reader::new(reader.bytes()?);
                    while !packed.is_empty() {
                        list.push(number(element, packed.varint()?));
                    }
                    return Ok(());
                }
                let mut inner = Value::Null;
                self.field(tag, element, name, reader, &mut inner)?;
                list.push(inner);
                Ok(())
            }
            Shape::Map(element) => {
                tag.expect(WireType::Bytes, name)?;
                let (key, value) = self.entry(element, reader.bytes()?)?;
                object_of(slot).insert(key, value);
                Ok(())
            }
            _ => {
                tag.expect(wire_type(shape), name)?;
                self.value(shape, reader, slot)
            }
        }
    }

    fn entry(&mut self, element: &Shape, data: &[u8]) -> Result<(String, Value), ProtobufError> {
        let mut key = String::new();
        let mut value = match element {
            Shape::Bytes => Value::String(String::new()),
            Shape::StringList => Value::Array(Vec::new()),
            _ => codec::zero(element),
        };
        let mut reader = Reader::new(data);
        while let Some(tag) = reader.entry_tag()? {
            match tag.number {
                // Upstream does not look at the wire type here.
                1 => key = wire::text(reader.bytes()?),
                2 => self.value(element, &mut reader, &mut value)?,
                _ => reader.skip(tag)?,
            }
        }
        Ok((key, value))
    }

    fn value(&mut self, shape: &Shape, reader: &mut Reader<'_>, slot: &mut Value) -> Result<(), ProtobufError> {
        match wire_type(shape) {
            WireType::Varint => *slot = number(shape, reader.varint()?),
            WireType::Fixed64 => *slot = codec::float_value(f64::from_bits(reader.fixed64()?)),
            WireType::Bytes => {
                let data = reader.bytes()?;
                match shape {
                    Shape::String => *slot = Value::String(wire::text(data)),
                    Shape::Bytes => *slot = Value::String(codec::base64::encode(data)),
                    Shape::Struct(id) => self.object(*id, data, slot)?,
                    Shape::SchemaOrBool(id) => self.schema_or_bool(*id, data, slot)?,
                    Shape::SchemaOrArray(id) => self.schema_or_list(*id, &Shape::Struct(*id), data, slot)?,
                    Shape::SchemaOrStringArray(id) => self.schema_or_list(*id, &Shape::String, data, slot)?,
                    Shape::StringList => {
                        let list = Shape::List(Box::new(Shape::String));
                        *slot = Value::Array(Vec::new());
                        self.numbered("StringList", &[(1, &list)], data, &mut [slot])?;
                    }
                    _ => *slot = special(shape, data)?,
                }
            }
        }
        Ok(())
    }

    fn schema_or_bool(&mut self, id: TypeId, data: &[u8], slot: &mut Value) -> Result<(), ProtobufError> {
        let (mut allows, mut schema) = (Value::Bool(false), Value::Null);
        let fields = [(1, &Shape::Bool), (2, &Shape::Struct(id))];
        self.numbered("JSONSchemaPropsOrBool", &fields, data, &mut [&mut allows, &mut schema])?;
        *slot = if schema.is_null() { allows } else { schema };
        Ok(())
    }

    fn schema_or_list(
        &mut self,
        id: TypeId,
        element: &Shape,
        data: &[u8],
        slot: &mut Value,
    ) -> Result<(), ProtobufError> {
        let (mut schema, mut list) = (Value::Null, Value::Null);
        let repeated = Shape::List(Box::new(element.clone()));
        let fields = [(1, &Shape::Struct(id)), (2, &repeated)];
        self.numbered("JSONSchemaPropsOrArray", &fields, data, &mut [&mut schema, &mut list])?;
        *slot = if list.is_null() { schema } else { list };
        Ok(())
    }

    /// Reads a small message that the table does not describe: each numbered field into its slot.
    fn numbered(
        &mut self,
        name: &'static str,
        fields: &[(u32, &Shape)],
        data: &[u8],
        slots: &mut [&mut Value],
    ) -> Result<(), ProtobufError> {
        let mut reader = Reader::new(data);
        while let Some(tag) = reader.tag(name)? {
            match fields.iter().position(|(number, _)| *number == tag.number) {
                Some(at) => self.field(tag, fields[at].1, name, &mut reader, slots[at])?,
                None => reader.skip(tag)?,
            }
        }
        Ok(())
    }
}

fn object_of(slot: &mut Value) -> &mut Map<String, Value> {
    if !slot.is_object() {
        *slot = Value::Object(Map::new());
    }
    slot.as_object_mut().expect("just made an object")
}

fn wire_type(shape: &Shape) -> WireType {
    match shape {
        Shape::Bool | Shape::Int32 | Shape::Int64 => WireType::Varint,
        Shape::Uint8 | Shape::Uint16 | Shape::Uint32 | Shape::Uint64 => WireType::Varint,
        Shape::Float32 | Shape::Float64 => WireType::Fixed64,
        _ => WireType::Bytes,
    }
}

fn number(shape: &Shape, varint: u64) -> Value {
    match shape {
        Shape::Bool => Value::Bool(varint != 0),
        Shape::Int32 => (varint as i32).into(),
        Shape::Uint8 => (varint as u8).into(),
        Shape::Uint16 => (varint as u16).into(),
        Shape::Uint32 => (varint as u32).into(),
        Shape::Uint64 => varint.into(),
        _ => (varint as i64).into(),
    }
}

/// The types that are a message in protobuf and a scalar or any JSON in JSON.
fn special(shape: &Shape, data: &[u8]) -> Result<Value, ProtobufError> {
    let mut varints = [0_u64; 4];
    let mut texts: [&[u8]; 4] = [&[]; 4];
    let mut present = [false; 4];
    let mut reader = Reader::new(data);
    while let Some(tag) = reader.tag("message")? {
        let at = tag.number as usize;
        match tag.wire_type {
            0 if at < 4 => varints[at] = reader.varint()?,
            2 if at < 4 => {
                texts[at] = reader.bytes()?;
                present[at] = true;
            }
            _ => reader.skip(tag)?,
        }
    }
    Ok(match shape {
        Shape::Time | Shape::MicroTime if data.is_empty() => Value::Null,
        Shape::Time => time(Precision::Second, varints[1] as i64, 0)?,
        Shape::MicroTime => time(Precision::Micro, varints[1] as i64, varints[2] as i32)?,
        Shape::Duration => Value::String(crate::duration::format_go(varints[1] as i64)),
        Shape::Quantity if !present[1] => "0".into(),
        Shape::Quantity => match Quantity::parse(&wire::text(texts[1])) {
            Ok(quantity) => Value::String(quantity.to_string()),
            Err(error) => return Err(ProtobufError::Invalid(error.to_string())),
        },
        Shape::IntOrString if varints[1] == 0 => (varints[2] as i32).into(),
        Shape::IntOrString => Value::String(wire::text(texts[3])),
        _ if texts[1].is_empty() => Value::Null,
        // Managed fields never fail a write: what is no JSON there is dropped.
        Shape::FieldsV1 => codec::decode_raw(texts[1]).unwrap_or(Value::Null),
        _ => codec::decode_raw(texts[1]).map_err(|error| ProtobufError::Invalid(error.to_string()))?,
    })
}

fn time(precision: Precision, seconds: i64, nanos: i32) -> Result<Value, ProtobufError> {
    let time = Time::from_unix(seconds, nanos);
    let time = time.ok_or_else(|| ProtobufError::Invalid("time is out of the range that JSON can show".into()))?;
    Ok(if time.is_zero() {
        Value::Null
    } else {
        Value::String(time.format(precision))
    })
}

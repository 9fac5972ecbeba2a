//! Protobuf of built-in kinds, as typed clients send and want it.
//!
//! Owns the `k8s\0` envelope, the watch frame and the messages of every type in [`facts`](crate::facts), which knows the
//! field numbers. The rules are those of upstream's generated code (proto2 without presence): a field that Go holds by
//! value is always written, a pointer only when set; maps are sorted; embedded structs are messages of their own.
//!
//! Invariant: encoding reads, and decoding makes, values in the normal form of [`codec`](crate::codec). Protobuf has no
//! empty lists and maps: they come back as unset.

mod decode;
mod encode;
#[cfg(test)]
mod tests;
mod wire;

use serde_json::Value;

pub use wire::ProtobufError;

use crate::facts::{TypeId, facts};
use wire::{Backward, Reader, WireType};

/// The bytes that every enveloped message begins with.
pub const PREFIX: [u8; 4] = *b"k8s\0";

/// An enveloped object, opened but not decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope<'a> {
    pub api_version: String,
    pub kind: String,
    /// The message.
    pub raw: &'a [u8],
}

/// Opens an envelope: the prefix and upstream's `runtime.Unknown`.
pub fn open(data: &[u8]) -> Result<Envelope<'_>, ProtobufError> {
    let body = match data.strip_prefix(&PREFIX) {
        _ if data.is_empty() => return Err(ProtobufError::Empty("empty data")),
        None => return Err(ProtobufError::NoPrefix),
        Some([]) => return Err(ProtobufError::Empty("empty body")),
        Some(body) => body,
    };
    let mut envelope = Envelope {
        api_version: String::new(),
        kind: String::new(),
        raw: &[],
    };
    let mut reader = Reader::new(body);
    while let Some(tag) = reader.tag("Unknown")? {
        match tag.number {
            1 => {
                tag.expect(WireType::Bytes, "TypeMeta")?;
                read_type_meta(reader.bytes()?, &mut envelope)?;
            }
            2 => {
                tag.expect(WireType::Bytes, "Raw")?;
                envelope.raw = reader.bytes()?;
            }
            _ => reader.skip(tag)?,
        }
    }
    Ok(envelope)
}

fn read_type_meta(data: &[u8], envelope: &mut Envelope<'_>) -> Result<(), ProtobufError> {
    let mut reader = Reader::new(data);
    while let Some(tag) = reader.tag("TypeMeta")? {
        match tag.number {
            1 => {
                tag.expect(WireType::Bytes, "APIVersion")?;
                envelope.api_version = wire::text(reader.bytes()?);
            }
            2 => {
                tag.expect(WireType::Bytes, "Kind")?;
                envelope.kind = wire::text(reader.bytes()?);
            }
            _ => reader.skip(tag)?,
        }
    }
    Ok(())
}

/// Puts a message into an envelope.
pub fn seal(api_version: &str, kind: &str, message: &[u8]) -> Vec<u8> {
    let mut type_meta = Backward::default();
    type_meta.field_bytes(2, kind.as_bytes());
    type_meta.field_bytes(1, api_version.as_bytes());
    let mut out = Backward::default();
    // Content type and encoding are always there and always empty.
    out.field_bytes(4, b"");
    out.field_bytes(3, b"");
    out.field_bytes(2, message);
    out.field_bytes(1, &type_meta.finish());
    out.raw(&PREFIX);
    out.finish()
}

/// Decodes a message into the normal form of a type. Apiversion and kind are not in it: the envelope has them.
pub fn decode(ty: TypeId, message: &[u8]) -> Result<Value, ProtobufError> {
    decode::decode(ty, message)
}

/// Encodes a value of a type as a message, without an envelope.
pub fn encode(ty: TypeId, value: &Value) -> Result<Vec<u8>, ProtobufError> {
    let known = facts().ty(ty);
    if !known.protobuf {
        return Err(ProtobufError::NoProtobuf(known.go));
    }
    Ok(encode::encode(ty, value))
}

/// Encodes an object in an envelope that carries the object's own apiVersion and kind.
pub fn encode_object(ty: TypeId, object: &Value) -> Result<Vec<u8>, ProtobufError> {
    let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
    Ok(seal(text("apiVersion"), text("kind"), &encode(ty, object)?))
}

/// Makes a watch frame: the length in four bytes, then a `WatchEvent` around an enveloped object.
pub fn watch_frame(event_type: &str, envelope: &[u8]) -> Vec<u8> {
    let mut object = Backward::default();
    object.field_bytes(1, envelope);
    let mut event = Backward::default();
    event.field_bytes(2, &object.finish());
    event.field_bytes(1, event_type.as_bytes());
    let event = event.finish();
    let length = u32::try_from(event.len()).expect("an object is far smaller than 4 GiB");
    [&length.to_be_bytes(), event.as_slice()].concat()
}

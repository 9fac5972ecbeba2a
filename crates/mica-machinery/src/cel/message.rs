//! The messages of protobuf that expressions can make: `google.protobuf.Int32Value{value: 1}`.
//!
//! None stays a message but the empty one: wrappers become what they wrap, structures maps, and times what functions of
//! their names make. Fields are filled as cel-go fills Go's structures, whose types show in error texts
//! (`common/types/provider.go`). What `Any` packs is not unpacked.

use super::library::time::{self, Instant};
use super::library::{EvalError, Host};
use super::native;
use super::types::Type;
use super::value::{Entries, List, Map, Val};
use crate::codec::base64;

const PACKAGE: &str = "google.protobuf.";
pub const EMPTY: &str = "google.protobuf.Empty";

/// The one value of an enumeration: a number.
pub const NULL_VALUE: &str = "google.protobuf.NullValue.NULL_VALUE";

/// What a value of JSON counts, however small: a map takes some hundreds of bytes.
const NODE: u64 = 64;
/// Room that is made at once: the list may be longer than can be afforded.
const MAX_RESERVED: usize = 1024;

/// Whole numbers beyond this are texts in JSON: a double cannot tell them from their neighbours.
const MAX_EXACT: u64 = (1 << 53) - 1;

/// What is made of a message of this name, if there is one.
pub fn type_of(name: &str) -> Option<Type> {
    Some(match name.strip_prefix(PACKAGE)? {
        "Duration" => Type::Duration,
        "Timestamp" => Type::Timestamp,
        "Empty" => Type::object(name),
        "Struct" => Type::map(Type::String, Type::Dyn),
        "ListValue" => Type::list(Type::Dyn),
        "Value" | "Any" => Type::Dyn,
        wrapper => Type::Wrapper(wrapped(wrapper)?.into()),
    })
}

fn wrapped(wrapper: &str) -> Option<Type> {
    Some(match wrapper {
        "BoolValue" => Type::Bool,
        "BytesValue" => Type::Bytes,
        "DoubleValue" | "FloatValue" => Type::Double,
        "Int32Value" | "Int64Value" => Type::Int,
        "StringValue" => Type::String,
        "UInt32Value" | "UInt64Value" => Type::Uint,
        _ => return None,
    })
}

/// The type of a message's field.
pub fn field_type(message: &str, field: &str) -> Option<Type> {
    Some(match (message.strip_prefix(PACKAGE)?, field) {
        ("Duration" | "Timestamp", "seconds" | "nanos") => Type::Int,
        ("Struct", "fields") | ("Value", "struct_value") => Type::map(Type::String, Type::Dyn),
        ("ListValue", "values") | ("Value", "list_value") => Type::list(Type::Dyn),
        ("Value", "null_value") => Type::Int,
        ("Value", "number_value") => Type::Double,
        ("Value", "string_value") | ("Any", "type_url") => Type::String,
        ("Value", "bool_value") => Type::Bool,
        ("Any", "value") => Type::Bytes,
        (wrapper, "value") => wrapped(wrapper)?,
        _ => return None,
    })
}

/// Makes a message of checked fields.
pub fn make<'a>(host: &mut Host<'_>, name: &str, fields: &Entries<'a>) -> Result<Val<'a>, EvalError> {
    let Some(message) = name.strip_prefix(PACKAGE) else {
        return Err(EvalError::failed(format!("unknown type '{name}'")));
    };
    let mut values = Vec::new();
    for (field, value) in fields.values() {
        let Val::String(field) = field else { continue };
        values.push((&**field, fill(host, message, field, value)?));
    }
    let whole = |name: &str| match values.iter().find(|(field, _)| *field == name) {
        Some((_, Val::Int(value))) => *value,
        _ => 0,
    };
    match message {
        "Duration" => {
            let nanos = i128::from(whole("seconds")) * 1_000_000_000 + i128::from(whole("nanos"));
            let bounded = nanos.clamp(i64::MIN.into(), i64::MAX.into());
            return Ok(Val::Duration(bounded as i64));
        }
        "Timestamp" => {
            let moved = Instant::from_unix(whole("seconds")).and_then(|at| at.plus(whole("nanos")));
            return moved
                .map(Val::Timestamp)
                .ok_or_else(|| EvalError::failed("timestamp overflow"));
        }
        "Empty" => return Ok(Val::Object(EMPTY.into(), Map::owned(Entries::new()))),
        "Any" => {
            let text = match values.iter().find(|(field, _)| *field == "type_url") {
                Some((_, Val::String(url))) if !url.is_empty() => format!("type_url:{}", crate::field::quote(url)),
                _ => String::new(),
            };
            let why = format!("unsupported conversion to ref.Val: (*dynamicpb.Message){text}");
            return Err(EvalError::Failed(why));
        }
        _ => {}
    }
    let zero = || match (message, wrapped(message)) {
        ("Struct", _) => Val::Map(Map::owned(Entries::new())),
        ("ListValue", _) => Val::list(Vec::new()),
        (_, Some(Type::Bool)) => Val::Bool(false),
        (_, Some(Type::Bytes)) => Val::Bytes(Vec::new().into()),
        (_, Some(Type::Double)) => Val::Double(0.0),
        (_, Some(Type::Int)) => Val::Int(0),
        (_, Some(Type::String)) => Val::string(""),
        (_, Some(Type::Uint)) => Val::Uint(0),
        _ => Val::Null,
    };
    Ok(values.pop().map_or_else(zero, |(_, value)| value))
}

/// A value as the field holds it.
fn fill<'a>(host: &mut Host<'_>, message: &str, field: &str, value: &Val<'a>) -> Result<Val<'a>, EvalError> {
    let unsupported = || {
        let of = match value {
            Val::List(_) => "list(dyn)".to_owned(),
            Val::Map(_) => "map(dyn, dyn)".to_owned(),
            other => other.type_of().runtime_name().to_owned(),
        };
        EvalError::failed(format!("unsupported field type for {PACKAGE}{message}.{field}: {of}"))
    };
    let filled = match (message, field, value) {
        ("Struct", _, Val::Map(map)) => entries(host, map),
        ("ListValue", _, Val::List(list)) => items(host, list),
        ("Struct" | "ListValue", ..) => return Err(unsupported()),
        (_, "struct_value" | "list_value", value) => whole_json(host, field, value),
        (_, "null_value", value) => scalar(value, "protoreflect.EnumNumber").map(|_| Val::Null),
        _ => scalar(value, go_type(message, field)),
    };
    filled.map_err(|error| match error {
        EvalError::Failed(why) => EvalError::Failed(format!(
            "field type conversion error for {PACKAGE}{message}.{field} value type: {why}"
        )),
        fatal => fatal,
    })
}

fn go_type(message: &str, field: &str) -> &'static str {
    match (message, field) {
        ("BoolValue", _) | (_, "bool_value") => "bool",
        ("BytesValue", _) | ("Any", "value") => "[]uint8",
        ("DoubleValue", _) | (_, "number_value") => "float64",
        ("FloatValue", _) => "float32",
        ("Int32Value", _) | (_, "nanos") => "int32",
        ("Int64Value", _) | (_, "seconds") => "int64",
        ("UInt32Value", _) => "uint32",
        ("UInt64Value", _) => "uint64",
        _ => "string",
    }
}

fn scalar<'a>(value: &Val<'a>, to: &str) -> Result<Val<'a>, EvalError> {
    let overflow = |fits: bool, text: &str| match fits {
        true => Ok(value.clone()),
        false => Err(EvalError::failed(text)),
    };
    match (value, to) {
        (Val::Optional(Some(value)), _) => scalar(&value.taken_out()?, to),
        (Val::Bool(_), "bool")
        | (Val::Bytes(_), "[]uint8")
        | (Val::Double(_), "float64")
        | (Val::Int(_), "int64")
        | (Val::Uint(_), "uint64")
        | (Val::String(_), "string") => Ok(value.clone()),
        (Val::Double(value), "float32") => Ok(Val::Double(f64::from(*value as f32))),
        (Val::Int(value), "int32" | "protoreflect.EnumNumber") => {
            overflow(i32::try_from(*value).is_ok(), "integer overflow")
        }
        (Val::Uint(value), "uint32") => overflow(u32::try_from(*value).is_ok(), "unsigned integer overflow"),
        (Val::Lost(_), _) => Err(unconverted(value, to)),
        (_, "string") => match native::lost(value) {
            Some((_, text)) => Ok(Val::string(text)),
            None => Err(unconverted(value, to)),
        },
        _ => Err(unconverted(value, to)),
    }
}

/// In what words a value is refused that cannot become something of Go's type.
fn unconverted(value: &Val<'_>, to: &str) -> EvalError {
    let from = match value {
        Val::Int(_) => return EvalError::failed(format!("unsupported type conversion from 'int' to {to}")),
        Val::Uint(_) => return EvalError::failed(format!("unsupported type conversion from 'uint' to {to}")),
        Val::String(_) => return EvalError::failed(format!("unsupported native conversion from string to '{to}'")),
        Val::Type(_) => return EvalError::failed("type conversion not supported for 'type'"),
        Val::Optional(None) => return EvalError::failed("optional.none() dereference"),
        Val::Bool(_) => "bool",
        Val::Double(_) => "Double",
        Val::Bytes(_) => "Bytes",
        Val::List(list) if list.kind().is_none() => "list",
        Val::Map(map) if !map.has_schema() => "map",
        Val::List(_) => "'list(dyn)'",
        Val::Map(_) => "'map(dyn, dyn)'",
        Val::Null => "'null_type'",
        Val::Duration(_) => "'Duration'",
        Val::Timestamp(_) => "'Timestamp'",
        Val::Ip(_) => "'IP'",
        Val::Cidr(_) => "'CIDR'",
        Val::Quantity(..) => "'Quantity'",
        Val::Url(_) => "'URL'",
        Val::Semver(_) => "'Semver'",
        Val::Format(_) => "'Format'",
        _ => "'*dynamicpb.Message'",
    };
    EvalError::failed(format!("type conversion error from {from} to '{to}'"))
}

/// A map or list as JSON.
fn whole_json<'a>(host: &mut Host<'_>, field: &str, value: &Val<'a>) -> Result<Val<'a>, EvalError> {
    match (field, value) {
        (_, Val::Optional(Some(value))) => whole_json(host, field, &value.taken_out()?),
        ("struct_value", Val::Map(map)) if !map.has_schema() => entries(host, map),
        ("list_value", Val::List(list)) if list.kind().is_none() => items(host, list),
        ("struct_value", value) => Err(unconverted(value, "*structpb.Struct")),
        (_, value) => Err(unconverted(value, "*structpb.ListValue")),
    }
}

fn items<'a>(host: &mut Host<'_>, list: &List<'a>) -> Result<Val<'a>, EvalError> {
    let mut items = Vec::with_capacity(list.len().min(MAX_RESERVED));
    for item in list.iter() {
        items.push(json(host, &item?)?);
    }
    Ok(Val::list(items))
}

fn entries<'a>(host: &mut Host<'_>, map: &Map<'a>) -> Result<Val<'a>, EvalError> {
    let mut entries = Entries::new();
    for key in map.keys() {
        let value = map.find(&key)?.unwrap_or(Val::Null);
        let key = scalar(&key, "string")?;
        let value = json(host, &value)?;
        host.put(&mut entries, key, value)?;
    }
    Ok(Val::Map(Map::owned(entries)))
}

/// A value as JSON knows it: all numbers are doubles.
fn json<'a>(host: &mut Host<'_>, value: &Val<'a>) -> Result<Val<'a>, EvalError> {
    host.work(NODE)?;
    Ok(match value {
        Val::Null | Val::Bool(_) | Val::Double(_) | Val::String(_) => value.clone(),
        Val::Int(value) if value.unsigned_abs() <= MAX_EXACT => Val::Double(*value as f64),
        Val::Uint(value) if *value <= MAX_EXACT => Val::Double(*value as f64),
        Val::Int(_) | Val::Uint(_) => Val::string(value.to_string()),
        Val::Bytes(bytes) => {
            host.copy(bytes.len())?;
            Val::string(base64::encode(bytes))
        }
        Val::Duration(nanos) => Val::string(time::format_duration(*nanos)),
        Val::Timestamp(instant) => Val::string(Instant { offset: 0, ..*instant }.to_string()),
        Val::Optional(Some(value)) => return json(host, &value.taken_out()?),
        Val::List(list) if list.kind().is_none() => return items(host, list),
        Val::Map(map) if !map.has_schema() => return entries(host, map),
        Val::Object(name, map) if &**name == EMPTY => Val::Map(map.clone()),
        other => return Err(unconverted(other, "*structpb.Value")),
    })
}

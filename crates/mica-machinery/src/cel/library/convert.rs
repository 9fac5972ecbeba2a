//! Conversions between types: `int(x)`, `string(x)` and the like.

use super::time::{self, Instant};
use super::{EvalError, Host, Implementation, Outcome, float};
use crate::cel::types::Type;
use crate::cel::value::{Text, Val};

/// Whether a conversion of a constant is done when the program is made.
pub fn is_folded(name: &str) -> bool {
    matches!(
        name,
        "bool" | "bytes" | "double" | "duration" | "dyn" | "int" | "string" | "timestamp" | "type" | "uint"
    )
}

pub fn find(name: &str) -> Option<Implementation> {
    Some(match name {
        "bool" => |_, args| convert(args, Type::Bool),
        "bytes" => |_, args| convert(args, Type::Bytes),
        "double" => |_, args| convert(args, Type::Double),
        "duration" => |_, args| convert(args, Type::Duration),
        "int" => |_, args| convert(args, Type::Int),
        "string" => |_, args| convert(args, Type::String),
        "timestamp" => |_, args| convert(args, Type::Timestamp),
        "uint" => |_, args| convert(args, Type::Uint),
        "dyn" => |_, args| Ok(args[0].clone()),
        "type" => |_, args| match &args[0] {
            Val::Preserved(_) => Err(EvalError::failed(
                "type conversion to 'type' not supported for values preserved by x-kubernetes-preserve-unknown-fields",
            )),
            value => Ok(Val::Type(value.type_of())),
        },
        "jsonpatch.escapeKey" => escape_key,
        _ => return None,
    })
}

fn convert<'a>(args: &[Val<'a>], to: Type) -> Outcome<'a> {
    let [value] = args else {
        return Err(EvalError::no_overload());
    };
    let overflow = |unsigned: bool| {
        EvalError::failed(if unsigned {
            "unsigned integer overflow"
        } else {
            "integer overflow"
        })
    };
    let converted = match (value, &to) {
        (Val::Int(value), Type::Uint) => Some(Val::Uint(u64::try_from(*value).map_err(|_| overflow(true))?)),
        (Val::Int(value), Type::Double) => Some(Val::Double(*value as f64)),
        (Val::Int(value), Type::Timestamp) => {
            let instant = Instant::from_unix(*value).ok_or_else(|| EvalError::failed("timestamp overflow"))?;
            Some(Val::Timestamp(instant))
        }
        (Val::Uint(value), Type::Int) => Some(Val::Int(i64::try_from(*value).map_err(|_| overflow(false))?)),
        (Val::Uint(value), Type::Double) => Some(Val::Double(*value as f64)),
        (Val::Double(value), Type::Int) => {
            let fits = value.is_finite() && *value > i64::MIN as f64 && *value < i64::MAX as f64;
            Some(Val::Int(if fits {
                *value as i64
            } else {
                return Err(overflow(false));
            }))
        }
        (Val::Double(value), Type::Uint) => {
            let fits = value.is_finite() && *value >= 0.0 && *value < u64::MAX as f64;
            Some(Val::Uint(if fits {
                *value as u64
            } else {
                return Err(overflow(true));
            }))
        }
        (Val::Duration(nanos), Type::Int) => Some(Val::Int(*nanos)),
        (Val::Timestamp(instant), Type::Int) => Some(Val::Int(instant.seconds)),
        (Val::Bytes(bytes), Type::String) => {
            let text = std::str::from_utf8(bytes);
            Some(Val::string(text.map_err(|_| {
                EvalError::failed("invalid UTF-8 in bytes, cannot convert to string")
            })?))
        }
        (Val::String(text), to) => from_string(text, to)?,
        (value, Type::String) => to_string(value).map(Val::string),
        _ => None,
    };
    match converted {
        Some(value) => Ok(value),
        None if value.type_of() == to => Ok(value.clone()),
        // Only of texts some can be converted and others not.
        None if !matches!((value, &to), (Val::String(_), _) | (Val::Int(_), Type::Duration)) => {
            Err(EvalError::no_overload())
        }
        None => Err(conversion_error(value, &to)),
    }
}

fn conversion_error(value: &Val<'_>, to: &Type) -> EvalError {
    let (from, to) = (value.type_of(), to.runtime_name());
    EvalError::failed(format!(
        "type conversion error from '{}' to '{to}'",
        from.runtime_name()
    ))
}

fn to_string(value: &Val<'_>) -> Option<String> {
    Some(match value {
        Val::Bool(value) => value.to_string(),
        Val::Int(value) => value.to_string(),
        Val::Uint(value) => value.to_string(),
        Val::Double(value) => format_double(*value),
        Val::Duration(nanos) => time::format_duration(*nanos),
        Val::Timestamp(instant) => instant.to_string(),
        Val::Ip(address) => address.to_string(),
        Val::Cidr(cidr) => cidr.to_string(),
        _ => return None,
    })
}

fn from_string<'a>(text: &Text<'a>, to: &Type) -> Result<Option<Val<'a>>, EvalError> {
    Ok(match to {
        Type::Int => go_integer(text).map(Val::Int),
        Type::Uint => text
            .bytes()
            .all(|b| b.is_ascii_digit())
            .then(|| text.parse().ok())
            .flatten()
            .map(Val::Uint),
        Type::Double => float::parse(text).map(Val::Double),
        Type::Bool => match &**text {
            "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(Val::Bool(true)),
            "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(Val::Bool(false)),
            _ => None,
        },
        Type::Bytes => Some(Val::Bytes(text.as_bytes().into())),
        Type::Duration => time::parse_duration(text).map(Val::Duration),
        Type::Timestamp => match time::parse_timestamp(text) {
            Ok(instant) => Some(Val::Timestamp(instant)),
            Err(time::Unparsed::OutOfRange) => return Err(EvalError::failed("timestamp overflow")),
            Err(time::Unparsed::Malformed) => None,
        },
        Type::String => Some(Val::String(text.clone())),
        _ => None,
    })
}

fn go_integer(text: &str) -> Option<i64> {
    text.parse().ok()
}

/// A double as Go's `%g` writes it: the shortest digits, with an exponent from a million on.
pub fn format_double(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').expect("the format writes an exponent");
    let exponent: i32 = exponent.parse().expect("the exponent is a number");
    if value != 0.0 && !(-4..6).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.abs());
    }
    format!("{value}")
}

fn escape_key<'a>(_: &mut Host<'_>, args: &[Val<'a>]) -> Outcome<'a> {
    match args {
        [Val::String(key)] => {
            let mut out = String::with_capacity(key.len());
            for c in key.chars() {
                match c {
                    '/' => out.push_str("~1"),
                    '~' => out.push_str("~0"),
                    c => out.push(c),
                }
            }
            Ok(Val::string(out))
        }
        _ => Err(EvalError::no_overload()),
    }
}

//! Values as upstream keeps them underneath: what an optional that is looked into, or a list with a schema, makes of a value.
//!
//! A list that came with a schema stays one when something is added to it. What is added is taken down to what is underneath
//! and read anew by that schema whenever it is used, which fails for all that is no JSON: a duration is not the text that the
//! schema speaks of. Sets and lists with keys tell elements apart by what is underneath, too.

use serde_json::Value;

use super::library::{EvalError, Host};
use super::schema::{Kind, Schema};
use super::value::{Key, Map, Val, formatted};

static NOTHING: Value = Value::Null;

#[derive(Debug, Clone)]
pub enum Native<'a> {
    Json(&'a Value),
    /// Any other value, without its schema.
    Made(Val<'a>),
}

impl<'a> Native<'a> {
    pub fn of(value: Val<'a>) -> Self {
        match value {
            Val::Preserved(value) => Self::Json(value),
            Val::Map(Map::Json(map, _)) => Self::Made(Val::Map(Map::Json(map, None))),
            Val::List(list) => Self::Made(Val::List(list.untyped())),
            Val::Optional(Some(value)) => Self::of((*value).clone()),
            Val::Optional(None) => Self::Json(&NOTHING),
            Val::Type(of) => Self::Made(Val::string(of.runtime_name())),
            value => Self::Made(value),
        }
    }

    /// Reads it by a schema.
    pub fn read(self, schema: &'a Schema) -> Result<Val<'a>, String> {
        let value = match self {
            Self::Json(value) => return Val::typed(value, schema),
            Self::Made(value) => value,
        };
        let what = match (schema.kind, value) {
            (Kind::IntOrString, value @ (Val::String(_) | Val::Int(_))) => return Ok(value),
            (Kind::Object, Val::Map(Map::Json(map, _))) => return Ok(Val::Map(Map::Json(map, Some(schema)))),
            (Kind::Array, Val::List(list)) if !list.is_owned() && schema.items.is_some() => {
                return Ok(Val::List(list.typed(schema)));
            }
            (Kind::String, Val::String(text)) => return formatted(text, &schema.format),
            (Kind::Number, Val::Int(value)) => return Ok(Val::Double(value as f64)),
            (Kind::Number, value @ Val::Double(_))
            | (Kind::Integer, value @ Val::Int(_))
            | (Kind::Boolean, value @ Val::Bool(_))
            | (Kind::Unknown, value) => return Ok(value),
            (_, value) => go_type(&value),
        };
        Err(match schema.kind {
            Kind::IntOrString => {
                "invalid data, expected XIntOrString value to be either a string or integer".to_owned()
            }
            Kind::Object => "invalid data, expected a map for the provided schema with type=object".to_owned(),
            Kind::Array => "invalid data, expected an array for the provided schema with type=array".to_owned(),
            Kind::String => format!("invalid data, expected string, got {what}"),
            Kind::Number => format!("invalid data, expected float, got {what}"),
            Kind::Integer => format!("invalid data, expected int, got {what}"),
            Kind::Boolean | Kind::Unknown => format!("invalid data, expected bool, got {what}"),
        })
    }

    /// What tells elements of a set apart; nothing is like what has none. Upstream breaks down at what no set can hold.
    pub fn key(&self, host: &mut Host<'_>) -> Result<Option<Key>, EvalError> {
        let json;
        let value = match self {
            Self::Json(value) => {
                json = Val::dynamic(value);
                &json
            }
            Self::Made(value) => value,
        };
        match value {
            Val::Bytes(_) | Val::List(_) | Val::Map(_) => {
                let why = format!("runtime error: hash of unhashable type {}", go_type(value));
                Err(EvalError::Broken(why))
            }
            value => {
                if let Val::String(text) = value {
                    host.copy(text.len())?;
                }
                Ok(Key::of(value))
            }
        }
    }

    /// What tells elements of a list with these key fields apart.
    pub fn fields(&self, host: &mut Host<'_>, names: &[String]) -> Result<Option<String>, EvalError> {
        let map = match self {
            Self::Json(Value::Object(map)) => Some(map),
            Self::Made(Val::Map(map)) => map.json(),
            _ => None,
        };
        let text = map.and_then(|map| {
            let fields: Vec<_> = names.iter().map(|name| map.get(name)).collect();
            serde_json::to_string(&fields).ok()
        });
        host.copy(text.as_ref().map_or(0, String::len))?;
        Ok(text)
    }
}

/// What Go calls what is underneath a value.
fn go_type(value: &Val<'_>) -> &'static str {
    match value {
        Val::Null => "structpb.NullValue",
        Val::Bool(_) => "bool",
        Val::Int(_) => "int64",
        Val::Uint(_) => "uint64",
        Val::Double(_) => "float64",
        Val::String(_) => "string",
        Val::Bytes(_) => "[]uint8",
        Val::Duration(_) => "time.Duration",
        Val::Timestamp(_) => "time.Time",
        Val::List(list) if list.is_owned() => "[]ref.Val",
        Val::List(_) => "[]interface {}",
        Val::Map(Map::Json(..)) => "map[string]interface {}",
        Val::Map(Map::Owned(_)) => "map[ref.Val]ref.Val",
        other => lost(other).map_or("ref.Val", |(what, _)| what),
    }
}

/// What is underneath a value that upstream does not put together again: what Go calls it, and how it writes it.
pub fn lost(value: &Val<'_>) -> Option<(&'static str, String)> {
    Some(match value {
        Val::Quantity(quantity, _) => ("*resource.Quantity", quantity.to_string()),
        Val::Ip(address) => ("netip.Addr", address.to_string()),
        Val::Cidr(cidr) => ("netip.Prefix", cidr.to_string()),
        Val::Semver(version) => ("semver.Version", version.to_string()),
        Val::Url(url) => ("*url.URL", url.to_string()),
        Val::Lost(why) => ("*errors.errorString", why.to_string()),
        _ => return None,
    })
}

//! Optional values. `or` and `orValue` are not here: they evaluate their right side only if they need it.

use super::{EvalError, Host, Implementation, Outcome};
use crate::cel::message;
use crate::cel::value::Val;

pub fn find(name: &str) -> Option<Implementation> {
    Some(match name {
        "optional.of" => |_, args| Ok(Val::optional(args.first().cloned())),
        "optional.ofNonZeroValue" => |_, args| Ok(Val::optional(args.first().filter(|value| !is_zero(value)).cloned())),
        "optional.none" => |_, _| Ok(Val::Optional(None)),
        "value" => |_, args| match args {
            [Val::Optional(Some(value))] => Ok(value.taken_out()?),
            [Val::Optional(None)] => Err(EvalError::failed("optional.none() dereference")),
            _ => Err(EvalError::no_overload()),
        },
        "hasValue" => |_, args| match args {
            [Val::Optional(value)] => Ok(Val::Bool(value.is_some())),
            _ => Err(EvalError::no_overload()),
        },
        "first" => |_, args| end(args, 0),
        "last" => |_, args| end(args, -1),
        "optional.unwrap" | "unwrapOpt" => unwrap,
        _ => return None,
    })
}

fn is_zero(value: &Val<'_>) -> bool {
    match value {
        Val::Null => true,
        Val::Bool(value) => !value,
        Val::Int(value) | Val::Duration(value) => *value == 0,
        Val::Uint(value) => *value == 0,
        Val::Double(value) => *value == 0.0,
        Val::String(text) => text.is_empty(),
        Val::Bytes(bytes) => bytes.is_empty(),
        Val::List(list) => list.is_empty() && list.kind().is_none(),
        Val::Map(map) => map.is_empty() && !map.has_schema(),
        Val::Optional(value) => value.as_ref().is_none_or(|value| is_zero(value)),
        Val::Timestamp(instant) => instant.seconds == -62_135_596_800 && instant.nanos == 0,
        Val::Object(name, _) => **name == *message::EMPTY,
        _ => false,
    }
}

fn end<'a>(args: &[Val<'a>], index: i64) -> Outcome<'a> {
    let [Val::List(list)] = args else {
        return Err(EvalError::no_overload());
    };
    let index = if index < 0 { list.len().wrapping_sub(1) } else { 0 };
    Ok(Val::optional(list.get(index).transpose()?))
}

fn unwrap<'a>(host: &mut Host<'_>, args: &[Val<'a>]) -> Outcome<'a> {
    let [Val::List(list)] = args else {
        return Err(EvalError::no_overload());
    };
    host.work(list.len() as u64)?;
    let mut items = Vec::new();
    for item in list.iter() {
        match item? {
            Val::Optional(Some(value)) => items.push(value.taken_out()?),
            Val::Optional(None) => {}
            other => return Err(EvalError::failed(format!("value {other} is not optional"))),
        }
    }
    Ok(Val::list(items))
}

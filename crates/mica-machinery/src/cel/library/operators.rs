//! Arithmetic, order, membership and size.

use std::cmp::Ordering;
use std::collections::HashMap;

use super::compare::{are_ordered, equal, keys_of, natives, order};
use super::time::Instant;
use super::{EvalError, Host, Implementation, Outcome};
use crate::cel::native::Native;
use crate::cel::schema::ListKind;
use crate::cel::value::{Entries, Key, List, Map, Text, Val};

pub fn find(name: &str) -> Option<Implementation> {
    Some(match name {
        "!_" => not,
        "-_" => negate,
        "_+_" => add,
        "_-_" => subtract,
        "_*_" => multiply,
        "_/_" => divide,
        "_%_" => modulo,
        "_<_" => |_, args| compare(args, |order| order == Some(Ordering::Less)),
        "_<=_" => |_, args| compare(args, |order| matches!(order, Some(Ordering::Less | Ordering::Equal))),
        "_>_" => |_, args| compare(args, |order| order == Some(Ordering::Greater)),
        "_>=_" => |_, args| compare(args, |order| matches!(order, Some(Ordering::Greater | Ordering::Equal))),
        "@in" | "_in_" | "in" => within,
        "size" => size,
        "cel.@mapInsert" => map_insert,
        _ => return None,
    })
}

const INT_OVERFLOW: &str = "integer overflow";
const UINT_OVERFLOW: &str = "unsigned integer overflow";

fn int<'a>(value: Option<i64>) -> Outcome<'a> {
    value.map(Val::Int).ok_or_else(|| EvalError::failed(INT_OVERFLOW))
}

fn uint<'a>(value: Option<u64>) -> Outcome<'a> {
    value.map(Val::Uint).ok_or_else(|| EvalError::failed(UINT_OVERFLOW))
}

/// A duration is reckoned as the integer that it is.
fn duration<'a>(value: Option<i64>) -> Outcome<'a> {
    value.map(Val::Duration).ok_or_else(|| EvalError::failed(INT_OVERFLOW))
}

fn timestamp<'a>(value: Option<Instant>) -> Outcome<'a> {
    value
        .map(Val::Timestamp)
        .ok_or_else(|| EvalError::failed("timestamp overflow"))
}

fn not<'a>(_: &mut Host<'_>, args: &[Val<'a>]) -> Outcome<'a> {
    match args {
        [Val::Bool(value)] => Ok(Val::Bool(!value)),
        _ => Err(EvalError::no_overload()),
    }
}

fn negate<'a>(_: &mut Host<'_>, args: &[Val<'a>]) -> Outcome<'a> {
    match args {
        [Val::Int(value)] => int(value.checked_neg()),
        [Val::Double(value)] => Ok(Val::Double(-value)),
        [Val::Duration(value)] => duration(value.checked_neg()),
        _ => Err(EvalError::no_overload()),
    }
}

pub(super) fn add<'a>(host: &mut Host<'_>, args: &[Val<'a>]) -> Outcome<'a> {
    match args {
        [Val::Int(a), Val::Int(b)] => int(a.checked_add(*b)),
        [Val::Uint(a), Val::Uint(b)] => uint(a.checked_add(*b)),
        [Val::Double(a), Val::Double(b)] => Ok(Val::Double(a + b)),
        [Val::Duration(a), Val::Duration(b)] => duration(a.checked_add(*b)),
        [Val::Timestamp(at), Val::Duration(by)] | [Val::Duration(by), Val::Timestamp(at)] => timestamp(at.plus(*by)),
        [Val::String(a), Val::String(b)] => {
            host.work((a.len() + b.len()) as u64 / 16)?;
            Ok(Val::string([&**a, &**b].concat()))
        }
        [Val::Bytes(a), Val::Bytes(b)] => Ok(Val::Bytes([&**a, &**b].concat().into())),
        [Val::List(a), Val::List(b)] => join(host, a, b),
        _ => Err(EvalError::no_overload()),
    }
}

/// Lists that are sets or maps keep being that: what is there already is not added again.
fn join<'a>(host: &mut Host<'_>, a: &List<'a>, b: &List<'a>) -> Outcome<'a> {
    let (kind, keys) = match a.kind() {
        Some((kind @ (ListKind::Set | ListKind::Map), keys)) => (kind, keys),
        _ => return Ok(Val::List(a.clone().join(b.clone()))),
    };
    host.work((a.len() + b.len()) as u64)?;
    let mut items = natives(a)?;
    match kind {
        ListKind::Map => {
            let mut places: HashMap<_, _> = (items.iter().enumerate())
                .filter_map(|(at, item)| Some((item.fields(host, keys).transpose()?, at)))
                .map(|(key, at)| Ok((key?, at)))
                .collect::<Result<_, EvalError>>()?;
            for item in b.iter() {
                let item = Native::of(item?);
                let key = item.fields(host, keys)?;
                match key.as_ref().and_then(|key| places.get(key)) {
                    Some(at) => items[*at] = item,
                    None => {
                        places.extend(key.map(|key| (key, items.len())));
                        items.push(item);
                    }
                }
            }
        }
        _ => {
            let mut known = keys_of(host, &items)?;
            for item in b.iter() {
                let item = Native::of(item?);
                if item.key(host)?.is_none_or(|key| known.insert(key)) {
                    items.push(item);
                }
            }
        }
    }
    Ok(Val::List(a.with_natives(items)))
}

fn subtract<'a>(_: &mut Host<'_>, args: &[Val<'a>]) -> Outcome<'a> {
    match args {
        [Val::Int(a), Val::Int(b)] => int(a.checked_sub(*b)),
        [Val::Uint(a), Val::Uint(b)] => uint(a.checked_sub(*b)),
        [Val::Double(a), Val::Double(b)] => Ok(Val::Double(a - b)),
        [Val::Duration(a), Val::Duration(b)] => duration(a.checked_sub(*b)),
        [Val::Timestamp(at), Val::Duration(by)] => match by.checked_neg() {
            Some(by) => timestamp(at.plus(by)),
            None => Err(EvalError::failed(INT_OVERFLOW)),
        },
        [Val::Timestamp(a), Val::Timestamp(b)] => duration(a.since(b)),
        _ => Err(EvalError::no_overload()),
    }
}

fn multiply<'a>(_: &mut Host<'_>, args: &[Val<'a>]) -> Outcome<'a> {
    match args {
        [Val::Int(a), Val::Int(b)] => int(a.checked_mul(*b)),
        [Val::Uint(a), Val::Uint(b)] => uint(a.checked_mul(*b)),
        [Val::Double(a), Val::Double(b)] => Ok(Val::Double(a * b)),
        _ => Err(EvalError::no_overload()),
    }
}

fn divide<'a>(_: &mut Host<'_>, args: &[Val<'a>]) -> Outcome<'a> {
    match args {
        [Val::Int(_), Val::Int(0)] | [Val::Uint(_), Val::Uint(0)] => Err(EvalError::failed("division by zero")),
        [Val::Int(a), Val::Int(b)] => int(a.checked_div(*b)),
        [Val::Uint(a), Val::Uint(b)] => uint(a.checked_div(*b)),
        [Val::Double(a), Val::Double(b)] => Ok(Val::Double(a / b)),
        _ => Err(EvalError::no_overload()),
    }
}

fn modulo<'a>(_: &mut Host<'_>, args: &[Val<'a>]) -> Outcome<'a> {
    match args {
        [Val::Int(_), Val::Int(0)] | [Val::Uint(_), Val::Uint(0)] => Err(EvalError::failed("modulus by zero")),
        [Val::Int(a), Val::Int(b)] => int(a.checked_rem(*b)),
        [Val::Uint(a), Val::Uint(b)] => uint(a.checked_rem(*b)),
        _ => Err(EvalError::no_overload()),
    }
}

fn compare<'a>(args: &[Val<'a>], holds: fn(Option<Ordering>) -> bool) -> Outcome<'a> {
    match args {
        [Val::Double(a), _] if a.is_nan() => Err(EvalError::failed("NaN values cannot be ordered")),
        [a, Val::Double(b)] if b.is_nan() && are_ordered(a, &args[1]) => {
            Err(EvalError::failed("NaN values cannot be ordered"))
        }
        [a, b] => match order(a, b) {
            None => Err(EvalError::no_overload()),
            order => Ok(Val::Bool(holds(order))),
        },
        _ => Err(EvalError::no_overload()),
    }
}

pub(super) fn within<'a>(host: &mut Host<'_>, args: &[Val<'a>]) -> Outcome<'a> {
    match args {
        [item, Val::List(list)] => contains(host, list, item).map(Val::Bool),
        [key, Val::Map(map)] => Ok(Val::Bool(map.find(key)?.is_some())),
        _ => Err(EvalError::no_overload()),
    }
}

/// Whether `list` has `item`; an element that cannot be compared is an error only if none is equal.
pub(super) fn contains(host: &mut Host<'_>, list: &List<'_>, item: &Val<'_>) -> Result<bool, EvalError> {
    let mut failed = None;
    for each in list.iter() {
        match each.map_err(EvalError::from).and_then(|each| equal(host, &each, item)) {
            Ok(true) => return Ok(true),
            Ok(false) => {}
            Err(error) if error.is_fatal() => return Err(error),
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    match failed {
        Some(error) if list.kind().is_some() => Err(error),
        _ => Ok(false),
    }
}

fn size<'a>(_: &mut Host<'_>, args: &[Val<'a>]) -> Outcome<'a> {
    match args {
        [value @ (Val::String(_) | Val::Bytes(_) | Val::List(_) | Val::Map(_))] => Ok(Val::Int(value.size() as i64)),
        [Val::Duration(_) | Val::Timestamp(_)] => Err(EvalError::no_overload()),
        _ => Err(EvalError::failed("no such overload: size")),
    }
}

fn map_insert<'a>(host: &mut Host<'_>, args: &[Val<'a>]) -> Outcome<'a> {
    match args {
        [Val::Map(map), key, value] => {
            host.work(map.len() as u64)?;
            let mut entries = entries(host, map)?;
            insert(host, &mut entries, key.clone(), value.clone())?;
            Ok(Val::Map(Map::owned(entries)))
        }
        [Val::Map(map), Val::Map(more)] => {
            host.work((map.len() + more.len()) as u64)?;
            let mut entries = entries(host, map)?;
            for key in more.keys() {
                let value = more.find(&key)?.unwrap_or(Val::Null);
                insert(host, &mut entries, key, value)?;
            }
            Ok(Val::Map(Map::owned(entries)))
        }
        _ => Err(EvalError::no_overload()),
    }
}

fn entries<'a>(host: &mut Host<'_>, map: &Map<'a>) -> Result<Entries<'a>, EvalError> {
    let mut entries = Entries::new();
    for key in map.keys() {
        let value = map.find(&key)?.unwrap_or(Val::Null);
        insert(host, &mut entries, key, value)?;
    }
    Ok(entries)
}

/// Adds an entry; the same key twice is an error.
pub fn insert<'a>(
    host: &mut Host<'_>,
    entries: &mut Entries<'a>,
    key: Val<'a>,
    value: Val<'a>,
) -> Result<(), EvalError> {
    if Key::find(entries, &key).is_some() {
        return Err(EvalError::failed(format!("insert failed: key {key} already exists")));
    }
    let key = match key {
        Val::String(Text::Borrowed(text)) => Val::string(text),
        key => key,
    };
    host.put(entries, key, value)
}

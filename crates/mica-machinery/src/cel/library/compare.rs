//! Equality and order.
//!
//! Numbers compare by value across their types. Values of different types are unequal, not an error; but lists and objects
//! that came with a schema answer "no such overload" when compared with something else, as upstream's do.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};

use super::{EvalError, Host};
use crate::cel::native::Native;
use crate::cel::schema::ListKind;
use crate::cel::value::{Key, List, Map, Origin, Val};

/// `a == b`.
pub fn equal(host: &mut Host<'_>, a: &Val<'_>, b: &Val<'_>) -> Result<bool, EvalError> {
    host.work(1)?;
    Ok(match (a, b) {
        (Val::Lost(why), _) => return Err(EvalError::Failed(why.to_string())),
        (Val::Null, Val::Null) => true,
        (Val::Null, _) | (_, Val::Null) => false,
        (Val::Bool(a), Val::Bool(b)) => a == b,
        (Val::Int(_) | Val::Uint(_) | Val::Double(_), Val::Int(_) | Val::Uint(_) | Val::Double(_)) => {
            numbers(a, b) == Some(Ordering::Equal)
        }
        (Val::String(a), Val::String(b)) => **a == **b,
        (Val::Bytes(a), Val::Bytes(b)) => a == b,
        (Val::Duration(a), Val::Duration(b)) => a == b,
        (Val::Timestamp(a), Val::Timestamp(b)) => a == b,
        (Val::Type(a), Val::Type(b)) => a.runtime_name() == b.runtime_name(),
        (Val::List(a), _) => return lists(host, a, b),
        (Val::Map(a), _) => return maps(host, a, b),
        (Val::Object(a, x), Val::Object(b, y)) => return Ok(a == b && maps(host, x, &Val::Map(y.clone()))?),
        (Val::Optional(a), Val::Optional(b)) => match (a, b) {
            (Some(a), Some(b)) => return equal(host, a, b),
            (a, b) => a.is_none() && b.is_none(),
        },
        // What an expression made is nothing that came with an object.
        (Val::Preserved(a), _) => !b.is_made() && b.to_json().is_ok_and(|b| **a == b),
        (Val::Quantity(a, _), Val::Quantity(b, Origin::Text)) => a == b,
        (Val::Ip(a), Val::Ip(b)) => a == b,
        (Val::Cidr(a), Val::Cidr(b)) => a == b,
        (Val::Url(a), Val::Url(b)) => a == b,
        (Val::Semver(a), Val::Semver(b)) => a.precedence(b) == Ordering::Equal,
        (Val::Format(a), Val::Format(b)) => a.name == b.name,
        (Val::Authz(a), Val::Authz(b)) => a == b,
        (
            Val::Quantity(..)
            | Val::Ip(_)
            | Val::Cidr(_)
            | Val::Url(_)
            | Val::Semver(_)
            | Val::Format(_)
            | Val::Authz(_),
            _,
        ) => return Err(EvalError::no_overload()),
        _ => false,
    })
}

fn lists<'a>(host: &mut Host<'_>, a: &List<'a>, b: &Val<'_>) -> Result<bool, EvalError> {
    let typed = a.kind();
    let Val::List(b) = b else {
        return if typed.is_some() {
            Err(EvalError::no_overload())
        } else {
            Ok(false)
        };
    };
    if a.len() != b.len() {
        return Ok(false);
    }
    match typed {
        Some((ListKind::Set, _)) => {
            host.work((a.len() + b.len()) as u64)?;
            let known = keys_of(host, &natives(a)?)?;
            for item in b.iter() {
                if !Native::of(item?).key(host)?.is_some_and(|key| known.contains(&key)) {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        Some((ListKind::Map, keys)) => keyed_lists(host, a, b, keys),
        _ => {
            for (a, b) in a.iter().zip(b.iter()) {
                if !element_equal(host, &a?, &b?, typed.is_some())? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
    }
}

/// Elements of a list without a schema that cannot be compared count as equal; upstream only looks for `false`.
fn element_equal(host: &mut Host<'_>, a: &Val<'_>, b: &Val<'_>, typed: bool) -> Result<bool, EvalError> {
    match equal(host, a, b) {
        Err(EvalError::Failed(_)) if !typed => Ok(true),
        other => other,
    }
}

fn keyed_lists(host: &mut Host<'_>, a: &List<'_>, b: &List<'_>, names: &[String]) -> Result<bool, EvalError> {
    host.work((a.len() + b.len()) as u64)?;
    let mut places = HashMap::new();
    for (at, item) in natives(a)?.into_iter().enumerate() {
        places.insert(item.fields(host, names)?, at);
    }
    for item in b.iter() {
        let item = item?;
        let key = Native::of(item.clone()).fields(host, names)?;
        let mine = match places.get(&key).filter(|_| key.is_some()) {
            Some(at) => a.get(*at),
            None => return Ok(false),
        };
        if !equal(host, &mine.expect("the list is as long as it was")?, &item)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// What tells the elements of a set apart.
pub fn keys_of(host: &mut Host<'_>, items: &[Native<'_>]) -> Result<HashSet<Key>, EvalError> {
    items.iter().filter_map(|item| item.key(host).transpose()).collect()
}

/// What is underneath the elements of a list.
pub fn natives<'a>(list: &List<'a>) -> Result<Vec<Native<'a>>, String> {
    (0..list.len()).map_while(|index| list.native(index)).collect()
}

fn maps(host: &mut Host<'_>, a: &Map<'_>, b: &Val<'_>) -> Result<bool, EvalError> {
    let typed = a.has_schema();
    let Val::Map(b) = b else {
        return if typed {
            Err(EvalError::no_overload())
        } else {
            Ok(false)
        };
    };
    if a.len() != b.len() {
        return Ok(false);
    }
    for key in a.keys() {
        if typed && matches!(key, Val::Null) {
            continue;
        }
        let (mine, other) = (a.find(&key)?, b.find(&key)?);
        match (mine, other) {
            (Some(mine), Some(other)) => {
                if !element_equal(host, &mine, &other, typed)? {
                    return Ok(false);
                }
            }
            (None, None) if typed => {}
            _ => return Ok(false),
        }
    }
    if typed { unknown_fields_equal(a, b) } else { Ok(true) }
}

/// Fields that the schema does not name: those that both have must be the same. Only with an object that came with a schema
/// can they be compared.
fn unknown_fields_equal(a: &Map<'_>, b: &Map<'_>) -> Result<bool, EvalError> {
    let fields = a.json().into_iter().flatten();
    let mut unknown = fields.filter(|(name, _)| a.property(name).is_none()).peekable();
    match b.json().filter(|_| b.has_schema()) {
        Some(other) => Ok(unknown.all(|(name, value)| other.get(name).is_none_or(|other| other == value))),
        None if unknown.peek().is_none() => Ok(true),
        None => Err(EvalError::no_overload()),
    }
}

/// `a < b` and the like; `None` if the two have no order.
pub fn order(a: &Val<'_>, b: &Val<'_>) -> Option<Ordering> {
    match (a, b) {
        (Val::Int(_) | Val::Uint(_) | Val::Double(_), Val::Int(_) | Val::Uint(_) | Val::Double(_)) => numbers(a, b),
        (Val::Bool(a), Val::Bool(b)) => Some(a.cmp(b)),
        (Val::String(a), Val::String(b)) => Some(str::cmp(a, b)),
        (Val::Bytes(a), Val::Bytes(b)) => Some(a.cmp(b)),
        (Val::Duration(a), Val::Duration(b)) => Some(a.cmp(b)),
        (Val::Timestamp(a), Val::Timestamp(b)) => Some(a.cmp(b)),
        _ => None,
    }
}

/// Whether two values are of types that have an order.
pub fn are_ordered(a: &Val<'_>, b: &Val<'_>) -> bool {
    let nan = |value: &Val<'_>| matches!(value, Val::Double(value) if value.is_nan());
    order(a, b).is_some()
        || ((nan(a) || nan(b))
            && matches!(a, Val::Int(_) | Val::Uint(_) | Val::Double(_))
            && matches!(b, Val::Int(_) | Val::Uint(_) | Val::Double(_)))
}

fn numbers(a: &Val<'_>, b: &Val<'_>) -> Option<Ordering> {
    match (a, b) {
        (Val::Double(a), Val::Double(b)) => a.partial_cmp(b),
        (Val::Double(a), _) => with_double(b, *a).map(Ordering::reverse),
        (_, Val::Double(b)) => with_double(a, *b),
        _ => Some(integer(a)?.cmp(&integer(b)?)),
    }
}

fn integer(value: &Val<'_>) -> Option<i128> {
    match value {
        Val::Int(value) => Some(i128::from(*value)),
        Val::Uint(value) => Some(i128::from(*value)),
        _ => None,
    }
}

/// Compares a whole number with a double: beyond the range of the former by range, else as doubles, as upstream does.
fn with_double(whole: &Val<'_>, double: f64) -> Option<Ordering> {
    let (low, high, value) = match whole {
        Val::Int(value) => (i64::MIN as f64, i64::MAX as f64, *value as f64),
        Val::Uint(value) => (0.0, u64::MAX as f64, *value as f64),
        _ => return None,
    };
    if double < low {
        return Some(Ordering::Greater);
    }
    if double > high {
        return Some(Ordering::Less);
    }
    value.partial_cmp(&double)
}

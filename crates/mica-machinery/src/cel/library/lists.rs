//! Lists and sets.

use std::cmp::Ordering;

use super::compare::{are_ordered, equal, order};
use super::operators::{add, contains};
use super::{EvalError, Host, Implementation, Outcome, strings};
use crate::cel::types::Type;
use crate::cel::value::{List, Val};

/// The longest list that `lists.range` makes; more than any budget lets an expression use.
const MAX_RANGE: i64 = 1_000_000;

pub fn find(name: &str) -> Option<Implementation> {
    Some(match name {
        "isSorted" => is_sorted,
        "sum" => sum,
        "min" => |host, args| extreme(host, args, "min", Ordering::Greater),
        "max" => |host, args| extreme(host, args, "max", Ordering::Less),
        "indexOf" => |host, args| match args {
            [Val::List(list), item] => position(host, list, item, (0..list.len()).collect()),
            _ => strings::index_of(args),
        },
        "lastIndexOf" => |host, args| match args {
            [Val::List(list), item] => position(host, list, item, (0..list.len()).rev().collect()),
            _ => strings::last_index_of(args),
        },
        "slice" => slice,
        "flatten" => flatten,
        "sort" => |host, args| match args {
            [Val::List(list)] => sort(host, list, list),
            [Val::String(_) | Val::Duration(_) | Val::Timestamp(_)] => Err(EvalError::no_overload()),
            _ => Err(EvalError::failed("no such overload: sort")),
        },
        "@sortByAssociatedKeys" => |host, args| match args {
            [Val::List(list), Val::List(keys)] => sort(host, list, keys),
            _ => Err(EvalError::no_overload()),
        },
        "lists.range" => range,
        "reverse" => reverse,
        "distinct" => distinct,
        "sets.contains" => |host, args| {
            let (list, part) = two(args)?;
            all_in(host, list, part).map(Val::Bool)
        },
        "sets.equivalent" => |host, args| {
            let (a, b) = two(args)?;
            Ok(Val::Bool(all_in(host, a, b)? && all_in(host, b, a)?))
        },
        "sets.intersects" => intersects,
        _ => return None,
    })
}

fn one<'v, 'a>(args: &'v [Val<'a>]) -> Result<&'v List<'a>, EvalError> {
    match args {
        [Val::List(list)] => Ok(list),
        _ => Err(EvalError::no_overload()),
    }
}

fn two<'v, 'a>(args: &'v [Val<'a>]) -> Result<(&'v List<'a>, &'v List<'a>), EvalError> {
    match args {
        [Val::List(a), Val::List(b)] => Ok((a, b)),
        _ => Err(EvalError::no_overload()),
    }
}

fn collect<'a>(host: &mut Host<'_>, list: &List<'a>) -> Result<Vec<Val<'a>>, EvalError> {
    host.work(list.len() as u64)?;
    list.iter().map(|item| item.map_err(EvalError::from)).collect()
}

fn is_comparable(value: &Val<'_>) -> bool {
    are_ordered(value, value)
}

fn is_sorted<'a>(host: &mut Host<'_>, args: &[Val<'a>]) -> Outcome<'a> {
    let items = collect(host, one(args)?)?;
    if items.iter().any(|item| !is_comparable(item)) {
        return Err(EvalError::no_overload());
    }
    Ok(Val::Bool(
        items
            .windows(2)
            .all(|pair| order(&pair[0], &pair[1]) != Some(Ordering::Greater)),
    ))
}

fn sum<'a>(host: &mut Host<'_>, args: &[Val<'a>]) -> Outcome<'a> {
    let mut items = collect(host, one(args)?)?.into_iter();
    // An empty list says nothing of its type here: the planner replaces this zero by the overload's.
    let Some(mut total) = items.next() else {
        return Ok(Val::Int(0));
    };
    if !matches!(total, Val::Int(_) | Val::Uint(_) | Val::Double(_) | Val::Duration(_)) {
        return Err(EvalError::no_overload());
    }
    for item in items {
        total = add(host, &[total, item])?;
    }
    Ok(total)
}

/// The zero that the sum of an empty list is, by the overload.
pub fn zero_sum<'a>(overload: &str) -> Val<'a> {
    match overload {
        "list_uint_sum_uint" => Val::Uint(0),
        "list_double_sum_double" => Val::Double(0.0),
        "list_duration_sum_duration" => Val::Duration(0),
        _ => Val::Int(0),
    }
}

fn extreme<'a>(host: &mut Host<'_>, args: &[Val<'a>], name: &str, worse: Ordering) -> Outcome<'a> {
    let mut best: Option<Val<'a>> = None;
    for item in collect(host, one(args)?)? {
        if !is_comparable(&item) {
            return Err(EvalError::no_overload());
        }
        match &best {
            Some(known) if order(known, &item) != Some(worse) => {}
            _ => best = Some(item),
        }
    }
    best.ok_or_else(|| EvalError::failed(format!("{name} called on empty list")))
}

fn position<'a>(host: &mut Host<'_>, list: &List<'a>, item: &Val<'a>, indexes: Vec<usize>) -> Outcome<'a> {
    for index in indexes {
        let Some(Ok(each)) = list.get(index) else { continue };
        match equal(host, &each, item) {
            Ok(true) => return Ok(Val::Int(index as i64)),
            Err(error) if error.is_fatal() => return Err(error),
            _ => {}
        }
    }
    Ok(Val::Int(-1))
}

fn slice<'a>(host: &mut Host<'_>, args: &[Val<'a>]) -> Outcome<'a> {
    let [Val::List(list), Val::Int(start), Val::Int(end)] = args else {
        return Err(EvalError::no_overload());
    };
    let failed = |why: String| Err(EvalError::failed(format!("cannot slice({start}, {end}), {why}")));
    if *start < 0 || *end < 0 {
        return failed("negative indexes not supported".to_owned());
    }
    if start > end {
        return failed("start index must be less than or equal to end index".to_owned());
    }
    if (list.len() as i64) < *end {
        return failed(format!("list is length {}", list.len()));
    }
    let items = collect(host, list)?;
    Ok(Val::list(items[*start as usize..*end as usize].to_vec()))
}

fn flatten<'a>(host: &mut Host<'_>, args: &[Val<'a>]) -> Outcome<'a> {
    let (list, depth) = match args {
        [Val::List(list)] => (list, 1),
        [Val::List(list), Val::Int(depth)] => (list, *depth),
        [value] => {
            let of = value.type_of();
            let name = match value {
                Val::Map(_) => of.full_name(),
                _ => of.runtime_name().to_owned(),
            };
            return Err(EvalError::failed(format!("no such overload: {name}.flatten()")));
        }
        _ => return Err(EvalError::no_overload()),
    };
    if depth < 0 {
        return Err(EvalError::failed("level must be non-negative"));
    }
    let mut items = Vec::new();
    flatten_into(host, list, depth, &mut items)?;
    Ok(Val::list(items))
}

fn flatten_into<'a>(host: &mut Host<'_>, list: &List<'a>, depth: i64, out: &mut Vec<Val<'a>>) -> Result<(), EvalError> {
    host.work(1 + list.len() as u64)?;
    for item in list.iter() {
        match item? {
            Val::List(inner) if depth > 0 => flatten_into(host, &inner, depth - 1, out)?,
            item => out.push(item),
        }
    }
    Ok(())
}

fn sort<'a>(host: &mut Host<'_>, list: &List<'a>, keys: &List<'a>) -> Outcome<'a> {
    if list.len() != keys.len() {
        return Err(EvalError::failed(format!(
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys list, but got {} and {} elements respectively",
            list.len(),
            keys.len()
        )));
    }
    let (items, keys) = (collect(host, list)?, collect(host, keys)?);
    let Some(first) = keys.first() else {
        return Ok(Val::List(list.clone()));
    };
    if !is_comparable(first) {
        return Err(EvalError::failed("list elements must be comparable"));
    }
    let same = |key: &Val<'_>| same_type(&key.type_of(), &first.type_of());
    if keys.len() > 1 && !keys.iter().all(same) {
        return Err(EvalError::failed("list elements must have the same type"));
    }
    let mut indexes: Vec<usize> = (0..items.len()).collect();
    indexes.sort_by(|a, b| order(&keys[*a], &keys[*b]).unwrap_or(Ordering::Equal));
    Ok(Val::list(
        indexes.into_iter().map(|index| items[index].clone()).collect(),
    ))
}

fn same_type(a: &Type, b: &Type) -> bool {
    a.runtime_name() == b.runtime_name()
}

fn range<'a>(host: &mut Host<'_>, args: &[Val<'a>]) -> Outcome<'a> {
    let [Val::Int(count)] = args else {
        return Err(EvalError::no_overload());
    };
    if *count > MAX_RANGE {
        return Err(EvalError::CostExceeded);
    }
    host.work((*count).max(0) as u64)?;
    Ok(Val::list((0..*count).map(Val::Int).collect()))
}

fn reverse<'a>(host: &mut Host<'_>, args: &[Val<'a>]) -> Outcome<'a> {
    let mut items = collect(host, one(args)?)?;
    items.reverse();
    Ok(Val::list(items))
}

fn distinct<'a>(host: &mut Host<'_>, args: &[Val<'a>]) -> Outcome<'a> {
    let mut unique: Vec<Val<'a>> = Vec::new();
    for item in collect(host, one(args)?)? {
        let mut seen = false;
        for each in &unique {
            match equal(host, &item, each) {
                Ok(false) | Err(EvalError::Failed(_)) => {}
                Ok(true) => {
                    seen = true;
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        if !seen {
            unique.push(item);
        }
    }
    Ok(Val::list(unique))
}

fn all_in(host: &mut Host<'_>, list: &List<'_>, part: &List<'_>) -> Result<bool, EvalError> {
    for item in part.iter() {
        if !contains(host, list, &item?)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn intersects<'a>(host: &mut Host<'_>, args: &[Val<'a>]) -> Outcome<'a> {
    let (a, b) = two(args)?;
    for item in a.iter() {
        match contains(host, b, &item?) {
            Ok(true) => return Ok(Val::Bool(true)),
            Err(error) if error.is_fatal() => return Err(error),
            _ => {}
        }
    }
    Ok(Val::Bool(false))
}

//! Steps over a document.

use std::cmp::Ordering;

use serde_json::Value;

use super::{EvalError, Filter, Found, Slice, Step};
use crate::object::go_type;

/// How many values one expression may select; `..` repeated could otherwise multiply a document.
const MAX_FOUND: usize = 100_000;

type Values<'v> = Vec<Found<'v>>;

fn fail<T>(text: impl Into<String>) -> Result<T, EvalError> {
    Err(EvalError(text.into()))
}

pub(super) fn find<'v>(steps: &[Step], value: &'v Value) -> Result<Values<'v>, EvalError> {
    walk(steps, vec![Found::Part(value)])
}

fn walk<'v>(steps: &[Step], mut values: Values<'v>) -> Result<Values<'v>, EvalError> {
    for step in steps {
        values = take(step, values)?;
        if values.len() > MAX_FOUND {
            return fail("too many results");
        }
    }
    Ok(values)
}

fn take<'v>(step: &Step, values: Values<'v>) -> Result<Values<'v>, EvalError> {
    match step {
        Step::Field(name) => Ok(parts(values)
            .filter_map(|value| value.get(name.as_str()))
            .map(Found::Part)
            .collect()),
        Step::Wildcard => Ok(parts(values).flat_map(children).map(Found::Part).collect()),
        Step::Recursive => {
            let mut out = Vec::new();
            for value in parts(values) {
                descend(value, &mut out)?;
            }
            Ok(out)
        }
        Step::Slice(slice) => {
            let mut out = Vec::new();
            for value in parts(values) {
                match value {
                    Value::Null => {}
                    Value::Array(items) => cut(*slice, items, &mut out)?,
                    other => return fail(format!("{} is not array or slice", go_type(other))),
                }
            }
            Ok(out)
        }
        Step::Union(alternatives) => {
            let mut out = Vec::new();
            for steps in alternatives {
                out.extend(walk(steps, values.clone())?);
            }
            Ok(out)
        }
        Step::Filter(filter) => {
            let mut out = Vec::new();
            for value in parts(values) {
                let Value::Array(items) = value else {
                    return fail("value is not array or slice and cannot be filtered");
                };
                for item in items {
                    if passes(filter, item)? {
                        out.push(Found::Part(item));
                    }
                }
            }
            Ok(out)
        }
        // A text is found once, whatever it stands behind.
        Step::Constant(text @ Value::String(_)) => Ok(vec![Found::Constant(text.clone())]),
        Step::Constant(value) => Ok(values.iter().map(|_| Found::Constant(value.clone())).collect()),
        Step::Identifier(name) => fail(format!("unrecognized identifier {name}")),
    }
}

/// Steps lead on from parts of the document only; nothing is inside a constant.
fn parts<'v>(values: Values<'v>) -> impl Iterator<Item = &'v Value> {
    values.into_iter().filter_map(|found| match found {
        Found::Part(value) => Some(value),
        Found::Constant(_) => None,
    })
}

fn children(value: &Value) -> Box<dyn Iterator<Item = &Value> + '_> {
    match value {
        Value::Object(members) => Box::new(members.values()),
        Value::Array(items) => Box::new(items.iter()),
        _ => Box::new(std::iter::empty()),
    }
}

/// A value that has others in it, and all such inside it.
fn descend<'v>(value: &'v Value, out: &mut Values<'v>) -> Result<(), EvalError> {
    let mut inside = children(value).peekable();
    if inside.peek().is_none() {
        return Ok(());
    }
    if out.len() > MAX_FOUND {
        return fail("too many results");
    }
    out.push(Found::Part(value));
    inside.try_for_each(|child| descend(child, out))
}

fn cut<'v>(slice: Slice, items: &'v [Value], out: &mut Values<'v>) -> Result<(), EvalError> {
    let length = i64::try_from(items.len()).unwrap_or(i64::MAX);
    let mut start = slice.start.unwrap_or(0);
    if start < 0 {
        start += length;
    }
    let mut end = slice.end.unwrap_or(length);
    if end < 0 || (end == 0 && slice.derived) {
        end += length;
    }
    if start == end {
        return Ok(());
    }
    if start >= length || start < 0 {
        return fail(format!("array index out of bounds: index {start}, length {length}"));
    }
    if end > length || end < 0 {
        return fail(format!("array index out of bounds: index {}, length {length}", end - 1));
    }
    if start > end {
        return fail(format!("starting index {start} is greater than ending index {end}"));
    }
    let step = slice.step.unwrap_or(1);
    if step <= 0 {
        return fail("step must be > 0");
    }
    let index = |at: i64| usize::try_from(at).unwrap_or_default();
    out.extend(
        items[index(start)..index(end)]
            .iter()
            .step_by(index(step))
            .map(Found::Part),
    );
    Ok(())
}

fn passes(filter: &Filter, item: &Value) -> Result<bool, EvalError> {
    let left = find(&filter.left, item);
    if filter.operator == "exists" {
        return Ok(left.is_ok_and(|found| !found.is_empty()));
    }
    let Some(left) = single(left?)? else { return Ok(false) };
    let Some(right) = single(find(&filter.right, item)?)? else {
        return Ok(false);
    };
    let order = compare(left.value(), right.value());
    let ordered = || {
        order
            .map(|(order, _)| order)
            .ok_or_else(|| EvalError("incompatible types for comparison".to_owned()))
    };
    let sortable = || match order {
        Some((order, Sortable::Yes)) => Ok(order),
        _ => Err(EvalError("invalid type for comparison".to_owned())),
    };
    Ok(match filter.operator.as_str() {
        "==" => ordered()?.is_eq(),
        "!=" => ordered()?.is_ne(),
        "<" => sortable()?.is_lt(),
        ">" => sortable()?.is_gt(),
        "<=" => sortable()?.is_le(),
        ">=" => sortable()?.is_ge(),
        other => return fail(format!("unrecognized filter operator {other}")),
    })
}

fn single(mut found: Values<'_>) -> Result<Option<Found<'_>>, EvalError> {
    if found.len() > 1 {
        return fail("can only compare one element at a time");
    }
    Ok(found.pop())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sortable {
    Yes,
    No,
}

/// How two scalars of one kind compare; integers and floats are two kinds.
fn compare(left: &Value, right: &Value) -> Option<(Ordering, Sortable)> {
    match (left, right) {
        (Value::Bool(left), Value::Bool(right)) => Some((left.cmp(right), Sortable::No)),
        (Value::String(left), Value::String(right)) => Some((left.cmp(right), Sortable::Yes)),
        (Value::Number(left), Value::Number(right)) => match (left.as_i64(), right.as_i64()) {
            (Some(left), Some(right)) => Some((left.cmp(&right), Sortable::Yes)),
            (None, None) => Some((left.as_f64()?.partial_cmp(&right.as_f64()?)?, Sortable::Yes)),
            _ => None,
        },
        _ => None,
    }
}

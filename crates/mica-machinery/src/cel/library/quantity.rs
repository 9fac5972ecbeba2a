//! Quantities: `quantity('1Gi')` and what can be asked of it.

use std::cmp::Ordering;
use std::sync::Arc;

use super::{EvalError, Implementation, Outcome};
use crate::cel::value::{Origin, Val};
use crate::quantity::{Format, Quantity};

pub fn find(name: &str) -> Option<Implementation> {
    Some(match name {
        "quantity" => |_, args| match args {
            [Val::String(text)] => match Quantity::parse(text) {
                Ok(quantity) => Ok(Val::Quantity(Arc::new(quantity), Origin::Text)),
                Err(e) => Err(EvalError::failed(e.to_string())),
            },
            _ => Err(EvalError::no_overload()),
        },
        "isQuantity" => |_, args| match args {
            [Val::String(text)] => Ok(Val::Bool(Quantity::parse(text).is_ok())),
            _ => Err(EvalError::no_overload()),
        },
        "sign" => |_, args| with(args, |quantity| Ok(Val::Int(i64::from(quantity.signum())))),
        "asInteger" => |_, args| {
            with(args, |quantity| match quantity.as_i64() {
                Some(value) => Ok(Val::Int(value)),
                None => Err(EvalError::failed("cannot convert value to integer")),
            })
        },
        "isInteger" => |_, args| with(args, |quantity| Ok(Val::Bool(quantity.as_i64().is_some()))),
        "asApproximateFloat" => |_, args| with(args, |quantity| Ok(Val::Double(quantity.as_f64()))),
        "isGreaterThan" => |_, args| Ok(Val::Bool(compare(args)? == Ordering::Greater)),
        "isLessThan" => |_, args| Ok(Val::Bool(compare(args)? == Ordering::Less)),
        "compareTo" => |_, args| Ok(Val::Int(compare(args)? as i64)),
        "add" => |_, args| combine(args, Quantity::plus),
        "sub" => |_, args| combine(args, Quantity::minus),
        _ => return None,
    })
}

fn with<'a>(args: &[Val<'a>], of: fn(&Quantity) -> Outcome<'a>) -> Outcome<'a> {
    match args {
        [Val::Quantity(quantity, _)] => of(quantity),
        _ => Err(EvalError::no_overload()),
    }
}

/// Quantities and versions share the names of their comparisons.
fn compare(args: &[Val<'_>]) -> Result<Ordering, EvalError> {
    match args {
        [Val::Quantity(a, _), Val::Quantity(b, _)] => Ok(a.cmp(b)),
        [Val::Semver(a), Val::Semver(b)] => Ok(a.precedence(b)),
        _ => Err(EvalError::no_overload()),
    }
}

fn combine<'a>(args: &[Val<'a>], with: fn(&Quantity, &Quantity) -> Quantity) -> Outcome<'a> {
    let result = match args {
        [Val::Quantity(a, _), Val::Quantity(b, _)] => with(a, b),
        [Val::Quantity(a, _), Val::Int(b)] => with(a, &Quantity::new(*b, Format::DecimalExponent)),
        _ => return Err(EvalError::no_overload()),
    };
    Ok(Val::Quantity(Arc::new(result), Origin::Reckoned))
}

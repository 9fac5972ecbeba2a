//! Bounds and multiples of numbers.
//!
//! Integers are compared as integers even though bounds are floats, and a bound that does not fit the type is itself reported,
//! both as upstream does.

use serde_json::{Number, Value};

use super::failure::{Kind, Outcome};
use super::format::Format;
use super::go;
use super::node::{Bound, Node, Numbers, Type, Types};

/// Float results this close to an integer count as one.
const EPSILON: f64 = 1e-9;

/// One more than the largest `i64`, which is itself no float.
const TWO_TO_63: f64 = (1_u64 << 63) as f64;

/// The largest float below which every integer is exact.
const MAX_EXACT: f64 = 9_007_199_254_740_991.0;

/// Whether a float is a whole number, within the precision that JSON numbers have.
pub(crate) fn is_whole(value: f64) -> bool {
    if !value.is_finite() || value.abs() > MAX_EXACT {
        return false;
    }
    if value == value.trunc() {
        return true;
    }
    let whole = value.trunc();
    whole != 0.0 && (value - whole).abs() / (value.abs() + whole.abs()) < EPSILON
}

pub(crate) fn check(node: &Node, value: &Number, place: &str, out: &mut Outcome) {
    let range = Range::of(node);
    if let Some(text) = range.complaint(value, "Checked", place) {
        out.fail(place, Kind::Loose(text));
    }
    if let Some(checks) = node.checks.as_ref().and_then(|checks| checks.numbers.as_deref()) {
        check_multiple(checks, &range, value, place, out);
        if let Some(bound) = checks.minimum {
            check_bound(Side::Minimum, bound, &range, value, place, out);
        }
        if let Some(bound) = checks.maximum {
            check_bound(Side::Maximum, bound, &range, value, place, out);
        }
    }
    out.matches += 1;
}

/// What the type and format of a place can hold.
struct Range {
    ty: Option<Type>,
    format: Option<Format>,
}

impl Range {
    fn of(node: &Node) -> Self {
        let ty = match node.types {
            Types::One(ty @ (Type::Integer | Type::Number)) => Some(ty),
            _ => None,
        };
        let format = node.checks.as_ref().and_then(|checks| checks.format.as_ref());
        Range {
            ty,
            format: format.map(|(_, format)| *format).filter(|_| ty.is_some()),
        }
    }

    fn holds(&self, value: &Number) -> bool {
        let float = value.as_f64().unwrap_or_default();
        match (self.ty, self.format) {
            (Some(Type::Integer), format) => {
                let whole = match value.as_i64() {
                    Some(whole) => Some(whole),
                    None if float == float.trunc() && (-TWO_TO_63..TWO_TO_63).contains(&float) => Some(float as i64),
                    None => None,
                };
                whole.is_some_and(|whole| format != Some(Format::Int32) || i32::try_from(whole).is_ok())
            }
            (_, Some(Format::Float)) => (float as f32).is_finite(),
            _ => true,
        }
    }

    fn complaint(&self, value: &Number, what: &str, place: &str) -> Option<String> {
        if self.holds(value) {
            return None;
        }
        let ty = self.ty.map_or("", Type::name);
        Some(match self.format {
            Some(Format::Int32) => format!("{what} value must be of type {ty} with format int32 in {place}"),
            Some(Format::Int64) => format!("{what} value must be of type {ty} with format int64 in {place}"),
            Some(Format::Float) => format!("{what} value must be of type {ty} with format float in {place}"),
            _ => format!("{what} value must be of type {ty} (default format) in {place}"),
        })
    }
}

fn check_multiple(checks: &Numbers, range: &Range, value: &Number, place: &str, out: &mut Outcome) {
    let Some(factor) = checks.multiple_of else { return };
    let complaint = Number::from_f64(factor).and_then(|factor| range.complaint(&factor, "MultipleOf", place));
    let native = complaint.is_none().then(|| value.as_i64()).flatten();
    if let Some(text) = complaint {
        out.fail(place, Kind::Loose(text));
    }
    let (shown, is_multiple) = match native {
        Some(value) => {
            let factor = factor as i64;
            (factor.to_string(), (factor > 0).then(|| value % factor == 0))
        }
        None => {
            let value = value.as_f64().unwrap_or_default();
            let quotient = if factor < 1.0 {
                1.0 / factor * value
            } else {
                value / factor
            };
            (go::float(factor), (factor > 0.0).then(|| is_whole(quotient)))
        }
    };
    match is_multiple {
        Some(true) => {}
        Some(false) => invalid(
            value,
            format!("{place} in body should be a multiple of {shown}"),
            place,
            out,
        ),
        None => {
            let text = format!("factor MultipleOf declared for {place} must be positive: {shown}");
            let value = Number::from_f64(factor).map_or(Value::Null, Value::Number);
            out.fail(place, Kind::Invalid { value, text });
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Minimum,
    Maximum,
}

fn check_bound(side: Side, bound: Bound, range: &Range, value: &Number, place: &str, out: &mut Outcome) {
    let what = match side {
        Side::Minimum => "Minimum boundary",
        Side::Maximum => "Maximum boundary",
    };
    let complaint = Number::from_f64(bound.value).and_then(|bound| range.complaint(&bound, what, place));
    let native = complaint.is_none().then(|| value.as_i64()).flatten();
    if let Some(text) = complaint {
        out.fail(place, Kind::Loose(text));
    }
    let (order, shown) = match native {
        Some(value) => {
            let bound = bound.value as i64;
            (Some(value.cmp(&bound)), bound.to_string())
        }
        None => {
            let value = value.as_f64().unwrap_or_default();
            (value.partial_cmp(&bound.value), go::float(bound.value))
        }
    };
    let (wrong, words) = match side {
        Side::Minimum => (std::cmp::Ordering::Less, ["greater than or equal to", "greater than"]),
        Side::Maximum => (std::cmp::Ordering::Greater, ["less than or equal to", "less than"]),
    };
    let outside = order == Some(wrong) || (bound.exclusive && order == Some(std::cmp::Ordering::Equal));
    if outside {
        let words = words[usize::from(bound.exclusive)];
        invalid(value, format!("{place} in body should be {words} {shown}"), place, out);
    }
}

fn invalid(value: &Number, text: String, place: &str, out: &mut Outcome) {
    let value = Value::Number(value.clone());
    out.fail(place, Kind::Invalid { value, text });
}

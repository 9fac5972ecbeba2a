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
    // Upstream cuts to an unsigned integer, which is far from any negative number.
    whole > 0.0 && (value - whole).abs() / (value.abs() + whole.abs()) < EPSILON
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
        let is_of_type = |format: &Format| match ty {
            Some(Type::Integer) => matches!(format, Format::Int32 | Format::Int64),
            Some(_) => matches!(format, Format::Float | Format::Double),
            None => false,
        };
        Range {
            ty,
            format: format.map(|(_, format)| *format).filter(is_of_type),
        }
    }

    fn holds(&self, value: &Number) -> bool {
        let float = value.as_f64().unwrap_or_default();
        match (self.ty, self.format) {
            (Some(Type::Integer), format) => {
                let whole = match value.as_i64() {
                    Some(whole) => Some(whole),
                    // By its text, which has no more digits than tell it from others: the smallest integer is none then.
                    None => float.to_string().parse().ok(),
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

/// A value as it is compared and shown: an integer with what is cut to one, or a float.
enum Operand {
    Integer(i64),
    Float(f64),
}

impl Operand {
    /// An integer stays one if the bound or factor that it is compared with is of the place's type.
    fn of(value: &Number, complaint: Option<&String>) -> Self {
        match value.as_i64() {
            Some(value) if complaint.is_none() => Self::Integer(value),
            _ => Self::Float(value.as_f64().unwrap_or_default()),
        }
    }

    fn shown(&self) -> Value {
        match self {
            Self::Integer(value) => (*value).into(),
            Self::Float(value) => float(*value),
        }
    }
}

fn float(value: f64) -> Value {
    Number::from_f64(value).map_or(Value::Null, Value::Number)
}

fn check_multiple(checks: &Numbers, range: &Range, value: &Number, place: &str, out: &mut Outcome) {
    let Some(factor) = checks.multiple_of else { return };
    let complaint = Number::from_f64(factor).and_then(|factor| range.complaint(&factor, "MultipleOf", place));
    let operand = Operand::of(value, complaint.as_ref());
    if let Some(text) = complaint {
        out.fail(place, Kind::Loose(text));
    }
    let (factor, shown, is_multiple) = match operand {
        Operand::Integer(value) => {
            let factor = go::integer(factor);
            let is_multiple = (factor > 0).then(|| value % factor == 0);
            (factor.into(), factor.to_string(), is_multiple)
        }
        Operand::Float(value) => {
            let quotient = if factor < 1.0 {
                1.0 / factor * value
            } else {
                value / factor
            };
            let is_multiple = (factor > 0.0).then(|| is_whole(quotient));
            (float(factor), go::float(factor), is_multiple)
        }
    };
    match is_multiple {
        Some(true) => {}
        Some(false) => {
            let text = format!("{place} in body should be a multiple of {shown}");
            invalid(operand.shown(), text, place, out);
        }
        None => {
            let text = format!("factor MultipleOf declared for {place} must be positive: {shown}");
            invalid(factor, text, place, out);
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
    let operand = Operand::of(value, complaint.as_ref());
    if let Some(text) = complaint {
        out.fail(place, Kind::Loose(text));
    }
    let (order, shown) = match operand {
        Operand::Integer(value) => {
            let bound = go::integer(bound.value);
            (Some(value.cmp(&bound)), bound.to_string())
        }
        Operand::Float(value) => (value.partial_cmp(&bound.value), go::float(bound.value)),
    };
    let (wrong, words) = match side {
        Side::Minimum => (std::cmp::Ordering::Less, ["greater than or equal to", "greater than"]),
        Side::Maximum => (std::cmp::Ordering::Greater, ["less than or equal to", "less than"]),
    };
    let outside = order == Some(wrong) || (bound.exclusive && order == Some(std::cmp::Ordering::Equal));
    if outside {
        let words = words[usize::from(bound.exclusive)];
        let text = format!("{place} in body should be {words} {shown}");
        invalid(operand.shown(), text, place, out);
    }
}

fn invalid(value: Value, text: String, place: &str, out: &mut Outcome) {
    out.fail(place, Kind::Invalid { value, text });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_large_positive_numbers_are_nearly_whole() {
        assert!(is_whole(-3.0) && is_whole(858_993_459.6));
        assert!(!is_whole(-858_993_459.6) && !is_whole(1.5) && !is_whole(1e-12));
    }
}

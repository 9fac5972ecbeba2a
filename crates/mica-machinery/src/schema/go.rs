//! Numbers as Go's `fmt` prints them with `%v`, where errors show them.

use serde_json::{Number, Value};

/// From this power of ten on, Go prints a float with an exponent.
const EXPONENT_FROM: i32 = 6;

/// Below this power of ten, Go prints a float with an exponent.
const EXPONENT_BELOW: i32 = -4;

/// A float as `%v` prints it: the shortest digits that are exact.
pub(crate) fn float(value: f64) -> String {
    let text = format!("{value:e}");
    let (digits, power) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = power.parse().unwrap_or_default();
    if value == 0.0 || (EXPONENT_BELOW..EXPONENT_FROM).contains(&exponent) {
        return format!("{value}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

/// The integer that a float is cut to; beyond the range of integers it is the smallest of them, as on upstream's processors.
pub(crate) fn integer(value: f64) -> i64 {
    const LIMIT: f64 = (1_u64 << 63) as f64;
    if (-LIMIT..LIMIT).contains(&value) {
        value as i64
    } else {
        i64::MIN
    }
}

pub(crate) fn number(value: &Number) -> String {
    match value.as_f64() {
        Some(float_value) if value.is_f64() => float(float_value),
        _ => value.to_string(),
    }
}

/// What Go prints for a value that JSON prints differently.
pub(crate) fn unlike_json(value: &Value) -> Option<String> {
    match value {
        Value::Number(found) if found.is_f64() => Some(number(found)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_beyond_the_range_of_integers_are_cut_to_the_smallest() {
        let smallest = -9_223_372_036_854_775_808.0;
        for (value, cut) in [
            (1.9, 1),
            (-1.9, -1),
            (1e18, 10_i64.pow(18)),
            (smallest, i64::MIN),
            (1e19, i64::MIN),
        ] {
            assert_eq!(integer(value), cut, "{value}");
        }
        assert_eq!(integer(f64::NAN), i64::MIN);
    }

    #[test]
    fn floats_print_as_in_go() {
        for (value, text) in [
            (0.0, "0"),
            (1.0, "1"),
            (0.5, "0.5"),
            (100_000.0, "100000"),
            (1_234_567.0, "1.234567e+06"),
            (1e6, "1e+06"),
            (1e21, "1e+21"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
        ] {
            assert_eq!(float(value), text);
        }
    }
}

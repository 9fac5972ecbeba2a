//! Durations as Go writes them (`1m30s`, `1.5h`), for `?timeout=` and for options.

use std::time::Duration;

use mica_machinery::field::quote;

/// Go's largest duration, in nanoseconds.
const MAX: u64 = i64::MAX as u64;

/// Parses a duration by the rules of Go's `time.ParseDuration`, with its error texts. Negative ones become zero: no caller
/// has a use for them.
pub fn parse_go_duration(text: &str) -> Result<Duration, String> {
    let invalid = || format!("time: invalid duration {}", quote(text));
    let (negative, mut rest) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let (whole, after_whole) = digits(rest);
        let (fraction, after_fraction) = match after_whole.strip_prefix('.') {
            Some(after_point) => digits(after_point),
            None => ("", after_whole),
        };
        if whole.is_empty() && fraction.is_empty() {
            return Err(invalid());
        }
        let unit_end = after_fraction
            .find(|c: char| c == '.' || c.is_ascii_digit())
            .unwrap_or(after_fraction.len());
        let (unit, after_unit) = after_fraction.split_at(unit_end);
        if unit.is_empty() {
            return Err(format!("time: missing unit in duration {}", quote(text)));
        }
        let Some(scale) = nanoseconds(unit) else {
            return Err(format!(
                "time: unknown unit {} in duration {}",
                quote(unit),
                quote(text)
            ));
        };
        let whole: u64 = if whole.is_empty() {
            0
        } else {
            whole.parse().map_err(|_| invalid())?
        };
        let part = whole.checked_mul(scale).ok_or_else(invalid)? + fraction_of(fraction, scale);
        total = total
            .checked_add(part)
            .filter(|total| *total <= MAX)
            .ok_or_else(invalid)?;
        rest = after_unit;
    }
    Ok(if negative {
        Duration::ZERO
    } else {
        Duration::from_nanos(total)
    })
}

fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

/// The part of a unit that digits after the point stand for; digits below a nanosecond do not count.
fn fraction_of(digits: &str, scale: u64) -> u64 {
    let mut worth = scale as f64;
    let mut sum = 0.0;
    for digit in digits.bytes().take(18) {
        worth /= 10.0;
        sum += f64::from(digit - b'0') * worth;
    }
    // In range and not negative: at most one hour.
    sum as u64
}

fn nanoseconds(unit: &str) -> Option<u64> {
    Some(match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_in_go() {
        for (text, millis) in [
            ("0", 0),
            ("5s", 5_000),
            ("1m30s", 90_000),
            ("1.5h", 5_400_000),
            (".5s", 500),
            ("+20ms", 20),
            ("-5s", 0),
            ("1h0m1s", 3_601_000),
        ] {
            assert_eq!(parse_go_duration(text).unwrap().as_millis(), millis, "{text}");
        }
        for (text, error) in [
            ("", r#"time: invalid duration """#),
            ("abc", r#"time: invalid duration "abc""#),
            ("5", r#"time: missing unit in duration "5""#),
            ("5x", r#"time: unknown unit "x" in duration "5x""#),
            ("1s5", r#"time: missing unit in duration "1s5""#),
            (".s", r#"time: invalid duration ".s""#),
            ("99999999999h", r#"time: invalid duration "99999999999h""#),
        ] {
            assert_eq!(parse_go_duration(text).unwrap_err(), error, "{text}");
        }
    }
}

//! Durations: the ages that tables show, and Go's duration texts (`1h30m`).

use jiff::{SignedDuration, Timestamp};

use crate::time::{Precision, Time, quote};

/// The age column of a table: `3d4h`, with two or three significant figures.
pub fn human(duration: SignedDuration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        ..-1 => return "<invalid>".to_owned(),
        -1 => return "0s".to_owned(),
        0..120 => return format!("{seconds}s"),
        _ => {}
    }
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let (days, years) = (hours / 24, hours / 24 / 365);
    match () {
        () if minutes < 10 => two(minutes, "m", seconds % 60, "s"),
        () if minutes < 60 * 3 => format!("{minutes}m"),
        () if hours < 8 => two(hours, "h", minutes % 60, "m"),
        () if hours < 48 => format!("{hours}h"),
        () if hours < 24 * 8 => two(days, "d", hours % 24, "h"),
        () if hours < 24 * 365 * 2 => format!("{days}d"),
        () if hours < 24 * 365 * 8 => two(years, "y", days % 365, "d"),
        () => format!("{years}y"),
    }
}

/// One unit only: `3d`.
pub fn short_human(duration: SignedDuration) -> String {
    let seconds = duration.as_secs();
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    match () {
        () if seconds < -1 => "<invalid>".to_owned(),
        () if seconds < 0 => "0s".to_owned(),
        () if seconds < 60 => format!("{seconds}s"),
        () if minutes < 60 => format!("{minutes}m"),
        () if hours < 24 => format!("{hours}h"),
        () if hours < 24 * 365 => format!("{}d", hours / 24),
        () => format!("{}y", hours / 24 / 365),
    }
}

fn two(large: i64, large_unit: &str, small: i64, small_unit: &str) -> String {
    if small == 0 {
        format!("{large}{large_unit}")
    } else {
        format!("{large}{large_unit}{small}{small_unit}")
    }
}

/// How long ago a timestamp's text is; `<unknown>` if it is none.
pub fn age(timestamp: &str, now: Timestamp) -> String {
    match Time::parse(timestamp, Precision::Second) {
        Ok(time) if !time.is_zero() => human(time.until(now)),
        _ => "<unknown>".to_owned(),
    }
}

/// Go's error for a duration's text.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("time: {what} {}", quote(text))]
pub struct ParseError {
    what: String,
    text: String,
}

/// Nanoseconds of Go's duration text.
pub fn parse_go(text: &str) -> Result<i64, ParseError> {
    let error = |what: &str| ParseError {
        what: what.to_owned(),
        text: text.to_owned(),
    };
    let invalid = || error("invalid duration");
    let (negative, mut rest) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut total: u128 = 0;
    while !rest.is_empty() {
        let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
        let (whole, after) = rest.split_at(digits(rest));
        let (fraction, after) = match after.strip_prefix('.') {
            Some(after) => after.split_at(digits(after)),
            None => ("", after),
        };
        if whole.is_empty() && fraction.is_empty() {
            return Err(invalid());
        }
        let unit = after.bytes().take_while(|c| !c.is_ascii_digit() && *c != b'.').count();
        if unit == 0 {
            return Err(error("missing unit in duration"));
        }
        let (unit, after) = after.split_at(unit);
        let nanos = unit_nanos(unit).ok_or_else(|| error(&format!("unknown unit {} in duration", quote(unit))))?;
        let whole: u64 = if whole.is_empty() {
            0
        } else {
            whole.parse().map_err(|_| invalid())?
        };
        total += u128::from(whole) * u128::from(nanos) + fraction_nanos(fraction, nanos);
        if total > 1 << 63 {
            return Err(invalid());
        }
        rest = after;
    }
    let total = i128::try_from(total).expect("bounded above");
    i64::try_from(if negative { -total } else { total }).map_err(|_| invalid())
}

fn unit_nanos(unit: &str) -> Option<u64> {
    match unit {
        "ns" => Some(1),
        "us" | "µs" | "μs" => Some(1_000),
        "ms" => Some(1_000_000),
        "s" => Some(1_000_000_000),
        "m" => Some(60_000_000_000),
        "h" => Some(3_600_000_000_000),
        _ => None,
    }
}

/// In floating point, as Go computes it.
fn fraction_nanos(digits: &str, unit: u64) -> u128 {
    let (mut value, mut scale) = (0u64, 1f64);
    for digit in digits.bytes() {
        if value > (i64::MAX as u64) / 10 {
            break;
        }
        value = value * 10 + u64::from(digit - b'0');
        scale *= 10.0;
    }
    (value as f64 * (unit as f64 / scale)) as u128
}

/// Go's text of a duration: `1h0m0s`, `1.5s`, `100ms`, `0s`.
pub fn format_go(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let total = nanos.unsigned_abs();
    if total == 0 {
        return "0s".to_owned();
    }
    if total < 1_000_000_000 {
        let (unit, divisor) = match total {
            0..1_000 => ("ns", 1),
            1_000..1_000_000 => ("µs", 1_000),
            _ => ("ms", 1_000_000),
        };
        return format!("{sign}{}{unit}", decimal(total, divisor));
    }
    let seconds = decimal(total % 60_000_000_000, 1_000_000_000);
    let minutes = total / 60_000_000_000;
    match (minutes / 60, minutes % 60) {
        (0, 0) => format!("{sign}{seconds}s"),
        (0, minutes) => format!("{sign}{minutes}m{seconds}s"),
        (hours, minutes) => format!("{sign}{hours}h{minutes}m{seconds}s"),
    }
}

fn decimal(value: u64, divisor: u64) -> String {
    let (whole, rest) = (value / divisor, value % divisor);
    if rest == 0 {
        return whole.to_string();
    }
    let width = divisor.ilog10() as usize;
    format!("{whole}.{}", format!("{rest:0width$}").trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn ages_have_two_or_three_figures() {
        let seconds = [
            -5,
            -1,
            0,
            119,
            120,
            599,
            600,
            3 * 3600,
            7 * 3600 + 60,
            8 * 3600,
            48 * 3600,
            49 * 3600,
            8 * 86400,
        ];
        let years = [2, 3, 8].map(|years| years * 365 * 86400 + 86400);
        let ages: Vec<String> = seconds
            .into_iter()
            .chain(years)
            .map(|seconds| {
                let duration = SignedDuration::from_secs(seconds);
                format!("{} {}", human(duration), short_human(duration))
            })
            .collect();
        expect![[r#"
            <invalid> <invalid>
            0s 0s
            0s 0s
            119s 1m
            2m 2m
            9m59s 9m
            10m 10m
            3h 3h
            7h1m 7h
            8h 8h
            2d 2d
            2d1h 2d
            8d 8d
            2y1d 2y
            3y1d 3y
            8y 8y"#]]
        .assert_eq(&ages.join("\n"));
    }

    #[test]
    fn an_age_needs_a_timestamp() {
        let now: Timestamp = "2024-01-01T00:01:00Z".parse().unwrap();
        assert_eq!(age("2024-01-01T00:00:00Z", now), "60s");
        assert_eq!(age("", now), "<unknown>");
        assert_eq!(age("0001-01-01T00:00:00Z", now), "<unknown>");
    }

    #[test]
    fn go_durations_round_trip() {
        for (text, printed) in [
            ("0", "0s"),
            ("1h", "1h0m0s"),
            ("1.5s", "1.5s"),
            ("90m", "1h30m0s"),
            ("-1m30s", "-1m30s"),
            ("1us", "1µs"),
            ("1.5ms", "1.5ms"),
            ("3ns", "3ns"),
            ("-2562047h47m16.854775808s", "-2562047h47m16.854775808s"),
        ] {
            assert_eq!(format_go(parse_go(text).unwrap()), printed, "{text}");
        }
    }

    #[test]
    fn bad_go_durations_have_gos_sentences() {
        let errors = ["", "1", "1x", "a", ".s", "9223372036854775808ns", "3000000h"]
            .map(|text| parse_go(text).unwrap_err().to_string());
        expect![[r#"
            time: invalid duration ""
            time: missing unit in duration "1"
            time: unknown unit "x" in duration "1x"
            time: invalid duration "a"
            time: invalid duration ".s"
            time: invalid duration "9223372036854775808ns"
            time: invalid duration "3000000h""#]]
        .assert_eq(&errors.join("\n"));
    }
}

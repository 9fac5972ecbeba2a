//! Numbers with a point, read from text as Go's `ParseFloat` reads them: also in hexadecimal, and with underscores.

/// The number that a text is; `None` too for one that is too large.
pub fn parse(text: &str) -> Option<f64> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let lower = digits.to_ascii_lowercase();
    let value = match lower.as_str() {
        "inf" | "infinity" => f64::INFINITY,
        // It has no sign.
        "nan" if digits.len() == text.len() => f64::NAN,
        _ => number(&lower).filter(|value| value.is_finite())?,
    };
    Some(if negative { -value } else { value })
}

fn number(lower: &str) -> Option<f64> {
    if lower.contains('_') && !underscores_separate(lower) {
        return None;
    }
    let plain = lower.replace('_', "");
    match plain.strip_prefix("0x") {
        Some(digits) => hexadecimal(digits),
        // Rust reads the same decimals; what else it knows (`inf`) starts with neither.
        None if plain.starts_with(|c: char| c.is_ascii_digit() || c == '.') => plain.parse().ok(),
        None => None,
    }
}

/// Whether underscores stand between digits; the `0x` of a number counts as one.
fn underscores_separate(lower: &str) -> bool {
    let prefix = ["0x", "0o", "0b"].iter().any(|prefix| lower.starts_with(prefix));
    let is_hexadecimal = lower.starts_with("0x");
    let is_digit = |c: char| c.is_ascii_digit() || (is_hexadecimal && c.is_ascii_hexdigit());
    let mut before = prefix;
    let mut after_underscore = false;
    for c in lower.chars().skip(if prefix { 2 } else { 0 }) {
        match c {
            '_' if !before => return false,
            '_' => (before, after_underscore) = (false, true),
            c if is_digit(c) => (before, after_underscore) = (true, false),
            _ if after_underscore => return false,
            _ => before = false,
        }
    }
    !after_underscore
}

/// `1.8p3`: hexadecimal digits and a power of two, which must be there.
fn hexadecimal(text: &str) -> Option<f64> {
    let (digits, exponent) = text.split_once('p')?;
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let unsigned = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    if unsigned.is_empty() || !unsigned.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    // Beyond that many, a number is zero or too large however many digits it has.
    const FAR: i64 = 10_000_000;
    let size = unsigned.parse().unwrap_or(FAR).min(FAR);
    let mut exponent = if exponent.starts_with('-') { -size } else { size };
    let mut mantissa = 0u64;
    for (i, byte) in whole.bytes().chain(fraction.bytes()).enumerate() {
        let digit = u64::from(char::from(byte).to_digit(16)?);
        if mantissa >> 60 == 0 {
            mantissa = mantissa << 4 | digit;
        } else {
            // What is left out only matters by being there.
            mantissa |= u64::from(digit != 0);
            exponent += 4;
        }
        if i >= whole.len() {
            exponent -= 4;
        }
    }
    Some(scaled(mantissa, exponent))
}

/// `mantissa` times two to the power of `exponent`, to the nearest number that there is, the even one of two.
fn scaled(mantissa: u64, exponent: i64) -> f64 {
    const DIGITS: i64 = 53;
    const LOWEST: i64 = -1074;
    if mantissa == 0 {
        return 0.0;
    }
    let bits = 64 - i64::from(mantissa.leading_zeros());
    // The place of the last bit that is kept.
    let unit = (exponent + bits - DIGITS).max(LOWEST);
    let drop = unit - exponent;
    let kept = match drop {
        ..=0 => u128::from(mantissa) << -drop,
        1..=64 => {
            let (wide, half) = (u128::from(mantissa), 1u128 << (drop - 1));
            let (kept, rest) = (wide >> drop, wide & ((1u128 << drop) - 1));
            kept + u128::from(rest > half || (rest == half && kept & 1 == 1))
        }
        _ => 0,
    };
    // `kept` is exact as a number, and in two steps neither factor leaves the range before the product does.
    let power = unit.clamp(-2000, 2000) as i32;
    let half = power / 2;
    kept as f64 * 2f64.powi(half) * 2f64.powi(power - half)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_that_go_reads() {
        let cases = [
            ("0x1p3", 8.0),
            ("0X.8P1", 1.0),
            ("-0x_1_0p-4", -1.0),
            ("1_000", 1000.0),
            ("0_1", 1.0),
            ("1_0e1_0", 1e11),
            (".5", 0.5),
            ("5.", 5.0),
            ("0x1.fffffffffffff8p0", 2.0),
            ("0x1.fffffffffffff7ffffffffffp0", 1.9999999999999998),
            ("0x1.00000000000008p0", 1.0),
            ("0x1.000000000000080000000000001p0", 1.0000000000000002),
            ("0x1p-1074", 5e-324),
            ("0x1p-1075", 0.0),
            ("0x1.8p-1075", 5e-324),
            ("0x0p99999999999999999999", 0.0),
            ("0x1.fffffffffffffp1023", f64::MAX),
            ("1e-400", 0.0),
            ("-Infinity", f64::NEG_INFINITY),
            ("+iNf", f64::INFINITY),
        ];
        for (text, value) in cases {
            assert_eq!(parse(text), Some(value), "{text}");
        }
        assert!(parse("NaN").is_some_and(f64::is_nan));
        for text in [
            "",
            "+",
            "1__0",
            "_1",
            "1_",
            "1_.5",
            "1._5",
            "0x1",
            "0x",
            "0xp1",
            "0x1p",
            "0x1p+",
            "0x1px",
            "+nan",
            "infin",
            "1e",
            "1e400",
            "0x1p1024",
            "0x1.fffffffffffff8p1023",
            " 1",
            "1 ",
            "--1",
            "0b1",
            "0o7",
            "1e1_",
            "0x1_p3",
            "e5",
            ".",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}

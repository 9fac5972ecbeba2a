//! Reading a quantity's text.
//!
//! Upstream has a fast path (few digits) and a slow one (big decimals), and they differ in what prints afterwards: only
//! the fast one may keep the text as it was. The conditions for it are therefore facts and stand here as upstream has them.

use super::{Format, Held, MAX_DIGITS, NANO, ParseError, Quantity, divide_away, fit};

/// Texts with at most this many digits take upstream's fast path.
const FAST_DIGITS: usize = 18;

struct Parts<'a> {
    negative: bool,
    /// Digits before the point without leading zeros, `0` if there are none.
    whole: &'a str,
    fraction: &'a str,
    suffix: &'a str,
}

pub(super) fn parse(text: &str) -> Result<Quantity, ParseError> {
    if text.is_empty() {
        return Err(ParseError::Format);
    }
    let parts = split(text)?;
    let (format, exponent) = suffix(parts.suffix)?;
    if let Some(fast) = fast(text, &parts, format, exponent) {
        return Ok(fast);
    }
    // Only the slow path misses digits: `Ki` is zero, `Pi` is an error.
    if !text
        .bytes()
        .take(text.len() - parts.suffix.len())
        .any(|c| c.is_ascii_digit())
    {
        return Err(ParseError::Numeric);
    }
    Ok(slow(&parts, format, exponent))
}

fn split(text: &str) -> Result<Parts<'_>, ParseError> {
    let (negative, unsigned) = match text.as_bytes()[0] {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let significant = unsigned.trim_start_matches('0');
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let (whole, rest) = significant.split_at(digits(significant));
    let (fraction, suffix) = match rest.strip_prefix('.') {
        Some(rest) => rest.split_at(digits(rest)),
        None => ("", rest),
    };
    let letters = suffix.bytes().take_while(|c| b"eEinumkKMGTP".contains(c)).count();
    let exponent = &suffix[letters..];
    let exponent = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
    if digits(exponent) != exponent.len() {
        return Err(ParseError::Format);
    }
    Ok(Parts {
        negative,
        whole: if whole.is_empty() { "0" } else { whole },
        fraction,
        suffix,
    })
}

/// The family, and the exponent of ten or two.
fn suffix(suffix: &str) -> Result<(Format, i32), ParseError> {
    let decimal = |exponent| Ok((Format::DecimalSi, exponent));
    let binary = |exponent| Ok((Format::BinarySi, exponent));
    match suffix {
        "" => decimal(0),
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(10),
        "Mi" => binary(20),
        "Gi" => binary(30),
        "Ti" => binary(40),
        "Pi" => binary(50),
        "Ei" => binary(60),
        _ => {
            let digits = suffix.strip_prefix(['e', 'E']).ok_or(ParseError::Suffix)?;
            let exponent: i64 = digits.parse().map_err(|_| ParseError::Suffix)?;
            // Upstream cuts to 32 bits.
            Ok((Format::DecimalExponent, exponent as i32))
        }
    }
}

/// Upstream's fast path, which may keep the text for printing.
fn fast(text: &str, parts: &Parts<'_>, format: Format, exponent: i32) -> Option<Quantity> {
    let (whole, fraction) = (parts.whole.len(), parts.fraction.len());
    let (factor, scale) = match format {
        Format::BinarySi => {
            // Upstream estimates the decimal digits of 2^exponent.
            if fraction > 0 || whole + exponent as usize * 3 / 10 > 14 {
                return None;
            }
            (1i128 << exponent, 0)
        }
        _ if whole + fraction > FAST_DIGITS => return None,
        _ => (1, i64::from(exponent) - fraction as i64),
    };
    if scale < i64::from(NANO) {
        return None;
    }
    let shifted = format!("{}{}", parts.whole, parts.fraction);
    let value: i128 = shifted.parse().ok()?;
    let result = value * factor;
    i64::try_from(result).ok()?;
    let kept = match format {
        Format::BinarySi => value & 7 != 0,
        _ => scale % 3 == 0 && !shifted.ends_with("000") && !shifted.starts_with('0'),
    };
    Some(Quantity {
        mantissa: if parts.negative { -result } else { result },
        scale,
        held: Held::Integer,
        format,
        text: kept.then(|| text.into()),
    })
}

fn slow(parts: &Parts<'_>, mut format: Format, exponent: i32) -> Quantity {
    let (mut mantissa, mut scale) = leading_digits(parts);
    if format == Format::BinarySi {
        (mantissa, scale) = times_power_of_two(mantissa, scale, exponent);
    } else {
        scale += i64::from(exponent);
    }
    if scale < i64::from(NANO) {
        // Whoever asks for some gets some: away from zero, to one nano at least.
        (mantissa, _) = divide_away(mantissa, i64::from(NANO) - scale);
        scale = NANO.into();
    }
    let mut quantity = Quantity::scaled(mantissa, scale, format);
    if format == Format::BinarySi {
        let (cap, one) = (Quantity::new(i64::MAX, format), Quantity::new(1, format));
        if quantity > cap {
            quantity = cap;
        }
        if quantity < one && !quantity.is_zero() {
            format = Format::DecimalSi;
        }
    }
    quantity.format = format;
    quantity.held = Held::Decimal;
    if parts.negative { quantity.negated() } else { quantity }
}

/// The number before any suffix, to 38 digits, rounded up.
fn leading_digits(parts: &Parts<'_>) -> (i128, i64) {
    let max = MAX_DIGITS as usize;
    let all = format!("{}{}", parts.whole, parts.fraction);
    let digits = all.trim_start_matches('0');
    let scale = -(parts.fraction.len() as i64);
    if digits.len() <= max {
        return (digits.parse().unwrap_or(0), scale);
    }
    let (kept, dropped) = digits.split_at(max);
    let mantissa: i128 = kept.parse().unwrap_or(0);
    let up = i128::from(dropped.bytes().any(|c| c != b'0'));
    fit(mantissa + up, scale + dropped.len() as i64)
}

/// Exact where 38 digits suffice, rounded up where not. Anything as large as that is capped afterwards.
fn times_power_of_two(mut mantissa: i128, mut scale: i64, exponent: i32) -> (i128, i64) {
    let factor = 1i128 << exponent;
    loop {
        if let Some(product) = mantissa.checked_mul(factor) {
            return fit(product, scale);
        }
        (mantissa, _) = divide_away(mantissa, 1);
        scale += 1;
    }
}

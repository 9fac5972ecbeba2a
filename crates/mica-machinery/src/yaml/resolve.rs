//! What a plain scalar means: YAML 1.1's booleans, nulls and numbers, as upstream's library guesses them.

use super::YamlError;

/// A scalar's meaning.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Resolved {
    Null,
    Bool(bool),
    Int(i64),
    /// Beyond `Int`.
    Uint(u64),
    Float(f64),
    /// Looks like a time; stays a string.
    Timestamp,
    Text,
}

const PREFIX: &str = "tag:yaml.org,2002:";

impl Resolved {
    fn tag(&self) -> &'static str {
        match self {
            Resolved::Null => "null",
            Resolved::Bool(_) => "bool",
            Resolved::Int(_) | Resolved::Uint(_) => "int",
            Resolved::Float(_) => "float",
            Resolved::Timestamp => "timestamp",
            Resolved::Text => "str",
        }
    }
}

/// The meaning of a plain scalar without a tag.
pub(super) fn resolve(text: &str) -> Resolved {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Resolved::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            return Resolved::Bool(true);
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            return Resolved::Bool(false);
        }
        ".nan" | ".NaN" | ".NAN" => return Resolved::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => return Resolved::Float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => return Resolved::Float(f64::NEG_INFINITY),
        _ => {}
    }
    match text.as_bytes()[0] {
        b'.' => text.parse().map_or(Resolved::Text, Resolved::Float),
        b'+' | b'-' | b'0'..=b'9' if is_timestamp(text) => Resolved::Timestamp,
        b'+' | b'-' | b'0'..=b'9' => number(&text.replace('_', "")),
        _ => Resolved::Text,
    }
}

/// The meaning of a scalar under an explicit tag.
pub(super) fn resolve_tagged(tag: &str, text: &str) -> Result<Resolved, YamlError> {
    let Some(wanted) = tag.strip_prefix(PREFIX) else {
        return Ok(Resolved::Text);
    };
    if !matches!(wanted, "bool" | "int" | "float" | "null" | "timestamp") {
        return Ok(Resolved::Text);
    }
    let found = resolve(text);
    match found {
        Resolved::Int(int) if wanted == "float" => Ok(Resolved::Float(int as f64)),
        // Only a timestamp asked for may be one.
        Resolved::Timestamp if wanted != "timestamp" => Err(mismatch("str", text, wanted)),
        _ if found.tag() == wanted => Ok(found),
        _ => Err(mismatch(found.tag(), text, wanted)),
    }
}

fn mismatch(found: &str, text: &str, wanted: &str) -> YamlError {
    YamlError::at(0, &format!("cannot decode !!{found} `{text}` as a !!{wanted}"))
}

/// Whether the tag says that the text is base64.
pub(super) fn is_binary(tag: &str) -> bool {
    tag.strip_prefix(PREFIX) == Some("binary")
}

/// Whether a mapping's key asks for another mapping to be merged in.
pub(super) fn is_merge(value: &str, tag: &str, implicit: bool) -> bool {
    value == "<<" && (implicit || tag.strip_prefix(PREFIX) == Some("merge"))
}

fn number(plain: &str) -> Resolved {
    if let Some(integer) = integer(plain) {
        return integer;
    }
    if is_decimal_float(plain)
        && let Some(float) = plain.parse::<f64>().ok().filter(|float| float.is_finite())
    {
        return Resolved::Float(float);
    }
    Resolved::Text
}

/// An integer in Go's notation: `0x`, `0o`, `0b` and a leading zero for octal.
fn integer(plain: &str) -> Option<Resolved> {
    let (sign, digits) = match plain.as_bytes().first()? {
        b'-' => (-1, &plain[1..]),
        b'+' => (1, &plain[1..]),
        _ => (1, plain),
    };
    let (base, digits) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, &digits[2..]),
        [b'0', b'o' | b'O', ..] => (8, &digits[2..]),
        [b'0', b'b' | b'B', ..] => (2, &digits[2..]),
        [b'0', _, ..] => (8, &digits[1..]),
        _ => (10, digits),
    };
    if !digits.bytes().all(|digit| digit.is_ascii_alphanumeric()) {
        return None;
    }
    let magnitude = u64::from_str_radix(digits, base).ok()?;
    match i64::try_from(i128::from(magnitude) * sign) {
        Ok(int) => Some(Resolved::Int(int)),
        // Only an unsigned text can be an unsigned number.
        Err(_) => plain.as_bytes()[0]
            .is_ascii_digit()
            .then_some(Resolved::Uint(magnitude)),
    }
}

/// `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`
fn is_decimal_float(text: &str) -> bool {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent.strip_prefix(['-', '+']).unwrap_or(exponent))),
        None => (unsigned, None),
    };
    let are_digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let has_digits = !whole.is_empty() || !fraction.is_empty();
    let good_exponent = exponent.is_none_or(|digits| !digits.is_empty() && are_digits(digits));
    has_digits && are_digits(whole) && are_digits(fraction) && good_exponent
}

/// A base-60 number of YAML 1.1, which is read as text but quoted when printed.
pub(super) fn is_base_60(text: &str) -> bool {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (digits, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let mut parts = digits.split(':');
    let first = parts.next().unwrap_or("");
    let digit_or_line = |b: u8| b.is_ascii_digit() || b == b'_';
    let is_sixtieth = |part: &str| match part.as_bytes() {
        [ones] => ones.is_ascii_digit(),
        [b'0'..=b'5', ones] => ones.is_ascii_digit(),
        _ => false,
    };
    digits.contains(':')
        && first.as_bytes().first().is_some_and(u8::is_ascii_digit)
        && first.bytes().all(digit_or_line)
        && parts.all(is_sixtieth)
        && fraction.bytes().all(digit_or_line)
}

/// Whether the text is a date, or a date and time, in a form that upstream knows.
fn is_timestamp(text: &str) -> bool {
    let mut rest = text.as_bytes();
    let year = rest.iter().take_while(|b| b.is_ascii_digit()).count();
    if year != 4 {
        return false;
    }
    let year = text[..4].parse().unwrap_or(0);
    rest = &rest[4..];
    let (Some(month), Some(day)) = (part(&mut rest, b"-", 12), part(&mut rest, b"-", 31)) else {
        return false;
    };
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = [31, if leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    if month == 0 || day == 0 || day > days[month - 1] {
        return false;
    }
    let separator = match rest {
        [] => return true,
        [separator, ..] => *separator,
    };
    let time = [
        part(&mut rest, b"Tt ", 23),
        part(&mut rest, b":", 59),
        part(&mut rest, b":", 59),
    ];
    if time.contains(&None) {
        return false;
    }
    if let [b'.' | b',', b'0'..=b'9', ..] = rest {
        let digits = rest[1..].iter().take_while(|b| b.is_ascii_digit()).count();
        rest = &rest[1 + digits..];
    }
    // A space before the time means that no zone follows.
    if separator == b' ' {
        rest.is_empty()
    } else {
        is_zone(rest)
    }
}

/// A separator and a number of one or two digits that is at most `max`.
fn part(rest: &mut &[u8], separators: &[u8], max: usize) -> Option<usize> {
    let [separator, first, after @ ..] = *rest else {
        return None;
    };
    if !separators.contains(separator) || !first.is_ascii_digit() {
        return None;
    }
    let mut value = usize::from(first - b'0');
    *rest = after;
    if let [second @ b'0'..=b'9', after @ ..] = after {
        value = value * 10 + usize::from(second - b'0');
        *rest = after;
    }
    (value <= max).then_some(value)
}

fn is_zone(rest: &[u8]) -> bool {
    match rest {
        b"Z" => true,
        [b'+' | b'-', h1, h2, b':', m1, m2] => {
            let pair = |tens: &u8, ones: &u8| {
                (tens.is_ascii_digit() && ones.is_ascii_digit()).then(|| (tens - b'0') * 10 + (ones - b'0'))
            };
            pair(h1, h2).is_some_and(|h| h <= 24) && pair(m1, m2).is_some_and(|m| m <= 60)
        }
        _ => false,
    }
}

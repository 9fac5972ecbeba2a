//! Bytes into the characters that YAML allows.

use super::YamlError;

/// Decodes UTF-8, or UTF-16 where a byte order mark says so, and refuses what YAML does.
pub(super) fn characters(data: &[u8]) -> Result<Vec<char>, YamlError> {
    let characters = match data {
        [0xff, 0xfe, rest @ ..] => utf16(rest, u16::from_le_bytes)?,
        [0xfe, 0xff, rest @ ..] => utf16(rest, u16::from_be_bytes)?,
        [0xef, 0xbb, 0xbf, rest @ ..] => utf8(rest)?,
        _ => utf8(data)?,
    };
    if characters.iter().all(|c| is_allowed(*c)) {
        Ok(characters)
    } else {
        Err(YamlError::at(0, "control characters are not allowed"))
    }
}

fn is_allowed(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | ' '..='~' | '\u{85}' | '\u{a0}'..='\u{fffd}' | '\u{10000}'..)
}

fn utf8(data: &[u8]) -> Result<Vec<char>, YamlError> {
    match std::str::from_utf8(data) {
        Ok(text) => Ok(text.chars().collect()),
        Err(error) => Err(YamlError::at(0, utf8_problem(&data[error.valid_up_to()..]))),
    }
}

/// Upstream's word for what is wrong with the sequence at the start of `rest`.
fn utf8_problem(rest: &[u8]) -> &'static str {
    let width = match rest.first() {
        Some(0xc0..=0xdf) => 2,
        Some(0xe0..=0xef) => 3,
        Some(0xf0..=0xf7) => 4,
        _ => return "invalid leading UTF-8 octet",
    };
    if rest.len() < width {
        return "incomplete UTF-8 octet sequence";
    }
    if rest[1..width].iter().any(|octet| octet & 0xc0 != 0x80) {
        return "invalid trailing UTF-8 octet";
    }
    let lead = u32::from(rest[0]) & (0x7f >> width);
    let value = rest[1..width]
        .iter()
        .fold(lead, |value, octet| value << 6 | u32::from(octet & 0x3f));
    match (width, value) {
        (2, ..0x80) | (3, ..0x800) | (4, ..0x10000) => "invalid length of a UTF-8 sequence",
        _ => "invalid Unicode character",
    }
}

fn utf16(data: &[u8], unit: fn([u8; 2]) -> u16) -> Result<Vec<char>, YamlError> {
    let pairs = data.chunks_exact(2);
    if !pairs.remainder().is_empty() {
        return Err(YamlError::at(0, "incomplete UTF-16 character"));
    }
    let units = pairs.map(|pair| unit([pair[0], pair[1]]));
    let decoded: Result<Vec<char>, _> = char::decode_utf16(units).collect();
    decoded.map_err(|error| match error.unpaired_surrogate() {
        0xdc00.. => YamlError::at(0, "unexpected low surrogate area"),
        _ => YamlError::at(0, "expected low surrogate area"),
    })
}

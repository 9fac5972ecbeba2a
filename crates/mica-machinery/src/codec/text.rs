//! Text forms that Go's libraries give clients: quoted strings, base64 and JSON numbers.

use std::fmt::Write;

/// Quotes as Go's `strconv.Quote`: what is not printable becomes an escape.
pub fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        quote_char(&mut out, c);
    }
    out.push('"');
    out
}

fn quote_char(out: &mut String, c: char) {
    match c {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        '\x07' => out.push_str("\\a"),
        '\x08' => out.push_str("\\b"),
        '\x0c' => out.push_str("\\f"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        '\x0b' => out.push_str("\\v"),
        ' '..='~' => out.push(c),
        '\0'..='\x7f' => write!(out, "\\x{:02x}", u32::from(c)).expect("writing to a string cannot fail"),
        _ if is_printable(c) => out.push(c),
        _ if u32::from(c) > 0xffff => write!(out, "\\U{:08x}", u32::from(c)).expect("writing to a string cannot fail"),
        _ => write!(out, "\\u{:04x}", u32::from(c)).expect("writing to a string cannot fail"),
    }
}

fn is_printable(c: char) -> bool {
    // The standard library knows which characters print. Only the first of a string may not be a combining mark
    // there; in Go marks always print.
    let mut text = String::from("a");
    text.push(c);
    c == char::REPLACEMENT_CHARACTER || text.escape_debug().count() == 2
}

/// Prints a float as Go's JSON encoder: shortest digits, an exponent only for the very small and very large.
pub fn write_float(out: &mut Vec<u8>, value: f64) {
    use std::io::Write as _;
    let magnitude = value.abs();
    if magnitude != 0.0 && !(1e-6..1e21).contains(&magnitude) {
        let text = format!("{value:e}");
        match text.split_once('e') {
            Some((digits, power)) if !power.starts_with('-') => {
                write!(out, "{digits}e+{power}").expect("writing to a vector cannot fail");
            }
            _ => out.extend_from_slice(text.as_bytes()),
        }
    } else {
        write!(out, "{value}").expect("writing to a vector cannot fail");
    }
}

/// How many bytes come before the first special one.
pub(super) fn plain_length(bytes: &[u8], special: impl Fn(u8) -> bool) -> usize {
    const BLOCK: usize = 16;
    // Without a branch for each byte, so that a block is a few instructions: most texts have nothing special.
    let is_plain = |block: &&[u8]| !block.iter().fold(false, |found, byte| found | special(*byte));
    let plain = bytes.chunks_exact(BLOCK).take_while(is_plain).count() * BLOCK;
    plain + bytes[plain..].iter().take_while(|byte| !special(**byte)).count()
}

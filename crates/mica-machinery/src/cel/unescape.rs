//! The value of a string or bytes literal, from its text in the source.

/// Whether escapes stand for characters or for bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Text,
    Bytes,
}

const BROKEN: &str = "unable to unescape string";
const BROKEN_OCTAL: &str = "unable to unescape octal sequence in string";

/// Unquotes and unescapes `literal` (quotes and an `r` prefix included, a `b` prefix not).
pub fn unescape(literal: &str, form: Form) -> Result<Vec<u8>, &'static str> {
    let text = literal.replace("\r\n", "\n").replace('\r', "\n");
    let (raw, quoted) = match text.strip_prefix(['r', 'R']) {
        Some(rest) => (true, rest),
        None => (false, text.as_str()),
    };
    let inner = ["'''", "\"\"\"", "'", "\""]
        .iter()
        .find_map(|quote| {
            let rest = quoted.strip_prefix(quote)?;
            rest.strip_suffix(quote)
        })
        .ok_or(BROKEN)?;
    if raw || !inner.contains('\\') {
        return Ok(inner.as_bytes().to_vec());
    }
    let mut out = Vec::with_capacity(inner.len());
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        if c == '\\' {
            escape(&mut chars, form, &mut out)?;
        } else {
            push(&mut out, c);
        }
    }
    Ok(out)
}

fn escape(chars: &mut std::str::Chars<'_>, form: Form, out: &mut Vec<u8>) -> Result<(), &'static str> {
    let c = chars
        .next()
        .ok_or("unable to unescape string, found '\\' as last character")?;
    let code = match c {
        'a' => 7,
        'b' => 8,
        'f' => 12,
        'n' => 10,
        'r' => 13,
        't' => 9,
        'v' => 11,
        '\\' | '\'' | '"' | '`' | '?' => c as u32,
        'x' | 'X' => digits(chars, 2, 16).ok_or(BROKEN)?,
        'u' | 'U' if form == Form::Bytes => return Err(BROKEN),
        'u' => digits(chars, 4, 16).ok_or(BROKEN)?,
        'U' => digits(chars, 8, 16).ok_or(BROKEN)?,
        '0'..='3' => {
            let rest = digits(chars, 2, 8).ok_or(BROKEN_OCTAL)?;
            (c as u32 - '0' as u32) * 64 + rest
        }
        _ => return Err(BROKEN),
    };
    match form {
        Form::Bytes => out.push(code as u8),
        Form::Text => push(out, char::from_u32(code).ok_or("invalid unicode code point")?),
    }
    Ok(())
}

fn digits(chars: &mut std::str::Chars<'_>, count: usize, radix: u32) -> Option<u32> {
    let mut value = 0u32;
    for _ in 0..count {
        value = value.checked_mul(radix)? + chars.next()?.to_digit(radix)?;
    }
    Some(value)
}

fn push(out: &mut Vec<u8>, c: char) {
    out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_mean_what_upstream_says() {
        type Case = (&'static str, Form, Result<&'static [u8], &'static str>);
        let cases: &[Case] = &[
            ("'a\\nb'", Form::Text, Ok(b"a\nb")),
            ("\"\\u00e9\"", Form::Text, Ok("é".as_bytes())),
            ("'\\xff'", Form::Text, Ok("ÿ".as_bytes())),
            ("'\\xff'", Form::Bytes, Ok(b"\xff")),
            ("'\\377'", Form::Bytes, Ok(b"\xff")),
            ("r'\\d'", Form::Text, Ok(b"\\d")),
            ("'''a'b'''", Form::Text, Ok(b"a'b")),
            ("'\\ud800'", Form::Text, Err("invalid unicode code point")),
            ("'\\u0041'", Form::Bytes, Err(BROKEN)),
        ];
        for (literal, form, want) in cases {
            assert_eq!(unescape(literal, *form).as_deref(), want.as_deref(), "{literal}");
        }
    }
}

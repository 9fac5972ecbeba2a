//! A reader over JSON that [`syntax`](super::syntax) has already found well-formed.
//!
//! Because of that precondition nothing here can fail; on other input the results are wrong but nothing panics.

use std::borrow::Cow;

/// What kind of value starts at the cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Token {
    Object,
    Array,
    String,
    Number,
    True,
    False,
    Null,
}

#[derive(Clone)]
pub(super) struct Cursor<'a> {
    data: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(data: &'a [u8]) -> Self {
        Cursor { data, at: 0 }
    }

    pub(super) fn offset(&self) -> usize {
        self.at
    }

    /// A cursor at another place of the same document.
    pub(super) fn at_offset(&self, at: usize) -> Self {
        Cursor { data: self.data, at }
    }

    fn skip_space(&mut self) {
        while let Some(b' ' | b'\t' | b'\r' | b'\n') = self.data.get(self.at) {
            self.at += 1;
        }
    }

    pub(super) fn peek(&mut self) -> Token {
        self.skip_space();
        match self.data.get(self.at) {
            Some(b'{') => Token::Object,
            Some(b'[') => Token::Array,
            Some(b'"') => Token::String,
            Some(b't') => Token::True,
            Some(b'f') => Token::False,
            Some(b'n') | None => Token::Null,
            Some(_) => Token::Number,
        }
    }

    /// Steps over `{` or `[`.
    pub(super) fn open(&mut self) {
        self.at += 1;
    }

    /// Moves to the next member of the object or element of the array; false, and past the end, if there is none.
    pub(super) fn more(&mut self) -> bool {
        self.skip_space();
        match self.data.get(self.at) {
            Some(b',') => {
                self.at += 1;
                self.skip_space();
                true
            }
            Some(b'}' | b']') => {
                self.at += 1;
                false
            }
            None => false,
            Some(_) => true,
        }
    }

    /// Reads a member's key and the colon.
    pub(super) fn key(&mut self) -> Cow<'a, str> {
        self.skip_space();
        let key = self.string();
        self.skip_space();
        self.at += 1;
        key
    }

    /// Reads a string with escapes resolved; what is not UTF-8 becomes U+FFFD, byte by byte as in Go.
    pub(super) fn string(&mut self) -> Cow<'a, str> {
        let raw = self.raw();
        unquote(raw.get(1..raw.len().saturating_sub(1)).unwrap_or_default())
    }

    /// Steps over a value and returns its bytes.
    pub(super) fn raw(&mut self) -> &'a [u8] {
        self.skip_space();
        let start = self.at;
        let mut depth = 0_usize;
        while let Some(byte) = self.data.get(self.at) {
            match byte {
                b'{' | b'[' => {
                    depth += 1;
                    self.at += 1;
                }
                b'}' | b']' => {
                    depth = depth.saturating_sub(1);
                    self.at += 1;
                }
                b'"' => self.skip_string(),
                b',' | b':' | b' ' | b'\t' | b'\r' | b'\n' => {
                    self.at += 1;
                    continue;
                }
                _ => self.skip_literal(),
            }
            if depth == 0 {
                break;
            }
        }
        &self.data[start..self.at]
    }

    fn skip_string(&mut self) {
        self.at += 1;
        loop {
            match memchr::memchr2(b'"', b'\\', self.data.get(self.at..).unwrap_or_default()) {
                Some(found) if self.data[self.at + found] == b'"' => {
                    self.at += found + 1;
                    return;
                }
                Some(found) => self.at = (self.at + found + 2).min(self.data.len()),
                None => {
                    self.at = self.data.len();
                    return;
                }
            }
        }
    }

    fn skip_literal(&mut self) {
        self.at += 1;
        while let Some(b'0'..=b'9' | b'a'..=b'z' | b'E' | b'.' | b'+' | b'-') = self.data.get(self.at) {
            self.at += 1;
        }
    }
}

/// Resolves the inside of a JSON string literal.
fn unquote(raw: &[u8]) -> Cow<'_, str> {
    if memchr::memchr(b'\\', raw).is_none()
        && let Ok(text) = std::str::from_utf8(raw)
    {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some(at) = memchr::memchr(b'\\', rest) {
        push_lossy(&mut out, &rest[..at]);
        rest = push_escape(&mut out, &rest[at + 1..]);
    }
    push_lossy(&mut out, rest);
    Cow::Owned(out)
}

fn push_lossy(out: &mut String, bytes: &[u8]) {
    for chunk in bytes.utf8_chunks() {
        out.push_str(chunk.valid());
        out.extend(std::iter::repeat_n(char::REPLACEMENT_CHARACTER, chunk.invalid().len()));
    }
}

/// Resolves the escape after a backslash and returns what follows it.
fn push_escape<'a>(out: &mut String, rest: &'a [u8]) -> &'a [u8] {
    let Some((letter, after)) = rest.split_first() else {
        return rest;
    };
    out.push(match letter {
        b'b' => '\x08',
        b'f' => '\x0c',
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        b'u' => return push_unicode(out, after),
        other => char::from(*other),
    });
    after
}

fn push_unicode<'a>(out: &mut String, rest: &'a [u8]) -> &'a [u8] {
    let unit = hex4(rest);
    let after = rest.get(4..).unwrap_or_default();
    let low = match after {
        [b'\\', b'u', digits @ ..] if (0xd800..0xdc00).contains(&unit) => hex4(digits),
        _ => 0,
    };
    if (0xdc00..0xe000).contains(&low) {
        let code = 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
        out.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
        return after.get(6..).unwrap_or_default();
    }
    // A lone surrogate is no character.
    out.push(char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER));
    after
}

fn hex4(digits: &[u8]) -> u32 {
    digits
        .iter()
        .take(4)
        .fold(0, |sum, b| sum * 16 + char::from(*b).to_digit(16).unwrap_or(0))
}

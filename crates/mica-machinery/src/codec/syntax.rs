//! Whether bytes are JSON, with Go's words when they are not.
//!
//! Runs before any decoding, as Go does: a document with a syntax error anywhere is refused for that, and everything
//! after may assume well-formed input. Iterative, so nesting costs memory and never stack.

use super::text::{plain_length, quote};

/// Go's own limit on nesting.
const MAX_NESTING: usize = 10_000;

/// Returns Go's error text if `data` is not exactly one JSON value.
pub(super) fn check(data: &[u8]) -> Result<(), String> {
    let mut scanner = Scanner {
        data,
        at: 0,
        open: Vec::new(),
    };
    scanner.document()
}

struct Scanner<'a> {
    data: &'a [u8],
    at: usize,
    /// The containers we are inside of.
    open: Vec<Container>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Container {
    Object,
    Array,
}

/// What may come next.
enum Next {
    Value,
    /// Just after `[`.
    ValueOrEnd,
    /// Just after `{`.
    KeyOrEnd,
    Key,
    /// After a complete value.
    AfterValue,
}

impl Scanner<'_> {
    fn document(&mut self) -> Result<(), String> {
        let mut next = Next::Value;
        loop {
            let Some(byte) = self.skip_space() else {
                return match next {
                    Next::AfterValue if self.open.is_empty() => Ok(()),
                    _ => Err("unexpected end of JSON input".into()),
                };
            };
            next = match (next, byte) {
                (Next::ValueOrEnd, b']') | (Next::KeyOrEnd, b'}') => self.close(),
                (Next::Value | Next::ValueOrEnd, _) => self.value(byte)?,
                (Next::Key | Next::KeyOrEnd, b'"') => self.key()?,
                (Next::Key | Next::KeyOrEnd, _) => {
                    return Err(invalid(byte, "looking for beginning of object key string"));
                }
                (Next::AfterValue, _) => self.after_value(byte)?,
            };
        }
    }

    fn skip_space(&mut self) -> Option<u8> {
        while let Some(byte) = self.data.get(self.at) {
            match byte {
                b' ' | b'\t' | b'\r' | b'\n' => self.at += 1,
                _ => return Some(*byte),
            }
        }
        None
    }

    /// The next byte inside a literal; Go feeds a space at the end of the input.
    fn literal_byte(&mut self) -> u8 {
        self.data.get(self.at).copied().unwrap_or(b' ')
    }

    fn close(&mut self) -> Next {
        self.open.pop();
        self.at += 1;
        Next::AfterValue
    }

    fn value(&mut self, byte: u8) -> Result<Next, String> {
        self.at += 1;
        match byte {
            b'{' => return self.push(byte, Container::Object, Next::KeyOrEnd),
            b'[' => return self.push(byte, Container::Array, Next::ValueOrEnd),
            b'"' => self.string()?,
            b'-' => match self.literal_byte() {
                digit @ b'0'..=b'9' => {
                    self.at += 1;
                    self.number(digit)?;
                }
                other => return Err(invalid(other, "in numeric literal")),
            },
            b'0'..=b'9' => self.number(byte)?,
            b't' => self.word("true")?,
            b'f' => self.word("false")?,
            b'n' => self.word("null")?,
            _ => return Err(invalid(byte, "looking for beginning of value")),
        }
        Ok(Next::AfterValue)
    }

    fn push(&mut self, byte: u8, container: Container, next: Next) -> Result<Next, String> {
        self.open.push(container);
        if self.open.len() > MAX_NESTING {
            return Err(invalid(byte, "exceeded max depth"));
        }
        Ok(next)
    }

    fn key(&mut self) -> Result<Next, String> {
        self.at += 1;
        self.string()?;
        match self.skip_space() {
            Some(b':') => {
                self.at += 1;
                Ok(Next::Value)
            }
            Some(other) => Err(invalid(other, "after object key")),
            None => Err("unexpected end of JSON input".into()),
        }
    }

    fn after_value(&mut self, byte: u8) -> Result<Next, String> {
        match (self.open.last(), byte) {
            (None, _) => Err(invalid(byte, "after top-level value")),
            (Some(Container::Object), b'}') | (Some(Container::Array), b']') => Ok(self.close()),
            (Some(Container::Object), b',') => {
                self.at += 1;
                Ok(Next::Key)
            }
            (Some(Container::Array), b',') => {
                self.at += 1;
                Ok(Next::Value)
            }
            (Some(Container::Object), _) => Err(invalid(byte, "after object key:value pair")),
            (Some(Container::Array), _) => Err(invalid(byte, "after array element")),
        }
    }

    /// The rest of a string whose opening quote was read.
    fn string(&mut self) -> Result<(), String> {
        loop {
            let special = |byte| (byte < 0x20) | (byte == b'"') | (byte == b'\\');
            self.at += plain_length(&self.data[self.at..], special);
            let Some(byte) = self.data.get(self.at) else {
                return Err("unexpected end of JSON input".into());
            };
            self.at += 1;
            match byte {
                b'"' => return Ok(()),
                b'\\' => self.escape()?,
                _ => return Err(invalid(*byte, "in string literal")),
            }
        }
    }

    fn escape(&mut self) -> Result<(), String> {
        let byte = self.literal_byte();
        match byte {
            b'b' | b'f' | b'n' | b'r' | b't' | b'\\' | b'/' | b'"' => self.at += 1,
            b'u' => {
                self.at += 1;
                for _ in 0..4 {
                    let digit = self.literal_byte();
                    if !digit.is_ascii_hexdigit() {
                        return Err(invalid(digit, "in \\u hexadecimal character escape"));
                    }
                    self.at += 1;
                }
            }
            _ => return Err(invalid(byte, "in string escape code")),
        }
        Ok(())
    }

    /// The rest of a number whose first digit was read.
    fn number(&mut self, first: u8) -> Result<(), String> {
        if first != b'0' {
            self.digits();
        }
        if self.literal_byte() == b'.' {
            self.at += 1;
            self.some_digits("after decimal point in numeric literal")?;
        }
        if matches!(self.literal_byte(), b'e' | b'E') {
            self.at += 1;
            if matches!(self.literal_byte(), b'+' | b'-') {
                self.at += 1;
            }
            self.some_digits("in exponent of numeric literal")?;
        }
        Ok(())
    }

    fn digits(&mut self) {
        while self.literal_byte().is_ascii_digit() {
            self.at += 1;
        }
    }

    fn some_digits(&mut self, context: &str) -> Result<(), String> {
        let byte = self.literal_byte();
        if !byte.is_ascii_digit() {
            return Err(invalid(byte, context));
        }
        self.digits();
        Ok(())
    }

    /// The rest of `true`, `false` or `null`, whose first letter was read.
    fn word(&mut self, word: &str) -> Result<(), String> {
        for wanted in word.bytes().skip(1) {
            let byte = self.literal_byte();
            if byte != wanted {
                return Err(invalid(
                    byte,
                    &format!("in literal {word} (expecting '{}')", char::from(wanted)),
                ));
            }
            self.at += 1;
        }
        Ok(())
    }
}

fn invalid(byte: u8, context: &str) -> String {
    let shown = match byte {
        b'\'' => "\\'".to_owned(),
        b'"' => "\"".to_owned(),
        _ => {
            // Go takes the byte for a code point, also beyond ASCII.
            let quoted = quote(char::from(byte).encode_utf8(&mut [0; 4]));
            quoted[1..quoted.len() - 1].to_owned()
        }
    };
    format!("invalid character '{shown}' {context}")
}

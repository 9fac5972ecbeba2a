//! Whether a text is one email address, as Go's `mail.ParseAddress` judges: with names, comments, spaces and groups.
//!
//! Every step takes from the front of what is left, and a group holds no groups: time is linear, and nothing recurses.

use std::net::IpAddr;

use crate::codec::base64::{self, Alphabet};

/// Whether the text is one address, alone or in a group.
pub(crate) fn is_email(text: &str) -> bool {
    let mut parser = Parser { rest: text };
    let addresses = parser.address(Groups::Allowed);
    addresses == Some(1) && parser.skip_comments().is_some() && parser.rest.is_empty()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Groups {
    Allowed,
    Refused,
}

/// What may be wrong with the dots of an atom.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Dots {
    /// Between other characters only.
    Single,
    Anywhere,
}

/// A word of a name that may stand for other characters (RFC 2047).
enum Word {
    Plain,
    /// It does; whether for any at all.
    Encoded {
        empty: bool,
    },
}

struct Parser<'a> {
    rest: &'a str,
}

impl<'a> Parser<'a> {
    /// An address, or a group of them: how many there are.
    fn address(&mut self, groups: Groups) -> Option<usize> {
        self.skip_space();
        if self.rest.is_empty() {
            return None;
        }
        let before = self.rest;
        if self.spec().is_some() {
            self.skip_space();
            if self.rest.starts_with('(') {
                self.name_in_comment()?;
            }
            return Some(1);
        }
        self.rest = before;
        if !self.rest.starts_with('<') {
            self.phrase()?;
        }
        self.skip_space();
        if groups == Groups::Allowed && self.take(':').is_some() {
            return self.group();
        }
        self.take('<')?;
        self.spec()?;
        self.take('>')?;
        Some(1)
    }

    fn group(&mut self) -> Option<usize> {
        self.skip_space();
        if self.take(';').is_some() {
            self.skip_comments()?;
            return Some(0);
        }
        let mut found = 0;
        loop {
            self.skip_space();
            found += self.address(Groups::Refused)?;
            self.skip_comments()?;
            if self.take(';').is_some() {
                self.skip_comments()?;
                return Some(found);
            }
            self.take(',')?;
        }
    }

    /// `local@domain`.
    fn spec(&mut self) -> Option<()> {
        self.skip_space();
        if self.rest.starts_with('"') {
            if self.quoted()? == 0 {
                return None;
            }
        } else {
            self.atom(Dots::Single)?;
        }
        self.take('@')?;
        self.skip_space();
        if self.take('[').is_some() {
            let (literal, rest) = self.rest.split_once(']')?;
            self.rest = rest;
            literal.parse::<IpAddr>().ok()?;
        } else {
            self.atom(Dots::Single)?;
        }
        Some(())
    }

    /// Words, of which the first must be one; what cannot be read after it is left.
    fn phrase(&mut self) -> Option<()> {
        let (mut words, mut encoded) = (false, false);
        loop {
            if words {
                self.skip_comments()?;
            }
            self.skip_space();
            if self.rest.is_empty() {
                return Some(());
            }
            let word = if self.rest.starts_with('"') {
                self.quoted().map(|_| Word::Plain)
            } else {
                self.atom(Dots::Anywhere).and_then(word)
            };
            match word {
                None => return (words || encoded).then_some(()),
                Some(Word::Encoded { empty }) => encoded |= !empty,
                Some(Word::Plain) => (words, encoded) = (true, false),
            }
        }
    }

    /// The text between quotes: how many characters it has.
    fn quoted(&mut self) -> Option<usize> {
        let mut escaped = false;
        let mut length = 0;
        for (at, c) in self.rest.char_indices().skip(1) {
            let is_text = is_visible(c) || matches!(c, ' ' | '\t');
            match c {
                _ if !is_text => return None,
                '"' if !escaped => {
                    self.rest = &self.rest[at + 1..];
                    return Some(length);
                }
                '\\' if !escaped => escaped = true,
                _ => {
                    escaped = false;
                    length += 1;
                }
            }
        }
        None
    }

    fn atom(&mut self, dots: Dots) -> Option<&'a str> {
        let is_atom = |c: char| is_visible(c) && !r#"()<>[]:;@\,""#.contains(c);
        let end = self.rest.find(|c| !is_atom(c)).unwrap_or(self.rest.len());
        let (atom, rest) = self.rest.split_at(end);
        if atom.is_empty() {
            return None;
        }
        self.rest = rest;
        let single = !atom.starts_with('.') && !atom.ends_with('.') && !atom.contains("..");
        (single || dots == Dots::Anywhere).then_some(atom)
    }

    /// A comment that is taken for a name: its words must be of a known alphabet.
    fn name_in_comment(&mut self) -> Option<()> {
        self.take('(')?;
        let comment = self.comment()?;
        let mut words = comment.split([' ', '\t']).filter(|word| !word.is_empty());
        words.all(|text| word(text).is_some()).then_some(())
    }

    fn skip_comments(&mut self) -> Option<()> {
        self.skip_space();
        while self.take('(').is_some() {
            self.comment()?;
            self.skip_space();
        }
        Some(())
    }

    /// The text up to the parenthesis that ends a comment, the first of which is taken already.
    fn comment(&mut self) -> Option<String> {
        let mut depth = 1;
        let mut text = String::new();
        let mut chars = self.rest.chars();
        while let Some(mut c) = chars.next() {
            match c {
                '\\' => c = chars.next().unwrap_or(c),
                '(' => depth += 1,
                ')' => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                self.rest = chars.as_str();
                return Some(text);
            }
            text.push(c);
        }
        None
    }

    fn take(&mut self, c: char) -> Option<()> {
        self.rest = self.rest.strip_prefix(c)?;
        Some(())
    }

    fn skip_space(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t']);
    }
}

fn is_visible(c: char) -> bool {
    c.is_ascii_graphic() || !c.is_ascii()
}

/// What a word is; `None` if it is encoded in an alphabet that Go does not know.
fn word(text: &str) -> Option<Word> {
    const ALPHABETS: [&str; 3] = ["utf-8", "iso-8859-1", "us-ascii"];
    match encoded(text) {
        None => Some(Word::Plain),
        Some((alphabet, content)) => {
            let known = ALPHABETS.iter().any(|known| known.eq_ignore_ascii_case(alphabet));
            known.then_some(Word::Encoded {
                empty: content.is_empty(),
            })
        }
    }
}

/// The alphabet and content of a word like `=?utf-8?q?a=20b?=`, if it can be decoded.
fn encoded(text: &str) -> Option<(&str, &str)> {
    let inside = text.strip_prefix("=?")?.strip_suffix("?=")?;
    let mut parts = inside.split('?');
    let (alphabet, encoding, content) = (parts.next()?, parts.next()?, parts.next()?);
    if alphabet.is_empty() || parts.next().is_some() {
        return None;
    }
    let is_decodable = match encoding {
        "b" | "B" => base64::decode(content, Alphabet::Standard).is_ok(),
        "q" | "Q" => is_quoted_printable(content.as_bytes()),
        _ => false,
    };
    is_decodable.then_some((alphabet, content))
}

fn is_quoted_printable(content: &[u8]) -> bool {
    let mut at = 0;
    while let Some(byte) = content.get(at) {
        at += match byte {
            b'=' if content
                .get(at + 1..at + 3)
                .is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit)) =>
            {
                3
            }
            b'=' => return false,
            b' '..=b'~' | b'\n' | b'\r' | b'\t' => 1,
            _ => return false,
        };
    }
    true
}

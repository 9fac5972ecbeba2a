//! What stands before a node or a document: anchors, tags and directives.

use super::YamlError;
use super::scan::Scanner;
use super::token::{Mark, TokenKind, is_blank, is_blank_or_end, is_break_or_end, is_word};

impl Scanner {
    fn words(&mut self, out: &mut String) {
        while is_word(self.look(0)) {
            out.push(self.look(0));
            self.skip();
        }
    }

    /// The name after `*` or `&`.
    pub(super) fn scan_anchor(&mut self) -> Result<String, YamlError> {
        let start = self.mark;
        self.skip();
        let mut name = String::new();
        self.words(&mut name);
        let ends = is_blank_or_end(self.look(0)) || "?:,]}%@`".contains(self.look(0));
        if name.is_empty() || !ends {
            return Err(self.error(start, "did not find expected alphabetic or numeric character"));
        }
        Ok(name)
    }

    pub(super) fn scan_tag(&mut self) -> Result<TokenKind, YamlError> {
        let start = self.mark;
        let (handle, suffix);
        if self.look(1) == '<' {
            self.skip();
            self.skip();
            (handle, suffix) = (String::new(), self.scan_tag_uri(None, start)?);
            if self.look(0) != '>' {
                return Err(self.error(start, "did not find the expected '>'"));
            }
            self.skip();
        } else {
            let head = self.scan_tag_handle(start)?;
            if head.len() > 1 && head.ends_with('!') {
                (handle, suffix) = (head, self.scan_tag_uri(None, start)?);
            } else {
                let rest = self.scan_tag_uri(Some(&head), start)?;
                // A lone `!` is a tag of its own.
                (handle, suffix) = if rest.is_empty() {
                    (String::new(), head)
                } else {
                    ("!".to_owned(), rest)
                };
            }
        }
        if !is_blank_or_end(self.look(0)) {
            return Err(self.error(start, "did not find expected whitespace or line break"));
        }
        Ok(TokenKind::Tag { handle, suffix })
    }

    /// `!`, `!!` or `!name!`; without the last `!` it is the beginning of a local tag.
    fn scan_tag_handle(&mut self, start: Mark) -> Result<String, YamlError> {
        if self.look(0) != '!' {
            return Err(self.error(start, "did not find expected '!'"));
        }
        let mut handle = String::from("!");
        self.skip();
        self.words(&mut handle);
        if self.look(0) == '!' {
            handle.push('!');
            self.skip();
        }
        Ok(handle)
    }

    fn scan_tag_uri(&mut self, head: Option<&str>, start: Mark) -> Result<String, YamlError> {
        let mut uri = head.map_or("", |head| &head[1..]).to_owned();
        let mut found = head.is_some();
        while is_word(self.look(0)) || ";/?:@&=+$,.!~*'()[]%".contains(self.look(0)) {
            if self.look(0) == '%' {
                self.scan_uri_escape(&mut uri, start)?;
            } else {
                uri.push(self.look(0));
                self.skip();
            }
            found = true;
        }
        if found {
            Ok(uri)
        } else {
            Err(self.error(start, "did not find expected tag URI"))
        }
    }

    /// One character written as `%XX` octets.
    fn scan_uri_escape(&mut self, uri: &mut String, start: Mark) -> Result<(), YamlError> {
        let mut octets: Vec<u8> = Vec::new();
        let mut width = 1;
        while octets.len() < width {
            let digits = [self.look(1).to_digit(16), self.look(2).to_digit(16)];
            let ('%', [Some(high), Some(low)]) = (self.look(0), digits) else {
                return Err(self.error(start, "did not find URI escaped octet"));
            };
            let octet = (high << 4 | low) as u8;
            if octets.is_empty() {
                width = match octet {
                    ..0x80 => 1,
                    0xc0..0xe0 => 2,
                    0xe0..0xf0 => 3,
                    0xf0..0xf8 => 4,
                    _ => return Err(self.error(start, "found an incorrect leading UTF-8 octet")),
                };
            } else if octet & 0xc0 != 0x80 {
                return Err(self.error(start, "found an incorrect trailing UTF-8 octet"));
            }
            octets.push(octet);
            (0..3).for_each(|_| self.skip());
        }
        uri.push_str(&String::from_utf8_lossy(&octets));
        Ok(())
    }

    /// `%YAML 1.1` or `%TAG ! prefix`, and where it ended before the rest of its line.
    pub(super) fn scan_directive(&mut self) -> Result<(TokenKind, Mark), YamlError> {
        let start = self.mark;
        self.skip();
        let mut name = String::new();
        self.words(&mut name);
        if name.is_empty() {
            return Err(self.error(start, "could not find expected directive name"));
        }
        if !is_blank_or_end(self.look(0)) {
            return Err(self.error(start, "found unexpected non-alphabetical character"));
        }
        let kind = match name.as_str() {
            "YAML" => self.scan_version(start)?,
            "TAG" => self.scan_tag_directive(start)?,
            _ => return Err(self.error(start, "found unknown directive name")),
        };
        let end = self.mark;
        self.end_line(start)?;
        Ok((kind, end))
    }

    /// The rest of a line that may hold only a comment.
    pub(super) fn end_line(&mut self, start: Mark) -> Result<(), YamlError> {
        self.skip_blanks();
        self.skip_comment();
        if !is_break_or_end(self.look(0)) {
            return Err(self.error(start, "did not find expected comment or line break"));
        }
        self.skip_line();
        Ok(())
    }

    fn scan_version(&mut self, start: Mark) -> Result<TokenKind, YamlError> {
        self.skip_blanks();
        let major = self.scan_version_number(start)?;
        if self.look(0) != '.' {
            return Err(self.error(start, "did not find expected digit or '.' character"));
        }
        self.skip();
        Ok(TokenKind::VersionDirective {
            major,
            minor: self.scan_version_number(start)?,
        })
    }

    fn scan_version_number(&mut self, start: Mark) -> Result<u8, YamlError> {
        let (mut value, mut length) = (0, 0);
        while let Some(digit) = self.look(0).to_digit(10) {
            length += 1;
            if length > 2 {
                return Err(self.error(start, "found extremely long version number"));
            }
            value = value * 10 + digit as u8;
            self.skip();
        }
        if length == 0 {
            Err(self.error(start, "did not find expected version number"))
        } else {
            Ok(value)
        }
    }

    fn scan_tag_directive(&mut self, start: Mark) -> Result<TokenKind, YamlError> {
        self.skip_blanks();
        let handle = self.scan_tag_handle(start)?;
        if handle != "!" && !handle.ends_with('!') {
            return Err(self.error(start, "did not find expected '!'"));
        }
        if !is_blank(self.look(0)) {
            return Err(self.error(start, "did not find expected whitespace"));
        }
        self.skip_blanks();
        let prefix = self.scan_tag_uri(None, start)?;
        if !is_blank_or_end(self.look(0)) {
            return Err(self.error(start, "did not find expected whitespace or line break"));
        }
        Ok(TokenKind::TagDirective { handle, prefix })
    }
}

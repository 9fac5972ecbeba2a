//! Scalars in their five styles.

use super::YamlError;
use super::scan::Scanner;
use super::token::{Mark, TokenKind, is_blank, is_blank_or_end, is_break, is_break_or_end};

/// What becomes of the line breaks at the end of a block scalar.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Chomping {
    Strip,
    Clip,
    Keep,
}

impl Scanner {
    pub(super) fn scan_block_scalar(&mut self, indicator: char) -> Result<(TokenKind, Mark), YamlError> {
        let start = self.mark;
        self.skip();
        let (chomping, increment) = self.scan_block_header(start)?;
        self.end_line(start)?;

        let mut indent = if increment > 0 {
            self.indent.max(0) as usize + increment
        } else {
            0
        };
        let (mut text, mut leading_break, mut breaks) = (String::new(), String::new(), String::new());
        let mut end = self.scan_block_breaks(&mut indent, &mut breaks, start)?;
        let mut was_indented = false;
        while self.mark.column == indent && self.look(0) != '\0' {
            let is_indented = is_blank(self.look(0));
            // Folding joins two lines by a space, unless one is indented or empty lines stand between.
            if indicator == '>' && !was_indented && !is_indented && leading_break.starts_with('\n') {
                if breaks.is_empty() {
                    text.push(' ');
                }
            } else {
                text.push_str(&leading_break);
            }
            leading_break.clear();
            text.push_str(&breaks);
            breaks.clear();
            was_indented = is_indented;
            while !is_break_or_end(self.look(0)) {
                text.push(self.look(0));
                self.skip();
            }
            self.read_line(&mut leading_break);
            end = self.scan_block_breaks(&mut indent, &mut breaks, start)?;
        }
        if chomping != Chomping::Strip {
            text.push_str(&leading_break);
        }
        if chomping == Chomping::Keep {
            text.push_str(&breaks);
        }
        Ok((
            TokenKind::Scalar {
                value: text,
                plain: false,
            },
            end,
        ))
    }

    /// The indicators after `|` or `>`, in either order.
    fn scan_block_header(&mut self, start: Mark) -> Result<(Chomping, usize), YamlError> {
        let (mut chomping, mut increment) = (None, None);
        loop {
            match self.look(0) {
                '+' if chomping.is_none() => chomping = Some(Chomping::Keep),
                '-' if chomping.is_none() => chomping = Some(Chomping::Strip),
                '0' if increment.is_none() => {
                    return Err(self.error(start, "found an indentation indicator equal to 0"));
                }
                c @ '1'..='9' if increment.is_none() => increment = c.to_digit(10),
                _ => return Ok((chomping.unwrap_or(Chomping::Clip), increment.unwrap_or(0) as usize)),
            }
            self.skip();
        }
    }

    /// Indentation and empty lines; finds out the indentation if it is not known yet (zero).
    fn scan_block_breaks(&mut self, indent: &mut usize, breaks: &mut String, start: Mark) -> Result<Mark, YamlError> {
        let mut deepest = 0;
        let mut end = self.mark;
        loop {
            let is_indentation = |mark: Mark| *indent == 0 || mark.column < *indent;
            while is_indentation(self.mark) && self.look(0) == ' ' {
                self.skip();
            }
            deepest = deepest.max(self.mark.column);
            if is_indentation(self.mark) && self.look(0) == '\t' {
                return Err(self.error(start, "found a tab character where an indentation space is expected"));
            }
            if !is_break(self.look(0)) {
                break;
            }
            self.read_line(breaks);
            end = self.mark;
        }
        if *indent == 0 {
            *indent = deepest.max((self.indent + 1).max(1) as usize);
        }
        Ok(end)
    }

    pub(super) fn scan_quoted(&mut self, quote: char) -> Result<TokenKind, YamlError> {
        let start = self.mark;
        self.skip();
        let mut text = String::new();
        loop {
            if self.at_document_indicator('-') || self.at_document_indicator('.') {
                return Err(self.error(start, "found unexpected document indicator"));
            }
            if self.look(0) == '\0' {
                return Err(self.error(start, "found unexpected end of stream"));
            }
            let joined = self.scan_quoted_words(quote, &mut text, start)?;
            if self.look(0) == quote {
                break;
            }
            self.scan_quoted_space(joined, &mut text);
        }
        self.skip();
        Ok(TokenKind::Scalar {
            value: text,
            plain: false,
        })
    }

    /// Everything up to the next blank, break or the closing quote; true after an escaped line break.
    fn scan_quoted_words(&mut self, quote: char, text: &mut String, start: Mark) -> Result<bool, YamlError> {
        while !is_blank_or_end(self.look(0)) {
            let (current, next) = (self.look(0), self.look(1));
            match current {
                '\'' if quote == '\'' && next == '\'' => {
                    text.push('\'');
                    self.skip();
                    self.skip();
                }
                c if c == quote => return Ok(false),
                '\\' if quote == '"' && is_break(next) => {
                    self.skip();
                    self.skip_line();
                    return Ok(true);
                }
                '\\' if quote == '"' => self.scan_escape(text, start)?,
                _ => {
                    text.push(current);
                    self.skip();
                }
            }
        }
        Ok(false)
    }

    fn scan_escape(&mut self, text: &mut String, start: Mark) -> Result<(), YamlError> {
        let mut digits = 0;
        let plain = match self.look(1) {
            '0' => '\0',
            'a' => '\x07',
            'b' => '\x08',
            't' | '\t' => '\t',
            'n' => '\n',
            'v' => '\x0b',
            'f' => '\x0c',
            'r' => '\r',
            'e' => '\x1b',
            c @ (' ' | '"' | '\'' | '\\') => c,
            'N' => '\u{85}',
            '_' => '\u{a0}',
            'L' => '\u{2028}',
            'P' => '\u{2029}',
            letter @ ('x' | 'u' | 'U') => {
                digits = match letter {
                    'x' => 2,
                    'u' => 4,
                    _ => 8,
                };
                '\0'
            }
            _ => return Err(self.error(start, "found unknown escape character")),
        };
        self.skip();
        self.skip();
        if digits == 0 {
            text.push(plain);
            return Ok(());
        }
        let mut code = 0_u32;
        for ahead in 0..digits {
            let Some(digit) = self.look(ahead).to_digit(16) else {
                return Err(self.error(start, "did not find expected hexdecimal number"));
            };
            code = code << 4 | digit;
        }
        match char::from_u32(code) {
            Some(c) => text.push(c),
            None => return Err(self.error(start, "found invalid Unicode character escape code")),
        }
        (0..digits).for_each(|_| self.skip());
        Ok(())
    }

    /// Blanks and breaks inside quotes: one break is a space, further ones stay, blanks around breaks go.
    fn scan_quoted_space(&mut self, after_escaped_break: bool, text: &mut String) {
        let (mut blanks, mut first_break, mut more_breaks) = (String::new(), String::new(), String::new());
        let mut broken = after_escaped_break;
        while is_blank(self.look(0)) || is_break(self.look(0)) {
            if is_blank(self.look(0)) {
                if !broken {
                    blanks.push(self.look(0));
                }
                self.skip();
            } else if broken {
                self.read_line(&mut more_breaks);
            } else {
                blanks.clear();
                self.read_line(&mut first_break);
                broken = true;
            }
        }
        if broken {
            fold(text, &first_break, &more_breaks);
        } else {
            text.push_str(&blanks);
        }
    }

    pub(super) fn scan_plain(&mut self) -> Result<(TokenKind, Mark), YamlError> {
        let start = self.mark;
        let indent = self.indent + 1;
        let mut end = self.mark;
        let mut text = String::new();
        let (mut blanks, mut first_break, mut more_breaks) = (String::new(), String::new(), String::new());
        let mut broken = false;
        loop {
            let ends = self.at_document_indicator('-') || self.at_document_indicator('.');
            if ends || self.look(0) == '#' {
                break;
            }
            while !is_blank_or_end(self.look(0)) && !self.ends_plain() {
                if broken {
                    fold(&mut text, &first_break, &more_breaks);
                    first_break.clear();
                    more_breaks.clear();
                    broken = false;
                } else {
                    text.push_str(&blanks);
                    blanks.clear();
                }
                text.push(self.look(0));
                self.skip();
                end = self.mark;
            }
            if !is_blank(self.look(0)) && !is_break(self.look(0)) {
                break;
            }
            while is_blank(self.look(0)) || is_break(self.look(0)) {
                if is_blank(self.look(0)) {
                    if broken && (self.mark.column as isize) < indent && self.look(0) == '\t' {
                        return Err(self.error(start, "found a tab character that violates indentation"));
                    }
                    if !broken {
                        blanks.push(self.look(0));
                    }
                    self.skip();
                } else if broken {
                    self.read_line(&mut more_breaks);
                } else {
                    blanks.clear();
                    self.read_line(&mut first_break);
                    broken = true;
                }
            }
            if !self.in_flow() && (self.mark.column as isize) < indent {
                break;
            }
        }
        // A key may begin on the next line.
        if broken {
            self.simple_key_allowed = true;
        }
        Ok((
            TokenKind::Scalar {
                value: text,
                plain: true,
            },
            end,
        ))
    }

    fn ends_plain(&self) -> bool {
        match self.look(0) {
            ':' => is_blank_or_end(self.look(1)),
            ',' | '?' | '[' | ']' | '{' | '}' => self.in_flow(),
            _ => false,
        }
    }
}

/// Joins lines: one break is a space, of several all but the first stay.
fn fold(text: &mut String, first_break: &str, more_breaks: &str) {
    if !first_break.starts_with('\n') {
        text.push_str(first_break);
        text.push_str(more_breaks);
    } else if more_breaks.is_empty() {
        text.push(' ');
    } else {
        text.push_str(more_breaks);
    }
}

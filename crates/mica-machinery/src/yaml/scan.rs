//! Characters into tokens.
//!
//! The difficulty of YAML is here: a mapping begins with its first key, which is known to be one only at the `:` after
//! it. So tokens wait in a queue while the first of them may still turn out to begin a key; then `Key` and
//! `BlockMappingStart` are put in front of it. Nesting by columns becomes `BlockEnd` tokens.

use std::collections::VecDeque;

use super::YamlError;
use super::token::{Mark, Token, TokenKind, is_blank, is_blank_or_end, is_break, is_break_or_end};
use crate::codec::MAX_DEPTH;

/// How deep upstream goes: flow collections, or indentation.
const UPSTREAM_MAX_DEPTH: usize = 10_000;

/// How far a key may be from its `:`.
const MAX_KEY_LENGTH: usize = 1024;

/// Where a key without `?` may have begun.
#[derive(Debug, Clone, Copy, Default)]
struct SimpleKey {
    possible: bool,
    /// Nothing but a key can stand here: if no `:` follows, the document is wrong.
    required: bool,
    /// Whether the queue waits for it.
    awaited: bool,
    token_number: usize,
    mark: Mark,
}

pub(super) struct Scanner {
    characters: Vec<char>,
    pub(super) mark: Mark,
    tokens: VecDeque<Token>,
    /// Tokens handed out so far: the number of the first in the queue.
    taken: usize,
    started: bool,
    /// The current block's column; -1 outside of all.
    pub(super) indent: isize,
    indents: Vec<isize>,
    pub(super) simple_key_allowed: bool,
    /// One for the block context and one for each open flow collection.
    simple_keys: Vec<SimpleKey>,
}

impl Scanner {
    pub(super) fn new(characters: Vec<char>) -> Self {
        Scanner {
            characters,
            mark: Mark::default(),
            tokens: VecDeque::new(),
            taken: 0,
            started: false,
            indent: -1,
            indents: Vec::new(),
            simple_key_allowed: true,
            simple_keys: vec![SimpleKey::default()],
        }
    }

    /// The next token, left in the queue.
    pub(super) fn peek(&mut self) -> Result<&Token, YamlError> {
        while self.needs_more()? {
            self.fetch()?;
        }
        Ok(self.tokens.front().expect("the queue was just filled"))
    }

    /// Takes the token that was peeked at.
    pub(super) fn take(&mut self) -> Option<Token> {
        self.taken += 1;
        self.tokens.pop_front()
    }

    /// Whether the queue is empty, or its first token may still get a `Key` in front.
    fn needs_more(&mut self) -> Result<bool, YamlError> {
        if self.tokens.is_empty() {
            return Ok(true);
        }
        let head = self
            .simple_keys
            .iter()
            .rposition(|key| key.awaited && key.token_number == self.taken);
        match head {
            Some(level) => self.is_key_still_possible(level),
            None => Ok(false),
        }
    }

    pub(super) fn in_flow(&self) -> bool {
        self.simple_keys.len() > 1
    }

    /// The character `ahead` of the current one; NUL past the end.
    pub(super) fn look(&self, ahead: usize) -> char {
        self.characters.get(self.mark.index + ahead).copied().unwrap_or('\0')
    }

    pub(super) fn skip(&mut self) {
        self.mark.index += 1;
        self.mark.column += 1;
    }

    /// Steps over a line break, if there is one.
    pub(super) fn skip_line(&mut self) {
        if is_break(self.look(0)) {
            self.mark.index += if self.look(0) == '\r' && self.look(1) == '\n' {
                2
            } else {
                1
            };
            self.mark.column = 0;
            self.mark.line += 1;
        }
    }

    /// Steps over a line break and appends it in its normal form.
    pub(super) fn read_line(&mut self, out: &mut String) {
        match self.look(0) {
            c @ ('\u{2028}' | '\u{2029}') => out.push(c),
            c if is_break(c) => out.push('\n'),
            _ => {}
        }
        self.skip_line();
    }

    pub(super) fn skip_blanks(&mut self) {
        while is_blank(self.look(0)) {
            self.skip();
        }
    }

    pub(super) fn skip_comment(&mut self) {
        if self.look(0) == '#' {
            while !is_break_or_end(self.look(0)) {
                self.skip();
            }
        }
    }

    /// An error at the current place, found in what began at `context`.
    pub(super) fn error(&self, context: Mark, problem: &str) -> YamlError {
        // Upstream counts the line of the problem from one, but that of the context from zero.
        let line = if self.mark.line != 0 {
            self.mark.line + 1
        } else {
            context.line
        };
        YamlError::at(line, problem)
    }

    fn push(&mut self, kind: TokenKind, start: Mark) {
        self.tokens.push_back(Token {
            kind,
            start,
            end: self.mark,
        });
    }

    /// Puts a token in front of the one with this number; at the end if that is gone or none is given.
    fn insert(&mut self, number: Option<usize>, token: Token) {
        let at = number.and_then(|number| number.checked_sub(self.taken));
        self.tokens
            .insert(at.unwrap_or(self.tokens.len()).min(self.tokens.len()), token);
    }

    fn fetch(&mut self) -> Result<(), YamlError> {
        if !self.started {
            self.started = true;
            self.push(TokenKind::StreamStart, self.mark);
            return Ok(());
        }
        self.skip_to_next_token();
        self.unroll_indent(self.mark.column as isize);
        let (current, next) = (self.look(0), self.look(1));
        match current {
            '\0' => self.fetch_stream_end(),
            '%' if self.mark.column == 0 => self.fetch_directive(),
            '-' if self.at_document_indicator('-') => self.fetch_document_indicator(TokenKind::DocumentStart),
            '.' if self.at_document_indicator('.') => self.fetch_document_indicator(TokenKind::DocumentEnd),
            '[' => self.fetch_flow_start(TokenKind::FlowSequenceStart),
            '{' => self.fetch_flow_start(TokenKind::FlowMappingStart),
            ']' => self.fetch_flow_end(TokenKind::FlowSequenceEnd),
            '}' => self.fetch_flow_end(TokenKind::FlowMappingEnd),
            ',' => self.fetch_flow_entry(),
            '-' if is_blank_or_end(next) => self.fetch_block_entry(),
            '?' if self.in_flow() || is_blank_or_end(next) => self.fetch_key(),
            ':' if self.in_flow() || is_blank_or_end(next) => self.fetch_value(),
            '*' | '&' | '!' | '\'' | '"' => self.fetch_content(current),
            '|' | '>' if !self.in_flow() => self.fetch_content(current),
            '-' | '?' | ':' => self.fetch_content(current),
            '#' | '|' | '>' | '%' | '@' | '`' => Err(self.cannot_start()),
            c if is_blank_or_end(c) => Err(self.cannot_start()),
            _ => self.fetch_content(current),
        }
    }

    fn cannot_start(&self) -> YamlError {
        self.error(self.mark, "found character that cannot start any token")
    }

    pub(super) fn at_document_indicator(&self, c: char) -> bool {
        self.mark.column == 0 && (0..3).all(|ahead| self.look(ahead) == c) && is_blank_or_end(self.look(3))
    }

    fn skip_to_next_token(&mut self) {
        loop {
            // Elsewhere a byte order mark is a character like others.
            if self.mark.line == 0 && self.mark.column == 0 && self.look(0) == '\u{feff}' {
                self.skip();
            }
            // A tab must not indent: not at the start of a line, nor after `-`, `?` and `:`.
            let tabs_pass = self.in_flow() || !self.simple_key_allowed;
            while self.look(0) == ' ' || (tabs_pass && self.look(0) == '\t') {
                self.skip();
            }
            self.skip_comment();
            if !is_break(self.look(0)) {
                return;
            }
            self.skip_line();
            if !self.in_flow() {
                self.simple_key_allowed = true;
            }
        }
    }

    fn is_key_still_possible(&mut self, level: usize) -> Result<bool, YamlError> {
        let key = self.simple_keys[level];
        if !key.possible {
            return Ok(false);
        }
        if key.mark.line < self.mark.line || key.mark.index + MAX_KEY_LENGTH < self.mark.index {
            if key.required {
                return Err(self.error(key.mark, "could not find expected ':'"));
            }
            self.simple_keys[level].possible = false;
            return Ok(false);
        }
        Ok(true)
    }

    /// Notes that a key may begin here.
    fn save_simple_key(&mut self) -> Result<(), YamlError> {
        let required = !self.in_flow() && self.indent == self.mark.column as isize;
        if self.simple_key_allowed {
            self.remove_simple_key()?;
            let token_number = self.taken + self.tokens.len();
            let key = SimpleKey {
                possible: true,
                required,
                awaited: true,
                token_number,
                mark: self.mark,
            };
            *self.simple_keys.last_mut().expect("the block context is always there") = key;
        }
        Ok(())
    }

    /// Gives up that a key began at this level.
    fn remove_simple_key(&mut self) -> Result<(), YamlError> {
        let key = self.simple_keys.last_mut().expect("the block context is always there");
        if std::mem::take(&mut key.possible) && key.required {
            let mark = key.mark;
            return Err(self.error(mark, "could not find expected ':'"));
        }
        key.awaited = false;
        Ok(())
    }

    /// Opens a block collection if this column is deeper than the current one.
    fn roll_indent(
        &mut self,
        column: usize,
        number: Option<usize>,
        kind: TokenKind,
        mark: Mark,
    ) -> Result<(), YamlError> {
        if self.in_flow() || self.indent >= column as isize {
            return Ok(());
        }
        self.indents.push(self.indent);
        self.indent = column as isize;
        if self.indents.len() > MAX_DEPTH {
            return Err(self.too_deep());
        }
        let token = Token {
            kind,
            start: mark,
            end: mark,
        };
        self.insert(number, token);
        Ok(())
    }

    /// The refusal of what nests deeper than we go, from where this is known. What upstream refuses too gets its words:
    /// brackets are counted on, or the indicators of collections that begin in one line. No others fit in a body.
    pub(super) fn too_deep(&self) -> YamlError {
        let mut depth = self.simple_keys.len().max(self.indents.len()) - 1;
        let mut line = self.mark.line;
        for c in &self.characters[self.mark.index.min(self.characters.len())..] {
            match c {
                '[' | '{' => depth += 1,
                '-' | '?' if !self.in_flow() => depth += 1,
                ']' | '}' => depth -= 1,
                c if is_break(*c) && self.in_flow() => line += 1,
                c if is_break(*c) => break,
                _ => {}
            }
            if depth > UPSTREAM_MAX_DEPTH {
                let line = if line == 0 { 0 } else { line + 1 };
                return YamlError::at(line, &format!("exceeded max depth of {UPSTREAM_MAX_DEPTH}"));
            }
            if depth == 0 {
                break;
            }
        }
        self.error(self.mark, "exceeded max depth")
    }

    /// Closes the block collections that are deeper than this column.
    fn unroll_indent(&mut self, column: isize) {
        while !self.in_flow() && self.indent > column {
            self.push(TokenKind::BlockEnd, self.mark);
            self.indent = self.indents.pop().unwrap_or(-1);
        }
    }

    /// What ends all blocks: the stream's end, directives and document indicators.
    fn close_blocks(&mut self) -> Result<(), YamlError> {
        self.unroll_indent(-1);
        self.remove_simple_key()?;
        self.simple_key_allowed = false;
        Ok(())
    }

    fn fetch_stream_end(&mut self) -> Result<(), YamlError> {
        if self.mark.column != 0 {
            self.mark.column = 0;
            self.mark.line += 1;
        }
        self.close_blocks()?;
        self.push(TokenKind::StreamEnd, self.mark);
        Ok(())
    }

    fn fetch_directive(&mut self) -> Result<(), YamlError> {
        self.close_blocks()?;
        let start = self.mark;
        let (kind, end) = self.scan_directive()?;
        self.tokens.push_back(Token { kind, start, end });
        Ok(())
    }

    fn fetch_document_indicator(&mut self, kind: TokenKind) -> Result<(), YamlError> {
        self.close_blocks()?;
        let start = self.mark;
        (0..3).for_each(|_| self.skip());
        self.push(kind, start);
        Ok(())
    }

    /// Takes one character as a token.
    fn push_indicator(&mut self, kind: TokenKind) {
        let start = self.mark;
        self.skip();
        self.push(kind, start);
    }

    fn fetch_flow_start(&mut self, kind: TokenKind) -> Result<(), YamlError> {
        self.save_simple_key()?;
        if self.simple_keys.len() > MAX_DEPTH {
            return Err(self.too_deep());
        }
        let token_number = self.taken + self.tokens.len();
        self.simple_keys.push(SimpleKey {
            token_number,
            ..SimpleKey::default()
        });
        self.simple_key_allowed = true;
        self.push_indicator(kind);
        Ok(())
    }

    fn fetch_flow_end(&mut self, kind: TokenKind) -> Result<(), YamlError> {
        self.remove_simple_key()?;
        if self.in_flow()
            && let Some(inner) = self.simple_keys.pop()
        {
            // Upstream forgets by number, and an empty collection has the number of its bracket: so `{}: a` is no key,
            // but the whole document is `{}`.
            let same = self
                .simple_keys
                .iter_mut()
                .filter(|key| key.token_number == inner.token_number);
            same.for_each(|key| key.awaited = false);
        }
        self.simple_key_allowed = false;
        self.push_indicator(kind);
        Ok(())
    }

    fn fetch_flow_entry(&mut self) -> Result<(), YamlError> {
        self.remove_simple_key()?;
        self.simple_key_allowed = true;
        self.push_indicator(TokenKind::FlowEntry);
        Ok(())
    }

    fn fetch_block_entry(&mut self) -> Result<(), YamlError> {
        if !self.in_flow() {
            if !self.simple_key_allowed {
                return Err(self.error(self.mark, "block sequence entries are not allowed in this context"));
            }
            self.roll_indent(self.mark.column, None, TokenKind::BlockSequenceStart, self.mark)?;
        }
        self.remove_simple_key()?;
        self.simple_key_allowed = true;
        self.push_indicator(TokenKind::BlockEntry);
        Ok(())
    }

    fn fetch_key(&mut self) -> Result<(), YamlError> {
        if !self.in_flow() {
            if !self.simple_key_allowed {
                return Err(self.error(self.mark, "mapping keys are not allowed in this context"));
            }
            self.roll_indent(self.mark.column, None, TokenKind::BlockMappingStart, self.mark)?;
        }
        self.remove_simple_key()?;
        self.simple_key_allowed = !self.in_flow();
        self.push_indicator(TokenKind::Key);
        Ok(())
    }

    fn fetch_value(&mut self) -> Result<(), YamlError> {
        let level = self.simple_keys.len() - 1;
        if self.is_key_still_possible(level)? {
            let key = self.simple_keys[level];
            (self.simple_keys[level].possible, self.simple_keys[level].awaited) = (false, false);
            let token = Token {
                kind: TokenKind::Key,
                start: key.mark,
                end: key.mark,
            };
            self.insert(Some(key.token_number), token);
            self.roll_indent(
                key.mark.column,
                Some(key.token_number),
                TokenKind::BlockMappingStart,
                key.mark,
            )?;
            self.simple_key_allowed = false;
        } else {
            if !self.in_flow() {
                if !self.simple_key_allowed {
                    return Err(self.error(self.mark, "mapping values are not allowed in this context"));
                }
                self.roll_indent(self.mark.column, None, TokenKind::BlockMappingStart, self.mark)?;
            }
            self.simple_key_allowed = !self.in_flow();
        }
        self.push_indicator(TokenKind::Value);
        Ok(())
    }

    /// Aliases, anchors, tags and scalars: all may begin a key, but block scalars.
    fn fetch_content(&mut self, indicator: char) -> Result<(), YamlError> {
        let is_block_scalar = matches!(indicator, '|' | '>');
        if is_block_scalar {
            self.remove_simple_key()?;
        } else {
            self.save_simple_key()?;
        }
        self.simple_key_allowed = is_block_scalar;
        let start = self.mark;
        let (kind, end) = match indicator {
            '*' => (TokenKind::Alias(self.scan_anchor()?), self.mark),
            '&' => (TokenKind::Anchor(self.scan_anchor()?), self.mark),
            '!' => (self.scan_tag()?, self.mark),
            '\'' | '"' => (self.scan_quoted(indicator)?, self.mark),
            '|' | '>' => self.scan_block_scalar(indicator)?,
            _ => self.scan_plain()?,
        };
        self.tokens.push_back(Token { kind, start, end });
        Ok(())
    }
}

//! The parts of expressions that are written in brackets, and literals.

use super::token::starts_operand;
use super::{Node, Parser, Result};
use crate::cel::ast::{Entry, Expr, FieldInit, Kind, List, Literal, Struct};
use crate::cel::lexer::Token;
use crate::cel::source::Issue;
use crate::cel::unescape::{Form, unescape};

const ARGUMENT: &str = "{'[', '{', '(', ')', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}";
const ELEMENT: &str = "{'[', ']', '{', '(', '.', ',', '-', '!', '?', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}";
const KEY: &str = "{'[', '{', '}', '(', '.', ',', '-', '!', '?', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}";
const FIELD: &str = "{'}', ',', '?', IDENTIFIER, ESC_IDENTIFIER}";

impl Parser<'_> {
    /// `(a, b)`, the opening parenthesis included.
    pub(super) fn arguments(&mut self) -> Result<(Vec<Expr>, u32)> {
        self.advance();
        let mut args = Vec::new();
        let mut height = 0;
        if self.token() == Token::RightParen {
            self.advance();
            return Ok((args, height));
        }
        self.operand_or(ARGUMENT, |token| token == Token::RightParen)?;
        if self.token() == Token::RightParen {
            self.advance();
            return Ok((args, height));
        }
        loop {
            let (arg, below) = self.expr()?;
            args.push(arg);
            height = height.max(below);
            if self.token() != Token::Comma {
                break;
            }
            self.advance();
        }
        self.expect(Token::RightParen, "')'")?;
        Ok((args, height))
    }

    /// Whether the names from here on are followed by `{`.
    pub(super) fn builds_message(&self) -> bool {
        let mut ahead = 1;
        while self.peek(ahead) == Token::Dot && self.peek(ahead + 1) == Token::Ident {
            ahead += 2;
        }
        self.peek(ahead) == Token::LeftBrace
    }

    pub(super) fn message(&mut self, mut name: String) -> Result<Node> {
        name.push_str(&self.text());
        self.advance();
        while self.token() == Token::Dot {
            self.advance();
            name.push('.');
            name.push_str(&self.text());
            self.advance();
        }
        let id = self.id_here();
        self.advance();
        let mut fields = Vec::new();
        let mut height = 0;
        let mut first = true;
        while self.token() != Token::RightBrace {
            if self.token() == Token::Comma && self.peek(1) == Token::RightBrace {
                self.advance();
                break;
            }
            let optional = self.token() == Token::Question;
            if optional {
                self.advance();
            }
            if self.token() == Token::EscapedIdent {
                return Err(self.plain("unsupported syntax: '`'"));
            }
            if self.token() != Token::Ident {
                return Err(self.mismatched(if first { FIELD } else { "'}'" }));
            }
            first = false;
            let field = self.text();
            self.advance();
            let init = self.id_here();
            self.expect(Token::Colon, "':'")?;
            let (value, below) = self.expr()?;
            height = height.max(below);
            fields.push(FieldInit {
                id: init,
                name: field,
                value,
                optional,
            });
            if !self.comma_or(Token::RightBrace, "{'}', ','}")? {
                break;
            }
        }
        self.expect(Token::RightBrace, "'}'")?;
        Ok((
            Expr {
                id,
                kind: Kind::Struct(Struct { name, fields }),
            },
            height,
        ))
    }

    pub(super) fn list(&mut self) -> Result<Node> {
        let id = self.id_here();
        self.advance();
        let mut list = List {
            elements: Vec::new(),
            optional: Vec::new(),
        };
        let mut height = 0;
        while self.token() != Token::RightBracket {
            if self.token() == Token::Comma && self.peek(1) == Token::RightBracket {
                self.advance();
                break;
            }
            if self.token() == Token::Question {
                list.optional.push(list.elements.len());
                self.advance();
            } else if list.elements.is_empty() {
                self.operand_or(ELEMENT, |token| {
                    matches!(token, Token::RightBracket | Token::Comma | Token::Question)
                })?;
            }
            let (element, below) = self.expr()?;
            height = height.max(below);
            list.elements.push(element);
            if !self.comma_or(Token::RightBracket, "{']', ','}")? {
                break;
            }
        }
        self.expect(Token::RightBracket, "']'")?;
        Ok((
            Expr {
                id,
                kind: Kind::List(list),
            },
            height,
        ))
    }

    pub(super) fn map(&mut self) -> Result<Node> {
        let id = self.id_here();
        self.advance();
        let mut entries = Vec::new();
        let mut height = 0;
        while self.token() != Token::RightBrace {
            if self.token() == Token::Comma && self.peek(1) == Token::RightBrace {
                self.advance();
                break;
            }
            let optional = self.token() == Token::Question;
            if optional {
                self.advance();
            } else if entries.is_empty() {
                self.operand_or(KEY, |token| {
                    matches!(token, Token::RightBrace | Token::Comma | Token::Question)
                })?;
            }
            let (key, above) = self.expr()?;
            let entry = self.id_here();
            self.expect(Token::Colon, "':'")?;
            let (value, below) = self.expr()?;
            height = height.max(above).max(below);
            entries.push(Entry {
                id: entry,
                key,
                value,
                optional,
            });
            if !self.comma_or(Token::RightBrace, "{'}', ','}")? {
                break;
            }
        }
        self.expect(Token::RightBrace, "'}'")?;
        Ok((
            Expr {
                id,
                kind: Kind::Map(entries),
            },
            height,
        ))
    }

    /// Takes a comma, and says whether another element follows it.
    pub(super) fn comma_or(&mut self, close: Token, both: &str) -> Result<bool> {
        let fits = |token| token == close || token == Token::Comma;
        if !fits(self.token()) {
            if !fits(self.peek(1)) {
                return Err(self.mismatched(both));
            }
            self.extraneous(both);
        }
        if self.token() == close {
            return Ok(false);
        }
        self.advance();
        Ok(starts_operand(self.token()) || self.token() == Token::Question)
    }

    pub(super) fn literal(&mut self) -> Result<Node> {
        let start = self.here();
        let mut text = String::new();
        if self.token() == Token::Minus {
            text.push('-');
            self.advance();
        }
        text.push_str(&self.text());
        let token = self.token();
        self.advance();
        let parsed = match token {
            Token::Int => integer(&text).map(Literal::Int).ok_or("invalid int literal"),
            Token::Uint => unsigned(&text).map(Literal::Uint).ok_or("invalid uint literal"),
            Token::Float => {
                let value = text.parse().ok().filter(|value: &f64| value.is_finite());
                value.map(Literal::Double).ok_or("invalid double literal")
            }
            Token::String => unescape(&text, Form::Text)
                .map(|bytes| Literal::String(String::from_utf8(bytes).expect("escapes make whole characters"))),
            Token::Bytes => unescape(&text[1..], Form::Bytes).map(Literal::Bytes),
            Token::True => Ok(Literal::Bool(true)),
            Token::False => Ok(Literal::Bool(false)),
            _ => Ok(Literal::Null),
        };
        let literal = match parsed {
            Ok(literal) => literal,
            Err(message) => {
                self.issues.push(Issue {
                    offset: start,
                    message: message.to_owned(),
                });
                Literal::Null
            }
        };
        let id = self.positions.next(start);
        Ok((
            Expr {
                id,
                kind: Kind::Literal(literal),
            },
            0,
        ))
    }
}

fn integer(text: &str) -> Option<i64> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", text),
    };
    match digits.strip_prefix("0x") {
        Some(hex) => i64::from_str_radix(&format!("{sign}{hex}"), 16).ok(),
        None => text.parse().ok(),
    }
}

fn unsigned(text: &str) -> Option<u64> {
    let digits = &text[..text.len() - 1];
    match digits.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => digits.parse().ok(),
    }
}

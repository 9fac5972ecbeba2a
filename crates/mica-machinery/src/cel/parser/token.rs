//! Looking at tokens, and what is said when they are not the expected ones.

use super::{Parser, Result, Rule};
use crate::cel::ast::Id;
use crate::cel::lexer::Token;
use crate::cel::source::Issue;

impl Parser<'_> {
    /// Goes on if an operand starts here, or `other` is true of the token; skips one token if that helps.
    pub(super) fn operand_or(&mut self, expecting: &str, other: fn(Token) -> bool) -> Result<()> {
        let fits = |token| starts_operand(token) || other(token);
        if fits(self.token()) {
            return Ok(());
        }
        if self.token() != Token::End && fits(self.peek(1)) {
            self.extraneous(expecting);
            return Ok(());
        }
        Err(self.mismatched(expecting))
    }

    pub(super) fn token(&self) -> Token {
        self.tokens[self.at].token
    }

    pub(super) fn peek(&self, ahead: usize) -> Token {
        self.tokens
            .get(self.at + ahead)
            .map_or(Token::End, |lexeme| lexeme.token)
    }

    pub(super) fn advance(&mut self) {
        self.at = (self.at + 1).min(self.tokens.len() - 1);
    }

    pub(super) fn here(&self) -> i32 {
        self.tokens[self.at].start as i32
    }

    pub(super) fn id_here(&mut self) -> Id {
        let at = self.here();
        self.positions.next(at)
    }

    pub(super) fn text(&self) -> String {
        self.text_at(self.at)
    }

    pub(super) fn text_at(&self, at: usize) -> String {
        let lexeme = self.tokens[at];
        if lexeme.token == Token::End {
            return "<EOF>".to_owned();
        }
        self.chars[lexeme.start..lexeme.end].iter().collect()
    }

    /// Takes `token`; skips one token before it, or does without it, where that repairs the input.
    pub(super) fn expect(&mut self, token: Token, name: &str) -> Result<()> {
        let found = self.token();
        if found == token {
            self.advance();
            return Ok(());
        }
        if self.peek(1) == token && found != Token::End {
            self.extraneous(name);
            self.advance();
            return Ok(());
        }
        let goes_on = if token == Token::Colon {
            starts_operand(found)
        } else {
            self.can_follow(found)
        };
        if !goes_on {
            return Err(self.mismatched(name));
        }
        let text = shown(&self.text());
        let issue = self.syntax(format!("missing {name} at '{text}'"));
        self.issues.push(issue);
        Ok(())
    }

    /// Whether `token` may come after a closing token here.
    pub(super) fn can_follow(&self, token: Token) -> bool {
        let nested = self.depths[Rule::Expr as usize] > 1;
        match token {
            Token::End => !nested,
            Token::Comma | Token::RightParen | Token::RightBracket | Token::RightBrace | Token::Colon => nested,
            Token::LeftBracket | Token::Dot | Token::Minus => true,
            token => !starts_operand(token),
        }
    }

    /// Reports the token here as one too many, and skips it.
    pub(super) fn extraneous(&mut self, expecting: &str) {
        let text = shown(&self.text());
        let issue = self.syntax(format!("extraneous input '{text}' expecting {expecting}"));
        self.issues.push(issue);
        self.advance();
    }

    pub(super) fn mismatched(&self, expecting: &str) -> Issue {
        let text = shown(&self.text());
        self.syntax(format!("mismatched input '{text}' expecting {expecting}"))
    }

    pub(super) fn syntax(&self, message: String) -> Issue {
        Issue {
            offset: self.here(),
            message: format!("Syntax error: {message}"),
        }
    }

    pub(super) fn plain(&self, message: &str) -> Issue {
        Issue {
            offset: self.here(),
            message: message.to_owned(),
        }
    }
}

pub(super) fn starts_operand(token: Token) -> bool {
    matches!(
        token,
        Token::LeftBracket
            | Token::LeftBrace
            | Token::LeftParen
            | Token::Dot
            | Token::Minus
            | Token::Exclam
            | Token::True
            | Token::False
            | Token::Null
            | Token::Float
            | Token::Int
            | Token::Uint
            | Token::String
            | Token::Bytes
            | Token::Ident
    )
}

/// Text inside an error message: line ends and tabs are written out.
pub(super) fn shown(text: &str) -> String {
    text.replace('\n', "\\n").replace('\r', "\\r").replace('\t', "\\t")
}

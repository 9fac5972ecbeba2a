//! The text form of label selectors: `a in (b,c),!d,e=f`.
//!
//! Follows upstream's lexer and parser step by step, because which token an error names is visible to clients.

use std::collections::BTreeSet;

use super::label::{LabelSelectorError, Operator, Requirement, key_errors};
use crate::field::{ErrorList, Path};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Token {
    Error,
    End,
    Close,
    Comma,
    Not,
    DoubleEquals,
    Equals,
    Greater,
    Identifier,
    In,
    Less,
    NotEquals,
    NotIn,
    Open,
}

/// Where a word stands: `in` and `notin` are operators only after a key.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Context {
    Operator,
    Value,
}

pub(super) fn parse(text: &str) -> Result<Vec<Requirement>, LabelSelectorError> {
    Parser {
        tokens: scan(text),
        position: 0,
    }
    .requirements()
    .map_err(LabelSelectorError)
}

/// All tokens; the last one is always [`Token::End`].
fn scan(text: &str) -> Vec<(Token, String)> {
    // Upstream's lexer takes a zero byte for the end.
    let text = text.split('\0').next().unwrap_or_default();
    let mut tokens = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches([' ', '\t', '\r', '\n']);
        let Some(first) = rest.chars().next() else {
            tokens.push((Token::End, String::new()));
            return tokens;
        };
        let (token, literal, length) = if is_special(first) { symbol(rest) } else { word(rest) };
        tokens.push((token, literal));
        rest = &rest[length..];
    }
}

fn is_special(c: char) -> bool {
    matches!(c, '=' | '!' | '(' | ')' | ',' | '>' | '<')
}

fn word(rest: &str) -> (Token, String, usize) {
    let end = rest
        .find(|c| is_special(c) || matches!(c, ' ' | '\t' | '\r' | '\n'))
        .unwrap_or(rest.len());
    let word = &rest[..end];
    let token = match word {
        "in" => Token::In,
        "notin" => Token::NotIn,
        _ => Token::Identifier,
    };
    (token, word.to_owned(), end)
}

/// The longest symbol that begins here.
fn symbol(rest: &str) -> (Token, String, usize) {
    let known = |text: &str| match text {
        ")" => Token::Close,
        "," => Token::Comma,
        "!" => Token::Not,
        "==" => Token::DoubleEquals,
        "=" => Token::Equals,
        ">" => Token::Greater,
        "<" => Token::Less,
        "!=" => Token::NotEquals,
        "(" => Token::Open,
        _ => Token::Error,
    };
    let two = rest.get(..2).map_or(Token::Error, known);
    let length = if two == Token::Error { 1 } else { 2 };
    (known(&rest[..length]), rest[..length].to_owned(), length)
}

struct Parser {
    tokens: Vec<(Token, String)>,
    position: usize,
}

impl Parser {
    fn requirements(mut self) -> Result<Vec<Requirement>, String> {
        let mut requirements = Vec::new();
        loop {
            let (token, literal) = self.peek(Context::Value);
            match token {
                Token::Identifier | Token::Not => {}
                Token::End => return Ok(requirements),
                _ => {
                    return Err(format!(
                        "found '{literal}', expected: !, identifier, or 'end of string'"
                    ));
                }
            }
            let requirement = self
                .requirement()
                .map_err(|error| format!("unable to parse requirement: {error}"))?;
            requirements.push(requirement);
            match self.next(Context::Value) {
                (Token::End, _) => return Ok(requirements),
                (Token::Comma, _) => {
                    let (token, literal) = self.peek(Context::Value);
                    if !matches!(token, Token::Identifier | Token::Not) {
                        return Err(format!("found '{literal}', expected: identifier after ','"));
                    }
                }
                (_, literal) => return Err(format!("found '{literal}', expected: ',' or 'end of string'")),
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let (key, unary) = self.key()?;
        if let Some(operator) = unary {
            return Requirement::new(&key, operator, Vec::new()).map_err(|error| error.0);
        }
        let operator = self.operator()?;
        let values = match operator {
            Operator::In | Operator::NotIn => self.values()?,
            _ => self.exact_value()?,
        };
        Requirement::new(&key, operator, values.into_iter().collect()).map_err(|error| error.0)
    }

    /// The key, and the operator if the key alone says it.
    fn key(&mut self) -> Result<(String, Option<Operator>), String> {
        let mut operator = None;
        let (mut token, mut literal) = self.next(Context::Value);
        if token == Token::Not {
            operator = Some(Operator::DoesNotExist);
            (token, literal) = self.next(Context::Value);
        }
        if token != Token::Identifier {
            return Err(format!("found '{literal}', expected: identifier"));
        }
        let mut errors = ErrorList::new();
        key_errors(&literal, &Path::default(), &mut errors);
        if let Some(error) = errors.first() {
            return Err(error.to_string());
        }
        if operator.is_none() && matches!(self.peek(Context::Value).0, Token::End | Token::Comma) {
            operator = Some(Operator::Exists);
        }
        Ok((literal, operator))
    }

    fn operator(&mut self) -> Result<Operator, String> {
        let (token, literal) = self.next(Context::Operator);
        Ok(match token {
            Token::In => Operator::In,
            Token::Equals => Operator::Equals,
            Token::DoubleEquals => Operator::DoubleEquals,
            Token::Greater => Operator::GreaterThan,
            Token::Less => Operator::LessThan,
            Token::NotIn => Operator::NotIn,
            Token::NotEquals => Operator::NotEquals,
            _ => return Err(format!("found '{literal}', expected: in, notin, =, ==, !=, gt, lt")),
        })
    }

    /// `(a,b)`; empty places are empty values.
    fn values(&mut self) -> Result<BTreeSet<String>, String> {
        let (token, literal) = self.next(Context::Value);
        if token != Token::Open {
            return Err(format!("found '{literal}' expected: '('"));
        }
        let (token, literal) = self.peek(Context::Value);
        match token {
            Token::Identifier | Token::Comma => {
                let values = self.identifiers()?;
                self.next(Context::Value);
                Ok(values)
            }
            Token::Close => {
                self.next(Context::Value);
                Ok(BTreeSet::from([String::new()]))
            }
            _ => Err(format!("found '{literal}', expected: ',', ')' or identifier")),
        }
    }

    /// Up to, and without, the closing parenthesis.
    fn identifiers(&mut self) -> Result<BTreeSet<String>, String> {
        let mut values = BTreeSet::new();
        loop {
            match self.next(Context::Value) {
                (Token::Identifier, literal) => {
                    values.insert(literal);
                    match self.peek(Context::Value) {
                        (Token::Comma, _) => {}
                        (Token::Close, _) => return Ok(values),
                        (_, literal) => return Err(format!("found '{literal}', expected: ',' or ')'")),
                    }
                }
                (Token::Comma, _) => {
                    if values.is_empty() {
                        values.insert(String::new());
                    }
                    match self.peek(Context::Value).0 {
                        Token::Close => {
                            values.insert(String::new());
                            return Ok(values);
                        }
                        Token::Comma => drop(values.insert(String::new())),
                        _ => {}
                    }
                }
                (_, literal) => return Err(format!("found '{literal}', expected: ',', or identifier")),
            }
        }
    }

    fn exact_value(&mut self) -> Result<BTreeSet<String>, String> {
        if matches!(self.peek(Context::Value).0, Token::End | Token::Comma) {
            return Ok(BTreeSet::from([String::new()]));
        }
        match self.next(Context::Value) {
            (Token::Identifier, literal) => Ok(BTreeSet::from([literal])),
            (_, literal) => Err(format!("found '{literal}', expected: identifier")),
        }
    }

    fn peek(&self, context: Context) -> (Token, &str) {
        let (token, literal) = &self.tokens[self.position.min(self.tokens.len() - 1)];
        match token {
            Token::In | Token::NotIn if context == Context::Value => (Token::Identifier, literal),
            _ => (*token, literal),
        }
    }

    fn next(&mut self, context: Context) -> (Token, String) {
        let (token, literal) = self.peek(context);
        let item = (token, literal.to_owned());
        self.position += 1;
        item
    }
}

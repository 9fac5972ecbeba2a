//! Text to tree, by CEL's grammar.
//!
//! A recursive descent whose syntax errors are worded as upstream's generated parser words them. It repairs the input by
//! one token where upstream does, and goes on; where upstream searches for a place to resume, it stops at that error.
//! Depth and size are bounded as upstream bounds them, so that nothing which walks a tree needs to fear for its stack.

mod literal;
mod token;

use crate::cel::ast::{Call, Expr, Id, Kind, Literal, Positions, Select, op};
use crate::cel::lexer::{Lexeme, Token, lex};
use crate::cel::macros;
use crate::cel::source::{CompileErrors, Issue};

/// Characters in an expression.
const MAX_SIZE: usize = 100_000;

/// How deep one grammar rule may nest, and how deep the tree may be.
const MAX_DEPTH: u32 = 250;

/// Names that may not be variables.
const RESERVED: &[&str] = &[
    "as",
    "break",
    "const",
    "continue",
    "else",
    "false",
    "for",
    "function",
    "if",
    "import",
    "in",
    "let",
    "loop",
    "package",
    "namespace",
    "null",
    "return",
    "true",
    "var",
    "void",
    "while",
];

const OPERAND: &str =
    "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}";
const SUBSCRIPT: &str = "{'[', '{', '(', '.', '-', '!', '?', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}";

/// A parsed expression and where its nodes stand.
#[derive(Debug, Clone)]
pub struct Parsed {
    pub root: Expr,
    pub positions: Positions,
}

pub fn parse(source: &str) -> Result<Parsed, CompileErrors> {
    let chars: Vec<char> = source.chars().collect();
    if chars.len() > MAX_SIZE {
        let message = format!(
            "expression code point size exceeds limit: size: {}, limit {MAX_SIZE}",
            chars.len()
        );
        return Err(CompileErrors::new(source, vec![Issue { offset: -1, message }]));
    }
    let (tokens, unknown) = lex(&chars);
    let issues = unknown
        .into_iter()
        .map(|(at, text)| Issue {
            offset: at as i32,
            message: format!("Syntax error: token recognition error at: '{}'", token::shown(&text)),
        })
        .collect();
    let mut parser = Parser {
        chars: &chars,
        tokens: &tokens,
        at: 0,
        positions: Positions::default(),
        issues,
        depths: [0; RULES],
    };
    let root = parser.start();
    match root {
        Ok((root, _)) if parser.issues.is_empty() => Ok(Parsed {
            root,
            positions: parser.positions,
        }),
        Ok(_) => Err(CompileErrors::new(source, parser.issues)),
        Err(issue) => {
            parser.issues.push(issue);
            Err(CompileErrors::new(source, parser.issues))
        }
    }
}

/// Grammar rules whose nesting is counted.
#[derive(Clone, Copy)]
enum Rule {
    Expr,
    Relation,
    Calc,
    Member,
}

const RULES: usize = 4;

/// A node and how many nested nodes the deepest path below it has.
type Node = (Expr, u32);
type Result<T, E = Issue> = std::result::Result<T, E>;

pub(super) struct Parser<'s> {
    chars: &'s [char],
    tokens: &'s [Lexeme],
    at: usize,
    pub(super) positions: Positions,
    pub(super) issues: Vec<Issue>,
    depths: [u32; RULES],
}

impl Parser<'_> {
    fn start(&mut self) -> Result<Node> {
        let node = self.expr()?;
        if self.token() == Token::End {
            return Ok(node);
        }
        if self.peek(1) == Token::End {
            self.extraneous("<EOF>");
            return Ok(node);
        }
        Err(self.mismatched("<EOF>"))
    }

    fn expr(&mut self) -> Result<Node> {
        self.enter(Rule::Expr)?;
        let node = self.conditional()?;
        self.leave(Rule::Expr);
        Ok(node)
    }

    fn conditional(&mut self) -> Result<Node> {
        let condition = self.logical(Token::Or)?;
        if self.token() != Token::Question {
            return Ok(condition);
        }
        let id = self.id_here();
        self.advance();
        let yes = self.logical(Token::Or)?;
        self.expect(Token::Colon, "':'")?;
        let no = self.expr()?;
        let height = self.deepen(condition.1.max(yes.1).max(no.1))?;
        Ok((global(id, op::CONDITIONAL, vec![condition.0, yes.0, no.0]), height))
    }

    /// A chain of `||`, or of `&&`: a balanced tree, so that long chains stay shallow.
    fn logical(&mut self, operator: Token) -> Result<Node> {
        let mut terms = Vec::new();
        let mut operators = Vec::new();
        let mut height = 0;
        loop {
            let (term, below) = if operator == Token::Or {
                self.logical(Token::And)?
            } else {
                self.relation()?
            };
            height = height.max(below);
            terms.push(term);
            if self.token() != operator {
                break;
            }
            operators.push(self.here());
            self.advance();
        }
        let function = if operator == Token::Or { op::OR } else { op::AND };
        let mut terms: Vec<Option<Expr>> = terms.into_iter().map(Some).collect();
        let last = terms.len() - 1;
        Ok((self.balance(function, &mut terms, &operators, 0, last), height))
    }

    fn balance(&mut self, function: &str, terms: &mut [Option<Expr>], ops: &[i32], low: usize, high: usize) -> Expr {
        if low == high {
            return terms[low].take().expect("each term is used once");
        }
        let middle = (low + high).div_ceil(2) - 1;
        let left = self.balance(function, terms, ops, low, middle);
        let right = self.balance(function, terms, ops, middle + 1, high);
        let id = self.positions.next(ops[middle]);
        global(id, function, vec![left, right])
    }

    fn relation(&mut self) -> Result<Node> {
        self.enter(Rule::Relation)?;
        let mut node = self.calc(1)?;
        loop {
            let function = match self.token() {
                Token::Less => "_<_",
                Token::LessEquals => "_<=_",
                Token::GreaterEquals => "_>=_",
                Token::Greater => "_>_",
                Token::Equals => op::EQUALS,
                Token::NotEquals => op::NOT_EQUALS,
                Token::In => op::IN,
                _ => break,
            };
            let id = self.id_here();
            self.advance();
            self.enter(Rule::Relation)?;
            let right = self.calc(1)?;
            self.leave(Rule::Relation);
            let height = self.deepen(node.1.max(right.1))?;
            node = (global(id, function, vec![node.0, right.0]), height);
        }
        self.leave(Rule::Relation);
        Ok(node)
    }

    fn calc(&mut self, minimum: u8) -> Result<Node> {
        self.enter(Rule::Calc)?;
        let mut node = self.unary()?;
        loop {
            let (function, precedence) = match self.token() {
                Token::Star => ("_*_", 2),
                Token::Slash => ("_/_", 2),
                Token::Percent => ("_%_", 2),
                Token::Plus => (op::ADD, 1),
                Token::Minus => ("_-_", 1),
                _ => break,
            };
            if precedence < minimum {
                break;
            }
            let id = self.id_here();
            self.advance();
            let right = self.calc(precedence + 1)?;
            let height = self.deepen(node.1.max(right.1))?;
            node = (global(id, function, vec![node.0, right.0]), height);
        }
        self.leave(Rule::Calc);
        Ok(node)
    }

    fn unary(&mut self) -> Result<Node> {
        self.operand_or(OPERAND, |_| false)?;
        let (operator, function) = match self.token() {
            Token::Exclam => (Token::Exclam, op::NOT),
            Token::Minus if !matches!(self.peek(1), Token::Int | Token::Float) => (Token::Minus, op::NEGATE),
            _ => return self.member(),
        };
        let at = self.here();
        let mut count = 0;
        while self.token() == operator {
            count += 1;
            self.advance();
        }
        if self.token() == Token::End {
            return Err(self.unary_without_operand(operator));
        }
        let node = self.member()?;
        if count % 2 == 0 {
            return Ok(node);
        }
        let id = self.positions.next(at);
        Ok((global(id, function, vec![node.0]), node.1))
    }

    /// Upstream's words differ by operator here, for no reason but how its grammar is compiled.
    fn unary_without_operand(&mut self, operator: Token) -> Issue {
        if operator == Token::Exclam {
            return self.syntax(format!("extraneous input '<EOF>' expecting {OPERAND}"));
        }
        let issue = self.syntax("no viable alternative at input '-'".to_owned());
        self.issues.push(issue);
        self.mismatched(OPERAND)
    }

    fn member(&mut self) -> Result<Node> {
        self.enter(Rule::Member)?;
        let mut node = self.primary()?;
        loop {
            node = match self.token() {
                Token::Dot => self.select(node)?,
                Token::LeftBracket => self.index(node)?,
                _ => break,
            };
        }
        self.leave(Rule::Member);
        Ok(node)
    }

    fn select(&mut self, (operand, below): Node) -> Result<Node> {
        let dot = self.here();
        self.advance();
        let optional = self.token() == Token::Question;
        if optional {
            self.advance();
        }
        let name_at = self.here();
        let name = match self.token() {
            Token::Ident => self.text(),
            Token::EscapedIdent => return Err(self.plain("unsupported syntax: '`'")),
            Token::True | Token::False | Token::Null if !optional => {
                return Err(self.syntax(format!("mismatched input '{}' expecting IDENTIFIER", self.text())));
            }
            _ if optional => {
                let mismatched = self.mismatched("{IDENTIFIER, ESC_IDENTIFIER}");
                self.issues.push(mismatched);
                return Err(self.plain("unsupported ident kind"));
            }
            token => {
                let text = if token == Token::End {
                    String::new()
                } else {
                    self.text()
                };
                let issue = self.syntax(format!("no viable alternative at input '.{text}'"));
                self.issues.push(issue);
                return Ok((operand, below));
            }
        };
        self.advance();
        if optional {
            let height = self.deepen(below)?;
            let call = self.positions.next(dot);
            let id = self.positions.next(name_at);
            let field = Expr {
                id,
                kind: Kind::Literal(Literal::String(name)),
            };
            return Ok((global(call, op::OPT_SELECT, vec![operand, field]), height));
        }
        if self.token() == Token::LeftParen {
            let id = self.id_here();
            let (args, inside) = self.arguments()?;
            let height = self.deepen(below.max(inside))?;
            return Ok((macros::member_call(self, id, name, operand, args), height));
        }
        let height = self.deepen(below)?;
        let id = self.positions.next(dot);
        let select = Select {
            operand,
            field: name,
            test_only: false,
        };
        Ok((
            Expr {
                id,
                kind: Kind::Select(Box::new(select)),
            },
            height,
        ))
    }

    fn index(&mut self, (operand, below): Node) -> Result<Node> {
        let id = self.id_here();
        self.advance();
        let optional = self.token() == Token::Question;
        if optional {
            self.advance();
        } else {
            self.operand_or(SUBSCRIPT, |_| false)?;
        }
        let (index, inside) = self.expr()?;
        self.expect(Token::RightBracket, "']'")?;
        let height = self.deepen(below.max(inside))?;
        let function = if optional { op::OPT_INDEX } else { op::INDEX };
        Ok((global(id, function, vec![operand, index]), height))
    }

    fn primary(&mut self) -> Result<Node> {
        match self.token() {
            Token::Dot | Token::Ident => self.name(),
            Token::LeftParen => {
                self.advance();
                let node = self.expr()?;
                self.expect(Token::RightParen, "')'")?;
                Ok(node)
            }
            Token::LeftBracket => self.list(),
            Token::LeftBrace => self.map(),
            Token::Minus if !matches!(self.peek(1), Token::Int | Token::Float) => Err(self.mismatched(OPERAND)),
            Token::Minus
            | Token::Float
            | Token::Int
            | Token::Uint
            | Token::String
            | Token::Bytes
            | Token::True
            | Token::False
            | Token::Null => self.literal(),
            _ => Err(self.mismatched(OPERAND)),
        }
    }

    fn name(&mut self) -> Result<Node> {
        let start = self.here();
        let mut name = String::new();
        if self.token() == Token::Dot {
            name.push('.');
            self.advance();
        }
        if self.token() != Token::Ident {
            let text = self.text();
            let text = if self.token() == Token::End {
                String::new()
            } else {
                text
            };
            return Err(self.syntax(format!("no viable alternative at input '.{text}'")));
        }
        if self.builds_message() {
            return self.message(name);
        }
        let ident_at = self.here();
        let word = self.text();
        self.advance();
        let call = self.token() == Token::LeftParen;
        if RESERVED.contains(&word.as_str()) {
            self.issues.push(Issue {
                offset: start,
                message: format!("reserved identifier: {word}"),
            });
        }
        name.push_str(&word);
        if call {
            let id = self.id_here();
            let (args, height) = self.arguments()?;
            return Ok((macros::global_call(self, id, name, args), height));
        }
        let id = self.positions.next(ident_at);
        Ok((
            Expr {
                id,
                kind: Kind::Ident(name),
            },
            0,
        ))
    }

    fn enter(&mut self, rule: Rule) -> Result<()> {
        let depth = &mut self.depths[rule as usize];
        *depth += 1;
        if *depth > MAX_DEPTH {
            let message = format!("expression recursion limit exceeded: {MAX_DEPTH}");
            return Err(Issue { offset: -1, message });
        }
        Ok(())
    }

    fn leave(&mut self, rule: Rule) {
        self.depths[rule as usize] -= 1;
    }

    fn deepen(&self, below: u32) -> Result<u32> {
        if below + 1 > MAX_DEPTH {
            return Err(Issue {
                offset: -1,
                message: "max recursion depth exceeded".to_owned(),
            });
        }
        Ok(below + 1)
    }
}

pub(super) fn global(id: Id, function: &str, args: Vec<Expr>) -> Expr {
    Expr {
        id,
        kind: Kind::Call(Box::new(Call {
            target: None,
            function: function.to_owned(),
            args,
        })),
    }
}

//! A parse tree to a syntax tree: names, operators, literals and macros are looked at here.
//!
//! Also trees with holes are walked, as upstream does: what is wrong in the parts that were understood is reported
//! together with the errors of syntax. A hole becomes a null, which no later step ever sees.

use super::tree::{Label, Node, NodeId, Role, Tree, Word};
use super::{MAX_DEPTH, global};
use crate::cel::ast::{Entry, Expr, FieldInit, Id, Kind, List, Literal, Positions, Select, Struct, op};
use crate::cel::lexer::Token;
use crate::cel::macros;
use crate::cel::source::Issue;
use crate::cel::unescape::{Form, unescape};

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

/// The tree nests too deep.
struct TooDeep;

type Result<T> = std::result::Result<T, TooDeep>;

/// Makes a syntax tree of the node `root`, unless it is too deep, which is among the issues then.
pub(super) fn visit(
    chars: &[char],
    tree: &Tree,
    root: NodeId,
    issues: Vec<Issue>,
) -> (Option<Expr>, Positions, Vec<Issue>) {
    let mut visitor = Visitor {
        chars,
        tree,
        depth: 0,
        positions: Positions::default(),
        issues,
    };
    let made = visitor.expr(Some(root));
    if made.is_err() {
        let message = "max recursion depth exceeded";
        visitor.issues.push(Issue::nowhere(message));
    }
    (made.ok(), visitor.positions, visitor.issues)
}

pub(in crate::cel) struct Visitor<'t> {
    chars: &'t [char],
    tree: &'t Tree,
    depth: u32,
    pub(in crate::cel) positions: Positions,
    pub(in crate::cel) issues: Vec<Issue>,
}

impl<'t> Visitor<'t> {
    /// The node that says what is meant, below those that only wrap it.
    fn unwrap(&self, mut id: NodeId) -> Option<&'t Node> {
        loop {
            let node = self.tree.node(id);
            match node.wrapped() {
                None => return Some(node),
                Some(inner) => id = inner?,
            }
        }
    }

    fn expr(&mut self, id: Option<NodeId>) -> Result<Expr> {
        let Some(node) = id.and_then(|id| self.unwrap(id)) else {
            return Ok(self.hole(-1));
        };
        let nests = matches!(
            node.label,
            Label::Expr | Label::Relation | Label::Calc | Label::Select | Label::MemberCall | Label::Index
        );
        if nests {
            self.depth += 1;
            if self.depth > MAX_DEPTH {
                return Err(TooDeep);
            }
        }
        let made = self.made(node)?;
        if nests {
            self.depth -= 1;
        }
        Ok(made)
    }

    fn made(&mut self, node: &'t Node) -> Result<Expr> {
        match node.label {
            Label::Expr => self.conditional(node),
            Label::Or => self.chain(op::OR, node),
            Label::And => self.chain(op::AND, node),
            Label::Relation | Label::Calc => self.binary(node),
            Label::Not => self.unary(op::NOT, node),
            Label::Negate => self.unary(op::NEGATE, node),
            Label::Select => self.select(node),
            Label::MemberCall => self.member_call(node),
            Label::Index => self.index(node),
            Label::Ident | Label::GlobalCall => self.name(node),
            Label::List => self.list(node),
            Label::Map => self.map(node),
            Label::Message => self.message(node),
            Label::Int
            | Label::Uint
            | Label::Double
            | Label::String
            | Label::Bytes
            | Label::True
            | Label::False
            | Label::Null => Ok(self.literal(node)),
            Label::Unary => Ok(self.hole(node.start as i32)),
            _ => Ok(self.hole(-1)),
        }
    }

    fn conditional(&mut self, node: &Node) -> Result<Expr> {
        let condition = self.expr(node.node(Role::First))?;
        let id = self.id(node.word(Role::Operator));
        let yes = self.expr(node.node(Role::Rest))?;
        let no = self.expr(node.node(Role::Last))?;
        Ok(global(id, op::CONDITIONAL, vec![condition, yes, no]))
    }

    /// A chain of `||`, or of `&&`: a balanced tree, so that long chains stay shallow.
    fn chain(&mut self, function: &str, node: &Node) -> Result<Expr> {
        let mut terms = vec![Some(self.expr(node.node(Role::First))?)];
        let mut ids = Vec::new();
        for (operator, term) in node.words(Role::Operator).zip(node.nodes(Role::Rest)) {
            terms.push(Some(self.expr(Some(term))?));
            ids.push(self.id(Some(operator)));
        }
        Ok(balance(function, &mut terms, &ids))
    }

    fn binary(&mut self, node: &Node) -> Result<Expr> {
        let operator = node.word(Role::Operator);
        let left = self.expr(node.node(Role::First))?;
        let id = self.id(operator);
        let right = self.expr(node.node(Role::Rest))?;
        let function = match operator.map(|word| word.token) {
            Some(Token::Less) => "_<_",
            Some(Token::LessEquals) => "_<=_",
            Some(Token::GreaterEquals) => "_>=_",
            Some(Token::Greater) => "_>_",
            Some(Token::Equals) => op::EQUALS,
            Some(Token::NotEquals) => op::NOT_EQUALS,
            Some(Token::In) => op::IN,
            Some(Token::Star) => "_*_",
            Some(Token::Slash) => "_/_",
            Some(Token::Percent) => "_%_",
            Some(Token::Plus) => op::ADD,
            _ => "_-_",
        };
        Ok(global(id, function, vec![left, right]))
    }

    fn unary(&mut self, function: &str, node: &Node) -> Result<Expr> {
        let operand = node.node(Role::First);
        if node.words(Role::Operator).count().is_multiple_of(2) {
            return self.expr(operand);
        }
        let id = self.id(node.word(Role::Operator));
        let operand = self.expr(operand)?;
        Ok(global(id, function, vec![operand]))
    }

    fn select(&mut self, node: &Node) -> Result<Expr> {
        let operand = self.expr(node.node(Role::First))?;
        let Some(name) = node.node(Role::Name) else {
            return Ok(self.hole(node.start as i32));
        };
        let name = self.tree.node(name);
        let field = match self.field_name(name) {
            Ok(field) => field,
            Err(message) => {
                self.report(name.start, message);
                String::new()
            }
        };
        let dot = node.word(Role::Operator);
        if node.word(Role::Optional).is_some() {
            let field = Expr {
                id: self.positions.next(name.start as i32),
                kind: Kind::Literal(Literal::String(field)),
            };
            let id = self.id(dot);
            return Ok(global(id, op::OPT_SELECT, vec![operand, field]));
        }
        let select = Select {
            operand,
            field,
            test_only: false,
        };
        Ok(Expr {
            id: self.id(dot),
            kind: Kind::Select(Box::new(select)),
        })
    }

    fn field_name(&self, name: &Node) -> std::result::Result<String, &'static str> {
        match (name.label, name.word(Role::Name)) {
            (Label::SimpleIdent, Some(word)) => Ok(self.text(word)),
            (Label::EscapedIdent, Some(_)) => Err("unsupported syntax: '`'"),
            _ => Err("unsupported ident kind"),
        }
    }

    fn member_call(&mut self, node: &Node) -> Result<Expr> {
        let operand = self.expr(node.node(Role::First))?;
        let Some(name) = node.word(Role::Name) else {
            return Ok(self.hole(node.start as i32));
        };
        let id = self.id(node.word(Role::Open));
        let args = self.arguments(node)?;
        let name = self.text(name);
        Ok(macros::member_call(self, id, name, operand, args))
    }

    fn index(&mut self, node: &Node) -> Result<Expr> {
        let operand = self.expr(node.node(Role::First))?;
        let id = self.id(node.word(Role::Operator));
        let index = self.expr(node.node(Role::Rest))?;
        let function = match node.word(Role::Optional) {
            Some(_) => op::OPT_INDEX,
            None => op::INDEX,
        };
        Ok(global(id, function, vec![operand, index]))
    }

    /// A variable, or a call of a function.
    fn name(&mut self, node: &Node) -> Result<Expr> {
        let Some(word) = node.word(Role::Name) else {
            return Ok(self.hole(node.start as i32));
        };
        let mut name = self.text(word);
        if RESERVED.contains(&name.as_str()) {
            return Ok(self.report(node.start, format!("reserved identifier: {name}")));
        }
        if node.word(Role::LeadingDot).is_some() {
            name.insert(0, '.');
        }
        if node.label == Label::GlobalCall {
            let id = self.id(node.word(Role::Open));
            let args = self.arguments(node)?;
            return Ok(macros::global_call(self, id, name, args));
        }
        Ok(Expr {
            id: self.id(Some(word)),
            kind: Kind::Ident(name),
        })
    }

    fn arguments(&mut self, call: &Node) -> Result<Vec<Expr>> {
        match call.node(Role::Arguments) {
            None => Ok(Vec::new()),
            Some(list) => {
                let list = self.tree.node(list);
                list.nodes(Role::Rest).map(|arg| self.expr(Some(arg))).collect()
            }
        }
    }

    fn list(&mut self, node: &Node) -> Result<Expr> {
        let id = self.id(node.word(Role::Operator));
        let mut list = List {
            elements: Vec::new(),
            optional: Vec::new(),
        };
        for element in self.parts(node, Role::Rest) {
            list.elements.push(self.expr(element.node(Role::First))?);
            if element.word(Role::Optional).is_some() {
                list.optional.push(list.elements.len() - 1);
            }
        }
        Ok(Expr {
            id,
            kind: Kind::List(list),
        })
    }

    fn map(&mut self, node: &Node) -> Result<Expr> {
        let id = self.id(node.word(Role::Operator));
        let mut entries = Vec::new();
        for (colon, key, value) in self.pairs(node) {
            let id = self.id(Some(colon));
            entries.push(Entry {
                id,
                key: self.expr(key.node(Role::First))?,
                value: self.expr(Some(value))?,
                optional: key.word(Role::Optional).is_some(),
            });
        }
        Ok(Expr {
            id,
            kind: Kind::Map(entries),
        })
    }

    fn message(&mut self, node: &Node) -> Result<Expr> {
        let names: Vec<String> = node.words(Role::Name).map(|word| self.text(word)).collect();
        let mut name = names.join(".");
        if node.word(Role::LeadingDot).is_some() {
            name.insert(0, '.');
        }
        let id = self.id(node.word(Role::Operator));
        let mut fields = Vec::new();
        for (colon, field, value) in self.pairs(node) {
            let id = self.id(Some(colon));
            let named = field.node(Role::Name).map(|name| self.tree.node(name));
            let name = match named.map_or(Err("unsupported ident kind"), |name| self.field_name(name)) {
                Ok(name) => name,
                Err(message) => {
                    let list = node
                        .node(Role::Arguments)
                        .map_or(node.start, |list| self.tree.node(list).start);
                    self.report(list, message);
                    continue;
                }
            };
            fields.push(FieldInit {
                id,
                name,
                value: self.expr(Some(value))?,
                optional: field.word(Role::Optional).is_some(),
            });
        }
        Ok(Expr {
            id,
            kind: Kind::Struct(Struct { name, fields }),
        })
    }

    /// The parts of what is between brackets.
    fn parts(&self, node: &Node, role: Role) -> Vec<&'t Node> {
        let list = node.node(Role::Arguments).map(|list| self.tree.node(list));
        list.into_iter()
            .flat_map(|list| list.nodes(role))
            .map(|part| self.tree.node(part))
            .collect()
    }

    /// Colons, keys and values of what is between braces, as far as all three are there.
    fn pairs(&self, node: &Node) -> Vec<(Word, &'t Node, NodeId)> {
        let Some(list) = node.node(Role::Arguments).map(|list| self.tree.node(list)) else {
            return Vec::new();
        };
        let keys = self.parts(node, Role::Key);
        list.words(Role::Colon)
            .zip(keys)
            .zip(list.nodes(Role::Value))
            .map(|((colon, key), value)| (colon, key, value))
            .collect()
    }

    fn literal(&mut self, node: &Node) -> Expr {
        let mut text = node.word(Role::Sign).map_or(String::new(), |_| "-".to_owned());
        text.push_str(&node.word(Role::First).map_or(String::new(), |word| self.text(word)));
        let parsed = match node.label {
            Label::Int => integer(&text).map(Literal::Int).ok_or("invalid int literal"),
            Label::Uint => unsigned(&text).map(Literal::Uint).ok_or("invalid uint literal"),
            Label::Double => {
                let value = text.parse().ok().filter(|value: &f64| value.is_finite());
                value.map(Literal::Double).ok_or("invalid double literal")
            }
            Label::String => unescape(&text, Form::Text)
                .map(|bytes| Literal::String(String::from_utf8(bytes).expect("escapes make whole characters"))),
            Label::Bytes => unescape(&text[1..], Form::Bytes).map(Literal::Bytes),
            Label::True => Ok(Literal::Bool(true)),
            Label::False => Ok(Literal::Bool(false)),
            _ => Ok(Literal::Null),
        };
        match parsed {
            Ok(literal) => Expr {
                id: self.positions.next(node.start as i32),
                kind: Kind::Literal(literal),
            },
            Err(message) => self.report(node.start, message),
        }
    }

    fn text(&self, word: Word) -> String {
        self.chars[word.start..word.end].iter().collect()
    }

    fn id(&mut self, word: Option<Word>) -> Id {
        self.positions.next(word.map_or(-1, |word| word.start as i32))
    }

    fn hole(&mut self, offset: i32) -> Expr {
        Expr {
            id: self.positions.next(offset),
            kind: Kind::Literal(Literal::Null),
        }
    }

    fn report(&mut self, at: usize, message: impl Into<String>) -> Expr {
        let offset = at as i32;
        self.issues.push(Issue {
            offset,
            message: message.into(),
        });
        self.hole(offset)
    }

    /// What a macro that was called wrongly becomes.
    pub(in crate::cel) fn refuse(&mut self, at: Id, message: impl Into<String>) -> Expr {
        let offset = self.positions.of(at);
        self.issues.push(Issue {
            offset,
            message: message.into(),
        });
        self.hole(offset)
    }
}

/// `terms` joined by `function`, the middle one first; each is taken out.
fn balance(function: &str, terms: &mut [Option<Expr>], ids: &[Id]) -> Expr {
    if ids.is_empty() {
        return terms[0].take().expect("each term is used once");
    }
    let middle = ids.len() / 2;
    let (left, right) = terms.split_at_mut(middle + 1);
    let left = balance(function, left, &ids[..middle]);
    let right = balance(function, right, &ids[middle + 1..]);
    global(ids[middle], function, vec![left, right])
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

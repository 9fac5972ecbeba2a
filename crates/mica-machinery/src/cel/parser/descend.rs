//! Well-formed text to a parse tree, by recursive descent.
//!
//! It gives up at the first token that does not fit, and where rules nest too deep: what is then said, and what is still
//! made of the text, is for `repair`, which is far slower.

use super::MAX_DEPTH;
use super::grammar::RELATIONS;
use super::network::Rule;
use super::tree::{Label, Node, NodeId, Role, Tree, Word};
use crate::cel::lexer::{Lexeme, Token};

/// The text is not well-formed.
pub(super) struct Unfit;

type Result<T> = std::result::Result<T, Unfit>;

pub(super) fn descend(tokens: &[Lexeme]) -> Result<(Tree, NodeId)> {
    let mut descent = Descent {
        tokens,
        at: 0,
        tree: Tree::default(),
        depths: [0; Rule::COUNT],
    };
    let root = descent.expr()?;
    descent.expect(Token::End)?;
    Ok((descent.tree, root))
}

struct Descent<'t> {
    tokens: &'t [Lexeme],
    at: usize,
    tree: Tree,
    /// How deep the rules nest that can nest the deepest.
    depths: [u32; Rule::COUNT],
}

impl Descent<'_> {
    fn expr(&mut self) -> Result<NodeId> {
        self.enter(Rule::Expr)?;
        let start = self.here();
        let mut node = self.logical(Token::Or)?;
        if self.token() == Token::Question {
            let mut conditional = Node::new(Label::Expr, start);
            conditional.add_node(Role::First, node);
            conditional.add_word(Role::Operator, self.take());
            conditional.add_node(Role::Rest, self.logical(Token::Or)?);
            self.expect(Token::Colon)?;
            conditional.add_node(Role::Last, self.expr()?);
            node = self.tree.add(conditional);
        }
        self.leave(Rule::Expr);
        Ok(node)
    }

    /// A chain of `||`, or of `&&`.
    fn logical(&mut self, operator: Token) -> Result<NodeId> {
        let label = if operator == Token::Or { Label::Or } else { Label::And };
        let mut chain = Node::new(label, self.here());
        let first = self.term(operator)?;
        if self.token() != operator {
            return Ok(first);
        }
        chain.add_node(Role::First, first);
        while self.token() == operator {
            chain.add_word(Role::Operator, self.take());
            chain.add_node(Role::Rest, self.term(operator)?);
        }
        Ok(self.tree.add(chain))
    }

    fn term(&mut self, operator: Token) -> Result<NodeId> {
        if operator == Token::Or {
            self.logical(Token::And)
        } else {
            self.relation()
        }
    }

    fn relation(&mut self) -> Result<NodeId> {
        self.enter(Rule::Relation)?;
        let start = self.here();
        let mut node = self.calc(1)?;
        while RELATIONS.contains(&self.token()) {
            let operator = self.take();
            self.enter(Rule::Relation)?;
            let right = self.calc(1)?;
            self.leave(Rule::Relation);
            node = self.binary(Label::Relation, start, node, operator, right);
        }
        self.leave(Rule::Relation);
        Ok(node)
    }

    fn calc(&mut self, minimum: u8) -> Result<NodeId> {
        self.enter(Rule::Calc)?;
        let start = self.here();
        let mut node = self.unary()?;
        loop {
            let precedence = match self.token() {
                Token::Star | Token::Slash | Token::Percent => 2,
                Token::Plus | Token::Minus => 1,
                _ => break,
            };
            if precedence < minimum {
                break;
            }
            let operator = self.take();
            let right = self.calc(precedence + 1)?;
            node = self.binary(Label::Calc, start, node, operator, right);
        }
        self.leave(Rule::Calc);
        Ok(node)
    }

    fn binary(&mut self, label: Label, start: usize, left: NodeId, operator: Word, right: NodeId) -> NodeId {
        let mut node = Node::new(label, start);
        node.add_node(Role::First, left);
        node.add_word(Role::Operator, operator);
        node.add_node(Role::Rest, right);
        self.tree.add(node)
    }

    fn unary(&mut self) -> Result<NodeId> {
        let (operator, label) = match self.token() {
            Token::Exclam => (Token::Exclam, Label::Not),
            Token::Minus if !matches!(self.peek(1), Token::Int | Token::Float) => (Token::Minus, Label::Negate),
            _ => return self.member(),
        };
        let mut node = Node::new(label, self.here());
        while self.token() == operator {
            node.add_word(Role::Operator, self.take());
        }
        node.add_node(Role::First, self.member()?);
        Ok(self.tree.add(node))
    }

    fn member(&mut self) -> Result<NodeId> {
        self.enter(Rule::Member)?;
        let start = self.here();
        let mut node = self.primary()?;
        loop {
            node = match self.token() {
                Token::Dot => self.select(start, node)?,
                Token::LeftBracket => self.index(start, node)?,
                _ => break,
            };
        }
        self.leave(Rule::Member);
        Ok(node)
    }

    fn select(&mut self, start: usize, operand: NodeId) -> Result<NodeId> {
        let dot = self.take();
        if self.token() == Token::Ident && self.peek(1) == Token::LeftParen {
            let mut call = Node::new(Label::MemberCall, start);
            call.add_node(Role::First, operand);
            call.add_word(Role::Operator, dot);
            call.add_word(Role::Name, self.take());
            self.arguments(&mut call)?;
            return Ok(self.tree.add(call));
        }
        let mut select = Node::new(Label::Select, start);
        select.add_node(Role::First, operand);
        select.add_word(Role::Operator, dot);
        self.optional(&mut select);
        select.add_node(Role::Name, self.field_name()?);
        Ok(self.tree.add(select))
    }

    fn field_name(&mut self) -> Result<NodeId> {
        let label = match self.token() {
            Token::Ident => Label::SimpleIdent,
            Token::EscapedIdent => Label::EscapedIdent,
            _ => return Err(Unfit),
        };
        let mut name = Node::new(label, self.here());
        name.add_word(Role::Name, self.take());
        Ok(self.tree.add(name))
    }

    fn index(&mut self, start: usize, operand: NodeId) -> Result<NodeId> {
        let mut index = Node::new(Label::Index, start);
        index.add_node(Role::First, operand);
        index.add_word(Role::Operator, self.take());
        self.optional(&mut index);
        index.add_node(Role::Rest, self.expr()?);
        self.expect(Token::RightBracket)?;
        Ok(self.tree.add(index))
    }

    fn primary(&mut self) -> Result<NodeId> {
        match self.token() {
            Token::Dot | Token::Ident => self.name(),
            Token::LeftParen => {
                self.take();
                let node = self.expr()?;
                self.expect(Token::RightParen)?;
                Ok(node)
            }
            Token::LeftBracket => self.list(),
            Token::LeftBrace => self.map(),
            _ => self.literal(),
        }
    }

    /// A name, a call or a message.
    fn name(&mut self) -> Result<NodeId> {
        let mut node = Node::new(Label::Ident, self.here());
        if self.token() == Token::Dot {
            node.add_word(Role::LeadingDot, self.take());
        }
        let message = self.builds_message();
        node.add_word(Role::Name, self.expect(Token::Ident)?);
        if message {
            return self.message(node);
        }
        if self.token() == Token::LeftParen {
            node.label = Label::GlobalCall;
            self.arguments(&mut node)?;
        }
        Ok(self.tree.add(node))
    }

    /// Whether the names from here on are followed by `{`.
    fn builds_message(&self) -> bool {
        let mut ahead = 1;
        while self.peek(ahead) == Token::Dot && self.peek(ahead + 1) == Token::Ident {
            ahead += 2;
        }
        self.peek(ahead) == Token::LeftBrace
    }

    fn message(&mut self, mut node: Node) -> Result<NodeId> {
        node.label = Label::Message;
        while self.token() == Token::Dot {
            self.take();
            node.add_word(Role::Name, self.expect(Token::Ident)?);
        }
        node.add_word(Role::Operator, self.expect(Token::LeftBrace)?);
        if matches!(self.token(), Token::Question | Token::Ident | Token::EscapedIdent) {
            let mut fields = Node::new(Label::FieldInits, self.here());
            loop {
                let mut field = Node::new(Label::OptField, self.here());
                self.optional(&mut field);
                field.add_node(Role::Name, self.field_name()?);
                fields.add_node(Role::Key, self.tree.add(field));
                fields.add_word(Role::Colon, self.expect(Token::Colon)?);
                fields.add_node(Role::Value, self.expr()?);
                if !self.another(Token::RightBrace) {
                    break;
                }
            }
            node.add_node(Role::Arguments, self.tree.add(fields));
        }
        self.close(Token::RightBrace)?;
        Ok(self.tree.add(node))
    }

    fn list(&mut self) -> Result<NodeId> {
        let mut list = Node::new(Label::List, self.here());
        list.add_word(Role::Operator, self.take());
        if !matches!(self.token(), Token::RightBracket | Token::Comma) {
            let mut elements = Node::new(Label::ListInit, self.here());
            loop {
                elements.add_node(Role::Rest, self.optional_expr()?);
                if !self.another(Token::RightBracket) {
                    break;
                }
            }
            list.add_node(Role::Arguments, self.tree.add(elements));
        }
        self.close(Token::RightBracket)?;
        Ok(self.tree.add(list))
    }

    fn map(&mut self) -> Result<NodeId> {
        let mut map = Node::new(Label::Map, self.here());
        map.add_word(Role::Operator, self.take());
        if !matches!(self.token(), Token::RightBrace | Token::Comma) {
            let mut entries = Node::new(Label::MapInits, self.here());
            loop {
                entries.add_node(Role::Key, self.optional_expr()?);
                entries.add_word(Role::Colon, self.expect(Token::Colon)?);
                entries.add_node(Role::Value, self.expr()?);
                if !self.another(Token::RightBrace) {
                    break;
                }
            }
            map.add_node(Role::Arguments, self.tree.add(entries));
        }
        self.close(Token::RightBrace)?;
        Ok(self.tree.add(map))
    }

    fn optional_expr(&mut self) -> Result<NodeId> {
        let mut node = Node::new(Label::OptExpr, self.here());
        self.optional(&mut node);
        node.add_node(Role::First, self.expr()?);
        Ok(self.tree.add(node))
    }

    /// Takes the comma before another element; the one before the bracket is left.
    fn another(&mut self, bracket: Token) -> bool {
        let more = self.token() == Token::Comma && self.peek(1) != bracket;
        if more {
            self.take();
        }
        more
    }

    fn close(&mut self, bracket: Token) -> Result<()> {
        if self.token() == Token::Comma {
            self.take();
        }
        self.expect(bracket).map(drop)
    }

    /// `(a, b)`.
    fn arguments(&mut self, call: &mut Node) -> Result<()> {
        call.add_word(Role::Open, self.take());
        if self.token() != Token::RightParen {
            let mut list = Node::new(Label::ExprList, self.here());
            list.add_node(Role::Rest, self.expr()?);
            while self.token() == Token::Comma {
                self.take();
                list.add_node(Role::Rest, self.expr()?);
            }
            call.add_node(Role::Arguments, self.tree.add(list));
        }
        self.expect(Token::RightParen).map(drop)
    }

    fn literal(&mut self) -> Result<NodeId> {
        let mut node = Node::new(Label::Int, self.here());
        let signed = self.token() == Token::Minus;
        if signed {
            node.add_word(Role::Sign, self.take());
        }
        node.label = match self.token() {
            Token::Int => Label::Int,
            Token::Float => Label::Double,
            _ if signed => return Err(Unfit),
            Token::Uint => Label::Uint,
            Token::String => Label::String,
            Token::Bytes => Label::Bytes,
            Token::True => Label::True,
            Token::False => Label::False,
            Token::Null => Label::Null,
            _ => return Err(Unfit),
        };
        node.add_word(Role::First, self.take());
        Ok(self.tree.add(node))
    }

    fn optional(&mut self, node: &mut Node) {
        if self.token() == Token::Question {
            node.add_word(Role::Optional, self.take());
        }
    }

    fn token(&self) -> Token {
        self.peek(0)
    }

    fn peek(&self, ahead: usize) -> Token {
        self.tokens
            .get(self.at + ahead)
            .map_or(Token::End, |lexeme| lexeme.token)
    }

    fn here(&self) -> usize {
        self.tokens[self.at].start
    }

    fn take(&mut self) -> Word {
        let lexeme = self.tokens[self.at];
        self.at = (self.at + 1).min(self.tokens.len() - 1);
        lexeme.into()
    }

    fn expect(&mut self, token: Token) -> Result<Word> {
        if self.token() == token {
            Ok(self.take())
        } else {
            Err(Unfit)
        }
    }

    fn enter(&mut self, rule: Rule) -> Result<()> {
        let depth = &mut self.depths[rule as usize];
        *depth += 1;
        if *depth > MAX_DEPTH { Err(Unfit) } else { Ok(()) }
    }

    fn leave(&mut self, rule: Rule) {
        self.depths[rule as usize] -= 1;
    }
}

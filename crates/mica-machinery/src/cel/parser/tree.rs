//! The parse tree of an expression: which alternative of the grammar each part is, before anything is made of it.
//!
//! Nodes that only wrap another (a sum of one term) may be left out. A tree of broken input has holes: parts that are
//! missing, and nodes whose label says that no alternative was found.

use crate::cel::lexer::Token;

/// What a node is: an alternative of the grammar, or a rule of which none was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Label {
    Start,
    Expr,
    Or,
    And,
    Relation,
    Calc,
    Unary,
    MemberExpr,
    Not,
    Negate,
    PrimaryExpr,
    Select,
    MemberCall,
    Index,
    Primary,
    Ident,
    GlobalCall,
    Nested,
    List,
    Map,
    Message,
    Constant,
    ExprList,
    ListInit,
    FieldInits,
    OptField,
    MapInits,
    EscapeIdent,
    SimpleIdent,
    EscapedIdent,
    OptExpr,
    Literal,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    True,
    False,
    Null,
}

/// What a part is to its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// The only, first or left operand, a receiver, or what a node wraps.
    First,
    /// The operands after the first.
    Rest,
    /// The last operand of a conditional.
    Last,
    Operator,
    /// The `?` of an optional part.
    Optional,
    LeadingDot,
    Name,
    Open,
    Arguments,
    Key,
    Colon,
    Value,
    Sign,
    /// Punctuation that nothing is made of.
    Plain,
}

pub(super) type NodeId = u32;

/// A token in the tree: one that was read, or one that was missing and is thought of as being there.
#[derive(Debug, Clone, Copy)]
pub(super) struct Word {
    pub(super) token: Token,
    pub(super) start: usize,
    /// The same as `start` for a token that was missing.
    pub(super) end: usize,
}

#[derive(Debug, Clone, Copy)]
enum Part {
    Node(NodeId),
    Word(Word),
}

#[derive(Debug)]
pub(super) struct Node {
    pub(super) label: Label,
    /// Where its first token stands.
    pub(super) start: usize,
    parts: Vec<(Role, Part)>,
}

impl Node {
    pub(super) fn new(label: Label, start: usize) -> Self {
        Self {
            label,
            start,
            parts: Vec::new(),
        }
    }

    pub(super) fn add_node(&mut self, role: Role, node: NodeId) {
        self.parts.push((role, Part::Node(node)));
    }

    pub(super) fn add_word(&mut self, role: Role, word: Word) {
        if role != Role::Plain {
            self.parts.push((role, Part::Word(word)));
        }
    }

    /// The node that is meant, if this one only wraps it: nothing where that is missing.
    pub(super) fn wrapped(&self) -> Option<Option<NodeId>> {
        let wraps = match self.label {
            Label::Start | Label::MemberExpr | Label::PrimaryExpr | Label::Nested | Label::Constant => true,
            Label::Expr | Label::Or | Label::And | Label::Relation | Label::Calc => self.word(Role::Operator).is_none(),
            _ => false,
        };
        wraps.then(|| self.node(Role::First))
    }

    pub(super) fn nodes(&self, role: Role) -> impl Iterator<Item = NodeId> {
        self.parts.iter().filter_map(move |part| match part {
            (found, Part::Node(node)) if *found == role => Some(*node),
            _ => None,
        })
    }

    pub(super) fn words(&self, role: Role) -> impl Iterator<Item = Word> {
        self.parts.iter().filter_map(move |part| match part {
            (found, Part::Word(word)) if *found == role => Some(*word),
            _ => None,
        })
    }

    pub(super) fn node(&self, role: Role) -> Option<NodeId> {
        self.nodes(role).next()
    }

    pub(super) fn word(&self, role: Role) -> Option<Word> {
        self.words(role).next()
    }
}

/// All nodes of a tree, found by their number.
#[derive(Debug, Default)]
pub(super) struct Tree {
    nodes: Vec<Node>,
    /// Numbers that may be given again.
    unused: Vec<NodeId>,
}

impl Tree {
    pub(super) fn add(&mut self, node: Node) -> NodeId {
        if let Some(id) = self.unused.pop() {
            self.nodes[id as usize] = node;
            return id;
        }
        self.nodes.push(node);
        (self.nodes.len() - 1) as NodeId
    }

    /// What a finished node stands for: the one that it wraps, or itself. Each number in a broken text would keep nine nodes
    /// that only wrap it otherwise.
    pub(super) fn unwrap(&mut self, id: NodeId) -> NodeId {
        let Some(Some(inner)) = self.node(id).wrapped() else {
            return id;
        };
        self.unused.push(id);
        inner
    }

    pub(super) fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id as usize]
    }

    pub(super) fn node_mut(&mut self, id: NodeId) -> &mut Node {
        &mut self.nodes[id as usize]
    }
}

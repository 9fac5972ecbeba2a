//! The network of states that a grammar becomes, laid out as upstream's parser generator lays it out.
//!
//! Errors depend on that layout: on which states choices are made, what counts as the same place after a call, and which
//! tokens can come next.

use std::sync::LazyLock;

use super::grammar::RULES;
use super::tree::{Label, Role};
use crate::cel::lexer::Token;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    Start,
    Expr,
    Or,
    And,
    Relation,
    Calc,
    Unary,
    Member,
    Primary,
    ExprList,
    ListInit,
    FieldInits,
    OptField,
    MapInits,
    EscapeIdent,
    OptExpr,
    Literal,
}

impl Rule {
    pub(super) const COUNT: usize = Self::Literal as usize + 1;

    /// What a node of this rule is before an alternative is found.
    pub(super) fn label(self) -> Label {
        match self {
            Self::Start => Label::Start,
            Self::Expr => Label::Expr,
            Self::Or => Label::Or,
            Self::And => Label::And,
            Self::Relation => Label::Relation,
            Self::Calc => Label::Calc,
            Self::Unary => Label::Unary,
            Self::Member => Label::PrimaryExpr,
            Self::Primary => Label::Primary,
            Self::ExprList => Label::ExprList,
            Self::ListInit => Label::ListInit,
            Self::FieldInits => Label::FieldInits,
            Self::OptField => Label::OptField,
            Self::MapInits => Label::MapInits,
            Self::EscapeIdent => Label::EscapeIdent,
            Self::OptExpr => Label::OptExpr,
            Self::Literal => Label::Literal,
        }
    }

    /// Whether it was left-recursive, so that calls of it say which operators may follow.
    fn recursive(self) -> bool {
        matches!(self, Self::Relation | Self::Calc | Self::Member)
    }
}

/// A set of tokens, of the end of the text, and of the end of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Tokens(u64);

impl Tokens {
    /// Nothing more is needed to end the rule.
    pub(super) const RULE_END: Self = Self(1 << 63);

    pub(super) const fn of(tokens: &[Token]) -> Self {
        let mut set = 0;
        let mut i = 0;
        while i < tokens.len() {
            set |= 1 << tokens[i] as u64;
            i += 1;
        }
        Self(set)
    }

    pub(super) fn has(self, token: Token) -> bool {
        self.0 & (1 << token as u64) != 0
    }

    pub(super) fn ends_rule(self) -> bool {
        self.0 & Self::RULE_END.0 != 0
    }

    pub(super) fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(super) fn without_rule_end(self) -> Self {
        Self(self.0 & !Self::RULE_END.0)
    }

    /// In upstream's order: the end of the text first.
    pub(super) fn iter(self) -> impl Iterator<Item = Token> {
        [Token::End]
            .into_iter()
            .chain(Token::ALL.iter().copied().filter(|token| *token != Token::End))
            .filter(move |token| self.has(*token))
    }
}

pub(super) type State = u16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Plain,
    BlockStart,
    BlockEnd,
    LoopEntry,
    LoopBack,
    PlusStart,
    PlusBack,
    RuleStop,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Edge {
    Free {
        to: State,
        /// On the way out of a rule: whether it was called with every operator allowed.
        outermost: bool,
    },
    Token {
        tokens: Tokens,
        to: State,
        role: Role,
    },
    Call {
        rule: Rule,
        to: State,
        minimum: u8,
        role: Role,
    },
    /// Goes on if the operator may follow here.
    Precedence {
        level: u8,
        to: State,
    },
}

impl Edge {
    pub(super) fn target(self) -> State {
        match self {
            Self::Free { to, .. } | Self::Token { to, .. } | Self::Precedence { to, .. } | Self::Call { to, .. } => to,
        }
    }
}

/// How a choice is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Choice {
    /// By the next token.
    Next,
    /// By as many tokens as it takes.
    Ahead,
}

#[derive(Debug)]
pub(super) struct Node {
    pub(super) rule: Rule,
    pub(super) place: Place,
    pub(super) edges: Vec<Edge>,
    pub(super) choice: Choice,
    /// What the node of the rule becomes on each edge, if that is known here.
    pub(super) labels: Vec<Label>,
    /// A loop of a rule that was left-recursive: another round makes what was read the left part of a new node.
    pub(super) recursive: bool,
    /// The other end of a block, or the entry of the loop that this is the way back of.
    pub(super) partner: State,
    /// The tokens that can come next within the rule.
    pub(super) next: Tokens,
}

impl Node {
    /// Whether it is left without reading a token.
    pub(super) fn is_free(&self) -> bool {
        !self.edges.is_empty() && !self.edges.iter().any(|edge| matches!(edge, Edge::Token { .. }))
    }
}

pub(super) struct Network {
    nodes: Vec<Node>,
    starts: [State; Rule::COUNT],
}

impl Network {
    /// Built once, when the first broken expression is met.
    pub(super) fn get() -> &'static Self {
        static NETWORK: LazyLock<Network> = LazyLock::new(build);
        &NETWORK
    }

    pub(super) fn node(&self, state: State) -> &Node {
        &self.nodes[usize::from(state)]
    }

    pub(super) fn start(&self, rule: Rule) -> State {
        self.starts[rule as usize]
    }

    /// Where a call made at `state` goes on.
    pub(super) fn after_call(&self, state: State) -> State {
        self.node(state).edges[0].target()
    }
}

/// What rules are written with.
pub(super) enum Item {
    Token(&'static [Token], Role),
    Call(Rule, u8, Role),
    Precedence(u8),
    Maybe(&'static [Item]),
    Either(Choice, &'static [Alternative]),
    Star(Choice, &'static [Alternative]),
    Plus(Choice, &'static [Item]),
}

/// What it is called, and its parts. Labels are read where a rule has several.
pub(super) type Alternative = (Label, &'static [Item]);

fn build() -> Network {
    let mut builder = Builder {
        nodes: Vec::new(),
        rule: Rule::Start,
    };
    let mut network = Network {
        nodes: Vec::new(),
        starts: [0; Rule::COUNT],
    };
    let mut stops = [0; Rule::COUNT];
    for (rule, items) in &RULES {
        builder.rule = *rule;
        let start = builder.state(Place::Plain);
        let stop = builder.state(Place::RuleStop);
        builder.sequence(start, items, stop);
        network.starts[*rule as usize] = start;
        stops[*rule as usize] = stop;
    }
    network.nodes = builder.nodes;
    add_returns(&mut network, &stops);
    add_next_tokens(&mut network);
    network
}

/// From the end of each rule to wherever it was called.
fn add_returns(network: &mut Network, stops: &[State; Rule::COUNT]) {
    let calls: Vec<(Rule, Edge)> = network
        .nodes
        .iter()
        .flat_map(|node| &node.edges)
        .filter_map(|edge| match *edge {
            Edge::Call { rule, to, minimum, .. } => Some((
                rule,
                Edge::Free {
                    to,
                    outermost: rule.recursive() && minimum == 0,
                },
            )),
            _ => None,
        })
        .collect();
    for (rule, edge) in calls {
        let stop = usize::from(stops[rule as usize]);
        network.nodes[stop].edges.push(edge);
    }
}

/// No rule matches nothing, so what follows a call never comes into it.
fn add_next_tokens(network: &mut Network) {
    loop {
        let mut changed = false;
        for state in 0..network.nodes.len() {
            let node = &network.nodes[state];
            let next = if node.place == Place::RuleStop {
                Tokens::RULE_END
            } else {
                node.edges.iter().fold(Tokens::default(), |next, edge| {
                    next.with(match *edge {
                        Edge::Token { tokens, .. } => tokens,
                        Edge::Call { rule, .. } => network.node(network.start(rule)).next,
                        Edge::Free { to, .. } | Edge::Precedence { to, .. } => network.node(to).next,
                    })
                })
            };
            changed |= next != node.next;
            network.nodes[state].next = next;
        }
        if !changed {
            return;
        }
    }
}

struct Builder {
    nodes: Vec<Node>,
    rule: Rule,
}

impl Builder {
    fn state(&mut self, place: Place) -> State {
        self.nodes.push(Node {
            rule: self.rule,
            place,
            edges: Vec::new(),
            choice: Choice::Next,
            labels: Vec::new(),
            recursive: false,
            partner: 0,
            next: Tokens::default(),
        });
        (self.nodes.len() - 1) as State
    }

    fn at(&mut self, state: State) -> &mut Node {
        &mut self.nodes[usize::from(state)]
    }

    fn free(&mut self, from: State, to: State) {
        self.at(from).edges.push(Edge::Free { to, outermost: false });
    }

    /// Items in a row that lead from `from` to `end`.
    fn sequence(&mut self, from: State, items: &[Item], end: State) {
        let Some((last, others)) = items.split_last() else {
            return self.free(from, end);
        };
        let mut at = from;
        for item in others {
            at = self.item(at, item, None);
        }
        self.item(at, last, Some(end));
    }

    /// An item that starts at `from`; where it ends, which is `end` if that is known.
    fn item(&mut self, from: State, item: &Item, end: Option<State>) -> State {
        let last = match *item {
            Item::Token(tokens, role) => {
                let tokens = Tokens::of(tokens);
                return self.edge(from, end, |to| Edge::Token { tokens, to, role });
            }
            Item::Call(rule, minimum, role) => {
                let call = |to| Edge::Call {
                    rule,
                    to,
                    minimum,
                    role,
                };
                return self.edge(from, end, call);
            }
            Item::Precedence(level) => return self.edge(from, end, |to| Edge::Precedence { level, to }),
            Item::Maybe(items) => {
                let (start, end) = self.block(Place::BlockStart, &[(self.rule.label(), items)]);
                self.at(start).labels.clear();
                self.free(start, end);
                self.free(from, start);
                end
            }
            Item::Either(choice, alternatives) => {
                let (start, end) = self.block(Place::BlockStart, alternatives);
                self.at(start).choice = choice;
                self.free(from, start);
                end
            }
            Item::Star(choice, alternatives) => self.star(from, choice, alternatives),
            Item::Plus(choice, items) => self.plus(from, choice, items),
        };
        if let Some(end) = end {
            self.free(last, end);
        }
        last
    }

    /// An edge to `end`, or to a new state. What ends a block has no state of its own: calls that go on in the same place are
    /// then told to be the same.
    fn edge(&mut self, from: State, end: Option<State>, edge: impl FnOnce(State) -> Edge) -> State {
        let to = end.unwrap_or_else(|| self.state(Place::Plain));
        self.at(from).edges.push(edge(to));
        to
    }

    fn block(&mut self, place: Place, alternatives: &[Alternative]) -> (State, State) {
        let start = self.state(place);
        let end = self.state(Place::BlockEnd);
        self.at(start).partner = end;
        for (label, items) in alternatives {
            let first = self.state(Place::Plain);
            self.free(start, first);
            self.sequence(first, items, end);
            self.at(start).labels.push(*label);
        }
        (start, end)
    }

    fn star(&mut self, from: State, choice: Choice, alternatives: &[Alternative]) -> State {
        let entry = self.state(Place::LoopEntry);
        let (start, block_end) = self.block(Place::BlockStart, alternatives);
        let (back, end) = (self.state(Place::LoopBack), self.state(Place::Plain));
        let recursive = self.rule.recursive();
        for state in [entry, start] {
            self.at(state).choice = choice;
            self.at(state).recursive = recursive;
        }
        if !recursive {
            self.at(start).labels.clear();
        }
        self.free(from, entry);
        self.free(entry, start);
        self.free(entry, end);
        self.free(block_end, back);
        self.free(back, entry);
        self.at(back).partner = entry;
        end
    }

    fn plus(&mut self, from: State, choice: Choice, items: &'static [Item]) -> State {
        let (start, block_end) = self.block(Place::PlusStart, &[(self.rule.label(), items)]);
        self.at(start).labels.clear();
        let (back, end) = (self.state(Place::PlusBack), self.state(Place::Plain));
        self.at(back).choice = choice;
        self.free(from, start);
        self.free(block_end, back);
        self.free(back, start);
        self.free(back, end);
        end
    }
}

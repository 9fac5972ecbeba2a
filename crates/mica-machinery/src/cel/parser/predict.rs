//! Which way to go where one token does not tell: all ways are followed at once until only one is left.
//!
//! This is upstream's adaptive prediction: first without knowing who called the rule, then, if ways meet, with the real
//! callers. Both stop at other tokens when nothing fits, and say other things of it, so both are needed.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::network::{Edge, Network, Place, Rule, State};
use crate::cel::lexer::{Lexeme, Token};

/// Alternatives are counted from 1.
pub(super) type Alt = u8;

/// No way leads on: the text from `start` to `end` (numbers of tokens) fits none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NoWay {
    pub(super) start: usize,
    pub(super) end: usize,
}

/// Where a prediction is made.
pub(super) struct Point {
    pub(super) state: State,
    /// The weakest operator that the rule may take.
    pub(super) minimum: u8,
    /// Who called the rule.
    pub(super) callers: Stack,
    pub(super) at: usize,
}

/// A set of call stacks, by its number in `Stacks`.
pub(super) type Stack = u32;

/// Unknown callers, or none.
pub(super) const NOBODY: Stack = 0;

/// One of the ways: where it is, for which alternative, and who called.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Way {
    state: State,
    alt: Alt,
    stack: Stack,
    /// How often it left a rule without knowing who called it.
    left: u32,
    /// It left the rule of the decision where every operator may follow, so it is not the loop's own doing.
    unfiltered: bool,
}

impl Way {
    fn at(&self, state: State) -> Self {
        Self { state, ..self.clone() }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Callers {
    Unknown,
    Known,
}

#[derive(Debug, Clone, Copy)]
enum Target {
    Next(usize),
    Decided(Alt),
    Ambiguous,
    Nowhere,
}

/// Predictions, and what is remembered of earlier ones: without it, long text would be followed again at every token.
pub(super) struct Predictor<'t> {
    network: &'static Network,
    tokens: &'t [Lexeme],
    stacks: Stacks,
    sets: Vec<Vec<Way>>,
    numbers: HashMap<Vec<Way>, usize>,
    starts: HashMap<(State, u8), usize>,
    edges: HashMap<(usize, Token), Target>,
}

impl<'t> Predictor<'t> {
    pub(super) fn new(network: &'static Network, tokens: &'t [Lexeme]) -> Self {
        Self {
            network,
            tokens,
            stacks: Stacks::default(),
            sets: Vec::new(),
            numbers: HashMap::new(),
            starts: HashMap::new(),
            edges: HashMap::new(),
        }
    }

    /// The callers of a rule that is called by one with `callers`, which goes on at `to`.
    pub(super) fn called(&mut self, callers: Stack, to: State) -> Stack {
        self.stacks.push(callers, to)
    }

    pub(super) fn predict(&mut self, point: &Point) -> Result<Alt, NoWay> {
        let mut set = self.start(point);
        let mut at = point.at;
        loop {
            let token = self.token(at);
            match self.step(set, token) {
                Target::Decided(alt) => return Ok(alt),
                Target::Ambiguous => return self.predict_knowing_callers(point),
                Target::Nowhere => {
                    let no_way = NoWay {
                        start: point.at,
                        end: self.within(at),
                    };
                    return self.finished(&self.sets[set]).ok_or(no_way);
                }
                Target::Next(next) => set = next,
            }
            at = self.within(at + 1);
        }
    }

    fn predict_knowing_callers(&mut self, point: &Point) -> Result<Alt, NoWay> {
        let mut ways = self.first_ways(point, point.callers, Callers::Known);
        let mut at = point.at;
        loop {
            let reached = self.reach(&ways, self.token(at), Callers::Known);
            if reached.is_empty() {
                let no_way = NoWay {
                    start: point.at,
                    end: point.at,
                };
                return self.finished(&ways).ok_or(no_way);
            }
            if let Some(alt) = only_alt(&reached).or_else(|| only_viable(&reached)) {
                return Ok(alt);
            }
            ways = reached;
            at = self.within(at + 1);
        }
    }

    fn token(&self, at: usize) -> Token {
        self.tokens[self.within(at)].token
    }

    fn within(&self, at: usize) -> usize {
        at.min(self.tokens.len() - 1)
    }

    fn start(&mut self, point: &Point) -> usize {
        let key = (point.state, point.minimum);
        if let Some(&set) = self.starts.get(&key) {
            return set;
        }
        let mut ways = self.first_ways(point, NOBODY, Callers::Unknown);
        if self.loops_by_precedence(point.state) {
            ways = filter(ways);
        }
        let set = self.number(ways);
        self.starts.insert(key, set);
        set
    }

    fn loops_by_precedence(&self, state: State) -> bool {
        let node = self.network.node(state);
        node.place == Place::LoopEntry && node.recursive
    }

    fn number(&mut self, ways: Vec<Way>) -> usize {
        if let Some(&number) = self.numbers.get(&ways) {
            return number;
        }
        self.sets.push(ways.clone());
        self.numbers.insert(ways, self.sets.len() - 1);
        self.sets.len() - 1
    }

    fn step(&mut self, set: usize, token: Token) -> Target {
        if let Some(&target) = self.edges.get(&(set, token)) {
            return target;
        }
        let ways = self.sets[set].clone();
        let reached = self.reach(&ways, token, Callers::Unknown);
        let target = if reached.is_empty() {
            Target::Nowhere
        } else if let Some(alt) = only_alt(&reached) {
            Target::Decided(alt)
        } else if self.meet(&reached) {
            Target::Ambiguous
        } else {
            Target::Next(self.number(reached))
        };
        self.edges.insert((set, token), target);
        target
    }

    fn first_ways(&mut self, point: &Point, stack: Stack, callers: Callers) -> Vec<Way> {
        let mut ways = Ways::new(callers);
        let decision = Decision {
            rule: self.network.node(point.state).rule,
            minimum: point.minimum,
            filters: self.loops_by_precedence(point.state),
        };
        for (i, edge) in self.network.node(point.state).edges.iter().enumerate() {
            let way = Way {
                state: edge.target(),
                alt: i as Alt + 1,
                stack,
                left: 0,
                unfiltered: false,
            };
            let mut closure = Closure::new(self.network, &mut self.stacks, Some(decision), callers);
            closure.follow(way, &mut ways, 0);
        }
        ways.ways
    }

    /// Where `ways` are after `token`.
    fn reach(&mut self, ways: &[Way], token: Token, callers: Callers) -> Vec<Way> {
        let network = self.network;
        let mut moved = Ways::new(callers);
        let mut ended = Vec::new();
        for way in ways {
            let node = network.node(way.state);
            if node.place == Place::RuleStop {
                if callers == Callers::Known || token == Token::End {
                    ended.push(way.clone());
                }
                continue;
            }
            for edge in &node.edges {
                if let Edge::Token { tokens, to, .. } = *edge
                    && tokens.has(token)
                {
                    moved.add(way.at(to), &mut self.stacks);
                }
            }
        }
        if ended.is_empty() && token != Token::End && only_alt(&moved.ways).is_some() {
            return moved.ways;
        }
        let mut reached = Ways::new(callers);
        let mut closure = Closure::new(network, &mut self.stacks, None, callers);
        closure.past_end = token == Token::End;
        for way in moved.ways {
            closure.follow(way, &mut reached, 0);
        }
        let stopped = |way: &Way| network.node(way.state).place == Place::RuleStop;
        if token == Token::End {
            reached.retain(stopped);
        }
        if callers == Callers::Unknown || !reached.ways.iter().any(stopped) {
            for way in ended {
                reached.add(way, &mut self.stacks);
            }
        }
        reached.ways
    }

    /// The first alternative that got to the end of the decision's rule before nothing fitted.
    fn finished(&self, ways: &[Way]) -> Option<Alt> {
        let done =
            |way: &&Way| way.left > 0 || (self.network.node(way.state).place == Place::RuleStop && way.stack == NOBODY);
        ways.iter().filter(done).map(|way| way.alt).min()
    }

    /// Whether alternatives are in the same place with the same callers, and none is in a place of its own.
    fn meet(&self, ways: &[Way]) -> bool {
        if ways
            .iter()
            .all(|way| self.network.node(way.state).place == Place::RuleStop)
        {
            return true;
        }
        let mut states: BTreeMap<State, u32> = BTreeMap::new();
        for way in ways {
            *states.entry(way.state).or_default() |= 1 << way.alt;
        }
        subsets(ways).values().any(|alts| alts.count_ones() > 1) && !states.values().any(|alts| alts.count_ones() == 1)
    }
}

/// Drops what leaves a loop only to come back to where the loop itself leads.
fn filter(ways: Vec<Way>) -> Vec<Way> {
    let loops: HashMap<State, Stack> = ways
        .iter()
        .filter(|way| way.alt == 1)
        .map(|way| (way.state, way.stack))
        .collect();
    ways.into_iter()
        .filter(|way| way.alt == 1 || way.unfiltered || loops.get(&way.state) != Some(&way.stack))
        .collect()
}

fn subsets(ways: &[Way]) -> BTreeMap<(State, Stack), u32> {
    let mut subsets = BTreeMap::new();
    for way in ways {
        *subsets.entry((way.state, way.stack)).or_default() |= 1u32 << way.alt;
    }
    subsets
}

fn only_alt(ways: &[Way]) -> Option<Alt> {
    let first = ways.first()?.alt;
    ways.iter().all(|way| way.alt == first).then_some(first)
}

/// The alternative that is the first one wherever ways are.
fn only_viable(ways: &[Way]) -> Option<Alt> {
    let mut firsts = subsets(ways).into_values().map(u32::trailing_zeros);
    let first = firsts.next()?;
    firsts.all(|other| other == first).then_some(first as Alt)
}

/// Ways in the order in which they were found. Those of one alternative in one place become one, with both's callers.
struct Ways {
    ways: Vec<Way>,
    known: HashMap<(State, Alt), usize>,
    callers: Callers,
}

impl Ways {
    fn new(callers: Callers) -> Self {
        Self {
            ways: Vec::new(),
            known: HashMap::new(),
            callers,
        }
    }

    fn add(&mut self, way: Way, stacks: &mut Stacks) {
        let next = self.ways.len();
        let i = *self.known.entry((way.state, way.alt)).or_insert(next);
        if i == next {
            self.ways.push(way);
            return;
        }
        let found = &mut self.ways[i];
        found.stack = stacks.merge(found.stack, way.stack, self.callers);
        found.left = found.left.max(way.left);
        found.unfiltered |= way.unfiltered;
    }

    fn retain(&mut self, keep: impl Fn(&Way) -> bool) {
        self.ways.retain(keep);
        self.known = self
            .ways
            .iter()
            .enumerate()
            .map(|(i, way)| ((way.state, way.alt), i))
            .collect();
    }
}

/// Where a decision is made, as far as it matters before the first token is read.
#[derive(Clone, Copy)]
struct Decision {
    rule: Rule,
    minimum: u8,
    filters: bool,
}

/// Follows a way as far as no token is needed.
struct Closure<'c> {
    network: &'static Network,
    stacks: &'c mut Stacks,
    /// Only before the first token.
    decision: Option<Decision>,
    callers: Callers,
    /// The end of the text was read, and can be read again.
    past_end: bool,
    seen: HashSet<(State, Alt, Stack, bool)>,
}

impl<'c> Closure<'c> {
    fn new(network: &'static Network, stacks: &'c mut Stacks, decision: Option<Decision>, callers: Callers) -> Self {
        Self {
            network,
            stacks,
            decision,
            callers,
            past_end: false,
            seen: HashSet::new(),
        }
    }

    /// `depth` is 0 in the decision's own rule, more in rules that it calls and less in those that called it.
    fn follow(&mut self, way: Way, ways: &mut Ways, depth: i32) {
        let mut waiting = vec![way];
        while let Some(way) = waiting.pop() {
            if self.network.node(way.state).place == Place::RuleStop {
                if way.stack != NOBODY {
                    for (state, stack) in self.stacks.tops(way.stack) {
                        waiting.push(Way {
                            state,
                            stack,
                            unfiltered: false,
                            ..way.clone()
                        });
                    }
                    continue;
                }
                if self.callers == Callers::Known {
                    ways.add(way, self.stacks);
                    continue;
                }
            }
            self.spread(&way, ways, depth);
        }
    }

    fn spread(&mut self, way: &Way, ways: &mut Ways, depth: i32) {
        let node = self.network.node(way.state);
        if !node.is_free() {
            ways.add(way.clone(), self.stacks);
        }
        for (i, edge) in node.edges.iter().enumerate() {
            if i == 0 && self.comes_back(way) {
                continue;
            }
            let Some(mut next) = self.cross(way, *edge, depth) else {
                continue;
            };
            let mut deeper = depth;
            if node.place == Place::RuleStop {
                let filtered = self.decision.filter(|decision| decision.filters);
                if matches!(edge, Edge::Free { outermost: true, .. })
                    && filtered.is_some_and(|decision| decision.rule == node.rule)
                {
                    next.unfiltered = true;
                }
                next.left += 1;
                if !self.is_new(&next) {
                    continue;
                }
                deeper -= 1;
            } else {
                match edge {
                    Edge::Token { .. } if !self.is_new(&next) => continue,
                    Edge::Call { .. } if depth >= 0 => deeper += 1,
                    _ => {}
                }
            }
            self.follow(next, ways, deeper);
        }
    }

    fn is_new(&mut self, way: &Way) -> bool {
        self.seen.insert((way.state, way.alt, way.stack, way.unfiltered))
    }

    fn cross(&mut self, way: &Way, edge: Edge, depth: i32) -> Option<Way> {
        match edge {
            Edge::Free { to, .. } => Some(way.at(to)),
            Edge::Call { rule, to, .. } => Some(Way {
                state: self.network.start(rule),
                stack: self.stacks.push(way.stack, to),
                ..way.clone()
            }),
            Edge::Precedence { level, to } => {
                let refused = self
                    .decision
                    .is_some_and(|decision| depth == 0 && level < decision.minimum);
                (!refused).then(|| way.at(to))
            }
            Edge::Token { tokens, to, .. } => (self.past_end && tokens.has(Token::End)).then(|| way.at(to)),
        }
    }

    /// Whether going round a loop of operators again is left to the callers, all of which are the same loop.
    fn comes_back(&self, way: &Way) -> bool {
        let entry = self.network.node(way.state);
        if entry.place != Place::LoopEntry || !entry.recursive || way.stack == NOBODY {
            return false;
        }
        let block_end = self.network.node(entry.edges[0].target()).partner;
        self.stacks.tops(way.stack).iter().all(|(state, _)| *state == block_end)
    }
}

/// Sets of call stacks as trees that share what they have in common: each has a number, and equal ones the same.
struct Stacks {
    /// The states that may be returned to, and what is below each; none is `NOBODY`.
    tops: Vec<Vec<(State, Stack)>>,
    numbers: HashMap<Vec<(State, Stack)>, Stack>,
}

impl Default for Stacks {
    fn default() -> Self {
        Self {
            tops: vec![Vec::new()],
            numbers: HashMap::from([(Vec::new(), NOBODY)]),
        }
    }
}

impl Stacks {
    fn tops(&self, stack: Stack) -> Vec<(State, Stack)> {
        self.tops[stack as usize].clone()
    }

    fn push(&mut self, stack: Stack, state: State) -> Stack {
        self.number(vec![(state, stack)])
    }

    fn number(&mut self, tops: Vec<(State, Stack)>) -> Stack {
        if let Some(&number) = self.numbers.get(&tops) {
            return number;
        }
        let number = self.tops.len() as Stack;
        self.tops.push(tops.clone());
        self.numbers.insert(tops, number);
        number
    }

    /// Both sets. Unknown callers stand for any.
    fn merge(&mut self, one: Stack, other: Stack, callers: Callers) -> Stack {
        if one == other {
            return one;
        }
        if callers == Callers::Unknown && (one == NOBODY || other == NOBODY) {
            return NOBODY;
        }
        let mut tops: BTreeMap<State, Stack> = self.tops(one).into_iter().collect();
        for (state, below) in self.tops(other) {
            let merged = match tops.get(&state) {
                Some(&found) => self.merge(found, below, callers),
                None => below,
            };
            tops.insert(state, merged);
        }
        self.number(tops.into_iter().collect())
    }
}

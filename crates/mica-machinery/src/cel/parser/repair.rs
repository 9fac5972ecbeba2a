//! Broken text to a parse tree with holes, and to the errors that upstream's generated parser reports on the way.
//!
//! It walks the grammar's network as that parser does: a token that does not fit is skipped or thought of as being there
//! where that helps; otherwise the rule ends, and text is skipped up to something that one of its callers can go on with.
//! There are bounds on errors, on repairs and on what is skipped, after which it gives up.

use super::network::{Choice, Edge, Network, Place, Rule, State, Tokens};
use super::predict::{NOBODY, NoWay, Point, Predictor, Stack};
use super::tree::{Node, NodeId, Role, Tree, Word};
use super::{MAX_DEPTH, syntax_error, too_deep};
use crate::cel::lexer::{Lexed, Lexeme, Token};
use crate::cel::source::Issue;

/// Errors of syntax that are reported one by one.
const MAX_ERRORS: usize = 100;

/// Repairs that are tried.
const MAX_REPAIRS: usize = 30;

/// Tokens that one repair may skip.
const MAX_SKIPPED: usize = 256;

/// What came of the text: the tree, unless a bound was met, and what is wrong.
pub(super) fn repair(chars: &[char], lexed: &Lexed) -> (Option<(Tree, NodeId)>, Vec<Issue>) {
    let network = Network::get();
    let mut walk = Walk {
        network,
        chars,
        lexed,
        predictor: Predictor::new(network, &lexed.lexemes),
        at: 0,
        fetched: 0,
        state: network.start(Rule::Start),
        frames: Vec::new(),
        depths: [0; Rule::COUNT],
        tree: Tree::default(),
        issues: Vec::new(),
        recovering: false,
        last_error: None,
        repairs: 0,
    };
    match walk.run() {
        Ok(root) => (Some((walk.tree, root)), walk.issues),
        Err(GaveUp) => (None, walk.issues),
    }
}

/// A bound was met, and what is to be said of it was said.
struct GaveUp;

enum Stop {
    Mismatch,
    NoWay(NoWay),
    GaveUp,
}

impl From<GaveUp> for Stop {
    fn from(GaveUp: GaveUp) -> Self {
        Self::GaveUp
    }
}

/// A rule that is being read.
struct Frame {
    rule: Rule,
    /// Where it was called; the first rule was called nowhere.
    called: Option<State>,
    /// All its callers.
    callers: Stack,
    /// What it is to its caller.
    role: Role,
    /// The weakest operator it may take.
    minimum: u8,
    node: NodeId,
}

struct Walk<'t> {
    network: &'static Network,
    chars: &'t [char],
    lexed: &'t Lexed,
    predictor: Predictor<'t>,
    at: usize,
    /// How many unknown characters were reported: they are met when the token after them is.
    fetched: usize,
    /// Where the last choice, token or call was.
    state: State,
    frames: Vec<Frame>,
    depths: [u32; Rule::COUNT],
    tree: Tree,
    issues: Vec<Issue>,
    /// An error was reported, and no token has fitted since.
    recovering: bool,
    /// Where the last error was, and in which states since a token fitted.
    last_error: Option<(usize, Vec<State>)>,
    repairs: usize,
}

impl Walk<'_> {
    fn run(&mut self) -> Result<NodeId, GaveUp> {
        self.enter(Rule::Start, None, Role::First, 0)?;
        let root = self.frames[0].node;
        let mut at = self.network.start(Rule::Start);
        loop {
            let left = match self.step(at) {
                Ok(Some(next)) => {
                    at = next;
                    continue;
                }
                Ok(None) => self.leave(),
                Err(Stop::GaveUp) => return Err(GaveUp),
                Err(Stop::Mismatch) => {
                    self.report_mismatch()?;
                    self.recover()?;
                    self.leave()
                }
                Err(Stop::NoWay(no_way)) => {
                    self.report_no_way(no_way)?;
                    self.recover()?;
                    self.leave()
                }
            };
            match left {
                Some(next) => at = next,
                None => return Ok(root),
            }
        }
    }

    /// Goes on from `at`; `None` at the end of the rule.
    fn step(&mut self, at: State) -> Result<Option<State>, Stop> {
        let node = self.network.node(at);
        match node.place {
            Place::RuleStop => return Ok(None),
            Place::BlockStart if node.edges.len() > 1 => {
                self.sync(at)?;
                return self.choose(at).map(Some);
            }
            Place::BlockStart => self.label(at, 0),
            Place::PlusStart => self.sync(at)?,
            Place::LoopEntry => {
                self.sync(at)?;
                return self.choose(at).map(Some);
            }
            Place::LoopBack => {
                self.sync(at)?;
                return self.choose(node.partner).map(Some);
            }
            Place::PlusBack => {
                self.sync(at)?;
                let next = self.choose(at)?;
                // Another round does not look at its start again.
                let again = self.network.node(next);
                return Ok(Some(if again.place == Place::PlusStart {
                    again.edges[0].target()
                } else {
                    next
                }));
            }
            Place::Plain | Place::BlockEnd => {}
        }
        match node.edges[0] {
            // A choice was made by the operator, so it may be taken.
            Edge::Free { to, .. } | Edge::Precedence { to, .. } => Ok(Some(to)),
            Edge::Token { tokens, to, role } => {
                self.state = at;
                let word = self.expect(tokens, to)?;
                let node = self.frame().node;
                self.tree.node_mut(node).add_word(role, word);
                Ok(Some(to))
            }
            Edge::Call {
                rule, minimum, role, ..
            } => {
                self.state = at;
                self.enter(rule, Some(at), role, minimum)?;
                Ok(Some(self.network.start(rule)))
            }
        }
    }

    fn frame(&self) -> &Frame {
        self.frames.last().expect("the first rule ends the walk")
    }

    fn enter(&mut self, rule: Rule, called: Option<State>, role: Role, minimum: u8) -> Result<(), GaveUp> {
        let start = self.lexeme(0)?.start;
        let node = self.tree.add(Node::new(rule.label(), start));
        let callers = match (called, self.frames.last()) {
            (Some(called), Some(caller)) => self.predictor.called(caller.callers, self.network.after_call(called)),
            _ => NOBODY,
        };
        self.frames.push(Frame {
            rule,
            called,
            callers,
            role,
            minimum,
            node,
        });
        let depth = &mut self.depths[rule as usize];
        *depth += 1;
        if *depth > MAX_DEPTH {
            self.issues.push(too_deep());
            return Err(GaveUp);
        }
        Ok(())
    }

    /// Ends a rule: where its caller goes on.
    fn leave(&mut self) -> Option<State> {
        let frame = self.frames.pop().expect("a rule is being read");
        self.depths[frame.rule as usize] -= 1;
        let called = frame.called?;
        let (caller, node) = (self.frame().node, self.tree.unwrap(frame.node));
        self.tree.node_mut(caller).add_node(frame.role, node);
        self.state = called;
        Some(self.network.after_call(called))
    }

    fn choose(&mut self, at: State) -> Result<State, Stop> {
        let node = self.network.node(at);
        let chosen = match node.choice {
            Choice::Next => self.choose_by_next(at)?,
            Choice::Ahead => {
                let frame = self.frame();
                let point = Point {
                    state: at,
                    minimum: frame.minimum,
                    callers: frame.callers,
                    at: self.at,
                };
                let alt = self.predictor.predict(&point).map_err(Stop::NoWay)?;
                usize::from(alt) - 1
            }
        };
        self.label(at, chosen);
        Ok(node.edges[chosen].target())
    }

    fn choose_by_next(&mut self, at: State) -> Result<usize, Stop> {
        let token = self.token(0)?;
        let node = self.network.node(at);
        let fits = |edge: &Edge| self.network.node(edge.target()).next.has(token);
        match node.edges.iter().position(fits) {
            Some(chosen) => Ok(chosen),
            None if node.labels.is_empty() => Ok(node.edges.len() - 1),
            None => Err(Stop::NoWay(NoWay {
                start: self.at,
                end: self.at,
            })),
        }
    }

    /// Says what the rule's node is, now that an alternative is chosen.
    fn label(&mut self, at: State, chosen: usize) {
        let node = self.network.node(at);
        let Some(&label) = node.labels.get(chosen) else {
            return;
        };
        let frame = self.frames.last_mut().expect("a rule is being read");
        if !node.recursive {
            self.tree.node_mut(frame.node).label = label;
            return;
        }
        let mut outer = Node::new(label, self.tree.node(frame.node).start);
        outer.add_node(Role::First, self.tree.unwrap(frame.node));
        frame.node = self.tree.add(outer);
    }

    /// Takes a token of `tokens`, after which the rule goes on at `to`.
    fn expect(&mut self, tokens: Tokens, to: State) -> Result<Word, Stop> {
        if tokens.has(self.token(0)?) {
            self.fitted();
            return Ok(self.consume()?.into());
        }
        self.count_repair()?;
        if self.skip_one()? {
            return Ok(self.consume()?.into());
        }
        if self.following(to).has(self.token(0)?) {
            return Ok(self.missing()?);
        }
        Err(Stop::Mismatch)
    }

    /// Reports a token that must be here, and makes one up.
    fn missing(&mut self) -> Result<Word, GaveUp> {
        let expected = self.following(self.state);
        if !self.recovering {
            self.recovering = true;
            let message = format!("missing {} at {}", listed(expected), self.quoted(self.at));
            self.report(self.at, message)?;
        }
        let here = match self.token(0)? {
            Token::End if self.at > 0 => self.lexed.lexemes[self.at - 1],
            _ => self.lexeme(0)?,
        };
        Ok(Word {
            token: expected.iter().next().unwrap_or(Token::End),
            start: here.start,
            end: here.start,
        })
    }

    /// Before a choice: a token that no way can take is skipped if the one after it fits.
    fn sync(&mut self, at: State) -> Result<(), Stop> {
        self.state = at;
        if self.recovering {
            return Ok(());
        }
        let node = self.network.node(at);
        if node.next.ends_rule() || node.next.has(self.token(0)?) {
            return Ok(());
        }
        if !matches!(node.place, Place::LoopBack | Place::PlusBack) {
            return if self.skip_one()? { Ok(()) } else { Err(Stop::Mismatch) };
        }
        self.report_unwanted()?;
        let resume = self.following(at).with(self.resumes());
        while self.token(0)? != Token::End && !resume.has(self.token(0)?) {
            self.consume()?;
        }
        Ok(())
    }

    /// Skips the token here if the next one is expected.
    fn skip_one(&mut self) -> Result<bool, GaveUp> {
        if !self.following(self.state).has(self.token(1)?) {
            return Ok(false);
        }
        self.report_unwanted()?;
        self.consume()?;
        self.fitted();
        Ok(true)
    }

    /// Skips text up to what a caller can go on with.
    fn recover(&mut self) -> Result<(), GaveUp> {
        self.count_repair()?;
        let mut skipped = 0;
        let again = match &self.last_error {
            Some((at, states)) => *at == self.at && states.contains(&self.state),
            None => false,
        };
        if again {
            // Nothing was skipped the last time, and nothing would be now.
            self.skip(&mut skipped)?;
        }
        let (_, mut states) = self.last_error.take().unwrap_or_default();
        states.push(self.state);
        self.last_error = Some((self.at, states));
        let resume = self.resumes();
        while self.token(0)? != Token::End && !resume.has(self.token(0)?) {
            self.skip(&mut skipped)?;
        }
        Ok(())
    }

    fn skip(&mut self, skipped: &mut usize) -> Result<(), GaveUp> {
        if *skipped >= MAX_SKIPPED {
            let message = format!("error recovery token lookahead limit exceeded: {MAX_SKIPPED}");
            self.issues.push(Issue::nowhere(message));
            return Err(GaveUp);
        }
        *skipped += 1;
        self.consume().map(drop)
    }

    fn count_repair(&mut self) -> Result<(), GaveUp> {
        if self.repairs == MAX_REPAIRS {
            let message = format!("error recovery attempt limit exceeded: {MAX_REPAIRS}");
            self.report(self.at, message)?;
            return Err(GaveUp);
        }
        self.repairs += 1;
        Ok(())
    }

    /// What can come next at `state`, the callers' next tokens included where the rule can end.
    fn following(&self, state: State) -> Tokens {
        let mut next = self.network.node(state).next;
        let mut all = next;
        for frame in self.frames.iter().rev() {
            let Some(called) = frame.called.filter(|_| next.ends_rule()) else {
                break;
            };
            next = self.network.node(self.network.after_call(called)).next;
            all = all.with(next);
        }
        let end = if next.ends_rule() {
            Tokens::of(&[Token::End])
        } else {
            Tokens::default()
        };
        all.without_rule_end().with(end)
    }

    /// What any caller can go on with.
    fn resumes(&self) -> Tokens {
        let mut all = Tokens::default();
        for called in self.frames.iter().filter_map(|frame| frame.called) {
            all = all.with(self.network.node(self.network.after_call(called)).next);
        }
        all.without_rule_end()
    }

    fn report_mismatch(&mut self) -> Result<(), GaveUp> {
        if self.recovering {
            return Ok(());
        }
        self.recovering = true;
        let expected = listed(self.following(self.state));
        let message = format!("mismatched input {} expecting {expected}", self.quoted(self.at));
        self.report(self.at, message)
    }

    fn report_unwanted(&mut self) -> Result<(), GaveUp> {
        if self.recovering {
            return Ok(());
        }
        self.recovering = true;
        let expected = listed(self.following(self.state));
        let message = format!("extraneous input {} expecting {expected}", self.quoted(self.at));
        self.report(self.at, message)
    }

    fn report_no_way(&mut self, NoWay { start, end }: NoWay) -> Result<(), GaveUp> {
        if self.recovering {
            return Ok(());
        }
        self.recovering = true;
        self.lexeme(end - self.at)?;
        let input = if self.lexed.lexemes[start].token == Token::End {
            "<EOF>".to_owned()
        } else {
            self.text(start, end)
        };
        // Upstream's own words where a reserved word follows a dot, or any other single character.
        let mut chars = input.chars();
        chars.next();
        let message = match chars.as_str() {
            word @ ("true" | "false" | "null") => format!("mismatched input '{word}' expecting IDENTIFIER"),
            _ => format!("no viable alternative at input '{}'", shown(&input)),
        };
        self.report(end, message)
    }

    fn report(&mut self, at: usize, message: String) -> Result<(), GaveUp> {
        self.report_at(self.lexed.lexemes[at].start, message)
    }

    fn report_at(&mut self, offset: usize, message: String) -> Result<(), GaveUp> {
        if self.issues.len() < MAX_ERRORS {
            self.issues.push(syntax_error(offset, &message));
            return Ok(());
        }
        let message = format!("More than {MAX_ERRORS} syntax errors");
        self.issues.push(syntax_error(offset, &message));
        Err(GaveUp)
    }

    /// The text from one token to another, without what is no token.
    fn text(&self, start: usize, end: usize) -> String {
        let (start, end) = (self.lexed.lexemes[start].start, self.lexed.lexemes[end].end);
        let mut text = String::new();
        let mut at = start;
        for (unknown, length) in &self.lexed.unknown {
            if *unknown >= at && *unknown < end {
                text.extend(&self.chars[at..*unknown]);
                at = unknown + length;
            }
        }
        text.extend(&self.chars[at..end]);
        text
    }

    fn quoted(&self, at: usize) -> String {
        match self.lexed.lexemes[at].token {
            Token::End => "'<EOF>'".to_owned(),
            _ => format!("'{}'", shown(&self.text(at, at))),
        }
    }

    fn fitted(&mut self) {
        self.recovering = false;
        self.last_error = None;
    }

    fn consume(&mut self) -> Result<Lexeme, GaveUp> {
        let lexeme = self.lexeme(0)?;
        if lexeme.token != Token::End {
            self.at += 1;
        }
        Ok(lexeme)
    }

    fn token(&mut self, ahead: usize) -> Result<Token, GaveUp> {
        self.lexeme(ahead).map(|lexeme| lexeme.token)
    }

    fn lexeme(&mut self, ahead: usize) -> Result<Lexeme, GaveUp> {
        let lexemes = &self.lexed.lexemes;
        let lexeme = lexemes[(self.at + ahead).min(lexemes.len() - 1)];
        while let Some(&(offset, length)) = self.lexed.unknown.get(self.fetched)
            && offset < lexeme.start
        {
            self.fetched += 1;
            let text: String = self.chars[offset..offset + length].iter().collect();
            self.report_at(offset, format!("token recognition error at: '{text}'"))?;
        }
        Ok(lexeme)
    }
}

fn listed(tokens: Tokens) -> String {
    let names: Vec<&str> = tokens.iter().map(Token::shown).collect();
    match names[..] {
        [name] => name.to_owned(),
        _ => format!("{{{}}}", names.join(", ")),
    }
}

/// Text inside an error message: line ends and tabs are written out.
fn shown(text: &str) -> String {
    text.replace('\n', "\\n").replace('\r', "\\r").replace('\t', "\\t")
}

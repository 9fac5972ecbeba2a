//! The rules of a schema (`x-kubernetes-validations`): the seam to the expression language, and the walk that runs them.
//!
//! Compiling and evaluating an expression is behind [`RuleCompiler`] and [`RuleProgram`]. Which rule runs on which value,
//! against which old value, in what words it fails and when a failure is forgiven is decided here.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use super::failure::show_as_go;
use super::node::{Node, Place, Reach, Types};
use super::ratchet::{self, OldItems, unchanged};
use super::selectable;
use crate::field::{Error, ErrorList, Path, Reason};

/// Compiles the rules of one place of a schema.
pub trait RuleCompiler: Send + Sync {
    /// One result per rule, in order; an error where the place's type cannot be told to the expression language.
    fn compile(&self, site: RuleSite<'_>) -> Result<Vec<CompiledRule>, String>;
}

/// A place of a schema that has rules.
#[derive(Clone, Copy, Debug)]
pub struct RuleSite<'s> {
    /// The place's schema as the definition has it, rules included.
    pub schema: &'s Value,
    pub place: Place,
}

/// A rule and what compiling it showed.
#[derive(Clone, Debug)]
pub struct CompiledRule {
    /// What runs it; nothing if it did not compile.
    pub program: Option<Arc<dyn RuleProgram>>,
    pub error: Option<RuleError>,
    /// What one evaluation may cost at most, by estimate.
    pub max_cost: u64,
    /// How often the place may be there at most, going by the size of a request: the bound where the schema gives none.
    pub max_cardinality: u64,
    pub message: MessageCheck,
    pub old_self: UsesOldSelf,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UsesOldSelf {
    Yes,
    No,
}

/// What compiling a `messageExpression` showed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MessageCheck {
    /// There is none.
    Absent,
    /// It compiled; what an evaluation may cost at most.
    Cost(u64),
    /// It did not; the text is the error's detail.
    Failed(String),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RuleError {
    Required(String),
    Invalid(String),
}

/// A compiled rule.
pub trait RuleProgram: Send + Sync + fmt::Debug {
    fn evaluate(&self, input: RuleInput<'_>) -> Evaluated<bool>;

    /// The message for a failure, if the rule has an expression for it. An error falls back to the rule's own message.
    fn message(&self, input: RuleInput<'_>) -> Option<Evaluated<String>>;
}

/// What a rule sees.
#[derive(Clone, Copy, Debug)]
pub struct RuleInput<'v> {
    pub value: &'v Value,
    pub old: OldSelf<'v>,
}

#[derive(Clone, Copy, Debug)]
pub enum OldSelf<'v> {
    /// `oldSelf` is the value, if there is one.
    Plain(Option<&'v Value>),
    /// `oldSelf` is an optional.
    Optional(Option<&'v Value>),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Evaluated<T> {
    pub result: Result<T, EvalError>,
    pub cost: u64,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EvalError {
    /// The expression failed: `no such key: k`.
    Failed(String),
    /// One evaluation cost more than a single one may; the text is the evaluator's.
    TooExpensive(String),
}

/// For definitions whose rules are not to be run: accepts every rule, and finds every value right.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoRules;

/// What compiles the rules of definitions.
pub fn compiler() -> &'static dyn RuleCompiler {
    &super::expression::Expressions
}

impl RuleCompiler for NoRules {
    fn compile(&self, _site: RuleSite<'_>) -> Result<Vec<CompiledRule>, String> {
        Ok(Vec::new())
    }
}

/// The rules of one place, ready to run.
#[derive(Debug)]
pub(crate) struct RuleSet {
    rules: Vec<Rule>,
    /// Why they cannot be run at all.
    broken: Option<&'static str>,
}

#[derive(Debug)]
struct Rule {
    compiled: CompiledRule,
    rule: Box<str>,
    message: Box<str>,
    reason: Box<str>,
    /// Where failures are reported, below the place.
    field_path: Option<Box<str>>,
    optional_old_self: bool,
}

impl RuleSet {
    pub(crate) fn compile(compiler: &dyn RuleCompiler, site: RuleSite<'_>) -> Self {
        let compiled = match compiler.compile(site) {
            Ok(compiled) => compiled,
            Err(_) => {
                return RuleSet {
                    rules: Vec::new(),
                    // Where values are checked, upstream has a text of its own for a schema without a type in CEL.
                    broken: Some("failed to convert to declType for CEL validation rules"),
                };
            }
        };
        let sources = site.schema.get("x-kubernetes-validations").and_then(Value::as_array);
        let sources = sources.map_or(&[] as &[Value], Vec::as_slice);
        let rules = compiled.into_iter().zip(sources).map(|(compiled, source)| {
            let text = |name: &str| source.get(name).and_then(Value::as_str).unwrap_or_default();
            // Upstream does not come to the path where the message is no expression.
            let is_failed = matches!(compiled.message, MessageCheck::Failed(_));
            let field_path = Some(text("fieldPath")).filter(|path| !path.is_empty() && !is_failed);
            let field_path = field_path.and_then(|path| selectable::field_path(path, site.schema).ok());
            Rule {
                compiled,
                rule: text("rule").trim().into(),
                message: text("message").trim().into(),
                reason: text("reason").into(),
                field_path: field_path.map(String::into_boxed_str),
                optional_old_self: source.get("optionalOldSelf") == Some(&Value::Bool(true)),
            }
        });
        RuleSet {
            rules: rules.collect(),
            broken: None,
        }
    }
}

impl Rule {
    /// What names the rule in texts about it.
    fn shown(&self) -> &str {
        if self.message.is_empty() {
            &self.rule
        } else {
            &self.message
        }
    }
}

/// What running rules found.
#[derive(Debug, Default)]
pub(crate) struct Ran {
    pub(crate) errors: ErrorList,
    /// Failures on values that did not change.
    pub(crate) warnings: Vec<String>,
}

/// Runs all rules of a schema on a value.
pub(crate) fn run(
    node: &Node,
    sets: &[RuleSet],
    value: &Value,
    old: Option<&Value>,
    path: &Path,
    budget: i64,
) -> (Ran, i64) {
    let current = old.map(|old| Pair { node, new: value, old });
    run_from(Trace { current, parent: None }, node, sets, value, old, path, budget)
}

/// Runs all rules of a schema on a value, forgiving nothing: for defaults.
pub(crate) fn run_unforgiving(
    node: &Node,
    sets: &[RuleSet],
    value: &Value,
    old: Option<&Value>,
    path: &Path,
    budget: i64,
) -> (ErrorList, i64) {
    let trace = Trace {
        current: None,
        parent: None,
    };
    let (ran, budget) = run_from(trace, node, sets, value, old, path, budget);
    (ran.errors, budget)
}

fn run_from<'a>(
    trace: Trace<'a>,
    node: &'a Node,
    sets: &[RuleSet],
    value: &'a Value,
    old: Option<&'a Value>,
    path: &Path,
    budget: i64,
) -> (Ran, i64) {
    let mut runner = Runner {
        sets,
        budget,
        ran: Ran::default(),
    };
    runner.visit(node, value, old, trace, path);
    (runner.ran, runner.budget)
}

/// A value and the one it replaces.
#[derive(Clone, Copy)]
struct Pair<'a> {
    node: &'a Node,
    new: &'a Value,
    old: &'a Value,
}

impl Pair<'_> {
    fn unchanged(&self) -> bool {
        unchanged(self.node, self.new, self.old)
    }
}

/// What tells whether a failure is forgiven: the value's own pair, or else that of the nearest value around it that has one.
#[derive(Clone, Copy)]
struct Trace<'a> {
    current: Option<Pair<'a>>,
    parent: Option<Pair<'a>>,
}

impl<'a> Trace<'a> {
    fn forgives(&self) -> bool {
        self.current.or(self.parent).is_some_and(|pair| pair.unchanged())
    }

    fn member(self, name: &str) -> Self {
        let Some(pair) = self.current else { return self };
        if self.parent.is_none() && matches!(name, "apiVersion" | "kind") {
            return Trace {
                current: None,
                parent: None,
            };
        }
        let old = ratchet::old_member(pair.node, Some(pair.old), name);
        let next = old.zip(pair.new.get(name)).zip(pair.node.member(name));
        Trace {
            current: next.map(|((old, new), node)| Pair { node, new, old }),
            parent: Some(pair),
        }
    }

    fn item(self, new: &'a Value, old: Option<&'a Value>) -> Self {
        let Some(pair) = self.current else { return self };
        let node = pair.node.items.as_deref();
        Trace {
            current: old.zip(node).map(|(old, node)| Pair { node, new, old }),
            parent: Some(pair),
        }
    }
}

struct Runner<'s> {
    sets: &'s [RuleSet],
    budget: i64,
    ran: Ran,
}

impl Runner<'_> {
    fn visit<'a>(&mut self, node: &'a Node, value: &'a Value, old: Option<&'a Value>, trace: Trace<'a>, path: &Path) {
        if node.leads_to_rules == Reach::Nothing || value.is_null() || self.budget < 0 {
            return;
        }
        let old = old.filter(|old| !old.is_null());
        if let Some(set) = node
            .rules
            .and_then(|at| self.sets.get(usize::try_from(at).unwrap_or(usize::MAX)))
        {
            self.run_set(node, set, value, old, &trace, path);
        }
        match value {
            Value::Object(members) => {
                for (name, member) in members {
                    let (Some(child), is_property) = (node.member(name), node.properties.contains(name)) else {
                        continue;
                    };
                    let path = if is_property { path.child(name) } else { path.key(name) };
                    let old = old.and_then(|old| old.get(name));
                    self.visit(child, member, old, trace.member(name), &path);
                }
            }
            Value::Array(items) => {
                let Some(element) = &node.items else { return };
                let known = OldItems::of(node, old);
                let paired = OldItems::of(node, trace.current.map(|pair| pair.old));
                for (at, item) in items.iter().enumerate() {
                    let next = trace.item(item, paired.get(item));
                    self.visit(element, item, known.get(item), next, &path.index(at));
                }
            }
            _ => {}
        }
    }

    fn run_set(
        &mut self,
        node: &Node,
        set: &RuleSet,
        value: &Value,
        old: Option<&Value>,
        trace: &Trace<'_>,
        path: &Path,
    ) {
        let type_name = match node.types {
            Types::IntOrString => "",
            _ => node.type_name(),
        };
        let invalid = |detail: String| Error::invalid(path, type_name, detail);
        if let Some(text) = set.broken {
            let detail = format!("rule compiler initialization error: {text}");
            self.ran.errors.push(invalid(detail));
            return;
        }
        if !set.rules.is_empty() && self.budget <= 0 {
            self.exhausted(&invalid);
            return;
        }
        let asks = |rule: &Rule| rule.compiled.old_self == UsesOldSelf::Yes;
        let any_uses_old = set.rules.iter().any(asks);
        for rule in &set.rules {
            if let Some(error) = &rule.compiled.error {
                let (RuleError::Required(text) | RuleError::Invalid(text)) = error;
                self.ran.errors.push(invalid(format!("rule compile error: {text}")));
                continue;
            }
            let uses_old = asks(rule);
            let Some(program) = &rule.compiled.program else {
                continue;
            };
            if uses_old && old.is_none() && !rule.optional_old_self {
                continue;
            }
            let input = RuleInput {
                value,
                old: if rule.optional_old_self {
                    OldSelf::Optional(old)
                } else {
                    OldSelf::Plain(old)
                },
            };
            let evaluated = program.evaluate(input);
            if !self.spend(evaluated.cost) {
                self.exhausted(&invalid);
                return;
            }
            match evaluated.result {
                Ok(true) => {}
                Ok(false) => {
                    // A message is given the old value as it is, and only if a rule of the place asks for it.
                    let input = RuleInput {
                        value,
                        old: OldSelf::Plain(old.filter(|_| any_uses_old)),
                    };
                    let error = self.failure(rule, &**program, input, node, path);
                    if !uses_old && trace.forgives() {
                        self.ran.warnings.push(error.to_string());
                    } else {
                        self.ran.errors.push(error);
                    }
                }
                Err(error) => self.unevaluated(rule, &error, &invalid),
            }
            if self.budget < 0 {
                return;
            }
        }
    }

    /// Reports a rule that came to no result.
    fn unevaluated(&mut self, rule: &Rule, error: &EvalError, invalid: &dyn Fn(String) -> Error) {
        let shown = rule.shown();
        self.ran.errors.push(invalid(match error {
            EvalError::Failed(text) if text.starts_with("no such overload") => format!(
                "'{text}': call arguments did not match a supported operator, function or macro signature for rule: {shown}"
            ),
            EvalError::Failed(text) => format!("{text} evaluating rule: {shown}"),
            EvalError::TooExpensive(text) => {
                self.budget = -1;
                format!("'{text}': no further validation rules will be run due to call cost exceeds limit for rule: {shown}")
            }
        }));
    }

    fn spend(&mut self, cost: u64) -> bool {
        match i64::try_from(cost) {
            Ok(cost) if cost <= self.budget => {
                self.budget -= cost;
                true
            }
            _ => false,
        }
    }

    fn exhausted(&mut self, invalid: &dyn Fn(String) -> Error) {
        let text = "validation failed due to running out of cost budget, no further validation rules will be run";
        self.ran.errors.push(invalid(text.to_owned()));
        self.budget = -1;
    }

    /// The error of a rule that evaluated to false.
    fn failure(
        &mut self,
        rule: &Rule,
        program: &dyn RuleProgram,
        input: RuleInput<'_>,
        node: &Node,
        path: &Path,
    ) -> Error {
        let path = match &rule.field_path {
            // A key of a map is joined like a field: `spec.labels.[app]`.
            Some(below) => {
                let joined = format!("{}.{}", path.as_str(), below.trim_start_matches('.'));
                Path::new(joined.trim_start_matches('.'))
            }
            None => path.clone(),
        };
        let mut detail = None;
        if let Some(evaluated) = program.message(input) {
            if !self.spend(evaluated.cost) {
                self.budget = -1;
            }
            detail = evaluated.result.ok();
        }
        let detail = detail.unwrap_or_else(|| {
            if rule.message.is_empty() {
                format!("failed rule: {}", rule.rule)
            } else {
                rule.message.to_string()
            }
        });
        let hidden = matches!(input.value, Value::Object(_) | Value::Array(_)) && node.types != Types::Any;
        let value = (!hidden).then(|| input.value.clone());
        let reason = match &*rule.reason {
            "FieldValueForbidden" => return Error::forbidden(&path, detail),
            "FieldValueRequired" => return Error::required(&path, detail),
            "FieldValueDuplicate" => Reason::Duplicate,
            _ => Reason::Invalid,
        };
        show_as_go(Error {
            reason,
            field: path.to_string(),
            value,
            detail: if reason == Reason::Duplicate {
                String::new()
            } else {
                detail
            },
        })
    }
}

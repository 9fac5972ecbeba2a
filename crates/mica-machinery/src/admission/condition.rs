//! Expressions of admission, compiled, and match conditions, which decide whether the rest is run at all.

use serde_json::Value;

use super::input::{Input, Session};
use crate::cel::admission::{Compiler, Purpose, Refusal};
use crate::cel::{Program, Val};
use crate::object;

/// What all match conditions of one webhook or policy may cost together. Upstream's number.
const CONDITION_BUDGET: u64 = 2_500_000;

/// What happens to a request when it cannot be told what should.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FailurePolicy {
    Fail,
    Ignore,
}

impl FailurePolicy {
    pub(super) fn read(of: &Value) -> Self {
        match object::string(of, &["failurePolicy"]) {
            "Ignore" => Self::Ignore,
            _ => Self::Fail,
        }
    }
}

/// An expression with its text, which errors quote.
#[derive(Debug)]
pub struct Expression {
    pub source: String,
    pub program: Result<Program, Refusal>,
}

impl Expression {
    pub(super) fn new(source: &str, purpose: Purpose, compiler: &Compiler) -> Self {
        Self {
            source: source.to_owned(),
            program: compiler.compile(source, purpose),
        }
    }
}

#[derive(Debug)]
pub struct Condition {
    expression: Expression,
}

impl Condition {
    pub(super) fn all(conditions: &[Value], compiler: &Compiler) -> Vec<Self> {
        let conditions = conditions.iter().map(|condition| Self {
            expression: Expression::new(
                object::string(condition, &["expression"]),
                Purpose::MatchCondition,
                compiler,
            ),
        });
        conditions.collect()
    }

    /// Whether all hold. One that does not hold wins over one that fails; a failure counts as the policy says.
    pub(super) fn hold(
        conditions: &[Self],
        variables: &[Variable],
        input: &Input<'_>,
        policy: FailurePolicy,
    ) -> Result<bool, String> {
        let session = Session::new(input, variables, CONDITION_BUDGET);
        let mut failures: Vec<String> = Vec::new();
        let mut refuted = false;
        for condition in conditions {
            match session.evaluate(&condition.expression) {
                Ok(Ok(Val::Bool(false))) => refuted = true,
                Ok(Ok(_)) => {}
                Ok(Err(text)) => failures.push(text),
                Err(spent) => return failed(spent.to_string(), policy),
            }
        }
        if refuted {
            return Ok(false);
        }
        failures.dedup();
        match failures.as_slice() {
            [] => Ok(true),
            [one] => failed(one.clone(), policy),
            many => failed(format!("[{}]", many.join(", ")), policy),
        }
    }
}

fn failed(why: String, policy: FailurePolicy) -> Result<bool, String> {
    match policy {
        FailurePolicy::Fail => Err(why),
        FailurePolicy::Ignore => Ok(false),
    }
}

/// A variable of a policy.
#[derive(Debug)]
pub struct Variable {
    pub name: String,
    pub program: Result<Program, Refusal>,
}

impl Variable {
    /// Compiles variables in their order: each may name those before it.
    pub(super) fn all(variables: &[Value], compiler: &mut Compiler) -> Vec<Self> {
        let variables = variables.iter().map(|variable| {
            let name = object::string(variable, &["name"]);
            let program = compiler.compile_variable(name, object::string(variable, &["expression"]));
            Self {
                name: name.to_owned(),
                program,
            }
        });
        variables.collect()
    }
}

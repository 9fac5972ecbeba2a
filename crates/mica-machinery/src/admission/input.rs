//! What expressions of admission read, and the running of them within a budget.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use serde_json::Value;

use super::condition::{Expression, Variable};
use super::request::Attributes;
use crate::cel::cost::PER_CALL_LIMIT;
use crate::cel::library::EvalError;
use crate::cel::library::authz::{Authorizer, Resource};
use crate::cel::{Activation, Outcome, Program, Val};

const VARIABLES: &str = "variables";

/// The data of one request in one form, as trees that outlive the evaluation.
#[derive(Debug, Clone, Copy)]
pub struct Inputs<'a> {
    pub object: Option<&'a Value>,
    pub old: Option<&'a Value>,
    /// [`super::request_value`]'s.
    pub request: &'a Value,
    pub namespace: Option<&'a Value>,
    pub params: Option<&'a Value>,
}

/// How much evaluations may cost before whoever runs them wants to run them elsewhere.
#[derive(Debug)]
pub struct Effort {
    left: Cell<u64>,
    cut: Cell<bool>,
}

impl Effort {
    pub fn new(allowance: u64) -> Self {
        Self {
            left: Cell::new(allowance),
            cut: Cell::new(false),
        }
    }

    /// Whether an evaluation was broken off: what came of it means nothing.
    pub fn is_cut(&self) -> bool {
        self.cut.get()
    }

    fn spend(&self, cost: u64) {
        match self.left.get().checked_sub(cost) {
            Some(left) => self.left.set(left),
            None => {
                self.left.set(0);
                self.cut.set(true);
            }
        }
    }
}

/// What expressions may name.
pub struct Input<'a> {
    object: Val<'a>,
    old: Val<'a>,
    request: Val<'a>,
    namespace: Val<'a>,
    params: Val<'a>,
    authorizer: Option<&'a dyn Authorizer>,
    resource: Resource,
    effort: Option<&'a Effort>,
}

impl<'a> Input<'a> {
    pub fn new(inputs: Inputs<'a>, attributes: &Attributes<'_>, authorizer: &'a dyn Authorizer) -> Self {
        let val = |value: Option<&'a Value>| value.map_or(Val::Null, Val::dynamic);
        let asked = attributes.face.resource;
        Self {
            object: val(inputs.object),
            old: val(inputs.old),
            request: Val::dynamic(inputs.request),
            namespace: val(inputs.namespace),
            params: val(inputs.params),
            authorizer: Some(authorizer),
            resource: Resource {
                group: asked.group.to_owned(),
                resource: asked.resource.to_owned(),
                subresource: attributes.subresource.to_owned(),
                namespace: attributes.namespace.to_owned(),
                name: attributes.name.to_owned(),
                ..Resource::default()
            },
            effort: None,
        }
    }

    /// The same for evaluations that are broken off when they cost more than this.
    #[must_use]
    pub fn within(self, effort: Option<&'a Effort>) -> Self {
        Self { effort, ..self }
    }

    /// The same for messages and annotations, which may not ask about permissions.
    #[must_use]
    pub(super) fn without_authorizer(&self) -> Self {
        Self {
            object: self.object.clone(),
            old: self.old.clone(),
            request: self.request.clone(),
            namespace: self.namespace.clone(),
            params: self.params.clone(),
            authorizer: None,
            resource: Resource::default(),
            effort: self.effort,
        }
    }

    /// The same with another object: what earlier mutations left.
    #[must_use]
    pub fn with_object(self, object: &'a Value) -> Self {
        Self {
            object: Val::dynamic(object),
            ..self
        }
    }
}

/// The budget is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("validation failed due to running out of cost budget, no further validation rules will be run")]
pub struct OutOfBudget;

/// Expressions that are run one after the other, share variables, and pay from one budget.
pub struct Session<'s, 'a> {
    input: &'s Input<'a>,
    variables: &'s [Variable],
    known: RefCell<HashMap<String, Result<Val<'a>, EvalError>>>,
    /// What variables have cost that is not yet paid for.
    owed: Cell<u64>,
    budget: Cell<u64>,
}

impl<'s, 'a> Session<'s, 'a> {
    pub fn new(input: &'s Input<'a>, variables: &'s [Variable], budget: u64) -> Self {
        Self {
            input,
            variables,
            known: RefCell::default(),
            owed: Cell::new(0),
            budget: Cell::new(budget),
        }
    }

    pub fn budget(&self) -> u64 {
        self.budget.get()
    }

    /// The value of an expression, or why it has none. Running out of the budget ends it all.
    pub fn evaluate(&self, expression: &Expression) -> Result<Result<Val<'a>, String>, OutOfBudget> {
        let program = match &expression.program {
            Ok(program) => program,
            Err(refusal) => return Ok(Err(format!("compilation error: {refusal}"))),
        };
        let outcome = self.run(program);
        self.pay(self.owed.replace(0))?;
        self.pay(outcome.cost)?;
        let failed = |error: EvalError| format!("expression '{}' resulted in error: {error}", expression.source);
        Ok(outcome.result.map_err(failed))
    }

    fn run(&self, program: &Program) -> Outcome<'a> {
        let Some(effort) = self.input.effort else {
            return program.eval(self, PER_CALL_LIMIT);
        };
        let outcome = program.eval(self, PER_CALL_LIMIT.min(effort.left.get()));
        effort.spend(outcome.cost);
        outcome
    }

    fn pay(&self, cost: u64) -> Result<(), OutOfBudget> {
        let left = self.budget.get().checked_sub(cost).ok_or(OutOfBudget)?;
        self.budget.set(left);
        Ok(())
    }

    fn compute(&self, variable: &Variable) -> Result<Val<'a>, EvalError> {
        let named = crate::field::quote(&variable.name);
        let program = match &variable.program {
            Ok(program) => program,
            Err(refusal) => {
                return Err(EvalError::failed(format!(
                    "composited variable {named} fails to compile: {refusal}"
                )));
            }
        };
        let outcome = self.run(program);
        self.owed.set(self.owed.get().saturating_add(outcome.cost));
        outcome
            .result
            .map_err(|error| EvalError::failed(format!("composited variable {named} fails to evaluate: {error}")))
    }
}

impl<'a> Activation<'a> for Session<'_, 'a> {
    fn variable(&self, name: &str) -> Option<Val<'a>> {
        let input = self.input;
        Some(match name {
            "object" => input.object.clone(),
            "oldObject" => input.old.clone(),
            "request" => input.request.clone(),
            "namespaceObject" => input.namespace.clone(),
            "params" => input.params.clone(),
            "authorizer" if input.authorizer.is_some() => Val::authorizer(),
            "authorizer.requestResource" if input.authorizer.is_some() => {
                Val::resource_authorizer(input.resource.clone())
            }
            VARIABLES => Val::Lazy(VARIABLES.into()),
            _ => return None,
        })
    }

    fn field(&self, variable: &str, field: &str) -> Option<Result<Val<'a>, EvalError>> {
        if variable != VARIABLES {
            return None;
        }
        let found = self.variables.iter().find(|one| one.name == field)?;
        if let Some(known) = self.known.borrow().get(field) {
            return Some(known.clone());
        }
        // Variables name only those before them, so this ends.
        let value = self.compute(found);
        self.known.borrow_mut().insert(field.to_owned(), value.clone());
        Some(value)
    }

    fn authorizer(&self) -> Option<&dyn Authorizer> {
        self.input.authorizer
    }
}

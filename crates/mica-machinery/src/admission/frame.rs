//! What policies of both sorts have in common: their name, what they are about, and what their expressions share.

use serde_json::Value;

use super::condition::{Condition, FailurePolicy, Variable};
use super::criteria::Criteria;
use super::input::Input;
use super::param::ParamKind;
use crate::cel::admission::{Compiler, Params};
use crate::object;

#[derive(Debug)]
pub struct Frame {
    pub name: String,
    /// None: it is about nothing.
    pub criteria: Option<Criteria>,
    pub failure_policy: FailurePolicy,
    pub param_kind: Option<ParamKind>,
    pub(super) variables: Vec<Variable>,
    conditions: Vec<Condition>,
}

impl Frame {
    /// Reads a policy, and returns what compiles the rest of it: its variables can be named.
    pub(super) fn read(policy: &Value) -> (Self, Compiler) {
        let null = Value::Null;
        let spec = policy.get("spec").unwrap_or(&null);
        let param_kind = ParamKind::read(spec);
        let params = if param_kind.is_some() {
            Params::Declared
        } else {
            Params::Absent
        };
        let mut compiler = Compiler::with_variables(params);
        let variables = Variable::all(object::list(spec, &["variables"]), &mut compiler);
        let constraints = spec.get("matchConstraints").filter(|resources| resources.is_object());
        let frame = Self {
            name: object::name(policy).to_owned(),
            criteria: constraints.map(Criteria::of_resources),
            failure_policy: FailurePolicy::read(spec),
            conditions: Condition::all(object::list(spec, &["matchConditions"]), &compiler),
            param_kind,
            variables,
        };
        (frame, compiler)
    }

    /// Whether the policy's conditions hold.
    pub fn applies(&self, input: &Input<'_>) -> Result<bool, String> {
        Condition::hold(&self.conditions, &self.variables, input, self.failure_policy)
    }
}

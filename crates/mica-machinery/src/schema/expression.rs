//! Rules compiled and run by the expression language of [`cel`](crate::cel).

use std::sync::Arc;

use serde_json::Value;

use super::node::Place;
use super::rule::{
    CompiledRule, EvalError, Evaluated, MessageCheck, OldSelf, RuleCompiler, RuleError, RuleInput, RuleProgram,
    RuleSite, UsesOldSelf,
};
use crate::cel::cost::PER_CALL_LIMIT;
use crate::cel::{self, Bindings, CompileError, DeclType, Env, Program, Schema, Type, Val};

/// How long an evaluated message may be.
const MAX_MESSAGE_BYTES: usize = 5 * 1024;

/// Compiles rules as CEL.
#[derive(Clone, Copy, Debug, Default)]
pub struct Expressions;

impl RuleCompiler for Expressions {
    fn compile(&self, site: RuleSite<'_>) -> Result<Vec<CompiledRule>, String> {
        const NO_TYPE: &str = "unable to convert structural schema to CEL declarations";
        let schema = Schema::from_openapi(site.schema);
        let place = match site.place {
            Place::ResourceRoot => cel::Place::Root,
            Place::Inside => cel::Place::Inside,
        };
        let declared = DeclType::from_schema(&schema, place, "selfType").ok_or(NO_TYPE)?;
        let plain = Env::for_schema(&schema, place, cel::OldSelf::Present).ok_or(NO_TYPE)?;
        let optional = Env::for_schema(&schema, place, cel::OldSelf::Optional).ok_or(NO_TYPE)?;
        let schema = match site.place {
            Place::ResourceRoot => schema.with_type_and_object_meta().for_values(),
            Place::Inside => schema.for_values(),
        };
        let rules = site.schema.get("x-kubernetes-validations").and_then(Value::as_array);
        let compile = |rule: &Value| {
            let env = if rule.get("optionalOldSelf") == Some(&Value::Bool(true)) {
                &optional
            } else {
                &plain
            };
            compile_rule(rule, env, &schema, declared.max_cardinality())
        };
        Ok(rules.into_iter().flatten().map(compile).collect())
    }
}

fn compile_rule(rule: &Value, env: &Env, schema: &Arc<Schema>, max_cardinality: u64) -> CompiledRule {
    let text = |name: &str| rule.get(name).and_then(Value::as_str).unwrap_or_default();
    let mut compiled = CompiledRule {
        program: None,
        error: None,
        max_cost: 0,
        max_cardinality: 0,
        message: MessageCheck::Absent,
        old_self: UsesOldSelf::No,
    };
    if text("rule").trim().is_empty() {
        return compiled;
    }
    let program = match compile_as(env, text("rule"), &Type::Bool) {
        Ok(program) => program,
        Err(why) => {
            compiled.error = Some(RuleError::Invalid(match why {
                Unusable::Compile(issues) => format!("compilation failed: {issues}"),
                Unusable::Type => "cel expression must evaluate to a bool".to_owned(),
                Unusable::Program(why) => format!("program instantiation failed: {why}"),
            }));
            return compiled;
        }
    };
    if program.uses("oldSelf") {
        compiled.old_self = UsesOldSelf::Yes;
    }
    compiled.max_cost = program.estimate_cost().max;
    compiled.max_cardinality = max_cardinality;
    let mut message = None;
    if !text("messageExpression").is_empty() {
        match compile_as(env, text("messageExpression"), &Type::String) {
            Ok(program) => {
                compiled.message = MessageCheck::Cost(program.estimate_cost().max);
                message = Some(program);
            }
            Err(why) => {
                compiled.message = MessageCheck::Failed(match why {
                    Unusable::Compile(issues) => format!("messageExpression compilation failed: {issues}"),
                    Unusable::Type => "messageExpression must evaluate to a string".to_owned(),
                    Unusable::Program(why) => format!("messageExpression instantiation failed: {why}"),
                });
            }
        }
    }
    compiled.program = Some(Arc::new(Expression {
        schema: schema.clone(),
        rule: program,
        message,
    }));
    compiled
}

enum Unusable {
    Compile(String),
    Type,
    Program(String),
}

fn compile_as(env: &Env, source: &str, wanted: &Type) -> Result<Program, Unusable> {
    let program = env.compile(source).map_err(|error| match error {
        CompileError::Issues(issues) => Unusable::Compile(issues.to_string()),
        // The type is looked at first.
        CompileError::Instantiation { result_type, .. } if result_type != *wanted => Unusable::Type,
        CompileError::Instantiation { why, .. } => Unusable::Program(why),
    })?;
    if program.result_type() == wanted {
        Ok(program)
    } else {
        Err(Unusable::Type)
    }
}

#[derive(Debug)]
struct Expression {
    schema: Arc<Schema>,
    rule: Program,
    message: Option<Program>,
}

impl Expression {
    fn run<T>(
        &self,
        program: &Program,
        input: RuleInput<'_>,
        read: impl FnOnce(&Val<'_>) -> Result<T, String>,
    ) -> Evaluated<T> {
        let bindings = match self.bind(input) {
            Ok(bindings) => bindings,
            Err(why) => {
                return Evaluated {
                    result: Err(EvalError::Failed(why)),
                    cost: 0,
                };
            }
        };
        let outcome = program.eval(&bindings, PER_CALL_LIMIT);
        let result = match outcome.result {
            Ok(value) => read(&value).map_err(EvalError::Failed),
            Err(error @ cel::EvalError::CostExceeded) => Err(EvalError::TooExpensive(error.to_string())),
            Err(error) => Err(EvalError::Failed(error.to_string())),
        };
        Evaluated {
            result,
            cost: outcome.cost,
        }
    }

    fn bind<'v>(&'v self, input: RuleInput<'v>) -> Result<Bindings<'v>, String> {
        let typed = |value: &'v Value| Val::typed(value, &self.schema);
        let bindings = Bindings::new().with("self", typed(input.value)?);
        Ok(match input.old {
            OldSelf::Plain(None) => bindings,
            OldSelf::Plain(Some(old)) => bindings.with("oldSelf", typed(old)?),
            OldSelf::Optional(old) => bindings.with("oldSelf", Val::optional(old.map(typed).transpose()?)),
        })
    }
}

impl RuleProgram for Expression {
    fn evaluate(&self, input: RuleInput<'_>) -> Evaluated<bool> {
        self.run(&self.rule, input, |value| Ok(matches!(value, Val::Bool(true))))
    }

    fn message(&self, input: RuleInput<'_>) -> Option<Evaluated<String>> {
        let program = self.message.as_ref()?;
        Some(self.run(program, input, |value| {
            let Val::String(text) = value else {
                return Err("messageExpression failed to convert to string".to_owned());
            };
            let text = text.trim();
            if text.len() > MAX_MESSAGE_BYTES {
                Err(format!(
                    "messageExpression beyond allowable length of {MAX_MESSAGE_BYTES}"
                ))
            } else if text.contains('\n') {
                Err("messageExpression should not contain line breaks".to_owned())
            } else if text.is_empty() {
                Err("messageExpression should evaluate to a non-empty string".to_owned())
            } else {
                Ok(text.to_owned())
            }
        }))
    }
}

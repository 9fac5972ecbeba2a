//! ValidatingAdmissionPolicies, compiled, and what they decide.

use serde_json::Value;

use super::condition::{Expression, FailurePolicy};
use super::frame::Frame;
use super::input::{Input, Session};
use crate::cel::Val;
use crate::cel::admission::Purpose;
use crate::cel::cost::RUNTIME_BUDGET;
use crate::object;

/// The longest message that an expression may make.
const MAX_MESSAGE: usize = 5 * 1024;
/// The longest annotation; what is longer is cut.
const MAX_ANNOTATION: usize = 10 * 1024;

/// What a binding does about a failed validation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Deny,
    Warn,
    Audit,
}

impl Action {
    pub(super) fn read(text: &str) -> Option<Self> {
        Some(match text {
            "Deny" => Self::Deny,
            "Warn" => Self::Warn,
            "Audit" => Self::Audit,
            _ => return None,
        })
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Deny => "Deny",
            Self::Warn => "Warn",
            Self::Audit => "Audit",
        }
    }
}

#[derive(Debug)]
struct Validation {
    expression: Expression,
    message: String,
    message_expression: Option<Expression>,
    reason: String,
}

#[derive(Debug)]
struct Annotation {
    key: String,
    expression: Expression,
}

#[derive(Debug)]
pub struct ValidatingPolicy {
    pub frame: Frame,
    validations: Vec<Validation>,
    annotations: Vec<Annotation>,
}

/// A no.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// Which validation it is.
    pub index: usize,
    pub message: String,
    /// Empty where an expression failed: that is as good as Invalid.
    pub reason: String,
}

/// What a policy makes of one request and one parameter.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Verdict {
    /// Only what is denied.
    pub denied: Vec<Decision>,
    pub annotations: Vec<(String, String)>,
    /// Annotations that failed, which denies whatever the binding says.
    pub failed_annotations: Vec<String>,
}

impl ValidatingPolicy {
    pub fn new(policy: &Value) -> Self {
        let (frame, compiler) = Frame::read(policy);
        let validations = object::list(policy, &["spec", "validations"]).iter().map(|validation| {
            let of = |field: &str| object::string(validation, &[field]);
            let expression = |field, purpose| Expression::new(of(field), purpose, &compiler);
            Validation {
                expression: expression("expression", Purpose::Validation),
                message: of("message").trim().to_owned(),
                message_expression: (!of("messageExpression").is_empty())
                    .then(|| expression("messageExpression", Purpose::Message)),
                reason: match of("reason") {
                    "" => "Invalid".to_owned(),
                    reason => reason.to_owned(),
                },
            }
        });
        let annotations = object::list(policy, &["spec", "auditAnnotations"])
            .iter()
            .map(|annotation| {
                let source = object::string(annotation, &["valueExpression"]);
                Annotation {
                    key: object::string(annotation, &["key"]).to_owned(),
                    expression: Expression::new(source, Purpose::AuditAnnotation, &compiler),
                }
            });
        Self {
            validations: validations.collect(),
            annotations: annotations.collect(),
            frame,
        }
    }

    pub fn judge(&self, input: &Input<'_>) -> Verdict {
        let whole = |message: String| self.failed(0, message).into_iter().collect();
        let only = |denied: Vec<Decision>| Verdict {
            denied,
            ..Verdict::default()
        };
        match self.frame.applies(input) {
            Ok(true) => {}
            Ok(false) => return Verdict::default(),
            Err(why) => return only(whole(why)),
        }
        let session = Session::new(input, &self.frame.variables, RUNTIME_BUDGET.unsigned_abs());
        let mut results = Vec::with_capacity(self.validations.len());
        for validation in &self.validations {
            match session.evaluate(&validation.expression) {
                Ok(result) => results.push(result),
                Err(spent) => return only(whole(spent.to_string())),
            }
        }
        // Messages are paid from what is left.
        let unauthorized = input.without_authorizer();
        let messages = Session::new(&unauthorized, &self.frame.variables, session.budget());
        let messages = self.messages(&messages);
        let mut denied = Vec::new();
        for (index, (validation, result)) in self.validations.iter().zip(results).enumerate() {
            match (result, &messages) {
                (Err(why), _) => denied.extend(self.failed(index, why)),
                (Ok(_), Err(why)) => denied.extend(self.failed(index, format!("failed messageExpression: {why}"))),
                (Ok(Val::Bool(true)), _) => {}
                (Ok(_), Ok(messages)) => denied.push(Decision {
                    index,
                    message: message(validation, messages[index].as_deref()),
                    reason: validation.reason.clone(),
                }),
            }
        }
        self.annotate(&unauthorized, denied)
    }

    /// The message that each validation's expression makes, where it makes a fitting one.
    fn messages(&self, session: &Session<'_, '_>) -> Result<Vec<Option<String>>, String> {
        let made = self.validations.iter().map(|validation| {
            let Some(expression) = &validation.message_expression else {
                return Ok(None);
            };
            let text = match session.evaluate(expression).map_err(|spent| spent.to_string())? {
                Ok(Val::String(text)) => text.trim().to_owned(),
                _ => return Ok(None),
            };
            let fits = !text.is_empty() && text.len() <= MAX_MESSAGE && !text.contains('\n');
            Ok(fits.then_some(text))
        });
        made.collect()
    }

    fn annotate(&self, input: &Input<'_>, denied: Vec<Decision>) -> Verdict {
        let mut verdict = Verdict {
            denied,
            ..Verdict::default()
        };
        let session = Session::new(input, &self.frame.variables, RUNTIME_BUDGET.unsigned_abs());
        for annotation in &self.annotations {
            match session.evaluate(&annotation.expression) {
                Err(spent) => {
                    verdict.denied = self.failed(0, spent.to_string()).into_iter().collect();
                    return verdict;
                }
                Ok(Ok(Val::String(text))) if !text.trim().is_empty() => {
                    let mut value = text.trim().to_owned();
                    crop(&mut value);
                    verdict.annotations.push((annotation.key.clone(), value));
                }
                Ok(Ok(_)) => {}
                Ok(Err(why)) if self.frame.failure_policy == FailurePolicy::Fail => {
                    verdict.failed_annotations.push(why);
                }
                Ok(Err(_)) => {}
            }
        }
        verdict
    }

    /// An expression that could not be evaluated.
    fn failed(&self, index: usize, message: String) -> Option<Decision> {
        (self.frame.failure_policy == FailurePolicy::Fail).then_some(Decision {
            index,
            message,
            reason: String::new(),
        })
    }
}

fn message(validation: &Validation, made: Option<&str>) -> String {
    match (made, validation.message.as_str()) {
        (Some(made), _) => made.to_owned(),
        (None, "") => format!("failed expression: {}", validation.expression.source.trim()),
        (None, message) => message.to_owned(),
    }
}

fn crop(value: &mut String) {
    if value.len() > MAX_ANNOTATION {
        let end = (0..=MAX_ANNOTATION).rev().find(|at| value.is_char_boundary(*at));
        value.truncate(end.unwrap_or(0));
    }
}

//! The rules of a schema: what they say about themselves, whether they compile, and what they cost.

use serde_json::Value;

use super::openapi::{Cardinality, Checker, Context, Found, RuleScope, text};
use crate::cel::cost::{STATIC_CRD_LIMIT, STATIC_RULE_LIMIT};
use crate::field::{Error, ErrorList, Path};
use crate::kind::check::{invalid_as, present};
use crate::kind::internal;
use crate::schema::Place;
use crate::schema::rule::{CompiledRule, MessageCheck, RuleError, RuleSite, UsesOldSelf};
use crate::schema::{selectable, structural};

/// How many of the dearest rules are named when all together cost too much.
const NAMED_RULES: usize = 4;

const REASONS: [&str; 4] = [
    "FieldValueDuplicate",
    "FieldValueForbidden",
    "FieldValueInvalid",
    "FieldValueRequired",
];

/// The estimated cost of all rules of a schema.
#[derive(Debug, Default)]
pub(super) struct Cost {
    total: u64,
    /// The dearest first; only those that matter.
    dearest: Vec<(Path, u64)>,
}

impl Cost {
    fn observe(&mut self, path: &Path, cost: u64) {
        self.total = self.total.saturating_add(cost);
        if cost >= STATIC_CRD_LIMIT / 100 {
            self.dearest.push((path.clone(), cost));
            self.dearest.sort_by_key(|(_, cost)| std::cmp::Reverse(*cost));
            self.dearest.truncate(NAMED_RULES);
        }
    }

    /// Refuses a schema whose rules cost too much together.
    pub(super) fn report(&mut self, path: &Path, errors: &mut ErrorList) {
        if self.total <= STATIC_CRD_LIMIT {
            return;
        }
        for (path, _) in &self.dearest {
            let detail = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
            errors.push(Error::forbidden(path, detail));
        }
        let what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        errors.push(Error::forbidden(path, too_dear(what, self.total, STATIC_CRD_LIMIT)));
    }
}

fn too_dear(what: &str, cost: u64, limit: u64) -> String {
    let factor = cost as f64 / limit as f64;
    let factor = if factor > 100.0 {
        "more than 100x".to_owned()
    } else if factor < 1.5 {
        format!("{factor:.6}x")
    } else {
        format!("{factor:.1}x")
    };
    format!(
        "{what} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
    )
}

/// Checks the rules of one place.
pub(super) fn check_rules(
    checker: &mut Checker<'_>,
    schema: &Value,
    path: &Path,
    context: &Context,
    found: &mut Found,
) {
    let rules = schema.get("x-kubernetes-validations").and_then(Value::as_array);
    let Some(rules) = rules.filter(|rules| !rules.is_empty()) else {
        return;
    };
    let path = path.child("x-kubernetes-validations");
    for (at, rule) in rules.iter().enumerate() {
        check_words(rule, schema, &path.index(at), &mut found.schema);
    }
    let (RuleScope::At(cardinality), Some(compiler), true) = (context.rules, checker.compiler, found.schema.is_empty())
    else {
        return;
    };
    let embedded = schema.get("x-kubernetes-embedded-resource") == Some(&Value::Bool(true));
    let place = if embedded || context.is_resource_root() {
        Place::ResourceRoot
    } else {
        Place::Inside
    };
    match compiler.compile(RuleSite { schema, place }) {
        Err(text) => {
            let detail = format!(
                "internal error: failed to construct type information for x-kubernetes-validations rules: {text}"
            );
            found.rules.push(Error::internal(&path, detail));
        }
        Ok(compiled) => {
            for (at, (compiled, rule)) in compiled.iter().zip(rules).enumerate() {
                check_compiled(
                    checker,
                    compiled,
                    rule,
                    cardinality,
                    context,
                    &path.index(at),
                    &mut found.rules,
                );
            }
        }
    }
}

fn check_words(rule: &Value, schema: &Value, path: &Path, errors: &mut ErrorList) {
    let of = |word: &str| text(rule, word);
    let has_breaks = |text: &str| text.contains(['\n', '\r']);
    let (source, message) = (of("rule").trim(), of("message").trim());
    if source.is_empty() {
        errors.push(Error::required(&path.child("rule"), "rule is not specified"));
    } else if !of("message").is_empty() && message.is_empty() {
        let detail = "must be non-empty if specified";
        errors.push(Error::invalid(&path.child("message"), of("message"), detail));
    } else if has_breaks(message) {
        let detail = "must not contain line breaks";
        errors.push(Error::invalid(&path.child("message"), of("message"), detail));
    } else if has_breaks(source) && message.is_empty() {
        let detail = "message must be specified if rule contains line breaks";
        errors.push(Error::required(&path.child("message"), detail));
    }
    if !of("messageExpression").is_empty() && of("messageExpression").trim().is_empty() {
        let detail = "messageExpression must be non-empty if specified";
        errors.push(Error::required(&path.child("messageExpression"), detail));
    }
    if let Some(reason) = present(rule, &["reason"]).and_then(Value::as_str)
        && !REASONS.contains(&reason)
    {
        errors.push(Error::not_supported(&path.child("reason"), reason, &REASONS));
    }
    let field_path = of("fieldPath");
    if field_path.is_empty() {
        return;
    }
    let path = path.child("fieldPath");
    if field_path.trim().is_empty() {
        errors.push(Error::invalid(&path, field_path, "must be non-empty if specified"));
    }
    if has_breaks(field_path) {
        errors.push(Error::invalid(&path, field_path, "must not contain line breaks"));
    }
    // A schema that upstream cannot read has no paths that could be wrong.
    if structural::unsupported(schema).is_none() && selectable::field_path(field_path, schema).is_err() {
        errors.push(Error::invalid(&path, field_path, "must be a valid path"));
    }
}

fn check_compiled(
    checker: &mut Checker<'_>,
    compiled: &CompiledRule,
    rule: &Value,
    cardinality: Cardinality,
    context: &Context,
    path: &Path,
    errors: &mut ErrorList,
) {
    let rule_path = path.child("rule");
    let times = match cardinality {
        Cardinality::AtMost(times) => times,
        Cardinality::Unbounded => compiled.max_cardinality,
    };
    let cost = compiled.max_cost.saturating_mul(times);
    if checker.demands.rule_cost && cost > STATIC_RULE_LIMIT {
        errors.push(Error::forbidden(
            &rule_path,
            too_dear("estimated rule cost", cost, STATIC_RULE_LIMIT),
        ));
    }
    checker.cost.observe(&rule_path, cost);
    match &compiled.error {
        None => {}
        Some(RuleError::Required(text)) => errors.push(Error::required(&rule_path, text.as_str())),
        Some(RuleError::Invalid(text)) => errors.push(invalid_as(&rule_path, &shown(rule), text)),
    }
    let message_path = path.child("messageExpression");
    match &compiled.message {
        MessageCheck::Absent => {}
        MessageCheck::Failed(text) => errors.push(invalid_as(&message_path, &shown(rule), text)),
        MessageCheck::Cost(cost) => {
            if checker.demands.rule_cost && *cost > STATIC_RULE_LIMIT {
                let detail = too_dear("estimated messageExpression cost", *cost, STATIC_RULE_LIMIT);
                errors.push(Error::forbidden(&message_path, detail));
            }
            checker.cost.observe(&message_path, *cost);
        }
    }
    if compiled.old_self == UsesOldSelf::Yes {
        if let Some(above) = &context.uncorrelatable {
            let detail = format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {above}");
            errors.push(Error::invalid(&rule_path, text(rule, "rule"), detail));
        }
    } else if let Some(optional) = present(rule, &["optionalOldSelf"]) {
        let detail = "may not be set if oldSelf is not used in rule";
        errors.push(Error::invalid(&path.child("optionalOldSelf"), optional.clone(), detail));
    }
}

/// A rule as upstream's errors print it: Go's names, and JSON that is safe inside HTML.
fn shown(rule: &Value) -> String {
    let name = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.ValidationRule";
    let text = internal::shown(rule, name);
    text.replace('<', r"\u003c")
        .replace('>', r"\u003e")
        .replace('&', r"\u0026")
}

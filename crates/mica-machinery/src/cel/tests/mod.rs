//! Tables of expressions with the answers of kube-apiserver 1.36, and what hostile input must not do.
//!
//! `cases.jsonl` was made by asking upstream's own environment, one expression a line: what it says when it refuses, or the
//! type, the estimated cost, the value or error and the cost of running. `fixtures.jsonl` holds the schemas and data, by line.

mod hostile;
mod library;

use serde_json::Value;

use super::library::convert;
use super::*;

const CASES: &str = include_str!("cases.jsonl");
const FIXTURES: &str = include_str!("fixtures.jsonl");

#[test]
fn expressions_answer_as_upstreams_do() {
    let fixtures: Vec<Value> = FIXTURES
        .lines()
        .map(|line| serde_json::from_str(line).expect("a fixture"))
        .collect();
    let mut wrong = Vec::new();
    for line in CASES.lines() {
        let case: Value = serde_json::from_str(line).expect("a case");
        let fixture = &fixtures[case["in"].as_u64().expect("a fixture's number") as usize];
        if let Err(difference) = check(&case, fixture) {
            wrong.push(format!("{}\n{difference}", case["expr"].as_str().unwrap_or_default()));
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n\n"));
}

/// Compiles and runs a case; the error says how the answer differs.
fn check(case: &Value, fixture: &Value) -> Result<(), String> {
    let optional = fixture["optOld"] == true;
    let schema = fixture.get("schema").map(Schema::from_openapi);
    let old = if optional { OldSelf::Optional } else { OldSelf::Present };
    let env = match &schema {
        Some(schema) => match Env::for_schema(schema, Place::Inside, old) {
            Some(env) => env,
            None => return same("refused", &case["refused"], Value::from("no decl type")),
        },
        None => Env::new(),
    };
    let authorizer = Type::object("kubernetes.authorization.Authorizer");
    let env = env
        .with_variable("object", Type::Dyn)
        .with_variable("authorizer", authorizer);
    let program = match env.compile(case["expr"].as_str().expect("an expression")) {
        Ok(program) => program,
        Err(CompileError::Issues(errors)) => return same("refused", &case["refused"], Value::from(errors.to_string())),
        Err(error) => return same("refused", &case["refused"], Value::from(format!("PROGRAM {error}"))),
    };
    same("refused", &case["refused"], Value::Null)?;
    same("type", &case["type"], Value::from(program.result_type().to_string()))?;
    let estimate = program.estimate_cost();
    same(
        "estimate",
        &case["estimate"],
        Value::from(vec![estimate.min, estimate.max]),
    )?;
    let outcome = program.eval(&bindings(fixture, schema.as_ref(), optional), cost::PER_CALL_LIMIT);
    same("cost", &case["cost"], Value::from(outcome.cost))?;
    match outcome.result {
        Err(error) => same("error", &case["error"], Value::from(error.to_string())),
        Ok(value) => {
            same("error", &case["error"], Value::Null)?;
            case.get("value")
                .map_or(Ok(()), |wanted| same("value", wanted, Value::from(shown(&value))))
        }
    }
}

fn same(what: &str, wanted: &Value, found: Value) -> Result<(), String> {
    if *wanted == found {
        Ok(())
    } else {
        Err(format!("  {what}: want {wanted}\n  {what}:  got {found}"))
    }
}

fn bindings<'a>(fixture: &'a Value, schema: Option<&'a Schema>, optional: bool) -> Bindings<'a> {
    let mut bindings = Bindings::new();
    let typed = |name: &str| Val::typed(fixture.get(name)?, schema?).ok();
    if let Some(value) = typed("self") {
        bindings = bindings.with("self", value);
    }
    match (typed("old"), optional) {
        (Some(value), false) => bindings = bindings.with("oldSelf", value),
        (value, true) => bindings = bindings.with("oldSelf", Val::optional(value)),
        (None, false) => {}
    }
    if let Some(object) = fixture.get("object") {
        bindings = bindings.with("object", Val::dynamic(object));
    }
    bindings
}

/// A value in the notation of the table.
fn shown(value: &Val<'_>) -> String {
    match value {
        Val::Uint(value) => format!("{value}u"),
        Val::Double(value) => format!("d:{}", convert::format_double(*value)),
        Val::String(text) => serde_json::to_string(&**text).expect("a string is JSON"),
        Val::Bytes(bytes) => format!("b:{}", crate::codec::base64::encode(bytes)),
        Val::Timestamp(instant) => format!("ts:{}", super::library::time::Instant { offset: 0, ..*instant }),
        Val::Duration(nanos) => format!("dur:{}", crate::duration::format_go(*nanos)),
        Val::Optional(None) => "none".to_owned(),
        Val::Optional(Some(value)) => format!("opt({})", shown(value)),
        Val::Type(of) => format!("type:{}", of.runtime_name()),
        Val::List(list) => {
            let items: Vec<String> = list
                .iter()
                .map(|item| item.map_or_else(|e| e, |item| shown(&item)))
                .collect();
            format!("[{}]", items.join(", "))
        }
        Val::Map(map) => {
            let mut entries: Vec<String> = map
                .keys()
                .iter()
                .map(|key| {
                    format!(
                        "{}: {}",
                        shown(key),
                        map.find(key)
                            .ok()
                            .flatten()
                            .map(|value| shown(&value))
                            .unwrap_or_default()
                    )
                })
                .collect();
            entries.sort();
            format!("{{{}}}", entries.join(", "))
        }
        Val::Quantity(quantity, _) => format!("kubernetes.Quantity:{quantity}"),
        Val::Ip(address) => format!("net.IP:{address}"),
        Val::Cidr(cidr) => format!("net.CIDR:{cidr}"),
        Val::Semver(version) => format!("kubernetes.Semver:{version}"),
        other => other.to_string(),
    }
}

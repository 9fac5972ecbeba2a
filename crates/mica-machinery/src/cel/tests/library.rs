//! What the tables cannot show: permissions, lazy variables, mutation types.

use serde_json::json;

use crate::cel::library::authz::{Authorizer, Check, Decision, Subject, Target};
use crate::cel::*;

/// Allows `get`, and remembers nothing.
struct OnlyGet;

impl Authorizer for OnlyGet {
    fn authorize(&self, check: &Check) -> Decision {
        let subject = match &check.subject {
            Subject::Requester => "requester".to_owned(),
            Subject::ServiceAccount { namespace, name } => format!("{namespace}/{name}"),
        };
        let target = match &check.target {
            Target::Path(path) => path.clone(),
            Target::Resource(resource) => format!("{}/{}/{}", resource.group, resource.namespace, resource.resource),
        };
        Decision {
            allowed: check.verb == "get",
            reason: format!("{subject} {} {target}", check.verb),
            error: None,
        }
    }
}

struct Request;

impl<'a> Activation<'a> for Request {
    fn variable(&self, name: &str) -> Option<Val<'a>> {
        match name {
            "authorizer" => Some(Val::authorizer()),
            "variables" => Some(Val::Lazy("variables".into())),
            _ => None,
        }
    }

    fn field(&self, _: &str, field: &str) -> Option<Result<Val<'a>, EvalError>> {
        match field {
            "ten" => Some(Ok(Val::Int(10))),
            "broken" => Some(Err(EvalError::failed("no such key: data"))),
            _ => None,
        }
    }

    fn authorizer(&self) -> Option<&dyn Authorizer> {
        Some(&OnlyGet)
    }
}

fn eval(expression: &str) -> (Result<String, String>, u64) {
    let variables = Schema::object([
        ("ten", Schema::of(schema::Kind::Integer)),
        ("broken", Schema::of(schema::Kind::Integer)),
    ]);
    let variables = DeclType::from_schema(&variables, Place::Inside, "variables").expect("an object has a type");
    let env = Env::new()
        .with_variable("authorizer", Type::object("kubernetes.authorization.Authorizer"))
        .with_declared("variables", variables.into())
        .with_mutation_types();
    let program = env.compile(expression).expect(expression);
    let outcome = program.eval(&Request, cost::PER_CALL_LIMIT);
    (
        outcome
            .result
            .map(|value| super::shown(&value))
            .map_err(|e| e.to_string()),
        outcome.cost,
    )
}

#[test]
fn permission_checks_reach_the_authorizer_and_cost_what_upstream_says() {
    let check = "authorizer.group('apps').resource('deployments').namespace('n').check('get')";
    assert_eq!(eval(&format!("{check}.allowed()")), (Ok("true".into()), 350_005));
    assert_eq!(
        eval(&format!("{check}.reason()")).0,
        Ok("\"requester get apps/n/deployments\"".into())
    );
    let other = "authorizer.serviceAccount('ns', 'sa').path('/healthz').check('post').reason()";
    assert_eq!(eval(other).0, Ok("\"ns/sa post /healthz\"".into()));
    let thrice = format!("{check}.allowed() && {check}.allowed() && {check}.allowed()");
    assert_eq!(
        eval(&thrice).0,
        Err("operation cancelled: actual cost limit exceeded".into())
    );
}

#[test]
fn fields_of_lazy_variables_are_asked_for_when_they_are_read() {
    assert_eq!(eval("variables.ten + 1"), (Ok("11".into()), 3));
    assert_eq!(eval("variables.broken > 1").0, Err("no such key: data".into()));
    assert_eq!(eval("true || variables.broken > 1").0, Ok("true".into()));
}

#[test]
fn undefined_fields_of_declared_variables_are_refused() {
    let variables = DeclType::from_schema(&Schema::object([]), Place::Inside, "variables").expect("an object");
    let env = Env::new().with_declared("variables", variables.into());
    let error = env.compile("variables.z").expect_err("z is not declared");
    assert_eq!(
        error.to_string(),
        "ERROR: <input>:1:10: undefined field 'z'\n | variables.z\n | .........^"
    );
}

#[test]
fn mutations_are_made_as_objects() {
    let env = Env::new().with_mutation_types();
    let made = |expression: &str| {
        let program = env.compile(expression).expect(expression);
        let outcome = program.eval(&Bindings::new(), cost::PER_CALL_LIMIT);
        outcome.result.expect(expression).to_json().expect(expression)
    };
    assert_eq!(
        made("Object{spec: Object.spec{replicas: 3}}"),
        json!({"spec": {"replicas": 3}})
    );
    assert_eq!(
        made("[JSONPatch{op: 'add', path: '/a/' + jsonpatch.escapeKey('b/c'), value: [1]}]"),
        json!([{"op": "add", "path": "/a/b~1c", "value": [1]}])
    );
    assert!(env.compile("JSONPatch{op: 1}").is_err());
}

#[test]
fn programs_say_which_variables_they_use() {
    let env = Env::for_schema(&Schema::of(schema::Kind::Integer), Place::Inside, OldSelf::Present).expect("a type");
    assert!(env.compile("self >= oldSelf").expect("sound").uses("oldSelf"));
    assert!(
        !env.compile("[1].all(oldSelf2, self > 0)")
            .expect("sound")
            .uses("oldSelf")
    );
}

#[test]
fn lists_and_maps_are_formatted_as_literals() {
    for (formatted, expected) in [
        ("'%s'.format([[1.5]])", "[1.500000]"),
        ("'%s'.format([{'a': 2.0}])", r#"{"a":2.000000}"#),
        (
            "'%s'.format([[0.0/0.0, 1.0/0.0, -1.0/0.0]])",
            r#"["NaN", "+Inf", "-Inf"]"#,
        ),
        (
            r#"'%s'.format([['a"b', 'a\\b', 'a\nb', '\u200b']])"#,
            r#"["a\"b", "a\\b", "a\nb", "\u200b"]"#,
        ),
        ("'%s'.format([[b'ab']])", r#"[b"ab"]"#),
        ("'%s'.format([{1: 1, 'a': 2, true: 3}])", r#"{"a":2, 1:1, true:3}"#),
        ("'%f %e'.format(['NaN', '-Infinity'])", "NaN     -∞"),
        ("'%f'.format([-0.0])", "0.000000"),
    ] {
        let literal = expected.replace('\\', r"\\").replace('"', r#"\""#);
        let same = eval(&format!(r#"{formatted} == "{literal}""#)).0;
        assert_eq!(same.as_deref(), Ok("true"), "{formatted}");
    }
    for refused in [
        "'%s'.format([{1.5: 1}])",
        r"'%s'.format([b'\xff'])",
        "'%f'.format(['1'])",
    ] {
        let why = eval(refused).0.expect_err(refused);
        assert!(why.contains("error during formatting"), "{refused}: {why}");
    }
}

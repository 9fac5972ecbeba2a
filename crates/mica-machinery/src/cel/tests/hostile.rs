//! Expressions made to hurt: they may fail, but neither panic nor run long.

use std::time::{Duration, Instant};

use proptest::prelude::*;
use serde_json::json;

use crate::cel::*;

/// Far more than any of these needs, also unoptimized on a busy machine; without limits they would run for years.
const PATIENCE: Duration = Duration::from_secs(60);

fn run(expression: &str) -> Option<Result<String, EvalError>> {
    let schema = Schema::from_openapi(&json!({
        "type": "object",
        "properties": {"s": {"type": "string"}, "l": {"type": "array", "items": {"type": "integer"}}}
    }));
    let data = json!({"s": "text", "l": [1, 2, 3]});
    let env = Env::for_schema(&schema, Place::Inside, OldSelf::Present)?.with_variable("object", Type::Dyn);
    let program = env.compile(expression).ok()?;
    let _ = program.estimate_cost();
    let bindings = Bindings::new()
        .with("self", Val::typed(&data, &schema).ok()?)
        .with("oldSelf", Val::typed(&data, &schema).ok()?)
        .with("object", Val::dynamic(&data));
    Some(
        program
            .eval(&bindings, cost::PER_CALL_LIMIT)
            .result
            .map(|value| value.to_string()),
    )
}

#[test]
fn long_text_that_breaks_at_its_end_is_refused() {
    let pieces = [
        "a+",
        "a.",
        "-1+",
        "- - ",
        "!",
        "a||",
        "a.b.c == -1 && ",
        "x y ",
        "-1-1 ",
        "{a:1,",
        "a.b.c{d:1}.",
        "1,",
        "-1,",
    ];
    for brackets in [0, 1, 245] {
        for piece in pieces {
            let text = "[".repeat(brackets) + &piece.repeat((parser::MAX_SIZE - brackets) / piece.len());
            let started = Instant::now();
            let errors = parser::parse(&text).expect_err(piece);
            assert!(!errors.issues().is_empty(), "{piece}");
            assert!(started.elapsed() < PATIENCE, "{brackets} brackets and {piece}");
        }
    }
}

#[test]
fn what_doubles_at_every_step_ends() {
    let nest = |first: &str, step: &str, last: &str, depth: usize| {
        let bind = |inner: String, _| format!("[{inner}].map(v, {step})[0]");
        last.replace("(v)", &(0..depth).fold(first.to_owned(), bind))
    };
    let copied = (0..40).fold("1".to_owned(), |inner, _| {
        format!("optional.of({inner}).optMap(v, v).value()")
    });
    let hostile = [
        nest("[1, 2]", "v + v", "(v).sum()", 40),
        nest("[1, 2]", "v + v", "(v) == [1]", 40),
        nest("[1, 2]", "[v, v]", "(v) == (v)", 25),
        nest("[1, 2]", "[v, v]", "'%s'.format([(v)])", 25),
        nest("[1, 2]", "[v, v]", "google.protobuf.ListValue{values: (v)}.size()", 40),
        nest("'abcdefgh'", "v + v", "(v).size()", 60),
        nest("'ab'", "v.replace('', v)", "(v).size()", 12),
        "lists.range(9223372036854775807).size()".to_owned(),
        "lists.range(1000000).map(x, lists.range(1000000).map(y, x * y))".to_owned(),
        "lists.range(100000).map(x, 'x').distinct()".to_owned(),
        "lists.range(1000).all(a, lists.range(1000).all(b, lists.range(1000).all(c, a + b + c >= 0)))".to_owned(),
        "'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'.matches('(a*)*b')".to_owned(),
        "timestamp(0).getHours('9223372036854775807:9223372036854775807')".to_owned(),
        "timestamp(0).getHours('-9223372036854775807:9223372036854775807')".to_owned(),
    ];
    for expression in hostile {
        let started = Instant::now();
        assert!(run(&expression).is_some(), "it compiles: {expression}");
        assert!(started.elapsed() < PATIENCE, "{expression}");
    }
    let endless = "'a'.matches('((a{1000}){1000}){1000}')".to_owned();
    for expression in [copied, endless] {
        let started = Instant::now();
        assert!(run(&expression).is_none(), "it does not compile: {expression}");
        assert!(started.elapsed() < PATIENCE, "{expression}");
    }
}

/// What is shared costs nothing until it is copied, and then by its size.
#[test]
fn copies_of_large_values_are_paid_for() {
    let data = json!({"text": "x".repeat(1 << 20)});
    let env = Env::for_schema(
        &Schema::from_openapi(&json!({"type": "object"})),
        Place::Inside,
        OldSelf::Present,
    )
    .expect("a schema with a type")
    .with_variable("object", Type::Dyn);
    for expression in [
        "[bytes(object.text)].all(b, google.protobuf.ListValue{values: lists.range(10000).map(i, b)}.size() > 0)",
        "[{object.text: 1}].all(m, google.protobuf.ListValue{values: lists.range(10000).map(i, m)}.size() > 0)",
        "[bytes(object.text)].all(b, '%s'.format([lists.range(10000).map(i, b)]).size() > 0)",
        "lists.range(20000).map(i, {object.text: i}).size() > 0",
    ] {
        let program = env.compile(expression).expect(expression);
        let bindings = Bindings::new().with("object", Val::dynamic(&data));
        let outcome = program.eval(&bindings, cost::PER_CALL_LIMIT);
        let refused = matches!(outcome.result, Err(EvalError::CostExceeded));
        assert!(refused, "{expression}: {} spent", outcome.cost);
    }
}

#[test]
fn what_shares_its_parts_is_json_only_as_far_as_there_is_room() {
    let env = Env::for_schema(
        &Schema::from_openapi(&json!({"type": "object"})),
        Place::Inside,
        OldSelf::Present,
    )
    .expect("a schema with a type");
    let doubled = |depth| {
        let expression = (0..depth).fold("[1]".to_owned(), |inner, _| format!("[{inner}].map(v, [v, v])[0]"));
        let outcome = env
            .compile(&expression)
            .expect(&expression)
            .eval(&Bindings::new(), cost::PER_CALL_LIMIT);
        outcome.result.expect("it is cheap to make").to_json()
    };
    assert_eq!(doubled(2), Ok(json!([[[1], [1]], [[1], [1]]])));
    assert_eq!(doubled(40), Err("it is too large".to_owned()));
}

#[test]
fn deep_nesting_is_refused_and_not_a_crash() {
    let hostile = [
        "(".repeat(90_000),
        "[".repeat(50_000),
        "-".repeat(99_000) + "1",
        "1".to_owned() + &"+1".repeat(40_000),
        "self".to_owned() + &".s".repeat(40_000),
        "f(".repeat(30_000),
        "true".to_owned() + &" && true".repeat(10_000),
        "a ? ".repeat(20_000),
        "{'a':".repeat(15_000),
        "[1].map(x, ".repeat(8_000),
        "x".repeat(100_001),
    ];
    for expression in hostile {
        let _ = run(&expression);
    }
}

#[test]
fn nesting_ends_where_upstreams_does() {
    let refusal = |expression: String| Env::new().compile(&expression).err().map(|error| error.to_string());
    let parens = |depth: usize| format!("{}1{}", "(".repeat(depth), ")".repeat(depth));
    let sum = |terms: usize| format!("1{}", "+1".repeat(terms));
    assert_eq!(refusal(parens(249)), None);
    assert_eq!(
        refusal(parens(250)),
        Some("ERROR: <input>:-1:0: expression recursion limit exceeded: 250".into())
    );
    assert_eq!(refusal(sum(249)), None);
    assert_eq!(
        refusal(sum(251)),
        Some("ERROR: <input>:-1:0: max recursion depth exceeded".into())
    );
}

fn fragment() -> impl Strategy<Value = String> {
    let words = [
        "self",
        "self.s",
        "self.l",
        "object",
        "oldSelf",
        "1",
        "2u",
        "1.5",
        "'a'",
        "b'x'",
        "null",
        "true",
        "[",
        "]",
        "(",
        ")",
        "{",
        "}",
        ".",
        ",",
        ":",
        "?",
        ".?",
        "[?",
        "+",
        "-",
        "*",
        "/",
        "%",
        "==",
        "!=",
        "<",
        ">=",
        "&&",
        "||",
        "!",
        " in ",
        "all(x, ",
        ".map(x, ",
        ".size()",
        ".filter(y, ",
        "has(",
        "x",
        "y",
        "optional.of(",
        ".optMap(z, ",
        ".orValue(",
        "duration('1h')",
        "timestamp('2024-01-01T00:00:00Z')",
        ".sort()",
        ".sum()",
        "'%s'.format(",
        "string(",
        "int(",
        "dyn(",
        ".matches('a*')",
        ".split('')",
        ".join()",
        "type(",
        "Object{",
        "google.protobuf.Struct{fields: ",
        "google.protobuf.Int32Value{value: ",
        "lists.range(3)",
        ".transformMap(k, v, ",
        "'\\u00e9'",
        "\\",
        "`a`",
        "é",
        "\n",
    ];
    prop::collection::vec(prop::sample::select(words.to_vec()), 0..24).prop_map(|words| words.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.max(2000), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_that_is_typed_panics(text in "\\PC*") {
        let _ = run(&text);
    }

    #[test]
    fn no_pile_of_tokens_panics(text in fragment()) {
        let _ = run(&text);
    }
}

//! kubectl's JSONPath, as printer columns and the server's field lookups use it.
//!
//! One expression without its braces: `.spec.list[?(@.name=="a")].value`. Templates with `range` are kubectl's own
//! business. Invariant: finding never panics or recurses deeper than the document; a missing key finds nothing.

mod eval;
mod parse;

use serde_json::Value;

pub use parse::ParseError;

/// A parsed expression.
#[derive(Clone, PartialEq, Debug)]
pub struct JsonPath {
    steps: Vec<Step>,
    /// Further actions, of a text with braces in it. They are done for their errors only.
    others: Vec<Vec<Step>>,
}

/// One step: from each value to those it selects.
#[derive(Clone, PartialEq, Debug)]
enum Step {
    Field(String),
    Wildcard,
    Recursive,
    Slice(Slice),
    Union(Vec<Vec<Step>>),
    Filter(Box<Filter>),
    /// A constant: replaces what was found.
    Constant(Value),
    /// A word that is neither a number nor a boolean: evaluating it fails.
    Identifier(String),
}

/// `[start:end:step]`; a lone index has an end that follows from it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Slice {
    start: Option<i64>,
    end: Option<i64>,
    /// The end was not written.
    derived: bool,
    step: Option<i64>,
}

#[derive(Clone, PartialEq, Debug)]
struct Filter {
    left: Vec<Step>,
    right: Vec<Step>,
    /// As written; `exists` if there is no comparison.
    operator: String,
}

impl JsonPath {
    /// Parses an expression that stands without braces.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let mut actions = parse::parse(text)?.into_iter();
        let steps = actions.next().unwrap_or_default();
        let others = actions.collect();
        Ok(JsonPath { steps, others })
    }

    /// What the expression selects; an error is only told apart from nothing by callers that care.
    pub fn find<'v>(&self, value: &'v Value) -> Result<Vec<Found<'v>>, EvalError> {
        let found = eval::find(&self.steps, value)?;
        for steps in &self.others {
            eval::find(steps, value)?;
        }
        Ok(found)
    }
}

/// A selected value: a part of the document, or a constant of the expression.
#[derive(Clone, PartialEq, Debug)]
pub enum Found<'v> {
    Part(&'v Value),
    Constant(Value),
}

impl Found<'_> {
    pub fn value(&self) -> &Value {
        match self {
            Self::Part(value) => value,
            Self::Constant(value) => value,
        }
    }
}

/// An expression that does not fit the document.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct EvalError(String);

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(path: &str, expected: Value) {
        let document = json!({
            "spec": {"a": "x", "n": 3, "l": [{"k": "a", "v": 1}, {"k": "b", "v": 2}, {"k": "c", "v": 3}],
                "m": {"x.y": 1, "z": 2}, "null": null},
            "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Ok", "status": "False"}]},
        });
        let path = JsonPath::parse(path).expect("a path");
        let found = match path.find(&document) {
            Ok(found) => Value::Array(found.iter().map(|found| found.value().clone()).collect()),
            Err(error) => json!(error.to_string()),
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn paths_find_what_kubectl_finds() {
        check(".spec.a", json!(["x"]));
        check(".spec.missing", json!([]));
        check(".spec.a.b", json!([]));
        check("$.spec.n", json!([3]));
        check(".spec.null", json!([null]));
        check(".spec.l[0].k", json!(["a"]));
        check(".spec.l[-1].k", json!(["c"]));
        check(".spec.l[*].v", json!([1, 2, 3]));
        check(".spec.l[0:2].v", json!([1, 2]));
        check(".spec.l[::2].v", json!([1, 3]));
        check(".spec.l[0,2].v", json!([1, 3]));
        check(".spec.m.x\\.y", json!([1]));
        check(".spec['m']['z']", json!([2]));
        check("..v", json!([1, 2, 3]));
        check(r#".status.conditions[?(@.type=="Ready")].status"#, json!(["True"]));
        check(r#".status.conditions[?(@.type == 'Ok')].status"#, json!(["False"]));
        check(".spec.l[?(@.v>1)].k", json!(["b", "c"]));
        check(".spec.l[?(@.nope)].k", json!([]));
        check(".spec.l[7]", json!("array index out of bounds: index 7, length 3"));
        check(".spec.a[0]", json!("string is not array or slice"));
        check(".spec.a}{.spec.n", json!(["x"]));
        check(".spec.a} and {.spec.n} more", json!(["x"]));
        check(".spec.missing}{.spec.n", json!([]));
        check(
            ".spec.a}{.spec.l[7]",
            json!("array index out of bounds: index 7, length 3"),
        );
        check(r#".spec.missing "text""#, json!(["text"]));
        check(".spec.missing 1", json!([]));
    }

    #[test]
    fn what_is_no_path_is_refused() {
        let error = |path: &str| JsonPath::parse(path).expect_err("no path").to_string();
        assert_eq!(error(".spec["), "unterminated array");
        assert_eq!(error(".spec[x]"), "invalid array index x");
        assert_eq!(error(".a}{.b["), "unterminated array");
        assert_eq!(error("....a"), "invalid multiple recursive descent");
        assert_eq!(error(".a[?(@.b"), "unterminated filter");
        assert_eq!(error("#"), "unrecognized character in action: U+0023 '#'");
    }
}

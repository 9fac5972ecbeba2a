//! Regular expressions, in Go's syntax.

use regex::Regex;

use super::{EvalError, Implementation, Outcome};
use crate::cel::value::Val;
pub use crate::schema::pattern::compile;

pub fn find(name: &str) -> Option<Implementation> {
    Some(match name {
        "matches" => |host, args| match args {
            [Val::String(text), Val::String(pattern)] => {
                host.work(pattern.len() as u64)?;
                let regex = compile(pattern).map_err(EvalError::failed)?;
                Ok(Val::Bool(regex.is_match(text)))
            }
            _ => Err(EvalError::no_overload()),
        },
        "find" => |_, args| match args {
            [Val::String(text), Val::String(pattern)] => Ok(find_first(&illegal(pattern)?, text)),
            _ => Err(EvalError::no_overload()),
        },
        "findAll" => |_, args| match args {
            [Val::String(text), Val::String(pattern)] => find_all(&illegal(pattern)?, text, -1),
            [Val::String(text), Val::String(pattern), Val::Int(limit)] => find_all(&illegal(pattern)?, text, *limit),
            _ => Err(EvalError::no_overload()),
        },
        _ => return None,
    })
}

/// Runs `name` with a pattern that was compiled when the program was made.
pub fn run<'a>(name: &str, regex: &Regex, args: &[Val<'a>]) -> Outcome<'a> {
    match (name, args) {
        ("matches", [Val::String(text), _]) => Ok(Val::Bool(regex.is_match(text))),
        ("find", [Val::String(text), _]) => Ok(find_first(regex, text)),
        ("findAll", [Val::String(text), _]) => find_all(regex, text, -1),
        ("findAll", [Val::String(text), _, Val::Int(limit)]) => find_all(regex, text, *limit),
        _ => Err(EvalError::no_overload()),
    }
}

fn illegal(pattern: &str) -> Result<Regex, EvalError> {
    compile(pattern).map_err(|e| EvalError::failed(format!("Illegal regex: {e}")))
}

fn find_first<'a>(regex: &Regex, text: &str) -> Val<'a> {
    Val::string(regex.find(text).map_or("", |found| found.as_str()))
}

fn find_all<'a>(regex: &Regex, text: &str, limit: i64) -> Outcome<'a> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    Ok(Val::list(
        regex
            .find_iter(text)
            .take(limit)
            .map(|found| Val::string(found.as_str()))
            .collect(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_patterns_match_what_go_matches() {
        let cases = [
            (r"^\d+$", "٣", false),
            (r"^\d+$", "3", true),
            (r"a{,2}", "a{,2}", true),
            (r"[[:alpha:]]+[a&&b]", "x&", true),
            (r"\Q.*\E", "a.*", true),
            (r"^[\w.-]+$", "a.b-c_1", true),
            (r"(?i)ABC", "abc", true),
            (r"\x41\101", "AA", true),
        ];
        for (pattern, text, want) in cases {
            assert_eq!(compile(pattern).expect(pattern).is_match(text), want, "{pattern}");
        }
    }

    #[test]
    fn what_go_refuses_is_refused_in_its_words() {
        let cases = [
            ("[", "missing closing ]: `[`"),
            ("(a", "missing closing ): `(a`"),
            ("a)", "unexpected ): `a)`"),
            ("*a", "missing argument to repetition operator: `*`"),
            ("a**", "invalid nested repetition operator: `**`"),
            ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
            ("\\y", "invalid escape sequence: `\\y`"),
            ("a{1001}", "invalid repeat count: `{1001}`"),
            ("a\\", "trailing backslash at end of expression: ``"),
        ];
        for (pattern, want) in cases {
            assert_eq!(
                compile(pattern).expect_err(pattern),
                format!("error parsing regexp: {want}")
            );
        }
    }
}

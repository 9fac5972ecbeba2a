//! The text of an expression and the errors that point into it.
//!
//! `CompileErrors` displays as cel-go does: sorted by place, each with the line it is on and a caret below. Clients see
//! these texts in CRD and policy refusals, so every character counts.

use std::fmt;

/// More errors than this are only counted.
const MAX_ERRORS: usize = 100;

/// A line longer than this (in bytes) is not repeated below its error.
const MAX_SNIPPET: usize = 16384;

/// The offset of what stands nowhere in the text. Errors about a part that is missing are at -1, which is before it.
const NOWHERE: i32 = i32::MIN;

/// One error: where, in characters, and what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issue {
    pub offset: i32,
    pub message: String,
}

impl Issue {
    pub fn nowhere(message: impl Into<String>) -> Self {
        Self {
            offset: NOWHERE,
            message: message.into(),
        }
    }
}

/// Everything wrong with one expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompileErrors {
    source: String,
    issues: Vec<Issue>,
}

impl std::error::Error for CompileErrors {}

impl CompileErrors {
    pub fn new(source: &str, issues: Vec<Issue>) -> Self {
        Self {
            source: source.to_owned(),
            issues,
        }
    }

    pub fn issues(&self) -> &[Issue] {
        &self.issues
    }
}

impl fmt::Display for CompileErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<&str> = self.source.split('\n').collect();
        let mut placed: Vec<(i64, i64, &str)> = self
            .issues
            .iter()
            .take(MAX_ERRORS)
            .map(|issue| {
                let (line, column) = locate(&lines, issue.offset);
                (line, column, issue.message.as_str())
            })
            .collect();
        placed.sort_by_key(|&(line, column, _)| (line, column));
        for (i, (line, column, message)) in placed.into_iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            write!(f, "ERROR: <input>:{line}:{}: {message}", column + 1)?;
            let text = usize::try_from(line - 1).ok().and_then(|i| lines.get(i));
            if let Some(text) = text.filter(|text| text.len() <= MAX_SNIPPET && !self.source.is_empty()) {
                write_snippet(f, text, column)?;
            }
        }
        if self.issues.len() > MAX_ERRORS {
            write!(f, "\n{} more errors were truncated", self.issues.len() - MAX_ERRORS)?;
        }
        Ok(())
    }
}

fn write_snippet(f: &mut fmt::Formatter<'_>, text: &str, column: i64) -> fmt::Result {
    write!(f, "\n | {}\n | ", text.replace('\t', " "))?;
    let mut chars = text.chars();
    for _ in 0..column {
        match chars.next() {
            Some(c) if c.len_utf8() > 1 => f.write_str("．")?,
            Some(_) => f.write_str(".")?,
            None => break,
        }
    }
    match chars.next() {
        Some(c) if c.len_utf8() > 1 => f.write_str("＾"),
        _ => f.write_str("^"),
    }
}

/// Line from 1 and column from 0; an offset that is nowhere is line -1.
fn locate(lines: &[&str], offset: i32) -> (i64, i64) {
    if offset == NOWHERE {
        return (-1, -1);
    }
    // Nothing to point at in an empty expression.
    if lines == [""] {
        return (1, -1);
    }
    let mut left = i64::from(offset);
    for (i, line) in lines.iter().enumerate() {
        let length = line.chars().count() as i64;
        if left <= length || i + 1 == lines.len() {
            return (i as i64 + 1, left);
        }
        left -= length + 1;
    }
    (1, left)
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn errors_are_sorted_and_point_below_their_line() {
        let errors = CompileErrors::new(
            "a\n\tbé c",
            vec![
                Issue {
                    offset: 6,
                    message: "second".into(),
                },
                Issue {
                    offset: 0,
                    message: "first".into(),
                },
            ],
        );
        expect![[r#"
            ERROR: <input>:1:1: first
             | a
             | ^
            ERROR: <input>:2:5: second
             |  bé c
             | ..．.^"#]]
        .assert_eq(&errors.to_string());
    }
}

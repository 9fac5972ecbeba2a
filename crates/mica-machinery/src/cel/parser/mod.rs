//! Text to tree, by CEL's grammar.
//!
//! Text that is well-formed is read by recursive descent (`descend`). Where that fails, `repair` reads it again as
//! upstream's generated parser does, for the sake of its errors, which clients see. Both make a parse tree, of which
//! `visit` makes the syntax tree.
//! Depth and size are bounded as upstream bounds them, so that nothing which walks a tree needs to fear for its stack.

mod descend;
mod grammar;
mod network;
mod predict;
mod repair;
mod tree;
mod visit;

pub(super) use visit::Visitor;

use crate::cel::ast::{Call, Expr, Id, Kind, Positions};
use crate::cel::lexer::{Lexeme, lex};
use crate::cel::source::{CompileErrors, Issue};
use tree::Word;

/// Characters in an expression.
pub(super) const MAX_SIZE: usize = 100_000;

/// How deep one grammar rule may nest, and how deep the tree may be.
const MAX_DEPTH: u32 = 250;

/// A parsed expression and where its nodes stand.
#[derive(Debug, Clone)]
pub struct Parsed {
    pub root: Expr,
    pub positions: Positions,
}

pub fn parse(source: &str) -> Result<Parsed, CompileErrors> {
    let chars: Vec<char> = source.chars().collect();
    if chars.len() > MAX_SIZE {
        let message = format!(
            "expression code point size exceeds limit: size: {}, limit {MAX_SIZE}",
            chars.len()
        );
        return Err(CompileErrors::new(source, vec![Issue::nowhere(message)]));
    }
    let lexed = lex(&chars);
    let well_formed = match lexed.unknown.is_empty() {
        true => descend::descend(&lexed.lexemes).ok(),
        false => None,
    };
    let (tree, issues) = match well_formed {
        Some(tree) => (Some(tree), Vec::new()),
        None => repair::repair(&chars, &lexed),
    };
    let Some((tree, root)) = tree else {
        return Err(CompileErrors::new(source, issues));
    };
    match visit::visit(&chars, &tree, root, issues) {
        (Some(root), positions, issues) if issues.is_empty() => Ok(Parsed { root, positions }),
        (_, _, issues) => Err(CompileErrors::new(source, issues)),
    }
}

fn syntax_error(offset: usize, message: &str) -> Issue {
    Issue {
        offset: offset as i32,
        message: format!("Syntax error: {message}"),
    }
}

fn too_deep() -> Issue {
    Issue::nowhere(format!("expression recursion limit exceeded: {MAX_DEPTH}"))
}

impl From<Lexeme> for Word {
    fn from(lexeme: Lexeme) -> Self {
        Self {
            token: lexeme.token,
            start: lexeme.start,
            end: lexeme.end,
        }
    }
}

pub(super) fn global(id: Id, function: &str, args: Vec<Expr>) -> Expr {
    Expr {
        id,
        kind: Kind::Call(Box::new(Call {
            target: None,
            function: function.to_owned(),
            args,
        })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;

    /// Whether `descend` and `repair` say so of the same text.
    fn well_formed(text: &str) -> (bool, bool) {
        let chars: Vec<char> = text.chars().collect();
        let lexed = lex(&chars);
        let read = lexed.unknown.is_empty() && descend::descend(&lexed.lexemes).is_ok();
        let (_, issues) = repair::repair(&chars, &lexed);
        (read, issues.is_empty())
    }

    #[test]
    fn what_descends_needs_no_repair_and_nothing_else_does() {
        for line in include_str!("../tests/cases.jsonl").lines() {
            let case: Value = serde_json::from_str(line).expect("a case");
            let text = case["expr"].as_str().expect("an expression");
            let (read, whole) = well_formed(text);
            assert_eq!(read, whole, "{text}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.max(2000), failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn short_texts_descend_or_are_repaired(
            words in prop::collection::vec(prop::sample::select(&["a", "b", "1", "'t'", "-", "!", "+", "==", "&&", "||", "?", ":", ".", "(", ")", "[", "]", "{", "}", ","][..]), 0..8)
        ) {
            let text = words.concat();
            let (read, whole) = well_formed(&text);
            prop_assert_eq!(read, whole, "{}", text);
        }
    }
}

//! Patterns of schemas: each expression is compiled when it is first used, and once however many places have it.
//!
//! Definitions repeat themselves: the expression of a quantity or of a label stands in most of them, dozens of times. A
//! compiled expression takes tens of kilobytes, more than all else that is kept of a place.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError, Weak};

use regex::Regex;

use super::pattern::compile;

/// An expression, shared with all that are the same.
#[derive(Debug)]
pub struct Pattern {
    source: Box<str>,
    shared: OnceLock<Arc<Matcher>>,
}

/// What compiling an expression gave.
type Matcher = Result<Regex, String>;

impl Pattern {
    pub fn new(source: &str) -> Self {
        Self {
            source: source.into(),
            shared: OnceLock::new(),
        }
    }

    pub fn source(&self) -> &str {
        &self.source
    }

    /// Whether the expression matches anywhere in the text, or why it cannot be used.
    pub fn matches(&self, text: &str) -> Result<bool, &str> {
        match &**self.shared.get_or_init(|| matcher(&self.source)) {
            Ok(regex) => Ok(regex.is_match(text)),
            Err(error) => Err(error),
        }
    }
}

/// Expressions that somebody uses.
static IN_USE: LazyLock<Mutex<HashMap<Box<str>, Weak<Matcher>>>> = LazyLock::new(Mutex::default);

/// Dead entries are looked for when the number of entries is a multiple of this.
const SWEEP: usize = 256;

fn matcher(source: &str) -> Arc<Matcher> {
    let in_use = || IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(found) = in_use().get(source).and_then(Weak::upgrade) {
        return found;
    }
    // Not under the lock: compiling a large expression takes milliseconds.
    let made = Arc::new(compile(source));
    let mut in_use = in_use();
    if let Some(found) = in_use.get(source).and_then(Weak::upgrade) {
        return found;
    }
    in_use.insert(source.into(), Arc::downgrade(&made));
    if in_use.len().is_multiple_of(SWEEP) {
        in_use.retain(|_, entry| entry.strong_count() > 0);
    }
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_expressions_are_compiled_once_and_let_go() {
        let source = "^only-in-this-test-[a-z]+$";
        let (one, other) = (Pattern::new(source), Pattern::new(source));
        assert_eq!(one.matches("only-in-this-test-a"), Ok(true));
        assert_eq!(other.matches("only-in-this-test-1"), Ok(false));
        let compiled = |pattern: &Pattern| pattern.shared.get().unwrap().clone();
        assert!(Arc::ptr_eq(&compiled(&one), &compiled(&other)));
        let left = Arc::downgrade(&compiled(&one));
        drop((one, other));
        assert!(left.upgrade().is_none());
    }

    #[test]
    fn an_expression_that_is_none_says_why_each_time() {
        for _ in 0..2 {
            let error = Pattern::new("(").matches("x").unwrap_err().to_owned();
            assert_eq!(error, "error parsing regexp: missing closing ): `(`");
        }
    }
}

//! What the functions do, one module per library, and the table that finds them by name.
//!
//! Functions look at the values they get, not at the overload that the checker chose: with `dyn` arguments only the values
//! tell. An argument of the wrong type is the error "no such overload".

mod address;
pub mod authz;
pub mod compare;
pub mod convert;
mod float;
pub mod format;
pub mod formatting;
pub mod ip;
pub mod lists;
pub mod operators;
pub mod optional;
pub mod quantity;
pub mod regex;
pub mod semver;
pub mod strings;
pub mod time;
pub mod url;

use super::value::{self, Entries, Val};

/// Why an evaluation has no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EvalError {
    #[error("{0}")]
    Failed(String),
    /// Nothing absorbs this one: not `||`, not `orValue`.
    #[error("operation cancelled: actual cost limit exceeded")]
    CostExceeded,
    /// Where upstream's evaluator breaks down, it says so, and nothing absorbs that either.
    #[error("internal error: {0}")]
    Broken(String),
}

impl EvalError {
    pub fn failed(message: impl Into<String>) -> Self {
        Self::Failed(message.into())
    }

    /// Whether the evaluation is over with it, whatever stands around.
    pub fn is_fatal(&self) -> bool {
        matches!(self, Self::CostExceeded | Self::Broken(_))
    }

    pub fn no_overload() -> Self {
        Self::Failed("no such overload".to_owned())
    }
}

impl From<String> for EvalError {
    fn from(message: String) -> Self {
        Self::Failed(message)
    }
}

/// How many bytes are copied for one step: 10 million steps are some 100 MB.
const BYTES_A_STEP: u64 = 10;

/// What functions may use besides their arguments.
pub struct Host<'h> {
    pub(super) steps: u64,
    pub(super) authorizer: Option<&'h dyn authz::Authorizer>,
}

impl Host<'_> {
    /// Counts work that the cost model does not see (comparing nested lists that share their parts, say), so that no
    /// function runs for ever.
    pub fn work(&mut self, steps: u64) -> Result<(), EvalError> {
        self.steps = self.steps.checked_sub(steps).ok_or(EvalError::CostExceeded)?;
        Ok(())
    }

    /// Counts the copying of this many bytes. What values share is copied as often as it is used.
    pub fn copy(&mut self, bytes: usize) -> Result<(), EvalError> {
        self.work(bytes as u64 / BYTES_A_STEP)
    }

    /// Adds an entry to a map under construction; a later one of the same key replaces it.
    pub fn put<'a>(&mut self, entries: &mut Entries<'a>, key: Val<'a>, value: Val<'a>) -> Result<(), EvalError> {
        if let Val::String(text) = &key {
            self.copy(text.len())?;
        }
        value::put(entries, key, value);
        Ok(())
    }
}

pub type Outcome<'a> = Result<Val<'a>, EvalError>;
pub type Implementation = for<'a> fn(&mut Host<'_>, &[Val<'a>]) -> Outcome<'a>;

/// The implementation of the function `name`.
pub fn find(name: &str) -> Option<Implementation> {
    operators::find(name)
        .or_else(|| convert::find(name))
        .or_else(|| strings::find(name))
        .or_else(|| regex::find(name))
        .or_else(|| lists::find(name))
        .or_else(|| time::find(name))
        .or_else(|| optional::find(name))
        .or_else(|| network(name))
        .or_else(|| kubernetes(name))
}

fn network(name: &str) -> Option<Implementation> {
    ip::find(name).or_else(|| url::find(name))
}

fn kubernetes(name: &str) -> Option<Implementation> {
    quantity::find(name)
        .or_else(|| semver::find(name))
        .or_else(|| format::find(name))
        .or_else(|| authz::find(name))
}

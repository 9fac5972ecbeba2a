//! What a value does not satisfy, before it is put into the words of a field error.
//!
//! Upstream finds these in one library, which knows only a path in a text, and words them in another; the seams show in the
//! texts: most say "in body", and those about junctors name no field at all.

use std::collections::HashSet;

use serde_json::Value;

use super::go;
use crate::field::{Error, ErrorList, Path, Reason};

#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Failure {
    /// Where: `spec.list[0].name`; empty at the root.
    pub(crate) place: String,
    pub(crate) kind: Kind,
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Kind {
    Required,
    /// The value is none of these.
    Enumeration {
        value: Value,
        allowed: Vec<Value>,
    },
    TooLong(i64),
    TooMany {
        actual: usize,
        max: i64,
    },
    /// Of the wrong type, or not of the right format.
    Type {
        value: Value,
        text: String,
    },
    Invalid {
        value: Value,
        text: String,
    },
    /// About the whole; the text names the place.
    Loose(String),
}

impl Failure {
    /// What tells one failure from another: equal ones are reported once.
    fn identity(&self) -> String {
        match &self.kind {
            Kind::Required => format!("{} in body is required", self.place),
            Kind::Enumeration { allowed, .. } => format!("{} in body should be one of {allowed:?}", self.place),
            Kind::TooLong(max) => format!("{} in body should be at most {max} chars long", self.place),
            Kind::TooMany { max, .. } => format!("{} in body should have at most {max}", self.place),
            Kind::Type { text, .. } | Kind::Invalid { text, .. } | Kind::Loose(text) => text.clone(),
        }
    }

    fn into_error(self, base: &Path) -> Error {
        let path = match self.place.trim_start_matches('.') {
            "" => base.clone(),
            place => base.child(place),
        };
        match self.kind {
            Kind::Required => Error::required(&path, ""),
            Kind::Enumeration { value, allowed } => {
                let texts: Vec<String> = allowed.iter().map(plain).collect();
                let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
                show_as_go(Error::not_supported(&path, value, &texts))
            }
            Kind::TooLong(max) => {
                let max = usize::try_from(max);
                let without = || Error::new(Reason::TooLong, &path, None, "value is too long");
                max.map_or_else(|_| without(), |max| Error::too_long(&path, max))
            }
            Kind::TooMany { actual, max } => {
                let max = usize::try_from(max);
                let without = || Error::new(Reason::TooMany, &path, Some(actual.into()), "has too many items");
                max.map_or_else(|_| without(), |max| Error::too_many(&path, actual, max))
            }
            Kind::Type { value, text } => show_as_go(Error::type_invalid(&path, value, text)),
            Kind::Invalid { value, text } => show_as_go(Error::invalid(&path, value, text)),
            Kind::Loose(text) => Error::invalid(base, "", text),
        }
    }
}

/// An allowed value as the list of them shows it: texts as they are, all else as JSON.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Errors print floats as Go does, not as JSON.
pub(crate) fn show_as_go(mut error: Error) -> Error {
    if let Some(text) = error.value.as_ref().and_then(go::unlike_json)
        && matches!(
            error.reason,
            Reason::Invalid | Reason::TypeInvalid | Reason::NotSupported | Reason::Duplicate
        )
    {
        error.value = None;
        error.detail = if error.detail.is_empty() {
            text
        } else {
            format!("{text}: {}", error.detail)
        };
    }
    error
}

/// What checking a value found.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) failures: Vec<Failure>,
    /// How many checks were made and passed: of several alternatives that all fail, the one that came furthest is shown.
    pub(crate) matches: u64,
}

impl Outcome {
    pub(crate) fn fail(&mut self, place: &str, kind: Kind) {
        self.failures.push(Failure {
            place: place.to_owned(),
            kind,
        });
    }

    pub(crate) fn is_valid(&self) -> bool {
        self.failures.is_empty()
    }

    pub(crate) fn merge(&mut self, other: Outcome) {
        self.failures.extend(other.failures);
        self.matches += other.matches;
    }

    /// The failures as errors below `base`, each once.
    pub(crate) fn into_errors(self, base: &Path) -> ErrorList {
        let mut seen = HashSet::with_capacity(self.failures.len());
        let fresh = self
            .failures
            .into_iter()
            .filter(|failure| seen.insert(failure.identity()));
        fresh.map(|failure| failure.into_error(base)).collect()
    }
}

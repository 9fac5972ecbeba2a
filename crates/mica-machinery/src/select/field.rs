//! Field selectors: `metadata.name=a,status.phase!=Running`.
//!
//! Knows the text only. Which fields a kind offers, and their values, the server says: it resolves `metadata.name` and
//! `metadata.namespace` itself and asks the kind for the rest.

use std::fmt;

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FieldSelectorError {
    #[error("invalid selector: '{selector}'; can't understand '{term}'")]
    Term { selector: String, term: String },
    #[error("invalid field selector: invalid escape sequence: {0}")]
    Escape(String),
    /// The code of the character, as upstream prints it.
    #[error("invalid field selector: unescaped character in value: {}", u32::from(*.0))]
    Unescaped(char),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FieldOperator {
    Equals,
    NotEquals,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FieldTerm {
    pub field: String,
    pub operator: FieldOperator,
    pub value: String,
}

/// All terms must hold; the default selects everything.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FieldSelector {
    terms: Vec<FieldTerm>,
}

impl FieldSelector {
    pub fn parse(text: &str) -> Result<Self, FieldSelectorError> {
        let mut parts = split_terms(text);
        parts.sort_unstable();
        let mut terms = Vec::new();
        for part in parts.into_iter().filter(|part| !part.is_empty()) {
            let unknown = || FieldSelectorError::Term {
                selector: text.to_owned(),
                term: part.to_owned(),
            };
            let (field, operator, value) = split_term(part).ok_or_else(unknown)?;
            let value = unescape(value)?;
            // Upstream takes a term of two empty sides for none.
            if !(field.is_empty() && value.is_empty()) {
                terms.push(FieldTerm {
                    field: field.to_owned(),
                    operator,
                    value,
                });
            }
        }
        Ok(Self { terms })
    }

    /// Selects the one object of that name.
    pub fn by_name(name: &str) -> Self {
        let field = "metadata.name".to_owned();
        Self {
            terms: vec![FieldTerm {
                field,
                operator: FieldOperator::Equals,
                value: name.to_owned(),
            }],
        }
    }

    pub fn terms(&self) -> &[FieldTerm] {
        &self.terms
    }

    pub fn is_everything(&self) -> bool {
        self.terms.is_empty()
    }

    /// The value that a field must have, if a term says so.
    pub fn exact(&self, field: &str) -> Option<&str> {
        let term = self
            .terms
            .iter()
            .find(|term| term.field == field && term.operator == FieldOperator::Equals)?;
        Some(&term.value)
    }

    /// Whether all terms hold; `value` gives a field's value, the empty string if the object has none.
    pub fn matches<V: AsRef<str>>(&self, mut value: impl FnMut(&str) -> V) -> bool {
        self.terms.iter().all(|term| {
            let equal = value(&term.field).as_ref() == term.value;
            equal == (term.operator == FieldOperator::Equals)
        })
    }
}

impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, term) in self.terms.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            let operator = if term.operator == FieldOperator::Equals {
                "="
            } else {
                "!="
            };
            write!(f, "{comma}{}{operator}{}", term.field, escape_value(&term.value))?;
        }
        Ok(())
    }
}

/// A value as it must be written in a selector.
pub fn escape_value(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for c in value.chars() {
        if matches!(c, '\\' | ',' | '=') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

fn unescape(value: &str) -> Result<String, FieldSelectorError> {
    let mut out = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(escaped @ ('\\' | ',' | '=')) => out.push(escaped),
                Some(other) => return Err(FieldSelectorError::Escape(format!("\\{other}"))),
                None => return Err(FieldSelectorError::Escape("\\".to_owned())),
            },
            ',' | '=' => return Err(FieldSelectorError::Unescaped(c)),
            c => out.push(c),
        }
    }
    Ok(out)
}

/// The terms between commas that are not escaped.
fn split_terms(text: &str) -> Vec<&str> {
    let (mut terms, mut start, mut escaped) = (Vec::new(), 0, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                terms.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

/// Splits at the first operator.
fn split_term(term: &str) -> Option<(&str, FieldOperator, &str)> {
    for (at, c) in term.char_indices() {
        let rest = &term[at..];
        if let Some(value) = rest.strip_prefix("!=") {
            return Some((&term[..at], FieldOperator::NotEquals, value));
        }
        if c == '=' {
            let value = rest.strip_prefix("==").unwrap_or(&rest[1..]);
            return Some((&term[..at], FieldOperator::Equals, value));
        }
    }
    None
}

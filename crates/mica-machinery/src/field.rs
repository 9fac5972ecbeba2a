//! Validation errors that name a field, with the texts of upstream's `field.Error`.

use std::fmt;

use indexmap::IndexSet;
use serde_json::Value;

use crate::codec;
pub use crate::codec::text::quote;

/// The place of a field: `spec.rules[0].verbs`, `metadata.labels[a]`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Path(String);

impl Path {
    pub fn new(root: &str) -> Self {
        Self(root.to_owned())
    }

    #[must_use]
    pub fn child(&self, name: &str) -> Self {
        if self.0.is_empty() {
            Self::new(name)
        } else {
            self.joined([".", name, ""])
        }
    }

    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        self.joined(["[", itoa::Buffer::new().format(index), "]"])
    }

    #[must_use]
    pub fn key(&self, key: &str) -> Self {
        self.joined(["[", key, "]"])
    }

    /// Paths are made on every validation and seldom printed: without the machinery of `format!`.
    fn joined(&self, parts: [&str; 3]) -> Self {
        let mut path = String::with_capacity(self.0.len() + parts.iter().map(|part| part.len()).sum::<usize>());
        path.push_str(&self.0);
        parts.into_iter().for_each(|part| path.push_str(part));
        Self(path)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Path {
    /// A path to nothing prints as upstream's nil path does.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "<nil>" } else { &self.0 })
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    NotFound,
    Required,
    Duplicate,
    Invalid,
    NotSupported,
    Forbidden,
    TooLong,
    TooMany,
    TooFew,
    Internal,
    TypeInvalid,
    TooShort,
}

impl Reason {
    /// The machine-readable reason of a Status cause.
    pub fn cause(self) -> &'static str {
        match self {
            Self::NotFound => "FieldValueNotFound",
            Self::Required => "FieldValueRequired",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::TooFew => "FieldValueTooFew",
            Self::Internal => "InternalError",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::TooShort => "FieldValueTooShort",
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::NotFound => "Not found",
            Self::Required => "Required value",
            Self::Duplicate => "Duplicate value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
            Self::TooFew => "Too few",
            Self::Internal => "Internal error",
            Self::TooShort => "Too short",
        }
    }

    /// Whether the text leaves the value out.
    fn hides_value(self) -> bool {
        matches!(
            self,
            Self::Required | Self::Forbidden | Self::TooLong | Self::TooShort | Self::Internal
        )
    }
}

#[derive(Clone, PartialEq, Debug)]
pub struct Error {
    pub reason: Reason,
    pub field: String,
    /// The offending value; `None` leaves it out of the text.
    pub value: Option<Value>,
    pub detail: String,
}

pub type ErrorList = Vec<Error>;

impl Error {
    pub(crate) fn new(reason: Reason, path: &Path, value: Option<Value>, detail: impl Into<String>) -> Self {
        Self {
            reason,
            field: path.to_string(),
            value,
            detail: detail.into(),
        }
    }

    pub fn not_found(path: &Path, value: impl Into<Value>) -> Self {
        Self::new(Reason::NotFound, path, Some(value.into()), "")
    }

    pub fn required(path: &Path, detail: impl Into<String>) -> Self {
        Self::new(Reason::Required, path, None, detail)
    }

    pub fn duplicate(path: &Path, value: impl Into<Value>) -> Self {
        Self::new(Reason::Duplicate, path, Some(value.into()), "")
    }

    pub fn invalid(path: &Path, value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self::new(Reason::Invalid, path, Some(value.into()), detail)
    }

    pub fn type_invalid(path: &Path, value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self::new(Reason::TypeInvalid, path, Some(value.into()), detail)
    }

    pub fn not_supported(path: &Path, value: impl Into<Value>, supported: &[&str]) -> Self {
        let quoted: Vec<String> = supported.iter().map(|value| quote(value)).collect();
        let detail = if quoted.is_empty() {
            String::new()
        } else {
            format!("supported values: {}", quoted.join(", "))
        };
        Self::new(Reason::NotSupported, path, Some(value.into()), detail)
    }

    pub fn forbidden(path: &Path, detail: impl Into<String>) -> Self {
        Self::new(Reason::Forbidden, path, None, detail)
    }

    pub fn too_long(path: &Path, max_bytes: usize) -> Self {
        let unit = if max_bytes == 1 { "byte" } else { "bytes" };
        Self::new(
            Reason::TooLong,
            path,
            None,
            format!("may not be more than {max_bytes} {unit}"),
        )
    }

    pub fn too_many(path: &Path, actual: usize, max: usize) -> Self {
        let unit = if max == 1 { "item" } else { "items" };
        Self::new(
            Reason::TooMany,
            path,
            Some(actual.into()),
            format!("must have at most {max} {unit}"),
        )
    }

    pub fn internal(path: &Path, detail: impl Into<String>) -> Self {
        Self::new(Reason::Internal, path, None, detail)
    }

    /// The text without the field's name, as in a Status cause.
    pub fn body(&self) -> String {
        let mut text = self.reason.text().to_owned();
        if !self.reason.hides_value() {
            match &self.value {
                None => {}
                Some(Value::String(value)) => {
                    text.push_str(": ");
                    text.push_str(&quote(value));
                }
                Some(value @ (Value::Array(_) | Value::Object(_))) => {
                    let mut json = Vec::new();
                    codec::encode_untyped(value, &mut json);
                    text.push_str(": ");
                    text.push_str(&String::from_utf8_lossy(&json));
                }
                Some(value) => {
                    text.push_str(": ");
                    text.push_str(&value.to_string());
                }
            }
        }
        if !self.detail.is_empty() {
            text.push_str(": ");
            text.push_str(&self.detail);
        }
        text
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.body())
    }
}

/// The message of several errors as upstream's aggregate prints it: alone, or bracketed, each text once.
pub fn aggregate(errors: &[Error]) -> String {
    // A hostile object has as many errors as it has items: no search through all texts for each.
    let texts: IndexSet<String> = errors.iter().map(ToString::to_string).collect();
    match &texts.into_iter().collect::<Vec<_>>()[..] {
        [] => String::new(),
        [only] => only.clone(),
        many => format!("[{}]", many.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn texts_are_upstreams() {
        let path = Path::new("spec").child("rules").index(0).key("a");
        assert_eq!(
            Error::required(&path, "").to_string(),
            "spec.rules[0][a]: Required value"
        );
        assert_eq!(
            Error::invalid(&path, "x\n", "bad").body(),
            r#"Invalid value: "x\n": bad"#
        );
        assert_eq!(Error::invalid(&path, 3, "bad").body(), "Invalid value: 3: bad");
        assert_eq!(
            Error::invalid(&path, json!({"a": 1}), "bad").body(),
            r#"Invalid value: {"a":1}: bad"#
        );
        assert_eq!(
            Error::invalid(&path, json!({"a": ["<", 1e20]}), "bad").body(),
            r#"Invalid value: {"a":["\u003c",100000000000000000000]}: bad"#
        );
        assert_eq!(
            Error::not_supported(&path, "x", &["a", "b"]).body(),
            r#"Unsupported value: "x": supported values: "a", "b""#
        );
        assert_eq!(
            Error::too_long(&path, 63).body(),
            "Too long: may not be more than 63 bytes"
        );
        assert_eq!(
            Error::too_many(&path, 3, 1).body(),
            "Too many: 3: must have at most 1 item"
        );
    }

    #[test]
    fn an_aggregate_brackets_several_and_drops_repeats() {
        let path = Path::new("a");
        let (one, two) = (Error::required(&path, ""), Error::forbidden(&path, "no"));
        assert_eq!(aggregate(&[one.clone(), one.clone()]), "a: Required value");
        assert_eq!(aggregate(&[one, two]), "[a: Required value, a: Forbidden: no]");
    }
}

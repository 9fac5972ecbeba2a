//! Label selectors, compiled: requirements that all must hold.

use std::fmt;

use serde_json::{Map, Value};

use super::parse;
use crate::field::{Error, ErrorList, Path, aggregate};
use crate::names::{label_errors, label_key, label_value};
use crate::object;

/// Why there is no selector, in upstream's words.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct LabelSelectorError(pub(super) String);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operator {
    In,
    NotIn,
    Equals,
    DoubleEquals,
    NotEquals,
    GreaterThan,
    LessThan,
    Exists,
    DoesNotExist,
}

/// Labels that can be asked by key.
pub trait Labels {
    fn label(&self, key: &str) -> Option<&str>;
}

impl Labels for Map<String, Value> {
    fn label(&self, key: &str) -> Option<&str> {
        self.get(key).map(|value| value.as_str().unwrap_or_default())
    }
}

/// A value that is a map of labels; anything else has none.
impl Labels for Value {
    fn label(&self, key: &str) -> Option<&str> {
        self.as_object().and_then(|labels| labels.label(key))
    }
}

/// One condition on one label.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Requirement {
    key: String,
    operator: Operator,
    values: Vec<String>,
    /// The number of `gt` and `lt`.
    number: i64,
}

impl Requirement {
    /// A requirement that is well formed, or everything that is wrong with it.
    pub fn new(key: &str, operator: Operator, values: Vec<String>) -> Result<Self, LabelSelectorError> {
        let mut errors = ErrorList::new();
        key_errors(key, &Path::new("key"), &mut errors);
        let path = Path::new("values");
        let number = value_count_errors(operator, &values, &path, &mut errors);
        for (at, value) in values.iter().enumerate() {
            let texts = label_value(value);
            if !texts.is_empty() {
                errors.push(Error::invalid(
                    &path.index(at).key(key),
                    value.as_str(),
                    texts.join("; "),
                ));
            }
        }
        if !errors.is_empty() {
            return Err(LabelSelectorError(aggregate(&errors)));
        }
        Ok(Self {
            key: key.to_owned(),
            operator,
            values,
            number,
        })
    }

    pub fn key(&self) -> &str {
        &self.key
    }

    pub fn operator(&self) -> Operator {
        self.operator
    }

    pub fn values(&self) -> &[String] {
        &self.values
    }

    pub fn matches(&self, labels: &impl Labels) -> bool {
        let label = labels.label(&self.key);
        let listed = |label: &str| self.values.iter().any(|value| value == label);
        let number = || label.and_then(|label| label.parse::<i64>().ok());
        match self.operator {
            Operator::In | Operator::Equals | Operator::DoubleEquals => label.is_some_and(listed),
            Operator::NotIn | Operator::NotEquals => !label.is_some_and(listed),
            Operator::Exists => label.is_some(),
            Operator::DoesNotExist => label.is_none(),
            Operator::GreaterThan => number().is_some_and(|label| label > self.number),
            Operator::LessThan => number().is_some_and(|label| label < self.number),
        }
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut values: Vec<&str> = self.values.iter().map(String::as_str).collect();
        values.sort_unstable();
        let (key, values) = (&self.key, values.join(","));
        match self.operator {
            Operator::Equals => write!(f, "{key}={values}"),
            Operator::DoubleEquals => write!(f, "{key}=={values}"),
            Operator::NotEquals => write!(f, "{key}!={values}"),
            Operator::In => write!(f, "{key} in ({values})"),
            Operator::NotIn => write!(f, "{key} notin ({values})"),
            Operator::GreaterThan => write!(f, "{key}>{values}"),
            Operator::LessThan => write!(f, "{key}<{values}"),
            Operator::Exists => f.write_str(key),
            Operator::DoesNotExist => write!(f, "!{key}"),
        }
    }
}

/// All requirements must hold; the default selects everything.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LabelSelector {
    requirements: Vec<Requirement>,
    /// A selector that was not given at all selects nothing.
    nothing: Nothing,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Nothing {
    #[default]
    No,
    Yes,
}

impl LabelSelector {
    pub fn everything() -> Self {
        Self::default()
    }

    pub fn nothing() -> Self {
        Self {
            requirements: Vec::new(),
            nothing: Nothing::Yes,
        }
    }

    /// Reads `a in (b,c),!d`.
    pub fn parse(text: &str) -> Result<Self, LabelSelectorError> {
        parse::parse(text).map(Self::from_requirements)
    }

    /// Compiles a `metav1.LabelSelector`: absent or null selects nothing, an empty one everything.
    pub fn from_value(selector: Option<&Value>) -> Result<Self, LabelSelectorError> {
        let Some(selector) = selector.filter(|selector| !selector.is_null()) else {
            return Ok(Self::nothing());
        };
        let mut requirements = Vec::new();
        for (key, value) in object::map(selector, &["matchLabels"]).into_iter().flatten() {
            let values = vec![value.as_str().unwrap_or_default().to_owned()];
            requirements.push(Requirement::new(key, Operator::Equals, values)?);
        }
        for expression in object::list(selector, &["matchExpressions"]) {
            requirements.push(from_expression(expression)?);
        }
        Ok(Self::from_requirements(requirements))
    }

    fn from_requirements(mut requirements: Vec<Requirement>) -> Self {
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Self {
            requirements,
            nothing: Nothing::No,
        }
    }

    /// Whether every object matches.
    pub fn is_everything(&self) -> bool {
        self.requirements.is_empty() && self.nothing == Nothing::No
    }

    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }

    pub fn matches(&self, labels: &impl Labels) -> bool {
        self.nothing == Nothing::No && self.requirements.iter().all(|requirement| requirement.matches(labels))
    }

    /// Whether an object with these `metadata.labels` matches.
    pub fn matches_object(&self, object: &Value) -> bool {
        self.matches(object::get(object, &["metadata", "labels"]).unwrap_or(&Value::Null))
    }
}

impl fmt::Display for LabelSelector {
    /// The canonical form: sorted by key, values sorted.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, requirement) in self.requirements.iter().enumerate() {
            if at > 0 {
                f.write_str(",")?;
            }
            requirement.fmt(f)?;
        }
        Ok(())
    }
}

fn from_expression(expression: &Value) -> Result<Requirement, LabelSelectorError> {
    let operator = match object::string(expression, &["operator"]) {
        "In" => Operator::In,
        "NotIn" => Operator::NotIn,
        "Exists" => Operator::Exists,
        "DoesNotExist" => Operator::DoesNotExist,
        other => {
            let quoted = crate::field::quote(other);
            return Err(LabelSelectorError(format!(
                "{quoted} is not a valid label selector operator"
            )));
        }
    };
    let values = object::list(expression, &["values"]);
    let values = values
        .iter()
        .map(|value| value.as_str().unwrap_or_default().to_owned())
        .collect();
    Requirement::new(object::string(expression, &["key"]), operator, values)
}

/// What validation lets pass that a selector could not be compiled from, for the sake of what is already stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Tolerance {
    #[default]
    None,
    /// Values that are no label values, because the old object had such.
    InvalidValues,
    /// Operators that this server does not know (access reviews).
    UnknownOperators,
}

/// What is wrong with a `metav1.LabelSelector`.
pub fn label_selector_errors(selector: &Value, tolerance: Tolerance, path: &Path) -> ErrorList {
    let mut errors = object::get(selector, &["matchLabels"])
        .map(|labels| label_errors(labels, &path.child("matchLabels")))
        .unwrap_or_default();
    for (at, requirement) in object::list(selector, &["matchExpressions"]).iter().enumerate() {
        errors.extend(requirement_errors(
            requirement,
            tolerance,
            &path.child("matchExpressions").index(at),
        ));
    }
    errors
}

/// What is wrong with a `metav1.LabelSelectorRequirement`.
pub fn requirement_errors(requirement: &Value, tolerance: Tolerance, path: &Path) -> ErrorList {
    let mut errors = ErrorList::new();
    let values = object::list(requirement, &["values"]);
    match object::string(requirement, &["operator"]) {
        "In" | "NotIn" if values.is_empty() => {
            let detail = "must be specified when `operator` is 'In' or 'NotIn'";
            errors.push(Error::required(&path.child("values"), detail));
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            errors.push(Error::forbidden(&path.child("values"), detail));
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        other if tolerance != Tolerance::UnknownOperators => {
            errors.push(Error::invalid(
                &path.child("operator"),
                other,
                "not a valid selector operator",
            ));
        }
        _ => {}
    }
    let key = object::string(requirement, &["key"]);
    errors.extend(
        label_key(key)
            .into_iter()
            .map(|text| Error::invalid(&path.child("key"), key, text)),
    );
    if tolerance != Tolerance::InvalidValues {
        for (at, value) in values.iter().enumerate() {
            let (path, value) = (path.child("values").index(at), value.as_str().unwrap_or_default());
            errors.extend(
                label_value(value)
                    .into_iter()
                    .map(|text| Error::invalid(&path, value, text)),
            );
        }
    }
    errors
}

pub(super) fn key_errors(key: &str, path: &Path, errors: &mut ErrorList) {
    let texts = label_key(key);
    if !texts.is_empty() {
        errors.push(Error::invalid(path, key, texts.join("; ")));
    }
}

/// Checks how many values there are, and returns the number of `gt` and `lt`.
fn value_count_errors(operator: Operator, values: &[String], path: &Path, errors: &mut ErrorList) -> i64 {
    let text = match operator {
        Operator::In | Operator::NotIn if values.is_empty() => "for 'in', 'notin' operators, values set can't be empty",
        Operator::Equals | Operator::DoubleEquals | Operator::NotEquals if values.len() != 1 => {
            "exact-match compatibility requires one single value"
        }
        Operator::Exists | Operator::DoesNotExist if !values.is_empty() => {
            "values set must be empty for exists and does not exist"
        }
        Operator::GreaterThan | Operator::LessThan if values.len() != 1 => {
            "for 'Gt', 'Lt' operators, exactly one value is required"
        }
        _ => "",
    };
    if !text.is_empty() {
        errors.push(Error::invalid(path, values.to_vec(), text));
    }
    if !matches!(operator, Operator::GreaterThan | Operator::LessThan) {
        return 0;
    }
    let mut number = 0;
    for (at, value) in values.iter().enumerate() {
        match value.parse() {
            Ok(value) => number = value,
            Err(_) => {
                let detail = "for 'Gt', 'Lt' operators, the value must be an integer";
                errors.push(Error::invalid(&path.index(at), value.as_str(), detail));
            }
        }
    }
    number
}

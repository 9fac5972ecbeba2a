//! The scale subresource: where a definition keeps replicas and selector, and what may stand there.
//!
//! Paths are dotted names, not JSONPath.

use serde_json::Value;

use crate::field::{Error, ErrorList, Path};
use crate::object;

/// The paths of a version's `subresources.scale`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scale {
    pub spec_replicas: String,
    pub status_replicas: String,
    pub label_selector: Option<String>,
}

/// A value at a path that has the wrong type.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{path} accessor error: {found} is of the type {found_type}, expected {wanted}")]
pub struct WrongType {
    path: String,
    found: String,
    found_type: &'static str,
    wanted: &'static str,
}

impl Scale {
    /// The paths, if the version has the subresource.
    pub fn of(version: &Value) -> Option<Self> {
        let scale = version
            .get("subresources")?
            .get("scale")
            .filter(|scale| !scale.is_null())?;
        let text = |name: &str| scale.get(name).and_then(Value::as_str).map(str::to_owned);
        Some(Scale {
            spec_replicas: text("specReplicasPath")?,
            status_replicas: text("statusReplicasPath")?,
            label_selector: text("labelSelectorPath").filter(|path| !path.is_empty()),
        })
    }

    /// What is wrong with the numbers and the selector that an object holds.
    pub fn errors(&self, object: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        check_replicas(object, &self.spec_replicas, &mut errors);
        errors.extend(self.status_errors(object));
        errors
    }

    /// The same for what is status's.
    pub fn status_errors(&self, object: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        check_replicas(object, &self.status_replicas, &mut errors);
        if let Some(path) = &self.label_selector
            && let Err(error) = text_at(object, path)
        {
            errors.push(Error::invalid(&Path::new(path), "", error.to_string()));
        }
        errors
    }
}

fn check_replicas(object: &Value, path: &str, errors: &mut ErrorList) {
    let field = Path::new(path);
    match integer_at(object, path) {
        Err(error) => errors.push(Error::invalid(&field, 0, error.to_string())),
        Ok(Some(count)) if count < 0 => {
            errors.push(Error::invalid(&field, count, "should be a non-negative integer"));
        }
        Ok(Some(count)) if count > i64::from(i32::MAX) => {
            let detail = format!("should be less than or equal to {}", i32::MAX);
            errors.push(Error::invalid(&field, count, detail));
        }
        Ok(_) => {}
    }
}

/// The integer at a dotted path.
pub fn integer_at(object: &Value, path: &str) -> Result<Option<i64>, WrongType> {
    match at(object, path)? {
        None => Ok(None),
        Some(found) => found.as_i64().map(Some).ok_or_else(|| wrong(path, found, "int64")),
    }
}

/// The text at a dotted path.
pub fn text_at<'o>(object: &'o Value, path: &str) -> Result<Option<&'o str>, WrongType> {
    match at(object, path)? {
        None => Ok(None),
        Some(found) => found.as_str().map(Some).ok_or_else(|| wrong(path, found, "string")),
    }
}

fn at<'o>(object: &'o Value, path: &str) -> Result<Option<&'o Value>, WrongType> {
    let names: Vec<&str> = path.trim_start_matches('.').split('.').collect();
    let mut value = object;
    for (depth, name) in names.iter().enumerate() {
        value = match value {
            Value::Null if depth > 0 => return Ok(None),
            Value::Object(members) => match members.get(*name) {
                Some(member) => member,
                None => return Ok(None),
            },
            other => return Err(wrong(&names[..=depth].join("."), other, "map[string]interface{}")),
        };
    }
    Ok(Some(value))
}

fn wrong(path: &str, found: &Value, wanted: &'static str) -> WrongType {
    WrongType {
        path: format!(".{}", path.trim_start_matches('.')),
        found: crate::strategic::plain(found),
        found_type: object::go_type(found),
        wanted,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn replicas_are_small_integers() {
        let version = json!({"subresources": {"scale": {
            "specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n", "labelSelectorPath": ".status.s"}}});
        let scale = Scale::of(&version).expect("a scale");
        let errors = |object: Value| crate::field::aggregate(&scale.errors(&object));
        assert_eq!(errors(json!({"spec": {"n": 3}, "status": {"n": 1, "s": "a=b"}})), "");
        assert_eq!(errors(json!({})), "");
        assert_eq!(
            errors(json!({"spec": {"n": -1}})),
            ".spec.n: Invalid value: -1: should be a non-negative integer"
        );
        assert_eq!(
            errors(json!({"spec": {"n": "x"}})),
            ".spec.n: Invalid value: 0: .spec.n accessor error: x is of the type string, expected int64"
        );
        assert_eq!(
            errors(json!({"spec": "x"})),
            ".spec.n: Invalid value: 0: .spec.n accessor error: x is of the type string, expected map[string]interface{}"
        );
    }
}

//! Questions about access: the selectors of a request, the review that a webhook is sent, and conditions on it.
//!
//! Texts and shapes are upstream's (`authorization.k8s.io/v1`, `apiserver/plugin/pkg/authorizer/webhook`).

mod condition;
mod config;
mod review;

use serde_json::Value;

use crate::object;
use crate::select::{FieldOperator, FieldSelector, FieldTerm, LabelSelector, Operator, Requirement};

pub use condition::{Conditions, Matched};
pub use config::{
    AuthorizerKind, BadConfiguration, Configured, Connection, FailurePolicy, Identities, LegacyWebhook, Planes,
    WebhookSettings, from_modes, read,
};
pub use review::{Answer, Spec, answer, question};

/// What narrows a request, as far as it was understood. Selectors only narrow, so what is left out asks for more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selectors {
    pub fields: Vec<FieldTerm>,
    pub labels: Vec<Requirement>,
    field_problem: Option<Left>,
    label_problem: Option<Left>,
}

/// Whether anything of a selector was left when parts of it were not understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    Nothing,
    Something,
}

impl Selectors {
    /// The selectors of a request's query.
    pub fn of_query(field: &str, label: &str) -> Self {
        let mut selectors = Self::default();
        selectors.read_fields(field);
        selectors.read_labels(label);
        selectors
    }

    /// The selectors in the `resourceAttributes` of a review that is valid.
    pub fn of_review(attributes: &Value) -> Self {
        let raw = |selector: &str| object::string(attributes, &[selector, "rawSelector"]);
        let mut selectors = Self::of_query(raw("fieldSelector"), raw("labelSelector"));
        let fields = object::list(attributes, &["fieldSelector", "requirements"]);
        if !fields.is_empty() {
            selectors.fields = fields.iter().filter_map(field_term).collect();
            selectors.field_problem = problem(fields.len(), selectors.fields.len());
        }
        let labels = object::list(attributes, &["labelSelector", "requirements"]);
        if !labels.is_empty() {
            selectors.labels = labels.iter().filter_map(requirement).collect();
            selectors.label_problem = problem(labels.len(), selectors.labels.len());
        }
        selectors
    }

    fn read_fields(&mut self, text: &str) {
        match FieldSelector::parse(text) {
            Ok(selector) => self.fields = selector.terms().to_vec(),
            Err(_) => self.field_problem = Some(Left::Nothing),
        }
    }

    fn read_labels(&mut self, text: &str) {
        match LabelSelector::parse(text) {
            Ok(selector) => self.labels = selector.requirements().to_vec(),
            Err(_) => self.label_problem = Some(Left::Nothing),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.fields.is_empty() && self.labels.is_empty()
    }

    /// What was not understood of a review's selectors.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for (name, left) in [
            ("fieldSelector", self.field_problem),
            ("labelSelector", self.label_problem),
        ] {
            let how = match left {
                None => continue,
                Some(Left::Nothing) => "ignored",
                Some(Left::Something) => "partially ignored",
            };
            problems.push(format!("spec.resourceAttributes.{name} {how} due to parse error"));
        }
        problems
    }
}

fn problem(asked: usize, understood: usize) -> Option<Left> {
    match understood {
        understood if understood == asked => None,
        0 => Some(Left::Nothing),
        _ => Some(Left::Something),
    }
}

fn values(requirement: &Value) -> Vec<String> {
    let values = object::list(requirement, &["values"]).iter();
    values.filter_map(Value::as_str).map(ToOwned::to_owned).collect()
}

fn field_term(requirement: &Value) -> Option<FieldTerm> {
    let operator = match object::string(requirement, &["operator"]) {
        "In" => FieldOperator::Equals,
        "NotIn" => FieldOperator::NotEquals,
        _ => return None,
    };
    let [value] = <[String; 1]>::try_from(values(requirement)).ok()?;
    Some(FieldTerm {
        field: object::string(requirement, &["key"]).to_owned(),
        operator,
        value,
    })
}

fn requirement(of: &Value) -> Option<Requirement> {
    let operator = match object::string(of, &["operator"]) {
        "In" => Operator::In,
        "NotIn" => Operator::NotIn,
        "Exists" => Operator::Exists,
        "DoesNotExist" => Operator::DoesNotExist,
        _ => return None,
    };
    Requirement::new(object::string(of, &["key"]), operator, values(of)).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_not_understood_is_left_out_and_told() {
        let attributes = json!({
            "fieldSelector": {"requirements": [
                {"key": "a", "operator": "In", "values": ["1"]},
                {"key": "b", "operator": "Exists"},
                {"key": "c", "operator": "In", "values": ["1", "2"]},
            ]},
            "labelSelector": {"requirements": [{"key": "a", "operator": "Near", "values": ["1"]}]},
        });
        let selectors = Selectors::of_review(&attributes);
        assert_eq!(selectors.fields.len(), 1);
        assert!(selectors.labels.is_empty());
        assert_eq!(
            selectors.problems(),
            [
                "spec.resourceAttributes.fieldSelector partially ignored due to parse error",
                "spec.resourceAttributes.labelSelector ignored due to parse error",
            ]
        );
        let raw = json!({"fieldSelector": {"rawSelector": "a=1,b!=2"}, "labelSelector": {"rawSelector": "=x=="}});
        let selectors = Selectors::of_review(&raw);
        assert_eq!(selectors.fields.len(), 2);
        assert_eq!(
            selectors.problems(),
            ["spec.resourceAttributes.labelSelector ignored due to parse error"]
        );
        assert!(Selectors::of_query("", "").is_empty());
    }
}

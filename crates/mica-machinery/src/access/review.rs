//! SubjectAccessReviews as webhooks get them, and what counts as an answer.

use serde_json::{Map, Value, json};

use super::Selectors;
use crate::admission::ReviewVersion;
use crate::codec::text::quote;
use crate::kind::User;
use crate::object;
use crate::rbac::Asked;
use crate::select::{FieldOperator, Operator};

const GROUP: &str = "authorization.k8s.io";
const KIND: &str = "SubjectAccessReview";

/// Who wants to do what: the spec of a review in its first version.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec(Value);

impl Spec {
    pub fn new(user: &User<'_>, asked: &Asked<'_>) -> Self {
        let mut spec = Map::new();
        match asked {
            Asked::Resource(action) => {
                let mut attributes = texts(&[
                    ("namespace", action.namespace),
                    ("verb", action.verb),
                    ("group", action.group),
                    ("version", action.version),
                    ("resource", action.resource),
                    ("subresource", action.subresource),
                    ("name", action.name),
                ]);
                if let Some(selectors) = action.selectors {
                    attributes.extend(shown(selectors));
                }
                spec.insert("resourceAttributes".to_owned(), attributes.into());
            }
            Asked::Path { verb, path } => {
                let attributes = texts(&[("path", path), ("verb", verb)]);
                spec.insert("nonResourceAttributes".to_owned(), attributes.into());
            }
        }
        spec.extend(texts(&[("user", user.name)]));
        if !user.groups.is_empty() {
            spec.insert("groups".to_owned(), json!(user.groups));
        }
        if !user.extra.is_empty() {
            let extra: Map<String, Value> = (user.extra.iter())
                .map(|(key, values)| (key.clone(), json!(values)))
                .collect();
            spec.insert("extra".to_owned(), extra.into());
        }
        spec.extend(texts(&[("uid", user.uid)]));
        Self(spec.into())
    }

    /// What tells it from others.
    pub fn bytes(&self) -> Vec<u8> {
        serde_json::to_vec(&self.0).expect("plain JSON")
    }

    /// The spec as conditions see it: with every text, also those that are empty.
    pub(super) fn for_conditions(&self) -> Value {
        let mut request = self.0.clone();
        let fill = |of: &mut Value, fields: &[&str]| {
            for field in fields {
                let of = object::object_mut(of);
                of.entry(*field).or_insert_with(|| "".into());
            }
        };
        fill(&mut request, &["user", "uid"]);
        let whole = object::object_mut(&mut request);
        whole.entry("groups").or_insert_with(|| json!([]));
        whole.entry("extra").or_insert_with(|| json!({}));
        if let Some(attributes) = whole.get_mut("resourceAttributes") {
            let all = [
                "namespace",
                "verb",
                "group",
                "version",
                "resource",
                "subresource",
                "name",
            ];
            fill(attributes, &all);
        }
        if let Some(attributes) = whole.get_mut("nonResourceAttributes") {
            fill(attributes, &["path", "verb"]);
        }
        request
    }
}

fn texts(fields: &[(&str, &str)]) -> Map<String, Value> {
    let given = fields.iter().filter(|(_, text)| !text.is_empty());
    given
        .map(|(field, text)| ((*field).to_owned(), (*text).into()))
        .collect()
}

fn shown(selectors: &Selectors) -> Map<String, Value> {
    let mut all = Map::new();
    let mut put = |name: &str, requirements: Vec<Value>| {
        if !requirements.is_empty() {
            all.insert(name.to_owned(), json!({"requirements": requirements}));
        }
    };
    let fields = selectors.fields.iter().map(|term| {
        let operator = match term.operator {
            FieldOperator::Equals => "In",
            FieldOperator::NotEquals => "NotIn",
        };
        json!({"key": term.field, "operator": operator, "values": [term.value]})
    });
    put("fieldSelector", fields.collect());
    let labels = selectors.labels.iter().filter_map(|requirement| {
        let operator = match requirement.operator() {
            Operator::In | Operator::Equals | Operator::DoubleEquals => "In",
            Operator::NotIn | Operator::NotEquals => "NotIn",
            Operator::Exists => "Exists",
            Operator::DoesNotExist => "DoesNotExist",
            // Reviews have no word for these; to leave them out is to ask for more.
            Operator::GreaterThan | Operator::LessThan => return None,
        };
        let mut shown = json!({"key": requirement.key(), "operator": operator});
        if !requirement.values().is_empty() {
            shown["values"] = json!(requirement.values());
        }
        Some(shown)
    });
    put("labelSelector", labels.collect());
    all
}

/// The document that is sent.
pub fn question(version: ReviewVersion, spec: &Spec) -> Vec<u8> {
    let mut spec = spec.0.clone();
    if version == ReviewVersion::V1beta1
        && let Some(groups) = object::object_mut(&mut spec).remove("groups")
    {
        // The older version says it in the singular.
        spec["group"] = groups;
    }
    let document = json!({
        "kind": KIND,
        "apiVersion": format!("{GROUP}/{}", version.as_str()),
        "metadata": {},
        "spec": spec,
        "status": {"allowed": false},
    });
    serde_json::to_vec(&document).expect("plain JSON")
}

/// What a webhook says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub allowed: bool,
    pub denied: bool,
    pub reason: String,
}

/// Reads an answer, or says why it is none.
pub fn answer(version: ReviewVersion, reply: &[u8]) -> Result<Answer, String> {
    let review: Value = serde_json::from_slice(reply).map_err(|error| error.to_string())?;
    let (api_version, kind) = (
        object::string(&review, &["apiVersion"]),
        object::string(&review, &["kind"]),
    );
    let wanted = format!("{GROUP}/{}", version.as_str());
    let named = !api_version.is_empty() && !kind.is_empty();
    if named && (api_version != wanted || kind != KIND) {
        return Err(format!(
            "expected {} of version {}, got {} of version {}",
            quote(KIND),
            quote(&wanted),
            quote(kind),
            quote(api_version)
        ));
    }
    let told = |field: &str| match object::get(&review, &["status", field]) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(told)) => Ok(*told),
        Some(_) => Err(format!("status.{field} of the answer is no boolean")),
    };
    Ok(Answer {
        allowed: told("allowed")?,
        denied: told("denied")?,
        reason: object::string(&review, &["status", "reason"]).to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::rbac::Action;

    #[test]
    fn a_question_carries_user_action_and_selectors() {
        let groups = ["g".to_owned()];
        let extra = [("k".to_owned(), vec!["v".to_owned()])];
        let user = User {
            name: "ann",
            uid: "",
            groups: &groups,
            extra: &extra,
        };
        let selectors = Selectors::of_query("spec.nodeName=n1,a!=b", "x in (1,2),!y,z>3");
        let asked = Asked::Resource(Action {
            verb: "list",
            version: "v1",
            resource: "pods",
            selectors: Some(&selectors),
            ..Action::default()
        });
        let spec = Spec::new(&user, &asked);
        expect![[r#"{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","metadata":{},"spec":{"extra":{"k":["v"]},"groups":["g"],"resourceAttributes":{"fieldSelector":{"requirements":[{"key":"a","operator":"NotIn","values":["b"]},{"key":"spec.nodeName","operator":"In","values":["n1"]}]},"labelSelector":{"requirements":[{"key":"x","operator":"In","values":["1","2"]},{"key":"y","operator":"DoesNotExist"}]},"resource":"pods","verb":"list","version":"v1"},"user":"ann"},"status":{"allowed":false}}"#]]
        .assert_eq(&String::from_utf8(question(ReviewVersion::V1, &spec)).unwrap());
        let older = String::from_utf8(question(ReviewVersion::V1beta1, &spec)).unwrap();
        assert!(
            older.contains(r#""group":["g"]"#) && !older.contains("groups"),
            "{older}"
        );
    }

    #[test]
    fn an_answer_is_a_review_of_the_version_that_was_sent() {
        let read = |text: &str| answer(ReviewVersion::V1, text.as_bytes());
        let allowed = read(r#"{"status":{"allowed":true,"reason":"r"}}"#).unwrap();
        assert_eq!(
            (allowed.allowed, allowed.denied, allowed.reason.as_str()),
            (true, false, "r")
        );
        let other =
            r#"{"apiVersion":"authorization.k8s.io/v1beta1","kind":"SubjectAccessReview","status":{"allowed":true}}"#;
        for bad in [other, "[]x", r#"{"status":{"allowed":"yes"}}"#, ""] {
            read(bad).expect_err(bad);
        }
        // An answer without a decision is none.
        assert!(!read("{}").unwrap().allowed);
    }
}

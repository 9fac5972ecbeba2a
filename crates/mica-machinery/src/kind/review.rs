//! The review kinds, which are only created: nothing is stored, the server answers with a status.
//!
//! Owns what may be asked; what the answer is, authentication and authorization know.

use serde_json::Value;

use super::check::{invalid_as, is_empty, present};
use super::selector::field_requirement_errors;
use super::{Column, NameUse, Strategy, WriteContext, internal};
use crate::field::{Error, ErrorList, Path, quote};
use crate::object;
use crate::select::{Tolerance, requirement_errors};

/// SubjectAccessReview, SelfSubjectAccessReview and LocalSubjectAccessReview.
#[derive(Debug)]
pub enum AccessReview {
    Subject,
    Myself,
    Local,
}

/// SelfSubjectReview, TokenReview and SelfSubjectRulesReview, whose rules are those of [`refusal`].
#[derive(Debug)]
pub struct PlainReview;

impl Strategy for PlainReview {
    fn name_errors(&self, _name: &str, _name_use: NameUse) -> Vec<String> {
        Vec::new()
    }

    fn columns(&self) -> &'static [Column] {
        &[]
    }
}

impl Strategy for AccessReview {
    fn validate(&self, _ctx: &WriteContext<'_>, object: &Value) -> ErrorList {
        let mut errors = self.validate_spec(object);
        self.validate_metadata(object, &mut errors);
        errors
    }

    fn name_errors(&self, _name: &str, _name_use: NameUse) -> Vec<String> {
        Vec::new()
    }

    fn columns(&self) -> &'static [Column] {
        &[]
    }
}

/// Why a review of this kind is a bad request (400, not 422), if it is.
pub fn refusal(kind: &str, review: &Value) -> Option<&'static str> {
    let lacks = |at: &[&str]| object::string(review, at).is_empty();
    match kind {
        "TokenReview" if lacks(&["spec", "token"]) => Some("token is required for TokenReview in authentication"),
        "SelfSubjectRulesReview" if lacks(&["spec", "namespace"]) => Some("no namespace on request"),
        _ => None,
    }
}

impl AccessReview {
    fn validate_spec(&self, review: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        let path = Path::new("spec");
        let resource = present(review, &["spec", "resourceAttributes"]);
        let other = present(review, &["spec", "nonResourceAttributes"]);
        match (resource, other) {
            (Some(_), Some(other)) => {
                let detail = "cannot be specified in combination with resourceAttributes";
                errors.push(invalid_as(
                    &path.child("nonResourceAttributes"),
                    &shown_attributes(other),
                    detail,
                ));
            }
            (None, None) => {
                let detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
                errors.push(invalid_as(&path.child("resourceAttributes"), "null", detail));
            }
            _ => {}
        }
        let nobody = object::string(review, &["spec", "user"]).is_empty()
            && object::list(review, &["spec", "groups"]).is_empty();
        if nobody && !matches!(self, Self::Myself) {
            let detail = "at least one of user or group must be specified";
            errors.push(Error::invalid(&path.child("user"), "", detail));
        }
        if let Some(resource) = resource {
            let path = path.child("resourceAttributes");
            validate_selector(resource, "fieldSelector", &path, &mut errors);
            validate_selector(resource, "labelSelector", &path, &mut errors);
        }
        errors
    }

    fn validate_metadata(&self, review: &Value, errors: &mut ErrorList) {
        let local = matches!(self, Self::Local);
        let allowed: &[&str] = if local {
            &["managedFields", "namespace"]
        } else {
            &["managedFields"]
        };
        let extra = object::map(review, &["metadata"])
            .into_iter()
            .flatten()
            .any(|(field, value)| !allowed.contains(&field.as_str()) && !is_empty(value));
        if extra {
            let metadata = review.get("metadata").unwrap_or(&Value::Null);
            let shown = internal::shown(metadata, "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta");
            let detail = if local {
                "must be empty except for namespace"
            } else {
                "must be empty"
            };
            errors.push(invalid_as(&Path::new("metadata"), &shown, detail));
        }
        if !local {
            return;
        }
        let namespace = object::string(review, &["spec", "resourceAttributes", "namespace"]);
        if present(review, &["spec", "resourceAttributes"]).is_some() && namespace != object::namespace(review) {
            let path = Path::new("spec.resourceAttributes.namespace");
            errors.push(Error::invalid(&path, namespace, "must match metadata.namespace"));
        }
        if let Some(other) = present(review, &["spec", "nonResourceAttributes"]) {
            let path = Path::new("spec.nonResourceAttributes");
            errors.push(invalid_as(
                &path,
                &shown_attributes(other),
                "disallowed on this kind of request",
            ));
        }
    }
}

fn validate_selector(attributes: &Value, field: &str, path: &Path, errors: &mut ErrorList) {
    let Some(selector) = present(attributes, &[field]) else {
        return;
    };
    let path = path.child(field);
    let raw = object::string(selector, &["rawSelector"]);
    let requirements = object::list(selector, &["requirements"]);
    if !raw.is_empty() && !requirements.is_empty() {
        let detail = "may not specified at the same time as requirements";
        errors.push(Error::invalid(&path.child("rawSelector"), raw, detail));
    }
    let path_requirements = path.child("requirements");
    if raw.is_empty() && requirements.is_empty() {
        let detail = format!("when {path} is specified, requirements or rawSelector is required");
        errors.push(Error::required(&path_requirements, detail));
    }
    for (i, requirement) in requirements.iter().enumerate() {
        let path = path_requirements.index(i);
        errors.extend(match field {
            "fieldSelector" => field_requirement_errors(requirement, &path),
            _ => requirement_errors(requirement, Tolerance::UnknownOperators, &path),
        });
    }
}

/// Non-resource attributes as upstream's errors print the internal type.
fn shown_attributes(attributes: &Value) -> String {
    let of = |field| quote(object::string(attributes, &[field]));
    format!(r#"{{"Path":{},"Verb":{}}}"#, of("path"), of("verb"))
}

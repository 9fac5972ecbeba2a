//! ValidatingAdmissionPolicies: which of them a request meets, and what their verdicts do.

use std::sync::Arc;

use mica_machinery::admission;
use mica_machinery::admission::{
    Action, Binding, Effort, FailurePolicy, Frame, Input, Inputs, Objects, Problem, ValidatingPolicy, Verdict,
};
use serde_json::{Value, json};

use super::gate::Gate;
use super::param::ParamResource;
use super::permit::Permits;
use super::view::tree;
use super::{Home, Set};
use crate::error::ApiError;
use crate::scheme::Served;

/// Where failed validations that are only to be audited are told.
const FAILURE_ANNOTATION: &str = "validation.policy.admission.k8s.io/validation_failure";

/// A no of a policy, or its failure.
pub(super) struct PolicyError {
    pub message: String,
    pub reason: &'static str,
    pub policy: FailurePolicy,
}

impl PolicyError {
    pub(super) fn of_policy(home: Home, name: &str, policy: FailurePolicy, why: &str) -> Self {
        let (whose, name) = (home.named(), mica_machinery::field::quote(name));
        Self {
            message: format!("{whose}policy {name} denied request: failed to configure policy: {why}"),
            reason: "",
            policy,
        }
    }

    pub(super) fn of_binding(home: Home, name: &str, binding: &str, policy: FailurePolicy, why: &str) -> Self {
        let whose = home.named();
        Self {
            message: format!(
                "{whose}policy '{name}' with binding '{binding}' denied request: failed to configure binding: {why}"
            ),
            reason: "",
            policy,
        }
    }
}

/// A no, by a policy and perhaps one of its bindings.
struct Denial {
    message: String,
    reason: String,
}

impl Gate<'_> {
    /// Refuses what validating policies deny.
    pub(super) async fn judge(&self, home: Home, set: &Set, objects: Objects<'_>) -> Result<(), ApiError> {
        let served = &self.grant.target.served;
        if set.validating_policies.is_empty() || admission::is_unjudged(served.group(), served.plural()) {
            return Ok(());
        }
        let mut denials: Vec<Denial> = Vec::new();
        for (policy, bindings) in &set.validating_policies {
            let unconfigured = |denials: &mut Vec<Denial>, why: &str| {
                let why = format!("failed to configure policy: {why}");
                denials.extend(denial(home, policy, None, why));
            };
            let (face, resource) = match self.met(home, &policy.frame, objects).await? {
                Ok(Some(met)) => met,
                Ok(None) => continue,
                Err(why) => {
                    unconfigured(&mut denials, &why);
                    continue;
                }
            };
            let mut judging: Option<Judging> = None;
            let mut annotations: Vec<(String, Vec<String>)> = Vec::new();
            for binding in bindings {
                let params = match self.bound_params(binding, resource.as_ref(), objects).await? {
                    Ok(params) => params,
                    Err(why) => {
                        let why = format!("failed to configure binding: {why}");
                        denials.extend(denial(home, policy, Some(binding), why));
                        continue;
                    }
                };
                if judging.is_none() && !params.is_empty() {
                    judging = Some(self.judging(home, &face, objects).await?);
                }
                let Some(judging) = &judging else { continue };
                for param in &params {
                    let verdict = self.verdict(policy, judging, param.as_ref(), objects).await?;
                    self.act((home, policy), binding, verdict, &mut denials, &mut annotations);
                }
            }
            for (key, values) in annotations {
                self.annotate(format!("{}/{key}", policy.frame.name), values.join(", "));
            }
        }
        match denials.first() {
            None => Ok(()),
            Some(first) => Err(self.denied(objects, first)),
        }
    }

    /// The version in which a request meets a policy, and what its parameters are. An inner error is the policy's.
    pub(super) async fn met(
        &self,
        home: Home,
        policy: &Frame,
        objects: Objects<'_>,
    ) -> Result<Result<Option<Met>, String>, ApiError> {
        let Some(criteria) = &policy.criteria else {
            return Ok(Ok(None));
        };
        let face = match self.matches(criteria, objects).await? {
            Ok(Some(face)) => face,
            Ok(None) => return Ok(Ok(None)),
            Err(problem) => return Ok(Err(problem.to_string())),
        };
        let Some(kind) = &policy.param_kind else {
            return Ok(Ok(Some((face, None))));
        };
        Ok(match self.param_resource(home, kind).await? {
            Some(resource) => Ok(Some((face, Some(resource)))),
            None => Err(kind.missing()),
        })
    }

    /// What a policy reads, in the version that matched.
    async fn judging(&self, home: Home, face: &Served, objects: Objects<'_>) -> Result<Judging, ApiError> {
        let namespace = self.namespace_for_policies(objects).await?;
        let view = async |held: Option<&Value>| match held {
            Some(held) => tree(&self.json(face, held).await?).map(Some),
            None => Ok(None),
        };
        Ok(Judging {
            object: view(objects.object).await?,
            old: view(objects.old).await?,
            request: Value::Object(self.request(home, face, objects)),
            namespace,
        })
    }

    async fn verdict(
        &self,
        policy: &ValidatingPolicy,
        judging: &Judging,
        param: Option<&Value>,
        objects: Objects<'_>,
    ) -> Result<Verdict, ApiError> {
        let inputs = Inputs {
            object: judging.object.as_ref(),
            old: judging.old.as_ref(),
            request: &judging.request,
            namespace: judging.namespace.as_ref(),
            params: param,
        };
        self.permitted(|permits, effort| {
            self.with_attributes(objects, |attributes| {
                policy.judge(&Input::new(inputs, attributes, permits).within(effort))
            })
        })
        .await
    }

    /// Does what a binding says about a verdict.
    fn act(
        &self,
        (home, policy): (Home, &ValidatingPolicy),
        binding: &Binding,
        verdict: Verdict,
        denials: &mut Vec<Denial>,
        annotations: &mut Vec<(String, Vec<String>)>,
    ) {
        for decision in verdict.denied {
            for action in &binding.actions {
                match action {
                    Action::Deny => denials.push(Denial {
                        message: denial_text(home, policy, Some(binding), &decision.message),
                        reason: decision.reason.clone(),
                    }),
                    Action::Warn => self.warn(format!(
                        "Validation failed for {}ValidatingAdmissionPolicy '{}' with binding '{}': {}",
                        home.named(),
                        policy.frame.name,
                        binding.name,
                        decision.message
                    )),
                    Action::Audit => {
                        let actions: Vec<&str> = binding.actions.iter().map(|action| action.as_str()).collect();
                        let value = json!([{"message": decision.message, "policy": policy.frame.name, "binding": binding.name,
                            "expressionIndex": decision.index, "validationActions": actions}]);
                        self.annotate(FAILURE_ANNOTATION.to_owned(), value.to_string());
                    }
                }
            }
        }
        for (key, value) in verdict.annotations {
            match annotations.iter_mut().find(|(known, _)| *known == key) {
                Some((_, values)) if values.contains(&value) => {}
                Some((_, values)) => values.push(value),
                None => annotations.push((key, vec![value])),
            }
        }
        for why in verdict.failed_annotations {
            denials.push(Denial {
                message: denial_text(home, policy, Some(binding), &why),
                reason: String::new(),
            });
        }
    }

    fn denied(&self, objects: Objects<'_>, denial: &Denial) -> ApiError {
        let (code, reason) = match denial.reason.as_str() {
            "Forbidden" => (403, "Forbidden"),
            "Unauthorized" => (401, "Unauthorized"),
            "RequestEntityTooLarge" => (413, "RequestEntityTooLarge"),
            _ => (422, "Invalid"),
        };
        let resource = &self.grant.target.served.name;
        let refused = ApiError::forbidden(resource, self.name(objects), &denial.message);
        refused.recast(code, reason, None, std::slice::from_ref(&denial.message))
    }

    /// The answer to failures of mutating policies: the first of them, and all as causes.
    pub(super) fn refused_by_policies(&self, objects: Objects<'_>, errors: &[PolicyError]) -> ApiError {
        let resource = &self.grant.target.served.name;
        let refused = ApiError::forbidden(resource, self.name(objects), "");
        let causes: Vec<String> = errors.iter().map(|error| error.message.clone()).collect();
        let reason = match errors.first().map(|error| error.reason) {
            None | Some("") => "Forbidden",
            Some(reason) => reason,
        };
        refused.recast(403, reason, causes.first().cloned(), &causes)
    }

    /// The parameters of a binding that the request meets; none if it does not meet it. An inner error is the binding's.
    pub(super) async fn bound_params(
        &self,
        binding: &Binding,
        resource: Option<&ParamResource>,
        objects: Objects<'_>,
    ) -> Result<Result<Vec<Option<Value>>, String>, ApiError> {
        let matched = match &binding.criteria {
            Some(criteria) => self.matches(criteria, objects).await?.map(|face| face.is_some()),
            None => Ok(true),
        };
        match matched {
            Ok(true) => self.params(resource, binding).await,
            Ok(false) => Ok(Ok(Vec::new())),
            Err(problem) => Ok(Err(problem.to_string())),
        }
    }

    /// `namespaceObject`: absent for cluster-scoped objects and for namespaces.
    pub(super) async fn namespace_for_policies(&self, objects: Objects<'_>) -> Result<Option<Value>, ApiError> {
        let target = &self.grant.target;
        let Some(name) = target.namespace.as_deref().filter(|_| !target.served.is_namespaces()) else {
            return Ok(None);
        };
        match self.namespace(objects).await? {
            Some(namespace) => Ok(Some(namespace.clone())),
            None => Err(self.unmatched(Problem::NoNamespace(name.to_owned()))),
        }
    }

    /// The outcome of an evaluation that may ask about permissions.
    pub(super) async fn permitted<T>(&self, evaluate: impl Fn(&Permits, Option<&Effort>) -> T) -> Result<T, ApiError> {
        let (plane, user) = (&self.grant.target.plane, &self.grant.user);
        let admissions = self.admissions();
        self.permits
            .run(&admissions.authorizer, plane, user, &admissions.heavy, evaluate)
            .await
    }
}

/// The version in which a policy is met, and the resource of its parameters if it has any.
type Met = (Arc<Served>, Option<ParamResource>);

struct Judging {
    object: Option<Value>,
    old: Option<Value>,
    request: Value,
    namespace: Option<Value>,
}

/// The failure of a policy to be asked at all: a no, unless it is told to ignore that.
fn denial(home: Home, policy: &ValidatingPolicy, binding: Option<&Binding>, why: String) -> Option<Denial> {
    (policy.frame.failure_policy == FailurePolicy::Fail).then(|| Denial {
        message: denial_text(home, policy, binding, &why),
        reason: String::new(),
    })
}

fn denial_text(home: Home, policy: &ValidatingPolicy, binding: Option<&Binding>, why: &str) -> String {
    let (whose, name) = (home.named(), &policy.frame.name);
    match binding {
        Some(binding) => format!(
            "{whose}ValidatingAdmissionPolicy '{name}' with binding '{}' denied request: {why}",
            binding.name
        ),
        None => format!("{whose}ValidatingAdmissionPolicy '{name}' denied request: {why}"),
    }
}

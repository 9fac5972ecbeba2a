//! Mutation: policies, then webhooks, and both once more where something changed the object after them.

use std::collections::HashSet;
use std::sync::Arc;

use mica_machinery::admission::{
    Binding, FailurePolicy, Input, Inputs, MutatingPolicy, Objects, Patch, Reinvocation, merge_configuration,
};
use mica_machinery::patch::PatchError;
use mica_machinery::{admission, managed, object};
use serde_json::Value;

use super::Set;
use super::gate::Gate;
use super::policy::PolicyError;
use super::view::{Subject, patched, tree};
use crate::error::ApiError;
use crate::scheme::Served;

/// The words that a failed `test` of a JSON patch ends with. Such a patch changes nothing, and that is no failure.
const TEST_FAILED: &str = "test failed";

/// The state of one request's mutation.
pub(super) struct Mutating<'o> {
    pub object: Option<Value>,
    pub old: Option<&'o Value>,
    pub hooks: Again,
    policies: Again,
    /// Whether something must be asked again.
    pub changed: bool,
    again: bool,
}

impl Mutating<'_> {
    pub(super) fn objects(&self) -> Objects<'_> {
        Objects {
            object: self.object.as_ref(),
            old: self.old,
        }
    }

    pub(super) fn is_again(&self) -> bool {
        self.again
    }
}

/// Who is asked again.
#[derive(Default)]
pub(super) struct Again {
    /// What was left behind.
    left: Option<Value>,
    asked: HashSet<String>,
    wanted: HashSet<String>,
}

impl Again {
    pub(super) fn changed_since(&self, object: Option<&Value>) -> bool {
        self.left.as_ref() != object
    }

    /// Whoever was asked and wants to know is asked again.
    pub(super) fn require_again(&mut self) {
        self.wanted.extend(self.asked.drain());
    }

    pub(super) fn is_wanted(&self, id: &str) -> bool {
        self.wanted.contains(id)
    }

    pub(super) fn add(&mut self, id: &str) {
        self.asked.insert(id.to_owned());
    }

    pub(super) fn leave(&mut self, object: Option<&Value>) {
        self.left = object.cloned();
    }
}

/// A policy that applies to the request, with one parameter.
struct Invocation<'s> {
    policy: &'s MutatingPolicy,
    binding: &'s Binding,
    face: Arc<Served>,
    param: Option<Value>,
}

impl Invocation<'_> {
    fn id(&self) -> String {
        let param = self
            .param
            .as_ref()
            .map_or(("", ""), |param| (object::namespace(param), object::name(param)));
        format!("{}\0{}\0{}\0{}", self.policy.name, self.binding.name, param.0, param.1)
    }
}

impl Gate<'_> {
    pub(super) async fn run_mutation(
        &self,
        set: &Set,
        object: Option<Value>,
        old: Option<&Value>,
    ) -> Result<Option<Value>, ApiError> {
        let managers = object
            .as_ref()
            .map(|object| object["metadata"]["managedFields"].clone());
        let mut state = Mutating {
            object,
            old,
            hooks: Again::default(),
            policies: Again::default(),
            changed: false,
            again: false,
        };
        self.pass(set, &mut state).await?;
        if state.changed {
            state.again = true;
            if let Some(object) = &mut state.object {
                self.plug_in(object).await?;
            }
            self.pass(set, &mut state).await?;
        }
        if let (Some(object), Some(managers)) = (&mut state.object, managers) {
            self.keep_managers(object, managers);
        }
        Ok(state.object)
    }

    async fn pass(&self, set: &Set, state: &mut Mutating<'_>) -> Result<(), ApiError> {
        self.apply_policies(set, state).await?;
        self.ask_mutating(set, state).await
    }

    /// Takes back managed fields that nobody can read.
    fn keep_managers(&self, object: &mut Value, before: Value) {
        let list = object::list(object, &["metadata", "managedFields"]);
        if let Err(error) = managed::Entries::from_list(list) {
            self.warn(format!(
                ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated mutating admission controller; please fix your requests: {error}"
            ));
            if before.is_null() {
                object::remove(object, &["metadata", "managedFields"]);
            } else {
                object::set(object, &["metadata", "managedFields"], before);
            }
        }
    }

    async fn apply_policies(&self, set: &Set, state: &mut Mutating<'_>) -> Result<(), ApiError> {
        let served = &self.grant.target.served;
        let judged = !admission::is_unjudged(served.group(), served.plural());
        if set.mutating_policies.is_empty() || self.operation == admission::Operation::Delete || !judged {
            return Ok(());
        }
        let mut errors: Vec<PolicyError> = Vec::new();
        let invocations = self.invocations(set, state.objects(), &mut errors).await?;
        if !invocations.is_empty() {
            if state.again && state.policies.changed_since(state.object.as_ref()) {
                state.policies.require_again();
            }
            let namespace = self.namespace_for_policies(state.objects()).await?;
            for invocation in &invocations {
                self.invoke(invocation, state, namespace.as_ref(), &mut errors).await?;
            }
            state.policies.leave(state.object.as_ref());
        }
        errors.retain(|error| error.policy == FailurePolicy::Fail);
        match errors.first() {
            None => Ok(()),
            Some(_) => Err(self.refused_by_policies(state.objects(), &errors)),
        }
    }

    async fn invocations<'s>(
        &self,
        set: &'s Set,
        objects: Objects<'_>,
        errors: &mut Vec<PolicyError>,
    ) -> Result<Vec<Invocation<'s>>, ApiError> {
        let mut invocations = Vec::new();
        for (policy, bindings) in &set.mutating_policies {
            let (name, fails) = (policy.name.as_str(), policy.failure_policy);
            let Some(criteria) = &policy.criteria else { continue };
            let face = match self.matches(criteria, objects).await? {
                Ok(Some(face)) => face,
                Ok(None) => continue,
                Err(problem) => {
                    errors.push(PolicyError::of_policy(name, fails, &problem.to_string()));
                    continue;
                }
            };
            let resource = match &policy.param_kind {
                Some(kind) => match self.param_resource(kind).await? {
                    Some(resource) => Some(resource),
                    None => {
                        errors.push(PolicyError::of_policy(name, fails, &kind.missing()));
                        continue;
                    }
                },
                None => None,
            };
            for binding in bindings {
                match self.bound_params(binding, resource.as_ref(), objects).await? {
                    Ok(params) => invocations.extend(params.into_iter().map(|param| Invocation {
                        policy,
                        binding,
                        face: face.clone(),
                        param,
                    })),
                    Err(why) => errors.push(PolicyError::of_binding(name, &binding.name, fails, &why)),
                }
            }
        }
        Ok(invocations)
    }

    async fn invoke(
        &self,
        invocation: &Invocation<'_>,
        state: &mut Mutating<'_>,
        namespace: Option<&Value>,
        errors: &mut Vec<PolicyError>,
    ) -> Result<(), ApiError> {
        let (policy, binding) = (invocation.policy, invocation.binding);
        let Some(before) = state.object.clone() else {
            return Ok(());
        };
        let failed = |why: String| PolicyError {
            message: format!(
                "policy '{}' with binding '{}' denied request: {why}",
                policy.name, binding.name
            ),
            reason: "Invalid",
            policy: policy.failure_policy,
        };
        let mut first = true;
        for mutation in &policy.mutations {
            let face = &*invocation.face;
            let objects = state.objects();
            let json = self.json(face, objects.object.expect("it was there before")).await?;
            let object = tree(&json)?;
            let old = match objects.old {
                Some(old) => Some(tree(&self.json(face, old).await?)?),
                None => None,
            };
            let request = Value::Object(self.request(face, objects));
            let inputs = Inputs {
                object: Some(&object),
                old: old.as_ref(),
                request: &request,
                namespace,
                params: invocation.param.as_ref(),
            };
            let wanted = self
                .permitted(|permits| {
                    self.with_attributes(objects, |attributes| {
                        let input = Input::new(inputs, attributes, permits);
                        // Conditions are those of the object before the first mutation.
                        if first && !policy.applies(&input)? {
                            return Ok(None);
                        }
                        let skipped = state.again && !state.policies.is_wanted(&invocation.id());
                        if first && skipped {
                            return Ok(None);
                        }
                        policy.patch(mutation, &input).map(Some)
                    })
                })
                .await?;
            let patch = match wanted {
                Ok(Some(patch)) => patch,
                Ok(None) => return Ok(()),
                Err(why) => {
                    errors.push(failed(why));
                    if first {
                        // A condition that failed ends it; so does everything after a failed mutation that needs it.
                        break;
                    }
                    continue;
                }
            };
            first = false;
            match self.mutated(face, &object, &json, patch).await? {
                Ok(new) => state.object = Some(new),
                Err(why) => errors.push(failed(why)),
            }
        }
        if state.object.as_ref() != Some(&before) {
            state.policies.require_again();
            state.changed = true;
        }
        if policy.reinvocation == Reinvocation::IfNeeded {
            state.policies.add(&invocation.id());
        }
        Ok(())
    }

    /// The object after a patch. An inner error is the policy's.
    async fn mutated(
        &self,
        face: &Served,
        object: &Value,
        json: &[u8],
        patch: Patch,
    ) -> Result<Result<Value, String>, ApiError> {
        let document = match patch {
            Patch::Configuration(configuration) => {
                let served = match self.subject {
                    Subject::Own(served) => served,
                    _ => face,
                };
                match merge_configuration(object, &configuration, served.merge_type()) {
                    Ok(merged) => serde_json::to_vec(&merged).map_err(|error| error.to_string()),
                    Err(why) => Err(why),
                }
            }
            Patch::Json(changes) => match patched(json, &changes) {
                Ok(document) => Ok(document),
                Err(PatchError::Unprocessable(why)) if why.ends_with(TEST_FAILED) => Ok(json.to_vec()),
                Err(error) => Err(format!("JSON Patch: {error}")),
            },
        };
        match document {
            Ok(document) => self.held(face, &document).await.map(Ok),
            Err(why) => Ok(Err(why)),
        }
    }
}

//! Mutation: policies, then webhooks, and both once more where something changed the object after them.

use std::collections::HashSet;
use std::sync::Arc;

use mica_machinery::admission::{
    Binding, FailurePolicy, Input, Inputs, MutatingPolicy, Objects, Patch, Reinvocation, merge_configuration,
};
use mica_machinery::patch::PatchError;
use mica_machinery::{admission, managed, object};
use serde_json::Value;

use super::gate::Gate;
use super::policy::PolicyError;
use super::view::{Subject, patched, tree};
use super::{Home, Set};
use crate::error::ApiError;
use crate::scheme::Served;

/// The words that a failed `test` of a JSON patch ends with. Such a patch changes nothing, and that is no failure.
const TEST_FAILED: &str = "test failed";

/// The state of one request's mutation.
pub(super) struct Mutating<'o> {
    pub object: Option<Value>,
    pub old: Option<&'o Value>,
    own: Stage,
    platform: Stage,
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

    fn of(&self, home: Home) -> &Stage {
        match home {
            Home::Plane => &self.own,
            Home::Platform => &self.platform,
        }
    }

    fn at(&mut self, home: Home) -> &mut Stage {
        match home {
            Home::Plane => &mut self.own,
            Home::Platform => &mut self.platform,
        }
    }

    /// Who of a home's webhooks is asked again.
    pub(super) fn hooks(&mut self, home: Home) -> &mut Again {
        &mut self.at(home).hooks
    }

    /// Whether somebody is left out when it is asked again. The platform has the last word, whatever was changed before it.
    pub(super) fn skips(&self, home: Home, who: impl FnOnce(&Stage) -> bool) -> bool {
        self.again && home == Home::Plane && !who(self.of(home))
    }
}

/// Who of a home is asked again.
#[derive(Default)]
pub(super) struct Stage {
    pub hooks: Again,
    policies: Again,
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
    home: Home,
    policy: &'s MutatingPolicy,
    binding: &'s Binding,
    face: Arc<Served>,
    param: Option<Value>,
}

impl Invocation<'_> {
    fn failed(&self, why: &str) -> PolicyError {
        let (whose, name, binding) = (self.home.named(), &self.policy.frame.name, &self.binding.name);
        PolicyError {
            message: format!("{whose}policy '{name}' with binding '{binding}' denied request: {why}"),
            reason: "Invalid",
            policy: self.policy.frame.failure_policy,
        }
    }

    fn id(&self) -> String {
        let param = self
            .param
            .as_ref()
            .map_or(("", ""), |param| (object::namespace(param), object::name(param)));
        format!(
            "{}\0{}\0{}\0{}",
            self.policy.frame.name, self.binding.name, param.0, param.1
        )
    }
}

impl Gate<'_> {
    pub(super) async fn run_mutation(
        &self,
        object: Option<Value>,
        old: Option<&Value>,
    ) -> Result<Option<Value>, ApiError> {
        let managers = object
            .as_ref()
            .map(|object| object["metadata"]["managedFields"].clone());
        let mut state = Mutating {
            object,
            old,
            own: Stage::default(),
            platform: Stage::default(),
            changed: false,
            again: false,
        };
        self.pass(&mut state).await?;
        if state.changed {
            state.again = true;
            if let Some(object) = &mut state.object {
                self.plug_in(object).await?;
            }
            self.pass(&mut state).await?;
        }
        if let (Some(object), Some(managers)) = (&mut state.object, managers) {
            self.keep_managers(object, managers);
        }
        Ok(state.object)
    }

    async fn pass(&self, state: &mut Mutating<'_>) -> Result<(), ApiError> {
        for (home, set) in &self.sets {
            self.apply_policies(*home, set, state).await?;
            self.ask_mutating(*home, set, state).await?;
        }
        Ok(())
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

    async fn apply_policies(&self, home: Home, set: &Set, state: &mut Mutating<'_>) -> Result<(), ApiError> {
        let served = &self.grant.target.served;
        let judged = !admission::is_unjudged(served.group(), served.plural());
        if set.mutating_policies.is_empty() || self.operation == admission::Operation::Delete || !judged {
            return Ok(());
        }
        let mut errors: Vec<PolicyError> = Vec::new();
        let invocations = self.invocations(home, set, state.objects(), &mut errors).await?;
        if !invocations.is_empty() {
            if state.again && state.of(home).policies.changed_since(state.object.as_ref()) {
                state.at(home).policies.require_again();
            }
            let namespace = self.namespace_for_policies(state.objects()).await?;
            for invocation in &invocations {
                self.invoke(invocation, state, namespace.as_ref(), &mut errors).await?;
            }
            let left = state.object.clone();
            state.at(home).policies.leave(left.as_ref());
        }
        errors.retain(|error| error.policy == FailurePolicy::Fail);
        match errors.first() {
            None => Ok(()),
            Some(_) => Err(self.refused_by_policies(state.objects(), &errors)),
        }
    }

    async fn invocations<'s>(
        &self,
        home: Home,
        set: &'s Set,
        objects: Objects<'_>,
        errors: &mut Vec<PolicyError>,
    ) -> Result<Vec<Invocation<'s>>, ApiError> {
        let mut invocations = Vec::new();
        for (policy, bindings) in &set.mutating_policies {
            let (name, fails) = (policy.frame.name.as_str(), policy.frame.failure_policy);
            let (face, resource) = match self.met(home, &policy.frame, objects).await? {
                Ok(Some(met)) => met,
                Ok(None) => continue,
                Err(why) => {
                    errors.push(PolicyError::of_policy(home, name, fails, &why));
                    continue;
                }
            };
            for binding in bindings {
                match self.bound_params(binding, resource.as_ref(), objects).await? {
                    Ok(params) => invocations.extend(params.into_iter().map(|param| Invocation {
                        home,
                        policy,
                        binding,
                        face: face.clone(),
                        param,
                    })),
                    Err(why) => errors.push(PolicyError::of_binding(home, name, &binding.name, fails, &why)),
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
        let (home, policy) = (invocation.home, invocation.policy);
        let Some(before) = state.object.clone() else {
            return Ok(());
        };
        let failed = |why: String| invocation.failed(&why);
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
            let request = Value::Object(self.request(home, face, objects));
            let inputs = Inputs {
                object: Some(&object),
                old: old.as_ref(),
                request: &request,
                namespace,
                params: invocation.param.as_ref(),
            };
            let wanted = self
                .permitted(|permits, effort| {
                    self.with_attributes(objects, |attributes| {
                        let input = Input::new(inputs, attributes, permits).within(effort);
                        // Conditions are those of the object before the first mutation.
                        if first && !policy.frame.applies(&input)? {
                            return Ok(None);
                        }
                        let wanted = |stage: &Stage| stage.policies.is_wanted(&invocation.id());
                        if first && state.skips(home, wanted) {
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
            state.at(home).policies.require_again();
            state.changed = true;
        }
        if policy.reinvocation == Reinvocation::IfNeeded {
            state.at(home).policies.add(&invocation.id());
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

//! Webhooks: asking them, and what their answers do.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use mica_api::PlaneId;
use mica_machinery::admission::{FailurePolicy, Input, Inputs, Objects, Response, SideEffects};
use mica_machinery::codec::text::quote;
use mica_machinery::{admission, patch};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::gate::Gate;
use super::metric::Type;
use super::mutate::Mutating;
use super::view::{patched, tree};
use super::{Home, Hook, Set};
use crate::authz::parent;
use crate::egress::{Call, Repeat, Tenant};
use crate::error::ApiError;
use crate::scheme::Served;

/// Largest answer of a webhook: a patch may hold a whole object, in base64.
const MAX_REPLY: usize = 8 << 20;

/// Why a webhook did not say yes.
enum Unsaid {
    /// It could not be asked, or its answer makes no sense: what that means, its failure policy says.
    Failed(String),
    /// The request is refused.
    Refused(ApiError),
}

/// What is sent to a webhook, in one version.
struct Sent {
    request: Map<String, Value>,
    object: Option<Vec<u8>>,
    old: Option<Vec<u8>>,
}

impl Gate<'_> {
    /// Asks every mutating webhook that the request meets, one after the other.
    pub(super) async fn ask_mutating(&self, home: Home, set: &Set, state: &mut Mutating<'_>) -> Result<(), ApiError> {
        let again = state.is_again();
        let left = state.object.clone();
        if again && state.hooks(home).changed_since(left.as_ref()) {
            state.hooks(home).require_again();
        }
        let hooks = set.mutating_hooks.iter().flat_map(|hooks| &hooks.0);
        for (index, hook) in hooks.enumerate() {
            let Some(face) = self.meets(home, hook, state.objects()).await? else {
                continue;
            };
            if state.skips(home, |stage| stage.hooks.is_wanted(&hook.rules.id)) {
                continue;
            }
            let place = format!("round_{}_index_{index}", u8::from(again));
            let changed = match self.ask_one_mutating((home, hook), &face, state, &place).await {
                Ok(changed) => changed,
                Err(Unsaid::Refused(error)) => return Err(error),
                Err(Unsaid::Failed(why)) => {
                    self.failed((home, hook), Type::Admit, &why, &place)?;
                    false
                }
            };
            self.annotate(
                format!("mutation.webhook.admission.k8s.io/{place}"),
                json!({"configuration": hook.rules.configuration, "webhook": hook.rules.name, "mutated": changed})
                    .to_string(),
            );
            if changed {
                state.hooks(home).require_again();
                state.changed = true;
            }
            if hook.rules.reinvocation == admission::Reinvocation::IfNeeded {
                state.hooks(home).add(&hook.rules.id);
            }
        }
        let left = state.object.clone();
        state.hooks(home).leave(left.as_ref());
        Ok(())
    }

    /// Whether the object was changed.
    async fn ask_one_mutating(
        &self,
        (home, hook): (Home, &Hook),
        face: &Served,
        state: &mut Mutating<'_>,
        place: &str,
    ) -> Result<bool, Unsaid> {
        let sent = self.sent(home, face, state.objects()).await.map_err(Unsaid::Refused)?;
        let response = self.ask((home, hook), Type::Admit, &sent).await?;
        if response.patch.is_empty() {
            return Ok(false);
        }
        let empty = serde_json::from_slice::<Vec<Value>>(&response.patch).is_ok_and(|operations| operations.is_empty());
        if empty {
            return Ok(false);
        }
        let Some(object) = &sent.object else {
            let why = format!(
                "admission webhook {} attempted to modify the object, which is not supported for this operation",
                quote(&hook.rules.name)
            );
            return Err(Unsaid::Refused(ApiError::internal(&why)));
        };
        if response.patch_type != "JSONPatch" {
            return Err(Unsaid::Failed(format!(
                "unsupported patch type {}",
                quote(&response.patch_type)
            )));
        }
        let json = patched(object, &response.patch).map_err(|error| match error {
            patch::PatchError::BadRequest(why) => {
                Unsaid::Failed(format!("received undecodable patch in webhook response: {why}"))
            }
            other => Unsaid::Refused(ApiError::internal(&other.to_string())),
        })?;
        let new = self.held(face, &json).await.map_err(Unsaid::Refused)?;
        let changes: Value = serde_json::from_slice(&response.patch).unwrap_or_default();
        self.annotate(
            format!("patch.webhook.admission.k8s.io/{place}"),
            json!({"configuration": hook.rules.configuration, "webhook": hook.rules.name, "patch": changes,
                "patchType": response.patch_type})
            .to_string(),
        );
        let changed = state.object.as_ref() != Some(&new);
        state.object = Some(new);
        Ok(changed)
    }

    /// Asks every validating webhook that the request meets, all at once.
    pub(super) async fn ask_validating(&self, home: Home, set: &Set, objects: Objects<'_>) -> Result<(), ApiError> {
        let mut calls = Vec::new();
        let hooks = set.validating_hooks.iter().flat_map(|hooks| &hooks.0);
        let mut seen: Vec<(Arc<Served>, Arc<Sent>)> = Vec::new();
        for hook in hooks {
            let Some(face) = self.meets(home, hook, objects).await? else {
                continue;
            };
            let sent = match seen.iter().find(|(known, _)| Arc::ptr_eq(known, &face)) {
                Some((_, sent)) => sent.clone(),
                None => {
                    let sent = Arc::new(self.sent(home, &face, objects).await?);
                    seen.push((face, sent.clone()));
                    sent
                }
            };
            let place = format!("round_0_index_{}", calls.len());
            calls.push(async move {
                match self.ask((home, hook), Type::Validating, &sent).await {
                    Ok(_) => Ok(()),
                    Err(Unsaid::Refused(error)) => Err(error),
                    Err(Unsaid::Failed(why)) => self.failed((home, hook), Type::Validating, &why, &place),
                }
            });
        }
        let answers = futures::future::join_all(calls).await;
        answers.into_iter().collect()
    }

    /// The resource as which a request meets a webhook, its conditions included.
    async fn meets(&self, home: Home, hook: &Hook, objects: Objects<'_>) -> Result<Option<Arc<Served>>, ApiError> {
        let matched = self.matches(&hook.rules.criteria, objects).await?;
        let Some(face) = matched.map_err(|problem| self.unmatched(problem))? else {
            return Ok(None);
        };
        if hook.rules.conditions.is_empty() {
            return Ok(Some(face));
        }
        let sent = self.sent(home, &face, objects).await?;
        let object = sent.object.as_deref().map(tree).transpose()?;
        let old = sent.old.as_deref().map(tree).transpose()?;
        let request = Value::Object(sent.request);
        let inputs = Inputs {
            object: object.as_ref(),
            old: old.as_ref(),
            request: &request,
            namespace: None,
            params: None,
        };
        let holds = self
            .permitted(|permits, effort| {
                self.with_attributes(objects, |attributes| {
                    hook.rules
                        .holds(&Input::new(inputs, attributes, permits).within(effort))
                })
            })
            .await?;
        match holds {
            Ok(true) => Ok(Some(face)),
            Ok(false) => Ok(None),
            Err(why) => Err(ApiError::forbidden(
                &self.grant.target.served.name,
                self.name(objects),
                &why,
            )),
        }
    }

    async fn sent(&self, home: Home, face: &Served, objects: Objects<'_>) -> Result<Sent, ApiError> {
        let request = self.request(home, face, objects);
        let json = async |held: Option<&Value>| match held {
            Some(held) => self.json(face, held).await.map(Some),
            None => Ok(None),
        };
        Ok(Sent {
            request,
            object: json(objects.object).await?,
            old: json(objects.old).await?,
        })
    }

    /// The review's request, in the version of `face`. The platform is told the plane, with the user.
    pub(super) fn request(&self, home: Home, face: &Served, objects: Objects<'_>) -> Map<String, Value> {
        let mut request = self.request_of(face, objects);
        if home == Home::Platform
            && let Some(user) = request.get_mut("userInfo")
        {
            let plane = &self.grant.target.plane.name;
            user["extra"][parent::PLANE] = json!([plane]);
        }
        request
    }

    fn request_of(&self, face: &Served, objects: Objects<'_>) -> Map<String, Value> {
        self.with_attributes(objects, |attributes| {
            let mut faces = attributes.equivalents.iter().copied();
            let matched =
                faces.find(|one| one.resource.group == face.group() && one.resource.version == face.version());
            admission::request_value(attributes, matched.unwrap_or(attributes.face))
        })
    }

    async fn ask(&self, (home, hook): (Home, &Hook), of: Type, sent: &Sent) -> Result<Response, Unsaid> {
        let started = Instant::now();
        let answer = self.ask_now(home, hook, of, sent).await;
        let rejected = match &answer {
            Ok(_) => false,
            Err(Unsaid::Failed(_)) => hook.rules.failure_policy == FailurePolicy::Fail,
            Err(Unsaid::Refused(_)) => true,
        };
        let (name, operation) = (&hook.rules.name, self.operation.as_str());
        self.admissions()
            .metrics
            .observe(name, of, operation, rejected, started.elapsed());
        answer
    }

    async fn ask_now(&self, home: Home, hook: &Hook, of: Type, sent: &Sent) -> Result<Response, Unsaid> {
        let name = &hook.rules.name;
        if self.dry_run && hook.rules.side_effects != SideEffects::None {
            let why = format!("admission webhook {} does not support dry run", quote(name));
            return Err(Unsaid::Refused(ApiError::bad_request(why)));
        }
        let version = hook.rules.version.ok_or_else(|| {
            let why = "webhook does not accept known AdmissionReview versions (v1, v1beta1)";
            Unsaid::Failed(format!("could not create admission objects: {why}"))
        })?;
        let client = hook.client.as_ref();
        let client = client.map_err(|why| Unsaid::Failed(format!("could not get REST client: {why}")))?;
        let uid = Uuid::new_v4().to_string();
        let (object, old) = (sent.object.as_deref(), sent.old.as_deref());
        let body = admission::review(version, &uid, &sent.request, object, old);
        let call = Call {
            tenant: match home {
                Home::Plane => Tenant::of(self.grant.target.plane.id),
                Home::Platform => Tenant::of_user(PlaneId::ROOT, self.grant.target.plane.id),
            },
            to: client,
            timeout: Duration::from_secs(hook.rules.timeout_seconds),
            max_reply: MAX_REPLY,
            repeat: Repeat::Never,
        };
        let reply = self.admissions().egress.post(&call, Bytes::from(body)).await;
        let reply = reply.map_err(|error| Unsaid::Failed(format!("failed to call webhook: {error}")))?;
        let response = admission::read_response(version, &uid, of == Type::Admit, name, &reply);
        let response = response.map_err(|why| Unsaid::Failed(format!("received invalid webhook response: {why}")))?;
        for (key, value) in &response.annotations {
            self.annotate(format!("{name}/{key}"), value.clone());
        }
        for warning in &response.warnings {
            self.warn(warning.clone());
        }
        match response.denied {
            Some(denied) => Err(Unsaid::Refused(ApiError::denied(denied))),
            None => Ok(response),
        }
    }

    /// What a webhook that failed means for the request.
    fn failed(&self, (home, hook): (Home, &Hook), of: Type, why: &str, place: &str) -> Result<(), ApiError> {
        let name = &hook.rules.name;
        let why = format!("failed calling {}webhook {}: {why}", home.named(), quote(name));
        if hook.rules.failure_policy == FailurePolicy::Fail {
            return Err(ApiError::internal(&why));
        }
        tracing::debug!(why, "a webhook failed and is ignored");
        self.admissions().metrics.failed_open(name, of);
        let prefix = match of {
            Type::Admit => "failed-open.mutation.webhook.admission.k8s.io/",
            Type::Validating => "failed-open.validating.webhook.admission.k8s.io/",
        };
        self.annotate(format!("{prefix}{place}"), name.clone());
        Ok(())
    }
}

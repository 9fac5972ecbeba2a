//! A webhook that decides: asked with a SubjectAccessReview, believed for a while.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use mica_machinery::access::{self, Answer, FailurePolicy, Identities, Matched, Planes, Spec, WebhookSettings};
use mica_machinery::kind::User as KindUser;
use mica_machinery::rbac::Asked;
use quick_cache::sync::Cache;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use super::metric::AuthzMetrics;
use super::{Decision, Place, Realm, User, Verdict, parent};
use crate::egress::{BadKubeconfig, Call, CallError, ClientConfig, Egress, Repeat, Tenant};

/// Answers that are remembered, of each webhook. An entry is a hash, a time and a reason.
const ANSWERS: usize = 32_768;
/// Largest answer.
const MAX_REPLY: usize = 1 << 20;
/// What requests say of themselves may be this long to be remembered. Upstream's number.
const MAX_REMEMBERED: usize = 10_000;
/// How often a webhook is asked that fails in passing, and how long is waited in between at first. Upstream's numbers.
const TRIES: usize = 5;
const PAUSE: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(super) struct Webhook {
    name: String,
    settings: WebhookSettings,
    to: ClientConfig,
    answers: Answers,
}

/// Answers by the hash of their question, each with the time until which it counts.
struct Answers(Cache<[u8; 32], (Instant, Answer)>);

impl std::fmt::Debug for Answers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Answers({})", self.0.len())
    }
}

impl Webhook {
    pub(super) fn new(name: &str, settings: WebhookSettings) -> Result<Self, BadKubeconfig> {
        Ok(Self {
            name: name.to_owned(),
            to: ClientConfig::from_kubeconfig(Path::new(&settings.connection.0))?,
            settings,
            answers: Answers(Cache::new(ANSWERS)),
        })
    }

    /// Whether it is asked about requests of a user in a place at all.
    pub(super) fn sees(&self, user: &User, place: Place<'_>) -> bool {
        let planes = match self.settings.planes {
            Planes::All => true,
            Planes::Root => place.is_root(),
            Planes::Others => !place.is_root(),
        };
        planes && (self.settings.identities == Identities::All || user.realm == Realm::Platform)
    }

    pub(super) async fn decide(
        &self,
        egress: &Egress,
        metrics: &AuthzMetrics,
        user: &User,
        place: Place<'_>,
        asked: &Asked<'_>,
    ) -> Decision {
        if !self.sees(user, place) {
            return Decision::default();
        }
        let extra = parent::shown(user, place);
        let kind = KindUser {
            extra: &extra,
            ..user.as_kind()
        };
        let spec = Spec::new(&kind, asked);
        match self.settings.conditions.hold(&spec) {
            Matched::Yes => {}
            Matched::No => {
                metrics.excluded(&self.name);
                return Decision::default();
            }
            Matched::Failed(error) => {
                metrics.condition_failed(&self.name);
                return self.failed(error);
            }
        }
        match self.answer(egress, metrics, place, asked, &spec).await {
            Ok(answer) => decision(answer),
            Err(error) => {
                tracing::warn!(webhook = self.name, error, "an authorization webhook failed");
                self.failed(error)
            }
        }
    }

    /// What a failure counts as.
    fn failed(&self, error: String) -> Decision {
        Decision {
            verdict: match self.settings.failure_policy {
                FailurePolicy::NoOpinion => Verdict::NoOpinion,
                FailurePolicy::Deny => Verdict::Denied,
            },
            reason: String::new(),
            error: Some(error),
        }
    }

    async fn answer(
        &self,
        egress: &Egress,
        metrics: &AuthzMetrics,
        place: Place<'_>,
        asked: &Asked<'_>,
        spec: &Spec,
    ) -> Result<Answer, String> {
        let key: [u8; 32] = Sha256::digest(spec.bytes()).into();
        if let Some((until, answer)) = self.answers.0.get(&key)
            && Instant::now() < until
        {
            return Ok(answer);
        }
        let question = Bytes::from(access::question(self.settings.version, spec));
        let answer = self.ask(egress, metrics, place, question).await?;
        let ttl = if answer.allowed {
            self.settings.authorized_ttl
        } else {
            self.settings.unauthorized_ttl
        };
        if !ttl.is_zero() && size(asked) < MAX_REMEMBERED {
            self.answers.0.insert(key, (Instant::now() + ttl, answer.clone()));
        }
        Ok(answer)
    }

    async fn ask(
        &self,
        egress: &Egress,
        metrics: &AuthzMetrics,
        place: Place<'_>,
        question: Bytes,
    ) -> Result<Answer, String> {
        let call = Call {
            tenant: match place {
                Place::Plane(plane) => Tenant::of_user(mica_api::PlaneId::ROOT, plane.id),
                Place::Everywhere => Tenant::Platform,
            },
            to: &self.to,
            timeout: self.settings.timeout,
            max_reply: MAX_REPLY,
            repeat: Repeat::Safe,
        };
        let mut pause = PAUSE;
        for attempt in 1.. {
            let start = Instant::now();
            let replied = egress.post(&call, question.clone()).await;
            let result = match &replied {
                Ok(_) => "success",
                Err(error) if error.is_timeout() => "timeout",
                Err(_) => "error",
            };
            metrics.asked(&self.name, result, start.elapsed());
            match replied {
                Ok(reply) => return access::answer(self.settings.version, &reply),
                Err(error) if attempt < TRIES && error.is_passing() => {
                    tokio::time::sleep(pause).await;
                    pause = pause * 3 / 2;
                }
                Err(error) => {
                    if self.settings.failure_policy == FailurePolicy::NoOpinion {
                        metrics.failed_open(&self.name, result);
                    }
                    return Err(told(&error));
                }
            }
        }
        unreachable!("the last attempt returns")
    }
}

fn told(error: &CallError) -> String {
    error.to_string()
}

fn decision(answer: Answer) -> Decision {
    let both = "webhook subject access review returned both allow and deny response";
    Decision {
        verdict: match (answer.denied, answer.allowed) {
            (true, _) => Verdict::Denied,
            (false, true) => Verdict::Allowed,
            (false, false) => Verdict::NoOpinion,
        },
        reason: answer.reason,
        error: (answer.denied && answer.allowed).then(|| both.to_owned()),
    }
}

/// How much of a question the requester chose.
fn size(asked: &Asked<'_>) -> usize {
    match asked {
        Asked::Path { verb, path } => verb.len() + path.len(),
        Asked::Resource(action) => [
            action.namespace,
            action.verb,
            action.group,
            action.version,
            action.resource,
            action.subresource,
            action.name,
        ]
        .iter()
        .map(|text| text.len())
        .sum(),
    }
}

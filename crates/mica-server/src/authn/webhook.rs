//! Tokens that somebody else knows: a webhook is asked with a TokenReview, and its answers are kept for a while.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mica_machinery::object;
use quick_cache::sync::Cache;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::authz::User;
use crate::egress::{Call, ClientConfig, Egress, Repeat, Tenant};

/// For one question: as long as upstream's client waits for an answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Largest answer: a user with all its groups.
const MAX_REPLY: usize = 1 << 20;
/// Answers that are kept, of either sort. An entry is about 500 bytes.
const CACHED: usize = 10_000;

/// Which version of the question a webhook understands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ReviewVersion {
    V1,
    /// Upstream's default.
    #[default]
    V1Beta1,
}

impl ReviewVersion {
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "v1" => Some(Self::V1),
            "v1beta1" => Some(Self::V1Beta1),
            _ => None,
        }
    }

    fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "authentication.k8s.io/v1",
            Self::V1Beta1 => "authentication.k8s.io/v1beta1",
        }
    }
}

/// A webhook that knows tokens.
pub struct TokenWebhook {
    to: ClientConfig,
    version: ReviewVersion,
    /// How long answers are kept.
    ttl: Duration,
    answers: Cache<[u8; 32], (Answer, Instant)>,
}

impl fmt::Debug for TokenWebhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenWebhook")
            .field("to", &self.to)
            .finish_non_exhaustive()
    }
}

/// What a webhook says about a token.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    /// Somebody's, and for which of the audiences that were asked about.
    Known(Arc<User>, Vec<String>),
    /// Nobody's, and why, if it says so.
    Unknown(String),
}

impl TokenWebhook {
    pub fn new(to: ClientConfig, version: ReviewVersion, ttl: Duration) -> Self {
        Self {
            to,
            version,
            ttl,
            answers: Cache::new(CACHED),
        }
    }

    /// Asks, unless the answer is known. Who asks about the same token at the same time waits for one answer. That there was
    /// none is an error, which is not kept.
    pub(super) async fn check(&self, egress: &Egress, token: &str, audiences: &[String]) -> Result<Answer, String> {
        let mut hash = Sha256::new();
        for part in audiences.iter().map(String::as_str).chain([token]) {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        let hash: [u8; 32] = hash.finalize().into();
        self.answers.remove_if(&hash, |(_, until)| *until <= Instant::now());
        let asked = self.answers.get_or_insert_async(&hash, async {
            let answer = self.ask(egress, token, audiences).await?;
            Ok((answer, Instant::now() + self.ttl))
        });
        asked.await.map(|(answer, _)| answer)
    }

    async fn ask(&self, egress: &Egress, token: &str, audiences: &[String]) -> Result<Answer, String> {
        let review = json!({
            "kind": "TokenReview",
            "apiVersion": self.version.api_version(),
            "metadata": {},
            "spec": {"token": token, "audiences": audiences},
            "status": {"user": {}},
        });
        let call = Call {
            tenant: Tenant::Platform,
            to: &self.to,
            timeout: PATIENCE,
            max_reply: MAX_REPLY,
            repeat: Repeat::Safe,
        };
        let answer = egress.post(&call, review.to_string().into()).await;
        let answer = answer.map_err(|error| error.to_string())?;
        let answer: Value = serde_json::from_slice(&answer).map_err(|_| "the answer is no JSON".to_owned())?;
        if object::string(&answer, &["kind"]) != "TokenReview" {
            return Err("the answer is no TokenReview".to_owned());
        }
        Ok(read(&answer, audiences))
    }
}

fn read(answer: &Value, audiences: &[String]) -> Answer {
    let status = answer.get("status").unwrap_or(&Value::Null);
    let text = |path: &[&str]| object::string(status, path).to_owned();
    let texts = |value: &[Value]| -> Vec<String> {
        let texts = value.iter().filter_map(Value::as_str);
        texts.map(ToOwned::to_owned).collect()
    };
    if status.get("authenticated") != Some(&Value::Bool(true)) {
        return Answer::Unknown(text(&["error"]));
    }
    // A webhook that does not know of audiences answers for the server itself, which these are.
    let named = texts(object::list(status, &["audiences"]));
    let common: Vec<String> = match named.is_empty() {
        true => audiences.to_vec(),
        false => audiences.iter().filter(|one| named.contains(one)).cloned().collect(),
    };
    if common.is_empty() && !audiences.is_empty() {
        return Answer::Unknown(String::new());
    }
    let mut groups = texts(object::list(status, &["user", "groups"]));
    if !groups.iter().any(|group| group == "system:authenticated") {
        groups.push("system:authenticated".to_owned());
    }
    let extra = object::map(status, &["user", "extra"]).into_iter().flatten();
    let extra = extra.map(|(key, values)| (key.clone(), texts(values.as_array().map_or(&[], Vec::as_slice))));
    let user = User {
        name: text(&["user", "username"]),
        uid: text(&["user", "uid"]),
        groups,
        extra: extra.collect(),
        ..User::default()
    };
    Answer::Known(Arc::new(user), common)
}

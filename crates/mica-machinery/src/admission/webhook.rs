//! One webhook of a configuration, compiled.

use serde_json::Value;

use super::condition::{Condition, FailurePolicy};
use super::criteria::Criteria;
use super::input::Input;
use super::mutate::Reinvocation;
use super::review::ReviewVersion;
use crate::cel::admission::{Compiler, Params};
use crate::object;

/// What calling it does beside answering.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SideEffects {
    /// None that a dry run must not have.
    None,
    Some,
}

/// A webhook. Where it is called is the server's business: `client_config` is as stored.
#[derive(Debug)]
pub struct Webhook {
    pub name: String,
    /// Of the object that it is part of.
    pub configuration: String,
    /// What tells it from all other webhooks of its plane.
    pub id: String,
    pub criteria: Criteria,
    pub conditions: Vec<Condition>,
    pub failure_policy: FailurePolicy,
    pub side_effects: SideEffects,
    pub timeout_seconds: u64,
    /// None: it asks for versions that nobody speaks.
    pub version: Option<ReviewVersion>,
    pub reinvocation: Reinvocation,
    pub client_config: Value,
}

const DEFAULT_TIMEOUT_SECONDS: u64 = 10;

impl Webhook {
    /// Every webhook of a configuration, in its order.
    pub fn all(configuration: &Value) -> Vec<Self> {
        let owner = object::name(configuration);
        let hooks = object::list(configuration, &["webhooks"]).iter().enumerate();
        hooks.map(|(at, hook)| Self::read(owner, at, hook)).collect()
    }

    fn read(configuration: &str, at: usize, hook: &Value) -> Self {
        let name = object::string(hook, &["name"]).to_owned();
        let compiler = Compiler::new(Params::Absent);
        Self {
            configuration: configuration.to_owned(),
            id: format!("{configuration}/{name}/{at}"),
            name,
            criteria: Criteria::of_webhook(hook),
            conditions: Condition::all(object::list(hook, &["matchConditions"]), &compiler),
            failure_policy: FailurePolicy::read(hook),
            side_effects: match object::string(hook, &["sideEffects"]) {
                "None" | "NoneOnDryRun" => SideEffects::None,
                _ => SideEffects::Some,
            },
            timeout_seconds: object::int(hook, &["timeoutSeconds"])
                .and_then(|seconds| u64::try_from(seconds).ok())
                .unwrap_or(DEFAULT_TIMEOUT_SECONDS),
            version: ReviewVersion::first_of(object::list(hook, &["admissionReviewVersions"])),
            reinvocation: Reinvocation::read(hook),
            client_config: hook.get("clientConfig").cloned().unwrap_or_default(),
        }
    }

    /// Whether its match conditions hold.
    pub fn holds(&self, input: &Input<'_>) -> Result<bool, String> {
        Condition::hold(&self.conditions, &[], input, self.failure_policy)
    }
}

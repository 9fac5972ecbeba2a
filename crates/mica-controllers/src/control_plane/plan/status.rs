//! What is said of a control plane. What was published stays published, whatever fails later.

use mica_api::control_plane::{Migration, MigrationStep, Phase, SecretRef, condition, reason};
use serde_json::{Map, Value, json};

use super::endpoint::Endpoints;
use super::{Observed, Problem};
use crate::condition::{Change, find, with};
use crate::dedicated::UPGRADED;
use crate::event::{self, Severity, Told};

/// Reasons that nothing but a change of what was asked for takes away.
const LASTING: [&str; 12] = [
    reason::INVALID_CLUSTER_PATH,
    reason::CLUSTER_PATH_TAKEN,
    reason::CLASS_NOT_FOUND,
    reason::MODE_NOT_SUPPORTED,
    reason::MODE_NOT_ALLOWED,
    reason::AUTH_MODEL_NOT_SUPPORTED,
    reason::INVALID_ENDPOINT,
    reason::PROVIDER_NOT_FOUND,
    reason::NAMESPACE_TAKEN,
    reason::ADDON_NOT_FOUND,
    reason::ADDON_FAILED,
    reason::FAILED,
];
/// Conditions that say nothing of whether a control plane can be used.
const ASIDE: [&str; 2] = [condition::MIGRATED, UPGRADED];
/// The longest message of a condition.
const LONGEST_MESSAGE: usize = 4096;

/// What was found and done in one go.
#[derive(Clone, Debug, Default)]
pub struct Report {
    changes: Vec<Change>,
    pub endpoints: Option<Endpoints>,
    pub secret: Option<SecretRef>,
    pub version: Option<String>,
    pub migration: Option<Migration>,
    pub told: Vec<(String, String)>,
    /// Conditions that do not apply any more.
    pub dropped: Vec<&'static str>,
}

impl Report {
    pub fn done(&mut self, r#type: &'static str, message: &str) {
        self.set(Change::new(r#type, "True", reason::RECONCILED, message));
    }

    pub fn fail(&mut self, r#type: &'static str, problem: &Problem) {
        self.set(Change::new(r#type, "False", problem.reason, &problem.message));
    }

    pub fn set(&mut self, mut change: Change) {
        if let Some((at, _)) = change.message.char_indices().nth(LONGEST_MESSAGE) {
            change.message.truncate(at);
        }
        self.changes.retain(|known| known.r#type != change.r#type);
        self.changes.push(change);
    }

    /// All in one: the first thing that is wrong, in the order of the steps.
    fn ready(&self) -> Change {
        let wrong = self
            .changes
            .iter()
            .find(|change| change.status != "True" && !ASIDE.contains(&change.r#type));
        match wrong {
            Some(change) => Change::new(condition::READY, "False", &change.reason, &change.message),
            None => Change::new(
                condition::READY,
                "True",
                reason::RECONCILED,
                "the control plane can be used",
            ),
        }
    }

    fn phase(&self, ready: &Change) -> Phase {
        let moving = self
            .migration
            .as_ref()
            .is_some_and(|migration| !matches!(migration.step, MigrationStep::Completed | MigrationStep::Cancelled));
        match ready.status.as_str() {
            _ if moving => Phase::Migrating,
            "True" => Phase::Ready,
            _ if LASTING.contains(&ready.reason.as_str()) => Phase::Failed,
            _ => Phase::Provisioning,
        }
    }
}

/// What is to be written of the status, and what is told of it; nothing if it is so already.
pub fn plan(at: &Observed, report: &Report, now: &str) -> (Option<Value>, Vec<Told>) {
    let present = &at.object["status"];
    let generation = &at.object["metadata"]["generation"];
    let ready = report.ready();
    let phase = report.phase(&ready);
    let mut changes = report.changes.clone();
    changes.push(ready);
    let mut conditions = with(&present["conditions"], &changes, generation, now);
    if let Some(all) = conditions.as_array_mut() {
        all.retain(|one| !report.dropped.iter().any(|dropped| one["type"] == *dropped));
    }
    let mut told = transitions(&present["conditions"], &conditions, &changes);
    let mut wanted = Map::new();
    wanted.insert("conditions".to_owned(), conditions);
    wanted.insert("phase".to_owned(), json!(phase));
    wanted.insert("observedGeneration".to_owned(), generation.clone());
    if let Some(endpoints) = &report.endpoints {
        wanted.insert("endpoint".to_owned(), endpoints.internal.clone().into());
        wanted.insert("endpoints".to_owned(), json!(endpoints.published()));
    }
    if let Some(secret) = &report.secret {
        wanted.insert("kubeconfigSecretRef".to_owned(), json!(secret));
    }
    if let Some(version) = &report.version {
        wanted.insert("version".to_owned(), version.clone().into());
    }
    if let Some(migration) = &report.migration {
        wanted.insert("migration".to_owned(), json!(migration));
    }
    wanted.retain(|field, value| present.get(field) != Some(value));
    told.extend(report.told.iter().map(|(reason, message)| Told {
        kind: Severity::Normal,
        reason: reason.clone(),
        message: message.clone(),
    }));
    if told_of_phase(present, phase) {
        told.push(Told {
            kind: Severity::Normal,
            reason: format!("{phase:?}"),
            message: format!("the control plane is {phase:?}"),
        });
    }
    if wanted.is_empty() {
        return (None, told);
    }
    let patch = json!({
        "metadata": {"resourceVersion": at.object["metadata"]["resourceVersion"]},
        "status": wanted,
    });
    (Some(patch), told)
}

/// The first phase of something new, `Provisioning`, is no news; failures are told by their condition.
fn told_of_phase(present: &Value, phase: Phase) -> bool {
    let before = present["phase"].as_str();
    let news = before.is_some() || phase == Phase::Ready;
    news && before != Some(&format!("{phase:?}")) && phase != Phase::Failed
}

/// What is told of conditions: whatever goes wrong, and whatever gets right again. That a step of something new went well is
/// told by its phase alone.
fn transitions(before: &Value, after: &Value, changes: &[Change]) -> Vec<Told> {
    let changes = changes.iter().filter(|change| change.r#type != condition::READY);
    let told = changes.filter_map(|change| {
        let told = event::transition(before, after, change.r#type)?;
        (change.status == "False" || find(before, change.r#type).is_some()).then_some(told)
    });
    told.collect()
}

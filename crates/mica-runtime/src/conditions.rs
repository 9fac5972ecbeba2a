//! Status conditions: set as upstream's `meta.SetStatusCondition` does, by one convention.
//!
//! The convention, for every kind:
//!
//! - A type is an adjective or a past participle in PascalCase (`Ready`, `Engaged`), for which `True` is the good or the normal
//!   state, unless its name says a trouble (`Degraded`).
//! - `Unknown` is for "not found out yet", never for an error. An object that is new has its conditions as `Unknown`.
//! - A reason is one PascalCase word for machines. It is never empty, also when the status is `True`.
//! - A message is a sentence for people. It holds nothing that changes at each look, such as a time or a count of tries:
//!   a status that changes for ever reconciles for ever.
//! - `observedGeneration` is the generation that the condition is about.
//!
//! [`check`] says what breaks it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use kube::Resource;

/// The condition that says whether an object is as its spec asks. Every kind that has conditions has it.
pub const READY: &str = "Ready";

/// Upstream's bounds on what conditions hold.
pub const LONGEST_TYPE: usize = 316;
pub const LONGEST_REASON: usize = 1024;
pub const LONGEST_MESSAGE: usize = 32768;

/// A condition's status.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    True,
    False,
    Unknown,
}

impl Status {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

/// What a condition is to say.
#[derive(Clone, Debug)]
pub struct Wanted {
    type_: String,
    status: Status,
    reason: String,
    message: String,
    observed_generation: Option<i64>,
}

impl Wanted {
    pub fn new(type_: impl Into<String>, status: Status, reason: impl Into<String>) -> Self {
        Self {
            type_: type_.into(),
            status,
            reason: reason.into(),
            message: String::new(),
            observed_generation: None,
        }
    }

    #[must_use]
    pub fn message(mut self, message: impl Into<String>) -> Self {
        self.message = message.into();
        cut(&mut self.message, LONGEST_MESSAGE);
        self
    }

    /// The generation that was looked at: of the object as it was read, not as it may be by now.
    #[must_use]
    pub fn observed(mut self, object: &impl Resource) -> Self {
        self.observed_generation = object.meta().generation;
        self
    }
}

/// Whether anything is to be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    Changed,
    Unchanged,
}

/// Sets a condition. Its transition time changes only when its status does.
pub fn set(conditions: &mut Vec<Condition>, wanted: Wanted, now: Timestamp) -> Change {
    let Some(existing) = conditions.iter_mut().find(|c| c.type_ == wanted.type_) else {
        conditions.push(Condition {
            type_: wanted.type_,
            status: wanted.status.as_str().to_owned(),
            reason: wanted.reason,
            message: wanted.message,
            observed_generation: wanted.observed_generation,
            last_transition_time: Time(now),
        });
        return Change::Changed;
    };
    let before = existing.clone();
    if existing.status != wanted.status.as_str() {
        wanted.status.as_str().clone_into(&mut existing.status);
        existing.last_transition_time = Time(now);
    }
    existing.reason = wanted.reason;
    existing.message = wanted.message;
    existing.observed_generation = wanted.observed_generation;
    if *existing == before {
        Change::Unchanged
    } else {
        Change::Changed
    }
}

pub fn find<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

/// What a condition says. One that is not there is `Unknown`.
pub fn status(conditions: &[Condition], type_: &str) -> Status {
    match find(conditions, type_).map(|condition| condition.status.as_str()) {
        Some("True") => Status::True,
        Some("False") => Status::False,
        _ => Status::Unknown,
    }
}

pub fn remove(conditions: &mut Vec<Condition>, type_: &str) -> Change {
    let before = conditions.len();
    conditions.retain(|condition| condition.type_ != type_);
    if conditions.len() == before {
        Change::Unchanged
    } else {
        Change::Changed
    }
}

/// How a condition breaks the convention.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Broken {
    #[error("the type {0:?} is not a PascalCase word of at most {LONGEST_TYPE} characters")]
    Type(String),
    #[error("the status {0:?} is none of True, False and Unknown")]
    Status(String),
    #[error("the reason {0:?} is not a PascalCase word of at most {LONGEST_REASON} characters")]
    Reason(String),
    #[error("the message has {0} bytes, more than {LONGEST_MESSAGE}")]
    Message(usize),
    #[error("the type {0:?} is there twice")]
    Twice(String),
}

/// Holds conditions to the convention.
pub fn check(conditions: &[Condition]) -> Result<(), Broken> {
    for (i, condition) in conditions.iter().enumerate() {
        let type_ = condition.type_.rsplit('/').next().unwrap_or_default();
        if !is_word(type_) || condition.type_.len() > LONGEST_TYPE {
            return Err(Broken::Type(condition.type_.clone()));
        }
        if !matches!(condition.status.as_str(), "True" | "False" | "Unknown") {
            return Err(Broken::Status(condition.status.clone()));
        }
        if !is_word(&condition.reason) || condition.reason.len() > LONGEST_REASON {
            return Err(Broken::Reason(condition.reason.clone()));
        }
        if condition.message.len() > LONGEST_MESSAGE {
            return Err(Broken::Message(condition.message.len()));
        }
        if conditions[..i].iter().any(|other| other.type_ == condition.type_) {
            return Err(Broken::Twice(condition.type_.clone()));
        }
    }
    Ok(())
}

fn is_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_uppercase()) && text.chars().all(|c| c.is_ascii_alphanumeric())
}

/// Cuts a text to so many bytes, at a character.
pub(crate) fn cut(text: &mut String, longest: usize) {
    if text.len() > longest {
        let end = (0..=longest).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn ready(status: Status, reason: &str, message: &str) -> Wanted {
        let mut object = ConfigMap::default();
        object.metadata.generation = Some(3);
        Wanted::new(READY, status, reason).message(message).observed(&object)
    }

    #[test]
    fn the_transition_time_is_of_the_status_alone() {
        let mut conditions = Vec::new();
        let cases = [
            (
                ready(Status::False, "Pending", "One is missing."),
                1,
                Change::Changed,
                1,
            ),
            (
                ready(Status::False, "Pending", "One is missing."),
                2,
                Change::Unchanged,
                1,
            ),
            (
                ready(Status::False, "Pending", "Two are missing."),
                3,
                Change::Changed,
                1,
            ),
            (
                ready(Status::False, "Failed", "Two are missing."),
                4,
                Change::Changed,
                1,
            ),
            (ready(Status::True, "Reconciled", ""), 5, Change::Changed, 5),
            (ready(Status::Unknown, "Waiting", ""), 6, Change::Changed, 6),
        ];
        for (wanted, now, change, transition) in cases {
            assert_eq!(set(&mut conditions, wanted.clone(), at(now)), change, "{wanted:?}");
            assert_eq!(conditions.len(), 1);
            assert_eq!(conditions[0].last_transition_time, Time(at(transition)), "{wanted:?}");
            assert_eq!(conditions[0].observed_generation, Some(3));
            assert_eq!(status(&conditions, READY), wanted.status);
        }
    }

    #[test]
    fn another_generation_is_a_change_without_a_transition() {
        let mut conditions = Vec::new();
        set(&mut conditions, ready(Status::True, "Reconciled", ""), at(1));
        let wanted = Wanted::new(READY, Status::True, "Reconciled");
        assert_eq!(set(&mut conditions, wanted, at(2)), Change::Changed);
        assert_eq!(conditions[0].last_transition_time, Time(at(1)));
    }

    #[test]
    fn conditions_keep_their_order_and_can_be_removed() {
        let mut conditions = Vec::new();
        for type_ in ["Ready", "Engaged", "Degraded"] {
            set(&mut conditions, Wanted::new(type_, Status::True, "Fine"), at(1));
        }
        set(&mut conditions, Wanted::new("Ready", Status::False, "Bad"), at(1));
        assert_eq!(remove(&mut conditions, "Engaged"), Change::Changed);
        assert_eq!(remove(&mut conditions, "Engaged"), Change::Unchanged);
        let types: Vec<_> = conditions.iter().map(|c| c.type_.as_str()).collect();
        assert_eq!(types, ["Ready", "Degraded"]);
        assert_eq!(status(&conditions, "Engaged"), Status::Unknown);
        assert!(find(&conditions, "Degraded").is_some());
    }

    #[test]
    fn what_breaks_the_convention_is_named() {
        let good = |type_: &str, reason: &str| {
            let mut conditions = Vec::new();
            set(&mut conditions, Wanted::new(type_, Status::True, reason), at(1));
            conditions
        };
        assert_eq!(check(&good("Ready", "Reconciled")), Ok(()));
        assert_eq!(check(&good("example.com/Ready", "Reconciled")), Ok(()));
        assert_eq!(
            check(&good("ready", "Reconciled")),
            Err(Broken::Type("ready".to_owned()))
        );
        assert_eq!(check(&good("Ready", "")), Err(Broken::Reason(String::new())));
        let spaced = "all is well".to_owned();
        assert_eq!(check(&good("Ready", &spaced)), Err(Broken::Reason(spaced)));
        let mut other = good("Ready", "Reconciled");
        other[0].status = "yes".to_owned();
        assert_eq!(check(&other), Err(Broken::Status("yes".to_owned())));
        let twice = [good("Ready", "A"), good("Ready", "B")].concat();
        assert_eq!(check(&twice), Err(Broken::Twice("Ready".to_owned())));
    }

    #[test]
    fn a_message_is_cut_at_a_character() {
        let wanted = Wanted::new(READY, Status::True, "Fine").message("ä".repeat(LONGEST_MESSAGE));
        let mut conditions = Vec::new();
        set(&mut conditions, wanted, at(1));
        assert_eq!(conditions[0].message.len(), LONGEST_MESSAGE);
        let mut odd = "aää".to_owned();
        cut(&mut odd, 2);
        assert_eq!(odd, "a");
    }
}

//! Decisions: what they say, where they count, and what a refusal is answered with.

use mica_machinery::rbac::Held;

use crate::error::ApiError;
use crate::plane::Plane;

/// What was decided.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    pub verdict: Verdict,
    pub reason: String,
    /// What went wrong on the way.
    pub error: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verdict {
    Allowed,
    /// Whoever comes later in the chain is not asked.
    Denied,
    /// In the end that is a refusal.
    #[default]
    NoOpinion,
}

impl Decision {
    pub fn is_allowed(&self) -> bool {
        self.verdict == Verdict::Allowed
    }

    /// The error of a request that is refused: 403 in upstream's words, or 500 if it could not be decided.
    pub(super) fn refusal(&self, forbidden: impl FnOnce(&str) -> ApiError) -> ApiError {
        match &self.error {
            None => forbidden(&self.reason),
            Some(error) => ApiError::undecided(error.as_str()),
        }
    }
}

impl From<mica_machinery::rbac::Decision> for Decision {
    fn from(decision: mica_machinery::rbac::Decision) -> Self {
        Self {
            verdict: if decision.allowed {
                Verdict::Allowed
            } else {
                Verdict::NoOpinion
            },
            reason: decision.reason,
            error: None,
        }
    }
}

/// Where something is to be done.
#[derive(Clone, Copy)]
pub(super) enum Place<'p> {
    Plane(&'p Plane),
    /// In all planes but root.
    Everywhere,
}

impl Place<'_> {
    pub(super) fn is_root(self) -> bool {
        matches!(self, Self::Plane(plane) if plane.is_root())
    }
}

/// What somebody may do, as far as that can be listed.
#[derive(Debug, Default)]
pub struct Listed {
    pub held: Held,
    pub completeness: Completeness,
}

/// Whether a list of rules is all that somebody may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Completeness {
    #[default]
    Complete,
    /// Somebody in the chain cannot list what it allows.
    Incomplete,
}

pub(super) fn allowed() -> Decision {
    Decision {
        verdict: Verdict::Allowed,
        ..Decision::default()
    }
}

pub(super) fn denied(reason: String) -> Decision {
    Decision {
        reason,
        ..Decision::default()
    }
}

//! Audit: which requests are written down, how much of them, and how that looks.
//!
//! Rules, their errors and the form of events are upstream's (`apiserver/pkg/audit`, `audit.k8s.io/v1`). A policy is compiled
//! once, and asking it compares and nothing more: most requests are about nothing that anybody wants to keep.

pub mod body;
mod event;
mod policy;

pub use event::{Code, Event, LINE_HEAD, ObjectRef, Person, shown_user_agent};
pub use policy::{About, BadPolicy, Plan, Policy, Request, validate};

/// How much of a request is written down. Each level has what is below it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Level {
    #[default]
    None,
    /// Who, what, when, and how it ended.
    Metadata,
    /// And what was sent.
    Request,
    /// And what was answered.
    RequestResponse,
}

impl Level {
    pub const ALL: [Self; 4] = [Self::None, Self::Metadata, Self::Request, Self::RequestResponse];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Metadata => "Metadata",
            Self::Request => "Request",
            Self::RequestResponse => "RequestResponse",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.as_str() == text)
    }
}

/// When in the life of a request something is written down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    RequestReceived,
    /// Only of what lasts: the answer has begun.
    ResponseStarted,
    ResponseComplete,
    Panic,
}

impl Stage {
    pub const ALL: [Self; 4] = [
        Self::RequestReceived,
        Self::ResponseStarted,
        Self::ResponseComplete,
        Self::Panic,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::RequestReceived => "RequestReceived",
            Self::ResponseStarted => "ResponseStarted",
            Self::ResponseComplete => "ResponseComplete",
            Self::Panic => "Panic",
        }
    }
}

/// Some of the stages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stages(u8);

impl Stages {
    pub fn has(self, stage: Stage) -> bool {
        self.0 & (1 << stage as u8) != 0
    }

    #[must_use]
    pub fn with(self, stage: Stage) -> Self {
        Self(self.0 | (1 << stage as u8))
    }

    #[must_use]
    fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

#[cfg(test)]
mod tests;

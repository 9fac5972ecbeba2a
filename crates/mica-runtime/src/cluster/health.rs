//! What a cluster's requests say about it.

use std::fmt;

/// How a cluster is, as far as its requests have shown.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Health {
    /// It is engaged, and nothing has been asked of it.
    #[default]
    Engaged,
    /// It answers.
    Reachable,
    /// It answers, and does not accept what we show.
    Unauthorized { message: String },
    /// It does not answer. Nothing is sent but a probe now and then.
    Unreachable { message: String },
}

impl Health {
    /// A word for conditions and metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Engaged => "Engaged",
            Self::Reachable => "Reachable",
            Self::Unauthorized { .. } => "Unauthorized",
            Self::Unreachable { .. } => "Unreachable",
        }
    }

    pub fn is_well(&self) -> bool {
        matches!(self, Self::Engaged | Self::Reachable)
    }
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Engaged => f.write_str("engaged"),
            Self::Reachable => f.write_str("engaged, and answers"),
            Self::Unauthorized { message } => write!(f, "does not accept our credentials: {message}"),
            Self::Unreachable { message } => write!(f, "does not answer: {message}"),
        }
    }
}

//! Why a call failed, in the words that Go's HTTP client and upstream's use: they are part of answers.

use std::net::SocketAddr;

use mica_machinery::codec::text::quote;

/// A call that brought no JSON back.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// What is to be called makes no sense.
    #[error("{0}")]
    Config(String),
    /// No answer came.
    #[error("Post {}: {cause}", quote(url))]
    Transport { url: String, cause: Cause },
    /// An answer began and did not end.
    #[error("unexpected error when reading response body. Please retry. Original error: {0}")]
    Body(String),
    /// An answer that says no.
    #[error("{text}")]
    Refused { code: u16, text: String },
    /// An answer that is none.
    #[error("{0}")]
    Answer(String),
}

impl CallError {
    /// Whether time ran out.
    pub fn is_timeout(&self) -> bool {
        match self {
            Self::Transport { cause, .. } => {
                matches!(
                    cause,
                    Cause::NoTurn | Cause::NoConnection | Cause::NoHeaders | Cause::NoTime
                )
            }
            Self::Body(text) => text == BODY_TIMEOUT,
            Self::Refused { code, .. } => *code == 504,
            Self::Config(_) | Self::Answer(_) => false,
        }
    }

    /// Whether asking again soon may help: what upstream's webhooks of the platform are asked again for.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Refused { code, .. } => matches!(code, 429 | 500 | 504),
            Self::Transport { cause, .. } => {
                matches!(cause, Cause::Broken(text) if text.contains("connection reset"))
            }
            Self::Config(_) | Self::Body(_) | Self::Answer(_) => false,
        }
    }
}

pub(super) const BODY_TIMEOUT: &str =
    "context deadline exceeded (Client.Timeout or context cancellation while reading body)";

/// What kept an answer from coming.
#[derive(Debug, thiserror::Error)]
pub enum Cause {
    #[error("service {} not found", quote(.0))]
    NoService(String),
    #[error("dial tcp: lookup {0}: no such host")]
    NoHost(String),
    #[error("dial tcp {0}: the address is not one that this control plane may call")]
    Forbidden(SocketAddr),
    #[error("dial tcp {at}: connect: {why}")]
    Connect { at: SocketAddr, why: String },
    /// The handshake failed: either side's reason.
    #[error("{0}")]
    Tls(String),
    /// The connection ended before an answer.
    #[error("{0}")]
    Broken(String),
    #[error("{0}")]
    TooManyCalls(super::limit::Full),
    #[error("context deadline exceeded while waiting for other calls of this control plane")]
    NoTurn,
    #[error("context deadline exceeded")]
    NoConnection,
    /// The answer was to ask again when there is no time left to.
    #[error("context deadline exceeded")]
    NoTime,
    #[error("net/http: request canceled (Client.Timeout exceeded while awaiting headers)")]
    NoHeaders,
}

impl Cause {
    /// A failed `connect`, as the system's call names it.
    pub(super) fn connect(at: SocketAddr, error: &std::io::Error) -> Self {
        use std::io::ErrorKind;
        let why = match error.kind() {
            ErrorKind::ConnectionRefused => "connection refused".to_owned(),
            ErrorKind::ConnectionReset => "connection reset by peer".to_owned(),
            ErrorKind::TimedOut => "connection timed out".to_owned(),
            ErrorKind::NetworkUnreachable => "network is unreachable".to_owned(),
            ErrorKind::HostUnreachable => "no route to host".to_owned(),
            _ => error.to_string(),
        };
        Self::Connect { at, why }
    }
}

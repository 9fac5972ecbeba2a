//! What went wrong with a request to etcd, told apart by what the caller can do about it.
//!
//! The distinction that matters most is between a request that certainly had no effect and one that may have had:
//! etcd's own refusals and connections that were never made are the former, everything that was cut off the latter.

use tonic::{Code, Status};

use crate::store::{BoxError, CommitError, ReadError, Revision};

#[derive(Debug)]
pub enum Failure {
    /// The request certainly had no effect, and may have one later.
    NotDone(BoxError),
    /// The connection or the leader was lost while the request was under way.
    Lost(BoxError),
    /// The revision asked for is compacted away.
    Compacted,
    /// The revision asked for does not exist yet.
    Future,
    NoSpace,
    /// etcd takes no request of this size.
    TooLarge(String),
    /// The answer is larger than we read in one piece.
    AnswerTooLarge,
    /// etcd found fault with the request and would again.
    Refused(String),
    /// The lease that a put names has expired in the meantime.
    LeaseGone,
    /// The login is not or no longer valid; another may be.
    LoggedOut(BoxError),
    Denied(String),
    Corrupt(String),
}

/// What is known about the connection that a failure came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Link {
    Sound,
    /// Broken, or leading to a member that cannot serve: try another endpoint.
    Bad,
}

impl Failure {
    pub fn lost(err: impl Into<BoxError>) -> Self {
        Self::Lost(err.into())
    }

    pub fn not_done(err: impl Into<BoxError>) -> Self {
        Self::NotDone(err.into())
    }

    /// The messages are etcd's (`api/v3rpc/rpctypes/error.go`); clients are meant to tell errors apart by them.
    pub fn from_status(status: Status) -> (Self, Link) {
        if never_connected(&status) {
            return (Self::not_done(Cause::from(status)), Link::Bad);
        }
        if std::error::Error::source(&status).is_some() {
            return (Self::lost(Cause::from(status)), Link::Bad);
        }
        let message = status.message();
        let has = |text: &str| message.contains(text);
        let failure = match status.code() {
            Code::OutOfRange if has("has been compacted") => Self::Compacted,
            Code::OutOfRange if has("is a future revision") => Self::Future,
            Code::OutOfRange if has("decoded message length too large") => Self::AnswerTooLarge,
            Code::ResourceExhausted if has("database space exceeded") => Self::NoSpace,
            Code::ResourceExhausted if has("message larger than max") => Self::TooLarge(message.into()),
            Code::ResourceExhausted if has("too many requests") => Self::not_done(Cause::from(status)),
            Code::InvalidArgument if has("too many operations") => Self::TooLarge(message.into()),
            Code::InvalidArgument if has("request is too large") => Self::TooLarge(message.into()),
            Code::InvalidArgument if has("invalid user ID or password") => Self::Denied(message.into()),
            Code::InvalidArgument if has("user name is empty") => Self::LoggedOut(Cause::from(status).into()),
            Code::InvalidArgument if has("auth store is old") => Self::LoggedOut(Cause::from(status).into()),
            Code::Unauthenticated => Self::LoggedOut(Cause::from(status).into()),
            Code::PermissionDenied => Self::Denied(message.into()),
            Code::NotFound if has("lease not found") => Self::LeaseGone,
            Code::DataLoss => Self::Corrupt(message.into()),
            // Checked before the request is looked at, because all our requests ask for a leader.
            Code::Unavailable if has("no leader") => return (Self::not_done(Cause::from(status)), Link::Bad),
            Code::FailedPrecondition if has("not supported for learner") => {
                return (Self::not_done(Cause::from(status)), Link::Bad);
            }
            // The cluster has not agreed on a version yet, right after its start.
            Code::FailedPrecondition if has("not capable") => Self::not_done(Cause::from(status)),
            Code::InvalidArgument | Code::FailedPrecondition | Code::Unimplemented => Self::Refused(message.into()),
            // Timeouts, changed leaders, stopped servers, and whatever we do not know.
            _ => return (Self::lost(Cause::from(status)), Link::Bad),
        };
        (failure, Link::Sound)
    }

    /// As the error of a read. `Compacted` and `Future` need revisions that the caller knows.
    pub fn into_read(self, known: Revision) -> ReadError {
        match self {
            Self::Compacted => ReadError::Expired { compacted: known },
            Self::Future => ReadError::Future { current: known },
            Self::Corrupt(message) => ReadError::Corrupt(message),
            Self::NotDone(err) | Self::Lost(err) | Self::LoggedOut(err) => ReadError::Unavailable(err),
            Self::TooLarge(message) | Self::Denied(message) | Self::Refused(message) => {
                ReadError::Unavailable(message.into())
            }
            Self::NoSpace => ReadError::Unavailable("etcd has no space left".into()),
            Self::LeaseGone => ReadError::Unavailable("the lease is gone".into()),
            Self::AnswerTooLarge => ReadError::Unavailable("a single record is too large to read".into()),
        }
    }

    pub fn into_commit(self) -> CommitError {
        match self {
            Self::Lost(err) => CommitError::Unknown(err),
            // The answer was on its way, so the transaction is done; what it said is lost.
            Self::AnswerTooLarge => CommitError::Unknown("etcd's answer to the transaction is too large".into()),
            Self::NoSpace => CommitError::NoSpace,
            Self::TooLarge(message) => CommitError::TooLarge(message),
            Self::Corrupt(message) => CommitError::Corrupt(message),
            Self::NotDone(err) | Self::LoggedOut(err) => CommitError::Unavailable(err),
            Self::Denied(message) | Self::Refused(message) => CommitError::Unavailable(message.into()),
            Self::LeaseGone => CommitError::Unavailable("the lease is gone".into()),
            Self::Compacted | Self::Future => CommitError::Unavailable("the revision cannot be read".into()),
        }
    }
}

/// For messages to people: the innermost causes say it best, the layers above only repeat them.
impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotDone(err) | Self::Lost(err) | Self::LoggedOut(err) => err.fmt(f),
            Self::TooLarge(message) | Self::Denied(message) | Self::Refused(message) | Self::Corrupt(message) => {
                f.write_str(message)
            }
            Self::Compacted => f.write_str("the revision is compacted"),
            Self::Future => f.write_str("the revision does not exist yet"),
            Self::NoSpace => f.write_str("etcd has no space left"),
            Self::AnswerTooLarge => f.write_str("the answer is too large"),
            Self::LeaseGone => f.write_str("the lease is gone"),
        }
    }
}

fn never_connected(status: &Status) -> bool {
    let mut next = std::error::Error::source(status);
    while let Some(err) = next {
        if err.is::<tonic::ConnectError>() {
            return true;
        }
        next = err.source();
    }
    false
}

/// A status or transport error as one short line.
#[derive(Debug)]
pub struct Cause(String);

impl From<Status> for Cause {
    fn from(status: Status) -> Self {
        match root_cause(&status) {
            Some(root) => Self(root),
            None if status.message().is_empty() => Self(status.code().description().to_owned()),
            None => Self(status.message().to_owned()),
        }
    }
}

impl From<tonic::transport::Error> for Cause {
    fn from(err: tonic::transport::Error) -> Self {
        Self(root_cause(&err).unwrap_or_else(|| err.to_string()))
    }
}

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Cause {}

fn root_cause(err: &dyn std::error::Error) -> Option<String> {
    let mut root = err.source()?;
    while let Some(next) = root.source() {
        root = next;
    }
    Some(root.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_refusals_are_taken_as_not_done() {
        let failure = |code, message: &str| Failure::from_status(Status::new(code, message)).0.into_commit();
        let lost = [
            (Code::Unavailable, "etcdserver: request timed out"),
            (Code::Unavailable, "etcdserver: leader changed"),
            (Code::Unavailable, "etcdserver: server stopped"),
            (Code::DeadlineExceeded, "context deadline exceeded"),
            (Code::Unknown, "anything"),
            (Code::Internal, "anything"),
        ];
        for (code, message) in lost {
            assert!(matches!(failure(code, message), CommitError::Unknown(_)), "{message}");
        }
        let refused = [
            (Code::Unavailable, "etcdserver: no leader"),
            (Code::ResourceExhausted, "etcdserver: too many requests"),
            (Code::PermissionDenied, "etcdserver: permission denied"),
            (Code::Unauthenticated, "etcdserver: invalid auth token"),
        ];
        for (code, message) in refused {
            assert!(
                matches!(failure(code, message), CommitError::Unavailable(_)),
                "{message}"
            );
        }
        let space = failure(Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded");
        assert!(matches!(space, CommitError::NoSpace));
        for message in [
            "etcdserver: request is too large",
            "etcdserver: too many operations in txn request",
        ] {
            assert!(matches!(
                failure(Code::InvalidArgument, message),
                CommitError::TooLarge(_)
            ));
        }
    }
}

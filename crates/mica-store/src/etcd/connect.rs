//! The way in: reaching etcd, logging in, and making sure that it and what it holds can be used.

use tokio::time::{Instant, sleep};

use super::client::{Client, Effect};
use super::config::InvalidConfig;
use super::failure::Failure;
use super::layout::{FORMAT, Layout};
use super::progress::Version;
use super::proto::{Compare, PutRequest, RangeRequest, Request, TxnRequest};

const RECONNECT_EVERY: std::time::Duration = std::time::Duration::from_millis(100);

/// Why a store could not be opened, in one sentence.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error(transparent)]
    Config(#[from] InvalidConfig),
    #[error("cannot reach etcd: {reason}")]
    Unreachable { reason: String },
    #[error("etcd at {endpoints} does not let us in: {reason}")]
    Denied { endpoints: String, reason: String },
    #[error("etcd at {endpoint} has version {version}, but 3.4 is the oldest that can be used")]
    TooOld { endpoint: String, version: String },
    #[error(
        "etcd at {endpoints} holds data in format {found:?} under {prefix}, but this program knows only {FORMAT:?}"
    )]
    Format {
        endpoints: String,
        prefix: String,
        found: String,
    },
    #[error("etcd at {endpoints} cannot be used: {reason}")]
    Unusable { endpoints: String, reason: String },
}

impl ConnectError {
    pub(super) fn from_failure(failure: Failure, endpoints: String) -> Self {
        match failure {
            Failure::Denied(reason) => Self::Denied { endpoints, reason },
            Failure::LoggedOut(reason) => Self::Denied {
                endpoints,
                reason: reason.to_string(),
            },
            other => Self::Unusable {
                endpoints,
                reason: other.to_string(),
            },
        }
    }
}

/// Connects, logs in and checks the version. Tries again until the deadline while nobody answers.
pub async fn enter(client: &Client, deadline: Instant) -> Result<(), ConnectError> {
    let connection = loop {
        match client.connection().await {
            Ok(connection) => break connection,
            Err(failure) if Instant::now() + RECONNECT_EVERY >= deadline => {
                return Err(ConnectError::Unreachable {
                    reason: failure.to_string(),
                });
            }
            Err(_) => sleep(RECONNECT_EVERY).await,
        }
    };
    let endpoint = client.endpoints.name(connection.target).to_owned();
    if client.has_credentials() {
        client
            .log_in()
            .await
            .map_err(|failure| ConnectError::from_failure(failure, endpoint.clone()))?;
    }
    match client.version(&connection).await {
        Ok(version) if Version::parse(&version).is_some_and(Version::is_too_old) => {
            Err(ConnectError::TooOld { endpoint, version })
        }
        Ok(_) | Err(Failure::Denied(_) | Failure::LoggedOut(_)) => Ok(()),
        Err(failure) => Err(ConnectError::Unreachable {
            reason: format!("{endpoint}: {failure}"),
        }),
    }
}

/// Makes sure that what is under the prefix is in our format, or nothing yet.
pub async fn check_format(client: &Client, layout: &Layout, prefix: &str) -> Result<(), ConnectError> {
    let unusable = |failure| ConnectError::from_failure(failure, client.endpoints.names());
    let key = layout.format();
    let read = RangeRequest {
        key: key.clone(),
        ..RangeRequest::default()
    };
    let mut found = client
        .range(read.clone())
        .await
        .map_err(unusable)?
        .kvs
        .into_iter()
        .next();
    if found.is_none() {
        let put = PutRequest {
            key: key.clone(),
            value: FORMAT.into(),
            lease: 0,
        };
        let request = TxnRequest {
            compare: vec![Compare::version(key, 0)],
            success: vec![Request::Put(put).into()],
            failure: vec![Request::Range(read).into()],
        };
        // Doing it twice is harmless, so it may be sent again.
        let answer = client.txn(request, Effect::Read).await.map_err(unusable)?;
        found = answer
            .responses
            .into_iter()
            .find_map(|op| op.range?.kvs.into_iter().next());
    }
    match found {
        Some(kv) if kv.value != FORMAT => Err(ConnectError::Format {
            endpoints: client.endpoints.names(),
            prefix: prefix.to_owned(),
            found: String::from_utf8_lossy(&kv.value).into_owned(),
        }),
        _ => Ok(()),
    }
}

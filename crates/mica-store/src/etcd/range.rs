//! The whole of a store from outside: whether anything is below its prefix, and removing it.
//!
//! For whoever gives prefixes away. Nobody may serve from the prefix meanwhile.

use tokio::time::Instant;

use super::client::{Client, Effect};
use super::config::EtcdConfig;
use super::connect::{ConnectError, enter};
use super::layout::Layout;
use super::proto::{DeleteRangeRequest, RangeRequest, Request, TxnRequest};

/// Keys that are removed by one request: few enough not to hold others up.
const AT_ONCE: i64 = 1000;

/// Whether nothing is below the prefix.
pub async fn is_empty(config: &EtcdConfig) -> Result<bool, ConnectError> {
    let client = open(config).await?;
    let whole = Layout::new(&config.prefix).whole();
    let read = RangeRequest {
        key: whole.start,
        range_end: whole.end,
        limit: 1,
        keys_only: true,
        ..RangeRequest::default()
    };
    let found = client.range(read).await;
    let found = found.map_err(|failure| ConnectError::from_failure(failure, client.endpoints.names()))?;
    Ok(found.kvs.is_empty())
}

/// Removes everything below the prefix. What was removed when it fails stays removed: it can be done again.
pub async fn clear(config: &EtcdConfig) -> Result<(), ConnectError> {
    let client = open(config).await?;
    let failed = |failure| ConnectError::from_failure(failure, client.endpoints.names());
    let mut left = Layout::new(&config.prefix).whole();
    loop {
        let read = RangeRequest {
            key: left.start.clone(),
            range_end: left.end.clone(),
            limit: AT_ONCE,
            keys_only: true,
            ..RangeRequest::default()
        };
        let found = client.range(read).await.map_err(failed)?;
        let Some(last) = found.kvs.last() else { return Ok(()) };
        let rest = left.after(&last.key);
        let delete = DeleteRangeRequest {
            key: left.start,
            range_end: rest.start.clone(),
        };
        let request = TxnRequest {
            success: vec![Request::DeleteRange(delete).into()],
            ..TxnRequest::default()
        };
        // Doing it twice is harmless, so it may be sent again.
        client.txn(request, Effect::Read).await.map_err(failed)?;
        left = rest;
    }
}

async fn open(config: &EtcdConfig) -> Result<Client, ConnectError> {
    config.check()?;
    let client = Client::new(config)?;
    enter(&client, Instant::now() + config.connect_timeout).await?;
    Ok(client)
}

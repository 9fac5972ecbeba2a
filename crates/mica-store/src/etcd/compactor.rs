//! Compaction: on demand, and by itself every few minutes.
//!
//! As in kube-apiserver, servers that share an etcd agree through a key which of them compacts: each tries, once an interval,
//! to replace the version of the key that it knows. Who succeeds compacts to the revision of one interval ago; the others
//! learn the new version and try again an interval later. So history reaches back one to two intervals, also when the server
//! that compacted is gone.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::Shared;
use super::client::{Effect, signed, unsigned};
use super::failure::Failure;
use super::progress::ASK_AFTER;
use super::proto::{Compare, PutRequest, RangeRequest, Request, TxnRequest};
use crate::store::{ReadError, Revision};

/// How long a compaction waits for our own watch to have received what it is about to remove.
const WAIT_FOR_WATCH: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// What a server knows of the agreement.
struct Turn {
    /// The version of the key, which counts compactions.
    version: i64,
    /// The newest revision one interval ago; zero before the first.
    then: Revision,
}

pub async fn run(shared: Arc<Shared>, interval: Duration) {
    let mut turn = Turn {
        version: 0,
        then: Revision(0),
    };
    loop {
        sleep(interval).await;
        if let Err(failure) = turn.take(&shared).await {
            tracing::warn!(%failure, "automatic compaction of etcd failed and will be tried again");
        }
    }
}

impl Turn {
    async fn take(&mut self, shared: &Shared) -> Result<(), Failure> {
        let key = shared.layout.compaction();
        let put = PutRequest {
            key: key.clone(),
            value: self.then.to_string().into(),
            lease: 0,
        };
        let request = TxnRequest {
            compare: vec![Compare::version(key.clone(), self.version)],
            success: vec![Request::Put(put).into()],
            failure: vec![
                Request::Range(RangeRequest {
                    key,
                    ..RangeRequest::default()
                })
                .into(),
            ],
        };
        match shared.client.txn(request, Effect::Write).await {
            Ok(answer) if answer.succeeded => {
                let then = self.then;
                self.version += 1;
                self.then = answer.header.map_or(Revision(0), |header| unsigned(header.revision));
                shared.compact_to(then).await
            }
            Ok(answer) => {
                let kv = answer
                    .responses
                    .into_iter()
                    .find_map(|op| op.range?.kvs.into_iter().next());
                self.version = kv.map_or(0, |kv| kv.version);
                self.then = answer.header.map_or(Revision(0), |header| unsigned(header.revision));
                Ok(())
            }
            // An etcd without space takes no put, but needs this most. Servers then compact without agreement: no harm.
            Err(Failure::NoSpace) => {
                let newest = shared.client.range(shared.probe(0)).await?;
                let then = std::mem::replace(
                    &mut self.then,
                    newest.header.map_or(Revision(0), |header| unsigned(header.revision)),
                );
                shared.compact_to(then).await
            }
            Err(failure) => Err(failure),
        }
    }
}

impl Shared {
    pub async fn compact_on_demand(&self, revision: Revision) -> Result<(), ReadError> {
        let status = self.read_status().await?;
        if revision <= status.compacted {
            return Ok(());
        }
        if revision > status.revision {
            return Err(ReadError::Future {
                current: status.revision,
            });
        }
        self.wait_for_watch(revision).await;
        match self.compact_to(revision).await {
            Ok(()) => Ok(()),
            Err(Failure::Future) => Err(ReadError::Future {
                current: status.revision,
            }),
            Err(failure) => Err(failure.into_read(revision)),
        }
    }

    async fn compact_to(&self, revision: Revision) -> Result<(), Failure> {
        if signed(revision) == 0 {
            return Ok(());
        }
        match self.client.compact(revision).await {
            // Somebody else has compacted further: as good.
            Ok(()) | Err(Failure::Compacted) => {
                self.note_compacted(revision);
                Ok(())
            }
            Err(failure) => Err(failure),
        }
    }

    /// Waits until our watch has received everything up to `revision`, so that the compaction does not tear a gap into it.
    async fn wait_for_watch(&self, revision: Revision) {
        let begun = Instant::now();
        let mut asked = begun;
        while self.hub.position() < revision && begun.elapsed() < WAIT_FOR_WATCH {
            if asked.elapsed() > ASK_AFTER {
                asked = Instant::now();
                self.beat().await;
            }
            sleep(LOOK_EVERY).await;
        }
    }
}

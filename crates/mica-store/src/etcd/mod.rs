//! The store on etcd v3: one etcd of one or many members, shared by any number of servers.
//!
//! Everything lies under one prefix (see `layout`, and `docs/design/etcd-store.md` for the map and the reasons). One watch of
//! that prefix feeds the hub, however many planes and watches there are. etcd gives all keys of a transaction one revision.

mod assemble;
mod client;
mod commit;
mod compactor;
mod config;
mod endpoint;
mod failure;
mod history;
mod layout;
mod progress;
mod proto;
mod pump;
mod quiet;
mod read;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout_at};

use crate::hub::{Hub, Limits};
use crate::key::{Key, KeyRange};
use crate::store::{
    CommitError, Committed, Page, RangeQuery, ReadError, Record, Revision, Store, StoreStatus, Txn, Usage, Watch,
};

use client::{Client, Effect};
use commit::KnownEntries;
use failure::Failure;
use history::EtcdHistory;
use layout::{FORMAT, Layout};
use progress::{LastBeat, Version};
use proto::{Compare, PutRequest, RangeRequest, Request, TxnRequest};
use pump::Pump;
use quiet::Quiet;

pub use config::{Credentials, DEFAULT_PREFIX, EtcdConfig, InvalidConfig, TlsFiles};

/// Revisions of the recent past that a starting server reads into the hub's memory, so that clients which were connected
/// to the process before it can resume. Well within what the hub remembers.
const SEED_REVISIONS: u64 = 10_000;
const RECONNECT_EVERY: std::time::Duration = std::time::Duration::from_millis(100);

/// A store on etcd.
pub struct EtcdStore {
    shared: Arc<Shared>,
    tasks: Vec<JoinHandle<()>>,
}

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

/// What the parts of a store share.
struct Shared {
    client: Client,
    layout: Layout,
    hub: Hub,
    quiet: Quiet,
    known_entries: KnownEntries,
    last_beat: LastBeat,
    /// The last compaction that we know of. etcd may have compacted further.
    compacted: AtomicU64,
}

impl EtcdStore {
    /// Connects, checks that this etcd can be used, and begins to follow its changes. Ends within
    /// [`EtcdConfig::connect_timeout`], give or take an answer that is under way.
    pub async fn connect(config: EtcdConfig) -> Result<Self, ConnectError> {
        Self::connect_with(config, Limits::default()).await
    }

    /// [`EtcdStore::connect`] with other bounds for what watches keep in memory.
    pub async fn connect_with(config: EtcdConfig, limits: Limits) -> Result<Self, ConnectError> {
        config.check()?;
        let deadline = Instant::now() + config.connect_timeout;
        let client = Client::new(&config)?;
        let endpoints = client.endpoints.names();
        let (late, denied) = (endpoints.clone(), endpoints.clone());
        let unusable = |failure: Failure| match failure {
            Failure::Denied(reason) => ConnectError::Denied {
                endpoints: denied.clone(),
                reason,
            },
            Failure::LoggedOut(reason) => ConnectError::Denied {
                endpoints: denied.clone(),
                reason: reason.to_string(),
            },
            other => ConnectError::Unusable {
                endpoints: denied.clone(),
                reason: other.to_string(),
            },
        };
        let opening = async {
            enter(&client, deadline).await?;
            let layout = Layout::new(&config.prefix);
            check_format(&client, &layout, &config.prefix)
                .await?
                .map_err(&unusable)?;
            let shared = Arc::new(Shared {
                client,
                layout,
                hub: Hub::new(Revision(0), limits),
                quiet: Quiet::new(Revision(0)),
                known_entries: KnownEntries::default(),
                last_beat: LastBeat::default(),
                compacted: AtomicU64::new(0),
            });
            let status = shared.read_status().await.map_err(|err| ConnectError::Unusable {
                endpoints: endpoints.clone(),
                reason: source_of(&err),
            })?;
            let start = Revision(status.revision.0.saturating_sub(SEED_REVISIONS)).max(status.compacted);
            shared.quiet.reset(start);
            shared.hub.reset(start);
            Self::start(shared, config.compaction).await.map_err(&unusable)
        };
        match timeout_at(deadline, opening).await {
            Ok(result) => result,
            Err(_) => Err(ConnectError::Unreachable {
                reason: format!("{late}: no answer in time"),
            }),
        }
    }

    async fn start(shared: Arc<Shared>, compaction: Option<std::time::Duration>) -> Result<Self, Failure> {
        let (ready, first_session) = tokio::sync::oneshot::channel();
        let pump = tokio::spawn(Pump::new(shared.clone(), ready).run());
        // From here on dropping the store, also by a timeout, stops the pump.
        let mut store = Self {
            shared: shared.clone(),
            tasks: vec![pump],
        };
        first_session
            .await
            .unwrap_or_else(|_| Err(Failure::lost("the watch of etcd ended")))?;
        if let Some(interval) = compaction {
            store.tasks.push(tokio::spawn(compactor::run(shared, interval)));
        }
        Ok(store)
    }

    /// Stops following etcd and ends all watches with [`crate::store::WatchError::Closed`].
    pub fn close(&self) {
        self.tasks.iter().for_each(JoinHandle::abort);
        self.shared.hub.close();
    }
}

impl Drop for EtcdStore {
    fn drop(&mut self) {
        self.close();
    }
}

/// Connects, logs in and checks the version.
async fn enter(client: &Client, deadline: Instant) -> Result<(), ConnectError> {
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
        client.log_in().await.map_err(|failure| ConnectError::Denied {
            endpoints: endpoint.clone(),
            reason: failure.to_string(),
        })?;
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

/// Makes sure that what is under the prefix is ours, or becomes ours.
async fn check_format(client: &Client, layout: &Layout, prefix: &str) -> Result<Result<(), Failure>, ConnectError> {
    let key = layout.format();
    let read = RangeRequest {
        key: key.clone(),
        ..RangeRequest::default()
    };
    let found = match client.range(read.clone()).await {
        Ok(answer) => answer.kvs.into_iter().next(),
        Err(failure) => return Ok(Err(failure)),
    };
    let found = match found {
        Some(kv) => Some(kv),
        None => {
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
            match client.txn(request, Effect::Read).await {
                Ok(answer) => answer
                    .responses
                    .into_iter()
                    .find_map(|op| op.range?.kvs.into_iter().next()),
                Err(failure) => return Ok(Err(failure)),
            }
        }
    };
    match found {
        Some(kv) if kv.value != FORMAT => Err(ConnectError::Format {
            endpoints: client.endpoints.names(),
            prefix: prefix.to_owned(),
            found: String::from_utf8_lossy(&kv.value).into_owned(),
        }),
        _ => Ok(Ok(())),
    }
}

fn source_of(err: &ReadError) -> String {
    std::error::Error::source(err).map_or_else(|| err.to_string(), ToString::to_string)
}

impl Shared {
    fn compacted(&self) -> Revision {
        Revision(self.compacted.load(Ordering::Acquire))
    }

    fn note_compacted(&self, revision: Revision) {
        self.compacted.fetch_max(revision.0, Ordering::AcqRel);
    }

    fn forget_compacted(&self) {
        self.compacted.store(0, Ordering::Release);
    }

    async fn open_watch(self: &Arc<Self>, range: KeyRange, after: Revision) -> Result<Watch, ReadError> {
        // The position before anything else: changes up to it are in `quiet`, and the hub will tell those after it.
        let position = self.hub.position();
        let compacted = self.compacted();
        let start = if after >= compacted && self.hub.reaches_back_to(after) {
            after
        } else if range
            .plane()
            .is_some_and(|plane| self.quiet.unchanged_since(plane, after))
        {
            // In a plane that has not changed since, a watch from then and one from now are the same.
            position.max(after)
        } else if after >= compacted
            && self
                .is_readable(after)
                .await
                .map_err(|failure| failure.into_read(compacted))?
        {
            after
        } else {
            return Err(self.expired().await);
        };
        // Whatever the hub remembers now, it may have forgotten when the watch is made: always with history.
        let history = Box::new(EtcdHistory::new(self.clone(), range.clone()));
        Ok(Box::new(self.hub.watch_with(range, start, history)))
    }
}

#[async_trait]
impl Store for EtcdStore {
    async fn status(&self) -> Result<StoreStatus, ReadError> {
        self.shared.read_status().await
    }

    async fn get(&self, key: &Key) -> Result<Option<Record>, ReadError> {
        self.shared.read_one(key).await
    }

    async fn range(&self, query: RangeQuery<'_>) -> Result<Page, ReadError> {
        self.shared.read_page(&query).await
    }

    async fn usage(&self, range: &KeyRange) -> Result<Usage, ReadError> {
        self.shared.read_usage(range).await
    }

    async fn commit(&self, txn: Txn) -> Result<Committed, CommitError> {
        self.shared.write(txn).await
    }

    async fn watch(&self, range: KeyRange, after: Revision) -> Result<Watch, ReadError> {
        let watch = self.shared.open_watch(range, after).await?;
        // A new watch may want to know that nothing happened.
        self.shared.client.news.notify_one();
        Ok(watch)
    }

    async fn compact(&self, revision: Revision) -> Result<(), ReadError> {
        self.shared.compact_on_demand(revision).await
    }
}

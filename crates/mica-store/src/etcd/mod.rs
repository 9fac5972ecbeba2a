//! The store on etcd v3: one etcd of one or many members, shared by any number of servers.
//!
//! Everything lies under one prefix (see `layout`, and `docs/design/etcd-store.md` for the map and the reasons). One watch of
//! that prefix feeds the hub, however many planes and watches there are. etcd gives all keys of a transaction one revision.

mod assemble;
mod client;
mod commit;
mod compactor;
mod config;
mod connect;
mod endpoint;
mod failure;
mod history;
mod layout;
mod progress;
mod proto;
mod pump;
mod quiet;
pub mod range;
mod read;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use crate::hub::{Hub, Limits};
use crate::key::{Key, KeyRange};
use crate::store::{
    AdvanceError, CommitError, Committed, Page, RangeQuery, ReadError, Record, Revision, Store, StoreStatus, Txn,
    Usage, Watch,
};

use client::Client;
use commit::KnownEntries;
use connect::{check_format, enter};
use failure::Failure;
use history::EtcdHistory;
use layout::Layout;
use progress::LastBeat;
use pump::Pump;
use quiet::Quiet;

pub use config::{Credentials, DEFAULT_PREFIX, EtcdConfig, InvalidConfig, TlsFiles};
pub use connect::ConnectError;
pub use layout::FORMAT;

/// Revisions of the recent past that a starting server reads into the hub's memory, so that clients which were connected
/// to the process before it can resume. Well within what the hub remembers.
const SEED_REVISIONS: u64 = 10_000;

/// A store on etcd.
pub struct EtcdStore {
    shared: Arc<Shared>,
    tasks: Vec<JoinHandle<()>>,
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
        match timeout_at(deadline, Self::open(client, config, limits, deadline)).await {
            Ok(opened) => opened,
            Err(_) => Err(ConnectError::Unreachable {
                reason: format!("{endpoints}: no answer in time"),
            }),
        }
    }

    async fn open(client: Client, config: EtcdConfig, limits: Limits, deadline: Instant) -> Result<Self, ConnectError> {
        enter(&client, deadline).await?;
        let layout = Layout::new(&config.prefix);
        check_format(&client, &layout, &config.prefix).await?;
        let endpoints = client.endpoints.names();
        let shared = Arc::new(Shared {
            client,
            layout,
            hub: Hub::new(Revision(0), limits),
            quiet: Quiet::new(Revision(0)),
            known_entries: KnownEntries::default(),
            last_beat: LastBeat::default(),
            compacted: AtomicU64::new(0),
        });
        let status = shared.read_status().await.map_err(|err| {
            let reason = std::error::Error::source(&err).map_or_else(|| err.to_string(), ToString::to_string);
            ConnectError::Unusable {
                endpoints: endpoints.clone(),
                reason,
            }
        })?;
        let start = Revision(status.revision.0.saturating_sub(SEED_REVISIONS)).max(status.compacted);
        shared.quiet.reset(start);
        shared.hub.reset(start);
        Self::start(shared, config.compaction)
            .await
            .map_err(|failure| ConnectError::from_failure(failure, endpoints))
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

    async fn count(&self, range: &KeyRange, at: Option<Revision>, after: Option<&Key>) -> Result<u64, ReadError> {
        self.shared.read_count(range, at, after).await
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

    async fn advance(&self, _to: Revision) -> Result<Revision, AdvanceError> {
        // etcd numbers its transactions itself, one by one.
        Err(AdvanceError::Unsupported)
    }

    fn end_watches(&self, plane: mica_api::PlaneId) {
        self.shared.hub.end_plane(plane);
    }
}

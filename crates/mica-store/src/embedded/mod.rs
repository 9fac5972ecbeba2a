//! The store in one directory: durable, with history, in bounded memory.
//!
//! Our own log is the truth ([`format`](self) of its bytes: `docs/design/embedded-store.md`); an ordered index beside it,
//! which can always be rebuilt, says where things are. One thread commits; two more write the index out and tidy up.
//!
//! Invariant: nothing is visible, to a read, a comparison or a watch, before it is durable.

mod backup;
mod cache;
mod check;
mod commit;
pub mod disk;
mod format;
mod history;
mod index;
mod keep;
mod log;
mod options;
mod prepare;
mod probe;
mod read;
mod recover;
mod scan;
mod segment;
mod signal;
mod tend;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::hub::Hub;
use crate::key::{Key, KeyRange};
use crate::store::{
    AdvanceError, CommitError, Committed, FARTHEST, Page, RangeQuery, ReadError, Record, Revision, Store, StoreStatus,
    Txn, Usage, Watch,
};
use cache::{Budget, Cache};
use commit::{CheckpointLimits, CommitRequest, Committer, Job, QUEUE, Request, Start};
use disk::{LockError, LockGuard, RealDisk};
use history::LogHistory;
use index::checkpoint::Checkpoint;
use log::{Log, SegmentSizes};
use prepare::{Preparer, Sizes};
use read::Engine;
use signal::Signals;

pub use backup::{BackupSummary, RestoreError, restore};
pub use check::CheckReport;
pub use disk::Durability;
pub use format::FORMAT_VERSION;
pub use options::{AutoCompaction, OpenError, Options, Stats};
#[doc(hidden)]
pub use probe::probe;

/// Bytes of transactions that wait at most, in KiB.
const QUEUE_KIB: u32 = 64 << 10;
/// Pages up to this size are read on the caller's thread; larger ones where blocking does no harm.
const INLINE_PAGE: usize = 64;

/// A [`Store`] in one directory. Clones share it; it closes when [`EmbeddedStore::close`] is called or the last is dropped.
#[derive(Clone)]
pub struct EmbeddedStore {
    inner: Arc<Inner>,
}

struct Inner {
    engine: Arc<Engine>,
    signals: Arc<Signals>,
    requests: mpsc::Sender<Request>,
    queue_bytes: Arc<Semaphore>,
    index_directory: PathBuf,
    threads: Mutex<Option<Threads>>,
}

struct Threads {
    committer: JoinHandle<(Checkpoint, Log)>,
    background: Vec<JoinHandle<()>>,
    /// Given back last.
    _lock: LockGuard,
}

impl EmbeddedStore {
    /// Opens the store in a directory, or makes one. Blocks while the log is replayed.
    pub fn open(directory: &Path, options: Options) -> Result<Self, OpenError> {
        let io = |source| OpenError::Io {
            what: "make the store's directory",
            source,
        };
        let log_directory = directory.join("log");
        make_directory(&log_directory).map_err(io)?;
        let disk = options
            .disk
            .clone()
            .unwrap_or_else(|| Arc::new(RealDisk::new(&log_directory, options.durability)));
        let lock = disk.lock().map_err(|error| match error {
            LockError::Io(source) => OpenError::Io {
                what: "lock the store's directory",
                source,
            },
            holder => OpenError::Locked {
                directory: directory.display().to_string(),
                holder,
            },
        })?;
        backup::check_finished(directory)?;
        let recovered = recover::recover(directory, &disk, &options)?;
        let sizes = SegmentSizes {
            smallest: options.segment_bytes.0,
            largest: options.segment_bytes.1,
        };
        let ahead = Sizes {
            reserve: options.reserve_bytes,
            keep_free: options.keep_free_bytes,
        };
        let preparer = Preparer::start(disk, ahead, sizes.smallest);
        let log = Log::new(
            recovered.store,
            recovered.segments.clone(),
            preparer,
            sizes,
            recovered.end,
        )
        .map_err(|source| OpenError::Io {
            what: "read the log",
            source,
        })?;
        let hub = Hub::new(recovered.newest, options.hub);
        let budget = Budget {
            records: options.record_cache_bytes,
            runs: options.range_cache_bytes,
        };
        let engine = Arc::new(Engine::new(
            recovered.index,
            recovered.segments,
            hub,
            Cache::new(budget),
            recovered.compacted,
            recovered.planes_since,
        ));
        let limits = CheckpointLimits {
            log_bytes: options.checkpoint_log_bytes,
            memory_bytes: options.checkpoint_memory_bytes,
        };
        let start = Start {
            log,
            newest: recovered.newest,
            live: recovered.live,
            limits,
        };
        Ok(Self::start(directory.join("index"), engine, start, &options, lock))
    }

    fn start(index_directory: PathBuf, engine: Arc<Engine>, start: Start, options: &Options, lock: LockGuard) -> Self {
        let signals = Arc::new(Signals::new());
        let (requests, receiver) = mpsc::channel(QUEUE);
        let committer = Committer::new(engine.clone(), signals.clone(), start);
        let committer = spawn("mica-commit", move || committer.run(receiver));
        let tender = tend::Tender::new(
            engine.clone(),
            signals.clone(),
            requests.clone(),
            index_directory.clone(),
        );
        let keeper = keep::Keeper::new(engine.clone(), signals.clone(), requests.clone(), options);
        let background = vec![
            spawn("mica-index", move || tender.run()),
            spawn("mica-keep", move || keeper.run()),
        ];
        let threads = Mutex::new(Some(Threads {
            committer,
            background,
            _lock: lock,
        }));
        let queue_bytes = Arc::new(Semaphore::new(QUEUE_KIB as usize));
        Self {
            inner: Arc::new(Inner {
                engine,
                signals,
                requests,
                queue_bytes,
                index_directory,
                threads,
            }),
        }
    }

    /// Sizes, for metrics.
    pub fn stats(&self) -> Stats {
        let log = self.inner.signals.log_size();
        Stats {
            log_bytes: log.bytes,
            live_bytes: log.live,
            index_bytes: self.inner.engine.index.disk_bytes(),
            index_memory_bytes: self.inner.engine.index.unwritten_bytes(),
            cache_bytes: self.inner.engine.cache.bytes() as u64,
            watches: self.inner.engine.hub.live_watchers() as u64,
        }
    }

    /// Ends watches and background work, and writes the index out so that the next start is quick. Blocks meanwhile.
    /// What comes later is refused. Closing twice does nothing.
    pub fn close(&self) {
        self.inner.close();
    }
}

/// Makes a directory whose existence survives a crash.
fn make_directory(directory: &Path) -> io::Result<()> {
    if directory.is_dir() {
        return Ok(());
    }
    if let Some(parent) = directory.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        make_directory(parent)?;
        match std::fs::create_dir(directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        return std::fs::File::open(parent)?.sync_all();
    }
    std::fs::create_dir_all(directory)
}

fn spawn<T: Send + 'static>(name: &str, run: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(run)
        .expect("a thread can be started")
}

impl Inner {
    fn close(&self) {
        let Some(threads) = self.threads.lock().take() else {
            return;
        };
        self.signals.close();
        self.engine.hub.close();
        self.engine.cache.close();
        for thread in threads.background {
            let _ = thread.join();
        }
        // Not `blocking_send`: this may be called from a runtime's thread.
        while let Err(mpsc::error::TrySendError::Full(_)) = self.requests.try_send(Request::Job(Job::Close)) {
            std::thread::yield_now();
        }
        if let Ok((checkpoint, log)) = threads.committer.join() {
            let index = &self.engine.index;
            let written = index
                .flush()
                .and_then(|()| index.note(&checkpoint, &self.index_directory));
            if let Err(damage) = written {
                tracing::warn!(
                    damage = damage.text(),
                    "the index could not be written out; the next start will replay the log"
                );
            }
            drop(log);
        }
        if let Err(damage) = self.engine.index.close() {
            tracing::warn!(damage = damage.text(), "the index was not closed cleanly");
        }
    }

    fn closed() -> ReadError {
        ReadError::Unavailable("the store is closed".into())
    }

    async fn ask<T>(&self, job: impl FnOnce(oneshot::Sender<Result<T, ReadError>>) -> Job) -> Result<T, ReadError> {
        let (reply, answer) = oneshot::channel();
        self.requests
            .send(Request::Job(job(reply)))
            .await
            .map_err(|_| Self::closed())?;
        answer.await.map_err(|_| Self::closed())?
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.close();
    }
}

#[async_trait]
impl Store for EmbeddedStore {
    async fn status(&self) -> Result<StoreStatus, ReadError> {
        Ok(self.inner.engine.status())
    }

    async fn get(&self, key: &Key) -> Result<Option<Record>, ReadError> {
        Ok(self.inner.engine.get(key)?)
    }

    async fn get_once(&self, key: &Key) -> Result<Option<Record>, ReadError> {
        Ok(self.inner.engine.get_once(key)?)
    }

    async fn range(&self, query: RangeQuery<'_>) -> Result<Page, ReadError> {
        let RangeQuery {
            range,
            at,
            after,
            limit,
        } = query;
        if let Some(page) = self.inner.engine.cached_range(range, at, after, limit) {
            return Ok(page);
        }
        if limit <= INLINE_PAGE {
            return self.inner.engine.range(range, at, after, limit);
        }
        // Most planes hold few of anything.
        if let Some(page) = self.inner.engine.small_range(range, at, after, INLINE_PAGE)? {
            return Ok(page);
        }
        let (range, after) = (range.clone(), after.cloned());
        self.inner
            .engine
            .blocking(move |engine| engine.range(&range, at, after.as_ref(), limit))
            .await?
    }

    async fn get_many(&self, keys: &[Key], at: Revision) -> Result<Vec<Option<Record>>, ReadError> {
        if keys.len() <= INLINE_PAGE {
            return self.inner.engine.get_many(keys, at);
        }
        let keys = keys.to_vec();
        self.inner
            .engine
            .blocking(move |engine| engine.get_many(&keys, at))
            .await?
    }

    async fn count(&self, range: &KeyRange, at: Option<Revision>, after: Option<&Key>) -> Result<u64, ReadError> {
        if let Some(count) = self.inner.engine.cached_count(range, at, after) {
            return Ok(count);
        }
        let (range, after) = (range.clone(), after.cloned());
        self.inner
            .engine
            .blocking(move |engine| engine.count(&range, at, after.as_ref()))
            .await?
    }

    async fn usage(&self, range: &KeyRange) -> Result<Usage, ReadError> {
        let range = range.clone();
        self.inner
            .engine
            .blocking(move |engine| Ok(engine.usage(&range)?))
            .await?
    }

    async fn commit(&self, txn: Txn) -> Result<Committed, CommitError> {
        let closed = || CommitError::Unavailable("the store is closed".into());
        let bytes = commit::measure(&txn)?;
        let share = u32::try_from(bytes / 1024 + 1).unwrap_or(QUEUE_KIB).min(QUEUE_KIB);
        let permit = self
            .inner
            .queue_bytes
            .clone()
            .acquire_many_owned(share)
            .await
            .map_err(|_| closed())?;
        let (request, answer) = CommitRequest::new(txn, bytes, permit);
        self.inner
            .requests
            .send(Request::Commit(request))
            .await
            .map_err(|_| closed())?;
        answer
            .await
            .map_err(|_| CommitError::Unknown("the store stopped".into()))?
    }

    async fn watch(&self, range: KeyRange, after: Revision) -> Result<Watch, ReadError> {
        let engine = &self.inner.engine;
        let from = engine.watch_from(&range, after)?;
        let history = Box::new(LogHistory::new(engine.clone(), range.clone()));
        Ok(Box::new(engine.hub.watch_with(range, from, history)))
    }

    async fn compact(&self, revision: Revision) -> Result<(), ReadError> {
        self.inner.ask(|reply| Job::Compact(revision, reply)).await
    }

    async fn advance(&self, to: Revision) -> Result<Revision, AdvanceError> {
        if to > FARTHEST {
            return Err(AdvanceError::TooFar);
        }
        let (reply, answer) = oneshot::channel();
        let closed = || AdvanceError::Unavailable("the store is closed".into());
        let job = Request::Job(Job::Advance(to, reply));
        self.inner.requests.send(job).await.map_err(|_| closed())?;
        answer.await.map_err(|_| closed())?
    }

    fn end_watches(&self, plane: mica_api::PlaneId) {
        self.inner.engine.hub.end_plane(plane);
    }
}

//! The contract between the server and a store.
//!
//! Every method's comment is a promise that `conformance` checks on every backend.

use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _, stream};

use crate::key::{Key, KeyRange};

/// Reads that are under way at once where a backend reads keys one by one.
const READS_AT_ONCE: usize = 16;

/// A point in the store's one history: positive, and greater for every later write.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Revision(pub u64);

impl std::fmt::Display for Revision {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// A stored value with the revision of the write that made it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    pub value: Bytes,
    pub revision: Revision,
}

/// Ordered bytes with revisions and one totally ordered log of changes.
///
/// All methods may be called concurrently. Dropping a returned future before it is ready never leaves a half-done
/// write: the write either happens whole or not at all, though the caller no longer learns which.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// The newest revision and the last compaction.
    ///
    /// Linearizable: a write acknowledged before the call has a revision of at most `revision`, on every server that
    /// shares the store.
    async fn status(&self) -> Result<StoreStatus, ReadError>;

    /// The newest value at `key`. Linearizable like [`Store::status`].
    async fn get(&self, key: &Key) -> Result<Option<Record>, ReadError>;

    /// The same for who keeps what it reads, so that the store need not have it at hand, too.
    async fn get_once(&self, key: &Key) -> Result<Option<Record>, ReadError> {
        self.get(key).await
    }

    /// One page of a range, ordered by key, as of one revision.
    ///
    /// Without `at` the page is the newest state (linearizable) and names the store's newest revision even if the range
    /// has not changed for long. With `at` it is the state right after that revision: [`ReadError::Expired`] if that is
    /// compacted away (and the range's plane has changed since), [`ReadError::Future`] if it does not exist yet.
    async fn range(&self, query: RangeQuery<'_>) -> Result<Page, ReadError>;

    /// What is at each of these keys, in their order, in the state that [`Store::range`] would show with `at`, with its errors.
    async fn get_many(&self, keys: &[Key], at: Revision) -> Result<Vec<Option<Record>>, ReadError> {
        let ranges: Vec<KeyRange> = keys.iter().cloned().map(KeyRange::One).collect();
        let query = |range| RangeQuery {
            range,
            at: Some(at),
            after: None,
            limit: 1,
        };
        let reads: Vec<_> = ranges.iter().map(|range| self.range(query(range))).collect();
        let one = |page: Page| page.records.into_iter().next().map(|(_, record)| record);
        let reads = stream::iter(reads).buffered(READS_AT_ONCE).map_ok(one);
        reads.try_collect().await
    }

    /// How many records of a range follow `after`, in the same state that [`Store::range`] would show, with its errors.
    async fn count(&self, range: &KeyRange, at: Option<Revision>, after: Option<&Key>) -> Result<u64, ReadError>;

    /// How many records a range holds now, and the bytes of their keys and values.
    async fn usage(&self, range: &KeyRange) -> Result<Usage, ReadError>;

    /// Does all writes of the transaction if every comparison holds, else none of them.
    ///
    /// When this returns `Ok` the writes are durable and visible to every later read, and watchers will see exactly one
    /// event for each, in the order of their revisions. Each put and each delete of an existing key has a revision; a
    /// delete of a missing key changes nothing. On backends where a transaction has one revision (etcd) all writes of it
    /// share that revision, so callers put no two objects of one resource into a transaction.
    ///
    /// [`CommitError::Conflict`] names the first comparison that failed and what is there now. After
    /// [`CommitError::Unknown`] the writes may or may not have happened; after every other error they have not.
    async fn commit(&self, txn: Txn) -> Result<Committed, CommitError>;

    /// Every change in a range after revision `after`, once and in order, and from then on as they happen.
    ///
    /// [`ReadError::Expired`] if `after` is compacted away, unless the range lies in one plane that has not changed since:
    /// quiet planes do not expire because others write. `after` may lie in the future: nothing is sent up to it.
    async fn watch(&self, range: KeyRange, after: Revision) -> Result<Watch, ReadError>;

    /// Forgets superseded values and deletions up to and including `revision`.
    ///
    /// Reads at older revisions fail from then on; the state right after `revision` stays readable.
    /// A revision at or below the last compaction changes nothing; one above the newest is [`ReadError::Future`].
    async fn compact(&self, revision: Revision) -> Result<(), ReadError>;

    /// Makes the newest revision at least `to`, and returns it: every later write has a greater one.
    ///
    /// No key changes and no watch sees an event; revisions that were skipped read as the state before them. When this
    /// returns `Ok` it is durable. One at or below the newest changes nothing. Stores whose revisions are another's to
    /// give (etcd) answer [`AdvanceError::Unsupported`].
    async fn advance(&self, to: Revision) -> Result<Revision, AdvanceError>;

    /// Ends the watches inside a plane that follow changes in this process, each with [`WatchError::Ended`] after its last
    /// event. Nothing else changes, and watches that are opened later are not concerned.
    fn end_watches(&self, plane: mica_api::PlaneId);
}

/// Nothing advances further: what is left is for writes, and signed numbers hold it.
pub const FARTHEST: Revision = Revision(1 << 60);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoreStatus {
    pub revision: Revision,
    /// States before this revision can no longer be read. Zero if nothing was compacted.
    pub compacted: Revision,
}

#[derive(Clone, Debug)]
pub struct RangeQuery<'a> {
    pub range: &'a KeyRange,
    /// The state right after this revision; the newest if absent.
    pub at: Option<Revision>,
    /// Only keys greater than this one.
    pub after: Option<&'a Key>,
    /// At most this many records; at least 1.
    pub limit: usize,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Page {
    pub records: Vec<(Key, Record)>,
    /// The revision whose state this is: pass it as `at` for the pages that follow.
    pub revision: Revision,
    /// Whether the range has records after the last one here.
    pub more: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    pub records: u64,
    pub bytes: u64,
}

#[derive(Clone, Debug, Default)]
pub struct Txn {
    pub compares: Vec<Compare>,
    pub writes: Vec<Write>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Compare {
    /// The key's newest revision is this one.
    Unchanged(Key, Revision),
    /// The key exists, and its newest revision is this one or an older one.
    UnchangedSince(Key, Revision),
    /// The key does not exist.
    Absent(Key),
}

impl Compare {
    pub fn key(&self) -> &Key {
        match self {
            Self::Unchanged(key, _) | Self::UnchangedSince(key, _) | Self::Absent(key) => key,
        }
    }

    /// Whether it holds for a key with this newest revision; `None` for one that does not exist.
    pub fn holds(&self, newest: Option<Revision>) -> bool {
        match self {
            Self::Unchanged(_, expected) => newest == Some(*expected),
            Self::UnchangedSince(_, since) => newest.is_some_and(|newest| newest <= *since),
            Self::Absent(_) => newest.is_none(),
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Write {
    /// Sets the value. With a time to live the key is deleted, with an ordinary event, once that has passed since this put.
    Put {
        key: Key,
        value: Bytes,
        ttl: Option<Duration>,
    },
    Delete {
        key: Key,
    },
    /// Removes every key of a plane as one operation, whatever their number, without an event for each.
    ///
    /// Watches inside the plane end with [`WatchError::Dropped`] after their last event; wider ones see
    /// [`Signal::Dropped`]. The plane's id must not be used again.
    DropPlane(mica_api::PlaneId),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Committed {
    /// The newest revision of the transaction: the store's state right after it includes all its writes.
    pub revision: Revision,
    /// For each write of the transaction its revision; for a delete of a missing key, [`Committed::revision`].
    pub revisions: Vec<Revision>,
}

/// One change. Shared by all watchers that see it.
#[derive(Debug)]
pub struct Event {
    pub key: Key,
    pub revision: Revision,
    pub change: Change,
    /// What was at the key before, if anything.
    pub previous: Option<Record>,
    memo: OnceLock<(u64, Bytes)>,
}

impl Event {
    pub fn new(key: Key, revision: Revision, change: Change, previous: Option<Record>) -> Self {
        Self {
            key,
            revision,
            change,
            previous,
            memo: OnceLock::new(),
        }
    }

    /// What is at the key since then, if anything.
    pub fn current(&self) -> Option<Record> {
        match &self.change {
            Change::Put(value) => Some(Record {
                value: value.clone(),
                revision: self.revision,
            }),
            Change::Delete => None,
        }
    }

    /// The one encoding of this event that most watchers send, if it has been made and is of this form.
    pub fn memo(&self, form: u64) -> Option<Bytes> {
        let (made, bytes) = self.memo.get()?;
        (*made == form).then(|| bytes.clone())
    }

    /// Keeps an encoding for the other watchers, so that it is made once however many they are. The first one stays.
    pub fn remember(&self, form: u64, bytes: Bytes) {
        self.memo.get_or_init(|| (form, bytes));
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    Put(Bytes),
    Delete,
}

/// What a watch yields.
#[derive(Clone, Debug)]
pub enum Signal {
    Event(Arc<Event>),
    /// A plane inside the watched range was dropped whole.
    Dropped(mica_api::PlaneId, Revision),
}

/// An open watch. Dropping it closes it.
pub trait WatchSource: Send {
    /// The next signal. `Pending` means that `cx` is woken when there may be one; only the last waker given is. After an
    /// error nothing follows.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Signal, WatchError>>;

    /// The next signal if one is waiting.
    fn try_next(&mut self) -> Option<Result<Signal, WatchError>>;

    /// If every event known to this process has been yielded, the revision up to which that is so: every later event is
    /// greater, and a watch resumed from it misses nothing. `None` while events wait to be yielded.
    fn caught_up(&mut self) -> Option<Revision>;
}

pub type Watch = Box<dyn WatchSource>;

impl dyn WatchSource {
    /// The next signal; waits for one. Nothing is lost if the future is dropped before it is ready.
    pub async fn next(&mut self) -> Result<Signal, WatchError> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("the revision is compacted: the oldest that can be read is {compacted}")]
    Expired { compacted: Revision },
    #[error("the revision does not exist yet: the newest is {current}")]
    Future { current: Revision },
    #[error("stored data is damaged: {0}")]
    Corrupt(String),
    #[error("the store did not answer")]
    Unavailable(#[source] BoxError),
}

#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    #[error("comparison {compare} of the transaction failed")]
    Conflict { compare: usize, current: Option<Record> },
    /// Deletes may still succeed.
    #[error("the store has no space left")]
    NoSpace,
    #[error("the transaction is too large: {0}")]
    TooLarge(String),
    #[error("stored data is damaged: {0}")]
    Corrupt(String),
    #[error("the store did not accept the write")]
    Unavailable(#[source] BoxError),
    #[error("the store did not say whether the write happened")]
    Unknown(#[source] BoxError),
}

#[derive(Debug, thiserror::Error)]
pub enum AdvanceError {
    #[error("the store cannot skip revisions")]
    Unsupported,
    #[error("no revision beyond {FARTHEST} can be reached")]
    TooFar,
    #[error("the store did not accept the write")]
    Unavailable(#[source] BoxError),
}

#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// The reader fell too far behind its bounded buffer, or history it still needed was compacted: list and watch again.
    #[error("events were lost to this watch")]
    Lagged,
    #[error("the plane was dropped")]
    Dropped,
    #[error("the store is closing")]
    Closed,
    /// Every event up to this revision has been yielded: a watch resumed from it misses nothing.
    #[error("the watch was ended at revision {0}")]
    Ended(Revision),
}

pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

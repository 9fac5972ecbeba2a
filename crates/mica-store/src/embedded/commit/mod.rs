//! The one thread that changes the store.
//!
//! It takes the transactions that wait ([`line`] says which), checks their comparisons against the index and against each other, writes them to
//! the log as one frame with one sync, then makes them visible: index, watches, answers, in this order. Whatever is asked
//! for meanwhile forms the next group. So readers never see what is not durable, and comparisons need no locks.
//!
//! Background work that changes the index comes here as jobs, cut into pieces that hold up transactions for at most a few
//! milliseconds.

mod group;
mod job;
mod line;
mod loud;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Instant;

use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use super::format::{Entry, LogRecord, RECORD_MAX_OVERHEAD};
use super::index::batch::{Batch, Origin};
use super::index::checkpoint::Checkpoint;
use super::log::{Log, Marks};
use super::prepare::{Purpose, RoomError};
use super::read::Engine;
use super::signal::{LogSize, Signals, Stuck};
use crate::store::{CommitError, Committed, Revision, Signal, Txn, Write};
pub(super) use group::now_ms;
pub(super) use job::{Carry, Forget, Job, Sweep};
use line::{Line, Turn};

/// Transactions that wait at most; more have to wait for a place.
pub(super) const QUEUE: usize = 1024;
/// The largest transaction. A Kubernetes request body is at most 3 MiB.
const TXN_BYTES: usize = 16 << 20;
/// The longest key: five names of Kubernetes' longest kind, with room.
const KEY_BYTES: usize = 4096;

pub(super) enum Request {
    Commit(CommitRequest),
    Job(Job),
}

pub(super) struct CommitRequest {
    txn: Txn,
    /// At most this many bytes of records.
    bytes: usize,
    reply: oneshot::Sender<Result<Committed, CommitError>>,
    /// Its share of the queue's bytes.
    _permit: OwnedSemaphorePermit,
}

impl CommitRequest {
    pub(super) fn new(
        txn: Txn,
        bytes: usize,
        permit: OwnedSemaphorePermit,
    ) -> (Self, oneshot::Receiver<Result<Committed, CommitError>>) {
        let (reply, answer) = oneshot::channel();
        (
            Self {
                txn,
                bytes,
                reply,
                _permit: permit,
            },
            answer,
        )
    }

    fn grows(&self) -> bool {
        self.txn.writes.iter().any(|write| matches!(write, Write::Put { .. }))
    }
}

/// The bytes that a transaction's records take at most. An error if the store does not take it.
pub(super) fn measure(txn: &Txn) -> Result<usize, CommitError> {
    let mut bytes = 0;
    for write in &txn.writes {
        let (key, value) = match write {
            Write::Put { key, value, .. } => (key.as_str(), value.len()),
            Write::Delete { key } => (key.as_str(), 0),
            Write::DropPlane(plane) => (plane.as_str(), 0),
        };
        if key.len() > KEY_BYTES || key.contains('\0') {
            return Err(CommitError::TooLarge(format!(
                "a key has at most {KEY_BYTES} bytes and no NUL"
            )));
        }
        bytes += RECORD_MAX_OVERHEAD + key.len() + value;
    }
    if bytes > TXN_BYTES {
        return Err(CommitError::TooLarge(format!(
            "{bytes} bytes are more than {TXN_BYTES}"
        )));
    }
    Ok(bytes)
}

/// The changing side of the store.
pub(super) struct Committer {
    engine: Arc<Engine>,
    signals: Arc<Signals>,
    log: Log,
    /// The newest revision that was given out, durable or not: none is given out twice.
    newest: Revision,
    /// Bytes of each segment that the index refers to.
    live: BTreeMap<u32, u64>,
    limits: CheckpointLimits,
    /// The log's bytes at the last checkpoint.
    checkpointed_at: u64,
    written: u64,
}

/// When the index is written out.
#[derive(Clone, Copy, Debug)]
pub(super) struct CheckpointLimits {
    /// Bytes of log that a restart has to replay at most, roughly.
    pub(super) log_bytes: u64,
    /// Bytes of index in memory.
    pub(super) memory_bytes: u64,
}

/// What recovery hands to the committer.
pub(super) struct Start {
    pub(super) log: Log,
    pub(super) newest: Revision,
    pub(super) live: BTreeMap<u32, u64>,
    pub(super) limits: CheckpointLimits,
}

enum IndexState {
    Flowing,
    /// It cannot be written out; what makes it grow further is refused.
    Stuck(Stuck),
}

/// Why a frame did not become durable.
pub(super) enum WriteError {
    /// It certainly never happened.
    Refused(RoomError),
    Lost(io::Error),
    /// A crash may still bring it back.
    Unknown(io::Error),
}

/// What came.
enum Received {
    Request(Request),
    /// Not in time.
    Nothing,
    Closed,
}

/// Waits for a request, if there is a time at most until then.
fn receive(requests: &mut mpsc::Receiver<Request>, until: Option<Instant>) -> Received {
    let Some(until) = until else {
        return requests.blocking_recv().map_or(Received::Closed, Received::Request);
    };
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut cx = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(request) = requests.poll_recv(&mut cx) {
            return request.map_or(Received::Closed, Received::Request);
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Received::Nothing;
        }
        thread::park_timeout(left);
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl Committer {
    pub(super) fn new(engine: Arc<Engine>, signals: Arc<Signals>, start: Start) -> Self {
        let Start {
            log,
            newest,
            live,
            limits,
        } = start;
        let committer = Self {
            engine,
            signals,
            log,
            newest,
            live,
            limits,
            checkpointed_at: 0,
            written: 0,
        };
        // Here and not when the thread runs: a check right after opening must know where the log ends.
        committer.report();
        committer
    }

    /// Works until it is told to close. Returns what a last checkpoint needs to know.
    pub(super) fn run(mut self, mut requests: mpsc::Receiver<Request>) -> (Checkpoint, Log) {
        let mut line = Line::new();
        loop {
            let mut job = match receive(&mut requests, line.held_until(Instant::now())) {
                Received::Request(first) => line.take_in(first, Instant::now()),
                Received::Nothing => None,
                Received::Closed => Some(Job::Close),
            };
            loop {
                let now = Instant::now();
                if job.is_none() {
                    job = line.fill(&mut requests, now);
                }
                let turn = if job.is_some() { Turn::Everybody } else { Turn::InTurn };
                let Some(group) = line.next_group(turn, now) else {
                    break;
                };
                match self.wait_for_index() {
                    IndexState::Flowing => self.commit_group(group.requests),
                    IndexState::Stuck(stuck) => self.refuse_growth(group.requests, stuck),
                }
                line.wrote(group.loud, now.elapsed(), Instant::now());
            }
            match job {
                Some(Job::Close) => break,
                Some(job) => {
                    self.run_job(job);
                    self.report();
                }
                None => {}
            }
        }
        requests.close();
        while let Ok(request) = requests.try_recv() {
            if let Request::Commit(request) = request {
                let _ = request
                    .reply
                    .send(Err(CommitError::Unavailable("the store is closing".into())));
            }
        }
        self.engine.index.seal();
        (self.checkpoint(true), self.log)
    }

    fn marks(&self) -> Marks {
        Marks {
            newest: self.newest,
            compacted: self.engine.compacted(),
        }
    }

    /// Holds back while the index in memory grows faster than it is written out.
    fn wait_for_index(&self) -> IndexState {
        let too_much = || self.engine.index.unwritten_bytes() > 4 * self.limits.memory_bytes;
        // Only while something is being written: the order to begin with it comes through here.
        while too_much() && self.engine.index.is_flushing() {
            if let Some(stuck) = self.signals.index_stuck() {
                return IndexState::Stuck(stuck);
            }
            if self.signals.is_closing() {
                break;
            }
            self.signals.wait_for_checkpoint();
        }
        IndexState::Flowing
    }

    /// Tells the background what there is to do.
    fn report(&self) {
        let due = self.written - self.checkpointed_at >= self.limits.log_bytes
            || self.engine.index.unwritten_bytes() >= self.limits.memory_bytes;
        let (bytes, live) = (self.log.bytes(), self.live.values().sum());
        let log = LogSize {
            bytes,
            live,
            written: self.written,
            end: self.log.end(),
        };
        self.signals.report(log, due);
    }

    /// Makes a frame of records durable and the index show it.
    ///
    /// `build` adds the records; it is called once room for `bytes` of them has been made. Returns the newest revision and
    /// what is to be told to watchers.
    fn write(
        &mut self,
        bytes: usize,
        purpose: Purpose,
        build: impl FnOnce(&mut Frame<'_>),
    ) -> Result<(Revision, Vec<Signal>), WriteError> {
        self.log
            .make_room(bytes, purpose, self.marks())
            .map_err(WriteError::Refused)?;
        let mut builder = self.log.frame();
        let mut frame = Frame {
            builder: &mut builder,
            batch: Batch::default(),
            newest: self.newest,
            live: Vec::new(),
            signals: Vec::new(),
        };
        build(&mut frame);
        let Frame {
            mut batch,
            newest,
            live,
            signals,
            ..
        } = frame;
        let before = std::mem::replace(&mut self.newest, newest);
        if builder.is_empty() {
            self.log.recycle(builder);
            return Ok((newest, signals));
        }
        let bytes_before = self.log.bytes();
        if let Err(error) = self.log.append(builder, before) {
            tracing::error!(%error, "a write to the log failed; the log goes on in a new segment");
            return Err(match self.log.disown_tail(self.marks()) {
                Ok(()) => WriteError::Lost(error),
                Err(_) => WriteError::Unknown(error),
            });
        }
        self.written += self.log.bytes() - bytes_before;
        for (segment, bytes) in live {
            *self.live.entry(segment).or_default() += bytes;
        }
        self.engine.cache.begin(&signals);
        self.engine.index.apply(&mut batch, newest);
        self.engine.cache.end(&signals);
        // Before anybody is answered: who then looks at the log sees what was just written.
        self.report();
        Ok((newest, signals))
    }

    /// Applies changes that need no record.
    fn apply(&mut self, mut batch: Batch) {
        self.engine.index.apply(&mut batch, Revision(0));
    }

    fn forget_live(&mut self, entry: &Entry) {
        if let Some(live) = self.live.get_mut(&entry.position.segment) {
            *live = live.saturating_sub(entry.position.length.into());
        }
    }

    /// Describes the index as it is now, for when what is sealed has been written out.
    fn checkpoint(&mut self, clean: bool) -> Checkpoint {
        self.checkpointed_at = self.written;
        let present = self.engine.segments.map();
        self.live.retain(|segment, _| present.contains_key(segment));
        let (segment, offset) = self.log.end().unwrap_or((0, 0));
        Checkpoint {
            store: self.log.store(),
            segment,
            offset,
            revision: self.newest,
            compacted: self.engine.compacted(),
            planes_since: self.engine.planes_since,
            clean,
            live: self.live.clone(),
        }
    }
}

/// A frame under construction, with the changes that follow from it.
struct Frame<'a> {
    builder: &'a mut super::format::FrameBuilder,
    batch: Batch,
    newest: Revision,
    live: Vec<(u32, u64)>,
    /// What watchers will be told.
    signals: Vec<Signal>,
}

impl Frame<'_> {
    fn next_revision(&mut self) -> Revision {
        self.newest = Revision(self.newest.0 + 1);
        self.newest
    }

    fn push(&mut self, record: &LogRecord<'_>) -> Entry {
        let entry = self.builder.push(record);
        self.batch.record(record, &entry, Origin::Written);
        entry
    }

    /// Like `push`, for a record that the index will refer to.
    fn push_live(&mut self, record: &LogRecord<'_>) -> Entry {
        let entry = self.push(record);
        self.live.push((entry.position.segment, entry.position.length.into()));
        entry
    }
}

//! The background work that keeps the store small: expiry, compaction, sweeping dropped planes, cleaning the log.
//!
//! It looks with views and sends small pieces of work to the committer, with pauses between them. All of it can stop at
//! any point and begin again.
//!
//! Cleaning goes from the oldest segment on and never skips one. That is what lets a deletion's record go with its
//! segment: whatever older version of the key the log held lay in segments that are gone already, or lies in a copy that
//! says itself when it ended.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use mica_api::PlaneId;
use tokio::sync::mpsc;

use super::commit::{Carry, Forget, Job, Request, Sweep, now_ms};
use super::format::{Entry, Kind, LogRecord, records_of};
use super::index::View;
use super::index::view::OldVersion;
use super::read::{Damage, Engine};
use super::scan::{Extent, FrameScanner};
use super::segment::Segment;
use super::signal::{Signals, Wake};
use super::{AutoCompaction, Options};
use crate::key::Key;
use crate::store::{CommitError, Revision};

/// Index entries in one piece of work: about a millisecond of the committer's time.
const PIECE: usize = 256;
/// Bytes of records copied in one piece of work.
const PIECE_BYTES: usize = 256 << 10;
/// Part of the log, in percent, that may be dead before it is cleaned. Less means more copying.
const DEAD_PERCENT: u64 = 40;
/// Bytes of segments emptied before a checkpoint lets them be removed.
const CLEAN_BYTES: u64 = 256 << 20;
/// How long to leave cleaning alone after it failed.
const CLEAN_RETRY: Duration = Duration::from_secs(5);
/// The longest time between two looks at what there is to do.
const TICK: Duration = Duration::from_secs(15);

pub(super) struct Keeper {
    engine: Arc<Engine>,
    signals: Arc<Signals>,
    requests: mpsc::Sender<Request>,
    compaction: Option<AutoCompaction>,
    tick: Duration,
    smallest_segment: u64,
    /// What the newest revision was at some moments, oldest first.
    samples: VecDeque<Sample>,
    clean_again: Instant,
    /// Whether everything that expired before the next known expiry is taken care of.
    expired_before: Cell<bool>,
}

#[derive(Clone, Copy)]
struct Sample {
    taken: Instant,
    revision: Revision,
    written: u64,
}

/// The store is closing, or cannot do this now.
struct Stop;

impl Keeper {
    pub(super) fn new(
        engine: Arc<Engine>,
        signals: Arc<Signals>,
        requests: mpsc::Sender<Request>,
        options: &Options,
    ) -> Self {
        let keep = options
            .compaction
            .map_or(TICK, |compaction| compaction.keep_at_least.min(compaction.keep) / 10);
        Self {
            engine,
            signals,
            requests,
            compaction: options.compaction,
            tick: TICK.min(keep).max(Duration::from_millis(10)),
            smallest_segment: options.segment_bytes.0,
            samples: VecDeque::new(),
            clean_again: Instant::now(),
            expired_before: Cell::new(false),
        }
    }

    pub(super) fn run(mut self) {
        // Left-overs of the last run: expired keys, and what a replay brought back.
        self.signals.expires_at(now_ms());
        self.signals.compacted();
        loop {
            let until = Instant::now() + self.tick;
            if self.signals.wait_for_work(now_ms, until) == Wake::Closing {
                return;
            }
            match self.work() {
                Ok(()) | Err(Unfinished::Later) => {}
                Err(Unfinished::Damage(damage)) => {
                    tracing::error!(damage = damage.text(), "background work on the store failed");
                    self.signals.pause(Duration::from_secs(1));
                }
            }
        }
    }

    fn work(&mut self) -> Result<(), Unfinished> {
        self.expire()?;
        self.compact_by_age()?;
        if self.signals.take_forget_due() {
            self.forget()?;
            self.sweep()?;
        }
        if Instant::now() >= self.clean_again
            && let Err(error) = self.clean()
        {
            self.clean_again = Instant::now() + CLEAN_RETRY;
            return Err(error);
        }
        Ok(())
    }

    /// Sends a piece of work and waits for it; then leaves the committer alone for as long as it took.
    fn send<T>(&self, job: impl FnOnce(std::sync::mpsc::Sender<T>) -> Job) -> Result<T, Stop> {
        let began = Instant::now();
        let (reply, done) = std::sync::mpsc::channel();
        self.requests
            .blocking_send(Request::Job(job(reply)))
            .map_err(|_| Stop)?;
        let answer = done.recv().map_err(|_| Stop)?;
        match self.signals.pause(began.elapsed().min(Duration::from_millis(20))) {
            Wake::Work => Ok(answer),
            Wake::Closing => Err(Stop),
        }
    }

    /// Deletes keys whose time is over.
    fn expire(&self) -> Result<(), Unfinished> {
        if self.signals.soonest_expiry().is_none_or(|soonest| soonest > now_ms()) {
            return Ok(());
        }
        let soonest = self.signals.take_soonest_expiry().unwrap_or(0);
        // From the soonest on: what has expired stays in the way of a look from the beginning for a while.
        let mut from = if self.expired_before.take() { soonest } else { 0 };
        loop {
            let mut first = self.engine.index.view()?.expiries(from, PIECE)?;
            let now = now_ms();
            let due = first.partition_point(|(time, ..)| *time <= now);
            if let Some((time, ..)) = first.get(due) {
                self.signals.expires_at(*time);
            }
            first.truncate(due);
            let Some((last, ..)) = first.last() else {
                self.expired_before.set(true);
                return Ok(());
            };
            from = *last;
            if !self.send(|done| Job::Expire(first, done))? {
                // No room, or a failing disk: a little later, then.
                self.signals.expires_at(now + 1000);
                return Ok(());
            }
        }
    }

    /// Announces the compaction that age and size ask for.
    fn compact_by_age(&mut self) -> Result<(), Unfinished> {
        let Some(compaction) = self.compaction else {
            return Ok(());
        };
        let now = Instant::now();
        let written = self.signals.log_size().written;
        if self.samples.back().is_none_or(|last| now - last.taken >= self.tick) {
            self.samples.push_back(Sample {
                taken: now,
                revision: self.engine.index.revision(),
                written,
            });
        }
        let Some(first) = self.samples.front() else {
            return Ok(());
        };
        let too_much = written - first.written >= compaction.keep_bytes;
        let keep = if too_much {
            compaction.keep_at_least.min(compaction.keep)
        } else {
            compaction.keep
        };
        let old_enough = |sample: &Sample| now - sample.taken >= keep;
        let Some(reached) = self.samples.iter().rposition(old_enough) else {
            return Ok(());
        };
        // Each compaction looks at all history, so there is one now and then rather than at every look.
        if !too_much && self.samples[reached].taken - first.taken < compaction.keep / 5 {
            return Ok(());
        }
        let target = self.samples[reached].revision;
        // The newest of the old samples stays, so that the next look finds where this one ended.
        self.samples.drain(..reached);
        if target > self.engine.compacted() {
            let (reply, answer) = tokio::sync::oneshot::channel();
            self.requests
                .blocking_send(Request::Job(Job::Compact(target, reply)))
                .map_err(|_| Stop)?;
            if let Ok(Err(error)) = answer.blocking_recv() {
                tracing::warn!(%error, "history could not be compacted");
            }
        }
        Ok(())
    }

    /// Removes old versions that no read may ask for any more.
    fn forget(&self) -> Result<(), Unfinished> {
        let compacted = self.engine.compacted();
        let mut after: Option<(Key, Revision)> = None;
        loop {
            self.expire()?;
            let cursor = after.as_ref().map(|(key, revision)| (key, *revision));
            let versions = self.engine.index.view()?.old_versions_after(cursor, PIECE)?;
            let Some(last) = versions.last() else { return Ok(()) };
            after = Some((last.key.clone(), last.entry.revision));
            let old: Vec<OldVersion> = versions
                .into_iter()
                .filter(|version| version.end.revision <= compacted)
                .collect();
            if old.is_empty() {
                continue;
            }
            let gone = old
                .iter()
                .filter(|version| version.end.kind != super::format::EndKind::Replaced)
                .map(|version| (version.key.clone(), version.entry.revision))
                .collect();
            self.send(|done| Job::Forget(Forget { versions: old, gone }, done))?;
        }
    }

    /// Removes what is left of dropped planes whose past no read may ask for any more.
    fn sweep(&self) -> Result<(), Unfinished> {
        let compacted = self.engine.compacted();
        let dropped = self.engine.index.view()?.all_dropped()?;
        for (plane, _) in dropped.into_iter().filter(|(_, revision)| *revision <= compacted) {
            self.sweep_plane(plane)?;
        }
        Ok(())
    }

    fn sweep_plane(&self, plane: PlaneId) -> Result<(), Unfinished> {
        // From behind what was removed last: what is removed stays in the way of a look from the beginning for a while.
        let (mut after_key, mut after_version): (Option<Key>, Option<(Key, Revision)>) = (None, None);
        loop {
            let view = self.engine.index.view()?;
            let keys = view.current_of_plane(plane, after_key.as_ref(), PIECE)?;
            let cursor = after_version.as_ref().map(|(key, revision)| (key, *revision));
            let versions = view.old_versions_of_plane(plane, cursor, PIECE)?;
            drop(view);
            after_key = keys.last().map(|(key, _)| key.clone()).or(after_key);
            after_version = versions
                .last()
                .map(|last| (last.key.clone(), last.entry.revision))
                .or(after_version);
            let last = keys.is_empty() && versions.is_empty();
            self.send(|done| Job::Sweep(Sweep { plane, keys, versions }, done))?;
            if last {
                return Ok(());
            }
        }
    }

    /// Empties and removes the oldest segments while too much of the log is dead.
    fn clean(&self) -> Result<(), Unfinished> {
        loop {
            let (mut emptied, mut bytes) = (Vec::new(), 0);
            while bytes < CLEAN_BYTES
                && let Some((segment, length)) = self.next_to_clean(emptied.last().copied(), bytes)
            {
                self.empty(&segment, length)?;
                emptied.push(segment.number());
                bytes += length;
            }
            if emptied.is_empty() {
                return Ok(());
            }
            // An index on the disk that refers to the copies makes the next start quick. It is not what makes this safe:
            // whatever an older index says of the originals, the replay comes across their copies. So when the index
            // cannot be written, for want of the space that would be freed here, this goes on without it.
            let number = self.signals.request_checkpoint();
            if self.signals.wait_for_checkpoint_number(number) == Wake::Closing {
                return Err(Unfinished::Later);
            }
            for number in emptied {
                self.engine.segments.remove(number).map_err(Damage::Io)?;
                // One by one: a crash must not leave an older segment without the ones between it and the rest.
                self.engine.segments.disk().sync_names().map_err(Damage::Io)?;
            }
            self.requests
                .blocking_send(Request::Job(Job::Removed(bytes)))
                .map_err(|_| Stop)?;
        }
    }

    /// The oldest segment not emptied yet and how much of it counts, if the log is worth cleaning and it can be.
    fn next_to_clean(&self, emptied: Option<u32>, emptied_bytes: u64) -> Option<(Arc<Segment>, u64)> {
        let size = self.signals.log_size();
        let bytes = size.bytes.saturating_sub(emptied_bytes);
        let dead = bytes.saturating_sub(size.live);
        if bytes < 2 * self.smallest_segment || dead * 100 < bytes * DEAD_PERCENT {
            return None;
        }
        let segments = self.engine.segments.map();
        let mut rest = segments
            .values()
            .filter(|segment| emptied.is_none_or(|last| segment.number() > last));
        let (oldest, next) = (rest.next()?, rest.next()?);
        // Deletions in it must be forgotten by everyone before their records can go.
        let all_compacted = next.header.base_revision <= self.engine.compacted();
        all_compacted.then(|| (oldest.clone(), next.header.previous_length))
    }

    /// Copies what is still referred to in a segment to the end of the log.
    fn empty(&self, segment: &Segment, length: u64) -> Result<(), Unfinished> {
        let disk = &**self.engine.segments.disk();
        let mut scanner = FrameScanner::new(segment, disk, Extent::Known(length), 0)?;
        let (mut pieces, mut bytes) = (Vec::new(), 0);
        loop {
            let number = segment.number();
            let Some((offset, frame)) = scanner.next_frame()? else {
                break;
            };
            let view = self.engine.index.view()?;
            for record in records_of(frame, number, offset) {
                let (record, entry) = record
                    .map_err(|at| Damage::Corrupt(format!("{} at offset {at}: a damaged record", segment.name)))?;
                if let Some(carry) = wanted(&view, &record, &entry)? {
                    bytes += carry.value.len() + 128;
                    pieces.push(carry);
                }
                if bytes >= PIECE_BYTES || pieces.len() >= PIECE {
                    bytes = 0;
                    self.carry(std::mem::take(&mut pieces))?;
                }
            }
        }
        if pieces.is_empty() { Ok(()) } else { self.carry(pieces) }
    }

    fn carry(&self, pieces: Vec<Carry>) -> Result<(), Unfinished> {
        // Cleaning can take long, and expiry is awaited.
        self.expire()?;
        match self.send(|done| Job::Carry(pieces, done))? {
            Ok(_) => Ok(()),
            Err(CommitError::Corrupt(what)) => Err(Unfinished::Damage(Damage::Corrupt(what))),
            Err(_) => Err(Unfinished::Later),
        }
    }
}

/// A record that the index refers to, with what is needed to write it again.
fn wanted(view: &View, record: &LogRecord<'_>, entry: &Entry) -> Result<Option<Carry>, Damage> {
    if !matches!(record.kind, Kind::Put | Kind::Carried) {
        return Ok(None);
    }
    let Some(key) = std::str::from_utf8(record.key).ok().and_then(Key::from_stored) else {
        return Ok(None);
    };
    if !view.refers_to(&key, entry)? {
        return Ok(None);
    }
    let value = Bytes::copy_from_slice(record.value);
    Ok(Some(Carry {
        key,
        entry: *entry,
        expires: record.expires,
        value,
    }))
}

/// Why some work was left for later.
enum Unfinished {
    /// The store is closing or has no room now.
    Later,
    Damage(Damage),
}

impl From<Stop> for Unfinished {
    fn from(_: Stop) -> Self {
        Self::Later
    }
}

impl From<Damage> for Unfinished {
    fn from(damage: Damage) -> Self {
        Self::Damage(damage)
    }
}

//! Background work that changes the index, as the committer does it.
//!
//! The background prepares a piece from a view; here it is checked against the newest state and applied, so that it
//! cannot undo what a transaction did meanwhile.

use std::sync::mpsc::Sender;

use bytes::Bytes;
use mica_api::PlaneId;
use tokio::sync::oneshot;

use super::{Committer, WriteError};
use crate::embedded::format::{End, EndKind, Entry, Kind, LogRecord, RECORD_MAX_OVERHEAD};
use crate::embedded::index::batch::Batch;
use crate::embedded::index::checkpoint::Checkpoint;
use crate::embedded::index::view::OldVersion;
use crate::embedded::prepare::{Purpose, RoomError};
use crate::embedded::read::Damage;
use crate::key::Key;
use crate::store::{AdvanceError, CommitError, Compare, ReadError, Revision, Txn, Write};

pub(in crate::embedded) enum Job {
    /// Announces a compaction: from then on older reads are refused.
    Compact(Revision, oneshot::Sender<Result<(), ReadError>>),
    /// Makes the newest revision at least this one.
    Advance(Revision, oneshot::Sender<Result<Revision, AdvanceError>>),
    /// Removes what a compaction lets go.
    Forget(Forget, Sender<()>),
    /// Removes keys of dropped planes.
    Sweep(Sweep, Sender<()>),
    /// Deletes keys whose time is over: the time, the put's revision, the key.
    Expire(Vec<(u64, Revision, Key)>, Sender<bool>),
    /// Writes versions from an old segment again.
    Carry(Vec<Carry>, Sender<Result<u64, CommitError>>),
    /// Takes removed segments' bytes out of the log's account.
    Removed(u64),
    /// Ends the part of the index that is written out next.
    Seal(Sender<Checkpoint>),
    Close,
}

pub(in crate::embedded) struct Forget {
    pub(in crate::embedded) versions: Vec<OldVersion>,
    /// Keys that were deleted, with the revision of the newest version forgotten: nothing may be left of them.
    pub(in crate::embedded) gone: Vec<(Key, Revision)>,
}

pub(in crate::embedded) struct Sweep {
    pub(in crate::embedded) plane: PlaneId,
    pub(in crate::embedded) keys: Vec<(Key, Entry)>,
    pub(in crate::embedded) versions: Vec<OldVersion>,
}

/// A version found in an old segment.
pub(in crate::embedded) struct Carry {
    pub(in crate::embedded) key: Key,
    pub(in crate::embedded) entry: Entry,
    pub(in crate::embedded) expires: Option<u64>,
    pub(in crate::embedded) value: Bytes,
}

impl Committer {
    pub(super) fn run_job(&mut self, job: Job) {
        match job {
            Job::Compact(revision, reply) => {
                let _ = reply.send(self.compact(revision));
            }
            Job::Advance(to, reply) => {
                let _ = reply.send(self.advance(to));
            }
            Job::Forget(forget, done) => {
                self.forget(&forget);
                let _ = done.send(());
            }
            Job::Sweep(sweep, done) => {
                self.sweep(&sweep);
                let _ = done.send(());
            }
            Job::Expire(expired, done) => {
                let _ = done.send(self.expire(&expired));
            }
            Job::Carry(versions, done) => {
                let _ = done.send(self.carry(&versions));
            }
            Job::Removed(bytes) => self.log.forget(bytes),
            Job::Seal(reply) => {
                self.engine.index.seal();
                let checkpoint = self.checkpoint(false);
                let _ = reply.send(checkpoint);
            }
            Job::Close => {}
        }
    }

    fn compact(&mut self, revision: Revision) -> Result<(), ReadError> {
        let current = self.engine.index.revision();
        if revision > current {
            return Err(ReadError::Future { current });
        }
        if revision <= self.engine.compacted() {
            return Ok(());
        }
        let record = LogRecord {
            kind: Kind::Compact,
            revision,
            previous: None,
            expires: None,
            end: None,
            key: b"",
            value: b"",
        };
        let written = self.write(RECORD_MAX_OVERHEAD, Purpose::Reclaim, |frame| {
            frame.push(&record);
        });
        written.map_err(|error| ReadError::Unavailable(write_error(error).to_string().into()))?;
        self.engine.set_compacted(revision);
        self.signals.compacted();
        Ok(())
    }

    fn advance(&mut self, to: Revision) -> Result<Revision, AdvanceError> {
        let current = self.engine.index.revision();
        if to <= current {
            return Ok(current);
        }
        let written = self.write(RECORD_MAX_OVERHEAD, Purpose::Reclaim, |frame| {
            // Writes that failed may have used up revisions beyond what is visible.
            frame.newest = frame.newest.max(to);
            frame.push(&LogRecord {
                kind: Kind::Advance,
                revision: frame.newest,
                previous: None,
                expires: None,
                end: None,
                key: b"",
                value: b"",
            });
        });
        let (newest, _) = written.map_err(|error| AdvanceError::Unavailable(write_error(error).into()))?;
        self.engine.hub.publish([], newest);
        Ok(newest)
    }

    fn forget(&mut self, forget: &Forget) {
        let mut batch = Batch::default();
        for version in &forget.versions {
            batch.forget_version(version.key.as_str(), version.entry.revision);
            self.forget_live(&version.entry);
        }
        for (key, newest) in &forget.gone {
            // It may have come back since the background looked, and even gone again.
            if matches!(self.is_gone(key, *newest), Ok(true)) {
                batch.forget_key(key.as_str());
            }
        }
        self.apply(batch);
    }

    fn is_gone(&self, key: &Key, newest: Revision) -> Result<bool, Damage> {
        if self.engine.index.current(key.as_str())?.is_some() {
            return Ok(false);
        }
        let last = self.engine.index.view()?.versions(key).next().transpose()?;
        Ok(last.is_none_or(|version| version.entry.revision <= newest))
    }

    fn sweep(&mut self, sweep: &Sweep) {
        let mut batch = Batch::default();
        for (key, entry) in &sweep.keys {
            batch.sweep_key(key.as_str());
            self.forget_live(entry);
        }
        for version in &sweep.versions {
            batch.forget_version(version.key.as_str(), version.entry.revision);
            batch.forget_key(version.key.as_str());
            self.forget_live(&version.entry);
        }
        // Nothing is added to a dropped plane, so an empty look is the last one.
        if sweep.keys.is_empty() && sweep.versions.is_empty() {
            batch.sweep_plane(sweep.plane);
        }
        self.apply(batch);
    }

    /// Says whether the keys are taken care of; if not, they have to be tried again.
    fn expire(&mut self, expired: &[(u64, Revision, Key)]) -> bool {
        let txns: Vec<Txn> = expired
            .iter()
            .map(|(_, revision, key)| Txn {
                compares: vec![Compare::Unchanged(key.clone(), *revision)],
                writes: vec![Write::Delete { key: key.clone() }],
            })
            .collect();
        let bytes = expired
            .iter()
            .map(|(_, _, key)| RECORD_MAX_OVERHEAD + key.as_str().len())
            .sum();
        let Ok(outcomes) = self.try_group(&txns.iter().collect::<Vec<_>>(), bytes, Purpose::Reclaim) else {
            return false;
        };
        let mut batch = Batch::default();
        for ((time, revision, key), outcome) in expired.iter().zip(outcomes) {
            // A conflict is a later put, which has a time of its own or none. Damage will not get better.
            if let Err(error) = outcome
                && !matches!(error, CommitError::Conflict { .. })
            {
                tracing::error!(?key, %error, "a key whose time is over could not be deleted");
            }
            batch.forget_expiry(*time, *revision);
        }
        self.apply(batch);
        true
    }

    /// Writes again what is still referred to. Returns how many bytes that were.
    fn carry(&mut self, versions: &[Carry]) -> Result<u64, CommitError> {
        let mut wanted = Vec::new();
        for version in versions {
            if let Some(end) = self.still_wanted(version)? {
                wanted.push((version, end));
            }
        }
        let bytes = wanted
            .iter()
            .map(|(version, _)| RECORD_MAX_OVERHEAD + version.key.as_str().len() + version.value.len())
            .sum();
        let written = self.write(bytes, Purpose::Reclaim, |frame| {
            for (version, end) in &wanted {
                frame.push_live(&LogRecord {
                    kind: Kind::Carried,
                    revision: version.entry.revision,
                    previous: None,
                    expires: version.expires,
                    end: *end,
                    key: version.key.as_str().as_bytes(),
                    value: &version.value,
                });
            }
        });
        written.map_err(write_error)?;
        for (version, _) in &wanted {
            self.forget_live(&version.entry);
        }
        Ok(bytes as u64)
    }

    /// Whether the index refers to a version at its place, and if so what the copy has to say of its end.
    fn still_wanted(&self, version: &Carry) -> Result<Option<Option<End>>, Damage> {
        let Carry { key, entry, .. } = version;
        if self
            .engine
            .index
            .current(key.as_str())?
            .is_some_and(|current| current == *entry)
        {
            let dropped = self.engine.index.view()?.dropped(key.plane())?;
            return Ok(Some(dropped.map(|revision| End {
                revision,
                kind: EndKind::Dropped,
            })));
        }
        let old = self.engine.index.view()?.old_version(key, entry.revision)?;
        Ok(old.filter(|old| old.entry == *entry).map(|old| Some(old.end)))
    }
}

fn write_error(error: WriteError) -> CommitError {
    match error {
        WriteError::Refused(RoomError::Full) => CommitError::NoSpace,
        WriteError::Refused(RoomError::Io(error)) | WriteError::Lost(error) => CommitError::Unavailable(error.into()),
        WriteError::Unknown(error) => CommitError::Unknown(error.into()),
    }
}

//! One group of transactions: comparisons, records, events, answers.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use mica_api::PlaneId;

use super::{CommitRequest, Committer, Frame, WriteError};
use crate::embedded::format::{Entry, Kind, LogRecord};
use crate::embedded::prepare::{Purpose, RoomError};
use crate::embedded::read::{Damage, Engine};
use crate::embedded::signal::Stuck;
use crate::key::Key;
use crate::store::{Change, CommitError, Committed, Event, Record, Revision, Signal, Txn, Write};

/// What one transaction came to.
type Outcome = Result<Committed, CommitError>;

impl Committer {
    pub(super) fn commit_group(&mut self, group: Vec<CommitRequest>) {
        let bytes = group.iter().map(|request| request.bytes).sum();
        let purpose = if group.iter().any(CommitRequest::grows) {
            Purpose::Grow
        } else {
            Purpose::Reclaim
        };
        let txns: Vec<_> = group.iter().map(|request| &request.txn).collect();
        match self.try_group(&txns, bytes, purpose) {
            Ok(outcomes) => answer(group, outcomes),
            Err(WriteError::Refused(RoomError::Full)) if purpose == Purpose::Grow => {
                self.refuse_growth(group, Stuck::Full);
            }
            Err(error) => fail(group, &error),
        }
    }

    /// Without room for growth, transactions that only delete can still be done.
    pub(super) fn refuse_growth(&mut self, group: Vec<CommitRequest>, why: Stuck) {
        let (growing, rest): (Vec<_>, Vec<_>) = group.into_iter().partition(CommitRequest::grows);
        for request in growing {
            let _ = request.reply.send(Err(match why {
                Stuck::Full => CommitError::NoSpace,
                Stuck::Failing => CommitError::Unavailable("the index cannot be written out".into()),
            }));
        }
        if !rest.is_empty() {
            self.commit_group(rest);
        }
    }

    /// Does the transactions, each or none by its comparisons, and publishes what happened.
    pub(super) fn try_group(
        &mut self,
        txns: &[&Txn],
        bytes: usize,
        purpose: Purpose,
    ) -> Result<Vec<Outcome>, WriteError> {
        let engine = self.engine.clone();
        let mut state = GroupState::new(&engine);
        let mut outcomes = Vec::with_capacity(txns.len());
        let (newest, signals) = self.write(bytes, purpose, |frame| {
            outcomes.extend(txns.iter().map(|txn| state.transact(txn, frame)));
        })?;
        let soonest = state.soonest;
        if !signals.is_empty() {
            engine.hub.publish(signals, newest);
        }
        if let Some(soonest) = soonest {
            self.signals.expires_at(soonest);
        }
        Ok(outcomes)
    }
}

fn answer(group: Vec<CommitRequest>, outcomes: Vec<Outcome>) {
    for (request, outcome) in group.into_iter().zip(outcomes) {
        let _ = request.reply.send(outcome);
    }
}

/// Nothing of the group happened, or nobody knows. Comparisons may have failed against its writes, so that they too
/// cannot be answered.
fn fail(group: Vec<CommitRequest>, error: &WriteError) {
    for request in group {
        let reply = match error {
            WriteError::Refused(RoomError::Full) => CommitError::NoSpace,
            WriteError::Refused(RoomError::Io(error)) | WriteError::Lost(error) => {
                CommitError::Unavailable(error.to_string().into())
            }
            WriteError::Unknown(error) => CommitError::Unknown(error.to_string().into()),
        };
        let _ = request.reply.send(Err(reply));
    }
}

/// The state that the group's next transaction finds.
struct GroupState<'a> {
    engine: &'a Engine,
    /// Keys looked up or written so far.
    known: HashMap<Key, Option<Version>>,
    dropped: HashSet<PlaneId>,
    /// When the first of the group's keys expires.
    soonest: Option<u64>,
}

#[derive(Clone)]
struct Version {
    entry: Entry,
    /// `None` until it is needed.
    value: Option<Bytes>,
}

impl<'a> GroupState<'a> {
    fn new(engine: &'a Engine) -> Self {
        Self {
            engine,
            known: HashMap::new(),
            dropped: HashSet::new(),
            soonest: None,
        }
    }

    /// Checks a transaction and adds its records.
    fn transact(&mut self, txn: &Txn, frame: &mut Frame<'_>) -> Outcome {
        for (index, compare) in txn.compares.iter().enumerate() {
            let found = self.look_up(compare.key())?.map(|version| version.entry.revision);
            if !compare.holds(found) {
                return Err(CommitError::Conflict {
                    compare: index,
                    current: self.record(compare.key())?,
                });
            }
        }
        // Everything that can fail comes before the first record.
        for write in &txn.writes {
            match write {
                Write::Put { key, .. } => {
                    if self.is_dropped(key.plane())? {
                        return Err(CommitError::Unavailable(
                            format!("plane {} was dropped", key.plane()).into(),
                        ));
                    }
                    self.record(key)?;
                }
                Write::Delete { key } => drop(self.record(key)?),
                Write::DropPlane(_) => {}
            }
        }
        let revisions: Vec<_> = txn.writes.iter().map(|write| self.add(write, frame)).collect();
        let revision = frame.newest;
        Ok(Committed {
            revision,
            revisions: revisions.into_iter().map(|own| own.unwrap_or(revision)).collect(),
        })
    }

    fn is_dropped(&self, plane: PlaneId) -> Result<bool, Damage> {
        Ok(self.dropped.contains(&plane) || self.engine.index.is_dropped(plane.as_str())?)
    }

    fn look_up(&mut self, key: &Key) -> Result<Option<&Version>, Damage> {
        if self.dropped.contains(&key.plane()) {
            return Ok(None);
        }
        if !self.known.contains_key(key) {
            let entry = if self.engine.index.is_dropped(key.plane().as_str())? {
                None
            } else {
                self.engine.index.current(key.as_str())?
            };
            self.known
                .insert(key.clone(), entry.map(|entry| Version { entry, value: None }));
        }
        Ok(self.known[key].as_ref())
    }

    /// What is at a key, with its value.
    fn record(&mut self, key: &Key) -> Result<Option<Record>, Damage> {
        let engine = self.engine;
        let Some(version) = self.look_up(key)? else {
            return Ok(None);
        };
        let (entry, value) = (version.entry, version.value.clone());
        let value = match value {
            Some(value) => value,
            None => engine.load(key, &entry)?,
        };
        self.known.insert(
            key.clone(),
            Some(Version {
                entry,
                value: Some(value.clone()),
            }),
        );
        Ok(Some(Record {
            value,
            revision: entry.revision,
        }))
    }

    /// Adds the record of one write, and returns its revision if it changes something.
    fn add(&mut self, write: &Write, frame: &mut Frame<'_>) -> Option<Revision> {
        match write {
            Write::Put { key, value, ttl } => {
                let expires = ttl.map(|ttl| now_ms().saturating_add(ttl.as_millis() as u64));
                self.soonest = [self.soonest, expires].into_iter().flatten().min();
                let previous = self.previous(key);
                let revision = frame.next_revision();
                let entry = frame.push_live(&LogRecord {
                    kind: Kind::Put,
                    revision,
                    previous: previous.as_ref().map(|(entry, _)| *entry),
                    expires,
                    end: None,
                    key: key.as_str().as_bytes(),
                    value,
                });
                self.known.insert(
                    key.clone(),
                    Some(Version {
                        entry,
                        value: Some(value.clone()),
                    }),
                );
                happened(frame, key, revision, Change::Put(value.clone()), previous);
                Some(revision)
            }
            Write::Delete { key } => {
                let previous = self.previous(key)?;
                let revision = frame.next_revision();
                frame.push(&LogRecord {
                    kind: Kind::Delete,
                    revision,
                    previous: Some(previous.0),
                    expires: None,
                    end: None,
                    key: key.as_str().as_bytes(),
                    value: b"",
                });
                self.known.insert(key.clone(), None);
                happened(frame, key, revision, Change::Delete, Some(previous));
                Some(revision)
            }
            Write::DropPlane(plane) => {
                let revision = frame.next_revision();
                frame.push(&LogRecord {
                    kind: Kind::DropPlane,
                    revision,
                    previous: None,
                    expires: None,
                    end: None,
                    key: plane.as_str().as_bytes(),
                    value: b"",
                });
                self.dropped.insert(*plane);
                frame.signals.push(Signal::Dropped(*plane, revision));
                Some(revision)
            }
        }
    }

    /// What `record` found or `add` left at a key.
    fn previous(&self, key: &Key) -> Option<(Entry, Record)> {
        if self.dropped.contains(&key.plane()) {
            return None;
        }
        let version = self.known.get(key)?.as_ref()?;
        let value = version
            .value
            .clone()
            .expect("values of keys to be written are loaded first");
        Some((
            version.entry,
            Record {
                value,
                revision: version.entry.revision,
            },
        ))
    }
}

fn happened(frame: &mut Frame<'_>, key: &Key, revision: Revision, change: Change, previous: Option<(Entry, Record)>) {
    let event = Event::new(key.clone(), revision, change, previous.map(|(_, record)| record));
    frame.signals.push(Signal::Event(Arc::new(event)));
}

/// Expiry is kept in the log, so it is by the clock on the wall.
pub(in crate::embedded) fn now_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as u64)
}

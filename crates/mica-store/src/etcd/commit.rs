//! Transactions.
//!
//! A commit is one etcd transaction. Its else-branch reads the compared keys, so that a conflict can be reported without
//! asking again. Index entries that the puts need ride along as nested transactions ("if absent, put"); once seen, an
//! entry is remembered and not sent again.
//!
//! A put with a time to live gets a lease of its own. Sharing leases, as kube-apiserver does, would be cheaper, but etcd
//! deletes all keys of a lease in one revision, and a watch cut between two deletions of one revision loses the second.

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use bytes::Bytes;
use futures::future::try_join_all;
use mica_api::{GroupResource, PlaneId};
use parking_lot::Mutex;
use xxhash_rust::xxh3::xxh3_128;

use super::Shared;
use super::client::{Effect, signed, unsigned};
use super::failure::Failure;
use super::proto::{self, DeleteRangeRequest, PutRequest, RangeRequest, Request, RequestOp, TxnRequest, TxnResponse};
use super::read::record;
use crate::store::{CommitError, Committed, Compare, Record, Revision, Txn, Write};

/// etcd's default for `--max-txn-ops`, which limits comparisons, writes and reads each.
const MAX_OPS: usize = 128;
/// Deletions of one resource each that fit into one transaction: etcd counts nested transactions for themselves, as long
/// as all levels of nesting together stay below [`MAX_OPS`].
const DROP_GROUPS: usize = 40;
const DROP_GROUP: usize = 64;
/// How often dropping a plane starts over because a resource was added to it meanwhile.
const DROP_ATTEMPTS: usize = 5;
/// How often a commit starts over because its lease expired before it was used.
const LEASE_ATTEMPTS: usize = 2;
/// The longest lease that etcd grants, in seconds: 285 years.
const MAX_TTL: i64 = 9_000_000_000;
/// Index entries remembered in each of two generations: about 5 MiB together.
const REMEMBERED_ENTRIES: usize = 1 << 17;

/// Index entries that are known to exist, by hash. Forgetting one costs an idle operation in a later transaction.
#[derive(Default)]
pub struct KnownEntries {
    generations: Mutex<[HashSet<u128>; 2]>,
}

impl KnownEntries {
    fn contains(&self, entry: &[u8]) -> bool {
        let hash = xxh3_128(entry);
        let mut generations = self.generations.lock();
        if generations[0].contains(&hash) {
            return true;
        }
        let known = generations[1].contains(&hash);
        if known {
            generations[0].insert(hash);
        }
        known
    }

    fn insert(&self, entries: &[Bytes]) {
        let mut generations = self.generations.lock();
        for entry in entries {
            if generations[0].len() >= REMEMBERED_ENTRIES {
                let young = std::mem::take(&mut generations[0]);
                generations[1] = young;
            }
            generations[0].insert(xxh3_128(entry));
        }
    }

    pub fn forget(&self) {
        *self.generations.lock() = Default::default();
    }
}

/// An etcd transaction in the making.
struct Draft {
    compares: Vec<proto::Compare>,
    /// Reads of the compared keys, for the case that a comparison fails.
    reads: Vec<RequestOp>,
    writes: Vec<RequestOp>,
    drops: BTreeSet<PlaneId>,
    /// Entries that must exist when the writes are done.
    entries: Vec<Bytes>,
}

impl Shared {
    pub async fn write(&self, txn: Txn) -> Result<Committed, CommitError> {
        let count = txn.writes.len();
        // One that looks back takes two of etcd's.
        let twice = |compare: &&Compare| matches!(compare, Compare::UnchangedSince(..));
        let compares = txn.compares.len() + txn.compares.iter().filter(twice).count();
        if count > MAX_OPS || compares > MAX_OPS {
            return Err(CommitError::TooLarge(format!(
                "{compares} comparisons and {count} writes, where etcd takes {MAX_OPS} of each"
            )));
        }
        let mut attempts = 0;
        loop {
            let mut draft = self.draft(&txn).await.map_err(Failure::into_commit)?;
            if draft.writes.len() + draft.entries.len() + 2 > MAX_OPS {
                self.ensure_entries(&draft.entries)
                    .await
                    .map_err(Failure::into_commit)?;
                draft.entries.clear();
            }
            let outcome = if draft.drops.is_empty() {
                self.send(&txn.compares, draft.request()).await
            } else {
                self.drop_planes(&txn.compares, &draft).await
            };
            match outcome {
                Ok(Ok(revision)) => {
                    self.known_entries.insert(&draft.entries);
                    return Ok(Committed {
                        revision,
                        revisions: vec![revision; count],
                    });
                }
                Ok(Err(conflict)) => return Err(conflict.into()),
                Err(Failure::LeaseGone) if attempts < LEASE_ATTEMPTS => attempts += 1,
                Err(failure) => return Err(failure.into_commit()),
            }
        }
    }

    async fn draft(&self, txn: &Txn) -> Result<Draft, Failure> {
        let leases = self.leases(&txn.writes).await?;
        let mut draft = Draft {
            compares: Vec::new(),
            reads: Vec::new(),
            writes: Vec::new(),
            drops: BTreeSet::new(),
            entries: Vec::new(),
        };
        for compare in &txn.compares {
            let key = self.layout.object(compare.key());
            draft.reads.push(
                Request::Range(RangeRequest {
                    key: key.clone(),
                    ..RangeRequest::default()
                })
                .into(),
            );
            match compare {
                Compare::Unchanged(_, revision) => {
                    draft
                        .compares
                        .push(proto::Compare::mod_revision(key, signed(*revision)));
                }
                Compare::UnchangedSince(_, revision) => draft.compares.extend([
                    proto::Compare::exists(key.clone()),
                    proto::Compare::none_written_after(key, Bytes::new(), signed(*revision)),
                ]),
                Compare::Absent(_) => draft.compares.push(proto::Compare::mod_revision(key, 0)),
            }
        }
        for (write, lease) in txn.writes.iter().zip(leases) {
            match write {
                Write::Put { key, value, .. } => {
                    let entry = self.layout.index_entry(key.plane(), &key.group_resource());
                    if !draft.entries.contains(&entry) && !self.known_entries.contains(&entry) {
                        draft.entries.push(entry);
                    }
                    let put = PutRequest {
                        key: self.layout.object(key),
                        value: value.clone(),
                        lease,
                    };
                    draft.writes.push(Request::Put(put).into());
                }
                Write::Delete { key } => draft.writes.push(delete(self.layout.object(key), Bytes::new())),
                Write::DropPlane(plane) => {
                    draft.drops.insert(*plane);
                }
            }
        }
        Ok(draft)
    }

    /// A lease for each write that wants one, zero for the others.
    async fn leases(&self, writes: &[Write]) -> Result<Vec<i64>, Failure> {
        try_join_all(writes.iter().map(|write| async move {
            match write {
                Write::Put { ttl: Some(ttl), .. } => self.client.grant(whole_seconds(*ttl)).await,
                _ => Ok(0),
            }
        }))
        .await
    }

    /// Puts index entries ahead of a transaction that has no room for them. An entry without objects does no harm.
    async fn ensure_entries(&self, entries: &[Bytes]) -> Result<(), Failure> {
        for some in entries.chunks(MAX_OPS / 2) {
            let success = some.iter().cloned().map(put_if_absent).collect();
            self.client
                .txn(
                    TxnRequest {
                        success,
                        ..TxnRequest::default()
                    },
                    Effect::Write,
                )
                .await?;
            self.known_entries.insert(some);
        }
        Ok(())
    }

    async fn send(&self, compares: &[Compare], request: TxnRequest) -> Result<Result<Revision, Conflict>, Failure> {
        let answer = self.client.txn(request, Effect::Write).await?;
        if answer.succeeded {
            return Ok(Ok(answer
                .header
                .map_or(Revision(0), |header| unsigned(header.revision))));
        }
        match first_conflict(compares, answer) {
            Some(conflict) => Ok(Err(conflict)),
            None => Err(Failure::not_done(
                "etcd refused a transaction whose comparisons all hold",
            )),
        }
    }

    /// Sends a transaction that drops planes, with everything else in it, as one.
    ///
    /// Deleting a plane's index entries is what tells every server, through its watch, that the plane was dropped as a
    /// whole. It comes first, so that they know before the deletions of the objects arrive.
    async fn drop_planes(&self, compares: &[Compare], draft: &Draft) -> Result<Result<Revision, Conflict>, Failure> {
        for _ in 0..DROP_ATTEMPTS {
            let (resources, as_of) = self.resources_of(&draft.drops).await?;
            // Resources that were added since we looked would be left behind.
            let fence = draft.drops.iter().map(|plane| {
                let span = self.layout.index_of(*plane);
                proto::Compare::none_written_after(span.start, span.end, as_of)
            });
            let fenced: Vec<_> = draft.compares.iter().cloned().chain(fence).collect();
            let mut deletes: Vec<RequestOp> = resources
                .iter()
                .map(|(plane, resource)| self.layout.resource(*plane, resource))
                .map(|span| delete(span.start, span.end))
                .collect();
            // More than one transaction can hold: all but the last lot go first, unannounced.
            while deletes.len() > DROP_GROUPS * DROP_GROUP {
                let lot = deletes.split_off(deletes.len() - DROP_GROUPS * DROP_GROUP);
                let request = TxnRequest {
                    compare: fenced.clone(),
                    success: grouped(lot),
                    failure: draft.reads.clone(),
                };
                match self.send_fenced(compares, request).await? {
                    Fenced::Done(_) => {}
                    Fenced::Conflict(conflict) => return Ok(Err(conflict)),
                    Fenced::Overtaken => break,
                }
            }
            let mut success = self.announcements(&draft.drops, &resources);
            success.extend(draft.request().success);
            success.extend(grouped(deletes));
            let request = TxnRequest {
                compare: fenced,
                success,
                failure: draft.reads.clone(),
            };
            match self.send_fenced(compares, request).await? {
                Fenced::Done(revision) => return Ok(Ok(revision)),
                Fenced::Conflict(conflict) => return Ok(Err(conflict)),
                Fenced::Overtaken => {}
            }
        }
        Err(Failure::not_done(
            "resources kept being added to a plane that is to be dropped",
        ))
    }

    /// The resources that the planes may hold objects of, and the revision at which that was so.
    async fn resources_of(&self, planes: &BTreeSet<PlaneId>) -> Result<(Vec<(PlaneId, GroupResource)>, i64), Failure> {
        let (mut resources, mut as_of) = (Vec::new(), 0);
        for plane in planes {
            let span = self.layout.index_of(*plane);
            let question = RangeRequest {
                key: span.start,
                range_end: span.end,
                keys_only: true,
                revision: as_of,
                ..RangeRequest::default()
            };
            let answer = self.client.range(question).await?;
            if as_of == 0 {
                as_of = answer.header.map_or(0, |header| header.revision);
            }
            resources.extend(
                answer
                    .kvs
                    .iter()
                    .filter_map(|kv| self.layout.parse_index_entry(&kv.key)),
            );
        }
        Ok((resources, as_of))
    }

    /// What tells all servers that the planes are dropped. A plane that never held anything has no index entry to delete:
    /// it is named in the value of a key. (Only that: an etcd without space takes deletions, but no puts.)
    fn announcements(&self, planes: &BTreeSet<PlaneId>, resources: &[(PlaneId, GroupResource)]) -> Vec<RequestOp> {
        let held: BTreeSet<_> = resources.iter().map(|(plane, _)| *plane).collect();
        let mut all: Vec<RequestOp> = held
            .iter()
            .map(|plane| self.layout.index_of(*plane))
            .map(|span| delete(span.start, span.end))
            .collect();
        let empty: Vec<_> = planes.difference(&held).map(PlaneId::as_str).collect();
        if !empty.is_empty() {
            let put = PutRequest {
                key: self.layout.dropped(),
                value: empty.join(",").into(),
                lease: 0,
            };
            all.push(Request::Put(put).into());
        }
        all
    }

    async fn send_fenced(&self, compares: &[Compare], request: TxnRequest) -> Result<Fenced, Failure> {
        let answer = self.client.txn(request, Effect::Write).await?;
        if answer.succeeded {
            return Ok(Fenced::Done(
                answer.header.map_or(Revision(0), |header| unsigned(header.revision)),
            ));
        }
        Ok(first_conflict(compares, answer).map_or(Fenced::Overtaken, Fenced::Conflict))
    }
}

enum Fenced {
    Done(Revision),
    Conflict(Conflict),
    /// The caller's comparisons hold, ours did not.
    Overtaken,
}

struct Conflict {
    compare: usize,
    current: Option<Record>,
}

impl From<Conflict> for CommitError {
    fn from(conflict: Conflict) -> Self {
        Self::Conflict {
            compare: conflict.compare,
            current: conflict.current,
        }
    }
}

impl Draft {
    fn request(&self) -> TxnRequest {
        let mut success = self.writes.clone();
        if !self.entries.is_empty() {
            let nested = self.entries.iter().cloned().map(put_if_absent).collect();
            success.push(
                Request::Txn(TxnRequest {
                    success: nested,
                    ..TxnRequest::default()
                })
                .into(),
            );
        }
        TxnRequest {
            compare: self.compares.clone(),
            success,
            failure: self.reads.clone(),
        }
    }
}

/// Evaluates the comparisons on what the else-branch read.
fn first_conflict(compares: &[Compare], answer: TxnResponse) -> Option<Conflict> {
    let found = answer
        .responses
        .into_iter()
        .map(|op| op.range.and_then(|range| range.kvs.into_iter().next()).map(record));
    compares
        .iter()
        .zip(found)
        .enumerate()
        .find_map(|(compare, (expected, current))| {
            let newest = current.as_ref().map(|current| current.revision);
            (!expected.holds(newest)).then_some(Conflict { compare, current })
        })
}

fn delete(key: Bytes, range_end: Bytes) -> RequestOp {
    Request::DeleteRange(DeleteRangeRequest { key, range_end }).into()
}

fn put_if_absent(key: Bytes) -> RequestOp {
    let put = PutRequest {
        key: key.clone(),
        ..PutRequest::default()
    };
    let compare = vec![proto::Compare::version(key, 0)];
    Request::Txn(TxnRequest {
        compare,
        success: vec![Request::Put(put).into()],
        failure: Vec::new(),
    })
    .into()
}

/// Many operations as few: nested transactions that always succeed.
fn grouped(operations: Vec<RequestOp>) -> Vec<RequestOp> {
    let groups = operations.chunks(DROP_GROUP);
    groups
        .map(|group| {
            Request::Txn(TxnRequest {
                success: group.to_vec(),
                ..TxnRequest::default()
            })
            .into()
        })
        .collect()
}

/// etcd counts leases in seconds. Rounded up: nothing expires early.
fn whole_seconds(ttl: Duration) -> i64 {
    let seconds = ttl.as_secs().saturating_add(u64::from(ttl.subsec_nanos() > 0));
    i64::try_from(seconds).unwrap_or(MAX_TTL).clamp(1, MAX_TTL)
}

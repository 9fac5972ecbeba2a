//! Writers that remember what they were told, and a check of a store against it.
//!
//! Each writer owns pairs of keys of two resources and always writes both of a pair in one transaction. So whatever
//! happens, both hold the same; what they hold is the last acknowledged write or one after it whose outcome is unknown;
//! and in the history every acknowledged write is at its revision, every refused one nowhere.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use mica_api::{GroupResource, PlaneId};
use mica_store::{
    Change, CommitError, Committed, Compare, Key, KeyRange, PlaneKeys, RangeQuery, Record, Revision, Signal, Store,
    Txn, Write,
};
use parking_lot::Mutex;

const PAIRS: usize = 3;

pub struct Workload {
    plane: PlaneKeys,
    next_id: AtomicU64,
    attempts: Mutex<BTreeMap<Pair, Vec<Attempt>>>,
    /// The newest revision that anyone was told of.
    seen: AtomicU64,
    padding: usize,
}

type Pair = (usize, usize);

#[derive(Clone, Debug)]
struct Attempt {
    /// What was written; `None` for a delete.
    value: Option<String>,
    outcome: Outcome,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Outcome {
    Acknowledged(Vec<Revision>),
    Refused,
    Unknown,
}

/// What the writers were told, in sum.
#[derive(Default, Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tally {
    pub acknowledged: usize,
    pub refused: usize,
    pub no_space: usize,
    pub unknown: usize,
}

impl Workload {
    pub fn new(padding: usize) -> Arc<Self> {
        Arc::new(Self {
            plane: PlaneKeys::new(PlaneId::from_random(77)),
            next_id: AtomicU64::new(0),
            attempts: Mutex::default(),
            seen: AtomicU64::new(0),
            padding,
        })
    }

    pub fn range(&self) -> KeyRange {
        self.plane.all()
    }

    fn keys(&self, (writer, pair): Pair) -> [Key; 2] {
        let name = format!("w{writer}-{pair}");
        [
            self.plane.object(&GroupResource::new("", "things"), Some("ns"), &name),
            self.plane
                .object(&GroupResource::new("example.com", "others"), None, &name),
        ]
    }

    /// Lets writers write at the same time, `each` transactions, until the store refuses several in a row.
    pub async fn run<S: Store + Clone>(self: &Arc<Self>, store: &S, writers: usize, each: usize) -> Tally {
        let tasks: Vec<_> = (0..writers)
            .map(|writer| {
                let (this, store) = (self.clone(), store.clone());
                tokio::spawn(async move { this.write(&store, writer, each).await })
            })
            .collect();
        let mut tally = Tally::default();
        for task in tasks {
            let one = task.await.unwrap();
            tally.acknowledged += one.acknowledged;
            tally.refused += one.refused;
            tally.no_space += one.no_space;
            tally.unknown += one.unknown;
        }
        tally
    }

    async fn write<S: Store>(&self, store: &S, writer: usize, each: usize) -> Tally {
        let mut tally = Tally::default();
        let mut failures_in_a_row = 0;
        for step in 0..each {
            let pair = (writer, step % PAIRS);
            let delete = step % 7 == 6;
            if step % 11 == 10 {
                self.skip(store).await;
            }
            failures_in_a_row += 1;
            match self.attempt(store, pair, delete).await {
                Ok(_) => {
                    tally.acknowledged += 1;
                    failures_in_a_row = 0;
                }
                Err(CommitError::Unknown(_)) => tally.unknown += 1,
                Err(CommitError::NoSpace) => tally.no_space += 1,
                Err(_) => tally.refused += 1,
            }
            if failures_in_a_row >= 3 {
                break;
            }
        }
        tally
    }

    /// Skips revisions. One that was refused may have been used up all the same, but never one that was acknowledged lost.
    async fn skip<S: Store>(&self, store: &S) {
        let to = Revision(self.seen.load(Ordering::Relaxed) + 5);
        if let Ok(newest) = store.advance(to).await {
            assert!(newest >= to, "{newest} is before {to}");
            self.told(Some(newest));
        }
    }

    /// Writes or deletes one pair, guarded by what is there.
    async fn attempt<S: Store>(&self, store: &S, pair: Pair, delete: bool) -> Result<Committed, CommitError> {
        let keys = self.keys(pair);
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let value = (!delete).then(|| format!("{id}{}", ".".repeat(self.padding)));
        let mut compares = Vec::new();
        for key in &keys {
            let current = store
                .get(key)
                .await
                .map_err(|error| CommitError::Unavailable(error.into()))?;
            self.told(current.as_ref().map(|record| record.revision));
            compares.push(match current {
                Some(record) => Compare::Unchanged(key.clone(), record.revision),
                None => Compare::Absent(key.clone()),
            });
        }
        if delete && matches!(compares[0], Compare::Absent(_)) {
            return Ok(Committed {
                revision: Revision(0),
                revisions: vec![],
            });
        }
        let writes = keys.iter().map(|key| match &value {
            Some(value) => Write::Put {
                key: key.clone(),
                value: Bytes::from(value.clone()),
                ttl: None,
            },
            None => Write::Delete { key: key.clone() },
        });
        let outcome = store
            .commit(Txn {
                compares,
                writes: writes.collect(),
            })
            .await;
        let remembered = match &outcome {
            Ok(committed) => {
                self.told(Some(committed.revision));
                Outcome::Acknowledged(committed.revisions.clone())
            }
            Err(CommitError::Unknown(_)) => Outcome::Unknown,
            Err(CommitError::Conflict { .. }) => panic!("nobody else writes {pair:?}: {outcome:?}"),
            Err(_) => Outcome::Refused,
        };
        self.attempts.lock().entry(pair).or_default().push(Attempt {
            value,
            outcome: remembered,
        });
        outcome
    }

    fn told(&self, revision: Option<Revision>) {
        self.seen.fetch_max(revision.unwrap_or_default().0, Ordering::Relaxed);
    }

    /// Deletes every pair that is there.
    pub async fn delete_all<S: Store>(&self, store: &S) -> Result<(), CommitError> {
        let pairs: Vec<_> = self.attempts.lock().keys().copied().collect();
        for pair in pairs {
            self.attempt(store, pair, true).await?;
        }
        Ok(())
    }

    /// Checks what a store holds now, and its history if that is all there.
    pub async fn verify<S: Store>(&self, store: &S) {
        let status = store.status().await.unwrap();
        let seen = Revision(self.seen.load(Ordering::Relaxed));
        assert!(
            status.revision >= seen,
            "revisions went back from {seen} to {}",
            status.revision
        );
        let attempts = self.attempts.lock().clone();
        for (pair, attempts) in &attempts {
            let mut held = Vec::new();
            for key in self.keys(*pair) {
                held.push(store.get(&key).await.unwrap().map(|record| text(&record)));
            }
            assert_eq!(held[0], held[1], "{pair:?} is half there");
            assert!(
                possible(attempts).contains(&held[0]),
                "{pair:?} holds {:?} after {attempts:?}",
                held[0]
            );
        }
        self.verify_listing(store, &attempts).await;
        if status.compacted == Revision(0) {
            self.verify_history(store, &attempts).await;
        }
    }

    async fn verify_listing<S: Store>(&self, store: &S, attempts: &BTreeMap<Pair, Vec<Attempt>>) {
        let range = self.range();
        let page = store
            .range(RangeQuery {
                range: &range,
                at: None,
                after: None,
                limit: 10_000,
            })
            .await
            .unwrap();
        for (key, record) in &page.records {
            assert_eq!(store.get(key).await.unwrap().as_ref(), Some(record), "{key:?}");
        }
        let known: usize = attempts
            .values()
            .filter(|attempts| possible(attempts).iter().any(Option::is_some))
            .count();
        assert!(page.records.len() <= 2 * known);
    }

    async fn verify_history<S: Store>(&self, store: &S, attempts: &BTreeMap<Pair, Vec<Attempt>>) {
        // A last write, so that there is an end to read to.
        let barrier = PlaneKeys::new(PlaneId::from_random(0)).object(&GroupResource::new("", "barriers"), None, "b");
        let writes = vec![Write::Put {
            key: barrier.clone(),
            value: Bytes::new(),
            ttl: None,
        }];
        let end = store
            .commit(Txn {
                compares: vec![],
                writes,
            })
            .await
            .unwrap()
            .revision;
        self.told(Some(end));
        let mut watch = store.watch(KeyRange::All, Revision(1)).await.unwrap();
        let mut events: BTreeMap<Revision, (Key, Option<String>)> = BTreeMap::new();
        while !events.contains_key(&end) {
            let next = tokio::time::timeout(Duration::from_secs(30), watch.next()).await;
            let signal = next.expect("history up to the newest revision comes").unwrap();
            let Signal::Event(event) = signal else {
                panic!("{signal:?}")
            };
            let value = match &event.change {
                Change::Put(value) => Some(String::from_utf8(value.to_vec()).unwrap()),
                Change::Delete => None,
            };
            let last = events.keys().next_back().copied().unwrap_or_default();
            assert!(event.revision > last, "{} after {last}", event.revision);
            events.insert(event.revision, (event.key.clone(), value));
        }
        for (pair, attempts) in attempts {
            for attempt in attempts {
                self.verify_attempt(*pair, attempt, &events);
            }
        }
    }

    fn verify_attempt(&self, pair: Pair, attempt: &Attempt, events: &BTreeMap<Revision, (Key, Option<String>)>) {
        let keys = self.keys(pair);
        if let Outcome::Acknowledged(revisions) = &attempt.outcome {
            for (key, revision) in keys.iter().zip(revisions) {
                let found = events.get(revision);
                assert_eq!(
                    found,
                    Some(&(key.clone(), attempt.value.clone())),
                    "acknowledged at {revision}"
                );
            }
        } else if attempt.value.is_some() {
            let found = events.values().filter(|(_, value)| *value == attempt.value).count();
            let whole = if attempt.outcome == Outcome::Unknown {
                found == 0 || found == 2
            } else {
                found == 0
            };
            assert!(whole, "{attempt:?} is in the history {found} times");
        }
    }
}

/// What a pair may hold: the last certain write, or an uncertain one after it.
fn possible(attempts: &[Attempt]) -> Vec<Option<String>> {
    let mut possible = vec![None];
    for attempt in attempts {
        match attempt.outcome {
            Outcome::Acknowledged(_) => possible = vec![attempt.value.clone()],
            Outcome::Unknown => possible.push(attempt.value.clone()),
            Outcome::Refused => {}
        }
    }
    possible
}

fn text(record: &Record) -> String {
    String::from_utf8(record.value.to_vec()).unwrap()
}

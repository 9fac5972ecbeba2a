//! Reads while others write: what is kept in memory never shows an older state than was seen before.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use mica_api::{GroupResource, PlaneId};
use mica_store::{EmbeddedStore, Key, KeyRange, PlaneKeys, RangeQuery, Store, Txn, Write, conformance};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

const KEYS: usize = 200;
const WRITES: usize = 600;

/// What everybody has seen so far.
struct Seen {
    store: EmbeddedStore,
    keys: Vec<Key>,
    range: KeyRange,
    /// The newest revision seen at each key: a put's, or of the moment when it was known to be absent.
    newest: Vec<AtomicU64>,
    /// Revisions of keys' last deletions that were acknowledged.
    deleted: Vec<AtomicU64>,
    done: AtomicU64,
}

impl Seen {
    fn found(&self, key: usize, floor: u64, deleted: u64, revision: Option<u64>) {
        // An absence proves nothing: a deletion may be under way, and has no revision here yet.
        if let Some(revision) = revision {
            let key_text = &self.keys[key];
            assert!(
                revision >= floor && revision > deleted,
                "{key_text:?} went back to {revision}"
            );
            self.newest[key].fetch_max(revision, Ordering::SeqCst);
        }
    }

    async fn write(self: Arc<Self>, writer: usize, seed: u64) {
        let mut random = StdRng::seed_from_u64(seed);
        for step in 0..WRITES {
            // Each writer has keys of its own, so that it knows what is there.
            let key = random.random_range(0..KEYS / 2) * 2 + writer;
            let delete = random.random_bool(0.3);
            let write = if delete {
                Write::Delete {
                    key: self.keys[key].clone(),
                }
            } else {
                let value = Bytes::from(step.to_string());
                Write::Put {
                    key: self.keys[key].clone(),
                    value,
                    ttl: None,
                }
            };
            let txn = Txn {
                compares: Vec::new(),
                writes: vec![write],
            };
            let committed = self.store.commit(txn).await.unwrap();
            let record = self.store.get(&self.keys[key]).await.unwrap();
            if delete {
                assert_eq!(record, None, "an acknowledged deletion is seen by the next read");
                self.deleted[key].fetch_max(committed.revision.0, Ordering::SeqCst);
            } else {
                let record = record.expect("an acknowledged put is seen by the next read");
                assert_eq!(
                    (record.revision, record.value),
                    (committed.revision, Bytes::from(step.to_string()))
                );
            }
        }
        self.done.fetch_add(1, Ordering::SeqCst);
    }

    async fn read(self: Arc<Self>, seed: u64) {
        let mut random = StdRng::seed_from_u64(seed);
        while self.done.load(Ordering::SeqCst) < 2 {
            let floors: Vec<_> = (0..KEYS)
                .map(|key| {
                    (
                        self.newest[key].load(Ordering::SeqCst),
                        self.deleted[key].load(Ordering::SeqCst),
                    )
                })
                .collect();
            if random.random_bool(0.5) {
                for _ in 0..20 {
                    let key = random.random_range(0..KEYS);
                    let (floor, deleted) = floors[key];
                    let record = self.store.get(&self.keys[key]).await.unwrap();
                    self.found(key, floor, deleted, record.map(|record| record.revision.0));
                }
            } else {
                self.list(&floors, random.random_range(70..KEYS * 2)).await;
            }
        }
    }

    /// Pages of one revision are one state, and not an old one.
    async fn list(&self, floors: &[(u64, u64)], limit: usize) {
        let newest = self.store.status().await.unwrap().revision;
        let (mut at, mut after, mut counted) = (None, None, 0);
        loop {
            let query = RangeQuery {
                range: &self.range,
                at,
                after: after.as_ref(),
                limit,
            };
            let page = self.store.range(query).await.unwrap();
            assert!(page.revision >= newest);
            for (key, record) in &page.records {
                let index: usize = key.name().parse().unwrap();
                let (floor, deleted) = floors[index];
                assert!(record.revision <= page.revision, "{key:?} is newer than the page");
                self.found(index, floor, deleted, Some(record.revision.0));
            }
            counted += page.records.len() as u64;
            at = Some(page.revision);
            if !page.more {
                break;
            }
            after = page.records.last().map(|(key, _)| key.clone());
        }
        assert_eq!(
            self.store.count(&self.range, at, None).await.unwrap(),
            counted,
            "at {at:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn reads_never_go_back_while_others_write() {
    for round in 0..super::soak_rounds().unwrap_or(3) as u64 {
        let seed = conformance::seed(&format!("reads_never_go_back_while_others_write {round}"));
        let directory = tempfile::tempdir().unwrap();
        let store = EmbeddedStore::open(directory.path(), super::tiny()).unwrap();
        let plane = PlaneKeys::new(PlaneId::from_random(round));
        let things = GroupResource::new("", "things");
        let seen = Arc::new(Seen {
            store,
            keys: (0..KEYS)
                .map(|i| plane.object(&things, Some("ns"), &format!("{i:03}")))
                .collect(),
            range: plane.resource(&things),
            newest: (0..KEYS).map(|_| AtomicU64::new(0)).collect(),
            deleted: (0..KEYS).map(|_| AtomicU64::new(0)).collect(),
            done: AtomicU64::new(0),
        });
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..2 {
            tasks.spawn(seen.clone().write(number, seed.wrapping_add(number as u64)));
            tasks.spawn(seen.clone().read(seed.wrapping_add(10 + number as u64)));
        }
        while let Some(ended) = tasks.join_next().await {
            ended.unwrap();
        }
        assert!(
            seen.store.stats().cache_bytes > 0,
            "nothing was kept: this test shows nothing"
        );
        seen.store.close();
    }
}

//! The random model check on a store that is closed, crashed and robbed of its index between transactions.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use mica_store::conformance::{self, Bed};
use mica_store::embedded::disk::sim::SimDisk;
use mica_store::embedded::{EmbeddedStore, Options};
use mica_store::{
    AdvanceError, CommitError, Committed, Key, KeyRange, Page, RangeQuery, ReadError, Record, Revision, Store,
    StoreStatus, Txn, Usage, Watch,
};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::tiny;

/// A store that starts anew every now and then. Watches do not survive that.
struct Restarting {
    root: tempfile::TempDir,
    running: Mutex<Option<Running>>,
    random: Mutex<StdRng>,
}

#[derive(Clone)]
struct Running {
    disk: SimDisk,
    store: EmbeddedStore,
}

impl Restarting {
    fn new(seed: u64) -> Self {
        let root = tempfile::tempdir_in("/dev/shm")
            .or_else(|_| tempfile::tempdir())
            .unwrap();
        let this = Self {
            root,
            running: Mutex::new(None),
            random: Mutex::new(StdRng::seed_from_u64(seed)),
        };
        this.start(SimDisk::new(seed));
        this
    }

    fn directory(&self) -> PathBuf {
        self.root.path().join("store")
    }

    fn start(&self, disk: SimDisk) {
        let options = Options {
            disk: Some(Arc::new(disk.clone())),
            ..tiny()
        };
        let store = EmbeddedStore::open(&self.directory(), options).unwrap();
        *self.running.lock() = Some(Running { disk, store });
    }

    fn store(&self) -> EmbeddedStore {
        self.running.lock().as_ref().unwrap().store.clone()
    }

    fn chance(&self, probability: f64) -> bool {
        self.random.lock().random_bool(probability)
    }

    fn restart(&self) {
        let Running { mut disk, store } = self.running.lock().take().unwrap();
        let (crash, forget_index) = (self.chance(0.5), self.chance(0.3));
        if crash {
            disk = disk.crash();
        }
        store.close();
        if forget_index {
            std::fs::remove_dir_all(self.directory().join("index")).unwrap();
        }
        self.start(disk);
    }
}

#[async_trait]
impl Store for Restarting {
    async fn status(&self) -> Result<StoreStatus, ReadError> {
        self.store().status().await
    }

    async fn get(&self, key: &Key) -> Result<Option<Record>, ReadError> {
        self.store().get(key).await
    }

    async fn get_once(&self, key: &Key) -> Result<Option<Record>, ReadError> {
        self.store().get_once(key).await
    }

    async fn range(&self, query: RangeQuery<'_>) -> Result<Page, ReadError> {
        self.store().range(query).await
    }

    async fn get_many(&self, keys: &[Key], at: Revision) -> Result<Vec<Option<Record>>, ReadError> {
        self.store().get_many(keys, at).await
    }

    async fn count(&self, range: &KeyRange, at: Option<Revision>, after: Option<&Key>) -> Result<u64, ReadError> {
        self.store().count(range, at, after).await
    }

    async fn usage(&self, range: &KeyRange) -> Result<Usage, ReadError> {
        self.store().usage(range).await
    }

    async fn commit(&self, txn: Txn) -> Result<Committed, CommitError> {
        let committed = self.store().commit(txn).await;
        if self.chance(0.05) {
            self.restart();
        }
        committed
    }

    async fn watch(&self, range: KeyRange, after: Revision) -> Result<Watch, ReadError> {
        self.store().watch(range, after).await
    }

    async fn compact(&self, revision: Revision) -> Result<(), ReadError> {
        self.store().compact(revision).await
    }

    async fn advance(&self, to: Revision) -> Result<Revision, AdvanceError> {
        let advanced = self.store().advance(to).await;
        if self.chance(0.3) {
            self.restart();
        }
        advanced
    }

    fn end_watches(&self, plane: mica_api::PlaneId) {
        self.store().end_watches(plane);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_restarts_all_the_time_matches_the_model() {
    for round in 0..super::soak_rounds().unwrap_or(4) {
        let seed = conformance::seed(&format!("a_store_that_restarts_all_the_time_matches_the_model {round}"));
        let check = conformance::checks()
            .into_iter()
            .find(|check| check.name == "random_operations_match_a_model");
        (check.unwrap().run)(Bed::new(Arc::new(Restarting::new(seed)), seed)).await;
    }
}

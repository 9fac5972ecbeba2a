//! Losing power, failing writes and syncs, a full disk: nothing acknowledged is lost, nothing refused appears, nothing is
//! half there, revisions never go back, and the store goes on.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use mica_store::embedded::disk::sim::{Faults, SimDisk};
use mica_store::embedded::{EmbeddedStore, Options};
use mica_store::{CommitError, Store, conformance};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::workload::Workload;
use super::{forgetful, tiny};

/// A disk of the log, and a directory of the index that goes with it.
struct Machine {
    disk: SimDisk,
    root: tempfile::TempDir,
    options: fn() -> Options,
}

/// What the crash does to the index, which is on a real file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum IndexFate {
    /// It survives as it is: it never knows more than the log.
    Survives,
    /// It falls back to what its last checkpoint wrote, as if nothing after it had reached the disk.
    Lost,
}

impl Machine {
    fn new(seed: u64, options: fn() -> Options) -> Self {
        // The index's own syncs prove nothing here and take most of the time: in memory if there is such a place.
        let root = tempfile::tempdir_in("/dev/shm")
            .or_else(|_| tempfile::tempdir())
            .unwrap();
        Self {
            disk: SimDisk::new(seed),
            root,
            options,
        }
    }

    fn directory(&self) -> PathBuf {
        self.root.path().join("store")
    }

    fn open(&self) -> EmbeddedStore {
        let options = Options {
            disk: Some(Arc::new(self.disk.clone())),
            ..(self.options)()
        };
        EmbeddedStore::open(&self.directory(), options).unwrap()
    }

    /// Turns the power off under a store and starts the machine again.
    fn crash(&mut self, store: EmbeddedStore, fate: IndexFate) {
        self.disk = self.disk.crash();
        // Without its disk the store can only close its index; the copy is from before that.
        let before = self.root.path().join("before");
        copy(&self.directory(), &before);
        drop(store);
        std::fs::remove_dir_all(self.directory()).unwrap();
        match fate {
            IndexFate::Survives => std::fs::rename(&before, self.directory()).unwrap(),
            IndexFate::Lost => std::fs::remove_dir_all(&before).unwrap(),
        }
    }
}

/// Copies a directory that may change meanwhile: first what names other files, then those.
///
/// A checkpoint says that the tables beside it are complete up to some place in the log. One that is written while they are
/// copied must not end up beside tables from before it: no crash does that, since they are durable by then.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    let entries = std::fs::read_dir(from).unwrap().map(Result::unwrap);
    let (directories, files): (Vec<_>, Vec<_>) = entries.partition(|entry| entry.file_type().unwrap().is_dir());
    for entry in files.into_iter().chain(directories) {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else if let Err(error) = std::fs::copy(entry.path(), target) {
            // The index may replace a file while it is copied, as it may during a crash.
            assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn power_can_be_lost_at_every_sync() {
    let mut at = 0;
    loop {
        let fate = if at % 3 == 2 {
            IndexFate::Lost
        } else {
            IndexFate::Survives
        };
        let faults = if at % 2 == 0 {
            Faults {
                power_off_at_sync: Some(at),
                ..Faults::default()
            }
        } else {
            Faults {
                power_off_after_sync: Some(at),
                ..Faults::default()
            }
        };
        let mut machine = Machine::new(at, tiny);
        let workload = Workload::new(200);
        machine.disk.set_faults(faults);
        let store = machine.open();
        workload.run(&store, 4, 30).await;
        let reached = machine.disk.is_off();
        machine.crash(store, fate);
        let store = machine.open();
        workload.verify(&store).await;
        let tally = workload.run(&store, 4, 10).await;
        assert_eq!(
            (tally.refused, tally.unknown),
            (0, 0),
            "a healthy disk takes writes again"
        );
        workload.verify(&store).await;
        store.close();
        workload.verify(&machine.open()).await;
        if !reached {
            break;
        }
        at += 1;
    }
    assert!(at > 20, "only {at} syncs were tried");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_sync_or_write_loses_its_group_and_nothing_else() {
    for at in 0..30 {
        let sync = Faults {
            fail_sync: Some(at),
            ..Faults::default()
        };
        let write = Faults {
            fail_write: Some(at),
            ..Faults::default()
        };
        for (round, faults) in [sync, write].into_iter().enumerate() {
            let mut machine = Machine::new(at * 2 + round as u64, tiny);
            let workload = Workload::new(200);
            let store = machine.open();
            workload.run(&store, 4, 5).await;
            machine.disk.set_faults(faults);
            workload.run(&store, 4, 30).await;
            machine.disk.set_faults(Faults::default());
            workload.verify(&store).await;
            let tally = workload.run(&store, 4, 10).await;
            assert_eq!(
                (tally.refused, tally.unknown),
                (0, 0),
                "the store goes on after a fault"
            );
            machine.crash(
                store,
                if at % 2 == 0 {
                    IndexFate::Survives
                } else {
                    IndexFate::Lost
                },
            );
            workload.verify(&machine.open()).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_forgets_and_cleans_survives_crash_after_crash() {
    let rounds = super::soak_rounds().unwrap_or(12);
    let seed = conformance::seed("a_store_that_forgets_and_cleans_survives_crash_after_crash");
    let mut random = StdRng::seed_from_u64(seed);
    let mut machine = Machine::new(seed, forgetful);
    let workload = Workload::new(300);
    for round in 0..rounds {
        let store = machine.open();
        workload.verify(&store).await;
        let at = random.random_range(20..200);
        machine.disk.set_faults(Faults {
            power_off_at_sync: Some(at),
            ..Faults::default()
        });
        workload.run(&store, 4, 200).await;
        let fate = if round % 4 == 3 {
            IndexFate::Lost
        } else {
            IndexFate::Survives
        };
        machine.crash(store, fate);
    }
    let store = machine.open();
    workload.verify(&store).await;
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
    assert!(
        store.status().await.unwrap().compacted.0 > 0,
        "history was forgotten on the way"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_refuses_puts_takes_deletes_and_recovers() {
    let mut machine = Machine::new(3, tiny);
    let workload = Workload::new(2_000);
    let store = machine.open();
    workload.run(&store, 4, 20).await;
    let limit = machine.disk.used() + (64 << 10);
    machine.disk.set_capacity(Some(limit));
    let mut tally = workload.run(&store, 4, 100).await;
    while tally.no_space == 0 {
        tally = workload.run(&store, 4, 100).await;
    }
    assert_eq!((tally.refused, tally.unknown), (0, 0), "a full disk is said to be full");
    workload.delete_all(&store).await.expect("deletes still work");
    assert!(machine.disk.used() <= limit);
    // Compacting away what was deleted lets the log be cleaned, and then there is room again.
    store
        .compact(store.status().await.unwrap().revision)
        .await
        .expect("compaction still works");
    let mut tally = workload.run(&store, 4, 10).await;
    while tally.no_space > 0 {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        tally = workload.run(&store, 4, 10).await;
    }
    assert_eq!((tally.refused, tally.unknown), (0, 0));
    workload.verify(&store).await;
    machine.crash(store, IndexFate::Survives);
    workload.verify(&machine.open()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_recovers_when_space_returns() {
    let machine = Machine::new(4, tiny);
    let workload = Workload::new(2_000);
    let store = machine.open();
    workload.run(&store, 4, 20).await;
    machine.disk.set_capacity(Some(machine.disk.used()));
    while workload.run(&store, 4, 100).await.no_space == 0 {}
    machine.disk.set_capacity(None);
    while workload.run(&store, 1, 1).await.no_space > 0 {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let tally = workload.run(&store, 4, 50).await;
    assert_eq!((tally.refused, tally.unknown, tally.no_space), (0, 0, 0));
    workload.verify(&store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_disk_gives_errors_and_no_false_answers() {
    let mut machine = Machine::new(5, tiny);
    let workload = Workload::new(200);
    let store = machine.open();
    workload.run(&store, 4, 10).await;
    machine.disk.set_faults(Faults {
        power_off_at_sync: Some(0),
        ..Faults::default()
    });
    let tally = workload.run(&store, 4, 10).await;
    assert_eq!(tally.acknowledged, 0);
    let txn = mica_store::Txn {
        compares: vec![],
        writes: vec![mica_store::Write::DropPlane(workload.range().plane().unwrap())],
    };
    let refused = store.commit(txn).await;
    assert!(
        matches!(refused, Err(CommitError::Unavailable(_) | CommitError::Unknown(_))),
        "{refused:?}"
    );
    machine.crash(store, IndexFate::Survives);
    workload.verify(&machine.open()).await;
}

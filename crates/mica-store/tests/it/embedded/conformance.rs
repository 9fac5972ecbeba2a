//! The contract, on a real directory and on a simulated disk, with usual and with tiny bounds.

use std::sync::Arc;
use std::time::Duration;

use mica_store::embedded::disk::sim::{Faults, SimDisk};
use mica_store::embedded::{EmbeddedStore, Options};
use mica_store::hub::Limits;
use mica_store::{Store, conformance};

use super::tiny;

/// Runs the suite on stores in new directories, which live as long as the suite.
async fn run(options: impl Fn() -> Options) {
    let root = tempfile::tempdir().unwrap();
    let number = std::sync::atomic::AtomicUsize::new(0);
    conformance::run(|| async {
        let number = number.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let store = EmbeddedStore::open(&root.path().join(number.to_string()), options()).unwrap();
        Arc::new(store) as Arc<dyn Store>
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn embedded_store_conforms() {
    run(Options::default).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_embedded_store_conforms_through_the_whole_suite() {
    let directory = tempfile::tempdir().unwrap();
    // Checks count on short histories being there, so the watches' memory may be short but not tiny.
    let hub = Limits {
        ring: 4_000,
        ..tiny().hub
    };
    let store = EmbeddedStore::open(directory.path(), Options { hub, ..tiny() }).unwrap();
    conformance::run(|| async { Arc::new(store.clone()) as Arc<dyn Store> }).await;
    let report = store.check().unwrap();
    assert_eq!(report.problems, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn embedded_store_on_a_slow_simulated_disk_conforms() {
    let hub = Limits {
        ring: 4_000,
        ..tiny().hub
    };
    run(|| {
        let disk = SimDisk::new(1);
        disk.set_faults(Faults {
            sync_delay: Duration::from_micros(200),
            ..Faults::default()
        });
        Options {
            disk: Some(Arc::new(disk)),
            hub,
            ..tiny()
        }
    })
    .await;
}

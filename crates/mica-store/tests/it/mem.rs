//! The memory backend conforms, also with limits that make every watch fall back to its history.

use std::sync::Arc;

use mica_store::hub::Limits;
use mica_store::{MemStore, Store, conformance};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mem_store_conforms() {
    conformance::run(|| async { Arc::new(MemStore::new()) as Arc<dyn Store> }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mem_store_with_a_short_memory_conforms() {
    let limits = Limits {
        buffer: 8,
        buffer_bytes: 1 << 20,
        ring: 4_000,
        ring_bytes: 1 << 20,
    };
    conformance::run(|| async { Arc::new(MemStore::with_limits(limits)) as Arc<dyn Store> }).await;
}

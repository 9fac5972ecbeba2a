//! The embedded store: the contract, restarts, faults, kills.

mod conformance;
mod crash;
mod damage;
mod kill;
mod limits;
mod missed;
mod model;
mod reading;
mod restart;
mod workload;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use mica_store::embedded::{AutoCompaction, Durability, Options};
use mica_store::hub::Limits;

/// Everything small, so that a test of a second passes through segments, checkpoints, merging and cleaning.
pub fn tiny() -> Options {
    Options {
        segment_bytes: (16 << 10, 64 << 10),
        reserve_bytes: 8 << 10,
        keep_free_bytes: 0,
        checkpoint_log_bytes: 32 << 10,
        checkpoint_memory_bytes: 32 << 10,
        index_cache_bytes: 1 << 20,
        record_cache_bytes: 256 << 10,
        range_cache_bytes: 256 << 10,
        hub: Limits {
            buffer: 8,
            buffer_bytes: 1 << 20,
            ring: 64,
            ring_bytes: 1 << 20,
        },
        compaction: None,
        durability: Durability::Power,
        disk: None,
    }
}

/// Like [`tiny`], and forgetting history as fast as it can.
pub fn forgetful() -> Options {
    let keep = Duration::from_millis(20);
    Options {
        compaction: Some(AutoCompaction {
            keep,
            keep_bytes: 1 << 20,
            keep_at_least: keep,
        }),
        ..tiny()
    }
}

/// How many rounds a long test shall run, if it shall: `make soak` says so in `MICA_SOAK`.
pub fn soak_rounds() -> Option<usize> {
    std::env::var("MICA_SOAK").ok().and_then(|rounds| rounds.parse().ok())
}

/// The names of the log's segments.
pub fn segments(directory: &Path) -> BTreeSet<String> {
    let names = std::fs::read_dir(directory.join("log")).unwrap();
    let names = names.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter(|name| name.ends_with(".seg")).collect()
}

/// Waits until the log has such segments.
pub async fn wait_for_segments(directory: &Path, enough: impl Fn(&BTreeSet<String>) -> bool) {
    let waiting = async {
        while !enough(&segments(directory)) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(60), waiting).await;
    assert!(waited.is_ok(), "there are {:?}", segments(directory));
}

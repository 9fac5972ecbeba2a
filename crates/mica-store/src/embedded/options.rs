//! What a store can be told when it is opened, and what it says of itself.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::disk::{Disk, Durability, LockError};
use super::read::Damage;
use crate::hub::Limits;

/// How an embedded store is set up.
#[derive(Clone)]
pub struct Options {
    /// The smallest and largest size of a file of the log; in between it is a sixteenth of the log.
    pub segment_bytes: (u64, u64),
    /// Room that only deletes and cleaning may use when the disk is full.
    pub reserve_bytes: u64,
    /// The log does not grow into the last bytes of the disk, which the index needs.
    pub keep_free_bytes: u64,
    /// Bytes of log that are replayed at most, roughly, after a crash.
    pub checkpoint_log_bytes: u64,
    /// Bytes of index in memory before it is written out.
    pub checkpoint_memory_bytes: u64,
    /// Bytes of index read before that stay in memory.
    pub index_cache_bytes: u64,
    /// Bytes of single records read lately that stay in memory.
    pub record_cache_bytes: usize,
    /// Bytes of ranges read lately that stay in memory: some dozens of megabytes hold the collections that are listed
    /// again and again.
    pub range_cache_bytes: usize,
    /// Memory for watches.
    pub hub: Limits,
    /// When history is forgotten; `None` only when asked to.
    pub compaction: Option<AutoCompaction>,
    /// What an acknowledged write survives.
    pub durability: Durability,
    /// Where the log is, instead of in the directory: for tests.
    pub disk: Option<Arc<dyn Disk>>,
}

/// When history is forgotten without being asked.
#[derive(Clone, Copy, Debug)]
pub struct AutoCompaction {
    /// Every state stays readable this long.
    pub keep: Duration,
    /// More history than this is forgotten earlier...
    pub keep_bytes: u64,
    /// ...but no state before this time.
    pub keep_at_least: Duration,
}

impl Default for AutoCompaction {
    /// Five minutes is what clients of kube-apiserver are used to.
    fn default() -> Self {
        Self {
            keep: Duration::from_mins(5),
            keep_bytes: 2 << 30,
            keep_at_least: Duration::from_mins(1),
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            segment_bytes: (4 << 20, 256 << 20),
            reserve_bytes: 4 << 20,
            keep_free_bytes: 64 << 20,
            checkpoint_log_bytes: 48 << 20,
            checkpoint_memory_bytes: 8 << 20,
            index_cache_bytes: 16 << 20,
            record_cache_bytes: 16 << 20,
            range_cache_bytes: 32 << 20,
            hub: Limits::default(),
            compaction: Some(AutoCompaction::default()),
            durability: Durability::Power,
            disk: None,
        }
    }
}

/// Sizes of a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Bytes of the log, without what is prepared ahead of it.
    pub log_bytes: u64,
    /// How many of these can still be asked for.
    pub live_bytes: u64,
    pub index_bytes: u64,
    /// Bytes of the index that are only in memory.
    pub index_memory_bytes: u64,
    /// Bytes of records read lately that are in memory.
    pub cache_bytes: u64,
    /// Watches that are up to date.
    pub watches: u64,
}

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("{directory} is in use: {holder}")]
    Locked { directory: String, holder: LockError },
    #[error("{path} has format version {found}, and this program knows versions up to {known}: use a newer program")]
    Newer { path: String, found: u32, known: u32 },
    #[error("stored data is damaged: {0}")]
    Corrupt(String),
    #[error("could not {what}")]
    Io {
        what: &'static str,
        #[source]
        source: io::Error,
    },
}

impl From<Damage> for OpenError {
    fn from(damage: Damage) -> Self {
        match damage {
            Damage::Io(source) => Self::Io {
                what: "read the log",
                source,
            },
            Damage::Index(lsm_tree::Error::Io(source)) => Self::Io {
                what: "read or write the index",
                source,
            },
            other => Self::Corrupt(other.text()),
        }
    }
}

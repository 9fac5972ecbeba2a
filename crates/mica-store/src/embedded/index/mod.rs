//! Where every version of every key lies in the log: six ordered tables that can always be rebuilt from it.
//!
//! | table | key | value |
//! |---|---|---|
//! | current | key | the newest version |
//! | history | key, 0, inverted revision | a version that is not the newest any more, and its end |
//! | by_resource | group/resource/plane/rest | nothing; kept until the key's deletion is compacted |
//! | planes | plane | revision of its last change |
//! | expiry | time, revision | key |
//! | dropped | plane | revision of its drop, until it is swept |
//!
//! Tables are `lsm-tree`s without a journal: changes go to memory only and cannot fail; a checkpoint writes them out and
//! notes up to which place in the log they are complete. After a crash the log is replayed from there.
//! Every record's changes follow from the record alone, so replaying what is already in is harmless.
//!
//! Surprise: the trees take a sequence number of their own whenever they install new files, and would make it visible at
//! once. Readers here use `published` instead, which moves only when a whole group of changes is in.

pub(super) mod batch;
pub(super) mod changes;
pub(super) mod checkpoint;
mod tidy;
pub(super) mod view;

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use lsm_tree::compaction::Leveled;
use lsm_tree::config::{FilterPolicy, PinningPolicy};
use lsm_tree::{AbstractTree, AnyTree, Cache, DescriptorTable, SeqNo, SequenceNumberCounter};
use parking_lot::{Condvar, Mutex};

use super::format::Entry;
use super::read::Damage;
use crate::store::Revision;
use batch::Batch;
use checkpoint::Checkpoint;
pub(super) use view::View;

/// Open files of the index; others are closed and opened again.
const OPEN_FILES: usize = 128;
/// Size of a sorted file: merging works on a few of these at a time.
const TABLE_BYTES: u64 = 16 << 20;
/// Rounds of merging after one checkpoint; what is left is done after the next.
const MERGE_ROUNDS: usize = 8;

/// How long closing waits for reads that are under way.
const CLOSE_PATIENCE: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub(super) enum Table {
    Current,
    History,
    ByResource,
    Planes,
    Expiry,
    Dropped,
}

impl Table {
    const ALL: [(Self, &'static str); 6] = [
        (Self::Current, "current"),
        (Self::History, "history"),
        (Self::ByResource, "by_resource"),
        (Self::Planes, "planes"),
        (Self::Expiry, "expiry"),
        (Self::Dropped, "dropped"),
    ];

    /// Filters pay where keys are looked up that may be absent.
    fn has_filter(self) -> bool {
        matches!(self, Self::Current | Self::Planes | Self::Dropped)
    }
}

pub(super) struct Index {
    trees: Vec<AnyTree>,
    sequence: SequenceNumberCounter,
    published: Mutex<Published>,
    view_closed: Condvar,
    /// Number of dropped planes that are not swept yet, and above it a count of changes to that number.
    dropped: AtomicU64,
    /// Set when a read found damage: the next start has to rebuild.
    damaged: AtomicBool,
}

struct Published {
    /// Changes with a smaller sequence number are visible.
    sequence: SeqNo,
    /// The revision whose state that is.
    revision: Revision,
    /// Views by their sequence number: what they see must be kept. The visible state always counts as one, so that
    /// opening a view seldom needs memory.
    views: BTreeMap<SeqNo, usize>,
    closed: bool,
}

impl Published {
    fn open(&mut self, sequence: SeqNo) {
        *self.views.entry(sequence).or_default() += 1;
    }

    fn close(&mut self, sequence: SeqNo) {
        if let Some(count) = self.views.get_mut(&sequence) {
            *count -= 1;
            if *count == 0 {
                self.views.remove(&sequence);
            }
        }
    }
}

impl Index {
    /// Opens the tables in a directory, or makes them.
    pub(super) fn open(directory: &Path, cache_bytes: u64) -> Result<Self, Damage> {
        let sequence = SequenceNumberCounter::default();
        // Never read: see the surprise above.
        let visible = SequenceNumberCounter::default();
        let cache = Arc::new(Cache::with_capacity_bytes(cache_bytes));
        let files = Arc::new(DescriptorTable::new(OPEN_FILES));
        let mut trees = Vec::new();
        for (table, name) in Table::ALL {
            let mut config = lsm_tree::Config::new(directory.join(name), sequence.clone(), visible.clone())
                .use_cache(cache.clone())
                .use_descriptor_table(Some(files.clone()))
                // Only the newest files' filters and indexes stay in memory, whatever the number of keys.
                .filter_block_pinning_policy(PinningPolicy::new([true, false]))
                .index_block_pinning_policy(PinningPolicy::new([true, false]));
            if !table.has_filter() {
                config = config.filter_policy(FilterPolicy::disabled());
            }
            // Damaged files can make the engine panic; for us that is damage like any other.
            let opened = std::panic::catch_unwind(AssertUnwindSafe(|| config.open()));
            let tree = opened.map_err(|_| Damage::Corrupt(format!("the index table {name} cannot be read")))?;
            trees.push(tree.map_err(Damage::Index)?);
        }
        let highest = trees
            .iter()
            .filter_map(AbstractTree::get_highest_persisted_seqno)
            .max()
            .unwrap_or(0);
        sequence.set(highest + 1);
        let views = BTreeMap::from([(highest + 1, 1)]);
        let published = Published {
            sequence: highest + 1,
            revision: Revision(0),
            views,
            closed: false,
        };
        let index = Self {
            trees,
            sequence,
            published: Mutex::new(published),
            view_closed: Condvar::new(),
            dropped: AtomicU64::new(0),
            damaged: AtomicBool::new(false),
        };
        index.count_dropped()?;
        Ok(index)
    }

    /// Counts the dropped planes anew: a replay may have counted some of them twice.
    pub(super) fn count_dropped(&self) -> Result<(), Damage> {
        let dropped = self.tree(Table::Dropped).len(SeqNo::MAX, None).map_err(Damage::Index)?;
        self.dropped.store(dropped as u64, Ordering::Release);
        Ok(())
    }

    fn tree(&self, table: Table) -> &AnyTree {
        &self.trees[table as usize]
    }

    /// The newest revision whose changes are all visible.
    pub(super) fn revision(&self) -> Revision {
        self.published.lock().revision
    }

    /// The state of all tables now, for as long as the view lives.
    pub(super) fn view(self: &Arc<Self>) -> Result<View, Damage> {
        let dropped_before = self.dropped.load(Ordering::Acquire);
        let (sequence, revision) = {
            let mut published = self.published.lock();
            if published.closed {
                return Err(Damage::Closed);
            }
            let sequence = published.sequence;
            published.open(sequence);
            (sequence, published.revision)
        };
        let dropped_after = self.dropped.load(Ordering::Acquire);
        // A drop counts before it is visible and a sweep after: unchanged zero means that the view holds no dropped plane.
        let any_dropped = dropped_before != dropped_after || dropped_after as u32 != 0;
        Ok(View::new(self.clone(), sequence, revision, any_dropped))
    }

    fn close_view(&self, sequence: SeqNo) {
        let mut published = self.published.lock();
        published.close(sequence);
        if published.closed {
            self.view_closed.notify_all();
        }
    }

    /// Makes a group of changes visible, all at once. Only the committer calls it, and recovery before there is one.
    pub(super) fn apply(&self, batch: &mut Batch, revision: Revision) {
        let drops = std::mem::take(&mut batch.drops);
        if drops > 0 {
            self.dropped.fetch_add((1 << 32) + drops, Ordering::AcqRel);
        }
        let mut next = None;
        for op in batch.take() {
            let sequence = match next {
                Some((step, sequence)) if step == op.step => sequence,
                _ => self.sequence.next(),
            };
            next = Some((op.step, sequence));
            let tree = self.tree(op.table);
            match op.value {
                Some(value) => tree.insert(op.key, value, sequence),
                None => tree.remove(op.key, sequence),
            };
        }
        {
            let mut published = self.published.lock();
            if let Some((_, sequence)) = next {
                let before = std::mem::replace(&mut published.sequence, sequence + 1);
                published.open(sequence + 1);
                published.close(before);
            }
            published.revision = published.revision.max(revision);
        }
        let sweeps = std::mem::take(&mut batch.sweeps);
        if sweeps > 0 {
            self.dropped.fetch_add((1 << 32) - sweeps, Ordering::AcqRel);
        }
    }

    /// The newest version of a key, also of a dropped plane. For the committer, which alone changes it.
    pub(super) fn current(&self, key: &str) -> Result<Option<Entry>, Damage> {
        let found = self
            .tree(Table::Current)
            .get(key, SeqNo::MAX)
            .map_err(|error| self.failed(error))?;
        found
            .map(|bytes| Entry::decode(&bytes).ok_or_else(|| damaged(Table::Current)))
            .transpose()
    }

    /// Whether a plane is dropped, for the committer.
    pub(super) fn is_dropped(&self, plane: &str) -> Result<bool, Damage> {
        if self.dropped.load(Ordering::Acquire) as u32 == 0 {
            return Ok(false);
        }
        self.tree(Table::Dropped)
            .contains_key(plane, SeqNo::MAX)
            .map_err(|error| self.failed(error))
    }

    /// Bytes of changes in memory that the next checkpoint has to write.
    pub(super) fn unwritten_bytes(&self) -> u64 {
        self.trees.iter().map(|tree| tree.active_memtable().size()).sum()
    }

    /// Whether something is sealed and not written yet.
    pub(super) fn is_flushing(&self) -> bool {
        self.trees.iter().any(|tree| tree.sealed_memtable_count() > 0)
    }

    /// Ends the part of the changes that the next flush writes. Called between two groups of changes.
    pub(super) fn seal(&self) {
        for tree in &self.trees {
            tree.rotate_memtable();
        }
    }

    /// Writes everything that is sealed. After an error it can be tried again; nothing is lost but memory.
    pub(super) fn flush(&self) -> Result<(), Damage> {
        for tree in &self.trees {
            let oldest = self.oldest_view();
            let lock = tree.get_flush_lock();
            tree.flush(&lock, oldest).map_err(Damage::Index)?;
        }
        Ok(())
    }

    /// Merges files where reads would otherwise have to look into too many.
    pub(super) fn merge(&self, stop: impl Fn() -> bool) -> Result<(), Damage> {
        let strategy = Arc::new(Leveled::default().with_table_target_size(TABLE_BYTES));
        for tree in &self.trees {
            for _ in 0..MERGE_ROUNDS {
                let before = tree.current_version().id();
                tree.compact(strategy.clone(), self.oldest_view())
                    .map_err(Damage::Index)?;
                if stop() || tree.current_version().id() == before {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Notes a checkpoint whose changes have been written, unless what was written before is damaged.
    pub(super) fn note(&self, checkpoint: &Checkpoint, directory: &Path) -> Result<(), Damage> {
        let noted = if self.damaged.load(Ordering::Acquire) {
            Checkpoint::remove(directory)
        } else {
            checkpoint.write(directory)
        };
        noted.map_err(Damage::Io)
    }

    /// What a read that failed says of the index.
    fn failed(&self, error: lsm_tree::Error) -> Damage {
        if !matches!(error, lsm_tree::Error::Io(_)) {
            self.damaged.store(true, Ordering::Release);
        }
        Damage::Index(error)
    }

    /// Refuses views from now on, waits for the last one, and lets go of files that were merged into others.
    ///
    /// The trees delete such a file when nobody can see it any more, and that may be as late as when they are dropped. By
    /// then the directory may be open again, with another file of that name.
    pub(super) fn close(&self) -> Result<(), Damage> {
        let sequence = {
            let mut published = self.published.lock();
            published.closed = true;
            let idle = |published: &Published| published.views.values().sum::<usize>() <= 1;
            let until = std::time::Instant::now() + CLOSE_PATIENCE;
            while !idle(&published) {
                if self.view_closed.wait_until(&mut published, until).timed_out() {
                    return Err(Damage::Corrupt(
                        "a read did not end while the store was closed".to_owned(),
                    ));
                }
            }
            self.sequence.next()
        };
        for tree in &self.trees {
            let path = &tree.tree_config().path;
            tree.get_version_history_lock()
                .maintenance(path, sequence)
                .map_err(Damage::Index)?;
        }
        Ok(())
    }

    fn oldest_view(&self) -> SeqNo {
        let published = self.published.lock();
        published
            .views
            .keys()
            .next()
            .copied()
            .unwrap_or(published.sequence)
            .saturating_sub(1)
    }

    pub(super) fn disk_bytes(&self) -> u64 {
        self.trees.iter().map(AbstractTree::disk_space).sum()
    }
}

fn damaged(table: Table) -> Damage {
    Damage::Corrupt(format!(
        "the index table {} holds something else",
        Table::ALL[table as usize].1
    ))
}

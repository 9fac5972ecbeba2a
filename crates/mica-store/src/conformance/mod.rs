//! What every backend must do: one check for each sentence of the contract in [`crate::store`].
//!
//! A check works in planes and resources of its own with random names, so that stores may be shared with others: it
//! assumes nothing of the first revision and nothing of what else `All` and `AllPlanes` hold. It does assume that nobody
//! else compacts while it runs.
//!
//! A check panics where the store breaks its word, with the check's name in front.
#![allow(clippy::unwrap_used, reason = "this is test code that other crates can call")]

mod advance;
mod compaction;
mod model;
mod plane;
mod range;
mod watch;
mod write;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use mica_api::{GroupResource, PlaneId};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::hub::revision_of;
use crate::key::{Key, KeyRange, PlaneKeys};
use crate::store::{
    AdvanceError, Change, CommitError, Committed, Compare, Page, RangeQuery, ReadError, Record, Revision, Signal,
    Store, Txn, Watch, WatchError, Write,
};

/// Longer than any healthy store takes for one step, time to live included, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs every check, each on what `open` gives: a new store, or one that others use as well.
pub async fn run<F, Fut>(open: F)
where
    F: Fn() -> Fut,
    Fut: Future<Output = Arc<dyn Store>>,
{
    for check in checks() {
        // Also with one seed for all, beds differ.
        let seed = seed(check.name) ^ xxhash_rust::xxh3::xxh3_64(check.name.as_bytes()).rotate_left(1);
        let bed = Bed::new(open().await, seed);
        let outcome = std::panic::AssertUnwindSafe((check.run)(bed)).catch_unwind().await;
        assert!(
            outcome.is_ok(),
            "conformance: {} does not hold (see the panic above)",
            check.name
        );
    }
}

/// One sentence of the contract.
pub struct Check {
    pub name: &'static str,
    pub run: fn(Bed) -> Pin<Box<dyn Future<Output = ()> + Send>>,
}

macro_rules! checks {
    ($($module:ident: $($name:ident),+ $(,)?;)+) => {
        /// Every check, for callers that want to run some of them.
        pub fn checks() -> Vec<Check> {
            vec![$($(Check { name: stringify!($name), run: |bed| Box::pin($module::$name(bed)) },)+)+]
        }
    };
}

checks! {
    write: a_write_is_seen_by_every_later_read, revisions_grow_and_status_names_the_newest, any_bytes_are_kept,
        a_comparison_that_holds_lets_the_writes_through, a_conflict_names_the_first_failure_and_writes_nothing,
        a_transaction_over_resources_is_whole, deleting_what_is_missing_changes_nothing,
        a_transaction_of_comparisons_only_changes_nothing, concurrent_increments_lose_nothing,
        an_abandoned_commit_is_whole_or_absent, a_time_to_live_ends_in_a_delete_event,
        a_later_put_replaces_the_time_to_live;
    range: every_kind_of_range_holds_its_keys_in_order, pages_follow_each_other_without_gap_or_overlap,
        a_page_names_the_newest_revision_even_if_the_range_is_old, a_past_revision_is_read_as_it_was,
        pages_of_one_revision_do_not_see_later_writes, a_future_revision_cannot_be_read, usage_counts_records_and_bytes;
    compaction: states_before_a_compaction_expire_and_its_own_stays, compacting_twice_or_backwards_changes_nothing,
        the_future_cannot_be_compacted, a_watch_from_before_a_compaction_expires,
        a_quiet_plane_does_not_expire_because_others_write;
    advance: advancing_skips_revisions_and_changes_nothing, advancing_twice_or_backwards_changes_nothing,
        a_watch_goes_on_over_skipped_revisions, no_revision_is_too_far_to_be_refused;
    watch: a_watch_yields_every_change_once_and_in_order, events_carry_what_was_there_before,
        a_watch_can_start_at_every_revision, a_watch_in_the_future_is_silent_up_to_there,
        each_kind_of_watch_sees_its_keys_only, no_gap_and_no_duplicate_under_concurrent_writers,
        a_reader_that_stops_does_not_stop_others, caught_up_moves_on_without_events_and_can_be_resumed_from,
        watches_that_are_ended_can_be_resumed;
    plane: a_dropped_plane_is_gone_as_one_operation, a_drop_ends_inner_watches_after_their_last_event,
        a_drop_is_one_signal_to_wider_watches, the_state_before_a_drop_stays_readable,
        a_drop_and_another_write_are_one_transaction;
    model: random_operations_match_a_model;
}

/// A store with names that no other check uses.
pub struct Bed {
    pub store: Arc<dyn Store>,
    random: Mutex<StdRng>,
    plane: PlaneKeys,
    things: GroupResource,
    others: GroupResource,
}

impl Bed {
    /// Its names follow from the seed: beds that share a store need different ones.
    pub fn new(store: Arc<dyn Store>, seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let unique: u32 = random.random();
        Self {
            store,
            plane: new_plane(&mut random),
            random: Mutex::new(random),
            things: GroupResource::new("", &format!("things{unique:08x}")),
            others: GroupResource::new("example.com", &format!("others{unique:08x}")),
        }
    }

    fn new_plane(&self) -> PlaneKeys {
        new_plane(&mut self.random.lock())
    }

    fn key(&self, name: &str) -> Key {
        self.plane.object(&self.things, Some("ns"), name)
    }

    fn range(&self) -> KeyRange {
        self.plane.resource(&self.things)
    }

    async fn commit(&self, compares: Vec<Compare>, writes: Vec<Write>) -> Result<Committed, CommitError> {
        within("a commit", self.store.commit(Txn { compares, writes })).await
    }

    async fn put(&self, key: &Key, value: &str) -> Revision {
        self.commit(vec![], vec![put(key, value)])
            .await
            .expect("a put without comparisons succeeds")
            .revision
    }

    async fn delete(&self, key: &Key) -> Revision {
        let writes = vec![Write::Delete { key: key.clone() }];
        self.commit(vec![], writes)
            .await
            .expect("a delete without comparisons succeeds")
            .revision
    }

    async fn get(&self, key: &Key) -> Option<Record> {
        within("a get", self.store.get(key)).await.expect("a get succeeds")
    }

    async fn revision(&self) -> Revision {
        within("the status", self.store.status())
            .await
            .expect("a healthy store has a status")
            .revision
    }

    async fn page(
        &self,
        range: &KeyRange,
        at: Option<Revision>,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<Page, ReadError> {
        within(
            "a range read",
            self.store.range(RangeQuery {
                range,
                at,
                after,
                limit,
            }),
        )
        .await
    }

    /// The whole range at a revision, read in pages.
    async fn list(&self, range: &KeyRange, at: Option<Revision>, limit: usize) -> Vec<(Key, Record)> {
        let mut all: Vec<(Key, Record)> = Vec::new();
        let mut at = at;
        loop {
            let after = all.last().map(|(key, _)| key.clone());
            let page = self
                .page(range, at, after.as_ref(), limit)
                .await
                .expect("an uncompacted state is readable");
            assert!(page.records.len() <= limit, "a page holds at most its limit");
            assert!(
                !page.more || !page.records.is_empty(),
                "a page that is not the last holds something"
            );
            assert!(
                at.is_none_or(|at| at == page.revision),
                "a page has the revision asked for"
            );
            at = Some(page.revision);
            all.extend(page.records);
            if !page.more {
                self.check_count(range, page.revision, &all).await;
                self.check_many(page.revision, &all).await;
                return all;
            }
        }
    }

    /// A count is what the pages hold, from the beginning and from behind a key.
    async fn check_count(&self, range: &KeyRange, at: Revision, all: &[(Key, Record)]) {
        let middle = all.len() / 2;
        let after = all.get(middle).map(|(key, _)| key);
        for (after, expected) in [(None, all.len()), (after, all.len().saturating_sub(middle + 1))] {
            let count = within("a count", self.store.count(range, Some(at), after)).await;
            let count = count.expect("what can be listed can be counted");
            assert_eq!(count, expected as u64, "{range:?} at {at} behind {after:?}");
        }
    }

    /// What a list holds is found by its keys, in whatever order, and what it does not hold is not.
    async fn check_many(&self, at: Revision, all: &[(Key, Record)]) {
        let mut keys: Vec<Key> = all.iter().rev().map(|(key, _)| key.clone()).collect();
        let mut expected: Vec<Option<Record>> = all.iter().rev().map(|(_, record)| Some(record.clone())).collect();
        if let Some((key, _)) = all.first() {
            let plane = PlaneKeys::new(key.plane());
            keys.insert(all.len() / 2, plane.object(&self.things, None, "nobody-made-this"));
            expected.insert(all.len() / 2, None);
        }
        let found = within("a read of many keys", self.store.get_many(&keys, at)).await;
        assert_eq!(found.expect("what can be listed can be read"), expected, "at {at}");
    }

    async fn texts(&self, range: &KeyRange, at: Option<Revision>) -> Vec<String> {
        let text = |(key, record): &(Key, Record)| format!("{}={}", key.name(), text(&record.value));
        self.list(range, at, 1000).await.iter().map(text).collect()
    }

    async fn watch(&self, range: KeyRange, after: Revision) -> Watch {
        within("a watch", self.store.watch(range, after))
            .await
            .expect("a watch from an uncompacted revision opens")
    }
}

fn new_plane(random: &mut StdRng) -> PlaneKeys {
    PlaneKeys::new(PlaneId::from_random(random.random()))
}

/// The seed of a random test: the same each time, so that what fails fails again; a new one each time in a soak
/// (`MICA_SOAK`), where it is printed, to be tried again with `MICA_SEED`.
pub fn seed(test: &str) -> u64 {
    let seed = match std::env::var("MICA_SEED") {
        Ok(seed) => seed.parse().expect("MICA_SEED is a number"),
        Err(_) if std::env::var_os("MICA_SOAK").is_some() => rand::random(),
        Err(_) => xxhash_rust::xxh3::xxh3_64(test.as_bytes()),
    };
    eprintln!("{test}: MICA_SEED={seed}");
    seed
}

fn put(key: &Key, value: &str) -> Write {
    Write::Put {
        key: key.clone(),
        value: Bytes::copy_from_slice(value.as_bytes()),
        ttl: None,
    }
}

fn text(value: &Bytes) -> String {
    String::from_utf8_lossy(value).into_owned()
}

async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_) => panic!("{what} took longer than {PATIENCE:?}"),
    }
}

async fn next(watch: &mut Watch) -> Result<Signal, WatchError> {
    within("the next signal", watch.next()).await
}

/// Reads signals up to and including a revision.
async fn signals_until(watch: &mut Watch, last: Revision) -> Vec<Signal> {
    let mut signals = Vec::new();
    while signals.last().map(revision_of) != Some(last) {
        let signal = next(watch).await.expect("a watch that is read goes on");
        assert!(revision_of(&signal) <= last, "{signal:?} came where {last} was due");
        signals.push(signal);
    }
    signals
}

/// `name=value@revision` of a put, `name-@revision` of a delete, `!plane@revision` of a dropped plane.
fn describe(signal: &Signal) -> String {
    match signal {
        Signal::Event(event) => match &event.change {
            Change::Put(value) => format!("{}={}@{}", event.key.name(), text(value), event.revision),
            Change::Delete => format!("{}-@{}", event.key.name(), event.revision),
        },
        Signal::Dropped(plane, revision) => format!("!{plane}@{revision}"),
    }
}

//! Claims about the hub, with limits small enough to hit.

use mica_api::{GroupResource, PlaneId};

use bytes::Bytes;

use super::*;
use crate::key::{Key, PlaneKeys};
use crate::store::{Record, WatchSource};

const SMALL: Limits = Limits {
    buffer: 4,
    buffer_bytes: 1 << 20,
    ring: 16,
    ring_bytes: 1 << 20,
};

fn resource() -> GroupResource {
    GroupResource::new("", "things")
}

fn plane(n: u64) -> PlaneKeys {
    PlaneKeys::new(PlaneId::from_random(n))
}

fn key(plane_number: u64, name: &str) -> Key {
    plane(plane_number).object(&resource(), Some("ns"), name)
}

fn put(key: Key, revision: u64) -> Signal {
    Signal::Event(Arc::new(Event::new(
        key,
        Revision(revision),
        Change::Put(Bytes::from_static(b"v")),
        None,
    )))
}

fn ready(watch: &mut HubWatch) -> Vec<u64> {
    let mut seen = Vec::new();
    while let Some(Ok(signal)) = watch.try_next() {
        seen.push(revision_of(&signal).0);
    }
    seen
}

#[test]
fn each_range_gets_its_events_and_no_other() {
    let hub = Hub::new(Revision(0), Limits::default());
    let other = GroupResource::new("g", "others");
    let events = [
        key(1, "a"),
        plane(1).object(&resource(), Some("other"), "a"),
        plane(1).object(&other, None, "a"),
        key(2, "a"),
        plane(2).object(&other, None, "b"),
    ];
    let ranges = [
        KeyRange::All,
        plane(1).all(),
        plane(1).resource(&resource()),
        plane(1).namespace(&resource(), "ns"),
        plane(1).namespace(&resource(), "n"),
        KeyRange::AllPlanes(other.clone()),
        KeyRange::AllPlanes(resource()),
        KeyRange::One(events[0].clone()),
        KeyRange::One(events[4].clone()),
    ];
    let mut live: Vec<_> = ranges
        .iter()
        .map(|range| hub.watch(range.clone(), Revision(0)).unwrap())
        .collect();
    assert_eq!(hub.live_watchers(), ranges.len());
    for (i, key) in events.iter().enumerate() {
        let revision = i as u64 + 1;
        hub.publish([put(key.clone(), revision)], Revision(revision));
    }
    for (range, watch) in ranges.iter().zip(&mut live) {
        let expected: Vec<_> = (1u64..)
            .zip(&events)
            .filter(|(_, key)| range.contains(key))
            .map(|(revision, _)| revision)
            .collect();
        assert_eq!(ready(watch), expected, "live, {range:?}");
        let mut resumed = hub.watch(range.clone(), Revision(0)).unwrap();
        assert_eq!(ready(&mut resumed), expected, "from memory, {range:?}");
        assert_eq!(watch.caught_up(), Some(Revision(5)));
        assert_eq!(resumed.caught_up(), Some(Revision(5)));
    }
    drop(live);
    assert_eq!(hub.live_watchers(), 0);
}

#[test]
fn a_watch_starts_after_its_revision_even_in_the_future() {
    let hub = Hub::new(Revision(10), Limits::default());
    let mut watch = hub.watch(KeyRange::All, Revision(12)).unwrap();
    assert_eq!(watch.caught_up(), Some(Revision(12)), "nothing is sent up to there");
    for revision in 11..=14 {
        hub.publish([put(key(1, "a"), revision)], Revision(revision));
    }
    assert_eq!(ready(&mut watch), [13, 14]);
    assert!(
        hub.watch(KeyRange::All, Revision(9)).is_none(),
        "before the hub's memory"
    );
}

#[test]
fn caught_up_is_none_while_events_wait() {
    let hub = Hub::new(Revision(0), SMALL);
    let mut watch = hub.watch(plane(1).all(), Revision(0)).unwrap();
    hub.publish([put(key(2, "a"), 1)], Revision(1));
    assert_eq!(watch.caught_up(), Some(Revision(1)), "an event elsewhere moves it on");
    hub.publish([put(key(1, "a"), 2), put(key(1, "b"), 2)], Revision(2));
    assert_eq!(watch.caught_up(), None);
    assert!(matches!(watch.try_next(), Some(Ok(_))));
    assert_eq!(watch.caught_up(), None, "a sibling of the same revision waits");
    assert!(matches!(watch.try_next(), Some(Ok(_))));
    assert_eq!(watch.caught_up(), Some(Revision(2)));
    hub.publish([], Revision(7));
    assert_eq!(watch.caught_up(), Some(Revision(7)));
}

#[test]
fn a_full_buffer_moves_the_reader_to_the_ring_and_loses_nothing() {
    let hub = Hub::new(Revision(0), Limits { ring: 64, ..SMALL });
    let mut slow = hub.watch(KeyRange::All, Revision(0)).unwrap();
    for revision in 1..=14 {
        hub.publish(
            [put(key(1, "a"), revision), put(key(2, "a"), revision)],
            Revision(revision),
        );
        if revision == 5 {
            assert_eq!(
                hub.live_watchers(),
                0,
                "off the live path: it costs the publisher nothing"
            );
        }
        // Reads a little, always from behind.
        if revision % 2 == 0 {
            slow.try_next().unwrap().unwrap();
        }
    }
    let seen = ready(&mut slow);
    let all: Vec<u64> = (1..=14).flat_map(|revision| [revision, revision]).collect();
    assert_eq!(seen, all[7..], "every revision whole, in order");
    assert_eq!(hub.live_watchers(), 1, "and live again");
}

#[test]
fn a_reader_behind_the_ring_is_lagged_and_others_are_not() {
    let hub = Hub::new(Revision(0), SMALL);
    let mut slow = hub.watch(KeyRange::All, Revision(0)).unwrap();
    let mut fast = hub.watch(KeyRange::All, Revision(0)).unwrap();
    let mut seen = Vec::new();
    for revision in 1..=100 {
        hub.publish([put(key(1, "a"), revision)], Revision(revision));
        seen.extend(ready(&mut fast));
    }
    assert_eq!(seen, (1..=100).collect::<Vec<_>>());
    assert_eq!(ready(&mut slow), [1, 2, 3, 4], "what was in its buffer");
    assert!(matches!(slow.try_next(), Some(Err(WatchError::Lagged))));
    assert!(
        matches!(slow.try_next(), Some(Err(WatchError::Lagged))),
        "nothing follows an end"
    );
}

#[test]
fn big_events_count_by_their_bytes() {
    let limits = Limits {
        buffer: 1000,
        buffer_bytes: 10_000,
        ring: 1000,
        ring_bytes: 50_000,
    };
    let hub = Hub::new(Revision(0), limits);
    let mut slow = hub.watch(KeyRange::All, Revision(0)).unwrap();
    for revision in 1..=20 {
        let change = Change::Put(Bytes::from(vec![0; 5_000]));
        let previous = Some(Record {
            value: Bytes::from(vec![0; 5_000]),
            revision: Revision(revision - 1),
        });
        let event = Event::new(key(1, "a"), Revision(revision), change, previous);
        hub.publish([Signal::Event(Arc::new(event))], Revision(revision));
    }
    assert_eq!(ready(&mut slow), [1]);
    assert!(matches!(slow.try_next(), Some(Err(WatchError::Lagged))));
    assert!(hub.watch(KeyRange::All, Revision(15)).is_none());
    assert_eq!(
        ready(&mut hub.watch(KeyRange::All, Revision(16)).unwrap()),
        [17, 18, 19, 20]
    );
}

#[test]
fn a_dropped_plane_ends_inner_watches_after_their_last_event() {
    let hub = Hub::new(Revision(0), Limits::default());
    let inner_ranges = [
        plane(1).all(),
        plane(1).resource(&resource()),
        plane(1).namespace(&resource(), "ns"),
        KeyRange::One(key(1, "a")),
    ];
    let mut inner: Vec<_> = inner_ranges
        .iter()
        .map(|r| hub.watch(r.clone(), Revision(0)).unwrap())
        .collect();
    let mut wide: Vec<_> = [KeyRange::All, KeyRange::AllPlanes(resource())]
        .map(|r| hub.watch(r, Revision(0)).unwrap())
        .into();
    let mut other = hub.watch(plane(2).all(), Revision(0)).unwrap();
    let dropped = Signal::Dropped(PlaneId::from_random(1), Revision(2));
    hub.publish([put(key(1, "a"), 1), dropped], Revision(2));
    hub.publish([put(key(2, "a"), 3)], Revision(3));
    inner.extend(
        inner_ranges
            .iter()
            .map(|range| hub.watch(range.clone(), Revision(0)).unwrap()),
    );
    for mut watch in inner {
        assert_eq!(ready(&mut watch), [1]);
        assert!(matches!(watch.try_next(), Some(Err(WatchError::Dropped))));
        assert_eq!(watch.caught_up(), None);
    }
    wide.push(hub.watch(KeyRange::All, Revision(0)).unwrap());
    for watch in &mut wide {
        assert_eq!(revision_of(&watch.try_next().unwrap().unwrap()), Revision(1));
        assert!(matches!(watch.try_next(), Some(Ok(Signal::Dropped(_, Revision(2))))));
        assert_eq!(ready(watch), [3]);
    }
    assert_eq!(ready(&mut other), [3]);
}

#[tokio::test]
async fn closing_ends_every_watch() {
    let hub = Hub::new(Revision(0), Limits::default());
    let mut idle = hub.watch(KeyRange::All, Revision(0)).unwrap();
    let mut behind = hub.watch(KeyRange::All, Revision(0)).unwrap();
    let waiting = tokio::spawn(async move { idle.next().await });
    hub.close();
    assert!(matches!(waiting.await.unwrap(), Err(WatchError::Closed)));
    assert!(matches!(behind.next().await, Err(WatchError::Closed)));
    assert!(matches!(
        hub.watch(KeyRange::All, Revision(0)).unwrap().next().await,
        Err(WatchError::Closed)
    ));
}

#[test]
fn a_reset_lags_those_who_missed_something() {
    let hub = Hub::new(Revision(0), Limits::default());
    let mut watch = hub.watch(KeyRange::All, Revision(0)).unwrap();
    hub.publish([put(key(1, "a"), 1)], Revision(1));
    hub.reset(Revision(50));
    assert_eq!(ready(&mut watch), [1]);
    assert!(matches!(watch.try_next(), Some(Err(WatchError::Lagged))));
    assert!(hub.watch(KeyRange::All, Revision(49)).is_none());
    let mut later = hub.watch(KeyRange::All, Revision(50)).unwrap();
    hub.publish([put(key(1, "a"), 51)], Revision(51));
    assert_eq!(ready(&mut later), [51]);
}

/// A source that knows every revision divisible by `step`, and hands out a few at a time.
struct Archive {
    step: u64,
    newest: u64,
}

#[async_trait]
impl History for Archive {
    async fn page(&mut self, after: Revision) -> Result<HistoryPage, WatchError> {
        let covered = (after.0 + 7).min(self.newest);
        let revisions = (after.0 + 1..=covered).filter(|revision| revision % self.step == 0);
        let signals = revisions.map(|revision| put(key(1, "a"), revision)).collect();
        Ok(HistoryPage {
            signals,
            covered: Revision(covered),
        })
    }
}

#[tokio::test]
async fn history_is_read_until_memory_reaches_back_and_meets_it_exactly() {
    let hub = Hub::new(Revision(100), SMALL);
    let archive = Box::new(Archive { step: 3, newest: 200 });
    let mut watch = hub.watch_with(plane(1).all(), Revision(10), archive);
    assert!(watch.try_next().is_none(), "history has to be waited for");
    assert_eq!(watch.caught_up(), None);
    // The ring forgets 101 to 104 before the history has been read: the history reaches further than it did.
    for revision in 101..=120 {
        let plane = if revision % 3 == 0 { 1 } else { 2 };
        hub.publish([put(key(plane, "a"), revision)], Revision(revision));
    }
    let mut seen = Vec::new();
    while watch.caught_up().is_none() {
        seen.push(revision_of(&watch.next().await.unwrap()).0);
    }
    assert_eq!(
        seen,
        (11..=120).filter(|revision| revision % 3 == 0).collect::<Vec<_>>()
    );
    assert_eq!(watch.caught_up(), Some(Revision(120)));
}

#[tokio::test]
async fn history_that_ends_before_memory_begins_is_a_lag() {
    let hub = Hub::new(Revision(100), SMALL);
    let mut watch = hub.watch_with(plane(1).all(), Revision(10), Box::new(Archive { step: 50, newest: 60 }));
    assert_eq!(revision_of(&watch.next().await.unwrap()), Revision(50));
    assert!(matches!(watch.next().await, Err(WatchError::Lagged)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_gap_and_no_duplicate_while_watches_come_and_go() {
    const LAST: u64 = 20_000;
    let hub = Hub::new(
        Revision(0),
        Limits {
            buffer: 16,
            ring: 100_000,
            ring_bytes: 1 << 30,
            ..Limits::default()
        },
    );
    let publisher = hub.clone();
    let publishing = std::thread::spawn(move || {
        let mut revision = 0;
        while revision < LAST {
            let batch: Vec<_> = (1..=1 + revision % 5)
                .map(|i| put(key((revision + i) % 3, "a"), revision + i))
                .collect();
            revision += batch.len() as u64;
            publisher.publish(batch, Revision(revision));
        }
    });
    let readers: Vec<_> = (0..40u64)
        .map(|n| {
            let hub = hub.clone();
            tokio::spawn(async move {
                let after = hub.position().0 * (n % 4) / 4;
                let mut watch = hub.watch(plane(n % 3).all(), Revision(after)).unwrap();
                let mut expected = after + 1;
                while expected <= LAST {
                    if expected % 3 == n % 3 {
                        assert_eq!(revision_of(&watch.next().await.unwrap()), Revision(expected));
                    }
                    if let Some(caught_up) = watch.caught_up() {
                        assert!(caught_up.0 >= expected || expected % 3 != n % 3);
                    }
                    expected += 1;
                }
            })
        })
        .collect();
    for reader in readers {
        reader.await.unwrap();
    }
    publishing.join().unwrap();
}

#[test]
fn an_idle_watch_is_small() {
    // The watcher, the reader's end, a bucket with one slot and its share of the plane's table.
    let bytes = size_of::<index::Watcher>() + 16 + size_of::<HubWatch>() + 2 * (16 + size_of::<usize>() * 4) + 200;
    assert!(bytes < 800, "{bytes}");
}

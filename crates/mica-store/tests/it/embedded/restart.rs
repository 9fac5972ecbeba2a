//! What is there after the store was closed and opened again, with its index or without.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use mica_api::{GroupResource, PlaneId};
use mica_store::embedded::{Durability, EmbeddedStore, Options};
use mica_store::{
    Change, Compare, Key, KeyRange, PlaneKeys, RangeQuery, ReadError, Record, Revision, Signal, Store, Txn, Write,
};

use super::{forgetful, tiny, wait_for_segments};

fn plane(number: u64) -> PlaneKeys {
    PlaneKeys::new(PlaneId::from_random(number))
}

fn things() -> GroupResource {
    GroupResource::new("", "things")
}

fn key(plane_number: u64, name: &str) -> Key {
    plane(plane_number).object(&things(), Some("ns"), name)
}

async fn put(store: &EmbeddedStore, key: &Key, value: &str) -> Revision {
    put_for(store, key, value, None).await
}

async fn put_for(store: &EmbeddedStore, key: &Key, value: &str, ttl: Option<Duration>) -> Revision {
    let writes = vec![Write::Put {
        key: key.clone(),
        value: Bytes::from(value.to_owned()),
        ttl,
    }];
    store
        .commit(Txn {
            compares: vec![],
            writes,
        })
        .await
        .unwrap()
        .revision
}

async fn write(store: &EmbeddedStore, write: Write) -> Revision {
    store
        .commit(Txn {
            compares: vec![],
            writes: vec![write],
        })
        .await
        .unwrap()
        .revision
}

async fn list(store: &EmbeddedStore, range: &KeyRange, at: Option<Revision>) -> Vec<(Key, Record)> {
    store
        .range(RangeQuery {
            range,
            at,
            after: None,
            limit: 100_000,
        })
        .await
        .unwrap()
        .records
}

fn in_short(records: Vec<(Key, Record)>) -> Vec<String> {
    let short = |(key, record): (Key, Record)| format!("{key:?} {} {}", record.revision, record.value.len());
    records.into_iter().map(short).collect()
}

/// Everything that can be read of some planes: states at all revisions, and the history.
async fn everything(store: &EmbeddedStore, planes: &[u64], from: Revision) -> Vec<String> {
    let mut read = Vec::new();
    let newest = store.status().await.unwrap();
    read.push(format!("{newest:?}"));
    let mut ranges: Vec<_> = planes.iter().map(|number| plane(*number).all()).collect();
    ranges.extend([KeyRange::All, KeyRange::AllPlanes(things())]);
    for at in (from.0..=newest.revision.0).map(Revision) {
        for range in &ranges {
            read.push(format!("{range:?} at {at}: {:?}", list(store, range, Some(at)).await));
        }
    }
    let mut watch = store.watch(KeyRange::All, from).await.unwrap();
    while watch.caught_up().is_none_or(|complete| complete < newest.revision) {
        let signal = tokio::time::timeout(Duration::from_secs(30), watch.next())
            .await
            .unwrap()
            .unwrap();
        read.push(match signal {
            Signal::Event(event) => format!(
                "{:?} {} {:?} {:?}",
                event.key, event.revision, event.change, event.previous
            ),
            dropped => format!("{dropped:?}"),
        });
    }
    read
}

/// A history with everything in it.
async fn eventful(store: &EmbeddedStore) {
    for round in 0..30 {
        for number in 1..=3 {
            put(
                store,
                &key(number, &format!("k{}", round % 7)),
                &format!("{round}-{}", "x".repeat(100)),
            )
            .await;
        }
        if round % 5 == 4 {
            write(
                store,
                Write::Delete {
                    key: key(2, &format!("k{}", round % 7)),
                },
            )
            .await;
        }
    }
    write(store, Write::DropPlane(plane(3).plane())).await;
    put(store, &key(1, "after the drop"), "x").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_sees_what_was_there_and_what_was_just_written() {
    let directory = tempfile::tempdir().unwrap();
    for number in 1..=20 {
        let store = EmbeddedStore::open(directory.path(), Options::default()).unwrap();
        let before = store.check().unwrap();
        assert_eq!(
            (before.problems, before.log_records),
            (vec![], number - 1),
            "opening {number}"
        );
        assert_eq!(
            before.segments,
            u64::from(number > 1),
            "a store that was only opened has no segment"
        );
        put(&store, &key(1, "k"), "v").await;
        assert_eq!(store.check().unwrap().log_records, number);
        store.close();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reopened_store_reads_the_same_with_or_without_its_index() {
    for options in [Options::default, tiny] {
        let directory = tempfile::tempdir().unwrap();
        let store = EmbeddedStore::open(directory.path(), options()).unwrap();
        eventful(&store).await;
        let before = everything(&store, &[1, 2, 3], Revision(1)).await;
        store.close();
        let store = EmbeddedStore::open(directory.path(), options()).unwrap();
        assert_eq!(everything(&store, &[1, 2, 3], Revision(1)).await, before, "reopened");
        store.close();
        std::fs::remove_dir_all(directory.path().join("index")).unwrap();
        let store = EmbeddedStore::open(directory.path(), options()).unwrap();
        assert_eq!(everything(&store, &[1, 2, 3], Revision(1)).await, before, "rebuilt");
        assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_index_is_rebuilt() {
    let directory = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(directory.path(), tiny()).unwrap();
    eventful(&store).await;
    let before = everything(&store, &[1, 2, 3], Revision(1)).await;
    store.close();
    // Each file of the index in turn, cut in half: the store opens, and reads the same or says that it is damaged.
    let index = directory.path().join("index");
    for file in files(&index) {
        let whole = std::fs::read(&file).unwrap();
        let copy = tempfile::tempdir().unwrap();
        copy_tree(directory.path(), copy.path());
        let target = copy.path().join(file.strip_prefix(directory.path()).unwrap());
        std::fs::write(&target, &whole[..whole.len() / 2]).unwrap();
        let store = EmbeddedStore::open(copy.path(), tiny()).unwrap();
        assert_eq!(
            everything(&store, &[1, 2, 3], Revision(1)).await,
            before,
            "without half of {}",
            file.display()
        );
    }
}

fn files(directory: &Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push(path);
        }
    }
    found
}

fn copy_tree(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_tree(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compaction_and_revisions_survive_a_restart_even_if_nothing_is_left() {
    for index_lost in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let store = EmbeddedStore::open(directory.path(), tiny()).unwrap();
        for i in 0..200 {
            put(&store, &key(1, "a"), &format!("{i}-{}", "x".repeat(500))).await;
        }
        let deleted = write(&store, Write::Delete { key: key(1, "a") }).await;
        store.compact(deleted).await.unwrap();
        let before = store.status().await.unwrap();
        store.close();
        if index_lost {
            std::fs::remove_dir_all(directory.path().join("index")).unwrap();
        }
        let store = EmbeddedStore::open(directory.path(), tiny()).unwrap();
        assert_eq!(store.status().await.unwrap(), before);
        assert!(put(&store, &key(1, "a"), "again").await > deleted);
        let old = plane(1).all();
        let read = store
            .range(RangeQuery {
                range: &old,
                at: Some(Revision(5)),
                after: None,
                limit: 1,
            })
            .await;
        assert!(matches!(read, Err(ReadError::Expired { .. })), "{read:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quiet_planes_stay_quiet_over_a_restart_and_never_lie_after_a_rebuild() {
    let directory = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(directory.path(), tiny()).unwrap();
    let quiet_since = put(&store, &key(1, "quiet"), "1").await;
    put(&store, &key(2, "goes"), "1").await;
    let before_delete = put(&store, &key(2, "stays"), "1").await;
    write(&store, Write::Delete { key: key(2, "goes") }).await;
    for i in 0..500 {
        put(&store, &key(3, "busy"), &format!("{i}-{}", "x".repeat(300))).await;
    }
    let newest = store.status().await.unwrap().revision;
    store.compact(newest).await.unwrap();
    store.close();
    let store = EmbeddedStore::open(directory.path(), tiny()).unwrap();
    assert_eq!(list(&store, &plane(1).all(), Some(quiet_since)).await.len(), 1);
    assert!(store.watch(plane(1).all(), quiet_since).await.is_ok());
    assert!(
        store.watch(plane(2).all(), before_delete).await.is_err(),
        "a delete is forgotten in between"
    );
    // The log forgets the delete with its segment; a rebuilt index must not take the plane for quiet since before.
    wait_for_segments(directory.path(), |segments| segments.len() <= 6).await;
    store.close();
    std::fs::remove_dir_all(directory.path().join("index")).unwrap();
    let store = EmbeddedStore::open(directory.path(), tiny()).unwrap();
    assert!(store.watch(plane(2).all(), before_delete).await.is_err());
    assert!(store.watch(plane(2).all(), newest).await.is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_is_cleaned_and_what_lives_is_carried_along() {
    let directory = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(directory.path(), forgetful()).unwrap();
    for i in 0..20 {
        put(&store, &key(1, &format!("old-{i}")), &format!("kept {i}")).await;
    }
    put(&store, &key(1, "deleted"), "x").await;
    write(&store, Write::Delete { key: key(1, "deleted") }).await;
    for i in 0..20 {
        put(&store, &key(4, &format!("dropped-{i}")), "x").await;
    }
    write(&store, Write::DropPlane(plane(4).plane())).await;
    let mut total = 0;
    while total < 4 << 20 {
        total += 2_000;
        put(&store, &key(2, &format!("busy-{}", total % 7)), &"y".repeat(2_000)).await;
    }
    let newest = store.status().await.unwrap().revision;
    let expected = in_short(list(&store, &KeyRange::All, None).await);
    assert_eq!(expected.len(), 27);
    wait_for_segments(directory.path(), |segments| segments.len() <= 12).await;
    assert_eq!(in_short(list(&store, &KeyRange::All, None).await), expected);
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
    store.close();
    for index_lost in [false, true] {
        if index_lost {
            std::fs::remove_dir_all(directory.path().join("index")).unwrap();
        }
        let store = EmbeddedStore::open(directory.path(), tiny()).unwrap();
        assert!(store.status().await.unwrap().revision >= newest);
        assert_eq!(
            in_short(list(&store, &KeyRange::All, None).await),
            expected,
            "nothing forgotten comes back"
        );
        assert_eq!(
            in_short(list(&store, &KeyRange::AllPlanes(things()), None).await),
            expected
        );
        assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
        store.close();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_expires_although_the_store_was_closed_meanwhile() {
    for index_lost in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let store = EmbeddedStore::open(directory.path(), tiny()).unwrap();
        put_for(&store, &key(1, "short"), "x", Some(Duration::from_millis(300))).await;
        put_for(&store, &key(1, "long"), "x", Some(Duration::from_secs(3600))).await;
        let after = store.status().await.unwrap().revision;
        store.close();
        if index_lost {
            std::fs::remove_dir_all(directory.path().join("index")).unwrap();
        }
        let store = EmbeddedStore::open(directory.path(), tiny()).unwrap();
        let mut watch = store.watch(plane(1).all(), after).await.unwrap();
        let signal = tokio::time::timeout(Duration::from_secs(30), watch.next())
            .await
            .unwrap()
            .unwrap();
        let Signal::Event(event) = signal else {
            panic!("{signal:?}")
        };
        assert_eq!((event.key.name(), &event.change), ("short", &Change::Delete));
        assert_eq!(list(&store, &plane(1).all(), None).await.len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_plane_takes_no_put() {
    let directory = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(directory.path(), tiny()).unwrap();
    put(&store, &key(1, "a"), "x").await;
    write(&store, Write::DropPlane(plane(1).plane())).await;
    let put = Write::Put {
        key: key(1, "b"),
        value: Bytes::new(),
        ttl: None,
    };
    let late = store
        .commit(Txn {
            compares: vec![Compare::Absent(key(1, "b"))],
            writes: vec![put],
        })
        .await;
    assert!(late.is_err(), "{late:?}");
    assert_eq!(list(&store, &plane(1).all(), None).await, []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_closing_everything_is_refused_and_watches_end() {
    let directory = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(directory.path(), tiny()).unwrap();
    let revision = put(&store, &key(1, "a"), "x").await;
    let mut watch = store.watch(KeyRange::All, revision).await.unwrap();
    store.close();
    store.close();
    assert!(matches!(watch.next().await, Err(mica_store::WatchError::Closed)));
    let writes = vec![Write::Delete { key: key(1, "a") }];
    assert!(
        store
            .commit(Txn {
                compares: vec![],
                writes
            })
            .await
            .is_err()
    );
    assert!(store.compact(revision).await.is_err());
}

/// Without waiting for the disk, what was acknowledged is still there for whoever opens the directory next.
#[tokio::test]
async fn a_store_that_does_not_sync_keeps_what_the_system_keeps() {
    let home = tempfile::tempdir().unwrap();
    let options = || Options {
        durability: Durability::Process,
        ..tiny()
    };
    for round in 0..3 {
        let store = EmbeddedStore::open(home.path(), options()).unwrap();
        for earlier in 0..round {
            let record = store.get(&key(1, &format!("k{earlier}"))).await.unwrap();
            assert_eq!(record.unwrap().value, "v", "round {round}");
        }
        put(&store, &key(1, &format!("k{round}")), "v").await;
        store.close();
    }
    // Both kinds read each other's files.
    let store = EmbeddedStore::open(home.path(), tiny()).unwrap();
    assert!(store.get(&key(1, "k2")).await.unwrap().is_some());
}

//! What a watch missed is told alike, whether it is found by reading the log or by looking at the keys of its range.

use bytes::Bytes;
use mica_api::{GroupResource, PlaneId};
use mica_store::embedded::EmbeddedStore;
use mica_store::{Change, Key, KeyRange, PlaneKeys, Revision, Signal, Store, Txn, Watch, Write};

use super::{segments, tiny, wait_for_segments};

/// A key with the values before and after, and the revision.
type Told = (Revision, Key, Option<Bytes>, Option<Bytes>);

async fn commit(store: &EmbeddedStore, write: Write) -> Revision {
    let (compares, writes) = (Vec::new(), vec![write]);
    store.commit(Txn { compares, writes }).await.unwrap().revision
}

/// The next change that a watch tells.
async fn next(watch: &mut Watch) -> Told {
    let signal = std::future::poll_fn(|cx| watch.poll_next(cx)).await.unwrap();
    let Signal::Event(event) = signal else {
        panic!("no plane was dropped")
    };
    let value = match &event.change {
        Change::Put(value) => Some(value.clone()),
        Change::Delete => None,
    };
    let previous = event.previous.as_ref().map(|record| record.value.clone());
    (event.revision, event.key.clone(), previous, value)
}

/// The first changes that a watch tells of a range after a revision.
async fn told(store: &EmbeddedStore, range: &KeyRange, after: Revision, count: usize) -> Vec<Told> {
    let mut watch = store.watch(range.clone(), after).await.unwrap();
    let mut told = Vec::new();
    while told.len() < count {
        told.push(next(&mut watch).await);
    }
    told
}

/// Few keys that change often, which are looked at, among many that change once or twice, for which the log is read; in
/// segments of a few records.
#[tokio::test]
async fn it_does_not_matter_how_a_change_is_found() {
    let directory = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(directory.path(), tiny()).unwrap();
    let busy = GroupResource::new("", "busy");
    let many = GroupResource::new("example.com", "many");
    let plane = |number| PlaneKeys::new(PlaneId::from_random(number));
    let mut happened: Vec<Told> = Vec::new();
    let mut values = std::collections::BTreeMap::<Key, Bytes>::new();
    for step in 0..2_000_u64 {
        let key = match step % 4 {
            0 => plane(1).object(&busy, Some("ns"), &format!("b{}", step % 3)),
            _ => plane(step % 7).object(&many, Some("ns"), &format!("m{}", step % 900)),
        };
        let previous = values.get(&key).cloned();
        let write = if previous.is_some() && step % 5 == 0 {
            values.remove(&key);
            Write::Delete { key: key.clone() }
        } else {
            let value = Bytes::from(format!("{step:0>900}"));
            values.insert(key.clone(), value.clone());
            let (key, ttl) = (key.clone(), None);
            Write::Put { key, value, ttl }
        };
        let revision = commit(&store, write).await;
        happened.push((revision, key.clone(), previous, values.get(&key).cloned()));
        if step == 500 {
            store.compact(revision).await.unwrap();
        }
    }
    let keys = happened.iter().map(|(_, key, ..)| key.clone());
    let ranges = [
        KeyRange::All,
        KeyRange::AllPlanes(busy.clone()),
        KeyRange::AllPlanes(many.clone()),
        plane(1).all(),
        plane(1).resource(&busy),
        plane(3).namespace(&many, "ns"),
        KeyRange::One(keys.max().unwrap()),
    ];
    for range in ranges {
        for from in [501, 700, 1_500, 1_900] {
            let after = happened[from].0;
            let expected = happened[from + 1..].iter().filter(|(_, key, ..)| range.contains(key));
            let expected: Vec<_> = expected.cloned().collect();
            let told = told(&store, &range, after, expected.len()).await;
            assert!(told == expected, "{range:?} after {after:?}");
        }
    }
    store.close();
}

/// A watch that has read the log to its end goes on with the segment that comes next, should the one that it was in be gone:
/// all of that is compacted.
#[tokio::test]
async fn a_watch_goes_on_after_the_segment_that_it_was_in_is_gone() {
    let directory = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(directory.path(), tiny()).unwrap();
    let things = GroupResource::new("", "things");
    let [watched, other] = [1, 2].map(|number| PlaneKeys::new(PlaneId::from_random(number)));
    let put = |keys: PlaneKeys, name: &str, value: Bytes| Write::Put {
        key: keys.object(&things, None, name),
        value,
        ttl: None,
    };
    // To look at so many keys would take longer than to read what follows of the log.
    let small = |n| put(watched, &format!("k{n}"), Bytes::from_static(b"x"));
    let (compares, writes) = (Vec::new(), (0..60).map(small).collect());
    store.commit(Txn { compares, writes }).await.unwrap();
    // More than is kept at hand for watches.
    let much_happens = async || {
        for _ in 0..70 {
            commit(&store, put(other, "small", Bytes::from_static(b"1"))).await;
        }
    };
    let before = store.status().await.unwrap().revision;
    much_happens().await;
    // Each of these about fills a segment, and all are dead in the end.
    for _ in 0..3 {
        commit(&store, put(watched, "gone", Bytes::from(vec![2; 15_000]))).await;
    }
    let key = watched.object(&things, None, "gone");
    let deleted = commit(&store, Write::Delete { key }).await;
    let mut watch = store.watch(watched.all(), before).await.unwrap();
    while next(&mut watch).await.0 < deleted {}

    let passed = segments(directory.path()).pop_last().unwrap();
    commit(&store, put(other, "next", Bytes::from(vec![3; 8_000]))).await;
    store.compact(deleted).await.unwrap();
    much_happens().await;
    wait_for_segments(directory.path(), |names| !names.contains(&passed)).await;
    let last = commit(&store, put(watched, "last", Bytes::from_static(b"4"))).await;
    assert_eq!(next(&mut watch).await.0, last);
    store.close();
}

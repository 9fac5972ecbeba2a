//! Which revisions can be read when somebody else compacts.

use mica_store::{EtcdStore, KeyRange, RangeQuery, ReadError, Revision, Store};

use crate::server::{EtcdServer, commit, eventually, next, plane, put, thing};

#[tokio::test(flavor = "multi_thread")]
async fn a_compaction_by_others_is_found_out() {
    let etcd = EtcdServer::start();
    let (one, two) = (etcd.connect().await, etcd.connect().await);
    let key = thing(plane(), "a");
    let mut revisions = Vec::new();
    for i in 0..50 {
        revisions.push(commit(&one, put(&key, i.to_string())).await);
    }
    for at in [10, 30, 31, 49] {
        two.compact(revisions[at]).await.unwrap();
        assert_eq!(one.status().await.unwrap().compacted, revisions[at]);
        let range = KeyRange::AllPlanes(key.group_resource());
        let read = |revision| {
            one.range(RangeQuery {
                range: &range,
                at: Some(revision),
                after: None,
                limit: 1,
            })
        };
        assert!(read(revisions[at]).await.is_ok());
        match read(Revision(revisions[at].0 - 1)).await {
            Err(ReadError::Expired { compacted }) => assert_eq!(compacted, revisions[at]),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_server_knows_nothing_of_before_a_compaction() {
    let etcd = EtcdServer::start();
    let plane = plane();
    let key = thing(plane, "a");
    let old = etcd.connect().await;
    let first = commit(&old, put(&key, "1")).await;
    let second = commit(&old, put(&key, "2")).await;
    let last = commit(&old, put(&thing(plane, "b"), "1")).await;
    old.compact(second).await.unwrap();
    drop(old);
    let new = etcd.connect().await;
    for range in [plane.all(), KeyRange::One(key.clone())] {
        assert!(matches!(new.watch(range, first).await, Err(ReadError::Expired { .. })));
    }
    let mut watch = new.watch(plane.all(), second).await.unwrap();
    assert_eq!(next(&mut watch).await, "b=1");
    // It has seen since then that nothing changed, and can say so after a further compaction.
    eventually("the server's having seen it", || {
        let caught_up = watch.caught_up();
        async move { caught_up >= Some(last) }
    })
    .await;
    let elsewhere = thing(crate::server::plane(), "c");
    commit(&new, put(&elsewhere, "1")).await;
    let newest = commit(&new, put(&elsewhere, "2")).await;
    new.compact(newest).await.unwrap();
    assert!(new.watch(plane.all(), last).await.is_ok());
}

/// More than the hub remembers, so that old watches read from etcd's history, across several of its answers.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_history_is_replayed_in_order() {
    const EVENTS: usize = 5_000;
    let etcd = EtcdServer::start();
    let limits = mica_store::hub::Limits {
        ring: 10,
        ..Default::default()
    };
    let store = EtcdStore::connect_with(etcd.config(), limits).await.unwrap();
    let plane = plane();
    let start = store.status().await.unwrap().revision;
    for chunk in (0..EVENTS).collect::<Vec<_>>().chunks(50) {
        let txns = chunk.iter().map(|i| put(&thing(plane, &format!("k{i}")), "v"));
        futures::future::join_all(txns.map(|txn| commit(&store, txn))).await;
    }
    for range in [plane.all(), plane.resource(&crate::server::things()), KeyRange::All] {
        let mut watch = store.watch(range, start).await.unwrap();
        let mut seen = std::collections::HashSet::new();
        for _ in 0..EVENTS {
            assert!(seen.insert(next(&mut watch).await), "an event came twice");
        }
        assert!(watch.try_next().is_none());
    }
}

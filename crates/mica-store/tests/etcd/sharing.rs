//! Several servers on one etcd.

use std::sync::Arc;
use std::time::Duration;

use mica_store::store::WatchError;
use mica_store::{EtcdStore, KeyRange, RangeQuery, Revision, Store, Write};

use crate::admin;
use crate::server::{EtcdServer, commit, config, eventually, next, plane, put, thing, things, value, within, write};

#[tokio::test(flavor = "multi_thread")]
async fn servers_see_each_others_writes() {
    let etcd = EtcdServer::start();
    let (one, two) = (etcd.connect().await, etcd.connect().await);
    let plane = plane();
    let (a, b) = (thing(plane, "a"), thing(plane, "b"));
    let start = one.status().await.unwrap().revision;
    let mut watch = two.watch(plane.resource(&things()), start).await.unwrap();
    commit(&one, put(&a, "1")).await;
    assert_eq!(
        value(&two, &a).await.as_deref(),
        Some("1"),
        "a later read on another server sees it"
    );
    commit(&two, put(&b, "2")).await;
    assert_eq!(value(&one, &b).await.as_deref(), Some("2"));
    commit(&one, write(Write::Delete { key: a.clone() })).await;
    for expected in ["a=1", "b=2", "a-"] {
        assert_eq!(next(&mut watch).await, expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plane_filled_by_one_server_is_read_and_dropped_by_another() {
    let etcd = EtcdServer::start();
    let (one, two) = (etcd.connect().await, etcd.connect().await);
    let plane = plane();
    for name in ["a", "b", "c"] {
        commit(&one, put(&thing(plane, name), "1")).await;
    }
    let range = plane.all();
    let query = RangeQuery {
        range: &range,
        at: None,
        after: None,
        limit: 10,
    };
    let page = two.range(query.clone()).await.unwrap();
    assert_eq!(page.records.len(), 3);
    let mut inside = one.watch(range.clone(), page.revision).await.unwrap();
    let mut outside = one.watch(KeyRange::AllPlanes(things()), page.revision).await.unwrap();
    commit(&two, write(Write::DropPlane(plane.plane()))).await;
    assert!(matches!(
        within("the end", inside.next()).await,
        Err(WatchError::Dropped)
    ));
    assert_eq!(next(&mut outside).await, format!("!{}", plane.plane()));
    assert!(one.range(query).await.unwrap().records.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_plane_can_be_dropped_and_ends_its_watches() {
    let etcd = EtcdServer::start();
    let (one, two) = (etcd.connect().await, etcd.connect().await);
    let plane = plane();
    let start = one.status().await.unwrap().revision;
    let mut watch = one.watch(plane.all(), start).await.unwrap();
    commit(&two, write(Write::DropPlane(plane.plane()))).await;
    assert!(matches!(
        within("the end", watch.next()).await,
        Err(WatchError::Dropped)
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_goes_on_with_the_server_that_is_started_next() {
    let etcd = EtcdServer::start();
    let plane = plane();
    let old = etcd.connect().await;
    let first = commit(&old, put(&thing(plane, "a"), "1")).await;
    for i in 2..20 {
        commit(&old, put(&thing(plane, "a"), i.to_string())).await;
    }
    drop(old);
    let new = etcd.connect().await;
    let mut watch = new.watch(plane.all(), first).await.unwrap();
    for i in 2..20 {
        assert_eq!(next(&mut watch).await, format!("a={i}"));
    }
}

/// Others may use the same etcd. Their writes make revisions that our watch has no event for.
#[tokio::test(flavor = "multi_thread")]
async fn a_watch_catches_up_with_revisions_that_others_make() {
    let etcd = EtcdServer::start();
    let store = etcd.connect().await;
    let key = thing(plane(), "a");
    let start = commit(&store, put(&key, "1")).await;
    let mut watch = store.watch(KeyRange::One(key.clone()), start).await.unwrap();
    for i in 0..5 {
        admin::put(&etcd.endpoint(), "/somebody/else", i.to_string().into()).await;
    }
    let newest = store.status().await.unwrap().revision;
    assert!(newest >= Revision(start.0 + 5));
    let caught_up = within("catching up", async {
        loop {
            match watch.caught_up() {
                Some(revision) if revision >= newest => break revision,
                _ => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    })
    .await;
    let next_change = commit(&store, put(&key, "2")).await;
    assert!(next_change > caught_up);
    assert_eq!(next(&mut watch).await, "a=2");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_prefixes_do_not_see_each_other() {
    let etcd = EtcdServer::start();
    let mut other = etcd.config();
    other.prefix = "/mica-other".into();
    let (one, two) = (etcd.connect().await, EtcdStore::connect(other).await.unwrap());
    let key = thing(plane(), "a");
    commit(&one, put(&key, "1")).await;
    assert_eq!(value(&two, &key).await, None);
    let query = RangeQuery {
        range: &KeyRange::All,
        at: None,
        after: None,
        limit: 10,
    };
    assert!(two.range(query).await.unwrap().records.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_take_turns_in_compacting() {
    let etcd = EtcdServer::start();
    let mut compacting = config([etcd.endpoint()]);
    compacting.compaction = Some(Duration::from_millis(300));
    let one = EtcdStore::connect(compacting.clone()).await.unwrap();
    let two = Arc::new(EtcdStore::connect(compacting).await.unwrap());
    let key = thing(plane(), "a");
    let first = commit(&one, put(&key, "1")).await;
    let mut last = commit(&one, put(&key, "2")).await;
    eventually("an automatic compaction beyond the first write", || {
        let two = two.clone();
        async move { two.status().await.unwrap().compacted > first }
    })
    .await;
    // The one who compacted is gone; another takes over.
    drop(one);
    last = last.max(commit(&two, put(&key, "3")).await);
    eventually("an automatic compaction by the one who is left", || {
        let two = two.clone();
        async move { two.status().await.unwrap().compacted > last }
    })
    .await;
    assert_eq!(value(&two, &key).await.as_deref(), Some("3"));
}

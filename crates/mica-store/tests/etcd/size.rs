//! Large values, long ranges and large transactions.

use bytes::Bytes;
use mica_api::GroupResource;
use mica_store::{CommitError, KeyRange, RangeQuery, Store, Txn, Write};

use crate::server::{EtcdServer, commit, plane, put, thing, things};

#[tokio::test(flavor = "multi_thread")]
async fn ranges_larger_than_any_answer_are_read_whole() {
    const OBJECTS: usize = 120;
    let etcd = EtcdServer::start();
    let store = etcd.connect().await;
    let plane = plane();
    let value = Bytes::from(vec![b'x'; 1 << 20]);
    for i in 0..OBJECTS {
        commit(&store, put(&thing(plane, &format!("k{i:03}")), value.clone())).await;
    }
    for range in [plane.resource(&things()), plane.all(), KeyRange::All] {
        let (mut names, mut at, mut after) = (Vec::new(), None, None);
        loop {
            let page = store
                .range(RangeQuery {
                    range: &range,
                    at,
                    after: after.as_ref(),
                    limit: OBJECTS,
                })
                .await
                .unwrap();
            assert!(page.records.len() < OBJECTS, "a page has a bound in bytes, too");
            at = Some(page.revision);
            names.extend(page.records.iter().map(|(key, _)| key.name().to_owned()));
            after = page.records.last().map(|(key, _)| key.clone());
            if !page.more {
                break;
            }
        }
        assert!(
            names
                .iter()
                .eq((0..OBJECTS).map(|i| format!("k{i:03}")).collect::<Vec<_>>().iter()),
            "{range:?}"
        );
    }
    let usage = store.usage(&plane.all()).await.unwrap();
    assert_eq!(usage.records, OBJECTS as u64);
    assert!(usage.bytes > (OBJECTS << 20) as u64);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_small_objects_of_many_resources_are_listed_in_order() {
    let etcd = EtcdServer::start();
    let store = etcd.connect().await;
    let planes = [plane(), plane()];
    let mut keys = Vec::new();
    for plane in planes {
        for resource in 0..100 {
            // Some short, some longer than what is read of each at once.
            for object in 0..if resource % 10 == 0 { 40 } else { 2 } {
                keys.push(plane.object(
                    &GroupResource::new("g", &format!("r{resource}")),
                    None,
                    &format!("o{object}"),
                ));
            }
        }
    }
    for some in keys.chunks(50) {
        futures::future::join_all(some.iter().map(|key| commit(&store, put(key, "v")))).await;
    }
    keys.sort();
    for range in [KeyRange::All, planes[0].all()] {
        let expected: Vec<_> = keys.iter().filter(|key| range.contains(key)).cloned().collect();
        for limit in [7, 333, 10_000] {
            let (mut listed, mut at) = (Vec::new(), None);
            loop {
                let after = listed.last();
                let page = store
                    .range(RangeQuery {
                        range: &range,
                        at,
                        after,
                        limit,
                    })
                    .await
                    .unwrap();
                at = Some(page.revision);
                listed.extend(page.records.into_iter().map(|(key, _)| key));
                if !page.more {
                    break;
                }
            }
            assert_eq!(listed, expected, "{range:?} in pages of {limit}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_may_touch_as_many_new_resources_as_etcd_takes_operations() {
    let etcd = EtcdServer::start();
    let store = etcd.connect().await;
    let plane = plane();
    let puts = |count: usize| -> Vec<Write> {
        let key = |i| plane.object(&GroupResource::new("g", &format!("r{i}")), None, "x");
        (0..count)
            .map(|i| Write::Put {
                key: key(i),
                value: "v".into(),
                ttl: None,
            })
            .collect()
    };
    commit(
        &store,
        Txn {
            compares: vec![],
            writes: puts(128),
        },
    )
    .await;
    let all = plane.all();
    let page = store
        .range(RangeQuery {
            range: &all,
            at: None,
            after: None,
            limit: 1000,
        })
        .await
        .unwrap();
    assert_eq!(page.records.len(), 128);
    let refused = store
        .commit(Txn {
            compares: vec![],
            writes: puts(129),
        })
        .await;
    assert!(matches!(refused, Err(CommitError::TooLarge(_))), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_too_large_for_etcd_is_refused() {
    let etcd = EtcdServer::start();
    let store = etcd.connect().await;
    let key = thing(plane(), "a");
    for size in [2 << 20, 5 << 20] {
        let refused = store.commit(put(&key, vec![0; size])).await;
        assert!(matches!(refused, Err(CommitError::TooLarge(_))), "{refused:?}");
    }
    commit(&store, put(&key, vec![0; 1 << 20])).await;
}

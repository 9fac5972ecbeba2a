//! Dropping planes that hold many resources.

use mica_api::GroupResource;
use mica_store::{Compare, EtcdStore, KeyRange, RangeQuery, Store, Txn, Write};

use mica_store::etcd::range;

use crate::server::{EtcdServer, commit, config, next, plane, put, thing, value, write};

fn resource(number: usize) -> GroupResource {
    GroupResource::new("example.com", &format!("kind{number}s"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plane_of_many_resources_is_dropped_in_one_revision() {
    const RESOURCES: usize = 300;
    let etcd = EtcdServer::start();
    let store = etcd.connect().await;
    let (doomed, kept) = (plane(), plane());
    for number in 0..RESOURCES {
        commit(&store, put(&doomed.object(&resource(number), None, "x"), "v")).await;
    }
    let registered = thing(kept, "registered");
    let before = commit(&store, put(&registered, "yes")).await;
    let mut watch = store.watch(KeyRange::All, before).await.unwrap();
    let drop = Txn {
        compares: vec![Compare::Unchanged(registered.clone(), before)],
        writes: vec![
            Write::DropPlane(doomed.plane()),
            Write::Delete {
                key: registered.clone(),
            },
        ],
    };
    let dropped = commit(&store, drop).await;
    assert_eq!(dropped.0, before.0 + 1);
    assert_eq!(next(&mut watch).await, "registered-");
    assert_eq!(next(&mut watch).await, format!("!{}", doomed.plane()));
    commit(&store, put(&registered, "again")).await;
    assert_eq!(next(&mut watch).await, "registered=again");
    let all = doomed.all();
    let query = |at| RangeQuery {
        range: &all,
        at,
        after: None,
        limit: RESOURCES * 2,
    };
    assert!(store.range(query(None)).await.unwrap().records.is_empty());
    assert_eq!(store.range(query(Some(before))).await.unwrap().records.len(), RESOURCES);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prefix_is_cleared_whole_and_its_neighbours_are_not() {
    const OBJECTS: usize = 2500;
    let etcd = EtcdServer::start();
    let below = |prefix: &str| {
        let mut config = config([etcd.endpoint()]);
        config.prefix = prefix.to_owned();
        config
    };
    let (doomed, neighbour) = (below("/all/a"), below("/all/a-b"));
    assert!(range::is_empty(&doomed).await.unwrap());
    let plane = plane();
    for (config, objects) in [(&doomed, OBJECTS), (&neighbour, 1)] {
        let store = EtcdStore::connect(config.clone()).await.unwrap();
        let writes = (0..objects).map(|number| put(&thing(plane, &format!("t{number}")), "v").writes);
        let writes: Vec<Write> = writes.flatten().collect();
        for some in writes.chunks(50) {
            let compares = Vec::new();
            let writes = some.to_vec();
            commit(&store, Txn { compares, writes }).await;
        }
        assert!(!range::is_empty(config).await.unwrap());
    }
    range::clear(&doomed).await.unwrap();
    assert!(range::is_empty(&doomed).await.unwrap());
    range::clear(&doomed).await.unwrap();
    let store = EtcdStore::connect(neighbour).await.unwrap();
    assert_eq!(value(&store, &thing(plane, "t0")).await.as_deref(), Some("v"));
}

#[tokio::test(flavor = "multi_thread")]
async fn several_planes_are_dropped_in_one_transaction() {
    let etcd = EtcdServer::start();
    let store = etcd.connect().await;
    let (one, two, empty) = (plane(), plane(), plane());
    for doomed in [one, two] {
        commit(&store, put(&thing(doomed, "a"), "1")).await;
    }
    let kept = thing(plane(), "a");
    let before = commit(&store, put(&kept, "1")).await;
    let mut watch = store
        .watch(KeyRange::AllPlanes(kept.group_resource()), before)
        .await
        .unwrap();
    let writes = [one, two, empty]
        .map(|doomed| Write::DropPlane(doomed.plane()))
        .to_vec();
    commit(
        &store,
        Txn {
            compares: vec![],
            writes,
        },
    )
    .await;
    let mut signals = vec![next(&mut watch).await, next(&mut watch).await, next(&mut watch).await];
    signals.sort();
    let mut expected = [one, two, empty].map(|doomed| format!("!{}", doomed.plane()));
    expected.sort();
    assert_eq!(signals, expected);
    assert_eq!(value(&store, &thing(one, "a")).await, None);
    assert_eq!(value(&store, &kept).await.as_deref(), Some("1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drop_does_not_race_with_a_resource_being_added() {
    let etcd = EtcdServer::start();
    let (one, two) = (etcd.connect().await, etcd.connect().await);
    for _ in 0..20 {
        let doomed = plane();
        commit(&one, put(&thing(doomed, "a"), "1")).await;
        let added = doomed.object(&resource(1), None, "x");
        let (_, put_revision) = tokio::join!(
            commit(&one, write(Write::DropPlane(doomed.plane()))),
            commit(&two, put(&added, "v"))
        );
        // Either the drop came first and the new object is there, or it came second and took the object with it; in both
        // cases the index is right and a second drop leaves nothing.
        let before = one.get(&added).await.unwrap();
        assert!(before.is_none_or(|record| record.revision == put_revision));
        commit(&two, write(Write::DropPlane(doomed.plane()))).await;
        assert_eq!(value(&one, &added).await, None);
    }
}

//! An etcd that is full.

use mica_store::{CommitError, RangeQuery, Store, Write};

use crate::admin;
use crate::server::{EtcdServer, commit, next, plane, put, thing, value, write};

#[tokio::test(flavor = "multi_thread")]
async fn a_full_etcd_says_so_takes_deletions_and_recovers() {
    let etcd = EtcdServer::start_with(&["--quota-backend-bytes", "16777216"]);
    let store = etcd.connect().await;
    let (full, doomed) = (plane(), plane());
    let filler = vec![b'x'; 1 << 20];
    let mut written = 0;
    let refusal = loop {
        assert!(written < 100, "the quota is never reached");
        let holder = if written % 2 == 0 { full } else { doomed };
        match store
            .commit(put(&thing(holder, &format!("k{written}")), filler.clone()))
            .await
        {
            Ok(_) => written += 1,
            Err(err) => break err,
        }
    };
    assert!(matches!(refusal, CommitError::NoSpace), "{refusal:?}");
    let start = store.status().await.unwrap().revision;
    let mut watch = store.watch(full.all(), start).await.unwrap();
    assert!(matches!(
        store.commit(put(&thing(full, "small"), "1")).await,
        Err(CommitError::NoSpace)
    ));

    // What makes room still works, and so do reads and watches.
    commit(&store, write(Write::Delete { key: thing(full, "k0") })).await;
    assert_eq!(next(&mut watch).await, "k0-");
    commit(&store, write(Write::DropPlane(doomed.plane()))).await;
    let all = doomed.all();
    let page = store
        .range(RangeQuery {
            range: &all,
            at: None,
            after: None,
            limit: 10,
        })
        .await
        .unwrap();
    assert!(page.records.is_empty());
    store.compact(page.revision).await.unwrap();
    // etcd compacts in the background: what it has not freed yet cannot be reclaimed, and the next write is refused again.
    let key = thing(full, "small");
    for attempt in 0.. {
        admin::reclaim_space(&etcd.endpoint()).await;
        match store.commit(put(&key, "1")).await {
            Ok(_) => break,
            Err(CommitError::NoSpace) if attempt < 100 => {}
            Err(error) => panic!("etcd has room again: {error:?}"),
        }
    }
    assert_eq!(value(&store, &key).await.as_deref(), Some("1"));
    assert_eq!(next(&mut watch).await, "small=1");
}

//! Lost connections, restarted and frozen servers, and members that go away.

use std::sync::Arc;
use std::time::Instant;

use mica_store::store::{Signal, WatchError};
use mica_store::{CommitError, EtcdStore, KeyRange, ReadError, Revision, Store};

use crate::proxy::{Mode, Proxy};
use crate::server::{
    Copy, EtcdServer, PATIENCE, commit, config, describe, eventually, next, plane, put, thing, value, within,
};

/// Writes numbers to one key until told to stop, and returns what is certain to be there and what may be.
async fn write_numbers(
    store: Arc<EtcdStore>,
    key: mica_store::Key,
    stop: tokio::sync::watch::Receiver<bool>,
) -> Vec<(u64, Outcome)> {
    let mut outcomes = Vec::new();
    for number in 0.. {
        if *stop.borrow() {
            break;
        }
        match store.commit(put(&key, number.to_string())).await {
            Ok(committed) => outcomes.push((number, Outcome::Done(committed.revision))),
            Err(CommitError::Unknown(_)) => outcomes.push((number, Outcome::Unknown)),
            Err(CommitError::Unavailable(_)) => {}
            Err(other) => panic!("{other:?}"),
        }
    }
    outcomes
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    Done(Revision),
    Unknown,
}

/// Checks that a watch saw each certain write once and in order, and nothing that was never written.
async fn check_history(mut watch: mica_store::Watch, outcomes: &[(u64, Outcome)], last: Revision) {
    let mut outcomes = outcomes.iter();
    loop {
        let signal = within("the next signal", watch.next())
            .await
            .expect("the watch survives");
        let Signal::Event(event) = &signal else {
            panic!("{signal:?}")
        };
        if event.revision == last {
            break;
        }
        let seen = describe(&signal);
        loop {
            let (number, outcome) = outcomes
                .next()
                .unwrap_or_else(|| panic!("{seen} was never written, or came twice"));
            if seen == format!("a={number}") {
                let certain = if let Outcome::Done(revision) = outcome {
                    *revision == event.revision
                } else {
                    true
                };
                assert!(certain, "{seen} has another revision than was said");
                break;
            }
            assert_eq!(
                *outcome,
                Outcome::Unknown,
                "{number} was written, but {seen} came in its place"
            );
        }
    }
    assert!(
        outcomes.all(|(_, outcome)| *outcome == Outcome::Unknown),
        "the last writes were not seen"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_survives_restarts_of_etcd_without_gap_or_duplicate() {
    let mut etcd = EtcdServer::start();
    let store = Arc::new(etcd.connect().await);
    let key = thing(plane(), "a");
    let start = store.status().await.unwrap().revision;
    let watch = store.watch(KeyRange::One(key.clone()), start).await.unwrap();
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let writer = tokio::spawn(write_numbers(store.clone(), key.clone(), stopped));
    for _ in 0..3 {
        let before = value(&store, &key).await;
        eventually("some writes", || async { value(&store, &key).await != before }).await;
        etcd.kill();
        etcd.restart();
        eventually("etcd's return", || async { store.get(&key).await.is_ok() }).await;
    }
    stop.send(true).unwrap();
    let outcomes = writer.await.unwrap();
    let last = commit(&store, put(&key, "end")).await;
    check_history(watch, &outcomes, last).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_loss_of_a_member_is_survived() {
    let mut members = EtcdServer::start_three();
    let endpoints = members.iter().map(EtcdServer::endpoint).collect::<Vec<_>>();
    let store = Arc::new(EtcdStore::connect(config(endpoints)).await.unwrap());
    let key = thing(plane(), "a");
    let start = store.status().await.unwrap().revision;
    let watch = store.watch(KeyRange::One(key.clone()), start).await.unwrap();
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let writer = tokio::spawn(write_numbers(store.clone(), key.clone(), stopped));
    for member in &mut members {
        let before = value(&store, &key).await;
        eventually("some writes", || async { value(&store, &key).await != before }).await;
        member.kill();
        let without = commit_eventually(&store, &thing(plane(), "without")).await;
        member.restart();
        eventually("the member's return", || async {
            let alone = config([member.endpoint()]);
            matches!(EtcdStore::connect(alone).await, Ok(store) if store.status().await.is_ok_and(|s| s.revision >= without))
        })
        .await;
    }
    stop.send(true).unwrap();
    let outcomes = writer.await.unwrap();
    let last = commit_eventually(&store, &key).await;
    check_history(watch, &outcomes, last).await;
}

async fn commit_eventually(store: &EtcdStore, key: &mica_store::Key) -> Revision {
    let begun = Instant::now();
    loop {
        match within("a commit", store.commit(put(key, "end"))).await {
            Ok(committed) => return committed.revision,
            Err(err) => assert!(begun.elapsed() < PATIENCE, "{err:?}"),
        }
    }
}

/// A frozen member closes no connection: only the missing answers to pings tell.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_freezes_is_noticed_and_left() {
    let members = EtcdServer::start_three();
    let endpoints = members.iter().map(EtcdServer::endpoint).collect::<Vec<_>>();
    let store = EtcdStore::connect(config(endpoints)).await.unwrap();
    let other = EtcdStore::connect(config([members[1].endpoint(), members[2].endpoint()]))
        .await
        .unwrap();
    let key = thing(plane(), "a");
    let start = commit(&store, put(&key, "1")).await;
    let mut watch = store.watch(KeyRange::One(key.clone()), start).await.unwrap();
    members[0].freeze();
    commit_eventually(&other, &key).await;
    assert_eq!(next(&mut watch).await, "a=end", "the watch has found another member");
    eventually("a read from another member", || async { store.get(&key).await.is_ok() }).await;
    members[0].thaw();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_whose_answer_is_lost_is_unknown_and_one_never_sent_is_not() {
    let etcd = EtcdServer::start();
    let proxy = Proxy::start(etcd.client_port).await;
    let (direct, store) = (
        etcd.connect().await,
        EtcdStore::connect(config([proxy.endpoint.clone()])).await.unwrap(),
    );
    let key = thing(plane(), "a");
    commit(&store, put(&key, "1")).await;
    proxy.set(Mode::LoseAnswers);
    let (outcome, ()) = tokio::join!(within("a commit", store.commit(put(&key, "2"))), async {
        eventually("its arrival", || async {
            value(&direct, &key).await.as_deref() == Some("2")
        })
        .await;
        proxy.set(Mode::Refuse);
    });
    assert!(matches!(outcome, Err(CommitError::Unknown(_))), "{outcome:?}");
    proxy.set(Mode::Forward);
    eventually("reads again", || async { store.get(&key).await.is_ok() }).await;
    commit(&store, put(&key, "3")).await;
    drop(proxy);
    drop(etcd);
    eventually("certainty that nothing is sent", || async {
        matches!(store.commit(put(&key, "4")).await, Err(CommitError::Unavailable(_)))
    })
    .await;
    assert!(matches!(store.get(&key).await, Err(ReadError::Unavailable(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_that_was_cut_off_during_a_compaction_is_told() {
    let etcd = EtcdServer::start();
    let proxy = Proxy::start(etcd.client_port).await;
    let (direct, store) = (
        etcd.connect().await,
        EtcdStore::connect(config([proxy.endpoint.clone()])).await.unwrap(),
    );
    let plane = plane();
    let (a, b) = (thing(plane, "a"), thing(plane, "b"));
    let start = commit(&store, put(&a, "1")).await;
    let mut watch = store.watch(plane.all(), start).await.unwrap();
    commit(&store, put(&a, "2")).await;
    assert_eq!(next(&mut watch).await, "a=2");
    proxy.set(Mode::Refuse);
    commit(&direct, put(&b, "1")).await;
    commit(&direct, put(&b, "2")).await;
    let gone = commit(
        &direct,
        mica_store::Txn {
            compares: vec![],
            writes: vec![mica_store::Write::Delete { key: b.clone() }],
        },
    )
    .await;
    let last = commit(&direct, put(&a, "3")).await;
    direct.compact(gone).await.unwrap();
    proxy.set(Mode::Forward);
    assert!(matches!(within("the end", watch.next()).await, Err(WatchError::Lagged)));
    // What comes next is complete again.
    let mut watch = store.watch(plane.all(), last).await.unwrap();
    commit(&direct, put(&a, "4")).await;
    assert_eq!(next(&mut watch).await, "a=4");
}

/// etcd accepts a watch that starts at the very revision of a compaction, but has forgotten deletions of that revision.
#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_at_the_revision_of_a_compaction_is_not_lost_silently() {
    let etcd = EtcdServer::start();
    let proxy = Proxy::start(etcd.client_port).await;
    let (direct, store) = (
        etcd.connect().await,
        EtcdStore::connect(config([proxy.endpoint.clone()])).await.unwrap(),
    );
    let plane = plane();
    let a = thing(plane, "a");
    let start = commit(&store, put(&a, "1")).await;
    let mut watch = store.watch(plane.all(), start).await.unwrap();
    eventually("the position of the write", || {
        let caught_up = watch.caught_up();
        async move { caught_up == Some(start) }
    })
    .await;
    proxy.set(Mode::Refuse);
    let gone = commit(
        &direct,
        mica_store::Txn {
            compares: vec![],
            writes: vec![mica_store::Write::Delete { key: a.clone() }],
        },
    )
    .await;
    direct.compact(gone).await.unwrap();
    commit(&direct, put(&thing(plane, "b"), "1")).await;
    proxy.set(Mode::Forward);
    assert!(matches!(within("the end", watch.next()).await, Err(WatchError::Lagged)));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_etcd_that_was_set_back_to_a_backup_ends_watches() {
    let mut etcd = EtcdServer::start();
    let store = etcd.connect().await;
    let plane = plane();
    let (a, b) = (
        thing(plane, "a"),
        plane.object(&mica_api::GroupResource::new("", "later"), None, "b"),
    );
    commit(&store, put(&a, "1")).await;
    etcd.kill();
    etcd.copy_data(Copy::ToBackup);
    etcd.restart();
    for i in 2..30 {
        commit_eventually(&store, &thing(plane, &i.to_string())).await;
    }
    let last = commit(&store, put(&b, "1")).await;
    let mut watch = store.watch(plane.all(), Revision(last.0 - 1)).await.unwrap();
    assert_eq!(next(&mut watch).await, "b=1");
    etcd.kill();
    etcd.copy_data(Copy::FromBackup);
    etcd.restart();
    assert!(matches!(within("the end", watch.next()).await, Err(WatchError::Lagged)));
    // Nothing that was known of the later state is taken for granted.
    eventually("reads again", || async { store.get(&a).await.is_ok() }).await;
    let status = store.status().await.unwrap();
    assert!(status.revision < last);
    let mut watch = store.watch(plane.all(), status.revision).await.unwrap();
    commit(&store, put(&b, "2")).await;
    assert_eq!(next(&mut watch).await, "b=2");
    let all = plane.all();
    let query = mica_store::RangeQuery {
        range: &all,
        at: None,
        after: None,
        limit: 10,
    };
    assert_eq!(
        store.range(query).await.unwrap().records.len(),
        2,
        "the index knows the resource again"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn closing_a_store_ends_its_watches() {
    let etcd = EtcdServer::start();
    let store = etcd.connect().await;
    let start = store.status().await.unwrap().revision;
    let mut watch = store.watch(KeyRange::All, start).await.unwrap();
    store.close();
    assert!(matches!(within("the end", watch.next()).await, Err(WatchError::Closed)));
}

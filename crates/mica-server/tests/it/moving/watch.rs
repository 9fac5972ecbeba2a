//! Watches that begin on one server and go on on the other.

use serde_json::json;

use super::super::world::{Api, MAPS, Watcher, map, revision_of, text};
use super::{Move, furnish};

/// An event as a client remembers it.
async fn seen(watch: &mut Watcher) -> Option<(String, String, u64)> {
    loop {
        let event = watch.next().await?;
        if text(&event, "/type") == "BOOKMARK" {
            continue;
        }
        let object = &event["object"];
        let name = text(object, "/metadata/name").to_owned();
        return Some((text(&event, "/type").to_owned(), name, revision_of(object)));
    }
}

async fn from(api: &Api, revision: u64) -> Watcher {
    api.watch(&format!("{MAPS}?watch=1&resourceVersion={revision}")).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_goes_on_where_the_plane_went_without_gap_or_duplicate() {
    let moving = Move::start().await;
    let here = moving.here();
    furnish(&here).await;
    let before = moving.old.revision().await.0;
    here.post(MAPS, &map("before-the-copy")).await.expect(201);
    let copied = moving.copy().await;
    let mut old = from(&here, copied).await;
    for round in 0..3 {
        here.patch(&format!("{MAPS}/m{round}"), &json!({"data": {"k": "2"}}))
            .await
            .expect(200);
        here.delete(&format!("{MAPS}/m{}", 10 + round)).await.expect(200);
        here.post(MAPS, &map(&format!("m{}", 10 + round))).await.expect(201);
        here.delete(&format!("{MAPS}/m{}", 20 + round)).await.expect(200);
        moving.catch_up(copied).await;
    }
    here.delete(&format!("{MAPS}/kube-root-ca.crt")).await.expect(200);
    let last = moving.finish(copied).await;
    let mut history = Vec::new();
    for _ in 0..13 {
        history.push(seen(&mut old).await.unwrap());
    }
    let there = moving.there();
    let made = there.post(MAPS, &map("made-there")).await.expect(201);
    let end = ("ADDED".to_owned(), "made-there".to_owned(), revision_of(&made));
    // From the copy on, from every change, and from whatever the old server showed later.
    let mut starts = vec![copied, last, last + 1, last + 1000];
    starts.extend(history.iter().map(|(_, _, revision)| *revision));
    for start in starts {
        let mut expected: Vec<_> = history.iter().filter(|(_, _, at)| *at > start).cloned().collect();
        expected.push(end.clone());
        let mut watch = from(&there, start).await;
        let mut told = Vec::new();
        while told.last() != Some(&end) {
            told.push(seen(&mut watch).await.expect("the watch goes on"));
        }
        assert_eq!(told, expected, "after {start}");
    }
    // What was before the copy only the old server knows.
    let old = there
        .get(&format!("{MAPS}?watch=1&resourceVersion={before}&timeoutSeconds=5"))
        .await;
    assert!(
        old.code() == 410 || text(&old.json(), "/object/reason") == "Expired",
        "{}",
        old.json()
    );
    // Lists: a version is good for "not older than", and exact where nothing has changed since.
    let list = |query: String| format!("{MAPS}?{query}");
    let any = |revision: u64| list(format!("resourceVersion={revision}&resourceVersionMatch=NotOlderThan"));
    for revision in [before, copied, last] {
        there.get(&any(revision)).await.expect(200);
    }
    let exact = |revision: u64| list(format!("resourceVersion={revision}&resourceVersionMatch=Exact"));
    assert_eq!(there.get(&exact(copied)).await.code(), 410);
    let at_last = there.get(&exact(last)).await.expect(200);
    assert!(!super::super::world::names(&at_last).contains(&"made-there"));
    moving.stop().await;
}

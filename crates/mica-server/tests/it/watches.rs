//! Watches: every event once and in order, from wherever they begin, until they end cleanly.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use http::Method;
use mica_server::http::{Drain, ListenOptions};
use mica_store::{EmbeddedStore, MemStore, PlaneKeys, Txn, Write};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use super::client::Dial;
use super::fixture::HTTP1;
use super::world::{Api, MAPS, PLANES, World, brief, held, labelled, map, names, namespace, revision_of, text};

/// What a client that follows a watch believes to be there: name to version.
fn follow(state: &mut BTreeMap<String, u64>, event: &Value) {
    let name = text(event, "/object/metadata/name").to_owned();
    let revision = revision_of(&event["object"]);
    match text(event, "/type") {
        "ADDED" => assert_eq!(state.insert(name.clone(), revision), None, "{name} was there"),
        "MODIFIED" => assert!(
            state.insert(name.clone(), revision).is_some_and(|old| old < revision),
            "{name}"
        ),
        "DELETED" => assert!(state.remove(&name).is_some_and(|old| old < revision), "{name}"),
        other => panic!("{other} is no change"),
    }
}

fn state_of(list: &Value) -> BTreeMap<String, u64> {
    let items = list["items"].as_array().unwrap().iter();
    items
        .map(|item| (text(item, "/metadata/name").to_owned(), revision_of(item)))
        .collect()
}

async fn churn(api: Api, writer: usize) {
    for i in 0..30 {
        let (name, path) = (format!("w{writer}-{}", i % 5), MAPS);
        match i % 3 {
            0 => drop(api.post(path, &map(&name)).await),
            1 => drop(
                api.patch(&format!("{path}/{name}"), &json!({"data": {"i": i.to_string()}}))
                    .await,
            ),
            _ => drop(api.delete(&format!("{path}/{name}")).await),
        }
    }
}

#[tokio::test]
async fn a_watch_resumed_from_any_revision_has_no_gap_and_no_duplicate() {
    let world = World::start().await;
    let api = world.plane("p").await;
    let start = api.get(MAPS).await.expect(200);
    let mut watch = api
        .watch(&format!("{MAPS}?watch=1&resourceVersion={}", revision_of(&start)))
        .await;
    let writers: Vec<_> = (0..6).map(|writer| tokio::spawn(churn(api.clone(), writer))).collect();
    for writer in writers {
        writer.await.unwrap();
    }
    let last = api.post(MAPS, &map("last")).await.expect(201);
    let mut events = Vec::new();
    while events
        .last()
        .is_none_or(|event: &Value| text(event, "/object/metadata/name") != "last")
    {
        events.push(watch.next().await.unwrap());
    }
    let mut state = state_of(&start);
    events.iter().for_each(|event| follow(&mut state, event));
    assert_eq!(state, state_of(&api.get(MAPS).await.expect(200)));
    let revisions: Vec<u64> = events.iter().map(|event| revision_of(&event["object"])).collect();
    assert!(revisions.is_sorted_by(|a, b| a < b));
    for (i, revision) in revisions.iter().enumerate().step_by(7) {
        let mut resumed = api.watch(&format!("{MAPS}?watch=1&resourceVersion={revision}")).await;
        for expected in &events[i + 1..] {
            assert_eq!(resumed.next().await.as_ref(), Some(expected));
        }
    }
    // The very next event after the newest revision is the next write.
    let mut now = api
        .watch(&format!("{MAPS}?watch=1&resourceVersion={}", revision_of(&last)))
        .await;
    api.post(MAPS, &map("next")).await.expect(201);
    assert_eq!(now.brief().await, "ADDED next");
}

#[tokio::test]
async fn a_watch_with_a_selector_tells_what_enters_and_leaves() {
    let world = World::start().await;
    let api = world.plane("p").await;
    api.post(MAPS, &labelled("a", "y")).await.expect(201);
    let mut watch = api
        .watch(&format!(
            "{MAPS}?watch=1&labelSelector=l%3Dx&resourceVersion={}",
            world.revision().await
        ))
        .await;
    let label = |name: &str, label: &str| {
        let (api, path, body) = (
            api.clone(),
            format!("{MAPS}/{name}"),
            json!({"metadata": {"labels": {"l": label}}}),
        );
        async move { revision_of(&api.patch(&path, &body).await.expect(200)) }
    };
    label("a", "x").await;
    api.patch(&format!("{MAPS}/a"), &json!({"data": {"k": "w"}}))
        .await
        .expect(200);
    let left = label("a", "z").await;
    api.delete(&format!("{MAPS}/a")).await.expect(200);
    api.post(MAPS, &labelled("b", "x")).await.expect(201);
    api.delete(&format!("{MAPS}/b")).await.expect(200);
    assert_eq!(watch.briefs(2).await, ["ADDED a", "MODIFIED a"]);
    let leaving = watch.next().await.unwrap();
    assert_eq!(brief(&leaving), "DELETED a");
    // The old object under the new version.
    assert_eq!(
        (
            text(&leaving, "/object/metadata/labels/l"),
            revision_of(&leaving["object"])
        ),
        ("x", left)
    );
    assert_eq!(watch.briefs(2).await, ["ADDED b", "DELETED b"]);
}

#[tokio::test]
async fn a_watch_of_one_name_sees_that_object_only() {
    let world = World::start().await;
    let api = world.plane("p").await;
    let by_field = format!(
        "{MAPS}?watch=1&fieldSelector=metadata.name%3Db&resourceVersion={}",
        world.revision().await
    );
    let mut by_field = api.watch(&by_field).await;
    let mut by_path = api
        .watch(&format!(
            "/api/v1/watch/namespaces/default/configmaps/b?resourceVersion={}",
            world.revision().await
        ))
        .await;
    for name in ["a", "b", "bb"] {
        api.post(MAPS, &map(name)).await.expect(201);
        api.delete(&format!("{MAPS}/{name}")).await.expect(200);
    }
    api.post(MAPS, &map("b")).await.expect(201);
    for watch in [&mut by_field, &mut by_path] {
        assert_eq!(watch.briefs(3).await, ["ADDED b", "DELETED b", "ADDED b"]);
    }
}

#[tokio::test]
async fn legacy_paths_watch() {
    let world = World::start().await;
    let api = world.plane("p").await;
    for path in [
        "/api/v1/watch/configmaps",
        "/api/v1/watch/namespaces/default/configmaps",
    ] {
        let mut watch = api
            .watch(&format!("{path}?resourceVersion={}", world.revision().await))
            .await;
        api.post(MAPS, &map("a")).await.expect(201);
        assert_eq!(watch.brief().await, "ADDED a");
        api.delete(&format!("{MAPS}/a")).await.expect(200);
    }
}

#[tokio::test]
async fn initial_events_end_with_a_bookmark_at_the_global_revision() {
    let world = World::start().await;
    let (api, root) = (world.plane("p").await, world.root().await);
    api.post(MAPS, &map("a")).await.expect(201);
    // Another plane's write moves the global revision on.
    let newest = revision_of(&root.post(MAPS, &map("elsewhere")).await.expect(201));
    let query = "watch=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    let mut watch = api.watch(&format!("{MAPS}?{query}")).await;
    assert_eq!(watch.briefs(2).await, ["ADDED a", "ADDED kube-root-ca.crt"]);
    let end = watch.next().await.unwrap();
    assert_eq!(text(&end, "/type"), "BOOKMARK");
    assert_eq!(
        end["object"]["metadata"]["annotations"],
        json!({"k8s.io/initial-events-end": "true"})
    );
    assert!(revision_of(&end["object"]) >= newest);
    api.post(MAPS, &map("b")).await.expect(201);
    assert_eq!(watch.brief().await, "ADDED b");
    // Without bookmarks the state is told and nothing marks its end.
    let mut plain = api.watch(&format!("{MAPS}?watch=1")).await;
    assert_eq!(plain.briefs(3).await, ["ADDED a", "ADDED b", "ADDED kube-root-ca.crt"]);
    api.post(MAPS, &map("c")).await.expect(201);
    assert_eq!(plain.brief().await, "ADDED c");
    assert_eq!(
        api.get(&format!("{MAPS}?watch=1&sendInitialEvents=true")).await.code(),
        422
    );
}

#[tokio::test]
async fn bookmarks_tell_how_far_a_quiet_or_filtered_watch_is() {
    let world = World::start().await;
    let (api, root) = (world.plane("p").await, world.root().await);
    let from = world.revision().await;
    let query = format!("watch=1&allowWatchBookmarks=true&resourceVersion={from}");
    let mut quiet = api.watch(&format!("{MAPS}?{query}")).await;
    let mut filtered = api.watch(&format!("{MAPS}?{query}&labelSelector=l%3Dnone")).await;
    let elsewhere = revision_of(&root.post(MAPS, &map("elsewhere")).await.expect(201));
    let mut told = 0;
    while told < elsewhere {
        let bookmark = quiet.next().await.unwrap();
        assert_eq!(text(&bookmark, "/type"), "BOOKMARK");
        assert_eq!(bookmark["object"]["metadata"].get("annotations"), None);
        told = revision_of(&bookmark["object"]);
    }
    let here = revision_of(&api.post(MAPS, &map("a")).await.expect(201));
    let mut told = 0;
    while told < here {
        let bookmark = filtered.next().await.unwrap();
        assert_eq!(text(&bookmark, "/type"), "BOOKMARK");
        assert!(revision_of(&bookmark["object"]) > told, "a bookmark says something new");
        told = revision_of(&bookmark["object"]);
    }
    // Later events are greater than every bookmark.
    api.post(MAPS, &labelled("b", "none")).await.expect(201);
    let mut event = filtered.next().await.unwrap();
    while text(&event, "/type") == "BOOKMARK" {
        event = filtered.next().await.unwrap();
    }
    assert!(brief(&event) == "ADDED b" && revision_of(&event["object"]) > told);
}

#[tokio::test]
async fn a_watch_from_a_compacted_revision_is_told_410_and_nothing_more() {
    let world = World::start().await;
    let api = world.plane("p").await;
    let old = world.revision().await;
    for name in ["a", "b", "c"] {
        api.post(MAPS, &map(name)).await.expect(201);
    }
    world.store.compact(world.revision().await).await.unwrap();
    let mut watch = api.watch(&format!("{MAPS}?watch=1&resourceVersion={old}")).await;
    let error = watch.next().await.unwrap();
    assert_eq!(
        (text(&error, "/type"), error["object"]["code"].as_u64()),
        ("ERROR", Some(410))
    );
    assert_eq!(text(&error, "/object/reason"), "Expired");
    assert!(text(&error, "/object/message").starts_with(&format!("too old resource version: {old} (")));
    assert_eq!(watch.next().await, None);
}

#[tokio::test]
async fn a_quiet_plane_does_not_expire_because_others_write() {
    let world = World::start().await;
    let (quiet, busy) = (world.plane("quiet").await, world.plane("busy").await);
    let listed = quiet.get(MAPS).await.expect(200);
    let rv = revision_of(&listed);
    for i in 0..10 {
        busy.post(MAPS, &map(&format!("m{i}"))).await.expect(201);
    }
    world.store.compact(world.revision().await).await.unwrap();
    let mut watch = quiet.watch(&format!("{MAPS}?watch=1&resourceVersion={rv}")).await;
    let exact = quiet
        .get(&format!("{MAPS}?resourceVersion={rv}&resourceVersionMatch=Exact"))
        .await
        .expect(200);
    assert_eq!(exact["items"], listed["items"]);
    quiet.post(MAPS, &map("a")).await.expect(201);
    assert_eq!(watch.brief().await, "ADDED a");
}

#[tokio::test]
async fn a_watch_ends_after_its_timeout() {
    let world = World::start().await;
    let api = world.plane("p").await;
    let mut watch = api
        .watch(&format!(
            "{MAPS}?watch=1&timeoutSeconds=1&resourceVersion={}",
            world.revision().await
        ))
        .await;
    api.post(MAPS, &map("a")).await.expect(201);
    assert_eq!(watch.brief().await, "ADDED a");
    assert_eq!(watch.next().await, None);
}

#[tokio::test]
async fn draining_ends_watches_cleanly_and_what_was_sent_is_whole() {
    let world = World::start().await;
    let api = world.plane("p").await;
    let mut watch = api
        .watch(&format!("{MAPS}?watch=1&resourceVersion={}", world.revision().await))
        .await;
    let mut wide = api
        .at("/clusters/*/control-plane")
        .watch(&format!(
            "/api/v1/configmaps?watch=1&resourceVersion={}",
            world.revision().await
        ))
        .await;
    api.post(MAPS, &map("a")).await.expect(201);
    assert_eq!(
        (watch.brief().await, wide.brief().await),
        ("ADDED a".to_owned(), "ADDED a".to_owned())
    );
    world.begin_stop();
    assert_eq!((watch.next().await, wide.next().await), (None, None));
    assert_eq!(world.stop().await, Drain::Clean);
}

#[tokio::test]
async fn a_reader_that_takes_nothing_is_ended_and_others_go_on() {
    let listen = ListenOptions {
        write_stall: Duration::from_millis(300),
        ..ListenOptions::default()
    };
    let world = World::with(Arc::new(MemStore::new()), listen).await;
    let api = world.plane("p").await;
    let from = world.revision().await;
    // A connection of its own, so that only this reader stalls.
    let slow = world.root().await.at_plane("p");
    let stalled = slow
        .send(
            Method::GET,
            &format!("{MAPS}?watch=1&resourceVersion={from}"),
            &[],
            "".into(),
        )
        .await;
    let mut good = api.watch(&format!("{MAPS}?watch=1&resourceVersion={from}")).await;
    let mut big = map("big");
    big["data"]["k"] = "x".repeat(600_000).into();
    api.post(MAPS, &big).await.expect(201);
    assert_eq!(good.brief().await, "ADDED big");
    for i in 0..24 {
        api.patch(&format!("{MAPS}/big"), &json!({"data": {"i": i.to_string()}}))
            .await
            .expect(200);
        assert_eq!(good.brief().await, "MODIFIED big");
    }
    drop(stalled);
    api.delete(&format!("{MAPS}/big")).await.expect(200);
    assert_eq!(good.brief().await, "DELETED big");
}

#[tokio::test]
async fn objects_of_the_base_layer_change_go_and_come_back_as_any_other() {
    let world = World::start().await;
    let api = world.plane("p").await;
    let one = format!("{MAPS}/kube-root-ca.crt");
    let base = api.get(&one).await.expect(200);
    let mut watch = api
        .watch(&format!("{MAPS}?watch=1&resourceVersion={}", world.revision().await))
        .await;
    let changed = api.patch(&one, &json!({"data": {"mine": "1"}})).await.expect(200);
    assert_eq!(changed["metadata"]["uid"], base["metadata"]["uid"]);
    assert!(revision_of(&changed) > revision_of(&base));
    assert_eq!(
        watch.next().await.unwrap(),
        json!({"type": "MODIFIED", "object": changed})
    );
    api.delete(&one).await.expect(200);
    assert_eq!(watch.brief().await, "DELETED kube-root-ca.crt");
    assert_eq!((api.get(&one).await.code(), api.delete(&one).await.code()), (404, 404));
    let anew = api.post(MAPS, &map("kube-root-ca.crt")).await.expect(201);
    assert_ne!(anew["metadata"]["uid"], base["metadata"]["uid"]);
    assert_eq!(watch.next().await.unwrap(), json!({"type": "ADDED", "object": anew}));
    // Deleted without having been changed before.
    let other = world.plane("q").await;
    let mut watch = other
        .watch(&format!("{MAPS}?watch=1&resourceVersion={}", world.revision().await))
        .await;
    other.delete(&one).await.expect(200);
    let gone = watch.next().await.unwrap();
    assert_eq!(brief(&gone), "DELETED kube-root-ca.crt");
    assert!(revision_of(&gone["object"]) > revision_of(&base) && gone["object"].get("data").is_some());
    assert!(names(&other.get(MAPS).await.expect(200)).is_empty());
}

#[tokio::test]
async fn deleting_a_plane_ends_its_watches_after_the_last_deleted() {
    let world = World::start().await;
    let (api, root) = (world.plane("p").await, world.root().await);
    api.post("/api/v1/namespaces", &namespace("n")).await.expect(201);
    api.post("/api/v1/namespaces/n/configmaps", &map("a")).await.expect(201);
    api.post(MAPS, &map("b")).await.expect(201);
    let now = world.revision().await;
    let mut maps = api
        .watch(&format!("/api/v1/configmaps?watch=1&resourceVersion={now}"))
        .await;
    let mut namespaces = api
        .watch(&format!("/api/v1/namespaces?watch=1&resourceVersion={now}"))
        .await;
    let mut wide = root
        .at("/clusters/*/control-plane")
        .watch(&format!("/api/v1/configmaps?watch=1&resourceVersion={now}"))
        .await;
    root.delete(&format!("{PLANES}/p")).await.expect(200);
    let mut seen = maps.briefs(2).await;
    seen.sort();
    assert_eq!(seen, ["DELETED a", "DELETED b"]);
    assert_eq!(maps.next().await, None);
    let mut all = Vec::new();
    while let Some(event) = namespaces.next().await {
        all.push(brief(&event));
    }
    assert_eq!(all.last().map(String::as_str), Some("DELETED n"), "{all:?}");
    let mut told = Vec::new();
    for _ in 0..2 {
        let event = wide.next().await.unwrap();
        assert_eq!(text(&event, "/object/metadata/annotations/mica.dev~1plane"), "p");
        told.push(brief(&event));
    }
    told.sort();
    assert_eq!(told, ["DELETED a", "DELETED b"]);
    root.until(&format!("{PLANES}/p"), 404).await;
}

#[tokio::test]
async fn what_expires_is_told_as_deleted() {
    let world = World::start().await;
    let api = world.plane("p").await;
    let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"},
        "involvedObject": {"kind": "ConfigMap", "name": "a", "namespace": "default"}, "reason": "r", "message": "m"});
    let path = "/api/v1/namespaces/default/events";
    api.post(path, &event).await.expect(201);
    let mut watch = api
        .watch(&format!("{path}?watch=1&resourceVersion={}", world.revision().await))
        .await;
    // The store's own clock is in hours for events: put the same record again with less to live.
    let plane = world.server.directory.by_name("p").await.unwrap();
    let key = PlaneKeys::new(plane.id).object(&mica_api::GroupResource::new("", "events"), Some("default"), "e");
    let record = world.store.get(&key).await.unwrap().unwrap();
    let write = Write::Put {
        key,
        value: record.value,
        ttl: Some(Duration::from_millis(50)),
    };
    world
        .store
        .commit(Txn {
            compares: Vec::new(),
            writes: vec![write],
        })
        .await
        .unwrap();
    assert_eq!(watch.briefs(2).await, ["MODIFIED e", "DELETED e"]);
    assert_eq!(api.get(&format!("{path}/e")).await.code(), 404);
}

#[tokio::test]
async fn the_two_groups_of_events_watch_the_same_objects() {
    let world = World::start().await;
    let api = world.plane("p").await;
    let now = world.revision().await;
    let mut core = api
        .watch(&format!("/api/v1/events?watch=1&resourceVersion={now}"))
        .await;
    let mut new = api
        .watch(&format!("/apis/events.k8s.io/v1/events?watch=1&resourceVersion={now}"))
        .await;
    let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"},
        "involvedObject": {"kind": "ConfigMap", "name": "a", "namespace": "default"}, "reason": "r", "message": "m"});
    api.post("/api/v1/namespaces/default/events", &event).await.expect(201);
    let (core, new) = (core.next().await.unwrap(), new.next().await.unwrap());
    assert_eq!(
        (text(&core, "/object/apiVersion"), text(&core, "/object/message")),
        ("v1", "m")
    );
    assert_eq!(
        (text(&new, "/object/apiVersion"), text(&new, "/object/note")),
        ("events.k8s.io/v1", "m")
    );
    assert_eq!(new["object"]["regarding"]["name"], "a");
    let note = json!({"note": "n"});
    let answer = api
        .patch("/apis/events.k8s.io/v1/namespaces/default/events/e", &note)
        .await;
    assert!(answer.code() == 200 || answer.code() == 422, "{}", answer.json());
    api.delete("/apis/events.k8s.io/v1/namespaces/default/events/e")
        .await
        .expect(200);
    assert_eq!(api.get("/api/v1/namespaces/default/events/e").await.code(), 404);
}

#[tokio::test]
async fn a_finalizer_turns_a_deletion_into_a_change() {
    let world = World::start().await;
    let api = world.plane("p").await;
    let mut watch = api
        .watch(&format!("{MAPS}?watch=1&resourceVersion={}", world.revision().await))
        .await;
    api.post(MAPS, &held("a", "example.com/hold")).await.expect(201);
    api.delete(&format!("{MAPS}/a")).await.expect(200);
    api.patch(&format!("{MAPS}/a"), &json!({"metadata": {"finalizers": null}}))
        .await
        .expect(200);
    assert_eq!(watch.briefs(3).await, ["ADDED a", "MODIFIED a", "DELETED a"]);
}

#[tokio::test]
async fn a_websocket_carries_one_event_in_each_message() {
    let world = World::start().await;
    let api = world.plane("p").await;
    let dial = Dial {
        addr: world.addr,
        authority: world.authority.certificate(),
        host: "localhost",
        alpn: HTTP1,
        certificate: Some(&world.admin),
    };
    let path = format!(
        "/clusters/p/control-plane{MAPS}?watch=1&resourceVersion={}",
        world.revision().await
    );
    let request = http::Request::get(format!("wss://localhost{path}"))
        .header("host", "localhost")
        .header("connection", "Upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
        .body(())
        .unwrap();
    let (mut socket, _) = tokio_tungstenite::client_async(request, dial.tls().await.unwrap())
        .await
        .unwrap();
    for name in ["a", "b"] {
        api.post(MAPS, &map(name)).await.expect(201);
    }
    for expected in ["ADDED a", "ADDED b"] {
        let message = socket.next().await.unwrap().unwrap();
        let event: Value = serde_json::from_str(message.to_text().unwrap()).unwrap();
        assert_eq!(brief(&event), expected);
    }
    world.begin_stop();
    assert!(matches!(socket.next().await, Some(Ok(Message::Close(_)))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_disk_a_watch_resumes_from_history_and_pages_stay_whole() {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(EmbeddedStore::open(directory.path(), mica_store::embedded::Options::default()).unwrap());
    let world = World::on(store.clone()).await;
    let api = world.plane("p").await;
    let start = api.get(MAPS).await.expect(200);
    let writers: Vec<_> = (0..4).map(|writer| tokio::spawn(churn(api.clone(), writer))).collect();
    let mut pages = 0;
    while writers.iter().any(|writer| !writer.is_finished()) {
        let page = api.get(&format!("{MAPS}?limit=3")).await.expect(200);
        let exact = format!(
            "{MAPS}?resourceVersionMatch=Exact&resourceVersion={}",
            revision_of(&page)
        );
        let whole = api.get(&exact).await.expect(200);
        let (whole, shown) = (names(&whole), names(&page));
        assert_eq!(whole[..shown.len()], shown[..]);
        assert_eq!(
            page["metadata"]["remainingItemCount"].as_u64().unwrap_or(0) as usize,
            whole.len() - shown.len()
        );
        pages += 1;
    }
    assert!(pages > 0);
    api.post(MAPS, &map("last")).await.expect(201);
    let mut watch = api
        .watch(&format!("{MAPS}?watch=1&resourceVersion={}", revision_of(&start)))
        .await;
    let mut state = state_of(&start);
    loop {
        let event = watch.next().await.unwrap();
        follow(&mut state, &event);
        if brief(&event) == "ADDED last" {
            break;
        }
    }
    assert_eq!(state, state_of(&api.get(MAPS).await.expect(200)));
    drop(watch);
    world.stop().await;
    store.close();
}

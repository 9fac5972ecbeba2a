//! Watches: every change once and in order, from any revision, and what becomes of planes.

use mica_store::Revision;
use serde_json::json;

use super::api::{ALL, Api, OBJECTS, config_map, next, references, short};
use crate::world::text;

fn version(value: &serde_json::Value) -> u64 {
    value["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_watch_tells_every_change_of_every_kind_and_plane() {
    let api = Api::start().await;
    api.plane("p1").await;
    let start = version(&api.get(ALL).await);
    let mut watch = api.watch(&format!("{ALL}?watch=1&resourceVersion={start}")).await;
    api.config_map("p1", "a", &["u"]).await;
    api.plane("p2").await;
    api.post(
        "/clusters/p2/control-plane/api/v1/namespaces",
        json!({"metadata": {"name": "n"}}),
    )
    .await;
    api.patch(&config_map("p1", "a"), json!({"data": {"k": "v"}})).await;
    // A base object that a plane changes becomes its own.
    api.patch(
        "/clusters/p2/control-plane/api/v1/namespaces/kube-public",
        json!({"metadata": {"labels": {"x": "y"}}}),
    )
    .await;
    api.delete(&config_map("p1", "a")).await;
    let expected = [
        "ADDED p1 ConfigMap a",
        "ADDED p2 Namespace n",
        "MODIFIED p1 ConfigMap a",
        "ADDED p2 Namespace kube-public",
        "DELETED p1 ConfigMap a",
    ];
    let mut versions = vec![start];
    for expected in expected {
        let event = watch.next().await.unwrap();
        assert_eq!(
            format!("{} {}", event["type"].as_str().unwrap(), short(&event["object"])),
            expected
        );
        versions.push(version(&event["object"]));
    }
    assert!(versions.is_sorted());
    // From wherever it is resumed, exactly the rest follows.
    for (at, after) in versions.iter().enumerate() {
        let mut resumed = api
            .watch(&format!("{ALL}?watch=1&resourceVersion={after}&timeoutSeconds=1"))
            .await;
        for expected in &expected[at..] {
            assert_eq!(next(&mut resumed).await, *expected, "after {after}");
        }
        if at + 2 > expected.len() {
            assert_eq!(next(&mut resumed).await, "end");
        }
    }
}

#[tokio::test]
async fn the_state_so_far_comes_first_and_its_end_is_marked() {
    let api = Api::start().await;
    api.plane("p1").await;
    api.config_map("p1", "a", &[]).await;
    let path =
        format!("{ALL}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true");
    let mut watch = api.watch(&path).await;
    assert_eq!(next(&mut watch).await, "ADDED p1 ConfigMap a");
    let end = watch.next().await.unwrap();
    assert_eq!(end["type"], "BOOKMARK");
    assert_eq!(
        end["object"]["metadata"]["annotations"],
        json!({"k8s.io/initial-events-end": "true"})
    );
    api.config_map("p1", "b", &[]).await;
    assert_eq!(next(&mut watch).await, "ADDED p1 ConfigMap b");
    // What the watch does not show still moves its bookmarks on, so that it can be resumed.
    api.post("/api/v1/namespaces", json!({"metadata": {"name": "in-root"}}))
        .await;
    let bookmark = watch.next().await.unwrap();
    assert_eq!(
        (
            bookmark["type"].as_str(),
            bookmark["object"]["metadata"].get("annotations")
        ),
        (Some("BOOKMARK"), None)
    );
    let mut resumed = api
        .watch(&format!("{ALL}?watch=1&resourceVersion={}", version(&end["object"])))
        .await;
    assert_eq!(next(&mut resumed).await, "ADDED p1 ConfigMap b");
}

#[tokio::test]
async fn objects_enter_and_leave_a_selection() {
    let api = Api::start().await;
    let id = api.plane("p1").await;
    api.config_map("p1", "a", &[]).await;
    let selector = format!("fieldSelector=metadata.ownerReferences.uid%3Du,mica.dev/plane-id%3D{id}");
    let mut watch = api.watch(&format!("{ALL}?watch=1&{selector}")).await;
    api.patch(&config_map("p1", "a"), json!({"data": {"k": "v"}})).await;
    api.patch(
        &config_map("p1", "a"),
        json!({"metadata": {"ownerReferences": references(&["u"])}}),
    )
    .await;
    assert_eq!(next(&mut watch).await, "ADDED p1 ConfigMap a");
    api.patch(&config_map("p1", "a"), json!({"data": {"k": "w"}})).await;
    assert_eq!(next(&mut watch).await, "MODIFIED p1 ConfigMap a");
    api.patch(&config_map("p1", "a"), json!({"metadata": {"ownerReferences": null}}))
        .await;
    assert_eq!(next(&mut watch).await, "DELETED p1 ConfigMap a");
    // What is there already comes through the index.
    api.config_map("p1", "b", &["u"]).await;
    let mut second = api.watch(&format!("{ALL}?watch=1&{selector}")).await;
    assert_eq!(next(&mut second).await, "ADDED p1 ConfigMap b");
}

#[tokio::test]
async fn a_plane_that_goes_is_told_after_its_objects() {
    let api = Api::start().await;
    let id = api.plane("p1").await;
    api.config_map("p1", "a", &["u"]).await;
    let start = version(&api.get(ALL).await);
    let mut watch = api.watch(&format!("{ALL}?watch=1&resourceVersion={start}")).await;
    let mut of_plane = api
        .watch(&format!(
            "/clusters/p1/control-plane{OBJECTS}?watch=1&resourceVersion={start}"
        ))
        .await;
    api.delete("/apis/mica.dev/v1alpha1/planes/p1").await;
    assert_eq!(next(&mut watch).await, "DELETED p1 ConfigMap a");
    let gone = watch.next().await.unwrap();
    assert_eq!(gone["type"], "DELETED");
    assert_eq!(gone["object"]["metadata"]["name"], "p1");
    assert_eq!(
        gone["object"]["metadata"]["annotations"],
        json!({"mica.dev/plane": "p1", "mica.dev/plane-id": id, "mica.dev/api-version": "mica.dev/v1alpha1",
            "mica.dev/kind": "Plane", "mica.dev/resource": "planes"})
    );
    assert_eq!(next(&mut of_plane).await, "DELETED p1 ConfigMap a");
    assert_eq!(next(&mut of_plane).await, "end");
    // Who was away learns the same; only the name may be known from the Plane alone.
    let mut late = api.watch(&format!("{ALL}?watch=1&resourceVersion={start}")).await;
    let first = late.next().await.unwrap();
    assert_eq!(
        (
            first["type"].as_str(),
            first["object"]["metadata"]["annotations"]["mica.dev/plane-id"].as_str()
        ),
        (Some("DELETED"), Some(id.as_str()))
    );
    assert_eq!(next(&mut late).await, "DELETED p1 Plane p1");
}

#[tokio::test]
async fn a_revision_that_is_compacted_is_410_inside_the_watch() {
    let api = Api::start().await;
    api.plane("p1").await;
    let start = version(&api.get(ALL).await);
    api.config_map("p1", "a", &[]).await;
    let newest = version(&api.get(ALL).await);
    api.store.compact(Revision(newest)).await.unwrap();
    let mut watch = api.watch(&format!("{ALL}?watch=1&resourceVersion={start}")).await;
    let event = watch.next().await.unwrap();
    assert_eq!(
        (event["type"].as_str(), event["object"]["code"].as_u64()),
        (Some("ERROR"), Some(410))
    );
    assert_eq!(
        event["object"]["message"],
        format!("too old resource version: {start} ({newest})")
    );
    assert!(watch.next().await.is_none());
}

#[tokio::test]
async fn a_watch_ends_when_its_time_is_over() {
    let api = Api::start().await;
    let mut watch = api.watch(&format!("{ALL}?watch=1&timeoutSeconds=1")).await;
    assert!(watch.next().await.is_none());
}

#[tokio::test]
async fn a_watch_of_tables_has_columns_once() {
    let api = Api::start().await;
    api.plane("p1").await;
    api.config_map("p1", "a", &[]).await;
    let query = "watch=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let mut watch = api.watch_accepting(accept, &format!("{ALL}?{query}")).await;
    let event = watch.next().await.unwrap();
    let table = &event["object"];
    assert_eq!((text(&event, "/type"), text(table, "/kind")), ("ADDED", "Table"));
    assert_eq!(table["columnDefinitions"].as_array().unwrap().len(), 7);
    assert_eq!(table["rows"][0]["cells"][3], "a");
    let end = watch.next().await.unwrap();
    let marked = "/object/rows/0/object/metadata/annotations/k8s.io~1initial-events-end";
    assert_eq!((text(&end, "/type"), text(&end, marked)), ("BOOKMARK", "true"));
    api.config_map("p1", "b", &[]).await;
    let event = loop {
        let event = watch.next().await.unwrap();
        if event["type"] != "BOOKMARK" {
            break event;
        }
    };
    assert_eq!(event["object"]["columnDefinitions"], serde_json::Value::Null);
    assert_eq!(event["object"]["rows"][0]["cells"][3], "b");
    api.drop_plane("p1").await;
    loop {
        let event = watch.next().await.unwrap();
        if event["object"]["rows"][0]["cells"][1] == "planes.mica.dev" {
            assert_eq!(
                (text(&event, "/type"), &event["object"]["rows"][0]["cells"][0]),
                ("DELETED", &"p1".into())
            );
            break;
        }
    }
}

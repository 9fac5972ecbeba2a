//! Objects by owner, through the index.

use http::Method;
use serde_json::json;

use super::api::{ALL, Api, config_map, config_maps, references, shorts};

async fn owned(api: &Api, uid: &str, plane: Option<&str>) -> Vec<String> {
    let plane = plane.map(|id| format!(",mica.dev/plane-id%3D{id}")).unwrap_or_default();
    let mut shown = shorts(
        &api.get(&format!(
            "{ALL}?fieldSelector=metadata.ownerReferences.uid%3D{uid}{plane}"
        ))
        .await,
    );
    shown.sort();
    shown
}

#[tokio::test]
async fn the_index_follows_every_write() {
    let api = Api::start().await;
    let id = api.plane("p1").await;
    api.plane("p2").await;
    let owner = api.config_map("p1", "owner", &[]).await;
    api.config_map("p1", "a", &[&owner]).await;
    api.config_map("p1", "b", &[&owner, "other"]).await;
    // The same uid in another plane: forks have them.
    api.config_map("p2", "c", &[&owner]).await;
    assert_eq!(
        owned(&api, &owner, Some(&id)).await,
        ["p1 ConfigMap a", "p1 ConfigMap b"]
    );
    assert_eq!(
        owned(&api, &owner, None).await,
        ["p1 ConfigMap a", "p1 ConfigMap b", "p2 ConfigMap c"]
    );
    assert_eq!(owned(&api, "other", None).await, ["p1 ConfigMap b"]);
    let one = format!(
        "/clusters/p2/control-plane/apis/mica.dev/v1alpha1/objects?fieldSelector=metadata.ownerReferences.uid%3D{owner}"
    );
    assert_eq!(shorts(&api.get(&one).await), ["p2 ConfigMap c"]);

    api.patch(
        &config_map("p1", "b"),
        json!({"metadata": {"ownerReferences": references(&["third"])}}),
    )
    .await;
    assert_eq!(owned(&api, &owner, Some(&id)).await, ["p1 ConfigMap a"]);
    assert_eq!(owned(&api, "third", None).await, ["p1 ConfigMap b"]);
    assert!(owned(&api, "other", None).await.is_empty());

    api.delete(&config_map("p1", "a")).await;
    assert!(owned(&api, &owner, Some(&id)).await.is_empty());

    // One that waits for its finalizer is still owned; one that is only tried never is.
    api.patch(
        &config_map("p1", "b"),
        json!({"metadata": {"finalizers": ["example.com/hold"]}}),
    )
    .await;
    api.delete(&config_map("p1", "b")).await;
    assert_eq!(owned(&api, "third", None).await, ["p1 ConfigMap b"]);
    api.patch(&config_map("p1", "b"), json!({"metadata": {"finalizers": null}}))
        .await;
    assert!(owned(&api, "third", None).await.is_empty());
    let tried = json!({"metadata": {"name": "tried", "ownerReferences": references(&["third"])}});
    let (code, _) = api
        .call(Method::POST, &format!("{}?dryRun=All", config_maps("p1")), Some(&tried))
        .await;
    assert_eq!(code, 201);
    assert!(owned(&api, "third", None).await.is_empty());
}

#[tokio::test]
async fn odd_uids_are_indexed_too() {
    let api = Api::start().await;
    api.plane("p1").await;
    let long = "x".repeat(500);
    for (name, uid) in [("a", "a/b"), ("b", "../root"), ("c", "ü%"), ("d", &long)] {
        api.config_map("p1", name, &[uid]).await;
    }
    for (name, uid) in [("a", "a%2Fb"), ("b", "../root"), ("c", "%C3%BC%25"), ("d", &long)] {
        assert_eq!(owned(&api, uid, None).await, [format!("p1 ConfigMap {name}")]);
    }
}

#[tokio::test]
async fn the_index_is_of_each_plane_and_goes_with_it() {
    let api = Api::start().await;
    api.plane("p1").await;
    api.config_map("p1", "a", &["u"]).await;
    // Root's index is no plane's.
    let object = json!({"metadata": {"name": "r", "ownerReferences": references(&["u"])}});
    api.post("/api/v1/namespaces/default/configmaps", object).await;
    let (code, fork) = api
        .call(
            Method::POST,
            "/apis/mica.dev/v1alpha1/planes/p1/fork",
            Some(&json!({"name": "copy"})),
        )
        .await;
    assert_eq!(code, 201, "{fork}");
    assert_eq!(owned(&api, "u", None).await, ["copy ConfigMap a", "p1 ConfigMap a"]);
    let id = fork["status"]["id"].as_str().unwrap().to_owned();
    assert_eq!(owned(&api, "u", Some(&id)).await, ["copy ConfigMap a"]);

    api.drop_plane("p1").await;
    assert_eq!(owned(&api, "u", None).await, ["copy ConfigMap a"]);
    assert_eq!(shorts(&api.get(ALL).await), ["copy ConfigMap a"]);
}

#[tokio::test]
async fn an_event_that_is_written_again_stays_in_the_index() {
    let api = Api::start().await;
    api.plane("p1").await;
    let path = "/clusters/p1/control-plane/api/v1/namespaces/default/events";
    let event = json!({"metadata": {"name": "e", "ownerReferences": references(&["u"])},
        "involvedObject": {"namespace": "default", "kind": "ConfigMap", "name": "a"}});
    api.post(path, event).await;
    assert_eq!(owned(&api, "u", None).await, ["p1 Event e"]);
    api.patch(&format!("{path}/e"), json!({"message": "again"})).await;
    assert_eq!(owned(&api, "u", None).await, ["p1 Event e"]);
}

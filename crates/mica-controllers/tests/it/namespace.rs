//! Namespaces that are deleted: what they hold goes, in order, and what does not is told.

use serde_json::{Value, json};

use super::world::{World, map_path};

const NAMESPACE: &str = "/api/v1/namespaces/ns";

/// The reason and message of a condition, if it holds.
fn condition(namespace: &Value, kind: &str) -> String {
    let all = namespace["status"]["conditions"].as_array();
    let found = all
        .into_iter()
        .flatten()
        .find(|one| one["type"] == kind && one["status"] == "True");
    let text = |one: &Value| format!("{}: {}", one["reason"], one["message"]).replace('"', "");
    found.map(text).unwrap_or_default()
}

#[tokio::test]
async fn a_deleted_namespace_is_emptied_and_goes() {
    let world = World::start().await;
    for place in world.places().await {
        place.namespace("ns").await;
        place.define_widgets().await;
        for i in 0..20 {
            place.map("ns", &format!("m{i}"), json!([])).await;
        }
        place.widget("ns", "w", json!({})).await;
        place.map("default", "other", json!([])).await;
        place.delete(NAMESPACE).await;
        place.until_gone(NAMESPACE).await;
        assert!(
            place.get(&map_path("default", "other")).await.is_some(),
            "other namespaces keep what they have"
        );
        // One of the name starts empty.
        place.namespace("ns").await;
        let maps = place.get("/api/v1/namespaces/ns/configmaps").await.unwrap();
        let left = maps["items"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|one| one["metadata"]["name"] != "kube-root-ca.crt");
        assert_eq!(left.count(), 0, "{maps}");
    }
}

#[tokio::test]
async fn a_namespace_waits_for_finalizers_and_says_which() {
    let world = World::start().await;
    for place in world.places().await {
        place.namespace("ns").await;
        place.define_widgets().await;
        for name in ["a", "b"] {
            place
                .widget("ns", name, json!({"finalizers": ["example.com/hold"]}))
                .await;
        }
        place.map("ns", "goes", json!([])).await;
        place.delete(NAMESPACE).await;
        let says =
            |found: Option<&Value>| found.is_some_and(|one| !condition(one, "NamespaceFinalizersRemaining").is_empty());
        let waiting = place.until(NAMESPACE, "waiting", says).await.unwrap();
        assert_eq!(waiting["status"]["phase"], "Terminating");
        assert_eq!(
            condition(&waiting, "NamespaceContentRemaining"),
            "SomeResourcesRemain: Some resources are remaining: widgets.example.com has 2 resource instances"
        );
        assert_eq!(
            condition(&waiting, "NamespaceFinalizersRemaining"),
            "SomeFinalizerRemain: Some finalizers are remaining: example.com/hold in 2 resource instances"
        );
        assert_eq!(condition(&waiting, "NamespaceDeletionContentFailure"), "");
        assert_eq!(
            place.get(&map_path("ns", "goes")).await,
            None,
            "what nothing holds is gone"
        );
        for name in ["a", "b"] {
            let path = format!("/apis/example.com/v1/namespaces/ns/widgets/{name}");
            place.patch(&path, json!({"metadata": {"finalizers": null}})).await;
        }
        place.until_gone(NAMESPACE).await;
    }
}

#[tokio::test]
async fn pods_go_before_everything_else() {
    let world = World::start().await;
    let place = world.plane("p1").await;
    place.namespace("ns").await;
    let pod = json!({
        "metadata": {"name": "pod", "finalizers": ["example.com/hold"]},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "i"}]},
    });
    place.create("/api/v1/namespaces/ns/pods", pod).await;
    place.map("ns", "later", json!([])).await;
    place.delete(NAMESPACE).await;
    let says = |found: Option<&Value>| found.is_some_and(|one| !condition(one, "NamespaceContentRemaining").is_empty());
    let waiting = place.until(NAMESPACE, "waiting", says).await.unwrap();
    assert_eq!(
        condition(&waiting, "NamespaceContentRemaining"),
        "SomeResourcesRemain: Some resources are remaining: pods. has 1 resource instances"
    );
    assert!(
        place.get(&map_path("ns", "later")).await.is_some(),
        "the rest waits for the pods"
    );
    place
        .patch(
            "/api/v1/namespaces/ns/pods/pod",
            json!({"metadata": {"finalizers": null}}),
        )
        .await;
    place.until_gone(NAMESPACE).await;
}

#[tokio::test]
async fn finalizers_of_the_namespace_itself_are_honoured() {
    let world = World::start().await;
    let place = world.plane("p1").await;
    place
        .create(
            "/api/v1/namespaces",
            json!({"metadata": {"name": "ns", "finalizers": ["example.com/hold"]}}),
        )
        .await;
    place.map("ns", "goes", json!([])).await;
    place.delete(NAMESPACE).await;
    place.until_gone(&map_path("ns", "goes")).await;
    let finalized = |found: Option<&Value>| found.is_some_and(|one| one["spec"].get("finalizers").is_none());
    let held = place.until(NAMESPACE, "finalized", finalized).await.unwrap();
    assert_eq!(held["metadata"]["finalizers"], json!(["example.com/hold"]));
    place.patch(NAMESPACE, json!({"metadata": {"finalizers": null}})).await;
    place.until_gone(NAMESPACE).await;
}

#[tokio::test]
async fn what_was_deleted_before_controllers_came_goes_when_they_come() {
    let server = mica_testkit::TestServer::start().await;
    let alone = World::with(server, &["-*"]).await;
    let places = alone.places().await;
    for place in &places {
        place.namespace("ns").await;
        place.map("ns", "m", json!([])).await;
        place.delete(NAMESPACE).await;
        assert_eq!(place.get(NAMESPACE).await.unwrap()["status"]["phase"], "Terminating");
    }
    let _now = World::with(alone.server, &["namespace"]).await;
    for place in &places {
        place.until_gone(NAMESPACE).await;
    }
}

#[tokio::test]
async fn namespaces_of_many_planes_go_together() {
    let world = World::start().await;
    let mut places = Vec::new();
    for i in 0..30 {
        let place = world.plane(&format!("p{i}")).await;
        for name in ["ns", "n2"] {
            place.namespace(name).await;
            place.map(name, "m", json!([])).await;
        }
        places.push(place);
    }
    for place in &places {
        place.delete(NAMESPACE).await;
        place.delete("/api/v1/namespaces/n2").await;
    }
    for place in &places {
        place.until_gone(NAMESPACE).await;
        place.until_gone("/api/v1/namespaces/n2").await;
    }
}

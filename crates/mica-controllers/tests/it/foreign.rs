//! The same controllers for an API server that does not tell of everything at once: a watch for each kind.

use serde_json::{Value, json};

use super::world::{World, map_path, owner};

#[tokio::test]
async fn namespaces_get_what_they_need_and_go_with_what_they_hold() {
    let world = World::foreign().await;
    let place = world.root();
    place.namespace("ns").await;
    for what in ["serviceaccounts/default", "configmaps/kube-root-ca.crt"] {
        place
            .until(&format!("/api/v1/namespaces/ns/{what}"), "there", |found| {
                found.is_some()
            })
            .await;
    }
    place.define_widgets().await;
    place
        .widget("ns", "w", json!({"finalizers": ["example.com/hold"]}))
        .await;
    place.delete("/api/v1/namespaces/ns").await;
    let path = "/apis/example.com/v1/namespaces/ns/widgets/w";
    let is_going = |found: Option<&Value>| found.is_some_and(|one| one["metadata"].get("deletionTimestamp").is_some());
    place.until(path, "going", is_going).await;
    place.patch(path, json!({"metadata": {"finalizers": null}})).await;
    place.until_gone("/api/v1/namespaces/ns").await;
}

#[tokio::test]
async fn garbage_is_collected_of_kinds_that_come_and_go() {
    let world = World::foreign().await;
    let place = world.root();
    place.define_widgets().await;
    let top = place.widget("default", "top", json!({})).await;
    let middle = place.map("default", "middle", json!([owner(&top, "Widget")])).await;
    place.map("default", "leaf", json!([owner(&middle, "ConfigMap")])).await;
    place
        .delete("/apis/example.com/v1/namespaces/default/widgets/top")
        .await;
    place.until_gone(&map_path("default", "middle")).await;
    place.until_gone(&map_path("default", "leaf")).await;
    // With their definition its objects go, and what they own.
    let top = place.widget("default", "again", json!({})).await;
    place.map("default", "again", json!([owner(&top, "Widget")])).await;
    place
        .delete("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com")
        .await;
    place.until_gone(&map_path("default", "again")).await;
}

#[tokio::test]
async fn the_foreground_waits_and_orphans_stay() {
    let world = World::foreign().await;
    let place = world.root();
    // The dependents are made and their owner is deleted at once: watches may tell of its end before they tell of them.
    for round in 0..5 {
        let (front, loose) = (format!("front{round}"), format!("loose{round}"));
        let top = place.map("default", &front, json!([])).await;
        let held = json!({"metadata": {
            "name": front, "finalizers": ["example.com/hold"], "ownerReferences": [owner(&top, "ConfigMap")],
        }});
        place.create("/api/v1/namespaces/default/secrets", held).await;
        place.delete_with(&map_path("default", &front), "Foreground").await;
        let secret = format!("/api/v1/namespaces/default/secrets/{front}");
        let is_going =
            |found: Option<&Value>| found.is_some_and(|one| one["metadata"].get("deletionTimestamp").is_some());
        place.until(&secret, "going", is_going).await;
        assert!(place.get(&map_path("default", &front)).await.is_some(), "it waits");
        place.patch(&secret, json!({"metadata": {"finalizers": null}})).await;
        place.until_gone(&map_path("default", &front)).await;

        let top = place.map("default", &loose, json!([])).await;
        let leaf = json!({"metadata": {"name": loose, "ownerReferences": [owner(&top, "ConfigMap")]}});
        place.create("/api/v1/namespaces/default/secrets", leaf).await;
        place.delete_with(&map_path("default", &loose), "Orphan").await;
        place.until_gone(&map_path("default", &loose)).await;
        let leaf = place
            .get(&format!("/api/v1/namespaces/default/secrets/{loose}"))
            .await
            .unwrap();
        assert_eq!(leaf["metadata"].get("ownerReferences"), None, "{leaf}");
    }
}

#[tokio::test]
async fn token_secrets_go_with_their_account() {
    let world = World::foreign().await;
    let place = world.root();
    place
        .create(
            "/api/v1/namespaces/default/serviceaccounts",
            json!({"metadata": {"name": "robot"}}),
        )
        .await;
    let annotations = json!({"kubernetes.io/service-account.name": "robot"});
    let secret = json!({"metadata": {"name": "token", "annotations": annotations}, "type": "kubernetes.io/service-account-token"});
    place.create("/api/v1/namespaces/default/secrets", secret).await;
    place
        .create(
            "/api/v1/namespaces/default/secrets",
            json!({"metadata": {"name": "other"}}),
        )
        .await;
    place.delete("/api/v1/namespaces/default/serviceaccounts/robot").await;
    place.until_gone("/api/v1/namespaces/default/secrets/token").await;
    assert!(place.get("/api/v1/namespaces/default/secrets/other").await.is_some());
}

#[tokio::test]
async fn quotas_get_back_what_is_deleted() {
    let world = World::foreign().await;
    let place = world.root();
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"secrets": "9"}}});
    place.create("/api/v1/namespaces/default/resourcequotas", quota).await;
    let path = "/api/v1/namespaces/default/resourcequotas/q";
    let used = |count: &'static str| {
        move |found: Option<&Value>| found.is_some_and(|one| one["status"]["used"] == json!({"secrets": count}))
    };
    place.until(path, "counted", used("0")).await;
    place
        .create("/api/v1/namespaces/default/secrets", json!({"metadata": {"name": "s"}}))
        .await;
    place.until(path, "charged", used("1")).await;
    place.delete("/api/v1/namespaces/default/secrets/s").await;
    place.until(path, "given back", used("0")).await;
}

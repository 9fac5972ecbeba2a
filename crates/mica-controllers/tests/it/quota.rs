//! Quotas: their status is true, and what is deleted is given back.

use serde_json::{Value, json};

use super::world::{Place, World};

const QUOTA: &str = "/api/v1/namespaces/ns/resourcequotas/q";

async fn used(place: &Place, expected: Value) {
    let is_so = |found: Option<&Value>| found.is_some_and(|one| one["status"]["used"] == expected);
    let what = format!("using {expected}");
    let quota = place.until(QUOTA, &what, is_so).await.unwrap();
    assert_eq!(quota["status"]["hard"], quota["spec"]["hard"]);
}

async fn limit(place: &Place, hard: Value) {
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": hard}});
    place.create("/api/v1/namespaces/ns/resourcequotas", quota).await;
}

#[tokio::test]
async fn what_is_deleted_is_given_back() {
    let world = World::start().await;
    for place in world.places().await {
        place.namespace("ns").await;
        place
            .create("/api/v1/namespaces/ns/secrets", json!({"metadata": {"name": "before"}}))
            .await;
        limit(&place, json!({"secrets": "2", "count/secrets": "2"})).await;
        used(&place, json!({"secrets": "1", "count/secrets": "1"})).await;
        let secret = |name: &str| json!({"metadata": {"name": name}});
        place.create("/api/v1/namespaces/ns/secrets", secret("a")).await;
        let refused = place
            .try_create("/api/v1/namespaces/ns/secrets", secret("b"))
            .await
            .unwrap_err();
        assert!(refused.to_string().contains("exceeded quota: q"), "{refused}");
        place.delete("/api/v1/namespaces/ns/secrets/before").await;
        used(&place, json!({"secrets": "1", "count/secrets": "1"})).await;
        place.create("/api/v1/namespaces/ns/secrets", secret("b")).await;
        place.delete("/api/v1/namespaces/ns/secrets/a").await;
        place.delete("/api/v1/namespaces/ns/secrets/b").await;
        used(&place, json!({"secrets": "0", "count/secrets": "0"})).await;
    }
}

#[tokio::test]
async fn custom_resources_and_pods_are_counted() {
    let world = World::start().await;
    let place = world.plane("p1").await;
    place.namespace("ns").await;
    limit(
        &place,
        json!({"count/widgets.example.com": "1", "pods": "3", "requests.cpu": "1"}),
    )
    .await;
    used(
        &place,
        json!({"count/widgets.example.com": "0", "pods": "0", "requests.cpu": "0"}),
    )
    .await;
    place.define_widgets().await;
    place.widget("ns", "w", json!({})).await;
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": "300m"}}});
    let pod = json!({"metadata": {"name": "pod"}, "spec": {"containers": [container]}});
    place.create("/api/v1/namespaces/ns/pods", pod).await;
    used(
        &place,
        json!({"count/widgets.example.com": "1", "pods": "1", "requests.cpu": "300m"}),
    )
    .await;
    // A pod that has ended does not count.
    place
        .patch(
            "/api/v1/namespaces/ns/pods/pod/status",
            json!({"status": {"phase": "Succeeded"}}),
        )
        .await;
    used(
        &place,
        json!({"count/widgets.example.com": "1", "pods": "0", "requests.cpu": "0"}),
    )
    .await;
    place.delete("/apis/example.com/v1/namespaces/ns/widgets/w").await;
    used(
        &place,
        json!({"count/widgets.example.com": "0", "pods": "0", "requests.cpu": "0"}),
    )
    .await;
}

#[tokio::test]
async fn a_new_limit_is_in_force_at_once() {
    let world = World::start().await;
    let place = world.plane("p1").await;
    place.namespace("ns").await;
    limit(&place, json!({"secrets": "2"})).await;
    used(&place, json!({"secrets": "0"})).await;
    place
        .patch(QUOTA, json!({"spec": {"hard": {"secrets": null, "services": "0"}}}))
        .await;
    used(&place, json!({"services": "0"})).await;
}

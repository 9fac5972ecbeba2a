//! What every namespace has: its service account and its certificate.

use serde_json::{Value, json};

use super::world::{Place, World, map_path};

const ACCOUNT: &str = "serviceaccounts/default";
const CA: &str = "configmaps/kube-root-ca.crt";

fn path(namespace: &str, what: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/{what}")
}

async fn uid(place: &Place, path: &str, other_than: &str) -> String {
    let is_new = |found: Option<&Value>| found.is_some_and(|one| one["metadata"]["uid"] != other_than);
    let found = place.until(path, "there anew", is_new).await.unwrap();
    found["metadata"]["uid"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn every_namespace_has_an_account_and_a_certificate_that_come_back() {
    let world = World::start().await;
    for place in world.places().await {
        place.namespace("ns").await;
        // Those that a plane is born with, too.
        for namespace in ["ns", "kube-system"] {
            for what in [ACCOUNT, CA] {
                let path = path(namespace, what);
                let first = uid(&place, &path, "").await;
                place.delete(&path).await;
                uid(&place, &path, &first).await;
            }
        }
    }
}

#[tokio::test]
async fn the_certificate_is_set_right() {
    let world = World::start().await;
    for place in world.places().await {
        place.namespace("ns").await;
        let path = map_path("ns", "kube-root-ca.crt");
        let is_right =
            |found: Option<&Value>| found.is_some_and(|one| one["data"] == json!({"ca.crt": "a certificate\n"}));
        let made = place.until(&path, "right", is_right).await.unwrap();
        let description = made["metadata"]["annotations"]["kubernetes.io/description"]
            .as_str()
            .unwrap();
        assert!(description.starts_with("Contains a CA bundle"), "{description}");
        place
            .patch(&path, json!({"data": {"ca.crt": "another", "x": "y"}}))
            .await;
        place.until(&path, "right again", is_right).await;
    }
}

#[tokio::test]
async fn what_is_not_chosen_does_not_run() {
    let world = World::with(mica_testkit::TestServer::start().await, &["*", "-serviceaccount"]).await;
    let place = world.plane("p1").await;
    place.namespace("ns").await;
    place.until(&path("ns", CA), "there", |found| found.is_some()).await;
    assert_eq!(place.get(&path("ns", ACCOUNT)).await, None);
}

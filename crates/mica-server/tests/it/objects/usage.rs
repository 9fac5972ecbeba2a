//! What a Plane says of what it holds.

use serde_json::{Value, json};

use super::api::{Api, config_map};

const PLANE: &str = "/apis/mica.dev/v1alpha1/planes/p1";

async fn objects(api: &Api) -> Value {
    api.get(PLANE).await["status"]["usage"]["objects"].clone()
}

#[tokio::test]
async fn usage_is_counted_when_a_plane_is_read() {
    let api = Api::start().await;
    api.plane("p1").await;
    assert_eq!(
        api.get(PLANE).await["status"]["usage"],
        json!({"objects": 0, "bytes": 0})
    );
    api.config_map("p1", "a", &[]).await;
    // Records about owners are no objects.
    api.config_map("p1", "b", &["u1", "u2"]).await;
    assert_eq!(objects(&api).await, 2);
    let bytes = api.get(PLANE).await["status"]["usage"]["bytes"].as_u64().unwrap();
    assert!((200..10_000).contains(&bytes), "{bytes}");
    api.delete(&config_map("p1", "b")).await;
    assert_eq!(objects(&api).await, 1);
}

#[tokio::test]
async fn usage_is_neither_stored_nor_in_lists_and_watches() {
    let api = Api::start().await;
    api.plane("p1").await;
    api.config_map("p1", "a", &[]).await;
    let plane = api.get(PLANE).await;
    assert_eq!(plane["status"]["usage"]["objects"], 1);
    let list = api.get("/apis/mica.dev/v1alpha1/planes").await;
    assert!(list["items"][0]["status"].get("usage").is_none());
    let mut watch = api.watch("/apis/mica.dev/v1alpha1/planes?watch=1").await;
    assert!(watch.next().await.unwrap()["object"]["status"].get("usage").is_none());
    // Sent back as it was read, it changes nothing.
    let (code, written) = api.call(http::Method::PUT, PLANE, Some(&plane)).await;
    assert_eq!(code, 200, "{written}");
    assert_eq!(
        written["metadata"]["resourceVersion"],
        plane["metadata"]["resourceVersion"]
    );
}

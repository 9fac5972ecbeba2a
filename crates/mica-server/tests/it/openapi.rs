//! OpenAPI of planes whose definitions come, change and go.

use http::Method;
use serde_json::{Value, json};

use super::world::{Answer, Api, World, text};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const DOCUMENT: &str = "/openapi/v3/apis/example.com/v1";

fn definition(description: &str) -> Value {
    let spec = json!({"type": "object", "properties": {"size": {"type": "integer", "description": description}}});
    let schema = json!({"type": "object", "properties": {"spec": spec}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"kind": "Widget", "plural": "widgets"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    })
}

fn described(document: &Value) -> &str {
    text(
        document,
        "/components/schemas/com.example.v1.Widget/properties/spec/properties/size/description",
    )
}

/// The address of the document of widgets.
async fn address(api: &Api) -> String {
    let index = api.get("/openapi/v3").await.expect(200);
    text(&index["paths"]["apis/example.com/v1"], "/serverRelativeURL").to_owned()
}

async fn swagger(api: &Api, tag: &str) -> Answer {
    api.call(Method::GET, "/openapi/v2", &[("if-none-match", tag)], "")
        .await
}

#[tokio::test]
async fn documents_follow_the_definitions_of_their_plane() {
    let world = World::start().await;
    let (one, other, root) = (world.plane("one").await, world.plane("other").await, world.root().await);
    let plain = swagger(&one, "").await.header("etag").to_owned();
    one.post(DEFINITIONS, &definition("first")).await.expect(201);

    let document = one.until(DOCUMENT, 200).await;
    assert_eq!(described(&document), "first");
    let before = address(&one).await;
    assert!(before.starts_with("/clusters/one/control-plane/openapi/v3/apis/example.com/v1?hash="));
    let by_hash = root.get(&before).await;
    assert_eq!(by_hash.header("cache-control"), "public, immutable");
    assert_eq!(by_hash.expect(200), document);

    let both = swagger(&one, &plain).await;
    let tag = both.header("etag").to_owned();
    let both = both.expect(200);
    assert!(both["definitions"]["com.example.v1.Widget"].is_object());
    assert!(both["definitions"]["io.k8s.api.core.v1.ConfigMap"].is_object());
    assert_eq!(swagger(&one, &tag).await.code(), 304);

    for elsewhere in [&other, &root] {
        assert_eq!(elsewhere.get(DOCUMENT).await.code(), 404);
        assert_eq!(address(elsewhere).await, "");
    }
    assert_eq!(
        swagger(&other, &plain).await.code(),
        304,
        "planes without definitions share theirs"
    );

    let path = format!("{DEFINITIONS}/widgets.example.com");
    let changed = json!({"spec": {"versions": definition("second")["spec"]["versions"]}});
    one.patch(&path, &changed).await.expect(200);
    let after = address(&one).await;
    assert_ne!(
        before, after,
        "an answer to a write comes before any that does not know of it"
    );
    let moved = root.get(&before).await;
    assert_eq!((moved.code(), moved.header("location")), (301, after.as_str()));
    assert_eq!(described(&root.get(&after).await.expect(200)), "second");
    assert_eq!(swagger(&one, &tag).await.code(), 200);

    one.delete(&path).await.expect(200);
    one.until(DOCUMENT, 404).await;
    assert_eq!(address(&one).await, "");
    assert_eq!(swagger(&one, &plain).await.code(), 304);
}

#[tokio::test]
async fn planes_with_the_same_definitions_have_the_same_documents() {
    let world = World::start().await;
    let (one, other) = (world.plane("one").await, world.plane("other").await);
    let mut addresses = Vec::new();
    for plane in [&one, &other] {
        plane.post(DEFINITIONS, &definition("same")).await.expect(201);
        plane.until(DOCUMENT, 200).await;
        addresses.push(address(plane).await.split_once("?hash=").unwrap().1.to_owned());
    }
    assert_eq!(addresses[0], addresses[1]);
    let tag = swagger(&one, "").await.header("etag").to_owned();
    assert_eq!(swagger(&other, &tag).await.code(), 304);
}

#[tokio::test]
async fn mica_kinds_can_be_explained() {
    let world = World::start().await;
    let (root, plane) = (world.root().await, world.plane("one").await);
    for (api, kind) in [
        (&root, "Plane"),
        (&root, "PartialObjectMetadata"),
        (&plane, "PartialObjectMetadata"),
    ] {
        let document = api.get("/openapi/v3/apis/mica.dev/v1alpha1").await.expect(200);
        let wanted = json!({"group": "mica.dev", "version": "v1alpha1", "kind": kind});
        let schemas = document["components"]["schemas"].as_object().unwrap();
        let found = schemas.values().find(|schema| {
            let kinds = schema["x-kubernetes-group-version-kind"].as_array();
            kinds.is_some_and(|kinds| kinds.contains(&wanted))
        });
        assert!(
            found.is_some_and(|schema| schema["properties"]["metadata"].is_object()),
            "{kind}"
        );
    }
}

//! Planes that move to a newer base layer: here one with another authority's certificate in every namespace.

use std::sync::Arc;

use http::Method;
use mica_store::{MemStore, Store};
use serde_json::{Value, json};

use crate::world::{self, PLANES, World, text};

const CA: &str = "kube-root-ca.crt";

fn ca(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/configmaps/{CA}")
}

fn certificate(map: &Value) -> &str {
    map["data"]["ca.crt"].as_str().unwrap()
}

/// A plane made by one server, seen by a newer one with another layer on the same store.
async fn older_plane() -> (World, world::Api, world::Api) {
    let store: Arc<dyn Store> = Arc::new(MemStore::new());
    let old = World::on(store.clone()).await;
    old.root().await.create_plane("p1").await;
    let new = World::on(store).await;
    let root = new.root().await;
    let plane = root.at_plane("p1");
    (new, root, plane)
}

#[tokio::test]
async fn root_moves_when_a_newer_server_starts_and_planes_when_told() {
    let (world, root, plane) = older_plane().await;
    let new = world.authority.certificate_pem();
    assert_eq!(certificate(&root.get(&ca("default")).await.expect(200)), new);
    let before = plane.get(&ca("default")).await.expect(200);
    assert_ne!(certificate(&before), new);

    let start = world.revision().await;
    let mut watch = plane
        .watch(&format!("/api/v1/configmaps?watch=1&resourceVersion={start}"))
        .await;
    let moved = root.post(&format!("{PLANES}/p1/rebase"), &json!({})).await.expect(201);
    assert_eq!(moved["kind"], "Plane");
    let after = plane.get(&ca("default")).await.expect(200);
    assert_eq!(certificate(&after), new);
    for field in ["uid", "creationTimestamp"] {
        assert_eq!(after["metadata"][field], before["metadata"][field], "{field} stays");
    }

    let mut events = Vec::new();
    for _ in 0..4 {
        let event = watch.next().await.unwrap();
        assert_eq!(
            (text(&event, "/type"), certificate(&event["object"])),
            ("MODIFIED", new)
        );
        events.push(event);
    }
    let namespaces: Vec<&str> = events
        .iter()
        .map(|event| text(event, "/object/metadata/namespace"))
        .collect();
    assert_eq!(namespaces, ["default", "kube-node-lease", "kube-public", "kube-system"]);
    assert_eq!(events[0]["object"], after);
    // From each of them exactly the rest follows.
    for at in 0..3 {
        let revision = text(&events[at], "/object/metadata/resourceVersion");
        let mut resumed = plane
            .watch(&format!("/api/v1/configmaps?watch=1&resourceVersion={revision}"))
            .await;
        for event in &events[at + 1..] {
            assert_eq!(resumed.next().await.as_ref(), Some(event));
        }
    }
    let exact = format!("/api/v1/configmaps?resourceVersion={start}&resourceVersionMatch=Exact");
    let then = plane.get(&exact).await.expect(200);
    assert!(
        then["items"]
            .as_array()
            .unwrap()
            .iter()
            .all(|map| certificate(map) == certificate(&before))
    );

    let end = world.revision().await;
    root.post(&format!("{PLANES}/p1/rebase"), &json!({})).await.expect(201);
    assert_eq!(world.revision().await, end, "there is nothing left to move");
}

#[tokio::test]
async fn what_a_plane_changed_or_deleted_itself_stays_so() {
    let (world, root, plane) = older_plane().await;
    plane
        .patch(&ca("default"), &json!({"data": {"more": "x"}}))
        .await
        .expect(200);
    plane.delete(&ca("kube-public")).await.expect(200);
    let own = plane.get(&ca("default")).await.expect(200);
    root.post(&format!("{PLANES}/p1/rebase"), &json!({})).await.expect(201);
    assert_eq!(plane.get(&ca("default")).await.expect(200), own);
    plane.get(&ca("kube-public")).await.expect(404);
    let new = world.authority.certificate_pem();
    assert_eq!(certificate(&plane.get(&ca("kube-system")).await.expect(200)), new);

    // Marks are no objects of the plane: it still holds the one that it changed, and one deletion.
    let objects = root
        .get("/clusters/*/control-plane/apis/mica.dev/v1alpha1/objects")
        .await
        .expect(200);
    assert_eq!(world::names(&objects), [CA]);

    // What a layer brought can be changed, deleted and made again like anything else.
    plane
        .patch(&ca("kube-system"), &json!({"data": {"more": "x"}}))
        .await
        .expect(200);
    plane.delete(&ca("kube-node-lease")).await.expect(200);
    plane.get(&ca("kube-node-lease")).await.expect(404);
    root.post(&format!("{PLANES}/p1/rebase"), &json!({})).await.expect(201);
    plane.get(&ca("kube-node-lease")).await.expect(404);
    let made = json!({"metadata": {"name": CA}, "data": {"ca.crt": "mine"}});
    plane
        .post("/api/v1/namespaces/kube-node-lease/configmaps", &made)
        .await
        .expect(201);

    // A copy has the same.
    root.post(&format!("{PLANES}/p1/fork"), &json!({"name": "copy"}))
        .await
        .expect(201);
    let copy = root.at_plane("copy");
    for namespace in ["default", "kube-node-lease", "kube-system"] {
        let mut maps = [
            plane.get(&ca(namespace)).await.expect(200),
            copy.get(&ca(namespace)).await.expect(200),
        ];
        for map in &mut maps {
            map["metadata"]["resourceVersion"] = Value::Null;
        }
        assert_eq!(maps[0], maps[1]);
    }
    copy.get(&ca("kube-public")).await.expect(404);
}

#[tokio::test]
async fn a_snapshot_brings_its_base_layers_into_another_store() {
    let (_world, root, plane) = older_plane().await;
    root.post(&format!("{PLANES}/p1/rebase"), &json!({})).await.expect(201);
    plane.delete(&ca("kube-public")).await.expect(200);
    let snapshot = root.get(&format!("{PLANES}/p1/snapshot")).await;
    assert_eq!(snapshot.code(), 200);

    let other = World::start().await;
    let there = other.root().await;
    let restore = format!("{PLANES}/p1/restore");
    there
        .call(Method::POST, &restore, &[], snapshot.body.clone())
        .await
        .expect(201);
    let restored = there.at_plane("p1");
    for path in [ca("default"), "/api/v1/namespaces/kube-system".to_owned()] {
        let mut objects = [
            plane.get(&path).await.expect(200),
            restored.get(&path).await.expect(200),
        ];
        for object in &mut objects {
            object["metadata"]["resourceVersion"] = Value::Null;
        }
        assert_eq!(objects[0], objects[1]);
    }
    restored.get(&ca("kube-public")).await.expect(404);
    // There the newest layer is another one again.
    there.post(&format!("{PLANES}/p1/rebase"), &json!({})).await.expect(201);
    let moved = restored.get(&ca("default")).await.expect(200);
    assert_eq!(certificate(&moved), other.authority.certificate_pem());
}

//! Classes of planes: what planes of one have in common, and how a change reaches them.

use std::sync::Arc;

use mica_store::{MemStore, Store};
use serde_json::json;

use crate::world::{PLANES, World, plane};

const CLASSES: &str = "/apis/mica.dev/v1alpha1/planeclasses";

/// How many objects a plane may hold, as a server sees it.
async fn objects(world: &World, name: &str) -> Option<u64> {
    world.server.directory.by_name(name).await.unwrap().limits().objects
}

#[tokio::test]
async fn a_plane_has_the_limits_of_its_class_until_it_has_its_own() {
    let store: Arc<dyn Store> = Arc::new(MemStore::new());
    let (world, other) = (World::on(store.clone()).await, World::on(store).await);
    let root = world.root().await;
    let mut small = plane("small");
    small["spec"] = json!({"className": "small"});
    root.post(PLANES, &small).await.expect(201);
    root.create_plane("plain").await;
    assert_eq!(
        [objects(&world, "small").await, objects(&other, "small").await],
        [None, None]
    );

    let class = json!({"metadata": {"name": "small"}, "spec": {"limits": {"objects": 5, "storedBytes": "1Mi"}}});
    root.post(CLASSES, &class).await.expect(201);
    assert_eq!(objects(&world, "small").await, Some(5), "at once where it was written");
    while objects(&other, "small").await != Some(5) {
        tokio::task::yield_now().await;
    }

    let more = json!({"spec": {"limits": {"objects": 7}}});
    root.patch(&format!("{CLASSES}/small"), &more).await.expect(200);
    assert_eq!(objects(&world, "small").await, Some(7));
    let own = json!({"spec": {"limits": {"objects": 6}}});
    root.patch(&format!("{PLANES}/small"), &own).await.expect(200);
    assert_eq!(objects(&world, "small").await, Some(6));

    assert_eq!(objects(&world, "plain").await, None);
    let default = json!({"metadata": {"name": "default"}, "spec": {"limits": {"objects": 100}}});
    root.post(CLASSES, &default).await.expect(201);
    assert_eq!(objects(&world, "plain").await, Some(100), "it names none");
}

#[tokio::test]
async fn a_class_that_makes_no_sense_is_refused_with_what_is_wrong() {
    let world = World::start().await;
    let root = world.root().await;
    let spec = json!({"limits": {"objects": 0}, "egress": {"allow": ["10.0.0.0/8", "10.0.0.1/8"]}});
    let refused = root
        .post(CLASSES, &json!({"metadata": {"name": "bad"}, "spec": spec}))
        .await;
    assert_eq!(refused.code(), 422);
    expect_test::expect![[r#"PlaneClass.mica.dev "bad" is invalid: [spec.limits.objects: Invalid value: 0: must be greater than zero, spec.egress.allow[1]: Invalid value: "10.0.0.1/8": "10.0.0.1/8" is not an address range such as 10.0.0.0/8 or fd00::/8]"#]].assert_eq(&refused.message());
    let mut named = plane("p1");
    named["spec"] = json!({"className": "No Class", "limits": {"watches": -1}});
    let refused = root.post(PLANES, &named).await;
    assert_eq!(refused.code(), 422);
    assert!(
        refused.message().contains("spec.className: Invalid value"),
        "{}",
        refused.message()
    );
    assert!(
        refused.message().contains("spec.limits.watches: Invalid value: -1"),
        "{}",
        refused.message()
    );
    root.create_plane("p2").await;
    assert_eq!(
        root.at_plane("p2").get(CLASSES).await.code(),
        404,
        "planes have no classes"
    );
}

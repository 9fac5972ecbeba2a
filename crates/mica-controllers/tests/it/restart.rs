//! What a server sets right when it starts again.

use std::sync::Arc;

use mica_store::{MemStore, Store};
use mica_testkit::TestServer;
use serde_json::json;

use super::world::World;

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

#[tokio::test]
async fn a_deleted_default_role_is_back_after_a_restart_and_what_it_was_given_stays() {
    let store: Arc<dyn Store> = Arc::new(MemStore::new());
    let world = World::with(TestServer::builder().store(store.clone()).start().await, &["*"]).await;
    let authority = world.server.authority().clone();
    let [root, plane] = world.places().await;
    let deleted = format!("{RBAC}/clusterroles/system:discovery");
    let shrunk = format!("{RBAC}/clusterroles/system:kube-scheduler");
    let unbound = format!("{RBAC}/clusterrolebindings/system:public-info-viewer");
    let kept = format!("{RBAC}/clusterrolebindings/system:kube-dns");
    let [born, whole, bound] = [&deleted, &shrunk, &unbound].map(|path| root.get(path));
    let (born, whole, bound) = (born.await.unwrap(), whole.await.unwrap(), bound.await.unwrap());
    for place in [&root, &plane] {
        place.delete(&deleted).await;
    }
    let own = json!({"apiGroups": ["example.com"], "resources": ["widgets"], "verbs": ["get"]});
    root.patch(&shrunk, json!({"rules": [own]})).await;
    root.patch(&unbound, json!({"subjects": null})).await;
    let mine = json!({"metadata": {"annotations": {"rbac.authorization.kubernetes.io/autoupdate": "false"}}, "subjects": null});
    root.patch(&kept, mine).await;
    drop(world);

    let again = TestServer::builder().store(store).authority(authority).start().await;
    let world = World::with(again, &["*"]).await;
    let root = world.root();
    let role = root.get(&deleted).await.expect("it is back");
    assert_eq!(role["rules"], born["rules"]);
    let rules = root.get(&shrunk).await.unwrap()["rules"].as_array().unwrap().clone();
    assert_eq!(rules[0], own, "what it was given stays");
    assert_eq!(
        rules[1..],
        whole["rules"].as_array().unwrap()[..],
        "what it had is back"
    );
    assert_eq!(root.get(&unbound).await.unwrap()["subjects"], bound["subjects"]);
    assert!(
        root.get(&kept).await.unwrap()["subjects"].is_null(),
        "it said so itself"
    );
    let path = format!("/clusters/p1/control-plane{deleted}");
    assert!(
        root.get(&path).await.is_none(),
        "planes keep what their users made of theirs"
    );
}

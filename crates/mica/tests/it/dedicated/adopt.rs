//! Dedicated control planes that are deleted and keep their data: who may have it afterwards.

use mica_api::control_plane::ADOPT_ANNOTATION;
use serde_json::{Value, json};

use super::shop::exists;
use super::site::{CONTROL_PLANES, Site, get, inside, is_ready, send, until, until_gone};

const NAMESPACES: &str = "/api/v1/namespaces";
/// The name of the plane, whoever has it.
const PATH: &str = "held";

async fn make(root: &kube::Client, name: &str, policy: &str, adopts: Option<&str>) {
    let made = json!({"apiVersion": "controlplane.kplane.dev/v1alpha1", "kind": "ControlPlane",
        "metadata": {"name": name, "annotations": {ADOPT_ANNOTATION: adopts}},
        "spec": {"mode": "Dedicated", "deletionPolicy": policy, "virtual": {"clusterPath": PATH}}});
    send(root, "POST", CONTROL_PLANES, &made).await.unwrap();
}

async fn delete(root: &kube::Client, name: &str) {
    let path = format!("{CONTROL_PLANES}/{name}");
    send(root, "DELETE", &path, &Value::Null).await.unwrap();
    until_gone(root, &path).await;
}

/// The id of the plane that is kept under a name.
fn kept(site: &Site, name: &str) -> String {
    let marker = std::fs::read(site.shop.servers().join(name).join("retained.json")).unwrap();
    let marker: Value = serde_json::from_slice(&marker).unwrap();
    assert_eq!(marker["clusterPath"], PATH);
    marker["planeId"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retained_dedicated_plane_is_had_again_by_who_says_its_id_and_by_nobody_else() {
    let site = Site::new(&[]);
    let _operator = site.start();
    let root = site.administrator().await;
    let ready = async |name: &str| {
        until(&root, &format!("{CONTROL_PLANES}/{name}"), "ready", is_ready).await;
        inside(&root, name).await.unwrap()
    };
    make(&root, "first", "Retain", None).await;
    let first = ready("first").await;
    send(&first, "POST", NAMESPACES, &json!({"metadata": {"name": "data"}}))
        .await
        .unwrap();
    delete(&root, "first").await;
    assert_eq!(site.own("first"), None);
    let id = kept(&site, "first");

    // Who only has its name does not have it, and cannot destroy it.
    make(&root, "first", "Destroy", None).await;
    let path = format!("{CONTROL_PLANES}/first");
    let refused = until(&root, &path, "refused", |found| {
        let conditions = found["status"]["conditions"].as_array();
        let taken = |one: &Value| one["type"] == "Provisioned" && one["reason"] == "ClusterPathTaken";
        conditions.is_some_and(|all| all.iter().any(taken))
    })
    .await;
    let told = format!("{ADOPT_ANNOTATION}={id}");
    assert!(refused["status"].to_string().contains(&told), "{refused}");
    delete(&root, "first").await;
    assert_eq!(kept(&site, "first"), id);

    // Who says its id has it, under any name; and those who had it before are not let in any more.
    make(&root, "heir", "Retain", Some(&id)).await;
    let heir = ready("heir").await;
    get(&heir, &format!("{NAMESPACES}/data")).await.unwrap();
    assert!(!exists(&site.shop.servers().join("first")));
    assert_eq!(get(&first, NAMESPACES).await.unwrap_err().code, 401);
    delete(&root, "heir").await;
    assert_eq!(kept(&site, "heir"), id);

    // The annotation may come later.
    make(&root, "heir", "Destroy", None).await;
    let path = format!("{CONTROL_PLANES}/heir");
    let adopt = json!({"metadata": {"annotations": {ADOPT_ANNOTATION: id}}});
    send(&root, "PATCH", &path, &adopt).await.unwrap();
    let heir = ready("heir").await;
    get(&heir, &format!("{NAMESPACES}/data")).await.unwrap();
    delete(&root, "heir").await;
    assert!(!exists(&site.shop.servers().join("heir")));
}

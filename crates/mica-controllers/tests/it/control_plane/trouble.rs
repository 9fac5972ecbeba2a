//! Servers that do not answer, planes that take no requests, and names as long as they can be.

use mica_controllers::{Api, control_plane::Home};

use super::*;
use crate::world::Asked;

/// A management plane whose shared server can be made to fail.
async fn failing() -> (World, Place, World, Asked) {
    let shared = World::with(server().await, &["namespace", "garbagecollector"]).await;
    let asked = Asked::default();
    let settings = Settings::new(Home {
        api: Api::new(asked.count(world::inside(&shared.server))),
        ..world::home(&shared.server)
    });
    let management = World::with_settings(server().await, settings).await;
    let root = management.root();
    (management, root, shared, asked)
}

#[tokio::test]
async fn a_namespace_of_somebody_else_is_left_alone_and_waited_for() {
    let (_world, root) = world().await;
    let name = management_namespace("a");
    let path = format!("/api/v1/namespaces/{name}");
    root.namespace(&name).await;
    let before = root.get(&path).await.unwrap();
    control_plane(&root, "a", json!({})).await;
    until_says(&root, "a", "CredentialsReady", "False", "NamespaceTaken").await;
    let after = root.get(&path).await.unwrap();
    assert_eq!(after["metadata"], before["metadata"]);
    root.delete(&path).await;
    until_ready(&root, "a").await;
}

#[tokio::test]
async fn trouble_with_the_server_takes_back_nothing_that_was_published() {
    let (_management, root, shared, asked) = failing().await;
    make(&root, CLASSES, "ControlPlaneClass", "c", json!({})).await;
    control_plane(&root, "a", json!({"classRef": {"name": "c"}})).await;
    let ready = until_ready(&root, "a").await;
    asked.fail();
    let before = asked.len();
    root.patch(&format!("{CLASSES}/c"), json!({"spec": {"limits": {"objects": 700}}}))
        .await;
    root.patch(
        &format!("{CONTROL_PLANES}/a"),
        json!({"spec": {"deletionPolicy": "Destroy"}}),
    )
    .await;
    asked.until_more(before + 5).await;
    let meanwhile = root.get(&format!("{CONTROL_PLANES}/a")).await.unwrap();
    assert_eq!(meanwhile["status"], ready["status"], "it is as usable as it was");
    // One that is new says what it waits for.
    control_plane(&root, "b", json!({})).await;
    let waiting = until_says(&root, "b", "Provisioned", "False", "Provisioning").await;
    assert_eq!(waiting["status"]["phase"], "Provisioning");
    assert!(message(&waiting, "Ready").contains("out of order"));
    asked.recover();
    until_ready(&root, "a").await;
    until_ready(&root, "b").await;
    shared
        .root()
        .until(&format!("{PLANES}/a"), "limited", |found| {
            found.is_some_and(|found| found["spec"]["limits"]["objects"] == 700)
        })
        .await;
}

#[tokio::test]
async fn a_plane_that_takes_no_requests_is_said_so_and_waited_for() {
    let (_world, root) = world().await;
    control_plane(&root, "a", json!({})).await;
    until_ready(&root, "a").await;
    root.patch(&format!("{PLANES}/a"), json!({"spec": {"state": "Suspended"}}))
        .await;
    let stopped = until_says(&root, "a", "Provisioned", "False", "PlaneNotActive").await;
    assert!(message(&stopped, "Ready").contains("Suspended"));
    assert!(stopped["status"]["kubeconfigSecretRef"].is_object());
    root.patch(&format!("{PLANES}/a"), json!({"spec": {"state": "Active"}}))
        .await;
    until_ready(&root, "a").await;
    // One that is destroyed by hand is made anew.
    let id = |plane: &Value| plane["status"]["id"].clone();
    let first = id(&root.get(&format!("{PLANES}/a")).await.unwrap());
    root.delete(&format!("{PLANES}/a")).await;
    root.until(&format!("{PLANES}/a"), "made anew", |found| {
        found.is_some_and(|found| id(found) != first)
    })
    .await;
    until_ready(&root, "a").await;
}

#[tokio::test]
async fn a_name_may_be_as_long_as_names_are() {
    let (_world, root) = world().await;
    let name = format!("a{}.{}", "b".repeat(60), "c".repeat(120));
    control_plane(&root, &name, json!({"deletionPolicy": "Destroy"})).await;
    until_says(&root, &name, "Provisioned", "False", "InvalidClusterPath").await;
    root.delete(&format!("{CONTROL_PLANES}/{name}")).await;
    root.until_gone(&format!("{CONTROL_PLANES}/{name}")).await;
    control_plane(
        &root,
        &name,
        json!({"virtual": {"clusterPath": "short"}, "deletionPolicy": "Destroy"}),
    )
    .await;
    let ready = until_ready(&root, &name).await;
    let secret = &ready["status"]["kubeconfigSecretRef"];
    assert!(secret["name"].as_str().unwrap().len() <= 63 && secret["namespace"].as_str().unwrap().len() <= 63);
    root.delete(&secret_path(&name)).await;
    root.until(&secret_path(&name), "made again", |found| found.is_some())
        .await;
    root.delete(&format!("{CONTROL_PLANES}/{name}")).await;
    root.until_gone(&format!("{CONTROL_PLANES}/{name}")).await;
}

//! Addons are applied in order, kept in step, and taken away when they are dropped.

use mica_api::control_plane::ADDON_LABEL;

use super::*;
use crate::registration::says;

const BUNDLE: &str = r#"
apiVersion: example.com/v1
kind: Gadget
metadata: {name: g, namespace: tools}
spec: {size: 1}
---
apiVersion: v1
kind: Namespace
metadata: {name: tools}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: plain}
data: {a: "1"}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.example.com}
spec:
  group: example.com
  names: {plural: gadgets, singular: gadget, kind: Gadget, listKind: GadgetList}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
"#;

async fn bundle(root: &Place, addon: &str, text: &str) {
    let map = json!({"metadata": {"name": format!("addon-{addon}"), "labels": {ADDON_LABEL: addon}}, "data": {"all.yaml": text}});
    root.create("/api/v1/namespaces/kplane-system/configmaps", map).await;
}

#[tokio::test]
async fn an_addon_is_applied_kept_in_step_and_pruned() {
    let (_world, root) = world().await;
    root.namespace("kplane-system").await;
    bundle(&root, "tools", BUNDLE).await;
    make(
        &root,
        CLASSES,
        "ControlPlaneClass",
        "c",
        json!({"addons": ["starter", "tools"]}),
    )
    .await;
    control_plane(&root, "a", json!({"classRef": {"name": "c"}})).await;
    until_ready(&root, "a").await;
    let inside = "/clusters/a/control-plane";
    let gadget = format!("{inside}/apis/example.com/v1/namespaces/tools/gadgets/g");
    let plain = format!("{inside}/api/v1/namespaces/default/configmaps/plain");
    assert_eq!(root.get(&gadget).await.unwrap()["spec"]["size"], 1);
    assert_eq!(root.get(&plain).await.unwrap()["data"]["a"], "1");
    // What somebody takes away or changes is put right.
    root.delete(&gadget).await;
    root.until(&gadget, "made again", |found| found.is_some()).await;
    root.patch(&plain, json!({"data": {"a": "2"}})).await;
    root.until(&plain, "put right", |found| {
        found.is_some_and(|found| found["data"]["a"] == "1")
    })
    .await;
    // What the bundle says now is what is there, and what it does not say any more is not.
    let (less, _) = BUNDLE.split_once("apiVersion: v1\nkind: ConfigMap").unwrap();
    let definition = BUNDLE.split_once("data: {a: \"1\"}\n---\n").unwrap().1;
    let text = format!("{}{definition}", less.replace("size: 1", "size: 2"));
    let map = "/api/v1/namespaces/kplane-system/configmaps/addon-tools";
    root.patch(map, json!({"data": {"all.yaml": text}})).await;
    root.until(&gadget, "changed", |found| {
        found.is_some_and(|found| found["spec"]["size"] == 2)
    })
    .await;
    root.until_gone(&plain).await;
    root.patch(&format!("{CLASSES}/c"), json!({"spec": {"addons": ["starter"]}}))
        .await;
    root.until_gone(&format!(
        "{inside}/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gadgets.example.com"
    ))
    .await;
    root.until_gone(&format!("{inside}/api/v1/namespaces/tools")).await;
    until_ready(&root, "a").await;
    assert!(
        root.get(&format!("{inside}/api/v1/namespaces/kplane-system"))
            .await
            .is_some()
    );
}

#[tokio::test]
async fn an_addon_that_is_missing_or_bad_says_so_and_takes_nothing_away() {
    let (_world, root) = world().await;
    root.namespace("kplane-system").await;
    make(&root, CLASSES, "ControlPlaneClass", "c", json!({"addons": ["later"]})).await;
    control_plane(&root, "a", json!({"classRef": {"name": "c"}})).await;
    let refused = until_says(&root, "a", "AddonsApplied", "False", "AddonNotFound").await;
    assert!(
        refused["status"]["kubeconfigSecretRef"].is_object(),
        "everything else is done"
    );
    let good = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: plain}\n";
    bundle(&root, "later", good).await;
    until_ready(&root, "a").await;
    let map = "/api/v1/namespaces/kplane-system/configmaps/addon-later";
    root.patch(map, json!({"data": {"all.yaml": "a: b: c"}})).await;
    let refused = until_says(&root, "a", "AddonsApplied", "False", "AddonFailed").await;
    assert!(message(&refused, "AddonsApplied").contains("addon-later/all.yaml"));
    let plain = "/clusters/a/control-plane/api/v1/namespaces/default/configmaps/plain";
    assert!(root.get(plain).await.is_some());
    let unknown = format!("{good}---\napiVersion: example.com/v1\nkind: Nothing\nmetadata: {{name: none}}\n");
    root.patch(map, json!({"data": {"all.yaml": unknown}})).await;
    root.until(&format!("{CONTROL_PLANES}/a"), "told", |found| {
        found.is_some_and(|found| message(found, "AddonsApplied").contains("Nothing \"none\""))
    })
    .await;
}

#[tokio::test]
async fn addons_of_a_directory_are_followed_to_every_control_plane() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("tools")).unwrap();
    let text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: plain, namespace: kube-public}\n";
    std::fs::write(directory.path().join("tools/plain.yaml"), text).unwrap();
    let server = server().await;
    let settings = Settings {
        addons: Some(directory.path().to_owned()),
        ..Settings::new(world::home(&server))
    };
    let world = World::with_settings(server, settings).await;
    let root = world.root();
    make(&root, CLASSES, "ControlPlaneClass", "c", json!({"addons": ["tools"]})).await;
    let late = json!({"addons": ["tools", "late"]});
    make(&root, CLASSES, "ControlPlaneClass", "late", late).await;
    for (name, class) in [("a", "c"), ("b", "c"), ("late", "late")] {
        control_plane(&root, name, json!({"classRef": {"name": class}})).await;
    }
    let map = |plane: &str, name: &str| {
        format!("/clusters/{plane}/control-plane/api/v1/namespaces/kube-public/configmaps/{name}")
    };
    for name in ["a", "b"] {
        until_ready(&root, name).await;
        assert!(root.get(&map(name, "plain")).await.is_some());
    }
    until_says(&root, "late", "AddonsApplied", "False", "AddonNotFound").await;
    // A file that changes, one that comes and one that goes reach all of them; a bundle that comes, those who wait for it.
    std::fs::write(directory.path().join("tools/more.yaml"), text.replace("plain", "more")).unwrap();
    std::fs::write(
        directory.path().join("tools/plain.yaml"),
        format!("{text}data: {{a: b}}\n"),
    )
    .unwrap();
    std::fs::write(directory.path().join("late.yaml"), text.replace("plain", "late")).unwrap();
    for name in ["a", "b"] {
        root.until(&map(name, "plain"), "changed", |found| {
            found.is_some_and(|found| found["data"]["a"] == "b")
        })
        .await;
        root.until(&map(name, "more"), "there", |found| found.is_some()).await;
    }
    until_ready(&root, "late").await;
    assert!(root.get(&map("late", "late")).await.is_some());
    root.until(&format!("{CLASSES}/late"), "accepted", |found| {
        says(found, "Accepted", "True", "Accepted", "")
    })
    .await;
    std::fs::remove_file(directory.path().join("tools/plain.yaml")).unwrap();
    for name in ["a", "b", "late"] {
        root.until_gone(&map(name, "plain")).await;
    }
}

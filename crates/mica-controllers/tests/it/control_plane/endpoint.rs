//! Where control planes are reached.

use super::*;

#[tokio::test]
async fn an_endpoint_that_comes_later_changes_or_is_bad_is_followed() {
    let (_world, root) = world().await;
    control_plane(&root, "a", json!({"endpointRef": {"name": "e"}})).await;
    until_says(&root, "a", "EndpointReady", "False", "EndpointNotFound").await;
    make(
        &root,
        ENDPOINTS,
        "ControlPlaneEndpoint",
        "e",
        json!({"endpoint": "https://one.example"}),
    )
    .await;
    let ready = until_ready(&root, "a").await;
    let one = "https://one.example/clusters/a/control-plane";
    assert_eq!(ready["status"]["endpoint"], one);
    root.patch(&format!("{ENDPOINTS}/e"), json!({"spec": {"endpoint": "no url"}}))
        .await;
    let refused = until_says(&root, "a", "EndpointReady", "False", "InvalidEndpoint").await;
    assert_eq!(refused["status"]["endpoint"], one, "what was published stays");
    assert_eq!(
        refused["status"]["kubeconfigSecretRef"],
        ready["status"]["kubeconfigSecretRef"]
    );
    assert!(message(&refused, "Ready").contains("say https://HOST"));
    let fixed = json!({"spec": {"endpoint": "https://two.example", "externalEndpoint": "https://out.example"}});
    root.patch(&format!("{ENDPOINTS}/e"), fixed).await;
    until_ready(&root, "a").await;
    root.until(&secret_path("a"), "changed", |found| {
        found.is_some_and(|secret| {
            kubeconfig(secret, "kubeconfig").contains("https://two.example/clusters/a/control-plane")
                && kubeconfig(secret, "kubeconfig-external").contains("https://out.example/clusters/a/control-plane")
        })
    })
    .await;
    // What a provider observed stands before what was asked for.
    let observed = json!({"status": {"endpoint": "https://three.example"}});
    root.patch(&format!("{ENDPOINTS}/e/status"), observed).await;
    root.until(&format!("{CONTROL_PLANES}/a"), "moved", |found| {
        found.is_some_and(|found| found["status"]["endpoint"] == "https://three.example/clusters/a/control-plane")
    })
    .await;
}

#[tokio::test]
async fn templates_of_the_class_give_every_control_plane_its_addresses() {
    let (world, root) = world().await;
    let class = json!({"endpoints": {"internal": "{server}", "external": "https://{name}.example", "join": "https://join.example"}});
    make(&root, CLASSES, "ControlPlaneClass", "c", class).await;
    let spec = json!({"classRef": {"name": "c"}, "endpointPolicy": "Template", "virtual": {"clusterPath": "p"}});
    control_plane(&root, "a", spec).await;
    let ready = until_ready(&root, "a").await;
    let path = "/clusters/p/control-plane";
    assert_eq!(
        ready["status"]["endpoints"],
        json!([
            {"type": "Internal", "url": format!("{}{path}", world.server.url())},
            {"type": "External", "url": format!("https://a.example{path}")},
            {"type": "Join", "url": format!("https://join.example{path}")},
        ])
    );
}

#[tokio::test]
async fn nodes_are_told_how_to_join_only_where_they_may() {
    let (_world, root) = world().await;
    let spec = json!({"endpoint": "https://in.example", "joinEndpoint": "https://join.example"});
    make(&root, ENDPOINTS, "ControlPlaneEndpoint", "e", spec).await;
    control_plane(&root, "a", json!({"endpointRef": {"name": "e"}})).await;
    control_plane(&root, "b", json!({})).await;
    until_ready(&root, "a").await;
    until_ready(&root, "b").await;
    let info =
        |plane: &str| format!("/clusters/{plane}/control-plane/api/v1/namespaces/kube-public/configmaps/cluster-info");
    assert_eq!(root.get(&info("b")).await, None);
    let found = root.get(&info("a")).await.unwrap();
    let said = found["data"]["kubeconfig"].as_str().unwrap();
    assert!(
        said.contains("https://join.example/clusters/a/control-plane") && said.contains("certificate-authority-data")
    );
    let secrets = "/clusters/a/control-plane/api/v1/namespaces/kube-system/secrets?fieldSelector=type%3Dbootstrap.kubernetes.io%2Ftoken";
    let tokens = root.get(secrets).await.unwrap();
    let token = &tokens["items"][0];
    assert_eq!(tokens["items"].as_array().unwrap().len(), 1);
    assert!(token["data"]["expiration"].is_string(), "it does not last for ever");
    let id = token["metadata"]["name"]
        .as_str()
        .unwrap()
        .strip_prefix("bootstrap-token-")
        .unwrap();
    assert!(found["data"][format!("jws-kubeconfig-{id}")].is_string());
    // Without the address all of it goes again.
    root.patch(&format!("{ENDPOINTS}/e"), json!({"spec": {"joinEndpoint": null}}))
        .await;
    root.until_gone(&info("a")).await;
}

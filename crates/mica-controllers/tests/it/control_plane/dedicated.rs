//! Control planes with servers of their own beside others: whose a path and a host are.

use mica_api::control_plane::KUBECONFIG_EXTERNAL;

use super::migration::{MAPS, mode, two, until_moved};
use super::*;
use crate::registration::says;

async fn endpoint(root: &Place, name: &str, host: &str) {
    let urls = json!({"externalEndpoint": format!("https://{host}")});
    make(root, ENDPOINTS, "ControlPlaneEndpoint", name, urls).await;
}

async fn until_routed(root: &Place, name: &str, status: &str, reason: &str, words: &str) {
    root.until(&format!("{ENDPOINTS}/{name}"), words, |found| {
        says(found, "Routed", status, reason, words)
    })
    .await;
}

/// What whoever has the external kubeconfig sees of the plane at a host, which DNS says to be this server's.
async fn seen_at(root: &Place, name: &str, host: &str, server: &str) -> Result<Value, mica_testkit::kube::Error> {
    let secret = root.get(&secret_path(name)).await.unwrap();
    let kubeconfig = config::Kubeconfig::from_yaml(&kubeconfig(&secret, KUBECONFIG_EXTERNAL)).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &config::KubeConfigOptions::default()).await;
    let mut config = config.unwrap();
    assert_eq!(config.cluster_url.host(), Some(host));
    config.cluster_url = server.parse().unwrap();
    config.tls_server_name = Some(host.to_owned());
    let client = Client::try_from(config).unwrap();
    let path = format!("{MAPS}/of-{name}");
    let request = http::Request::get(path).header("host", host).body(Vec::new()).unwrap();
    client.request(request).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_path_is_one_control_planes_alone_wherever_it_is() {
    let (world, root, own) = two().await;
    let path = |mode: &str| json!({"mode": mode, "virtual": {"clusterPath": "p"}, "deletionPolicy": "Destroy"});
    control_plane(&root, "first", path("Dedicated")).await;
    until_ready(&root, "first").await;
    for (name, mode) in [("second", "Dedicated"), ("third", "Virtual")] {
        control_plane(&root, name, path(mode)).await;
        let refused = until_says(&root, name, "Provisioned", "False", "ClusterPathTaken").await;
        let said = message(&refused, "Provisioned");
        assert!(said.contains("ControlPlane \"first\""), "{said}");
    }
    // The shared server says where it is.
    let address = format!("{}/clusters/p/control-plane", own.url("first").await);
    let at_the_shared = world.server.client().await;
    let asked = ask(
        &at_the_shared,
        "GET",
        "/clusters/p/control-plane/api/v1/namespaces",
        Value::Null,
    )
    .await;
    let said = asked.unwrap_err().to_string();
    assert!(said.contains(&address), "{said}");

    // Who waits has it when it is free, and whoever is refused may go.
    root.delete(&format!("{CONTROL_PLANES}/third")).await;
    root.until_gone(&format!("{CONTROL_PLANES}/third")).await;
    root.delete(&format!("{CONTROL_PLANES}/first")).await;
    root.until_gone(&format!("{CONTROL_PLANES}/first")).await;
    until_ready(&root, "second").await;
    mode(&root, "second", "Virtual").await;
    until_moved(&root, "second", "Virtual").await;
    let plane = root.get(&format!("{PLANES}/p")).await.unwrap();
    assert_eq!(plane["spec"]["state"], "Active");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_host_of_a_plane_leads_to_the_server_that_it_lives_on_and_stays_its_own() {
    let (world, root, own) = two().await;
    for (name, host) in [("a", "a.cp.example"), ("b", "b.cp.example"), ("c", "b.cp.example")] {
        endpoint(&root, name, host).await;
    }
    let named = |mode: &str, endpoint: &str| json!({"mode": mode, "endpointRef": {"name": endpoint}});
    control_plane(&root, "a", named("Virtual", "a")).await;
    control_plane(&root, "b", named("Dedicated", "b")).await;
    for name in ["a", "b"] {
        until_ready(&root, name).await;
    }
    until_routed(&root, "a", "True", "Routed", "leads to ControlPlane \"a\"").await;
    let at_its_own = async |name: &str| format!("\"{name}\" at its own server {}:", own.url(name).await);
    let b = at_its_own("b").await;
    until_routed(&root, "b", "True", "Routed", &b).await;
    for (name, client) in [("a", world.client.clone()), ("b", own.client("b").await)] {
        let path = format!("/clusters/{name}/control-plane{MAPS}");
        let map = json!({"metadata": {"name": format!("of-{name}")}});
        ask(&client, "POST", &path, map).await.unwrap();
    }
    // A host of a plane that was born elsewhere is as much its own as any.
    control_plane(&root, "c", named("Virtual", "c")).await;
    until_routed(&root, "c", "False", "HostTaken", "is held by plane \"b\"").await;

    mode(&root, "a", "Dedicated").await;
    until_moved(&root, "a", "Dedicated").await;
    let a = at_its_own("a").await;
    until_routed(&root, "a", "True", "Routed", &a).await;
    root.until(&format!("{PLANES}/a"), "at its host", |found| {
        found.is_some_and(|plane| plane["spec"]["addresses"][0]["value"] == "a.cp.example")
    })
    .await;
    for name in ["a", "b"] {
        let (host, server) = (format!("{name}.cp.example"), own.url(name).await);
        seen_at(&root, name, &host, &server).await.unwrap();
        let astray = world.server.client_inside(mica_server::authz::User::system());
        let request = http::Request::get("/api").header("host", host.as_str());
        let told = astray.request::<Value>(request.body(Vec::new()).unwrap()).await;
        let told = told.unwrap_err().to_string();
        assert!(told.contains(&server), "{told}");
    }

    mode(&root, "a", "Virtual").await;
    until_moved(&root, "a", "Virtual").await;
    root.until(&format!("{ENDPOINTS}/a"), "at the shared server", |found| {
        says(found, "Routed", "True", "Routed", "leads to ControlPlane \"a\"")
            && !says(found, "Routed", "True", "Routed", "at its own server")
    })
    .await;
    seen_at(&root, "a", "a.cp.example", &world.server.url()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_leads_to_the_shared_server_is_no_way_to_another_and_says_so() {
    let (_world, root, own) = two().await;
    let gateway = json!({"gateway": {"parentRef": {"name": "gw"}, "hostnameTemplate": "{{.Name}}.gw.example"}});
    make(&root, CLASSES, "ControlPlaneClass", "c", gateway).await;
    control_plane(&root, "a", json!({"mode": "Dedicated", "classRef": {"name": "c"}})).await;
    let words = "ControlPlane \"a\" has one of its own: name an endpoint";
    until_routed(&root, "a-endpoint", "False", "RouteRefused", words).await;
    let ready = until_ready(&root, "a").await;
    let address = format!("{}/clusters/a/control-plane", own.url("a").await);
    assert_eq!(ready["status"]["endpoint"], address);
}

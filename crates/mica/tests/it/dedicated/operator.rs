//! Dedicated control planes as people have them: by a ControlPlane, from the operator in `mica up`.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};

use super::super::process::Up;
use super::shop::{PATIENCE, Shop, calls, exists, kill};

const CONTROL_PLANES: &str = "/apis/controlplane.kplane.dev/v1alpha1/controlplanes";
const NAMESPACES: &str = "/api/v1/namespaces";
const LOOK: std::time::Duration = std::time::Duration::from_millis(50);

async fn client(text: &str) -> kube::Client {
    let kubeconfig = Kubeconfig::from_yaml(text).unwrap();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    kube::Client::try_from(config.unwrap()).unwrap()
}

async fn administrator(home: &Path) -> kube::Client {
    client(&std::fs::read_to_string(home.join(".mica/admin.kubeconfig")).unwrap()).await
}

async fn send(client: &kube::Client, method: &str, path: &str, body: &Value) -> Result<Value, String> {
    let kind = match method {
        "PATCH" => "application/merge-patch+json",
        _ => "application/json",
    };
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", kind);
    let body = if body.is_null() {
        Vec::new()
    } else {
        body.to_string().into_bytes()
    };
    let answer = client.request(request.body(body).unwrap()).await;
    answer.map_err(|error| error.to_string())
}

/// Waits until an object is as it should be.
async fn until(client: &kube::Client, path: &str, is_so: impl Fn(&Result<Value, String>) -> bool) -> Value {
    let looking = async {
        loop {
            let found = send(client, "GET", path, &Value::Null).await;
            if is_so(&found) {
                return found.unwrap_or_default();
            }
            tokio::time::sleep(LOOK).await;
        }
    };
    match tokio::time::timeout(PATIENCE, looking).await {
        Ok(found) => found,
        Err(_) => panic!("{path}: {:?}", send(client, "GET", path, &Value::Null).await),
    }
}

fn is_ready(found: &Result<Value, String>) -> bool {
    let conditions = found
        .as_ref()
        .ok()
        .and_then(|one| one["status"]["conditions"].as_array());
    let generation = found
        .as_ref()
        .ok()
        .map(|one| (&one["metadata"]["generation"], &one["status"]["observedGeneration"]));
    let ready = conditions.is_some_and(|all| all.iter().any(|one| one["type"] == "Ready" && one["status"] == "True"));
    ready && generation.is_some_and(|(wanted, seen)| wanted == seen)
}

/// A client of the control plane, from the Secret that its status names.
async fn inside(root: &kube::Client, control_plane: &Value) -> kube::Client {
    let reference = &control_plane["status"]["kubeconfigSecretRef"];
    let (namespace, name) = (
        reference["namespace"].as_str().unwrap(),
        reference["name"].as_str().unwrap(),
    );
    let secret = send(
        root,
        "GET",
        &format!("{NAMESPACES}/{namespace}/secrets/{name}"),
        &Value::Null,
    )
    .await
    .unwrap();
    let text = STANDARD.decode(secret["data"]["kubeconfig"].as_str().unwrap()).unwrap();
    client(&String::from_utf8(text).unwrap()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dedicated_control_plane_is_ready_outlives_the_operator_and_goes_when_it_is_destroyed() {
    let shop = Shop::new();
    shop.add_version("0.1");
    let home = tempfile::tempdir().unwrap();
    let (servers, versions) = (shop.servers(), shop.versions());
    let arguments = [
        "--dedicated-dir",
        servers.to_str().unwrap(),
        "--dedicated-versions",
        versions.to_str().unwrap(),
    ];
    let operator = Up::start(home.path(), &arguments);
    let root = administrator(home.path()).await;
    let path = format!("{CONTROL_PLANES}/own");
    let wanted = json!({"apiVersion": "controlplane.kplane.dev/v1alpha1", "kind": "ControlPlane",
        "metadata": {"name": "own"}, "spec": {"mode": "Dedicated", "deletionPolicy": "Destroy"}});
    send(&root, "POST", CONTROL_PLANES, &wanted).await.unwrap();
    let made = until(&root, &path, is_ready).await;
    let endpoint = made["status"]["endpoint"].as_str().unwrap().to_owned();
    assert!(!endpoint.starts_with(operator.url()), "{endpoint}");
    assert!(endpoint.ends_with("/clusters/own/control-plane"), "{endpoint}");
    let own = inside(&root, &made).await;
    send(&own, "POST", NAMESPACES, &json!({"metadata": {"name": "kept"}}))
        .await
        .unwrap();
    // The shared server has no such plane.
    assert!(
        send(&root, "GET", "/apis/mica.dev/v1alpha1/planes/own", &Value::Null)
            .await
            .is_err()
    );

    let pid = shop.pid("own");
    operator.signal("-KILL");
    assert_eq!(operator.wait().0, None);
    let kept = format!("{NAMESPACES}/kept");
    send(&own, "GET", &kept, &Value::Null).await.unwrap();
    kill(pid);
    // Nobody starts it while there is no operator; the next one does.
    let operator = Up::start(home.path(), &arguments);
    let root = administrator(home.path()).await;
    until(&own, &kept, Result::is_ok).await;
    let again = until(&root, &path, is_ready).await;
    assert_eq!(again["status"]["endpoint"], made["status"]["endpoint"]);
    let second = shop.pid("own");
    assert_ne!(second, pid);

    let version = |version: &str| json!({"spec": {"dedicated": {"version": version}}});
    send(&root, "PATCH", &path, &version("0.1")).await.unwrap();
    until(&root, &path, |found| {
        is_ready(found) && found.as_ref().is_ok_and(|one| one["status"]["version"] == "0.1")
    })
    .await;
    until(&own, &kept, Result::is_ok).await;
    let third = shop.pid("own");
    assert_ne!(third, second);

    // What cannot be is told, and changes nothing.
    send(&root, "PATCH", &path, &version("9.9")).await.unwrap();
    let held = until(&root, &path, |found| {
        let conditions = found
            .as_ref()
            .ok()
            .and_then(|one| one["status"]["conditions"].as_array());
        let held = |one: &Value| one["type"] == "Upgraded" && one["reason"] == "VersionNotPossible";
        is_ready(found) && conditions.is_some_and(|all| all.iter().any(held))
    })
    .await;
    assert_eq!(held["status"]["version"], "0.1");
    assert_eq!(shop.pid("own"), third);

    send(&root, "DELETE", &path, &Value::Null).await.unwrap();
    until(&root, &path, Result::is_err).await;
    assert!(!exists(&servers.join("own")));
    assert_eq!(calls(third), "");
    operator.signal("-TERM");
    assert_eq!(operator.wait().0, Some(0));
}

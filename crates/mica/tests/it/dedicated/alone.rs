//! Dedicated control planes from an operator that runs by itself: `mica run controllers`.

use serde_json::{Value, json};

use super::super::controllers::Controllers;
use super::super::controllers::settings::lifetime;
use super::super::process::{Up, run};
use super::shop::{Shop, calls, exists};
use super::site::{CONTROL_PLANES, client, get, inside, is_ready, send, until, until_gone};

const NAMESPACES: &str = "/api/v1/namespaces";

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_by_itself_runs_servers_where_it_is_told_and_ends_them_if_it_is_told() {
    let shop = Shop::new();
    let home = tempfile::tempdir().unwrap();
    let _server = Up::start(home.path(), &["--controllers=*,-control-plane"]);
    let servers = shop.servers();
    let arguments = [
        "--controllers",
        "control-plane",
        "--control-plane-token-lifetime",
        "15m",
        "--dedicated-dir",
        servers.to_str().unwrap(),
        "--dedicated-on-exit",
        "stop",
    ];
    let operator = Controllers::start(home.path(), &arguments);
    let kubeconfig = std::fs::read_to_string(home.path().join(".mica/admin.kubeconfig")).unwrap();
    let root = client(&kubeconfig).await.unwrap();
    let path = format!("{CONTROL_PLANES}/own");
    let wanted = json!({"apiVersion": "controlplane.kplane.dev/v1alpha1", "kind": "ControlPlane",
        "metadata": {"name": "own"}, "spec": {"mode": "Dedicated", "deletionPolicy": "Destroy"}});
    send(&root, "POST", CONTROL_PLANES, &wanted).await.unwrap();
    until(&root, &path, "ready", is_ready).await;
    let secret = format!("{NAMESPACES}/kplane-cp-own/secrets/controlplane-own-kubeconfig");
    assert_eq!(lifetime(&get(&root, &secret).await.unwrap()), 15 * 60);
    let own = inside(&root, "own").await.unwrap();
    send(&own, "POST", NAMESPACES, &json!({"metadata": {"name": "kept"}}))
        .await
        .unwrap();
    let pid = shop.pid("own");
    assert_ne!(calls(pid), "");
    assert_eq!(operator.stop(), Some(0));
    assert_eq!(calls(pid), "", "it ended with its operator");

    let operator = Controllers::start(home.path(), &arguments);
    until(&own, &format!("{NAMESPACES}/kept"), "there again", |_| true).await;
    send(&root, "DELETE", &path, &Value::Null).await.unwrap();
    until_gone(&root, &path).await;
    assert!(!exists(&servers.join("own")));
    assert_eq!(operator.stop(), Some(0));
}

#[test]
fn an_operator_that_is_not_told_where_servers_are_kept_says_so() {
    let home = tempfile::tempdir().unwrap();
    let one = ["run", "controllers", "--kubeconfig", "a"];
    let (code, _, error) = run(home.path(), &[&one[..], &["--dedicated-listen", "::1"]].concat());
    assert_eq!(code, 2, "{error}");
    assert!(error.contains("dedicated-dir: say where"), "{error}");
    let two = ["--kubeconfig", "b", "--dedicated-dir", "servers"];
    let (code, _, error) = run(home.path(), &[&one[..], &two[..]].concat());
    assert_eq!(code, 2, "{error}");
    assert!(
        error.contains("dedicated-dir: control planes of several servers"),
        "{error}"
    );
}

//! Dedicated control planes as people have them: by a ControlPlane, from the operator in `mica up`.

use mica_api::control_plane::DRAIN_ANNOTATION;
use serde_json::{Value, json};

use super::super::process::run;
use super::shop::{calls, exists, kill};
use super::site::{CONTROL_PLANES, Site, client, crash, get, inside, is_ready, send, until, until_gone};

const NAMESPACES: &str = "/api/v1/namespaces";

#[tokio::test(flavor = "multi_thread")]
async fn a_dedicated_control_plane_is_ready_outlives_the_operator_and_goes_when_it_is_destroyed() {
    let site = Site::new(&[]);
    let shop = &site.shop;
    shop.add_version("0.1");
    let operator = site.start();
    let root = site.administrator().await;
    let path = format!("{CONTROL_PLANES}/own");
    let wanted = json!({"apiVersion": "controlplane.kplane.dev/v1alpha1", "kind": "ControlPlane",
        "metadata": {"name": "own"}, "spec": {"mode": "Dedicated", "deletionPolicy": "Destroy"}});
    send(&root, "POST", CONTROL_PLANES, &wanted).await.unwrap();
    let made = until(&root, &path, "ready", is_ready).await;
    let endpoint = made["status"]["endpoint"].as_str().unwrap().to_owned();
    assert!(!endpoint.starts_with(operator.url()), "{endpoint}");
    assert!(endpoint.ends_with("/clusters/own/control-plane"), "{endpoint}");
    let own = inside(&root, "own").await.unwrap();
    send(&own, "POST", NAMESPACES, &json!({"metadata": {"name": "kept"}}))
        .await
        .unwrap();
    // The shared server has nothing of it but its name, and says where it is.
    const PLANE: &str = "/apis/mica.dev/v1alpha1/planes/own";
    let plane = get(&root, PLANE).await.unwrap();
    assert_eq!(
        (&plane["spec"]["state"], &plane["spec"]["movedTo"]["server"]),
        (&json!("Moved"), &json!(endpoint))
    );
    let astray = get(&root, "/clusters/own/control-plane/api/v1/namespaces").await;
    assert_eq!(astray.unwrap_err().code, 421);

    let pid = shop.pid("own");
    crash(operator);
    let kept = format!("{NAMESPACES}/kept");
    get(&own, &kept).await.unwrap();
    kill(pid);
    // Nobody starts it while there is no operator; the next one does.
    let operator = site.start();
    until(&own, &kept, "there", |_| true).await;
    let again = until(&root, &path, "ready", is_ready).await;
    assert_eq!(again["status"]["endpoint"], made["status"]["endpoint"]);
    let second = shop.pid("own");
    assert_ne!(second, pid);

    let version = |version: &str| json!({"spec": {"dedicated": {"version": version}}});
    send(&root, "PATCH", &path, &version("0.1")).await.unwrap();
    until(&root, &path, "of version 0.1", |found| {
        is_ready(found) && found["status"]["version"] == "0.1"
    })
    .await;
    until(&own, &kept, "there", |_| true).await;
    let third = shop.pid("own");
    assert_ne!(third, second);

    // What cannot be is told, and changes nothing.
    send(&root, "PATCH", &path, &version("9.9")).await.unwrap();
    let held = until(&root, &path, "held back", |found| {
        let conditions = found["status"]["conditions"].as_array();
        let held = |one: &Value| one["type"] == "Upgraded" && one["reason"] == "VersionNotPossible";
        is_ready(found) && conditions.is_some_and(|all| all.iter().any(held))
    })
    .await;
    assert_eq!(held["status"]["version"], "0.1");
    assert_eq!(shop.pid("own"), third);

    send(&root, "DELETE", &path, &Value::Null).await.unwrap();
    until_gone(&root, &path).await;
    assert_eq!(get(&root, PLANE).await.unwrap_err().code, 404);
    assert!(!exists(&shop.servers().join("own")));
    assert_eq!(calls(third), "");
    operator.signal("-TERM");
    assert_eq!(operator.wait().0, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn with_on_exit_stop_servers_end_with_the_operator_and_come_with_the_next() {
    let site = Site::new(&["--dedicated-on-exit", "stop"]);
    let operator = site.start();
    let root = site.administrator().await;
    let path = format!("{CONTROL_PLANES}/own");
    let wanted = json!({"apiVersion": "controlplane.kplane.dev/v1alpha1", "kind": "ControlPlane",
        "metadata": {"name": "own"}, "spec": {"mode": "Dedicated"}});
    send(&root, "POST", CONTROL_PLANES, &wanted).await.unwrap();
    let made = until(&root, &path, "ready", is_ready).await;
    let own = inside(&root, "own").await.unwrap();
    send(&own, "POST", NAMESPACES, &json!({"metadata": {"name": "kept"}}))
        .await
        .unwrap();
    let pid = site.own("own").unwrap();
    operator.signal("-TERM");
    assert_eq!(tokio::task::block_in_place(|| operator.wait()).0, Some(0));
    // It has ended before the operator: nothing is waited for here.
    assert_eq!((site.own("own"), calls(pid)), (None, String::new()));

    let operator = site.start();
    let kept = format!("{NAMESPACES}/kept");
    until(&own, &kept, "there", |_| true).await;
    let again = until(&root, &path, "ready", is_ready).await;
    assert_eq!(again["status"]["endpoint"], made["status"]["endpoint"]);
    // Who is killed stops nobody.
    let pid = site.own("own").unwrap();
    crash(operator);
    get(&own, &kept).await.unwrap();
    assert_eq!(site.own("own"), Some(pid));
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_make_a_control_plane_take_it_to_a_server_of_its_own_and_delete_it() {
    let site = Site::new(&[]);
    let _operator = site.start();
    let root = site.administrator().await;
    let mica = |arguments: &[&str]| {
        let (code, out, error) = tokio::task::block_in_place(|| run(site.home(), arguments));
        assert_eq!(code, 0, "{arguments:?}: {error}");
        (out, error)
    };
    let (made, _) = mica(&["control-plane", "create", "shop", "--deletion-policy", "destroy"]);
    assert!(made.starts_with("controlplane/shop is ready at https://"), "{made}");
    let no_drain = json!({"metadata": {"annotations": {DRAIN_ANNOTATION: "0s"}}});
    send(&root, "PATCH", &format!("{CONTROL_PLANES}/shop"), &no_drain)
        .await
        .unwrap();
    let (moved, steps) = mica(&["control-plane", "migrate", "shop", "--to", "dedicated"]);
    let address = moved.strip_prefix("controlplane/shop is Dedicated at ").unwrap().trim();
    assert!(!made.contains(address), "{moved}");
    // Which steps are seen depends on how fast they are.
    assert!(steps.lines().all(|line| line.starts_with("shop: ")), "{steps}");
    let (listed, _) = mica(&["control-plane", "list"]);
    assert!(listed.contains("shop   Dedicated   True    Ready"), "{listed}");
    let (described, _) = mica(&["control-plane", "describe", "shop"]);
    assert!(
        described.contains(address) && described.contains("MigrationCompleted"),
        "{described}"
    );
    let (kubeconfig, _) = mica(&["control-plane", "kubeconfig", "shop"]);
    let own = client(&kubeconfig).await.unwrap();
    get(&own, NAMESPACES).await.unwrap();
    let (gone, _) = mica(&["control-plane", "delete", "shop", "--yes"]);
    assert_eq!(gone, "controlplane/shop deleted\n");
    assert!(!exists(&site.shop.servers().join("shop")));
}

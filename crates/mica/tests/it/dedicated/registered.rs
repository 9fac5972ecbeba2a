//! Dedicated control planes whose servers run no controllers: others do, because a registration says so.

use serde_json::{Value, json};

use super::super::controllers::Controllers;
use super::site::{CONTROL_PLANES, Site, get, inside, insist, is_ready, send, until, until_gone};

const REGISTRATIONS: &str = "/apis/controlplane.kplane.dev/v1alpha1/controlplaneregistrations";
const NAMESPACES: &str = "/api/v1/namespaces";
/// What controllers in a server's own process are to it.
const OWN: &str = "system:mica-controllers";

/// Who created the first service account of a namespace, as the audit log of a control plane's own server has it.
fn creators(site: &Site, name: &str, namespace: &str) -> Vec<String> {
    let path = site.shop.servers().join(name).join("data/audit/audit.log");
    let text = std::fs::read_to_string(path).unwrap();
    // A line that is being written is not whole yet.
    let events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let about = |event: &Value| {
        let at = &event["objectRef"];
        event["verb"] == "create" && at["resource"] == "serviceaccounts" && at["namespace"] == namespace
    };
    let who = |event: Value| event["user"]["username"].as_str().unwrap_or_default().to_owned();
    events.filter(about).map(who).collect()
}

/// Makes a namespace, sees it get its service account, and sees it go.
async fn see_a_namespace_served(own: &kube::Client, name: &str) {
    insist(own, "POST", NAMESPACES, &json!({"metadata": {"name": name}})).await;
    let path = format!("{NAMESPACES}/{name}");
    let account = format!("{path}/serviceaccounts/default");
    until(own, &account, "there", |_| true).await;
    send(own, "DELETE", &path, &Value::Null).await.unwrap();
    until_gone(own, &path).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registered_control_plane_on_a_server_of_its_own_has_controllers_from_elsewhere() {
    let site = Site::new(&["--controllers=control-plane", "--dedicated-controllers=-*"]);
    let _operator = site.start();
    let root = site.administrator().await;
    let wanted = json!({"apiVersion": "controlplane.kplane.dev/v1alpha1", "kind": "ControlPlane",
        "metadata": {"name": "own"}, "spec": {"mode": "Dedicated", "deletionPolicy": "Destroy",
            "dedicated": {"provider": "Process"}}});
    send(&root, "POST", CONTROL_PLANES, &wanted).await.unwrap();
    let path = format!("{CONTROL_PLANES}/own");
    until(&root, &path, "ready", is_ready).await;
    let own = inside(&root, "own").await.unwrap();
    // It was deleted before anybody was there to empty it.
    let before = format!("{NAMESPACES}/before");
    send(&own, "POST", NAMESPACES, &json!({"metadata": {"name": "before"}}))
        .await
        .unwrap();
    send(&own, "DELETE", &before, &Value::Null).await.unwrap();

    // It is an operator too, which runs no servers: it does nothing about this one.
    let controllers = Controllers::start(site.home(), &["--registrations"]);
    assert_eq!(get(&own, &before).await.unwrap()["status"]["phase"], "Terminating");
    let registration = json!({"apiVersion": "controlplane.kplane.dev/v1alpha1", "kind": "ControlPlaneRegistration",
        "metadata": {"name": "own"}, "spec": {"controlPlaneRef": {"name": "own"}, "services": ["controllers"]}});
    send(&root, "POST", REGISTRATIONS, &registration).await.unwrap();
    until_gone(&own, &before).await;
    see_a_namespace_served(&own, "served").await;
    let who = creators(&site, "own", "served");
    assert!(!who.is_empty() && who.iter().all(|name| name != OWN), "{who:?}");
    // They are there again for a server that was killed and started anew.
    site.kill_own("own");
    see_a_namespace_served(&own, "again").await;

    send(&root, "DELETE", &path, &Value::Null).await.unwrap();
    until_gone(&root, &path).await;
    assert_eq!(site.own("own"), None);
    assert_eq!(controllers.stop(), Some(0));
}

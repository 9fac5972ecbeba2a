//! Making, using, retaining, adopting and destroying.

use mica_api::control_plane::{
    ADOPT_ANNOTATION, KUBECONFIG, KUBECONFIG_EXTERNAL, MANAGED_BY_ANNOTATION, RETAINED_LABEL,
};
use mica_testkit::kube;

use super::*;
use crate::registration::says;

#[tokio::test]
async fn a_control_plane_gets_its_plane_its_credentials_and_its_address() {
    let (world, root) = world().await;
    let begin = std::time::Instant::now();
    control_plane(&root, "alpha", json!({})).await;
    let ready = until_ready(&root, "alpha").await;
    println!("ready after {:?}", begin.elapsed());
    let url = format!("{}/clusters/alpha/control-plane", world.server.url());
    let status = &ready["status"];
    assert_eq!(status["endpoint"], url);
    assert_eq!(
        status["endpoints"],
        json!([{"type": "Internal", "url": url}, {"type": "External", "url": url}])
    );
    assert_eq!(status["phase"], "Ready");
    assert_eq!(
        status["kubeconfigSecretRef"],
        json!({"name": "controlplane-alpha-kubeconfig", "namespace": "kplane-cp-alpha"})
    );
    let secret = root.get(&secret_path("alpha")).await.unwrap();
    assert_eq!(
        secret["metadata"]["ownerReferences"][0]["uid"],
        ready["metadata"]["uid"]
    );
    for key in [KUBECONFIG, KUBECONFIG_EXTERNAL] {
        let client = client(&kubeconfig(&secret, key)).await;
        let found = ask(&client, "GET", "/api/v1/namespaces/kplane-system", Value::Null).await;
        assert_eq!(found.unwrap()["metadata"]["name"], "kplane-system");
    }
    // Its administrator is nobody elsewhere.
    let token = kubeconfig(&secret, KUBECONFIG);
    let elsewhere = client(&token.replace("/clusters/alpha/control-plane", "")).await;
    let refused = ask(&elsewhere, "GET", "/api/v1/namespaces", Value::Null).await;
    assert!(matches!(refused, Err(kube::Error::Api(status)) if status.code == 401));
}

#[tokio::test]
async fn the_design_s_own_samples_are_ready_as_they_are() {
    let (_world, root) = world().await;
    let class = json!({"addons": ["starter"], "deletionPolicy": "Retain", "modesAllowed": ["Virtual"],
        "auth": {"model": "basic", "defaultRole": "admin"}});
    make(&root, CLASSES, "ControlPlaneClass", "starter", class).await;
    let endpoint =
        json!({"endpoint": "https://example.kplane.example", "externalEndpoint": "https://example.kplane.example"});
    make(&root, ENDPOINTS, "ControlPlaneEndpoint", "example", endpoint).await;
    let spec = json!({"classRef": {"name": "starter"}, "mode": "Virtual", "deletionPolicy": "Retain",
        "endpointRef": {"name": "example"}, "virtual": {"clusterPath": "example"}});
    control_plane(&root, "example", spec).await;
    let registration = json!({"controlPlaneRef": {"name": "example"}, "endpointRef": {"name": "example"},
        "kubeconfigSecretRef": {"name": "controlplane-example-kubeconfig", "namespace": "kplane-cp-example"},
        "services": ["Controllers", "Scheduler", "Workloads"], "mode": "Shared"});
    make(
        &root,
        REGISTRATIONS,
        "ControlPlaneRegistration",
        "example",
        registration,
    )
    .await;
    let ready = until_ready(&root, "example").await;
    let url = "https://example.kplane.example/clusters/example/control-plane";
    assert_eq!(ready["status"]["endpoint"], url);
    let secret = root.get(&secret_path("example")).await.unwrap();
    assert!(kubeconfig(&secret, KUBECONFIG).contains(url));
    let binding = root
        .get(&format!("/clusters/example/control-plane{BINDING}"))
        .await
        .unwrap();
    assert_eq!(binding["roleRef"]["name"], "admin");
    // Everything else of them is ready, too, and the Secret that is pinned is the one that there is.
    for (path, condition, reason) in [
        (CLASSES, "Accepted", "Accepted"),
        (ENDPOINTS, "Ready", "Reconciled"),
        (ENDPOINTS, "Routed", "Routed"),
        (REGISTRATIONS, "Accepted", "Accepted"),
        (REGISTRATIONS, "Ready", "Resolved"),
    ] {
        let name = if path == CLASSES { "starter" } else { "example" };
        root.until(&format!("{path}/{name}"), "ready", |found| {
            says(found, condition, "True", reason, "")
        })
        .await;
    }
    let registration = root.get(&format!("{REGISTRATIONS}/example")).await.unwrap();
    assert_eq!(registration["status"]["ready"], true);
    assert_eq!(registration["status"]["resolvedEndpoint"], url);
    assert_eq!(
        registration["status"]["resolvedKubeconfigSecretRef"],
        registration["spec"]["kubeconfigSecretRef"]
    );
    // Retain: who has to go goes, and the plane stays.
    root.delete(&format!("{CONTROL_PLANES}/example")).await;
    root.until_gone(&format!("{CONTROL_PLANES}/example")).await;
    let plane = root.get(&format!("{PLANES}/example")).await.unwrap();
    assert_eq!(plane["metadata"]["labels"][RETAINED_LABEL], "example");
}

#[tokio::test]
async fn a_path_that_another_has_is_refused_with_its_name_until_it_is_free() {
    let (_world, root) = world().await;
    control_plane(&root, "first", json!({"deletionPolicy": "Destroy"})).await;
    until_ready(&root, "first").await;
    control_plane(&root, "second", json!({"virtual": {"clusterPath": "first"}})).await;
    let refused = until_says(&root, "second", "Provisioned", "False", "ClusterPathTaken").await;
    assert!(message(&refused, "Ready").contains("ControlPlane \"first\"'s"));
    assert_eq!(refused["status"]["phase"], "Failed");
    // Deleting who has nothing takes nothing from whom it belongs to.
    control_plane(
        &root,
        "third",
        json!({"virtual": {"clusterPath": "first"}, "deletionPolicy": "Destroy"}),
    )
    .await;
    until_says(&root, "third", "Provisioned", "False", "ClusterPathTaken").await;
    root.delete(&format!("{CONTROL_PLANES}/third")).await;
    root.until_gone(&format!("{CONTROL_PLANES}/third")).await;
    assert!(root.get(&format!("{PLANES}/first")).await.is_some());
    root.delete(&format!("{CONTROL_PLANES}/first")).await;
    until_ready(&root, "second").await;
    for (name, path) in [("p", "project-p"), ("e", "edge-p"), ("r", "root")] {
        control_plane(&root, name, json!({"virtual": {"clusterPath": path}})).await;
        until_says(&root, name, "Provisioned", "False", "InvalidClusterPath").await;
        root.delete(&format!("{CONTROL_PLANES}/{name}")).await;
        root.until_gone(&format!("{CONTROL_PLANES}/{name}")).await;
    }
}

#[tokio::test]
async fn a_retained_plane_is_listed_and_taken_over_by_whom_its_id_is_said() {
    let (_world, root) = world().await;
    control_plane(&root, "kept", json!({})).await;
    until_ready(&root, "kept").await;
    let old = kubeconfig(&root.get(&secret_path("kept")).await.unwrap(), KUBECONFIG);
    let maps = "/api/v1/namespaces/default/configmaps";
    ask(&client(&old).await, "POST", maps, json!({"metadata": {"name": "data"}}))
        .await
        .unwrap();
    let id = root.get(&format!("{PLANES}/kept")).await.unwrap()["status"]["id"].clone();
    root.delete(&format!("{CONTROL_PLANES}/kept")).await;
    root.until_gone(&format!("{CONTROL_PLANES}/kept")).await;
    // What belonged to the ControlPlane goes with it; the plane stays, and nobody has credentials for it.
    root.until_gone(&secret_path("kept")).await;
    root.until_gone("/api/v1/namespaces/kplane-cp-kept").await;
    let retained = root
        .get(&format!(
            "{PLANES}?labelSelector={}",
            RETAINED_LABEL.replace('/', "%2F")
        ))
        .await
        .unwrap();
    assert_eq!(retained["items"][0]["metadata"]["name"], "kept");
    until_refused(&client(&old).await, maps).await;

    control_plane(&root, "kept", json!({"deletionPolicy": "Destroy"})).await;
    let taken = until_says(&root, "kept", "Provisioned", "False", "ClusterPathTaken").await;
    assert!(message(&taken, "Ready").contains(&format!("{ADOPT_ANNOTATION}={}", id.as_str().unwrap())));
    let adopt = json!({"metadata": {"annotations": {ADOPT_ANNOTATION: id}}});
    root.patch(&format!("{CONTROL_PLANES}/kept"), adopt).await;
    until_ready(&root, "kept").await;
    let new = kubeconfig(&root.get(&secret_path("kept")).await.unwrap(), KUBECONFIG);
    let found = ask(&client(&new).await, "GET", &format!("{maps}/data"), Value::Null).await;
    assert_eq!(found.unwrap()["metadata"]["name"], "data");
    root.delete(&format!("{CONTROL_PLANES}/kept")).await;
    root.until_gone(&format!("{CONTROL_PLANES}/kept")).await;
    assert_eq!(root.get(&format!("{PLANES}/kept")).await, None);
}

/// Waits until a client is not let in: servers believe for a moment what was true a moment ago.
async fn until_refused(client: &kube::Client, path: &str) {
    let refused = async {
        while !matches!(ask(client, "GET", path, Value::Null).await,
            Err(kube::Error::Api(status)) if matches!(status.code, 401 | 403))
        {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(90), refused)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_destroyed_control_plane_waits_for_everything_in_it_and_names_what_blocks() {
    let (_world, root) = world().await;
    control_plane(&root, "gone", json!({"deletionPolicy": "Destroy"})).await;
    until_ready(&root, "gone").await;
    let maps = "/clusters/gone/control-plane/api/v1/namespaces/default/configmaps";
    let held = json!({"metadata": {"name": "held", "finalizers": ["example.com/hold"]}});
    root.create(maps, held).await;
    root.delete(&format!("{CONTROL_PLANES}/gone")).await;
    root.until(&format!("{CONTROL_PLANES}/gone"), "blocked by what is held", |found| {
        found.is_some_and(|found| message(found, "Provisioned").contains("held"))
    })
    .await;
    root.patch(&format!("{maps}/held"), json!({"metadata": {"finalizers": null}}))
        .await;
    root.until_gone(&format!("{CONTROL_PLANES}/gone")).await;
    assert_eq!(root.get(&format!("{PLANES}/gone")).await, None, "the plane goes first");
    control_plane(&root, "gone", json!({})).await;
    until_ready(&root, "gone").await;
    assert_eq!(root.get(&format!("{maps}/held")).await, None, "a new one starts empty");
}

#[tokio::test]
async fn control_planes_can_be_on_another_server_than_their_objects() {
    let (management, root, shared) = apart().await;
    control_plane(&root, "far", json!({"deletionPolicy": "Destroy"})).await;
    let ready = until_ready(&root, "far").await;
    assert_eq!(
        ready["status"]["endpoint"],
        format!("{}/clusters/far/control-plane", shared.server.url())
    );
    assert_eq!(root.get(&format!("{PLANES}/far")).await, None);
    let far = shared.root();
    let secret = root.get(&secret_path("far")).await.unwrap();
    let client = client(&kubeconfig(&secret, KUBECONFIG)).await;
    ask(&client, "GET", "/api/v1/namespaces", Value::Null).await.unwrap();
    // What is kept there is followed there.
    let binding = format!("/clusters/far/control-plane{BINDING}");
    far.delete(&binding).await;
    far.until(&binding, "made again", |found| found.is_some()).await;
    root.delete(&format!("{CONTROL_PLANES}/far")).await;
    root.until_gone(&format!("{CONTROL_PLANES}/far")).await;
    assert_eq!(far.get(&format!("{PLANES}/far")).await, None);
    drop(management);
}

#[tokio::test]
async fn every_transition_is_told_in_an_event() {
    let (_world, root) = world().await;
    control_plane(&root, "told", json!({"classRef": {"name": "late"}})).await;
    until_says(&root, "told", "Ready", "False", "ClassNotFound").await;
    make(&root, CLASSES, "ControlPlaneClass", "late", json!({})).await;
    until_ready(&root, "told").await;
    let events = "/api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3Dtold";
    root.until(events, "told", |found| {
        let all = found
            .and_then(|found| found["items"].as_array())
            .cloned()
            .unwrap_or_default();
        let has = |r#type: &str, reason: &str| all.iter().any(|one| one["type"] == r#type && one["reason"] == reason);
        has("Warning", "ClassNotFound") && has("Normal", "ClassResolved") && has("Normal", "Ready")
    })
    .await;
}

#[tokio::test]
async fn what_somebody_else_runs_is_left_to_them_until_they_let_go() {
    let (_world, root) = world().await;
    let annotated = |value: Value| json!({"metadata": {"annotations": {MANAGED_BY_ANNOTATION: value}}});
    let mut object = json!({"apiVersion": API_VERSION, "kind": "ControlPlane", "spec": {"deletionPolicy": "Destroy"}});
    object["metadata"] = annotated(json!("somebody"))["metadata"].clone();
    object["metadata"]["name"] = json!("theirs");
    let made = root.create(CONTROL_PLANES, object).await;
    control_plane(&root, "ours", json!({})).await;
    until_ready(&root, "ours").await;
    let path = format!("{CONTROL_PLANES}/theirs");
    let left = root.get(&path).await.unwrap();
    assert_eq!(
        left["metadata"]["resourceVersion"], made["metadata"]["resourceVersion"],
        "{left}"
    );
    assert!(root.get(&format!("{PLANES}/theirs")).await.is_none());

    root.patch(&path, annotated(Value::Null)).await;
    until_ready(&root, "theirs").await;
    // What was made is not forgotten because somebody else says that it is theirs.
    root.patch(&path, annotated(json!("somebody"))).await;
    root.delete(&path).await;
    root.until_gone(&path).await;
    root.until_gone(&format!("{PLANES}/theirs")).await;
}

#[tokio::test]
async fn an_operator_that_runs_no_servers_leaves_those_that_have_one_to_who_does() {
    let (_world, root) = world().await;
    control_plane(&root, "a", json!({"mode": "Dedicated"})).await;
    until_says(&root, "a", "Ready", "False", "ModeNotSupported").await;
    let path = format!("{CONTROL_PLANES}/a");
    let runs = async |version: &str| {
        let status = json!({"status": {"version": version}});
        root.patch(&format!("{path}/status"), status).await;
    };
    // Another operator says what the server of its own runs.
    runs("1.0").await;
    root.delete(&path).await;
    control_plane(&root, "b", json!({})).await;
    until_ready(&root, "b").await;
    let left = root.get(&path).await.unwrap();
    assert_eq!(
        left["metadata"]["finalizers"],
        json!([mica_api::control_plane::FINALIZER])
    );
    runs("").await;
    root.until_gone(&path).await;
}

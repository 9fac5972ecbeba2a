//! Workloads over the wire: what services are given, how pods come to nodes and go, and what a plane is born with.

use std::collections::BTreeSet;

use futures::future::join_all;
use serde_json::{Value, json};

use super::world::{World, text};

const SERVICES: &str = "/api/v1/namespaces/default/services";
const PODS: &str = "/api/v1/namespaces/default/pods";
const ADDRESSES: &str = "/apis/networking.k8s.io/v1/ipaddresses";

fn service(name: &str, spec: Value) -> Value {
    let mut whole = json!({"ports": [{"port": 80}]});
    for (field, value) in spec.as_object().unwrap() {
        whole[field] = value.clone();
    }
    json!({"metadata": {"name": name}, "spec": whole})
}

fn pod(name: &str) -> Value {
    json!({
        "metadata": {"name": name, "labels": {"app": "x"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    })
}

#[tokio::test]
async fn no_two_services_of_a_plane_have_one_address_or_port() {
    let world = World::start().await;
    let api = world.plane("p").await;
    let made = (0..40).map(|i| {
        let (api, body) = (api.clone(), service(&format!("s{i}"), json!({"type": "NodePort"})));
        async move { api.post(SERVICES, &body).await.expect(201) }
    });
    let made = join_all(made).await;
    let addresses: BTreeSet<&str> = made.iter().map(|one| text(one, "/spec/clusterIP")).collect();
    let ports: BTreeSet<i64> = made
        .iter()
        .filter_map(|one| one["spec"]["ports"][0]["nodePort"].as_i64())
        .collect();
    assert_eq!((addresses.len(), ports.len()), (40, 40));
    assert!(ports.iter().all(|port| (30_000..=32_767).contains(port)));
    let first = text(&made[0], "/spec/clusterIP");
    let held = api.get(&format!("{ADDRESSES}/{first}")).await.expect(200);
    assert_eq!(
        held["spec"]["parentRef"],
        json!({"resource": "services", "namespace": "default", "name": "s0"})
    );
    let taken = api.post(SERVICES, &service("x", json!({"clusterIP": first}))).await;
    assert_eq!(taken.code(), 422);
    assert!(
        taken.message().ends_with("provided IP is already allocated"),
        "{}",
        taken.message()
    );
    let port = &made[0]["spec"]["ports"][0]["nodePort"];
    let ports = json!([{"port": 80, "nodePort": port}]);
    let taken = api
        .post(SERVICES, &service("x", json!({"type": "NodePort", "ports": ports})))
        .await;
    assert!(
        taken.message().ends_with("provided port is already allocated"),
        "{}",
        taken.message()
    );
    // What a service lets go, the next one may have.
    api.delete(&format!("{SERVICES}/s0")).await.expect(200);
    assert_eq!(api.get(&format!("{ADDRESSES}/{first}")).await.code(), 404);
    let spec = json!({"type": "NodePort", "clusterIP": first, "ports": ports});
    api.post(SERVICES, &service("again", spec)).await.expect(201);
    // Another plane has addresses of its own.
    let other = world.plane("q").await;
    other
        .post(SERVICES, &service("s", json!({"clusterIP": first})))
        .await
        .expect(201);
}

#[tokio::test]
async fn a_service_that_becomes_a_name_lets_its_address_go_and_gets_another() {
    let world = World::start().await;
    let api = world.plane("p").await;
    let made = api.post(SERVICES, &service("s", json!({}))).await.expect(201);
    let first = text(&made, "/spec/clusterIP").to_owned();
    let path = format!("{SERVICES}/s");
    let body = json!({"spec": {"type": "ExternalName", "externalName": "a.b"}});
    let named = api.patch(&path, &body).await.expect(200);
    assert_eq!(named["spec"].get("clusterIP"), None);
    assert_eq!(api.get(&format!("{ADDRESSES}/{first}")).await.code(), 404);
    let body = json!({"spec": {"type": "ClusterIP", "externalName": null}});
    let back = api.patch(&path, &body).await.expect(200);
    let second = text(&back, "/spec/clusterIP");
    api.get(&format!("{ADDRESSES}/{second}")).await.expect(200);
    let moved = api.patch(&path, &json!({"spec": {"clusterIP": "10.96.200.200"}})).await;
    assert!(
        moved.message().ends_with("may not change once set"),
        "{}",
        moved.message()
    );
}

#[tokio::test]
async fn a_plane_is_born_with_the_service_of_its_server() {
    let world = World::start().await;
    let api = world.plane("p").await;
    let service = api.get(&format!("{SERVICES}/kubernetes")).await.expect(200);
    let address = text(&service, "/spec/clusterIP").to_owned();
    api.get(&format!("{ADDRESSES}/{address}")).await.expect(200);
    api.get("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes")
        .await
        .expect(200);
    api.get("/apis/scheduling.k8s.io/v1/priorityclasses/system-node-critical")
        .await
        .expect(200);
    api.delete(&format!("{SERVICES}/kubernetes")).await.expect(200);
    assert_eq!(api.get(&format!("{ADDRESSES}/{address}")).await.code(), 404);
}

#[tokio::test]
async fn a_pod_is_bound_once_and_then_waits_for_its_node_to_let_it_go() {
    let world = World::start().await;
    let api = world.plane("p").await;
    let made = api.post(PODS, &pod("p")).await.expect(201);
    assert_eq!(
        (&made["spec"]["priority"], &made["metadata"]["generation"]),
        (&json!(0), &json!(1))
    );
    let path = format!("{PODS}/p");
    let binding = |node: &str| json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": node}});
    api.post(&format!("{path}/binding"), &binding("n")).await.expect(201);
    let again = api.post("/api/v1/namespaces/default/bindings", &binding("m")).await;
    assert_eq!(again.code(), 409);
    assert_eq!(
        again.message(),
        "Operation cannot be fulfilled on pods/binding \"p\": pod p is already assigned to node \"n\""
    );
    let bound = api.get(&path).await.expect(200);
    assert_eq!(
        (text(&bound, "/spec/nodeName"), &bound["metadata"]["generation"]),
        ("n", &json!(1))
    );
    assert_eq!(bound["metadata"]["managedFields"], made["metadata"]["managedFields"]);
    let found = api
        .get(&format!("{PODS}?fieldSelector=spec.nodeName%3Dn"))
        .await
        .expect(200);
    assert_eq!(found["items"].as_array().unwrap().len(), 1);
    let leaving = api.delete(&path).await.expect(200);
    assert_eq!(leaving["metadata"]["deletionGracePeriodSeconds"], 30);
    api.get(&path).await.expect(200);
    api.delete(&format!("{path}?gracePeriodSeconds=0")).await.expect(200);
    assert_eq!(api.get(&path).await.code(), 404);
}

#[tokio::test]
async fn an_eviction_asks_the_budget_of_a_running_pod() {
    const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let world = World::start().await;
    let api = world.plane("p").await;
    let eviction = |name: &str| json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
    for name in ["a", "b"] {
        api.post(PODS, &pod(name)).await.expect(201);
        let running = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
        api.patch(&format!("{PODS}/{name}/status"), &running).await.expect(200);
    }
    let budget =
        json!({"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}});
    api.post(BUDGETS, &budget).await.expect(201);
    let early = api.post(&format!("{PODS}/a/eviction"), &eviction("a")).await;
    assert_eq!((early.code(), early.header("retry-after")), (429, "10"));
    let status = json!({"observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2});
    api.patch(&format!("{BUDGETS}/b/status"), &json!({"status": status}))
        .await
        .expect(200);
    api.post(&format!("{PODS}/a/eviction"), &eviction("a"))
        .await
        .expect(201);
    assert_eq!(api.get(&format!("{PODS}/a")).await.code(), 404);
    let spent = api.get(&format!("{BUDGETS}/b")).await.expect(200);
    assert_eq!(spent["status"]["disruptionsAllowed"], 0);
    let late = api.post(&format!("{PODS}/b/eviction"), &eviction("b")).await;
    assert_eq!(late.code(), 429);
    api.get(&format!("{PODS}/b")).await.expect(200);
}

#[tokio::test]
async fn what_others_say_by_default_is_filled_in() {
    let world = World::start().await;
    let api = world.plane("p").await;
    let class = |name: &str, value: i64| json!({"metadata": {"name": name}, "value": value, "globalDefault": true});
    api.post("/apis/scheduling.k8s.io/v1/priorityclasses", &class("usual", 7))
        .await
        .expect(201);
    let made = api.post(PODS, &pod("p")).await.expect(201);
    assert_eq!(
        (text(&made, "/spec/priorityClassName"), &made["spec"]["priority"]),
        ("usual", &json!(7))
    );
    let default = json!({
        "metadata": {"name": "disks", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": "example.com/disk",
    });
    api.post("/apis/storage.k8s.io/v1/storageclasses", &default)
        .await
        .expect(201);
    let claim = json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    let made = api
        .post("/api/v1/namespaces/default/persistentvolumeclaims", &claim)
        .await
        .expect(201);
    assert_eq!(text(&made, "/spec/storageClassName"), "disks");
    let old = api.get("/api/v1/namespaces/default/endpoints").await;
    assert!(old.header("warning").contains("v1 Endpoints is deprecated in v1.33+"));
}

#[tokio::test]
async fn what_upstream_orphans_by_default_waits_for_its_dependents_to_be_let_go() {
    let world = World::start().await;
    let api = world.plane("p").await;
    let template = json!({"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Always"}});
    let controllers = "/api/v1/namespaces/default/replicationcontrollers";
    let controller = json!({"metadata": {"name": "r"}, "spec": {"selector": {"app": "x"}, "template": template}});
    api.post(controllers, &controller).await.expect(201);
    let gone = api.delete(&format!("{controllers}/r")).await.expect(200);
    assert_eq!(gone["metadata"]["finalizers"], json!(["orphan"]));
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    let mut job = json!({"metadata": {"name": "j"}, "spec": {"template": template}});
    job["spec"]["template"]["spec"]["restartPolicy"] = json!("Never");
    api.post(jobs, &job).await.expect(201);
    let silent = api.delete(&format!("{jobs}/j?dryRun=All")).await;
    assert!(
        silent
            .header("warning")
            .starts_with("299 - \"child pods are preserved by default")
    );
    let told = api.delete(&format!("{jobs}/j?propagationPolicy=Background")).await;
    assert_eq!((told.code(), told.header("warning")), (200, ""));
    assert_eq!(api.get(&format!("{jobs}/j")).await.code(), 404);
}

#[tokio::test]
async fn a_pod_of_a_runtime_class_that_is_not_there_is_refused() {
    let world = World::start().await;
    let api = world.plane("p").await;
    let mut wanting = pod("a");
    wanting["spec"]["runtimeClassName"] = json!("none");
    assert_eq!(
        api.post(PODS, &wanting).await.message(),
        "pods \"a\" is forbidden: pod rejected: RuntimeClass \"none\" not found"
    );
    let class = json!({"metadata": {"name": "none"}, "handler": "h", "overhead": {"podFixed": {"cpu": "250m"}}});
    api.post("/apis/node.k8s.io/v1/runtimeclasses", &class)
        .await
        .expect(201);
    let made = api.post(PODS, &wanting).await.expect(201);
    assert_eq!(made["spec"]["overhead"], json!({"cpu": "250m"}));
}

#[tokio::test]
async fn an_overhead_that_no_class_has_is_refused_after_all_else() {
    let world = World::start().await;
    let api = world.plane("p").await;
    let mut told = pod("a");
    told["spec"]["overhead"] = json!({"cpu": "1"});
    told["spec"]["containers"][0]["env"] = json!([{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]);
    let refused = api.post(PODS, &told).await;
    assert_eq!(refused.code(), 403);
    assert!(refused.header("warning").contains("hides previous definition"));
    assert_eq!(
        refused.message(),
        "pods \"a\" is forbidden: pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
    );
    told["spec"]["nodeSelector"] = json!({"a b": "c"});
    assert_eq!(api.post(PODS, &told).await.code(), 422);
}

#[tokio::test]
async fn who_is_refused_is_warned_all_the_same() {
    let world = World::start().await;
    let api = world.plane("p").await;
    api.post(PODS, &pod("a")).await.expect(201);
    let unknown = r#"299 - "unknown field \"zz\"""#;
    let mut twice = pod("a");
    twice["metadata"]["annotations"] = json!({"container.apparmor.security.beta.kubernetes.io/c": "unconfined"});
    let known = api.post(PODS, &twice).await;
    assert_eq!(known.code(), 409);
    assert!(
        known.header("warning").contains("deprecated since v1.30"),
        "{}",
        known.header("warning")
    );
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    for (path, body, code) in [
        (
            format!("{PODS}/a/eviction"),
            json!({"metadata": {"name": "b"}, "zz": 1}),
            400,
        ),
        (
            format!("{PODS}/a/eviction?dryRun=All"),
            json!({"metadata": {"name": "a"}, "zz": 1}),
            201,
        ),
        (
            format!("{PODS}/a/binding"),
            json!({"metadata": {"name": "b"}, "zz": 1}),
            400,
        ),
        (
            format!("{PODS}/a/binding"),
            json!({"metadata": {"name": "a"}, "target": {"kind": "Pod"}, "zz": 1}),
            500,
        ),
        (format!("{accounts}/absent/token"), json!({"spec": {}, "zz": 1}), 404),
        (
            "/apis/authorization.k8s.io/v1/subjectaccessreviews".to_owned(),
            json!({"spec": {}, "zz": 1}),
            422,
        ),
        (
            "/apis/authentication.k8s.io/v1/tokenreviews".to_owned(),
            json!({"spec": {}, "zz": 1}),
            400,
        ),
    ] {
        let answer = api.post(&path, &body).await;
        assert_eq!(
            (answer.code(), answer.headers("warning")),
            (code, vec![unknown]),
            "{path}"
        );
    }
}

#[tokio::test]
async fn a_refused_review_shows_who_manages_it_and_an_answered_one_nothing_of_the_question() {
    let world = World::start().await;
    let api = world.plane("p").await;
    let review = json!({"metadata": {"name": "x"}, "spec": {"user": "u", "resourceAttributes": {"verb": "get"}}});
    let refused = api
        .post("/apis/authorization.k8s.io/v1/subjectaccessreviews", &review)
        .await;
    assert!(
        refused.message().contains(r#"{"name":"x","managedFields":[{"#),
        "{}",
        refused.message()
    );
    let myself = json!({"metadata": {"name": "x"}});
    let answered = api
        .post("/apis/authentication.k8s.io/v1/selfsubjectreviews", &myself)
        .await
        .expect(201);
    assert_eq!(answered["metadata"]["name"], Value::Null);
}

//! The operator as somebody with its documented roles, on a cluster that is not ours.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use mica_api::control_plane::definitions;
use mica_controllers::control_plane::{OPERATOR, operator_roles};
use mica_controllers::{Options, Selection, run_owned};
use mica_runtime::Ownership;
use mica_runtime::ownership::{Leader, Timing};
use mica_testkit::kube::client::Body;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::*;
use crate::endpoint::define_routes;
use crate::registration::{says, until_told};

/// A busy machine must not take the Lease away.
const TIMING: Timing = Timing {
    lease: Duration::from_secs(60),
    renew: Duration::from_secs(40),
    retry: Duration::from_secs(2),
};

/// What was refused to the operator.
type Refused = Arc<Mutex<Vec<String>>>;

/// The cluster as the operator meets it: somebody else's, where it is only what its roles say. What it is refused is noted.
async fn foreign(server: &TestServer, refused: &Refused) -> Client {
    let inside = server.client_for(&server.url(), &server.user("operator", None)).await;
    let refused = refused.clone();
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (inside, refused) = (inside.clone(), refused.clone());
        async move {
            if request.uri().path().starts_with("/apis/mica.dev/") {
                let mut absent = http::Response::new(Body::empty());
                *absent.status_mut() = http::StatusCode::NOT_FOUND;
                return Ok(absent);
            }
            let line = format!("{} {}", request.method(), request.uri());
            let answer = inside.send(request).await?;
            if matches!(answer.status().as_u16(), 401 | 403) {
                refused.lock().unwrap().push(line);
            }
            Ok::<_, mica_testkit::kube::Error>(answer)
        }
    });
    Client::new(service, "default")
}

/// The definitions and the roles, as they are printed and applied, and who has the roles.
async fn install(cluster: &World, root: &Place) {
    let kubectl = cluster.server.kubectl();
    let printed = definitions().into_iter().chain(operator_roles());
    let printed: Vec<String> = printed.map(|one| mica_machinery::yaml::from_json(&one)).collect();
    let applied = kubectl.apply(&printed.join("---\n")).await;
    assert_eq!(applied.matches(" created").count(), 6, "{applied}");
    for kind in ["clusterrole", "role"] {
        let (binding, role) = (format!("{kind}binding"), format!("--{kind}={OPERATOR}"));
        let arguments = [
            "-n",
            "kube-system",
            "create",
            &binding,
            OPERATOR,
            &role,
            "--user=operator",
        ];
        kubectl.run(&arguments).await.good();
    }
    for served in [CONTROL_PLANES, CLASSES, ENDPOINTS, REGISTRATIONS] {
        root.until(served, "served", |found| found.is_some()).await;
    }
}

/// Runs the operator as `mica run controllers` does, by a Lease.
fn operate(client: &Client, settings: Settings) -> DropGuard {
    let stop = CancellationToken::new();
    let options = Options {
        controllers: Selection::parse(&["control-plane"]).unwrap(),
        control_planes: Some(settings.elsewhere()),
        ..Options::default()
    };
    let leader = Leader::new(client.clone(), "kube-system", "mica-controllers").timing(TIMING);
    let leader: Arc<dyn Ownership> = Arc::new(leader.build());
    tokio::spawn(run_owned(client.clone(), options, leader.clone(), stop.clone()));
    let end = stop.clone();
    tokio::spawn(async move { leader.run(end).await });
    stop.drop_guard()
}

#[tokio::test]
async fn nothing_is_refused_to_an_operator_with_its_documented_roles_on_a_foreign_cluster() {
    let shared = World::with(server().await, &["namespace", "garbagecollector"]).await;
    // It has controllers of its own, as clusters do, and none of ours.
    let cluster = World::with(TestServer::start().await, &["namespace", "garbagecollector"]).await;
    let root = cluster.root();
    install(&cluster, &root).await;
    define_routes(&root).await;
    let refused = Refused::default();
    let client = foreign(&cluster.server, &refused).await;
    let _operator = operate(&client, Settings::new(world::home(&shared.server)));
    let nothing = |when: &str| assert_eq!(*refused.lock().unwrap(), [""; 0], "{when}");

    // Everything that classes give: addons, services, a role; a Gateway with its route; an endpoint of one's own.
    root.namespace("kplane-system").await;
    let bundle = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: tool, namespace: kube-public}\n";
    let map = json!({"metadata": {"name": "tools", "labels": {"controlplane.kplane.dev/addon": "tools"}},
        "data": {"tools.yaml": bundle}});
    root.create("/api/v1/namespaces/kplane-system/configmaps", map).await;
    root.namespace("servers").await;
    let class = json!({"addons": ["tools"], "services": ["controllers"], "auth": {"defaultRole": "admin"}});
    make(&root, CLASSES, "ControlPlaneClass", "plain", class).await;
    let gateway = json!({"gateway": {"parentRef": {"name": "gw"}, "hostnameTemplate": "{{.Name}}.gw.example",
        "apiServerRef": {"name": "api", "namespace": "servers"}}, "deletionPolicy": "Destroy"});
    make(&root, CLASSES, "ControlPlaneClass", "gateway", gateway).await;
    let urls = json!({"endpoint": "https://a.cp.example"});
    make(&root, ENDPOINTS, "ControlPlaneEndpoint", "a", urls).await;
    let spec = json!({"classRef": {"name": "plain"}, "endpointRef": {"name": "a"}});
    control_plane(&root, "a", spec).await;
    control_plane(&root, "b", json!({"classRef": {"name": "gateway"}})).await;
    for name in ["a", "b"] {
        until_ready(&root, name).await;
    }
    let tool = "/clusters/a/control-plane/api/v1/namespaces/kube-public/configmaps/tool";
    assert!(shared.root().get(tool).await.is_some());
    let is = |condition: &'static str| move |found: Option<&Value>| says(found, condition, "True", condition, "");
    root.until(&format!("{CLASSES}/plain"), "accepted", is("Accepted"))
        .await;
    root.until(&format!("{ENDPOINTS}/a"), "routed", is("Routed")).await;
    root.until(&format!("{ENDPOINTS}/b-endpoint"), "routed", is("Routed"))
        .await;
    let resolved = |found: Option<&Value>| says(found, "Ready", "True", "Resolved", "");
    root.until(&format!("{REGISTRATIONS}/a"), "ready", resolved).await;
    until_told(&root, "ControlPlane", "a", &[("Normal", "Ready", "")]).await;
    nothing("while they are made");

    // What drifts, and what changes.
    let route = "/apis/gateway.networking.k8s.io/v1/namespaces/servers/httproutes/b-route";
    root.patch(route, json!({"spec": {"hostnames": ["stolen.example"]}}))
        .await;
    root.patch(
        &format!("{ENDPOINTS}/b-endpoint"),
        json!({"spec": {"externalEndpoint": "https://x"}}),
    )
    .await;
    root.delete(&secret_path("a")).await;
    root.until(&secret_path("a"), "there again", |found| found.is_some())
        .await;
    root.until(route, "set right", |found| {
        found.is_some_and(|route| route["spec"]["hostnames"] == json!(["b.gw.example"]))
    })
    .await;
    root.until(&format!("{ENDPOINTS}/b-endpoint"), "set right", |found| {
        found.is_some_and(|one| one["spec"]["externalEndpoint"] == "https://b.gw.example")
    })
    .await;
    root.patch(&format!("{CLASSES}/plain"), json!({"spec": {"services": null}}))
        .await;
    root.until_gone(&format!("{REGISTRATIONS}/a")).await;
    nothing("while they change");

    for name in ["a", "b"] {
        root.delete(&format!("{CONTROL_PLANES}/{name}")).await;
        root.until_gone(&format!("{CONTROL_PLANES}/{name}")).await;
        root.until_gone(&format!("/api/v1/namespaces/kplane-cp-{name}")).await;
    }
    let far = shared.root();
    assert!(far.get(&format!("{PLANES}/a")).await.is_some(), "its data is kept");
    assert_eq!(far.get(&format!("{PLANES}/b")).await, None);
    nothing("when they go");
    let lease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/mica-controllers";
    assert!(root.get(lease).await.is_some(), "replicas agree by it");
}

#[tokio::test]
async fn an_operator_without_its_roles_is_refused_and_that_is_noted() {
    let cluster = World::with(TestServer::start().await, &["namespace"]).await;
    let refused = Refused::default();
    let client = foreign(&cluster.server, &refused).await;
    let request = http::Request::get("/api/v1/secrets").body(Vec::new()).unwrap();
    assert!(client.request::<Value>(request).await.is_err());
    assert_eq!(*refused.lock().unwrap(), ["GET /api/v1/secrets"]);
}

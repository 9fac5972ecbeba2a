//! Reaching clusters: connections, credentials that change, servers that do not answer.

use std::io::Write as _;
use std::time::Duration;

use futures::future::join_all;
use futures::{StreamExt as _, TryStreamExt as _};
use http::Request;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ServiceAccount};
use kube::Api;
use kube::api::{PostParams, WatchParams};
use kube::client::Body;
use kube::runtime::watcher::{self, Event};
use mica_runtime::breaker::Limits;
use mica_runtime::cluster::Refused;
use mica_runtime::ownership::All;
use mica_runtime::provider::{Planes, Static};
use mica_runtime::{Access, Cluster, ClusterName, ClusterSpec, Fleet, Health};
use mica_testkit::TestServer;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::support::{Told, Wire, engaged, fleet, root, soon};

const MASTERS: &str = "system:masters";

async fn whoami(client: &kube::Client) -> kube::Result<String> {
    let api: Api<SelfSubjectReview> = Api::all(client.clone());
    let review = api
        .create(&PostParams::default(), &SelfSubjectReview::default())
        .await?;
    let user = review.status.and_then(|status| status.user_info);
    Ok(user.and_then(|user| user.username).unwrap_or_default())
}

fn config_map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}})).unwrap()
}

/// How often a verb was asked of a resource, as the server counts it.
async fn asked(server: &TestServer, verb: &str, resource: &str) -> u64 {
    let client = server.client().await;
    let request = Request::get("/metrics").body(Vec::new()).unwrap();
    let metrics = client.request_text(request).await.unwrap();
    let (verb, resource) = (format!("verb=\"{verb}\""), format!("resource=\"{resource}\""));
    let lines = metrics
        .lines()
        .filter(|line| line.starts_with("apiserver_request_total{"));
    lines
        .filter(|line| line.contains(&verb) && line.contains(&resource))
        .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
        .sum()
}

fn certificate(server: &TestServer, user: &str) -> Access {
    let kubeconfig = server.kubeconfig_for(&server.url(), &server.user(user, Some(MASTERS)));
    Access::from_kubeconfig_yaml(&kubeconfig).unwrap()
}

/// A kubeconfig that shows what is given.
fn with_user(server: &TestServer, user: Value) -> Access {
    use base64::Engine as _;
    let ca = base64::engine::general_purpose::STANDARD.encode(server.authority().certificate_pem());
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "it",
        "clusters": [{"name": "it", "cluster": {"server": server.url(), "certificate-authority-data": ca}}],
        "users": [{"name": "it", "user": user}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
    });
    Access::from_kubeconfig_yaml(&kubeconfig.to_string()).unwrap()
}

/// A token of the service account `default` in `default`.
async fn token(server: &TestServer) -> String {
    let accounts: Api<ServiceAccount> = Api::default_namespaced(server.client().await);
    let request = serde_json::from_value(json!({"spec": {"audiences": [], "expirationSeconds": 3600}})).unwrap();
    let params = PostParams::default();
    let answer = accounts.create_token_request("default", &params, &request).await;
    answer.unwrap().status.unwrap().token.unwrap()
}

#[tokio::test]
async fn a_new_certificate_is_used_by_new_requests_and_open_watches_go_on_without_a_relist() {
    let server = TestServer::start().await;
    let name = ClusterName::new("a");
    let (specs, told) = watch::channel(vec![ClusterSpec::new(name.clone(), certificate(&server, "old"))]);
    let fleet = fleet();
    fleet.add(Told(told)).unwrap();
    let cluster = engaged(&mut fleet.events(), "a").await;
    let client = cluster.client();
    assert_eq!(whoami(&client).await.unwrap(), "old");
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let mut events = Box::pin(kube::runtime::watcher(maps.clone(), watcher::Config::default()));
    while !matches!(
        soon("the list", events.try_next()).await.unwrap(),
        Some(Event::InitDone)
    ) {}
    // The watch itself begins with the next question.
    maps.create(&PostParams::default(), &config_map("before"))
        .await
        .unwrap();
    let before = soon("an event", events.try_next()).await.unwrap();
    assert!(matches!(before, Some(Event::Apply(map)) if map.metadata.name.as_deref() == Some("before")));

    let mut changes = fleet.events();
    engaged(&mut changes, "a").await;
    specs.send_replace(vec![
        ClusterSpec::new(name.clone(), certificate(&server, "new")).label("turn", "2"),
    ]);
    let changed = crate::support::next(&mut changes).await;
    assert!(
        matches!(changed, mica_runtime::FleetEvent::Changed(ref same) if same.is_same(&cluster)),
        "{changed:?}"
    );
    assert_eq!(whoami(&client).await.unwrap(), "new", "the same client");
    maps.create(&PostParams::default(), &config_map("after")).await.unwrap();
    let after = soon("an event", events.try_next()).await.unwrap();
    assert!(matches!(after, Some(Event::Apply(map)) if map.metadata.name.as_deref() == Some("after")));
    assert!(!cluster.lifetime().is_cancelled());
    assert_eq!(
        asked(&server, "LIST", "configmaps").await,
        1,
        "nothing was listed again"
    );
}

#[tokio::test]
async fn a_refused_token_shows_and_a_new_one_is_taken_in_place() {
    let server = TestServer::start().await;
    let name = ClusterName::new("a");
    let bad = with_user(&server, json!({"token": "not-a-token"}));
    let (specs, told) = watch::channel(vec![ClusterSpec::new(name.clone(), bad)]);
    let fleet = fleet();
    fleet.add(Told(told)).unwrap();
    let mut events = fleet.events();
    let cluster = engaged(&mut events, "a").await;
    let client = cluster.client();
    let error = whoami(&client).await.unwrap_err();
    assert!(
        matches!(&error, kube::Error::Api(status) if status.code == 401),
        "{error}"
    );
    assert!(matches!(cluster.health(), Health::Unauthorized { .. }));
    assert!(cluster.is_reachable(), "it answers");
    let good = with_user(&server, json!({"token": token(&server).await}));
    specs.send_replace(vec![ClusterSpec::new(name, good)]);
    crate::support::next(&mut events).await;
    assert_eq!(whoami(&client).await.unwrap(), "system:serviceaccount:default:default");
    assert_eq!(cluster.health(), Health::Reachable);
}

#[tokio::test]
async fn a_token_file_is_read_again_when_its_token_is_refused() {
    let server = TestServer::start().await;
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"not-a-token\n").unwrap();
    let client = with_user(&server, json!({"tokenFile": file.path()})).client();
    assert!(whoami(&client).await.is_err());
    std::fs::write(file.path(), token(&server).await).unwrap();
    assert_eq!(whoami(&client).await.unwrap(), "system:serviceaccount:default:default");
    std::fs::write(file.path(), "not-a-token-again").unwrap();
    assert!(whoami(&client).await.is_ok(), "it is not read for every request");
    drop(file);
    assert!(whoami(&client).await.is_ok(), "the last one is kept");
}

#[tokio::test]
async fn plugins_give_tokens() {
    let server = TestServer::start().await;
    let credential = json!({
        "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
        "status": {"token": token(&server).await},
    });
    let exec = json!({
        "apiVersion": "client.authentication.k8s.io/v1", "command": "echo", "args": [credential.to_string()],
        "interactiveMode": "Never",
    });
    let client = with_user(&server, json!({"exec": exec})).client();
    assert_eq!(whoami(&client).await.unwrap(), "system:serviceaccount:default:default");
    let missing = json!({
        "apiVersion": "client.authentication.k8s.io/v1", "command": "no-such-plugin", "interactiveMode": "Never",
    });
    let fleet = fleet();
    let spec = ClusterSpec::new(ClusterName::new("a"), with_user(&server, json!({"exec": missing})));
    fleet.add(Static::new([spec])).unwrap();
    let cluster = engaged(&mut fleet.events(), "a").await;
    assert!(whoami(&cluster.client()).await.is_err());
    assert!(
        matches!(cluster.health(), Health::Unauthorized { .. }),
        "{}",
        cluster.health()
    );
}

#[tokio::test]
async fn two_hundred_planes_share_a_few_connections() {
    let server = TestServer::start().await;
    for i in 0..200 {
        server.plane(&format!("p{i}")).await;
    }
    let wire = Wire::to(&server).await;
    let access = Access::from_kubeconfig_yaml(&server.kubeconfig_for(&wire.url(), server.admin())).unwrap();
    let fleet = fleet();
    fleet.add(Planes::new(access)).unwrap();
    let mut events = fleet.events();
    soon("all planes", async {
        while !matches!(events.next().await, Some(mica_runtime::FleetEvent::Synced)) {}
    })
    .await;
    let clusters = fleet.clusters();
    assert_eq!(clusters.len(), 200);
    let ask = |cluster: &Cluster| {
        let namespaces: Api<Namespace> = Api::all(cluster.client());
        async move { namespaces.get("default").await.unwrap() }
    };
    ask(&clusters[0]).await;
    let one = wire.connections();
    for some in clusters.chunks(50) {
        soon("their answers", join_all(some.iter().map(ask))).await;
    }
    assert_eq!(wire.connections(), one, "as many as for one of them");

    // Watches stay open, and a connection carries a hundred of them: with the provider's own that is three.
    let watches = join_all(clusters.iter().map(async |cluster| {
        let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client());
        let watch = maps.watch(&WatchParams::default(), "0").await.unwrap().boxed();
        (maps, watch)
    }));
    for (maps, mut watch) in soon("the watches", watches).await {
        maps.create(&PostParams::default(), &config_map("seen")).await.unwrap();
        soon("an event", async {
            while let Some(event) = watch.try_next().await.unwrap() {
                if matches!(event, kube::api::WatchEvent::Added(map) if map.metadata.name.as_deref() == Some("seen")) {
                    return;
                }
            }
            panic!("the watch ended");
        })
        .await;
    }
    assert!(wire.connections() <= one + 2, "{} after {one}", wire.connections());
}

#[tokio::test]
async fn who_shows_another_certificate_has_other_connections() {
    let server = TestServer::start().await;
    let wire = Wire::to(&server).await;
    let access = |user: &str| {
        let kubeconfig = server.kubeconfig_for(&wire.url(), &server.user(user, Some(MASTERS)));
        Access::from_kubeconfig_yaml(&kubeconfig).unwrap()
    };
    let (a, b) = (access("a"), access("b"));
    assert_eq!(whoami(&a.client()).await.unwrap(), "a");
    assert_eq!(whoami(&b.client()).await.unwrap(), "b");
    assert_eq!(whoami(&a.client()).await.unwrap(), "a");
    assert_eq!(wire.connections(), 2);
    // The same, read anew, is the same.
    let again = server.kubeconfig_for(&wire.url(), &server.user("c", Some(MASTERS)));
    for _ in 0..2 {
        let access = Access::from_kubeconfig_yaml(&again).unwrap();
        assert_eq!(whoami(&access.client()).await.unwrap(), "c");
        let other = Access::from_kubeconfig_yaml(&again).unwrap();
        assert_eq!(whoami(&other.at("/").client()).await.unwrap(), "c");
    }
    assert!(wire.connections() <= 4, "{}", wire.connections());
}

#[tokio::test]
async fn a_cluster_whose_server_goes_is_held_and_released_when_it_is_back() {
    let server = TestServer::start().await;
    let mut wire = Wire::to(&server).await;
    let access = Access::from_kubeconfig_yaml(&server.kubeconfig_for(&wire.url(), server.admin())).unwrap();
    let limits = Limits {
        failures: 3,
        first_pause: Duration::from_millis(20),
        longest_pause: Duration::from_millis(100),
    };
    let fleet = Fleet::with_limits(std::sync::Arc::new(All::new()), limits);
    fleet
        .add(Static::new([ClusterSpec::new(ClusterName::new("a"), access)]))
        .unwrap();
    let cluster = engaged(&mut fleet.events(), "a").await;
    let client = cluster.client();
    assert_eq!(whoami(&client).await.unwrap(), "admin");
    wire.cut();
    let mut refused = None;
    for _ in 0..10 {
        let error = client
            .send(Request::get("/version").body(Body::empty()).unwrap())
            .await
            .unwrap_err();
        refused = Refused::of(&error).cloned();
        if refused.is_some() {
            break;
        }
    }
    assert_eq!(refused, Some(Refused::Unreachable(ClusterName::new("a"))));
    assert!(
        matches!(cluster.health(), Health::Unreachable { .. }),
        "{}",
        cluster.health()
    );
    wire.mend().await;
    soon("the server is found", cluster.reachable()).await;
    assert_eq!(whoami(&client).await.unwrap(), "admin");
}

#[tokio::test]
async fn a_plane_is_reached_at_its_path_and_root_beside_it() {
    let server = TestServer::start().await;
    server.plane("a").await;
    let access = root(&server).at("clusters/a/control-plane/");
    assert_eq!(access.url(), format!("{}/clusters/a/control-plane", server.url()));
    let maps: Api<ConfigMap> = Api::default_namespaced(access.client());
    maps.create(&PostParams::default(), &config_map("here")).await.unwrap();
    let in_root: Api<ConfigMap> = Api::default_namespaced(access.root().client());
    assert!(in_root.get_opt("here").await.unwrap().is_none());
    let renamed = access.at_host("localhost:1").unwrap();
    assert_eq!(renamed.url(), "https://localhost:1");
    assert!(access.rotate(&root(&server)).is_ok());
    assert!(access.at_url("https://elsewhere:1/x").unwrap().url() == "https://elsewhere:1/x");
}

//! The manager: readiness, its servers, one cluster or many, and its end.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::PostParams;
use mica_runtime::provider::Planes;
use mica_runtime::{Access, Action, Cx, Manager, ManagerError, ReconcileError, Reconciler};
use mica_testkit::{ControlPlanes, TestServer};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::wait::{PATIENCE, eventually};

const FREE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

fn access(server: &TestServer) -> Access {
    Access::from_kubeconfig_yaml(&server.kubeconfig()).unwrap()
}

fn config_map(name: &str) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.to_owned());
    map
}

/// Notes whom it saw; waits for a permit if it is told to.
#[derive(Clone, Default)]
struct Notes {
    seen: Arc<Mutex<Vec<(String, String)>>>,
    gate: Option<Arc<Semaphore>>,
    finished: Arc<AtomicUsize>,
}

#[async_trait]
impl Reconciler for Notes {
    type Kind = ConfigMap;
    type Error = ReconcileError;

    async fn reconcile(&self, cx: Cx<ConfigMap>) -> Result<Action, ReconcileError> {
        let (cluster, name) = (cx.request().cluster.to_string(), cx.request().name.to_string());
        if name == "kube-root-ca.crt" {
            return Ok(Action::await_change());
        }
        self.seen.lock().push((cluster, name));
        if let Some(gate) = &self.gate {
            gate.acquire().await.unwrap().forget();
        }
        self.finished.fetch_add(1, Ordering::Relaxed);
        Ok(Action::await_change())
    }
}

impl Notes {
    /// As a controller of a manager.
    fn join(&self, manager: &Manager) {
        let controller = manager.controller("notes").for_::<ConfigMap>();
        controller.reconcile(self.clone()).unwrap();
    }

    fn saw(&self, cluster: &str, name: &str) -> Option<()> {
        let seen = self.seen.lock();
        seen.iter().any(|one| one.0 == cluster && one.1 == name).then_some(())
    }
}

/// A manager that runs until it is told to stop.
struct Running {
    stop: CancellationToken,
    task: JoinHandle<Result<(), ManagerError>>,
}

impl Running {
    fn start(manager: &Manager) -> Self {
        let (manager, stop) = (manager.clone(), CancellationToken::new());
        let stopped = stop.clone().cancelled_owned();
        let task = tokio::spawn(async move { manager.run_until(stopped).await });
        Self { stop, task }
    }

    async fn end(self) {
        self.stop.cancel();
        tokio::time::timeout(PATIENCE, self.task)
            .await
            .unwrap()
            .unwrap()
            .unwrap();
    }
}

/// The status and the body of an answer.
async fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, body.to_owned())
}

#[tokio::test]
async fn a_manager_is_ready_when_its_providers_are_and_tells_how_it_stands() {
    let planes = ControlPlanes::new(12).await;
    let server = access(planes.server());
    let manager = Manager::builder(server.clone())
        .provider(Planes::new(server))
        .metrics(FREE)
        .probes(FREE)
        .build()
        .unwrap();
    let notes = Notes::default();
    notes.join(&manager);
    let not_yet = manager.readyz().failing();
    assert_eq!(not_yet[0].1, "the manager does not run yet");
    let running = Running::start(&manager);
    let (probes, metrics) = (manager.probes_address().unwrap(), manager.metrics_address().unwrap());
    eventually(async || (get(probes, "/readyz").await == (200, "ok".to_owned())).then_some(())).await;
    assert_eq!(get(probes, "/healthz/ping").await.0, 200);
    let verbose = get(probes, "/readyz?verbose").await.1;
    assert!(verbose.contains("[+]providers ok"), "{verbose}");
    assert_eq!(get(probes, "/metrics").await.0, 404, "it has an address of its own");

    let maps = Api::<ConfigMap>::default_namespaced(planes.client("plane-7").await);
    maps.create(&PostParams::default(), &config_map("a")).await.unwrap();
    eventually(async || notes.saw("plane-7", "a")).await;
    let success = "controller_runtime_reconcile_total{controller=\"notes\",result=\"success\"}";
    eventually(async || {
        let text = get(metrics, "/metrics").await.1;
        let line = text.lines().find(|line| line.starts_with(success))?;
        (!line.ends_with(" 0")).then_some(())
    })
    .await;
    let text = get(metrics, "/metrics").await.1;
    assert!(text.contains("mica_runtime_clusters{state=\"owned\"} 12"), "{text}");
    let engaged = "mica_runtime_cluster_changes_total{change=\"engaged\"} 13";
    assert!(text.contains(engaged), "the planes and the server itself: {text}");
    assert!(text.contains("rest_client_requests_total{code=\"200\""), "{text}");
    let shown = get(metrics, "/debug/clusters?prefix=plane-1&limit=2").await.1;
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown["total"], 3, "plane-1, plane-10 and plane-11: {shown}");
    assert_eq!(shown["clusters"].as_array().unwrap().len(), 2);
    assert_eq!(shown["providers"][0]["synced"], true);

    running.end().await;
    assert!(TcpStream::connect(probes).await.is_err(), "the servers are gone");
    let again = manager.run_until(std::future::pending()).await;
    assert!(matches!(again, Err(ManagerError::Ran)));
}

#[tokio::test]
async fn the_same_reconciler_runs_on_one_cluster_without_a_provider() {
    let server = TestServer::start().await;
    let manager = Manager::builder(access(&server)).build().unwrap();
    let notes = Notes::default();
    notes.join(&manager);
    let running = Running::start(&manager);
    let maps = Api::<ConfigMap>::default_namespaced(server.client().await);
    maps.create(&PostParams::default(), &config_map("a")).await.unwrap();
    eventually(async || notes.saw("", "a")).await;
    running.end().await;
}

#[tokio::test]
async fn what_is_under_way_finishes_and_what_takes_too_long_is_dropped() {
    for (grace, permits, finished) in [(PATIENCE, 1, 1), (Duration::from_millis(200), 0, 0)] {
        let server = TestServer::start().await;
        let manager = Manager::builder(access(&server)).graceful(grace).build().unwrap();
        let gate = Arc::new(Semaphore::new(0));
        let notes = Notes {
            gate: Some(gate.clone()),
            ..Notes::default()
        };
        notes.join(&manager);
        let running = Running::start(&manager);
        let maps = Api::<ConfigMap>::default_namespaced(server.client().await);
        maps.create(&PostParams::default(), &config_map("a")).await.unwrap();
        eventually(async || notes.saw("", "a")).await;
        running.stop.cancel();
        eventually(async || (!manager.readyz().failing().is_empty()).then_some(())).await;
        gate.add_permits(permits);
        running.end().await;
        assert_eq!(notes.finished.load(Ordering::Relaxed), finished, "with {grace:?}");
    }
}

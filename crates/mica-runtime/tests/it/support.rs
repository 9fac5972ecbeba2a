//! What the tests of clusters and providers share: following a fleet, a wire that can be cut, definitions.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt as _;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use mica_runtime::fleet::Events;
use mica_runtime::ownership::All;
use mica_runtime::{Access, Cluster, ClusterSink, ClusterSpec, Fleet, FleetEvent, Provider, ProviderError};
use mica_testkit::TestServer;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Until when anything must happen: long, for machines that are busy with other things.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub fn fleet() -> Fleet {
    Fleet::new(Arc::new(All::new()))
}

pub fn root(server: &TestServer) -> Access {
    Access::from_kubeconfig_yaml(&server.kubeconfig()).unwrap()
}

pub async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(PATIENCE, future).await;
    done.unwrap_or_else(|_| panic!("not in time: {what}"))
}

/// The next event that is not the end of a first list.
pub async fn next(events: &mut Events) -> FleetEvent {
    soon("an event", async {
        loop {
            match events.next().await.expect("the fleet goes on") {
                FleetEvent::Synced => {}
                event => return event,
            }
        }
    })
    .await
}

pub async fn engaged(events: &mut Events, name: &str) -> Cluster {
    match next(events).await {
        FleetEvent::Engaged(cluster) if cluster.name().as_str() == name => cluster,
        other => panic!("{name} was to be engaged, not {other:?}"),
    }
}

pub async fn gone(events: &mut Events, name: &str) {
    match next(events).await {
        FleetEvent::Gone(gone) if gone.as_str() == name => {}
        other => panic!("{name} was to go, not {other:?}"),
    }
}

pub async fn synced(events: &mut Events) {
    let first = soon("synced", events.next()).await;
    assert!(matches!(first, Some(FleetEvent::Synced)), "{first:?} came before");
}

/// A provider whose clusters are what the test says.
pub struct Told(pub watch::Receiver<Vec<ClusterSpec>>);

#[async_trait]
impl Provider for Told {
    fn name(&self) -> &str {
        "told"
    }

    async fn run(&self, sink: ClusterSink) -> Result<(), ProviderError> {
        let mut specs = self.0.clone();
        loop {
            sink.restart();
            for spec in specs.borrow_and_update().iter() {
                sink.upsert(spec.clone());
            }
            sink.synced();
            if specs.changed().await.is_err() {
                return Ok(());
            }
        }
    }
}

/// Installs a definition of one version with a status, whose objects may hold anything.
pub async fn define(client: &kube::Client, group: &str, kind: &str, plural: &str) -> Api<DynamicObject> {
    let singular = kind.to_lowercase();
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group,
            "scope": "Cluster",
            "names": {"kind": kind, "plural": plural, "singular": singular, "listKind": format!("{kind}List")},
            "versions": [{
                "name": "v1alpha1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    });
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let definition = serde_json::from_value(definition).unwrap();
    definitions.create(&PostParams::default(), &definition).await.unwrap();
    let established = kube::runtime::conditions::is_crd_established();
    let name = format!("{plural}.{group}");
    let waiting = kube::runtime::wait::await_condition(definitions, &name, established);
    soon("the definition", waiting).await.unwrap();
    let kind = GroupVersionKind::gvk(group, "v1alpha1", kind);
    Api::all_with(client.clone(), &ApiResource::from_gvk_with_plural(&kind, plural))
}

/// Creates an object, and then writes its status.
pub async fn create(api: &Api<DynamicObject>, object: Value, status: Value) {
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    let made = api.create(&PostParams::default(), &object).await.unwrap();
    if !status.is_null() {
        set_status(api, made.metadata.name.as_deref().unwrap(), status).await;
    }
}

pub async fn set_status(api: &Api<DynamicObject>, name: &str, status: Value) {
    let patch = Patch::Merge(json!({"status": status}));
    api.patch_status(name, &PatchParams::default(), &patch).await.unwrap();
}

/// Passes connections on to a server, counts them, and can be cut.
pub struct Wire {
    to: SocketAddr,
    pub address: SocketAddr,
    accepted: Arc<AtomicUsize>,
    cut: CancellationToken,
}

impl Wire {
    pub async fn to(server: &TestServer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut wire = Self {
            to: server.address(),
            address: listener.local_addr().unwrap(),
            accepted: Arc::default(),
            cut: CancellationToken::new(),
        };
        wire.pass(listener);
        wire
    }

    fn pass(&mut self, listener: TcpListener) {
        self.cut = CancellationToken::new();
        let (to, accepted, cut) = (self.to, self.accepted.clone(), self.cut.clone());
        tokio::spawn(self.cut.clone().run_until_cancelled_owned(async move {
            while let Ok((mut from, _)) = listener.accept().await {
                accepted.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(cut.clone().run_until_cancelled_owned(async move {
                    if let Ok(mut to) = TcpStream::connect(to).await {
                        let _ = tokio::io::copy_bidirectional(&mut from, &mut to).await;
                    }
                }));
            }
        }));
    }

    /// Ends every connection and takes no more.
    pub fn cut(&self) {
        self.cut.cancel();
    }

    pub async fn mend(&mut self) {
        let bound = soon("the port", async {
            loop {
                match TcpListener::bind(self.address).await {
                    Ok(listener) => return listener,
                    Err(_) => tokio::task::yield_now().await,
                }
            }
        });
        let listener = bound.await;
        self.pass(listener);
    }

    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// How many connections there have been.
    pub fn connections(&self) -> usize {
        self.accepted.load(Ordering::Relaxed)
    }
}

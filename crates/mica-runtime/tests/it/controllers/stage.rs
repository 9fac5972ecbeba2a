//! A server with planes, a fleet that the test steers, and a reconciler that writes down what it sees.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ObjectMeta, PostParams};
use mica_runtime::controller::{Controllers, Reach, Surroundings};
use mica_runtime::events::Events;
use mica_runtime::ownership::All;
use mica_runtime::queue::Priority;
use mica_runtime::reconcile::{Action, Cx, Reconciler};
use mica_runtime::{
    Access, ClusterName, ClusterSink, ClusterSpec, Fleet, Metrics, Ownership, Provider, ProviderError, Request,
    Wildcard,
};
use mica_testkit::TestServer;
use parking_lot::Mutex;
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

use super::tap::Tap;

/// Generous, so that a busy machine fails nothing.
pub const DEADLINE: Duration = Duration::from_secs(60);
pub const NAMESPACE: &str = "default";

/// Waits for a state.
pub async fn eventually(what: &str, state: impl Fn() -> bool) {
    let waiting = async {
        while !state() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(
        tokio::time::timeout(DEADLINE, waiting).await.is_ok(),
        "never so: {what}"
    );
}

/// How a plane is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Read {
    /// With all others of its server.
    Together,
    /// By watches of its own.
    Alone,
}

pub struct Stage {
    pub server: TestServer,
    pub tap: Tap,
    /// The root of the server, through the tap.
    pub access: Access,
    pub fleet: Fleet,
    pub sink: ClusterSink,
    pub controllers: Controllers,
    pub metrics: Metrics,
    stop: CancellationToken,
    running: tokio::task::JoinHandle<()>,
}

/// A provider whose sink the test has.
struct Steered(Arc<OnceCell<ClusterSink>>);

#[async_trait]
impl Provider for Steered {
    fn name(&self) -> &str {
        "steered"
    }

    async fn run(&self, sink: ClusterSink) -> Result<(), ProviderError> {
        let _ = self.0.set(sink);
        std::future::pending().await
    }
}

impl Stage {
    pub async fn new() -> Self {
        Self::with(Arc::new(All::new()), Reach::Provided).await
    }

    pub async fn with(ownership: Arc<dyn Ownership>, reach: Reach) -> Self {
        let server = TestServer::start().await;
        let client = server.client().await;
        Self::through(server, client, ownership, reach).await
    }

    /// On a server that controllers reach by this client.
    pub async fn through(
        server: TestServer,
        client: kube::Client,
        ownership: Arc<dyn Ownership>,
        reach: Reach,
    ) -> Self {
        let tap = Tap::new(client);
        let fleet = Fleet::new(ownership);
        let slot = Arc::new(OnceCell::new());
        fleet.add(Steered(slot.clone())).expect("the first provider");
        let access = tap.access();
        fleet.set_local(access.clone());
        eventually("the provider runs", || slot.initialized()).await;
        let metrics = Metrics::new();
        let (events, _) = Events::new("test", metrics.clone());
        let controllers = Controllers::new(Surroundings {
            fleet: fleet.clone(),
            local: access.client(),
            metrics: metrics.clone(),
            events,
            reach,
        });
        let stop = CancellationToken::new();
        let running = tokio::spawn({
            let (controllers, stop) = (controllers.clone(), stop.clone());
            async move { controllers.run(stop, DEADLINE).await }
        });
        Self {
            server,
            tap,
            access,
            fleet,
            sink: slot.get().expect("it is there").clone(),
            controllers,
            metrics,
            stop,
            running,
        }
    }

    /// Has all ConfigMaps seen.
    pub fn watch(&self) -> Arc<Seen> {
        let seen = Arc::new(Seen::default());
        let watcher = self.controllers.controller("watcher").for_::<ConfigMap>();
        watcher
            .reconcile(Watcher(seen.clone()))
            .expect("there is no other of the name");
        seen
    }

    /// Ends everything in order.
    pub async fn stop(self) {
        self.stop.cancel();
        tokio::time::timeout(DEADLINE, self.running)
            .await
            .expect("it ends")
            .expect("it does not panic");
    }

    /// Makes a plane.
    pub async fn plane(&self, name: &str) -> Plane {
        self.server.plane(name).await;
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("mica.dev", "v1alpha1", "Plane"));
        let planes = Api::<DynamicObject>::all_with(self.server.client().await, &kind);
        let plane = planes.get(name).await.expect("it was made");
        let id = plane.data["status"]["id"].as_str().expect("planes have ids").to_owned();
        let url = format!("{}/clusters/{name}/control-plane", self.server.url());
        Plane {
            name: name.to_owned(),
            id,
            client: self.server.client_for(&url, self.server.admin()).await,
        }
    }

    pub async fn planes(&self, names: impl IntoIterator<Item = String>) -> Vec<Plane> {
        let mut planes = Vec::new();
        for name in names {
            planes.push(self.plane(&name).await);
        }
        planes
    }

    /// What a provider says of a plane.
    pub fn spec(&self, name: &str, plane: &Plane, read: Read) -> ClusterSpec {
        self.spec_at(&self.access, name, plane, read)
    }

    /// The same, through another way to the server.
    pub fn spec_at(&self, server: &Access, name: &str, plane: &Plane, read: Read) -> ClusterSpec {
        let access = server.at(&format!("/clusters/{}/control-plane", plane.name));
        let spec = ClusterSpec::new(ClusterName::new(name), access).identity(plane.id.clone());
        match read {
            Read::Alone => spec,
            Read::Together => spec.wildcard(Wildcard {
                server: server.clone(),
                plane: plane.name.clone(),
                plane_id: plane.id.clone(),
            }),
        }
    }
}

pub struct Plane {
    pub name: String,
    pub id: String,
    pub client: kube::Client,
}

impl Plane {
    pub fn config_maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    pub async fn create(&self, name: &str, value: &str) -> ConfigMap {
        let object = config_map(name, value);
        self.config_maps()
            .create(&PostParams::default(), &object)
            .await
            .expect("it is made")
    }

    pub async fn set(&self, name: &str, value: &str) {
        let mut object = self.config_maps().get(name).await.expect("it is there");
        object.data = config_map(name, value).data;
        self.config_maps()
            .replace(name, &PostParams::default(), &object)
            .await
            .expect("nobody else writes it");
    }

    pub async fn delete(&self, name: &str) {
        self.config_maps()
            .delete(name, &DeleteParams::default())
            .await
            .expect("it is there");
    }
}

pub fn config_map(name: &str, value: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        data: Some([("v".to_owned(), value.to_owned())].into()),
        ..ConfigMap::default()
    }
}

pub fn request(cluster: &str, name: &str) -> Request {
    Request::new(ClusterName::new(cluster), Some(NAMESPACE), name)
}

/// What a reconciler saw, and what it sees now.
#[derive(Default)]
pub struct Seen {
    pub log: Mutex<Vec<Sight>>,
}

#[derive(Clone, Debug)]
pub struct Sight {
    pub request: Request,
    pub value: Option<String>,
    pub priority: Priority,
}

impl Seen {
    /// The last that was seen of each object of a cluster that has a value: `name=value`, or `name gone`.
    pub fn of(&self, cluster: &str) -> BTreeMap<String, String> {
        let mut last = BTreeMap::new();
        for sight in self
            .log
            .lock()
            .iter()
            .filter(|sight| sight.request.cluster.as_str() == cluster)
        {
            let value = sight.value.clone().unwrap_or_else(|| "gone".to_owned());
            last.insert(sight.request.name.to_string(), value);
        }
        last
    }

    pub fn last(&self, request: &Request) -> Option<Option<String>> {
        let log = self.log.lock();
        let last = log.iter().rev().find(|sight| sight.request == *request)?;
        Some(last.value.clone())
    }

    pub fn times(&self, request: &Request) -> usize {
        self.log.lock().iter().filter(|sight| sight.request == *request).count()
    }

    pub async fn shows(&self, request: &Request, value: Option<&str>) {
        let wanted = Some(value.map(str::to_owned));
        eventually(&format!("{request} is {value:?}"), || self.last(request) == wanted).await;
    }
}

/// Writes down what it sees.
pub struct Watcher(pub Arc<Seen>);

#[async_trait]
impl Reconciler for Watcher {
    type Kind = ConfigMap;
    type Error = Infallible;

    async fn reconcile(&self, cx: Cx<ConfigMap>) -> Result<Action, Infallible> {
        let value = cx.object().map(|object| {
            let data = object.data.clone().unwrap_or_default();
            data.get("v").cloned().unwrap_or_default()
        });
        self.0.log.lock().push(Sight {
            request: cx.request().clone(),
            value,
            priority: cx.priority(),
        });
        Ok(Action::await_change())
    }
}

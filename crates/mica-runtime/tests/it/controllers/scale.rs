//! Ten thousand planes on a server that only says what the test says.

use std::convert::Infallible;
use std::marker::PhantomData;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::StreamBody;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::client::Body;
use mica_runtime::controller::{CONCURRENCY, Controllers, Reach, Surroundings, Watch};
use mica_runtime::events::Events;
use mica_runtime::ownership::All;
use mica_runtime::provider::Static;
use mica_runtime::source::{Born, Object, Select};
use mica_runtime::{Access, Action, ClusterName, ClusterSpec, Cx, Fleet, Metrics, Reconciler, Wildcard};
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tower::util::service_fn;

use super::stage::{DEADLINE, eventually};

const PLANES: usize = 10_000;

/// A server whose watches begin empty and tell what the test says.
#[derive(Clone, Default)]
struct Fake {
    asked: Arc<Mutex<Vec<String>>>,
    config_maps: Arc<Mutex<Option<mpsc::UnboundedSender<Bytes>>>>,
}

impl Fake {
    fn access(&self) -> Access {
        let fake = self.clone();
        Access::in_process(service_fn(move |request: Request<Body>| {
            let answer = fake.answer(&request);
            async move { Ok::<_, Infallible>(answer) }
        }))
    }

    fn answer(
        &self,
        request: &Request<Body>,
    ) -> Response<StreamBody<impl futures::Stream<Item = Result<Frame<Bytes>, Infallible>> + use<>>> {
        let uri = request.uri().to_string();
        let (sender, mut receiver) = mpsc::unbounded_channel();
        let end = json!({"resourceVersion": "1", "annotations": {"k8s.io/initial-events-end": "true"}});
        let object = json!({"apiVersion": "v1", "kind": "Any", "metadata": end});
        let _ = sender.send(line("BOOKMARK", &object));
        let mut kept = Some(sender);
        if uri.contains("/configmaps") {
            *self.config_maps.lock() = kept.take();
        }
        self.asked.lock().push(uri);
        let events = futures::stream::poll_fn(move |cx| {
            let _open = &kept;
            receiver
                .poll_recv(cx)
                .map(|event| event.map(|event| Ok(Frame::data(event))))
        });
        Response::new(StreamBody::new(events))
    }

    fn add_config_map(&self, plane: usize, name: &str) {
        let annotations = json!({"mica.dev/plane": name_of(plane), "mica.dev/plane-id": id_of(plane)});
        let metadata =
            json!({"name": name, "namespace": "ns", "uid": name, "resourceVersion": "2", "annotations": annotations});
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
        let sender = self.config_maps.lock().clone().expect("somebody watches");
        sender.send(line("ADDED", &object)).expect("somebody watches");
    }
}

fn line(kind: &str, object: &serde_json::Value) -> Bytes {
    Bytes::from(format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n"))
}

fn name_of(plane: usize) -> String {
    format!("plane-{plane}")
}

fn id_of(plane: usize) -> String {
    format!("{plane:012}")
}

/// Writes down what it begins with, and ends when it may.
struct Order<K> {
    log: Arc<Mutex<Vec<String>>>,
    gate: Arc<Semaphore>,
    kind: PhantomData<fn(K)>,
}

#[async_trait]
impl<K: Object> Reconciler for Order<K> {
    type Kind = K;
    type Error = Infallible;

    async fn reconcile(&self, cx: Cx<K>) -> Result<Action, Infallible> {
        self.log.lock().push(cx.request().to_string());
        let open = self.gate.acquire().await;
        drop(open);
        Ok(Action::await_change())
    }
}

fn start<K: Object<DynamicType: Default>>(
    controllers: &Controllers,
    name: &str,
    log: &Arc<Mutex<Vec<String>>>,
    gate: &Arc<Semaphore>,
) {
    let reconciler = Order::<K> {
        log: log.clone(),
        gate: gate.clone(),
        kind: PhantomData,
    };
    let watch = Watch::new().select(Select::all().born(Born::Skip));
    let controller = controllers.controller(name).for_watch(watch);
    controller.reconcile(reconciler).expect("names of their own");
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_planes_cost_a_stream_for_each_kind_and_a_storm_in_one_does_not_hold_up_the_others() {
    let fake = Fake::default();
    let server = fake.access();
    let specs = (0..PLANES).map(|plane| {
        let access = server.at(&format!("/clusters/{}/control-plane", name_of(plane)));
        ClusterSpec::new(ClusterName::new(name_of(plane)), access).wildcard(Wildcard {
            server: server.clone(),
            plane: name_of(plane),
            plane_id: id_of(plane),
        })
    });
    let fleet = Fleet::new(Arc::new(All::new()));
    let metrics = Metrics::new();
    let (events, _) = Events::new("test", metrics.clone());
    let controllers = Controllers::new(Surroundings {
        fleet: fleet.clone(),
        local: server.client(),
        metrics,
        events,
        reach: Reach::Provided,
    });
    let (log, gate) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Semaphore::new(CONCURRENCY)));
    start::<ConfigMap>(&controllers, "config-maps", &log, &gate);
    start::<Secret>(&controllers, "secrets", &log, &gate);
    start::<Namespace>(&controllers, "namespaces", &log, &gate);
    let stop = CancellationToken::new();
    let running = tokio::spawn({
        let (controllers, stop) = (controllers.clone(), stop.clone());
        async move { controllers.run(stop, DEADLINE).await }
    });
    fleet.add(Static::new(specs)).expect("the first provider");
    let last = PLANES - 1;
    eventually("the streams are open", || {
        fake.asked.lock().len() == 3 && fake.config_maps.lock().is_some()
    })
    .await;
    // The last of them by name, so all the others are there too.
    fake.add_config_map(last, "first");
    eventually("all are engaged", || log.lock().len() == 1).await;
    log.lock().clear();
    gate.forget_permits(CONCURRENCY);
    // All workers wait at the gate while this is added.
    let storm = 10_000;
    for i in 0..storm {
        fake.add_config_map(0, &format!("storm-{i}"));
    }
    fake.add_config_map(last, "quiet");
    let begun = |name: &str| log.lock().iter().filter(|request| request.contains(name)).count();
    eventually("the quiet plane has its turn", || begun("/quiet") == 1).await;
    eventually("the storm has its share", || begun("/storm") == CONCURRENCY / 2).await;
    gate.add_permits(CONCURRENCY);
    eventually("all is done", || log.lock().len() == storm + 1).await;
    assert_eq!(fake.asked.lock().len(), 3, "{:?}", fake.asked.lock());
    assert!(
        fake.asked
            .lock()
            .iter()
            .all(|uri| uri.starts_with("/clusters/*/control-plane/"))
    );
    stop.cancel();
    running.await.expect("it ends in order");
}

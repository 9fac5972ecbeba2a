//! A service that knows nothing but registrations, and follows a control plane through all that may happen to it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use mica_api::control_plane::{KUBECONFIG, SERVER_ANNOTATION};
use mica_runtime::provider::Registrations;
use mica_runtime::{Access, Action, ClusterName, Cx, Manager, ReconcileError, Reconciler};
use mica_testkit::kube::core::{ApiResource, DynamicObject};
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::migration::{Own, admin, map, mode, two, until_moved};
use super::*;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// Between two writes: a plane that grows without end says nothing more than a small one.
const PACE: Duration = Duration::from_millis(20);
const PATIENCE: Duration = Duration::from_secs(120);

/// The ConfigMaps that the service saw, and those that it saw go.
#[derive(Clone, Default)]
struct Service(Arc<Mutex<(BTreeSet<String>, BTreeSet<String>)>>);

#[async_trait]
impl Reconciler for Service {
    type Kind = DynamicObject;
    type Error = ReconcileError;

    async fn reconcile(&self, cx: Cx<DynamicObject>) -> Result<Action, ReconcileError> {
        let mut notes = self.0.lock().unwrap();
        let name = cx.request().name.to_string();
        match cx.object() {
            Some(_) => notes.0.insert(name),
            None => notes.1.insert(name),
        };
        Ok(Action::await_change())
    }
}

impl Service {
    /// Follows whatever is registered for it.
    fn start(&self, world: &World) -> (Manager, DropGuard) {
        let management = Access::from_kubeconfig_yaml(&world.server.kubeconfig()).unwrap();
        let registrations = Registrations::new(management.clone()).service("scheduler");
        let manager = Manager::builder(management).provider(registrations).build().unwrap();
        let maps = ApiResource::from_gvk_with_plural(
            &mica_testkit::kube::core::GroupVersionKind::gvk("", "v1", "ConfigMap"),
            "configmaps",
        );
        let controller = manager.controller("service").for_dynamic(maps);
        controller.reconcile(self.clone()).unwrap();
        let stop = CancellationToken::new();
        let (running, stopped) = (manager.clone(), stop.clone().cancelled_owned());
        tokio::spawn(async move { running.run_until(stopped).await });
        (manager, stop.drop_guard())
    }

    async fn until(&self, what: &str, is_so: impl Fn(&BTreeSet<String>, &BTreeSet<String>) -> bool) {
        let seeing = async {
            loop {
                {
                    let notes = self.0.lock().unwrap();
                    if is_so(&notes.0, &notes.1) {
                        return;
                    }
                }
                tokio::time::sleep(PACE).await;
            }
        };
        let seen = tokio::time::timeout(PATIENCE, seeing).await;
        assert!(seen.is_ok(), "{what} is not seen: {:?}", self.0.lock().unwrap());
    }
}

/// Writes all the time, by what the Secret says. What was acknowledged.
struct Writer {
    written: Arc<Mutex<BTreeSet<String>>>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Writer {
    fn start(root: &Place) -> Self {
        let (written, stop) = (Arc::<Mutex<BTreeSet<String>>>::default(), CancellationToken::new());
        let (noting, stopped, root) = (written.clone(), stop.clone(), root.clone());
        let task = tokio::spawn(async move {
            let mut client = admin(&root, "a").await;
            for at in 0.. {
                if stopped.is_cancelled() {
                    return;
                }
                let name = format!("map-{at}");
                match map(&client, &name).await {
                    Ok(_) => drop(noting.lock().unwrap().insert(name)),
                    // Nobody knows whether it was written, so nobody counts on it.
                    Err(_) => client = admin(&root, "a").await,
                }
                tokio::time::sleep(PACE).await;
            }
        });
        Self { written, stop, task }
    }

    /// Waits until as many more were written.
    async fn until_more(&self, more: usize) {
        let count = || self.written.lock().unwrap().len();
        let wanted = count() + more;
        let writing = async {
            while count() < wanted {
                tokio::time::sleep(PACE).await;
            }
        };
        tokio::time::timeout(PATIENCE, writing).await.expect("writes go on");
    }

    fn so_far(&self) -> BTreeSet<String> {
        self.written.lock().unwrap().clone()
    }

    async fn end(self) -> BTreeSet<String> {
        self.stop.cancel();
        self.task.await.unwrap();
        let written = self.written.lock().unwrap();
        written.clone()
    }
}

async fn until_resolved(root: &Place, begin: &str) {
    let path = format!("{REGISTRATIONS}/a");
    root.until(&path, &format!("at {begin}"), |found| {
        let at = found.and_then(|found| found["status"]["resolvedEndpoint"].as_str());
        at.is_some_and(|at| at.starts_with(begin))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_follows_a_control_plane_from_its_creation_to_its_end_and_misses_nothing() {
    let (world, root, own): (World, Place, Arc<Own>) = two().await;
    let service = Service::default();
    let (manager, _stop) = service.start(&world);
    // It is made, and known by its registration alone.
    make(
        &root,
        CLASSES,
        "ControlPlaneClass",
        "c",
        json!({"services": ["scheduler"]}),
    )
    .await;
    let spec = json!({"classRef": {"name": "c"}, "deletionPolicy": "Destroy"});
    control_plane(&root, "a", spec).await;
    until_ready(&root, "a").await;
    let writer = Writer::start(&root);
    service.until("the first", |seen, _| seen.contains("map-0")).await;

    // Its endpoint changes, and changes back.
    let url = world.server.url();
    let by_name = url.replace("127.0.0.1", "localhost");
    assert_ne!(by_name, url);
    make(
        &root,
        ENDPOINTS,
        "ControlPlaneEndpoint",
        "e",
        json!({"endpoint": by_name}),
    )
    .await;
    for (reference, begin) in [(json!({"name": "e"}), &by_name), (Value::Null, &url)] {
        let patch = json!({"spec": {"endpointRef": reference}});
        root.patch(&format!("{CONTROL_PLANES}/a"), patch).await;
        until_resolved(&root, begin).await;
        writer.until_more(5).await;
    }

    // Its credentials are renewed: nothing is begun anew for that.
    let written = writer.so_far();
    service.until("so far", |seen, _| written.is_subset(seen)).await;
    let cluster = manager.fleet().get(&ClusterName::new("a")).unwrap();
    let before = kubeconfig(&root.get(&secret_path("a")).await.unwrap(), KUBECONFIG);
    let stale = json!({"metadata": {"annotations": {SERVER_ANNOTATION: "https://elsewhere.example"}}});
    root.patch(&secret_path("a"), stale).await;
    root.until(&secret_path("a"), "renewed", |found| {
        found.is_some_and(|found| kubeconfig(found, KUBECONFIG) != before)
    })
    .await;
    writer.until_more(5).await;
    let written = writer.so_far();
    service.until("so far", |seen, _| written.is_subset(seen)).await;
    assert!(!cluster.lifetime().is_cancelled(), "it is followed as before");

    // It moves to a server of its own.
    mode(&root, "a", "Dedicated").await;
    until_moved(&root, "a", "Dedicated").await;
    assert!(own.runs().await);
    writer.until_more(5).await;

    let written = writer.end().await;
    service
        .until("everything that was written", |seen, _| written.is_subset(seen))
        .await;
    let client = admin(&root, "a").await;
    ask(&client, "DELETE", &format!("{MAPS}/map-0"), Value::Null)
        .await
        .unwrap();
    service
        .until("the end of the first", |_, gone| gone.contains("map-0"))
        .await;

    // With the control plane it has nothing to follow.
    root.delete(&format!("{CONTROL_PLANES}/a")).await;
    root.until_gone(&format!("{REGISTRATIONS}/a")).await;
    root.until(CONTROL_PLANES, "let go", |_| {
        manager.fleet().get(&ClusterName::new("a")).is_err()
    })
    .await;
}

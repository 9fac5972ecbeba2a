//! A service that follows a registration and nothing else, through everything that happens to its control plane.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::ConfigMap;
use mica_runtime::provider::Registrations;
use mica_runtime::{Access, Action, ClusterName, Cx, Manager, ReconcileError, Reconciler};
use mica_testkit::kube::{self, ResourceExt as _};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::credential::renew;
use super::migration::{MAPS, admin, map, mode, two, until_moved};
use super::{CLASSES, CONTROL_PLANES, ENDPOINTS, Place, REGISTRATIONS, ask, control_plane, make, until_ready};

/// How long anything may take: a machine may be very busy.
const PATIENCE: Duration = Duration::from_secs(90);
const PAUSE: Duration = Duration::from_millis(20);

/// What is known of each object: the number in it, none once it is gone.
type Known = BTreeMap<String, Option<u64>>;

/// A controller of the service.
#[derive(Clone)]
struct Consumer {
    known: Arc<watch::Sender<Known>>,
}

#[async_trait]
impl Reconciler for Consumer {
    type Kind = ConfigMap;
    type Error = ReconcileError;

    async fn reconcile(&self, cx: Cx<ConfigMap>) -> Result<Action, ReconcileError> {
        let object = cx.object();
        let number = object.as_ref().map(|map| {
            let data = map.data.as_ref().and_then(|data| data.get("n"));
            data.and_then(|n| n.parse().ok()).unwrap_or_default()
        });
        let name = match &object {
            Some(object) => object.name_any(),
            None => cx.request().name.to_string(),
        };
        self.known.send_modify(|known| {
            known.insert(name, number);
        });
        Ok(Action::await_change())
    }
}

/// A process of the service, with the registrations as all that it knows.
struct Service {
    manager: Manager,
    known: watch::Receiver<Known>,
    _stop: DropGuard,
}

impl Service {
    fn start(kubeconfig: &str) -> Self {
        let access = Access::from_kubeconfig_yaml(kubeconfig).unwrap();
        let registrations = Registrations::new(access.clone()).service("workloads");
        let manager = Manager::builder(access).provider(registrations).build().unwrap();
        let (tell, known) = watch::channel(Known::new());
        let known_to = Arc::new(tell);
        let controller = manager.controller("consumer").for_::<ConfigMap>();
        controller.reconcile(Consumer { known: known_to }).unwrap();
        let stop = CancellationToken::new();
        let (running, stopped) = (manager.clone(), stop.clone().cancelled_owned());
        tokio::spawn(async move { running.run_until(stopped).await });
        Self {
            manager,
            known,
            _stop: stop.drop_guard(),
        }
    }

    async fn until(&self, what: &str, is_so: impl FnMut(&Known) -> bool) {
        let mut known = self.known.clone();
        let so = tokio::time::timeout(PATIENCE, known.wait_for(is_so)).await;
        let so = so.map(|so| so.map(drop));
        assert!(matches!(so, Ok(Ok(()))), "{what}: {:?}", self.known.borrow());
    }

    fn engages(&self, name: &str) -> bool {
        let clusters = self.manager.fleet().clusters();
        clusters.iter().any(|cluster| *cluster.name() == ClusterName::new(name))
    }
}

/// Somebody who uses the control plane all the time: makes objects, counts in one, deletes what the service has seen.
/// What there has to be known in the end.
fn use_it(root: Place, seen: watch::Receiver<Known>, stop: CancellationToken) -> JoinHandle<Known> {
    tokio::spawn(async move {
        let mut client = admin(&root, "a").await;
        let mut expected = Known::new();
        for n in 1_u64.. {
            if stop.is_cancelled() {
                break;
            }
            let name = format!("w{n}");
            match map(&client, &name).await {
                Ok(_) => {
                    expected.insert(name, Some(0));
                }
                Err(_) => client = admin(&root, "a").await,
            }
            let old = expected.iter().find(|(name, number)| {
                let is_seen = seen.borrow().get(*name) == Some(&Some(0));
                number.is_some() && name.ends_with('5') && is_seen
            });
            if let Some(old) = old.map(|(name, _)| name.clone())
                && ask(&client, "DELETE", &format!("{MAPS}/{old}"), Value::Null)
                    .await
                    .is_ok()
            {
                expected.insert(old, None);
            }
            let counter = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "counter"},
                "data": {"n": n.to_string()}});
            let counted = match expected.get("counter") {
                None => ask(&client, "POST", MAPS, counter).await,
                Some(_) => ask(&client, "PUT", &format!("{MAPS}/counter"), counter).await,
            };
            if counted.is_ok() {
                expected.insert("counter".to_owned(), Some(n));
            }
            tokio::time::sleep(PAUSE).await;
        }
        expected
    })
}

/// Something of a name that the service has to see before the story goes on.
async fn seen_after(root: &Place, service: &Service, what: &str) {
    let begun = tokio::time::Instant::now();
    loop {
        match map(&admin(root, "a").await, what).await {
            Ok(_) => break,
            // A try before that nobody answered.
            Err(kube::Error::Api(status)) if status.code == 409 => break,
            Err(error) => assert!(begun.elapsed() < PATIENCE, "{what} is not taken: {error}"),
        }
        tokio::time::sleep(PAUSE).await;
    }
    service.until(what, |known| known.contains_key(what)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_follows_a_registration_misses_nothing_from_its_creation_to_its_end() {
    let (world, root, _own) = two().await;
    let service = Service::start(&world.server.kubeconfig());
    make(
        &root,
        CLASSES,
        "ControlPlaneClass",
        "c",
        json!({"services": ["Workloads"]}),
    )
    .await;
    let spec = json!({"classRef": {"name": "c"}, "deletionPolicy": "Destroy"});
    control_plane(&root, "a", spec).await;
    until_ready(&root, "a").await;
    seen_after(&root, &service, "after-creation").await;
    let stop = CancellationToken::new();
    let user = use_it(root.clone(), service.known.clone(), stop.clone());

    let path = format!("{CONTROL_PLANES}/a");
    let elsewhere = world.server.url().replace("127.0.0.1", "localhost");
    let endpoint = json!({"endpoint": format!("{elsewhere}/clusters/a/control-plane")});
    make(&root, ENDPOINTS, "ControlPlaneEndpoint", "e", endpoint).await;
    root.patch(&path, json!({"spec": {"endpointRef": {"name": "e"}}})).await;
    until_resolves(&root, &elsewhere).await;
    seen_after(&root, &service, "after-another-address").await;
    root.patch(&path, json!({"spec": {"endpointRef": null}})).await;
    until_resolves(&root, &world.server.url()).await;
    seen_after(&root, &service, "after-its-old-address").await;

    renew(&root, "a").await;
    seen_after(&root, &service, "after-new-credentials").await;

    for to in ["Dedicated", "Virtual"] {
        mode(&root, "a", to).await;
        until_moved(&root, "a", to).await;
        seen_after(&root, &service, &format!("after-it-became-{}", to.to_lowercase())).await;
    }

    stop.cancel();
    let expected = user.await.unwrap();
    let missed = |known: &Known| {
        let missed = expected
            .iter()
            .filter(|(name, number)| known.get(*name) != Some(*number));
        missed.map(|(name, _)| name.clone()).collect::<Vec<_>>()
    };
    service.until("everything", |known| missed(known).is_empty()).await;
    assert!(expected.values().any(Option::is_none), "something was deleted");

    assert!(service.engages("a"));
    root.delete(&path).await;
    root.until_gone(&path).await;
    root.until_gone(&format!("{REGISTRATIONS}/a")).await;
    let begun = tokio::time::Instant::now();
    while service.engages("a") {
        assert!(begun.elapsed() < PATIENCE, "it is still engaged");
        tokio::time::sleep(PAUSE).await;
    }
}

/// Waits until the registration leads to a server.
async fn until_resolves(root: &Place, server: &str) {
    root.until(&format!("{REGISTRATIONS}/a"), "resolved there", |found| {
        let resolved = found.and_then(|found| found["status"]["resolvedEndpoint"].as_str());
        resolved.is_some_and(|resolved| resolved.starts_with(server))
    })
    .await;
}

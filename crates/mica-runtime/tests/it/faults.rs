//! A cluster that fails as real ones do, and a controller that catches up.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use mica_runtime::breaker;
use mica_runtime::provider::{ClusterSpec, Static};
use mica_runtime::testing::{Fault, Faults, Sent, Times};
use mica_runtime::{Access, Action, ClusterName, Cx, Manager, ReconcileError, Reconciler};
use mica_testkit::ControlPlanes;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::wait::{PATIENCE, eventually};

/// Knows which objects there are, by what it is told.
#[derive(Clone, Default)]
struct Mirror(Arc<Mutex<BTreeSet<String>>>);

#[async_trait]
impl Reconciler for Mirror {
    type Kind = ConfigMap;
    type Error = ReconcileError;

    async fn reconcile(&self, cx: Cx<ConfigMap>) -> Result<Action, ReconcileError> {
        let name = cx.request().name.to_string();
        match cx.object() {
            Some(_) => self.0.lock().insert(name),
            None => self.0.lock().remove(&name),
        };
        Ok(Action::await_change())
    }
}

impl Mirror {
    async fn shows(&self, names: &[&str]) {
        eventually(async || {
            let mut known = self.0.lock().clone();
            known.remove("kube-root-ca.crt");
            known.iter().eq(names.iter()).then_some(())
        })
        .await;
    }
}

fn config_map(name: &str) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.to_owned());
    map
}

#[tokio::test]
async fn a_controller_catches_up_after_cuts_expired_watches_refusals_and_a_partition() {
    let planes = ControlPlanes::new(1).await;
    let maps = Api::<ConfigMap>::default_namespaced(planes.client("plane-0").await);
    let faults = Faults::before(planes.client("plane-0").await);
    let local = Access::from_kubeconfig_yaml(&planes.server().kubeconfig()).unwrap();
    let spec = ClusterSpec::new(ClusterName::new("plane-0"), faults.access());
    let soon = breaker::Limits {
        failures: 2,
        first_pause: Duration::from_millis(50),
        longest_pause: Duration::from_millis(200),
    };
    let manager = Manager::builder(local)
        .provider(Static::new([spec]))
        .breaker(soon)
        .build()
        .unwrap();
    let mirror = Mirror::default();
    manager
        .controller("mirror")
        .for_::<ConfigMap>()
        .reconcile(mirror.clone())
        .unwrap();
    let stop = CancellationToken::new();
    let running = tokio::spawn({
        let (manager, stop) = (manager.clone(), stop.clone());
        async move { manager.run_until(stop.cancelled_owned()).await }
    });
    let (create, delete) = (PostParams::default(), DeleteParams::default());
    maps.create(&create, &config_map("a")).await.unwrap();
    mirror.shows(&["a"]).await;

    // Watches are cut, and what comes back is told that its past is gone.
    faults.inject(Fault::Expired, Times::Next(1), Sent::is_watch);
    faults.cut();
    maps.create(&create, &config_map("b")).await.unwrap();
    mirror.shows(&["a", "b"]).await;

    // The credentials are refused for a while, and then it is slow.
    faults.inject(Fault::Unauthorized, Times::Next(3), |_| true);
    faults.inject(Fault::Slow(Duration::from_millis(20)), Times::Next(5), |_| true);
    faults.cut();
    maps.delete("a", &delete).await.unwrap();
    mirror.shows(&["b"]).await;

    // Nothing gets through, while an object comes and another goes.
    let before = faults.count(|_| true);
    faults.partition();
    maps.create(&create, &config_map("c")).await.unwrap();
    maps.delete("b", &delete).await.unwrap();
    eventually(async || (faults.count(|_| true) > before + 1).then_some(())).await;
    assert!(
        manager
            .metrics()
            .text()
            .contains("mica_runtime_clusters{state=\"engaged\"} 1")
    );
    faults.heal();
    mirror.shows(&["c"]).await;
    assert_eq!(
        maps.list(&ListParams::default().fields("metadata.name=c"))
            .await
            .unwrap()
            .items
            .len(),
        1
    );
    stop.cancel();
    tokio::time::timeout(PATIENCE, running).await.unwrap().unwrap().unwrap();
}

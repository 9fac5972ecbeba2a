//! Clusters that come, change and go under running controllers.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::ConfigMap;
use mica_runtime::controller::Reach;
use mica_runtime::ownership::{All, Engages, Epoch, Ownership, Tenure};
use mica_runtime::{ClusterName, Request};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::stage::{DEADLINE, Read, Seen, Stage, Watcher, eventually, request};

fn watch_config_maps(stage: &Stage, name: &str) -> (mica_runtime::controller::Controller, Arc<Seen>) {
    let seen = Arc::new(Seen::default());
    let controller = stage
        .controllers
        .controller(name)
        .for_::<ConfigMap>()
        .reconcile(Watcher(seen.clone()))
        .unwrap();
    (controller, seen)
}

fn known(stage: &Stage, cluster: &str) -> usize {
    let store = stage.controllers.view().store::<ConfigMap>().unwrap();
    store.list_in(&ClusterName::new(cluster)).len()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plane_that_goes_leaves_nothing_and_one_that_comes_back_is_whole() {
    for read in [Read::Alone, Read::Together] {
        let stage = Stage::new().await;
        let (controller, seen) = watch_config_maps(&stage, "watcher");
        let planes = stage.planes(["stays".to_owned(), "goes".to_owned()]).await;
        for plane in &planes {
            plane.create("x", "1").await;
            stage.sink.upsert(stage.spec(&plane.name, plane, read));
        }
        seen.shows(&request("goes", "x"), Some("1")).await;
        seen.shows(&request("stays", "x"), Some("1")).await;
        let before = seen.times(&request("goes", "x"));
        stage.sink.remove(&ClusterName::new("goes"));
        eventually("nothing is known of it", || known(&stage, "goes") == 0).await;
        planes[1].set("x", "2").await;
        planes[1].create("y", "1").await;
        planes[0].set("x", "2").await;
        seen.shows(&request("stays", "x"), Some("2")).await;
        controller.enqueue(request("goes", "x"), mica_runtime::queue::Priority::High);
        assert_eq!((controller.depth(), known(&stage, "goes")), (0, 0), "{read:?}");
        assert_eq!(seen.times(&request("goes", "x")), before, "{read:?}: it is nobody's");
        stage.sink.upsert(stage.spec("goes", &planes[1], read));
        seen.shows(&request("goes", "x"), Some("2")).await;
        seen.shows(&request("goes", "y"), Some("1")).await;
        stage.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_follows_the_labels_of_clusters() {
    let stage = Stage::new().await;
    let seen = Arc::new(Seen::default());
    stage
        .controllers
        .controller("watcher")
        .for_::<ConfigMap>()
        .clusters(|cluster| cluster.labels().get("tier").map(String::as_str) == Some("gold"))
        .reconcile(Watcher(seen.clone()))
        .unwrap();
    let planes = stage.planes(["a".to_owned(), "b".to_owned()]).await;
    for (plane, read) in planes.iter().zip([Read::Alone, Read::Together]) {
        plane.create("x", "1").await;
        stage.sink.upsert(stage.spec(&plane.name, plane, read));
    }
    let gold = stage.plane("gold").await;
    gold.create("x", "1").await;
    stage
        .sink
        .upsert(stage.spec("gold", &gold, Read::Together).label("tier", "gold"));
    seen.shows(&request("gold", "x"), Some("1")).await;
    assert!(
        seen.log
            .lock()
            .iter()
            .all(|sight| sight.request.cluster.as_str() == "gold")
    );
    for (plane, read) in planes.iter().zip([Read::Alone, Read::Together]) {
        stage
            .sink
            .upsert(stage.spec(&plane.name, plane, read).label("tier", "gold"));
        seen.shows(&request(&plane.name, "x"), Some("1")).await;
        stage.sink.upsert(stage.spec(&plane.name, plane, read));
        let name = ClusterName::new(&plane.name);
        eventually("the label is gone", || {
            stage.fleet.get(&name).is_ok_and(|cluster| cluster.labels().is_empty())
        })
        .await;
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn controllers_come_and_go_while_others_run() {
    let stage = Stage::new().await;
    let plane = stage.plane("p").await;
    plane.create("x", "1").await;
    stage.sink.upsert(stage.spec("p", &plane, Read::Together));
    let (first, first_saw) = watch_config_maps(&stage, "first");
    first_saw.shows(&request("p", "x"), Some("1")).await;
    let lists = stage.tap.lists("/clusters/*/");
    let (second, second_saw) = watch_config_maps(&stage, "second");
    second_saw.shows(&request("p", "x"), Some("1")).await;
    assert_eq!(stage.tap.lists("/clusters/*/"), lists, "they share what is watched");
    let taken = stage.controllers.controller("second").for_::<ConfigMap>();
    assert!(taken.reconcile(Watcher(Arc::default())).is_err(), "names are unique");
    first.stop(DEADLINE).await;
    plane.set("x", "2").await;
    second_saw.shows(&request("p", "x"), Some("2")).await;
    assert_eq!(first_saw.last(&request("p", "x")), Some(Some("1".to_owned())));
    second.stop(DEADLINE).await;
    assert!(
        stage.controllers.view().list::<ConfigMap>().is_err(),
        "nobody watches it now"
    );
    let (_, again) = watch_config_maps(&stage, "first");
    again.shows(&request("p", "x"), Some("2")).await;
    stage.stop().await;
}

/// An ownership that the test steers.
struct Steered {
    owned: Mutex<HashMap<ClusterName, bool>>,
    all: All,
    changes: watch::Sender<u64>,
}

impl Steered {
    fn set(&self, cluster: &str, owned: bool) {
        self.owned.lock().insert(ClusterName::new(cluster), owned);
        self.changes.send_modify(|count| *count += 1);
    }

    fn is_ours(&self, cluster: &ClusterName) -> bool {
        self.owned.lock().get(cluster).copied().unwrap_or_default()
    }
}

#[async_trait]
impl Ownership for Steered {
    fn owns(&self, cluster: &ClusterName) -> Option<Epoch> {
        self.all.owns(cluster).filter(|_| self.is_ours(cluster))
    }

    fn holds(&self, cluster: &ClusterName) -> Option<Epoch> {
        self.all.holds(cluster).filter(|_| self.is_ours(cluster))
    }

    fn begin(&self, cluster: &ClusterName) -> Option<Tenure> {
        self.all.begin(cluster).filter(|_| self.is_ours(cluster))
    }

    /// Those with "warm" in their name are watched whoever has them.
    fn engages(&self, cluster: &ClusterName) -> Engages {
        match self.is_ours(cluster) || cluster.as_str().contains("warm") {
            true => Engages::Yes,
            false => Engages::No,
        }
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    async fn run(&self, stop: CancellationToken) {
        stop.cancelled().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_is_owned_is_reconciled_and_a_warm_standby_has_it_ready() {
    let ownership = Arc::new(Steered {
        owned: Mutex::default(),
        all: All::new(),
        changes: watch::Sender::new(0),
    });
    let stage = Stage::with(ownership.clone(), Reach::Provided).await;
    let (controller, seen) = watch_config_maps(&stage, "watcher");
    let planes = stage
        .planes(["cold".to_owned(), "warm".to_owned(), "ours".to_owned()])
        .await;
    ownership.set("ours", true);
    for plane in &planes {
        plane.create("x", "1").await;
        stage.sink.upsert(stage.spec(&plane.name, plane, Read::Together));
    }
    seen.shows(&request("ours", "x"), Some("1")).await;
    eventually("the warm one is read", || {
        known(&stage, "warm") > 0 && controller.depth() > 0
    })
    .await;
    assert_eq!(known(&stage, "cold"), 0);
    let clusters =
        |seen: &Seen| -> Vec<Request> { seen.log.lock().iter().map(|sight| sight.request.clone()).collect() };
    assert!(clusters(&seen).iter().all(|request| request.cluster.as_str() == "ours"));
    for cluster in ["cold", "warm"] {
        ownership.set(cluster, true);
        seen.shows(&request(cluster, "x"), Some("1")).await;
    }
    ownership.set("ours", false);
    eventually("it is let go", || known(&stage, "ours") == 0).await;
    let before = seen.times(&request("ours", "x"));
    planes[2].set("x", "2").await;
    planes[0].set("x", "2").await;
    seen.shows(&request("cold", "x"), Some("2")).await;
    assert_eq!(seen.times(&request("ours", "x")), before);
    ownership.set("ours", true);
    seen.shows(&request("ours", "x"), Some("2")).await;
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_does_not_answer_costs_the_others_nothing_and_is_taken_up_again() {
    let stage = Stage::new().await;
    let (_, seen) = watch_config_maps(&stage, "watcher");
    let planes = stage.planes(["dead".to_owned(), "well".to_owned()]).await;
    let dead = super::tap::Tap::new(stage.server.client().await);
    for plane in &planes {
        plane.create("x", "1").await;
    }
    // More than the breaker bears.
    dead.lose(20);
    stage
        .sink
        .upsert(stage.spec_at(&dead.access(), "dead", &planes[0], Read::Alone));
    stage.sink.upsert(stage.spec("well", &planes[1], Read::Alone));
    seen.shows(&request("well", "x"), Some("1")).await;
    let cluster = stage.fleet.get(&ClusterName::new("dead")).unwrap();
    eventually("it counts as dead", || !cluster.is_reachable()).await;
    planes[1].set("x", "2").await;
    seen.shows(&request("well", "x"), Some("2")).await;
    dead.lose(0);
    seen.shows(&request("dead", "x"), Some("1")).await;
    stage.stop().await;
}

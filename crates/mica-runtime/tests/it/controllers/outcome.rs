//! What follows from how a reconcile ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::ConfigMap;
use mica_runtime::reconcile::{Action, Cx, ReconcileError, Reconciler};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::stage::{DEADLINE, Read, Stage, eventually};

/// Ends each object's reconciles as its value says, the first time; later ones end well.
#[derive(Default)]
struct Various {
    tries: Mutex<std::collections::HashMap<String, u32>>,
}

impl Various {
    fn tries(&self, name: &str) -> u32 {
        self.tries.lock().get(name).copied().unwrap_or_default()
    }
}

struct Shared(Arc<Various>);

#[async_trait]
impl Reconciler for Shared {
    type Kind = ConfigMap;
    type Error = ReconcileError;

    async fn reconcile(&self, cx: Cx<ConfigMap>) -> Result<Action, ReconcileError> {
        let name = cx.request().name.to_string();
        let tries = {
            let mut tries = self.0.tries.lock();
            let tries = tries.entry(name.clone()).or_default();
            *tries += 1;
            *tries
        };
        if tries > 1 {
            return Ok(Action::await_change());
        }
        match name.as_str() {
            "panics" => panic!("on purpose"),
            "hangs" => std::future::pending().await,
            "fails" => Err(std::io::Error::other("on purpose"))?,
            "terminal" => Err(ReconcileError::terminal("on purpose")),
            "after" => Err(ReconcileError::after(Duration::from_millis(10), "on purpose")),
            "again" => Ok(Action::requeue(Duration::from_millis(10))),
            _ => Ok(Action::await_change()),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn panics_hangs_and_errors_are_tried_again_and_terminal_ones_are_not() {
    let stage = Stage::new().await;
    let plane = stage.plane("p").await;
    let various = Arc::new(Various::default());
    stage
        .controllers
        .controller("various")
        .for_::<ConfigMap>()
        .timeout(Duration::from_millis(200))
        .per_cluster(8)
        .reconcile(Shared(various.clone()))
        .unwrap();
    stage.sink.upsert(stage.spec("p", &plane, Read::Together));
    for name in ["panics", "hangs", "fails", "terminal", "after", "again", "well"] {
        plane.create(name, "1").await;
    }
    for name in ["panics", "hangs", "fails", "after", "again"] {
        eventually(&format!("{name} is tried again"), || various.tries(name) > 1).await;
    }
    eventually("the others are looked at", || {
        various.tries("terminal") > 0 && various.tries("well") > 0
    })
    .await;
    let metrics = stage.metrics.text();
    for (name, count) in [("panics", 1), ("timeouts", 1)] {
        let line = format!("controller_runtime_reconcile_{name}_total{{controller=\"various\"}} {count}");
        assert!(metrics.contains(&line), "{line} is not in\n{metrics}");
    }
    let terminal = "controller_runtime_terminal_reconcile_errors_total{controller=\"various\"} 1";
    assert!(metrics.contains(terminal), "{metrics}");
    assert_eq!(various.tries("terminal"), 1);
    plane.set("terminal", "2").await;
    eventually("a change is another matter", || various.tries("terminal") > 1).await;
    stage.stop().await;
}

/// Says when it has begun, and goes on when it is told.
struct Slow {
    begun: AtomicUsize,
    ended: AtomicUsize,
    go_on: Notify,
}

struct SlowOne(Arc<Slow>);

#[async_trait]
impl Reconciler for SlowOne {
    type Kind = ConfigMap;
    type Error = std::convert::Infallible;

    async fn reconcile(&self, cx: Cx<ConfigMap>) -> Result<Action, Self::Error> {
        if cx.request().name != "slow" {
            return Ok(Action::await_change());
        }
        self.0.begun.fetch_add(1, Ordering::SeqCst);
        // Told to stop, it finishes what it has begun.
        cx.cancelled().await;
        self.0.go_on.notified().await;
        self.0.ended.fetch_add(1, Ordering::SeqCst);
        Ok(Action::await_change())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_under_way_at_the_end_is_finished_or_dropped_in_time() {
    for grace in [DEADLINE, Duration::ZERO] {
        let stage = Stage::new().await;
        let plane = stage.plane("p").await;
        let slow = Arc::new(Slow {
            begun: AtomicUsize::new(0),
            ended: AtomicUsize::new(0),
            go_on: Notify::new(),
        });
        let controller = stage
            .controllers
            .controller("slow")
            .for_::<ConfigMap>()
            .reconcile(SlowOne(slow.clone()))
            .unwrap();
        stage.sink.upsert(stage.spec("p", &plane, Read::Together));
        plane.create("slow", "1").await;
        eventually("it has begun", || slow.begun.load(Ordering::SeqCst) == 1).await;
        let finishes = grace > Duration::ZERO;
        if finishes {
            slow.go_on.notify_one();
        }
        controller.stop(grace).await;
        assert_eq!(slow.ended.load(Ordering::SeqCst), usize::from(finishes));
        stage.stop().await;
    }
}

/// Never ends by itself, and says when it is dropped.
struct Endless {
    begun: AtomicUsize,
    dropped: AtomicUsize,
}

struct EndlessOne(Arc<Endless>);

#[async_trait]
impl Reconciler for EndlessOne {
    type Kind = ConfigMap;
    type Error = std::convert::Infallible;

    async fn reconcile(&self, cx: Cx<ConfigMap>) -> Result<Action, Self::Error> {
        struct Dropped(Arc<Endless>);
        impl Drop for Dropped {
            fn drop(&mut self) {
                self.0.dropped.fetch_add(1, Ordering::SeqCst);
            }
        }
        if cx.request().name != "endless" {
            return Ok(Action::await_change());
        }
        let _dropped = Dropped(self.0.clone());
        self.0.begun.fetch_add(1, Ordering::SeqCst);
        std::future::pending().await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_goes_ends_its_reconciles_and_begins_anew_when_it_comes_again() {
    let stage = Stage::new().await;
    let plane = stage.plane("p").await;
    plane.create("endless", "1").await;
    let endless = Arc::new(Endless {
        begun: AtomicUsize::new(0),
        dropped: AtomicUsize::new(0),
    });
    let controller = stage
        .controllers
        .controller("endless")
        .for_::<ConfigMap>()
        .per_cluster(1)
        .reconcile(EndlessOne(endless.clone()))
        .unwrap();
    for round in 1..4 {
        stage.sink.upsert(stage.spec("p", &plane, Read::Together));
        eventually("it has begun", || endless.begun.load(Ordering::SeqCst) == round).await;
        stage.sink.remove(&mica_runtime::ClusterName::new("p"));
        eventually("it is dropped", || endless.dropped.load(Ordering::SeqCst) == round).await;
    }
    controller.stop(DEADLINE).await;
    stage.stop().await;
}

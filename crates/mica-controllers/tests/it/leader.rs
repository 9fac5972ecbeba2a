//! Two replicas of the controllers at one server: one works, the other stands by.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::Method;
use mica_controllers::{Options, Selection, run_owned};
use mica_runtime::Ownership;
use mica_runtime::ownership::{Leader, Standby, Timing};
use mica_server::authz::User;
use mica_testkit::TestServer;
use mica_testkit::kube::Client;
use mica_testkit::kube::client::Body;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::world::{Place, World};

/// Short, so that the end of a replica is noticed soon; what is claimed holds for any.
const TIMING: Timing = Timing {
    lease: Duration::from_secs(4),
    renew: Duration::from_millis(2500),
    retry: Duration::from_millis(200),
};

/// Who changed something, in order.
type Writers = Arc<parking_lot::Mutex<Vec<&'static str>>>;

struct Replica {
    leader: Arc<Leader>,
    /// Its requests about the lease fail while this is set.
    cut: Arc<AtomicBool>,
    tasks: JoinSet<()>,
    stop: CancellationToken,
}

fn start(world: &World, name: &'static str, writers: &Writers) -> Replica {
    let cut = Arc::new(AtomicBool::new(false));
    let stop = CancellationToken::new();
    let (inside, fails) = (world.server.client_inside(User::system()), cut.clone());
    let leases = tower::service_fn(move |request: http::Request<Body>| {
        let (inside, fails) = (inside.clone(), fails.clone());
        async move {
            if fails.load(Ordering::SeqCst) {
                let mut refused = http::Response::new(Body::empty());
                *refused.status_mut() = http::StatusCode::INTERNAL_SERVER_ERROR;
                return Ok(refused);
            }
            inside.send(request).await
        }
    });
    let leader = Leader::new(Client::new(leases, "default"), "kube-system", "controllers")
        .identity(name)
        .timing(TIMING)
        .standby(Standby::Warm);
    let leader = Arc::new(leader.build());
    let (inside, noted) = (world.server.client_inside(User::controllers()), writers.clone());
    let work = tower::service_fn(move |request: http::Request<Body>| {
        if *request.method() != Method::GET {
            noted.lock().push(name);
        }
        let inside = inside.clone();
        async move { inside.send(request).await }
    });
    let options = Options {
        controllers: Selection::default(),
        ..Options::default()
    };
    let mut tasks = JoinSet::new();
    let ownership: Arc<dyn Ownership> = leader.clone();
    tasks.spawn(run_owned(
        Client::new(work, "default"),
        options,
        ownership,
        stop.clone(),
    ));
    tasks.spawn({
        let (leader, stop) = (leader.clone(), stop.clone());
        async move { leader.run(stop).await }
    });
    Replica {
        leader,
        cut,
        tasks,
        stop,
    }
}

async fn world() -> (World, Place, Writers) {
    let world = World::with(TestServer::start().await, &["-*"]).await;
    let root = world.root();
    (world, root, Writers::default())
}

/// Makes a namespace, and waits until somebody has worked on it.
async fn see_work(root: &Place, namespace: &str) {
    root.namespace(namespace).await;
    let account = format!("/api/v1/namespaces/{namespace}/serviceaccounts/default");
    root.until(&account, "made", |found| found.is_some()).await;
    root.delete(&format!("/api/v1/namespaces/{namespace}")).await;
    root.until_gone(&format!("/api/v1/namespaces/{namespace}")).await;
}

/// Waits until the lease names a holder.
async fn held_by(root: &Place, holder: &str) {
    let lease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/controllers";
    root.until(lease, "held", |found| {
        found.is_some_and(|lease| lease["spec"]["holderIdentity"] == holder)
    })
    .await;
}

/// All of one's writes are before all of the other's.
fn check(writers: &Writers, order: [&str; 2]) {
    let mut writers = writers.lock().clone();
    writers.dedup();
    assert_eq!(writers, order);
}

#[tokio::test]
async fn of_two_replicas_one_works_and_the_other_takes_over_when_it_ends() {
    let (world, root, writers) = world().await;
    let mut first = start(&world, "first", &writers);
    held_by(&root, "first").await;
    let second = start(&world, "second", &writers);
    see_work(&root, "one").await;
    // What nobody has done when the first ends is done by the second.
    root.namespace("left").await;
    first.stop.cancel();
    while first.tasks.join_next().await.is_some() {}
    held_by(&root, "second").await;
    root.until(
        "/api/v1/namespaces/left/serviceaccounts/default",
        "made by somebody",
        |found| found.is_some(),
    )
    .await;
    see_work(&root, "two").await;
    second.stop.cancel();
    check(&writers, ["first", "second"]);
}

#[tokio::test]
async fn a_replica_that_cannot_renew_its_lease_changes_nothing_once_another_works() {
    let (world, root, writers) = world().await;
    let first = start(&world, "first", &writers);
    held_by(&root, "first").await;
    let second = start(&world, "second", &writers);
    see_work(&root, "one").await;
    first.cut.store(true, Ordering::SeqCst);
    held_by(&root, "second").await;
    assert!(first.leader.owns(&mica_runtime::ClusterName::local()).is_none());
    // The first still hears everything: only what it may not do does it not do.
    for namespace in ["two", "three"] {
        see_work(&root, namespace).await;
    }
    check(&writers, ["first", "second"]);
    drop((first, second));
}

#[tokio::test]
async fn a_replica_that_is_killed_is_followed_when_its_lease_has_run_out() {
    let (world, root, writers) = world().await;
    let mut first = start(&world, "first", &writers);
    held_by(&root, "first").await;
    let _second = start(&world, "second", &writers);
    see_work(&root, "one").await;
    // Workers run in tasks of their own: they end with the token, and nothing is released.
    first.tasks.abort_all();
    while first.tasks.join_next().await.is_some() {}
    first.stop.cancel();
    held_by(&root, "second").await;
    see_work(&root, "two").await;
    check(&writers, ["first", "second"]);
}

//! Ownership by leases on a server: leaders that follow each other, and replicas that share.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use mica_runtime::ClusterName;
use mica_runtime::ownership::{Engages, Epoch, GROUP_LABEL, Leader, Ownership, Sharded, Standby, Tenure, Timing};
use mica_testkit::TestServer;
use parking_lot::Mutex;
use serde_json::json;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::wait::eventually;

/// Short, so that the death of a replica is noticed soon; what is claimed holds for any.
const TIMING: Timing = Timing {
    lease: Duration::from_secs(4),
    renew: Duration::from_millis(2500),
    retry: Duration::from_millis(200),
};

#[tokio::test]
async fn a_leader_that_stops_is_followed_at_once_by_one_that_watched_already() {
    let server = TestServer::start().await;
    let client = server.client().await;
    let leader = |name: &str, standby| {
        let leader = Leader::new(client.clone(), "default", "demo")
            .identity(name)
            .standby(standby);
        Arc::new(leader.build())
    };
    let (first, second) = (leader("first", Standby::Cold), leader("second", Standby::Warm));
    let cluster = ClusterName::new("a");
    assert_eq!(
        (first.engages(&cluster), second.engages(&cluster)),
        (Engages::No, Engages::Yes)
    );
    let (stop, end) = (CancellationToken::new(), CancellationToken::new());
    let running = tokio::spawn({
        let (first, stop) = (first.clone(), stop.clone());
        async move { first.run(stop).await }
    });
    let tenure = eventually(async || first.begin(&cluster)).await;
    let leases: Api<Lease> = Api::default_namespaced(client.clone());
    let spec = leases.get("demo").await.unwrap().spec.unwrap();
    assert_eq!(spec.holder_identity.as_deref(), Some("first"));
    assert_eq!(
        (spec.lease_duration_seconds, spec.lease_transitions),
        (Some(15), Some(0))
    );
    assert!(spec.acquire_time.is_some() && spec.renew_time.is_some());
    assert_eq!(first.engages(&cluster), Engages::Yes);

    let standing_by = tokio::spawn({
        let (second, end) = (second.clone(), end.clone());
        async move { second.run(end).await }
    });
    stop.cancel();
    eventually(async || first.owns(&cluster).is_none().then_some(())).await;
    assert_eq!(
        first.holds(&cluster),
        Some(tenure.epoch()),
        "what is under way may finish"
    );
    assert_eq!(second.owns(&cluster), None);
    drop(tenure);
    running.await.unwrap();
    assert_eq!(eventually(async || second.owns(&cluster)).await, 2);
    assert_eq!(first.holds(&cluster), None);
    end.cancel();
    standing_by.await.unwrap();
    let spec = leases.get("demo").await.unwrap().spec.unwrap();
    assert_eq!(spec.holder_identity.as_deref(), Some(""));
    assert_eq!(
        (spec.lease_duration_seconds, spec.lease_transitions),
        (Some(1), Some(1))
    );
}

/// What every replica did, in the order in which it happened.
#[derive(Clone, Default)]
struct History(Arc<Mutex<Vec<Line>>>);

#[derive(Clone, Debug)]
enum Line {
    Begins { replica: u64, object: usize, epoch: Epoch },
    Ends { replica: u64, object: usize },
}

/// Work that is in the history until it is dropped: also when its replica is killed.
struct Working {
    history: History,
    replica: u64,
    object: usize,
    _tenure: Tenure,
}

impl Working {
    fn begin(history: &History, replica: u64, object: usize, ownership: &Sharded) -> Option<Self> {
        let mut lines = history.0.lock();
        let tenure = ownership.begin(&cluster(object))?;
        let epoch = tenure.epoch();
        lines.push(Line::Begins { replica, object, epoch });
        Some(Self {
            history: history.clone(),
            replica,
            object,
            _tenure: tenure,
        })
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        let (replica, object) = (self.replica, self.object);
        self.history.0.lock().push(Line::Ends { replica, object });
    }
}

/// One cluster for each object, so that objects spread over all slots.
const OBJECTS: usize = 48;
const WORKERS: usize = 4;

fn cluster(object: usize) -> ClusterName {
    ClusterName::new(format!("plane-{object}"))
}

struct Replica {
    ownership: Arc<Sharded>,
    tasks: JoinSet<()>,
    stop: CancellationToken,
}

/// A replica whose workers write to the objects of the clusters that it owns, for ever.
fn start(number: u64, client: &Client, history: &History, writes: &Arc<AtomicU64>) -> Replica {
    let ownership = Sharded::new(client.clone(), "default", "demo").timing(TIMING);
    let ownership = Arc::new(ownership.replica(format!("replica-{number}")).build());
    let stop = CancellationToken::new();
    let mut tasks = JoinSet::new();
    for worker in 0..WORKERS {
        let (ownership, history, writes) = (ownership.clone(), history.clone(), writes.clone());
        let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
        tasks.spawn(async move {
            for turn in 0usize.. {
                // Each object is one worker's, as the queue has it.
                let object = (turn * WORKERS + worker) % OBJECTS;
                if let Some(working) = Working::begin(&history, number, object, &ownership) {
                    let patch = json!({"data": {"replica": number.to_string()}});
                    let write = async {
                        let name = format!("object-{object}");
                        api.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await
                    };
                    tokio::select! {
                        biased;
                        () = working._tenure.lost() => {}
                        written = write => if written.is_ok() {
                            writes.fetch_add(1, Ordering::Relaxed);
                        },
                    }
                }
                tokio::task::yield_now().await;
            }
        });
    }
    tasks.spawn({
        let (ownership, stop) = (ownership.clone(), stop.clone());
        async move { ownership.run(stop).await }
    });
    Replica { ownership, tasks, stop }
}

/// Waits until these replicas have everything among them, each its part.
async fn shared(replicas: &[&Replica]) {
    eventually(async || {
        let owners = |object| {
            replicas
                .iter()
                .filter(move |replica| replica.ownership.owns(&cluster(object)).is_some())
        };
        let all = (0..OBJECTS).all(|object| owners(object).count() == 1);
        let each = replicas.iter().all(|replica| replica.ownership.slots() > 1024 / 6);
        (all && each).then_some(())
    })
    .await;
}

/// Waits until so much more was written.
async fn written(writes: &AtomicU64, more: u64) {
    let before = writes.load(Ordering::Relaxed);
    eventually(async || (writes.load(Ordering::Relaxed) >= before + more).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_object_has_one_owner_at_a_time_while_a_replica_is_killed_and_started_again() {
    let server = TestServer::start().await;
    let client = server.client().await;
    let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
    for object in 0..OBJECTS {
        let mut map = ConfigMap::default();
        map.metadata.name = Some(format!("object-{object}"));
        api.create(&PostParams::default(), &map).await.unwrap();
    }
    let (history, writes) = (History::default(), Arc::new(AtomicU64::new(0)));
    let (one, mut two, three) = (
        start(1, &client, &history, &writes),
        start(2, &client, &history, &writes),
        start(3, &client, &history, &writes),
    );
    shared(&[&one, &two, &three]).await;
    written(&writes, 200).await;

    // Killed: it releases nothing and says nothing.
    two.tasks.abort_all();
    while two.tasks.join_next().await.is_some() {}
    shared(&[&one, &three]).await;
    written(&writes, 200).await;
    let again = start(4, &client, &history, &writes);
    shared(&[&one, &again, &three]).await;
    written(&writes, 200).await;

    // One that stops in order leaves at once, and leaves no lease behind.
    let Replica {
        ownership,
        mut tasks,
        stop,
    } = one;
    stop.cancel();
    eventually(async || (ownership.slots() == 0).then_some(())).await;
    shared(&[&again, &three]).await;
    let leases: Api<Lease> = Api::default_namespaced(client.clone());
    let ours = ListParams::default().labels(&format!("{GROUP_LABEL}=demo"));
    eventually(async || {
        let leases = leases.list(&ours).await.unwrap().items;
        let gone = leases
            .iter()
            .all(|lease| lease.metadata.name.as_deref() != Some("demo-replica-1"));
        gone.then_some(())
    })
    .await;
    tasks.abort_all();
    drop((again, three));
    check(&history.0.lock());
}

/// At any moment an object is worked on by one replica, and who comes later has a higher epoch.
fn check(history: &[Line]) {
    let mut busy: BTreeMap<usize, (u64, usize)> = BTreeMap::new();
    let mut last: BTreeMap<usize, (u64, Epoch)> = BTreeMap::new();
    let mut reconciled: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
    for (at, line) in history.iter().enumerate() {
        match *line {
            Line::Begins { replica, object, epoch } => {
                let (owner, count) = busy.entry(object).or_insert((replica, 0));
                assert!(
                    *count == 0 || *owner == replica,
                    "{line:?} at {at}: {owner} works on it"
                );
                (*owner, *count) = (replica, *count + 1);
                if let Some((before, was)) = last.insert(object, (replica, epoch)) {
                    let grows = if before == replica { epoch >= was } else { epoch > was };
                    assert!(grows, "{line:?} at {at}: the epoch was {was}");
                }
                reconciled.entry(object).or_default().push(replica);
            }
            Line::Ends { replica, object } => {
                let (owner, count) = busy.get_mut(&object).expect("what ends has begun");
                assert_eq!(*owner, replica, "{line:?} at {at}");
                *count -= 1;
            }
        }
    }
    assert_eq!(reconciled.len(), OBJECTS, "every object was reconciled");
    let replicas: std::collections::BTreeSet<u64> = reconciled.values().flatten().copied().collect();
    assert_eq!(replicas.into_iter().collect::<Vec<_>>(), [1, 2, 3, 4], "by all of them");
}

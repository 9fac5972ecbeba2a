//! Three managers share a fleet, one of them is killed under load and another comes: every object has one owner at a time.
//!
//! Each manager runs on threads of its own, as a process would, so that killing it ends everything of it at once. What each
//! did is in one history, and what came of it is in another, which the server tells.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::watcher;
use kube::{Api, ResourceExt as _};
use mica_runtime::ownership::{Epoch, Sharded, Timing};
use mica_runtime::provider::Planes;
use mica_runtime::{Access, Action, Cx, Manager, ReconcileError, Reconciler};
use mica_testkit::{ControlPlanes, TestServer};
use parking_lot::Mutex;
use serde_json::json;
use tokio::runtime::{self, Runtime};
use tokio_util::sync::CancellationToken;

use crate::wait::{PATIENCE, eventually};

/// Short, so that the death of a replica is noticed soon; what is claimed holds for any.
const TIMING: Timing = Timing {
    lease: Duration::from_secs(4),
    renew: Duration::from_millis(2500),
    retry: Duration::from_millis(200),
};
const PLANES: usize = 18;
const EACH: usize = 2;

/// What every replica did, in the order in which it happened. The dead do nothing any more.
#[derive(Clone, Default)]
struct History(Arc<Mutex<Log>>);

#[derive(Default)]
struct Log {
    lines: Vec<Line>,
    dead: HashSet<u64>,
}

#[derive(Clone, Debug)]
enum Line {
    Begins { replica: u64, object: String, epoch: Epoch },
    Ends { replica: u64, object: String },
    Killed { replica: u64 },
}

impl History {
    fn add(&self, replica: u64, line: Line) {
        let mut log = self.0.lock();
        if !log.dead.contains(&replica) {
            log.lines.push(line);
        }
    }

    fn kill(&self, replica: u64) {
        self.add(replica, Line::Killed { replica });
        self.0.lock().dead.insert(replica);
    }

    /// Waits until, from now on, these replicas have worked, no others, and on every object.
    async fn work_by(&self, replicas: &[u64]) {
        let from = self.0.lock().lines.len();
        let wanted: BTreeSet<u64> = replicas.iter().copied().collect();
        eventually(async || {
            let (mut workers, mut objects) = (BTreeSet::new(), BTreeSet::new());
            for line in &self.0.lock().lines[from..] {
                if let Line::Begins { replica, object, .. } = line {
                    workers.insert(*replica);
                    objects.insert(object.clone());
                }
            }
            (workers == wanted && objects.len() == PLANES * EACH).then_some(())
        })
        .await;
    }
}

/// Work that is in the history until it is dropped.
struct Working {
    history: History,
    replica: u64,
    object: String,
}

impl Drop for Working {
    fn drop(&mut self) {
        let (replica, object) = (self.replica, self.object.clone());
        self.history.add(replica, Line::Ends { replica, object });
    }
}

/// Writes what is wanted of an object into what was seen, and who it was.
struct Follow {
    replica: u64,
    history: History,
}

#[async_trait]
impl Reconciler for Follow {
    type Kind = ConfigMap;
    type Error = ReconcileError;

    async fn reconcile(&self, cx: Cx<ConfigMap>) -> Result<Action, ReconcileError> {
        let Some(object) = cx.object() else {
            return Ok(Action::await_change());
        };
        let data = object.data.clone().unwrap_or_default();
        let Some(wanted) = data.get("wanted") else {
            return Ok(Action::await_change());
        };
        let (replica, name, epoch) = (self.replica, cx.request().to_string(), cx.epoch());
        let begins = Line::Begins {
            replica,
            object: name.clone(),
            epoch,
        };
        self.history.add(replica, begins);
        let _working = Working {
            history: self.history.clone(),
            replica,
            object: name,
        };
        if data.get("seen") == Some(wanted) {
            return Ok(Action::await_change());
        }
        let patch = json!({
            "metadata": {"resourceVersion": object.resource_version()},
            "data": {"seen": wanted, "replica": replica.to_string(), "epoch": epoch.to_string()},
        });
        let api = Api::<ConfigMap>::default_namespaced(cx.client());
        match api
            .patch(&object.name_any(), &PatchParams::default(), &Patch::Merge(&patch))
            .await
        {
            Ok(_) => Ok(Action::await_change()),
            // It has changed, which will be told.
            Err(kube::Error::Api(status)) if status.is_conflict() => Ok(Action::await_change()),
            Err(error) => Err(error.into()),
        }
    }
}

/// A manager on threads of its own.
struct Replica {
    number: u64,
    stop: CancellationToken,
    runtime: Runtime,
    ended: tokio::task::JoinHandle<()>,
}

impl Replica {
    fn start(number: u64, server: &TestServer, history: &History) -> Self {
        // With a certificate of its own, and so with connections of its own.
        let user = server.user(&format!("replica-{number}"), Some("system:masters"));
        let kubeconfig = server.kubeconfig_for(&server.url(), &user);
        let (stop, history) = (CancellationToken::new(), history.clone());
        let runtime = runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let stopping = stop.clone();
        let ended = runtime.spawn(async move {
            let access = Access::from_kubeconfig_yaml(&kubeconfig).unwrap();
            let shares = Sharded::new(access.client(), "default", "followers").timing(TIMING);
            let manager = Manager::builder(access.clone())
                .provider(Planes::new(access))
                .ownership(shares.replica(format!("replica-{number}")).build())
                .build()
                .unwrap();
            let follow = Follow {
                replica: number,
                history,
            };
            manager
                .controller("follow")
                .for_::<ConfigMap>()
                .reconcile(follow)
                .unwrap();
            manager.run_until(stopping.cancelled_owned()).await.unwrap();
        });
        Self {
            number,
            stop,
            runtime,
            ended,
        }
    }

    /// Nothing of it goes on, and nobody is told.
    async fn kill(self, history: &History) {
        history.kill(self.number);
        let runtime = self.runtime;
        tokio::task::spawn_blocking(move || runtime.shutdown_timeout(PATIENCE))
            .await
            .unwrap();
    }

    async fn end(self) {
        self.stop.cancel();
        tokio::time::timeout(PATIENCE, self.ended).await.unwrap().unwrap();
        self.runtime.shutdown_background();
    }
}

fn object_name(number: usize) -> String {
    format!("object-{number}")
}

async fn make_objects(planes: &ControlPlanes) {
    for plane in planes.names() {
        let api = Api::<ConfigMap>::default_namespaced(planes.client(plane).await);
        for number in 0..EACH {
            let mut map = ConfigMap::default();
            map.metadata.name = Some(object_name(number));
            map.data = Some([("wanted".to_owned(), "0".to_owned())].into());
            api.create(&PostParams::default(), &map).await.unwrap();
        }
    }
}

/// Wants something else of one object after the other, until stopped. The last that was wanted of each.
async fn load(planes: ControlPlanes, stop: CancellationToken) -> usize {
    let mut apis = Vec::new();
    for plane in planes.names() {
        apis.push(Api::<ConfigMap>::default_namespaced(planes.client(plane).await));
    }
    let mut round = 0;
    while !stop.is_cancelled() {
        round += 1;
        let patch = json!({"data": {"wanted": round.to_string()}});
        for api in &apis {
            for number in 0..EACH {
                let name = object_name(number);
                api.patch(&name, &PatchParams::default(), &Patch::Merge(&patch))
                    .await
                    .unwrap();
            }
        }
    }
    round
}

/// Who wrote what was seen, as the server tells it: object, replica, epoch.
type Written = Arc<Mutex<Vec<(String, u64, Epoch)>>>;

async fn record(planes: ControlPlanes, written: Written, seen: Arc<AtomicUsize>) {
    let access = Access::from_kubeconfig_yaml(&planes.server().kubeconfig()).unwrap();
    let api = Api::<ConfigMap>::all(access.at("/clusters/*/control-plane").client());
    let mut events = watcher(api, watcher::Config::default()).boxed();
    while let Some(event) = events.next().await {
        if let Ok(watcher::Event::Apply(map)) = event {
            let data = map.data.clone().unwrap_or_default();
            let read = |key: &str| data.get(key).and_then(|text| text.parse().ok());
            if let (Some(replica), Some(epoch)) = (read("replica"), read("epoch")) {
                let object = format!("{}/{}", map.annotations()["mica.dev/plane"], map.name_any());
                written.lock().push((object, replica, epoch));
            }
            seen.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_three_managers_one_is_killed_and_comes_back_and_every_object_has_one_owner_at_a_time() {
    let planes = ControlPlanes::new(PLANES).await;
    make_objects(&planes).await;
    let (written, told) = (Written::default(), Arc::new(AtomicUsize::new(0)));
    let recording = tokio::spawn(record(planes.clone(), written.clone(), told.clone()));
    let stop = CancellationToken::new();
    let loading = tokio::spawn(load(planes.clone(), stop.clone()));
    eventually(async || (told.load(Ordering::Relaxed) > 0).then_some(())).await;

    let history = History::default();
    let start = |number| Replica::start(number, planes.server(), &history);
    let (one, two, three) = (start(1), start(2), start(3));
    history.work_by(&[1, 2, 3]).await;
    two.kill(&history).await;
    history.work_by(&[1, 3]).await;
    let four = start(4);
    eventually(async || history.0.lock().lines.iter().any(|line| line.is_of(4)).then_some(())).await;
    history.work_by(&[1, 3, 4]).await;

    stop.cancel();
    let last = loading.await.unwrap().to_string();
    for plane in planes.names() {
        let api = Api::<ConfigMap>::default_namespaced(planes.client(plane).await);
        eventually(async || {
            let maps = api.list(&kube::api::ListParams::default()).await.unwrap();
            let ours = maps
                .iter()
                .filter_map(|map| map.data.as_ref())
                .filter(|data| data.contains_key("wanted"));
            let done = ours.filter(|data| data["wanted"] == last && data.get("seen") == Some(&last));
            (done.count() == EACH).then_some(())
        })
        .await;
    }
    for replica in [one, three, four] {
        replica.end().await;
    }
    check(&history.0.lock().lines);
    recording.abort();
    check_written(&written.lock());
}

impl Line {
    fn is_of(&self, number: u64) -> bool {
        matches!(self, Self::Begins { replica, .. } if *replica == number)
    }
}

/// At any moment an object is worked on by one replica, and who comes later has a higher epoch.
fn check(history: &[Line]) {
    let mut busy: BTreeMap<&str, u64> = BTreeMap::new();
    let mut last: BTreeMap<&str, (u64, Epoch)> = BTreeMap::new();
    for (at, line) in history.iter().enumerate() {
        match line {
            Line::Begins { replica, object, epoch } => {
                let before = busy.insert(object, *replica);
                assert_eq!(before, None, "{line:?} at {at}: it is worked on already");
                if let Some((before, was)) = last.insert(object, (*replica, *epoch)) {
                    let grows = if before == *replica {
                        *epoch >= was
                    } else {
                        *epoch > was
                    };
                    assert!(grows, "{line:?} at {at}: {before} had it under {was}");
                }
            }
            Line::Ends { replica, object } => {
                assert_eq!(busy.remove(object.as_str()), Some(*replica), "{line:?} at {at}");
            }
            Line::Killed { replica } => busy.retain(|_, owner| owner != replica),
        }
    }
    assert_eq!(last.len(), PLANES * EACH, "every object was reconciled");
}

/// What the server took shows the same: nobody wrote who was not the owner any more.
fn check_written(written: &[(String, u64, Epoch)]) {
    let mut last: BTreeMap<&str, (u64, Epoch)> = BTreeMap::new();
    for (object, replica, epoch) in written {
        if let Some((before, was)) = last.insert(object, (*replica, *epoch)) {
            let grows = if before == *replica {
                *epoch >= was
            } else {
                *epoch > was
            };
            assert!(
                grows,
                "{object}: {replica} wrote under {epoch} after {before} under {was}"
            );
        }
    }
    let writers: BTreeSet<u64> = written.iter().map(|(_, replica, _)| *replica).collect();
    assert_eq!(writers, [1, 2, 3, 4].into(), "all of them wrote");
}

//! A process that `make bench` looks at: it engages every plane of a server, watches three kinds in all of them, and tells
//! how long changes took to reach its reconcilers.
//!
//! `measured_fleet KUBECONFIG PLANES` prints `{"engaged":SECONDS}` once so many planes are engaged. For each line on its
//! standard input it prints what was reconciled since the last: `{"count":…,"p50":MS,"p99":MS}`, of changes that say in
//! [`AT`] when they were made. A line `rotate KUBECONFIG` gives the whole fleet the credentials in that file, asks each plane who
//! it is that asks, and prints `{"seconds":…,"users":{NAME:PLANES}}`. It ends with its input.

use std::collections::{BTreeMap, HashMap};
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, ServiceAccount};
use kube::ResourceExt as _;
use kube::api::{Api, PostParams};
use mica_runtime::provider::Planes;
use mica_runtime::source::Object;
use mica_runtime::{Access, Action, Cluster, Cx, Fleet, Manager, ReconcileError, Reconciler};
use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt as _, BufReader};

/// The annotation with the time of a change, in nanoseconds since 1970.
const AT: &str = "bench.mica.dev/at";
/// How often is looked whether all are engaged.
const LOOK: Duration = Duration::from_millis(5);
/// Planes that are asked at once who asks them.
const ASKED: usize = 64;
/// What may go wrong.
type Failure = Box<dyn std::error::Error>;

/// What was measured since somebody asked: for each change, the first reconcile that saw it.
#[derive(Default)]
struct Seen {
    milliseconds: Vec<f64>,
    last: HashMap<String, u128>,
}

struct Measured<K> {
    seen: Arc<Mutex<Seen>>,
    kind: PhantomData<fn() -> K>,
}

#[async_trait]
impl<K: Object> Reconciler for Measured<K> {
    type Kind = K;
    type Error = ReconcileError;

    async fn reconcile(&self, cx: Cx<K>) -> Result<Action, ReconcileError> {
        let now = since_1970();
        let at = cx
            .object()
            .and_then(|object| object.annotations().get(AT)?.parse().ok());
        if let Some(at) = at {
            let mut seen = self.seen.lock();
            if seen.last.insert(cx.request().to_string(), at) != Some(at) {
                seen.milliseconds.push(now.saturating_sub(at) as f64 / 1e6);
            }
        }
        Ok(Action::await_change())
    }
}

fn since_1970() -> u128 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_nanos())
}

fn watch<K: Object>(manager: &Manager, name: &str, seen: &Arc<Mutex<Seen>>) -> Result<(), Failure>
where
    K::DynamicType: Default,
{
    let measured = Measured::<K> {
        seen: seen.clone(),
        kind: PhantomData,
    };
    manager.controller(name).for_::<K>().reconcile(measured)?;
    Ok(())
}

fn report(seen: &Mutex<Seen>) -> String {
    let mut times = std::mem::take(&mut seen.lock().milliseconds);
    times.sort_by(f64::total_cmp);
    let at = |part: f64| {
        let place = (times.len() as f64 * part) as usize;
        times
            .get(place.min(times.len().saturating_sub(1)))
            .copied()
            .unwrap_or(0.0)
    };
    format!(r#"{{"count":{},"p50":{},"p99":{}}}"#, times.len(), at(0.5), at(0.99))
}

/// What is engaged, but for the server itself.
fn planes(fleet: &Fleet) -> impl Iterator<Item = Cluster> + use<> {
    let all = fleet.clusters().into_iter();
    all.filter(|cluster| !cluster.name().is_local())
}

/// Exchanges the credentials of all planes, and has each say whose it sees.
async fn rotate(access: &Access, fleet: &Fleet, kubeconfig: &str) -> Result<String, Failure> {
    let began = Instant::now();
    access.rotate(&Access::from_kubeconfig_yaml(&std::fs::read_to_string(kubeconfig)?)?)?;
    let names: Vec<String> = stream::iter(planes(fleet))
        .map(who_asks)
        .buffer_unordered(ASKED)
        .try_collect()
        .await?;
    let mut users = BTreeMap::<String, usize>::new();
    for name in names {
        *users.entry(name).or_default() += 1;
    }
    let seconds = began.elapsed().as_secs_f64();
    Ok(serde_json::json!({"seconds": seconds, "users": users}).to_string())
}

async fn who_asks(cluster: Cluster) -> Result<String, kube::Error> {
    let reviews: Api<SelfSubjectReview> = Api::all(cluster.client());
    let review = reviews
        .create(&PostParams::default(), &SelfSubjectReview::default())
        .await?;
    let user = review.status.and_then(|status| status.user_info);
    Ok(user.and_then(|user| user.username).unwrap_or_default())
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let (Some(kubeconfig), Some(wanted)) = (arguments.next(), arguments.next()) else {
        return Err("usage: measured_fleet KUBECONFIG PLANES".into());
    };
    let wanted: usize = wanted.parse()?;
    let server = Access::from_kubeconfig_yaml(&std::fs::read_to_string(kubeconfig)?)?;
    let manager = Manager::builder(server.clone())
        .provider(Planes::new(server.clone()))
        .build()?;
    let seen = Arc::default();
    watch::<ConfigMap>(&manager, "configmaps", &seen)?;
    watch::<Secret>(&manager, "secrets", &seen)?;
    watch::<ServiceAccount>(&manager, "serviceaccounts", &seen)?;
    let began = Instant::now();
    let asked = async {
        while planes(manager.fleet()).count() < wanted {
            tokio::time::sleep(LOOK).await;
        }
        println!(r#"{{"engaged":{}}}"#, began.elapsed().as_secs_f64());
        let mut lines = BufReader::new(tokio::io::stdin()).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            let said = match line.strip_prefix("rotate ") {
                None => Ok(report(&seen)),
                Some(kubeconfig) => rotate(&server, manager.fleet(), kubeconfig).await,
            };
            match said {
                Ok(said) => println!("{said}"),
                Err(failure) => return eprintln!("{failure}"),
            }
        }
    };
    Ok(manager.run_until(asked).await?)
}

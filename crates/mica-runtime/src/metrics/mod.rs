//! What the runtime counts, under the names that controller-runtime's dashboards read, and a few of its own.
//!
//! No number is kept for each cluster: a fleet has too many. Clusters are counted by state, and only those in trouble are
//! named, at most [`MOST_NAMED`] of them. The text is OpenMetrics 1.0.

mod collect;
mod controller;

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use http::{Method, StatusCode};
use parking_lot::{Mutex, RwLock};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio_util::sync::CancellationToken;

pub use controller::{ControllerMetrics, ReconcileResult, Reconciling};
pub use prometheus_client;

use crate::request::ClusterName;
use crate::serve::{Answer, Endpoint, Routes};
use controller::ControllerFamilies;

/// The content type of [`Metrics::text`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// How many clusters that are in trouble are named.
pub const MOST_NAMED: usize = 100;

/// How many hosts requests are counted for; all others count as one.
const MOST_HOSTS: usize = 64;

type Labels = Vec<(&'static str, String)>;

/// The numbers of one process. A clone is the same numbers.
#[derive(Clone)]
pub struct Metrics(Arc<Inner>);

struct Inner {
    registry: RwLock<Registry>,
    live: Arc<Live>,
    families: ControllerFamilies,
    requests: Family<Labels, Counter>,
    hosts: Mutex<HashSet<String>>,
    leader: Family<Labels, Gauge>,
    slots: Family<Labels, Gauge>,
    events: Family<Labels, Counter>,
    cluster_events: Family<Labels, Counter>,
}

type Count = dyn Fn() -> FleetState + Send + Sync;

/// What is computed when it is read.
#[derive(Default)]
struct Live {
    controllers: Mutex<BTreeMap<String, ControllerMetrics>>,
    fleet: RwLock<Option<Box<Count>>>,
}

/// How a fleet stands.
#[derive(Clone, Default, Debug)]
pub struct FleetState {
    /// How many clusters are in each state, such as `engaged`.
    pub states: Vec<(&'static str, u64)>,
    /// Clusters that do not answer.
    pub unreachable: Vec<ClusterName>,
}

/// Whether this replica leads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Leadership {
    Leads,
    StandsBy,
}

/// What became of an event that a reconciler recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventFate {
    Written,
    /// It repeats one that was written a moment ago, and is counted with the next that is written.
    Folded,
    /// Too many were recorded about one object, or the queue was full.
    Dropped,
    Failed,
}

impl Metrics {
    pub fn new() -> Self {
        let mut registry = Registry::default();
        let live = Arc::new(Live::default());
        registry.register_collector(Box::new(collect::Computed(live.clone())));
        let inner = Inner {
            families: ControllerFamilies::register(&mut registry),
            requests: family(
                &mut registry,
                "rest_client_requests",
                "Number of HTTP requests, partitioned by status code, method, and host",
            ),
            hosts: Mutex::default(),
            leader: family(
                &mut registry,
                "leader_election_master_status",
                "Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 indicates master",
            ),
            slots: family(
                &mut registry,
                "mica_runtime_slots",
                "Parts of the fleet that this replica holds",
            ),
            events: family(
                &mut registry,
                "mica_runtime_events",
                "Events that reconcilers recorded, by what became of them",
            ),
            cluster_events: family(
                &mut registry,
                "mica_runtime_cluster_changes",
                "Clusters that were engaged, changed and disengaged",
            ),
            registry: RwLock::new(registry),
            live,
        };
        Self(Arc::new(inner))
    }

    /// Adds numbers of your own.
    pub fn register(&self, add: impl FnOnce(&mut Registry)) {
        add(&mut self.0.registry.write());
    }

    /// Everything, as a scraper reads it.
    pub fn text(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.0.registry.read()).expect("writing to a string does not fail");
        text
    }

    /// Serves `/metrics` at an address, where a process has no manager that does; port 0 is any that is free. The address, and
    /// the server, which answers until it is stopped.
    pub fn listen(
        &self,
        address: SocketAddr,
        stop: CancellationToken,
    ) -> io::Result<(SocketAddr, impl Future<Output = ()> + Send + use<>)> {
        let endpoint = Endpoint::bind(address)?;
        let (address, metrics) = (endpoint.address(), self.clone());
        let routes: Arc<Routes> =
            Arc::new(move |path, _query| (path == "/metrics").then(|| Answer::ok(CONTENT_TYPE, metrics.text())));
        let serving = async move {
            if let Err(err) = endpoint.serve(routes, stop).await {
                tracing::error!(error = &err as &dyn std::error::Error, "metrics are not served");
            }
        };
        Ok((address, serving))
    }

    /// The numbers of one controller. The same name gives the same numbers.
    pub fn controller(&self, name: &str) -> ControllerMetrics {
        let mut controllers = self.0.live.controllers.lock();
        if let Some(known) = controllers.get(name) {
            return known.clone();
        }
        let made = self.0.families.of(name);
        controllers.insert(name.to_owned(), made.clone());
        made
    }

    /// A controller was removed: its queue is not shown any more.
    pub fn forget_controller(&self, name: &str) {
        self.0.live.controllers.lock().remove(name);
    }

    /// A request was answered; `code` is `<error>` where it was not, as in client-go.
    pub fn request(&self, method: &str, host: &str, code: &str) {
        let host = {
            let mut hosts = self.0.hosts.lock();
            if hosts.contains(host) || (hosts.len() < MOST_HOSTS && hosts.insert(host.to_owned())) {
                host
            } else {
                "other"
            }
        };
        let labels = vec![
            ("code", code.to_owned()),
            ("host", host.to_owned()),
            ("method", method.to_owned()),
        ];
        self.0.requests.get_or_create(&labels).inc();
    }

    /// The same, by what the answer was: a code, or none.
    pub(crate) fn answered(&self, method: &Method, host: &str, code: Option<StatusCode>) {
        let code = code.as_ref().map_or("<error>", StatusCode::as_str);
        self.request(method.as_str(), host, code);
    }

    pub fn leadership(&self, lease: &str, leadership: Leadership) {
        let labels = vec![("name", lease.to_owned())];
        self.0
            .leader
            .get_or_create(&labels)
            .set(i64::from(leadership == Leadership::Leads));
    }

    /// How many slots this replica holds, and how many of them it is handing over.
    pub fn slots(&self, group: &str, owned: usize, leaving: usize) {
        for (state, count) in [("owned", owned), ("leaving", leaving)] {
            let labels = vec![("group", group.to_owned()), ("state", state.to_owned())];
            self.0
                .slots
                .get_or_create(&labels)
                .set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    pub fn event(&self, fate: EventFate) {
        let fate = match fate {
            EventFate::Written => "written",
            EventFate::Folded => "folded",
            EventFate::Dropped => "dropped",
            EventFate::Failed => "failed",
        };
        self.0.events.get_or_create(&vec![("result", fate.to_owned())]).inc();
    }

    /// A cluster was `engaged`, `changed` or `gone`.
    pub fn cluster_changed(&self, change: &'static str) {
        let labels = vec![("change", change.to_owned())];
        self.0.cluster_events.get_or_create(&labels).inc();
    }

    /// Where the state of the fleet is read from, at each scrape.
    pub fn fleet_from(&self, read: impl Fn() -> FleetState + Send + Sync + 'static) {
        *self.0.live.fleet.write() = Some(Box::new(read));
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

fn family<M>(registry: &mut Registry, name: &str, help: &str) -> Family<Labels, M>
where
    Family<Labels, M>: Default + Clone + prometheus_client::registry::Metric,
{
    let family = Family::<Labels, M>::default();
    registry.register(name, help, family.clone());
    family
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn line(text: &str, start: &str) -> String {
        let found = text.lines().find(|line| line.starts_with(start));
        found.unwrap_or_else(|| panic!("{start} is not in {text}")).to_owned()
    }

    #[tokio::test(start_paused = true)]
    async fn dashboards_find_the_names_they_know() {
        let metrics = Metrics::new();
        let controller = metrics.controller("demo");
        controller.workers(4);
        controller.depth_from(|| 7);
        controller.added();
        controller.retried();
        let one = controller.begin(Duration::from_millis(2));
        let two = controller.begin(Duration::ZERO);
        tokio::time::advance(Duration::from_secs(3)).await;
        one.finish(ReconcileResult::Success);
        let text = metrics.text();
        for (start, value) in [
            (
                "controller_runtime_reconcile_total{controller=\"demo\",result=\"success\"}",
                "1",
            ),
            (
                "controller_runtime_reconcile_time_seconds_count{controller=\"demo\"}",
                "1",
            ),
            (
                "controller_runtime_reconcile_time_seconds_sum{controller=\"demo\"}",
                "3.0",
            ),
            ("controller_runtime_active_workers{controller=\"demo\"}", "1"),
            ("controller_runtime_max_concurrent_reconciles{controller=\"demo\"}", "4"),
            ("workqueue_depth{controller=\"demo\",name=\"demo\"}", "7"),
            ("workqueue_adds_total{controller=\"demo\",name=\"demo\"}", "1"),
            ("workqueue_retries_total{controller=\"demo\",name=\"demo\"}", "1"),
            (
                "workqueue_queue_duration_seconds_count{controller=\"demo\",name=\"demo\"}",
                "2",
            ),
            (
                "workqueue_work_duration_seconds_count{controller=\"demo\",name=\"demo\"}",
                "1",
            ),
            (
                "workqueue_unfinished_work_seconds{controller=\"demo\",name=\"demo\"}",
                "3.0",
            ),
            (
                "workqueue_longest_running_processor_seconds{controller=\"demo\",name=\"demo\"}",
                "3.0",
            ),
        ] {
            assert_eq!(line(&text, start), format!("{start} {value}"));
        }
        drop(two);
        let idle = metrics.text();
        let workers = "controller_runtime_active_workers{controller=\"demo\"}";
        assert_eq!(
            line(&idle, workers),
            format!("{workers} 0"),
            "a cancelled one does not work"
        );
    }

    #[test]
    fn failures_are_counted_by_what_they_were() {
        let metrics = Metrics::new();
        let controller = metrics.controller("demo");
        for result in [
            ReconcileResult::Error,
            ReconcileResult::TerminalError,
            ReconcileResult::Panic,
            ReconcileResult::Timeout,
            ReconcileResult::RequeueAfter,
        ] {
            controller.begin(Duration::ZERO).finish(result);
        }
        let text = metrics.text();
        for (start, value) in [
            (
                "controller_runtime_reconcile_total{controller=\"demo\",result=\"error\"}",
                4,
            ),
            (
                "controller_runtime_reconcile_total{controller=\"demo\",result=\"requeue_after\"}",
                1,
            ),
            ("controller_runtime_reconcile_errors_total{controller=\"demo\"}", 4),
            (
                "controller_runtime_terminal_reconcile_errors_total{controller=\"demo\"}",
                1,
            ),
            ("controller_runtime_reconcile_panics_total{controller=\"demo\"}", 1),
            ("controller_runtime_reconcile_timeouts_total{controller=\"demo\"}", 1),
        ] {
            assert_eq!(line(&text, start), format!("{start} {value}"));
        }
    }

    #[test]
    fn hosts_and_clusters_in_trouble_are_bounded() {
        let metrics = Metrics::new();
        for i in 0..MOST_HOSTS + 50 {
            metrics.request("GET", &format!("host-{i}"), "200");
        }
        let unreachable: Vec<_> = (0..MOST_NAMED + 50)
            .map(|i| ClusterName::new(format!("c-{i}")))
            .collect();
        metrics.fleet_from(move || FleetState {
            states: vec![("engaged", 1000), ("unreachable", 150)],
            unreachable: unreachable.clone(),
        });
        metrics.leadership("demo", Leadership::Leads);
        let text = metrics.text();
        let other = "rest_client_requests_total{code=\"200\",host=\"other\",method=\"GET\"}";
        assert_eq!(line(&text, other), format!("{other} 50"));
        let named = text.matches("mica_runtime_cluster_unreachable{").count();
        assert_eq!(named, MOST_NAMED);
        let engaged = "mica_runtime_clusters{state=\"engaged\"}";
        assert_eq!(line(&text, engaged), format!("{engaged} 1000"));
        let leader = "leader_election_master_status{name=\"demo\"}";
        assert_eq!(line(&text, leader), format!("{leader} 1"));
        assert!(text.ends_with("# EOF\n"));
    }
}

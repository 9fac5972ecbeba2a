//! The manager: what a process of controllers is made of, and the order in which it starts and stops.
//!
//! It starts the servers, then takes part in ownership, then runs the providers and the controllers. It stops the other way
//! round: nothing new begins, what is under way finishes, what is owned is given away, recorded events are written, and only then
//! do the clusters and the servers go. All of it has one deadline.

mod build;
mod debug;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

pub use build::ManagerBuilder;

use crate::cluster::Access;
use crate::controller::{Controllers, FleetView, NewController};
use crate::events::{EventWriter, Events};
use crate::fleet::{Fleet, FleetError};
use crate::metrics::Metrics;
use crate::ownership::Ownership;
use crate::provider::Provider;
use crate::serve::{Answer, Checks, Endpoint, JSON, Routes};

/// Of the time that there is to stop, the part that reconciles have to finish; the rest is for giving away what is owned.
const RECONCILES: f64 = 0.8;

#[derive(Debug, thiserror::Error)]
pub enum ManagerError {
    #[error("the server for {what} cannot listen on {address}")]
    Listen {
        what: &'static str,
        address: SocketAddr,
        #[source]
        cause: std::io::Error,
    },
    #[error("a provider cannot be added")]
    Provider(#[source] FleetError),
    #[error("the manager runs already, or has run")]
    Ran,
    #[error("{0} ended by itself")]
    Ended(&'static str),
    #[error("{0} did not stop in time")]
    Late(&'static str),
}

/// Runs providers and controllers over a fleet. A clone is the same manager.
#[derive(Clone)]
pub struct Manager(Arc<Inner>);

struct Inner {
    fleet: Fleet,
    controllers: Controllers,
    ownership: Arc<dyn Ownership>,
    metrics: Metrics,
    events: Events,
    local: kube::Client,
    healthz: Checks,
    readyz: Checks,
    /// Whether it is on its way out: not ready any more.
    stopping: AtomicBool,
    graceful: Duration,
    addresses: Addresses,
    /// What runs once, and has not begun.
    parts: Mutex<Option<Parts>>,
}

#[derive(Default)]
struct Addresses {
    metrics: Option<SocketAddr>,
    probes: Option<SocketAddr>,
}

struct Parts {
    providers: Vec<Arc<dyn Provider>>,
    writer: EventWriter,
    metrics: Option<Endpoint>,
    probes: Option<Endpoint>,
}

/// A part that runs, and how it is told to stop.
struct Running {
    name: &'static str,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Running {
    fn start<F>(name: &'static str, run: impl FnOnce(CancellationToken) -> F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let stop = CancellationToken::new();
        let task = tokio::spawn(run(stop.clone()));
        Self { name, stop, task }
    }

    async fn stop(&mut self, deadline: Instant) -> Result<(), ManagerError> {
        self.stop.cancel();
        match timeout_at(deadline, &mut self.task).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(ManagerError::Ended(self.name)),
            Err(_) => {
                self.task.abort();
                Err(ManagerError::Late(self.name))
            }
        }
    }
}

impl Manager {
    /// For controllers whose management (local) cluster is this.
    pub fn builder(local: Access) -> ManagerBuilder {
        ManagerBuilder::new(local)
    }

    /// Begins to describe a controller: before the manager runs, or while it does.
    pub fn controller(&self, name: impl Into<String>) -> NewController {
        self.0.controllers.controller(name)
    }

    pub fn fleet(&self) -> &Fleet {
        &self.0.fleet
    }

    /// The fleet with the objects of its clusters that controllers watch.
    pub fn view(&self) -> FleetView {
        self.0.controllers.view()
    }

    /// A client of the management cluster.
    pub fn local(&self) -> kube::Client {
        self.0.local.clone()
    }

    pub fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    pub fn events(&self) -> &Events {
        &self.0.events
    }

    /// What `/healthz` asks: whether the process should be started again.
    pub fn healthz(&self) -> &Checks {
        &self.0.healthz
    }

    /// What `/readyz` asks: whether it does its work.
    pub fn readyz(&self) -> &Checks {
        &self.0.readyz
    }

    /// Where metrics are served, if they are.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.0.addresses.metrics
    }

    /// Where probes are answered, if they are.
    pub fn probes_address(&self) -> Option<SocketAddr> {
        self.0.addresses.probes
    }

    /// Runs until `stop` resolves, and then stops in order. Controllers may come and go meanwhile, and providers through
    /// [`Fleet::add`] and [`Fleet::remove`]. An error says what did not go as it should; everything has stopped all the same.
    pub async fn run_until(&self, stop: impl Future<Output = ()>) -> Result<(), ManagerError> {
        let parts = self.0.parts.lock().take().ok_or(ManagerError::Ran)?;
        let inner = &self.0;
        let mut servers = self.serve(parts.metrics, parts.probes);
        let mut writer = Running::start("the writer of events", |stop| parts.writer.run(stop));
        inner.ownership.report_to(&inner.metrics);
        let ownership = inner.ownership.clone();
        let mut ownership = Running::start("ownership", |stop| async move { ownership.run(stop).await });
        let controllers = inner.controllers.clone();
        let grace = inner.graceful.mul_f64(RECONCILES);
        let mut controllers = Running::start("the controllers", |stop| async move {
            controllers.run(stop, grace).await;
        });
        let mut added = Ok(());
        for provider in parts.providers {
            added = added.and(inner.fleet.add_shared(provider).map_err(ManagerError::Provider));
        }
        let run = async {
            added?;
            tokio::select! {
                () = stop => Ok(()),
                _ = &mut controllers.task => Err(ManagerError::Ended(controllers.name)),
                _ = &mut ownership.task => Err(ManagerError::Ended(ownership.name)),
            }
        };
        let mut result = run.await;
        inner.stopping.store(true, Ordering::Relaxed);
        let deadline = Instant::now() + inner.graceful;
        for part in [&mut controllers, &mut ownership, &mut writer] {
            // A task that has ended by itself was reported, and must not be asked again.
            if !part.task.is_finished() || result.is_ok() {
                result = result.and(part.stop(deadline).await);
            }
        }
        if timeout_at(deadline, inner.fleet.stop()).await.is_err() {
            result = result.and(Err(ManagerError::Late("the fleet")));
        }
        for server in &mut servers {
            result = result.and(server.stop(deadline).await);
        }
        result
    }

    fn serve(&self, metrics: Option<Endpoint>, probes: Option<Endpoint>) -> Vec<Running> {
        let start = |name, endpoint: Endpoint, routes: Arc<Routes>| {
            Running::start(name, |stop| async move {
                if let Err(err) = endpoint.serve(routes, stop).await {
                    tracing::error!(error = &err as &dyn std::error::Error, "{name} does not answer");
                }
            })
        };
        let manager = Arc::downgrade(&self.0);
        let metrics = metrics.map(|endpoint| {
            let manager = manager.clone();
            let routes = move |path: &str, query: &str| {
                let manager = manager.upgrade()?;
                match path {
                    "/metrics" => Some(Answer::ok(crate::metrics::CONTENT_TYPE, manager.metrics.text())),
                    "/debug/clusters" => Some(Answer::ok(JSON, debug::clusters(&manager.fleet, query))),
                    _ => None,
                }
            };
            start("the server of metrics", endpoint, Arc::new(routes))
        });
        let probes = probes.map(|endpoint| {
            let (healthz, readyz) = (self.0.healthz.clone(), self.0.readyz.clone());
            let routes = move |path: &str, query: &str| {
                let healthz = healthz.answer("/healthz", path, query);
                healthz.or_else(|| readyz.answer("/readyz", path, query))
            };
            start("the server of probes", endpoint, Arc::new(routes))
        });
        metrics.into_iter().chain(probes).collect()
    }
}

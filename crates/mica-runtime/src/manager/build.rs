//! What a manager is to be made of.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::{Addresses, Inner, Manager, ManagerError, Parts, debug};
use crate::breaker;
use crate::cluster::Access;
use crate::controller::{Controllers, Reach, Surroundings};
use crate::events::Events;
use crate::fleet::Fleet;
use crate::metrics::Metrics;
use crate::ownership::{All, Ownership, identity};
use crate::provider::Provider;
use crate::serve::{Checks, Endpoint};

/// As long as a pod has before it is killed, as upstream's managers.
const GRACEFUL: Duration = Duration::from_secs(30);

/// Describes a [`Manager`].
pub struct ManagerBuilder {
    local: Access,
    providers: Vec<Arc<dyn Provider>>,
    ownership: Option<Arc<dyn Ownership>>,
    metrics: Option<SocketAddr>,
    probes: Option<SocketAddr>,
    graceful: Duration,
    instance: Option<String>,
    limits: breaker::Limits,
}

impl ManagerBuilder {
    pub(super) fn new(local: Access) -> Self {
        Self {
            local,
            providers: Vec::new(),
            ownership: None,
            metrics: None,
            probes: None,
            graceful: GRACEFUL,
            instance: None,
            limits: breaker::Limits::default(),
        }
    }

    /// Where clusters come from. Without any provider, controllers work on the management cluster alone.
    #[must_use]
    pub fn provider(mut self, provider: impl Provider) -> Self {
        self.providers.push(Arc::new(provider));
        self
    }

    /// Which clusters are this replica's; [`All`] if nothing is said.
    #[must_use]
    pub fn ownership(mut self, ownership: impl Ownership) -> Self {
        self.ownership = Some(Arc::new(ownership));
        self
    }

    /// Serves `/metrics` and `/debug/clusters` there; port 0 is any that is free.
    #[must_use]
    pub fn metrics(mut self, address: SocketAddr) -> Self {
        self.metrics = Some(address);
        self
    }

    /// Serves `/healthz` and `/readyz` there; port 0 is any that is free.
    #[must_use]
    pub fn probes(mut self, address: SocketAddr) -> Self {
        self.probes = Some(address);
        self
    }

    /// How long stopping may take.
    #[must_use]
    pub fn graceful(mut self, graceful: Duration) -> Self {
        self.graceful = graceful;
        self
    }

    /// What this replica is called in events; the host's name and a part by chance if nothing is said.
    #[must_use]
    pub fn instance(mut self, instance: impl Into<String>) -> Self {
        self.instance = Some(instance.into());
        self
    }

    /// When a cluster counts as dead, and how often it is tried then.
    #[must_use]
    pub fn breaker(mut self, limits: breaker::Limits) -> Self {
        self.limits = limits;
        self
    }

    /// The manager, which listens already and does nothing yet.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn build(self) -> Result<Manager, ManagerError> {
        let bind = |what, address: Option<SocketAddr>| {
            let bound = address
                .map(|address| Endpoint::bind(address).map_err(|cause| ManagerError::Listen { what, address, cause }));
            bound.transpose()
        };
        let (metrics_server, probes) = (bind("metrics", self.metrics)?, bind("probes", self.probes)?);
        let ownership = self.ownership.unwrap_or_else(|| Arc::new(All::new()));
        let metrics = Metrics::new();
        let (events, writer) = Events::new(self.instance.unwrap_or_else(identity), metrics.clone());
        let fleet = Fleet::with_limits(ownership.clone(), self.limits);
        fleet.report_to(&metrics);
        let local = self.local.counted_client(&metrics);
        fleet.set_local(self.local);
        let reach = if self.providers.is_empty() {
            Reach::Local
        } else {
            Reach::Provided
        };
        let controllers = Controllers::new(Surroundings {
            fleet: fleet.clone(),
            local: local.clone(),
            metrics: metrics.clone(),
            events: events.clone(),
            reach,
        });
        let counted = fleet.clone();
        metrics.fleet_from(move || debug::state(&counted));
        let addresses = Addresses {
            metrics: metrics_server.as_ref().map(Endpoint::address),
            probes: probes.as_ref().map(Endpoint::address),
        };
        let manager = Manager(Arc::new(Inner {
            fleet,
            controllers,
            ownership,
            metrics,
            events,
            local,
            healthz: Checks::default(),
            readyz: Checks::default(),
            stopping: AtomicBool::new(false),
            graceful: self.graceful,
            addresses,
            parts: Mutex::new(Some(Parts {
                providers: self.providers,
                writer,
                metrics: metrics_server,
                probes,
            })),
        }));
        manager.set_checks();
        Ok(manager)
    }
}

impl Manager {
    fn set_checks(&self) {
        self.0.healthz.set("ping", || Ok(()));
        let manager = Arc::downgrade(&self.0);
        self.0.readyz.set("providers", move || {
            let manager = manager.upgrade().ok_or("the manager has ended")?;
            if manager.parts.lock().is_some() {
                return Err("the manager does not run yet".to_owned());
            }
            let waits = manager.fleet.providers().into_iter().find(|provider| !provider.synced);
            match waits {
                None => Ok(()),
                Some(provider) => Err(format!("{} has not told its clusters", provider.name)),
            }
        });
        let manager = Arc::downgrade(&self.0);
        self.0.readyz.set("running", move || {
            let stopping = manager
                .upgrade()
                .is_none_or(|inner| inner.stopping.load(Ordering::Relaxed));
            if stopping {
                return Err("the manager stops".to_owned());
            }
            Ok(())
        });
    }
}

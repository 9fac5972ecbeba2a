//! What a controller is, apart from its kind: its queue, which clusters it works on, and when a cluster is ready for it.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::trigger::{Input, Maps, Where};
use crate::cluster::Cluster;
use crate::metrics::ControllerMetrics;
use crate::queue::{Priority, Queue};
use crate::request::{ClusterName, Request};
use crate::source::Roster;

pub(super) type Filter = Box<dyn Fn(&Cluster) -> bool + Send + Sync>;

/// Which clusters a controller works on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Reach {
    /// Those of the providers.
    #[default]
    Provided,
    /// The local (management) cluster alone.
    Local,
    /// Both.
    Everywhere,
}

pub(super) struct Core {
    name: Arc<str>,
    pub(super) queue: Queue,
    pub(super) metrics: ControllerMetrics,
    roster: Arc<Roster>,
    reach: Reach,
    filter: Option<Filter>,
    /// What the filter let pass, if there is one: labels change, and then this tells what that means.
    passed: Mutex<HashSet<ClusterName>>,
    /// The first is of the reconciled kind.
    inputs: OnceLock<Vec<Arc<dyn Input>>>,
    /// Clusters that became ready, for which other clusters' objects have not been looked through yet.
    arrived: Mutex<HashSet<ClusterName>>,
    arrival: Notify,
    /// No more work is begun.
    pub(super) stop: CancellationToken,
}

/// What a [`Core`] is made of.
pub(super) struct CoreParts {
    pub(super) name: Arc<str>,
    pub(super) queue: Queue,
    pub(super) metrics: ControllerMetrics,
    pub(super) roster: Arc<Roster>,
    pub(super) reach: Reach,
    pub(super) filter: Option<Filter>,
}

impl Core {
    pub(super) fn new(parts: CoreParts) -> Self {
        Self {
            name: parts.name,
            queue: parts.queue,
            metrics: parts.metrics,
            roster: parts.roster,
            reach: parts.reach,
            filter: parts.filter,
            passed: Mutex::default(),
            inputs: OnceLock::new(),
            arrived: Mutex::default(),
            arrival: Notify::new(),
            stop: CancellationToken::new(),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn roster(&self) -> &Roster {
        &self.roster
    }

    pub(super) fn inputs(&self) -> &[Arc<dyn Input>] {
        self.inputs.get().map_or(&[], Vec::as_slice)
    }

    /// Begins to listen. What is engaged already is taken up too.
    pub(super) fn begin(&self, inputs: Vec<Arc<dyn Input>>) {
        let inputs = self.inputs.get_or_init(|| inputs);
        for input in inputs {
            input.clone().subscribe();
        }
        for cluster in self.roster.all() {
            for input in inputs {
                input.feed().engage(&cluster);
            }
            self.engaged(&cluster);
        }
    }

    /// Listens no more. What is queued stays, and nobody takes it.
    pub(super) fn end(&self) {
        self.stop.cancel();
        for input in self.inputs() {
            input.clone().unsubscribe();
        }
    }

    /// Whether this controller works on a cluster.
    pub(super) fn wants(&self, cluster: &Cluster) -> bool {
        let reached = match self.reach {
            Reach::Provided => !cluster.name().is_local(),
            Reach::Local => cluster.name().is_local(),
            Reach::Everywhere => true,
        };
        reached && self.filter.as_ref().is_none_or(|filter| self.passes(filter, cluster))
    }

    /// A filter that panics lets nothing pass.
    fn passes(&self, filter: &Filter, cluster: &Cluster) -> bool {
        catch_unwind(AssertUnwindSafe(|| filter(cluster))).unwrap_or_else(|_| {
            tracing::error!(controller = self.name(), cluster = %cluster.name(), "the filter of clusters panicked");
            false
        })
    }

    /// Whether a cluster can be worked on: everything that work there may look up has been read.
    pub(super) fn ready(&self, cluster: &Cluster) -> bool {
        self.inputs().iter().all(|input| input.synced(cluster, &self.roster))
    }

    /// The cluster of a request, if work can begin there.
    pub(super) fn admits(&self, request: &Request) -> Option<Cluster> {
        let cluster = self.roster.get(&request.cluster)?;
        (self.wants(&cluster) && self.ready(&cluster)).then_some(cluster)
    }

    /// Adds a request. One for a cluster that is not ready is left out: when it is, everything there is looked at.
    pub(super) fn enqueue(&self, request: Request, priority: Priority) {
        if self.admits(&request).is_some() {
            self.metrics.added();
            self.queue.add(request, priority);
        }
    }

    /// A cluster is there, or is not what it was.
    pub(super) fn engaged(&self, cluster: &Cluster) {
        let wanted = self.wants(cluster);
        let news = match (&self.filter, wanted) {
            (None, _) => wanted,
            (Some(_), true) => self.passed.lock().insert(cluster.name().clone()),
            (Some(_), false) => {
                if self.passed.lock().remove(cluster.name()) {
                    self.queue.purge(cluster.name());
                }
                false
            }
        };
        self.hold_or_release(cluster);
        if news {
            self.replay(Some(cluster.name()));
        }
    }

    /// Labels, the owner or the health of a cluster changed.
    pub(super) fn changed(&self, cluster: &Cluster) {
        match self.filter {
            Some(_) => self.engaged(cluster),
            None => self.hold_or_release(cluster),
        }
    }

    pub(super) fn gone(&self, name: &ClusterName) {
        self.passed.lock().remove(name);
        self.queue.purge(name);
    }

    /// A feed has everything of a cluster now.
    pub(super) fn synced(&self, cluster: &Cluster) {
        // What is read of the local cluster alone may be about any.
        let about_any = cluster.name().is_local() && self.inputs().iter().any(|input| input.looks() == Where::Local);
        self.replay((!about_any).then(|| cluster.name()));
    }

    pub(super) fn replay(&self, of: Option<&ClusterName>) {
        if let Some(name) = of
            && let Some(cluster) = self.roster.get(name)
            && !self.ready(&cluster)
        {
            return;
        }
        for input in self.inputs() {
            input.replay(of);
        }
        if let Some(name) = of
            && self.maps_across()
        {
            self.arrived.lock().insert(name.clone());
            self.arrival.notify_one();
        }
    }

    /// Looks at every reconciled object again.
    pub(super) fn replay_primary(&self) {
        if let Some(primary) = self.inputs().first() {
            primary.replay(None);
        }
    }

    pub(super) fn maps_across(&self) -> bool {
        self.inputs().iter().any(|input| input.maps() == Maps::Across)
    }

    /// Looks through other clusters' objects for what is about clusters that became ready. All that come together are
    /// looked for at once: a thousand planes that engage do not cost a thousand passes.
    pub(super) async fn follow_arrivals(&self) {
        loop {
            self.arrival.notified().await;
            let arrived = std::mem::take(&mut *self.arrived.lock());
            for input in self.inputs().iter().filter(|input| input.maps() == Maps::Across) {
                input.replay_into(&arrived);
                tokio::task::yield_now().await;
            }
        }
    }

    /// Nothing of a cluster is begun that does not answer or is another replica's. What changes there waits.
    fn hold_or_release(&self, cluster: &Cluster) {
        if !self.wants(cluster) {
            return;
        }
        if cluster.is_reachable() && cluster.owned().is_some() {
            self.queue.release(cluster.name());
        } else {
            self.queue.hold(cluster.name());
        }
    }
}

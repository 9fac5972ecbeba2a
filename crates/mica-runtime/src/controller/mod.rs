//! Controllers: what is watched, what follows from it, and who works on it.
//!
//! [`Controllers`] is the set of them over one fleet. A controller comes from [`Controllers::controller`], at any time, and
//! goes with [`Controller::stop`]. Kinds that several watch are read once.
//!
//! A cluster is worked on once everything that the controller watches there has been read: what a reconciler looks up is
//! then whole. What was there before is reconciled with low priority, what changes before that.

mod builder;
mod core;
pub mod predicate;
mod trigger;
mod view;
mod worker;

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use self::core::Reach;
pub use builder::{BuildError, CONCURRENCY, ControllerBuilder, NewController, Watch};
pub use trigger::OwnerScope;
pub use view::{FleetView, NotWatched};

use self::core::Core;
use crate::cluster::Cluster;
use crate::events::Events;
use crate::fleet::{Fleet, FleetEvent};
use crate::metrics::Metrics;
use crate::queue::Priority;
use crate::request::{ClusterName, Request};
use crate::source::{Feeds, Roster};
use trigger::Input;

/// What controllers need of the process they run in.
#[derive(Clone)]
pub struct Surroundings {
    pub fleet: Fleet,
    /// A client of the local (management) cluster.
    pub local: kube::Client,
    pub metrics: Metrics,
    pub events: Events,
    /// Where controllers work that do not say.
    pub reach: Reach,
}

/// The controllers of a process. A clone is the same set.
#[derive(Clone)]
pub struct Controllers(Arc<Inner>);

struct Inner {
    around: Surroundings,
    roster: Arc<Roster>,
    feeds: Arc<Feeds>,
    /// A name without a core is about to have one.
    known: Mutex<BTreeMap<Arc<str>, Option<Arc<Core>>>>,
    /// Held while a controller's watches come or go: a feed that nobody listens to yet looks like one to be ended.
    building: Mutex<()>,
    /// Everything that runs, sources and controllers.
    tasks: TaskTracker,
    /// Ends what has not ended in time.
    kill: CancellationToken,
}

impl Controllers {
    pub fn new(around: Surroundings) -> Self {
        let (roster, tasks) = (Arc::new(Roster::default()), TaskTracker::new());
        Self(Arc::new(Inner {
            feeds: Arc::new(Feeds::new(roster.clone(), tasks.clone(), around.metrics.clone())),
            around,
            roster,
            known: Mutex::default(),
            building: Mutex::default(),
            tasks,
            kill: CancellationToken::new(),
        }))
    }

    /// Begins to describe a controller. Its name is in logs and metrics, and is its own.
    pub fn controller(&self, name: impl Into<String>) -> NewController {
        NewController::new(self.clone(), name.into())
    }

    /// The fleet, with what is known of its objects.
    pub fn view(&self) -> FleetView {
        let Surroundings { fleet, local, .. } = &self.0.around;
        FleetView::new(fleet.clone(), local.clone(), self.0.feeds.clone())
    }

    /// Follows the fleet until stopped. Then the sources end, nothing new is begun, and what is under way has the grace
    /// period to finish; what has not is dropped.
    pub async fn run(&self, stop: CancellationToken, grace: Duration) {
        let mut events = self.0.around.fleet.events();
        loop {
            let event = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                event = events.next() => event,
            };
            match event {
                Some(FleetEvent::Engaged(cluster)) => {
                    self.engage(&cluster);
                    // Thousands may come at once.
                    tokio::task::coop::consume_budget().await;
                }
                Some(FleetEvent::Changed(cluster)) => self.change(&cluster),
                Some(FleetEvent::Gone(name)) => self.disengage(&name),
                Some(FleetEvent::Synced) => {}
                None => {
                    stop.cancelled().await;
                    break;
                }
            }
        }
        self.shut_down(grace).await;
    }

    async fn shut_down(&self, grace: Duration) {
        for core in self.cores() {
            core.stop.cancel();
        }
        // What is under way may still look things up.
        self.0.feeds.halt();
        self.0.tasks.close();
        if tokio::time::timeout(grace, self.0.tasks.wait()).await.is_err() {
            tracing::warn!(?grace, "reconciles that did not end in time are dropped");
            self.0.kill.cancel();
            self.0.tasks.wait().await;
        }
    }

    fn engage(&self, cluster: &Cluster) {
        self.disengage(cluster.name());
        self.0.roster.insert(cluster);
        for feed in self.0.feeds.all() {
            feed.engage(cluster);
        }
        self.0.roster.admit(cluster.name());
        for core in self.cores() {
            core.engaged(cluster);
        }
    }

    fn change(&self, cluster: &Cluster) {
        for feed in self.0.feeds.all() {
            feed.engage(cluster);
            if cluster.is_reachable() {
                feed.retry(cluster);
            }
        }
        for core in self.cores() {
            core.changed(cluster);
        }
    }

    /// In this order: first nothing can be added, then nothing is left.
    fn disengage(&self, name: &ClusterName) {
        let Some(cluster) = self.0.roster.remove(name) else {
            return;
        };
        for feed in self.0.feeds.all() {
            feed.disengage(&cluster);
        }
        for core in self.cores() {
            core.gone(name);
        }
    }

    fn cores(&self) -> Vec<Arc<Core>> {
        self.0.known.lock().values().flatten().cloned().collect()
    }

    fn default_reach(&self) -> Reach {
        self.0.around.reach
    }
}

/// A name that is taken; free again when this is dropped before the controller is there.
struct Reserved {
    controllers: Controllers,
    name: Option<Arc<str>>,
}

impl Reserved {
    fn make(controllers: &Controllers, name: &Arc<str>) -> Result<Self, BuildError> {
        let mut known = controllers.0.known.lock();
        if known.contains_key(name) {
            return Err(BuildError::NameTaken(name.to_string()));
        }
        known.insert(name.clone(), None);
        Ok(Self {
            controllers: controllers.clone(),
            name: Some(name.clone()),
        })
    }

    fn fill(mut self, core: &Arc<Core>) {
        if let Some(name) = self.name.take() {
            self.controllers.0.known.lock().insert(name, Some(core.clone()));
        }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if let Some(name) = self.name.take() {
            self.controllers.0.known.lock().remove(&name);
            self.controllers.0.feeds.release();
        }
    }
}

/// A controller that runs. It goes on when this is dropped.
#[derive(Clone)]
pub struct Controller {
    core: Arc<Core>,
    controllers: Controllers,
    tasks: TaskTracker,
    kill: CancellationToken,
}

impl Controller {
    fn new(core: Arc<Core>, controllers: &Controllers) -> Self {
        let queue = Arc::downgrade(&core);
        core.metrics
            .depth_from(move || queue.upgrade().map_or(0, |core| core.queue.depth()));
        Self {
            core,
            controllers: controllers.clone(),
            tasks: TaskTracker::new(),
            kill: controllers.0.kill.child_token(),
        }
    }

    pub fn name(&self) -> &str {
        self.core.name()
    }

    /// How many requests wait for a worker.
    pub fn depth(&self) -> usize {
        self.core.queue.depth()
    }

    /// Adds a request as if its object had changed.
    pub fn enqueue(&self, request: Request, priority: Priority) {
        self.core.enqueue(request, priority);
    }

    /// Ends this controller alone. Nothing new is begun, and workers have the grace period to finish what they do; then its
    /// watches end, unless others share them.
    pub async fn stop(&self, grace: Duration) {
        self.core.end();
        self.tasks.close();
        if tokio::time::timeout(grace, self.tasks.wait()).await.is_err() {
            tracing::warn!(
                controller = self.name(),
                "reconciles that did not end in time are dropped"
            );
            self.kill.cancel();
            self.tasks.wait().await;
        }
        // Only now: what was under way may have looked things up.
        let _building = self.controllers.0.building.lock();
        self.controllers.0.feeds.release();
        let mut known = self.controllers.0.known.lock();
        if matches!(known.get(self.name()), Some(Some(core)) if Arc::ptr_eq(core, &self.core)) {
            known.remove(self.name());
        }
    }

    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let work = self.kill.clone().run_until_cancelled_owned(work);
        let tracked = self.tasks.track_future(work);
        self.controllers.0.tasks.spawn(tracked);
    }

    /// Takes requests from channels, and all objects once in a while.
    fn follow(&self, channels: Vec<BoxStream<'static, Request>>, resync: Option<Duration>) {
        let until_stopped = |core: &Arc<Core>| core.stop.clone();
        for mut channel in channels {
            let core = self.core.clone();
            self.spawn(async move {
                while let Some(Some(request)) = until_stopped(&core).run_until_cancelled(channel.next()).await {
                    core.enqueue(request, Priority::Normal);
                }
            });
        }
        if let Some(every) = resync {
            let core = self.core.clone();
            self.spawn(async move {
                while until_stopped(&core)
                    .run_until_cancelled(tokio::time::sleep(every))
                    .await
                    .is_some()
                {
                    core.replay_primary();
                }
            });
        }
    }

    fn begin(&self, inputs: Vec<Arc<dyn Input>>) {
        self.core.begin(inputs);
        if self.core.maps_across() {
            let core = self.core.clone();
            self.spawn(async move {
                let stop = core.stop.clone();
                stop.run_until_cancelled(core.follow_arrivals()).await;
            });
        }
    }
}

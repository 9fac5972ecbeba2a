//! The clusters of all providers: which there are, which are engaged here, and what changes.
//!
//! Providers say what there is; [`Ownership`] says what of it is watched here. The fleet compares both with what it has:
//! credentials are exchanged in place, and so is the place of one that may move; any other that is at another place, or is
//! another one, goes before the new one comes.
//! A cluster that several providers claim is the one that came first, until that lets it go.

mod feed;
mod sink;
mod supervise;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, Weak};

use http::{Method, StatusCode};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::breaker;
use crate::cluster::{Access, Cluster, Health, Observer, Parts};
use crate::metrics::Metrics;
use crate::ownership::{Engages, Epoch, Ownership};
use crate::provider::{ClusterSpec, Moving, Provider};
use crate::request::ClusterName;
use feed::Feed;
pub use feed::{Events, FleetEvent};
pub use sink::ClusterSink;
use supervise::Reports;
pub(crate) use supervise::again_after_errors;

/// Probes of clusters that do not answer, at once.
const PROBES: usize = 32;

/// A cluster cannot be had.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FleetError {
    #[error("cluster {0:?} is not engaged")]
    NotEngaged(ClusterName),
    #[error("cluster {0:?} is another replica's")]
    NotOwned(ClusterName),
    #[error("there is a provider {0:?} already")]
    ProviderExists(String),
}

/// The clusters that there are. Clones are the same fleet; it ends with the last of them.
#[derive(Clone)]
pub struct Fleet {
    shared: Arc<Shared>,
    _end: Arc<DropGuard>,
}

struct Shared {
    ownership: Arc<dyn Ownership>,
    limits: breaker::Limits,
    probes: Arc<Semaphore>,
    state: Mutex<State>,
    stop: CancellationToken,
    tasks: TaskTracker,
    me: Weak<Shared>,
    metrics: OnceLock<Metrics>,
}

#[derive(Default)]
struct State {
    clusters: BTreeMap<ClusterName, Known>,
    providers: BTreeMap<String, Running>,
    feeds: Vec<Weak<Feed>>,
    /// For providers and for their runs: later ones have higher numbers.
    count: u64,
}

/// What is known of a name.
#[derive(Default)]
struct Known {
    /// Never empty; the first counts.
    claims: Vec<Claim>,
    engaged: Option<Cluster>,
    /// The epoch that followers have been told of.
    epoch: Option<Epoch>,
}

struct Claim {
    provider: u64,
    spec: Arc<ClusterSpec>,
    /// The run of the provider that said it last.
    run: u64,
}

/// A provider that was added.
struct Running {
    id: u64,
    stop: CancellationToken,
    reports: Arc<Reports>,
    synced: bool,
    trouble: Option<String>,
}

/// How a provider is, for readiness and for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProviderState {
    pub name: String,
    /// It has told all that it has, at least once.
    pub synced: bool,
    /// Its last failure, if it has not gone on since.
    pub trouble: Option<String>,
}

impl Fleet {
    /// An empty fleet.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn new(ownership: Arc<dyn Ownership>) -> Self {
        Self::with_limits(ownership, breaker::Limits::default())
    }

    /// One whose clusters count as dead by other limits.
    pub fn with_limits(ownership: Arc<dyn Ownership>, limits: breaker::Limits) -> Self {
        let shared = Arc::new_cyclic(|me| Shared {
            ownership,
            limits,
            probes: Arc::new(Semaphore::new(PROBES)),
            state: Mutex::default(),
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
            me: me.clone(),
            metrics: OnceLock::new(),
        });
        let following = follow_ownership(Arc::downgrade(&shared), shared.ownership.changes(), shared.stop.clone());
        shared.tasks.spawn(following);
        let end = shared.stop.clone().drop_guard();
        Self {
            shared,
            _end: Arc::new(end),
        }
    }

    /// Where requests are counted, from now on. Only the first counts.
    pub fn report_to(&self, metrics: &Metrics) {
        let _ = self.shared.metrics.set(metrics.clone());
    }

    /// Engages the cluster that the manager itself runs against, under [`ClusterName::local`].
    pub fn set_local(&self, access: Access) {
        let spec = ClusterSpec::new(ClusterName::local(), access);
        self.shared.upsert(0, 0, spec);
    }

    /// An engaged cluster that is this replica's.
    pub fn get(&self, name: &ClusterName) -> Result<Cluster, FleetError> {
        let state = self.shared.state.lock();
        let known = state.clusters.get(name);
        let Some(known) = known else {
            return Err(FleetError::NotEngaged(name.clone()));
        };
        if self.shared.ownership.owns(name).is_none() {
            return Err(FleetError::NotOwned(name.clone()));
        }
        let engaged = known.engaged.clone();
        engaged.ok_or_else(|| FleetError::NotEngaged(name.clone()))
    }

    /// All clusters that are engaged, whoever owns them, by name; the local one is first if there is one.
    pub fn clusters(&self) -> Vec<Cluster> {
        let state = self.shared.state.lock();
        state
            .clusters
            .values()
            .filter_map(|known| known.engaged.clone())
            .collect()
    }

    /// Follows the fleet: first all clusters that are engaged, then what changes.
    pub fn events(&self) -> Events {
        let feed = Arc::new(Feed::default());
        let mut state = self.shared.state.lock();
        for cluster in state.clusters.values().filter_map(|known| known.engaged.as_ref()) {
            feed.engaged(cluster);
        }
        if state.is_synced() {
            feed.synced();
        }
        if self.shared.stop.is_cancelled() {
            feed.close();
        }
        state.feeds.retain(|feed| feed.strong_count() > 0);
        state.feeds.push(Arc::downgrade(&feed));
        Events::new(feed)
    }

    /// Runs a provider from now on, until it is removed or the fleet ends.
    pub fn add(&self, provider: impl Provider) -> Result<(), FleetError> {
        self.add_shared(Arc::new(provider))
    }

    pub fn add_shared(&self, provider: Arc<dyn Provider>) -> Result<(), FleetError> {
        let name = provider.name().to_owned();
        let (stop, reports) = (self.shared.stop.child_token(), Arc::new(Reports::default()));
        let id = {
            let mut state = self.shared.state.lock();
            if state.providers.contains_key(&name) {
                return Err(FleetError::ProviderExists(name));
            }
            state.count += 1;
            let running = Running {
                id: state.count,
                stop: stop.clone(),
                reports: reports.clone(),
                synced: false,
                trouble: None,
            };
            let id = running.id;
            state.providers.insert(name.clone(), running);
            id
        };
        let (shared, runs) = (self.shared.clone(), provider.clone());
        let stopped = stop.clone();
        self.shared.tasks.spawn(async move {
            let run = || runs.run(ClusterSink::new(shared.clone(), id));
            let failed = |message: &str| shared.set_trouble(id, Some(message.to_owned()));
            stopped
                .run_until_cancelled(again_after_errors(&name, run, failed))
                .await;
        });
        let weak = self.shared.me.clone();
        let health = move |name: &ClusterName| weak.upgrade().and_then(|shared| shared.health_to_tell(name));
        let reporting = supervise::report(provider, reports, health, stop);
        self.shared.tasks.spawn(reporting);
        Ok(())
    }

    /// Stops a provider; its clusters go.
    pub fn remove(&self, provider: &str) {
        let mut state = self.shared.state.lock();
        let Some(running) = state.providers.remove(provider) else {
            return;
        };
        running.stop.cancel();
        let names: Vec<_> = state.claimed_by(running.id).map(|(name, _)| name.clone()).collect();
        for name in names {
            self.shared.withdraw(&mut state, running.id, &name);
        }
        if state.is_synced() {
            state.tell(Feed::synced);
        }
    }

    pub fn providers(&self) -> Vec<ProviderState> {
        let state = self.shared.state.lock();
        let describe = |(name, running): (&String, &Running)| ProviderState {
            name: name.clone(),
            synced: running.synced,
            trouble: running.trouble.clone(),
        };
        state.providers.iter().map(describe).collect()
    }

    /// Whether every provider has told all that it has.
    pub fn is_synced(&self) -> bool {
        self.shared.state.lock().is_synced()
    }

    pub fn ownership(&self) -> &Arc<dyn Ownership> {
        &self.shared.ownership
    }

    /// Stops the providers, lets every cluster go, and waits until all tasks have ended.
    pub async fn stop(&self) {
        self.shared.stop.cancel();
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
        let mut state = self.shared.state.lock();
        for cluster in state.clusters.values_mut().filter_map(|known| known.engaged.take()) {
            cluster.end();
        }
        state.clusters.clear();
        state.providers.clear();
        state.tell(Feed::close);
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        for cluster in state.clusters.values().filter_map(|known| known.engaged.as_ref()) {
            cluster.end();
        }
        state.tell(Feed::close);
    }
}

/// Looks at every cluster again when the ownership may have changed.
async fn follow_ownership(fleet: Weak<Shared>, mut changes: watch::Receiver<u64>, stop: CancellationToken) {
    loop {
        let changed = stop.run_until_cancelled(changes.changed()).await;
        let (Some(Ok(())), Some(fleet)) = (changed, fleet.upgrade()) else {
            return;
        };
        let mut state = fleet.state.lock();
        let names: Vec<_> = state.clusters.keys().cloned().collect();
        for name in names {
            fleet.settle(&mut state, &name);
        }
    }
}

impl State {
    fn is_synced(&self) -> bool {
        self.providers.values().all(|running| running.synced)
    }

    fn tell(&self, what: impl Fn(&Feed)) {
        for feed in self.feeds.iter().filter_map(Weak::upgrade) {
            what(&feed);
        }
    }

    fn claimed_by(&self, provider: u64) -> impl Iterator<Item = (&ClusterName, &Claim)> {
        self.clusters.iter().filter_map(move |(name, known)| {
            let claim = known.claims.iter().find(|claim| claim.provider == provider)?;
            Some((name, claim))
        })
    }

    fn provider(&mut self, id: u64) -> Option<&mut Running> {
        self.providers.values_mut().find(|running| running.id == id)
    }
}

impl Shared {
    /// A provider says in a run of it that there is a cluster.
    fn upsert(&self, provider: u64, run: u64, spec: ClusterSpec) {
        let name = spec.name.clone();
        let mut state = self.state.lock();
        // One that was removed may still be saying its last word.
        if provider != 0 && state.provider(provider).is_none() {
            return;
        }
        let known = state.clusters.entry(name.clone()).or_default();
        let spec = Arc::new(spec);
        match known.claims.iter_mut().find(|claim| claim.provider == provider) {
            Some(claim) => (claim.spec, claim.run) = (spec, run),
            None => {
                if !known.claims.is_empty() {
                    tracing::warn!(cluster = %name, "claimed by a second provider; the first counts");
                }
                known.claims.push(Claim { provider, spec, run });
            }
        }
        self.settle(&mut state, &name);
    }

    /// A provider lets a cluster go.
    fn withdraw(&self, state: &mut State, provider: u64, name: &ClusterName) {
        if let Some(known) = state.clusters.get_mut(name) {
            known.claims.retain(|claim| claim.provider != provider);
            self.settle(state, name);
        }
    }

    /// Makes what is engaged under a name what it should be.
    fn settle(&self, state: &mut State, name: &ClusterName) {
        let Some(known) = state.clusters.get_mut(name) else {
            return;
        };
        let wanted = known.claims.first().map(|claim| claim.spec.clone());
        let wanted = wanted.filter(|_| self.ownership.engages(name) == Engages::Yes);
        let stays = match (&known.engaged, &wanted) {
            (Some(cluster), Some(spec)) => is_same(cluster, spec),
            _ => false,
        };
        let gone = if stays { None } else { known.engaged.take() };
        let mut come = None;
        let mut changed = false;
        match (&known.engaged, &wanted) {
            (Some(cluster), Some(spec)) => changed = exchange(cluster, spec),
            (None, Some(spec)) => {
                let cluster = self.engage(spec);
                come = Some(cluster.clone());
                known.engaged = Some(cluster);
            }
            (_, None) => {}
        }
        let epoch = self.ownership.owns(name);
        changed |= std::mem::replace(&mut known.epoch, epoch) != epoch;
        let engaged = known.engaged.clone();
        let provider = known.claims.first().map(|claim| claim.provider);
        if known.claims.is_empty() {
            state.clusters.remove(name);
        }
        if let Some(cluster) = gone {
            cluster.end();
            state.tell(|feed| feed.gone(name));
            self.count("gone");
        }
        match (come, engaged) {
            (Some(cluster), _) => {
                state.tell(|feed| feed.engaged(&cluster));
                self.count("engaged");
            }
            (None, Some(cluster)) if changed => {
                state.tell(|feed| feed.changed(&cluster));
                self.count("changed");
            }
            (None, _) => return,
        }
        // One that has come, or has a new owner, is to be told of.
        if let Some(running) = provider.and_then(|provider| state.provider(provider)) {
            running.reports.add(name);
        }
    }

    fn count(&self, change: &'static str) {
        if let Some(metrics) = self.metrics.get() {
            metrics.cluster_changed(change);
        }
    }

    fn engage(&self, spec: &ClusterSpec) -> Cluster {
        Cluster::new(Parts {
            name: spec.name.clone(),
            access: spec.access.clone(),
            labels: Arc::new(spec.labels.clone()),
            wildcard: spec.wildcard.clone(),
            identity: spec.identity.as_deref().map(Box::from),
            ownership: self.ownership.clone(),
            limits: self.limits,
            probes: self.probes.clone(),
            observer: self.me.clone(),
        })
    }

    /// How a cluster is, if it is this replica's to say so.
    fn health_to_tell(&self, name: &ClusterName) -> Option<Health> {
        self.ownership.owns(name)?;
        let state = self.state.lock();
        state.clusters.get(name)?.engaged.as_ref().map(Cluster::health)
    }

    fn set_trouble(&self, provider: u64, trouble: Option<String>) {
        if let Some(running) = self.state.lock().provider(provider) {
            running.trouble = trouble;
        }
    }
}

impl Observer for Shared {
    fn health_changed(&self, cluster: &Cluster) {
        let mut state = self.state.lock();
        let known = state.clusters.get(cluster.name());
        let provider = known.and_then(|known| known.claims.first()).map(|claim| claim.provider);
        if let Some(running) = provider.and_then(|provider| state.provider(provider)) {
            running.reports.add(cluster.name());
        }
    }

    fn reach_changed(&self, cluster: &Cluster) {
        let state = self.state.lock();
        let engaged = state
            .clusters
            .get(cluster.name())
            .and_then(|known| known.engaged.as_ref());
        if engaged.is_some_and(|engaged| engaged.is_same(cluster)) {
            state.tell(|feed| feed.changed(cluster));
        }
    }

    fn answered(&self, cluster: &Cluster, method: &Method, code: Option<StatusCode>) {
        if let Some(metrics) = self.metrics.get() {
            metrics.answered(method, &cluster.access().host(), code);
        }
    }
}

/// Whether a cluster is the one that is described, whatever its credentials.
fn is_same(cluster: &Cluster, spec: &ClusterSpec) -> bool {
    let wildcard = match (cluster.wildcard(), &spec.wildcard) {
        (Some(old), Some(new)) => old.plane_id == new.plane_id && old.server.url() == new.server.url(),
        (old, new) => old.is_none() && new.is_none(),
    };
    let follows = spec.moving == Moving::IsTheSame && spec.identity.is_some() && spec.wildcard.is_none();
    let place = follows || cluster.access().url() == spec.access.url();
    wildcard && cluster.identity() == spec.identity.as_deref() && place
}

/// Gives a cluster what is described. Whether those who follow it should look again.
fn exchange(cluster: &Cluster, spec: &ClusterSpec) -> bool {
    // What waits because it was refused need not wait any longer, so this is told too.
    let mut changed = false;
    let moved = cluster.access().url() != spec.access.url();
    if moved || !cluster.access().shows_the_same(&spec.access) {
        cluster.set_access(spec.access.clone());
        changed = true;
    }
    if let (Some(old), Some(new)) = (cluster.wildcard(), &spec.wildcard)
        && !old.server.shows_the_same(&new.server)
    {
        if let Err(error) = old.server.rotate(&new.server) {
            tracing::warn!(cluster = %cluster.name(), %error, "the server's credentials are not exchanged");
        }
        changed = true;
    }
    if *cluster.labels() != spec.labels {
        cluster.set_labels(Arc::new(spec.labels.clone()));
        changed = true;
    }
    changed
}

#[cfg(test)]
mod tests;

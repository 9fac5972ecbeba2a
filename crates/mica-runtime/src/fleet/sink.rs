//! Where a provider tells of its clusters.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Shared;
use super::feed::Feed;
use crate::provider::ClusterSpec;
use crate::request::ClusterName;

/// Takes what a provider says. Clones are the same.
///
/// A sink belongs to one run of its provider. What an earlier run said stays until this one has said all that there is
/// ([`ClusterSink::synced`]); then what was not said again goes.
#[derive(Clone)]
pub struct ClusterSink {
    shared: Arc<Shared>,
    provider: u64,
    /// The number of the run: what was last said in an earlier one is to be said again.
    run: Arc<AtomicU64>,
    /// Put before every name.
    scope: Arc<str>,
    /// Told instead of the fleet, by who has several providers to wait for.
    on_synced: Option<Arc<dyn Fn() + Send + Sync>>,
}

impl ClusterSink {
    pub(super) fn new(shared: Arc<Shared>, provider: u64) -> Self {
        let sink = Self {
            shared,
            provider,
            run: Arc::default(),
            scope: "".into(),
            on_synced: None,
        };
        sink.restart();
        sink
    }

    /// There is a cluster, as described: a new one, or another description.
    pub fn upsert(&self, mut spec: ClusterSpec) {
        spec.name = self.full(&spec.name);
        self.shared
            .upsert(self.provider, self.run.load(Ordering::Relaxed), spec);
    }

    /// The cluster is still there, however it was described last.
    pub fn keep(&self, name: &ClusterName) {
        let (name, run) = (self.full(name), self.run.load(Ordering::Relaxed));
        let mut state = self.shared.state.lock();
        let known = state.clusters.get_mut(&name);
        let claims = known.into_iter().flat_map(|known| &mut known.claims);
        for claim in claims.filter(|claim| claim.provider == self.provider) {
            claim.run = run;
        }
    }

    /// There is no such cluster any more.
    pub fn remove(&self, name: &ClusterName) {
        let name = self.full(name);
        let mut state = self.shared.state.lock();
        self.shared.withdraw(&mut state, self.provider, &name);
    }

    /// Everything will be said again from here on.
    pub fn restart(&self) {
        let mut state = self.shared.state.lock();
        state.count += 1;
        self.run.store(state.count, Ordering::Relaxed);
    }

    /// Everything that there is has been said since the last restart: what was not goes.
    pub fn synced(&self) {
        let run = self.run.load(Ordering::Relaxed);
        let mut state = self.shared.state.lock();
        let unsaid: Vec<_> = state
            .claimed_by(self.provider)
            .filter(|(name, claim)| claim.run < run && name.as_str().starts_with(&*self.scope))
            .map(|(name, _)| name.clone())
            .collect();
        for name in unsaid {
            self.shared.withdraw(&mut state, self.provider, &name);
        }
        if let Some(on_synced) = &self.on_synced {
            drop(state);
            return on_synced();
        }
        let before = state.is_synced();
        if let Some(running) = state.provider(self.provider) {
            running.synced = true;
            running.trouble = None;
        }
        if !before && state.is_synced() {
            state.tell(Feed::synced);
        }
    }

    /// Something is wrong that the provider goes on trying: shown until the next [`ClusterSink::well`].
    pub fn trouble(&self, message: impl Into<String>) {
        self.shared.set_trouble(self.provider, Some(message.into()));
    }

    /// What was wrong is over.
    pub fn well(&self) {
        self.shared.set_trouble(self.provider, None);
    }

    /// A sink for a part of this provider. Names get `part#` before them; the part is synced for itself, and says so by
    /// calling `on_synced`.
    pub(crate) fn part(&self, part: &str, on_synced: Arc<dyn Fn() + Send + Sync>) -> Self {
        let sink = Self {
            run: Arc::default(),
            scope: format!("{}{part}#", self.scope).into(),
            on_synced: Some(on_synced),
            ..self.clone()
        };
        sink.restart();
        sink
    }

    fn full(&self, name: &ClusterName) -> ClusterName {
        match self.scope.is_empty() {
            true => name.clone(),
            false => ClusterName::new(format!("{}{name}", self.scope)),
        }
    }
}

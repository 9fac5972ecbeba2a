//! Several providers as one, with their names before their clusters' names.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use async_trait::async_trait;
use futures::future::join_all;
use parking_lot::Mutex;

use super::{ClusterSink, Provider, ProviderError};
use crate::cluster::Health;
use crate::fleet::again_after_errors;
use crate::request::ClusterName;

/// Between the name of a provider and that of its cluster.
const SEPARATOR: char = '#';

/// Several providers, whose clusters are called `provider#cluster`: two may have clusters of the same name.
///
/// Each goes on when another fails. To add and remove providers while a fleet runs, see [`crate::Fleet::add`].
pub struct Multi {
    name: String,
    parts: BTreeMap<String, Arc<dyn Provider>>,
}

impl Multi {
    pub fn new() -> Self {
        Self {
            name: "multi".to_owned(),
            parts: BTreeMap::new(),
        }
    }

    /// Adds a provider under a name, in which no `#` can be: what follows the first one is the cluster's.
    pub fn with(mut self, name: impl Into<String>, provider: impl Provider) -> Result<Self, ProviderError> {
        let name = name.into();
        if name.is_empty() || name.contains(SEPARATOR) {
            return Err(ProviderError::Invalid(format!(
                "{name:?} cannot be the name of a provider"
            )));
        }
        if self.parts.contains_key(&name) {
            return Err(ProviderError::Invalid(format!("there are two providers {name:?}")));
        }
        self.parts.insert(name, Arc::new(provider));
        Ok(self)
    }

    /// Another name than `multi`, where a fleet has several.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }
}

impl Default for Multi {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Provider for Multi {
    fn name(&self) -> &str {
        &self.name
    }

    async fn run(&self, sink: ClusterSink) -> Result<(), ProviderError> {
        let missing: BTreeSet<String> = self.parts.keys().cloned().collect();
        if missing.is_empty() {
            sink.synced();
        }
        let missing = Arc::new(Mutex::new(missing));
        let parts = self.parts.iter().map(|(part, provider)| {
            let (missing, whole, told) = (missing.clone(), sink.clone(), part.clone());
            let on_synced: Arc<dyn Fn() + Send + Sync> = Arc::new(move || {
                let last = {
                    let mut missing = missing.lock();
                    missing.remove(&told) && missing.is_empty()
                };
                if last {
                    whole.synced();
                }
            });
            let (sink, name) = (sink.clone(), format!("{}{SEPARATOR}{part}", self.name));
            async move {
                let run = || provider.run(sink.part(part, on_synced.clone()));
                again_after_errors(&name, run, |message| sink.trouble(message)).await;
            }
        });
        join_all(parts).await;
        Ok(())
    }

    async fn report(&self, cluster: &ClusterName, health: &Health) -> Result<(), ProviderError> {
        let Some((part, name)) = cluster.as_str().split_once(SEPARATOR) else {
            return Ok(());
        };
        match self.parts.get(part) {
            Some(provider) => provider.report(&ClusterName::new(name), health).await,
            None => Ok(()),
        }
    }
}

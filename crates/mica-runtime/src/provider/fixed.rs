//! Clusters that are known at the start.

use async_trait::async_trait;

use super::{ClusterSink, ClusterSpec, Provider, ProviderError};

/// A fixed set of clusters.
pub struct Static {
    name: String,
    clusters: Vec<ClusterSpec>,
}

impl Static {
    pub fn new(clusters: impl IntoIterator<Item = ClusterSpec>) -> Self {
        Self {
            name: "static".to_owned(),
            clusters: clusters.into_iter().collect(),
        }
    }

    /// Another name than `static`, where a fleet has several.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }
}

#[async_trait]
impl Provider for Static {
    fn name(&self) -> &str {
        &self.name
    }

    async fn run(&self, sink: ClusterSink) -> Result<(), ProviderError> {
        for cluster in &self.clusters {
            sink.upsert(cluster.clone());
        }
        sink.synced();
        Ok(())
    }
}

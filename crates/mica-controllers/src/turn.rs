//! Whether this replica works: asked before every item and every write.
//!
//! Of several replicas one has the turn, as the runtime's [`Ownership`] says. The others follow what happens, so that they can
//! begin at once, and change nothing.

use std::sync::Arc;

use mica_runtime::ClusterName;
use mica_runtime::ownership::{All, Epoch, Ownership, Tenure};

/// The turn at one server.
#[derive(Clone)]
pub struct Turn {
    ownership: Arc<dyn Ownership>,
    cluster: ClusterName,
}

impl Turn {
    pub fn new(ownership: Arc<dyn Ownership>, cluster: ClusterName) -> Self {
        Self { ownership, cluster }
    }

    /// There is no other replica.
    pub fn always() -> Self {
        Self::new(Arc::new(All::new()), ClusterName::local())
    }

    /// Whether work may begin.
    pub fn is_ours(&self) -> bool {
        self.ownership.owns(&self.cluster).is_some()
    }

    /// Whether what has begun may be written.
    pub fn may_write(&self) -> bool {
        self.epoch().is_some()
    }

    /// The epoch in which something may be written.
    pub fn epoch(&self) -> Option<Epoch> {
        self.ownership.holds(&self.cluster)
    }

    /// Begins work: no other replica does before the tenure is dropped.
    pub fn begin(&self) -> Option<Tenure> {
        self.ownership.begin(&self.cluster)
    }

    /// Waits until work may begin.
    pub async fn comes(&self) -> Epoch {
        self.until(|| self.ownership.owns(&self.cluster)).await
    }

    /// Waits until what began in an epoch may not be written any more.
    pub async fn goes(&self, epoch: Epoch) {
        self.until(|| (self.ownership.holds(&self.cluster) != Some(epoch)).then_some(()))
            .await;
    }

    async fn until<T>(&self, look: impl Fn() -> Option<T>) -> T {
        // Subscribed before the first look: what changes after it is heard.
        let mut changes = self.ownership.changes();
        loop {
            if let Some(found) = look() {
                return found;
            }
            if changes.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

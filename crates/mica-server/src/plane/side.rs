//! What writes to some kinds carry along in the same transaction.

use futures::future::BoxFuture;
use mica_store::{Compare, Key, Write};
use serde_json::Value;

use super::Plane;
use crate::error::ApiError;
use crate::scheme::Served;

/// Comparisons and writes that join a transaction.
#[derive(Clone, Debug, Default)]
pub struct Side {
    pub compares: Vec<Compare>,
    /// Comparisons on quotas: one that fails is no refusal, but means that the write is to be charged anew.
    pub quotas: Vec<Compare>,
    pub writes: Vec<Write>,
}

impl Side {
    /// Both of these.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.compares.extend(other.compares);
        self.quotas.extend(other.quotas);
        self.writes.extend(other.writes);
        self
    }
}

/// Hooks of the registry's writes. The directory of planes is the one implementation: a Plane object and the records that
/// make the plane usable change together.
pub trait SideWrites: Send + Sync + 'static {
    /// Completes a new object before it is prepared and validated; `None` where nothing is missing.
    fn complete<'a>(&'a self, served: &Served, new: &'a mut Value) -> Option<BoxFuture<'a, Result<(), ApiError>>>;

    fn on_create(&self, served: &Served, new: &Value) -> Result<Side, ApiError>;

    fn on_update(&self, served: &Served, new: &Value, old: &Value) -> Result<Side, ApiError>;

    /// The object goes for good.
    fn on_remove(&self, served: &Served, old: &Value) -> Result<Side, ApiError>;

    /// Whether a plane is as it was last heard of. False also where nothing is heard.
    fn is_known(&self, plane: &Plane) -> bool;

    /// The transaction is committed: the object's key, and the keys that were written along.
    fn committed(&self, key: &Key, side: &[Key]);
}

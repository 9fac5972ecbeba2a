//! A plane's definitions as the documents of OpenAPI need them: whole, and read only when a document is built.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use mica_api::PlaneId;
use mica_machinery::kind::custom::Standing;
use serde_json::Value;

use super::{Customs, Definitions};
use crate::error::ApiError;
use crate::openapi::Source;
use crate::plane::Plane;
use crate::scheme::Scheme;
use crate::stored::Content;
use crate::tenancy::Viewer;

/// The definitions of one plane, or those that root has for projects, as they were loaded.
pub struct Loaded<'a> {
    definitions: &'a Definitions,
    /// Whose they are.
    plane: PlaneId,
    customs: Customs,
    stale: AtomicBool,
}

impl<'a> Loaded<'a> {
    pub async fn new(definitions: &'a Definitions, plane: &Plane) -> Result<Self, ApiError> {
        Ok(Self {
            definitions,
            plane: plane.id,
            customs: definitions.of(plane).await?,
            stale: AtomicBool::new(false),
        })
    }

    /// What planes have in common, beside these built-in kinds.
    pub async fn platform(definitions: &'a Definitions, scheme: &Arc<Scheme>) -> Result<Self, ApiError> {
        Ok(Self {
            definitions,
            plane: PlaneId::ROOT,
            customs: definitions.platform(scheme).await?,
            stale: AtomicBool::new(false),
        })
    }

    /// What is shown in a view of root.
    pub async fn in_view(definitions: &'a Definitions, viewer: Viewer, scheme: &Arc<Scheme>) -> Result<Self, ApiError> {
        Ok(Self {
            definitions,
            plane: PlaneId::ROOT,
            customs: definitions.shown_to(viewer, scheme).await?,
            stale: AtomicBool::new(false),
        })
    }

    /// Whether they had changed when they were to be read. What was refused then is worth another try.
    pub fn is_stale(&self) -> bool {
        self.stale.load(Ordering::Relaxed)
    }
}

#[async_trait]
impl Source for Loaded<'_> {
    fn hash(&self) -> Option<[u8; 32]> {
        let set = self.customs.set();
        (!set.definitions().is_empty()).then(|| *set.hash())
    }

    async fn read(&self) -> Result<Vec<Value>, ApiError> {
        let mut found = Vec::new();
        for definition in self.customs.definitions() {
            let record = self.definitions.store.get(definition.key()).await?;
            // Other planes find what is built from these by the hash of what was loaded: it must be the same.
            let Some(record) = record.filter(|record| definition.is(record)) else {
                self.stale.store(true, Ordering::Relaxed);
                self.definitions.forget(self.plane);
                return Err(ApiError::unavailable("the definitions changed while they were read"));
            };
            let Some(stored) = Content::read(&record)?.object() else {
                continue;
            };
            let definition: Value = serde_json::from_slice(stored.json())
                .map_err(|error| ApiError::internal("stored data is damaged").because(error))?;
            if matches!(Standing::of(&definition), Standing::Established | Standing::Terminating) {
                found.push(definition);
            }
        }
        Ok(found)
    }
}

//! A plane's definitions as the documents of OpenAPI need them: whole, and read only when a document is built.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use mica_machinery::kind::custom::Standing;
use serde_json::Value;

use super::{Customs, Definitions, Pages};
use crate::error::ApiError;
use crate::openapi::Source;
use crate::plane::Plane;

/// The definitions of one plane, as they were loaded.
pub struct Loaded<'a> {
    definitions: &'a Definitions,
    plane: &'a Plane,
    customs: Arc<Customs>,
    stale: AtomicBool,
}

impl<'a> Loaded<'a> {
    pub async fn new(definitions: &'a Definitions, plane: &'a Plane) -> Result<Self, ApiError> {
        Ok(Self {
            definitions,
            plane,
            customs: definitions.of(plane).await?,
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
        let mut pages = Pages::new(self.plane);
        let (mut found, mut revisions) = (Vec::new(), Vec::new());
        while let Some(page) = pages.next(&*self.definitions.store).await? {
            for read in page {
                revisions.push(read.revision);
                let definition: Value = serde_json::from_slice(read.stored.json())
                    .map_err(|error| ApiError::internal("stored data is damaged").because(error))?;
                if matches!(Standing::of(&definition), Standing::Established | Standing::Terminating) {
                    found.push(definition);
                }
            }
        }
        // Other planes find what is built from these by the hash of what was loaded: it must be the same.
        if *revisions != *self.customs.revisions {
            self.stale.store(true, Ordering::Relaxed);
            self.definitions.forget(self.plane.id);
            return Err(ApiError::unavailable("the definitions changed while they were read"));
        }
        Ok(found)
    }
}

//! Custom objects from the version they are stored in to the one that is asked for, and back.
//!
//! What is done to objects before and after is `form`'s; here is who is asked.

use std::sync::Arc;

use mica_machinery::kind::custom::CustomKind;
use mica_machinery::object;
use mica_machinery::schema::Malformed;
use mica_store::{Key, Revision};
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use serde_json::Value;
use xxhash_rust::xxh3::xxh3_64;

use super::Registry;
use super::form::lost;
use crate::custom::Definition;
use crate::egress::Tenant;
use crate::error::ApiError;
use crate::plane::{Plane, State};
use crate::scheme::Served;
use crate::stored::Stored;

/// Asks webhooks for objects in other versions.
#[async_trait::async_trait]
pub trait Convert: Send + Sync + 'static {
    /// The objects in the version of `kind`, in the same order.
    async fn convert(&self, tenant: Tenant, kind: &CustomKind, objects: Vec<Value>) -> Result<Vec<Value>, ApiError>;
}

/// Knows no webhooks.
pub struct NoWebhooks;

#[async_trait::async_trait]
impl Convert for NoWebhooks {
    async fn convert(&self, _: Tenant, kind: &CustomKind, _: Vec<Value>) -> Result<Vec<Value>, ApiError> {
        let message = format!(
            "conversion webhook for {}, Kind={} failed: webhooks are not called here",
            kind.api_version(),
            kind.kind
        );
        Err(ApiError::internal_text(message))
    }
}

/// Whether a definition has a webhook convert its objects.
pub fn converts_by_webhook(kind: &CustomKind) -> bool {
    object::string(&kind.conversion, &["strategy"]) == "Webhook"
}

impl Registry {
    /// Objects in the version of `kind`, whatever versions they are in.
    pub(super) async fn in_version(
        &self,
        plane: Option<&Plane>,
        definition: Option<&Definition>,
        kind: &CustomKind,
        mut objects: Vec<Value>,
    ) -> Result<Vec<Value>, ApiError> {
        let wanted = kind.api_version();
        let differs = |object: &Value| object::string(object, &["apiVersion"]) != wanted;
        if converts_by_webhook(kind) && objects.iter().any(differs) {
            match plane {
                // What is being deleted goes as it is: a webhook that is gone must not hold its plane.
                Some(plane) if plane.state == State::Draining => {}
                Some(plane) => {
                    let home = definition.map_or(plane.id, |definition| definition.key().plane());
                    let tenant = Tenant::of_user(home, plane.id);
                    return self.convert.convert(tenant, kind, objects).await;
                }
                // Definitions differ from plane to plane: one's objects are not for another's webhook to see.
                None => return Err(ApiError::internal("no webhook converts objects of all planes")),
            }
        }
        for object in &mut objects {
            object::set(object, &["apiVersion"], wanted.as_str());
        }
        Ok(objects)
    }

    /// A whole object in another version, for its managers to be compared in.
    pub(crate) async fn in_manager_version(
        &self,
        plane: &Plane,
        definition: Option<&Definition>,
        kind: &CustomKind,
        object: Value,
    ) -> Result<Value, ApiError> {
        let converted = self.in_version(Some(plane), definition, kind, vec![object]).await?;
        let mut object = converted.into_iter().next().ok_or_else(lost)?;
        let prepared = kind.schema.prepare(&mut object, Malformed::Drop);
        prepared.map_err(|error| ApiError::internal_text(error.to_string()))?;
        Ok(object)
    }

    /// The object that a change left or took away, for a watch: the webhook is asked once, however many watch.
    pub(crate) async fn present_event(
        &self,
        plane: &Plane,
        served: &Served,
        definition: Option<&Definition>,
        key: &Key,
        stored: Stored,
    ) -> Result<Stored, ApiError> {
        let Some(kind) = served.custom_kind() else {
            return Ok(stored);
        };
        let rules = serde_json::to_vec(&kind.conversion).unwrap_or_default();
        let id = EventId {
            key: key.clone(),
            revision: stored.revision,
            normaliser: served.normaliser,
            conversion: xxh3_64(&rules),
        };
        let asking = self
            .events
            .get_or_insert_async(&id, self.present(plane, served, definition, stored));
        asking.await
    }
}

/// Bytes of converted objects that are kept for the watchers of the same change, who all want them within moments.
const EVENT_BYTES: u64 = 16 << 20;
const EVENTS: usize = 1024;

/// One object at one revision, in one version by one set of rules.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct EventId {
    key: Key,
    revision: Revision,
    normaliser: u64,
    conversion: u64,
}

#[derive(Clone)]
pub(super) struct ByBytes;

impl Weighter<EventId, Stored> for ByBytes {
    fn weight(&self, _: &EventId, stored: &Stored) -> u64 {
        stored.json().len() as u64 + 256
    }
}

/// Converted objects of recent changes.
pub(super) type Events = Arc<Cache<EventId, Stored, ByBytes>>;

pub(super) fn events() -> Events {
    Arc::new(Cache::with_weighter(EVENTS, EVENT_BYTES, ByBytes))
}

//! Whether flow schemas lead to a level that exists: written into their status, as upstream's controller does.
//!
//! Follows the schemas and levels of all planes. What planes are born with says so already.

use std::sync::Arc;

use mica_api::PlaneId;
use mica_machinery::field::quote;
use mica_machinery::object;
use mica_store::{Key, KeyRange, Record, Signal, Store, Watch, WatchError};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::flows::{GROUP, LEVELS, PAGE, SCHEMAS, resource};
use crate::error::ApiError;
use crate::follow;
use crate::pages::Pages;
use crate::plane::directory::Directory;
use crate::plane::{Own, Plane, State};
use crate::registry::Registry;
use crate::stored::Content;

/// Who upstream records for it.
const MANAGER: &str = "api-priority-and-fairness-config-consumer-v1";

pub struct Dangling {
    pub store: Arc<dyn Store>,
    pub registry: Registry,
    pub directory: Arc<Directory>,
}

impl Dangling {
    pub async fn run(self, stop: CancellationToken) {
        follow::again(&stop, "the levels of flow schemas", || self.follow()).await;
    }

    async fn follow(&self) -> Result<(), ApiError> {
        let [schemas, levels] = [SCHEMAS, LEVELS].map(|plural| KeyRange::AllPlanes(resource(plural)));
        let mut pages = Pages::new(&*self.store, &schemas, PAGE);
        while let Some(page) = pages.next().await? {
            for (key, record) in &page {
                self.consider(key, record).await;
            }
        }
        let mut schema_changes = self.store.watch(schemas.clone(), pages.revision()).await?;
        let mut level_changes = self.store.watch(levels.clone(), pages.revision()).await?;
        loop {
            let changed = tokio::select! {
                changed = next(&mut schema_changes) => changed,
                changed = next(&mut level_changes) => changed,
            };
            let (key, record) = match changed {
                Ok(Some(changed)) => changed,
                Ok(None) => continue,
                Err(WatchError::Closed) => return Ok(()),
                Err(error) => return Err(ApiError::unavailable("a watch ended").because(error)),
            };
            if key.group_resource() == resource(LEVELS) {
                self.consider_all(key.plane()).await?;
            } else if let Some(record) = record {
                self.consider(&key, &record).await;
            }
        }
    }

    /// Looks at all of a plane's own schemas again: one of its levels came or went.
    async fn consider_all(&self, plane: PlaneId) -> Result<(), ApiError> {
        let range = KeyRange::Resource(plane, resource(SCHEMAS));
        let mut pages = Pages::new(&*self.store, &range, PAGE);
        while let Some(page) = pages.next().await? {
            for (key, record) in &page {
                self.consider(key, record).await;
            }
        }
        Ok(())
    }

    /// Looks at one schema. What fails is looked at again when it changes.
    async fn consider(&self, key: &Key, record: &Record) {
        let schema = match Content::read(record).map(Content::object) {
            Ok(Some(stored)) => serde_json::from_slice::<Value>(stored.json()).unwrap_or_default(),
            _ => return,
        };
        if let Err(error) = self.settle(key, &schema).await
            && error.code() != http::StatusCode::NOT_FOUND
        {
            tracing::debug!(schema = key.name(), %error, "the status of a flow schema could not be written");
        }
    }

    async fn settle(&self, key: &Key, schema: &Value) -> Result<(), ApiError> {
        let Some(plane) = self.directory.by_id(key.plane()).await? else {
            return Ok(());
        };
        if plane.state != State::Active {
            return Ok(());
        }
        let level = object::string(schema, &["spec", "priorityLevelConfiguration", "name"]);
        let condition = condition(level, self.exists(&plane, level).await?);
        let conditions = object::list(schema, &["status", "conditions"]);
        let same = |one: &&Value| {
            ["type", "status", "reason", "message"]
                .iter()
                .all(|field| one[*field] == condition[*field])
        };
        if conditions.iter().find(same).is_some() {
            return Ok(());
        }
        self.tell(&plane, key.name(), condition).await
    }

    async fn exists(&self, plane: &Plane, level: &str) -> Result<bool, ApiError> {
        let resource = resource(LEVELS);
        let key = plane.keys().object(&resource, None, level);
        Ok(match self.store.get(&key).await? {
            Some(record) => !matches!(plane.read(&key, &record)?, Own::Nothing),
            None => plane.base.contains(&resource, level),
        })
    }

    async fn tell(&self, plane: &Arc<Plane>, name: &str, mut condition: Value) -> Result<(), ApiError> {
        let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        condition["lastTransitionTime"] = now.into();
        let status = json!({"conditions": [condition]});
        let of = (GROUP, "v1", SCHEMAS);
        self.registry.apply_status(plane, of, name, status, MANAGER).await
    }
}

/// The next change: what is there now, `None` for what went. Nothing for planes that were dropped.
async fn next(changes: &mut Watch) -> Result<Option<(Key, Option<Record>)>, WatchError> {
    Ok(match changes.next().await? {
        Signal::Event(event) => Some((event.key.clone(), event.current())),
        Signal::Dropped(..) => None,
    })
}

/// What upstream says.
fn condition(level: &str, exists: bool) -> Value {
    let level = quote(level);
    let (status, reason, fate) = if exists {
        ("False", "Found", "and it exists")
    } else {
        ("True", "NotFound", "but there is no such object")
    };
    let message = format!("This FlowSchema references the PriorityLevelConfiguration object named {level} {fate}");
    json!({"type": "Dangling", "status": status, "reason": reason, "message": message})
}

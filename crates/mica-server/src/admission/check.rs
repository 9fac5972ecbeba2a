//! Type checks of policies, in the background: what upstream's controller manager does.
//!
//! Follows the ValidatingAdmissionPolicies of all planes and writes what is wrong with one into its status, once for each of
//! its generations. One policy is checked at a time: checking takes a processor, and nobody waits for it.

use std::sync::Arc;

use mica_api::GroupResource;
use mica_machinery::admission::typecheck::{self, Typed};
use mica_machinery::object;
use mica_store::{Key, KeyRange, Record, Signal, Store, WatchError};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{GROUP, VALIDATING_POLICIES};
use crate::custom::Definitions;
use crate::error::ApiError;
use crate::follow;
use crate::pages::Pages;
use crate::plane::directory::Directory;
use crate::plane::{Plane, State};
use crate::registry::Registry;
use crate::scheme::Form;
use crate::stored::Content;

const MANAGER: &str = "validatingadmissionpolicy-status";
const PAGE: usize = 100;

/// Checks policies.
pub struct Checker {
    pub store: Arc<dyn Store>,
    pub registry: Registry,
    pub directory: Arc<Directory>,
    pub definitions: Arc<Definitions>,
}

impl Checker {
    pub async fn run(self, stop: CancellationToken) {
        follow::again(&stop, "type checks of policies", || self.follow()).await;
    }

    async fn follow(&self) -> Result<(), ApiError> {
        let range = KeyRange::AllPlanes(GroupResource::new(GROUP, VALIDATING_POLICIES));
        let mut pages = Pages::new(&*self.store, &range, PAGE);
        while let Some(page) = pages.next().await? {
            for (key, record) in &page {
                self.consider(key, record).await;
            }
        }
        let mut changes = self.store.watch(range.clone(), pages.revision()).await?;
        loop {
            match changes.next().await {
                Ok(Signal::Event(event)) => {
                    if let Some(record) = event.current() {
                        self.consider(&event.key, &record).await;
                    }
                }
                Ok(Signal::Dropped(..)) => {}
                Err(WatchError::Closed) => return Ok(()),
                Err(error) => return Err(ApiError::unavailable("a watch ended").because(error)),
            }
        }
    }

    /// Checks a policy whose status is not of its generation. What fails is looked at again when it changes.
    async fn consider(&self, key: &Key, record: &Record) {
        let policy = match Content::read(record).map(Content::object) {
            Ok(Some(stored)) => serde_json::from_slice::<Value>(stored.json()).unwrap_or_default(),
            _ => return,
        };
        let generation = object::int(&policy, &["metadata", "generation"]).unwrap_or_default();
        if object::int(&policy, &["status", "observedGeneration"]) == Some(generation) {
            return;
        }
        if let Err(error) = self.check(key, policy, generation).await
            && error.code() != http::StatusCode::NOT_FOUND
        {
            tracing::debug!(policy = key.name(), %error, "a policy could not be checked");
        }
    }

    async fn check(&self, key: &Key, policy: Value, generation: i64) -> Result<(), ApiError> {
        let plane = self.directory.by_id(key.plane()).await?;
        let Some(plane) = plane.filter(|plane| plane.state == State::Active) else {
            return Ok(());
        };
        let mut kinds = Vec::new();
        for (group, version, plural) in typecheck::resources(&policy) {
            let named = |g: &str, v: &str, p: &str, _: &str| (g, v, p) == (&group, &version, &plural);
            kinds.extend(self.typed(&plane, &named).await?);
        }
        let api_version = object::string(&policy, &["spec", "paramKind", "apiVersion"]).to_owned();
        let param = object::string(&policy, &["spec", "paramKind", "kind"]).to_owned();
        let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
        let params = match param.as_str() {
            "" => None,
            kind => {
                let named = |g: &str, v: &str, _: &str, k: &str| (g, v, k) == (group, version, kind);
                self.typed(&plane, &named).await?
            }
        };
        let checking = tokio::task::spawn_blocking(move || typecheck::warnings(&policy, &kinds, params.as_ref()));
        let warnings = checking
            .await
            .map_err(|error| ApiError::internal("a policy could not be checked").because(error))?;
        self.tell(&plane, key.name(), generation, warnings).await
    }

    /// The first kind whose group, version, plural and kind are wanted.
    async fn typed(
        &self,
        plane: &Plane,
        wanted: &(dyn Fn(&str, &str, &str, &str) -> bool + Sync),
    ) -> Result<Option<Typed>, ApiError> {
        for served in plane.scheme.iter() {
            let (group, version, kind) = (served.group(), served.version(), served.kind());
            if let Form::BuiltIn { ty, .. } = served.form()
                && wanted(group, version, served.plural(), kind)
            {
                return Ok(Some(Typed::built_in(group, version, kind, *ty)));
            }
        }
        for definition in self.definitions.of(plane).await?.definitions() {
            for served in definition.versions() {
                let (group, version, kind) = (served.group(), served.version(), served.kind());
                if !wanted(group, version, served.plural(), kind) {
                    continue;
                }
                let Some(record) = self.store.get(definition.key()).await? else {
                    return Ok(None);
                };
                let Some(stored) = Content::read(&record)?.object() else {
                    return Ok(None);
                };
                let stored: Value = serde_json::from_slice(stored.json()).unwrap_or_default();
                let versions = object::list(&stored, &["spec", "versions"]).iter();
                let mut schemas = versions.filter(|one| object::string(one, &["name"]) == version);
                let null = Value::Null;
                let schema = schemas
                    .next()
                    .and_then(|one| object::get(one, &["schema", "openAPIV3Schema"]));
                return Ok(Some(Typed::custom(group, version, kind, schema.unwrap_or(&null))));
            }
        }
        Ok(None)
    }

    /// Writes what was found into the policy's status.
    async fn tell(
        &self,
        plane: &Arc<Plane>,
        name: &str,
        generation: i64,
        warnings: Vec<Value>,
    ) -> Result<(), ApiError> {
        let checked = if warnings.is_empty() {
            json!({})
        } else {
            json!({"expressionWarnings": warnings})
        };
        let status = json!({"observedGeneration": generation, "typeChecking": checked});
        let of = (GROUP, "v1", VALIDATING_POLICIES);
        self.registry.apply_status(plane, of, name, status, MANAGER).await
    }
}

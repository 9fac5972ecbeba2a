//! Empties planes that are being deleted, in an order that cannot deadlock, and lets them go.
//!
//! Objects go before what they need: first everything else, then namespaces, then definitions of custom resources, then
//! service accounts and RBAC, so that controllers keep their identities and permissions until nothing waits for them.
//! Finalizers are honoured; what blocks is named in the Plane's `Drained` condition.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use mica_machinery::kind::extension::definition;
use mica_machinery::meta::DeleteOptions;
use mica_machinery::object;
use mica_store::{Key, KeyRange, RangeQuery, Record, Revision, Store, Watch};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Plane;
use super::directory::{Directory, plane_key};
use super::kind::{FINALIZER, GROUP, PLURAL, RESTORING, VERSION, set_condition};
use crate::authz::{self, Grant, Target};
use crate::custom::Definitions;
use crate::error::ApiError;
use crate::follow;
use crate::registry::owner::is_internal;
use crate::registry::{Deleted, Registry, stored_value};
use crate::request::Verb;
use crate::scheme::Served;
use crate::stored::Content;

/// Planes drained at once. Each holds one page of keys.
const CONCURRENT: usize = 64;
/// How soon a plane that waits for finalizers is looked at again, at first and at most.
const FIRST_LOOK: Duration = Duration::from_millis(100);
const LAST_LOOK: Duration = Duration::from_secs(15);
/// Keys read at once.
const PAGE: usize = 500;
/// Objects of one plane deleted at once: they share the store's commits.
const DELETIONS: usize = 16;

/// The loop that drains planes.
#[derive(Clone)]
pub struct Drainer {
    store: Arc<dyn Store>,
    registry: Registry,
    directory: Arc<Directory>,
    definitions: Arc<Definitions>,
    /// Ids of the planes being drained now.
    active: Arc<Mutex<HashSet<String>>>,
    slots: Arc<Semaphore>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// When a class of resources goes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Stage {
    Content,
    Namespaces,
    Definitions,
    Identities,
}

const STAGES: [Stage; 4] = [Stage::Content, Stage::Namespaces, Stage::Definitions, Stage::Identities];

impl Stage {
    fn of(resource: &str) -> Self {
        match resource {
            "/namespaces" => Self::Namespaces,
            "apiextensions.k8s.io/customresourcedefinitions" => Self::Definitions,
            "/serviceaccounts" => Self::Identities,
            other if other.starts_with("rbac.authorization.k8s.io/") => Self::Identities,
            _ => Self::Content,
        }
    }
}

impl Drainer {
    pub fn new(
        store: Arc<dyn Store>,
        registry: Registry,
        directory: Arc<Directory>,
        definitions: Arc<Definitions>,
        stop: CancellationToken,
    ) -> Self {
        Self {
            store,
            registry,
            directory,
            definitions,
            active: Arc::default(),
            slots: Arc::new(Semaphore::new(CONCURRENT)),
            tasks: TaskTracker::new(),
            stop,
        }
    }

    /// Runs until stopped. Every server of a shared store runs one: a lost race just means that another one drains.
    pub async fn run(self) {
        let planes = mica_api::GroupResource::new(GROUP, PLURAL);
        let range = KeyRange::Resource(mica_api::PlaneId::ROOT, planes);
        let seen = |key: &Key, record: &Record| self.consider(key, record);
        follow::records(&*self.store, &range, &self.stop, "draining planes", seen).await;
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Starts draining a plane if it is being deleted and nobody here drains it yet.
    fn consider(&self, key: &Key, record: &Record) {
        let Ok(Content::Object(stored)) = Content::read(record) else {
            return;
        };
        let deleting = mica_machinery::select::text_at(stored.json(), &["metadata", "deletionTimestamp"]).is_some();
        let id = mica_machinery::select::text_at(stored.json(), &["status", "id"]).unwrap_or_default();
        if !deleting || !self.active.lock().insert(id.to_string()) {
            return;
        }
        let (drainer, name, id) = (self.clone(), key.name().to_owned(), id.to_string());
        self.tasks.spawn(async move {
            tokio::select! {
                () = drainer.stop.cancelled() => {}
                () = drainer.drain_until_gone(&name) => {}
            }
            drainer.active.lock().remove(&id);
        });
    }

    async fn drain_until_gone(&self, name: &str) {
        let mut pause = FIRST_LOOK;
        loop {
            let slot = self.slots.acquire().await.expect("the semaphore is never closed");
            let progress = self.drain(name).await;
            drop(slot);
            match progress {
                Ok(Progress::Gone) => return,
                Ok(Progress::Blocked(mut changes)) => {
                    // A change in the plane is looked at soon, but not each of many changes.
                    tokio::time::sleep(FIRST_LOOK).await;
                    let _ = tokio::time::timeout(pause, changes.next()).await;
                }
                Err(error) => {
                    tracing::warn!(plane = name, %error, "draining a plane failed; trying again");
                    tokio::time::sleep(pause).await;
                }
            }
            pause = (pause * 2).min(LAST_LOOK);
        }
    }

    /// One pass over a plane.
    async fn drain(&self, name: &str) -> Result<Progress, ApiError> {
        self.directory.forget(name);
        let plane = match self.directory.by_name(name).await {
            Ok(plane) => plane,
            Err(error) if error.code() == http::StatusCode::NOT_FOUND => return Ok(Progress::Gone),
            Err(error) => return Err(error),
        };
        if plane.state != super::State::Draining {
            return Ok(Progress::Gone);
        }
        if self.was_never_whole(name).await? {
            return self.release(name).await;
        }
        for stage in STAGES {
            let pass = self.empty(&plane, stage).await?;
            if let Some(blocking) = pass.blocking {
                self.report(name, &blocking).await?;
                return Ok(Progress::Blocked(
                    self.store.watch(plane.keys().all(), pass.since).await?,
                ));
            }
            if pass.later == Later::Nothing {
                break;
            }
        }
        self.release(name).await
    }

    /// Whether a plane is deleted that was still being filled. Nothing in it was ever used: its finalizers bind nobody.
    async fn was_never_whole(&self, name: &str) -> Result<bool, ApiError> {
        let Some(record) = self.store.get(&plane_key(name)).await? else {
            return Ok(false);
        };
        let Some(stored) = Content::read(&record)?.object() else {
            return Ok(false);
        };
        if mica_machinery::select::text_at(stored.json(), &["metadata", "annotations", RESTORING]).is_some() {
            return Ok(true);
        }
        // Nor in one that never opened here, and what has moved is in use elsewhere.
        let state = mica_machinery::select::text_at(stored.json(), &["spec", "state"]);
        Ok(state.is_some_and(|state| state == "Arriving" || state == "Moved"))
    }

    /// Deletes what a stage still holds.
    async fn empty(&self, plane: &Arc<Plane>, stage: Stage) -> Result<Pass, ApiError> {
        let range = plane.keys().all();
        let mut after: Option<Key> = None;
        let mut pass: Option<Pass> = None;
        loop {
            let page = self
                .store
                .range(RangeQuery {
                    range: &range,
                    at: None,
                    after: after.as_ref(),
                    limit: PAGE,
                })
                .await?;
            let pass = pass.get_or_insert(Pass {
                since: page.revision,
                blocking: None,
                later: Later::Nothing,
            });
            let mut doomed = Vec::new();
            for (key, record) in &page.records {
                // Our own records about objects go with those.
                if is_internal(key) || !matches!(Content::read(record)?, Content::Object(_)) {
                    continue;
                }
                match Stage::of(key.resource()).cmp(&stage) {
                    Ordering::Equal => doomed.push(key.clone()),
                    Ordering::Greater => pass.later = Later::Something,
                    Ordering::Less => {}
                }
            }
            let deletions = stream::iter(doomed).map(|key| async move { self.delete(plane, &key).await });
            let waiting: Vec<Option<String>> = deletions.buffered(DELETIONS).try_collect().await?;
            pass.blocking = pass.blocking.take().or(waiting.into_iter().flatten().next());
            match page.records.last() {
                Some((key, _)) if page.more => after = Some(key.clone()),
                _ => break,
            }
        }
        Ok(pass.expect("at least one page was read"))
    }

    async fn delete(&self, plane: &Arc<Plane>, key: &Key) -> Result<Option<String>, ApiError> {
        let (served, definition) = match plane.scheme.by_storage(key.resource()) {
            Some(served) => (served.clone(), None),
            None => match self.definitions.of(plane).await?.by_storage(key.resource()) {
                Some((served, definition)) => (served, Some(definition)),
                // What nobody serves any more has nobody who could hold it: the drop takes it.
                None => return Ok(None),
            },
        };
        let served = &served;
        let mut grant = self.grant(Verb::Delete, plane, served, key.namespace(), key.name(), "");
        grant.target.definition = definition;
        let background = DeleteOptions {
            propagation_policy: Some("Background".to_owned()),
            ..DeleteOptions::default()
        };
        match self.registry.delete_any(&grant, &background).await {
            Ok(Deleted::Gone(_)) => Ok(None),
            Ok(Deleted::Waiting(stored)) => {
                let value = stored_value(served, &stored)?;
                if served.is_namespaces() {
                    return self.finalize_namespace(plane, served, key.name(), &value).await;
                }
                if served.is_definitions() {
                    // Its instances went before it.
                    let grant = self.grant(Verb::Patch, plane, served, None, key.name(), "status");
                    let now = jiff::Timestamp::now();
                    match self
                        .change(&grant, &|definition| definition::removed(&definition, now))
                        .await
                    {
                        Ok(()) => {}
                        Err(error) if error.code() == http::StatusCode::NOT_FOUND => return Ok(None),
                        Err(error) => return Err(error),
                    }
                    let finalizers = object::list(&value, &["metadata", "finalizers"]);
                    let held = finalizers.iter().any(|one| one != definition::CLEANUP_FINALIZER);
                    return Ok(held.then(|| describe(served, key, &value)));
                }
                Ok(Some(describe(served, key, &value)))
            }
            Err(error) if error.code() == http::StatusCode::NOT_FOUND => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A namespace whose content is gone loses its own finalizer; others on it are honoured.
    async fn finalize_namespace(
        &self,
        plane: &Arc<Plane>,
        served: &Arc<Served>,
        name: &str,
        value: &Value,
    ) -> Result<Option<String>, ApiError> {
        let grant = self.grant(Verb::Patch, plane, served, None, name, "finalize");
        let finalize = |mut namespace: Value| {
            let mut left = object::list(&namespace, &["spec", "finalizers"]).to_vec();
            left.retain(|finalizer| finalizer != "kubernetes");
            object::set(&mut namespace, &["spec", "finalizers"], left);
            namespace
        };
        match self.change(&grant, &finalize).await {
            Ok(()) => {}
            Err(error) if error.code() == http::StatusCode::NOT_FOUND => return Ok(None),
            Err(error) => return Err(error),
        }
        let held = !object::list(value, &["metadata", "finalizers"]).is_empty()
            || object::list(value, &["spec", "finalizers"])
                .iter()
                .any(|finalizer| finalizer != "kubernetes");
        Ok(held.then(|| {
            let key = plane.keys().object(&served.storage, None, name);
            describe(served, &key, value)
        }))
    }

    /// Says on the Plane what its deletion waits for.
    async fn report(&self, name: &str, blocking: &str) -> Result<(), ApiError> {
        let now = jiff::Timestamp::now();
        let say = |mut plane: Value| {
            set_condition(&mut plane, "Drained", "False", "FinalizersRemaining", blocking, &now);
            plane
        };
        self.change(&self.plane_grant(name, "status")?, &say).await
    }

    /// Takes our finalizer off the Plane: its records and its range go with it, unless others hold it.
    async fn release(&self, name: &str) -> Result<Progress, ApiError> {
        let release = |mut plane: Value| {
            let mut left = object::list(&plane, &["metadata", "finalizers"]).to_vec();
            left.retain(|finalizer| finalizer != FINALIZER);
            object::set(&mut plane, &["metadata", "finalizers"], left);
            plane
        };
        match self.change(&self.plane_grant(name, "")?, &release).await {
            Ok(()) => Ok(Progress::Gone),
            Err(error) if error.code() == http::StatusCode::NOT_FOUND => Ok(Progress::Gone),
            Err(error) => Err(error),
        }
    }

    async fn change(&self, grant: &Grant, change: &(dyn Fn(Value) -> Value + Send + Sync)) -> Result<(), ApiError> {
        self.registry.change(grant, "mica-drain", change).await
    }

    fn plane_grant(&self, name: &str, subresource: &str) -> Result<Grant, ApiError> {
        let root = self.directory.root();
        let served = root.scheme.find(GROUP, VERSION, PLURAL).cloned();
        let served = served.ok_or_else(|| ApiError::internal("root does not serve planes"))?;
        Ok(self.grant(Verb::Patch, &root, &served, None, name, subresource))
    }

    fn grant(
        &self,
        verb: Verb,
        plane: &Arc<Plane>,
        served: &Arc<Served>,
        namespace: Option<&str>,
        name: &str,
        subresource: &str,
    ) -> Grant {
        let target = Target {
            plane: plane.clone(),
            served: served.clone(),
            namespace: namespace.map(Into::into),
            name: Some(name.into()),
            subresource: subresource.into(),
            definition: None,
            within: None,
        };
        authz::system(verb, target)
    }
}

enum Progress {
    Gone,
    /// Something waits for its finalizers. The watch tells of changes in the plane since this was found.
    Blocked(Watch),
}

/// What one pass over a plane for one stage found.
struct Pass {
    /// The state that it began with.
    since: Revision,
    /// What waits for its finalizers, described.
    blocking: Option<String>,
    later: Later,
}

/// Whether a plane holds anything of later stages.
#[derive(PartialEq, Eq)]
enum Later {
    Nothing,
    Something,
}

/// Names an object that waits, and what it waits for.
fn describe(served: &Served, key: &Key, value: &Value) -> String {
    let mut finalizers: Vec<&str> = object::list(value, &["metadata", "finalizers"])
        .iter()
        .filter_map(Value::as_str)
        .collect();
    finalizers.extend(
        object::list(value, &["spec", "finalizers"])
            .iter()
            .filter_map(Value::as_str),
    );
    let place = key
        .namespace()
        .map(|namespace| format!(" in namespace \"{namespace}\""))
        .unwrap_or_default();
    format!(
        "{} \"{}\"{place} waits for finalizers: {}",
        served.name,
        key.name(),
        finalizers.join(", ")
    )
}

//! The loop that settles definitions: accepts their names, establishes them, and takes their instances away with them.
//!
//! Every write of a definition leaves a record that there is work ([`pending`]), in the same transaction and the same
//! plane. The loop follows these records over all planes and removes each when its work is done, so that a start looks at
//! what is unfinished and not at every definition there is. Every server of a shared store runs one: a lost race just means
//! that another one did the work.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use mica_api::{GroupResource, PlaneId};
use mica_machinery::kind::custom::Standing;
use mica_machinery::kind::extension::definition;
use mica_machinery::meta::DeleteOptions;
use mica_machinery::object;
use mica_store::{Compare, Key, KeyRange, PlaneKeys, RangeQuery, Record, Store, Txn, Watch, Write};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{Definitions, definitions};
use crate::authz::{self, Grant, Target};
use crate::error::ApiError;
use crate::follow;
use crate::pages::Pages;
use crate::plane::Plane;
use crate::plane::directory::Directory;
use crate::registry::owner::INTERNAL_GROUP;
use crate::registry::{Deleted, Registry, stored_value};
use crate::request::Verb;
use crate::scheme::Served;
use crate::stored::Stored;

/// Definitions settled at once.
const CONCURRENT: usize = 32;
/// Instances of one definition deleted at once: they share the store's commits.
const DELETIONS: usize = 16;
/// Records read at once.
const PAGE: usize = 500;
/// How soon unfinished work is looked at again, at first and at most.
const FIRST_LOOK: Duration = Duration::from_millis(50);
const LAST_LOOK: Duration = Duration::from_secs(15);
/// Who is recorded in managedFields: upstream's name for the server itself.
const MANAGER: &str = "kube-apiserver";

fn work() -> GroupResource {
    GroupResource::new(INTERNAL_GROUP, "definitions")
}

/// Where it is recorded that the definition at a key has to be looked at.
pub(super) fn record_of(definition: &Key) -> Key {
    PlaneKeys::new(definition.plane()).object(&work(), None, definition.name())
}

/// The record that the definition at a key has to be looked at.
pub fn pending(definition: &Key) -> Write {
    Write::Put {
        key: record_of(definition),
        value: bytes::Bytes::new(),
        ttl: None,
    }
}

#[derive(Clone)]
pub struct Worker {
    store: Arc<dyn Store>,
    registry: Registry,
    directory: Arc<Directory>,
    definitions: Arc<Definitions>,
    /// The records that are being worked on.
    active: Arc<Mutex<HashSet<Key>>>,
    slots: Arc<Semaphore>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

enum Progress {
    Done,
    /// Instances wait for their finalizers. The watch tells of changes among them since this was found.
    Blocked(Watch),
}

/// One definition of a plane: enough of it to tell who has which names.
#[derive(Deserialize)]
struct Named {
    spec: Group,
    #[serde(default)]
    status: Value,
}

#[derive(Deserialize)]
struct Group {
    group: String,
}

impl Worker {
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

    /// Runs until stopped.
    pub async fn run(self) {
        let range = KeyRange::AllPlanes(work());
        let seen = |key: &Key, _: &Record| self.consider(key);
        follow::records(&*self.store, &range, &self.stop, "settling definitions", seen).await;
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Starts on a record, unless somebody here is at it: who is looks again before it stops.
    fn consider(&self, record: &Key) {
        if !self.active.lock().insert(record.clone()) {
            return;
        }
        let (worker, record) = (self.clone(), record.clone());
        self.tasks.spawn(async move {
            tokio::select! {
                () = worker.stop.cancelled() => {}
                () = worker.work_until_done(&record) => {}
            }
        });
    }

    async fn work_until_done(&self, record: &Key) {
        let mut pause = FIRST_LOOK;
        loop {
            let slot = self.slots.acquire().await.expect("the semaphore is never closed");
            let progress = self.work(record).await;
            drop(slot);
            match progress {
                // What came meanwhile is seen here or starts anew: the record's place is freed before the last look.
                Ok(Progress::Done) => {
                    self.active.lock().remove(record);
                    match self.store.get(record).await {
                        Ok(None) => return,
                        _ if !self.active.lock().insert(record.clone()) => return,
                        _ => {}
                    }
                    continue;
                }
                Ok(Progress::Blocked(mut changes)) => {
                    let _ = tokio::time::timeout(pause, changes.next()).await;
                    // A change is looked at soon, but not each of many changes.
                    tokio::time::sleep(FIRST_LOOK).await;
                }
                Err(error) if error.is_stale_plane() => self.refresh(record.plane()).await,
                Err(error) => {
                    tracing::warn!(definition = record.name(), %error, "settling a definition failed; trying again");
                    tokio::time::sleep(pause).await;
                    self.refresh(record.plane()).await;
                }
            }
            pause = (pause * 2).min(LAST_LOOK);
        }
    }

    /// Forgets what is believed of a plane.
    async fn refresh(&self, plane: PlaneId) {
        self.definitions.forget(plane);
        if let Ok(Some(name)) = self.directory.name_of(plane).await {
            self.directory.forget(&name);
        }
    }

    /// Does what a record asks for, and removes it.
    async fn work(&self, record: &Key) -> Result<Progress, ApiError> {
        let Some(asked) = self.store.get(record).await? else {
            return Ok(Progress::Done);
        };
        if let Some(plane) = self.directory.by_id(record.plane()).await?
            && let Progress::Blocked(changes) = self.settle(&plane, record.name()).await?
        {
            return Ok(Progress::Blocked(changes));
        }
        let txn = Txn {
            compares: vec![Compare::Unchanged(record.clone(), asked.revision)],
            writes: vec![Write::Delete { key: record.clone() }],
        };
        match self.store.commit(txn).await {
            // Somebody wrote the definition meanwhile: there is a new record, and more work.
            Ok(_) | Err(mica_store::CommitError::Conflict { .. }) => Ok(Progress::Done),
            Err(error) => Err(error.into()),
        }
    }

    async fn settle(&self, plane: &Arc<Plane>, name: &str) -> Result<Progress, ApiError> {
        let status = self.grant(Verb::Patch, plane, name, "status")?;
        let group = name.split_once('.').map_or("", |(_, group)| group);
        let definition = match self.registry.get(&status, "").await {
            Ok(stored) => stored_value(&status.target.served, &stored)?,
            Err(error) if error.code() == http::StatusCode::NOT_FOUND => {
                // Its names are free now.
                self.reconsider(plane, group, name).await?;
                return Ok(Progress::Done);
            }
            Err(error) => return Err(error),
        };
        let now = jiff::Timestamp::now();
        let leaving = object::get(&definition, &["metadata", "deletionTimestamp"]).is_some();
        if leaving && has_cleanup(&definition) {
            return self.take_away(plane, &status, &definition).await;
        }
        let others: Vec<Value> = self
            .group(plane, group, name)
            .await?
            .into_iter()
            .map(|(_, other)| other)
            .collect();
        if let Some(settled) = definition::settled(&definition, &others, now) {
            let names = |definition: &Value| definition["status"]["acceptedNames"].clone();
            // Computed again on what is there: somebody may have written since.
            let change = |present: Value| definition::settled(&present, &others, now).unwrap_or(present);
            found(self.registry.change(&status, MANAGER, &change).await)?;
            if names(&settled) != names(&definition) {
                self.reconsider(plane, group, name).await?;
            }
        }
        Ok(Progress::Done)
    }

    /// Deletes the instances of a definition that is being deleted, and lets it go when none is left.
    async fn take_away(&self, plane: &Arc<Plane>, status: &Grant, definition: &Value) -> Result<Progress, ApiError> {
        let now = jiff::Timestamp::now();
        if matches!(Standing::of(definition), Standing::Established | Standing::Terminating) {
            // From this write on nobody can create instances: writes compare their definition.
            let say = |mut present: Value| {
                let why = ["InstanceDeletionInProgress", "CustomResource deletion is in progress"];
                definition::set_condition(&mut present, "Terminating", "True", why, now);
                present
            };
            found(self.registry.change(status, MANAGER, &say).await)?;
            self.definitions.forget(plane.id);
            if let Some(changes) = self.delete_instances(plane, definition).await? {
                return Ok(Progress::Blocked(changes));
            }
        }
        let go = |present: Value| definition::removed(&present, now);
        found(self.registry.change(status, MANAGER, &go).await)?;
        self.definitions.forget(plane.id);
        Ok(Progress::Done)
    }

    /// Deletes what can go. Where something waits for its finalizers, a watch on the rest.
    async fn delete_instances(&self, plane: &Arc<Plane>, definition: &Value) -> Result<Option<Watch>, ApiError> {
        let storage = GroupResource::new(
            object::string(definition, &["spec", "group"]),
            object::string(definition, &["spec", "names", "plural"]),
        );
        let own = plane.keys().object(&definitions(), None, object::name(definition));
        // What root defines may have instances in other planes.
        let range = if plane.is_root() {
            KeyRange::AllPlanes(storage.clone())
        } else {
            plane.keys().resource(&storage)
        };
        let mut after: Option<Key> = None;
        let mut blocked = None;
        loop {
            let query = RangeQuery {
                range: &range,
                at: None,
                after: after.as_ref(),
                limit: PAGE,
            };
            let page = self.store.range(query).await?;
            let mut grants = Vec::new();
            for (key, _) in &page.records {
                let holder = match key.plane() == plane.id {
                    true => Some(plane.clone()),
                    false => self.directory.by_id(key.plane()).await?,
                };
                let Some(holder) = holder else { continue };
                let found = self.definitions.of(&holder).await?.by_storage(storage.as_key());
                // Objects of another plane may be of a definition of its own.
                let Some((served, definition)) = found.filter(|(_, definition)| *definition.key() == own) else {
                    continue;
                };
                let target = Target {
                    plane: holder,
                    served,
                    namespace: key.namespace().map(Into::into),
                    name: Some(key.name().into()),
                    subresource: "".into(),
                    definition: Some(definition),
                    within: None,
                };
                grants.push(authz::system(Verb::Delete, target));
            }
            after = page.records.last().filter(|_| page.more).map(|(key, _)| key.clone());
            let deletions = stream::iter(grants).map(|grant| self.delete_instance(grant));
            let waiting: Vec<bool> = deletions.buffered(DELETIONS).try_collect().await?;
            if waiting.contains(&true) {
                blocked.get_or_insert(page.revision);
            }
            if after.is_none() {
                break;
            }
        }
        match blocked {
            Some(since) => Ok(Some(self.store.watch(range, since).await?)),
            None => Ok(None),
        }
    }

    /// Deletes one object. Whether it waits for its finalizers.
    async fn delete_instance(&self, grant: Grant) -> Result<bool, ApiError> {
        match self.registry.delete(&grant, &DeleteOptions::default()).await {
            Ok(Deleted::Gone(_)) => Ok(false),
            Ok(Deleted::Waiting(_)) => Ok(true),
            Err(error) if error.code() == http::StatusCode::NOT_FOUND => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Looks again at the definitions of a group that wanted names which others had.
    async fn reconsider(&self, plane: &Arc<Plane>, group: &str, but: &str) -> Result<(), ApiError> {
        let refused = self.group(plane, group, but).await?.into_iter().filter(|(_, other)| {
            let conditions = object::list(other, &["status", "conditions"]);
            conditions
                .iter()
                .any(|one| one["type"] == "NamesAccepted" && one["status"] == "False")
        });
        let writes: Vec<Write> = refused.map(|(key, _)| pending(&key)).collect();
        if !writes.is_empty() {
            let txn = Txn {
                compares: Vec::new(),
                writes,
            };
            self.store.commit(txn).await?;
        }
        Ok(())
    }

    /// The other definitions of a group: what is needed of them.
    async fn group(&self, plane: &Plane, group: &str, but: &str) -> Result<Vec<(Key, Value)>, ApiError> {
        let range = plane.keys().resource(&definitions());
        let mut others = Vec::new();
        let mut pages = Pages::new(&*self.store, &range, super::PAGE);
        while let Some(page) = pages.next().await? {
            for (key, record) in &page {
                if key.name() == but {
                    continue;
                }
                if let Some(stored) = plane.read(key, record)?.object()
                    && let Some(other) = named(&stored, group)?
                {
                    others.push((key.clone(), other));
                }
            }
        }
        Ok(others)
    }

    fn grant(&self, verb: Verb, plane: &Arc<Plane>, name: &str, subresource: &str) -> Result<Grant, ApiError> {
        let target = Target {
            plane: plane.clone(),
            served: definitions_of(plane)?,
            namespace: None,
            name: Some(name.into()),
            subresource: subresource.into(),
            definition: None,
            within: None,
        };
        Ok(authz::system(verb, target))
    }
}

fn definitions_of(plane: &Plane) -> Result<Arc<Served>, ApiError> {
    let served = plane
        .scheme
        .find("apiextensions.k8s.io", "v1", "customresourcedefinitions");
    served
        .cloned()
        .ok_or_else(|| ApiError::internal("the plane does not serve definitions"))
}

fn has_cleanup(definition: &Value) -> bool {
    let finalizers = object::list(definition, &["metadata", "finalizers"]);
    finalizers.iter().any(|one| one == definition::CLEANUP_FINALIZER)
}

/// What went meanwhile needs no change.
fn found(changed: Result<(), ApiError>) -> Result<(), ApiError> {
    match changed {
        Err(error) if error.code() == http::StatusCode::NOT_FOUND => Ok(()),
        other => other,
    }
}

/// The status of a definition, if it is of the group.
fn named(stored: &Stored, group: &str) -> Result<Option<Value>, ApiError> {
    let named: Named = serde_json::from_slice(stored.json())
        .map_err(|error| ApiError::internal("stored data is damaged").because(error))?;
    Ok((named.spec.group == group).then(|| serde_json::json!({"status": named.status})))
}

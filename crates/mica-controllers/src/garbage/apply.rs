//! Does what was decided about an object. Every write says which state of the object it is about.

use std::time::Duration;

use futures::{FutureExt as _, StreamExt as _, stream};
use mica_runtime::queue::{Outcome, Priority};
use serde_json::{Value, json};

use super::observe::{Found, State};
use super::plan::Plan;
use super::{Garbage, Item, TOGETHER};
use crate::api::{Absent as _, Propagation, Refusal};
use crate::event;
use crate::kinds::Scope;
use crate::meta::{Object, Owner};
use crate::place;

/// How soon an object is looked at again that changed while it was looked at.
const AGAIN: Duration = Duration::from_millis(5);
/// Events tell of what waits; this is for those that nobody tells.
const WATCHDOG: Duration = Duration::from_secs(30);

impl Garbage {
    pub(super) async fn apply(&self, found: &Found, plan: &Plan) -> Result<Outcome, Refusal> {
        self.warn(found).await;
        let object = &found.latest;
        let done = match plan {
            Plan::Nothing => return Ok(Outcome::Done),
            Plan::Delete(propagation) => self.api.delete(&object.path(), &object.meta, *propagation).await,
            Plan::Unblock => self.unblock(object).await,
            Plan::Disown(uids) => {
                let keeps = |owner: &Owner| !uids.contains(&owner.uid);
                self.set_owners(object, keeps).await
            }
            Plan::Release(finalizer) => self.release(object, finalizer).await,
            Plan::Await(dependents) => {
                for at in dependents {
                    let one = &found.dependents[*at];
                    if !one.meta.is_deleting() {
                        self.queue.add(Item::object(one), Priority::Normal);
                    }
                }
                return Ok(Outcome::Again(WATCHDOG));
            }
            Plan::Orphan(dependents) => return self.orphan(found, dependents).await,
        };
        match done {
            Ok(()) => Ok(Outcome::Done),
            Err(refusal) if refusal.is_not_found() => Ok(Outcome::Done),
            // It is another one now, or changed: what was decided is void.
            Err(refusal) if refusal.is_conflict() => Ok(Outcome::Again(AGAIN)),
            Err(refusal) => Err(refusal),
        }
    }

    async fn unblock(&self, object: &Object) -> Result<(), Refusal> {
        let mut owners = object.meta.owner_references.clone();
        for owner in &mut owners {
            owner.block_owner_deletion = Some(false);
        }
        let written = self.patch(object, json!({"ownerReferences": owners})).await?;
        let mut meta = object.meta.clone();
        meta.resource_version = written["metadata"]["resourceVersion"]
            .as_str()
            .unwrap_or_default()
            .into();
        self.api.delete(&object.path(), &meta, Propagation::Foreground).await
    }

    async fn set_owners(&self, object: &Object, keeps: impl Fn(&Owner) -> bool) -> Result<(), Refusal> {
        let left: Vec<&Owner> = object
            .meta
            .owner_references
            .iter()
            .filter(|owner| keeps(owner))
            .collect();
        // A merge patch takes away what is null.
        let left = match left.is_empty() {
            true => Value::Null,
            false => json!(left),
        };
        self.patch(object, json!({"ownerReferences": left})).await.map(drop)
    }

    async fn release(&self, object: &Object, finalizer: &str) -> Result<(), Refusal> {
        let mut left = object.meta.finalizers.clone();
        left.retain(|one| one != finalizer);
        self.waiting
            .lock()
            .remove(&(object.place.clone(), object.meta.uid.clone()));
        self.patch(object, json!({"finalizers": left})).await.map(drop)
    }

    async fn patch(&self, object: &Object, mut metadata: Value) -> Result<Value, Refusal> {
        metadata["uid"] = object.meta.uid.as_str().into();
        metadata["resourceVersion"] = object.meta.resource_version.as_str().into();
        self.api.merge(&object.path(), &json!({"metadata": metadata})).await
    }

    /// Takes the owner off its dependents; the owner itself goes when the next look finds none.
    async fn orphan(&self, found: &Found, dependents: &[usize]) -> Result<Outcome, Refusal> {
        let uid = &found.latest.meta.uid;
        let changes = dependents
            .iter()
            .map(|at| self.let_go(&found.dependents[*at], uid).boxed());
        let changes = stream::iter(changes.collect::<Vec<_>>());
        let done: Vec<Result<(), Refusal>> = changes.buffer_unordered(TOGETHER).collect().await;
        done.into_iter().collect::<Result<(), Refusal>>()?;
        Ok(Outcome::Again(AGAIN))
    }

    /// Takes an owner off a dependent. One that changed meanwhile is there at the next look.
    async fn let_go(&self, dependent: &Object, uid: &str) -> Result<(), Refusal> {
        // What an index tells of it need not have the version that its plane knows it by.
        let Some(meta) = self.api.metadata(&dependent.path()).await.or_absent()? else {
            return Ok(());
        };
        let latest = Object {
            meta,
            ..dependent.clone()
        };
        match self.set_owners(&latest, |owner| owner.uid != uid).await {
            Err(refusal) if refusal.is_conflict() => Ok(()),
            done => done.or_absent().map(drop),
        }
    }

    /// Tells the dependent of owners that are in another namespace, or of a kind that cannot own it. One whose deletion was
    /// heard of is in none.
    async fn warn(&self, found: &Found) {
        for (owner, state) in &found.owners {
            let told = match state {
                State::Impossible => true,
                State::Absent if self.has_departed(&found.latest.place, &owner.uid) => false,
                State::Absent => self.is_elsewhere(&found.latest, owner).await.unwrap_or(false),
                State::Solid | State::AwaitsDependents => false,
            };
            if told {
                event::owner_is_elsewhere(&self.api, &found.latest, owner).await;
            }
        }
    }

    /// Whether an owner is there in another namespace than its dependent's.
    async fn is_elsewhere(&self, dependent: &Object, owner: &Owner) -> Result<bool, Refusal> {
        let place = &dependent.place;
        let served = self.catalog.find(place, &owner.api_version, &owner.kind).await?;
        if served.scope != Scope::Namespaced {
            return Ok(false);
        }
        let path = place::collection(place, &served.what.api_version, &served.what.resource, None);
        let query = format!(
            "fieldSelector={}",
            place::query_value(&format!("metadata.name={}", owner.name))
        );
        let named = self.api.list_metadata(&path, &query).await?.items;
        Ok(named.iter().any(|one| one.metadata.uid == owner.uid))
    }
}

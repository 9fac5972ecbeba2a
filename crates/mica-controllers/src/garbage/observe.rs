//! What is known of an object at this moment: itself, its owners and its dependents, all asked for now.

use std::collections::HashSet;

use compact_str::CompactString;
use parking_lot::Mutex;

use super::Garbage;
use crate::api::{Absent as _, Refusal};
use crate::kinds::Scope;
use crate::meta::{Object, Owner};
use crate::place;

/// An object and what decides about it.
#[derive(Debug)]
pub struct Found {
    /// As it is now.
    pub latest: Object,
    /// What became of each of its owners, in order.
    pub owners: Vec<(Owner, State)>,
    /// Asked for where they matter.
    pub dependents: Vec<Object>,
}

/// What became of an owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// It is there.
    Solid,
    /// It is there until its dependents are gone.
    AwaitsDependents,
    /// It is not there: not in the dependent's namespace, or as another object of the name.
    Absent,
    /// Its kind is namespaced and its dependent is not: nobody can say which one is meant.
    Impossible,
}

/// Owners that were found to be absent, so that the many dependents of one ask once.
#[derive(Default)]
pub struct Absences(Mutex<HashSet<(CompactString, Option<CompactString>)>>);

impl Garbage {
    /// What is known, or `None` if the object is gone.
    pub(super) async fn observe(&self, object: &Object, absences: &Absences) -> Result<Option<Found>, Refusal> {
        let Some(meta) = self.api.metadata(&object.path()).await.or_absent()? else {
            return Ok(None);
        };
        if meta.uid != object.meta.uid {
            return Ok(None);
        }
        let mut found = Found {
            latest: Object { meta, ..object.clone() },
            owners: Vec::new(),
            dependents: Vec::new(),
        };
        let latest = &found.latest.meta;
        if latest.awaits_dependents() || latest.orphans_dependents() {
            found.dependents = self.dependents_of(&found.latest).await?;
            return Ok(Some(found));
        }
        if latest.is_deleting() {
            return Ok(Some(found));
        }
        for owner in &latest.owner_references {
            let state = self.owner(&found.latest, owner, absences).await?;
            found.owners.push((owner.clone(), state));
        }
        if found.owners.iter().any(|(_, state)| *state == State::AwaitsDependents) {
            found.dependents = self.dependents.of(&found.latest.place, &found.latest.meta.uid).await?;
        }
        Ok(Some(found))
    }

    /// The dependents of an owner that cannot go before them. It is noted first that it waits, so that what goes while this
    /// looks is heard of.
    async fn dependents_of(&self, owner: &Object) -> Result<Vec<Object>, Refusal> {
        if owner.meta.awaits_dependents() {
            let key = (owner.place.clone(), owner.meta.uid.clone());
            self.waiting.lock().insert(key, super::Item::object(owner));
        }
        self.dependents.of_going(owner).await
    }

    /// What became of an owner. That it is absent is only believed when the server says so now; of a kind that is not served
    /// any more, when its deletion was heard of.
    async fn owner(&self, dependent: &Object, owner: &Owner, absences: &Absences) -> Result<State, Refusal> {
        let key = (owner.uid.clone(), dependent.meta.namespace.clone());
        if absences.0.lock().contains(&key) {
            return Ok(State::Absent);
        }
        let state = match self.ask_for(dependent, owner).await {
            Err(refusal) if refusal.is_kind_not_served() => {
                self.catalog.forget(&dependent.place);
                if !self.has_departed(&dependent.place, &owner.uid) {
                    return Err(refusal);
                }
                State::Absent
            }
            asked => asked?,
        };
        if state == State::Absent {
            absences.0.lock().insert(key);
        }
        Ok(state)
    }

    async fn ask_for(&self, dependent: &Object, owner: &Owner) -> Result<State, Refusal> {
        let (place, namespace) = (&dependent.place, dependent.meta.namespace.as_deref());
        let served = self.catalog.find(place, &owner.api_version, &owner.kind).await?;
        let namespace = match (served.scope, namespace) {
            (Scope::Cluster, _) => None,
            (Scope::Namespaced, None) => return Ok(State::Impossible),
            (Scope::Namespaced, namespace) => namespace,
        };
        self.check_trouble(place, &served.what)?;
        let what = &served.what;
        let path = place::object(place, &what.api_version, &what.resource, namespace, &owner.name);
        match self.api.metadata(&path).await {
            Ok(meta) if meta.uid == owner.uid && meta.awaits_dependents() => Ok(State::AwaitsDependents),
            Ok(meta) if meta.uid == owner.uid => Ok(State::Solid),
            Ok(_other) => Ok(State::Absent),
            Err(refusal) if refusal.is_object_not_found() => Ok(State::Absent),
            Err(refusal) => {
                if refusal.is_trouble() {
                    self.note_trouble(place, what);
                }
                Err(refusal)
            }
        }
    }
}

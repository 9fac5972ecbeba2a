//! Garbage collection: objects go with their owners, as their owners' deletion asks for.
//!
//! Watches everything. What was deleted has its dependents looked up; what names owners has those looked at; what waits for
//! its dependents, or lets them go, is worked off. There is no graph of objects: dependents are asked for when they matter,
//! where the server can say (the index of owners of a Mica server), so that every decision is about what is stored now and
//! never about how far a watch has come.

mod apply;
mod item;
mod observe;
mod plan;

use std::collections::HashMap;
use std::hash::{Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use compact_str::CompactString;
use futures::{FutureExt as _, StreamExt as _, stream};
use mica_runtime::Request;
use mica_runtime::queue::{Outcome, Priority, Queue};
use parking_lot::Mutex;
use quick_cache::sync::Cache;
use xxhash_rust::xxh3::Xxh3;

use crate::api::{Api, Refusal};
use crate::dependent::Dependents;
use crate::engine::{self, Controller};
use crate::kinds::Catalog;
use crate::meta::{Notice, Object, Owner, Seen, What};
use crate::place::Place;
use crate::select::Name;
use item::Item;
use observe::Absences;
use plan::Plan;

const WORKERS: usize = 32;
/// Dependents of one owner that are looked at together.
const TOGETHER: usize = 16;
/// Objects whose owners were found to be there. Each takes a few bytes, and one that is forgotten is looked at once more.
const VERIFIED: usize = 200_000;
/// Objects that were heard of lately. Dependents are mostly made soon after their owners.
const LIVING: usize = 50_000;
/// Owners that are remembered to be gone.
const DEPARTED: usize = 50_000;
/// Kinds in trouble that are remembered, and for how long nothing is asked of them.
const TROUBLED: usize = 1_000;
const TROUBLE: Duration = Duration::from_secs(5);
/// An owner that waits is looked at this soon after one of its dependents went: more will go in the same moment.
const SOON: Duration = Duration::from_millis(20);

pub struct Garbage {
    api: Api,
    catalog: Arc<Catalog>,
    dependents: Arc<dyn Dependents>,
    queue: Queue,
    /// Owners that wait for dependents to go, by uid: as many as are being deleted in the foreground.
    waiting: Mutex<HashMap<(Place, CompactString), Request>>,
    /// Objects, with the owners that they had, all of which were there.
    verified: Cache<u64, ()>,
    /// Objects that were heard of lately and stay: what names one of them as its owner is no garbage. An owner that goes later
    /// is heard of later, and has its dependents looked up.
    living: Cache<u64, ()>,
    /// Owners whose deletion was heard of and that had dependents. A uid does not come back.
    departed: Cache<u64, ()>,
    /// Kinds that could not be read, and when. A conversion that fails slowly must not hold all workers.
    troubled: Cache<(Place, What), Instant>,
}

impl Garbage {
    pub fn new(api: Api, catalog: Arc<Catalog>, dependents: Arc<dyn Dependents>) -> Self {
        Self {
            api,
            catalog,
            dependents,
            queue: engine::queue(),
            waiting: Mutex::default(),
            verified: Cache::new(VERIFIED),
            living: Cache::new(LIVING),
            departed: Cache::new(DEPARTED),
            troubled: Cache::new(TROUBLED),
        }
    }

    fn has_departed(&self, place: &Place, uid: &str) -> bool {
        self.departed.get(&uid_print(place, uid)).is_some()
    }

    fn note_trouble(&self, place: &Place, what: &What) {
        self.troubled.insert((place.clone(), what.clone()), Instant::now());
    }

    fn check_trouble(&self, place: &Place, what: &What) -> Result<(), Refusal> {
        let since = self.troubled.get(&(place.clone(), what.clone()));
        match since.is_some_and(|since| since.elapsed() < TROUBLE) {
            true => Err(Refusal::Troubled(what.kind.to_string())),
            false => Ok(()),
        }
    }

    fn present(&self, object: &Object, priority: Priority) {
        let meta = &object.meta;
        let has_dependents_to_settle = meta.awaits_dependents() || meta.orphans_dependents();
        match meta.is_deleting() {
            true => drop(self.living.remove(&life_print(object))),
            false => self.living.insert(life_print(object), ()),
        }
        let may_be_garbage = || {
            let names_owners = !meta.owner_references.is_empty() && !meta.is_deleting();
            names_owners && self.verified.get(&print(object)).is_none() && !self.owners_live(object)
        };
        if has_dependents_to_settle || may_be_garbage() {
            self.queue.add(Item::object(object), priority);
        }
        self.owners_of(object);
    }

    /// Whether all owners of an object are there for all that was heard.
    fn owners_live(&self, object: &Object) -> bool {
        let lives = |owner: &Owner| {
            let at = |namespace: Option<&str>| owner_print(object, owner, namespace);
            let namespace = object.meta.namespace.as_deref();
            self.living.get(&at(None)).is_some() || self.living.get(&at(namespace)).is_some()
        };
        object.meta.owner_references.iter().all(lives)
    }

    /// Looks again at owners that wait for this one.
    fn owners_of(&self, object: &Object) {
        if object.meta.owner_references.is_empty() {
            return;
        }
        let waiting = self.waiting.lock();
        for owner in &object.meta.owner_references {
            if let Some(request) = waiting.get(&(object.place.clone(), owner.uid.clone())) {
                self.queue.add_after(request.clone(), SOON);
            }
        }
    }

    /// Everything that names an owner that is gone.
    async fn abandoned(&self, place: &Place, uid: &str) -> Result<Outcome, Refusal> {
        self.waiting.lock().remove(&(place.clone(), uid.into()));
        let left = self.dependents.of(place, uid).await?;
        if left.is_empty() {
            return Ok(Outcome::Done);
        }
        self.departed.insert(uid_print(place, uid), ());
        let absences = Arc::new(Absences::default());
        let looks = stream::iter(left).map(|object| self.look_or_note(object, absences.clone()).boxed());
        looks.buffer_unordered(TOGETHER).collect::<()>().await;
        Ok(Outcome::Done)
    }

    /// Looks at one of many objects. What fails is tried again by itself.
    async fn look_or_note(&self, object: Object, absences: Arc<Absences>) {
        match self.look(&object, &absences).await {
            Ok(Outcome::Done) => {}
            _ => self.queue.add(Item::object(&object), Priority::Normal),
        }
    }

    /// Looks at one object and does what is to be done about it.
    async fn look(&self, object: &Object, absences: &Absences) -> Result<Outcome, Refusal> {
        let Some(found) = self.observe(object, absences).await? else {
            self.waiting
                .lock()
                .remove(&(object.place.clone(), object.meta.uid.clone()));
            return Ok(Outcome::Done);
        };
        let plan = plan::plan(&found);
        if plan == Plan::Nothing && found.latest.meta.owner_references.len() == found.owners.len() {
            self.verified.insert(print(&found.latest), ());
        }
        self.apply(&found, &plan).await
    }
}

/// An object and its owners, as a number.
fn print(object: &Object) -> u64 {
    let mut hash = Xxh3::new();
    object.place.hash(&mut hash);
    object.meta.uid.hash(&mut hash);
    object.meta.owner_references.hash(&mut hash);
    hash.finish()
}

/// An object among those that live, as a number: where and what it is, whatever it says.
fn life_print(object: &Object) -> u64 {
    let Object { place, what, meta } = object;
    life(
        place,
        what.group(),
        &what.kind,
        meta.namespace.as_deref(),
        &meta.name,
        &meta.uid,
    )
}

/// An owner as the dependent names it, in a namespace or in none.
fn owner_print(dependent: &Object, owner: &Owner, namespace: Option<&str>) -> u64 {
    let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
    life(&dependent.place, group, &owner.kind, namespace, &owner.name, &owner.uid)
}

fn life(place: &Place, group: &str, kind: &str, namespace: Option<&str>, name: &str, uid: &str) -> u64 {
    let mut hash = Xxh3::new();
    place.hash(&mut hash);
    (group, kind, namespace, name, uid).hash(&mut hash);
    hash.finish()
}

/// A uid of a plane, as a number.
fn uid_print(place: &Place, uid: &str) -> u64 {
    let mut hash = Xxh3::new();
    place.hash(&mut hash);
    uid.hash(&mut hash);
    hash.finish()
}

#[async_trait]
impl Controller for Garbage {
    fn name(&self) -> Name {
        Name::Garbage
    }

    fn queue(&self) -> &Queue {
        &self.queue
    }

    fn workers(&self) -> usize {
        WORKERS
    }

    fn hear(&self, notice: &Notice) {
        match &notice.seen {
            // They own nothing, belong to nobody, and there are many.
            Seen::Present(object) | Seen::Gone(object) if object.what.resource == "events" => {}
            Seen::Present(object) => self.present(object, notice.priority),
            Seen::Gone(object) => {
                self.living.remove(&life_print(object));
                self.queue.add(Item::gone(object), Priority::Normal);
                self.owners_of(object);
            }
            Seen::PlaneGone(place) => self.waiting.lock().retain(|(at, _), _| at != place),
            Seen::Restarted => {
                self.verified.clear();
                self.living.clear();
            }
        }
    }

    async fn work(&self, request: &Request) -> Result<Outcome, Refusal> {
        let place = Place::of(&request.cluster);
        match Item::read(request) {
            Some(Item::Gone(uid)) => self.abandoned(&place, &uid).await,
            Some(Item::Object(object)) => self.look(&object, &Absences::default()).await,
            None => Ok(Outcome::Done),
        }
    }
}

//! Create, update and patch: one pipeline of preparing, validating, comparing and committing.
//!
//! The order of steps is upstream's (`endpoints/handlers`, `registry/rest`, `registry/generic/registry/store.go`), because
//! clients can tell: which error wins, what managed fields record, what a no-op leaves alone.

use mica_machinery::admission::Operation;
use mica_machinery::managed;
use mica_machinery::meta::{self, Admission};
use mica_machinery::object;
use mica_machinery::schema::Malformed;
use mica_store::{CommitError, Key, Revision, Txn, Write};
use serde_json::Value;

use super::form::{document, read_back, served_value, stored_value, to_stored};
use super::room::change_of;
use super::rules::{
    check_name, check_uid, check_version, create_errors, goes_now, metadata_mut, settle_metadata, update_errors,
};
use super::step::Step;
use super::{Entry, Registry, charge, check_state, owner};
use crate::admission::{Admissions, Doing, Gate, Subject};
use crate::authz::{Grant, Target};
use crate::custom::Definition;
use crate::error::{ApiError, MODIFIED};
use crate::options::{DryRun, WriteOptions, parse_version};
use crate::plane::side::Side;
use crate::scheme::Served;
use crate::stored::{self, Content, Stored};

/// How often a write that lost a race is tried again before the client is told. Each try reads afresh, and one writer wins
/// each round, so this bounds how many writers may fight for one object at once.
pub(super) const TRIES: usize = 500;

/// How often a name is generated before the client is told that it is taken. Upstream's number.
const NAME_TRIES: usize = 8;

/// A create or an update.
#[derive(Clone)]
pub struct WriteRequest {
    /// The decoded body, in the version of the request.
    pub object: Value,
    /// What the body says about managed fields beyond its object.
    pub managers: Managers,
    pub options: WriteOptions,
    /// Who is recorded in managedFields.
    pub manager: String,
}

pub struct PatchRequest<'a> {
    /// Turns the present object, as bytes in the version of the request, into the wanted one.
    pub patch: &'a (dyn Fn(&[u8]) -> Result<Patched, ApiError> + Send + Sync),
    pub options: WriteOptions,
    pub manager: String,
    /// What of the object clients see, if not all of it.
    pub view: Option<&'a dyn View>,
}

/// A part of an object that stands for it, as a Scale does: admission is asked about that part.
pub trait View: Send + Sync {
    fn served(&self) -> &Served;

    /// The part of an object.
    fn part(&self, object: &Value) -> Result<Value, ApiError>;

    /// The object with another part.
    fn with_part(&self, object: Value, part: &Value) -> Result<Value, ApiError>;
}

/// What a patch gave.
pub struct Patched {
    pub object: Value,
    pub managers: Managers,
    pub warnings: Vec<String>,
}

/// What a write left behind.
pub struct Written {
    pub stored: Stored,
    pub created: bool,
    pub warnings: Vec<String>,
}

/// Where a write's managed fields come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Managers {
    /// They are recorded from what changes.
    Recorded(managed::Request),
    /// They are in the object: apply made them.
    Applied,
}

/// The object that a write replaces.
pub(super) struct Old {
    /// In the version that it is stored in.
    stored: Value,
    /// In the version of the request, where that is another.
    face: Option<Value>,
}

impl Old {
    /// As clients see it.
    pub(super) fn seen(&self) -> &Value {
        self.face.as_ref().unwrap_or(&self.stored)
    }
}

impl Registry {
    /// Stores a new object. A generated name that turns out to be taken is generated again.
    pub async fn create(&self, grant: &Grant, mut request: WriteRequest) -> Result<Written, ApiError> {
        check_state(grant)?;
        // Only here: what applying or replacing makes keeps even a time of deletion that it names, as upstream.
        meta::wipe_system_fields(metadata_mut(&mut request.object));
        if object::string(&request.object, &["metadata", "generateName"]).is_empty() {
            return self.try_create(grant, request).await;
        }
        if object::name(&request.object).is_empty() {
            for _ in 1..NAME_TRIES {
                match self.try_create(grant, request.clone()).await {
                    Err(error) if error.is_already_exists() => {}
                    answer => return answer,
                }
            }
        }
        // Upstream looks only at what a name could have been made from, also where the name was given.
        self.try_create(grant, request)
            .await
            .map_err(ApiError::without_unique_name)
    }

    pub(super) async fn try_create(&self, grant: &Grant, request: WriteRequest) -> Result<Written, ApiError> {
        let mut warnings = Vec::new();
        match self.create_once(grant, request, &mut warnings).await {
            Ok(stored) => Ok(Written {
                stored,
                created: true,
                warnings,
            }),
            Err(error) => Err(error.warned(&warnings)),
        }
    }

    /// One try at creating. What clients are to be warned of is added to `warnings`, however it ends.
    async fn create_once(
        &self,
        grant: &Grant,
        request: WriteRequest,
        warnings: &mut Vec<String>,
    ) -> Result<Stored, ApiError> {
        let step = Step::new(grant, &request.options, &request.manager);
        let (served, strategy) = (step.served(), step.served().strategy());
        let mut object = request.object;
        settle_metadata(step.target(), &mut object)?;
        let metadata = metadata_mut(&mut object);
        let sent_version = object::string(metadata, &["resourceVersion"]).to_owned();
        object::remove(metadata, &["selfLink"]);
        warnings.extend(meta::dedup_owner_references(metadata, Admission::Before));
        if served.stores_as_served() {
            strategy.default(&mut object);
        }
        step.record_manager(self, None, &mut object, request.managers).await;
        let mut object = to_stored(served, object);
        if let Some(completed) = self.side.complete(served, &mut object) {
            completed.await?;
        }
        self.check_namespace(&step, object::name(&object)).await?;
        self.give_belonging(grant, &mut object).await?;
        let gate = Gate::new(self, grant, Doing::Create(&request.options), Subject::Resource).await?;
        let mutated = gate.mutate(Some(object), None).await;
        let mut object = mutated?.expect("mutation leaves an object");
        warnings.extend(gate.take_warnings());
        warnings.extend(meta::dedup_owner_references(
            metadata_mut(&mut object),
            Admission::After,
        ));
        self.authorizer.check_escalation(grant, &object, None).await?;
        let context = step.context();
        // First, because kinds may build on the name and the uid.
        let metadata = metadata_mut(&mut object);
        meta::fill_system_fields(metadata, &uuid::Uuid::new_v4().to_string(), step.now);
        meta::generate_name(metadata, rand::random);
        if strategy.names_itself() && object::string(metadata, &["name"]).is_empty() {
            object::set(metadata, &["name"], uuid::Uuid::new_v4().to_string());
        }
        warnings.extend(strategy.prepare_warnings(&object));
        strategy.prepare_create(&context, &mut object);
        if let Some(kind) = served.custom_kind() {
            // A status that was taken out is as if nobody had sent one: its defaults count.
            kind.schema.default(&mut object);
        }
        if let Some(generation) = strategy.generation(&context, &object, None) {
            object::set(metadata_mut(&mut object), &["generation"], generation);
        }
        let allotted = self.allot(step.target(), &mut object, None, step.now).await?;
        Box::pin(self.fill_secret(step.target(), &mut object)).await?;
        step.invalid(&object, &create_errors(served, &context, &object))?;
        if let Some(why) = strategy.forbidden(&object) {
            return Err(ApiError::forbidden(&served.name, object::name(&object), &why));
        }
        warnings.extend(strategy.warnings(&context, &object, None));
        strategy.canonicalize(&mut object);
        gate.validate(Some(&object), None).await?;
        warnings.extend(gate.take_warnings());
        self.check_belonging(grant, &object, None).await?;
        let along = self.along_create(&step, &object).await?;
        if request.options.dry_run == DryRun::No && parse_version(&sent_version).ok().flatten().is_some() {
            return Err(ApiError::internal_text(
                "resourceVersion should not be set on objects to be created",
            ));
        }
        if request.managers == Managers::Applied {
            clean_applied(served, &mut object)?;
        }
        let name = object::name(&object).to_owned();
        let definition = step.target().definition.as_ref();
        let packed = self
            .packed(&step.target().plane, served, definition, &mut object)
            .await?;
        let allotted = allotted.and(along);
        let revision = self.add(&step, &name, &object, &packed.value, &allotted).await?;
        Ok(packed.at(revision))
    }

    /// Puts a new object where nothing is. Returns no revision if that was only tried.
    async fn add(
        &self,
        step: &Step<'_>,
        name: &str,
        object: &Value,
        value: &bytes::Bytes,
        allotted: &Side,
    ) -> Result<Revision, ApiError> {
        let (target, served) = (step.target(), step.served());
        let charge = self
            .charge(step.grant, Operation::Create, object, None, step.now)
            .await?;
        let mut tries = 0;
        let mut vacant = match step.options.dry_run {
            DryRun::No => vacant(target, name),
            DryRun::All => None,
        };
        loop {
            let supposed = vacant.is_some();
            let entry = match vacant.take() {
                Some(entry) => entry,
                None => {
                    let namespace = target.namespace.as_deref();
                    self.entry(&target.plane, served, namespace, name).await?
                }
            };
            if let Some(there) = &entry.stored {
                return Err(exists(served, name, there));
            }
            let mut side = self.side.on_create(served, object)?.and(allotted.clone());
            if let Some(charge) = &charge {
                side = side.and(charge.side().await?);
            }
            if step.options.dry_run == DryRun::All {
                return Ok(Revision(0));
            }
            let _room = self.room(step.grant, &entry, value).await?;
            match self.put(target, &entry, value.clone(), side).await {
                Ok(Some(revision)) => return Ok(revision),
                // Something is there: what, says a look.
                Ok(None) if supposed => {}
                Ok(None) => return Err(ApiError::already_exists(&served.name, name)),
                Err(error) if error.is_stale_quota() && tries < charge::TRIES => {
                    tries += 1;
                    vacant = Some(entry);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Replaces an object, or creates it where the kind lets a PUT do that.
    pub async fn update(&self, grant: &Grant, request: WriteRequest) -> Result<Written, ApiError> {
        check_state(grant)?;
        let step = Step::new(grant, &request.options, &request.manager);
        let target = step.target();
        let mut object = request.object;
        settle_metadata(target, &mut object)?;
        check_name(target, &object)?;
        let warnings = Vec::from_iter(meta::dedup_owner_references(
            metadata_mut(&mut object),
            Admission::Before,
        ));
        let strategy = step.served().strategy();
        if step.served().stores_as_served() {
            strategy.default(&mut object);
        }
        for _ in 0..TRIES {
            let entry = self.target_entry(target).await?;
            let Some(old) = &entry.stored else {
                if !strategy.creates_on_update() || !target.subresource.is_empty() {
                    return Err(ApiError::not_found(&step.served().name, target.object()));
                }
                grant.check_create()?;
                let (object, options, manager) = (object.clone(), request.options.clone(), request.manager.clone());
                match self
                    .try_create(
                        grant,
                        WriteRequest {
                            object,
                            managers: request.managers,
                            options,
                            manager,
                        },
                    )
                    .await
                {
                    // Somebody else was first: then this is an update.
                    Err(error) if error.is_already_exists() => continue,
                    answer => return answer,
                }
            };
            let conditional = object::string(&object, &["metadata", "resourceVersion"]);
            let conditional = parse_version(conditional).map_err(|error| error.for_update())?;
            check_uid(target, &object, old)?;
            // Only what names no version is tried again.
            let wanted = if conditional.is_some() {
                std::mem::take(&mut object)
            } else {
                object.clone()
            };
            let old = self.old(target, &entry).await?;
            let written = self.replace(&step, &entry, old, wanted, request.managers, &warnings);
            if let Some(written) = written.await? {
                return Ok(written);
            }
            if conditional.is_some() {
                return Err(ApiError::conflict(&step.served().name, target.object(), MODIFIED));
            }
        }
        Err(contended(target))
    }

    /// Changes an object by a function of its present state, again and again until no other write comes between.
    pub async fn patch(&self, grant: &Grant, request: PatchRequest<'_>) -> Result<Written, ApiError> {
        check_state(grant)?;
        let mut step = Step::new(grant, &request.options, &request.manager);
        step.view = request.view;
        let (target, served) = (step.target(), step.served());
        for _ in 0..TRIES {
            let entry = self.target_entry(target).await?;
            let Some(old) = &entry.stored else {
                return Err(ApiError::not_found(&served.name, target.object()));
            };
            let old = self
                .present(&target.plane, served, target.definition.as_ref(), old.clone())
                .await?;
            let patched = (request.patch)(&document(served, &old)?)?;
            let (mut wanted, mut warnings) = (patched.object, patched.warnings);
            settle_metadata(target, &mut wanted)
                .and_then(|()| check_name(target, &wanted))
                .map_err(|error| error.warned(&warnings))?;
            warnings.extend(meta::dedup_owner_references(
                metadata_mut(&mut wanted),
                Admission::After,
            ));
            if served.stores_as_served() {
                served.strategy().default(&mut wanted);
            }
            let old = self.old(target, &entry).await?;
            let written = self.replace(&step, &entry, old, wanted, patched.managers, &warnings);
            if let Some(written) = written.await? {
                return Ok(written);
            }
        }
        Err(contended(target))
    }

    /// What a request is about, if it lies within the view that the request came by.
    pub(super) async fn target_entry(&self, target: &Target) -> Result<Entry, ApiError> {
        let namespace = target.namespace.as_deref();
        let mut entry = self
            .entry(&target.plane, &target.served, namespace, target.object())
            .await?;
        if let (Some(within), Some(stored)) = (&target.within, &entry.stored)
            && !within.holds(&entry.key, stored)
        {
            entry.stored = None;
        }
        Ok(entry)
    }

    /// The object that `entry` found, as a tree.
    pub(super) async fn old(&self, target: &Target, entry: &Entry) -> Result<Old, ApiError> {
        let served = &target.served;
        let stored = entry.stored.as_ref().expect("only existing objects are replaced");
        let shown = self
            .present(&target.plane, served, target.definition.as_ref(), stored.clone())
            .await?;
        Ok(Old {
            stored: stored_value(served, &shown)?,
            face: served.face().map(|_| served_value(served, &shown)).transpose()?,
        })
    }

    /// One try at replacing what `entry` found. `None`: another write came between.
    pub(super) async fn replace(
        &self,
        step: &Step<'_>,
        entry: &Entry,
        old: Old,
        wanted: Value,
        managers: Managers,
        warnings: &[String],
    ) -> Result<Option<Written>, ApiError> {
        let mut warnings = warnings.to_vec();
        match self
            .replace_once(step, entry, old, (wanted, managers), &mut warnings)
            .await
        {
            Ok(stored) => Ok(stored.map(|stored| Written {
                stored,
                created: false,
                warnings,
            })),
            Err(error) => Err(error.warned(&warnings)),
        }
    }

    /// The same. What clients are to be warned of is added to `warnings`, however it ends.
    async fn replace_once(
        &self,
        step: &Step<'_>,
        entry: &Entry,
        old: Old,
        (wanted, managers): (Value, Managers),
        warnings: &mut Vec<String>,
    ) -> Result<Option<Stored>, ApiError> {
        let (target, served) = (step.target(), step.served());
        let strategy = served.strategy();
        let stored = entry.stored.as_ref().expect("only existing objects are replaced");
        check_version(step, &wanted, stored)?;
        let mut new = wanted;
        step.record_manager(self, Some(old.seen()), &mut new, managers).await;
        let old = old.stored;
        let mut new = to_stored(served, new);
        self.keep_belonging(target, &mut new, &old);
        let subject = step.view.map_or(Subject::Resource, |view| Subject::Own(view.served()));
        let gate = Gate::new(self, step.grant, Doing::Update(step.options), subject).await?;
        let mut new = mutate_update(&gate, step.view, new, &old).await?;
        warnings.extend(gate.take_warnings());
        warnings.extend(meta::dedup_owner_references(metadata_mut(&mut new), Admission::After));
        let context = step.context();
        meta::keep_generation(metadata_mut(&mut new), &old["metadata"]);
        strategy.prepare_update(&context, &mut new, &old);
        if let Some(generation) = strategy.generation(&context, &new, Some(&old)) {
            object::set(&mut new, &["metadata", "generation"], generation);
        }
        let metadata = metadata_mut(&mut new);
        meta::keep_system_fields(metadata, &old["metadata"]);
        object::set(metadata, &["resourceVersion"], stored.revision.to_string());
        self.authorizer.check_escalation(step.grant, &new, Some(&old)).await?;
        let allotted = self.allot(target, &mut new, Some(&old), step.now).await?;
        Box::pin(self.fill_secret(target, &mut new)).await?;
        let errors = update_errors(served, &context, &new, &old, warnings);
        step.invalid(&new, &errors)?;
        warnings.extend(strategy.warnings(&context, &new, Some(&old)));
        strategy.canonicalize(&mut new);
        validate_update(&gate, step.view, &new, &old).await?;
        warnings.extend(gate.take_warnings());
        self.check_belonging(step.grant, &new, Some(&old)).await?;
        let along = self.along_update(step.grant, &new, &old).await?;
        if managers == Managers::Applied {
            clean_applied(served, &mut new)?;
        }
        managed::keep_times_of_noop(&mut new, &old);
        let packed = self
            .packed(&target.plane, served, target.definition.as_ref(), &mut new)
            .await?;
        if goes_now(served, &new, &old) {
            let revision = self.remove(target, entry, &old, step.options.dry_run, along).await?;
            return Ok(revision.map(|revision| packed.at(revision)));
        }
        let unchanged = !stored.is_stale() && read_back(packed.value.clone(), stored.revision)?.json() == stored.json();
        if unchanged || step.options.dry_run == DryRun::All {
            return Ok(Some(packed.at(stored.revision)));
        }
        let side = self.side.on_update(served, &new, &old)?.and(allotted).and(along);
        let revision = self.put_charged(step, entry, &packed.value, side, &new, &old).await?;
        Ok(revision.map(|revision| packed.at(revision)))
    }

    /// Replaces an object, with what the change takes from quotas.
    async fn put_charged(
        &self,
        step: &Step<'_>,
        entry: &Entry,
        value: &bytes::Bytes,
        side: Side,
        new: &Value,
        old: &Value,
    ) -> Result<Option<Revision>, ApiError> {
        let _room = self.room(step.grant, entry, value).await?;
        let charging = self.charge(step.grant, Operation::Update, new, Some(old), step.now);
        let Some(charge) = charging.await? else {
            return self.put(step.target(), entry, value.clone(), side).await;
        };
        for _ in 0..charge::TRIES {
            let side = side.clone().and(charge.side().await?);
            match self.put(step.target(), entry, value.clone(), side).await {
                Err(error) if error.is_stale_quota() => {}
                answer => return answer,
            }
        }
        Err(ApiError::stale_quota())
    }

    /// Takes an object away for good. `None`: another write came between.
    pub(super) async fn remove(
        &self,
        target: &Target,
        entry: &Entry,
        old: &Value,
        dry_run: DryRun,
        along: Side,
    ) -> Result<Option<Revision>, ApiError> {
        let stored = entry.stored.as_ref().expect("only existing objects are removed");
        if dry_run == DryRun::All {
            return Ok(Some(stored.revision));
        }
        let side = self.side.on_remove(&target.served, old)?;
        let side = side.and(self.release(target, old).await?);
        let side = side.and(along);
        // Also a layer that the plane may move to: what was deleted must not come back with it.
        let base_has_it = target.plane.layers.contain(&target.served.storage, entry.key.rest());
        let write = if base_has_it {
            Write::Put {
                key: entry.key.clone(),
                value: stored::hidden(),
                ttl: None,
            }
        } else {
            Write::Delete { key: entry.key.clone() }
        };
        self.commit(target, entry, write, side).await
    }

    /// Replaces what `entry` found with a packed value. `None`: another write came between.
    pub(super) async fn put(
        &self,
        target: &Target,
        entry: &Entry,
        value: bytes::Bytes,
        side: Side,
    ) -> Result<Option<Revision>, ApiError> {
        let write = put(entry, value, &target.served);
        self.commit(target, entry, write, side).await
    }

    /// Commits one object's write with what it carries along, and returns its revision. `None`: another write came between.
    async fn commit(
        &self,
        target: &Target,
        entry: &Entry,
        write: Write,
        side: Side,
    ) -> Result<Option<Revision>, ApiError> {
        let mut compares = entry.unchanged(&target.plane);
        // An object's definition must still be what its write was checked by.
        compares.extend(target.definition.as_ref().map(Definition::fence));
        let own = compares.len();
        let along_compares = side.compares.clone();
        compares.extend(side.compares);
        let quotas = compares.len();
        compares.extend(side.quotas);
        let key = key_of(&write).cloned();
        let along: Vec<Key> = side.writes.iter().filter_map(key_of).cloned().collect();
        let index = index(&target.served, entry, &write)?;
        let change = change_of(entry, &write);
        let mut writes = vec![write];
        writes.extend(index);
        if target.served.is_definitions() {
            writes.push(crate::custom::work::pending(&entry.key));
        }
        writes.extend(side.writes);
        match self.store.commit(Txn { compares, writes }).await {
            Ok(committed) => {
                self.settle(target, change);
                if let Some(key) = key {
                    self.side.committed(&key, &along);
                }
                let served = &target.served;
                if let Some(admission) = &self.admission
                    && Admissions::is_followed(served.group(), served.plural())
                {
                    // The next write here meets what this one configured; other servers hear of it.
                    admission.forget(target.plane.id);
                }
                Ok(Some(committed.revisions.first().copied().unwrap_or(committed.revision)))
            }
            // Beside the object itself these compare the plane's records: what this server believes of it is old.
            Err(CommitError::Conflict { compare, .. }) if (1..own).contains(&compare) => Err(ApiError::stale_plane()),
            Err(CommitError::Conflict { compare, .. }) if compare < own => Ok(None),
            Err(CommitError::Conflict { compare, .. }) if compare >= quotas => Err(ApiError::stale_quota()),
            // What a service was to be given is taken: the request starts over and finds something else, or is told so.
            Err(CommitError::Conflict { .. }) if target.served.plural() == "services" => Err(ApiError::stale_plane()),
            Err(CommitError::Conflict { compare, .. }) => {
                Box::pin(self.lost_along(target, along_compares.get(compare - own))).await
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Admission's first rule: new objects need a namespace that exists and stays.
    async fn check_namespace(&self, step: &Step<'_>, name: &str) -> Result<(), ApiError> {
        let (target, served) = (step.target(), step.served());
        let Some(namespace) = target.namespace.as_deref().filter(|_| served.namespaced()) else {
            return Ok(());
        };
        let Some(namespaces) = target.plane.scheme.find("", "v1", "namespaces") else {
            return Ok(());
        };
        let entry = self.entry(&target.plane, namespaces, None, namespace).await?;
        let Some(stored) = entry.stored else {
            return Err(ApiError::not_found(&namespaces.name, namespace));
        };
        let phase = mica_machinery::select::text_at(stored.json(), &["status", "phase"]);
        if phase.is_some_and(|phase| phase == "Terminating") {
            return Err(ApiError::namespace_terminating(&served.name, name, namespace));
        }
        Ok(())
    }
}

/// What mutation makes of a change, or of the part of it that clients see.
async fn mutate_update(gate: &Gate<'_>, view: Option<&dyn View>, new: Value, old: &Value) -> Result<Value, ApiError> {
    const LEFT: &str = "mutation leaves an object";
    let Some(view) = view else {
        return Ok(gate.mutate(Some(new), Some(old)).await?.expect(LEFT));
    };
    if gate.is_open() {
        return Ok(new);
    }
    let (part, was) = (view.part(&new)?, view.part(old)?);
    let mutated = gate.mutate(Some(part.clone()), Some(&was)).await?.expect(LEFT);
    if mutated == part {
        return Ok(new);
    }
    view.with_part(new, &mutated)
}

async fn validate_update(gate: &Gate<'_>, view: Option<&dyn View>, new: &Value, old: &Value) -> Result<(), ApiError> {
    match view {
        Some(view) if !gate.is_open() => gate.validate(Some(&view.part(new)?), Some(&view.part(old)?)).await,
        _ => gate.validate(Some(new), Some(old)).await,
    }
}

/// What a create may suppose of a place where no base layer has anything: that nothing is there. If that is wrong, the
/// commit says so, and mostly it is not. `None`: it has to be looked up.
fn vacant(target: &Target, name: &str) -> Option<Entry> {
    let (plane, storage) = (&target.plane, &target.served.storage);
    let key = plane.keys().object(storage, target.namespace.as_deref(), name);
    let bare = !plane.base.contains(storage, key.rest()) && !plane.layers.contain(storage, key.rest());
    bare.then_some(Entry {
        key,
        own: None,
        from_base: false,
        stored: None,
    })
}

/// What applying gave is validated as it is; readers get it pruned, as they get everything that is stored.
fn clean_applied(served: &Served, object: &mut Value) -> Result<(), ApiError> {
    if let Some(kind) = served.custom_kind() {
        let prepared = kind.schema.prepare(object, Malformed::Drop);
        prepared.map_err(|error| ApiError::internal_text(error.to_string()))?;
        kind.schema.default(object);
    }
    Ok(())
}

/// What a write changes in the index of owners, and in that of served resources.
fn index(served: &Served, entry: &Entry, write: &Write) -> Result<Vec<Write>, ApiError> {
    // What the base layer holds is not in the plane's index.
    let before = entry.stored.as_ref().filter(|_| !entry.from_base);
    let (after, ttl) = match write {
        Write::Put { value, ttl, .. } => {
            let record = mica_store::Record {
                value: value.clone(),
                revision: Revision::default(),
            };
            (Content::read(&record)?.object(), *ttl)
        }
        Write::Delete { .. } | Write::DropPlane(_) => (None, None),
    };
    let json = |stored: &Stored| stored.json().clone();
    let (before, after) = (before.map(json), after.as_ref().map(json));
    let mut writes = owner::index_writes(&entry.key, before.as_deref(), after.as_deref(), ttl)?;
    writes.extend(crate::tenancy::index::writes(
        &entry.key,
        before.as_deref(),
        after.as_deref(),
    ));
    if served.is_definitions() {
        writes.extend(crate::custom::index::writes(
            &entry.key,
            before.as_deref(),
            after.as_deref(),
        )?);
    }
    Ok(writes)
}

/// The key that a write is about.
fn key_of(write: &Write) -> Option<&Key> {
    match write {
        Write::Put { key, .. } | Write::Delete { key } => Some(key),
        Write::DropPlane(_) => None,
    }
}

fn put(entry: &Entry, value: bytes::Bytes, served: &Served) -> Write {
    Write::Put {
        key: entry.key.clone(),
        value,
        ttl: served.strategy().ttl(),
    }
}

/// 409 for a name that is taken, also by an object on its way out.
fn exists(served: &Served, name: &str, there: &Stored) -> ApiError {
    let leaving = mica_machinery::select::text_at(there.json(), &["metadata", "deletionTimestamp"]).is_some();
    if leaving {
        ApiError::already_exists_leaving(&served.name, name)
    } else {
        ApiError::already_exists(&served.name, name)
    }
}

pub(super) fn contended(target: &Target) -> ApiError {
    ApiError::conflict(&target.served.name, target.object(), MODIFIED)
}

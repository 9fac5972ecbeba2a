//! The directory: which planes exist, where requests for them go, and the records that fence their writes.
//!
//! For each plane root holds its `Plane` object and, in internal resources, a state record (what every write compares), a
//! birth record (its base layer and seed, written once) and one record for each further address. All change in one
//! transaction with the object. A bounded cache holds planes in use; nothing else is kept for any plane.

use std::sync::Arc;

use arc_swap::ArcSwap;
use compact_str::CompactString;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use mica_api::control_plane::CONTROL_PLANE_ANNOTATION;
use mica_api::{GroupResource, PlaneId, PlaneName};
use mica_machinery::kind::Profile;
use mica_machinery::object;
use mica_store::{CommitError, Compare, Key, KeyRange, PlaneKeys, Record, Revision, Signal, Store, Txn, Write};
use quick_cache::sync::Cache;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::birth::BirthRecord;
use super::cache::{FOLLOW_AGAIN, Followed, PLANES};
use super::claim::{ADDRESSES, OwnHosts};
use super::class::{self, Class};
use super::kind::{GROUP, PLURAL, RESTORING};
use super::lasting::{Ending, Lasting};
use super::layer::{BaseObjects, Shelf};
use super::limits::Limits;
use super::loud::Loud;
use super::side::{Side, SideWrites};
use super::{Context, MovedFrom, MovedTo, Plane, State, Uncommon};
use crate::audit::plane::Compiled;
use crate::authz::parent::Parent;
use crate::base::{Birth, Seed};
use crate::egress::Networks;
use crate::error::ApiError;
use crate::scheme::{Scheme, Schemes, Served};
use crate::seal;
use crate::stored::Content;

/// Names of planes kept by id, for answers over all planes. An entry is about 100 bytes.
const CACHED_NAMES: usize = 20_000;

/// Addresses kept resolved, those that nobody claims among them: the server's own host names are asked for all the time.
const CACHED_ADDRESSES: usize = 2 * PLANES;

/// Classes kept. Platforms have a handful.
const CACHED_CLASSES: usize = 1_000;

/// Planes looked up at once. Who asks for ever new names waits here, and cannot keep the store from those who write.
const LOOKUPS: usize = 32;

/// How often a plane that was recreated while it was looked up is looked up again.
const LOOKUP_TRIES: usize = 3;

/// Group of the records that no API serves.
pub(super) const INTERNAL: &str = "mica.internal";

/// What requests need to know of a Plane object.
#[derive(PartialEq, Serialize, Deserialize)]
struct StateRecord {
    name: String,
    state: State,
    #[serde(default)]
    context: Context,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    class: String,
    #[serde(default, skip_serializing_if = "Limits::is_empty")]
    limits: Limits,
    /// `spec.audit`; null for none.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    audit: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    parent: Option<Parent>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    moved_to: Option<MovedTo>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    moved_from: Option<MovedFrom>,
}

impl StateRecord {
    fn root() -> Self {
        Self {
            name: String::new(),
            state: State::Active,
            context: Context::Plane,
            class: String::new(),
            limits: Limits::default(),
            audit: Value::Null,
            parent: None,
            moved_to: None,
            moved_from: None,
        }
    }

    fn of(plane: &Value) -> Self {
        Self {
            name: object::name(plane).to_owned(),
            state: wanted_state(plane),
            context: context(plane),
            class: object::string(plane, &["spec", "className"]).to_owned(),
            limits: Limits::of(&plane["spec"]["limits"]),
            audit: plane["spec"]["audit"].clone(),
            parent: Parent::of(plane),
            moved_to: MovedTo::of(plane),
            moved_from: MovedFrom::of(plane),
        }
    }
}

pub struct Directory {
    store: Arc<dyn Store>,
    root: ArcSwap<Plane>,
    schemes: Arc<Schemes>,
    layers: Shelf,
    cache: Followed<PlaneName, Arc<Plane>>,
    /// By the name of an address's record: the plane that claims it, or that none does.
    addresses: Followed<String, Option<Arc<str>>>,
    /// What planes say about audit, compiled.
    audits: Compiled,
    /// By name: what a class says, or that there is none.
    classes: Followed<String, Arc<Class>>,
    names: Cache<PlaneId, Arc<str>>,
    lookups: Semaphore,
    /// Ends watches in planes that stop taking requests.
    lasting: Lasting,
    /// Names of the server itself, which no plane can have.
    own_hosts: OwnHosts,
}

/// Where root keeps a kind of internal record.
fn internal(resource: &str, name: &str) -> Key {
    PlaneKeys::new(PlaneId::ROOT).object(&GroupResource::new(INTERNAL, resource), None, name)
}

pub(super) fn state_key(id: PlaneId) -> Key {
    internal("planestates", id.as_str())
}

pub(super) fn birth_key(id: PlaneId) -> Key {
    internal("planebirths", id.as_str())
}

/// How far a plane that arrives has come.
pub(super) fn arrival_key(id: PlaneId) -> Key {
    internal("planearrivals", id.as_str())
}

fn address_key(r#type: &str, value: &str) -> Key {
    internal(ADDRESSES, &format!("{}:{value}", r#type.to_ascii_lowercase()))
}

/// The key of a Plane object.
pub fn plane_key(name: &str) -> Key {
    PlaneKeys::new(PlaneId::ROOT).object(&GroupResource::new(GROUP, PLURAL), None, name)
}

fn json_bytes(value: &impl Serialize) -> bytes::Bytes {
    serde_json::to_vec(value).expect("a record is plain JSON").into()
}

pub(super) fn read_record<T: serde::de::DeserializeOwned>(record: &Record) -> Result<T, ApiError> {
    serde_json::from_slice(&record.value)
        .map_err(|error| ApiError::internal("a plane's record is damaged").because(error))
}

impl Directory {
    /// Opens the directory of a store, making root's records on first start.
    pub async fn open(
        store: Arc<dyn Store>,
        schemes: Arc<Schemes>,
        objects: BaseObjects,
    ) -> Result<Arc<Self>, ApiError> {
        let usual = schemes.usual();
        let layers = Shelf::open(store.clone(), schemes.widest().clone(), usual, objects).await?;
        let (birth_at, state_at) = (birth_key(PlaneId::ROOT), state_key(PlaneId::ROOT));
        if store.get(&birth_at).await?.is_none() {
            let birth = BirthRecord {
                name: String::new(),
                base: layers.newest(usual, Context::Plane).id.clone(),
                seed: Seed::random(),
                created: jiff::Timestamp::now(),
                profile: None,
                kept: None,
                arrival: None,
            };
            let state = StateRecord::root();
            let records = [
                (birth_at.clone(), json_bytes(&birth)),
                (state_at.clone(), json_bytes(&state)),
            ];
            store.commit(put_absent(records)).await.or_else(already_there)?;
        }
        let mut directory = Self {
            store,
            root: ArcSwap::from_pointee(placeholder(&schemes, &layers)),
            schemes,
            layers,
            cache: Followed::new(PLANES),
            addresses: Followed::new(CACHED_ADDRESSES),
            audits: Compiled::default(),
            classes: Followed::new(CACHED_CLASSES),
            names: Cache::new(CACHED_NAMES),
            lookups: Semaphore::new(LOOKUPS),
            lasting: Lasting::default(),
            own_hosts: OwnHosts::default(),
        };
        let root = directory.load(PlaneId::ROOT).await?;
        let root = root.ok_or_else(|| ApiError::internal("root has no records"))?;
        directory.root = ArcSwap::from_pointee(root);
        Ok(Arc::new(directory))
    }

    pub fn root(&self) -> Arc<Plane> {
        self.root.load_full()
    }

    /// What is served over all planes: every kind that some plane may serve.
    pub fn plane_scheme(&self) -> &Arc<Scheme> {
        self.schemes.widest()
    }

    /// The plane of this name. One that is not cached is confirmed by a linearizable read before it is 404.
    pub async fn by_name(&self, name: &str) -> Result<Arc<Plane>, ApiError> {
        // Mostly it is known: that must not cost the room of a load.
        if let Some(plane) = self.cache.known(name) {
            return Ok(plane);
        }
        let found = match PlaneName::parse(name) {
            Ok(key) => Box::pin(self.cache.get(&key, self.look_up(name))).await?,
            Err(_) => None,
        };
        found.ok_or_else(|| ApiError::not_found(&GroupResource::new(GROUP, PLURAL), name))
    }

    /// The plane with this id. `None` once it is dropped: a plane that was made anew under its name has another id.
    pub async fn by_id(&self, id: PlaneId) -> Result<Option<Arc<Plane>>, ApiError> {
        if id == PlaneId::ROOT {
            return Ok(Some(self.root()));
        }
        let Some(name) = self.name_of(id).await? else {
            return Ok(None);
        };
        match self.by_name(&name).await {
            Ok(plane) => Ok(Some(plane).filter(|plane| plane.id == id)),
            Err(error) if error.code() == http::StatusCode::NOT_FOUND => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn look_up(&self, name: &str) -> Result<Option<Arc<Plane>>, ApiError> {
        let _turn = self.lookups.acquire().await.expect("the semaphore is never closed");
        for _ in 0..LOOKUP_TRIES {
            let Some(record) = self.store.get_once(&plane_key(name)).await? else {
                return Ok(None);
            };
            let Some(id) = plane_id(&record)? else { return Ok(None) };
            if let Some(plane) = self.load(id).await? {
                return Ok(Some(Arc::new(plane)));
            }
            // Deleted between the reads, and perhaps created anew.
        }
        Ok(None)
    }

    /// Where a plane may go beside what all planes may. One that cannot be asked about goes nowhere else.
    pub async fn reach(self: Arc<Self>, id: PlaneId) -> Networks {
        match self.by_id(id).await {
            Ok(Some(plane)) => plane.class.reach.clone(),
            _ => Networks::default(),
        }
    }

    /// The plane that claims an address (`Project` or `Host`).
    pub async fn by_address(&self, r#type: &str, value: &str) -> Result<Option<Arc<Plane>>, ApiError> {
        let usable = !value.is_empty() && value.len() <= 253 && !value.contains('/');
        if !usable {
            return Ok(None);
        }
        let key = address_key(r#type, value);
        let load = async {
            let _turn = self.lookups.acquire().await.expect("the semaphore is never closed");
            let record = self.store.get(&key).await?;
            let name = record.map(|record| read_record::<String>(&record)).transpose()?;
            Ok::<_, ApiError>(Some(name.map(Arc::from)))
        };
        match self.addresses.get(key.name(), load).await?.flatten() {
            Some(name) => self.by_name(&name).await.map(Some),
            None => Ok(None),
        }
    }

    /// Keeps names for the server itself: by them it is root that is meant, whatever planes claim.
    pub fn reserve_hosts(&self, hosts: Vec<String>) {
        self.own_hosts.reserve(hosts);
    }

    /// Forgets what is cached of the plane that an address leads to.
    pub fn forget_address(&self, r#type: &str, value: &str) {
        let key = address_key(r#type, value);
        match self.addresses.peek(key.name()).flatten() {
            Some(name) => self.forget(&name),
            None => self.cache.forget_all(),
        }
        self.addresses.forget(key.name());
    }

    /// The name of the plane with this id, for answers that span planes. `None` once it is dropped.
    pub async fn name_of(&self, id: PlaneId) -> Result<Option<Arc<str>>, ApiError> {
        if let Some(name) = self.names.get(&id) {
            return Ok(Some(name));
        }
        let Some(record) = self.store.get(&birth_key(id)).await? else {
            return Ok(None);
        };
        let name: Arc<str> = read_record::<BirthRecord>(&record)?.name.into();
        self.names.insert(id, name.clone());
        Ok(Some(name))
    }

    /// Forgets what is cached of a plane: it changed, or a write found it stale.
    pub fn forget(&self, name: &str) {
        self.cache.forget(name);
    }

    /// The stored birth of a plane.
    pub async fn birth_record(&self, id: PlaneId) -> Result<BirthRecord, ApiError> {
        let record = self.store.get(&birth_key(id)).await?;
        read_record(&record.ok_or_else(|| ApiError::internal("the plane has no birth record"))?)
    }

    /// Gives a plane that is being filled the base layer, seed and creation time of the one it is made from.
    pub async fn adopt_birth(&self, plane: &Plane, from: BirthRecord) -> Result<(), ApiError> {
        let birth = BirthRecord {
            name: plane.name.to_string(),
            ..from
        };
        let txn = Txn {
            compares: vec![plane.fence(), plane.base_fence()],
            writes: vec![Write::Put {
                key: plane.birth_key(),
                value: json_bytes(&birth),
                ttl: None,
            }],
        };
        match self.store.commit(txn).await {
            Ok(_) => {}
            // A move that was begun again, or whose plane is not what it was.
            Err(CommitError::Conflict { .. }) => return Err(ApiError::stale_plane()),
            Err(error) => return Err(error.into()),
        }
        self.forget(&plane.name);
        Ok(())
    }

    async fn load(&self, id: PlaneId) -> Result<Option<Plane>, ApiError> {
        // A plane is kept as a whole.
        let Some(birth) = self.store.get_once(&birth_key(id)).await? else {
            return Ok(None);
        };
        let Some(state) = self.store.get_once(&state_key(id)).await? else {
            return Ok(None);
        };
        let record: BirthRecord = read_record(&birth)?;
        let profile = record.profile.unwrap_or(self.schemes.usual());
        let scheme = match id {
            PlaneId::ROOT => self.schemes.root(),
            _ => self.schemes.planes(profile),
        };
        let birth_revision = birth.revision;
        let birth = Birth {
            seed: record.seed,
            created: record.created,
            revision: record.kept.unwrap_or(birth_revision),
        };
        let base = self.layers.get(&record.base).await?;
        let recorded: StateRecord = read_record(&state)?;
        let class = match id {
            PlaneId::ROOT => Arc::default(),
            _ => self.class(&recorded.class).await?,
        };
        let uncommon = Uncommon {
            parent: recorded.parent,
            limits: (!recorded.limits.is_empty()).then(|| Box::new(recorded.limits)),
            audit: self.audits.of(&recorded.audit),
            arrival: record.arrival.map(Box::new),
            moved_to: recorded.moved_to.map(Box::new),
            moved_from: recorded.moved_from.and_then(|from| from.passer()),
        };
        Ok(Some(Plane {
            id,
            name: record.name.into(),
            scheme: scheme.clone(),
            profile,
            base,
            layers: self.layers.known().clone(),
            birth,
            state: recorded.state,
            context: recorded.context,
            class,
            uncommon: uncommon.boxed(),
            state_revision: state.revision,
            birth_revision,
            loud: Loud::default(),
        }))
    }

    /// What the class of this name says, "default" standing for none.
    async fn class(&self, name: &str) -> Result<Arc<Class>, ApiError> {
        let name = if name.is_empty() { class::DEFAULT } else { name };
        let load = async {
            let record = self.store.get(&class::key(name)).await?;
            let stored = record.map(|record| Content::read(&record)).transpose()?;
            let class = match stored.and_then(Content::object) {
                Some(stored) => Class::read(name, stored.json())?,
                None => Class::named(name),
            };
            Ok::<_, ApiError>(Some(Arc::new(class)))
        };
        Ok(self.classes.get(name, load).await?.unwrap_or_default())
    }

    /// A class has changed: its planes are to be looked up again.
    fn forget_class(&self, name: &str) {
        self.classes.forget(name);
        self.cache.forget_all();
    }

    pub(super) fn layers(&self) -> &Shelf {
        &self.layers
    }

    pub(super) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Forgets planes and addresses as their records change, on whatever server that happens. Ends when the store closes.
    ///
    /// Nothing is cached while this does not run.
    pub async fn follow(self: Arc<Self>) {
        loop {
            let followed = self.follow_once().await;
            self.cache.end();
            self.addresses.end();
            self.classes.end();
            // What was not heard meanwhile may have been a suspension: clients begin their watches again.
            self.lasting.end_all();
            match followed {
                Ok(()) => return,
                Err(error) => tracing::warn!(%error, "the watch on planes was interrupted; starting over"),
            }
            tokio::time::sleep(FOLLOW_AGAIN).await;
        }
    }

    async fn follow_once(&self) -> Result<(), ApiError> {
        let internal = |resource| KeyRange::Resource(PlaneId::ROOT, GroupResource::new(INTERNAL, resource));
        let now = self.store.status().await?.revision;
        let mut states = self.store.watch(internal("planestates"), now).await?;
        let mut addresses = self.store.watch(internal(ADDRESSES), now).await?;
        let mut layers = self.store.watch(internal("baselayers"), now).await?;
        let mut classes = self.store.watch(class::range(), now).await?;
        self.layers.load().await?;
        self.classes.begin();
        self.cache.begin();
        self.addresses.begin();
        loop {
            let (signal, of) = tokio::select! {
                signal = states.next() => (signal, Heard::State),
                signal = addresses.next() => (signal, Heard::Address),
                signal = layers.next() => (signal, Heard::Layer),
                signal = classes.next() => (signal, Heard::Class),
            };
            match signal {
                Ok(Signal::Event(event)) => match of {
                    Heard::State => self.forget_event(&event),
                    Heard::Address => self.addresses.forget(event.key.name()),
                    Heard::Layer => self.layers.load().await?,
                    Heard::Class => self.forget_class(event.key.name()),
                },
                Ok(Signal::Dropped(..)) => {}
                Err(mica_store::WatchError::Closed) => return Ok(()),
                Err(error) => return Err(ApiError::unavailable("a watch ended").because(error)),
            }
        }
    }

    fn forget_event(&self, event: &mica_store::Event) {
        let current = match &event.change {
            mica_store::Change::Put(value) => Some(value.clone()),
            mica_store::Change::Delete => event.previous.as_ref().map(|record| record.value.clone()),
        };
        let Some(record) = current.and_then(|value| serde_json::from_slice::<StateRecord>(&value).ok()) else {
            return;
        };
        if record.state == State::Draining
            && let Ok(id) = PlaneId::parse(event.key.name())
        {
            // Watches over all planes tell of its last objects when its own records are gone.
            self.names.insert(id, record.name.as_str().into());
        }
        // A cached plane that was read after this change stays.
        let kept = self.cache.peek(record.name.as_str());
        if kept.is_none_or(|plane| plane.state_revision < event.revision) {
            self.cache.forget(record.name.as_str());
        }
        // After that: who begins to watch now looks at the plane again once it can be told to end.
        if matches!(record.state, State::Suspended | State::Restoring)
            && let Ok(id) = PlaneId::parse(event.key.name())
        {
            self.lasting.end(id);
        }
        // After it is forgotten: a watch that opens from now on sees that the plane is elsewhere.
        if record.state == State::Moved
            && let Ok(id) = PlaneId::parse(event.key.name())
        {
            self.store.end_watches(id);
        }
    }

    /// What ends a watch in a plane when the plane stops taking requests; `None` in root, which never does.
    ///
    /// The plane is looked at again after that is registered: a change that was heard before would have ended nothing.
    pub async fn outlasts(&self, plane: &Plane) -> Result<Option<Ending>, ApiError> {
        if plane.is_root() {
            return Ok(None);
        }
        let ending = self.lasting.begin(plane.id);
        let now = self.by_name(&plane.name).await?;
        if now.id == plane.id && now.state == plane.state {
            Ok(Some(ending))
        } else {
            Err(ApiError::stale_plane())
        }
    }

    fn birth(&self, plane: &Value, created: jiff::Timestamp, id: PlaneId, profile: Profile) -> BirthRecord {
        BirthRecord {
            name: object::name(plane).to_owned(),
            base: self.layers.newest(profile, context(plane)).id.clone(),
            seed: self.root.load().birth.seed.of_plane(id),
            created,
            profile: Some(profile),
            kept: None,
            arrival: None,
        }
    }
}

/// Whose change was heard of.
#[derive(Clone, Copy)]
enum Heard {
    State,
    Address,
    Layer,
    Class,
}

/// A transaction that puts records which must not exist.
fn put_absent(records: impl IntoIterator<Item = (Key, bytes::Bytes)>) -> Txn {
    let mut txn = Txn::default();
    for (key, value) in records {
        txn.compares.push(Compare::Absent(key.clone()));
        txn.writes.push(Write::Put { key, value, ttl: None });
    }
    txn
}

/// Another server that shares the store was first: good.
fn already_there(error: mica_store::CommitError) -> Result<mica_store::Committed, ApiError> {
    match error {
        mica_store::CommitError::Conflict { .. } => Ok(mica_store::Committed {
            revision: Revision(0),
            revisions: Vec::new(),
        }),
        error => Err(error.into()),
    }
}

fn placeholder(schemes: &Schemes, layers: &Shelf) -> Plane {
    let id = PlaneId::ROOT;
    Plane {
        id,
        name: CompactString::default(),
        scheme: schemes.root().clone(),
        profile: schemes.usual(),
        base: layers.newest(schemes.usual(), Context::Plane).clone(),
        layers: layers.known().clone(),
        birth: Birth {
            seed: Seed::random(),
            created: jiff::Timestamp::UNIX_EPOCH,
            revision: Revision(0),
        },
        state: State::Active,
        context: Context::Plane,
        class: Arc::default(),
        uncommon: None,
        state_revision: Revision(0),
        birth_revision: Revision(0),
        loud: Loud::default(),
    }
}

/// The id in a stored Plane object.
fn plane_id(record: &Record) -> Result<Option<PlaneId>, ApiError> {
    #[derive(Deserialize)]
    struct WithStatus {
        status: WithId,
    }
    #[derive(Deserialize)]
    struct WithId {
        id: String,
    }
    let Some(stored) = Content::read(record)?.object() else {
        return Ok(None);
    };
    let plane: WithStatus = serde_json::from_slice(stored.json())
        .map_err(|error| ApiError::internal("a stored Plane is damaged").because(error))?;
    Ok(PlaneId::parse(&plane.status.id).ok())
}

/// The id in a Plane's tree.
pub fn id_of(plane: &Value) -> Option<PlaneId> {
    PlaneId::parse(object::string(plane, &["status", "id"])).ok()
}

fn addresses(plane: &Value) -> Vec<Key> {
    let list = object::list(plane, &["spec", "addresses"]);
    list.iter()
        .map(|address| address_key(object::string(address, &["type"]), object::string(address, &["value"])))
        .collect()
}

/// What a Plane object is the plane of.
fn context(plane: &Value) -> Context {
    let addresses = object::list(plane, &["spec", "addresses"]);
    if addresses
        .iter()
        .any(|address| object::string(address, &["type"]) == "Project")
    {
        Context::Project
    } else if object::get(plane, &["metadata", "annotations", CONTROL_PLANE_ANNOTATION]).is_some() {
        Context::ControlPlane
    } else {
        Context::Plane
    }
}

/// The state that a Plane object asks for.
fn wanted_state(plane: &Value) -> State {
    if object::get(plane, &["metadata", "deletionTimestamp"]).is_some() {
        return State::Draining;
    }
    if object::get(plane, &["metadata", "annotations", RESTORING]).is_some() {
        return State::Restoring;
    }
    match object::string(plane, &["spec", "state"]) {
        "ReadOnly" => State::ReadOnly,
        "Suspended" => State::Suspended,
        "Arriving" => State::Arriving,
        "Moving" => State::Moving,
        "Moved" => State::Moved,
        _ => State::Active,
    }
}

fn is_plane(served: &Served) -> bool {
    served.group() == GROUP && served.plural() == PLURAL
}

impl SideWrites for Directory {
    fn complete<'a>(&'a self, served: &Served, new: &'a mut Value) -> Option<BoxFuture<'a, Result<(), ApiError>>> {
        is_plane(served).then(|| {
            let completed = async {
                let id = PlaneId::from_random(rand::random());
                object::set(new, &["status"], json!({"id": id.as_str()}));
                if object::string(new, &["spec", "profile"]).is_empty() {
                    let class = self.class(object::string(new, &["spec", "className"])).await?;
                    let profile = class.profile.unwrap_or(self.schemes.usual());
                    object::set(new, &["spec", "profile"], profile.as_str());
                }
                Ok(())
            };
            completed.boxed()
        })
    }

    fn on_create(&self, served: &Served, new: &Value) -> Result<Side, ApiError> {
        let Some(id) = id_of(new).filter(|_| is_plane(served)) else {
            return Ok(Side::default());
        };
        let name = object::name(new);
        let created = object::string(new, &["metadata", "creationTimestamp"]).parse();
        let created = created.map_err(|error| ApiError::internal("a Plane has no creation time").because(error))?;
        let profile = Profile::parse(object::string(new, &["spec", "profile"])).unwrap_or(self.schemes.usual());
        let mut records = vec![
            (birth_key(id), json_bytes(&self.birth(new, created, id, profile))),
            (state_key(id), json_bytes(&StateRecord::of(new))),
        ];
        let claims = addresses(new);
        self.own_hosts.check(claims.iter())?;
        records.extend(claims.into_iter().map(|key| (key, json_bytes(&name))));
        let mut txn = put_absent(records);
        txn.writes.extend(self.layers.newest_write(profile, context(new)));
        Ok(Side {
            compares: txn.compares,
            writes: txn.writes,
            ..Side::default()
        })
    }

    fn on_update(&self, served: &Served, new: &Value, old: &Value) -> Result<Side, ApiError> {
        let Some(id) = id_of(old).filter(|_| is_plane(served)) else {
            return Ok(Side::default());
        };
        let mut side = Side::default();
        let name = object::name(new);
        let state = StateRecord::of(new);
        if state != StateRecord::of(old) {
            side.writes.push(Write::Put {
                key: state_key(id),
                value: json_bytes(&state),
                ttl: None,
            });
        }
        // How far it came the last time says nothing of this one: it is not whole before it was copied again.
        if state.state == State::Arriving && wanted_state(old) != State::Arriving {
            side.writes.push(Write::Delete { key: arrival_key(id) });
        }
        let (before, after) = (addresses(old), addresses(new));
        self.own_hosts.check(after.iter().filter(|key| !before.contains(key)))?;
        for key in before.iter().filter(|key| !after.contains(key)) {
            side.writes.push(Write::Delete { key: key.clone() });
        }
        for key in after.into_iter().filter(|key| !before.contains(key)) {
            side.compares.push(Compare::Absent(key.clone()));
            side.writes.push(Write::Put {
                key,
                value: json_bytes(&name),
                ttl: None,
            });
        }
        Ok(side)
    }

    fn on_remove(&self, served: &Served, old: &Value) -> Result<Side, ApiError> {
        let Some(id) = id_of(old).filter(|_| is_plane(served)) else {
            return Ok(Side::default());
        };
        let mut writes = vec![
            Write::DropPlane(id),
            Write::Delete { key: state_key(id) },
            Write::Delete { key: birth_key(id) },
            Write::Delete { key: arrival_key(id) },
            // Whatever of it is left anywhere cannot be opened any more.
            Write::Delete {
                key: seal::plane_key(id),
            },
        ];
        writes.extend(addresses(old).into_iter().map(|key| Write::Delete { key }));
        Ok(Side {
            writes,
            ..Side::default()
        })
    }

    fn is_known(&self, plane: &Plane) -> bool {
        let kept = self.cache.peek(plane.name.as_str());
        kept.is_some_and(|kept| kept.id == plane.id && kept.state_revision == plane.state_revision)
    }

    fn committed(&self, key: &Key, side: &[Key]) {
        if class::is_key(key) {
            self.forget_class(key.name());
        }
        if key.group_resource() == GroupResource::new(GROUP, PLURAL) && key.plane() == PlaneId::ROOT {
            self.forget(key.name());
            // Addresses that changed hands; other records' names are no addresses, and forgetting those does nothing.
            side.iter().for_each(|key| self.addresses.forget(key.name()));
        }
    }
}

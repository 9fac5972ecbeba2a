//! The flow schemas and priority levels of planes, compiled when a plane is used.
//!
//! What planes are born with is compiled once for each base layer, and a plane in use costs a pointer to that. One with
//! objects of its own has them compiled for itself. All in a bounded cache that one watch over all planes keeps true.

use std::collections::HashMap;
use std::sync::Arc;

use http::HeaderValue;
use http::header::InvalidHeaderValue;
use mica_api::{GroupResource, PlaneId};
use mica_machinery::kind::bootstrap;
use mica_machinery::object;
use mica_store::Store;
use quick_cache::sync::Cache;
use serde_json::Value;

use super::flow::Flows;
use super::metric::{FlowMetrics, Metrics};
use crate::base::{BaseLayer, Seed, uid};
use crate::error::ApiError;
use crate::pages::Pages;
use crate::plane::Plane;
use crate::plane::cache::{Followed, PLANES};

pub(super) const GROUP: &str = "flowcontrol.apiserver.k8s.io";
pub(super) const SCHEMAS: &str = "flowschemas";
pub(super) const LEVELS: &str = "prioritylevelconfigurations";

/// Uids kept of planes that have what they were born with: two for each user of a plane, mostly.
const CACHED_UIDS: usize = 1_000;

/// Objects read at once.
pub(super) const PAGE: usize = 500;

/// Objects of one plane that are looked at, of each kind: each costs a comparison for every request of the plane.
const MAX_OBJECTS: usize = 500;

pub(super) fn resource(plural: &str) -> GroupResource {
    GroupResource::new(GROUP, plural)
}

/// The flows of one plane, or of all that have the same objects.
pub struct SharedFlows {
    pub flows: Flows,
    /// For each schema.
    pub metrics: Box<[FlowMetrics]>,
    uids: Uids,
}

/// The uids of schemas, and after them of levels.
enum Uids {
    /// These objects are nobody's.
    None,
    /// Those of the base layer, which are each plane's own: some that were said lately, by the plane and the place.
    Based(Cache<(Seed, usize), HeaderValue>),
    /// Those of a plane that has objects of its own.
    Own(Box<[Option<HeaderValue>]>),
}

impl SharedFlows {
    /// The uid of a schema in the plane with this seed, for clients. `None` if it has none.
    pub fn schema_uid(&self, seed: Seed, schema: usize) -> Option<HeaderValue> {
        self.uid(seed, schema)
    }

    /// The uid of a schema's level, for clients.
    pub fn level_uid(&self, seed: Seed, schema: usize) -> Option<HeaderValue> {
        self.uid(seed, self.flows.schemas.len() + self.flows.schemas[schema].level)
    }

    fn uid(&self, seed: Seed, place: usize) -> Option<HeaderValue> {
        match &self.uids {
            Uids::None => None,
            Uids::Based(said) => said
                .get_or_insert_with(&(seed, place), || based_uid(&self.flows, seed, place))
                .ok(),
            Uids::Own(uids) => uids[place].clone(),
        }
    }
}

/// The uid that an object of the base layer has in the plane with this seed.
fn based_uid(flows: &Flows, seed: Seed, place: usize) -> Result<HeaderValue, InvalidHeaderValue> {
    let (plural, name) = named(flows, place);
    HeaderValue::try_from(uid(seed, &resource(plural), name))
}

/// What is at a place among schemas, and after them levels.
fn named(flows: &Flows, place: usize) -> (&'static str, &str) {
    match place.checked_sub(flows.schemas.len()) {
        None => (SCHEMAS, &flows.schemas[place].name),
        Some(level) => (LEVELS, &flows.levels.all[level].name),
    }
}

/// The flows of all planes.
pub struct FlowCache {
    store: Arc<dyn Store>,
    planes: Followed<PlaneId, Arc<SharedFlows>>,
    bases: papaya::HashMap<String, Arc<SharedFlows>>,
    metrics: Arc<Metrics>,
}

/// A plane's own objects of one kind, by name; `None` hides one of the base layer.
type Own = HashMap<String, Option<Value>>;

impl FlowCache {
    pub fn new(store: Arc<dyn Store>, metrics: Arc<Metrics>) -> Self {
        Self {
            store,
            planes: Followed::new(PLANES),
            bases: papaya::HashMap::new(),
            metrics,
        }
    }

    pub async fn of(&self, plane: &Plane) -> Result<Arc<SharedFlows>, ApiError> {
        if let Some(known) = self.planes.known(&plane.id) {
            return Ok(known);
        }
        let loading = Box::pin(self.planes.get(&plane.id, async { self.load(plane).await.map(Some) }));
        Ok(loading.await?.expect("a load gives something"))
    }

    async fn load(&self, plane: &Plane) -> Result<Arc<SharedFlows>, ApiError> {
        let (schemas, levels) = (self.own(plane, SCHEMAS).await?, self.own(plane, LEVELS).await?);
        let shared = if schemas.is_empty() && levels.is_empty() {
            self.base(plane)?
        } else {
            let flows = Flows::new(
                overlaid(plane, SCHEMAS, &schemas)?.iter(),
                overlaid(plane, LEVELS, &levels)?.iter(),
            );
            let uid = |place| {
                let (plural, name) = named(&flows, place);
                let own = if plural == SCHEMAS { &schemas } else { &levels };
                match own.get(name) {
                    Some(Some(object)) => HeaderValue::from_str(object::string(object, &["metadata", "uid"])).ok(),
                    _ => based_uid(&flows, plane.birth.seed, place).ok(),
                }
            };
            let uids = (0..flows.schemas.len() + flows.levels.all.len()).map(uid).collect();
            Arc::new(self.shared(&plane.base, flows, Uids::Own(uids)))
        };
        if plane.is_root() {
            self.metrics.show_levels(&shared.flows.levels);
        }
        Ok(shared)
    }

    async fn own(&self, plane: &Plane, plural: &str) -> Result<Own, ApiError> {
        let range = plane.keys().resource(&resource(plural));
        let mut pages = Pages::new(&*self.store, &range, PAGE);
        let mut own = Own::new();
        while let Some(page) = pages.next().await? {
            for (key, record) in &page {
                if own.len() >= MAX_OBJECTS {
                    return Ok(own);
                }
                let stored = plane.read(key, record)?.object();
                let value = stored.map(|stored| parse(stored.json())).transpose()?;
                own.insert(key.rest().to_owned(), value);
            }
        }
        Ok(own)
    }

    /// The flows of a plane that has no objects of its own.
    fn base(&self, plane: &Plane) -> Result<Arc<SharedFlows>, ApiError> {
        if let Some(known) = self.bases.pin().get(&plane.base.id) {
            return Ok(known.clone());
        }
        let nothing = Own::new();
        let schemas = overlaid(plane, SCHEMAS, &nothing)?;
        let levels = overlaid(plane, LEVELS, &nothing)?;
        let shared = if schemas.is_empty() {
            // A layer of a time, or a profile, without them: what upstream suggests.
            let (schemas, levels): (Vec<Value>, Vec<Value>) = bootstrap::flow::objects("")
                .into_iter()
                .partition(|object| object["kind"] == "FlowSchema");
            self.shared(&plane.base, Flows::new(schemas.iter(), levels.iter()), Uids::None)
        } else {
            let uids = Uids::Based(Cache::new(CACHED_UIDS));
            self.shared(&plane.base, Flows::new(schemas.iter(), levels.iter()), uids)
        };
        let shared = Arc::new(shared);
        self.bases.pin().insert(plane.base.id.clone(), shared.clone());
        Ok(shared)
    }

    fn shared(&self, base: &BaseLayer, flows: Flows, uids: Uids) -> SharedFlows {
        let label = |plural: &str, name: &str| {
            // Names that tenants invent do not become labels: they could be any number.
            if matches!(uids, Uids::None) || base.contains(&resource(plural), name) {
                name.to_owned()
            } else {
                "custom".to_owned()
            }
        };
        let metrics = flows.schemas.iter().map(|schema| {
            let level = label(LEVELS, &flows.levels.all[schema.level].name);
            self.metrics.of(&level, &label(SCHEMAS, &schema.name))
        });
        SharedFlows {
            metrics: metrics.collect(),
            flows,
            uids,
        }
    }

    /// Forgets planes as their objects change, on whatever server that happens. Ends when the store closes.
    ///
    /// Nothing is cached while this does not run.
    pub async fn follow(&self) {
        let resources = [SCHEMAS, LEVELS].map(resource);
        let forget = |plane: PlaneId| self.planes.forget(&plane);
        self.planes
            .follow(&*self.store, &resources, "flow schemas", forget)
            .await;
    }
}

fn parse(json: &[u8]) -> Result<Value, ApiError> {
    serde_json::from_slice(json).map_err(|error| ApiError::internal("stored data is damaged").because(error))
}

/// A plane's objects of one kind: its own, and those of its base layer that they do not hide.
fn overlaid(plane: &Plane, plural: &str, own: &Own) -> Result<Vec<Value>, ApiError> {
    let resource = resource(plural);
    let mut all = Vec::new();
    for rest in plane.base.rests(&resource, "", None) {
        if !own.contains_key(rest)
            && let Some(stored) = plane.base.get(&resource, rest, &plane.birth)
        {
            all.push(parse(stored.json())?);
        }
    }
    all.extend(own.values().flatten().cloned());
    Ok(all)
}

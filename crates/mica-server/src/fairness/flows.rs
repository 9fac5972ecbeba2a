//! The flow schemas and priority levels of planes, compiled when a plane is used.
//!
//! What planes are born with is compiled once for each base layer. A plane in use costs a pointer to that and the uids that
//! were asked for; one with objects of its own has them compiled for itself. All in a bounded cache that one watch over all
//! planes keeps true.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use http::HeaderValue;
use mica_api::{GroupResource, PlaneId};
use mica_machinery::kind::bootstrap;
use mica_machinery::object;
use mica_store::Store;
use serde_json::Value;

use super::flow::Flows;
use super::metric::{FlowMetrics, Metrics};
use crate::base::{BaseLayer, uid};
use crate::error::ApiError;
use crate::pages::Pages;
use crate::plane::Plane;
use crate::plane::cache::Followed;

pub(super) const GROUP: &str = "flowcontrol.apiserver.k8s.io";
pub(super) const SCHEMAS: &str = "flowschemas";
pub(super) const LEVELS: &str = "prioritylevelconfigurations";

/// Planes whose flows are kept.
const CACHED_PLANES: usize = 10_000;

/// Objects read at once.
pub(super) const PAGE: usize = 500;

/// Objects of one plane that are looked at, of each kind: each costs a comparison for every request of the plane.
const MAX_OBJECTS: usize = 500;

pub(super) fn resource(plural: &str) -> GroupResource {
    GroupResource::new(GROUP, plural)
}

/// The flows of one plane.
pub struct PlaneFlows {
    pub shared: Arc<SharedFlows>,
    seed: String,
    /// Of schemas, then of levels. Those of the base layer are made when they are first asked for.
    uids: Box<[OnceLock<HeaderValue>]>,
}

/// What planes with the same objects have in common.
pub struct SharedFlows {
    pub flows: Flows,
    /// For each schema.
    pub metrics: Box<[FlowMetrics]>,
    /// Whether uids of objects that are not the plane's own are those of the base layer.
    based: Based,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Based {
    Yes,
    /// These objects are nobody's, and have no uid.
    No,
}

impl PlaneFlows {
    /// The uid of a schema, for clients. `None` if it has none.
    pub fn schema_uid(&self, schema: usize) -> Option<HeaderValue> {
        let name = &self.shared.flows.schemas[schema].name;
        self.uid(schema, SCHEMAS, name)
    }

    /// The uid of a schema's level, for clients.
    pub fn level_uid(&self, schema: usize) -> Option<HeaderValue> {
        let flows = &self.shared.flows;
        let level = flows.schemas[schema].level;
        self.uid(flows.schemas.len() + level, LEVELS, &flows.levels.all[level].name)
    }

    fn uid(&self, place: usize, plural: &str, name: &str) -> Option<HeaderValue> {
        if let Some(known) = self.uids[place].get() {
            return Some(known.clone());
        }
        if self.shared.based == Based::No {
            return None;
        }
        let text = uid(&self.seed, &resource(plural), name);
        let value = HeaderValue::try_from(text).ok()?;
        Some(self.uids[place].get_or_init(|| value).clone())
    }
}

/// The flows of all planes.
pub struct FlowCache {
    store: Arc<dyn Store>,
    planes: Followed<Arc<PlaneFlows>>,
    bases: papaya::HashMap<String, Arc<SharedFlows>>,
    metrics: Arc<Metrics>,
}

/// A plane's own objects of one kind, by name; `None` hides one of the base layer.
type Own = HashMap<String, Option<Value>>;

impl FlowCache {
    pub fn new(store: Arc<dyn Store>, metrics: Arc<Metrics>) -> Self {
        Self {
            store,
            planes: Followed::new(CACHED_PLANES),
            bases: papaya::HashMap::new(),
            metrics,
        }
    }

    pub async fn of(&self, plane: &Plane) -> Result<Arc<PlaneFlows>, ApiError> {
        if let Some(known) = self.planes.peek(plane.id.as_str()) {
            return Ok(known);
        }
        let loading = Box::pin(self.planes.get(plane.id.as_str(), async {
            Ok::<_, ApiError>(Some(Arc::new(self.load(plane).await?)))
        }));
        Ok(loading.await?.expect("a load gives something"))
    }

    async fn load(&self, plane: &Plane) -> Result<PlaneFlows, ApiError> {
        let (schemas, levels) = (self.own(plane, SCHEMAS).await?, self.own(plane, LEVELS).await?);
        let shared = if schemas.is_empty() && levels.is_empty() {
            self.base(plane)?
        } else {
            let schemas = overlaid(plane, SCHEMAS, &schemas)?;
            let levels = overlaid(plane, LEVELS, &levels)?;
            Arc::new(self.shared(&plane.base, &schemas, &levels, Based::Yes))
        };
        if plane.is_root() {
            self.metrics.show_levels(&shared.flows.levels);
        }
        let flows = &shared.flows;
        let own_uid = |own: &Own, name: &str| {
            let place = OnceLock::new();
            if let Some(Some(object)) = own.get(name)
                && let Ok(uid) = HeaderValue::from_str(object::string(object, &["metadata", "uid"]))
            {
                place.get_or_init(|| uid);
            }
            place
        };
        let of_schemas = flows.schemas.iter().map(|schema| own_uid(&schemas, &schema.name));
        let of_levels = flows.levels.all.iter().map(|level| own_uid(&levels, &level.name));
        let uids = of_schemas.chain(of_levels).collect();
        Ok(PlaneFlows {
            seed: plane.birth.seed.clone(),
            uids,
            shared,
        })
    }

    async fn own(&self, plane: &Plane, plural: &str) -> Result<Own, ApiError> {
        let range = plane.keys.resource(&resource(plural));
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
            self.shared(&plane.base, &schemas, &levels, Based::No)
        } else {
            self.shared(&plane.base, &schemas, &levels, Based::Yes)
        };
        let shared = Arc::new(shared);
        self.bases.pin().insert(plane.base.id.clone(), shared.clone());
        Ok(shared)
    }

    fn shared(&self, base: &BaseLayer, schemas: &[Value], levels: &[Value], based: Based) -> SharedFlows {
        let flows = Flows::new(schemas.iter(), levels.iter());
        let label = |plural: &str, name: &str| {
            // Names that tenants invent do not become labels: they could be any number.
            if based == Based::No || base.contains(&resource(plural), name) {
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
            based,
        }
    }

    /// Forgets planes as their objects change, on whatever server that happens. Ends when the store closes.
    ///
    /// Nothing is cached while this does not run.
    pub async fn follow(&self) {
        let resources = [SCHEMAS, LEVELS].map(resource);
        let forget = |plane: PlaneId| self.planes.forget(plane.as_str());
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

//! The roles and bindings of planes, compiled when a plane is used by somebody who is no administrator.
//!
//! What all planes are born with is compiled once for each base layer, and a plane in use costs a pointer to that. One with
//! roles or bindings of its own has them compiled for itself. All in a bounded cache that one watch over all planes keeps
//! true.

use std::collections::HashSet;
use std::sync::Arc;

use mica_api::{GroupResource, PlaneId};
use mica_machinery::kind::rbac::GROUP;
use mica_machinery::rbac::{Layer, Place, Policy};
use mica_store::Store;
use serde_json::Value;

use crate::base::BaseLayer;
use crate::error::ApiError;
use crate::pages::Pages;
use crate::plane::cache::{Followed, PLANES};
use crate::plane::{Own, Plane};
use crate::stored::Stored;

/// Objects read at once.
const PAGE: usize = 500;

/// What an object of one of the four resources is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    Role,
    Binding,
}

const RESOURCES: [(&str, Part); 4] = [
    ("clusterroles", Part::Role),
    ("roles", Part::Role),
    ("clusterrolebindings", Part::Binding),
    ("rolebindings", Part::Binding),
];

impl Part {
    fn place(self, namespace: &str, name: &str) -> Place {
        let (namespace, name) = (namespace.into(), name.into());
        match self {
            Self::Role => Place::Role { namespace, name },
            Self::Binding => Place::Binding { namespace, name },
        }
    }

    fn add(self, layer: &mut Layer, rest: &str, stored: &Stored) -> Result<(), ApiError> {
        let value: Value = serde_json::from_slice(stored.json())
            .map_err(|error| ApiError::internal("stored data is damaged").because(error))?;
        let (namespace, name) = split(rest);
        match self {
            Self::Role => layer.add_role(namespace, name, &value),
            Self::Binding => layer.add_binding(namespace, name, &value),
        }
        Ok(())
    }
}

/// The namespace, empty for what is of the whole plane, and the name in the rest of a key.
fn split(rest: &str) -> (&str, &str) {
    rest.split_once('/').unwrap_or(("", rest))
}

/// The policies of all planes.
pub struct Policies {
    store: Arc<dyn Store>,
    planes: Followed<PlaneId, Arc<Policy>>,
    bases: papaya::HashMap<String, Base>,
}

/// What planes of one base layer are born with.
#[derive(Clone)]
struct Base {
    layer: Arc<Layer>,
    /// The policy of those that have nothing else.
    alone: Arc<Policy>,
}

impl Policies {
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            planes: Followed::new(PLANES),
            bases: papaya::HashMap::new(),
        }
    }

    pub async fn of(&self, plane: &Plane) -> Result<Arc<Policy>, ApiError> {
        let loaded = self
            .planes
            .get(&plane.id, async { Ok::<_, ApiError>(Some(self.load(plane).await?)) });
        Ok(loaded.await?.expect("a load gives something"))
    }

    async fn load(&self, plane: &Plane) -> Result<Arc<Policy>, ApiError> {
        let base = self.base(&plane.base, plane)?;
        let (mut own, mut hidden, mut alone) = (Layer::default(), HashSet::new(), true);
        for (plural, part) in RESOURCES {
            let resource = GroupResource::new(GROUP, plural);
            let range = plane.keys().resource(&resource);
            let mut pages = Pages::new(&*self.store, &range, PAGE);
            while let Some(page) = pages.next().await? {
                for (key, record) in &page {
                    alone = false;
                    if plane.base.contains(&resource, key.rest()) {
                        let (namespace, name) = split(key.rest());
                        hidden.insert(part.place(namespace, name));
                    }
                    if let Own::Object(stored) | Own::Based(stored) = plane.read(key, record)? {
                        part.add(&mut own, key.rest(), &stored)?;
                    }
                }
            }
        }
        Ok(match alone {
            true => base.alone,
            false => Arc::new(Policy::new(base.layer, own, hidden)),
        })
    }

    fn base(&self, base: &BaseLayer, plane: &Plane) -> Result<Base, ApiError> {
        if let Some(known) = self.bases.pin().get(&base.id) {
            return Ok(known.clone());
        }
        let mut layer = Layer::default();
        for (plural, part) in RESOURCES {
            let resource = GroupResource::new(GROUP, plural);
            for rest in base.rests(&resource, "", None) {
                if let Some(stored) = base.get(&resource, rest, &plane.birth) {
                    part.add(&mut layer, rest, &stored)?;
                }
            }
        }
        let layer = Arc::new(layer);
        let alone = Arc::new(Policy::new(layer.clone(), Layer::default(), HashSet::new()));
        let compiled = Base { layer, alone };
        self.bases.pin().insert(base.id.clone(), compiled.clone());
        Ok(compiled)
    }

    /// Forgets planes as their roles and bindings change, on whatever server that happens. Ends when the store closes.
    ///
    /// Nothing is cached while this does not run.
    pub async fn follow(&self) {
        let resources = RESOURCES.map(|(plural, _)| GroupResource::new(GROUP, plural));
        let forget = |plane: PlaneId| self.planes.forget(&plane);
        self.planes.follow(&*self.store, &resources, "roles", forget).await;
    }
}

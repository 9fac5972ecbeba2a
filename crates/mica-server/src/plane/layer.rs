//! The base layers of a store: where they lie, which one is this server's, and which are known.
//!
//! A layer's name is the hash of its content, so it can be taken from anywhere and is never changed nor removed.

use std::sync::{Arc, OnceLock};

use mica_api::{GroupResource, PlaneId};
use mica_machinery::kind::Profile;
use mica_store::{Compare, Key, PlaneKeys, RangeQuery, Record, Store, Txn, Write};
use serde_json::Value;

use super::Context;
use crate::base::{BaseLayer, Layers};
use crate::error::ApiError;
use crate::registry::owner::INTERNAL_GROUP;
use crate::scheme::Scheme;

/// Layers of a store: each release of ours and each authority make some.
const MAX_LAYERS: usize = 1000;

/// The layers of one store, as one server knows them.
pub struct Shelf {
    store: Arc<dyn Store>,
    /// Knows every kind that a layer may hold.
    scheme: Arc<Scheme>,
    objects: BaseObjects,
    /// This server's own, which new planes of each profile and context are born from. Made when the first is.
    newest: [[OnceLock<Newest>; Context::ALL.len()]; Profile::ALL.len()],
    /// All that are in the store.
    known: Arc<Layers>,
}

/// Says what planes of a profile and context are born with.
pub type BaseObjects = Box<dyn Fn(Profile, Context) -> Vec<Value> + Send + Sync>;

struct Newest {
    layer: Arc<BaseLayer>,
    /// Its objects, as they are stored.
    value: bytes::Bytes,
}

/// Where root, and a snapshot, has layers.
pub fn base_layers() -> GroupResource {
    GroupResource::new(INTERNAL_GROUP, "baselayers")
}

fn key(id: &str) -> Key {
    PlaneKeys::new(PlaneId::ROOT).object(&base_layers(), None, id)
}

/// The stored objects of a layer.
pub async fn layer_record(store: &Arc<dyn Store>, id: &str) -> Result<Record, ApiError> {
    let record = store.get(&key(id)).await?;
    record.ok_or_else(|| ApiError::internal(&format!("base layer {id} is missing")))
}

impl Shelf {
    /// Opens the layers of a store and puts this server's own of a profile among them.
    pub async fn open(
        store: Arc<dyn Store>,
        scheme: Arc<Scheme>,
        profile: Profile,
        objects: BaseObjects,
    ) -> Result<Self, ApiError> {
        let shelf = Self {
            store,
            scheme,
            objects,
            newest: Default::default(),
            known: Arc::default(),
        };
        shelf.keep_newest(profile, Context::Plane).await?;
        shelf.load().await?;
        Ok(shelf)
    }

    fn own(&self, profile: Profile, context: Context) -> &Newest {
        self.newest[profile as usize][context as usize].get_or_init(|| {
            let objects = (self.objects)(profile, context);
            Newest {
                layer: Arc::new(BaseLayer::new(&self.scheme, &objects)),
                value: serde_json::to_vec(&objects).expect("objects are plain JSON").into(),
            }
        })
    }

    /// The layer that new planes of a profile and context are born from. It may not be in the store yet.
    pub fn newest(&self, profile: Profile, context: Context) -> &Arc<BaseLayer> {
        &self.own(profile, context).layer
    }

    /// Makes sure that the newest layer of a profile and context is in the store.
    pub async fn keep_newest(&self, profile: Profile, context: Context) -> Result<(), ApiError> {
        let Newest { layer, value } = self.own(profile, context);
        if self.known.get(&layer.id).is_none() {
            self.put(&layer.id, value.clone()).await?;
            self.known.insert(layer.clone());
        }
        Ok(())
    }

    /// What must be written with the first plane of a profile and context: its layer, unless it is in the store.
    pub fn newest_write(&self, profile: Profile, context: Context) -> Option<Write> {
        let Newest { layer, value } = self.own(profile, context);
        self.known.get(&layer.id).is_none().then(|| Write::Put {
            key: key(&layer.id),
            value: value.clone(),
            ttl: None,
        })
    }

    pub fn known(&self) -> &Arc<Layers> {
        &self.known
    }

    /// The layer of this id.
    pub async fn get(&self, id: &str) -> Result<Arc<BaseLayer>, ApiError> {
        if let Some(layer) = self.known.get(id) {
            return Ok(layer);
        }
        let record = layer_record(&self.store, id).await?;
        self.learn(id, &record.value)
    }

    /// Takes in a layer of another store.
    pub async fn adopt(&self, id: &str, value: bytes::Bytes) -> Result<(), ApiError> {
        if self.known.get(id).is_none() {
            self.learn(id, &value)?;
            self.put(id, value).await?;
        }
        Ok(())
    }

    /// Reads the layers that are not known yet.
    pub async fn load(&self) -> Result<(), ApiError> {
        let range = PlaneKeys::new(PlaneId::ROOT).resource(&base_layers());
        let page = self
            .store
            .range(RangeQuery {
                range: &range,
                at: None,
                after: None,
                limit: MAX_LAYERS,
            })
            .await?;
        for (key, record) in &page.records {
            if self.known.get(key.name()).is_none() {
                self.learn(key.name(), &record.value)?;
            }
        }
        Ok(())
    }

    fn learn(&self, id: &str, value: &[u8]) -> Result<Arc<BaseLayer>, ApiError> {
        let damaged = || ApiError::internal(&format!("base layer {id} is damaged"));
        let objects: Vec<Value> = serde_json::from_slice(value).map_err(|error| damaged().because(error))?;
        let layer = Arc::new(BaseLayer::new(&self.scheme, &objects));
        if layer.id != id {
            return Err(damaged());
        }
        self.known.insert(layer.clone());
        Ok(layer)
    }

    async fn put(&self, id: &str, value: bytes::Bytes) -> Result<(), ApiError> {
        let key = key(id);
        if self.store.get(&key).await?.is_some() {
            return Ok(());
        }
        let txn = Txn {
            compares: vec![Compare::Absent(key.clone())],
            writes: vec![Write::Put { key, value, ttl: None }],
        };
        match self.store.commit(txn).await {
            // Another server that shares the store was first: good.
            Ok(_) | Err(mica_store::CommitError::Conflict { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

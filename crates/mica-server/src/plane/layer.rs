//! The base layers of a store: where they lie, which one is this server's, and which are known.
//!
//! A layer's name is the hash of its content, so it can be taken from anywhere and is never changed nor removed.

use std::sync::Arc;

use mica_api::{GroupResource, PlaneId};
use mica_store::{Compare, Key, PlaneKeys, RangeQuery, Record, Store, Txn, Write};
use serde_json::Value;

use crate::base::{BaseLayer, Layers};
use crate::error::ApiError;
use crate::registry::owner::INTERNAL_GROUP;
use crate::scheme::Scheme;

/// Layers of a store: each release of ours and each authority make one.
const MAX_LAYERS: usize = 1000;

/// The layers of one store, as one server knows them.
pub struct Shelf {
    store: Arc<dyn Store>,
    scheme: Arc<Scheme>,
    /// This server's own, which new planes are born from.
    newest: Arc<BaseLayer>,
    known: Arc<Layers>,
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
    /// Opens the layers of a store and puts this server's own among them.
    pub async fn open(store: Arc<dyn Store>, scheme: Arc<Scheme>, objects: &[Value]) -> Result<Self, ApiError> {
        let newest = Arc::new(BaseLayer::new(&scheme, objects));
        let shelf = Self {
            store,
            scheme,
            newest,
            known: Arc::default(),
        };
        let value = serde_json::to_vec(objects).expect("objects are plain JSON");
        shelf.put(&shelf.newest.id, value.into()).await?;
        shelf.known.insert(shelf.newest.clone());
        shelf.load().await?;
        Ok(shelf)
    }

    pub fn newest(&self) -> &Arc<BaseLayer> {
        &self.newest
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

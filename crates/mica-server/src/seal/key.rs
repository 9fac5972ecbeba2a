//! Keys of planes: each plane's values are hidden with a key of its own, which lies in root's range, hidden with a key of
//! the configuration. It is made when the plane first hides something, and goes with the plane: what is left of the plane's
//! values anywhere cannot be opened without it.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mica_api::{GroupResource, PlaneId};
use mica_store::{CommitError, Compare, Key, PlaneKeys, ReadError, Revision, Store, Txn, Write};
use quick_cache::sync::Cache;
use serde::{Deserialize, Serialize};

use super::Sealing;
use super::cipher::Cipher;
use super::config::Way;
use crate::registry::owner::INTERNAL_GROUP;

/// Planes whose keys are kept. One is about 1 KB: the rounds of its cipher.
const CACHED: usize = 4096;
/// How often a key is made anew because another server was first.
const TRIES: usize = 4;

/// Where the key of a plane is.
pub fn place(plane: PlaneId) -> Key {
    PlaneKeys::ROOT.object(&GroupResource::new(INTERNAL_GROUP, "planekeys"), None, plane.as_str())
}

#[derive(Serialize, Deserialize)]
struct Kept {
    /// What values say that they are hidden with.
    id: String,
    /// The name of the configuration's key that hides this one.
    by: String,
    key: String,
}

/// A plane's key, ready to be used.
pub struct PlaneKey {
    pub id: String,
    pub cipher: Cipher,
    /// The name of the configuration's key that hides it.
    by: String,
}

impl PlaneKey {
    /// Opens a value of the plane. The number is 0 if the plane's key is hidden with the first of the configuration's.
    pub fn open(&self, rest: &[u8], key: &Key, masters: &[(String, Cipher)]) -> Result<(Vec<u8>, usize), &'static str> {
        let named = rest
            .strip_prefix(self.id.as_bytes())
            .and_then(|rest| rest.strip_prefix(b":"));
        let sealed = named.ok_or("the key of the plane is another one")?;
        let plain = self.cipher.open(sealed, key.as_str().as_bytes())?;
        Ok((plain, usize::from(!self.is_by_first(masters))))
    }

    fn is_by_first(&self, masters: &[(String, Cipher)]) -> bool {
        masters.first().is_some_and(|(name, _)| *name == self.by)
    }
}

/// Fetches, makes and keeps keys of planes.
pub struct PlaneKeyring {
    store: Arc<dyn Store>,
    sealing: Arc<Sealing>,
    known: Cache<(u64, PlaneId), Result<Arc<PlaneKey>, String>>,
}

impl PlaneKeyring {
    pub fn new(store: Arc<dyn Store>, sealing: Arc<Sealing>) -> Self {
        Self {
            store,
            sealing,
            known: Cache::new(CACHED),
        }
    }

    /// The key of a plane if it was fetched, or why there is none.
    pub fn cached(&self, plane: PlaneId) -> Option<Result<Arc<PlaneKey>, String>> {
        self.known.get(&(self.sealing.generation(), plane))
    }

    /// Fetches the key of a plane. What the store does not answer is asked again next time.
    pub async fn fetch(&self, plane: PlaneId) {
        let generation = self.sealing.generation();
        let found = match self.read(plane).await {
            Ok(Some((_, key))) => key,
            Ok(None) => Err("the plane has no key any more".to_owned()),
            Err(error) => return tracing::warn!(%error, "the key of a plane could not be read"),
        };
        self.known.insert((generation, plane), found);
    }

    /// The key of a plane, made if there is none, and hidden with the first of these.
    pub async fn make(&self, plane: PlaneId, masters: &[(String, Cipher)]) -> Result<Arc<PlaneKey>, CommitError> {
        if let Some(Ok(key)) = self.cached(plane)
            && key.is_by_first(masters)
        {
            return Ok(key);
        }
        let generation = self.sealing.generation();
        let key = self.read_or_make(plane, masters).await?;
        self.known.insert((generation, plane), Ok(key.clone()));
        Ok(key)
    }

    async fn read_or_make(&self, plane: PlaneId, masters: &[(String, Cipher)]) -> Result<Arc<PlaneKey>, CommitError> {
        let place = place(plane);
        let (name, master) = &masters[0];
        for _ in 0..TRIES {
            let found = self.read(plane).await.map_err(unread)?;
            let (bytes, id, compare) = match found {
                Some(((kept, _), Ok(key))) if kept.by == *name => return Ok(key),
                // It is hidden with a key that is on its way out.
                Some(((kept, revision), Ok(_))) => {
                    let bytes = self
                        .unwrap(&kept, &place)
                        .map_err(|why| CommitError::Unavailable(why.into()))?;
                    (bytes, kept.id, Compare::Unchanged(place.clone(), revision))
                }
                Some((_, Err(why))) => return Err(CommitError::Unavailable(why.into())),
                None => {
                    let bytes: [u8; 32] = rand::random();
                    let id = format!("{:08x}", rand::random::<u32>());
                    (bytes.to_vec(), id, Compare::Absent(place.clone()))
                }
            };
            let kept = Kept {
                by: name.clone(),
                key: STANDARD.encode(master.seal(&bytes, place.as_str().as_bytes())),
                id,
            };
            let value = serde_json::to_vec(&kept).expect("texts are plain JSON").into();
            let txn = Txn {
                compares: vec![compare],
                writes: vec![Write::Put {
                    key: place.clone(),
                    value,
                    ttl: None,
                }],
            };
            match self.store.commit(txn).await {
                Ok(_) => return Ok(Arc::new(ready(kept.id, kept.by, &bytes))),
                Err(CommitError::Conflict { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Err(CommitError::Unavailable(
            "others change the key of the plane all the time".into(),
        ))
    }

    async fn read(
        &self,
        plane: PlaneId,
    ) -> Result<Option<((Kept, Revision), Result<Arc<PlaneKey>, String>)>, ReadError> {
        let place = place(plane);
        let Some(record) = self.store.get(&place).await? else {
            return Ok(None);
        };
        let kept: Kept = serde_json::from_slice(&record.value)
            .map_err(|_| ReadError::Corrupt("the key of a plane is damaged".to_owned()))?;
        let key = self.unwrap(&kept, &place);
        let key = key.map(|bytes| Arc::new(ready(kept.id.clone(), kept.by.clone(), &bytes)));
        Ok(Some(((kept, record.revision), key)))
    }

    /// The bytes of a plane's key.
    fn unwrap(&self, kept: &Kept, place: &Key) -> Result<Vec<u8>, String> {
        let sealed = STANDARD.decode(&kept.key).unwrap_or_default();
        let table = self.sealing.table.load();
        let masters = table.keys_of_planes().filter(|(name, _)| *name == kept.by);
        let opened = masters
            .filter_map(|(_, master)| master.open(&sealed, place.as_str().as_bytes()).ok())
            .find(|bytes| bytes.len() == 32);
        opened.ok_or_else(|| "no matching key was found for the key of the plane".to_owned())
    }
}

fn ready(id: String, by: String, bytes: &[u8]) -> PlaneKey {
    PlaneKey {
        id,
        by,
        cipher: Cipher::gcm(bytes).expect("a plane's key has 32 bytes"),
    }
}

fn unread(error: ReadError) -> CommitError {
    CommitError::Unavailable(Box::new(error))
}

impl super::config::Table {
    /// The keys that hide those of planes.
    fn keys_of_planes(&self) -> impl Iterator<Item = (&str, &Cipher)> {
        let ways = self.ways().flat_map(|ways| &ways.0);
        let keys = ways.filter_map(|way| match way {
            Way::Planes(keys) => Some(keys),
            Way::Plain | Way::Keys { .. } => None,
        });
        keys.flatten().map(|(name, cipher)| (name.as_str(), cipher))
    }
}

//! Definitions made ready to serve, shared by what they say.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak};

use mica_machinery::kind::custom::{CustomKind, Offered, Standing};
use mica_machinery::schema::{Compiled, rule};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;

use super::Home;
use crate::discovery::Documents;
use crate::error::ApiError;
use crate::scheme::{Scheme, Served};
use crate::stored::Stored;

/// Schemas compiled at once: the rest of the server goes on meanwhile.
const COMPILATIONS: usize = 2;

type Hash = [u8; 32];

/// Every version of one definition.
#[derive(Debug)]
pub struct Versions {
    /// Of the definition: plural and group.
    pub name: String,
    hash: Hash,
    pub served: Vec<Arc<Served>>,
}

impl Versions {
    /// The version that objects are stored in.
    pub fn storage(&self) -> Option<&Arc<Served>> {
        self.served.iter().find(|served| {
            let kind = served.custom_kind();
            kind.is_some_and(|kind| kind.version == kind.storage_version)
        })
    }

    /// A version, if clients may ask for it.
    pub fn offered(&self, version: &str) -> Option<&Arc<Served>> {
        let served = self.served.iter().find(|served| served.version() == version)?;
        let kind = served.custom_kind()?;
        (kind.offered == Offered::Yes && kind.standing != Standing::Waiting).then_some(served)
    }

    /// The versions that discovery shows.
    fn shown(&self) -> impl Iterator<Item = &Arc<Served>> {
        self.served.iter().filter(|served| {
            served.custom_kind().is_some_and(|kind| {
                kind.offered == Offered::Yes && matches!(kind.standing, Standing::Established | Standing::Terminating)
            })
        })
    }
}

/// A definition, and where planes with this set have it.
#[derive(Debug)]
pub struct Homed {
    pub versions: Arc<Versions>,
    pub(super) home: Home,
}

/// The definitions of planes that have the same ones.
#[derive(Debug)]
pub struct Set {
    definitions: Vec<Homed>,
    /// The built-in kinds of these planes.
    scheme: Arc<Scheme>,
    documents: OnceLock<Documents>,
    hash: Hash,
}

impl Set {
    fn new(scheme: Arc<Scheme>, definitions: Vec<Homed>, hash: Hash) -> Self {
        Self {
            definitions,
            scheme,
            documents: OnceLock::new(),
            hash,
        }
    }

    pub fn definitions(&self) -> &[Homed] {
        &self.definitions
    }

    /// What tells this set from others.
    pub fn hash(&self) -> &[u8; 32] {
        &self.hash
    }

    /// Where the definition of a resource is. Definitions are in the order of their names.
    pub fn position(&self, group: &str, plural: &str) -> Option<usize> {
        self.place(&format!("{plural}.{group}"))
    }

    /// Where the definition of this name is.
    pub fn place(&self, name: &str) -> Option<usize> {
        self.definitions
            .binary_search_by(|homed| homed.versions.name.as_str().cmp(name))
            .ok()
    }

    /// Every resource that discovery shows, built-in ones first.
    pub fn shown(&self) -> impl Iterator<Item = &Arc<Served>> {
        self.scheme
            .iter()
            .chain(self.definitions.iter().flat_map(|homed| homed.versions.shown()))
    }

    /// Discovery's documents.
    pub fn documents(&self) -> &Documents {
        self.documents.get_or_init(|| Documents::new(self.shown()))
    }
}

/// What is shared, for as long as somebody uses it.
pub struct Shared {
    versions: Weakly<Versions>,
    schemas: Arc<Weakly<Compiled>>,
    sets: Weakly<Set>,
    compilations: Semaphore,
}

impl Default for Shared {
    fn default() -> Self {
        Self {
            versions: Weakly::default(),
            schemas: Arc::default(),
            sets: Weakly::default(),
            compilations: Semaphore::new(COMPILATIONS),
        }
    }
}

/// What decides how a definition is served; all else of it is not looked at.
#[derive(Deserialize)]
struct Said<'a> {
    #[serde(borrow)]
    spec: &'a RawValue,
    #[serde(default)]
    status: Value,
}

/// What a definition says, and which names it has, in one text.
pub fn said(stored: &Stored) -> Result<String, serde_json::Error> {
    let said: Said<'_> = serde_json::from_slice(stored.json())?;
    Ok(format!("{}\0{}", said.status["acceptedNames"], said.spec.get()))
}

impl Shared {
    /// A definition's versions: made, or found if the same is in use already.
    pub async fn versions(&self, name: &str, stored: &Stored) -> Result<Arc<Versions>, ApiError> {
        let damaged = |error: serde_json::Error| ApiError::internal("stored data is damaged").because(error);
        let said: Said<'_> = serde_json::from_slice(stored.json()).map_err(damaged)?;
        let standing = Standing::of(&serde_json::json!({"status": said.status}));
        let accepted = &said.status["acceptedNames"];
        let mut hasher = Sha256::new();
        hasher.update(name);
        hasher.update(format!("\0{standing:?}\0{accepted}\0"));
        hasher.update(said.spec.get());
        let hash: Hash = hasher.finalize().into();
        if let Some(found) = self.versions.find(&hash) {
            return Ok(found);
        }
        let _turn = self
            .compilations
            .acquire()
            .await
            .expect("the semaphore is never closed");
        if let Some(found) = self.versions.find(&hash) {
            return Ok(found);
        }
        let spec: Value = serde_json::from_str(said.spec.get()).map_err(damaged)?;
        let definition = serde_json::json!({"spec": spec, "status": said.status});
        let (name, schemas) = (name.to_owned(), self.schemas.clone());
        let made = tokio::task::spawn_blocking(move || {
            let mut compile =
                |schema: &Value, hash: Hash| schemas.get_or_insert(hash, || Compiled::new(schema, rule::compiler()));
            let kinds = CustomKind::all(&definition, &mut compile);
            Versions {
                name,
                hash,
                served: kinds.into_iter().map(|kind| Arc::new(Served::custom(kind))).collect(),
            }
        });
        let made = made
            .await
            .map_err(|error| ApiError::internal("a definition could not be compiled").because(error))?;
        Ok(self.versions.get_or_insert(hash, || made))
    }

    /// The set of these definitions over these built-in kinds.
    pub fn set(&self, scheme: &Arc<Scheme>, definitions: Vec<Homed>) -> Arc<Set> {
        let mut hasher = Sha256::new();
        hasher.update(scheme.id().to_le_bytes());
        for Homed { versions, home } in &definitions {
            hasher.update(versions.hash);
            hasher.update([u8::from(*home == Home::Root)]);
        }
        let hash: Hash = hasher.finalize().into();
        self.sets
            .get_or_insert(hash, || Set::new(scheme.clone(), definitions, hash))
    }
}

/// Values that are found again while somebody holds them.
pub(crate) struct Weakly<T> {
    entries: Mutex<HashMap<Hash, Weak<T>>>,
}

impl<T> Default for Weakly<T> {
    fn default() -> Self {
        Self {
            entries: Mutex::default(),
        }
    }
}

/// Dead entries are looked for when the number of entries is a multiple of this.
const SWEEP: usize = 256;

impl<T> Weakly<T> {
    pub(crate) fn find(&self, hash: &Hash) -> Option<Arc<T>> {
        self.entries.lock().get(hash)?.upgrade()
    }

    pub(crate) fn get_or_insert(&self, hash: Hash, make: impl FnOnce() -> T) -> Arc<T> {
        if let Some(found) = self.find(&hash) {
            return found;
        }
        let made = Arc::new(make());
        let mut entries = self.entries.lock();
        if let Some(found) = entries.get(&hash).and_then(Weak::upgrade) {
            return found;
        }
        entries.insert(hash, Arc::downgrade(&made));
        if entries.len().is_multiple_of(SWEEP) {
            entries.retain(|_, entry| entry.strong_count() > 0);
        }
        made
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_content_is_held_once_and_let_go() {
        let shared = Weakly::<String>::default();
        let one = shared.get_or_insert([1; 32], || "a".to_owned());
        let same = shared.get_or_insert([1; 32], || unreachable!("it is there"));
        assert!(Arc::ptr_eq(&one, &same));
        drop((one, same));
        assert!(shared.find(&[1; 32]).is_none());
        for i in 0..SWEEP {
            let mut hash = [2; 32];
            hash[..8].copy_from_slice(&i.to_le_bytes());
            drop(shared.get_or_insert(hash, String::new));
        }
        assert!(shared.entries.lock().len() < SWEEP);
    }
}

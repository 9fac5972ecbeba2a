//! Encryption at rest: a store whose values of some resources are hidden, as `EncryptionConfiguration` says.
//!
//! It stands between the server and the real store: what is above sees plain values, what is below (files, etcd, backups,
//! the hub's memory) never does. Values look as upstream writes them, and each counts at its own key only.
//!
//! Surprises: a value that cannot be opened is no error of the store but of its object: [`crate::stored`] says so when it
//! is read, so that one lost key does not stop what it does not concern. One that was not hidden as it would be now is
//! marked, and the next update rewrites it even if nothing changes. Records of our own group (`mica.internal`) are never hidden: they
//! hold no content of planes, and plane keys must be readable before anything else is.

mod cipher;
pub mod config;
mod key;
mod watch;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use mica_store::{
    AdvanceError, CommitError, Committed, Event, Key, KeyRange, Page, RangeQuery, ReadError, Record, Revision, Store,
    StoreStatus, Txn, Usage, Watch, Write,
};
use parking_lot::Mutex;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use tokio_util::sync::CancellationToken;

use crate::registry::owner::is_internal;
use crate::stored;
use config::{BadConfiguration, Table, Way};
use key::PlaneKeyring;
pub(crate) use key::place as plane_key;

/// What every hidden value begins with.
const PREFIX: &[u8] = b"k8s:enc:";
const OF_PLANES: &str = "k8s:enc:planes:v1:";
const OF_SNAPSHOTS: &str = "k8s:enc:snapshot:v1:";
/// How often the file is looked at: as often as upstream does.
pub const LOOK_AGAIN: Duration = Duration::from_secs(60);
/// Events that were opened are kept for the other watches that want them, up to this many bytes.
const EVENT_BYTES: u64 = 16 * 1024 * 1024;
const EVENTS: usize = 4096;

/// What is hidden, and how: replaced while the server runs.
pub struct Sealing {
    table: ArcSwap<Table>,
    file: Option<(PathBuf, Mutex<Vec<u8>>)>,
    /// Grows with every change of the table.
    generation: std::sync::atomic::AtomicU64,
}

impl Sealing {
    /// As a file says, which may change later.
    pub fn from_file(path: PathBuf) -> Result<Self, BadConfiguration> {
        let (table, text) = Table::read(&path)?;
        Ok(Self {
            file: Some((path, Mutex::new(digest(&text)))),
            ..Self::new(table)
        })
    }

    pub fn new(table: Table) -> Self {
        Self {
            table: ArcSwap::from_pointee(table),
            file: None,
            generation: 0.into(),
        }
    }

    pub fn replace(&self, table: Table) {
        self.table.store(Arc::new(table));
        self.generation.fetch_add(1, std::sync::atomic::Ordering::AcqRel);
    }

    fn generation(&self) -> u64 {
        self.generation.load(std::sync::atomic::Ordering::Acquire)
    }

    /// Looks at the file again. One that is wrong changes nothing.
    pub fn reload(&self) -> Result<(), BadConfiguration> {
        let Some((path, last)) = &self.file else {
            return Ok(());
        };
        let (table, text) = Table::read(path)?;
        let now = digest(&text);
        if *last.lock() != now {
            self.replace(table);
            *last.lock() = now;
            tracing::info!("the configuration of encryption was loaded anew");
        }
        Ok(())
    }

    /// Follows the file until stopped.
    pub async fn follow(self: Arc<Self>, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(LOOK_AGAIN) => {}
            }
            if let Err(error) = self.reload() {
                tracing::warn!(%error, "the configuration of encryption was not loaded: the one before stays in force");
            }
        }
    }

    /// Whether new values at a key are hidden.
    pub fn hides(&self, key: &Key) -> bool {
        let table = self.table.load();
        let ways = table.of(key.resource()).filter(|_| !is_internal(key));
        ways.is_some_and(|ways| !matches!(ways.0.first(), None | Some(Way::Plain)))
    }

    /// A value as a snapshot holds it: hidden, if it is in the store. The place is its key below the plane.
    pub fn export(&self, key: &Key, place: &str, value: Bytes) -> Bytes {
        let table = self.table.load();
        match table.for_export() {
            Some((name, cipher)) if self.hides(key) => {
                let sealed = cipher.seal(&stored::without_stale(value), place.as_bytes());
                [OF_SNAPSHOTS.as_bytes(), name.as_bytes(), b":", &sealed]
                    .concat()
                    .into()
            }
            _ => stored::without_stale(value),
        }
    }

    /// A value that a snapshot holds. The error says what is missing.
    pub fn import(&self, place: &str, value: Bytes) -> Result<Bytes, String> {
        let Some((name, sealed)) = exported(&value) else {
            return Ok(value);
        };
        let table = self.table.load();
        let opened = table
            .keys_named(name)
            .find_map(|cipher| cipher.open(sealed, place.as_bytes()).ok());
        opened.map(Bytes::from).ok_or_else(|| not_importable(name))
    }
}

/// The key's name and the sealed rest of a value in a snapshot that is hidden.
fn exported(value: &[u8]) -> Option<(&str, &[u8])> {
    let rest = value.strip_prefix(OF_SNAPSHOTS.as_bytes())?;
    let end = memchr::memchr(b':', rest)?;
    Some((std::str::from_utf8(&rest[..end]).ok()?, &rest[end + 1..]))
}

fn not_importable(name: &str) -> String {
    format!(
        "it is encrypted with key {name:?}, which this server's encryption configuration does not have, or has otherwise"
    )
}

/// A value that a snapshot holds, where nothing is configured.
pub fn import_plain(value: Bytes) -> Result<Bytes, String> {
    match exported(&value) {
        Some((name, _)) => Err(not_importable(name)),
        None => Ok(value),
    }
}

fn digest(text: &[u8]) -> Vec<u8> {
    use sha2::Digest as _;
    sha2::Sha256::digest(text).to_vec()
}

/// A store whose values are hidden.
#[derive(Clone)]
pub struct SealedStore(Arc<Inner>);

struct Inner {
    store: Arc<dyn Store>,
    sealing: Arc<Sealing>,
    keyring: PlaneKeyring,
    events: Cache<(Revision, Key), Arc<Event>, BySize>,
}

#[derive(Clone)]
struct BySize;

impl Weighter<(Revision, Key), Arc<Event>> for BySize {
    fn weight(&self, _: &(Revision, Key), event: &Arc<Event>) -> u64 {
        let now = match &event.change {
            mica_store::Change::Put(value) => value.len(),
            mica_store::Change::Delete => 0,
        };
        let before = event.previous.as_ref().map_or(0, |record| record.value.len());
        (now + before + 256) as u64
    }
}

/// What came of opening a value.
enum Opened {
    Plain(Bytes),
    /// Why it cannot be opened, in upstream's words.
    Not(String),
    /// The plane's key has to be fetched first.
    NeedsKey,
}

/// Where a failure is told: upstream words those of lists otherwise.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Telling {
    One,
    List,
}

impl SealedStore {
    async fn opened(&self, key: &Key, record: Option<Record>) -> Result<Option<Record>, ReadError> {
        let Some(record) = record else { return Ok(None) };
        Ok(Some(Record {
            value: self.0.open(key, record.value, Telling::One).await,
            ..record
        }))
    }

    pub fn new(store: Arc<dyn Store>, sealing: Arc<Sealing>) -> Self {
        Self(Arc::new(Inner {
            keyring: PlaneKeyring::new(store.clone(), sealing.clone()),
            store,
            sealing,
            events: Cache::with_weighter(EVENTS, EVENT_BYTES, BySize),
        }))
    }
}

impl Inner {
    /// A value as it was before it was hidden.
    fn try_open(&self, key: &Key, value: &Bytes) -> Opened {
        let table = self.sealing.table.load();
        let hidden = value.starts_with(PREFIX);
        let Some(ways) = table.of(key.resource()).filter(|_| !is_internal(key)) else {
            return match hidden && !is_internal(key) {
                true => Opened::Not("identity transformer tried to read encrypted data".to_owned()),
                false => Opened::Plain(value.clone()),
            };
        };
        let mut problems: Vec<String> = Vec::new();
        for (at, way) in ways.0.iter().enumerate() {
            let opened = match way {
                Way::Plain if hidden => continue,
                Way::Plain => {
                    return Opened::Plain(match at {
                        0 => value.clone(),
                        _ => stored::stale(value),
                    });
                }
                Way::Keys { prefix, keys, missing } => match value.strip_prefix(prefix.as_bytes()) {
                    Some(rest) => open_with(keys, rest, key, missing),
                    None => continue,
                },
                Way::Planes(masters) => match value.strip_prefix(OF_PLANES.as_bytes()) {
                    Some(rest) => match self.keyring.cached(key.plane()) {
                        Some(Ok(plane)) => plane.open(rest, key, masters).map_err(ToOwned::to_owned),
                        Some(Err(why)) => Err(why),
                        None => return Opened::NeedsKey,
                    },
                    None => continue,
                },
            };
            match opened {
                Ok((plain, 0)) if at == 0 => return Opened::Plain(plain.into()),
                Ok((plain, _)) => return Opened::Plain(stored::stale(&plain.into())),
                Err(why) => problems.push(why),
            }
        }
        problems.dedup();
        Opened::Not(match problems.len() {
            0 => "no matching prefix found".to_owned(),
            1 => problems.remove(0),
            _ => format!("[{}]", problems.join(", ")),
        })
    }

    async fn open(&self, key: &Key, value: Bytes, telling: Telling) -> Bytes {
        let mut opened = self.try_open(key, &value);
        if let Opened::NeedsKey = opened {
            self.keyring.fetch(key.plane()).await;
            opened = self.try_open(key, &value);
        }
        self.told(key, opened, telling)
    }

    /// The plain value, or one that says why there is none.
    fn told(&self, key: &Key, opened: Opened, telling: Telling) -> Bytes {
        let why = match opened {
            Opened::Plain(value) => return value,
            Opened::Not(why) => why,
            Opened::NeedsKey => "the key of the plane could not be read".to_owned(),
        };
        tracing::warn!(resource = key.resource(), plane = %key.plane(), why, "failed to decrypt data");
        stored::unreadable(&match telling {
            Telling::One => why,
            Telling::List => {
                let (_, resource) = key.resource().split_once('/').unwrap_or_default();
                let path = mica_machinery::field::quote(&format!("/registry/{resource}/{}", key.rest()));
                format!("unable to transform key {path}: {why}")
            }
        })
    }

    async fn seal(&self, key: &Key, value: Bytes) -> Result<Bytes, CommitError> {
        let table = self.sealing.table.load_full();
        let Some(ways) = table.of(key.resource()).filter(|_| !is_internal(key)) else {
            return Ok(value);
        };
        let value = stored::without_stale(value);
        let place = key.as_str().as_bytes();
        let (prefix, name, sealed) = match ways.0.first() {
            None | Some(Way::Plain) => return Ok(value),
            Some(Way::Keys { prefix, keys, .. }) => {
                let (name, cipher) = &keys[0];
                (*prefix, name.clone(), cipher.seal(&value, place))
            }
            Some(Way::Planes(masters)) => {
                let plane = self.keyring.make(key.plane(), masters).await?;
                (OF_PLANES, plane.id.clone(), plane.cipher.seal(&value, place))
            }
        };
        let mut out = BytesMut::with_capacity(prefix.len() + name.len() + 1 + sealed.len());
        for part in [prefix.as_bytes(), name.as_bytes(), b":", &sealed] {
            out.extend_from_slice(part);
        }
        Ok(out.freeze())
    }
}

/// Opens a value with the key that it names. Says which key of the list it was.
fn open_with(
    keys: &[(String, cipher::Cipher)],
    rest: &[u8],
    key: &Key,
    missing: &str,
) -> Result<(Vec<u8>, usize), String> {
    let mut why = missing.to_owned();
    for (at, (name, cipher)) in keys.iter().enumerate() {
        let named = rest
            .strip_prefix(name.as_bytes())
            .and_then(|rest| rest.strip_prefix(b":"));
        let Some(sealed) = named else { continue };
        match cipher.open(sealed, key.as_str().as_bytes()) {
            Ok(plain) => return Ok((plain, at)),
            Err(said) => said.clone_into(&mut why),
        }
    }
    Err(why)
}

#[async_trait]
impl Store for SealedStore {
    async fn status(&self) -> Result<StoreStatus, ReadError> {
        self.0.store.status().await
    }

    async fn get(&self, key: &Key) -> Result<Option<Record>, ReadError> {
        self.opened(key, self.0.store.get(key).await?).await
    }

    async fn get_once(&self, key: &Key) -> Result<Option<Record>, ReadError> {
        self.opened(key, self.0.store.get_once(key).await?).await
    }

    async fn range(&self, query: RangeQuery<'_>) -> Result<Page, ReadError> {
        let mut page = self.0.store.range(query).await?;
        for (key, record) in &mut page.records {
            let value = std::mem::take(&mut record.value);
            record.value = self.0.open(key, value, Telling::List).await;
        }
        Ok(page)
    }

    async fn get_many(&self, keys: &[Key], at: Revision) -> Result<Vec<Option<Record>>, ReadError> {
        let mut found = self.0.store.get_many(keys, at).await?;
        for (key, record) in keys.iter().zip(&mut found) {
            if let Some(record) = record {
                let value = std::mem::take(&mut record.value);
                record.value = self.0.open(key, value, Telling::List).await;
            }
        }
        Ok(found)
    }

    async fn count(&self, range: &KeyRange, at: Option<Revision>, after: Option<&Key>) -> Result<u64, ReadError> {
        self.0.store.count(range, at, after).await
    }

    async fn usage(&self, range: &KeyRange) -> Result<Usage, ReadError> {
        self.0.store.usage(range).await
    }

    async fn commit(&self, mut txn: Txn) -> Result<Committed, CommitError> {
        for write in &mut txn.writes {
            if let Write::Put { key, value, .. } = write {
                *value = self.0.seal(key, std::mem::take(value)).await?;
            }
        }
        let compared: Vec<Key> = txn.compares.iter().map(|compare| compare.key().clone()).collect();
        match self.0.store.commit(txn).await {
            Err(CommitError::Conflict {
                compare,
                current: Some(record),
            }) => {
                let value = match compared.get(compare) {
                    Some(key) => self.0.open(key, record.value, Telling::One).await,
                    None => record.value,
                };
                Err(CommitError::Conflict {
                    compare,
                    current: Some(Record { value, ..record }),
                })
            }
            done => done,
        }
    }

    async fn watch(&self, range: KeyRange, after: Revision) -> Result<Watch, ReadError> {
        let watch = self.0.store.watch(range, after).await?;
        Ok(Box::new(watch::SealedWatch::new(self.0.clone(), watch)))
    }

    async fn compact(&self, revision: Revision) -> Result<(), ReadError> {
        self.0.store.compact(revision).await
    }

    async fn advance(&self, to: Revision) -> Result<Revision, AdvanceError> {
        self.0.store.advance(to).await
    }

    fn end_watches(&self, plane: mica_api::PlaneId) {
        self.0.store.end_watches(plane);
    }
}

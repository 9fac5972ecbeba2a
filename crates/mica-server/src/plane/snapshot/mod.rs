//! Snapshot, restore and fork of a plane: its own records, consistent at one revision.
//!
//! A snapshot is a stream: one line of JSON that says what it is, then each record as two lengths (32-bit little-endian),
//! the key below the plane and the stored value, then two zero lengths and a 64-bit checksum of all that came before.
//! Base layers that the records need go ahead of them, so that a snapshot can be restored into another store.
//! A restored or forked plane keeps uids, base layer and creation time; until it is whole it is marked and takes no requests.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use futures::StreamExt;
use futures::stream;
use http::{Response, StatusCode};
use http_body_util::BodyExt;
use mica_machinery::{managed, object};
use mica_store::{Key, RangeQuery, Record, Revision, Store, Txn, Write};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use xxhash_rust::xxh3::Xxh3;

use super::directory::BirthRecord;
use super::kind::RESTORING;
use super::layer::{base_layers, layer_record};
use super::{Plane, State};
use crate::authz::Grant;
use crate::custom;
use crate::encode::{Encoder, Include, Media};
use crate::error::ApiError;
use crate::http::{Body, RequestBody};
use crate::negotiate::Output;
use crate::options::{DryRun, FieldValidation, WriteOptions};
use crate::registry::owner::{index_writes, is_internal};
use crate::registry::{Managers, PatchRequest, Patched, WriteRequest, Written};
use crate::seal::{self, Sealing};
use crate::serve::{Call, Server, respond};
use crate::stored::Content;

const MAGIC: &str = "plane-snapshot";
const VERSION: u32 = 1;
const CONTENT_TYPE: &str = "application/vnd.mica.plane-snapshot";
/// Records read at once.
const PAGE: usize = 500;
/// Writes under way at once while a plane is filled.
const CONCURRENT_WRITES: usize = 64;
/// No stored object is larger: bodies end at 3 MiB.
const MAX_RECORD: usize = 16 * 1024 * 1024;
/// The header line is small.
const MAX_HEADER: usize = 64 * 1024;

#[derive(Serialize, Deserialize)]
struct Header {
    mica: String,
    version: u32,
    plane: String,
    revision: u64,
    birth: BirthRecord,
}

/// Walks the own records of a plane at one revision.
struct Walk {
    store: Arc<dyn Store>,
    plane: Arc<Plane>,
    at: Option<Revision>,
    after: Option<Key>,
    finished: bool,
    layers: Carried,
}

/// Base layers that go with a walk's records, for a store that may not have them.
enum Carried {
    Nothing,
    /// Those that are to go ahead of the next records, and those that went.
    Layers {
        due: Vec<String>,
        sent: BTreeSet<String>,
    },
}

impl Walk {
    async fn page(&mut self) -> Result<Vec<(Key, Bytes)>, ApiError> {
        let range = self.plane.keys.all();
        let query = RangeQuery {
            range: &range,
            at: self.at,
            after: self.after.as_ref(),
            limit: PAGE,
        };
        let page = self.store.range(query).await?;
        self.at = Some(page.revision);
        self.finished = !page.more;
        self.after = page.records.last().map(|(key, _)| key.clone());
        let objects = page.records.into_iter().filter(|(key, _)| !is_internal(key));
        let objects: Vec<(Key, Bytes)> = objects.map(|(key, record)| (key, record.value)).collect();
        let mut records = self.due_layers(&objects).await?;
        records.extend(objects);
        Ok(records)
    }

    /// The layers that these records need and that have not gone yet.
    async fn due_layers(&mut self, records: &[(Key, Bytes)]) -> Result<Vec<(Key, Bytes)>, ApiError> {
        let Carried::Layers { due, sent } = &mut self.layers else {
            return Ok(Vec::new());
        };
        for (_, value) in records {
            let record = Record {
                value: value.clone(),
                revision: Revision::default(),
            };
            if let Content::Based(id) = Content::read(&record)? {
                due.push(id);
            }
        }
        let mut layers = Vec::new();
        for id in std::mem::take(due) {
            if sent.insert(id.clone()) {
                let record = layer_record(&self.store, &id).await?;
                layers.push((self.plane.keys.object(&base_layers(), None, &id), record.value));
            }
        }
        Ok(layers)
    }
}

/// The key without its plane.
fn below(key: &Key) -> &str {
    key.as_str().split_once('/').map_or("", |(_, below)| below)
}

pub(crate) async fn snapshot(call: &Call<'_>, grant: &Grant) -> Result<Response<Body>, ApiError> {
    let plane = whole_plane(call, grant).await?;
    let birth = call.server.directory.birth_record(plane.id).await?;
    let mut walk = Walk {
        store: call.server.store.clone(),
        plane,
        at: None,
        after: None,
        finished: false,
        layers: Carried::Layers {
            due: vec![birth.base().to_owned()],
            sent: BTreeSet::new(),
        },
    };
    let first = walk.page().await?;
    let header = Header {
        mica: MAGIC.to_owned(),
        version: VERSION,
        plane: walk.plane.name.clone(),
        revision: walk.at.unwrap_or_default().0,
        birth,
    };
    let mut line = serde_json::to_vec(&header).expect("a header is plain JSON");
    line.push(b'\n');
    let mut sum = Xxh3::new();
    let sealing = call.server.sealing.clone();
    let head = summed(&mut sum, &line, &hidden(sealing.as_deref(), first));
    let state = (walk, sum, Some(head), sealing);
    let pieces = stream::unfold(Some(state), |state| async move {
        let (mut walk, mut sum, ready, sealing) = state?;
        let mut out = match ready {
            Some(ready) => ready,
            None => match walk.page().await {
                Ok(records) => summed(&mut sum, b"", &hidden(sealing.as_deref(), records)),
                Err(error) => return Some((Err(error), None)),
            },
        };
        if !walk.finished {
            return Some((Ok(out.freeze()), Some((walk, sum, None, sealing))));
        }
        sum.update(&[0; 8]);
        out.put_slice(&[0; 8]);
        out.put_u64_le(sum.digest());
        Some((Ok::<_, ApiError>(out.freeze()), None))
    });
    Ok(respond(StatusCode::OK, CONTENT_TYPE, Body::try_stream(pieces)))
}

/// What the store hides is hidden in the snapshot, too, for those who have the configuration's keys.
fn hidden(sealing: Option<&Sealing>, records: Vec<(Key, Bytes)>) -> Vec<(Key, Bytes)> {
    let Some(sealing) = sealing else { return records };
    let hide = |(key, value): (Key, Bytes)| {
        let value = sealing.export(&key, below(&key), value);
        (key, value)
    };
    records.into_iter().map(hide).collect()
}

fn summed(sum: &mut Xxh3, head: &[u8], records: &[(Key, Bytes)]) -> BytesMut {
    let mut out = BytesMut::from(head);
    for (key, value) in records {
        let key = below(key);
        out.put_u32_le(u32::try_from(key.len()).expect("a key is short"));
        out.put_u32_le(u32::try_from(value.len()).expect("a value is at most a body"));
        out.put_slice(key.as_bytes());
        out.put_slice(value);
    }
    sum.update(&out);
    out
}

#[derive(Deserialize)]
struct ForkRequest {
    name: String,
}

pub(crate) async fn fork(call: &Call<'_>, grant: &Grant) -> Result<Response<Body>, ApiError> {
    let request: ForkRequest = serde_json::from_slice(&call.body).map_err(|error| {
        ApiError::bad_request(format!(
            "the body must name the new plane, as in {{\"name\":\"copy\"}}: {error}"
        ))
    })?;
    let plane = whole_plane(call, grant).await?;
    let birth = call.server.directory.birth_record(plane.id).await?;
    let mut walk = Walk {
        store: call.server.store.clone(),
        plane,
        at: None,
        after: None,
        finished: false,
        layers: Carried::Nothing,
    };
    let (server, grant) = (call.server.clone(), grant.clone());
    detached(async move {
        let filling = Filling::begin(server, grant, &request.name, &birth).await?;
        let copied = async {
            while !walk.finished {
                let records = walk.page().await?;
                let records = records
                    .into_iter()
                    .map(|(key, value)| (below(&key).to_owned(), value))
                    .collect();
                filling.write(records).await?;
            }
            Ok(())
        };
        let copied = copied.await;
        filling.end(copied, birth).await
    })
    .await
}

/// The plane to copy. One that is half there cannot be.
async fn whole_plane(call: &Call<'_>, grant: &Grant) -> Result<Arc<Plane>, ApiError> {
    let plane = call.server.directory.by_name(grant.target.object()).await?;
    let why = match plane.state {
        State::Restoring => "it is being restored: try again when it is complete",
        State::Draining => "it is being deleted",
        State::Active | State::ReadOnly | State::Suspended => return Ok(plane),
    };
    Err(ApiError::conflict(
        &grant.target.served.name,
        grant.target.object(),
        why,
    ))
}

/// Runs work to its end also if the client goes away meanwhile: what fails half-way has to be taken away again.
async fn detached<T: Send + 'static>(
    work: impl Future<Output = Result<T, ApiError>> + Send + 'static,
) -> Result<T, ApiError> {
    tokio::spawn(work)
        .await
        .unwrap_or_else(|error| Err(ApiError::internal("filling a plane failed").because(error)))
}

pub(crate) async fn restore(call: &mut Call<'_>, grant: &Grant) -> Result<Response<Body>, ApiError> {
    let incoming = call.stream.take().unwrap_or_default();
    let mut reader = Reader {
        incoming,
        buffer: BytesMut::new(),
        sum: Xxh3::new(),
    };
    let header = reader.header().await?;
    let (server, grant) = (call.server.clone(), grant.clone());
    let sealing = server.sealing.clone();
    let name = grant.target.object().to_owned();
    detached(async move {
        let filling = Filling::begin(server, grant, &name, &header.birth).await?;
        let copied = async {
            loop {
                let mut records = Vec::new();
                while records.len() < PAGE {
                    match reader.record().await? {
                        Some((below, value)) => {
                            let opened = match &sealing {
                                Some(sealing) => sealing.import(&below, value),
                                None => seal::import_plain(value),
                            };
                            records.push((below, opened.map_err(|why| damaged(&why))?));
                        }
                        None => return filling.write(records).await,
                    }
                }
                filling.write(records).await?;
            }
        };
        let copied = copied.await;
        filling.end(copied, header.birth).await
    })
    .await
}

/// Reads a snapshot from a request body.
struct Reader {
    incoming: RequestBody,
    buffer: BytesMut,
    sum: Xxh3,
}

fn damaged(what: &str) -> ApiError {
    ApiError::bad_request(format!("the body is no whole plane snapshot: {what}"))
}

impl Reader {
    /// Reads until so many bytes are there.
    async fn need(&mut self, bytes: usize) -> Result<(), ApiError> {
        while self.buffer.len() < bytes {
            let frame = self.incoming.frame().await.ok_or_else(|| damaged("it ends early"))?;
            let frame = frame.map_err(|error| damaged("it broke off").because(error))?;
            if let Ok(data) = frame.into_data() {
                self.buffer.extend_from_slice(&data);
            }
        }
        Ok(())
    }

    fn take(&mut self, bytes: usize) -> Bytes {
        let taken = self.buffer.split_to(bytes).freeze();
        self.sum.update(&taken);
        taken
    }

    async fn header(&mut self) -> Result<Header, ApiError> {
        let end = loop {
            if let Some(end) = memchr::memchr(b'\n', &self.buffer) {
                break end;
            }
            if self.buffer.len() > MAX_HEADER {
                return Err(damaged("it has no header"));
            }
            self.need(self.buffer.len() + 1).await?;
        };
        let line = self.take(end + 1);
        let header: Header =
            serde_json::from_slice(&line).map_err(|error| damaged("its header cannot be read").because(error))?;
        if header.mica != MAGIC {
            return Err(damaged("its header is of something else"));
        }
        if header.version != VERSION {
            return Err(damaged(&format!(
                "it is of version {}, this server reads version {VERSION}",
                header.version
            )));
        }
        Ok(header)
    }

    /// The next record; `None` after the last, once the checksum is right.
    async fn record(&mut self) -> Result<Option<(String, Bytes)>, ApiError> {
        self.need(8).await?;
        let mut lengths = self.take(8);
        let (key_len, value_len) = (lengths.get_u32_le() as usize, lengths.get_u32_le() as usize);
        if key_len == 0 {
            let expected = self.sum.digest();
            self.need(8).await?;
            return if self.take(8).get_u64_le() == expected {
                Ok(None)
            } else {
                Err(damaged("its checksum is wrong"))
            };
        }
        if key_len > MAX_RECORD || value_len > MAX_RECORD {
            return Err(damaged("a record is too large"));
        }
        self.need(key_len + value_len).await?;
        let key = String::from_utf8(self.take(key_len).to_vec()).map_err(|_| damaged("a key is no text"))?;
        Ok(Some((key, self.take(value_len))))
    }
}

/// A plane that is being filled with another's records.
struct Filling {
    server: Arc<Server>,
    grant: Grant,
    plane: Arc<Plane>,
}

impl Filling {
    /// Creates the plane, marked so that nobody uses it before it is whole.
    async fn begin(server: Arc<Server>, mut grant: Grant, name: &str, birth: &BirthRecord) -> Result<Self, ApiError> {
        grant.target.subresource = compact_str::CompactString::default();
        grant.target.name = Some(name.into());
        let mut object = json!({"kind": "Plane", "apiVersion": "mica.dev/v1alpha1",
            "metadata": {"name": name, "annotations": {RESTORING: "true"}}});
        if let Some(profile) = birth.profile() {
            object::set(&mut object, &["spec", "profile"], profile.as_str());
        }
        let request = WriteRequest {
            object,
            managers: Managers::Recorded(managed::Request::Usual),
            options: plain_options(),
            manager: "mica".to_owned(),
        };
        server.registry.create(&grant, request).await?;
        let plane = server.directory.by_name(name).await?;
        Ok(Self { server, grant, plane })
    }

    async fn write(&self, records: Vec<(String, Bytes)>) -> Result<(), ApiError> {
        let store = &self.server.store;
        let writes = records.into_iter().map(|(below, value)| async move {
            let key =
                Key::from_stored(&format!("{}/{below}", self.plane.id)).ok_or_else(|| damaged("a key lacks a part"))?;
            if key.group_resource() == base_layers() {
                let known = self.server.directory.layers().adopt(key.name(), value).await;
                return known.map_err(|error| damaged("a base layer is not what its name says").because(error));
            }
            // Records about objects are made anew from the objects: those of the snapshot are not to be trusted.
            if is_internal(&key) {
                return Ok(());
            }
            let content = Content::read(&Record {
                value: value.clone(),
                revision: Revision::default(),
            });
            let stored = content
                .map_err(|error| damaged("a record is no object").because(error))?
                .object();
            let ttl = self
                .plane
                .scheme
                .by_storage(key.resource())
                .and_then(|served| served.strategy().ttl());
            let json = stored.as_ref().map(|stored| &stored.json()[..]);
            let mut index = index_writes(&key, None, json, ttl)?;
            if key.group_resource() == custom::definitions() {
                let served = custom::index::writes(&key, None, json);
                index.extend(served.map_err(|error| damaged("a definition lacks a part").because(error))?);
                // It may have been copied before it was settled.
                index.push(custom::work::pending(&key));
            }
            let mut writes = vec![Write::Put { key, value, ttl }];
            writes.extend(index);
            let txn = Txn {
                compares: vec![self.plane.fence()],
                writes,
            };
            store.commit(txn).await.map(drop).map_err(ApiError::from)
        });
        let mut writes = stream::iter(writes).buffer_unordered(CONCURRENT_WRITES);
        while let Some(written) = writes.next().await {
            written?;
        }
        Ok(())
    }

    /// Opens the plane for use, or takes it away again.
    async fn end(self, copied: Result<(), ApiError>, birth: BirthRecord) -> Result<Response<Body>, ApiError> {
        let opened = match copied {
            Ok(()) => self.open(birth).await,
            Err(error) => Err(error),
        };
        if let Err(error) = &opened
            && let Err(left) = self.discard().await
        {
            tracing::warn!(plane = self.plane.name, %error, %left, "a plane that was only half filled is left behind");
        }
        opened
    }

    async fn open(&self, birth: BirthRecord) -> Result<Response<Body>, ApiError> {
        if self.server.directory.layers().known().get(birth.base()).is_none() {
            return Err(damaged("it has no base layer, and this store does not know it"));
        }
        self.server.directory.adopt_birth(&self.plane, birth).await?;
        let Written { stored, .. } = self
            .change(&|plane| drop(object::remove(plane, &["metadata", "annotations", RESTORING])))
            .await?;
        let media = Media {
            output: Output::JSON,
            include: Include::Metadata,
        };
        let bytes = Encoder::new(&self.grant.target.served, media).object(&stored)?;
        Ok(respond(StatusCode::CREATED, "application/json", Body::full(bytes)))
    }

    /// Takes the plane away with whatever it holds by now: no finalizer in it was ever anybody's to honour.
    async fn discard(&self) -> Result<(), ApiError> {
        let gone = |error: ApiError| {
            if error.code() == StatusCode::NOT_FOUND {
                Ok(())
            } else {
                Err(error)
            }
        };
        let options = mica_machinery::meta::DeleteOptions::default();
        self.server
            .registry
            .delete(&self.grant, &options)
            .await
            .map(drop)
            .or_else(gone)?;
        self.change(&|plane| drop(object::remove(plane, &["metadata", "finalizers"])))
            .await
            .map(drop)
            .or_else(gone)
    }

    async fn change(&self, change: &(dyn Fn(&mut Value) + Send + Sync)) -> Result<Written, ApiError> {
        let patch = |document: &[u8]| -> Result<Patched, ApiError> {
            let mut plane: Value = serde_json::from_slice(document)
                .map_err(|error| ApiError::internal("stored data is damaged").because(error))?;
            change(&mut plane);
            Ok(Patched {
                object: plane,
                managers: Managers::Recorded(managed::Request::Usual),
                warnings: Vec::new(),
            })
        };
        let request = PatchRequest {
            patch: &patch,
            options: plain_options(),
            manager: "mica".to_owned(),
            view: None,
        };
        self.server.registry.patch(&self.grant, request).await
    }
}

fn plain_options() -> WriteOptions {
    WriteOptions {
        dry_run: DryRun::No,
        field_manager: String::new(),
        field_validation: FieldValidation::Ignore,
        asked_validation: String::new(),
    }
}

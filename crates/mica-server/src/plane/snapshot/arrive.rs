//! Receiving a plane from another server: one whole copy, and any number of changes after it.
//!
//! How far it has come is a record that changes with what was received, so that whatever is sent again, after a crash of
//! either side, is taken once. Nobody sees the plane before it is open; from then on its objects are shown with the
//! resourceVersions that they had, where the store can skip revisions (`docs/design/moving-planes.md`).

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use http::{Response, StatusCode};
use mica_store::{AdvanceError, CommitError, Compare, FARTHEST, Key, RangeQuery, Revision, Txn, Write};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::fill::{adopt_layer, check_base, key_of, layer_key, object_in, put_all, writes};
use super::format::{End, Header, Item, Reader, WITH_REVISIONS, damaged};
use super::{PAGE, detached, opened};
use crate::authz::Grant;
use crate::error::ApiError;
use crate::http::Body;
use crate::plane::birth::BirthRecord;
use crate::plane::directory::arrival_key;
use crate::plane::{Plane, State, Versions};
use crate::request::Verb;
use crate::serve::{Call, Server, respond};
use crate::stored;

/// An opened plane begins this far beyond what its old server had reached, which goes on showing ever greater revisions until
/// everybody has heard that the plane is gone: half an hour of ten thousand writes a second.
pub(super) const MARGIN: u64 = 1 << 24;
/// Changes written together at most, and their bytes beyond the first.
const BATCH: usize = 100;
const BATCH_BYTES: usize = 1 << 20;

/// How far a plane that arrives has come.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(super) struct Progress {
    /// The sender's revision of the whole copy.
    pub(super) copied: Revision,
    /// This store's revision when the copy was whole; none while it is not.
    pub(super) copied_at: Option<Revision>,
    /// Everything up to this revision of the sender is here.
    pub(super) reached: Revision,
    pub(super) versions: Versions,
}

/// A plane that arrives.
pub(super) struct Arriving {
    server: Arc<Server>,
    pub(super) plane: Arc<Plane>,
    key: Key,
    pub(super) progress: Option<Progress>,
    /// The revision of the record that says so; what is received compares it, so that of two senders one is refused.
    at: Option<Revision>,
}

fn json_bytes(value: &impl Serialize) -> Bytes {
    serde_json::to_vec(value).expect("a record is plain JSON").into()
}

/// What a sender hears who is not the only one, or whose plane has changed.
pub(super) fn interrupted(plane: &Plane) -> ApiError {
    let message = format!(
        "control plane \"{}\" was opened, deleted or sent by another meanwhile: look at it and send again",
        plane.name
    );
    ApiError::new(StatusCode::CONFLICT, "Conflict", message)
}

/// Takes a copy or changes, and answers with the sender's revision that was reached. A GET only says which that is.
pub(crate) async fn arrive(call: &mut Call<'_>, grant: &Grant) -> Result<Response<Body>, ApiError> {
    if grant.verb == Verb::Get {
        return Ok(Arriving::find(call.server, grant).await?.answer(0));
    }
    let mut reader = Reader::new(call.stream.take().unwrap_or_default());
    let mut arriving = Arriving::find(call.server, grant).await?;
    let header = reader.header().await?;
    if header.version != WITH_REVISIONS {
        return Err(damaged("it has no revisions: ask for it with revisions=true"));
    }
    if header.revision.0 > FARTHEST.0 - MARGIN {
        return Err(damaged("its revision is beyond all that there are"));
    }
    detached(async move {
        let received = match header.since {
            None => arriving.copy(header, &mut reader).await?,
            Some(since) => arriving.follow(&header, since, &mut reader).await?,
        };
        Ok(arriving.answer(received))
    })
    .await
}

impl Arriving {
    pub(super) async fn find(server: &Arc<Server>, grant: &Grant) -> Result<Self, ApiError> {
        let name = grant.target.object();
        // Not what may be cached: it may just have been made, on another server.
        server.directory.forget(name);
        let plane = server.directory.by_name(name).await?;
        if plane.state != State::Arriving {
            let why = "it does not arrive: create it with spec.state Arriving";
            return Err(ApiError::conflict(&grant.target.served.name, name, why));
        }
        let key = arrival_key(plane.id);
        let record = server.store.get(&key).await?;
        let progress = record.as_ref().map(|record| serde_json::from_slice(&record.value));
        let progress = progress
            .transpose()
            .map_err(|error| ApiError::internal("a plane's record is damaged").because(error))?;
        Ok(Self {
            server: server.clone(),
            plane,
            key,
            progress,
            at: record.map(|record| record.revision),
        })
    }

    /// How far the plane has come. A copy that is not whole has come nowhere.
    fn answer(&self, received: u64) -> Response<Body> {
        let whole = self.progress.is_some_and(|progress| progress.copied_at.is_some());
        let revision = if whole { self.reached() } else { Revision(0) };
        let answer = json!({"kind": "PlaneArrival", "apiVersion": "mica.dev/v1alpha1",
            "revision": revision.to_string(), "received": received});
        respond(StatusCode::OK, "application/json", Body::full(answer.to_string()))
    }

    fn reached(&self) -> Revision {
        self.progress.map_or(Revision(0), |progress| progress.reached)
    }

    fn compares(&self) -> Vec<Compare> {
        let progress = match self.at {
            Some(at) => Compare::Unchanged(self.key.clone(), at),
            None => Compare::Absent(self.key.clone()),
        };
        vec![self.plane.fence(), progress]
    }

    /// Writes, if the plane still arrives and nobody else sends.
    pub(super) async fn commit(&mut self, mut writes: Vec<Write>, progress: Progress) -> Result<(), ApiError> {
        writes.push(Write::Put {
            key: self.key.clone(),
            value: json_bytes(&progress),
            ttl: None,
        });
        let compares = self.compares();
        match self.server.store.commit(Txn { compares, writes }).await {
            Ok(committed) => {
                (self.progress, self.at) = (Some(progress), committed.revisions.last().copied());
                Ok(())
            }
            Err(CommitError::Conflict { .. }) => Err(interrupted(&self.plane)),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes this store's revisions greater than the sender's, if it can.
    pub(super) async fn advance(&self, to: Revision) -> Result<Versions, ApiError> {
        match self.server.store.advance(to).await {
            Ok(_) => Ok(Versions::Kept),
            Err(AdvanceError::Unsupported) => Ok(Versions::New),
            Err(AdvanceError::TooFar) => Err(damaged("its revision is beyond all that there are")),
            Err(error) => Err(ApiError::unavailable("the store's revision could not be advanced").because(error)),
        }
    }

    /// Takes a whole copy, in place of whatever came before it.
    async fn copy(&mut self, header: Header, reader: &mut Reader) -> Result<u64, ApiError> {
        if header
            .birth
            .profile()
            .is_some_and(|profile| profile != self.plane.profile)
        {
            return Err(damaged("it is of a plane with another profile"));
        }
        let versions = self.advance(header.revision).await?;
        let mut progress = Progress {
            copied: header.revision,
            copied_at: None,
            reached: Revision(0),
            versions,
        };
        self.commit(Vec::new(), progress).await?;
        self.empty().await?;
        let compares = self.compares();
        let (mut received, mut whole) = (0, false);
        while !whole {
            let mut items = Vec::new();
            while items.len() < PAGE {
                let Some(item) = reader.item().await? else {
                    whole = true;
                    break;
                };
                items.push(self.taken(item, Revision(0), header.revision, versions)?);
            }
            received += items.len() as u64;
            put_all(&self.server, &self.plane, &compares, items).await?;
        }
        check_base(&self.server, &header.birth)?;
        let kept = header.base_revision.filter(|_| versions == Versions::Kept);
        self.adopt(header.birth.keeping(kept)).await?;
        progress.copied_at = Some(self.server.store.status().await?.revision);
        progress.reached = header.revision;
        self.commit(Vec::new(), progress).await?;
        Ok(received)
    }

    /// A record as it is to be stored.
    fn taken(&self, item: Item, after: Revision, to: Revision, versions: Versions) -> Result<Item, ApiError> {
        if layer_key(&self.plane, &item.below).is_some() {
            return Ok(item);
        }
        if item.revision <= after || item.revision > to {
            return Err(damaged("a record is of a revision that it does not tell of"));
        }
        let Some(value) = item.value else { return Ok(item) };
        let value = opened(self.server.sealing.as_deref(), &item.below, value)?;
        let value = match versions {
            Versions::Kept => stored::keep(&value, item.revision),
            Versions::New => value,
        };
        Ok(Item {
            value: Some(value),
            ..item
        })
    }

    /// Takes away what the plane holds.
    async fn empty(&mut self) -> Result<(), ApiError> {
        let range = self.plane.keys().all();
        let store = self.server.store.clone();
        loop {
            let query = RangeQuery {
                range: &range,
                at: None,
                after: None,
                limit: PAGE,
            };
            let page = store.range(query).await?;
            if page.records.is_empty() {
                return Ok(());
            }
            for (key, _) in page.records {
                let txn = Txn {
                    compares: self.compares(),
                    writes: vec![Write::Delete { key }],
                };
                match store.commit(txn).await {
                    Ok(_) => {}
                    Err(CommitError::Conflict { .. }) => return Err(interrupted(&self.plane)),
                    Err(error) => return Err(error.into()),
                }
            }
        }
    }

    /// Gives the plane this birth, and looks at it again.
    pub(super) async fn adopt(&mut self, birth: BirthRecord) -> Result<(), ApiError> {
        let directory = &self.server.directory;
        directory.adopt_birth(&self.plane, birth).await?;
        let plane = directory.by_name(&self.plane.name).await?;
        if plane.id != self.plane.id || plane.state != State::Arriving {
            return Err(interrupted(&self.plane));
        }
        self.plane = plane;
        Ok(())
    }

    /// Takes changes, in order, each once.
    async fn follow(&mut self, header: &Header, since: Revision, reader: &mut Reader) -> Result<u64, ApiError> {
        let progress = self.progress.filter(|progress| progress.copied_at.is_some());
        let Some(progress) = progress.filter(|progress| since <= progress.reached) else {
            let message = format!(
                "control plane \"{}\" has come to revision {}: send changes since then, or a whole copy",
                self.plane.name,
                if progress.is_some() {
                    self.reached()
                } else {
                    Revision(0)
                },
            );
            return Err(ApiError::new(StatusCode::CONFLICT, "Conflict", message));
        };
        let versions = self.advance(header.revision).await?;
        if versions != progress.versions {
            return Err(ApiError::internal("the store can no longer do what it could"));
        }
        let mut batch = Batch::new(progress);
        let received = self.changes(header, since, reader, &mut batch).await;
        // Of changes that turn out to be wrong some are here already, and would not be taken again.
        if received.is_err() && reader.end() == End::Wrong && self.reached() > progress.reached {
            let unknown = Progress {
                copied_at: None,
                ..progress
            };
            self.commit(Vec::new(), unknown).await?;
        }
        received
    }

    async fn changes(
        &mut self,
        header: &Header,
        since: Revision,
        reader: &mut Reader,
        batch: &mut Batch,
    ) -> Result<u64, ApiError> {
        let progress = batch.progress;
        let (mut received, mut last) = (0, since);
        while let Some(item) = reader.item().await? {
            if let Some(layer) = layer_key(&self.plane, &item.below) {
                let value = item.value.ok_or_else(|| damaged("a base layer is never deleted"))?;
                adopt_layer(&self.server, &layer, value).await?;
                continue;
            }
            let item = self.taken(item, since, header.revision, progress.versions)?;
            if item.revision < last {
                return Err(damaged("its changes are not in order"));
            }
            last = item.revision;
            // Sent again: it is here already.
            if item.revision <= progress.reached {
                continue;
            }
            received += 1;
            self.apply(batch, item).await?;
        }
        // Only now: the checksum was right, so nothing is missing up to here.
        batch.progress.reached = progress.reached.max(header.revision);
        self.flush(batch).await?;
        Ok(received)
    }

    async fn apply(&mut self, batch: &mut Batch, item: Item) -> Result<(), ApiError> {
        let Some(key) = key_of(&self.plane, &item.below)? else {
            return Ok(());
        };
        // Only between revisions: what was one transaction there is one here.
        let boundary = item.revision > batch.last;
        if boundary && (batch.is_full() || batch.keys.contains(&key) || batch.progress.versions == Versions::New) {
            batch.progress.reached = batch.progress.reached.max(batch.last);
            self.flush(batch).await?;
        }
        let current = self.server.store.get(&key).await?;
        let before = match &current {
            Some(record) => object_in(&record.value)?,
            None => None,
        };
        match &item.value {
            None if current.is_none() => {
                batch.last = item.revision;
                return Ok(());
            }
            // The mark carries the revision of the deletion, for watches that are resumed here.
            None if batch.progress.versions == Versions::Kept => self.mark_gone(batch, &key, item.revision).await?,
            _ => {}
        }
        batch.last = item.revision;
        batch.bytes += item.value.as_ref().map_or(0, Bytes::len) + key.as_str().len();
        batch.keys.insert(key.clone());
        let writes = writes(&self.plane, key, before.as_ref(), item.value)?;
        batch.writes.extend(writes);
        Ok(())
    }

    /// Hides an object, with the revision that it was deleted at. The deletion itself follows, with the progress.
    async fn mark_gone(&mut self, batch: &mut Batch, key: &Key, revision: Revision) -> Result<(), ApiError> {
        if revision > batch.last {
            batch.progress.reached = batch.progress.reached.max(batch.last);
        }
        self.flush(batch).await?;
        let mark = Write::Put {
            key: key.clone(),
            value: stored::keep(&stored::hidden(), revision),
            ttl: None,
        };
        let progress = batch.progress;
        self.commit(vec![mark], progress).await
    }

    async fn flush(&mut self, batch: &mut Batch) -> Result<(), ApiError> {
        let writes = std::mem::take(&mut batch.writes);
        batch.keys.clear();
        batch.bytes = 0;
        self.commit(writes, batch.progress).await
    }
}

/// Changes that are written together.
struct Batch {
    writes: Vec<Write>,
    keys: HashSet<Key>,
    bytes: usize,
    /// The sender's revision of the last of them.
    last: Revision,
    /// What is true once they are written.
    progress: Progress,
}

impl Batch {
    fn new(progress: Progress) -> Self {
        Self {
            writes: Vec::new(),
            keys: HashSet::new(),
            bytes: 0,
            last: progress.reached,
            progress,
        }
    }

    fn is_full(&self) -> bool {
        self.writes.len() >= BATCH || self.bytes >= BATCH_BYTES
    }
}

//! Snapshot, restore and fork of a plane: its own records, consistent at one revision.
//!
//! Base layers that the records need go ahead of them, so that a snapshot can be restored into another store.
//! A restored or forked plane keeps uids, base layer and creation time; until it is whole it is marked and takes no requests.
//! One that moves (`arrive`) keeps resourceVersions, too: `docs/design/moving-planes.md`.

mod arrive;
mod delta;
mod fill;
mod format;
mod open;

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures::stream;
use http::{Response, StatusCode};
use mica_store::{Key, RangeQuery, Record, Revision, Store};
use serde::Deserialize;

use super::layer::{base_layers, layer_record};
use super::{Plane, State};
use crate::authz::Grant;
use crate::error::ApiError;
use crate::http::Body;
use crate::options::parse_version;
use crate::registry::owner::is_internal;
use crate::seal::{self, Sealing};
use crate::serve::{Call, respond};
use crate::stored::{self, Content};
pub(crate) use arrive::arrive;
use fill::Filling;
use format::{CONTENT_TYPE, Header, Item, PLAIN, Reader, WITH_REVISIONS, Writer, damaged};
pub(crate) use open::open;

/// Records read at once.
const PAGE: usize = 500;

/// Walks the own records of a plane at one revision.
struct Walk {
    store: Arc<dyn Store>,
    plane: Arc<Plane>,
    at: Option<Revision>,
    after: Option<Key>,
    finished: bool,
    layers: Carried,
}

/// Base layers that go with records, for a store that may not have them.
enum Carried {
    Nothing,
    /// Those that are to go ahead of the next records, and those that went.
    Layers {
        due: Vec<String>,
        sent: BTreeSet<String>,
    },
}

impl Carried {
    fn with(base: &str) -> Self {
        Self::Layers {
            due: vec![base.to_owned()],
            sent: BTreeSet::new(),
        }
    }

    /// The layers that these records need and that have not gone yet, and then the records.
    async fn ahead_of(
        &mut self,
        store: &Arc<dyn Store>,
        plane: &Plane,
        items: Vec<Item>,
    ) -> Result<Vec<Item>, ApiError> {
        let Self::Layers { due, sent } = self else {
            return Ok(items);
        };
        for value in items.iter().filter_map(|item| item.value.as_ref()) {
            let record = Record {
                value: value.clone(),
                revision: Revision::default(),
            };
            if let Content::Based(id) = Content::read(&record)? {
                due.push(id);
            }
        }
        let mut all = Vec::new();
        for id in std::mem::take(due) {
            if sent.insert(id.clone()) {
                let record = layer_record(store, &id).await?;
                all.push(Item {
                    below: below(&plane.keys().object(&base_layers(), None, &id)).to_owned(),
                    value: Some(record.value),
                    revision: Revision::default(),
                });
            }
        }
        all.extend(items);
        Ok(all)
    }
}

impl Walk {
    fn new(store: Arc<dyn Store>, plane: Arc<Plane>, layers: Carried) -> Self {
        Self {
            store,
            plane,
            at: None,
            after: None,
            finished: false,
            layers,
        }
    }

    async fn page(&mut self) -> Result<Vec<Item>, ApiError> {
        let range = self.plane.keys().all();
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
        let items = objects.map(|(key, record)| item_of(&key, &record)).collect();
        self.layers.ahead_of(&self.store, &self.plane, items).await
    }
}

/// A record as it travels: its content, and what clients see it with.
fn item_of(key: &Key, record: &Record) -> Item {
    Item {
        below: below(key).to_owned(),
        revision: stored::shown_revision(record),
        value: Some(stored::without_kept(record.value.clone())),
    }
}

/// The key without its plane.
fn below(key: &Key) -> &str {
    key.as_str().split_once('/').map_or("", |(_, below)| below)
}

/// Answers with a plane's content: `revisions=true` for a move, `since=REVISION` for what changed after a copy.
pub(crate) async fn snapshot(call: &Call<'_>, grant: &Grant) -> Result<Response<Body>, ApiError> {
    let plane = whole_plane(call, grant).await?;
    let since = call.query.get("since").map(parse_version).transpose();
    let since = since
        .map_err(|_| ApiError::bad_request("since must be a revision"))?
        .flatten();
    if let Some(since) = since {
        return delta::answer(call, plane, since).await;
    }
    let version = match call.query.flag("revisions") {
        true => WITH_REVISIONS,
        false => PLAIN,
    };
    let birth = call.server.directory.birth_record(plane.id).await?;
    let mut walk = Walk::new(call.server.store.clone(), plane, Carried::with(birth.base()));
    let first = walk.page().await?;
    let revision = walk.at.unwrap_or_default();
    let mut header = Header::new(version, &walk.plane.name, revision, birth.copied());
    header.base_revision = (version == WITH_REVISIONS).then_some(walk.plane.birth.revision);
    let (mut writer, mut head) = Writer::new(&header);
    let sealing = call.server.sealing.clone();
    writer.write(&hidden(sealing.as_deref(), &walk.plane, first), &mut head);
    let state = (walk, writer, Some(head), sealing);
    let pieces = stream::unfold(Some(state), |state| async move {
        let (mut walk, mut writer, ready, sealing) = state?;
        let mut out = match ready {
            Some(ready) => ready,
            None => match walk.page().await {
                Ok(items) => {
                    let mut out = BytesMut::new();
                    writer.write(&hidden(sealing.as_deref(), &walk.plane, items), &mut out);
                    out
                }
                Err(error) => return Some((Err(error), None)),
            },
        };
        if !walk.finished {
            return Some((Ok(out.freeze()), Some((walk, writer, None, sealing))));
        }
        writer.end(&mut out);
        Some((Ok::<_, ApiError>(out.freeze()), None))
    });
    Ok(respond(StatusCode::OK, CONTENT_TYPE, Body::try_stream(pieces)))
}

/// What the store hides is hidden in the snapshot, too, for those who have the configuration's keys.
fn hidden(sealing: Option<&Sealing>, plane: &Plane, items: Vec<Item>) -> Vec<Item> {
    let Some(sealing) = sealing else { return items };
    let hide = |item: Item| {
        let key = Key::from_stored(&format!("{}/{}", plane.id, item.below));
        let value = match (key, item.value) {
            (Some(key), Some(value)) => Some(sealing.export(&key, &item.below, value)),
            (_, value) => value,
        };
        Item { value, ..item }
    };
    items.into_iter().map(hide).collect()
}

/// A value of a snapshot as it was before it was hidden.
fn opened(sealing: Option<&Sealing>, below: &str, value: Bytes) -> Result<Bytes, ApiError> {
    let opened = match sealing {
        Some(sealing) => sealing.import(below, value),
        None => seal::import_plain(value),
    };
    // Whoever made the snapshot has no say in what the value is shown with.
    opened.map(stored::without_kept).map_err(|why| damaged(&why))
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
    let mut walk = Walk::new(call.server.store.clone(), plane, Carried::Nothing);
    let (server, grant) = (call.server.clone(), grant.clone());
    detached(async move {
        let filling = Filling::begin(server, grant, &request.name, &birth).await?;
        let copied = async {
            while !walk.finished {
                let items = walk.page().await?;
                filling.write(items).await?;
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
        State::Arriving => "it is arriving from another server: try again when it is open",
        State::Draining => "it is being deleted",
        State::Active | State::ReadOnly | State::Suspended | State::Moving | State::Moved => return Ok(plane),
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
    let mut reader = Reader::new(call.stream.take().unwrap_or_default());
    let header = reader.header().await?;
    if header.since.is_some() {
        return Err(damaged("it has only what changed after another"));
    }
    let (server, grant) = (call.server.clone(), grant.clone());
    let name = grant.target.object().to_owned();
    detached(async move {
        let filling = Filling::begin(server, grant, &name, &header.birth).await?;
        let copied = copy(&filling, &mut reader).await;
        filling.end(copied, header.birth).await
    })
    .await
}

async fn copy(filling: &Filling, reader: &mut Reader) -> Result<(), ApiError> {
    let sealing = filling.server.sealing.clone();
    loop {
        let mut items = Vec::new();
        while items.len() < PAGE {
            let Some(mut item) = reader.item().await? else {
                return filling.write(items).await;
            };
            if let Some(value) = item.value.take() {
                item.value = Some(opened(sealing.as_deref(), &item.below, value)?);
            }
            items.push(item);
        }
        filling.write(items).await?;
    }
}

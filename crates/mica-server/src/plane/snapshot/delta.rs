//! What changed in a plane after a revision: puts and deletions, in order, from the store's log.
//!
//! Everything up to the revision that the header names is in it, and that one is read (linearizable) when the request comes:
//! after a plane was fenced, what it held is complete in the next of these.

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use futures::stream;
use http::{Response, StatusCode};
use mica_store::{Event, ReadError, Revision, Signal, Store, Watch, WatchError};

use super::format::{CONTENT_TYPE, Header, Item, WITH_REVISIONS, Writer};
use super::{Carried, PAGE, below, hidden, item_of};
use crate::error::ApiError;
use crate::http::Body;
use crate::plane::Plane;
use crate::registry::owner::is_internal;
use crate::seal::Sealing;
use crate::serve::{Call, respond};

/// How soon to look again whether the log has been read up to the end, where nothing else says so.
const LOOK: Duration = Duration::from_millis(20);

struct Changes {
    store: Arc<dyn Store>,
    plane: Arc<Plane>,
    watch: Watch,
    to: Revision,
    layers: Carried,
    finished: bool,
}

/// Answers with the changes after `since`; 410 if some of them are forgotten.
pub(super) async fn answer(call: &Call<'_>, plane: Arc<Plane>, since: Revision) -> Result<Response<Body>, ApiError> {
    let store = call.server.store.clone();
    let to = store.status().await?.revision;
    if since > to {
        return Err(ApiError::revision_too_large(since.0, to.0));
    }
    if plane.arrival().is_some_and(|arrival| since < arrival.opened) {
        return Err(forgotten(since));
    }
    let watch = match store.watch(plane.keys().all(), since).await {
        Err(ReadError::Expired { .. }) => return Err(forgotten(since)),
        watch => watch?,
    };
    let birth = call.server.directory.birth_record(plane.id).await?;
    let mut header = Header::new(WITH_REVISIONS, &plane.name, to, birth.clone().copied());
    (header.since, header.base_revision) = (Some(since), Some(plane.birth.revision));
    let (writer, head) = Writer::new(&header);
    let changes = Changes {
        store,
        plane,
        watch,
        to,
        layers: Carried::with(birth.base()),
        finished: false,
    };
    let state = (changes, writer, head, call.server.sealing.clone());
    let pieces = stream::unfold(Some(state), |state| async move {
        let (mut changes, writer, out, sealing) = state?;
        match piece(&mut changes, writer, out, sealing.as_deref()).await {
            Ok((out, Some(writer))) => {
                let next = (changes, writer, BytesMut::new(), sealing);
                Some((Ok::<_, ApiError>(out.freeze()), Some(next)))
            }
            Ok((out, None)) => Some((Ok(out.freeze()), None)),
            Err(error) => Some((Err(error), None)),
        }
    });
    Ok(respond(StatusCode::OK, CONTENT_TYPE, Body::try_stream(pieces)))
}

fn forgotten(since: Revision) -> ApiError {
    ApiError::gone(format!(
        "changes after revision {since} are not all remembered: take a whole copy"
    ))
}

/// The next piece, and the writer unless it was the last.
async fn piece(
    changes: &mut Changes,
    mut writer: Writer,
    mut out: BytesMut,
    sealing: Option<&Sealing>,
) -> Result<(BytesMut, Option<Writer>), ApiError> {
    let items = changes.page().await?;
    writer.write(&hidden(sealing, &changes.plane, items), &mut out);
    if changes.finished {
        writer.end(&mut out);
        return Ok((out, None));
    }
    Ok((out, Some(writer)))
}

impl Changes {
    async fn page(&mut self) -> Result<Vec<Item>, ApiError> {
        let mut items = Vec::new();
        while items.len() < PAGE {
            let Some(event) = self.next().await? else {
                self.finished = true;
                break;
            };
            if !is_internal(&event.key) {
                items.push(change_of(&event));
            }
        }
        self.layers.ahead_of(&self.store, &self.plane, items).await
    }

    /// The next change up to the end; `None` when all are told.
    async fn next(&mut self) -> Result<Option<Arc<Event>>, ApiError> {
        loop {
            let signal = match self.watch.try_next() {
                Some(signal) => signal,
                None if self.watch.caught_up().is_some_and(|position| position >= self.to) => return Ok(None),
                None => match tokio::time::timeout(LOOK, self.watch.next()).await {
                    Ok(signal) => signal,
                    Err(_elapsed) => continue,
                },
            };
            return match signal {
                Ok(Signal::Event(event)) if event.revision > self.to => Ok(None),
                Ok(Signal::Event(event)) => Ok(Some(event)),
                Ok(Signal::Dropped(..)) | Err(WatchError::Dropped) => Err(ApiError::gone("the plane was dropped")),
                Err(error) => Err(ApiError::unavailable("the store's log could not be followed").because(error)),
            };
        }
    }
}

fn change_of(event: &Event) -> Item {
    match event.current() {
        Some(record) => item_of(&event.key, &record),
        None => Item {
            below: below(&event.key).to_owned(),
            value: None,
            revision: event.revision,
        },
    }
}

//! Watches of objects: the state so far if asked for, then every change, once and in order.
//!
//! A watch over all planes also hears when a plane goes, with everything that its followers may still remember of it: as the
//! deletion of the Plane itself, told by the object in root that goes in the same transaction.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use http::Response;
use mica_api::PlaneId;
use mica_store::{Change, Event, ReadError, Record, Revision, Signal, Store, Watch};
use serde_json::json;
use tokio::time::Instant;

use super::table::{Columns, list_metadata};
use super::walk::{Found, Walk};
use super::{Asked, Describer, Scope, cut};
use crate::error::ApiError;
use crate::http::{Body, is_websocket};
use crate::negotiate::Output;
use crate::options::{ListOptions, ListUse, parse_version};
use crate::plane::kind::{GROUP, PLURAL as PLANES};
use crate::plane::{Plane, Since};
use crate::registry::owner;
use crate::serve::{Call, stream as streams};
use crate::stored::{Content, Stored};

/// How soon a bookmark is tried again while changes keep coming.
const BOOKMARK_RETRY: Duration = Duration::from_secs(1);
/// Without a timeout a watch ends after this long, and up to as long again: so that not all end at once.
const WATCH_TIMEOUT: Duration = Duration::from_secs(1800);
/// How much of a watch's backlog is sent together.
const BATCH: usize = 64 * 1024;

pub(super) async fn watch(call: &mut Call<'_>, plane: Option<&Plane>) -> Result<Response<Body>, ApiError> {
    let options = ListOptions::read(&call.query, ListUse::Watch)?;
    let asked = Asked::read(plane, &options)?;
    let version = parse_version(&options.resource_version).map_err(|error| error.for_get())?;
    let store = call.server.store.clone();
    let phase = match (options.send_initial_events, version) {
        (Some(true), version) => {
            let mut walk = Walk::new(store.clone(), &asked, None, None);
            let revision = walk.revision().await?;
            if let Some(version) = version.filter(|version| *version > revision) {
                return Err(ApiError::revision_too_large(version.0, revision.0));
            }
            Phase::Initial(Box::new(walk), revision)
        }
        (_, Some(revision)) => match plane.map_or(Since::Here(revision), |plane| plane.since(revision)) {
            Since::Here(revision) => Phase::Open(revision),
            // Here all kinds are in the order of this store, which what came with the plane is not.
            Since::There { until, .. } | Since::Unknown(until) => {
                return Err(ApiError::gone(format!(
                    "too old resource version: {revision} ({until})"
                )));
            }
        },
        (_, None) => Phase::Open(store.status().await?.revision),
    };
    let timeout = match options.timeout_seconds {
        Some(seconds) if seconds > 0 => Duration::from_secs(seconds),
        _ => WATCH_TIMEOUT.mul_f64(1.0 + rand::random::<f64>()),
    };
    let describer = Describer::new(call, asked.scope)?;
    let mut watching = Watching {
        store,
        asked,
        describer,
        columns: Columns::Defined,
        phase,
        told: Revision(0),
        bookmarks: options.allow_bookmarks,
        next_bookmark: Instant::now() + call.server.registry.bookmark_interval(),
        bookmark_interval: call.server.registry.bookmark_interval(),
        deadline: Instant::now() + timeout,
        ready: VecDeque::new(),
        joins: !is_websocket(&call.parts.headers),
    };
    // Registered before the response begins, so that a client that has seen its head and then writes sees that write.
    if let Phase::Open(after) = watching.phase {
        watching.open(after).await?;
    }
    let frames = stream::unfold(watching, |mut watching| async move {
        let frame = watching.next().await?;
        Some((frame, watching))
    });
    streams::respond_frames(call, frames, Output::JSON)
}

enum Phase {
    /// Telling the state so far, which is that of a revision.
    Initial(Box<Walk>, Revision),
    /// About to follow changes after a revision.
    Open(Revision),
    Live(Watch),
    Ended,
}

struct Watching {
    store: Arc<dyn Store>,
    asked: Asked,
    describer: Describer,
    /// Whether the next table says which columns it has: the first one does.
    columns: Columns,
    phase: Phase,
    /// The newest revision told, so that bookmarks are only sent when they say something new.
    told: Revision,
    bookmarks: bool,
    bookmark_interval: Duration,
    next_bookmark: Instant,
    deadline: Instant,
    ready: VecDeque<Bytes>,
    /// Whether frames that wait are sent together: a websocket message holds one.
    joins: bool,
}

impl Watching {
    /// One frame, or as many as are waiting.
    async fn next(&mut self) -> Option<Bytes> {
        while self.ready.is_empty() && !matches!(self.phase, Phase::Ended) {
            if let Err(error) = self.step().await {
                self.fail(&error);
            }
        }
        let mut first = self.ready.pop_front()?;
        while self.joins && first.len() < BATCH {
            let Some(more) = self.waiting().await else { break };
            first = [first, more].concat().into();
        }
        Some(first)
    }

    fn fail(&mut self, error: &ApiError) {
        self.phase = Phase::Ended;
        let frame = format!("{{\"type\":\"ERROR\",\"object\":{}}}\n", error.to_status());
        self.ready.push_back(frame.into());
    }

    /// What is there already without waiting for it.
    async fn waiting(&mut self) -> Option<Bytes> {
        while self.ready.is_empty() {
            let Phase::Live(watch) = &mut self.phase else {
                return None;
            };
            let signal = watch.try_next()?;
            if let Err(error) = self.signal(signal).await {
                self.fail(&error);
            }
        }
        self.ready.pop_front()
    }

    async fn step(&mut self) -> Result<(), ApiError> {
        match &mut self.phase {
            Phase::Initial(walk, revision) => match walk.next().await? {
                Some(Found { key, stored, .. }) => {
                    if let Some(kind) = self.describer.kind(&key, &stored)
                        && self.asked.filter.matches(&key, &kind, &stored)?
                    {
                        let mut out = self.frame("ADDED", stored.revision);
                        self.describer.write(&key, &kind, &stored, &mut out).await?;
                        self.push(out);
                    }
                }
                None => {
                    let revision = *revision;
                    self.open(revision).await?;
                    if self.bookmarks {
                        self.bookmark(revision, true);
                    }
                }
            },
            Phase::Open(after) => {
                let after = *after;
                self.open(after).await?;
            }
            Phase::Live(watch) => {
                let signal = tokio::select! {
                    signal = watch.next() => Some(signal),
                    () = tokio::time::sleep_until(self.deadline) => {
                        self.phase = Phase::Ended;
                        return Ok(());
                    }
                    () = tokio::time::sleep_until(self.next_bookmark), if self.bookmarks => None,
                };
                match signal {
                    Some(signal) => self.signal(signal).await?,
                    None => self.bookmark_if_due(),
                }
            }
            Phase::Ended => {}
        }
        Ok(())
    }

    async fn open(&mut self, after: Revision) -> Result<(), ApiError> {
        match self.store.watch(self.asked.scope.range(), after).await {
            Ok(watch) => {
                self.phase = Phase::Live(watch);
                self.told = self.told.max(after);
            }
            // Told as the watch's last event, as upstream does.
            Err(ReadError::Expired { compacted }) => {
                self.fail(&ApiError::gone(format!(
                    "too old resource version: {after} ({compacted})"
                )));
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    async fn signal(&mut self, signal: Result<Signal, mica_store::WatchError>) -> Result<(), ApiError> {
        match signal {
            Ok(Signal::Event(event)) => self.event(&event).await,
            // The object in root has told this.
            Ok(Signal::Dropped(..)) => Ok(()),
            // The plane is gone, the server is stopping, or this reader was too slow: the stream just ends.
            Err(_) => {
                self.phase = Phase::Ended;
                Ok(())
            }
        }
    }

    async fn event(&mut self, event: &Event) -> Result<(), ApiError> {
        if owner::is_internal(&event.key) {
            return Ok(());
        }
        if self.asked.scope == Scope::AllPlanes && event.key.plane() == PlaneId::ROOT {
            return self.root_event(event);
        }
        let mut before = event
            .previous
            .as_ref()
            .map(Content::read)
            .transpose()?
            .and_then(Content::object);
        let after = match &event.change {
            Change::Put(value) => match Content::read(&Record {
                value: value.clone(),
                revision: event.revision,
            })? {
                Content::Hidden => {
                    // What the plane was born with goes without ever having been its own.
                    if before.is_none() {
                        before = self.describer.of_base(&event.key, event.previous.as_ref()).await?;
                    }
                    None
                }
                content => content.object().map(Stored::in_store_order),
            },
            Change::Delete => None,
        };
        let Some(kind) = after
            .as_ref()
            .or(before.as_ref())
            .and_then(|stored| self.describer.kind(&event.key, stored))
        else {
            return Ok(());
        };
        let shown = |stored: Option<&Stored>| match stored {
            Some(stored) => self.asked.filter.matches(&event.key, &kind, stored),
            None => Ok(false),
        };
        let (event_type, stored) = match (shown(before.as_ref())?, shown(after.as_ref())?) {
            (false, true) => ("ADDED", after),
            (true, true) => ("MODIFIED", after),
            (true, false) => ("DELETED", before.map(|stored| stored.at(event.revision))),
            (false, false) => return Ok(()),
        };
        let Some(stored) = stored else { return Ok(()) };
        let mut out = self.frame(event_type, event.revision);
        self.describer.write(&event.key, &kind, &stored, &mut out).await?;
        self.told = event.revision;
        self.push(out);
        Ok(())
    }

    /// Of root's changes only one matters: a Plane that goes, and its content with it.
    fn root_event(&mut self, event: &Event) -> Result<(), ApiError> {
        let (Change::Delete, Some(previous)) = (&event.change, &event.previous) else {
            return Ok(());
        };
        if event.key.resource().split_once('/') != Some((GROUP, PLANES)) {
            return Ok(());
        }
        let Some(stored) = Content::read(previous)?.object() else {
            return Ok(());
        };
        let id = mica_machinery::select::text_at(stored.json(), &["status", "id"]);
        let Some(id) = id.and_then(|id| PlaneId::parse(&id).ok()) else {
            return Ok(());
        };
        let Some(kind) = self
            .describer
            .kind(&event.key, &stored)
            .filter(|_| self.asked.filter.shows_plane(id.as_str()))
        else {
            return Ok(());
        };
        let mut out = self.frame("DELETED", event.revision);
        let origin = cut::Origin {
            plane: event.key.name(),
            id,
            kind: &kind,
        };
        let stored = stored.at(event.revision);
        self.describer.item(&event.key, &origin, &stored, &mut out)?;
        self.told = event.revision;
        self.push(out);
        Ok(())
    }

    /// The beginning of a frame: everything up to the object, or to its row.
    fn frame(&mut self, event_type: &str, revision: Revision) -> Vec<u8> {
        let mut frame = format!(r#"{{"type":"{event_type}","object":"#).into_bytes();
        if let Some(table) = &self.describer.table {
            let columns = std::mem::replace(&mut self.columns, Columns::Omitted);
            frame.extend(table.head(&list_metadata(revision, ""), columns));
        }
        frame
    }

    fn push(&mut self, mut frame: Vec<u8>) {
        if self.describer.table.is_some() {
            frame.extend_from_slice(b"]}");
        }
        frame.extend_from_slice(b"}\n");
        self.ready.push_back(frame.into());
    }

    fn bookmark_if_due(&mut self) {
        let Phase::Live(watch) = &mut self.phase else { return };
        let Some(revision) = watch.caught_up() else {
            self.next_bookmark = Instant::now() + BOOKMARK_RETRY.min(self.bookmark_interval);
            return;
        };
        self.next_bookmark = Instant::now() + self.bookmark_interval;
        if revision > self.told {
            self.bookmark(revision, false);
        }
    }

    fn bookmark(&mut self, revision: Revision, initial_end: bool) {
        self.told = revision;
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if initial_end {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let api_version = self.describer.form.api_version();
        let object = json!({"kind": "PartialObjectMetadata", "apiVersion": api_version, "metadata": metadata});
        let mut frame = self.frame("BOOKMARK", revision);
        match &self.describer.table {
            Some(table) => table.bookmark(&object, &mut frame),
            None => frame.extend_from_slice(object.to_string().as_bytes()),
        }
        self.push(frame);
    }
}

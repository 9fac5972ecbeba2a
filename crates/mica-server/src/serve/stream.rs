//! Lists and watches: answers that are sent while they are read.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::stream::{self, Stream};
use http::{Response, StatusCode};

use super::resource::{media, stream_media};
use super::{Call, respond};
use crate::authz::Grant;
use crate::encode::{Encoder, FirstEvent, ListMeta, Media, spliced_event};
use crate::error::ApiError;
use crate::http::{Body, Frames, is_websocket, upgrade_watch};
use crate::negotiate::{Format, Output, Route};
use crate::options::{ListOptions, ListUse};
use crate::registry::{Listing, WatchItem, WatchStart};
use crate::scheme::Served;

/// How much of a list is gathered before it is handed to the connection.
const CHUNK: usize = 128 * 1024;
/// How much of a watch's backlog is sent together.
const BATCH: usize = 64 * 1024;
/// Without a timeout a watch ends after this long, and up to as long again: so that not all end at once.
const WATCH_TIMEOUT: Duration = Duration::from_secs(1800);

pub async fn list(call: &Call<'_>, grant: &Grant) -> Result<Response<Body>, ApiError> {
    let served = grant.target.served.clone();
    let options = ListOptions::read(&call.query, ListUse::List)?;
    let media = media(call, Route::Collection, &served)?;
    let listing = call.server.registry.list(grant, &options).await?;
    let content_type = media.output.format.media_type();
    let body = if options.limit > 0 || !media.streams() {
        gathered(&served, media, listing).await?
    } else {
        streamed(served, media, listing).await?
    };
    Ok(respond(StatusCode::OK, content_type, body))
}

/// A list that is read whole before it is sent: a page, or a format that says its length first.
async fn gathered(served: &Served, media: Media, mut listing: Listing) -> Result<Body, ApiError> {
    let revision = listing.revision;
    let (items, meta) = if listing.limit > 0 {
        let page = listing.page().await?;
        let meta = ListMeta { revision, continue_token: page.continue_token, remaining: page.remaining };
        (page.items, meta)
    } else {
        let mut items = Vec::new();
        while let Some(item) = listing.next().await? {
            items.push(item);
        }
        (items, ListMeta { revision, ..ListMeta::default() })
    };
    let encoder = Encoder::new(served, media);
    if items.is_empty() {
        return Ok(Body::full(encoder.list_values(&meta, Vec::new())?));
    }
    let stored: Vec<_> = items.into_iter().map(|(_, stored)| stored).collect();
    if !media.streams() {
        return Ok(Body::full(encoder.list(&meta, &stored)?));
    }
    let mut out = BytesMut::from(&encoder.list_head(&meta)[..]);
    for (i, stored) in stored.iter().enumerate() {
        if i > 0 {
            out.extend_from_slice(b",");
        }
        encoder.list_item(stored, &mut out)?;
    }
    out.extend_from_slice(b"]}\n");
    Ok(Body::full(out.freeze()))
}

struct Sending {
    served: Arc<Served>,
    media: Media,
    listing: Listing,
    chunk: BytesMut,
    first: bool,
    finished: bool,
}

/// A list in compact JSON, sent chunk by chunk as the store is walked. The first chunk is made before the response begins,
/// so that what fails at once is still answered with a Status.
async fn streamed(served: Arc<Served>, media: Media, listing: Listing) -> Result<Body, ApiError> {
    let meta = ListMeta { revision: listing.revision, ..ListMeta::default() };
    let chunk = BytesMut::from(&Encoder::new(&served, media).list_head(&meta)[..]);
    let mut sending = Sending { served, media, listing, chunk, first: true, finished: false };
    let first = sending.next_chunk().await?;
    if sending.first {
        return Ok(Body::full(Encoder::new(&sending.served, media).list_values(&meta, Vec::new())?));
    }
    if sending.finished {
        return Ok(Body::full(first));
    }
    let rest = stream::unfold(Some(sending), |sending| async move {
        let mut sending = sending.filter(|sending| !sending.finished)?;
        match sending.next_chunk().await {
            Ok(chunk) => Some((Ok(chunk), Some(sending))),
            Err(error) => Some((Err(error), None)),
        }
    });
    let first = stream::once(std::future::ready(Ok::<_, ApiError>(first)));
    Ok(Body::try_stream(futures::StreamExt::chain(first, rest)))
}

impl Sending {
    async fn next_chunk(&mut self) -> Result<Bytes, ApiError> {
        let encoder = Encoder::new(&self.served, self.media);
        while self.chunk.len() < CHUNK {
            let Some((_, stored)) = self.listing.next().await? else {
                self.chunk.extend_from_slice(b"]}\n");
                self.finished = true;
                break;
            };
            if !std::mem::take(&mut self.first) {
                self.chunk.extend_from_slice(b",");
            }
            encoder.list_item(&stored, &mut self.chunk)?;
        }
        let chunk = self.chunk.split().freeze();
        self.chunk.reserve(CHUNK + CHUNK / 4);
        Ok(chunk)
    }
}

pub async fn watch(call: &mut Call<'_>, grant: &Grant) -> Result<Response<Body>, ApiError> {
    let served = grant.target.served.clone();
    let mut options = ListOptions::read(&call.query, ListUse::Watch)?;
    if let Some(name) = &grant.target.name {
        // The old path of a watch on one object.
        options.field_selector = format!("metadata.name={}", mica_machinery::select::escape_value(name));
    }
    let media = stream_media(call, &served)?;
    let watch = call.server.registry.watch(grant, &options).await;
    let timeout = match options.timeout_seconds {
        Some(seconds) if seconds > 0 => Duration::from_secs(seconds),
        _ => WATCH_TIMEOUT.mul_f64(1.0 + rand::random::<f64>()),
    };
    let source = match watch {
        Ok(watch) => Source::Open(Box::new(watch)),
        // A version that is gone is told inside the stream, as upstream does.
        Err(error) if error.code() == StatusCode::GONE => Source::Failed(error),
        Err(error) => return Err(error),
    };
    let batch = if is_websocket(&call.parts.headers) { Batch::Single } else { Batch::Joined };
    respond_watch(call, frames(served, media, source, timeout, batch), media.output)
}

/// Whether events that are waiting are sent together: a websocket message holds one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Batch {
    Joined,
    Single,
}

/// Sends frames as the body of a response, or over a websocket if the client asked for one.
pub fn respond_watch(
    call: &mut Call<'_>,
    frames: impl Stream<Item = Bytes> + Send + 'static,
    output: Output,
) -> Result<Response<Body>, ApiError> {
    let peer = call.context.peer.clone();
    if is_websocket(&call.parts.headers) {
        let kind = if output.format == Format::Protobuf { Frames::Binary } else { Frames::Text };
        // The connection is taken over through the request's extensions.
        let mut request = http::Request::new(());
        request.method_mut().clone_from(&call.parts.method);
        request.headers_mut().clone_from(&call.parts.headers);
        *request.extensions_mut() = std::mem::take(&mut call.parts.extensions);
        return upgrade_watch(&peer, &mut request, kind, frames);
    }
    let content_type = output.format.watch_type().unwrap_or_else(|| output.format.media_type());
    Ok(respond(StatusCode::OK, content_type, Body::watch(frames, peer.drain().clone())))
}

pub enum Source {
    Open(Box<WatchStart>),
    Failed(ApiError),
}

struct Watching {
    served: Arc<Served>,
    media: Media,
    source: Source,
    deadline: tokio::time::Instant,
    first: FirstEvent,
    batch: Batch,
    ended: bool,
}

/// The frames of a watch, until it ends or its time is over.
fn frames(
    served: Arc<Served>,
    media: Media,
    source: Source,
    timeout: Duration,
    batch: Batch,
) -> impl Stream<Item = Bytes> + Send + 'static {
    let deadline = tokio::time::Instant::now() + timeout;
    let watching = Watching { served, media, source, deadline, first: FirstEvent::Yes, batch, ended: false };
    stream::unfold(watching, |mut watching| async move {
        let frame = watching.next().await?;
        Some((frame, watching))
    })
}

impl Watching {
    /// One event, or as many as are waiting.
    async fn next(&mut self) -> Option<Bytes> {
        if self.ended {
            return None;
        }
        let item = match &mut self.source {
            Source::Open(watch) => tokio::select! {
                item = watch.next() => item?,
                () = tokio::time::sleep_until(self.deadline) => return None,
            },
            Source::Failed(error) => {
                self.ended = true;
                return Some(Encoder::new(&self.served, self.media).watch_error(error));
            }
        };
        let first = self.frame(&item);
        let mut batch: Option<BytesMut> = None;
        while self.batch == Batch::Joined && !self.ended && batch.as_ref().map_or(first.len(), BytesMut::len) < BATCH {
            let Source::Open(watch) = &mut self.source else { break };
            let Some(item) = watch.try_next() else { break };
            let frame = self.frame(&item);
            batch.get_or_insert_with(|| BytesMut::from(&first[..])).extend_from_slice(&frame);
        }
        Some(batch.map_or(first, BytesMut::freeze))
    }

    fn frame(&mut self, item: &WatchItem) -> Bytes {
        let encoder = Encoder::new(&self.served, self.media);
        let frame = match item {
            WatchItem::Event { event_type, stored, shared: Some(event), .. } if encoder.is_plain(stored) => {
                Ok(event.memo(|| spliced_event(event_type.as_str(), &self.served, stored)))
            }
            WatchItem::Event { event_type, stored, .. } => encoder.watch_event(event_type.as_str(), stored, self.first),
            WatchItem::Bookmark { revision, initial_end } => encoder.bookmark(*revision, *initial_end),
            WatchItem::Error(error) => {
                self.ended = true;
                Ok(encoder.watch_error(error))
            }
        };
        if matches!(item, WatchItem::Event { .. }) {
            self.first = FirstEvent::No;
        }
        frame.unwrap_or_else(|error| {
            self.ended = true;
            encoder.watch_error(&error)
        })
    }
}

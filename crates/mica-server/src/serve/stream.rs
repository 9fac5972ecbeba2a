//! Lists and watches: answers that are sent while they are read.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use futures::future::BoxFuture;
use futures::stream::{self, Stream};
use http::{Response, StatusCode};
use mica_machinery::select::FieldSelector;
use mica_store::Key;
use serde_json::Value;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::resource::{check_form, media, stream_media};
use super::{Call, respond};
use crate::authz::Grant;
use crate::conversion::not_ready;
use crate::encode::{Encoder, FirstEvent, ListMeta, Media};
use crate::error::ApiError;
use crate::http::{Body, Frames, is_websocket, upgrade_watch};
use crate::negotiate::{Format, Output, Route};
use crate::options::{ListOptions, ListUse, Match};
use crate::plane::lasting::Ending;
use crate::registry::{Listing, WatchItem, WatchStart, served_value};
use crate::scheme::Served;
use crate::stored::Stored;
use crate::wildcard::Origins;

/// How much of a list is gathered before it is handed to the connection.
const CHUNK: usize = 128 * 1024;

/// Chunks that are made before others have their turn: about a millisecond's work.
const CHUNKS_AT_ONCE: usize = 8;
/// How much of a watch's backlog is sent together.
const BATCH: usize = 64 * 1024;

pub async fn list(call: &Call<'_>, grant: &Grant) -> Result<Response<Body>, ApiError> {
    let served = grant.target.served.clone();
    let media = media(call, Route::Collection, &served)?;
    let options = ListOptions::read(&call.query, ListUse::List)?;
    let listing = call.server.registry.list(grant, &options).await.map_err(|error| {
        let past_the_cache =
            options.limit > 0 || !options.continue_token.is_empty() || options.version_match == Match::Exact;
        if past_the_cache {
            error
        } else {
            not_ready(error, &served)
        }
    })?;
    check_form(call, Route::Collection, &served, media)?;
    respond_list(
        Shown {
            served,
            media,
            origins: None,
        },
        listing,
    )
    .await
}

/// How the objects of an answer are shown.
pub struct Shown {
    pub served: Arc<Served>,
    pub media: Media,
    /// Tells which plane an object is from, in answers over all planes.
    pub origins: Option<Origins>,
}

impl Shown {
    /// What an encoding of an event must be for this answer to send it: the same kind and version, stored bytes as they are.
    fn form(&self) -> Option<u64> {
        let plain = self.media.output == Output::JSON && self.origins.is_none();
        plain.then(|| xxh3_64_with_seed(&self.served.head, self.served.normaliser))
    }

    async fn value(&self, key: &Key, stored: &Stored) -> Result<Value, ApiError> {
        match &self.origins {
            Some(origins) => origins.mark(&self.served, key, stored).await,
            None => served_value(&self.served, stored),
        }
    }

    async fn write_marked(&self, key: &Key, stored: &Stored, out: &mut BytesMut) -> Result<(), ApiError> {
        let value = self.value(key, stored).await?;
        out.extend_from_slice(&Encoder::new(&self.served, self.media).item_json(value));
        Ok(())
    }
}

/// Sends a list: as it is read, or gathered first where that is needed.
pub async fn respond_list(shown: Shown, listing: Listing) -> Result<Response<Body>, ApiError> {
    let content_type = shown.media.output.format.media_type();
    let body = if listing.limit > 0 || !Encoder::new(&shown.served, shown.media).streams() {
        gathered(shown, listing).await?
    } else {
        let meta = ListMeta {
            revision: listing.revision,
            ..ListMeta::default()
        };
        streamed(shown, meta, Items::Read(Box::new(listing))).await?
    };
    Ok(respond(StatusCode::OK, content_type, body))
}

/// A list that is read whole before it is sent: a page, or a format that says its length first.
async fn gathered(shown: Shown, mut listing: Listing) -> Result<Body, ApiError> {
    let revision = listing.revision;
    let (items, meta) = if listing.limit > 0 {
        let page = listing.page().await?;
        let meta = ListMeta {
            revision,
            continue_token: page.continue_token,
            remaining: page.remaining,
        };
        (page.items, meta)
    } else {
        let mut items = Vec::new();
        while let Some(item) = listing.next().await? {
            items.push(item);
        }
        (
            items,
            ListMeta {
                revision,
                ..ListMeta::default()
            },
        )
    };
    if Encoder::new(&shown.served, shown.media).streams() {
        return streamed(shown, meta, Items::Held(items.into_iter())).await;
    }
    let mut values = Vec::with_capacity(items.len());
    for (key, stored) in items {
        values.push(shown.value(&key, &stored).await?);
    }
    Ok(Body::full(
        Encoder::new(&shown.served, shown.media).list_values(&meta, values)?,
    ))
}

/// Where the items of a list come from.
enum Items {
    Read(Box<Listing>),
    Held(std::vec::IntoIter<(Key, Stored)>),
}

impl Items {
    async fn next(&mut self) -> Result<Option<(Key, Stored)>, ApiError> {
        match self {
            Self::Read(listing) => listing.next().await,
            Self::Held(items) => Ok(items.next()),
        }
    }

    /// The next item if that needs no waiting.
    fn try_next(&mut self) -> Result<Option<(Key, Stored)>, ApiError> {
        match self {
            Self::Read(listing) => listing.try_next(),
            Self::Held(items) => Ok(items.next()),
        }
    }
}

struct Sending {
    shown: Shown,
    meta: ListMeta,
    items: Items,
    chunk: BytesMut,
    first: bool,
    finished: bool,
    /// Sent after the first.
    chunks: usize,
}

/// A list in compact JSON, sent chunk by chunk as the store is walked. The first chunk is made before the response begins,
/// so that what fails at once is still answered with a Status.
async fn streamed(shown: Shown, meta: ListMeta, items: Items) -> Result<Body, ApiError> {
    let chunk = BytesMut::from(&Encoder::new(&shown.served, shown.media).list_head(&meta)[..]);
    let mut sending = Sending {
        shown,
        meta,
        items,
        chunk,
        first: true,
        finished: false,
        chunks: 0,
    };
    let first = sending.next_chunk().await?;
    if sending.first {
        let encoder = Encoder::new(&sending.shown.served, sending.shown.media);
        return Ok(Body::full(encoder.list_values(&sending.meta, Vec::new())?));
    }
    if sending.finished {
        return Ok(Body::full(first));
    }
    let rest = stream::unfold(Some(sending), |sending| async move {
        let mut sending = sending.filter(|sending| !sending.finished)?;
        sending.chunks += 1;
        // A client that takes all at once would have this processor to itself until the list ends.
        if sending.chunks.is_multiple_of(CHUNKS_AT_ONCE) {
            tokio::task::yield_now().await;
        }
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
        // Not when the last chunk went out: by now its memory may be free to be used again.
        if !self.first {
            self.chunk.reserve(CHUNK + CHUNK / 4);
        }
        while self.chunk.len() < CHUNK {
            if self.shown.origins.is_none() {
                self.write_ready()?;
            }
            if self.chunk.len() >= CHUNK {
                break;
            }
            let Some((key, stored)) = self.items.next().await? else {
                let tail = Encoder::new(&self.shown.served, self.shown.media).list_tail(&self.meta);
                self.chunk.extend_from_slice(&tail);
                self.finished = true;
                break;
            };
            separate(&mut self.first, &mut self.chunk);
            if self.shown.origins.is_some() {
                self.shown.write_marked(&key, &stored, &mut self.chunk).await?;
            } else {
                Encoder::new(&self.shown.served, self.shown.media).list_item(&stored, &mut self.chunk)?;
            }
        }
        Ok(self.chunk.split().freeze())
    }

    /// Writes what has been read already, as far as it fits.
    fn write_ready(&mut self) -> Result<(), ApiError> {
        let shown = &self.shown;
        let encoder = Encoder::new(&shown.served, shown.media);
        while self.chunk.len() < CHUNK
            && let Some((_, stored)) = self.items.try_next()?
        {
            separate(&mut self.first, &mut self.chunk);
            encoder.list_item(&stored, &mut self.chunk)?;
        }
        Ok(())
    }
}

/// A comma before every item but the first.
fn separate(first: &mut bool, chunk: &mut BytesMut) {
    if !std::mem::take(first) {
        chunk.extend_from_slice(b",");
    }
}

pub async fn watch(call: &mut Call<'_>, grant: &Grant) -> Result<Response<Body>, ApiError> {
    let served = grant.target.served.clone();
    let mut options = ListOptions::read(&call.query, ListUse::Watch)?;
    if let Some(name) = &grant.target.name {
        // The old path of a watch on one object.
        let selected = FieldSelector::parse(&options.field_selector).ok();
        let selected = selected.filter(|selector| !selector.is_everything());
        if selected.is_some_and(|selector| selector.exact("metadata.name") != Some(name)) {
            return Err(ApiError::bad_request(
                "fieldSelector metadata.name doesn't match requested name",
            ));
        }
        options.field_selector = format!("metadata.name={}", mica_machinery::select::escape_value(name));
    }
    let media = stream_media(call, &served)?;
    let watch = call.server.registry.watch(grant, &options).await;
    let watch = watch.map_err(|error| not_ready(error, &served));
    respond_watch(
        call,
        Shown {
            served,
            media,
            origins: None,
        },
        watch,
    )
}

/// Sends a watch as the body of a response, or over a websocket if the client asked for one.
pub fn respond_watch(
    call: &mut Call<'_>,
    shown: Shown,
    watch: Result<WatchStart, ApiError>,
) -> Result<Response<Body>, ApiError> {
    let source = match watch {
        Ok(watch) => Source::Open(Box::new(match shown.form() {
            Some(form) => watch.sharing(form),
            None => watch,
        })),
        // A version that is gone is told inside the stream, as upstream does.
        Err(error) if error.code() == StatusCode::GONE => Source::Failed(error),
        Err(error) => return Err(error),
    };
    let batch = if is_websocket(&call.parts.headers) {
        Batch::Single
    } else {
        Batch::Joined
    };
    let output = shown.media.output;
    let watching = Box::new(Watching {
        shown,
        source,
        first: FirstEvent::Yes,
        batch,
        ended: false,
    });
    respond_frames(call, WatchFrames::Ready(watching), output)
}

/// Whether events that are waiting are sent together: a websocket message holds one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Batch {
    Joined,
    Single,
}

/// Sends frames as the body of a response, or over a websocket if the client asked for one.
pub fn respond_frames(
    call: &mut Call<'_>,
    frames: impl Stream<Item = Bytes> + Send + 'static,
    output: Output,
) -> Result<Response<Body>, ApiError> {
    let peer = call.context.peer.clone();
    let (counted, ending) = (call.watching.take(), call.ending.take());
    let frames = futures::StreamExt::take_until(frames, ended(ending));
    let frames = futures::StreamExt::map(frames, move |frame| {
        // Counted for as long as frames may come.
        let _ = &counted;
        frame
    });
    if is_websocket(&call.parts.headers) {
        let kind = if output.format == Format::Protobuf {
            Frames::Binary
        } else {
            Frames::Text
        };
        // The connection is taken over through the request's extensions.
        let mut request = http::Request::new(());
        request.method_mut().clone_from(&call.parts.method);
        request.headers_mut().clone_from(&call.parts.headers);
        *request.extensions_mut() = std::mem::take(&mut call.parts.extensions);
        return upgrade_watch(&peer, &mut request, kind, frames);
    }
    let content_type = output.format.watch_type().unwrap_or_else(|| output.format.media_type());
    Ok(respond(
        StatusCode::OK,
        content_type,
        Body::watch(frames, peer.drain().clone()),
    ))
}

/// Waits for the end that somebody else decides on, and for ever if nobody can.
async fn ended(ending: Option<Ending>) {
    match ending {
        Some(ending) => ending.cancelled().await,
        None => std::future::pending().await,
    }
}

enum Source {
    Open(Box<WatchStart>),
    Failed(ApiError),
}

struct Watching {
    shown: Shown,
    source: Source,
    first: FirstEvent,
    batch: Batch,
    ended: bool,
}

/// The frames of a watch, until it ends or its time is over. What only follows changes is polled as it is; a future is made
/// for what has to read or to look something up first.
enum WatchFrames {
    Ready(Box<Watching>),
    Busy(BoxFuture<'static, (Box<Watching>, Option<Bytes>)>),
    Ended,
}

impl Stream for WatchFrames {
    type Item = Bytes;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        loop {
            match &mut *self {
                Self::Ended => return Poll::Ready(None),
                Self::Busy(work) => {
                    let (watching, frame) = ready!(work.as_mut().poll(cx));
                    *self = if frame.is_some() {
                        Self::Ready(watching)
                    } else {
                        Self::Ended
                    };
                    return Poll::Ready(frame);
                }
                Self::Ready(watching) if watching.is_plain() => {
                    let frame = ready!(watching.poll_next(cx));
                    if frame.is_none() {
                        *self = Self::Ended;
                    }
                    return Poll::Ready(frame);
                }
                Self::Ready(_) => {
                    let Self::Ready(mut watching) = std::mem::replace(&mut *self, Self::Ended) else {
                        unreachable!("matched above");
                    };
                    *self = Self::Busy(Box::pin(async move {
                        let frame = watching.next().await;
                        (watching, frame)
                    }));
                }
            }
        }
    }
}

impl Watching {
    /// Whether the next frame takes nothing but waiting for a change.
    fn is_plain(&self) -> bool {
        let live = matches!(&self.source, Source::Open(watch) if watch.is_live());
        live && self.shown.origins.is_none() && !self.ended
    }

    /// One event, or as many as are waiting.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let Source::Open(watch) = &mut self.source else {
            return Poll::Ready(None);
        };
        let Some(item) = ready!(watch.poll_live(cx)) else {
            return Poll::Ready(None);
        };
        let first = self.frame(item);
        let mut batch: Option<BytesMut> = None;
        while self.batch == Batch::Joined && !self.ended && batch.as_ref().map_or(first.len(), BytesMut::len) < BATCH {
            let Source::Open(watch) = &mut self.source else { break };
            let Some(item) = watch.try_next() else { break };
            let frame = self.frame(item);
            batch
                .get_or_insert_with(|| BytesMut::from(&first[..]))
                .extend_from_slice(&frame);
        }
        Poll::Ready(Some(batch.map_or(first, BytesMut::freeze)))
    }

    /// The next event of a watch that is not plain; of the state so far as many as make a good frame.
    async fn next(&mut self) -> Option<Bytes> {
        if self.ended {
            return None;
        }
        let item = match &mut self.source {
            Source::Open(watch) => watch.next().await?,
            Source::Failed(error) => {
                self.ended = true;
                return Some(Encoder::new(&self.shown.served, self.shown.media).watch_error(error));
            }
        };
        let first = self.marked_frame(item).await;
        let mut batch: Option<BytesMut> = None;
        while self.batch == Batch::Joined && !self.ended && batch.as_ref().map_or(first.len(), BytesMut::len) < BATCH {
            let Source::Open(watch) = &mut self.source else { break };
            let Some(item) = watch.next_initial().await else { break };
            let frame = self.marked_frame(item).await;
            batch
                .get_or_insert_with(|| BytesMut::from(&first[..]))
                .extend_from_slice(&frame);
        }
        Some(batch.map_or(first, BytesMut::freeze))
    }

    /// The frame of an event, with the plane that it is from where that is shown.
    async fn marked_frame(&mut self, item: WatchItem) -> Bytes {
        match item {
            WatchItem::Event {
                event_type,
                key,
                stored,
                ..
            } if self.shown.origins.is_some() => {
                let value = self.shown.value(&key, &stored).await;
                let encoder = Encoder::new(&self.shown.served, self.shown.media);
                let frame = value.and_then(|value| encoder.watch_value(event_type.as_str(), value, self.first));
                self.first = FirstEvent::No;
                self.or_error(frame)
            }
            item => self.frame(item),
        }
    }

    fn frame(&mut self, item: WatchItem) -> Bytes {
        let shown = &self.shown;
        let frame = match item {
            WatchItem::Encoded(frame) => Ok(frame),
            WatchItem::Event {
                event_type,
                stored,
                shared,
                ..
            } => {
                let encoder = Encoder::new(&shown.served, shown.media);
                let frame = encoder.watch_event(event_type.as_str(), &stored, self.first);
                if let (Ok(frame), Some(event), Some(form)) = (&frame, shared, shown.form())
                    && encoder.is_plain(&stored)
                {
                    event.remember(form, frame.clone());
                }
                self.first = FirstEvent::No;
                frame
            }
            WatchItem::Bookmark { revision, initial_end } => {
                Encoder::new(&shown.served, shown.media).bookmark(revision, initial_end)
            }
            WatchItem::Error(error) => Err(error),
        };
        self.or_error(frame)
    }

    /// The frame, or what went wrong as the last one.
    fn or_error(&mut self, frame: Result<Bytes, ApiError>) -> Bytes {
        frame.unwrap_or_else(|error| {
            self.ended = true;
            Encoder::new(&self.shown.served, self.shown.media).watch_error(&error)
        })
    }
}

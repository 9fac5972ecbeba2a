//! The all-planes address: LIST and WATCH of one resource over every plane but root.
//!
//! Answers show what planes hold themselves, not the base layer repeated for each, and each object says where it is from.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use http::{Response, StatusCode};
use mica_api::PlaneId;
use mica_machinery::object;
use mica_store::{Change, Key, KeyRange, Record, Revision, Signal, Watch};
use serde_json::Value;

use crate::authz;
use crate::encode::{Encoder, FirstEvent, ListMeta, Media};
use crate::error::ApiError;
use crate::http::Body;
use crate::options::{ListOptions, ListUse, parse_version};
use crate::plane::directory::Directory;
use crate::registry::{Scan, Selection, served_value, transition};
use crate::request::{ResourcePath, Verb};
use crate::scheme::Served;
use crate::serve::{Call, Server, resource, respond, stream as streams};
use crate::stored::{Content, Stored};

/// Says which plane an object of an all-planes answer is from. Reserved: stripped on every write.
pub const PLANE_ANNOTATION: &str = "mica.dev/plane";
pub const PLANE_ID_ANNOTATION: &str = "mica.dev/plane-id";
/// Annotations that only all-planes answers have.
pub const RESERVED_ANNOTATIONS: [&str; 2] = [PLANE_ANNOTATION, PLANE_ID_ANNOTATION];

const BOOKMARK_INTERVAL: Duration = Duration::from_secs(60);
const WATCH_TIMEOUT: Duration = Duration::from_secs(1800);

pub(crate) async fn answer(call: &mut Call<'_>, path: &ResourcePath) -> Result<Response<Body>, ApiError> {
    let verb = Verb::of(&call.parts.method, path, &call.query).ok_or_else(ApiError::method_not_allowed)?;
    // Guarded in root: who may read every plane is the platform's to say.
    authz::authorize(&call.user, verb, path, &call.query)?;
    let served = resource::route(call.server.directory.plane_scheme(), path)?;
    if !matches!(verb, Verb::List | Verb::Watch) || path.name.is_some() || path.subresource.is_some() {
        return Err(ApiError::method_not_allowed());
    }
    if verb == Verb::List { list(call, served, path).await } else { watch(call, served, path).await }
}

/// What all-planes reads need to tell where an object is from.
struct Origin {
    directory: Arc<Directory>,
    namespace: Option<String>,
    selection: Selection,
}

impl Origin {
    fn shows(&self, key: &Key, stored: &Stored) -> Result<bool, ApiError> {
        if !self.reaches(key) {
            return Ok(false);
        }
        self.selection.matches(key, stored)
    }

    /// Whether the key is in a plane and in the namespace asked for.
    fn reaches(&self, key: &Key) -> bool {
        key.plane() != PlaneId::ROOT
            && self.namespace.as_deref().is_none_or(|namespace| key.namespace() == Some(namespace))
    }

    /// The object with its plane's name and id. `None` if the plane is gone meanwhile.
    async fn mark(&self, served: &Served, key: &Key, stored: &Stored) -> Result<Option<Value>, ApiError> {
        let Some(name) = self.directory.name_of(key.plane()).await? else { return Ok(None) };
        let mut value = served_value(served, stored)?;
        object::set(&mut value, &["metadata", "annotations", PLANE_ANNOTATION], &*name);
        object::set(&mut value, &["metadata", "annotations", PLANE_ID_ANNOTATION], key.plane().as_str());
        Ok(Some(value))
    }
}

fn origin(server: &Server, served: &Served, path: &ResourcePath, options: &ListOptions) -> Result<Origin, ApiError> {
    Ok(Origin {
        directory: server.directory.clone(),
        namespace: path.namespace.clone(),
        selection: Selection::parse(served, &options.label_selector, &options.field_selector)?,
    })
}

/// Where a page of an all-planes list ended.
#[derive(serde::Serialize, serde::Deserialize)]
struct Token {
    rv: u64,
    after: String,
}

impl Token {
    fn encode(&self) -> String {
        use base64::Engine;
        let json = serde_json::to_vec(self).expect("a token is plain JSON");
        base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(json)
    }

    fn decode(text: &str) -> Result<(Revision, Key), ApiError> {
        use base64::Engine;
        let bad = || ApiError::bad_request("invalid continue token: continue key is not valid");
        let bytes = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(text).map_err(|_| bad())?;
        let token: Self = serde_json::from_slice(&bytes).map_err(|_| bad())?;
        Ok((Revision(token.rv), Key::from_stored(&token.after).ok_or_else(bad)?))
    }
}

async fn list(call: &Call<'_>, served: Arc<Served>, path: &ResourcePath) -> Result<Response<Body>, ApiError> {
    let options = ListOptions::read(&call.query, ListUse::List)?;
    let media = resource::media(call, crate::negotiate::Route::Collection, &served)?;
    let origin = origin(call.server, &served, path, &options)?;
    let (at, after) = match options.continue_token.as_str() {
        "" => (exact(&options)?, None),
        token => Token::decode(token).map(|(at, after)| (Some(at), Some(after)))?,
    };
    let mut scan = Scan::of_all_planes(call.server.store.clone(), served.clone(), at, after);
    let revision = scan.revision().await?;
    let limit = if options.limit == 0 { usize::MAX } else { usize::try_from(options.limit).unwrap_or(usize::MAX) };
    let mut items = Vec::new();
    let mut continue_token = String::new();
    let mut last: Option<Key> = None;
    while let Some((key, stored)) = scan.next().await? {
        if items.len() == limit {
            let after = last.as_ref().map(|key| key.as_str().to_owned()).unwrap_or_default();
            continue_token = Token { rv: revision.0, after }.encode();
            break;
        }
        if origin.shows(&key, &stored)?
            && let Some(value) = origin.mark(&served, &key, &stored).await?
        {
            items.push(value);
        }
        last = Some(key);
    }
    let meta = ListMeta { revision, continue_token, remaining: None };
    let bytes = Encoder::new(&served, media).list_values(&meta, items)?;
    Ok(respond(StatusCode::OK, media.output.format.media_type(), Body::full(bytes)))
}

fn exact(options: &ListOptions) -> Result<Option<Revision>, ApiError> {
    let version = parse_version(&options.resource_version).map_err(|error| error.for_list())?;
    let exact = options.version_match == crate::options::Match::Exact;
    Ok(version.filter(|_| exact))
}

async fn watch(call: &mut Call<'_>, served: Arc<Served>, path: &ResourcePath) -> Result<Response<Body>, ApiError> {
    let options = ListOptions::read(&call.query, ListUse::Watch)?;
    let media = resource::stream_media(call, &served)?;
    let origin = origin(call.server, &served, path, &options)?;
    let version = parse_version(&options.resource_version).map_err(|error| error.for_get())?;
    let store = call.server.store.clone();
    let range = KeyRange::AllPlanes(served.storage.clone());
    let initial = match (options.send_initial_events, version) {
        (Some(true), _) | (None, None) => {
            let mut scan = Scan::of_all_planes(store.clone(), served.clone(), None, None);
            let revision = scan.revision().await?;
            Some((scan, revision))
        }
        _ => None,
    };
    let after = match (&initial, version) {
        (Some((_, revision)), _) => *revision,
        (None, Some(revision)) => revision,
        (None, None) => store.status().await?.revision,
    };
    let live = match store.watch(range, after).await {
        Ok(live) => live,
        Err(mica_store::ReadError::Expired { compacted }) => {
            return Err(ApiError::gone(format!("too old resource version: {after} ({compacted})")));
        }
        Err(error) => return Err(error.into()),
    };
    let timeout = options.timeout_seconds.filter(|seconds| *seconds > 0).map_or(WATCH_TIMEOUT, Duration::from_secs);
    let watching = Watching {
        served,
        media,
        origin,
        initial: initial.map(|(scan, _)| scan),
        end_of_initial: options.allow_bookmarks.then_some(after),
        live,
        bookmarks: options.allow_bookmarks,
        told: after,
        deadline: tokio::time::Instant::now() + timeout,
        first: FirstEvent::Yes,
        ready: VecDeque::new(),
        ended: false,
    };
    let frames = stream::unfold(watching, |mut watching| async move {
        let frame = watching.next().await?;
        Some((frame, watching))
    });
    streams::respond_watch(call, frames, media.output)
}

struct Watching {
    served: Arc<Served>,
    media: Media,
    origin: Origin,
    initial: Option<Scan>,
    end_of_initial: Option<Revision>,
    live: Watch,
    bookmarks: bool,
    told: Revision,
    deadline: tokio::time::Instant,
    first: FirstEvent,
    ready: VecDeque<Bytes>,
    ended: bool,
}

impl Watching {
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(frame) = self.ready.pop_front() {
                return Some(frame);
            }
            if self.ended {
                return None;
            }
            if let Err(error) = self.step().await {
                self.ended = true;
                self.ready.push_back(Encoder::new(&self.served, self.media).watch_error(&error));
            }
        }
    }

    async fn step(&mut self) -> Result<(), ApiError> {
        if let Some(scan) = &mut self.initial {
            match scan.next().await? {
                Some((key, stored)) if self.origin.shows(&key, &stored)? => self.tell("ADDED", &key, &stored).await?,
                Some(_) => {}
                None => {
                    self.initial = None;
                    if let Some(revision) = self.end_of_initial {
                        self.ready.push_back(Encoder::new(&self.served, self.media).bookmark(revision, true)?);
                    }
                }
            }
            return Ok(());
        }
        let signal = tokio::select! {
            biased;
            signal = self.live.next() => Some(signal),
            () = tokio::time::sleep_until(self.deadline) => {
                self.ended = true;
                return Ok(());
            }
            () = tokio::time::sleep(BOOKMARK_INTERVAL), if self.bookmarks => None,
        };
        match signal {
            Some(Ok(Signal::Event(event))) => {
                self.told = event.revision;
                let before = event.previous.as_ref().map(Content::read).transpose()?.and_then(Content::object);
                let after = match &event.change {
                    Change::Put(value) => {
                        Content::read(&Record { value: value.clone(), revision: event.revision })?.object()
                    }
                    Change::Delete => None,
                };
                if self.origin.reaches(&event.key)
                    && let Some((event_type, stored)) = transition(
                        &self.origin.selection,
                        &event.key,
                        before.as_ref(),
                        after.as_ref(),
                        event.revision,
                    )?
                {
                    self.tell(event_type.as_str(), &event.key, &stored).await?;
                }
            }
            Some(Ok(Signal::Dropped(..))) => {}
            Some(Err(_)) => self.ended = true,
            None => {
                if let Some(revision) = self.live.caught_up().filter(|revision| *revision > self.told) {
                    self.told = revision;
                    self.ready.push_back(Encoder::new(&self.served, self.media).bookmark(revision, false)?);
                }
            }
        }
        Ok(())
    }

    async fn tell(&mut self, event_type: &str, key: &Key, stored: &Stored) -> Result<(), ApiError> {
        let Some(value) = self.origin.mark(&self.served, key, stored).await? else { return Ok(()) };
        let encoder = Encoder::new(&self.served, self.media);
        let frame = encoder.watch_value(event_type, value, self.first)?;
        self.first = FirstEvent::No;
        self.ready.push_back(frame);
        Ok(())
    }
}

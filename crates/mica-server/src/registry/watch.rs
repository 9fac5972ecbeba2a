//! Watches: the state so far if asked for, then every change, once and in order.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use mica_store::{Change, Event, Key, KeyRange, ReadError, Revision, Signal, Watch};
use tokio::time::Instant;

use super::form::is_stale;
use super::{Listing, Registry, Selection};
use crate::authz::{Grant, Permit};
use crate::custom::Definition;
use crate::custom::everywhere::Everywhere;
use crate::error::ApiError;
use crate::options::{ListOptions, parse_version};
use crate::plane::{Plane, Since, Versions};
use crate::quiet::Alarm;
use crate::scheme::Served;
use crate::stored::{self, Content, Stored};

/// How often a quiet watch that asked for bookmarks gets one, unless the server was made with another interval.
pub const BOOKMARK_INTERVAL: Duration = Duration::from_secs(60);

/// Without a timeout a watch ends after this long, and up to as long again: so that not all end at once.
const WATCH_TIMEOUT: Duration = Duration::from_secs(1800);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventType {
    Added,
    Modified,
    Deleted,
}

impl EventType {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// What a watch tells.
pub enum WatchItem {
    Event {
        event_type: EventType,
        key: Key,
        stored: Stored,
        /// The change itself, where this is how every unfiltered watcher of the resource sees it: its encoding can be shared.
        shared: Option<Arc<Event>>,
    },
    /// An event as another watcher has encoded it, in the form that this one asked to share.
    Encoded(Bytes),
    /// Everything up to this revision has been told. `initial_end` marks the end of the state so far.
    Bookmark { revision: Revision, initial_end: bool },
    /// The last thing: the watch cannot go on.
    Error(ApiError),
}

/// An open watch.
pub struct WatchStart {
    registry: Registry,
    served: Arc<Served>,
    /// The plane whose base layer is laid under; none for watches over all planes.
    plane: Option<Arc<Plane>>,
    /// What defines the resource, if it is a custom one, and what happens to that.
    definition: Option<(Definition, Watch)>,
    /// What shows the objects of a custom resource over all planes.
    everywhere: Option<Arc<Everywhere>>,
    range: KeyRange,
    selection: Selection,
    phase: Phase,
    /// A change whose objects are being brought into the version of this watch. Later ones wait.
    converting: Option<Converting>,
    /// The form of the encodings that this watch can share.
    form: Option<u64>,
    bookmarks: bool,
    next_bookmark: Instant,
    /// When the watch ends whatever happens.
    deadline: Instant,
    /// Rings for the next bookmark or at the deadline; made when the watch goes live.
    alarm: Option<Alarm>,
    /// For a version of the server that the plane came from: what of the changes that came with it is seen already, and
    /// this store's revision that they end with.
    came: Option<(Revision, Revision)>,
    /// The newest revision told, so that bookmarks are only sent when they say something new.
    told: Revision,
}

type Converting = Pin<Box<dyn Future<Output = Result<Turned, ApiError>> + Send>>;

/// A change, and the object before and after it as clients see it.
struct Turned {
    event: Arc<Event>,
    before: Option<Stored>,
    after: Option<Stored>,
}

enum Phase {
    /// Telling the state so far.
    Initial(Box<Listing>),
    /// The state is told; its end is not.
    InitialEnd(Revision),
    /// About to follow changes after a revision.
    Open(Revision),
    Live(Watch),
    Ended,
}

impl Registry {
    /// Opens a watch on a collection.
    pub async fn watch(&self, grant: &Grant, options: &ListOptions) -> Result<WatchStart, ApiError> {
        super::check_state(grant)?;
        let target = &grant.target;
        let selection = Selection::parse(&target.served, &options.label_selector, &options.field_selector)?;
        let selection = selection.within(target.within.as_ref());
        let extent = selection.extent(&target.served, target.namespace.as_deref());
        let range = extent.range(target.plane.keys(), &target.served);
        let mut came = None;
        let phase = match self.first_phase(options).await? {
            Begin::State => Phase::Initial(Box::new(self.list(grant, &newest(options)).await?)),
            Begin::After(revision) => match self.since(&target.plane, revision).await? {
                Since::Here(revision) => Phase::Open(revision),
                Since::There { start, seen, until } => {
                    came = Some((seen, until));
                    Phase::Open(start)
                }
                Since::Unknown(until) => {
                    return Err(ApiError::gone(format!(
                        "too old resource version: {revision} ({until})"
                    )));
                }
            },
        };
        let mut watch = self
            .start(
                &target.served,
                Some(target.plane.clone()),
                range,
                selection,
                phase,
                options,
            )
            .await?;
        watch.came = came;
        self.check_current(&target.plane).await?;
        if let Some(definition) = &target.definition {
            let changes = self.definition_changes(definition).await?;
            watch.definition = Some((definition.clone(), changes));
        }
        Ok(watch)
    }

    /// Refuses a plane that changed before the watch was open: whoever ends its watches may have been here already.
    async fn check_current(&self, plane: &Plane) -> Result<(), ApiError> {
        if plane.is_root() || self.side.is_known(plane) {
            return Ok(());
        }
        match self.store.get(&plane.state_key()).await? {
            Some(record) if record.revision == plane.state_revision => Ok(()),
            _ => Err(ApiError::stale_plane()),
        }
    }

    /// Where a watch from a version begins, which may be one of the server that the plane came from.
    async fn since(&self, plane: &Plane, version: Revision) -> Result<Since, ApiError> {
        let since = plane.since(version);
        // Where revisions could not be kept, the old server's may lie in the future here: nothing is known of those.
        if let (Since::Here(_), Some(arrival)) = (since, plane.arrival())
            && arrival.versions == Versions::New
        {
            let newest = self.store.status().await?.revision;
            if version > newest {
                return Ok(Since::Unknown(newest));
            }
        }
        Ok(since)
    }

    /// Opens a watch over every plane but root. The permit says that the asker may; `everywhere` shows custom resources.
    pub async fn watch_all_planes(
        &self,
        permit: &Permit,
        served: &Arc<Served>,
        everywhere: Option<&Arc<Everywhere>>,
        namespace: Option<&str>,
        options: &ListOptions,
    ) -> Result<WatchStart, ApiError> {
        let selection = Selection::over_all_planes(served, everywhere, namespace, options)?;
        let range = KeyRange::AllPlanes(served.storage.clone());
        let phase = match self.first_phase(options).await? {
            Begin::State => {
                let listing = self
                    .list_all_planes(permit, served, everywhere, namespace, &newest(options))
                    .await?;
                Phase::Initial(Box::new(listing))
            }
            Begin::After(revision) => Phase::Open(revision),
        };
        let mut watch = self.start(served, None, range, selection, phase, options).await?;
        watch.everywhere = everywhere.cloned();
        // Only the platform can end what is over all planes: what a tenant defines anew is shown anew, from then on.
        if let Some(definition) = everywhere.and_then(|everywhere| everywhere.platform()) {
            let changes = self.definition_changes(definition).await?;
            watch.definition = Some((definition.clone(), changes));
        }
        Ok(watch)
    }

    /// What happens to a definition from the state on that it was read in.
    async fn definition_changes(&self, definition: &Definition) -> Result<Watch, ApiError> {
        let range = KeyRange::One(definition.key().clone());
        // Most definitions are older than what the store remembers: then what is there now has to be the same.
        let now = self.store.status().await?.revision;
        let changes = self.store.watch(range, now).await?;
        let record = self.store.get(definition.key()).await?;
        match record {
            Some(record) if definition.is(&record) => Ok(changes),
            _ => Err(ApiError::stale_plane()),
        }
    }

    async fn first_phase(&self, options: &ListOptions) -> Result<Begin, ApiError> {
        let version = parse_version(&options.resource_version).map_err(|error| error.for_get())?;
        if options.send_initial_events == Some(true) {
            if let Some(revision) = version {
                self.check_reached(revision).await?;
            }
            return Ok(Begin::State);
        }
        Ok(Begin::After(match version {
            Some(revision) => revision,
            None => self.store.status().await?.revision,
        }))
    }

    async fn start(
        &self,
        served: &Arc<Served>,
        plane: Option<Arc<Plane>>,
        range: KeyRange,
        selection: Selection,
        phase: Phase,
        options: &ListOptions,
    ) -> Result<WatchStart, ApiError> {
        let mut watch = WatchStart {
            registry: self.clone(),
            served: served.clone(),
            plane,
            definition: None,
            everywhere: None,
            range,
            selection,
            phase,
            converting: None,
            form: None,
            bookmarks: options.allow_bookmarks,
            next_bookmark: Instant::now() + self.bookmark_interval,
            deadline: Instant::now() + timeout(options),
            alarm: None,
            came: None,
            told: Revision(0),
        };
        // A watch that follows changes is registered before the response begins, so that a client that has seen the
        // response's head and then writes sees that write.
        if let Phase::Open(after) = watch.phase {
            watch.open(after).await?;
        }
        Ok(watch)
    }
}

/// How long a watch lasts at most.
fn timeout(options: &ListOptions) -> Duration {
    match options.timeout_seconds {
        Some(seconds) if seconds > 0 => Duration::from_secs(seconds),
        _ => WATCH_TIMEOUT.mul_f64(1.0 + rand::random::<f64>()),
    }
}

/// What a watch tells first.
enum Begin {
    State,
    After(Revision),
}

/// The list whose items are a watch's initial events.
fn newest(options: &ListOptions) -> ListOptions {
    ListOptions {
        resource_version: String::new(),
        continue_token: String::new(),
        limit: 0,
        ..options.clone()
    }
}

impl WatchStart {
    /// Lets this watch send what other watchers of the same things have encoded, where that is of this form.
    #[must_use]
    pub fn sharing(mut self, form: u64) -> Self {
        self.form = self.selection.is_everything().then_some(form);
        self
    }

    /// Whether there is nothing left to do but to follow changes, with [`WatchStart::poll_live`].
    pub fn is_live(&self) -> bool {
        matches!(self.phase, Phase::Live(_))
    }

    /// The next object of the state so far; `None` when all is told, or time is up. Never waits for a change.
    pub async fn next_initial(&mut self) -> Option<WatchItem> {
        while let Phase::Initial(_) = self.phase {
            match tokio::time::timeout_at(self.deadline, self.step()).await {
                Ok(Ok(Some(item))) => return Some(item),
                Ok(Ok(None)) => {}
                Ok(Err(error)) => return Some(self.fail(error)),
                Err(_elapsed) => return None,
            }
        }
        None
    }

    /// The next thing to tell; `None` when the watch is over.
    pub async fn next(&mut self) -> Option<WatchItem> {
        while !self.is_live() {
            match tokio::time::timeout_at(self.deadline, self.step()).await {
                Ok(Ok(Some(item))) => return Some(item),
                Ok(Ok(None)) if matches!(self.phase, Phase::Ended) => return None,
                Ok(Ok(None)) => {}
                Ok(Err(error)) => return Some(self.fail(error)),
                Err(_elapsed) => return None,
            }
        }
        std::future::poll_fn(|cx| self.poll_live(cx)).await
    }

    fn fail(&mut self, error: ApiError) -> WatchItem {
        self.phase = Phase::Ended;
        WatchItem::Error(error)
    }

    /// The next thing to tell of a watch that is live; `None` when it is over.
    pub fn poll_live(&mut self, cx: &mut Context<'_>) -> Poll<Option<WatchItem>> {
        loop {
            if self.poll_definition(cx).is_ready() {
                self.phase = Phase::Ended;
            }
            // First: a stream of events that never pauses must not outlive the deadline.
            if self.poll_alarm(cx).is_ready() {
                if Instant::now() >= self.deadline {
                    self.phase = Phase::Ended;
                } else if let Some(item) = self.bookmark() {
                    return Poll::Ready(Some(item));
                }
                continue;
            }
            let Phase::Live(watch) = &mut self.phase else {
                return Poll::Ready(None);
            };
            let told = match &mut self.converting {
                Some(converting) => {
                    let turned = ready!(converting.as_mut().poll(cx));
                    self.converting = None;
                    turned.and_then(|turned| self.tell(turned))
                }
                None => {
                    let signal = ready!(watch.poll_next(cx));
                    self.signal(signal)
                }
            };
            match told {
                Ok(Some(item)) => return Poll::Ready(Some(item)),
                Ok(None) => {}
                Err(error) => return Poll::Ready(Some(self.fail(error))),
            }
        }
    }

    /// Ready when the resource is not any more what it was: clients have to look at it anew.
    fn poll_definition(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some((_, changes)) = &mut self.definition else {
            return Poll::Pending;
        };
        loop {
            match ready!(changes.poll_next(cx)) {
                Ok(Signal::Event(event)) if !crate::custom::serves_otherwise(&event) => {}
                _ => return Poll::Ready(()),
            }
        }
    }

    fn poll_alarm(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let due = if self.bookmarks {
            self.deadline.min(self.next_bookmark)
        } else {
            self.deadline
        };
        let alarm = self.alarm.get_or_insert_with(|| Alarm::at(due));
        if alarm.when() != due {
            alarm.set(due);
        }
        Pin::new(alarm).poll(cx)
    }

    /// The next thing to tell if it is there already, so that what is waiting can be sent together.
    pub fn try_next(&mut self) -> Option<WatchItem> {
        loop {
            if self.converting.is_some() {
                return None;
            }
            let Phase::Live(watch) = &mut self.phase else {
                return None;
            };
            let signal = watch.try_next()?;
            match self.signal(signal) {
                Ok(Some(item)) => return Some(item),
                Ok(None) if matches!(self.phase, Phase::Ended) => return None,
                Ok(None) => {}
                Err(error) => return Some(self.fail(error)),
            }
        }
    }

    /// One step towards following changes. `None` if it told nothing.
    async fn step(&mut self) -> Result<Option<WatchItem>, ApiError> {
        match &mut self.phase {
            Phase::Initial(listing) => match listing.next().await? {
                Some((key, stored)) => {
                    return Ok(Some(WatchItem::Event {
                        event_type: EventType::Added,
                        key,
                        stored,
                        shared: None,
                    }));
                }
                None => self.phase = Phase::InitialEnd(listing.revision),
            },
            Phase::InitialEnd(revision) => {
                let revision = *revision;
                self.open(revision).await?;
                if self.bookmarks {
                    self.told = revision;
                    return Ok(Some(WatchItem::Bookmark {
                        revision,
                        initial_end: true,
                    }));
                }
            }
            Phase::Open(after) => {
                let after = *after;
                self.open(after).await?;
            }
            Phase::Live(_) | Phase::Ended => {}
        }
        Ok(None)
    }

    async fn open(&mut self, after: Revision) -> Result<(), ApiError> {
        match self.registry.store.watch(self.range.clone(), after).await {
            Ok(watch) => self.phase = Phase::Live(watch),
            Err(ReadError::Expired { compacted }) => {
                // The response has begun by the time clients read this: upstream tells it as the watch's last event.
                self.phase = Phase::Ended;
                return Err(ApiError::gone(format!(
                    "too old resource version: {after} ({compacted})"
                )));
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    fn signal(&mut self, signal: Result<Signal, mica_store::WatchError>) -> Result<Option<WatchItem>, ApiError> {
        match signal {
            Ok(Signal::Event(event)) => self.event(event),
            // One of the planes that this watch is over is gone. Its objects went before, each with its event.
            Ok(Signal::Dropped(..)) => Ok(None),
            // The plane is elsewhere now. Who resumes there from here has missed nothing.
            Err(mica_store::WatchError::Ended(revision)) => {
                self.phase = Phase::Ended;
                Ok((self.bookmarks && revision > self.told).then_some(WatchItem::Bookmark {
                    revision,
                    initial_end: false,
                }))
            }
            // The plane is gone, the server is stopping, or this reader was too slow. In each case the stream just ends:
            // clients resume from the last version they saw and learn the rest from the answer.
            Err(_) => {
                self.phase = Phase::Ended;
                Ok(None)
            }
        }
    }

    fn event(&mut self, event: Arc<Event>) -> Result<Option<WatchItem>, ApiError> {
        if let Some((seen, until)) = self.came
            && event.revision <= until
            && shown(&event) <= seen
        {
            return Ok(None);
        }
        if let Some(encoded) = self.form.and_then(|form| event.memo(form)) {
            self.told = event.revision;
            return Ok(Some(WatchItem::Encoded(encoded)));
        }
        let before = match &event.previous {
            Some(record) => self.read(&event.key, record)?,
            None => {
                let plane = self.plane.as_ref();
                plane.and_then(|plane| plane.base.get(&self.served.storage, event.key.rest(), &plane.birth))
            }
        };
        let after = match &event.change {
            Change::Put(value) => {
                let record = mica_store::Record {
                    value: value.clone(),
                    revision: event.revision,
                };
                self.read(&event.key, &record)?
            }
            Change::Delete => None,
        };
        if let Some(everywhere) = self.everywhere.clone() {
            let registry = self.registry.clone();
            self.converting = Some(Box::pin(async move {
                let shown = everywhere.show_change(&registry, &event.key, before, after).await?;
                let (before, after) = shown;
                Ok(Turned { event, before, after })
            }));
            return Ok(None);
        }
        let stale = |stored: &Option<Stored>| stored.as_ref().is_some_and(|stored| is_stale(&self.served, stored));
        if stale(&before) || stale(&after) {
            self.converting = Some(self.turn(event, before, after));
            return Ok(None);
        }
        self.tell(Turned { event, before, after })
    }

    /// Brings the objects of a change into the version of this watch.
    fn turn(&self, event: Arc<Event>, before: Option<Stored>, after: Option<Stored>) -> Converting {
        let (registry, served, plane) = (self.registry.clone(), self.served.clone(), self.plane.clone());
        let definition = self.definition.as_ref().map(|(definition, _)| definition.clone());
        // What was there before is looked at only by filters, or if nothing is there now.
        let only_after = self.selection.is_everything() && after.is_some();
        Box::pin(async move {
            let Some(plane) = plane else {
                return Err(ApiError::internal("built-in objects need no conversion"));
            };
            let present =
                |stored: Stored| registry.present_event(&plane, &served, definition.as_ref(), &event.key, stored);
            let (mut before, mut after) = (before, after);
            if let Some(stored) = after.take() {
                after = Some(present(stored).await?);
            }
            if !only_after && let Some(stored) = before.take() {
                before = Some(present(stored).await?);
            }
            Ok(Turned { event, before, after })
        })
    }

    /// How this watch sees a change.
    fn tell(&mut self, turned: Turned) -> Result<Option<WatchItem>, ApiError> {
        let Turned { event, before, after } = turned;
        let Some((event_type, stored)) = transition(
            &self.selection,
            &event.key,
            before.as_ref(),
            after.as_ref(),
            match self.plane {
                Some(_) => shown(&event),
                None => event.revision,
            },
        )?
        else {
            return Ok(None);
        };
        self.told = event.revision;
        let key = event.key.clone();
        // Only a filter can make watchers disagree about the type of an event.
        let unfiltered = match (&before, &after) {
            (None, Some(_)) => EventType::Added,
            (Some(_), Some(_)) => EventType::Modified,
            (_, None) => EventType::Deleted,
        };
        let shared = (event_type == unfiltered).then_some(event);
        Ok(Some(WatchItem::Event {
            event_type,
            key,
            stored,
            shared,
        }))
    }

    /// The object that a record stands for: over all planes only what they hold themselves.
    fn read(&self, key: &Key, record: &mica_store::Record) -> Result<Option<Stored>, ApiError> {
        let stored = match &self.plane {
            Some(plane) => plane.read(key, record)?.object(),
            None => Content::read(record)?.object().map(Stored::in_store_order),
        };
        Ok(stored)
    }

    fn bookmark(&mut self) -> Option<WatchItem> {
        self.next_bookmark = Instant::now() + self.registry.bookmark_interval;
        let Phase::Live(watch) = &mut self.phase else {
            return None;
        };
        let revision = watch.caught_up()?;
        (revision > self.told).then(|| {
            self.told = revision;
            WatchItem::Bookmark {
                revision,
                initial_end: false,
            }
        })
    }
}

/// The revision that clients of its plane see a change with: the store's, or for what came with the plane its old one.
fn shown(event: &Event) -> Revision {
    event
        .current()
        .map_or(event.revision, |record| stored::shown_revision(&record))
}

/// How a change looks through a filter: an object that starts to match is added, one that stops is deleted, with its
/// old content under the new revision.
fn transition(
    selection: &Selection,
    key: &Key,
    before: Option<&Stored>,
    after: Option<&Stored>,
    revision: Revision,
) -> Result<Option<(EventType, Stored)>, ApiError> {
    let seen = |stored: Option<&Stored>| -> Result<bool, ApiError> {
        stored.map_or(Ok(false), |stored| selection.matches(key, stored))
    };
    Ok(match (seen(before)?, seen(after)?) {
        (false, true) => after.map(|stored| (EventType::Added, stored.clone())),
        (true, true) => after.map(|stored| (EventType::Modified, stored.clone())),
        (true, false) => before.map(|stored| (EventType::Deleted, stored.clone().at(revision))),
        (false, false) => None,
    })
}

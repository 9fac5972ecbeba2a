//! Which live watchers want a signal.
//!
//! Watchers sit in buckets by what they watch, and the buckets of one plane sit together so that dropping the plane finds
//! them. A signal looks up the few buckets that could want it; how many others are open does not matter.
//! Buckets are found by a hash of the watched text, without storing the text again; a watcher in a bucket that merely
//! shares the hash is passed over by its own range.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Waker;

use futures::task::AtomicWaker;
use mica_api::PlaneId;
use parking_lot::Mutex;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::key::{Key, KeyRange};
use crate::store::{Event, Revision, Signal};

use super::{Limits, revision_of, weight_of};

/// Why the hub ended a watch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    Lagged,
    Dropped,
    Closed,
    /// Somebody ended it, at this position.
    Asked(Revision),
}

/// What the hub and one reader share.
pub(super) struct Watcher {
    pub(super) range: KeyRange,
    /// Place in its bucket while it is live. Changed only with the index locked.
    slot: AtomicUsize,
    reader: AtomicWaker,
    pub(super) queue: Mutex<Queue>,
}

/// Signals that wait for a live reader.
pub(super) struct Queue {
    pub(super) signals: Signals,
    bytes: usize,
    /// The reader has already had what there is up to here, or does not want it.
    start: Revision,
    /// Every signal of the range up to and including this revision has been put here (or was read before).
    pub(super) complete: Revision,
    pub(super) state: QueueState,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum QueueState {
    /// Not in the index: reads from the history or the ring.
    Detached,
    Live,
    /// Taken off the live path because the queue was full; what follows `complete` is in the ring.
    Spilled,
    Ended(End),
}

const NO_SLOT: usize = usize::MAX;

impl Watcher {
    pub(super) fn new(range: KeyRange) -> Self {
        Self {
            range,
            slot: AtomicUsize::new(NO_SLOT),
            reader: AtomicWaker::new(),
            queue: Mutex::new(Queue {
                signals: Signals::default(),
                bytes: 0,
                start: Revision(0),
                complete: Revision(0),
                state: QueueState::Detached,
            }),
        }
    }

    pub(super) fn wake(&self) {
        self.reader.wake();
    }

    /// Wakes this waker when the hub has put something into the queue or ended it. Look at the queue after, not before.
    pub(super) fn wake_later(&self, waker: &Waker) {
        self.reader.register(waker);
    }

    /// Queues a signal; says whether to wake the reader, or that it has to leave the live path.
    fn offer(&self, signal: &Signal, limits: &Limits) -> Offer {
        let revision = revision_of(signal);
        let mut queue = self.queue.lock();
        if revision <= queue.start {
            return Offer::Taken;
        }
        let full = queue.signals.len() >= limits.buffer || queue.bytes >= limits.buffer_bytes;
        // Never between two signals of one revision: the ring could not be resumed from the middle of it.
        if full && revision > queue.complete {
            queue.state = QueueState::Spilled;
            return Offer::Full;
        }
        let was_empty = queue.signals.is_empty();
        queue.bytes += weight_of(signal);
        queue.complete = revision;
        queue.signals.push_back(signal.clone());
        if was_empty { Offer::Wake } else { Offer::Taken }
    }

    fn end(&self, end: End) {
        self.slot.store(NO_SLOT, Ordering::Relaxed);
        self.queue.lock().state = QueueState::Ended(end);
    }
}

enum Offer {
    Taken,
    Wake,
    Full,
}

impl Queue {
    /// Gives everything that waits to the reader.
    pub(super) fn take_into(&mut self, pending: &mut Signals) {
        debug_assert!(pending.is_empty(), "a reader takes the next lot when it has none left");
        *pending = std::mem::take(&mut self.signals);
        self.bytes = 0;
    }
}

/// Signals in order. Mostly one waits, which allocates nothing; nor does none.
#[derive(Default)]
pub(super) struct Signals {
    first: Option<Signal>,
    /// What follows `first`; also when that is gone.
    rest: VecDeque<Signal>,
}

impl Signals {
    pub(super) fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.rest.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.first.is_none() && self.rest.is_empty()
    }

    pub(super) fn push_back(&mut self, signal: Signal) {
        if self.is_empty() {
            self.first = Some(signal);
        } else {
            self.rest.push_back(signal);
        }
    }

    pub(super) fn pop_front(&mut self) -> Option<Signal> {
        self.first.take().or_else(|| self.rest.pop_front())
    }
}

#[derive(Default)]
pub(super) struct Index {
    all: Bucket,
    by_resource: Buckets,
    by_plane: HashMap<PlaneId, Buckets>,
    len: usize,
}

#[derive(Default)]
struct Bucket(Vec<Arc<Watcher>>);

type Buckets = HashMap<u64, Bucket, BuildHasherDefault<AlreadyHashed>>;

impl Index {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Puts a watcher on the live path: it gets every later signal with a revision greater than `after`.
    pub(super) fn insert(&mut self, watcher: &Arc<Watcher>, after: Revision) {
        {
            let mut queue = watcher.queue.lock();
            queue.state = QueueState::Live;
            queue.start = after;
            queue.complete = after;
        }
        let bucket = match place(&watcher.range) {
            Place::All => &mut self.all,
            Place::Resource(hash) => self.by_resource.entry(hash).or_default(),
            Place::Plane(plane, hash) => self.by_plane.entry(plane).or_default().entry(hash).or_default(),
        };
        bucket.push(watcher.clone());
        self.len += 1;
    }

    /// Takes a watcher off the live path, if it is on it.
    pub(super) fn remove(&mut self, watcher: &Watcher) {
        let slot = watcher.slot.swap(NO_SLOT, Ordering::Relaxed);
        if slot == NO_SLOT {
            return;
        }
        self.len -= 1;
        match place(&watcher.range) {
            Place::All => self.all.remove(slot),
            Place::Resource(hash) => change(&mut self.by_resource, hash, |bucket| bucket.remove(slot)),
            Place::Plane(plane, hash) => self.in_plane(plane, |buckets| change(buckets, hash, |b| b.remove(slot))),
        }
    }

    /// Queues a signal with everyone who wants it, and adds the wakers of those to `woken` who were waiting.
    pub(super) fn deliver(&mut self, signal: &Signal, limits: &Limits, woken: &mut Vec<Waker>) {
        match signal {
            Signal::Event(event) => self.deliver_event(event, signal, limits, woken),
            Signal::Dropped(plane, _) => {
                self.len -= self.all.deliver(signal, limits, woken, |_| true);
                for bucket in self.by_resource.values_mut() {
                    self.len -= bucket.deliver(signal, limits, woken, |_| true);
                }
                self.by_resource.retain(|_, bucket| !bucket.0.is_empty());
                let inner = self.by_plane.remove(plane).unwrap_or_default();
                for watcher in inner.into_values().flat_map(|bucket| bucket.0) {
                    watcher.end(End::Dropped);
                    self.len -= 1;
                    woken.extend(watcher.reader.take());
                }
            }
        }
    }

    fn deliver_event(&mut self, event: &Event, signal: &Signal, limits: &Limits, woken: &mut Vec<Waker>) {
        let wants = |watcher: &Watcher| watcher.range.contains(&event.key);
        let mut gone = self.all.deliver(signal, limits, woken, |_| true);
        let parts = Parts::of(&event.key);
        if !self.by_resource.is_empty() {
            change(&mut self.by_resource, hash(Kind::Resource, parts.resource), |bucket| {
                gone += bucket.deliver(signal, limits, woken, wants);
            });
        }
        self.in_plane(event.key.plane(), |buckets| {
            for hash in parts.hashes() {
                change(buckets, hash, |bucket| {
                    gone += bucket.deliver(signal, limits, woken, wants);
                });
            }
        });
        self.len -= gone;
    }

    /// Takes everyone inside a plane off the live path.
    pub(super) fn end_plane(&mut self, plane: PlaneId, end: End) -> Vec<Arc<Watcher>> {
        let inner = self.by_plane.remove(&plane).unwrap_or_default();
        let watchers: Vec<_> = inner.into_values().flat_map(|bucket| bucket.0).collect();
        watchers.iter().for_each(|watcher| watcher.end(end));
        self.len -= watchers.len();
        watchers
    }

    /// Takes everyone off the live path.
    pub(super) fn end_all(&mut self, end: End) -> Vec<Arc<Watcher>> {
        let whole = std::mem::take(self);
        let inner = whole.by_plane.into_values().flat_map(HashMap::into_values);
        let buckets = std::iter::once(whole.all)
            .chain(whole.by_resource.into_values())
            .chain(inner);
        let watchers: Vec<_> = buckets.flat_map(|bucket| bucket.0).collect();
        watchers.iter().for_each(|watcher| watcher.end(end));
        watchers
    }

    fn in_plane(&mut self, plane: PlaneId, act: impl FnOnce(&mut Buckets)) {
        if let Some(buckets) = self.by_plane.get_mut(&plane) {
            act(buckets);
            if buckets.is_empty() {
                self.by_plane.remove(&plane);
            }
        }
    }
}

/// Acts on a bucket that exists, and removes it when that leaves it empty.
fn change(buckets: &mut Buckets, hash: u64, act: impl FnOnce(&mut Bucket)) {
    if let Some(bucket) = buckets.get_mut(&hash) {
        act(bucket);
        if bucket.0.is_empty() {
            buckets.remove(&hash);
        }
    }
}

impl Bucket {
    fn push(&mut self, watcher: Arc<Watcher>) {
        watcher.slot.store(self.0.len(), Ordering::Relaxed);
        self.0.push(watcher);
    }

    fn remove(&mut self, slot: usize) {
        self.0.swap_remove(slot);
        if let Some(moved) = self.0.get(slot) {
            moved.slot.store(slot, Ordering::Relaxed);
        }
    }

    /// Returns how many left the live path because their queue is full.
    fn deliver(
        &mut self,
        signal: &Signal,
        limits: &Limits,
        woken: &mut Vec<Waker>,
        wants: impl Fn(&Watcher) -> bool,
    ) -> usize {
        let (mut slot, mut left) = (0, 0);
        while let Some(watcher) = self.0.get(slot) {
            let offer = if wants(watcher) {
                watcher.offer(signal, limits)
            } else {
                Offer::Taken
            };
            match offer {
                Offer::Taken => slot += 1,
                Offer::Wake => {
                    woken.extend(watcher.reader.take());
                    slot += 1;
                }
                Offer::Full => {
                    watcher.slot.store(NO_SLOT, Ordering::Relaxed);
                    self.remove(slot);
                    left += 1;
                }
            }
        }
        left
    }
}

/// Where in the index a range belongs.
enum Place {
    All,
    Resource(u64),
    Plane(PlaneId, u64),
}

fn place(range: &KeyRange) -> Place {
    match range {
        KeyRange::All => Place::All,
        KeyRange::AllPlanes(resource) => Place::Resource(hash(Kind::Resource, resource.as_key())),
        KeyRange::Plane(plane) => Place::Plane(*plane, hash(Kind::Plane, "")),
        KeyRange::Resource(plane, resource) => Place::Plane(*plane, hash(Kind::Resource, resource.as_key())),
        KeyRange::Namespace(plane, resource, namespace) => Place::Plane(
            *plane,
            hash(Kind::Namespace, &format!("{}/{namespace}", resource.as_key())),
        ),
        KeyRange::One(key) => Place::Plane(key.plane(), hash(Kind::One, Parts::of(key).inside_plane)),
    }
}

/// The texts of a key that ranges are found by.
struct Parts<'a> {
    /// `group/resource/rest`.
    inside_plane: &'a str,
    /// `group/resource`.
    resource: &'a str,
    /// `group/resource/namespace`.
    namespace: Option<&'a str>,
}

impl<'a> Parts<'a> {
    fn of(key: &'a Key) -> Self {
        let (_, inside_plane) = key.as_str().split_once('/').expect("a key has three slashes");
        let resource = &inside_plane[..key.resource().len()];
        let rest = &inside_plane[resource.len() + 1..];
        let namespace = rest.find('/').map(|end| &inside_plane[..resource.len() + 1 + end]);
        Self {
            inside_plane,
            resource,
            namespace,
        }
    }

    fn hashes(&self) -> impl Iterator<Item = u64> {
        let always = [
            hash(Kind::Plane, ""),
            hash(Kind::Resource, self.resource),
            hash(Kind::One, self.inside_plane),
        ];
        always
            .into_iter()
            .chain(self.namespace.map(|text| hash(Kind::Namespace, text)))
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Plane,
    Resource,
    Namespace,
    One,
}

fn hash(kind: Kind, text: &str) -> u64 {
    xxh3_64_with_seed(text.as_bytes(), kind as u64)
}

/// Takes a `u64` that is a hash already as its hash.
#[derive(Default)]
struct AlreadyHashed(u64);

impl Hasher for AlreadyHashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("only u64 keys are hashed");
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

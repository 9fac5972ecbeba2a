//! One watch of a kind over all planes of a server.
//!
//! It costs one list and one stream for each kind, however many planes there are: an engaged plane has no connection, no
//! task and no buffer here, only its objects. Planes come and go under the running stream. One that engages is given what
//! the stream has told of it so far; where that is not whole, the stream lists once more for all that wait.
//!
//! Not every server shows all planes, and not to everybody. A stream that is refused ends, and the feed reads plane by plane.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use compact_str::CompactString;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use kube::Api;
use kube::runtime::watcher;
use parking_lot::{Mutex, RwLock};
use tokio::time::Instant;

use super::born::{self, Born};
use super::feed::Core;
use super::follow::{End, Refusal, Sink, Steering, follow};
use super::item::{Item, Object};
use super::roster::Planes;
use super::unclaimed::{Claim, Place, Unclaimed};
use crate::cluster::Cluster;
use crate::request::{ClusterName, Request};
use crate::store::ListId;

const EVERY_PLANE: &str = "/clusters/*/control-plane";
/// A path that the all-planes address has wherever there is one.
const GROUPS: &str = "/apis";
/// So many refusals in a row are meant: permissions that have just been given take a moment to be in force.
const REFUSALS: u32 = 4;
/// Before a server is asked again that did not say whether it has the address.
const UNSURE: Duration = Duration::from_secs(1);
/// Objects in one answer, where a plane is listed by itself.
const PAGE: u32 = 500;

/// One server's stream, while it runs.
pub(super) struct Wildcard<K: Object> {
    core: Arc<Core<K>>,
    planes: Arc<Planes>,
    steering: Steering,
    born: Born,
    synced: AtomicBool,
    /// The server has the all-planes address: what it does not find there is a kind.
    has_address: AtomicBool,
    refused: AtomicBool,
    /// Engaged planes of which the store does not have everything: those of `filling` and `waiting`. With a lock of its own,
    /// because who is told of a change asks.
    partial: RwLock<HashSet<CompactString>>,
    /// Held while an event is noted or a plane comes or goes, so that each sees the other whole.
    state: Mutex<State<K>>,
}

struct State<K> {
    list: ListId,
    phase: Phase,
    unclaimed: Unclaimed<K>,
    /// Engaged planes that the list under way makes whole.
    filling: HashSet<CompactString>,
    /// Engaged planes that need another list.
    waiting: HashSet<CompactString>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Listing,
    Watching,
    Closed,
}

impl<K: Object> Wildcard<K> {
    pub(super) fn new(core: Arc<Core<K>>, planes: Arc<Planes>) -> Arc<Self> {
        Arc::new(Self {
            core,
            planes,
            steering: Steering::default(),
            born: Born::default(),
            synced: AtomicBool::new(false),
            has_address: AtomicBool::new(false),
            refused: AtomicBool::new(false),
            partial: RwLock::default(),
            state: Mutex::new(State {
                list: ListId::NONE,
                phase: Phase::Listing,
                unclaimed: Unclaimed::default(),
                filling: HashSet::new(),
                waiting: HashSet::new(),
            }),
        })
    }

    pub(super) async fn run(self: Arc<Self>) {
        // Streamed, so that the first list is never whole in memory.
        let config = self.core.config(watcher::Config::default().streaming_lists());
        let server = self.planes.server();
        let client = server.at(EVERY_PLANE).counted_client(self.core.metrics());
        let api = Api::<Item<K>>::all_with(client.clone(), self.core.kind());
        let subject = Request::new(ClusterName::new(server.url()), None, &K::plural(self.core.kind()));
        let following = async {
            while let End::Refused(refusal) =
                follow(api.clone(), config.clone(), &subject, &*self, &self.steering).await
            {
                if refusal == Refusal::Absent && self.finds_address(&client).await {
                    continue;
                }
                tracing::info!(
                    server = server.url(), kind = %subject.name, ?refusal,
                    "the server does not show all planes at once: they are read one by one"
                );
                return self.give_up();
            }
        };
        tokio::select! {
            () = following => {}
            () = self.look_around() => {}
        }
    }

    /// Whether the server shows all planes at all.
    async fn finds_address(&self, client: &kube::Client) -> bool {
        let asking = async {
            loop {
                let request = http::Request::get(GROUPS)
                    .body(Vec::new())
                    .expect("a path is a request");
                match client.request_text(request).await {
                    Err(kube::Error::Api(status)) if status.code == 404 => return false,
                    // Who may not ask was still let through to the kind.
                    Ok(_) | Err(kube::Error::Api(_)) => return true,
                    Err(error) => {
                        tracing::debug!(%error, "whether the server shows all planes is not known yet");
                        tokio::time::sleep(UNSURE).await;
                    }
                }
            }
        };
        let found = self.steering.stop.run_until_cancelled(asking).await.unwrap_or(true);
        self.has_address.store(found, Ordering::SeqCst);
        found
    }

    /// Tells nothing any more; what was told stays.
    fn give_up(&self) {
        let mut state = self.state.lock();
        state.phase = Phase::Closed;
        state.unclaimed.clear();
        self.refused.store(true, Ordering::SeqCst);
    }

    /// Whether the server does not show all planes.
    pub(super) fn is_refused(&self) -> bool {
        self.refused.load(Ordering::SeqCst)
    }

    pub(super) fn planes(&self) -> &Planes {
        &self.planes
    }

    /// Finds what a plane was born with, in the background.
    pub(super) fn look_in(&self, cluster: &Cluster) {
        if self.core.wants_born() && born::can_be_of(&K::group(self.core.kind())) {
            self.born.add(cluster);
        }
    }

    /// Whether an object that is not in the store may be there all the same.
    pub(super) fn may_be_born(&self, request: &Request) -> bool {
        self.born.may_be(request.namespace.as_ref(), &request.name)
    }

    async fn look_around(&self) {
        let mut looks = FuturesUnordered::new();
        loop {
            let mut wake = None;
            while looks.len() < born::LOOKS {
                match self.born.next() {
                    born::Next::Look(look) => looks.push(self.look(look)),
                    born::Next::At(at) => {
                        wake = Some(at);
                        break;
                    }
                    born::Next::Nothing => break,
                }
            }
            tokio::select! {
                Some(()) = looks.next() => {}
                () = self.born.changed.notified() => {}
                () = tokio::time::sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => {}
            }
        }
    }

    async fn look(&self, look: born::Look) {
        let cluster = look.cluster.clone();
        let api = Api::<Item<K>>::all_with(cluster.client(), self.core.kind());
        let mut page = self.core.list_params().limit(PAGE);
        loop {
            let list = match cluster.lifetime().run_until_cancelled(api.list(&page)).await {
                None => return,
                Some(Ok(list)) => list,
                // There is no such kind here, or the plane has gone.
                Some(Err(kube::Error::Api(status))) if status.code == 404 => return,
                Some(Err(error)) => {
                    tracing::debug!(cluster = %cluster.name(), %error, "what the plane was born with is not known yet");
                    return self.born.failed(look);
                }
            };
            let next = list.metadata.continue_.filter(|token| !token.is_empty());
            for item in list.items {
                let request = item.request(cluster.name().clone());
                if self.core.store().get(&request).is_none()
                    && let Some(object) = self.core.read(item)
                {
                    self.born.found((request.namespace, request.name));
                    self.core.tell_born(&cluster, &Arc::new(object));
                }
            }
            match next {
                Some(token) => page = page.continue_token(&token),
                None => return,
            }
        }
    }

    /// Whether everything of a plane is in the store.
    pub(super) fn synced(&self, cluster: &Cluster) -> bool {
        self.synced.load(Ordering::SeqCst) && !self.partial.read().contains(plane_id(cluster))
    }

    /// A plane is engaged, and in the roster already.
    pub(super) fn claim(&self, cluster: &Cluster) {
        self.claim_in(&mut self.state.lock(), &plane_id(cluster).into(), cluster);
    }

    /// A plane is not engaged any more, and out of the roster already.
    pub(super) fn disclaim(&self, cluster: &Cluster) {
        let mut state = self.state.lock();
        let id = CompactString::from(plane_id(cluster));
        state.filling.remove(&id);
        state.waiting.remove(&id);
        self.partial.write().remove(&id);
        if state.phase != Phase::Closed {
            state.unclaimed.lose(&id);
        }
        self.core.store().purge(cluster.name());
    }

    pub(super) fn retry(&self) {
        self.steering.retry.notify_one();
    }

    /// Ends the stream; what it told stays.
    pub(super) fn halt(&self) {
        self.steering.stop.cancel();
    }

    /// Ends the stream and forgets its planes. When this returns nothing is written any more.
    pub(super) fn close(&self) {
        self.steering.stop.cancel();
        let mut state = self.state.lock();
        state.phase = Phase::Closed;
        state.unclaimed.clear();
        for cluster in self.planes.names() {
            self.core.store().purge(&cluster);
        }
    }

    fn claim_in(&self, state: &mut State<K>, id: &CompactString, cluster: &Cluster) {
        if state.phase == Phase::Closed {
            return;
        }
        let first = !self.synced.load(Ordering::SeqCst);
        match state.unclaimed.claim(id) {
            Claim::Whole(objects) => {
                for ((namespace, name), object) in objects {
                    let request = Request {
                        cluster: cluster.name().clone(),
                        namespace,
                        name,
                    };
                    self.core.note_shared(cluster, &request, object, state.list);
                }
                // What the list has not come to yet is missing.
                if state.phase == Phase::Listing && !first {
                    self.partial.write().insert(id.clone());
                    state.filling.insert(id.clone());
                }
            }
            Claim::Lost => {
                self.partial.write().insert(id.clone());
                state.waiting.insert(id.clone());
                if state.phase == Phase::Watching {
                    self.steering.relist.notify_one();
                }
            }
        }
    }

    /// What was being filled is whole.
    fn filled(&self, state: &mut State<K>) -> HashSet<CompactString> {
        let filled = std::mem::take(&mut state.filling);
        let mut partial = self.partial.write();
        partial.retain(|id| !filled.contains(id));
        filled
    }

    fn now_synced(&self, filled: &HashSet<CompactString>) {
        if !self.synced.swap(true, Ordering::SeqCst) {
            self.core.tell_all_synced();
            return;
        }
        for cluster in filled.iter().filter_map(|id| self.planes.get(id)) {
            self.core.tell_synced(&cluster);
        }
    }

    /// Finds whose an item is: an engaged cluster's, or nobody's yet.
    fn sort(&self, state: &mut State<K>, item: &mut Item<K>) -> Option<Whose> {
        if state.phase == Phase::Closed {
            return None;
        }
        let Some(id) = item.take_origin().map(|origin| origin.0) else {
            tracing::warn!(
                server = self.planes.server().url(),
                "an object of an all-planes answer does not say its plane"
            );
            return None;
        };
        let Some(cluster) = self.planes.get(&id) else {
            return Some(Whose::Nobodys(id));
        };
        // It is in the roster, and this stream is about to hear of it: what came before goes first.
        if state.unclaimed.has(&id) {
            self.claim_in(state, &id, &cluster);
        }
        Some(Whose::Of(cluster))
    }

    fn note(&self, mut item: Item<K>) {
        let mut state = self.state.lock();
        match self.sort(&mut state, &mut item) {
            Some(Whose::Of(cluster)) => self.core.note(&cluster, item, state.list),
            Some(Whose::Nobodys(id)) => {
                let place = place(&item);
                if let Some(object) = self.core.read(item) {
                    state.unclaimed.hold(&id, place, Arc::new(object));
                }
            }
            None => {}
        }
    }
}

enum Whose {
    Of(Cluster),
    Nobodys(CompactString),
}

impl<K: Object> Sink<K> for Wildcard<K> {
    fn listing(&self) {
        let mut state = self.state.lock();
        if state.phase == Phase::Closed {
            return;
        }
        state.phase = Phase::Listing;
        state.list = self.core.store().begin_list();
        // What is engaged now is told whole by this list, whatever was lost before.
        state.unclaimed.clear();
        let waiting = std::mem::take(&mut state.waiting);
        state.filling.extend(waiting);
    }

    fn listed(&self, item: Item<K>) {
        self.note(item);
    }

    fn listed_all(&self) {
        let filled = {
            let mut state = self.state.lock();
            if state.phase == Phase::Closed {
                return;
            }
            state.phase = Phase::Watching;
            let covered = self.planes.names();
            let gone = self.core.store().sweep_where(state.list, |name| covered.contains(name));
            for (request, change) in gone {
                if let Some(cluster) = self.core.roster().get(&request.cluster) {
                    self.core.tell(&cluster, &change);
                }
            }
            if !state.waiting.is_empty() {
                self.steering.relist.notify_one();
            }
            self.filled(&mut state)
        };
        self.now_synced(&filled);
    }

    fn applied(&self, item: Item<K>) {
        self.note(item);
    }

    fn deleted(&self, mut item: Item<K>) {
        let mut state = self.state.lock();
        match self.sort(&mut state, &mut item) {
            Some(Whose::Of(cluster)) => {
                let request = item.request(cluster.name().clone());
                self.core.forget(&cluster, &request);
            }
            Some(Whose::Nobodys(id)) => state.unclaimed.remove(&id, &place(&item)),
            None => {}
        }
    }

    fn goes_on(&self, refusal: Refusal, times: u32) -> bool {
        match refusal {
            Refusal::Forbidden => times < REFUSALS,
            Refusal::Absent => self.has_address.load(Ordering::SeqCst),
        }
    }

    /// No plane has the kind (yet): nothing is missing.
    fn not_served(&self) {
        let filled = self.filled(&mut self.state.lock());
        self.now_synced(&filled);
    }
}

fn plane_id(cluster: &Cluster) -> &str {
    cluster.wildcard().map_or("", |wildcard| wildcard.plane_id.as_str())
}

fn place<K: Object>(item: &Item<K>) -> Place {
    let request = item.request(ClusterName::local());
    (request.namespace, request.name)
}

//! One kind over all engaged clusters: its store, its streams, and those who are told of changes.
//!
//! A feed serves every controller that watches the kind in the same way. It runs while somebody listens. Where a server
//! shows all its planes at once it has one stream for that server; elsewhere one for each cluster that somebody wants.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::FutureExt as _;
use kube::api::{GetParams, ListParams};
use kube::runtime::watcher;
use parking_lot::{Mutex, RwLock};
use tokio_util::task::TaskTracker;

use super::item::{Item, Object};
use super::own::Own;
use super::roster::Roster;
use super::select::{Born, Select};
use super::wildcard::Wildcard;
use crate::cluster::Cluster;
use crate::metrics::Metrics;
use crate::request::{ClusterName, Request};
use crate::store::{Change, ListId, Store};

/// Before a stream that panicked begins anew.
const AFTER_PANIC: Duration = Duration::from_secs(1);

/// Who is told of changes. Called under locks of the stream: it must not come back to the feed but to ask.
pub(crate) trait Listener<K>: Send + Sync {
    /// Whether it wants to hear of a cluster.
    fn wants(&self, cluster: &Cluster) -> bool;
    fn changed(&self, cluster: &Cluster, change: &Change<K>);
    /// A cluster has an object that it was born with: it is not in the store.
    fn born(&self, cluster: &Cluster, object: &Arc<K>);
    /// Everything of a cluster is in the store now.
    fn synced(&self, cluster: &Cluster);
    /// The same, of many clusters at once.
    fn all_synced(&self);
}

type Listeners<K> = Arc<[Arc<dyn Listener<K>>]>;

/// What the streams of a feed share.
pub(super) struct Core<K: Object> {
    kind: K::DynamicType,
    select: Select<K>,
    store: Arc<Store<K>>,
    roster: Arc<Roster>,
    metrics: Metrics,
    listeners: RwLock<Listeners<K>>,
}

impl<K: Object> Core<K> {
    pub(super) fn kind(&self) -> &K::DynamicType {
        &self.kind
    }

    pub(super) fn store(&self) -> &Store<K> {
        &self.store
    }

    pub(super) fn roster(&self) -> &Roster {
        &self.roster
    }

    pub(super) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    pub(super) fn config(&self, mut config: watcher::Config) -> watcher::Config {
        config.label_selector.clone_from(&self.select.labels);
        config.field_selector.clone_from(&self.select.fields);
        config
    }

    pub(super) fn wants_born(&self) -> bool {
        self.select.born == Born::Include
    }

    pub(super) fn list_params(&self) -> ListParams {
        ListParams {
            label_selector: self.select.labels.clone(),
            field_selector: self.select.fields.clone(),
            ..ListParams::default()
        }
    }

    /// The object as it is kept. One that does not fit its type is reported and left out.
    pub(super) fn read(&self, item: Item<K>) -> Option<K> {
        let request = item.request(ClusterName::local());
        let read = item.read().and_then(|mut object| match &self.select.prune {
            None => Ok(object),
            Some(prune) => catch_unwind(AssertUnwindSafe(|| {
                prune(&mut object);
                object
            }))
            .map_err(|_| "the function that prunes it panicked".to_owned()),
        });
        match read {
            Ok(object) => Some(object),
            Err(error) => {
                let kind = K::kind(&self.kind);
                tracing::warn!(object = %request, %kind, error, "an object cannot be read, and is left out");
                None
            }
        }
    }

    /// An object is there.
    pub(super) fn note(&self, cluster: &Cluster, item: Item<K>, list: ListId) {
        let request = item.request(cluster.name().clone());
        match self.read(item) {
            Some(object) => self.note_shared(cluster, &request, Arc::new(object), list),
            None => self.store.keep(&request, list),
        }
    }

    pub(super) fn note_shared(&self, cluster: &Cluster, request: &Request, object: Arc<K>, list: ListId) {
        if let Some(change) = self.store.apply(request, object, list) {
            self.tell(cluster, &change);
        }
    }

    /// An object is gone.
    pub(super) fn forget(&self, cluster: &Cluster, request: &Request) {
        if let Some(change) = self.store.delete(request) {
            self.tell(cluster, &change);
        }
    }

    pub(super) fn tell(&self, cluster: &Cluster, change: &Change<K>) {
        for listener in &*self.listeners() {
            listener.changed(cluster, change);
        }
    }

    pub(super) fn tell_born(&self, cluster: &Cluster, object: &Arc<K>) {
        for listener in &*self.listeners() {
            listener.born(cluster, object);
        }
    }

    pub(super) fn tell_synced(&self, cluster: &Cluster) {
        for listener in &*self.listeners() {
            listener.synced(cluster);
        }
    }

    pub(super) fn tell_all_synced(&self) {
        for listener in &*self.listeners() {
            listener.all_synced();
        }
    }

    fn listeners(&self) -> Listeners<K> {
        self.listeners.read().clone()
    }
}

/// One kind, watched wherever somebody wants it.
pub(crate) struct Feed<K: Object> {
    core: Arc<Core<K>>,
    own: Mutex<HashMap<ClusterName, Arc<Own<K>>>>,
    servers: Mutex<HashMap<String, Arc<Wildcard<K>>>>,
    tasks: TaskTracker,
    me: Weak<Self>,
}

/// What a feed lives in.
pub(super) struct Around {
    pub(super) roster: Arc<Roster>,
    pub(super) tasks: TaskTracker,
    pub(super) metrics: Metrics,
}

impl<K: Object> Feed<K> {
    pub(super) fn new(kind: K::DynamicType, select: Select<K>, around: Around) -> Arc<Self> {
        let core = Core {
            kind,
            select,
            store: Arc::new(Store::default()),
            roster: around.roster,
            metrics: around.metrics,
            listeners: RwLock::new(Arc::new([])),
        };
        Arc::new_cyclic(|me| Self {
            core: Arc::new(core),
            own: Mutex::default(),
            servers: Mutex::default(),
            tasks: around.tasks,
            me: me.clone(),
        })
    }

    pub(crate) fn store(&self) -> &Arc<Store<K>> {
        &self.core.store
    }

    pub(crate) fn kind(&self) -> &K::DynamicType {
        &self.core.kind
    }

    /// The object of a request as it was last seen; what a plane was born with, as it is now.
    pub(crate) async fn look_up(&self, cluster: &Cluster, request: &Request) -> Result<Option<Arc<K>>, kube::Error> {
        if let Some(object) = self.core.store.get(request) {
            return Ok(Some(object));
        }
        let stream = self.wildcard_of(cluster);
        if !stream.is_some_and(|stream| stream.may_be_born(request)) {
            return Ok(None);
        }
        let path = K::url_path(&self.core.kind, request.namespace.as_deref());
        let path = kube::api::Request::new(path);
        let get = match K::metadata_api() {
            true => path.get_metadata(&request.name, &GetParams::default()),
            false => path.get(&request.name, &GetParams::default()),
        };
        let get = get.map_err(kube::Error::BuildRequest)?;
        match cluster.client().request::<Item<K>>(get).await {
            Ok(item) => Ok(self.core.read(item).map(Arc::new)),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// From now on the listener is told of changes. What is in the store already it looks up itself.
    pub(crate) fn subscribe(&self, listener: Arc<dyn Listener<K>>) {
        let mut listeners = self.core.listeners.write();
        *listeners = listeners.iter().cloned().chain([listener]).collect();
    }

    pub(crate) fn unsubscribe(&self, listener: &Arc<dyn Listener<K>>) {
        let mut listeners = self.core.listeners.write();
        *listeners = listeners
            .iter()
            .filter(|known| !Arc::ptr_eq(known, listener))
            .cloned()
            .collect();
    }

    fn wanted(&self, cluster: &Cluster) -> bool {
        self.core.listeners().iter().any(|listener| listener.wants(cluster))
    }

    fn wildcard_of(&self, cluster: &Cluster) -> Option<Arc<Wildcard<K>>> {
        let url = cluster.wildcard()?.server.url();
        self.servers.lock().get(&url).cloned()
    }

    fn watch_planes(&self, cluster: &Cluster, url: String) {
        let Some(planes) = self.core.roster.planes_of(cluster) else {
            return;
        };
        let stream = {
            let mut servers = self.servers.lock();
            servers
                .entry(url)
                .or_insert_with(|| {
                    let stream = Wildcard::new(self.core.clone(), planes);
                    let (running, feed) = (stream.clone(), self.me.clone());
                    self.tasks.spawn(async move {
                        supervised(|| running.clone().run()).await;
                        if let Some(feed) = feed.upgrade().filter(|_| running.is_refused()) {
                            feed.read_one_by_one(&running);
                        }
                    });
                    stream
                })
                .clone()
        };
        stream.claim(cluster);
    }

    /// A server refuses to show its planes together. It stays so until none of them is engaged: what is born with a plane is
    /// in the store from now on, and a stream of all planes would take it for deleted.
    fn read_one_by_one(&self, stream: &Wildcard<K>) {
        let planes = stream.planes();
        let mut wanted = planes.clusters();
        wanted.retain(|cluster| self.wanted(cluster));
        let mut own = self.own.lock();
        for cluster in wanted {
            // One that went meanwhile is out of the roster before its stream is looked for.
            if planes.has(&cluster) {
                self.watch_in(&mut own, &cluster);
            }
        }
    }

    fn is_read_alone(&self, cluster: &Cluster) -> bool {
        cluster.wildcard().is_none() || self.wildcard_of(cluster).is_some_and(|stream| stream.is_refused())
    }

    fn watch_own(&self, cluster: &Cluster) {
        self.watch_in(&mut self.own.lock(), cluster);
    }

    fn watch_in(&self, own: &mut HashMap<ClusterName, Arc<Own<K>>>, cluster: &Cluster) {
        let stream = match own.get(cluster.name()) {
            Some(stream) if stream.is_there() => return,
            Some(left) => left.follow_to(cluster),
            None => Own::new(self.core.clone(), cluster.clone()),
        };
        own.insert(cluster.name().clone(), stream.clone());
        self.tasks.spawn(supervised(move || stream.clone().run()));
    }

    fn end_own(&self, name: &ClusterName) {
        let ended = self.own.lock().remove(name);
        if let Some(stream) = ended {
            stream.close();
        }
    }
}

/// Runs a stream until it ends. A panic, which is a defect of ours, costs a pause and a list, and not everything that comes
/// after it.
async fn supervised<F: Future<Output = ()>>(run: impl Fn() -> F) {
    while AssertUnwindSafe(run()).catch_unwind().await.is_err() {
        tracing::error!("a stream panicked, and begins anew");
        tokio::time::sleep(AFTER_PANIC).await;
    }
}

/// What is done with feeds without knowing their kind.
pub(crate) trait AnyFeed: Send + Sync {
    /// A cluster is in the roster, or somebody wants it now, or nobody does any more. May be said any number of times.
    fn engage(&self, cluster: &Cluster);
    /// A cluster is out of the roster.
    fn disengage(&self, cluster: &Cluster);
    /// A cluster that did not answer may do so again.
    fn retry(&self, cluster: &Cluster);
    /// Whether everything of a cluster is in the store.
    fn synced(&self, cluster: &Cluster) -> bool;
    /// Somebody wants to be told what a cluster was born with, as far as the store does not have it.
    fn look_for_born(&self, cluster: &Cluster);
    /// Whether nobody listens.
    fn is_idle(&self) -> bool;
    /// Ends all streams; what they told stays.
    fn halt(&self);
    /// Ends all streams, and forgets what they told.
    fn close(&self);
}

impl<K: Object> AnyFeed for Feed<K> {
    fn engage(&self, cluster: &Cluster) {
        let wanted = self.wanted(cluster);
        match cluster.wildcard().filter(|_| !self.is_read_alone(cluster)) {
            Some(wildcard) if wanted => self.watch_planes(cluster, wildcard.server.url()),
            // Its objects stay as long as the stream shows them: leaving out one plane saves nothing.
            Some(_) => {}
            None if wanted => self.watch_own(cluster),
            None => self.end_own(cluster.name()),
        }
    }

    fn disengage(&self, cluster: &Cluster) {
        self.end_own(cluster.name());
        let Some(stream) = self.wildcard_of(cluster) else {
            return;
        };
        stream.disclaim(cluster);
        if self.core.roster.planes_of(cluster).is_none() {
            if let Some(wildcard) = cluster.wildcard() {
                self.servers.lock().remove(&wildcard.server.url());
            }
            stream.close();
        }
    }

    fn retry(&self, cluster: &Cluster) {
        let own = self.own.lock().get(cluster.name()).cloned();
        match own {
            Some(stream) => stream.retry(),
            None => {
                if let Some(stream) = self.wildcard_of(cluster) {
                    stream.retry();
                }
            }
        }
    }

    fn synced(&self, cluster: &Cluster) -> bool {
        if self.is_read_alone(cluster) {
            let own = self.own.lock().get(cluster.name()).cloned();
            return own.is_some_and(|stream| stream.synced());
        }
        self.wildcard_of(cluster).is_some_and(|stream| stream.synced(cluster))
    }

    fn look_for_born(&self, cluster: &Cluster) {
        // A stream of its own shows it anyway.
        if let Some(stream) = self.wildcard_of(cluster).filter(|stream| !stream.is_refused()) {
            stream.look_in(cluster);
        }
    }

    fn is_idle(&self) -> bool {
        self.core.listeners().is_empty()
    }

    fn halt(&self) {
        self.own.lock().values().for_each(|stream| stream.halt());
        self.servers.lock().values().for_each(|stream| stream.halt());
    }

    fn close(&self) {
        let own = std::mem::take(&mut *self.own.lock());
        let servers = std::mem::take(&mut *self.servers.lock());
        own.values().for_each(|stream| stream.close());
        servers.values().for_each(|stream| stream.close());
    }
}

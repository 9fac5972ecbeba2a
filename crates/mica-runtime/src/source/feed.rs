//! One kind over all engaged clusters: its store, its streams, and those who are told of changes.
//!
//! A feed serves every controller that watches the kind in the same way. It runs while somebody listens. Where a server
//! shows all its planes at once it has one stream for that server; elsewhere one for each cluster that somebody wants.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use kube::api::{GetParams, ListParams};
use kube::runtime::watcher;
use parking_lot::{Mutex, RwLock};
use tokio_util::task::TaskTracker;

use super::item::{Item, Object};
use super::own::Own;
use super::roster::Roster;
use super::wildcard::Wildcard;
use crate::cluster::Cluster;
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
type Prune<K> = Arc<dyn Fn(&mut K) + Send + Sync>;

/// Which objects of a kind are watched, and what of them is kept.
pub struct Select<K> {
    pub(crate) labels: Option<String>,
    pub(crate) fields: Option<String>,
    pub(crate) prune: Option<Prune<K>>,
    pub(crate) born: Born,
}

/// Whether objects that planes are born with are reconciled, where planes are read together.
///
/// A plane of a Mica server has system namespaces, roles and the like that it never wrote. A watch of one plane shows them,
/// the watch of all planes does not: there they cost a list of each plane when it engages, and a request when it is their
/// turn, and are left out of stores.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Born {
    #[default]
    Include,
    Skip,
}

impl<K> Clone for Select<K> {
    fn clone(&self) -> Self {
        Self {
            labels: self.labels.clone(),
            fields: self.fields.clone(),
            prune: self.prune.clone(),
            born: self.born,
        }
    }
}

impl<K> Default for Select<K> {
    fn default() -> Self {
        Self {
            labels: None,
            fields: None,
            prune: None,
            born: Born::Include,
        }
    }
}

impl<K> Select<K> {
    /// Everything, without managed fields.
    pub fn all() -> Self {
        Self::default()
    }

    /// Only objects that this label selector selects.
    #[must_use]
    pub fn labels(mut self, selector: impl Into<String>) -> Self {
        self.labels = Some(selector.into());
        self
    }

    /// Only objects that this field selector selects.
    #[must_use]
    pub fn fields(mut self, selector: impl Into<String>) -> Self {
        self.fields = Some(selector.into());
        self
    }

    /// Leaves out what planes are born with, where that saves requests.
    #[must_use]
    pub fn born(mut self, born: Born) -> Self {
        self.born = born;
        self
    }

    /// Cuts off what is not needed, before an object is kept. What is kept so is not shared with other controllers.
    #[must_use]
    pub fn prune(mut self, prune: impl Fn(&mut K) + Send + Sync + 'static) -> Self {
        self.prune = Some(Arc::new(prune));
        self
    }
}

/// What the streams of a feed share.
pub(super) struct Core<K: Object> {
    kind: K::DynamicType,
    select: Select<K>,
    store: Arc<Store<K>>,
    roster: Arc<Roster>,
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
}

impl<K: Object> Feed<K> {
    pub(crate) fn new(kind: K::DynamicType, select: Select<K>, roster: Arc<Roster>, tasks: TaskTracker) -> Self {
        let core = Core {
            kind,
            select,
            store: Arc::new(Store::default()),
            roster,
            listeners: RwLock::new(Arc::new([])),
        };
        Self {
            core: Arc::new(core),
            own: Mutex::default(),
            servers: Mutex::default(),
            tasks,
        }
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
                    let running = stream.clone();
                    self.tasks.spawn(supervised(move || running.clone().run()));
                    stream
                })
                .clone()
        };
        stream.claim(cluster);
    }

    fn watch_own(&self, cluster: &Cluster) {
        let mut own = self.own.lock();
        own.entry(cluster.name().clone()).or_insert_with(|| {
            let stream = Own::new(self.core.clone(), cluster.clone());
            let running = stream.clone();
            self.tasks.spawn(supervised(move || running.clone().run()));
            stream
        });
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
        match cluster.wildcard() {
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
        match cluster.wildcard() {
            Some(_) => self.wildcard_of(cluster).is_some_and(|stream| stream.synced(cluster)),
            None => {
                let own = self.own.lock().get(cluster.name()).cloned();
                own.is_some_and(|stream| stream.synced())
            }
        }
    }

    fn look_for_born(&self, cluster: &Cluster) {
        if let Some(stream) = self.wildcard_of(cluster) {
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

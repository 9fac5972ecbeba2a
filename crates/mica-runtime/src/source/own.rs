//! A watch of one kind in one cluster, for clusters that no all-planes watch shows.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kube::Api;
use kube::runtime::watcher;
use parking_lot::Mutex;

use super::feed::Core;
use super::follow::{Sink, Steering, follow};
use super::item::{Item, Object};
use crate::cluster::Cluster;
use crate::request::Request;
use crate::store::ListId;

/// One cluster's stream, while it runs.
pub(super) struct Own<K: Object> {
    core: Arc<Core<K>>,
    cluster: Cluster,
    /// Where the cluster is, for this stream.
    url: String,
    steering: Steering,
    synced: AtomicBool,
    /// The list that counts. `None` when the stream is closed: then nothing is written any more.
    list: Mutex<Option<ListId>>,
}

impl<K: Object> Own<K> {
    pub(super) fn new(core: Arc<Core<K>>, cluster: Cluster) -> Arc<Self> {
        Arc::new(Self {
            core,
            url: cluster.access().url(),
            cluster,
            steering: Steering::default(),
            synced: AtomicBool::new(false),
            list: Mutex::new(Some(ListId::NONE)),
        })
    }

    /// A stream for the cluster where it is now, after one that this ends. What that told stays until the new one has
    /// listed everything, and is compared with it: so nothing that was told is forgotten, nor has to be told again.
    pub(super) fn follow_to(&self, cluster: &Cluster) -> Arc<Self> {
        self.steering.stop.cancel();
        *self.list.lock() = None;
        let next = Self::new(self.core.clone(), cluster.clone());
        next.synced.store(self.synced(), Ordering::SeqCst);
        next
    }

    /// Whether the cluster is where this stream reads it.
    pub(super) fn is_there(&self) -> bool {
        self.cluster.access().url() == self.url
    }

    pub(super) async fn run(self: Arc<Self>) {
        let config = self.core.config(watcher::Config::default());
        let api = Api::<Item<K>>::all_with(self.cluster.client(), self.core.kind());
        let subject = Request::new(self.cluster.name().clone(), None, &K::plural(self.core.kind()));
        let following = follow(api, config, &subject, &*self, &self.steering);
        tokio::select! {
            () = self.cluster.lifetime().cancelled() => {}
            _ = following => {}
        }
    }

    pub(super) fn synced(&self) -> bool {
        self.synced.load(Ordering::SeqCst)
    }

    /// The cluster answers again.
    pub(super) fn retry(&self) {
        self.steering.retry.notify_one();
    }

    /// Ends the stream; what it told stays.
    pub(super) fn halt(&self) {
        self.steering.stop.cancel();
    }

    /// Ends the stream and forgets the cluster. When this returns nothing of it is written any more.
    pub(super) fn close(&self) {
        self.steering.stop.cancel();
        *self.list.lock() = None;
        self.core.store().purge(self.cluster.name());
    }

    fn is_synced_now(&self) {
        if !self.synced.swap(true, Ordering::SeqCst) {
            self.core.tell_synced(&self.cluster);
        }
    }

    fn note(&self, item: Item<K>) {
        let list = self.list.lock();
        if let Some(list) = *list {
            self.core.note(&self.cluster, item, list);
        }
    }
}

impl<K: Object> Sink<K> for Own<K> {
    fn listing(&self) {
        if let Some(list) = &mut *self.list.lock() {
            *list = self.core.store().begin_list();
        }
    }

    fn listed(&self, item: Item<K>) {
        self.note(item);
    }

    fn listed_all(&self) {
        {
            let list = self.list.lock();
            let Some(list) = *list else { return };
            for (_, change) in self.core.store().sweep(self.cluster.name(), list) {
                self.core.tell(&self.cluster, &change);
            }
        }
        self.is_synced_now();
    }

    fn applied(&self, item: Item<K>) {
        self.note(item);
    }

    fn deleted(&self, item: Item<K>) {
        let list = self.list.lock();
        if list.is_some() {
            let request = item.request(self.cluster.name().clone());
            self.core.forget(&self.cluster, &request);
        }
    }

    /// There is nothing, as far as can be seen. What was seen before stays: a server that is set up wrongly also says this,
    /// and nobody's objects are gone for that.
    fn not_served(&self) {
        self.is_synced_now();
    }
}

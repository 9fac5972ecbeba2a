//! A cluster of the fleet: how to reach it, how it is, and until when.
//!
//! Nothing is kept for a cluster that nobody asks anything: no task, connection or buffer. Credentials are exchanged under
//! those who use them, so that a new token or certificate ends no watch.

mod access;
mod credentials;
mod guard;
mod health;
mod pool;
mod trust;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use http::{Method, Request, StatusCode};
use kube::client::Body;
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;
use tower::service_fn;

pub use access::{Access, AccessError};
pub use guard::Refused;
pub(crate) use guard::chain;
pub use health::Health;

use crate::breaker::{self, Breaker, Verdict};
use crate::ownership::{Epoch, Ownership};
use crate::request::ClusterName;

/// The cluster is a plane of a Mica server: one watch of all planes of that server shows it together with its siblings.
#[derive(Clone, Debug)]
pub struct Wildcard {
    /// The server's root.
    pub server: Access,
    /// The plane's name there.
    pub plane: String,
    /// What tells it from an earlier plane of that name.
    pub plane_id: String,
}

/// A cluster that is engaged. Clones are the same cluster.
#[derive(Clone)]
pub struct Cluster {
    inner: Arc<Inner>,
}

struct Inner {
    name: ClusterName,
    access: ArcSwap<Access>,
    labels: ArcSwap<BTreeMap<String, String>>,
    wildcard: Option<Wildcard>,
    identity: Option<Box<str>>,
    lifetime: CancellationToken,
    ownership: Arc<dyn Ownership>,
    breaker: Mutex<Breaker>,
    health: Mutex<Health>,
    /// Those who wait for it to answer again, or to be elsewhere.
    waiting: Notify,
    /// The fleet's: probes of dead clusters at once.
    probes: Arc<Semaphore>,
    observer: Weak<dyn Observer>,
}

/// Who is told of a cluster's changes.
pub(crate) trait Observer: Send + Sync {
    /// Its health is another: to be written back.
    fn health_changed(&self, cluster: &Cluster);
    /// Its requests are held now, or released: its work should be too.
    fn reach_changed(&self, cluster: &Cluster);
    /// A request was answered with this code, or not at all.
    fn answered(&self, cluster: &Cluster, method: &Method, code: Option<StatusCode>);
}

/// What a cluster is made of.
pub(crate) struct Parts {
    pub(crate) name: ClusterName,
    pub(crate) access: Access,
    pub(crate) labels: Arc<BTreeMap<String, String>>,
    pub(crate) wildcard: Option<Wildcard>,
    pub(crate) identity: Option<Box<str>>,
    pub(crate) ownership: Arc<dyn Ownership>,
    pub(crate) limits: breaker::Limits,
    pub(crate) probes: Arc<Semaphore>,
    pub(crate) observer: Weak<dyn Observer>,
}

impl Cluster {
    pub(crate) fn new(parts: Parts) -> Self {
        Self {
            inner: Arc::new(Inner {
                name: parts.name,
                access: ArcSwap::from_pointee(parts.access),
                labels: ArcSwap::new(parts.labels),
                wildcard: parts.wildcard,
                identity: parts.identity,
                lifetime: CancellationToken::new(),
                ownership: parts.ownership,
                breaker: Mutex::new(Breaker::new(parts.limits)),
                health: Mutex::default(),
                waiting: Notify::new(),
                probes: parts.probes,
                observer: parts.observer,
            }),
        }
    }

    pub fn name(&self) -> &ClusterName {
        &self.inner.name
    }

    /// What the provider says about it, for filters.
    pub fn labels(&self) -> Arc<BTreeMap<String, String>> {
        self.inner.labels.load_full()
    }

    /// A client of it, under what this replica holds now.
    ///
    /// Its requests fail once the cluster is gone; those that change something also once the ownership under which the
    /// client was made is over, even if there is a new one: what was begun before may not be written after. So make one
    /// when work begins. That is cheap, and nothing is kept when it is dropped. Errors that [`Refused::of`] knows were
    /// never sent.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime: kube's clients have a task, which ends with the last clone.
    pub fn client(&self) -> kube::Client {
        self.client_of(self.held())
    }

    /// A client under an ownership that began earlier, as [`crate::ownership::Tenure`] names it.
    pub fn client_of(&self, epoch: Option<Epoch>) -> kube::Client {
        let cluster = self.clone();
        let send = service_fn(move |request: Request<Body>| guard::send(cluster.clone(), epoch, request));
        access::client(send, &self.inner.access.load().namespace())
    }

    /// How it is reached now. Its own clients pass no guard.
    pub fn access(&self) -> Access {
        Access::clone(&self.inner.access.load())
    }

    /// Cancelled when the cluster is gone: when its provider says so, it is somebody else's, or it is now at another place
    /// and not one that may move.
    pub fn lifetime(&self) -> &CancellationToken {
        &self.inner.lifetime
    }

    pub fn health(&self) -> Health {
        self.inner.health.lock().clone()
    }

    /// Set if one watch of all planes shows this one too.
    pub fn wildcard(&self) -> Option<&Wildcard> {
        self.inner.wildcard.as_ref()
    }

    /// What tells it from an earlier cluster of that name, if its provider says.
    pub fn identity(&self) -> Option<&str> {
        self.inner.identity.as_deref()
    }

    /// The epoch under which new work may begin, if it is this replica's.
    pub fn owned(&self) -> Option<Epoch> {
        self.inner.ownership.owns(&self.inner.name)
    }

    /// The epoch whose work may still write.
    pub fn held(&self) -> Option<Epoch> {
        self.inner.ownership.holds(&self.inner.name)
    }

    /// Whether its requests are sent, or refused because it does not answer.
    pub fn is_reachable(&self) -> bool {
        self.inner.breaker.lock().verdict() == Verdict::Closed
    }

    /// Resolves when requests are sent again, or the cluster is gone.
    pub async fn reachable(&self) {
        loop {
            let released = self.inner.waiting.notified();
            tokio::pin!(released);
            released.as_mut().enable();
            if self.is_reachable() || self.inner.lifetime.is_cancelled() {
                return;
            }
            tokio::select! {
                () = released => {}
                () = self.inner.lifetime.cancelled() => return,
            }
        }
    }

    /// Whether this and the other are the same engagement, not just of one name.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Resolves when it is at another place than this address.
    pub async fn moved_from(&self, url: &str) {
        loop {
            let changed = self.inner.waiting.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.access().url() != url {
                return;
            }
            changed.await;
        }
    }

    pub(crate) fn set_access(&self, access: Access) {
        let before = self.inner.access.swap(Arc::new(access));
        if before.url() != self.access().url() {
            self.inner.waiting.notify_waiters();
        }
    }

    pub(crate) fn set_labels(&self, labels: Arc<BTreeMap<String, String>>) {
        self.inner.labels.store(labels);
    }

    pub(crate) fn end(&self) {
        self.inner.lifetime.cancel();
    }

    fn set_health(&self, health: Health) {
        {
            let mut now = self.inner.health.lock();
            // What it says exactly may differ from one failure to the next: that is no news.
            if now.reason() == health.reason() {
                return;
            }
            // A request that began earlier says nothing about a cluster that was found not to answer since.
            if matches!(health, Health::Reachable | Health::Unauthorized { .. }) && !self.is_reachable() {
                return;
            }
            *now = health;
        }
        if let Some(observer) = self.inner.observer.upgrade() {
            observer.health_changed(self);
        }
    }

    /// The breaker has opened or closed.
    fn reach_changed(&self) {
        self.inner.waiting.notify_waiters();
        if let Some(observer) = self.inner.observer.upgrade() {
            observer.reach_changed(self);
        }
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster")
            .field("name", &self.inner.name)
            .field("access", &self.inner.access.load())
            .field("health", &self.health())
            .finish_non_exhaustive()
    }
}

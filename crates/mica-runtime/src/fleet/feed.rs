//! What a follower of the fleet has not been told yet.
//!
//! However far a follower is behind, it holds one entry for each cluster at most: what happened in between is folded into
//! what it must know. A cluster that came and went meanwhile is not told at all.

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::Stream;
use futures::task::AtomicWaker;
use parking_lot::Mutex;

use crate::cluster::Cluster;
use crate::request::ClusterName;

/// A change of the fleet.
#[derive(Clone, Debug)]
pub enum FleetEvent {
    /// It is there, with a lifetime of its own.
    Engaged(Cluster),
    /// Its labels, its credentials, its owner, or whether its requests are held: look again.
    Changed(Cluster),
    /// Forget everything of it.
    Gone(ClusterName),
    /// All providers have told all that they have, and it came before this. Told again when a provider was added since.
    Synced,
}

/// The changes of a fleet for one follower: first all clusters that are there, then what happens. Ends with the fleet.
pub struct Events {
    feed: Arc<Feed>,
}

#[derive(Default)]
pub(super) struct Feed {
    waiting: Mutex<Waiting>,
    waker: AtomicWaker,
}

#[derive(Default)]
struct Waiting {
    order: VecDeque<Next>,
    /// Every name in the order is here, once.
    clusters: HashMap<ClusterName, Pending>,
    closed: bool,
}

enum Next {
    Cluster(ClusterName),
    Synced,
}

/// What is to be told of one cluster.
#[derive(Default)]
struct Pending {
    gone: bool,
    now: Option<(Cluster, News)>,
}

#[derive(Clone, Copy, PartialEq)]
enum News {
    Engaged,
    Changed,
}

impl Feed {
    pub(super) fn engaged(&self, cluster: &Cluster) {
        self.update(cluster.name(), |pending| {
            pending.now = Some((cluster.clone(), News::Engaged));
        });
    }

    pub(super) fn changed(&self, cluster: &Cluster) {
        self.update(cluster.name(), |pending| {
            if pending.now.is_none() {
                pending.now = Some((cluster.clone(), News::Changed));
            }
        });
    }

    pub(super) fn gone(&self, name: &ClusterName) {
        self.update(name, |pending| {
            // One whose coming was not told need not be told to have gone.
            let untold = matches!(pending.now.take(), Some((_, News::Engaged)));
            pending.gone |= !untold;
        });
    }

    pub(super) fn synced(&self) {
        let mut waiting = self.waiting.lock();
        // One that was not read yet would only come too early.
        waiting.order.retain(|next| !matches!(next, Next::Synced));
        waiting.order.push_back(Next::Synced);
        drop(waiting);
        self.waker.wake();
    }

    pub(super) fn close(&self) {
        self.waiting.lock().closed = true;
        self.waker.wake();
    }

    fn update(&self, name: &ClusterName, change: impl FnOnce(&mut Pending)) {
        let mut waiting = self.waiting.lock();
        let Waiting { order, clusters, .. } = &mut *waiting;
        let pending = clusters.entry(name.clone()).or_insert_with(|| {
            order.push_back(Next::Cluster(name.clone()));
            Pending::default()
        });
        change(pending);
        drop(waiting);
        self.waker.wake();
    }
}

impl Waiting {
    fn next(&mut self) -> Option<FleetEvent> {
        while let Some(next) = self.order.pop_front() {
            let Next::Cluster(name) = next else {
                return Some(FleetEvent::Synced);
            };
            let mut pending = self.clusters.remove(&name).unwrap_or_default();
            if std::mem::take(&mut pending.gone) {
                if pending.now.is_some() {
                    self.order.push_front(Next::Cluster(name.clone()));
                    self.clusters.insert(name.clone(), pending);
                }
                return Some(FleetEvent::Gone(name));
            }
            match pending.now {
                Some((cluster, News::Engaged)) => return Some(FleetEvent::Engaged(cluster)),
                Some((cluster, News::Changed)) => return Some(FleetEvent::Changed(cluster)),
                None => {}
            }
        }
        None
    }
}

impl Events {
    pub(super) fn new(feed: Arc<Feed>) -> Self {
        Self { feed }
    }
}

impl Stream for Events {
    type Item = FleetEvent;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<FleetEvent>> {
        // Registered before looking, so that what comes in between wakes.
        self.feed.waker.register(cx.waker());
        let mut waiting = self.feed.waiting.lock();
        match waiting.next() {
            Some(event) => Poll::Ready(Some(event)),
            None if waiting.closed => Poll::Ready(None),
            None => Poll::Pending,
        }
    }
}

//! A plane's own audit: its policy, and the webhook that its events go to.
//!
//! What planes say is compiled once for all that say the same. A plane has a queue, and a task, only while events wait in it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use bytes::Bytes;
use mica_api::PlaneId;
use mica_machinery::audit::Policy;
use mica_machinery::object;
use parking_lot::Mutex;
use quick_cache::sync::Cache;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::metrics::Lost;
use super::outbox::{Batch, Bounds, Outbox};
use super::webhook::Receiver;
use crate::egress::{ClientConfig, Egress, Tenant};

/// Compiled audits that are kept beyond the planes that use them.
const COMPILED: usize = 1024;
/// What may wait for one plane, and for all together.
const PLANE_EVENTS: usize = 4000;
const PLANE_BYTES: usize = 4 << 20;
const ALL_BYTES: usize = 64 << 20;
/// Planes that have something waiting at once.
const PLANES: usize = 4096;
/// Pause after a first failure: shorter than the platform's, because less may wait.
const BACKOFF: Duration = Duration::from_secs(2);

/// When batches of planes go.
pub(super) const BATCH: Batch = Batch {
    max_events: 400,
    max_bytes: 1 << 20,
    max_wait: Duration::from_secs(5),
};

/// What a plane says about audit, compiled.
#[derive(Debug)]
pub struct PlaneAudit {
    pub policy: Policy,
    pub to: ClientConfig,
}

/// The compiled audits of planes.
pub struct Compiled(Cache<[u8; 32], Arc<PlaneAudit>>);

impl Default for Compiled {
    fn default() -> Self {
        Self(Cache::new(COMPILED))
    }
}

impl Compiled {
    /// Compiles `spec.audit` of a Plane. What cannot be used (it was validated when it was stored) is as good as none.
    pub fn of(&self, audit: &Value) -> Option<Arc<PlaneAudit>> {
        let text = serde_json::to_vec(audit).ok()?;
        let hash: [u8; 32] = Sha256::digest(&text).into();
        if let Some(found) = self.0.get(&hash) {
            return Some(found);
        }
        let to = ClientConfig::from_value(object::get(audit, &["webhook"])?).ok()?;
        let compiled = Arc::new(PlaneAudit {
            policy: Policy::compile(object::get(audit, &["policy"])?),
            to,
        });
        self.0.insert(hash, compiled.clone());
        Some(compiled)
    }
}

/// The events of planes on their way to the planes' webhooks.
pub(super) struct Planes {
    egress: Egress,
    batch: Batch,
    lost: Lost,
    held: Arc<AtomicUsize>,
    queues: Mutex<HashMap<PlaneId, Queue>>,
}

#[derive(Clone)]
struct Queue {
    outbox: Arc<Outbox>,
    audit: Arc<PlaneAudit>,
}

impl Planes {
    pub(super) fn new(egress: Egress, batch: Batch, lost: Lost) -> Arc<Self> {
        Arc::new(Self {
            egress,
            batch,
            lost,
            held: Arc::default(),
            queues: Mutex::default(),
        })
    }

    /// Accepts an event of a plane, or counts it as lost. Never waits.
    pub(super) fn push(self: &Arc<Self>, plane: PlaneId, audit: &Arc<PlaneAudit>, event: Bytes) {
        let mut queues = self.queues.lock();
        let full = queues.len() >= PLANES;
        match queues.entry(plane) {
            Entry::Occupied(mut found) => {
                // What was said last counts, also for what waits.
                let queue = found.get_mut();
                queue.audit = audit.clone();
                queue.outbox.push(event);
            }
            Entry::Vacant(_) if full => {
                drop(queues);
                self.lost.no_room();
            }
            Entry::Vacant(place) => {
                let bounds = Bounds {
                    events: PLANE_EVENTS,
                    bytes: PLANE_BYTES,
                    common: Some((self.held.clone(), ALL_BYTES)),
                };
                let queue = Queue {
                    outbox: Outbox::new(bounds, self.lost.clone()),
                    audit: audit.clone(),
                };
                queue.outbox.push(event);
                let outbox = queue.outbox.clone();
                place.insert(queue);
                tokio::spawn(self.clone().serve(plane, outbox));
            }
        }
    }

    /// Sends what a plane has, until it has nothing.
    async fn serve(self: Arc<Self>, plane: PlaneId, outbox: Arc<Outbox>) {
        loop {
            {
                let mut queues = self.queues.lock();
                // Under the lock: whoever pushes next finds this queue, or makes a new one.
                if outbox.is_empty() {
                    queues.remove(&plane);
                    return;
                }
            }
            let Some(taken) = outbox.next(&self.batch).await else {
                self.queues.lock().remove(&plane);
                return;
            };
            let audit = self.queues.lock().get(&plane).map(|queue| queue.audit.clone());
            let Some(audit) = audit else { return };
            let receiver = Receiver {
                egress: &self.egress,
                tenant: Tenant::of(plane),
                to: &audit.to,
                initial_backoff: BACKOFF,
            };
            receiver.deliver(&outbox, taken).await;
        }
    }

    /// Sends what waits without waiting for more.
    pub(super) async fn flush(&self) {
        let queues: Vec<Queue> = self.queues.lock().values().cloned().collect();
        queues.iter().for_each(|queue| queue.outbox.close());
        while !self.queues.lock().is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Planes that have a queue.
    pub(super) fn len(&self) -> usize {
        self.queues.lock().len()
    }
}

//! Carries a plane's content from one server to another: the whole of it once, then what changed, until that is little.
//!
//! What is under way is held, and no more: pieces go out as they come in. A courier has a task of its own, because copying
//! takes as long as there is to copy; it is known by the name of its control plane and ends with whoever sent it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use kube::client::Body;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, broadcast};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::plan::{Carried, Retry};
use super::report::Trouble;
use super::side::reached;
use crate::api::{Api, Refusal};
use crate::control_plane::Home;

/// Planes that are copied at once: each takes a good part of two servers.
const PARALLEL: usize = 4;
/// How long a transfer may stand still.
const STALL: Duration = Duration::from_secs(60);
/// Changes that take no longer than this to send are few: the rest is sent while writes wait.
const SHORT: Duration = Duration::from_millis(200);
/// Rounds of changes at most. Who writes faster than changes are sent is stopped by the fence.
const ROUNDS: usize = 20;
/// Between tries of what failed, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// Names that wait to be heard. Who misses some hears of them in a while.
const UNHEARD: usize = 1024;

/// Where the plane is sent from and to.
#[derive(Clone)]
pub struct Way {
    pub from: Api,
    pub to: Api,
    pub cluster_path: String,
}

/// What arrived.
pub struct Arrived {
    /// The sender's revision that the receiver has come to.
    pub revision: u64,
}

impl Way {
    fn planes(&self) -> String {
        Home::plane_object(&self.cluster_path)
    }

    /// Sends everything.
    pub async fn copy(&self, bytes: &Arc<AtomicU64>) -> Result<Arrived, Refusal> {
        self.send("revisions=true", bytes).await
    }

    /// Sends what changed.
    pub async fn follow(&self, since: u64, bytes: &Arc<AtomicU64>) -> Result<Arrived, Refusal> {
        self.send(&format!("since={since}"), bytes).await
    }

    async fn send(&self, query: &str, bytes: &Arc<AtomicU64>) -> Result<Arrived, Refusal> {
        let content = self.from.pour(&format!("{}/snapshot?{query}", self.planes())).await?;
        let body = counted(content, bytes.clone()).await?;
        let at = format!("{}/arrive", self.planes());
        let mut sending = std::pin::pin!(self.to.fill(&at, body));
        let mut before = bytes.load(Ordering::Relaxed);
        let answer = loop {
            match tokio::time::timeout(STALL, &mut sending).await {
                Ok(answer) => break answer?,
                Err(_elapsed) => {
                    let now = bytes.load(Ordering::Relaxed);
                    if now == before {
                        return Err(Refusal::Late);
                    }
                    before = now;
                }
            }
        };
        let revision = reached(&answer).unwrap_or_default();
        Ok(Arrived { revision })
    }

    /// Brings the receiver close to the sender.
    async fn bring(&self, have: Option<u64>, bytes: &Arc<AtomicU64>) -> Result<(), Refusal> {
        let mut at = match have {
            Some(revision) => revision,
            None => self.copy(bytes).await?.revision,
        };
        let mut last = Duration::MAX;
        for _ in 0..ROUNDS {
            let begun = Instant::now();
            at = match self.follow(at, bytes).await {
                Ok(arrived) => arrived.revision,
                // The sender does not remember so far back.
                Err(refusal) if refusal.is_expired() => self.copy(bytes).await?.revision,
                Err(refusal) => return Err(refusal),
            };
            let took = begun.elapsed();
            if took < SHORT || took >= last {
                break;
            }
            last = took;
        }
        Ok(())
    }
}

/// The same body, with its bytes counted as they go.
///
/// Nobody but a service makes a body of pieces for this client, so one does.
async fn counted(body: Body, bytes: Arc<AtomicU64>) -> Result<Body, Refusal> {
    let pieces = body.into_data_stream().inspect_ok(move |piece: &Bytes| {
        bytes.fetch_add(piece.len() as u64, Ordering::Relaxed);
    });
    let body = StreamBody::new(pieces.map_ok(Frame::data).boxed());
    let body = Mutex::new(Some(body));
    let passing = tower::service_fn(move |_: Request<Body>| {
        let body = body.lock().take();
        async move { body.map(Response::new).ok_or("a body is sent once") }
    });
    let client = kube::Client::new(passing, "default");
    let sent = client.send(Request::new(Body::empty())).await;
    sent.map(Response::into_body)
        .map_err(|error| Refusal::Unreachable(Box::new(error)))
}

/// What is remembered of a migration while it lasts. All of it can be forgotten.
#[derive(Default)]
struct Memory {
    courier: Option<JoinHandle<()>>,
    bytes: Arc<AtomicU64>,
    caught: bool,
    /// What is asked for: what failed is tried at once when that changes.
    asked: u64,
    failures: u32,
    not_before: Option<Instant>,
    trouble: Option<Trouble>,
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Some(courier) = &self.courier {
            courier.abort();
        }
    }
}

/// The couriers of all control planes.
pub struct Couriers {
    memories: Arc<Mutex<HashMap<String, Memory>>>,
    places: Arc<Semaphore>,
    changes: broadcast::Sender<String>,
}

impl Couriers {
    pub fn new() -> Self {
        Self {
            memories: Arc::default(),
            places: Arc::new(Semaphore::new(PARALLEL)),
            changes: broadcast::Sender::new(UNHEARD),
        }
    }

    /// Names of control planes whose courier has come back.
    pub fn changes(&self) -> broadcast::Receiver<String> {
        self.changes.subscribe()
    }

    pub fn carried(&self, name: &str) -> Carried {
        match self.memories.lock().get(name) {
            Some(memory) if memory.courier.is_some() => Carried::Running,
            Some(memory) if memory.caught => Carried::Caught,
            _ => Carried::Idle,
        }
    }

    /// Whether what failed may be tried again, and else when.
    pub fn retry(&self, name: &str) -> (Retry, Option<Duration>) {
        let memories = self.memories.lock();
        let due = memories.get(name).and_then(|memory| memory.not_before);
        match due.map(|due| due.saturating_duration_since(Instant::now())) {
            Some(left) if !left.is_zero() => (Retry::Later, Some(left)),
            _ => (Retry::Now, None),
        }
    }

    /// What was asked for may have changed, and what failed may not fail now.
    pub fn heard(&self, name: &str, asked: u64) {
        if let Some(memory) = self.memories.lock().get_mut(name)
            && memory.asked != asked
        {
            (memory.asked, memory.not_before, memory.failures) = (asked, None, 0);
        }
    }

    pub fn trouble(&self, name: &str) -> Option<Trouble> {
        self.memories.lock().get(name)?.trouble.clone()
    }

    /// How much was sent.
    pub fn sent(&self, name: &str) -> u64 {
        let memories = self.memories.lock();
        memories
            .get(name)
            .map_or(0, |memory| memory.bytes.load(Ordering::Relaxed))
    }

    /// What was brought has grown old.
    pub fn stale(&self, name: &str) {
        if let Some(memory) = self.memories.lock().get_mut(name) {
            memory.caught = false;
        }
    }

    /// Something went wrong: it is tried again after a pause that grows.
    pub fn failed(&self, name: &str, trouble: Trouble) {
        let mut memories = self.memories.lock();
        fail(memories.entry(name.to_owned()).or_default(), trouble);
    }

    /// Sends a courier, unless one is on the way.
    pub fn send(&self, name: &str, way: Way, have: Option<u64>) {
        let mut memories = self.memories.lock();
        let memory = memories.entry(name.to_owned()).or_default();
        if memory.courier.is_some() {
            return;
        }
        memory.caught = false;
        memory.bytes = Arc::default();
        let (bytes, places) = (memory.bytes.clone(), self.places.clone());
        let (all, changes, name) = (self.memories.clone(), self.changes.clone(), name.to_owned());
        memory.courier = Some(tokio::spawn(async move {
            let brought = {
                let _place = places.acquire().await;
                way.bring(have, &bytes).await
            };
            if let Some(memory) = all.lock().get_mut(&name) {
                memory.courier = None;
                match brought {
                    Ok(()) => (memory.caught, memory.trouble) = (true, None),
                    // Somebody else sent, or the plane is another: the next look knows more.
                    Err(refusal) if refusal.is_conflict() || refusal.is_not_found() => {}
                    Err(Refusal::NotOurTurn) => {}
                    Err(refusal) => fail(memory, trouble_of(&refusal)),
                }
            }
            // Nobody may listen any more.
            let _ = changes.send(name);
        }));
    }

    /// Ends a courier, and waits until it has: nothing of it comes later.
    pub async fn stop(&self, name: &str) {
        let courier = self
            .memories
            .lock()
            .get_mut(name)
            .and_then(|memory| memory.courier.take());
        if let Some(courier) = courier {
            courier.abort();
            let _ = courier.await;
        }
    }

    /// The migration is over.
    pub fn forget(&self, name: &str) {
        self.memories.lock().remove(name);
    }
}

fn fail(memory: &mut Memory, trouble: Trouble) {
    let pause = FIRST_PAUSE.saturating_mul(1 << memory.failures.min(16));
    memory.failures += 1;
    memory.not_before = Some(Instant::now() + pause.min(LONGEST_PAUSE));
    memory.trouble = Some(trouble);
}

/// What is told of a failure.
pub fn trouble_of(refusal: &Refusal) -> Trouble {
    Trouble {
        reason: mica_api::control_plane::reason::MIGRATING,
        message: format!("it is tried again: {refusal}"),
    }
}

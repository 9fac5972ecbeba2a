//! Clients of a control plane that go on whatever happens to it, and remember what they were told.
//!
//! They do as clients do that follow the Secret: who is refused reads it again, and tries again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::TryStreamExt as _;
use kube::api::WatchEvent;
use kube::core::DynamicObject;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::shop::PATIENCE;
use super::site::{LOOK, get, inside, send};

pub const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const COUNTER: &str = "/api/v1/namespaces/default/configmaps/counter";
/// Between two writes: a plane that grows without end says nothing more than a small one.
const PACE: Duration = Duration::from_millis(20);
/// How long one watch lasts, in seconds: then the next one resumes.
const WATCH: u32 = 5;

/// The control plane as its Secret says now.
struct Door {
    root: kube::Client,
    name: &'static str,
    client: Option<kube::Client>,
}

impl Door {
    fn new(root: kube::Client, name: &'static str) -> Self {
        let client = None;
        Self { root, name, client }
    }

    async fn open(&mut self) -> kube::Client {
        loop {
            if let Some(client) = &self.client {
                return client.clone();
            }
            self.client = inside(&self.root, self.name).await;
            if self.client.is_none() {
                tokio::time::sleep(LOOK).await;
            }
        }
    }

    /// Something was refused.
    async fn turn_away(&mut self) {
        self.client = None;
        tokio::time::sleep(LOOK).await;
    }
}

/// What was acknowledged, by name: the uid and the version.
pub type Created = BTreeMap<String, (Value, Value)>;

/// Creates one object after the other.
pub struct Creator {
    count: Arc<AtomicUsize>,
    last: watch::Receiver<String>,
    task: JoinHandle<Created>,
}

impl Creator {
    pub fn begin(root: kube::Client, name: &'static str, stop: Arc<AtomicBool>) -> Self {
        let count = Arc::<AtomicUsize>::default();
        let (tell, last) = watch::channel(String::new());
        let counted = count.clone();
        let task = tokio::spawn(async move {
            let (mut door, mut created) = (Door::new(root, name), Created::new());
            for n in 0_usize.. {
                if stop.load(Ordering::Acquire) {
                    break;
                }
                let name = format!("w{n:06}");
                let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
                match send(&door.open().await, "POST", MAPS, &map).await {
                    Ok(made) => {
                        let meta = &made["metadata"];
                        let known = (meta["uid"].clone(), meta["resourceVersion"].clone());
                        created.insert(name.clone(), known);
                        counted.fetch_add(1, Ordering::Release);
                        tell.send_replace(name);
                    }
                    Err(_) => door.turn_away().await,
                }
                tokio::time::sleep(PACE).await;
            }
            created
        });
        Self { count, last, task }
    }

    pub fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// The name of what was acknowledged last.
    pub fn last(&self) -> String {
        self.last.borrow().clone()
    }

    pub async fn end(self) -> Created {
        self.task.await.unwrap()
    }
}

/// Counts in one object, each time with the version that it was told before.
pub struct Updater {
    task: JoinHandle<u64>,
}

impl Updater {
    pub fn begin(root: kube::Client, name: &'static str, stop: Arc<AtomicBool>) -> Self {
        let task = tokio::spawn(async move {
            let mut door = Door::new(root, name);
            // The object as it was acknowledged last, and what it was asked to be without an answer.
            let (mut acknowledged, mut asked) = (Value::Null, BTreeSet::new());
            let mut n = 0_u64;
            while !stop.load(Ordering::Acquire) {
                n += 1;
                asked.insert(n.to_string());
                let client = door.open().await;
                let told = match &acknowledged {
                    Value::Null => send(&client, "POST", MAPS, &counter(n, &Value::Null)).await,
                    known => send(&client, "PUT", COUNTER, &counter(n, &known["metadata"])).await,
                };
                match told {
                    Ok(now) => {
                        asked.clear();
                        acknowledged = now;
                    }
                    Err(refused) if refused.code == 409 => {
                        let Ok(found) = get(&client, COUNTER).await else {
                            door.turn_away().await;
                            continue;
                        };
                        asked.remove(&n.to_string());
                        check(&acknowledged, &found, &asked);
                        acknowledged = found;
                    }
                    Err(_) => door.turn_away().await,
                }
                tokio::time::sleep(PACE).await;
            }
            acknowledged["data"]["n"].as_str().and_then(|n| n.parse().ok()).unwrap()
        });
        Self { task }
    }

    pub async fn end(self) -> u64 {
        self.task.await.unwrap()
    }
}

fn counter(n: u64, known: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"n": n.to_string()},
        "metadata": {"name": "counter", "uid": known["uid"], "resourceVersion": known["resourceVersion"]}})
}

/// A conflict is only due to a write of ours that nobody answered.
fn check(acknowledged: &Value, found: &Value, asked: &BTreeSet<String>) {
    let n = found["data"]["n"].as_str().unwrap();
    assert!(
        asked.contains(n),
        "a version that was good is refused, or a write is lost: {acknowledged} was acknowledged, {found} is there"
    );
    let (uid, known) = (&found["metadata"]["uid"], &acknowledged["metadata"]["uid"]);
    assert!(known.is_null() || known == uid, "{known} became {uid}");
}

/// Follows all that is created, from where it was, once each.
pub struct Watcher {
    seen: watch::Receiver<BTreeSet<String>>,
    expired: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Watcher {
    pub fn begin(root: kube::Client, name: &'static str) -> Self {
        let (tell, seen) = watch::channel(BTreeSet::new());
        let expired = Arc::<AtomicUsize>::default();
        let counted = expired.clone();
        let task = tokio::spawn(async move {
            let mut door = Door::new(root, name);
            let mut version = None;
            loop {
                let client = door.open().await;
                version = match version {
                    None => list(&client, &tell).await,
                    Some(version) => follow(&client, version, &tell, &counted).await,
                };
                // What went well is gone on with where the Secret leads now.
                door.turn_away().await;
            }
        });
        Self { seen, expired, task }
    }

    /// How often it had to list again.
    pub fn expired(&self) -> usize {
        self.expired.load(Ordering::Acquire)
    }

    pub async fn until_sees(&self, name: &str) {
        let mut seen = self.seen.clone();
        let begun = Instant::now();
        let sees = seen.wait_for(|seen| seen.contains(name));
        let sees = tokio::time::timeout(PATIENCE, sees).await;
        let sees = sees.unwrap_or_else(|_| panic!("{name} is not seen for {:?}", begun.elapsed()));
        assert!(sees.is_ok(), "the watcher has ended");
    }

    /// How many objects were seen.
    pub async fn end(self) -> usize {
        self.task.abort();
        if let Err(error) = self.task.await {
            assert!(error.is_cancelled(), "{error}");
        }
        self.seen.borrow().len()
    }
}

async fn list(client: &kube::Client, tell: &watch::Sender<BTreeSet<String>>) -> Option<String> {
    let listed = get(client, MAPS).await.ok()?;
    let names = listed["items"].as_array().unwrap().iter();
    let names = names.map(|map| map["metadata"]["name"].as_str().unwrap().to_owned());
    tell.send_modify(|seen| seen.extend(names));
    Some(listed["metadata"]["resourceVersion"].as_str().unwrap().to_owned())
}

/// Watches from a version until the watch ends; the version to go on from, none if that is too old.
async fn follow(
    client: &kube::Client,
    from: String,
    tell: &watch::Sender<BTreeSet<String>>,
    expired: &AtomicUsize,
) -> Option<String> {
    let query = format!("watch=true&allowWatchBookmarks=true&timeoutSeconds={WATCH}&resourceVersion={from}");
    let request = http::Request::get(format!("{MAPS}?{query}")).body(Vec::new()).unwrap();
    let mut version = from;
    let is_expired = |code: u16| code == 410;
    let events = match client.request_events::<DynamicObject>(request).await {
        Ok(events) => events,
        Err(kube::Error::Api(status)) if is_expired(status.code) => {
            expired.fetch_add(1, Ordering::AcqRel);
            return None;
        }
        Err(_) => return Some(version),
    };
    let mut events = std::pin::pin!(events);
    // A watch that breaks off is resumed.
    while let Ok(Some(event)) = events.try_next().await {
        match event {
            WatchEvent::Added(map) => {
                let name = map.metadata.name.unwrap();
                tell.send_modify(|seen| assert!(seen.insert(name.clone()), "{name} is told twice"));
                version = map.metadata.resource_version.unwrap();
            }
            WatchEvent::Modified(map) | WatchEvent::Deleted(map) => version = map.metadata.resource_version.unwrap(),
            WatchEvent::Bookmark(bookmark) => version = bookmark.metadata.resource_version,
            WatchEvent::Error(status) if is_expired(status.code) => {
                expired.fetch_add(1, Ordering::AcqRel);
                return None;
            }
            WatchEvent::Error(_) => break,
        }
    }
    Some(version)
}

//! A watch of each kind: how servers are followed that do not tell of everything at once.
//!
//! What a server serves is asked again when a definition changes, and now and then. A kind that cannot be listed is tried
//! again by itself and holds up no other.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use mica_runtime::queue::Priority;
use tokio::sync::Notify;
use tokio::task::{AbortHandle, JoinSet};

use super::graph::{Graph, is_followed};
use super::{Listener, Pause};
use crate::api::{Api, EventType, Partial, Refusal};
use crate::kinds::{Catalog, Served};
use crate::meta::{Meta, Notice, Object, Seen, What};
use crate::place::{self, Place};

/// How often a server is asked what it serves if nothing says that it changed.
const REDISCOVER: Duration = Duration::from_secs(30);
/// After a definition changed, others will: they are waited for this long.
const SETTLE: Duration = Duration::from_millis(100);
/// Kinds that are followed. A server with more is not one that these controllers are for.
const MOST_KINDS: usize = 4096;

/// Follows a server until dropped.
pub async fn follow<L: Listener>(api: &Api, catalog: &Arc<Catalog>, graph: &Arc<Graph>, listener: &Arc<L>) {
    let changed = Arc::new(Notify::new());
    // Dropped with everything it runs.
    let mut tasks = JoinSet::new();
    let mut followed: HashMap<What, AbortHandle> = HashMap::new();
    let mut pause = Pause::new();
    loop {
        match catalog.fresh(&Place::root()).await {
            Err(refusal) => {
                tracing::warn!(%refusal, "a server does not say what it serves; it is asked again");
                pause.wait().await;
                continue;
            }
            Ok(kinds) => {
                pause.reset();
                let wanted = |served: &&Arc<Served>| is_followed(served) && listener.wants(&served.what);
                let served = kinds.preferred.iter().filter(wanted);
                let served: HashSet<What> = served.map(|served| served.what.clone()).take(MOST_KINDS).collect();
                // Groups that did not answer are not gone.
                let failed = |what: &What| kinds.failed.iter().any(|(group, _)| what.api_version == group.as_str());
                followed.retain(|what, task| {
                    let stays = served.contains(what) || failed(what);
                    if !stays {
                        task.abort();
                        graph.forget(what);
                    }
                    stays
                });
                for what in served {
                    followed.entry(what.clone()).or_insert_with(|| {
                        let one = One {
                            api: api.clone(),
                            graph: graph.clone(),
                            listener: listener.clone(),
                            changed: changed.clone(),
                            what,
                        };
                        tasks.spawn(one.follow())
                    });
                }
            }
        }
        while tasks.try_join_next().is_some() {}
        if tokio::time::timeout(REDISCOVER, changed.notified()).await.is_ok() {
            tokio::time::sleep(SETTLE).await;
        }
    }
}

/// One kind.
struct One<L> {
    api: Api,
    graph: Arc<Graph>,
    listener: Arc<L>,
    /// Told when what the server serves may have changed.
    changed: Arc<Notify>,
    what: What,
}

impl<L: Listener> One<L> {
    async fn follow(self) {
        let mut pause = Pause::new();
        let mut heard: Option<String> = None;
        loop {
            let before = heard.clone();
            match self.step(&mut heard).await {
                Ok(()) => {}
                Err(refusal) if refusal.is_expired() => heard = None,
                Err(refusal) => tracing::debug!(kind = ?self.what, %refusal, "a watch ended; it goes on"),
            }
            if heard != before {
                pause.reset();
            }
            pause.wait().await;
        }
    }

    /// Reads everything, unless it is known where the last watch ended; then changes, until the watch ends.
    async fn step(&self, heard: &mut Option<String>) -> Result<(), Refusal> {
        let path = place::collection(&Place::root(), &self.what.api_version, &self.what.resource, None);
        let mut version = match heard.clone() {
            Some(version) => version,
            None => {
                let version = self.list(&path).await?;
                *heard = Some(version.clone());
                version
            }
        };
        let watch = format!("{path}?watch=true&allowBookmarks=true&resourceVersion={version}");
        let mut events = std::pin::pin!(self.api.watch::<Partial>(&watch).await?);
        while let Some(line) = events.next().await {
            let line = line?;
            version = line.object.metadata.resource_version.to_string();
            *heard = Some(version);
            match line.kind {
                EventType::Bookmark | EventType::Error => {}
                EventType::Deleted => self.tell(Seen::Gone(self.object(line.object.metadata)), Priority::Normal),
                EventType::Added | EventType::Modified => {
                    self.tell(Seen::Present(self.object(line.object.metadata)), Priority::Normal);
                }
            }
            self.listener.room().await;
        }
        Ok(())
    }

    /// Tells everything that is there, and the end of what is not any more. Returns the version of the list.
    async fn list(&self, path: &str) -> Result<String, Refusal> {
        let listed = self.api.list_metadata(path, "").await?;
        let uids = listed.items.iter().map(|one| one.metadata.uid.clone()).collect();
        for gone in self.graph.others(&self.what, &uids) {
            self.tell(Seen::Gone(gone), Priority::Normal);
        }
        for one in listed.items {
            self.tell(Seen::Present(self.object(one.metadata)), Priority::Low);
            self.listener.room().await;
        }
        Ok(listed.version)
    }

    fn object(&self, meta: Meta) -> Arc<Object> {
        Arc::new(Object {
            place: Place::root(),
            what: self.what.clone(),
            meta,
        })
    }

    fn tell(&self, seen: Seen, priority: Priority) {
        self.graph.note(&seen);
        let defines = ["customresourcedefinitions", "apiservices"].contains(&self.what.resource.as_str());
        if defines && priority == Priority::Normal {
            self.changed.notify_one();
        }
        self.listener.hear(&Notice {
            seen: seen.clone(),
            priority,
        });
        if let Seen::Gone(object) = seen
            && object.is("apiextensions.k8s.io", "customresourcedefinitions")
            && let Some((resource, group)) = object.meta.name.split_once('.')
        {
            // It went after its objects, whose own watch may have ended before it told so.
            for gone in self.graph.of(group, resource) {
                self.tell(Seen::Gone(gone), Priority::Normal);
            }
        }
    }
}

//! Answers of the store that are kept for as long as somebody hears of their changes.
//!
//! Invariant: an answer that was read before a change is never found here after the change was heard. A change takes away
//! also the place of an answer that is still being read, and what was kept under an earlier watch counts for nothing.

use std::future::Future;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use mica_api::{GroupResource, PlaneId};
use mica_store::{Event, KeyRange, Signal, Store, WatchError};
use quick_cache::Equivalent;
use quick_cache::sync::Cache;

use crate::error::ApiError;

/// How soon changes are followed again after the store failed.
pub const FOLLOW_AGAIN: Duration = Duration::from_millis(500);

/// Planes that are kept ready to be used, of each thing that is made of what they store: what they are, their definitions,
/// flows, roles and admission. All of it together is some 600 bytes for a plane that has nothing of its own but definitions;
/// one that is not here costs its next request a read of what it stores.
pub const PLANES: usize = 20_000;

/// A bounded cache whose entries a watch keeps true.
pub struct Followed<K, V> {
    /// What is kept under the watch that is under way. None while nobody listens.
    entries: ArcSwapOption<Cache<K, V>>,
    capacity: usize,
}

impl<K: Hash + Eq, V: Clone> Followed<K, V> {
    pub fn new(capacity: usize) -> Self {
        Self {
            entries: ArcSwapOption::empty(),
            capacity,
        }
    }

    /// From now on changes are heard. What was kept before may have changed unheard, and whoever still reads keeps what it
    /// reads among that.
    pub fn begin(&self) {
        self.entries.store(Some(Arc::new(Cache::new(self.capacity))));
    }

    /// Nobody listens any more.
    pub fn end(&self) {
        self.entries.store(None);
    }

    /// What is kept for a key, which is in use.
    pub fn known<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<V> {
        self.entries.load().as_ref()?.get(key)
    }

    /// The same for somebody who only looks at what others use.
    pub fn peek<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<V> {
        self.entries.load().as_ref()?.peek(key)
    }

    /// What is kept, or else what `load` reads. Of several callers that miss the same key one reads at a time.
    /// Nothing is kept of a `None`.
    pub async fn get<Q, E>(&self, key: &Q, load: impl Future<Output = Result<Option<V>, E>>) -> Result<Option<V>, E>
    where
        Q: Hash + Equivalent<K> + ToOwned<Owned = K> + ?Sized,
    {
        if let Some(value) = self.known(key) {
            return Ok(Some(value));
        }
        let Some(entries) = self.entries.load_full() else {
            return load.await;
        };
        match entries.get_value_or_guard_async(key).await {
            Ok(value) => Ok(Some(value)),
            Err(place) => {
                let value = load.await?;
                if let Some(value) = &value {
                    // The place is gone if a change came while we read: then this answer is for those only who asked before.
                    let _ = place.insert(value.clone());
                }
                Ok(value)
            }
        }
    }

    pub fn forget<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) {
        if let Some(entries) = &*self.entries.load() {
            entries.remove(key);
        }
    }

    /// Forgets everything that was kept, and goes on keeping if somebody listens.
    pub fn forget_all(&self) {
        // Nothing is kept again if nobody listens any more by now.
        self.entries
            .rcu(|kept| kept.as_ref().map(|_| Arc::new(Cache::new(self.capacity))));
    }

    /// Calls `forget` for every plane as its objects of some resources change, on whatever server that happens. Ends when
    /// the store closes; `what` names the resources in the log.
    ///
    /// Nothing is kept while this does not run.
    pub async fn follow(
        &self,
        store: &dyn Store,
        resources: &[GroupResource],
        what: &str,
        forget: impl Fn(PlaneId) + Copy,
    ) {
        self.follow_those(store, resources, what, |_| true, forget).await;
    }

    /// The same for those changes that matter.
    pub async fn follow_those(
        &self,
        store: &dyn Store,
        resources: &[GroupResource],
        what: &str,
        matters: impl Fn(&Event) -> bool + Copy,
        forget: impl Fn(PlaneId) + Copy,
    ) {
        loop {
            let followed = self.follow_once(store, resources, matters, forget).await;
            self.end();
            match followed {
                Ok(()) => return,
                Err(error) => tracing::warn!(%error, "the watch on {what} was interrupted; starting over"),
            }
            tokio::time::sleep(FOLLOW_AGAIN).await;
        }
    }

    async fn follow_once(
        &self,
        store: &dyn Store,
        resources: &[GroupResource],
        matters: impl Fn(&Event) -> bool + Copy,
        forget: impl Fn(PlaneId) + Copy,
    ) -> Result<(), ApiError> {
        let now = store.status().await?.revision;
        let mut watches = Vec::with_capacity(resources.len());
        for resource in resources {
            watches.push(store.watch(KeyRange::AllPlanes(resource.clone()), now).await?);
        }
        self.begin();
        let heard = watches.into_iter().map(|mut changes| async move {
            loop {
                match changes.next().await {
                    Ok(Signal::Event(event)) if matters(&event) => forget(event.key.plane()),
                    Ok(Signal::Event(_)) => {}
                    Ok(Signal::Dropped(plane, ..)) => forget(plane),
                    Err(WatchError::Closed) => return Ok(()),
                    Err(error) => return Err(ApiError::unavailable("a watch ended").because(error)),
                }
            }
        });
        futures::future::try_join_all(heard).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(cache: &Followed<String, u32>, value: u32) -> u32 {
        cache
            .get("k", async { Ok::<_, ()>(Some(value)) })
            .await
            .unwrap()
            .unwrap()
    }

    #[tokio::test]
    async fn nothing_is_kept_while_nobody_listens() {
        let cache = Followed::new(10);
        assert_eq!((read(&cache, 1).await, read(&cache, 2).await), (1, 2));
        cache.begin();
        assert_eq!((read(&cache, 3).await, read(&cache, 4).await), (3, 3));
        cache.end();
        assert_eq!((cache.peek("k"), read(&cache, 5).await), (None, 5));
        cache.begin();
        assert_eq!(read(&cache, 6).await, 6);
    }

    #[tokio::test]
    async fn an_answer_read_before_a_change_is_not_kept_after_it() {
        let cache = Followed::new(10);
        cache.begin();
        let old = cache.get("k", async {
            cache.forget("k");
            Ok::<_, ()>(Some(1))
        });
        assert_eq!(old.await, Ok(Some(1)));
        assert_eq!(read(&cache, 2).await, 2);
        let old = cache.get("j", async {
            cache.forget_all();
            Ok::<_, ()>(Some(1))
        });
        assert_eq!(old.await, Ok(Some(1)));
        assert_eq!(cache.peek("j"), None);
    }

    #[tokio::test]
    async fn an_answer_read_under_an_earlier_watch_is_for_those_who_asked_then() {
        let cache = Followed::new(10);
        cache.begin();
        let (ended, is_ended) = tokio::sync::oneshot::channel::<()>();
        let first = cache.get("k", async {
            is_ended.await.unwrap();
            Ok::<_, ()>(Some(1))
        });
        let second = cache.get("k", async { Ok::<_, ()>(Some(2)) });
        let anew = async {
            cache.end();
            cache.forget_all();
            assert_eq!(read(&cache, 3).await, 3);
            assert_eq!(cache.known("k"), None, "nobody listens, whoever forgets");
            cache.begin();
            assert_eq!(read(&cache, 4).await, 4);
            ended.send(()).unwrap();
        };
        assert_eq!(futures::join!(first, second, anew), (Ok(Some(1)), Ok(Some(1)), ()));
        assert_eq!(cache.known("k"), Some(4));
    }
}

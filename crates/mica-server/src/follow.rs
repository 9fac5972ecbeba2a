//! Loops that work off records: those that are there when the loop starts, and each that is put from then on.

use std::time::Duration;

use mica_store::{Key, KeyRange, Record, Signal, Store, WatchError};
use tokio_util::sync::CancellationToken;

use crate::error::ApiError;
use crate::pages::Pages;

/// Records read at once.
const PAGE: usize = 500;

/// How soon a range is read anew after the store failed.
const AGAIN: Duration = Duration::from_secs(1);

/// Calls `seen` with every record of a range, once it is there and whenever it is put, until stopped.
///
/// After a failure all records are seen again: whoever is called must not mind. `what` names the loop in the log.
pub async fn records(
    store: &dyn Store,
    range: &KeyRange,
    stop: &CancellationToken,
    what: &str,
    seen: impl Fn(&Key, &Record),
) {
    again(stop, what, || once(store, range, &seen)).await;
}

/// Follows something until stopped or until the store closes, and over again whenever that fails.
pub async fn again<F>(stop: &CancellationToken, what: &str, follow: impl Fn() -> F)
where
    F: Future<Output = Result<(), ApiError>>,
{
    let all = async {
        while let Err(error) = follow().await {
            tracing::warn!(%error, "{what}: interrupted; starting over");
            tokio::time::sleep(AGAIN).await;
        }
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = all => {}
    }
}

async fn once(store: &dyn Store, range: &KeyRange, seen: &impl Fn(&Key, &Record)) -> Result<(), ApiError> {
    let mut pages = Pages::new(store, range, PAGE);
    while let Some(page) = pages.next().await? {
        page.iter().for_each(|(key, record)| seen(key, record));
    }
    let mut changes = store.watch(range.clone(), pages.revision()).await?;
    loop {
        match changes.next().await {
            Ok(Signal::Event(event)) => {
                if let Some(record) = event.current() {
                    seen(&event.key, &record);
                }
            }
            Ok(Signal::Dropped(..)) => {}
            Err(WatchError::Closed) => return Ok(()),
            Err(error) => return Err(ApiError::unavailable("a watch ended").because(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mica_api::GroupResource;
    use mica_store::{MemStore, PlaneKeys, Txn, Write};
    use tokio::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn what_is_there_and_what_comes_is_seen_and_what_goes_is_not() {
        let store: Arc<dyn Store> = Arc::new(MemStore::new());
        let resource = GroupResource::new("mica.internal", "work");
        let key = |name: &str| PlaneKeys::ROOT.object(&resource, None, name);
        let commit = async |write: Write| {
            let txn = Txn {
                compares: Vec::new(),
                writes: vec![write],
            };
            store.commit(txn).await.unwrap()
        };
        let put = |name: &str| Write::Put {
            key: key(name),
            value: bytes::Bytes::from("x"),
            ttl: None,
        };
        commit(put("a")).await;
        let (tell, mut told) = mpsc::unbounded_channel();
        let stop = CancellationToken::new();
        let (following, stopped, range) = (store.clone(), stop.clone(), KeyRange::AllPlanes(resource.clone()));
        let task = tokio::spawn(async move {
            let seen = |key: &Key, record: &Record| tell.send((key.name().to_owned(), record.value.len())).unwrap();
            records(&*following, &range, &stopped, "a test", seen).await;
        });
        assert_eq!(told.recv().await, Some(("a".to_owned(), 1)));
        commit(put("b")).await;
        commit(Write::Delete { key: key("a") }).await;
        commit(put("c")).await;
        assert_eq!(told.recv().await, Some(("b".to_owned(), 1)));
        assert_eq!(told.recv().await, Some(("c".to_owned(), 1)));
        stop.cancel();
        task.await.unwrap();
        assert_eq!(told.recv().await, None);
    }
}

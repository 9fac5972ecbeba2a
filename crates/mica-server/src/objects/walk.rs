//! Walks objects of all kinds at one revision: a plane's, all planes', or those of one owner by way of the index.

use std::collections::VecDeque;
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt, stream};
use mica_api::PlaneId;
use mica_store::{Key, KeyRange, Page, RangeQuery, ReadError, Revision, Store};

use super::{Asked, Scope};
use crate::error::ApiError;
use crate::registry::owner;
use crate::stored::{Content, Stored};

/// How many records are read from the store at once.
const PAGE: usize = 500;
/// Objects that an index leads to are read this many at a time.
const CONCURRENT_READS: usize = 16;

/// One object of a walk.
pub struct Found {
    /// Where a walk that goes on after this object begins.
    pub cursor: Key,
    pub key: Key,
    pub stored: Stored,
}

/// An ordered walk. The first page pins the revision; later pages read the same one.
pub struct Walk {
    store: Arc<dyn Store>,
    scope: Scope,
    owner: Option<String>,
    at: Option<Revision>,
    after: Option<Key>,
    /// Whose index a walk over all planes' indexes is at.
    plane: Option<PlaneId>,
    buffer: VecDeque<Found>,
    finished: bool,
}

impl Walk {
    pub fn new(store: Arc<dyn Store>, asked: &Asked, at: Option<Revision>, after: Option<Key>) -> Self {
        let owner = asked.filter.owner().map(ToOwned::to_owned);
        let plane = match asked.scope {
            Scope::Plane(plane) => Some(plane),
            Scope::AllPlanes => after.as_ref().map(Key::plane),
        };
        Self {
            store,
            scope: asked.scope,
            owner,
            at,
            after,
            plane,
            buffer: VecDeque::new(),
            finished: false,
        }
    }

    /// The revision whose state this walk shows. Reads the first page if that has not happened.
    pub async fn revision(&mut self) -> Result<Revision, ReadError> {
        if self.at.is_none() {
            let range = self.scope.range();
            self.at = Some(self.read(&range, None, 1).await?.revision);
        }
        Ok(self.at.expect("it was just set"))
    }

    /// The next object; a filter has yet to be applied.
    pub async fn next(&mut self) -> Result<Option<Found>, ApiError> {
        while self.buffer.is_empty() && !self.finished {
            match self.owner.clone() {
                None => self.fill().await?,
                Some(owner) => self.fill_owned(&owner).await?,
            }
        }
        Ok(self.buffer.pop_front())
    }

    async fn read(&self, range: &KeyRange, after: Option<&Key>, limit: usize) -> Result<Page, ReadError> {
        self.store
            .range(RangeQuery {
                range,
                at: self.at,
                after,
                limit,
            })
            .await
    }

    async fn fill(&mut self) -> Result<(), ApiError> {
        let page = self.read(&self.scope.range(), self.after.as_ref(), PAGE).await?;
        self.at = Some(page.revision);
        self.finished = !page.more;
        for (key, record) in page.records {
            self.after = Some(key.clone());
            if self.scope == Scope::AllPlanes && key.plane() == PlaneId::ROOT {
                // Root has records about every plane: they are passed over in one step.
                self.after = Some(owner::end_of_plane(PlaneId::ROOT));
                self.finished = false;
                break;
            }
            if owner::is_internal(&key) {
                continue;
            }
            if let Content::Object(stored) = Content::read(&record)? {
                self.buffer.push_back(Found {
                    cursor: key.clone(),
                    key,
                    stored: stored.in_store_order(),
                });
            }
        }
        Ok(())
    }

    /// The next page of what the index says of an owner, in the plane where the walk is.
    async fn fill_owned(&mut self, uid: &str) -> Result<(), ApiError> {
        let Some(plane) = self.plane else {
            return self.next_index().await;
        };
        let page = self
            .read(&owner::owned_by(plane, uid), self.after.as_ref(), PAGE)
            .await?;
        self.at = Some(page.revision);
        self.after = page.records.last().map(|(record, _)| record.clone());
        let (store, at) = (&self.store, page.revision);
        let reads = page
            .records
            .into_iter()
            .filter_map(|(cursor, _)| Some((owner::object_of(&cursor)?, cursor)));
        let reads = stream::iter(reads).map(|(key, cursor)| async move { read_object(store, key, at, cursor).await });
        let found: Vec<Option<Found>> = reads.buffered(CONCURRENT_READS).try_collect().await?;
        self.buffer.extend(found.into_iter().flatten());
        match (page.more, self.scope) {
            (true, _) => Ok(()),
            (false, Scope::AllPlanes) => self.next_index().await,
            (false, Scope::Plane(_)) => {
                self.finished = true;
                Ok(())
            }
        }
    }

    /// Moves to the next plane that has an index. Each costs one look, whether it knows the owner or not: who knows the
    /// plane says so.
    async fn next_index(&mut self) -> Result<(), ApiError> {
        let mut after = self.plane.map(owner::end_of_index);
        self.after = None;
        loop {
            let page = self.read(&owner::indexes(), after.as_ref(), 1).await?;
            self.at = Some(page.revision);
            match page.records.first().map(|(first, _)| first.plane()) {
                Some(PlaneId::ROOT) => after = Some(owner::end_of_index(PlaneId::ROOT)),
                Some(plane) => {
                    self.plane = Some(plane);
                    return Ok(());
                }
                None => {
                    self.finished = true;
                    return Ok(());
                }
            }
        }
    }
}

/// The object that an index leads to, as it was at a revision.
async fn read_object(store: &Arc<dyn Store>, key: Key, at: Revision, cursor: Key) -> Result<Option<Found>, ApiError> {
    let range = KeyRange::One(key.clone());
    let page = store
        .range(RangeQuery {
            range: &range,
            at: Some(at),
            after: None,
            limit: 1,
        })
        .await?;
    let Some((_, record)) = page.records.into_iter().next() else {
        return Ok(None);
    };
    Ok(Content::read(&record)?.object().map(|stored| Found {
        cursor,
        key,
        stored: stored.in_store_order(),
    }))
}

//! Reading a whole range of the store: page after page, all as it was at one revision.

use mica_store::{Key, KeyRange, RangeQuery, Record, Revision, Store};

use crate::error::ApiError;

/// The pages of a range that are still to be read.
pub struct Pages<'a> {
    store: &'a dyn Store,
    range: &'a KeyRange,
    limit: usize,
    at: Option<Revision>,
    after: Option<Key>,
    done: bool,
}

impl<'a> Pages<'a> {
    /// All of a range, `limit` records at a time.
    pub fn new(store: &'a dyn Store, range: &'a KeyRange, limit: usize) -> Self {
        Self {
            store,
            range,
            limit,
            at: None,
            after: None,
            done: false,
        }
    }

    /// The next page; `None` after the last.
    pub async fn next(&mut self) -> Result<Option<Vec<(Key, Record)>>, ApiError> {
        if self.done {
            return Ok(None);
        }
        let query = RangeQuery {
            range: self.range,
            at: self.at,
            after: self.after.as_ref(),
            limit: self.limit,
        };
        let page = self.store.range(query).await?;
        self.at = Some(page.revision);
        self.after = page.records.last().map(|(key, _)| key.clone());
        self.done = !page.more || self.after.is_none();
        Ok(Some(page.records))
    }

    /// What the pages show the range at: known once the first is read.
    pub fn revision(&self) -> Revision {
        self.at.unwrap_or_default()
    }
}

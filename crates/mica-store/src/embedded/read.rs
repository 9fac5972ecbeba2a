//! What the store's parts share, and every read of it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Semaphore;

use super::cache::{Cache, Read};
use super::format::Entry;
use super::index::{Index, View};
use super::segment::{Loader, SegmentMap, Segments};
use crate::hub::Hub;
use crate::key::{Key, KeyRange};
use crate::store::{CommitError, Page, ReadError, Record, Revision, StoreStatus, Usage};

/// Why stored data could not be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum Damage {
    #[error("the store is closed")]
    Closed,
    #[error("{0}")]
    Corrupt(String),
    #[error("the index refers to log segment {segment:08x}, which is not there")]
    SegmentGone { segment: u32 },
    #[error("the log could not be read")]
    Io(#[source] io::Error),
    #[error("the index could not be read")]
    Index(#[source] lsm_tree::Error),
}

impl Damage {
    fn is_corruption(&self) -> bool {
        match self {
            Self::Corrupt(_) | Self::SegmentGone { .. } => true,
            Self::Closed | Self::Io(_) | Self::Index(lsm_tree::Error::Io(_)) => false,
            Self::Index(_) => true,
        }
    }

    pub(super) fn is_full(&self) -> bool {
        match self {
            Self::Io(error) | Self::Index(lsm_tree::Error::Io(error)) => super::disk::is_full(error),
            _ => false,
        }
    }

    /// The whole chain in one line.
    pub(super) fn text(&self) -> String {
        match std::error::Error::source(self) {
            Some(source) => format!("{self}: {source}"),
            None => self.to_string(),
        }
    }
}

impl From<Damage> for ReadError {
    fn from(damage: Damage) -> Self {
        if damage.is_corruption() {
            Self::Corrupt(damage.text())
        } else {
            Self::Unavailable(damage.into())
        }
    }
}

impl From<Damage> for CommitError {
    fn from(damage: Damage) -> Self {
        if damage.is_corruption() {
            Self::Corrupt(damage.text())
        } else {
            Self::Unavailable(damage.into())
        }
    }
}

/// Threads for reads that take a while. Each keeps some memory for as long as it is there.
const READERS: usize = 8;

/// What readers, the committer and the background work share.
pub(super) struct Engine {
    pub(super) index: Arc<Index>,
    pub(super) segments: Arc<Segments>,
    pub(super) hub: Hub,
    pub(super) cache: Cache,
    compacted: AtomicU64,
    /// What the index knows of planes' last changes is complete only after this revision.
    pub(super) planes_since: Revision,
    readers: Arc<Semaphore>,
}

impl Engine {
    pub(super) fn new(
        index: Arc<Index>,
        segments: Arc<Segments>,
        hub: Hub,
        cache: Cache,
        compacted: Revision,
        planes_since: Revision,
    ) -> Self {
        Self {
            index,
            segments,
            hub,
            cache,
            compacted: AtomicU64::new(compacted.0),
            planes_since,
            readers: Arc::new(Semaphore::new(READERS)),
        }
    }

    /// Does a read that takes a while, where it holds up nobody.
    pub(super) async fn blocking<T: Send + 'static>(
        self: &Arc<Self>,
        read: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Result<T, ReadError> {
        let permit = self.readers.clone().acquire_owned().await;
        let engine = self.clone();
        let reading = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            read(&engine)
        });
        reading.await.map_err(|error| ReadError::Unavailable(error.into()))
    }

    pub(super) fn compacted(&self) -> Revision {
        Revision(self.compacted.load(Ordering::Acquire))
    }

    /// Refuses reads before this revision from now on. What they would need may be forgotten afterwards.
    pub(super) fn set_compacted(&self, revision: Revision) {
        self.compacted.fetch_max(revision.0, Ordering::AcqRel);
    }

    /// The index and the log at one moment.
    pub(super) fn view(&self) -> Result<(View, Arc<SegmentMap>), Damage> {
        loop {
            let removals = self.segments.removals();
            let view = self.index.view()?;
            let segments = self.segments.map();
            // A segment removed in between may be one that the view still refers to.
            if self.segments.removals() == removals {
                return Ok((view, segments));
            }
        }
    }

    pub(super) fn loader<'a>(&'a self, segments: &'a SegmentMap) -> Loader<'a> {
        Loader {
            segments,
            disk: &**self.segments.disk(),
        }
    }

    pub(super) fn status(&self) -> StoreStatus {
        StoreStatus {
            revision: self.index.revision(),
            compacted: self.compacted(),
        }
    }

    pub(super) fn get(&self, key: &Key) -> Result<Option<Record>, Damage> {
        if let Some(record) = self.cache.get(key) {
            return Ok(Some(record));
        }
        let (view, segments) = self.view()?;
        let record = self.newest(key, &view, &segments)?;
        if let Some(record) = &record {
            self.cache.keep(key, record, view.revision());
        }
        Ok(record)
    }

    /// The same, and nothing is kept.
    pub(super) fn get_once(&self, key: &Key) -> Result<Option<Record>, Damage> {
        if let Some(record) = self.cache.get(key) {
            return Ok(Some(record));
        }
        let (view, segments) = self.view()?;
        self.newest(key, &view, &segments)
    }

    fn newest(&self, key: &Key, view: &View, segments: &SegmentMap) -> Result<Option<Record>, Damage> {
        let Some(entry) = view.version(key, view.revision())? else {
            return Ok(None);
        };
        let value = self.loader(segments).load(key.as_str(), &entry)?;
        Ok(Some(Record {
            value,
            revision: entry.revision,
        }))
    }

    /// A value by its place, for the committer.
    pub(super) fn load(&self, key: &Key, entry: &Entry) -> Result<bytes::Bytes, Damage> {
        if let Some(record) = self.cache.get(key).filter(|record| record.revision == entry.revision) {
            return Ok(record.value);
        }
        self.loader(&self.segments.map()).load(key.as_str(), entry)
    }

    /// A page that needs no reading: one of those read lately.
    pub(super) fn cached_range(
        &self,
        range: &KeyRange,
        at: Option<Revision>,
        after: Option<&Key>,
        limit: usize,
    ) -> Option<Page> {
        self.cache.page(range, self.readable(at)?, after, limit)
    }

    /// The revision that is asked for, if it can be read whatever has changed since. Taken before the cache is looked at,
    /// which may show a later state but tells.
    fn readable(&self, at: Option<Revision>) -> Option<Revision> {
        let newest = self.index.revision();
        let revision = at.unwrap_or(newest);
        (revision <= newest && revision >= self.compacted()).then_some(revision)
    }

    pub(super) fn range(
        &self,
        range: &KeyRange,
        at: Option<Revision>,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<Page, ReadError> {
        let page = self.list(range, at, after, limit, |_| true)?;
        Ok(page.expect("every page is wanted"))
    }

    /// The page of a range that holds no more than so many records; `None` if it does.
    pub(super) fn small_range(
        &self,
        range: &KeyRange,
        at: Option<Revision>,
        after: Option<&Key>,
        most: usize,
    ) -> Result<Option<Page>, ReadError> {
        self.list(range, at, after, most, |next| next.is_none())
    }

    /// Finds a page, and reads it if it is wanted for what follows it.
    fn list(
        &self,
        range: &KeyRange,
        at: Option<Revision>,
        after: Option<&Key>,
        limit: usize,
        is_wanted: impl FnOnce(Option<&Key>) -> bool,
    ) -> Result<Option<Page>, ReadError> {
        let (view, segments) = self.view()?;
        let (revision, read_at) = self.revisions(&view, range, at)?;
        let (entries, next) = view.list(range, read_at, after, limit)?;
        if !is_wanted(next.as_ref()) {
            return Ok(None);
        }
        let wanted: Vec<_> = entries.iter().map(|(key, entry)| (key.as_str(), *entry)).collect();
        let (values, value_bytes) = self.loader(&segments).load_many(&wanted)?;
        let records = entries.into_iter().zip(values);
        let records = records
            .map(|((key, entry), value)| {
                (
                    key,
                    Record {
                        value,
                        revision: entry.revision,
                    },
                )
            })
            .collect::<Vec<_>>();
        let more = next.is_some();
        if read_at == view.revision() {
            let read = Read {
                records: &records,
                next,
                value_bytes,
            };
            self.cache.keep_run(range, after, &read, read_at);
        }
        Ok(Some(Page {
            records,
            revision,
            more,
        }))
    }

    pub(super) fn get_many(&self, keys: &[Key], at: Revision) -> Result<Vec<Option<Record>>, ReadError> {
        let (view, segments) = self.view()?;
        let (mut wanted, mut places) = (Vec::new(), Vec::new());
        // Keys that are asked for together are mostly of one plane.
        let mut readable = None;
        for (place, key) in keys.iter().enumerate() {
            let read_at = match readable {
                Some((plane, read_at)) if plane == key.plane() => read_at,
                _ => self.revisions(&view, &KeyRange::One(key.clone()), Some(at))?.1,
            };
            readable = Some((key.plane(), read_at));
            if let Some(entry) = view.version(key, read_at)? {
                wanted.push((key.as_str(), entry));
                places.push(place);
            }
        }
        let (values, _) = self.loader(&segments).load_many(&wanted)?;
        let mut found = vec![None; keys.len()];
        for ((place, (_, entry)), value) in places.into_iter().zip(wanted).zip(values) {
            let revision = entry.revision;
            found[place] = Some(Record { value, revision });
        }
        Ok(found)
    }

    /// The revision that a read is of, and one that a view can be read at to see the same.
    fn revisions(
        &self,
        view: &View,
        range: &KeyRange,
        at: Option<Revision>,
    ) -> Result<(Revision, Revision), ReadError> {
        let revision = at.unwrap_or_else(|| view.revision());
        if revision > view.revision() {
            return Err(ReadError::Future {
                current: view.revision(),
            });
        }
        if self.is_quiet_since(view, range, revision)? {
            return Ok((revision, view.revision()));
        }
        self.check_not_compacted(revision)?;
        Ok((revision, revision))
    }

    /// A count that needs no reading.
    pub(super) fn cached_count(&self, range: &KeyRange, at: Option<Revision>, after: Option<&Key>) -> Option<u64> {
        self.cache.count(range, self.readable(at)?, after)
    }

    /// How many records of a range follow a key.
    pub(super) fn count(&self, range: &KeyRange, at: Option<Revision>, after: Option<&Key>) -> Result<u64, ReadError> {
        let (view, _) = self.view()?;
        let (_, read_at) = self.revisions(&view, range, at)?;
        Ok(view.count(range, read_at, after)?)
    }

    pub(super) fn usage(&self, range: &KeyRange) -> Result<Usage, Damage> {
        self.view()?.0.usage(range)
    }

    /// Whether a range lies in a plane that has not changed since a revision: then the newest state is that state.
    pub(super) fn is_quiet_since(&self, view: &View, range: &KeyRange, since: Revision) -> Result<bool, Damage> {
        if since >= view.revision() {
            return Ok(true);
        }
        match range.plane() {
            Some(plane) => Ok(self.planes_since <= since && view.last_change(plane)? <= since),
            None => Ok(false),
        }
    }

    /// Asked after the view was taken: what a compaction removed before that it has announced before that.
    pub(super) fn check_not_compacted(&self, revision: Revision) -> Result<(), ReadError> {
        let compacted = self.compacted();
        if revision < compacted {
            Err(ReadError::Expired { compacted })
        } else {
            Ok(())
        }
    }

    /// From where a watch has to look for changes: later than asked if nothing happened until then.
    pub(super) fn watch_from(&self, range: &KeyRange, after: Revision) -> Result<Revision, ReadError> {
        let (view, _) = self.view()?;
        if self.is_quiet_since(&view, range, after)? {
            return Ok(after.max(view.revision()));
        }
        self.check_not_compacted(after)?;
        Ok(after)
    }
}

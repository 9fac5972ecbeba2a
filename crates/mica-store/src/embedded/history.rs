//! What a watch missed since it was last here, read from the index and the log.
//!
//! Finding changes costs a look at every key of the range, so many are found at once and their values loaded page by page.
//! Only places are kept meanwhile; if a segment was removed since they were found, they are found again.

use std::collections::VecDeque;
use std::sync::Arc;

use async_trait::async_trait;

use super::format::Entry;
use super::index::View;
use super::index::changes::{Found, FoundChange};
use super::read::{Damage, Engine};
use super::segment::Loader;
use crate::hub::{History, HistoryPage};
use crate::key::{Key, KeyRange};
use crate::store::{Change, Event, ReadError, Record, Revision, Signal, WatchError};

/// Changes found with one look at the range. Their places take about 200 bytes each.
const SCAN: usize = 32 << 10;
/// Changes in one page.
const PAGE: usize = 2048;
/// Bytes of values loaded for one page, beyond the first.
const PAGE_BYTES: u64 = 8 << 20;

/// The history of one watch.
pub(super) struct LogHistory {
    engine: Arc<Engine>,
    range: KeyRange,
    found: Findings,
}

#[derive(Default)]
struct Findings {
    /// Changes not handed out yet, in order.
    changes: VecDeque<Found>,
    /// They are all there are after this revision...
    after: Revision,
    /// ...up to this one.
    complete_to: Revision,
    /// What [`super::segment::Segments::removals`] said before they were looked for.
    removals: u64,
}

impl LogHistory {
    pub(super) fn new(engine: Arc<Engine>, range: KeyRange) -> Self {
        Self {
            engine,
            range,
            found: Findings::default(),
        }
    }
}

#[async_trait]
impl History for LogHistory {
    async fn page(&mut self, after: Revision) -> Result<HistoryPage, WatchError> {
        let (engine, range, mut found) = (self.engine.clone(), self.range.clone(), std::mem::take(&mut self.found));
        let read = tokio::task::spawn_blocking(move || {
            let page = found.page(&engine, &range, after);
            (page, found)
        });
        let Ok((page, found)) = read.await else {
            return Err(WatchError::Closed);
        };
        self.found = found;
        page.map_err(|error| {
            if !matches!(error, ReadError::Expired { .. }) {
                tracing::error!(%error, "the history of a watch could not be read");
            }
            WatchError::Lagged
        })
    }
}

impl Findings {
    fn page(&mut self, engine: &Engine, range: &KeyRange, after: Revision) -> Result<HistoryPage, ReadError> {
        let removals = engine.segments.removals();
        let (view, segments) = engine.view()?;
        // Asked again after the segments were taken: if nothing was removed up to now, they are all among them.
        let outdated = self.removals != engine.segments.removals();
        if self.changes.is_empty() || self.after != after || outdated {
            *self = Self::look(engine, &view, range, after)?;
            self.removals = removals;
        }
        let loader = engine.loader(&segments);
        let (mut signals, mut bytes) = (Vec::new(), 0);
        while signals.len() < PAGE
            && bytes < PAGE_BYTES
            && let Some(found) = self.changes.pop_front()
        {
            self.after = found.revision;
            signals.push(signal(&view, &loader, found, &mut bytes)?);
        }
        if self.changes.is_empty() {
            // A watch that has caught up keeps no room for the next time.
            self.changes = VecDeque::new();
            self.after = self.complete_to;
        }
        Ok(HistoryPage {
            signals,
            covered: self.after,
        })
    }

    fn look(engine: &Engine, view: &View, range: &KeyRange, after: Revision) -> Result<Self, ReadError> {
        let mut findings = Self {
            after,
            complete_to: view.revision(),
            ..Self::default()
        };
        if engine.is_quiet_since(view, range, after)? {
            return Ok(findings);
        }
        engine.check_not_compacted(after)?;
        let (changes, complete_to) = view.changes(range, after, SCAN)?;
        findings.changes = changes.into();
        findings.complete_to = complete_to.unwrap_or(findings.complete_to);
        Ok(findings)
    }
}

/// A change with its values.
fn signal(view: &View, loader: &Loader<'_>, found: Found, bytes: &mut u64) -> Result<Signal, Damage> {
    let Found { revision, change } = found;
    let (key, put, previous) = match change {
        FoundChange::Dropped(plane) => return Ok(Signal::Dropped(plane, revision)),
        FoundChange::Put(key, entry) => {
            let previous = view.replaced_by(&key, revision)?;
            (key, Some(entry), previous)
        }
        FoundChange::Delete(key, entry) => (key, None, Some(entry)),
    };
    let mut load = |key: &Key, entry: Entry| -> Result<Record, Damage> {
        *bytes += u64::from(entry.value_len);
        let value = loader.load(key.as_str(), &entry)?;
        Ok(Record {
            value,
            revision: entry.revision,
        })
    };
    let put = put.map(|entry| load(&key, entry)).transpose()?;
    let previous = previous.map(|entry| load(&key, entry)).transpose()?;
    let change = put.map_or(Change::Delete, |record| Change::Put(record.value));
    Ok(Signal::Event(Arc::new(Event::new(key, revision, change, previous))))
}

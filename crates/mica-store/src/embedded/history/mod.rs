//! What a watch missed since it was last here, out of the log, page by page.
//!
//! Changes are found in one of two ways, whichever costs less. A look at every key of the range ([`found`]) costs what the
//! range holds, however much others wrote: good for a plane that comes back after minutes. Reading the log from where the
//! watch was ([`logged`]) costs what was written since, however much the range holds: good for who is a little behind with
//! a kind of all planes, and it leaves the caches to others.

mod found;
mod logged;

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

use super::format::Entry;
use super::index::View;
use super::read::{Damage, Engine};
use super::segment::SegmentMap;
use crate::hub::{History, HistoryPage};
use crate::key::{Key, KeyRange};
use crate::store::{Change, Event, ReadError, Record, Revision, Signal, WatchError};
use found::Findings;
use logged::Place;

/// Bytes of log that are read in the time that a look at one key takes, about.
const KEY_COSTS: u64 = 4 << 10;
/// Changes in one page.
const PAGE: usize = 512;
/// Bytes of values loaded for one page, beyond the first. Many watches can be behind at once.
const PAGE_BYTES: usize = 1 << 20;

/// The history of one watch.
pub(super) struct LogHistory {
    engine: Arc<Engine>,
    range: KeyRange,
    source: Source,
}

enum Source {
    Unknown,
    Keys(Findings),
    Log(Place),
}

impl LogHistory {
    pub(super) fn new(engine: Arc<Engine>, range: KeyRange) -> Self {
        Self {
            engine,
            range,
            source: Source::Unknown,
        }
    }
}

#[async_trait]
impl History for LogHistory {
    async fn page(&mut self, after: Revision) -> Result<HistoryPage, WatchError> {
        let range = self.range.clone();
        let mut source = std::mem::replace(&mut self.source, Source::Unknown);
        let read = self.engine.blocking(move |engine| {
            let page = source.page(engine, &range, after);
            (page, source)
        });
        let Ok((page, source)) = read.await else {
            return Err(WatchError::Closed);
        };
        self.source = source;
        page.map_err(|error| {
            if !matches!(error, ReadError::Expired { .. }) {
                tracing::error!(%error, "the history of a watch could not be read");
            }
            WatchError::Lagged
        })
    }
}

impl Source {
    fn page(&mut self, engine: &Engine, range: &KeyRange, after: Revision) -> Result<HistoryPage, ReadError> {
        let removals = engine.segments.removals();
        let (view, segments) = engine.view()?;
        if engine.is_quiet_since(&view, range, after)? {
            return Ok(HistoryPage {
                signals: Vec::new(),
                covered: view.revision(),
            });
        }
        engine.check_not_compacted(after)?;
        if matches!(self, Self::Unknown) {
            let place = Place::after(&segments, after);
            let as_costly = usize::try_from(place.bytes_behind(&segments) / KEY_COSTS).unwrap_or(usize::MAX);
            *self = match view.holds_more_than(range, as_costly)? {
                true => Self::Log(place),
                false => Self::Keys(Findings::default()),
            };
        }
        let mut page = Page {
            engine,
            view: &view,
            segments: &segments,
            signals: Vec::new(),
            bytes: 0,
        };
        let covered = match self {
            Self::Keys(findings) => findings.read(&mut page, range, after, removals)?,
            Self::Log(place) => place.read(&mut page, range, after)?,
            Self::Unknown => unreachable!("chosen above"),
        };
        Ok(HistoryPage {
            signals: page.signals,
            covered,
        })
    }
}

/// A page being put together.
struct Page<'a> {
    engine: &'a Engine,
    view: &'a View,
    segments: &'a SegmentMap,
    signals: Vec<Signal>,
    bytes: usize,
}

impl Page<'_> {
    fn is_full(&self) -> bool {
        self.signals.len() >= PAGE || self.bytes >= PAGE_BYTES
    }

    fn load(&self, key: &Key, entry: &Entry) -> Result<Record, Damage> {
        let value = self.engine.loader(self.segments).load(key.as_str(), entry)?;
        let revision = entry.revision;
        Ok(Record { value, revision })
    }

    fn change(&mut self, key: Key, revision: Revision, put: Option<Bytes>, previous: Option<Record>) {
        let length = |value: Option<&Bytes>| value.map_or(0, Bytes::len);
        self.bytes += length(put.as_ref()) + length(previous.as_ref().map(|record| &record.value));
        let change = put.map_or(Change::Delete, Change::Put);
        let event = Event::new(key, revision, change, previous);
        self.signals.push(Signal::Event(Arc::new(event)));
    }

    fn dropped(&mut self, plane: mica_api::PlaneId, revision: Revision) {
        self.signals.push(Signal::Dropped(plane, revision));
    }
}

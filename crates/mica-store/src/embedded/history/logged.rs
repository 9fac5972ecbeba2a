//! Changes read out of the log, where they are in the order in which they happened.
//!
//! Segments that hold changes after the last compaction are never removed, so whoever may ask for a change finds it here.

use std::sync::Arc;

use bytes::Bytes;
use mica_api::PlaneId;

use super::Page;
use crate::embedded::format::{Kind, LogRecord, records_of};
use crate::embedded::read::Damage;
use crate::embedded::scan::{Extent, FrameScanner};
use crate::embedded::segment::{Segment, SegmentMap};
use crate::key::{Key, KeyRange};
use crate::store::Revision;

/// Bytes of log looked at for one page: others want the thread, too.
const LOOK: u64 = 16 << 20;
/// Bytes of log read at once. Many watches can be behind at once.
const WINDOW: usize = 64 << 10;

/// The beginning of a frame that no change up to a revision follows.
pub(super) struct Place {
    after: Revision,
    segment: u32,
    offset: u64,
}

impl Place {
    /// A place not far before the first change after a revision.
    pub(super) fn after(segments: &SegmentMap, revision: Revision) -> Self {
        let begins_before = |segment: &&Arc<Segment>| segment.header.base_revision <= revision;
        let segment = segments.values().rev().find(begins_before);
        Self {
            after: revision,
            segment: segment.map_or(0, |segment| segment.number()),
            offset: segment.map_or(0, |segment| segment.place_after(revision)),
        }
    }

    /// How much of the log follows.
    pub(super) fn bytes_behind(&self, segments: &SegmentMap) -> u64 {
        let ends = segments.range(self.segment..).map(|(_, segment)| segment.end());
        ends.sum::<u64>().saturating_sub(self.offset)
    }

    /// Fills a page with what follows a revision, and says how far it reaches.
    pub(super) fn read(&mut self, page: &mut Page<'_>, range: &KeyRange, after: Revision) -> Result<Revision, Damage> {
        let newest = page.view.revision();
        if self.after != after {
            *self = Self::after(page.segments, after);
        }
        let (first, offset) = (self.segment, self.offset);
        let disk = &**page.engine.segments.disk();
        let (segments, mut covered, mut looked) = (page.segments, after, 0);
        for (number, segment) in segments.range(first..) {
            // All of a segment that was passed may be compacted, and the segment removed.
            let from = if *number == first { offset } else { 0 };
            let extent = Extent::Known(segment.end());
            let mut scanner = FrameScanner::new(segment, disk, extent, from)?.with_window(WINDOW);
            while let Some((offset, frame)) = scanner.next_frame()? {
                looked += frame.len() as u64;
                for record in records_of(frame, *number, offset) {
                    let (record, _) = record.map_err(|at| {
                        Damage::Corrupt(format!("{} at offset {at}: a record is damaged", segment.name))
                    })?;
                    // Copies of older versions are among the changes, with their own revisions.
                    let happened = !matches!(record.kind, Kind::Carried | Kind::Compact);
                    if !happened || record.revision <= after {
                        continue;
                    }
                    if record.revision > newest {
                        // Durable, and not visible yet.
                        *self = Self {
                            after: newest,
                            segment: *number,
                            offset,
                        };
                        return Ok(newest);
                    }
                    if covered > after && (page.is_full() || looked >= LOOK) {
                        *self = Self {
                            after: covered,
                            segment: *number,
                            offset,
                        };
                        return Ok(covered);
                    }
                    covered = record.revision;
                    add(page, range, &record)?;
                }
            }
            *self = Self {
                after: newest,
                segment: *number,
                offset: scanner.offset(),
            };
        }
        Ok(newest)
    }
}

/// Puts a change into a page if it is in the range.
fn add(page: &mut Page<'_>, range: &KeyRange, record: &LogRecord<'_>) -> Result<(), Damage> {
    let damaged = || Damage::Corrupt(format!("the key of revision {} is not one", record.revision));
    let text = std::str::from_utf8(record.key).map_err(|_| damaged())?;
    let revision = record.revision;
    match record.kind {
        Kind::Carried | Kind::Compact | Kind::Advance => return Ok(()),
        Kind::DropPlane => {
            let plane = PlaneId::parse(text).map_err(|_| damaged())?;
            page.dropped(plane, revision);
            return Ok(());
        }
        Kind::Put | Kind::Delete => {}
    }
    let key = Key::from_stored(text).ok_or_else(damaged)?;
    if !range.contains(&key) {
        return Ok(());
    }
    // The version before may have been carried on from where it was.
    let previous = match record.previous {
        Some(entry) if !page.segments.contains_key(&entry.position.segment) => {
            page.view.superseded_by(&key, revision)?
        }
        unmoved => unmoved,
    };
    let previous = previous.map(|entry| page.load(&key, &entry)).transpose()?;
    let put = (record.kind == Kind::Put).then(|| Bytes::copy_from_slice(record.value));
    page.change(key, revision, put, previous);
    Ok(())
}

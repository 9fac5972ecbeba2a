//! The end of the log that is written to. Owned by the committer; nobody else writes.
//!
//! One frame is written and synced at a time. After a write or sync that failed it is unknown what is on the disk, so the
//! log goes on in a new segment whose header says how much of the old one counts: what lies behind is disowned, and a
//! crash cannot bring it back. Until such a segment exists nothing more is written.

use std::io;
use std::sync::Arc;

use super::disk::{Disk, is_full};
use super::format::{FRAME_ALIGN, FRAME_HEADER, FrameBuilder, SEGMENT_HEADER, SegmentHeader, StoreId};
use super::prepare::{Preparer, Purpose, RoomError};
use super::segment::{Segment, Segments};
use crate::store::Revision;

/// Left at the end of a segment for writes that free space, while there is no next one yet.
const TAIL_RESERVE: u64 = 256 << 10;
/// A sealed segment gives back what it did not use if that is at least this much.
const TRIM: u64 = 64 << 10;

/// Sizes of segments: they grow with the log, so that a small store is small and a large one has few files.
#[derive(Clone, Copy, Debug)]
pub(super) struct SegmentSizes {
    pub(super) smallest: u64,
    pub(super) largest: u64,
}

impl SegmentSizes {
    pub(super) fn for_log_of(&self, bytes: u64) -> u64 {
        (bytes / 16).clamp(self.smallest, self.largest).next_multiple_of(4096)
    }
}

/// What a new segment's header records of the store.
#[derive(Clone, Copy, Debug)]
pub(super) struct Marks {
    pub(super) newest: Revision,
    pub(super) compacted: Revision,
}

pub(super) struct Log {
    store: StoreId,
    segments: Arc<Segments>,
    preparer: Preparer,
    sizes: SegmentSizes,
    active: Option<Active>,
    /// Number of the segment before the active one and what counts of it, for the next header.
    sealed: Option<(u32, u64)>,
    /// Bytes of all sealed segments that count.
    sealed_bytes: u64,
    buffer: Vec<u8>,
}

struct Active {
    segment: Arc<Segment>,
    capacity: u64,
    /// Everything before is acknowledged or about to be.
    tail: u64,
    /// Set when it is unknown what lies behind `tail`, or when a successor may already be on the disk.
    closed: bool,
}

/// Where recovery found the log's end.
pub(super) struct LogEnd {
    /// The last segment, how much of it counts, and whether it can be written to further.
    pub(super) last: Option<(Arc<Segment>, u64, Reuse)>,
    pub(super) sealed_bytes: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reuse {
    Continue,
    StartNew,
}

impl Log {
    pub(super) fn new(
        store: StoreId,
        segments: Arc<Segments>,
        preparer: Preparer,
        sizes: SegmentSizes,
        end: LogEnd,
    ) -> io::Result<Self> {
        let LogEnd { last, mut sealed_bytes } = end;
        let (mut active, mut sealed) = (None, None);
        match last {
            Some((segment, tail, Reuse::Continue)) => {
                let capacity = segment.file.length()?;
                sealed = segment
                    .number()
                    .checked_sub(1)
                    .map(|number| (number, segment.header.previous_length));
                active = Some(Active {
                    segment,
                    capacity,
                    tail,
                    closed: false,
                });
            }
            Some((segment, tail, Reuse::StartNew)) => {
                sealed = Some((segment.number(), tail));
                sealed_bytes += tail;
                trim(&segment, tail);
            }
            None => {}
        }
        Ok(Self {
            store,
            segments,
            preparer,
            sizes,
            active,
            sealed,
            sealed_bytes,
            buffer: Vec::new(),
        })
    }

    pub(super) fn store(&self) -> StoreId {
        self.store
    }

    /// Bytes of the whole log that count.
    pub(super) fn bytes(&self) -> u64 {
        self.sealed_bytes + self.active.as_ref().map_or(0, |active| active.tail)
    }

    /// Segment and offset behind the last frame.
    pub(super) fn end(&self) -> Option<(u32, u64)> {
        match &self.active {
            Some(active) => Some((active.segment.number(), active.tail)),
            None => self.sealed,
        }
    }

    /// Makes sure that a frame with `payload` bytes of records can be written next.
    pub(super) fn make_room(&mut self, payload: usize, purpose: Purpose, marks: Marks) -> Result<(), RoomError> {
        let needed = (FRAME_HEADER + payload) as u64;
        if let Some(active) = self.active.as_ref().filter(|active| !active.closed) {
            let left = active.capacity.saturating_sub(active.tail);
            let kept = if purpose == Purpose::Grow && self.preparer.is_full() {
                TAIL_RESERVE
            } else {
                0
            };
            if left >= needed + kept {
                return Ok(());
            }
        }
        self.roll(needed, purpose, marks)
    }

    /// Starts a frame at the end of the log. Room has been made for it.
    pub(super) fn frame(&mut self) -> FrameBuilder {
        let active = self.active.as_ref().expect("room has been made");
        FrameBuilder::new(std::mem::take(&mut self.buffer), active.segment.number(), active.tail)
    }

    /// Takes back a frame that nothing was added to.
    pub(super) fn recycle(&mut self, frame: FrameBuilder) {
        self.buffer = frame.into_buffer();
    }

    /// Makes a frame durable, all of whose changes are after a revision.
    pub(super) fn append(&mut self, mut frame: FrameBuilder, before: Revision) -> io::Result<()> {
        let active = self.active.as_mut().expect("room has been made");
        let bytes = frame.finish(&self.store);
        debug_assert!(
            active.tail + bytes.len() as u64 <= active.capacity,
            "a frame outgrew the room made for it"
        );
        let written = active
            .segment
            .file
            .write_all_at(bytes, active.tail)
            .and_then(|()| active.segment.file.sync());
        match written {
            Ok(()) => {
                let start = active.tail;
                active.tail = (start + bytes.len() as u64).next_multiple_of(FRAME_ALIGN);
                active.segment.grew(before, start, active.tail);
            }
            Err(_) => active.closed = true,
        }
        self.buffer = frame.into_buffer();
        // One huge transaction must not pin its buffer for ever.
        if self.buffer.capacity() > 8 << 20 {
            self.buffer = Vec::new();
        }
        written
    }

    /// After a failed append: makes it certain that the frame never happened.
    pub(super) fn disown_tail(&mut self, marks: Marks) -> Result<(), RoomError> {
        self.roll(FRAME_HEADER as u64, Purpose::Reclaim, marks)
    }

    /// Goes on in a new segment.
    fn roll(&mut self, needed: u64, purpose: Purpose, marks: Marks) -> Result<(), RoomError> {
        self.preparer.want(self.sizes.for_log_of(self.bytes()));
        let prepared = self.preparer.take(needed + SEGMENT_HEADER, purpose)?;
        let previous = self
            .active
            .as_ref()
            .map(|active| (active.segment.number(), active.tail))
            .or(self.sealed);
        let number = previous.map_or(1, |(number, _)| number + 1);
        let header = SegmentHeader {
            store: self.store,
            segment: number,
            previous_length: previous.map_or(0, |(_, length)| length),
            base_revision: marks.newest,
            compacted: marks.compacted,
        };
        let disk = self.segments.disk().clone();
        let started = start_segment(&*disk, &*prepared.file, &prepared.name, &header);
        if let Err((error, Stage::Named)) = &started
            && let Some(active) = &mut self.active
        {
            // A crash may now find the successor, which says that nothing more was added here.
            tracing::warn!(%error, "a new log segment could not be made durable");
            active.closed = true;
        }
        if let Err((error, _)) = started {
            let _ = disk.remove(&prepared.name);
            return Err(if is_full(&error) {
                RoomError::Full
            } else {
                RoomError::Io(error)
            });
        }
        let name = Segment::file_name(number);
        let segment = Arc::new(Segment::new(header, name, prepared.file));
        segment.ends_at(SEGMENT_HEADER);
        self.segments.insert(segment.clone());
        if let Some(old) = self.active.take() {
            self.sealed_bytes += old.tail;
            trim(&old.segment, old.tail);
        }
        self.sealed = previous;
        self.active = Some(Active {
            segment,
            capacity: prepared.capacity,
            tail: SEGMENT_HEADER,
            closed: false,
        });
        Ok(())
    }

    /// Takes a removed segment out of the account.
    pub(super) fn forget(&mut self, bytes: u64) {
        self.sealed_bytes = self.sealed_bytes.saturating_sub(bytes);
        self.preparer.retry();
    }
}

enum Stage {
    Unnamed,
    Named,
}

/// The header first, durable, and only then the name: a file with a segment's name always has a whole header.
fn start_segment(
    disk: &dyn Disk,
    file: &dyn super::disk::DiskFile,
    from: &str,
    header: &SegmentHeader,
) -> Result<(), (io::Error, Stage)> {
    let unnamed = |error| (error, Stage::Unnamed);
    file.write_all_at(&header.encode(), 0).map_err(unnamed)?;
    file.sync().map_err(unnamed)?;
    let named = |error| (error, Stage::Named);
    disk.rename(from, &Segment::file_name(header.segment)).map_err(named)?;
    disk.sync_names().map_err(named)
}

fn trim(segment: &Segment, used: u64) {
    let unused = segment.file.length().map_or(0, |length| length.saturating_sub(used));
    if unused >= TRIM {
        // Only a matter of space: whatever this does, the part that counts stays.
        let _ = segment.file.set_len(used);
    }
}

//! Opening: from the files to a running store.
//!
//! The log decides. The index is used if its checkpoint fits the log, and the log is replayed from there; otherwise the
//! index is thrown away and rebuilt from the whole log.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::disk::{Disk, DiskFile};
use super::format::{FORMAT_VERSION, HeaderError, Kind, SEGMENT_HEADER, SegmentHeader, StoreId, records_of};
use super::index::Index;
use super::index::batch::{Batch, Origin};
use super::index::checkpoint::Checkpoint;
use super::log::{LogEnd, Reuse};
use super::prepare::SPARE;
use super::read::Damage;
use super::scan::{Extent, FrameScanner};
use super::segment::{Segment, Segments};
use super::{OpenError, Options};
use crate::store::Revision;

/// The revision of an empty store: positive, as every revision is.
const FIRST: Revision = Revision(1);
/// Changes to the index applied at once during replay.
const REPLAY_BATCH: usize = 16 << 10;

/// What was found, ready to go on from.
pub(super) struct Recovered {
    pub(super) store: StoreId,
    pub(super) index: Arc<Index>,
    pub(super) segments: Arc<Segments>,
    pub(super) end: LogEnd,
    pub(super) newest: Revision,
    pub(super) compacted: Revision,
    pub(super) planes_since: Revision,
    pub(super) live: BTreeMap<u32, u64>,
}

pub(super) fn recover(directory: &Path, disk: &Arc<dyn Disk>, options: &Options) -> Result<Recovered, OpenError> {
    let found = find_segments(&**disk)?;
    let index_directory = directory.join("index");
    let Some(last) = found.last() else {
        let index = new_index(&index_directory, options)?;
        index.apply(&mut Batch::default(), FIRST);
        return Ok(Recovered {
            store: StoreId::random(),
            index: Arc::new(index),
            segments: Arc::new(Segments::new(disk.clone(), [])),
            end: LogEnd {
                last: None,
                sealed_bytes: 0,
            },
            newest: FIRST,
            compacted: Revision(0),
            planes_since: Revision(0),
            live: BTreeMap::new(),
        });
    };
    let store = last.header.store;
    let checkpoint = Checkpoint::read(&index_directory).filter(|checkpoint| fits(checkpoint, &found));
    let opened = checkpoint.and_then(
        |checkpoint| match Index::open(&index_directory, options.index_cache_bytes) {
            Ok(index) => Some((index, checkpoint)),
            Err(damage) => {
                tracing::warn!(damage = damage.text(), "the index is damaged");
                None
            }
        },
    );
    let (index, mut replay) = match opened {
        Some((index, checkpoint)) => (index, Replay::from_checkpoint(checkpoint)),
        None => {
            tracing::warn!(directory = %index_directory.display(), "the index is rebuilt from the log");
            (new_index(&index_directory, options)?, Replay::from_start(&found))
        }
    };
    let clean_end = replay.clean.then_some((replay.segment, replay.offset));
    let end = replay.run(&index, &found, &**disk, options.checkpoint_memory_bytes)?;
    if replay.rebuilt {
        replay.planes_since = replay.compacted;
    }
    // What was replayed is served from now on, so it has to be there after the next crash too.
    last.file.sync().map_err(|source| OpenError::Io {
        what: "sync the log",
        source,
    })?;
    let reuse = if clean_end == Some((last.number(), end)) {
        Reuse::Continue
    } else {
        Reuse::StartNew
    };
    for (segment, next) in found.iter().zip(found.iter().skip(1)) {
        segment.ends_at(next.header.previous_length);
    }
    last.ends_at(end);
    let sealed_bytes = found.iter().skip(1).map(|segment| segment.header.previous_length).sum();
    Ok(Recovered {
        store,
        index: Arc::new(index),
        segments: Arc::new(Segments::new(disk.clone(), found.iter().cloned())),
        end: LogEnd {
            last: Some((last.clone(), end, reuse)),
            sealed_bytes,
        },
        newest: replay.newest,
        compacted: replay.compacted,
        planes_since: replay.planes_since,
        live: replay.live,
    })
}

fn new_index(directory: &Path, options: &Options) -> Result<Index, OpenError> {
    let io = |source| OpenError::Io {
        what: "make the index",
        source,
    };
    match std::fs::remove_dir_all(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(io(error)),
        _ => {}
    }
    std::fs::create_dir_all(directory).map_err(io)?;
    Ok(Index::open(directory, options.index_cache_bytes)?)
}

/// Every segment, in order, with nothing missing between them.
pub(super) fn find_segments(disk: &dyn Disk) -> Result<Vec<Arc<Segment>>, OpenError> {
    let io = |source| OpenError::Io {
        what: "read the log's directory",
        source,
    };
    let mut numbers = Vec::new();
    for name in disk.list().map_err(io)? {
        if let Some(number) = Segment::number_in(&name) {
            numbers.push(number);
        } else if name.starts_with(SPARE) {
            disk.remove(&name).map_err(io)?;
        }
    }
    numbers.sort_unstable();
    let mut segments: Vec<Arc<Segment>> = Vec::new();
    for number in numbers {
        let segment = open_segment(disk, number)?;
        if let Some(before) = segments.last() {
            let gap = before.number() + 1 != number;
            if gap || before.header.store != segment.header.store {
                let what = if gap {
                    "segments before it are missing"
                } else {
                    "it belongs to another store"
                };
                return Err(OpenError::Corrupt(format!("{}: {what}", disk.describe(&segment.name))));
            }
        }
        segments.push(Arc::new(segment));
    }
    Ok(segments)
}

fn open_segment(disk: &dyn Disk, number: u32) -> Result<Segment, OpenError> {
    let name = Segment::file_name(number);
    let io = |source| OpenError::Io {
        what: "read a log segment",
        source,
    };
    let file = disk.open(&name).map_err(io)?;
    let path = disk.describe(&name);
    let corrupt = |what: &str| OpenError::Corrupt(format!("{path} at offset 0: {what}"));
    let header = read_header(&*file).map_err(io)?;
    let header = SegmentHeader::decode(&header).map_err(|error| match error {
        HeaderError::Newer(found) => OpenError::Newer {
            path: path.clone(),
            found,
            known: FORMAT_VERSION,
        },
        HeaderError::NotASegment => corrupt("this is not a log segment"),
        HeaderError::Damaged => corrupt("the header's checksum does not match"),
    })?;
    if header.segment != number {
        return Err(corrupt("the header is another segment's"));
    }
    Ok(Segment::new(header, name, file))
}

fn read_header(file: &dyn DiskFile) -> std::io::Result<Vec<u8>> {
    let length = file.length()?.min(SEGMENT_HEADER);
    let mut bytes = vec![0; length as usize];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// Whether a checkpoint is about this log: if not, replaying from it would miss or mistake something.
fn fits(checkpoint: &Checkpoint, segments: &[Arc<Segment>]) -> bool {
    let (Some(first), Some(last)) = (segments.first(), segments.last()) else {
        return false;
    };
    let Some(position) = checkpoint.segment.checked_sub(first.number()) else {
        return false;
    };
    let end = match extent(segments, position as usize) {
        Extent::Known(end) => end,
        Extent::Open => last.file.length().unwrap_or(0),
    };
    checkpoint.store == last.header.store
        && checkpoint.segment <= last.number()
        && (SEGMENT_HEADER..=end).contains(&checkpoint.offset)
}

/// How much of each segment counts: the next one says.
pub(super) fn extent(segments: &[Arc<Segment>], position: usize) -> Extent {
    match segments.get(position + 1) {
        Some(next) => Extent::Known(next.header.previous_length),
        None => Extent::Open,
    }
}

/// Applies the log to the index from some place on.
struct Replay {
    segment: u32,
    offset: u64,
    clean: bool,
    rebuilt: bool,
    newest: Revision,
    compacted: Revision,
    planes_since: Revision,
    live: BTreeMap<u32, u64>,
}

impl Replay {
    fn from_checkpoint(checkpoint: Checkpoint) -> Self {
        Self {
            segment: checkpoint.segment,
            offset: checkpoint.offset,
            clean: checkpoint.clean,
            rebuilt: false,
            newest: checkpoint.revision.max(FIRST),
            compacted: checkpoint.compacted,
            planes_since: checkpoint.planes_since,
            live: checkpoint.live,
        }
    }

    fn from_start(segments: &[Arc<Segment>]) -> Self {
        Self {
            segment: segments.first().map_or(0, |segment| segment.number()),
            offset: SEGMENT_HEADER,
            clean: false,
            rebuilt: true,
            newest: FIRST,
            compacted: Revision(0),
            planes_since: Revision(0),
            live: BTreeMap::new(),
        }
    }

    /// Returns where the last segment ends.
    fn run(
        &mut self,
        index: &Index,
        segments: &[Arc<Segment>],
        disk: &dyn Disk,
        memory_bytes: u64,
    ) -> Result<u64, OpenError> {
        let mut batch = Batch::default();
        let mut end = 0;
        for (position, segment) in segments.iter().enumerate() {
            self.newest = self.newest.max(segment.header.base_revision);
            self.compacted = self.compacted.max(segment.header.compacted);
            if segment.number() < self.segment {
                continue;
            }
            let from = if segment.number() == self.segment {
                self.offset
            } else {
                SEGMENT_HEADER
            };
            let mut scanner = FrameScanner::new(segment, disk, extent(segments, position), from)?;
            while let Some((offset, frame)) = scanner.next_frame()? {
                for record in records_of(frame, segment.number(), offset) {
                    let Ok((record, entry)) = record else {
                        let what = format!("{}: a record in the frame at {offset} is damaged", segment.name);
                        return Err(OpenError::Corrupt(what));
                    };
                    self.note(&record, &entry);
                    batch.record(&record, &entry, Origin::Replayed);
                }
                if batch.len() >= REPLAY_BATCH {
                    self.apply(index, &mut batch, memory_bytes)?;
                }
            }
            end = scanner.offset();
        }
        self.apply(index, &mut batch, memory_bytes)?;
        index.count_dropped()?;
        Ok(end)
    }

    fn note(&mut self, record: &super::format::LogRecord<'_>, entry: &super::format::Entry) {
        match record.kind {
            Kind::Compact => self.compacted = self.compacted.max(record.revision),
            Kind::Put | Kind::Carried => {
                *self.live.entry(entry.position.segment).or_default() += u64::from(entry.position.length);
            }
            Kind::Delete | Kind::DropPlane | Kind::Advance => {}
        }
        if record.kind != Kind::Compact {
            self.newest = self.newest.max(record.revision);
        }
    }

    fn apply(&self, index: &Index, batch: &mut Batch, memory_bytes: u64) -> Result<(), Damage> {
        index.apply(batch, self.newest);
        if index.unwritten_bytes() >= memory_bytes {
            index.seal();
            index.flush()?;
        }
        Ok(())
    }
}

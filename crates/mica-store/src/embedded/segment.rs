//! The log's files as readers see them: which there are, and the values in them.
//!
//! A segment's bytes never change once they are acknowledged, so readers share them without a lock. A segment that was
//! removed stays readable for whoever still holds it.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};

use super::disk::{Disk, DiskFile};
use super::format::{Entry, LogRecord, SEGMENT_HEADER, SegmentHeader};
use super::read::Damage;
use crate::store::Revision;

/// Records read with one call to the file system when they lie close together.
const CHUNK: u64 = 256 << 10;
/// Bytes between two records that are read along rather than skipped.
const GAP: u64 = 4 << 10;

/// Bytes of log between two places that are remembered by their revision.
const MARK_EVERY: u64 = 256 << 10;

pub(super) struct Segment {
    pub(super) header: SegmentHeader,
    pub(super) name: String,
    pub(super) file: Arc<dyn DiskFile>,
    written: Mutex<Written>,
}

/// How far a segment is written, and where in it some revisions are.
#[derive(Default)]
struct Written {
    /// Every frame before is whole and durable.
    end: u64,
    /// Revisions and offsets, ascending: no change up to the revision lies behind the offset.
    marks: Vec<(Revision, u64)>,
}

impl Segment {
    pub(super) fn new(header: SegmentHeader, name: String, file: Arc<dyn DiskFile>) -> Self {
        let written = Mutex::default();
        Self {
            header,
            name,
            file,
            written,
        }
    }

    /// Where what counts of it ends: everything that a view of the index shows is before.
    pub(super) fn end(&self) -> u64 {
        self.written.lock().end
    }

    pub(super) fn ends_at(&self, end: u64) {
        self.written.lock().end = end;
    }

    /// A frame was added. No change up to `before` is in it or follows it.
    pub(super) fn grew(&self, before: Revision, frame: u64, end: u64) {
        let mut written = self.written.lock();
        let last = written.marks.last().map_or(SEGMENT_HEADER, |(_, offset)| *offset);
        if frame >= last + MARK_EVERY {
            written.marks.push((before, frame));
        }
        written.end = end;
    }

    /// The beginning of a frame that no change up to a revision follows, not far before the first that does.
    pub(super) fn place_after(&self, revision: Revision) -> u64 {
        let written = self.written.lock();
        let passed = written.marks.partition_point(|(before, _)| *before <= revision);
        passed.checked_sub(1).map_or(SEGMENT_HEADER, |at| written.marks[at].1)
    }

    pub(super) fn number(&self) -> u32 {
        self.header.segment
    }

    pub(super) fn file_name(number: u32) -> String {
        format!("{number:08x}.seg")
    }

    /// The number in a segment's file name, `None` if it is not one.
    pub(super) fn number_in(name: &str) -> Option<u32> {
        let digits = name.strip_suffix(".seg").filter(|digits| digits.len() == 8)?;
        u32::from_str_radix(digits, 16).ok()
    }
}

pub(super) type SegmentMap = BTreeMap<u32, Arc<Segment>>;

/// The segments there are now. Clones of the map stay as they are.
pub(super) struct Segments {
    disk: Arc<dyn Disk>,
    map: RwLock<Arc<SegmentMap>>,
    removals: AtomicU64,
}

impl Segments {
    pub(super) fn new(disk: Arc<dyn Disk>, segments: impl IntoIterator<Item = Arc<Segment>>) -> Self {
        let map = segments
            .into_iter()
            .map(|segment| (segment.number(), segment))
            .collect();
        Self {
            disk,
            map: RwLock::new(Arc::new(map)),
            removals: AtomicU64::new(0),
        }
    }

    pub(super) fn map(&self) -> Arc<SegmentMap> {
        self.map.read().clone()
    }

    /// Changes whenever a segment is removed.
    pub(super) fn removals(&self) -> u64 {
        self.removals.load(Ordering::Acquire)
    }

    pub(super) fn insert(&self, segment: Arc<Segment>) {
        Arc::make_mut(&mut *self.map.write()).insert(segment.number(), segment);
    }

    /// Removes the file. Whoever reads it can finish.
    pub(super) fn remove(&self, number: u32) -> io::Result<()> {
        let removed = Arc::make_mut(&mut *self.map.write()).remove(&number);
        self.removals.fetch_add(1, Ordering::Release);
        removed.map_or(Ok(()), |segment| self.disk.remove(&segment.name))
    }

    pub(super) fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }
}

/// Reads values out of a fixed set of segments.
pub(super) struct Loader<'a> {
    pub(super) segments: &'a SegmentMap,
    pub(super) disk: &'a dyn Disk,
}

impl Loader<'_> {
    /// The value of one version of a key.
    pub(super) fn load(&self, key: &str, entry: &Entry) -> Result<Bytes, Damage> {
        let position = entry.position;
        let mut bytes = vec![0; position.length as usize];
        self.read(position.segment, position.offset.into(), &mut bytes)?;
        let start = self.verify(&bytes, key, entry)?;
        Ok(Bytes::from(bytes).slice(start..))
    }

    /// The value of one version of a key, and when it expires.
    pub(super) fn load_with_expiry(&self, key: &str, entry: &Entry) -> Result<(Bytes, Option<u64>), Damage> {
        let position = entry.position;
        let mut bytes = vec![0; position.length as usize];
        self.read(position.segment, position.offset.into(), &mut bytes)?;
        let start = self.verify(&bytes, key, entry)?;
        let expires = LogRecord::decode(&bytes).and_then(|(record, _)| record.expires);
        Ok((Bytes::from(bytes).slice(start..), expires))
    }

    /// The values of many versions, in their order, and the bytes of memory that hold them. Neighbours in the log are read
    /// together and share memory.
    pub(super) fn load_many(&self, wanted: &[(&str, Entry)]) -> Result<(Vec<Bytes>, usize), Damage> {
        let mut by_place: Vec<usize> = (0..wanted.len()).collect();
        by_place.sort_unstable_by_key(|index| wanted[*index].1.position);
        let mut values = vec![Bytes::new(); wanted.len()];
        let mut memory = 0;
        let mut rest = by_place.as_slice();
        while let Some(first) = rest.first() {
            let segment = wanted[*first].1.position.segment;
            let start = u64::from(wanted[*first].1.position.offset);
            let mut end = start;
            let fits = |index: &usize, end: &mut u64| {
                let position = wanted[*index].1.position;
                let next_end = u64::from(position.offset) + u64::from(position.length);
                let near = u64::from(position.offset) <= *end + GAP && next_end <= start + CHUNK;
                let first = *end == start;
                let together = position.segment == segment && (first || near);
                if together {
                    *end = next_end.max(*end);
                }
                together
            };
            let count = rest.iter().take_while(|index| fits(index, &mut end)).count();
            let (together, later) = rest.split_at(count);
            rest = later;
            let mut chunk = vec![0; usize::try_from(end - start).expect("a chunk is in memory")];
            self.read(segment, start, &mut chunk)?;
            let chunk = Bytes::from(chunk);
            let place = |index: &usize| {
                let position = wanted[*index].1.position;
                let from = (u64::from(position.offset) - start) as usize;
                from..from + position.length as usize
            };
            let wanted_bytes: usize = together.iter().map(|index| place(index).len()).sum();
            // What lies between them would be held as long as they are.
            let is_sparse = chunk.len() > 2 * wanted_bytes;
            memory += if is_sparse { wanted_bytes } else { chunk.len() };
            for index in together {
                let (key, entry) = &wanted[*index];
                let record = match is_sparse {
                    true => Bytes::copy_from_slice(&chunk[place(index)]),
                    false => chunk.slice(place(index)),
                };
                let value_start = self.verify(&record, key, entry)?;
                values[*index] = record.slice(value_start..);
            }
        }
        Ok((values, memory))
    }

    fn read(&self, segment: u32, offset: u64, bytes: &mut [u8]) -> Result<(), Damage> {
        let found = self.segments.get(&segment).ok_or(Damage::SegmentGone { segment })?;
        found
            .file
            .read_exact_at(bytes, offset)
            .map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => self.corrupt(segment, offset, "the file is too short"),
                _ => Damage::Io(error),
            })
    }

    /// Checks that a record is whole and the one that was asked for; says where its value begins.
    fn verify(&self, bytes: &[u8], key: &str, entry: &Entry) -> Result<usize, Damage> {
        let position = entry.position;
        let corrupt = |what| Err(self.corrupt(position.segment, position.offset.into(), what));
        let Some((record, length)) = LogRecord::decode(bytes) else {
            return corrupt("the checksum does not match");
        };
        let same = record.key == key.as_bytes() && record.revision == entry.revision && length == position.length;
        if same {
            Ok(bytes.len() - record.value.len())
        } else {
            corrupt("another record is there")
        }
    }

    fn corrupt(&self, segment: u32, offset: u64, what: &str) -> Damage {
        let name = self
            .segments
            .get(&segment)
            .map_or_else(String::new, |segment| self.disk.describe(&segment.name));
        Damage::Corrupt(format!("{name} at offset {offset}: {what}"))
    }
}

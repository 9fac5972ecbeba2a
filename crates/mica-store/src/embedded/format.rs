//! The bytes of the log: segment headers, frames and records. `docs/design/embedded-store.md` describes them.
//!
//! A segment is a header and a sequence of frames; a frame is what one group commit wrote and is valid as a whole or not at
//! all; a record is one change inside a frame, with a checksum of its own so that it can be read alone.
//! All numbers are little-endian. A frame's checksum is seeded with the store, the segment and the offset, so bytes that
//! were valid elsewhere are not valid here. Zeros are never a valid frame: the rest of a fresh segment reads as its end.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::store::Revision;

/// What this program writes, and the newest it can read.
pub const FORMAT_VERSION: u32 = 1;

/// Room for the segment header: one disk sector, so that writing the first frame does not touch it.
pub(super) const SEGMENT_HEADER: u64 = 512;
pub(super) const FRAME_HEADER: usize = 32;
/// Frames begin at multiples of this, which bounds the search for one behind damage.
pub(super) const FRAME_ALIGN: u64 = 8;
/// A record without key and value, with every optional field.
pub(super) const RECORD_MAX_OVERHEAD: usize = 24 + Entry::BYTES + 8 + 9;

const SEGMENT_MAGIC: &[u8; 8] = b"MICALOG\0";
const FRAME_MAGIC: u32 = u32::from_le_bytes(*b"MFRM");

/// Which store a file belongs to. Random, made with the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct StoreId(pub(super) [u8; 16]);

impl StoreId {
    pub(super) fn random() -> Self {
        Self(rand::random())
    }

    fn seed(&self, segment: u32, offset: u64) -> u64 {
        let id = u64::from_le_bytes(self.0[..8].try_into().expect("eight bytes of sixteen"));
        id ^ u64::from(segment).rotate_left(32) ^ offset
    }
}

/// Where a record lies.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Position {
    pub(super) segment: u32,
    pub(super) offset: u32,
    pub(super) length: u32,
}

/// One version of a key, as the index and later records refer to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    pub(super) revision: Revision,
    pub(super) position: Position,
    pub(super) value_len: u32,
}

impl Entry {
    pub(super) const BYTES: usize = 24;

    pub(super) fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.revision.0.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.position.segment.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.position.offset.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.position.length.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.value_len.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        Some(Self {
            revision: Revision(fields.u64()?),
            position: Position {
                segment: fields.u32()?,
                offset: fields.u32()?,
                length: fields.u32()?,
            },
            value_len: fields.u32()?,
        })
    }
}

/// When and how a version ceased to be the newest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct End {
    pub(super) revision: Revision,
    pub(super) kind: EndKind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum EndKind {
    Replaced = 1,
    Deleted = 2,
    /// Its plane was dropped.
    Dropped = 3,
}

impl End {
    pub(super) const BYTES: usize = 9;

    pub(super) fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.revision.0.to_le_bytes());
        bytes[8] = self.kind as u8;
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        let revision = Revision(fields.u64()?);
        let kind = match fields.u8()? {
            1 => EndKind::Replaced,
            2 => EndKind::Deleted,
            3 => EndKind::Dropped,
            _ => return None,
        };
        Some(Self { revision, kind })
    }
}

/// What a record says happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum Kind {
    /// The key has this value from this revision on.
    Put = 1,
    /// The key is absent from this revision on.
    Delete = 2,
    /// A version from an earlier segment, written again so that the segment can go. Changes nothing.
    Carried = 3,
    /// The plane that is the key is gone from this revision on.
    DropPlane = 4,
    /// States before this revision may be forgotten. Has no revision of its own.
    Compact = 5,
    /// Nothing happened up to this revision: the next write has a greater one.
    Advance = 6,
}

/// One record, borrowed from the bytes it was read from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct LogRecord<'a> {
    pub(super) kind: Kind,
    pub(super) revision: Revision,
    /// The version that a put or delete superseded.
    pub(super) previous: Option<Entry>,
    /// When the key expires, in milliseconds since 1970.
    pub(super) expires: Option<u64>,
    /// For a carried version that is not the newest any more.
    pub(super) end: Option<End>,
    pub(super) key: &'a [u8],
    pub(super) value: &'a [u8],
}

const HAS_PREVIOUS: u8 = 1;
const HAS_EXPIRY: u8 = 2;
const HAS_END: u8 = 4;

impl<'a> LogRecord<'a> {
    /// Appends the record, and returns its length.
    pub(super) fn encode(&self, out: &mut Vec<u8>) -> u32 {
        let start = out.len();
        out.extend_from_slice(&[0; 12]);
        out.push(self.kind as u8);
        let flag = |present: bool, flag: u8| if present { flag } else { 0 };
        out.push(
            flag(self.previous.is_some(), HAS_PREVIOUS)
                | flag(self.expires.is_some(), HAS_EXPIRY)
                | flag(self.end.is_some(), HAS_END),
        );
        let key_len = u16::try_from(self.key.len()).expect("keys are checked before they are written");
        out.extend_from_slice(&key_len.to_le_bytes());
        out.extend_from_slice(&self.revision.0.to_le_bytes());
        if let Some(previous) = &self.previous {
            out.extend_from_slice(&previous.encode());
        }
        if let Some(expires) = self.expires {
            out.extend_from_slice(&expires.to_le_bytes());
        }
        if let Some(end) = &self.end {
            out.extend_from_slice(&end.encode());
        }
        out.extend_from_slice(self.key);
        out.extend_from_slice(self.value);
        let length = u32::try_from(out.len() - start).expect("transactions are checked before they are written");
        out[start..start + 4].copy_from_slice(&length.to_le_bytes());
        let checksum = xxh3_64_with_seed(&out[start + 12..], u64::from(length));
        out[start + 4..start + 12].copy_from_slice(&checksum.to_le_bytes());
        length
    }

    /// Reads the record that fills `bytes` from their beginning; the rest is ignored. `None` if it is damaged.
    pub(super) fn decode(bytes: &'a [u8]) -> Option<(Self, u32)> {
        let mut fields = Fields(bytes);
        let length = fields.u32()?;
        let checksum = fields.u64()?;
        let body = bytes.get(12..length as usize)?;
        if xxh3_64_with_seed(body, u64::from(length)) != checksum {
            return None;
        }
        let mut fields = Fields(body);
        let kind = match fields.u8()? {
            1 => Kind::Put,
            2 => Kind::Delete,
            3 => Kind::Carried,
            4 => Kind::DropPlane,
            5 => Kind::Compact,
            6 => Kind::Advance,
            _ => return None,
        };
        let flags = fields.u8()?;
        let key_len = fields.u16()?;
        let revision = Revision(fields.u64()?);
        let previous = if flags & HAS_PREVIOUS != 0 {
            Some(Entry::decode(fields.take(Entry::BYTES)?)?)
        } else {
            None
        };
        let expires = if flags & HAS_EXPIRY != 0 {
            Some(fields.u64()?)
        } else {
            None
        };
        let end = if flags & HAS_END != 0 {
            Some(End::decode(fields.take(End::BYTES)?)?)
        } else {
            None
        };
        let key = fields.take(key_len.into())?;
        Some((
            Self {
                kind,
                revision,
                previous,
                expires,
                end,
                key,
                value: fields.0,
            },
            length,
        ))
    }
}

/// The records of one group commit, being put together at a known place in the log.
pub(super) struct FrameBuilder {
    bytes: Vec<u8>,
    segment: u32,
    offset: u64,
    count: u32,
}

impl FrameBuilder {
    pub(super) fn new(mut bytes: Vec<u8>, segment: u32, offset: u64) -> Self {
        bytes.clear();
        bytes.resize(FRAME_HEADER, 0);
        Self {
            bytes,
            segment,
            offset,
            count: 0,
        }
    }

    /// Adds a record, and returns how to refer to it.
    pub(super) fn push(&mut self, record: &LogRecord<'_>) -> Entry {
        let offset = u32::try_from(self.offset + self.bytes.len() as u64).expect("segments are smaller than 4 GiB");
        let length = record.encode(&mut self.bytes);
        self.count += 1;
        Entry {
            revision: record.revision,
            position: Position {
                segment: self.segment,
                offset,
                length,
            },
            value_len: u32::try_from(record.value.len()).expect("a value is shorter than its record"),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Seals the frame and gives its bytes.
    pub(super) fn finish(&mut self, store: &StoreId) -> &[u8] {
        let length = u32::try_from(self.bytes.len()).expect("frames are smaller than 4 GiB");
        self.bytes[..4].copy_from_slice(&FRAME_MAGIC.to_le_bytes());
        self.bytes[4..8].copy_from_slice(&length.to_le_bytes());
        self.bytes[16..20].copy_from_slice(&self.count.to_le_bytes());
        let checksum = frame_checksum(&self.bytes, store, self.segment, self.offset);
        self.bytes[8..16].copy_from_slice(&checksum.to_le_bytes());
        &self.bytes
    }

    /// Seals bytes that were put behind a frame's header by other means.
    pub(super) fn reseal(bytes: Vec<u8>, segment: u32, offset: u64, store: &StoreId) -> Vec<u8> {
        let mut frame = Self {
            bytes,
            segment,
            offset,
            count: 1,
        };
        frame.finish(store);
        frame.bytes
    }

    pub(super) fn into_buffer(self) -> Vec<u8> {
        self.bytes
    }
}

/// Whether a frame could begin with these bytes, and how long it says it is.
pub(super) fn frame_length(header: &[u8]) -> Option<usize> {
    let mut fields = Fields(header);
    let (magic, length) = (fields.u32()?, fields.u32()? as usize);
    (magic == FRAME_MAGIC && length >= FRAME_HEADER).then_some(length)
}

/// Whether a whole frame's bytes are what was written there.
pub(super) fn frame_is_valid(bytes: &[u8], store: &StoreId, segment: u32, offset: u64) -> bool {
    frame_length(bytes) == Some(bytes.len())
        && bytes[8..16] == frame_checksum(bytes, store, segment, offset).to_le_bytes()
}

fn frame_checksum(bytes: &[u8], store: &StoreId, segment: u32, offset: u64) -> u64 {
    xxh3_64_with_seed(
        &bytes[16..],
        store.seed(segment, offset) ^ (bytes.len() as u64).rotate_left(48),
    )
}

/// The records of a valid frame with their entries; an error is the offset of a damaged one.
pub(super) fn records_of(
    frame: &[u8],
    segment: u32,
    offset: u64,
) -> impl Iterator<Item = Result<(LogRecord<'_>, Entry), u64>> {
    let mut at = FRAME_HEADER;
    std::iter::from_fn(move || {
        let rest = frame.get(at..).filter(|rest| !rest.is_empty())?;
        let place = offset + at as u64;
        let Some((record, length)) = LogRecord::decode(rest) else {
            at = frame.len();
            return Some(Err(place));
        };
        at += length as usize;
        let position = Position {
            segment,
            offset: u32::try_from(place).unwrap_or(u32::MAX),
            length,
        };
        let value_len = u32::try_from(record.value.len()).unwrap_or(u32::MAX);
        let entry = Entry {
            revision: record.revision,
            position,
            value_len,
        };
        Some(Ok((record, entry)))
    })
}

/// The first bytes of a segment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct SegmentHeader {
    pub(super) store: StoreId,
    pub(super) segment: u32,
    /// How much of the segment before counts. What may lie behind that was never acknowledged.
    pub(super) previous_length: u64,
    /// The newest revision before this segment.
    pub(super) base_revision: Revision,
    /// The last compaction before this segment.
    pub(super) compacted: Revision,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum HeaderError {
    NotASegment,
    /// Written by a program that knows more than this one.
    Newer(u32),
    Damaged,
}

impl SegmentHeader {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(SEGMENT_HEADER as usize);
        bytes.extend_from_slice(SEGMENT_MAGIC);
        bytes.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes.extend_from_slice(&[0; 12]);
        bytes.extend_from_slice(&self.store.0);
        bytes.extend_from_slice(&self.segment.to_le_bytes());
        for number in [self.previous_length, self.base_revision.0, self.compacted.0] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.resize(SEGMENT_HEADER as usize, 0);
        let checksum = xxh3_64_with_seed(&bytes[24..], u64::from(FORMAT_VERSION));
        bytes[16..24].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, HeaderError> {
        if bytes.len() < SEGMENT_HEADER as usize || &bytes[..8] != SEGMENT_MAGIC {
            return Err(HeaderError::NotASegment);
        }
        let version = u32::from_le_bytes(bytes[8..12].try_into().expect("four bytes"));
        if version > FORMAT_VERSION {
            return Err(HeaderError::Newer(version));
        }
        let checksum = xxh3_64_with_seed(&bytes[24..SEGMENT_HEADER as usize], u64::from(version));
        if bytes[16..24] != checksum.to_le_bytes() {
            return Err(HeaderError::Damaged);
        }
        let mut fields = Fields(&bytes[24..]);
        let mut read = || {
            Some(Self {
                store: StoreId(fields.take(16)?.try_into().ok()?),
                segment: fields.u32()?,
                previous_length: fields.u64()?,
                base_revision: Revision(fields.u64()?),
                compacted: Revision(fields.u64()?),
            })
        };
        read().ok_or(HeaderError::Damaged)
    }
}

/// Reads numbers off the front of bytes.
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    pub(super) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        Some(self.take(1)?[0])
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes(self.take(2)?.try_into().ok()?))
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STORE: StoreId = StoreId([7; 16]);

    fn frame() -> Vec<u8> {
        let mut frame = FrameBuilder::new(Vec::new(), 3, 512);
        let put = LogRecord {
            kind: Kind::Put,
            revision: Revision(9),
            previous: None,
            expires: Some(77),
            end: None,
            key: b"root//things/a",
            value: b"value",
        };
        let entry = frame.push(&put);
        let end = Some(End {
            revision: Revision(10),
            kind: EndKind::Deleted,
        });
        frame.push(&LogRecord {
            kind: Kind::Carried,
            previous: Some(entry),
            expires: None,
            end,
            ..put
        });
        frame.finish(&STORE).to_vec()
    }

    #[test]
    fn a_frame_gives_back_its_records() {
        let bytes = frame();
        assert!(frame_is_valid(&bytes, &STORE, 3, 512));
        let records: Vec<_> = records_of(&bytes, 3, 512).collect::<Result<_, _>>().unwrap();
        assert_eq!(records.len(), 2);
        assert_eq!(
            (records[0].0.key, records[0].0.value),
            (&b"root//things/a"[..], &b"value"[..])
        );
        assert_eq!(records[0].0.expires, Some(77));
        assert_eq!(records[1].0.previous, Some(records[0].1));
        assert_eq!(records[1].0.end.unwrap().kind, EndKind::Deleted);
        let at = records[1].1.position;
        let alone = &bytes[(u64::from(at.offset) - 512) as usize..];
        assert_eq!(LogRecord::decode(alone).unwrap(), (records[1].0.clone(), at.length));
    }

    #[test]
    fn a_frame_is_valid_only_where_it_was_written_and_unchanged() {
        let bytes = frame();
        assert!(!frame_is_valid(&bytes, &STORE, 3, 520));
        assert!(!frame_is_valid(&bytes, &STORE, 4, 512));
        assert!(!frame_is_valid(&bytes, &StoreId([8; 16]), 3, 512));
        for position in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[position] ^= 0x10;
            let reserved = (20..32).contains(&position);
            assert!(
                !frame_is_valid(&damaged, &STORE, 3, 512),
                "byte {position} (reserved: {reserved})"
            );
        }
        assert!(!frame_is_valid(&bytes[..bytes.len() - 1], &STORE, 3, 512));
        assert_eq!(frame_length(&[0; 64]), None);
    }

    #[test]
    fn a_damaged_record_is_not_read() {
        let mut bytes = Vec::new();
        let record = LogRecord {
            kind: Kind::Delete,
            revision: Revision(1),
            previous: None,
            expires: None,
            end: None,
            key: b"k",
            value: b"",
        };
        record.encode(&mut bytes);
        for position in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[position] ^= 1;
            assert_eq!(LogRecord::decode(&damaged), None, "byte {position}");
        }
        assert_eq!(LogRecord::decode(&bytes[..bytes.len() - 1]), None);
        assert_eq!(LogRecord::decode(&[]), None);
    }

    #[test]
    fn a_header_says_who_can_read_it() {
        let header = SegmentHeader {
            store: STORE,
            segment: 5,
            previous_length: 1234,
            base_revision: Revision(88),
            compacted: Revision(7),
        };
        let bytes = header.encode();
        assert_eq!(SegmentHeader::decode(&bytes), Ok(header));
        let mut newer = bytes.clone();
        newer[8] = 9;
        assert_eq!(SegmentHeader::decode(&newer), Err(HeaderError::Newer(9)));
        let mut damaged = bytes.clone();
        damaged[60] ^= 1;
        assert_eq!(SegmentHeader::decode(&damaged), Err(HeaderError::Damaged));
        assert_eq!(SegmentHeader::decode(&[0; 512]), Err(HeaderError::NotASegment));
    }
}

//! Reading any bytes as if they were the log's, for fuzzing: nothing else may use it.
//!
//! Checksums would stop every input but those that were written here, so each is also read with its checksums made right:
//! that is what bytes look like which a broken program wrote and a sound disk kept.

use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::disk::Disk;
use super::disk::sim::SimDisk;
use super::format::{
    End, Entry, FRAME_HEADER, FrameBuilder, LogRecord, SEGMENT_HEADER, SegmentHeader, StoreId, frame_is_valid,
    frame_length, records_of,
};
use super::recover::{extent, find_segments};
use super::scan::FrameScanner;
use super::segment::Segment;
use crate::store::Revision;

const STORE: StoreId = StoreId([7; 16]);

/// Reads the bytes in every way the log reads any, and panics if one that was understood does not print as it was.
pub fn probe(bytes: &[u8]) {
    let _ = SegmentHeader::decode(bytes);
    let _ = (frame_length(bytes), frame_is_valid(bytes, &STORE, 1, SEGMENT_HEADER));
    if let Some(entry) = Entry::decode(bytes) {
        assert_eq!(entry.encode(), bytes[..Entry::BYTES]);
    }
    if let Some(end) = End::decode(bytes) {
        assert_eq!(end.encode(), bytes[..End::BYTES]);
    }
    let sealed = sealed_record(bytes);
    for bytes in [bytes, &sealed] {
        if let Some((record, length)) = LogRecord::decode(bytes) {
            let mut again = Vec::new();
            record.encode(&mut again);
            let (back, _) = LogRecord::decode(&again).expect("what was written can be read");
            assert_eq!(back, record);
            assert!(length as usize <= bytes.len());
        }
    }
    probe_segment(bytes);
    probe_segment(&sealed);
}

/// The bytes as a record's body, with the length and the checksum that belong to them.
fn sealed_record(body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 12).expect("inputs are small");
    let checksum = xxh3_64_with_seed(body, u64::from(length));
    [&length.to_le_bytes()[..], &checksum.to_le_bytes(), body].concat()
}

/// Reads a segment whose one frame, or whatever follows its header, is these bytes.
fn probe_segment(bytes: &[u8]) {
    let header = SegmentHeader {
        store: STORE,
        segment: 1,
        previous_length: 0,
        base_revision: Revision(0),
        compacted: Revision(0),
    };
    let mut frame = FrameBuilder::new(Vec::new(), 1, SEGMENT_HEADER).into_buffer();
    frame.extend_from_slice(bytes);
    let sealed = FrameBuilder::reseal(frame, 1, SEGMENT_HEADER, &STORE);
    for rest in [bytes, &sealed] {
        for result in records_of(rest, 1, SEGMENT_HEADER).take(rest.len() / FRAME_HEADER + 1) {
            let _ = result;
        }
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(0));
        let file = disk.create(&Segment::file_name(1)).expect("a simulated disk has room");
        let whole = [&header.encode()[..], rest].concat();
        file.write_all_at(&whole, 0).expect("a simulated disk has room");
        let Ok(segments) = find_segments(&*disk) else { continue };
        for (at, segment) in segments.iter().enumerate() {
            let Ok(mut scanner) = FrameScanner::new(segment, &*disk, extent(&segments, at), 0) else {
                continue;
            };
            while let Ok(Some((offset, frame))) = scanner.next_frame() {
                assert!(records_of(frame, 1, offset).count() <= frame.len());
            }
        }
    }
}

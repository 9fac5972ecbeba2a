//! Reading the log from end to end: recovery, rebuilding the index, cleaning and checking.
//!
//! A frame that does not verify is damage if anything acknowledged can follow it. Only at the very end of the last segment
//! is it the ordinary trace of a crash: one frame is written at a time, and the next only after it is durable, so a torn
//! frame has no valid one behind it.

use super::disk::Disk;
use super::format::{FRAME_ALIGN, FRAME_HEADER, SEGMENT_HEADER, StoreId, frame_is_valid, frame_length};
use super::read::Damage;
use super::segment::Segment;

/// Bytes read at once.
const WINDOW: usize = 1 << 20;

/// How much of a segment counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Extent {
    /// Up to here, by the word of the segment that follows.
    Known(u64),
    /// It is the last: up to the first bytes that are not a frame.
    Open,
}

/// Walks the frames of one segment.
pub(super) struct FrameScanner<'a> {
    segment: &'a Segment,
    disk: &'a dyn Disk,
    store: StoreId,
    extent: Extent,
    /// Where the next frame begins.
    offset: u64,
    file_len: u64,
    window: Vec<u8>,
    window_bytes: usize,
    window_start: u64,
}

impl<'a> FrameScanner<'a> {
    pub(super) fn new(segment: &'a Segment, disk: &'a dyn Disk, extent: Extent, from: u64) -> Result<Self, Damage> {
        let file_len = segment.file.length().map_err(Damage::Io)?;
        let offset = from.max(SEGMENT_HEADER);
        let store = segment.header.store;
        let mut scanner = Self {
            segment,
            disk,
            store,
            extent,
            offset,
            file_len,
            window: Vec::new(),
            window_bytes: WINDOW,
            window_start: 0,
        };
        if let Extent::Known(end) = extent
            && (end > file_len || offset > end)
        {
            return Err(scanner.corrupt(file_len, "the file is too short"));
        }
        scanner.window_start = offset;
        Ok(scanner)
    }

    /// Reads fewer bytes at once.
    pub(super) fn with_window(self, window_bytes: usize) -> Self {
        Self { window_bytes, ..self }
    }

    /// Where the frames read so far end.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// The next frame and its offset; `None` at the end of what counts.
    pub(super) fn next_frame(&mut self) -> Result<Option<(u64, &[u8])>, Damage> {
        let start = self.offset;
        let end = self.end();
        if start >= end {
            return Ok(None);
        }
        let Some(length) = self.valid_frame_at(start, end)? else {
            return match self.extent {
                Extent::Known(_) => Err(self.corrupt(start, "a frame's checksum does not match")),
                Extent::Open => self.check_torn_tail().map(|()| None),
            };
        };
        self.offset = (start + length as u64).next_multiple_of(FRAME_ALIGN);
        let from = (start - self.window_start) as usize;
        Ok(Some((start, &self.window[from..from + length])))
    }

    fn end(&self) -> u64 {
        match self.extent {
            Extent::Known(end) => end,
            Extent::Open => self.file_len,
        }
    }

    /// The length of the valid frame at an offset; its bytes are in the window then.
    fn valid_frame_at(&mut self, start: u64, end: u64) -> Result<Option<usize>, Damage> {
        if start + FRAME_HEADER as u64 > end {
            return Ok(None);
        }
        self.fill(start, FRAME_HEADER)?;
        let from = (start - self.window_start) as usize;
        let Some(length) = frame_length(&self.window[from..]) else {
            return Ok(None);
        };
        if start + length as u64 > end {
            return Ok(None);
        }
        self.fill(start, length)?;
        let from = (start - self.window_start) as usize;
        let frame = &self.window[from..from + length];
        Ok(frame_is_valid(frame, &self.store, self.segment.number(), start).then_some(length))
    }

    /// Makes the window hold these bytes, which are in the file.
    fn fill(&mut self, start: u64, length: usize) -> Result<(), Damage> {
        let held = start >= self.window_start && start + length as u64 <= self.window_start + self.window.len() as u64;
        if held {
            return Ok(());
        }
        let rest = usize::try_from(self.end() - start).unwrap_or(usize::MAX);
        self.window.resize(length.max(self.window_bytes.min(rest)), 0);
        self.window_start = start;
        self.segment
            .file
            .read_exact_at(&mut self.window, start)
            .map_err(Damage::Io)
    }

    /// Fails if a valid frame lies behind the first invalid one.
    fn check_torn_tail(&mut self) -> Result<(), Damage> {
        let torn = self.offset;
        let mut at = torn + FRAME_ALIGN;
        while at + FRAME_HEADER as u64 <= self.file_len {
            self.fill(at, FRAME_HEADER)?;
            let window_end = self.window_start + self.window.len() as u64;
            // Most of it is zeros: look for a beginning inside the window before anything is verified.
            let from = (at - self.window_start) as usize;
            let found = self.window[from..]
                .chunks_exact(FRAME_ALIGN as usize)
                .position(|bytes| frame_length(bytes).is_some())
                .map(|steps| at + steps as u64 * FRAME_ALIGN);
            let Some(candidate) = found else {
                // Not past a header that straddles the window's end.
                at = (window_end - window_end % FRAME_ALIGN).max(at + FRAME_ALIGN);
                continue;
            };
            if self.valid_frame_at(candidate, self.file_len)?.is_some() {
                return Err(self.corrupt(torn, "a frame's checksum does not match, and valid ones follow"));
            }
            at = candidate + FRAME_ALIGN;
        }
        Ok(())
    }

    pub(super) fn corrupt(&self, offset: u64, what: &str) -> Damage {
        Damage::Corrupt(format!(
            "{} at offset {offset}: {what}",
            self.disk.describe(&self.segment.name)
        ))
    }
}

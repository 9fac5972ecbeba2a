//! The note that says up to which place in the log the index's files are complete.
//!
//! Written after the files, replaced as a whole. Without a readable note for this store the index is worth nothing and is
//! rebuilt. The number of the index's own format is here: another one means rebuilding, not refusing.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use xxhash_rust::xxh3::xxh3_64;

use crate::embedded::format::{Fields, StoreId};
use crate::store::Revision;

const NAME: &str = "CHECKPOINT";
const MAGIC: &[u8; 8] = b"MICAIDX\0";
const INDEX_FORMAT: u32 = 1;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::embedded) struct Checkpoint {
    pub(in crate::embedded) store: StoreId,
    /// Everything before this place in the log is in the index.
    pub(in crate::embedded) segment: u32,
    pub(in crate::embedded) offset: u64,
    pub(in crate::embedded) revision: Revision,
    pub(in crate::embedded) compacted: Revision,
    /// `planes` may lack changes up to here, because the index was rebuilt from a log that had forgotten them.
    pub(in crate::embedded) planes_since: Revision,
    /// Written when the store was closed, with nothing after it.
    pub(in crate::embedded) clean: bool,
    /// Bytes of each segment that the index still refers to.
    pub(in crate::embedded) live: BTreeMap<u32, u64>,
}

impl Checkpoint {
    pub(in crate::embedded) fn write(&self, directory: &Path) -> io::Result<()> {
        let temporary = directory.join(format!("{NAME}.new"));
        let mut file = File::create(&temporary)?;
        file.write_all(&self.encode())?;
        file.sync_all()?;
        std::fs::rename(&temporary, directory.join(NAME))?;
        File::open(directory)?.sync_all()
    }

    /// Makes the index worthless, for when it is found to be damaged.
    pub(in crate::embedded) fn remove(directory: &Path) -> io::Result<()> {
        match std::fs::remove_file(directory.join(NAME)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => File::open(directory)?.sync_all(),
        }
    }

    /// The note in a directory; `None` if there is none that can be used.
    pub(in crate::embedded) fn read(directory: &Path) -> Option<Self> {
        Self::decode(&std::fs::read(directory.join(NAME)).ok()?)
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&INDEX_FORMAT.to_le_bytes());
        bytes.extend_from_slice(&self.store.0);
        bytes.extend_from_slice(&self.segment.to_le_bytes());
        for number in [self.offset, self.revision.0, self.compacted.0, self.planes_since.0] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.push(u8::from(self.clean));
        for (segment, live) in &self.live {
            bytes.extend_from_slice(&segment.to_le_bytes());
            bytes.extend_from_slice(&live.to_le_bytes());
        }
        bytes.extend_from_slice(&xxh3_64(&bytes).to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (bytes, checksum) = bytes.split_at_checked(bytes.len().checked_sub(8)?)?;
        let mut fields = Fields(bytes);
        let known = fields.take(8)? == MAGIC && fields.u32()? == INDEX_FORMAT;
        if !known || checksum != xxh3_64(bytes).to_le_bytes() {
            return None;
        }
        let mut checkpoint = Self {
            store: StoreId(fields.take(16)?.try_into().ok()?),
            segment: fields.u32()?,
            offset: fields.u64()?,
            revision: Revision(fields.u64()?),
            compacted: Revision(fields.u64()?),
            planes_since: Revision(fields.u64()?),
            clean: fields.u8()? == 1,
            live: BTreeMap::new(),
        };
        while let (Some(segment), Some(live)) = (fields.u32(), fields.u64()) {
            checkpoint.live.insert(segment, live);
        }
        Some(checkpoint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_is_read_back_or_not_at_all() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(Checkpoint::read(directory.path()), None);
        let checkpoint = Checkpoint {
            store: StoreId([3; 16]),
            segment: 4,
            offset: 5,
            revision: Revision(6),
            compacted: Revision(7),
            planes_since: Revision(8),
            clean: true,
            live: BTreeMap::from([(1, 100), (4, 0)]),
        };
        checkpoint.write(directory.path()).unwrap();
        assert_eq!(Checkpoint::read(directory.path()), Some(checkpoint));
        let path = directory.path().join(NAME);
        let bytes = std::fs::read(&path).unwrap();
        for position in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[position] ^= 1;
            std::fs::write(&path, damaged).unwrap();
            assert_eq!(Checkpoint::read(directory.path()), None, "byte {position}");
        }
    }
}

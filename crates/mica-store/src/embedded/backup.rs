//! Copying a whole store out, while it is used, and back into an empty directory.
//!
//! A backup is the state right after one revision: every key's newest value with its revision and expiry, without history.
//! A restored store goes on from that revision; older states read as compacted. It is another store than the original:
//! its log has an id of its own.

use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::disk::{Disk, RealDisk};
use super::format::{Kind, LogRecord, StoreId};
use super::log::{Log, LogEnd, Marks, SegmentSizes};
use super::prepare::{Preparer, Purpose, Sizes};
use super::read::Damage;
use super::segment::Segments;
use super::{EmbeddedStore, OpenError, Options, recover};
use crate::key::{Key, KeyRange};
use crate::store::{ReadError, Revision};

const MAGIC: &[u8; 8] = b"MICABAK\0";
const BACKUP_VERSION: u32 = 1;
/// Keys copied at a time.
const PAGE: usize = 512;
/// The largest part that a reader accepts: a damaged length must not make it allocate without bound.
const PART_BYTES: usize = 64 << 20;
/// In a directory whose restore has not finished.
const UNFINISHED: &str = "RESTORING";

/// What a backup holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BackupSummary {
    /// The state right after this revision.
    pub revision: Revision,
    pub records: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    #[error("{0} is not empty: a backup is restored into a new directory")]
    NotEmpty(String),
    #[error("this is not a backup")]
    NotABackup,
    #[error(
        "the backup has format version {found}, and this program knows versions up to {known}: use a newer program"
    )]
    Newer { found: u32, known: u32 },
    #[error("the backup is damaged or incomplete: {0}")]
    Damaged(&'static str),
    #[error("could not {what}")]
    Io {
        what: &'static str,
        #[source]
        source: io::Error,
    },
}

impl EmbeddedStore {
    /// Writes the state at the newest revision, while the store is used. Blocks.
    pub fn backup(&self, to: &mut dyn Write) -> Result<BackupSummary, ReadError> {
        let failed = |error: io::Error| ReadError::Unavailable(error.into());
        let engine = &self.inner.engine;
        let (view, segments) = engine.view()?;
        let (revision, loader) = (view.revision(), engine.loader(&segments));
        let mut header = Vec::new();
        header.extend_from_slice(MAGIC);
        header.extend_from_slice(&BACKUP_VERSION.to_le_bytes());
        header.extend_from_slice(&revision.0.to_le_bytes());
        write_part(to, &header, 0).map_err(failed)?;
        let (mut after, mut part, mut records): (Option<Key>, Vec<u8>, u64) = (None, Vec::new(), 0);
        let mut parts = 0;
        loop {
            let (page, next) = view.list(&KeyRange::All, revision, after.as_ref(), PAGE)?;
            part.clear();
            for (key, entry) in &page {
                let (value, expires) = loader.load_with_expiry(key.as_str(), entry)?;
                let key = key.as_str().as_bytes();
                let revision = entry.revision;
                let kind = Kind::Carried;
                LogRecord {
                    kind,
                    revision,
                    previous: None,
                    expires,
                    end: None,
                    key,
                    value: &value,
                }
                .encode(&mut part);
                records += 1;
                if part.len() >= PART_BYTES / 4 {
                    parts += 1;
                    write_part(to, &part, parts).map_err(failed)?;
                    part.clear();
                }
            }
            parts += 1;
            if !part.is_empty() {
                write_part(to, &part, parts).map_err(failed)?;
            }
            after = page.into_iter().next_back().map(|(key, _)| key);
            if next.is_none() {
                break;
            }
        }
        // An empty part and the number of records: the end, so that a copy cut short is noticed.
        write_part(to, &[], u64::MAX).map_err(failed)?;
        write_part(to, &records.to_le_bytes(), u64::MAX).map_err(failed)?;
        to.flush().map_err(failed)?;
        Ok(BackupSummary { revision, records })
    }
}

fn write_part(to: &mut dyn Write, bytes: &[u8], number: u64) -> io::Result<()> {
    to.write_all(&(bytes.len() as u32).to_le_bytes())?;
    to.write_all(&number.to_le_bytes())?;
    to.write_all(&xxh3_64_with_seed(bytes, number ^ bytes.len() as u64).to_le_bytes())?;
    to.write_all(bytes)
}

fn read_part(from: &mut dyn Read) -> Result<(u64, Vec<u8>), RestoreError> {
    let cut = |error: io::Error| match error.kind() {
        io::ErrorKind::UnexpectedEof => RestoreError::Damaged("it ends too early"),
        _ => RestoreError::Io {
            what: "read the backup",
            source: error,
        },
    };
    let mut head = [0; 20];
    from.read_exact(&mut head).map_err(cut)?;
    let length = u32::from_le_bytes(head[..4].try_into().expect("four bytes")) as usize;
    let number = u64::from_le_bytes(head[4..12].try_into().expect("eight bytes"));
    if length > PART_BYTES {
        return Err(RestoreError::Damaged("a part is too long"));
    }
    let mut bytes = vec![0; length];
    from.read_exact(&mut bytes).map_err(cut)?;
    let checksum = xxh3_64_with_seed(&bytes, number ^ length as u64).to_le_bytes();
    if head[12..] != checksum {
        return Err(RestoreError::Damaged("a checksum does not match"));
    }
    Ok((number, bytes))
}

/// Makes a store in an empty or new directory from a backup. Blocks. After an error the directory holds no store.
pub fn restore(directory: &Path, from: &mut dyn Read, options: &Options) -> Result<BackupSummary, RestoreError> {
    let io = |source| RestoreError::Io {
        what: "write the restored store",
        source,
    };
    super::make_directory(directory).map_err(io)?;
    let mut entries = std::fs::read_dir(directory).map_err(io)?;
    if entries.next().is_some() {
        return Err(RestoreError::NotEmpty(directory.display().to_string()));
    }
    let log_directory = directory.join("log");
    super::make_directory(&log_directory).map_err(io)?;
    std::fs::write(directory.join(UNFINISHED), b"").map_err(io)?;
    let disk: Arc<dyn Disk> = options
        .disk
        .clone()
        .unwrap_or_else(|| Arc::new(RealDisk::new(&log_directory, options.durability)));
    let restored = restore_log(&disk, from, options);
    match &restored {
        Ok(_) => std::fs::remove_file(directory.join(UNFINISHED)).map_err(io)?,
        Err(_) => {
            let _ = std::fs::remove_dir_all(&log_directory);
            let _ = std::fs::remove_file(directory.join(UNFINISHED));
        }
    }
    restored
}

/// Refuses a directory whose restore was interrupted.
pub(super) fn check_finished(directory: &Path) -> Result<(), OpenError> {
    if directory.join(UNFINISHED).exists() {
        let what = "a restore into it was interrupted: empty it and restore again";
        return Err(OpenError::Corrupt(format!("{}: {what}", directory.display())));
    }
    Ok(())
}

fn restore_log(disk: &Arc<dyn Disk>, from: &mut dyn Read, options: &Options) -> Result<BackupSummary, RestoreError> {
    let revision = read_header(from)?;
    let io = |source| RestoreError::Io {
        what: "write the restored store",
        source,
    };
    if !recover::find_segments(&**disk)
        .map_err(|error| io(io::Error::other(error)))?
        .is_empty()
    {
        return Err(RestoreError::NotEmpty("the log".to_owned()));
    }
    let sizes = SegmentSizes {
        smallest: options.segment_bytes.0,
        largest: options.segment_bytes.1,
    };
    let ahead = Sizes {
        reserve: options.reserve_bytes,
        keep_free: options.keep_free_bytes,
    };
    let preparer = Preparer::start(disk.clone(), ahead, sizes.smallest);
    let segments = Arc::new(Segments::new(disk.clone(), []));
    let end = LogEnd {
        last: None,
        sealed_bytes: 0,
    };
    let mut log = Log::new(StoreId::random(), segments, preparer, sizes, end).map_err(io)?;
    let marks = Marks {
        newest: revision,
        compacted: revision,
    };
    let mut records = 0;
    // Also an empty store has a first segment: it holds the revision.
    let mut write = |bytes: &[u8]| -> Result<u64, RestoreError> {
        let room = log.make_room(bytes.len(), Purpose::Grow, marks);
        room.map_err(|error| io(io::Error::other(error)))?;
        let mut frame = log.frame();
        let (mut rest, mut count) = (bytes, 0);
        while !rest.is_empty() {
            let (record, length) = LogRecord::decode(rest).ok_or(RestoreError::Damaged("a record is damaged"))?;
            let known = std::str::from_utf8(record.key).ok().and_then(Key::from_stored);
            if record.kind != Kind::Carried || known.is_none() {
                return Err(RestoreError::Damaged("a record is not of a backup"));
            }
            frame.push(&record);
            rest = &rest[length as usize..];
            count += 1;
        }
        if frame.is_empty() {
            log.recycle(frame);
        } else {
            log.append(frame, marks.newest).map_err(io)?;
        }
        Ok(count)
    };
    write(&[])?;
    loop {
        let (number, bytes) = read_part(from)?;
        if number == u64::MAX && bytes.is_empty() {
            break;
        }
        records += write(&bytes)?;
    }
    let (_, count) = read_part(from)?;
    if count != records.to_le_bytes() {
        return Err(RestoreError::Damaged("records are missing"));
    }
    Ok(BackupSummary { revision, records })
}

fn read_header(from: &mut dyn Read) -> Result<Revision, RestoreError> {
    let (_, header) = read_part(from).map_err(|error| match error {
        RestoreError::Damaged(_) => RestoreError::NotABackup,
        other => other,
    })?;
    if header.len() < 20 || &header[..8] != MAGIC {
        return Err(RestoreError::NotABackup);
    }
    let found = u32::from_le_bytes(header[8..12].try_into().expect("four bytes"));
    if found > BACKUP_VERSION {
        return Err(RestoreError::Newer {
            found,
            known: BACKUP_VERSION,
        });
    }
    Ok(Revision(u64::from_le_bytes(
        header[12..20].try_into().expect("eight bytes"),
    )))
}

impl From<Damage> for RestoreError {
    fn from(damage: Damage) -> Self {
        Self::Io {
            what: "write the restored store",
            source: io::Error::other(damage.text()),
        }
    }
}

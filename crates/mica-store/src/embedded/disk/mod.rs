//! What the log asks of a file system, and the real one.
//!
//! Small enough that a simulated disk can stand in for it and lose, tear and refuse writes: see [`sim`].
//! Names are plain file names inside one directory. The index does its own file work and is not behind this:
//! it can be rebuilt from what is.

pub mod sim;

use std::fs::{File, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A directory of files.
pub trait Disk: Send + Sync + 'static {
    /// Makes an empty file, in place of one of that name.
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;
    /// Gives a file another name. Survives a crash only after [`Disk::sync_names`].
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    fn remove(&self, name: &str) -> io::Result<()>;
    fn list(&self) -> io::Result<Vec<String>>;
    /// Makes what files there are, under which names, durable.
    fn sync_names(&self) -> io::Result<()>;
    /// Bytes that can still be written.
    fn free_space(&self) -> io::Result<u64>;
    /// Takes the directory for this process until the guard is dropped.
    fn lock(&self) -> Result<LockGuard, LockError>;
    /// Where a file is, for people.
    fn describe(&self, name: &str) -> String;
}

/// A file. Reads and writes may be concurrent as long as they do not overlap.
pub trait DiskFile: Send + Sync {
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()>;
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Makes everything written so far durable. After an error it is unknown what is.
    fn sync(&self) -> io::Result<()>;
    fn length(&self) -> io::Result<u64>;
    fn set_len(&self, length: u64) -> io::Result<()>;
}

/// Keeps the directory locked while it lives.
pub type LockGuard = Box<dyn std::any::Any + Send + Sync>;

#[derive(Debug, thiserror::Error)]
pub enum LockError {
    #[error("{}", match holder { Some(pid) => format!("process {pid} holds it"), None => "another process holds it".to_owned() })]
    Held { holder: Option<u32> },
    #[error(transparent)]
    Io(#[from] io::Error),
}

const LOCK_FILE: &str = "LOCK";

/// A directory of the machine's file system.
pub struct RealDisk {
    directory: PathBuf,
    durability: Durability,
}

/// What an acknowledged write survives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Durability {
    /// The loss of power.
    #[default]
    Power,
    /// The end of the process, however it comes, but not of the machine: nothing waits for the disk.
    Process,
}

impl RealDisk {
    /// Uses a directory that exists.
    pub fn new(directory: &Path, durability: Durability) -> Self {
        Self {
            directory: directory.to_owned(),
            durability,
        }
    }

    fn file(&self, file: File) -> Arc<dyn DiskFile> {
        match self.durability {
            Durability::Power => Arc::new(file),
            Durability::Process => Arc::new(Unsynced(file)),
        }
    }
}

impl Disk for RealDisk {
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let options = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .clone();
        Ok(self.file(options.open(self.directory.join(name))?))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let options = File::options().read(true).write(true).clone();
        Ok(self.file(options.open(self.directory.join(name))?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.directory.join(from), self.directory.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.directory.join(name))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.directory)? {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                names.extend(entry.file_name().into_string());
            }
        }
        Ok(names)
    }

    fn sync_names(&self) -> io::Result<()> {
        match self.durability {
            Durability::Power => File::open(&self.directory)?.sync_all(),
            Durability::Process => Ok(()),
        }
    }

    fn free_space(&self) -> io::Result<u64> {
        let stat = rustix::fs::statvfs(&self.directory)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    fn lock(&self) -> Result<LockGuard, LockError> {
        let path = self.directory.join(LOCK_FILE);
        let mut file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let holder = std::fs::read_to_string(&path)
                    .ok()
                    .and_then(|text| text.trim().parse().ok());
                return Err(LockError::Held { holder });
            }
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
        file.set_len(0)?;
        file.write_all(std::process::id().to_string().as_bytes())?;
        Ok(Box::new(file))
    }

    fn describe(&self, name: &str) -> String {
        self.directory.join(name).display().to_string()
    }
}

impl DiskFile for File {
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        FileExt::read_exact_at(self, bytes, offset)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        FileExt::write_all_at(self, bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        File::set_len(self, length)
    }
}

/// A file that the system writes to the disk when it likes.
struct Unsynced(File);

impl DiskFile for Unsynced {
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        FileExt::read_exact_at(&self.0, bytes, offset)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        FileExt::write_all_at(&self.0, bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn length(&self) -> io::Result<u64> {
        self.0.length()
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.0.set_len(length)
    }
}

/// Whether an error means that there is no room.
pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}

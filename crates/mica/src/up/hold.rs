//! The data directory, held by one process at a time.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

const LOCK: &str = "lock";

/// A data directory that is ours until this is dropped, also if the process is killed.
pub struct DataDir {
    path: PathBuf,
    lock: File,
}

impl DataDir {
    /// Makes the directory if it is not there and takes it.
    pub fn take(path: &Path) -> anyhow::Result<Self> {
        let named = || format!("data directory {}", path.display());
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .with_context(named)?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut lock = options.open(path.join(LOCK)).with_context(named)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => bail!("{} is in use{}", named(), holder(&mut lock)),
            Err(TryLockError::Error(error)) => return Err(error).with_context(named),
        }
        let mut held = Self {
            path: path.to_owned(),
            lock,
        };
        held.note("not serving yet")?;
        Ok(held)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Leaves word for whoever comes next: our process id and where we serve.
    pub fn note(&mut self, serving: &str) -> anyhow::Result<()> {
        let mut write = || {
            self.lock.set_len(0)?;
            self.lock.rewind()?;
            writeln!(self.lock, "process {} ({serving})", std::process::id())
        };
        write().with_context(|| format!("data directory {}", self.path.display()))
    }
}

fn holder(lock: &mut File) -> String {
    let mut text = String::new();
    match lock.read_to_string(&mut text) {
        Ok(_) if !text.trim().is_empty() => format!(" by {}", text.trim()),
        _ => " by another process".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_taker_learns_who_was_first() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("data");
        let mut first = DataDir::take(&path).unwrap();
        first.note("https://127.0.0.1:6440").unwrap();
        let refused = DataDir::take(&path).err().unwrap().to_string();
        let process = std::process::id();
        assert!(
            refused.ends_with(&format!("is in use by process {process} (https://127.0.0.1:6440)")),
            "{refused}"
        );
        drop(first);
        DataDir::take(&path).unwrap();
    }
}

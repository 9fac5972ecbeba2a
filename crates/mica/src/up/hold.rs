//! The data directory, held by one process at a time.

use std::fs::{DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use sha2::{Digest as _, Sha256};

const LOCK: &str = "lock";
/// What only the owner may look into.
const CLOSED: [&str; 2] = ["store", "pki"];

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
        check_private(path)?;
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

    /// A name that nobody else has who runs: one process at a time holds this directory, of this machine since it was booted.
    /// Who is started here after a kill has the same.
    pub fn identity(&self) -> Option<String> {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let lock = self.lock.metadata().ok()?;
        let hash = Sha256::digest(format!("{} {} {}", boot.trim(), lock.dev(), lock.ino()));
        let hash: String = hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        let host = super::host_name().unwrap_or_else(|| "server".to_owned());
        Some(format!("{host}-{hash}"))
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

/// Makes sure that nobody else reads what is in the directory, or puts something else there.
///
/// The directory itself may be seen by others, and then only what holds data is closed: it may be one of many things there.
fn check_private(path: &Path) -> anyhow::Result<()> {
    let named = || format!("data directory {}", path.display());
    let mode = |path: &Path| std::fs::metadata(path).map(|found| found.permissions().mode() & 0o7777);
    let own = mode(path).with_context(named)?;
    if own & 0o022 != 0 {
        bail!(
            "{} can be written by others (mode {own:04o}), who could exchange what is in it: run chmod go-w {}, or use another",
            named(),
            path.display()
        );
    }
    for inside in CLOSED {
        let inside = path.join(inside);
        let Ok(open) = mode(&inside) else { continue };
        if open & 0o077 != 0 {
            std::fs::set_permissions(&inside, Permissions::from_mode(0o700)).with_context(|| {
                format!(
                    "{} can be read by others (mode {open:04o}) and could not be closed",
                    inside.display()
                )
            })?;
            tracing::warn!(
                "{} could be read by others (mode {open:04o}): it is closed now",
                inside.display()
            );
        }
    }
    Ok(())
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

    #[test]
    fn who_takes_a_directory_after_another_has_its_name_and_nobody_elsewhere_has() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let name = |path: &Path| DataDir::take(path).unwrap().identity().unwrap();
        assert_eq!(name(one.path()), name(one.path()));
        assert_ne!(name(one.path()), name(other.path()));
    }

    #[test]
    fn what_others_could_read_is_closed_and_what_they_could_write_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("data");
        let set = |path: &Path, mode| std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        drop(DataDir::take(&path).unwrap());
        assert_eq!(mode(&path), 0o700);
        let store = path.join("store");
        std::fs::create_dir(&store).unwrap();
        set(&store, 0o755);
        set(&path, 0o755);
        drop(DataDir::take(&path).unwrap());
        assert_eq!((mode(&path), mode(&store)), (0o755, 0o700));
        set(&path, 0o777);
        let refused = DataDir::take(&path).err().unwrap().to_string();
        assert!(refused.contains("can be written by others (mode 0777)"), "{refused}");
        assert!(refused.contains(&format!("chmod go-w {}", path.display())), "{refused}");
    }
}

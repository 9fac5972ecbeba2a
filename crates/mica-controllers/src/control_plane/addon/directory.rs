//! Addons in a directory of this machine: a folder of manifests each, or a file. It is looked at every few seconds, and what
//! changed is told by its name.
//!
//! Looking works on every file system and through links (a ConfigMap that is mounted is exchanged by one), where
//! notifications do not. What files hold is compared, not their times, which are not exact.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use xxhash_rust::xxh3::Xxh3;

/// The largest file of an addon that is read.
const LARGEST_FILE: u64 = 4 * 1024 * 1024;
/// Files that one addon may have.
const MOST_FILES: usize = 1000;
/// Addons of a directory that are followed; those after them, in the order of their names, are read and not followed.
const MOST_FOLLOWED: usize = 1000;
/// How often the directory is looked at. Addons are few and small.
const EVERY: Duration = Duration::from_secs(2);
const ENDINGS: [&str; 3] = ["json", "yaml", "yml"];

/// A directory of addons, as it was when it was last looked at.
pub struct Directory {
    path: PathBuf,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    /// What each addon held, in short.
    prints: BTreeMap<String, u64>,
    /// What was complained of, so that it is said once.
    complaint: Option<String>,
}

impl Directory {
    /// Looks at a directory for the first time: what changes after this is told.
    pub fn open(path: PathBuf) -> Arc<Self> {
        let directory = Self {
            path,
            seen: Mutex::default(),
        };
        directory.look();
        Arc::new(directory)
    }

    /// What an addon holds, by the names of its files; nothing if there is none.
    pub fn files(&self, name: &str) -> io::Result<BTreeMap<String, String>> {
        let mut files = BTreeMap::new();
        for path in self.paths(name)? {
            if std::fs::metadata(&path)?.len() > LARGEST_FILE {
                return Err(io::Error::other(format!("{} is too large", path.display())));
            }
            let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            files.insert(file, std::fs::read_to_string(&path)?);
        }
        Ok(files)
    }

    /// Whether there is an addon of a name, be it good or not.
    pub fn has(&self, name: &str) -> bool {
        self.paths(name).map_or(true, |paths| !paths.is_empty())
    }

    /// Waits until addons came, changed or went, and says which.
    pub async fn changes(self: &Arc<Self>) -> Vec<String> {
        loop {
            tokio::time::sleep(EVERY).await;
            let looking = self.clone();
            // Reading may block, on a file system that is far away.
            let changed = tokio::task::spawn_blocking(move || looking.look()).await;
            match changed {
                Ok(changed) if changed.is_empty() => {}
                Ok(changed) => return changed,
                Err(_panic) => tracing::warn!(directory = %self.path.display(), "addons could not be looked at"),
            }
        }
    }

    /// The manifests of an addon: files of its name, and those in a folder of its name.
    fn paths(&self, name: &str) -> io::Result<Vec<PathBuf>> {
        // A name must not lead out of the directory.
        if name.is_empty() || name.starts_with('.') || name.contains(['/', '\\']) {
            return Ok(Vec::new());
        }
        let files = ENDINGS.iter().map(|ending| self.path.join(format!("{name}.{ending}")));
        let mut paths: Vec<PathBuf> = files.filter(|path| is_manifest(path)).collect();
        let folder = self.path.join(name);
        if folder.is_dir() {
            for entry in std::fs::read_dir(&folder)? {
                let path = entry?.path();
                if is_manifest(&path) {
                    paths.push(path);
                }
                if paths.len() > MOST_FILES {
                    return Err(io::Error::other(format!("it has more than {MOST_FILES} files")));
                }
            }
        }
        paths.sort();
        Ok(paths)
    }

    /// The addons that differ from the last look. A directory that cannot be read changes nothing.
    fn look(&self) -> Vec<String> {
        let names = match self.names() {
            Ok(names) => names,
            Err(error) => {
                self.complain(format!("{error}; what it held before counts on"));
                return Vec::new();
            }
        };
        match names.len() > MOST_FOLLOWED {
            true => self.complain(format!("only the first {MOST_FOLLOWED} addons are followed")),
            false => self.seen.lock().complaint = None,
        }
        let followed = names.into_iter().take(MOST_FOLLOWED);
        let prints: BTreeMap<String, u64> = followed.map(|name| (name.clone(), self.print(&name))).collect();
        let mut seen = self.seen.lock();
        let before = std::mem::replace(&mut seen.prints, prints);
        let all: BTreeSet<&String> = before.keys().chain(seen.prints.keys()).collect();
        let changed = all
            .into_iter()
            .filter(|name| before.get(*name) != seen.prints.get(*name));
        changed.cloned().collect()
    }

    /// Every addon that there is.
    fn names(&self) -> io::Result<BTreeSet<String>> {
        let mut names = BTreeSet::new();
        for entry in std::fs::read_dir(&self.path)? {
            let path = entry?.path();
            let name = match path.is_dir() {
                true => path.file_name(),
                false if is_manifest(&path) => path.file_stem(),
                false => None,
            };
            let name = name
                .and_then(|name| name.to_str())
                .filter(|name| !name.starts_with('.'));
            names.extend(name.map(str::to_owned));
        }
        Ok(names)
    }

    /// What an addon holds, in short. One that cannot be read holds the reason.
    fn print(&self, name: &str) -> u64 {
        let mut hash = Xxh3::new();
        match self.files(name) {
            Err(error) => hash.update(error.to_string().as_bytes()),
            Ok(files) => {
                for (file, text) in files {
                    for part in [file, text] {
                        hash.update(&part.len().to_le_bytes());
                        hash.update(part.as_bytes());
                    }
                }
            }
        }
        hash.digest()
    }

    fn complain(&self, complaint: String) {
        let mut seen = self.seen.lock();
        if seen.complaint.as_ref() != Some(&complaint) {
            tracing::warn!("addons of {}: {complaint}", self.path.display());
            seen.complaint = Some(complaint);
        }
    }
}

fn is_manifest(path: &Path) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    ENDINGS.contains(&ending) && path.is_file()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_changed_or_went_is_told_once() {
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| home.path().join(name);
        std::fs::write(at("one.yaml"), "a").unwrap();
        std::fs::create_dir(at("two")).unwrap();
        std::fs::write(at("two/x.yaml"), "a").unwrap();
        std::fs::write(at("notes.txt"), "a").unwrap();
        let directory = Directory::open(home.path().to_owned());
        assert_eq!(directory.look(), [""; 0], "it was looked at");
        assert!(directory.has("one") && directory.has("two"));
        assert!(!directory.has("notes") && !directory.has("..") && !directory.has("two/x"));

        std::fs::write(at("one.yaml"), "b").unwrap();
        std::fs::write(at("two/y.json"), "a").unwrap();
        std::fs::write(at("three.yml"), "a").unwrap();
        std::fs::write(at("notes.txt"), "b").unwrap();
        assert_eq!(directory.look(), ["one", "three", "two"]);
        assert_eq!(directory.look(), [""; 0]);
        let files: Vec<String> = directory.files("two").unwrap().into_keys().collect();
        assert_eq!(files, ["x.yaml", "y.json"]);

        std::fs::remove_file(at("three.yml")).unwrap();
        assert_eq!(directory.look(), ["three"]);
        // What is away for a moment, as while a volume is mounted, takes nothing away.
        let away = home.path().with_extension("away");
        std::fs::rename(home.path(), &away).unwrap();
        assert_eq!(directory.look(), [""; 0]);
        std::fs::rename(&away, home.path()).unwrap();
        assert_eq!(directory.look(), [""; 0]);
    }

    #[test]
    fn an_addon_that_is_too_large_says_so_and_is_there_all_the_same() {
        let home = tempfile::tempdir().unwrap();
        let file = std::fs::File::create(home.path().join("big.yaml")).unwrap();
        file.set_len(LARGEST_FILE + 1).unwrap();
        let directory = Directory::open(home.path().to_owned());
        assert!(directory.has("big"));
        assert!(
            directory
                .files("big")
                .unwrap_err()
                .to_string()
                .ends_with("big.yaml is too large")
        );
    }
}

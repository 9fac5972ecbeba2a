//! What is known of a server beside its data: a file that a new operator begins from.
//!
//! It is written before a process is started and again when its identity is known. A process that was started in between is
//! found by the lock of its data directory.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::Wanted;
use super::pid::Identity;
use super::plan::Run;

/// Where the parts of a server are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Paths {
    pub home: PathBuf,
}

impl Paths {
    pub fn new(directory: &Path, name: &str) -> Self {
        Self {
            home: directory.join(name),
        }
    }

    /// The server's own data directory.
    pub fn data(&self) -> PathBuf {
        self.home.join("data")
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.data().join("admin.kubeconfig")
    }

    pub fn authority(&self) -> PathBuf {
        self.data().join("pki/ca.crt")
    }

    /// Held by whoever serves from the data directory.
    pub fn lock(&self) -> PathBuf {
        self.data().join("lock")
    }

    pub fn log(&self) -> PathBuf {
        self.home.join("server.log")
    }

    /// What it says when it cannot start.
    pub fn last_words(&self) -> PathBuf {
        self.home.join("last-words.log")
    }

    /// Secrets that are files to the server.
    pub fn secrets(&self) -> PathBuf {
        self.home.join("secrets")
    }

    fn record(&self) -> PathBuf {
        self.home.join("server.json")
    }

    /// There while the data is kept for nobody.
    pub fn retained(&self) -> PathBuf {
        self.home.join("retained.json")
    }

    pub fn is_retained(&self) -> bool {
        self.retained().exists()
    }

    /// The id of the plane that is to be kept.
    pub fn keeps(&self) -> PathBuf {
        self.home.join("keeps")
    }
}

/// What says that a server's data is kept, and of which plane it is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Kept {
    /// Of the ControlPlane that it was of.
    pub name: String,
    pub cluster_path: String,
    /// None if it was not kept for somebody to adopt: then whoever has the name goes on with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plane_id: Option<String>,
    pub provider: String,
    #[serde(default)]
    pub version: Option<String>,
    #[serde(default)]
    pub store: Option<String>,
    #[serde(default)]
    pub retained_at: String,
}

impl Kept {
    /// None if nothing is kept there.
    pub fn load(paths: &Paths) -> io::Result<Option<Self>> {
        match std::fs::read(paths.retained()) {
            Ok(text) => serde_json::from_slice(&text).map(Some).map_err(io::Error::other),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Where a plane is kept.
    pub fn find(directory: &Path, provider: &str, cluster_path: &str, plane_id: &str) -> Option<Paths> {
        let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
        let mut homes = entries.map(|entry| Paths { home: entry.path() });
        homes.find(|paths| {
            let kept = Self::load(paths).ok().flatten();
            kept.is_some_and(|kept| {
                kept.provider == provider
                    && kept.cluster_path == cluster_path
                    && kept.plane_id.as_deref() == Some(plane_id)
            })
        })
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// Who runs it.
    pub provider: String,
    /// What was asked for last.
    pub wanted: Wanted,
    pub port: u16,
    /// Whether it was ever ready: from then on its port is known to others, and kept.
    #[serde(default)]
    pub was_ready: bool,
    /// What was started last on the data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Run>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<Identity>,
    /// The address of the store, if it is not in the directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<String>,
}

impl Record {
    /// None if there is no server of the name.
    pub fn load(paths: &Paths) -> io::Result<Option<Self>> {
        match std::fs::read(paths.record()) {
            Ok(text) => serde_json::from_slice(&text).map(Some).map_err(io::Error::other),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub fn save(&self, paths: &Paths) -> io::Result<()> {
        make_private(&paths.home)?;
        write_private(&paths.record(), &serde_json::to_vec_pretty(self)?)
    }

    /// Every record of a directory that can be read.
    pub fn all(directory: &Path) -> Vec<(PathBuf, Self)> {
        let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
        let homes = entries.map(|entry| Paths { home: entry.path() });
        let records = homes.filter_map(|paths| Some((paths.home.clone(), Self::load(&paths).ok()??)));
        records.collect()
    }
}

/// A directory for its owner alone.
pub fn make_private(directory: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

/// Writes a file for its owner alone, whole or not at all.
pub fn write_private(path: &Path, content: &[u8]) -> io::Result<()> {
    let aside = path.with_extension("new");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(&aside)?;
    file.write_all(content)?;
    file.sync_all()?;
    std::fs::rename(&aside, path)?;
    match path.parent() {
        Some(directory) => File::open(directory)?.sync_all(),
        None => Ok(()),
    }
}

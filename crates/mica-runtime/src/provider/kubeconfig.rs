//! Clusters whose kubeconfigs are files on this machine.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use kube::config::{KubeConfigOptions, Kubeconfig as File};
use tokio::time::MissedTickBehavior;

use super::{ClusterSink, ClusterSpec, Provider, ProviderError};
use crate::cluster::{Access, chain};
use crate::request::ClusterName;

/// How often the files are looked at, unless said otherwise. Looking works on every file system and through links, where
/// notifications do not.
const EVERY: Duration = Duration::from_secs(5);
/// Files that are read at most; more are left out, with a warning.
const FILES: usize = 10_000;
/// A file that changed more lately is read again: times of files are not exact.
const SETTLED: Duration = Duration::from_secs(3);
/// The size of a file that is read.
const FILE_SIZE: u64 = 1 << 20;

/// How the clusters of files are called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Naming {
    /// `path+context`, as multicluster-runtime's file provider has it.
    PathAndContext,
    /// By the context alone; of two with one name the first file's counts.
    Context,
}

/// Engages every context of kubeconfig files. Files that come, change and go are noticed within seconds.
///
/// A file that cannot be used keeps the clusters that it had: somebody may be writing it.
pub struct Kubeconfig {
    name: String,
    paths: Vec<String>,
    naming: Naming,
    every: Duration,
}

impl Kubeconfig {
    /// Each path is a file, a directory whose files are read (not those that begin with a dot, nor its directories), or a
    /// pattern such as `clusters/*.kubeconfig`.
    pub fn new<P: Into<String>>(paths: impl IntoIterator<Item = P>) -> Self {
        Self {
            name: "kubeconfig".to_owned(),
            paths: paths.into_iter().map(Into::into).collect(),
            naming: Naming::PathAndContext,
            every: EVERY,
        }
    }

    #[must_use]
    pub fn naming(mut self, naming: Naming) -> Self {
        self.naming = naming;
        self
    }

    /// Looks at the files this often.
    #[must_use]
    pub fn every(mut self, every: Duration) -> Self {
        self.every = every;
        self
    }

    /// Another name than `kubeconfig`, where a fleet has several.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }
}

#[async_trait]
impl Provider for Kubeconfig {
    fn name(&self) -> &str {
        &self.name
    }

    async fn run(&self, sink: ClusterSink) -> Result<(), ProviderError> {
        let mut ticks = tokio::time::interval(self.every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut seen = Seen::default();
        loop {
            ticks.tick().await;
            let (paths, naming) = (self.paths.clone(), self.naming);
            let looked = tokio::task::spawn_blocking(move || seen.look(&paths, naming).map(|found| (seen, found)));
            let (next, found) = looked.await.map_err(|error| ProviderError::Other(error.into()))??;
            seen = next;
            sink.restart();
            for spec in found {
                sink.upsert(spec);
            }
            sink.synced();
        }
    }
}

/// What files said when they could last be used.
#[derive(Default)]
struct Seen {
    files: HashMap<PathBuf, Said>,
    /// Complaints that were made, so that each is made once.
    complaints: BTreeMap<PathBuf, String>,
}

/// What a file said, and what it was then: unless that changes it is not read again.
#[derive(Default)]
struct Said {
    contexts: Vec<(String, Access)>,
    stamps: Vec<Stamp>,
}

/// A file that was read: its path, time and size. `None` if it changed so lately that it may change again unseen.
type Stamp = Option<(PathBuf, SystemTime, u64)>;

impl Seen {
    /// All clusters of all files, as they are now.
    fn look(&mut self, paths: &[String], naming: Naming) -> Result<Vec<ClusterSpec>, ProviderError> {
        let files = files(paths)?;
        self.files.retain(|path, _| files.contains(path));
        self.complaints.retain(|path, _| files.contains(path));
        let mut specs = BTreeMap::new();
        for path in files {
            if !self.files.get(&path).is_some_and(Said::still_stands) {
                match contexts(&path) {
                    Ok(said) => {
                        self.complaints.remove(&path);
                        self.files.insert(path.clone(), said);
                    }
                    Err(error) => self.complain(&path, chain(&error)),
                }
            }
            let said = self.files.get(&path).map(|said| &said.contexts);
            for (context, access) in said.into_iter().flatten() {
                let name = match naming {
                    Naming::PathAndContext => format!("{}+{context}", path.display()),
                    Naming::Context => context.clone(),
                };
                let name = ClusterName::new(name);
                let spec = ClusterSpec::new(name.clone(), access.clone());
                specs.entry(name).or_insert(spec);
            }
        }
        Ok(specs.into_values().collect())
    }

    fn complain(&mut self, path: &Path, error: String) {
        if self.complaints.get(path) != Some(&error) {
            tracing::warn!(?path, error, "the kubeconfig cannot be used; what it said before stays");
            self.complaints.insert(path.to_owned(), error);
        }
    }
}

impl Said {
    fn still_stands(&self) -> bool {
        let same = |stamp: &Stamp| stamp.as_ref().is_some_and(|(path, ..)| self::stamp(path) == *stamp);
        !self.stamps.is_empty() && self.stamps.iter().all(same)
    }
}

fn stamp(path: &Path) -> Stamp {
    let metadata = std::fs::metadata(path).ok()?;
    let modified = metadata.modified().ok()?;
    let settled = modified.elapsed().is_ok_and(|age| age > SETTLED);
    settled.then(|| (path.to_owned(), modified, metadata.len()))
}

/// The files that are there now, in order.
fn files(paths: &[String]) -> Result<Vec<PathBuf>, ProviderError> {
    let mut files = Vec::new();
    for path in paths {
        if Path::new(path).is_dir() {
            let entries = std::fs::read_dir(path).map_err(|error| ProviderError::Other(error.into()))?;
            let visible = |path: &PathBuf| {
                let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
                name.is_some_and(|name| !name.starts_with('.')) && path.is_file()
            };
            let mut inside: Vec<_> = entries.flatten().map(|entry| entry.path()).filter(visible).collect();
            inside.sort();
            files.extend(inside);
        } else if Path::new(path).exists() {
            files.push(path.into());
        } else {
            let matching = glob::glob(path)
                .map_err(|error| ProviderError::Invalid(format!("{path:?} is not a pattern: {error}")))?;
            files.extend(matching.flatten().filter(|path| path.is_file()));
        }
    }
    if files.len() > FILES {
        tracing::warn!(found = files.len(), read = FILES, "too many kubeconfigs");
        files.truncate(FILES);
    }
    Ok(files)
}

/// How to reach each context of a file. Certificates and keys in other files are read too.
fn contexts(path: &Path) -> Result<Said, ProviderError> {
    let size = std::fs::metadata(path)
        .map_err(|error| ProviderError::Other(error.into()))?
        .len();
    if size > FILE_SIZE {
        return Err(ProviderError::Invalid(format!(
            "it has {size} bytes, and may have {FILE_SIZE}"
        )));
    }
    // Before anything is read: what changes meanwhile is read again.
    let mut stamps = vec![stamp(path)];
    let file = File::read_from(path).map_err(|error| ProviderError::Other(error.into()))?;
    let mut contexts = Vec::with_capacity(file.contexts.len());
    for context in &file.contexts {
        let options = KubeConfigOptions {
            context: Some(context.name.clone()),
            ..KubeConfigOptions::default()
        };
        contexts.push((context.name.clone(), Access::from_kubeconfig(file.clone(), &options)?));
    }
    let clusters = file.clusters.iter().filter_map(|named| named.cluster.as_ref());
    let users = file.auth_infos.iter().filter_map(|named| named.auth_info.as_ref());
    let others = clusters
        .map(|cluster| &cluster.certificate_authority)
        .chain(users.flat_map(|user| [&user.client_certificate, &user.client_key]));
    stamps.extend(others.flatten().map(|path| stamp(Path::new(path))));
    Ok(Said { contexts, stamps })
}

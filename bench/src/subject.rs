//! What is measured: starts a server on an empty directory and knows its processes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use tempfile::TempDir;
use tokio::process::Command;

use crate::endpoint::Endpoint;
use crate::process::Process;
use crate::reference::{Binaries, Disk, Reference, free_port, wait_ready};

const READY_WITHIN: Duration = Duration::from_secs(120);

/// A server that can be started as often as scenarios need a fresh one.
pub enum Subject {
    Mica { binary: PathBuf },
    KubeApiserver(Binaries),
    Floor,
    Foreign { name: String, kubeconfig: PathBuf },
}

/// A started server. Dropping it kills its processes and removes its directory.
pub struct Running {
    pub endpoint: Endpoint,
    /// From the start of the process to the first 200 of `/readyz`; unknown for servers that we did not start.
    pub ready_after: Duration,
    directory: Option<TempDir>,
    processes: Vec<Process>,
    port: u16,
}

impl Subject {
    pub fn name(&self) -> &str {
        match self {
            Self::Mica { .. } => MICA,
            Self::KubeApiserver(_) => KUBE_APISERVER,
            Self::Floor => FLOOR,
            Self::Foreign { name, .. } => name,
        }
    }

    pub async fn start(&self, scratch: &Path) -> Result<Running> {
        let directory = || tempfile::Builder::new().prefix(self.name()).tempdir_in(scratch);
        match self {
            Self::Mica { binary } => start_mica(binary, directory()?, free_port()?, Freed::Kept).await,
            Self::KubeApiserver(binaries) => {
                let directory = directory()?;
                let started = Reference::start(binaries, directory.path(), Disk::Synced).await?;
                Ok(Running {
                    endpoint: started.endpoint,
                    ready_after: started.ready_after,
                    directory: Some(directory),
                    processes: vec![started.apiserver, started.etcd],
                    port: 0,
                })
            }
            Self::Floor => start_floor(directory()?).await,
            Self::Foreign { kubeconfig, .. } => Ok(Running {
                endpoint: Endpoint::from_kubeconfig(kubeconfig)?,
                ready_after: Duration::ZERO,
                directory: None,
                processes: Vec::new(),
                port: 0,
            }),
        }
    }

    /// The two programs that a test environment starts; ours are links to one. `None` if there are none.
    pub fn pair(&self, directory: &Path) -> Result<Option<Binaries>> {
        match self {
            Self::Mica { binary } => {
                // Apart from where the programs keep their data, which may have their names.
                let links = directory.join("bin");
                std::fs::create_dir(&links)?;
                let link = |name: &str| -> Result<PathBuf> {
                    let path = links.join(name);
                    std::os::unix::fs::symlink(binary.canonicalize()?, &path)?;
                    Ok(path)
                };
                Ok(Some(Binaries {
                    kube_apiserver: link("kube-apiserver")?,
                    etcd: link("etcd")?,
                }))
            }
            Self::KubeApiserver(binaries) => Ok(Some(Binaries {
                kube_apiserver: binaries.kube_apiserver.clone(),
                etcd: binaries.etcd.clone(),
            })),
            Self::Floor | Self::Foreign { .. } => Ok(None),
        }
    }

    /// Ends a server and starts it again on what it has stored. Only our own server knows how.
    pub async fn restart(&self, mut running: Running, freed: Freed) -> Result<Running> {
        let Self::Mica { binary } = self else {
            anyhow::bail!("{} is not ours to restart", self.name())
        };
        for process in running.processes.drain(..) {
            process.stop().await?;
        }
        start_mica(
            binary,
            running.directory.take().context("our server has a directory")?,
            running.port,
            freed,
        )
        .await
    }
}

/// What our server's allocator does with memory that is freed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Freed {
    /// As in use: it keeps some, for a while.
    Kept,
    /// Gives it back at once, for all threads from one place, which is slow, but then memory is what is held, to the page.
    GivenBack,
}

pub const MICA: &str = "mica";
pub const KUBE_APISERVER: &str = "kube-apiserver";
pub const FLOOR: &str = "floor";

impl Running {
    pub fn pids(&self) -> Vec<u32> {
        self.processes.iter().map(|process| process.pid).collect()
    }

    pub fn directory(&self) -> Option<&Path> {
        self.directory.as_ref().map(TempDir::path)
    }

    /// Ends the processes in the order in which they were started.
    pub async fn stop(mut self) -> Result<()> {
        for process in self.processes.drain(..) {
            process.stop().await?;
        }
        Ok(())
    }
}

async fn start_mica(binary: &Path, directory: TempDir, port: u16, freed: Freed) -> Result<Running> {
    let log = directory.path().join("bench.log");
    let mut command = Command::new(binary);
    command
        .arg("up")
        .arg("--data-dir")
        .arg(directory.path())
        .args(["--listen", &format!("127.0.0.1:{port}")]);
    if freed == Freed::GivenBack {
        command.env("_RJEM_MALLOC_CONF", "dirty_decay_ms:0,tcache:false,narenas:1");
    }
    let mut process = Process::start(&mut command, &log)?;
    process.ready_line(&log, READY_WITHIN).await?;
    let endpoint = Endpoint::from_kubeconfig(&directory.path().join("admin.kubeconfig"))?;
    let ready_after = wait_ready(&endpoint, &mut process, &log).await?;
    Ok(Running {
        endpoint,
        ready_after,
        directory: Some(directory),
        processes: vec![process],
        port,
    })
}

async fn start_floor(directory: TempDir) -> Result<Running> {
    let log = directory.path().join("bench.log");
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("floor").arg("--data-dir").arg(directory.path());
    let mut process = Process::start(&mut command, &log)?;
    let ready_after = process.ready_line(&log, READY_WITHIN).await?;
    let endpoint = Endpoint::from_kubeconfig(&directory.path().join("admin.kubeconfig"))?;
    Ok(Running {
        endpoint,
        ready_after,
        directory: Some(directory),
        processes: vec![process],
        port: 0,
    })
}

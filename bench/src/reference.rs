//! A real kube-apiserver with etcd behind it, started as test suites start it: TLS, RBAC, durable, otherwise its defaults.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tokio::process::Command;

use crate::endpoint::Endpoint;
use crate::pki::{Authority, write_kubeconfig};
use crate::process::{Process, tail};
use crate::wire::{Body, Connection};

const READY_WITHIN: Duration = Duration::from_secs(120);

pub struct Binaries {
    pub kube_apiserver: PathBuf,
    pub etcd: PathBuf,
}

pub struct Reference {
    pub apiserver: Process,
    pub etcd: Process,
    pub kubeconfig: PathBuf,
    pub endpoint: Endpoint,
    /// How long kube-apiserver took from its start to ready; etcd was already up.
    pub ready_after: Duration,
    /// How long both took, from the start of etcd.
    pub pair_ready_after: Duration,
}

/// Whether etcd waits for the disk.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Disk {
    Synced,
    /// As test environments run it.
    Unsynced,
}

impl Reference {
    pub async fn start(binaries: &Binaries, directory: &Path, disk: Disk) -> Result<Self> {
        let [etcd_port, peer_port, port] = [free_port()?, free_port()?, free_port()?];
        let authority = Authority::new("bench")?;
        let kubeconfig = directory.join("admin.kubeconfig");
        write_kubeconfig(&kubeconfig, port, &authority.certificate, &authority.admin()?)?;
        let endpoint = Endpoint::from_kubeconfig(&kubeconfig)?;
        let mut command = apiserver_command(&binaries.kube_apiserver, directory, &authority, port, etcd_port)?;
        let etcd = start_etcd(&binaries.etcd, directory, etcd_port, peer_port, disk).await?;
        let log = directory.join("kube-apiserver.log");
        let mut apiserver = Process::start(&mut command, &log)?;
        let ready_after = wait_ready(&endpoint, &mut apiserver, &log).await?;
        Ok(Self {
            pair_ready_after: etcd.started.elapsed(),
            apiserver,
            etcd,
            kubeconfig,
            endpoint,
            ready_after,
        })
    }

    pub async fn stop(self) -> Result<()> {
        self.apiserver.stop().await?;
        self.etcd.stop().await
    }
}

async fn start_etcd(binary: &Path, directory: &Path, port: u16, peer_port: u16, disk: Disk) -> Result<Process> {
    let (client, peer) = (
        format!("http://127.0.0.1:{port}"),
        format!("http://127.0.0.1:{peer_port}"),
    );
    let log = directory.join("etcd.log");
    let mut command = Command::new(binary);
    command
        .arg(format!("--data-dir={}", directory.join("etcd").display()))
        .args([
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
        ])
        .args([
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
        ])
        .arg(format!("--initial-cluster=default={peer}"))
        .arg(format!("--unsafe-no-fsync={}", disk == Disk::Unsynced));
    let mut etcd = Process::start(&mut command, &log)?;
    let deadline = Instant::now() + READY_WITHIN;
    while tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_err() {
        if etcd.has_ended() || Instant::now() > deadline {
            bail!("etcd did not start: {}", tail(&log));
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Ok(etcd)
}

fn apiserver_command(binary: &Path, dir: &Path, authority: &Authority, port: u16, etcd_port: u16) -> Result<Command> {
    let (serving, signer) = (authority.serving()?, authority.serving()?);
    let files = [
        ("apiserver.crt", &serving.certificate),
        ("apiserver.key", &serving.key),
        ("client-ca.crt", &authority.certificate),
        ("sa-signer.crt", &signer.certificate),
        ("sa-signer.key", &signer.key),
    ];
    for (name, text) in files {
        std::fs::write(dir.join(name), text)?;
    }
    let file = |name: &str| dir.join(name).display().to_string();
    let mut command = Command::new(binary);
    command.args([
        "--allow-privileged=true".to_owned(),
        "--authorization-mode=RBAC".to_owned(),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--cert-dir={}", dir.display()),
        format!("--client-ca-file={}", file("client-ca.crt")),
        "--disable-admission-plugins=ServiceAccount".to_owned(),
        format!("--etcd-servers=http://127.0.0.1:{etcd_port}"),
        format!("--secure-port={port}"),
        format!("--service-account-issuer=https://127.0.0.1:{port}/"),
        format!("--service-account-key-file={}", file("sa-signer.crt")),
        format!("--service-account-signing-key-file={}", file("sa-signer.key")),
        "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
    ]);
    Ok(command)
}

/// Polls `/readyz` until it is 200 and says how long the process took to get there.
pub async fn wait_ready(endpoint: &Endpoint, process: &mut Process, log: &Path) -> Result<Duration> {
    let request = endpoint.request("GET", "/readyz", b"");
    let deadline = Instant::now() + READY_WITHIN;
    loop {
        if process.has_ended() || Instant::now() > deadline {
            bail!("the server did not become ready: {}", tail(log));
        }
        if let Ok(mut connection) = Connection::open(endpoint).await
            && let Ok(reply) = connection.exchange(&request, Body::Skip).await
            && reply.status == 200
        {
            return Ok(process.started.elapsed());
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

pub fn free_port() -> Result<u16> {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).context("no free port")?;
    Ok(listener.local_addr()?.port())
}

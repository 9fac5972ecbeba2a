//! Etcd processes for tests, and what tests do with stores again and again.
//!
//! Each etcd is held by a shell that kills it when its standard input ends. So it also goes away when the test process is
//! killed and cannot clean up.

use std::future::Future;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use mica_api::{GroupResource, PlaneId};
use mica_store::store::{Record, Signal, Watch};
use mica_store::{Change, EtcdConfig, EtcdStore, Key, PlaneKeys, Revision, Store, Txn, Write};
use tempfile::TempDir;

/// Longer than anything healthy takes, also on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);
const HOLDER: &str = r#""$@" >"$LOG" 2>&1 & echo $! >"$PID"; cat >/dev/null; kill -9 $!; wait"#;

/// One etcd process with a data directory of its own.
pub struct EtcdServer {
    dir: TempDir,
    pub client_port: u16,
    scheme: &'static str,
    arguments: Vec<String>,
    holder: Option<Child>,
}

impl EtcdServer {
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// With more arguments. Those that name a client URL get it from here.
    pub fn start_with(extra: &[&str]) -> Self {
        let (client_port, peer_port) = (free_port(), free_port());
        let peer = format!("http://127.0.0.1:{peer_port}");
        let cluster = format!("default={peer}");
        let mut extra = extra.to_vec();
        extra.extend(["--initial-cluster", &cluster]);
        Self::start_member("default", client_port, &peer, &extra)
    }

    fn start_member(name: &str, client_port: u16, peer: &str, extra: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let scheme = if extra.contains(&"--cert-file") {
            "https"
        } else {
            "http"
        };
        let client = format!("{scheme}://127.0.0.1:{client_port}");
        let data = dir.path().join("data");
        let mut arguments: Vec<String> = [
            "--name",
            name,
            "--data-dir",
            data.to_str().unwrap(),
            "--listen-client-urls",
            &client,
            "--advertise-client-urls",
            &client,
            "--listen-peer-urls",
            peer,
            "--initial-advertise-peer-urls",
            peer,
        ]
        .map(str::to_owned)
        .to_vec();
        arguments.extend(extra.iter().map(|text| (*text).to_owned()));
        let mut server = Self {
            dir,
            client_port,
            scheme,
            arguments,
            holder: None,
        };
        server.restart();
        server
    }

    /// Three members of one etcd.
    pub fn start_three() -> Vec<Self> {
        let ports: Vec<_> = (0..3).map(|_| (free_port(), free_port())).collect();
        let peers: Vec<_> = ports
            .iter()
            .map(|(_, port)| format!("http://127.0.0.1:{port}"))
            .collect();
        let members: Vec<_> = peers
            .iter()
            .enumerate()
            .map(|(i, peer)| format!("m{i}={peer}"))
            .collect();
        let cluster = members.join(",");
        let start = |(i, peer): (usize, &String)| {
            Self::start_member(&format!("m{i}"), ports[i].0, peer, &["--initial-cluster", &cluster])
        };
        peers.iter().enumerate().map(start).collect()
    }

    pub fn endpoint(&self) -> String {
        format!("{}://127.0.0.1:{}", self.scheme, self.client_port)
    }

    /// A configuration for tests: patient, and without compaction of its own.
    pub fn config(&self) -> EtcdConfig {
        config([self.endpoint()])
    }

    pub async fn connect(&self) -> EtcdStore {
        EtcdStore::connect(self.config())
            .await
            .expect("a running etcd can be connected to")
    }

    /// Starts a stopped server again, on the same data.
    pub fn restart(&mut self) {
        assert!(self.holder.is_none(), "it runs already");
        let holder = Command::new("sh")
            .args(["-c", HOLDER, "sh"])
            .arg(binary())
            .args(&self.arguments)
            .env("LOG", self.dir.path().join("log"))
            .env("PID", self.dir.path().join("pid"))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        self.holder = Some(holder);
    }

    /// Kills it, as by a power cut, and waits until it is gone.
    pub fn kill(&mut self) {
        if let Some(mut holder) = self.holder.take() {
            drop(holder.stdin.take());
            holder.wait().unwrap();
        }
    }

    /// Copies the data of a stopped server, or puts such a copy back.
    pub fn copy_data(&self, direction: Copy) {
        assert!(self.holder.is_none(), "it must be stopped for that");
        let (data, backup) = (self.dir.path().join("data"), self.dir.path().join("backup"));
        let (from, to) = match direction {
            Copy::ToBackup => (data, backup),
            Copy::FromBackup => (backup, data),
        };
        let _ = std::fs::remove_dir_all(&to);
        assert!(
            Command::new("cp")
                .arg("-r")
                .args([from, to])
                .status()
                .unwrap()
                .success()
        );
    }

    /// Stops it from running without closing its connections.
    pub fn freeze(&self) {
        self.signal("-STOP");
    }

    pub fn thaw(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        let pid = std::fs::read_to_string(self.dir.path().join("pid")).unwrap();
        assert!(
            Command::new("kill")
                .args([signal, pid.trim()])
                .status()
                .unwrap()
                .success()
        );
    }
}

impl Drop for EtcdServer {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
            let end: Vec<_> = log.lines().rev().take(5).collect();
            eprintln!("the end of etcd's log, newest first:\n{}", end.join("\n"));
        }
        self.kill();
    }
}

#[derive(Clone, Copy)]
pub enum Copy {
    ToBackup,
    FromBackup,
}

pub fn config(endpoints: impl IntoIterator<Item = String>) -> EtcdConfig {
    let mut config = EtcdConfig::new(endpoints);
    config.compaction = None;
    config.connect_timeout = PATIENCE;
    config
}

/// `MICA_TEST_ETCD` names another etcd than the one on the path.
fn binary() -> PathBuf {
    if let Some(path) = std::env::var_os("MICA_TEST_ETCD") {
        return path.into();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|dir| dir.join("etcd"))
        .find(|file| file.is_file())
        .expect("these tests need etcd, and none is on the PATH: run `make test`, which installs it")
}

/// A port that nobody listens on. Below those that the kernel gives to outgoing connections, so that none of them takes it
/// before etcd does; other test processes begin their search elsewhere.
pub fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = std::process::id()
            .wrapping_mul(97)
            .wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = u16::try_from(10_000 + number % 22_000).unwrap();
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// A plane that no other test of this process uses.
pub fn plane() -> PlaneKeys {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    // Spread over all ids: neighbours would share most of their text.
    let number = NEXT.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    PlaneKeys::new(PlaneId::from_random(number))
}

pub fn things() -> GroupResource {
    GroupResource::new("", "things")
}

pub fn thing(plane: PlaneKeys, name: &str) -> Key {
    plane.object(&things(), Some("ns"), name)
}

pub fn put(key: &Key, value: impl Into<Bytes>) -> Txn {
    let write = Write::Put {
        key: key.clone(),
        value: value.into(),
        ttl: None,
    };
    Txn {
        compares: Vec::new(),
        writes: vec![write],
    }
}

pub fn write(write: Write) -> Txn {
    Txn {
        compares: Vec::new(),
        writes: vec![write],
    }
}

pub async fn commit(store: &EtcdStore, txn: Txn) -> Revision {
    within("a commit", store.commit(txn))
        .await
        .expect("a healthy etcd takes it")
        .revision
}

pub async fn value(store: &EtcdStore, key: &Key) -> Option<String> {
    let record: Option<Record> = within("a get", store.get(key)).await.expect("a healthy etcd answers");
    record.map(|record| String::from_utf8(record.value.to_vec()).unwrap())
}

pub async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future)
        .await
        .unwrap_or_else(|_| panic!("{what} took longer than {PATIENCE:?}"))
}

/// Waits for a state, looking again and again.
pub async fn eventually<F, Fut>(what: &str, mut holds: F)
where
    F: FnMut() -> Fut,
    Fut: Future<Output = bool>,
{
    let begun = Instant::now();
    while !holds().await {
        assert!(begun.elapsed() < PATIENCE, "{what} did not come about");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// `name=value`, `name-` or `!plane` of the next signal.
pub async fn next(watch: &mut Watch) -> String {
    describe(
        &within("the next signal", watch.next())
            .await
            .expect("the watch goes on"),
    )
}

pub fn describe(signal: &Signal) -> String {
    match signal {
        Signal::Event(event) => match &event.change {
            Change::Put(value) => format!("{}={}", event.key.name(), String::from_utf8_lossy(value)),
            Change::Delete => format!("{}-", event.key.name()),
        },
        Signal::Dropped(plane, _) => format!("!{plane}"),
    }
}

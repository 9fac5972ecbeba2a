//! An etcd of a test's own: the real one.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use mica_server::pki::Authority;
use mica_store::etcd::{EtcdConfig, range};

/// How long it may take to answer: a machine may be very busy.
const PATIENCE: Duration = Duration::from_secs(90);
/// Held by a shell that kills it when its standard input ends, also when the test is killed.
const HOLDER: &str = r#""$@" >/dev/null 2>&1 & cat >/dev/null; kill -9 $!; wait"#;

/// An etcd of a test's own.
pub struct Etcd {
    _data: tempfile::TempDir,
    /// Its certificates, if it has some: they last as long as it does.
    files: Option<tempfile::TempDir>,
    holder: Child,
    pub endpoint: String,
}

impl Etcd {
    pub async fn start() -> Self {
        let etcd = Self::run("http", &[]);
        assert!(range::is_empty(&etcd.config("/none")).await.unwrap());
        etcd
    }

    /// One that shows a certificate of an authority, and asks for one of it.
    pub fn start_with_tls(authority: &Authority) -> Self {
        let files = tempfile::tempdir().unwrap();
        let hosts = ["127.0.0.1".to_owned()];
        let shown = authority.issue_serving("etcd", &hosts, SystemTime::now()).unwrap();
        let put = |name: &str, text: &str| {
            let path = files.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let ca = put("ca.crt", authority.certificate_pem());
        let (cert, key) = (put("tls.crt", &shown.certificate_pem), put("tls.key", &shown.key_pem));
        let mut arguments = vec!["--client-cert-auth", "--trusted-ca-file", &ca];
        arguments.extend(["--cert-file", &cert, "--key-file", &key]);
        let mut etcd = Self::run("https", &arguments);
        etcd.files = Some(files);
        etcd
    }

    fn run(scheme: &str, arguments: &[&str]) -> Self {
        let data = tempfile::tempdir().unwrap();
        let port = || {
            TcpListener::bind(("127.0.0.1", 0))
                .unwrap()
                .local_addr()
                .unwrap()
                .port()
        };
        let (endpoint, peer) = (
            format!("{scheme}://127.0.0.1:{}", port()),
            format!("http://127.0.0.1:{}", port()),
        );
        let mut command = Command::new("sh");
        command.args(["-c", HOLDER, "etcd"]).arg(binary());
        command.arg("--data-dir").arg(data.path());
        command.args(["--listen-client-urls", &endpoint, "--advertise-client-urls", &endpoint]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &format!("default={peer}")]);
        let holder = command.args(arguments).stdin(Stdio::piped()).spawn().unwrap();
        Self {
            _data: data,
            files: None,
            holder,
            endpoint,
        }
    }

    pub fn config(&self, prefix: &str) -> EtcdConfig {
        let mut config = EtcdConfig::new([self.endpoint.clone()]);
        config.prefix = prefix.to_owned();
        config.connect_timeout = PATIENCE;
        config
    }

    /// As `--store` takes it.
    pub fn store(&self) -> String {
        self.endpoint.replace("http://", "etcd://")
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        drop(self.holder.stdin.take());
        let _ = self.holder.wait();
        drop(self.files.take());
    }
}

/// `MICA_TEST_ETCD` names another etcd than the one on the path.
fn binary() -> PathBuf {
    if let Some(path) = std::env::var_os("MICA_TEST_ETCD") {
        return path.into();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|directory| directory.join("etcd"))
        .find(|file| file.is_file())
        .expect("these tests need etcd, and none is on the PATH: run `make test`, which installs it")
}

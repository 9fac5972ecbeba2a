//! A test environment: what envtest writes, starts and asks, in a directory of its own.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use mica_server::pki::{Authority, Identity, Issued, admin_kubeconfig, serving_names};
use mica_server::tls;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tempfile::TempDir;

use crate::process;

/// Longer than anything healthy takes, also on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.local_addr().unwrap().port()
}

/// A program that runs, with what it says on the standard error. Killed if a test drops it.
pub struct Program {
    child: Child,
    log: std::path::PathBuf,
}

impl Program {
    pub fn start(mut command: Command, log: std::path::PathBuf) -> Self {
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        Self { child, log }
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it says this.
    pub fn says(&self, words: &str) {
        let end = Instant::now() + PATIENCE;
        while !self.log().contains(words) {
            assert!(Instant::now() < end, "{words:?} is not in: {}", self.log());
            std::thread::yield_now();
        }
    }

    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    pub fn signal(&self, signal: &str) {
        let sent = Command::new("kill")
            .args([signal, &self.child.id().to_string()])
            .status()
            .unwrap();
        assert!(sent.success());
    }

    /// Asks it to end; its exit code.
    pub fn stop(mut self) -> Option<i32> {
        self.signal("-TERM");
        self.child.wait().unwrap().code()
    }

    /// Waits for an end that it comes to by itself: the code, and what it said.
    pub fn end(mut self) -> (Option<i32>, String) {
        let code = self.child.wait().unwrap().code();
        (code, self.log())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A directory with links to the program, certificates and data.
pub struct Environment {
    pub home: TempDir,
    pub authority: Authority,
}

impl Environment {
    pub fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        let authority = Authority::generate("ca", now).unwrap();
        let serving = authority
            .issue_serving("apiserver", &serving_names(["127.0.0.1".to_owned()]), now)
            .unwrap();
        let signer = authority.issue_serving("sa-signer", &serving_names([]), now).unwrap();
        let certs = home.path().join("certs");
        std::fs::create_dir(&certs).unwrap();
        for (name, text) in [
            ("apiserver.crt", &serving.certificate_pem),
            ("apiserver.key", &serving.key_pem),
            ("client-ca.crt", &authority.certificate_pem().to_owned()),
            ("sa-signer.crt", &signer.certificate_pem),
            ("sa-signer.key", &signer.key_pem),
        ] {
            std::fs::write(certs.join(name), text).unwrap();
        }
        let environment = Self { home, authority };
        let (code, out, error) = process::run(environment.path(), &["envtest", "install", "assets"]);
        assert_eq!(code, 0, "{error}");
        assert!(out.trim_end().ends_with("/assets"), "{out}");
        environment
    }

    pub fn path(&self) -> &Path {
        self.home.path()
    }

    /// A program of the assets, run in the directory.
    pub fn command(&self, name: &str) -> Command {
        let mut command = Command::new(self.path().join("assets").join(name));
        command.current_dir(self.path()).stdin(Stdio::null());
        command
    }

    /// The stub, answering.
    pub fn stub(&self, port: u16, more: &[&str]) -> Program {
        let mut command = self.command("etcd");
        let url = format!("http://127.0.0.1:{port}");
        command
            .args([
                format!("--advertise-client-urls={url}"),
                format!("--listen-client-urls={url}"),
            ])
            .args(["--listen-peer-urls=http://localhost:0", "--data-dir=etcd"])
            .args(more);
        let stub = Program::start(command, self.path().join("etcd.log"));
        stub.says("ready to serve client requests");
        stub
    }

    /// The server as envtest calls it.
    pub fn apiserver_command(&self, port: u16, etcd: u16) -> Command {
        let mut command = self.command("kube-apiserver");
        command.args([
            "--allow-privileged=true".to_owned(),
            "--authorization-mode=RBAC".to_owned(),
            "--bind-address=127.0.0.1".to_owned(),
            "--cert-dir=certs".to_owned(),
            "--client-ca-file=certs/client-ca.crt".to_owned(),
            "--disable-admission-plugins=ServiceAccount".to_owned(),
            format!("--etcd-servers=http://127.0.0.1:{etcd}"),
            format!("--secure-port={port}"),
            format!("--service-account-issuer=https://127.0.0.1:{port}/"),
            "--service-account-key-file=certs/sa-signer.crt".to_owned(),
            "--service-account-signing-key-file=certs/sa-signer.key".to_owned(),
            "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
        ]);
        command
    }

    pub fn apiserver(&self, port: u16, etcd: u16, more: &[&str]) -> Program {
        let mut command = self.apiserver_command(port, etcd);
        command.args(more);
        Program::start(command, self.path().join(format!("apiserver-{port}.log")))
    }

    /// Waits until the server is ready, as who is unknown to it sees it.
    pub fn ready(&self, server: &mut Program, port: u16) {
        let end = Instant::now() + PATIENCE;
        while self.get(port, "/readyz", None, "").is_none_or(|(code, _)| code != 200) {
            assert!(!server.has_ended() && Instant::now() < end, "{}", server.log());
            std::thread::yield_now();
        }
        let kubeconfig = admin_kubeconfig(
            &format!("https://127.0.0.1:{port}"),
            self.authority.certificate_pem(),
            &self.user("admin", Some("system:masters")),
        );
        std::fs::write(self.path().join("kubeconfig"), kubeconfig).unwrap();
    }

    pub fn user(&self, name: &str, group: Option<&str>) -> Issued {
        let identity = Identity {
            name: name.to_owned(),
            group: group.map(str::to_owned),
        };
        self.authority.issue_client(&identity, SystemTime::now()).unwrap()
    }

    /// Runs a command of ours as the administrator.
    pub fn mica(&self, arguments: &[&str]) -> (i32, String, String) {
        process::run(self.path(), &[arguments, &["--kubeconfig", "kubeconfig"]].concat())
    }

    /// One GET over a connection of its own; `None` if there was no answer.
    pub fn get(&self, port: u16, path: &str, user: Option<&Issued>, token: &str) -> Option<(u16, String)> {
        use rustls::pki_types::pem::PemObject as _;
        use rustls::pki_types::{CertificateDer, PrivateKeyDer};
        let mut roots = RootCertStore::empty();
        roots.add(self.authority.certificate().clone()).unwrap();
        let builder = ClientConfig::builder_with_provider(tls::provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let config = match user {
            None => builder.with_no_client_auth(),
            Some(user) => {
                let chain = vec![CertificateDer::from_pem_slice(user.certificate_pem.as_bytes()).unwrap()];
                let key = PrivateKeyDer::from_pem_slice(user.key_pem.as_bytes()).unwrap();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        };
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let connection = ClientConnection::new(Arc::new(config), name).unwrap();
        let tcp = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?;
        let mut stream = StreamOwned::new(connection, tcp);
        let header = match token {
            "" => String::new(),
            token => format!("Authorization: Bearer {token}\r\n"),
        };
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n{header}\r\n"
        )
        .ok()?;
        answer(stream)
    }
}

/// One GET without TLS.
pub fn get_plain(port: u16, path: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
    )
    .ok()?;
    answer(stream)
}

/// The code and the body, which may be in one chunk.
fn answer(stream: impl std::io::Read) -> Option<(u16, String)> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let code = line.split_whitespace().nth(1)?.parse().ok()?;
    loop {
        line.clear();
        reader.read_line(&mut line).ok()?;
        if line.trim().is_empty() {
            break;
        }
    }
    let mut body = String::new();
    // Who closes without a goodbye has still answered.
    let _ = reader.read_to_string(&mut body);
    Some((code, body))
}

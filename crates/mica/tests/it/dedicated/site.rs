//! A `mica up` with its operator that can be killed and started again at one address, and what clients do with it.

use std::net::TcpListener;
use std::path::Path;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::Value;

use super::super::process::{Up, mica};
use super::shop::{PATIENCE, Shop, calls, kill};

pub const CONTROL_PLANES: &str = "/apis/controlplane.kplane.dev/v1alpha1/controlplanes";
/// How soon to look again, and to ask again where nobody answers.
pub const LOOK: Duration = Duration::from_millis(50);
/// How long a request may take: servers are killed under it.
const ANSWER: Duration = Duration::from_secs(20);
/// Where servers listen that come back to their address: below the ports of outgoing connections, one of which could have
/// it meanwhile, and above those of dedicated servers.
const PORTS: std::ops::Range<u16> = 30_000..32_768;

pub struct Site {
    home: tempfile::TempDir,
    pub shop: Shop,
    port: u16,
    arguments: Vec<String>,
}

impl Site {
    pub fn new(arguments: &[&str]) -> Self {
        let mut ports = std::iter::repeat_with(|| rand::random_range(PORTS));
        Self {
            home: tempfile::tempdir().unwrap(),
            shop: Shop::new(),
            port: ports
                .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
                .unwrap(),
            arguments: arguments.iter().map(|one| (*one).to_owned()).collect(),
        }
    }

    /// Starts the server with the operator, and waits until it answers.
    pub fn start(&self) -> Up {
        let mut command = mica(self.home.path());
        command
            .args(["up", "--log", "warn", "--listen", &format!("127.0.0.1:{}", self.port)])
            .arg("--dedicated-dir")
            .arg(self.shop.servers())
            .arg("--dedicated-versions")
            .arg(self.shop.versions())
            .args(&self.arguments);
        tokio::task::block_in_place(|| Up::run(command))
    }

    /// Where the server was started.
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    pub async fn administrator(&self) -> kube::Client {
        let path = self.home.path().join(".mica/admin.kubeconfig");
        client(&std::fs::read_to_string(path).unwrap()).await.unwrap()
    }

    /// Kills the server of a control plane's own, if one runs.
    pub fn kill_own(&self, name: &str) {
        if let Some(pid) = self.own(name) {
            kill(pid);
        }
    }

    /// The process of a control plane's own server, if one runs.
    pub fn own(&self, name: &str) -> Option<u32> {
        let directory = self.shop.servers().join(name);
        let record = std::fs::read(directory.join("server.json")).unwrap_or_default();
        let record: Value = serde_json::from_slice(&record).unwrap_or_default();
        let pid = u32::try_from(record["process"]["pid"].as_u64()?).ok()?;
        is_of(pid, &directory).then_some(pid)
    }
}

/// Whether a process is the server of a directory: its id may be another's by now.
fn is_of(pid: u32, directory: &Path) -> bool {
    calls(pid).contains(directory.to_str().unwrap())
}

/// Ends a server at once, as a crash does.
pub fn crash(up: Up) {
    up.signal("-KILL");
    tokio::task::block_in_place(|| up.wait());
}

pub async fn client(kubeconfig: &str) -> Option<kube::Client> {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig).ok()?;
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    kube::Client::try_from(config.ok()?).ok()
}

/// Why a request came to nothing.
pub struct Refused {
    /// The code of the answer; 0 where none came, and it is not known whether the request was carried out.
    pub code: u16,
    message: String,
}

impl std::fmt::Debug for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.code, self.message)
    }
}

pub async fn send(client: &kube::Client, method: &str, path: &str, body: &Value) -> Result<Value, Refused> {
    let kind = match method {
        "PATCH" => "application/merge-patch+json",
        _ => "application/json",
    };
    let body = match body {
        Value::Null => Vec::new(),
        body => body.to_string().into_bytes(),
    };
    let request = http::Request::builder().method(method).uri(path);
    let request = request.header("content-type", kind).body(body).unwrap();
    match tokio::time::timeout(ANSWER, client.request(request)).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(kube::Error::Api(status))) => Err(Refused {
            code: status.code,
            message: status.message.clone(),
        }),
        Ok(Err(error)) => Err(Refused {
            code: 0,
            message: error.to_string(),
        }),
        Err(_) => Err(Refused {
            code: 0,
            message: "no answer".to_owned(),
        }),
    }
}

pub async fn get(client: &kube::Client, path: &str) -> Result<Value, Refused> {
    send(client, "GET", path, &Value::Null).await
}

/// Waits until an object is as it should be, whoever is down meanwhile.
pub async fn until(client: &kube::Client, path: &str, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    let begun = Instant::now();
    loop {
        let found = get(client, path).await;
        match &found {
            Ok(found) if is_so(found) => return found.clone(),
            _ => assert!(begun.elapsed() < PATIENCE, "{path} is not {what}: {found:?}"),
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Waits until an object is gone.
pub async fn until_gone(client: &kube::Client, path: &str) {
    let begun = Instant::now();
    loop {
        let found = get(client, path).await;
        match &found {
            Err(refused) if refused.code == 404 => return,
            _ => assert!(begun.elapsed() < PATIENCE, "{path} does not go: {found:?}"),
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Sends until it is taken.
pub async fn insist(client: &kube::Client, method: &str, path: &str, body: &Value) -> Value {
    let begun = Instant::now();
    loop {
        match send(client, method, path, body).await {
            Ok(answer) => return answer,
            Err(refused) => assert!(begun.elapsed() < PATIENCE, "{method} {path}: {refused:?}"),
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Whether a ControlPlane is ready, as it is wanted now.
pub fn is_ready(found: &Value) -> bool {
    let conditions = found["status"]["conditions"].as_array();
    let ready = conditions.is_some_and(|all| all.iter().any(|one| one["type"] == "Ready" && one["status"] == "True"));
    ready && found["metadata"]["generation"] == found["status"]["observedGeneration"]
}

/// What whoever reads the Secret of a control plane has, if there is one now.
pub async fn inside(root: &kube::Client, name: &str) -> Option<kube::Client> {
    let path = format!("/api/v1/namespaces/kplane-cp-{name}/secrets/controlplane-{name}-kubeconfig");
    let secret = get(root, &path).await.ok()?;
    let text = STANDARD.decode(secret["data"]["kubeconfig"].as_str()?).ok()?;
    client(&String::from_utf8(text).ok()?).await
}

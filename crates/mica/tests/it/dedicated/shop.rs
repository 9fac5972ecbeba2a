//! A directory of dedicated servers, and what tests do with it. Whatever runs there ends with the test.

use std::collections::BTreeMap;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use mica_api::control_plane::DeletionPolicy;
use mica_controllers::control_plane::Home;
use mica_controllers::dedicated::{
    Binary, Options, PORTS, Place, Process, Provider, Provisioned, Refused, Retired, Versions, Wanted,
};
use serde_json::{Value, json};

/// How long a state may take to come: a machine may be very busy.
pub const PATIENCE: Duration = Duration::from_secs(180);

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

pub struct Shop {
    home: tempfile::TempDir,
}

impl Shop {
    pub fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join("versions")).unwrap();
        Self { home }
    }

    pub fn servers(&self) -> PathBuf {
        self.home.path().join("servers")
    }

    pub fn versions(&self) -> PathBuf {
        self.home.path().join("versions")
    }

    pub fn options(&self) -> Options {
        Options {
            directory: self.servers(),
            versions: Versions {
                own: Binary {
                    version: "1.0".to_owned(),
                    path: env!("CARGO_BIN_EXE_mica").into(),
                },
                named: BTreeMap::new(),
                directory: Some(self.versions()),
            },
            listen: "127.0.0.1".to_owned(),
            advertise: None,
            ports: PORTS,
            arguments: vec!["--log".into(), "warn".into()],
        }
    }

    pub fn place(&self) -> Arc<Place> {
        Arc::new(Place::new(self.options()))
    }

    /// A provider, as an operator has it.
    pub fn provider(&self) -> Process {
        Process::embedded(self.place())
    }

    /// Another version that is this very program.
    pub fn add_version(&self, version: &str) {
        symlink(env!("CARGO_BIN_EXE_mica"), self.versions().join(version)).unwrap();
    }

    /// Another version that is a shell script.
    pub fn add_script(&self, version: &str, script: &str) {
        let path = self.versions().join(version);
        let mica = env!("CARGO_BIN_EXE_mica");
        std::fs::write(&path, format!("#!/bin/sh\nMICA={mica}\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    }

    pub fn record(&self, name: &str) -> Value {
        let text = std::fs::read(self.servers().join(name).join("server.json")).unwrap();
        serde_json::from_slice(&text).unwrap()
    }

    pub fn write_record(&self, name: &str, record: &Value) {
        let path = self.servers().join(name).join("server.json");
        std::fs::write(path, record.to_string()).unwrap();
    }

    pub fn pid(&self, name: &str) -> u32 {
        u32::try_from(self.record(name)["process"]["pid"].as_u64().unwrap()).unwrap()
    }
}

impl Drop for Shop {
    fn drop(&mut self) {
        let servers = std::fs::read_dir(self.servers()).into_iter().flatten().flatten();
        for server in servers {
            let lock = std::fs::read_to_string(server.path().join("data/lock")).unwrap_or_default();
            let pid = lock.strip_prefix("process ").and_then(|rest| rest.split(' ').next());
            if let Some(pid) = pid.and_then(|pid| pid.parse().ok())
                && calls(pid).contains(server.path().to_str().unwrap())
            {
                kill(pid);
            }
        }
    }
}

pub fn wanted(name: &str, version: Option<&str>) -> Wanted {
    Wanted {
        name: name.to_owned(),
        cluster_path: name.to_owned(),
        version: version.map(str::to_owned),
        parameters: BTreeMap::new(),
        adopts: None,
    }
}

/// How a process was called; nothing if there is none.
pub fn calls(pid: u32) -> String {
    String::from_utf8_lossy(&std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default()).replace('\0', " ")
}

pub fn kill(pid: u32) {
    let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).status();
}

/// Waits for something that the provider tells of.
pub async fn until<T>(provider: &Process, what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let mut changes = provider.changes();
    let looking = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            changes.recv().await.unwrap();
        }
    };
    match tokio::time::timeout(PATIENCE, looking).await {
        Ok(found) => found,
        Err(_) => panic!("{what}: it does not come"),
    }
}

/// Waits until a server runs as it is wanted.
pub async fn running(provider: &Process, wanted: &Wanted) -> (Home, String) {
    until(provider, "a server that runs", async || {
        match provider.provision(wanted).await {
            Ok(Provisioned::Running { home, version }) if wanted.version.as_ref().is_none_or(|one| *one == version) => {
                Some((home, version))
            }
            Ok(_) | Err(Refused::Failed { .. }) => None,
            Err(refused) => panic!("{refused}"),
        }
    })
    .await
}

pub async fn retired(provider: &Process, name: &str, policy: DeletionPolicy) {
    until(provider, "the end of a server", async || {
        match provider.retire(name, policy).await {
            Ok(Retired::Done) => Some(()),
            Ok(Retired::Pending { .. }) => None,
            Err(refused) => panic!("{refused}"),
        }
    })
    .await;
}

/// Leaves something with a server.
pub async fn put(home: &Home, name: &str) {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    home.api.create(MAPS, &map).await.unwrap();
}

pub async fn has(home: &Home, name: &str) -> bool {
    match home.api.get(&format!("{MAPS}/{name}")).await {
        Ok(_) => true,
        Err(refusal) if refusal.is_not_found() => false,
        Err(refusal) => panic!("{refusal}"),
    }
}

pub fn exists(path: &Path) -> bool {
    path.exists()
}

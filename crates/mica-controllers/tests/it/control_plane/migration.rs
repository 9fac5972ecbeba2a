//! Control planes whose mode changes: what becomes of their addresses, credentials and clients.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use mica_api::control_plane::{DRAIN_ANNOTATION, DeletionPolicy, KUBECONFIG, Mode};
use mica_controllers::census::Census;
use mica_controllers::control_plane::Settings;
use mica_controllers::dedicated::{Provider, Provisioned, Refused, Retired, Wanted};
use mica_server::authz::User;
use mica_server::pki::Authority;
use mica_testkit::TestServer;
use serde_json::{Value, json};
use tokio::sync::{Mutex, broadcast};

use super::census::migrations;
use super::{
    CONTROL_PLANES, Place, World, ask, client, control_plane, kubeconfig, secret_path, server, until_ready, until_says,
};
use crate::world;

pub const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Runs servers in this process.
pub struct Own {
    servers: Mutex<HashMap<String, TestServer>>,
    authority: Arc<Authority>,
    census: Census,
    changes: broadcast::Sender<String>,
}

impl Own {
    pub async fn runs(&self) -> bool {
        !self.servers.lock().await.is_empty()
    }

    /// The administrator of a control plane's server.
    pub async fn client(&self, name: &str) -> mica_testkit::kube::Client {
        self.servers.lock().await[name].client_inside(User::system())
    }

    /// The address of a control plane's server.
    pub async fn url(&self, name: &str) -> String {
        self.servers.lock().await[name].url()
    }
}

#[async_trait]
impl Provider for Own {
    fn kind(&self) -> &'static str {
        "Process"
    }

    async fn provision(&self, wanted: &Wanted) -> Result<Provisioned, Refused> {
        let mut servers = self.servers.lock().await;
        if !servers.contains_key(&wanted.name) {
            let builder = TestServer::builder().authority(self.authority.clone());
            let started = builder.start().await;
            started.server().admit_controllers().await.unwrap();
            servers.insert(wanted.name.clone(), started);
            let _ = self.changes.send(wanted.name.clone());
            // As servers do: it is there when its name is told.
            let message = "it starts".to_owned();
            return Ok(Provisioned::Pending { message });
        }
        drop(servers);
        self.find(&wanted.name).await.map(Option::unwrap)
    }

    async fn find(&self, name: &str) -> Result<Option<Provisioned>, Refused> {
        let servers = self.servers.lock().await;
        Ok(servers.get(name).map(|server| Provisioned::Running {
            home: world::home(server),
            version: "1.2".to_owned(),
        }))
    }

    async fn will_keep(&self, _name: &str, _plane_id: &str) -> Result<(), Refused> {
        Ok(())
    }

    async fn retire(&self, name: &str, _policy: DeletionPolicy) -> Result<Retired, Refused> {
        self.servers.lock().await.remove(name);
        Ok(Retired::Done)
    }

    fn changes(&self) -> broadcast::Receiver<String> {
        self.changes.subscribe()
    }
}

/// A server with an operator, which may run others.
pub async fn two() -> (World, Place, Arc<Own>) {
    let server = server().await;
    let own = Arc::new(Own {
        servers: Mutex::default(),
        authority: Arc::new(Authority::generate("test-ca", SystemTime::now()).unwrap()),
        census: Census::default(),
        changes: broadcast::Sender::new(16),
    });
    let settings = Settings {
        census: own.census.clone(),
        providers: vec![own.clone()],
        drain: Duration::ZERO,
        ..Settings::new(world::home(&server))
    };
    let world = World::with_settings(server, settings).await;
    let root = world.root();
    (world, root, own)
}

/// The client that whoever reads the Secret has.
pub async fn admin(root: &Place, name: &str) -> mica_testkit::kube::Client {
    let secret = root.get(&secret_path(name)).await.unwrap();
    client(&kubeconfig(&secret, KUBECONFIG)).await
}

pub async fn map(client: &mica_testkit::kube::Client, name: &str) -> Result<Value, mica_testkit::kube::Error> {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    ask(client, "POST", MAPS, map).await
}

pub async fn mode(root: &Place, name: &str, mode: &str) {
    let path = format!("{CONTROL_PLANES}/{name}");
    root.patch(&path, json!({"spec": {"mode": mode}})).await;
}

/// Waits until a migration is over and its ControlPlane ready.
pub async fn until_moved(root: &Place, name: &str, to: &str) -> Value {
    until_says(root, name, "Migrated", "True", "Reconciled").await;
    let path = format!("{CONTROL_PLANES}/{name}");
    let moved = |found: Option<&Value>| {
        found.is_some_and(|found| {
            let migration = &found["status"]["migration"];
            migration["to"] == to && migration["step"] == "Completed" && found["status"]["phase"] == "Ready"
        })
    };
    root.until(&path, "moved", moved).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_control_plane_moves_with_its_data_addresses_and_credentials_and_comes_back() {
    let (world, root, own) = two().await;
    control_plane(&root, "a", json!({})).await;
    let before = until_ready(&root, "a").await;
    assert!(
        before["status"]["endpoint"]
            .as_str()
            .unwrap()
            .starts_with(&world.server.url())
    );
    let old = admin(&root, "a").await;
    let made = map(&old, "one").await.unwrap();

    mode(&root, "a", "Dedicated").await;
    let after = until_moved(&root, "a", "Dedicated").await;
    let endpoint = after["status"]["endpoint"].as_str().unwrap();
    assert!(
        endpoint.starts_with("https://127.0.0.1:") && !endpoint.starts_with(&world.server.url()),
        "{endpoint}"
    );
    assert_eq!(after["status"]["version"], "1.2");
    assert_eq!(
        after["status"]["kubeconfigSecretRef"],
        before["status"]["kubeconfigSecretRef"]
    );
    let new = admin(&root, "a").await;
    let found = ask(&new, "GET", &format!("{MAPS}/one"), Value::Null).await.unwrap();
    assert_eq!(found["metadata"]["uid"], made["metadata"]["uid"]);
    assert_eq!(
        found["metadata"]["resourceVersion"],
        made["metadata"]["resourceVersion"]
    );
    map(&new, "two").await.unwrap();
    // The old address says where it is.
    let refused = map(&old, "three").await.unwrap_err().to_string();
    assert!(refused.contains(endpoint), "{refused}");
    let events = root.get("/api/v1/namespaces/default/events").await.unwrap();
    let told = |reason: &str| {
        let mut all = events["items"].as_array().unwrap().iter();
        all.any(|event| event["reason"] == reason && event["involvedObject"]["name"] == "a")
    };
    for reason in ["MigrationStarted", "MigrationSwitched", "MigrationCompleted"] {
        assert!(told(reason), "{reason}");
    }

    mode(&root, "a", "Virtual").await;
    let back = until_moved(&root, "a", "Virtual").await;
    assert!(
        back["status"]["endpoint"]
            .as_str()
            .unwrap()
            .starts_with(&world.server.url())
    );
    assert!(!own.runs().await, "its server is not needed any more");
    let home = admin(&root, "a").await;
    ask(&home, "GET", &format!("{MAPS}/two"), Value::Null).await.unwrap();
    map(&home, "three").await.unwrap();
    for to in [Mode::Dedicated, Mode::Virtual] {
        // They are counted when they are written down.
        root.until(CONTROL_PLANES, "counted", |_| migrations(&own.census, to) == [1, 1, 0])
            .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_old_address_is_good_until_the_drain_is_ended() {
    let (_world, root, _own) = two().await;
    control_plane(&root, "a", json!({})).await;
    until_ready(&root, "a").await;
    let path = format!("{CONTROL_PLANES}/a");
    let annotate = |time: &str| json!({"metadata": {"annotations": {DRAIN_ANNOTATION: time}}});
    root.patch(&path, annotate("1h")).await;
    let old = admin(&root, "a").await;
    mode(&root, "a", "Dedicated").await;
    let secret = root.get(&secret_path("a")).await.unwrap();
    root.until(&path, "draining", |found| {
        found.is_some_and(|found| {
            found["status"]["migration"]["step"] == "Draining" && found["status"]["phase"] == "Migrating"
        })
    })
    .await;
    // The Secret keeps its name and has what leads there.
    root.until(&secret_path("a"), "another", |found| {
        found.is_some_and(|found| found["data"] != secret["data"])
    })
    .await;
    map(&old, "through-the-old-address").await.unwrap();
    let new = admin(&root, "a").await;
    ask(&new, "GET", &format!("{MAPS}/through-the-old-address"), Value::Null)
        .await
        .unwrap();
    root.patch(&path, annotate("0s")).await;
    until_moved(&root, "a", "Dedicated").await;
    assert!(map(&old, "too-late").await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_control_plane_that_is_deleted_under_way_leaves_nothing() {
    let (_world, root, own) = two().await;
    control_plane(&root, "a", json!({"deletionPolicy": "Destroy"})).await;
    until_ready(&root, "a").await;
    let path = format!("{CONTROL_PLANES}/a");
    root.patch(&path, json!({"metadata": {"annotations": {DRAIN_ANNOTATION: "1h"}}}))
        .await;
    mode(&root, "a", "Dedicated").await;
    root.until(&path, "draining", |found| {
        found.is_some_and(|found| found["status"]["migration"]["step"] == "Draining")
    })
    .await;
    root.delete(&path).await;
    root.until_gone(&path).await;
    root.until_gone("/apis/mica.dev/v1alpha1/planes/a").await;
    assert!(!own.runs().await);
}

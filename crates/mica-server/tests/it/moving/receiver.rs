//! Receivers of another sort: etcd, which cannot skip revisions, and stores that hide what they hold.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mica_server::seal::Sealing;
use mica_server::seal::config::Table;
use mica_store::{EtcdConfig, EtcdStore, KeyRange, MemStore, RangeQuery, Store};
use serde_json::{Value, json};

use super::super::world::{MAPS, World, map, names, revision_of, text};
use super::{Move, content, furnish};

const SECRETS: &str = "/api/v1/namespaces/default/secrets";
/// What must be found nowhere.
const PLAIN: &str = "attack at dawn, all of us";
const PATIENCE: Duration = Duration::from_secs(60);

/// An etcd that ends with the test, also if that is killed: a shell holds it until its standard input ends.
struct Etcd {
    holder: Child,
    endpoint: String,
    directory: tempfile::TempDir,
}

impl Etcd {
    fn start() -> Self {
        let free = || {
            let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
            format!("http://127.0.0.1:{}", listener.local_addr().unwrap().port())
        };
        let (client, peer, directory) = (free(), free(), tempfile::tempdir().unwrap());
        let data = directory.path().join("data");
        let holder = Command::new("sh")
            .args(["-c", r#""$@" >/dev/null 2>&1 & cat >/dev/null; kill -9 $!; wait"#, "sh"])
            .arg(binary())
            .arg("--data-dir")
            .arg(data)
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("default={peer}")])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            holder,
            endpoint: client,
            directory,
        }
    }

    async fn connect(&self) -> EtcdStore {
        let mut config = EtcdConfig::new([self.endpoint.clone()]);
        config.compaction = None;
        config.connect_timeout = PATIENCE;
        EtcdStore::connect(config).await.unwrap()
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        drop(self.holder.stdin.take());
        let _ = self.holder.wait();
        assert!(self.directory.path().exists() || std::thread::panicking());
    }
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
        .expect("this test needs etcd, and none is on the PATH: run `make test`, which installs it")
}

fn without_versions(mut all: Vec<Value>) -> Vec<Value> {
    for object in &mut all {
        object["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_etcd_everything_arrives_with_new_versions_and_watches_start_over() {
    let etcd = Etcd::start();
    let store: Arc<dyn Store> = Arc::new(etcd.connect().await);
    let moving = Move::between(Arc::new(MemStore::new()), store, tempfile::tempdir().unwrap()).await;
    let here = moving.here();
    furnish(&here).await;
    let seen = here.get(MAPS).await.expect(200);
    let copied = moving.copy().await;
    here.patch(&format!("{MAPS}/m1"), &json!({"data": {"k": "2"}}))
        .await
        .expect(200);
    here.delete(&format!("{MAPS}/m2")).await.expect(200);
    here.post(MAPS, &map("late")).await.expect(201);
    // What is sent twice is taken once here, too.
    let first = moving.catch_up(copied).await;
    moving.catch_up(copied).await;
    moving.state("Moving").await.expect(200);
    moving.catch_up(first).await;
    let (old, new) = moving.digests().await;
    assert_eq!((&old["objects"], &old["hash"]), (&new["objects"], &new["hash"]));
    assert_ne!(old["versions"], new["versions"]);
    let before = without_versions(content(&here).await);
    moving.open().await.expect(201);
    let there = moving.there();
    assert_eq!(without_versions(content(&there).await), before);
    // Versions of the old server mean nothing here: whoever has one is told to list again.
    for version in [revision_of(&seen), copied, first] {
        let watch = there
            .get(&format!("{MAPS}?watch=1&resourceVersion={version}&timeoutSeconds=5"))
            .await;
        let told = watch.code() == 410 || text(&watch.json(), "/object/reason") == "Expired";
        assert!(told, "{version}: {}", watch.json());
    }
    let listed = there.get(MAPS).await.expect(200);
    let path = format!("{MAPS}?watch=1&resourceVersion={}", revision_of(&listed));
    let mut watch = there.watch(&path).await;
    there.post(MAPS, &map("made-there")).await.expect(201);
    let event = watch.next().await.unwrap();
    assert_eq!(text(&event, "/object/metadata/name"), "made-there");
    drop(watch);
    moving.stop().await;
}

fn sealing(letter: u8) -> Arc<Sealing> {
    let text = format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n\
         - resources: [secrets]\n  providers: [{{secretbox: {{keys: [{{name: k, secret: {}}}]}}}}]\n",
        STANDARD.encode([letter; 32])
    );
    Arc::new(Sealing::new(Table::parse(text.as_bytes()).unwrap()))
}

fn secret(name: &str) -> Value {
    json!({"metadata": {"name": name}, "stringData": {"plan": PLAIN}})
}

async fn lies_open(store: &Arc<dyn Store>) -> bool {
    let query = RangeQuery {
        range: &KeyRange::All,
        at: None,
        after: None,
        limit: 100_000,
    };
    let page = store.range(query).await.unwrap();
    let (plain, encoded) = (PLAIN.as_bytes(), STANDARD.encode(PLAIN));
    let has = |value: &[u8], what: &[u8]| value.windows(what.len()).any(|part| part == what);
    page.records
        .iter()
        .any(|(_, record)| has(&record.value, plain) || has(&record.value, encoded.as_bytes()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_store_hides_is_hidden_on_the_way_and_where_it_arrives() {
    let world = |letter| World::sealed(Arc::new(MemStore::new()), sealing(letter));
    let moving = Move::of(world(b'a').await, world(b'a').await, tempfile::tempdir().unwrap()).await;
    let here = moving.here();
    furnish(&here).await;
    here.post(SECRETS, &secret("one")).await.expect(201);
    let snapshot = moving.taken("revisions=true").await;
    assert!(!snapshot.windows(PLAIN.len()).any(|part| part == PLAIN.as_bytes()));
    let encoded = STANDARD.encode(PLAIN);
    assert!(!snapshot.windows(encoded.len()).any(|part| part == encoded.as_bytes()));
    let copied = moving.copy().await;
    here.post(SECRETS, &secret("two")).await.expect(201);
    let before = here.get(SECRETS).await.expect(200);
    moving.finish(copied).await;
    assert_eq!(moving.there().get(SECRETS).await.expect(200)["items"], before["items"]);
    assert_eq!(names(&before), ["one", "two"]);
    for store in [&moving.old.store, &moving.new.store] {
        assert!(!lies_open(store).await);
    }
    moving.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_without_the_key_takes_nothing() {
    let world = |letter| World::sealed(Arc::new(MemStore::new()), sealing(letter));
    let moving = Move::of(world(b'a').await, world(b'b').await, tempfile::tempdir().unwrap()).await;
    moving.here().post(SECRETS, &secret("one")).await.expect(201);
    let snapshot = moving.taken("revisions=true").await;
    let refused = moving.arrive(snapshot).await;
    assert!((400..500).contains(&refused.code()), "{}", refused.json());
    assert_eq!(moving.open().await.code(), 409, "it is not whole");
    moving.stop().await;
}

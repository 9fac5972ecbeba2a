//! Encryption at rest: what lies in the store, who can read it, and what happens when keys come and go.

use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use mica_server::seal::Sealing;
use mica_server::seal::config::Table;
use mica_store::embedded::Options;
use mica_store::{EmbeddedStore, KeyRange, MemStore, RangeQuery, Store};
use serde_json::{Value, json};

use super::world::{Api, MAPS, PLANES, World, names, text};

const SECRETS: &str = "/api/v1/namespaces/default/secrets";
/// What must be found nowhere.
const PLAIN: &str = "attack at dawn, all of us";

fn key(letter: char) -> String {
    STANDARD.encode([letter as u8; 32])
}

/// A configuration for secrets and configmaps with these providers, in flow style.
fn table(providers: &str) -> Table {
    let text = format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n\
         - resources: [secrets, configmaps]\n  providers: [{providers}]\n"
    );
    Table::parse(text.as_bytes()).unwrap()
}

fn provider(kind: &str, keys: &[char]) -> String {
    let keys: Vec<String> = keys
        .iter()
        .map(|letter| format!("{{name: key{letter}, secret: {}}}", key(*letter)))
        .collect();
    format!("{{{kind}: {{keys: [{}]}}}}", keys.join(", "))
}

async fn world(store: &Arc<dyn Store>, sealing: &Arc<Sealing>) -> World {
    World::sealed(store.clone(), sealing.clone()).await
}

fn secret(name: &str) -> Value {
    json!({"metadata": {"name": name}, "stringData": {"plan": PLAIN}})
}

/// The values in a store at keys that end so, as they lie there.
async fn raw(store: &Arc<dyn Store>, end: &str) -> Vec<Vec<u8>> {
    let query = RangeQuery {
        range: &KeyRange::All,
        at: None,
        after: None,
        limit: 100_000,
    };
    let page = store.range(query).await.unwrap();
    let found = page.records.into_iter().filter(|(key, _)| key.as_str().ends_with(end));
    found.map(|(_, record)| record.value.to_vec()).collect()
}

async fn prefix(store: &Arc<dyn Store>, end: &str) -> String {
    let values = raw(store, end).await;
    assert_eq!(values.len(), 1, "{end}");
    let text = String::from_utf8_lossy(&values[0]).into_owned();
    text.chars().take_while(char::is_ascii_graphic).take(28).collect()
}

async fn plan(api: &Api, name: &str) -> String {
    let read = api.get(&format!("{SECRETS}/{name}")).await.expect(200);
    String::from_utf8(STANDARD.decode(text(&read, "/data/plan")).unwrap()).unwrap()
}

#[tokio::test]
async fn values_are_hidden_in_the_store_and_plain_to_clients() {
    for (kind, expected) in [
        ("aesgcm", "k8s:enc:aesgcm:v1:keya:"),
        ("secretbox", "k8s:enc:secretbox:v1:keya:"),
        ("aescbc", "k8s:enc:aescbc:v1:keya:"),
        ("planes", "k8s:enc:planes:v1:"),
    ] {
        let store: Arc<dyn Store> = Arc::new(MemStore::new());
        let sealing = Arc::new(Sealing::new(table(&provider(kind, &['a']))));
        let world = world(&store, &sealing).await;
        let (root, one) = (world.root().await, world.plane("one").await);
        let mut watch = one.watch(&format!("{SECRETS}?watch=true")).await;
        let mut wide = root
            .at("/clusters/*/control-plane")
            .watch("/api/v1/secrets?watch=true&resourceVersion=0")
            .await;
        one.post(SECRETS, &secret("s")).await.expect(201);
        assert_eq!(plan(&one, "s").await, PLAIN, "{kind}");
        let event = watch.next().await.unwrap();
        assert_eq!(text(&event, "/object/metadata/name"), "s");
        assert_eq!(text(&event, "/object/data/plan"), STANDARD.encode(PLAIN), "{kind}");
        let event = wide.next().await.unwrap();
        assert_eq!(text(&event, "/object/data/plan"), STANDARD.encode(PLAIN));
        assert_eq!(names(&one.get(SECRETS).await.expect(200)), ["s"]);
        let all = root
            .at("/clusters/*/control-plane")
            .get("/api/v1/secrets")
            .await
            .expect(200);
        assert_eq!(names(&all), ["s"]);
        let stored = prefix(&store, "//secrets/default/s").await;
        assert!(stored.starts_with(expected), "{stored}");
        one.patch(&format!("{SECRETS}/s"), &json!({"metadata": {"labels": {"l": "x"}}}))
            .await
            .expect(200);
        assert_eq!(watch.brief().await, "MODIFIED s");
        one.delete(&format!("{SECRETS}/s")).await.expect(200);
        let event = watch.next().await.unwrap();
        assert_eq!(text(&event, "/type"), "DELETED");
        assert_eq!(
            text(&event, "/object/data/plan"),
            STANDARD.encode(PLAIN),
            "also what is gone"
        );
        // What is not named is not hidden.
        assert!(
            !raw(&store, "namespaces/kube-system")
                .await
                .iter()
                .any(|value| value.starts_with(b"k8s:enc:"))
        );
    }
}

#[tokio::test]
async fn the_first_key_writes_and_all_of_them_read() {
    let store: Arc<dyn Store> = Arc::new(MemStore::new());
    let sealing = Arc::new(Sealing::new(table("{identity: {}}")));
    let world = world(&store, &sealing).await;
    let api = world.plane("p").await;
    let path = format!("{SECRETS}/s");
    let end = "//secrets/default/s";
    api.post(SECRETS, &secret("s")).await.expect(201);
    let again = async || {
        let now = api.get(&path).await.expect(200);
        api.put(&path, &now).await.expect(200)
    };
    let version = |object: &Value| text(object, "/metadata/resourceVersion").to_owned();
    let (a, b) = (provider("aesgcm", &['a']), provider("secretbox", &['b']));
    let mut last = version(&again().await);
    // Each step: what is configured, and what the value becomes once it is written again without a change.
    for (providers, expected) in [
        (format!("{a}, {{identity: {{}}}}"), "k8s:enc:aesgcm:v1:keya:"),
        (provider("aesgcm", &['c', 'a']), "k8s:enc:aesgcm:v1:keyc:"),
        (
            format!("{b}, {}", provider("aesgcm", &['c'])),
            "k8s:enc:secretbox:v1:keyb:",
        ),
        (format!("{}, {b}", provider("planes", &['d'])), "k8s:enc:planes:v1:"),
        (format!("{{identity: {{}}}}, {}", provider("planes", &['d'])), ""),
    ] {
        sealing.replace(table(&providers));
        assert_eq!(plan(&api, "s").await, PLAIN, "{expected}");
        let now = version(&again().await);
        assert_ne!(now, last, "what is hidden the old way is written anew: {expected}");
        let stored = prefix(&store, end).await;
        assert!(stored.starts_with(expected), "{stored}");
        last = version(&again().await);
        assert_eq!(now, last, "and then it is left alone");
    }
    assert!(!raw(&store, end).await[0].starts_with(b"k8s:enc:"));
}

#[tokio::test]
async fn what_cannot_be_opened_is_an_error_of_its_own() {
    let store: Arc<dyn Store> = Arc::new(MemStore::new());
    let sealing = Arc::new(Sealing::new(table(&provider("aesgcm", &['a']))));
    let world = world(&store, &sealing).await;
    let api = world.plane("p").await;
    api.post(SECRETS, &secret("lost")).await.expect(201);
    let wrong_key = provider("aesgcm", &['a']).replace(&key('a'), &key('z'));
    for (providers, words) in [
        (
            provider("aesgcm", &['b']),
            "no matching key was found for the provided AES transformer",
        ),
        (wrong_key, "cipher: message authentication failed"),
        (provider("secretbox", &['a']), "no matching prefix found"),
        ("{identity: {}}".to_owned(), "no matching prefix found"),
    ] {
        sealing.replace(table(&providers));
        let refused = api.get(&format!("{SECRETS}/lost")).await;
        assert_eq!(refused.code(), 500);
        assert_eq!(refused.message(), format!("Internal error occurred: {words}"));
        let refused = api.get(SECRETS).await;
        assert_eq!(
            (refused.code(), refused.message()),
            (
                500,
                format!("Internal error occurred: unable to transform key \"/registry/secrets/default/lost\": {words}")
            )
        );
        assert_eq!(api.delete(&format!("{SECRETS}/lost")).await.code(), 500);
        assert_eq!(api.get("/api/v1/namespaces").await.code(), 200, "others go on");
        api.post(MAPS, &json!({"metadata": {"generateName": "m-"}}))
            .await
            .expect(201);
        assert_eq!(api.get("/readyz").await.code(), 200);
    }
    sealing.replace(table(&provider("aesgcm", &['a'])));
    assert_eq!(plan(&api, "lost").await, PLAIN, "the key is back");
}

#[tokio::test]
async fn a_value_counts_at_its_own_key_only() {
    let store: Arc<dyn Store> = Arc::new(MemStore::new());
    let sealing = Arc::new(Sealing::new(table(&provider("aesgcm", &['a']))));
    let world = world(&store, &sealing).await;
    let (one, two) = (world.plane("one").await, world.plane("two").await);
    one.post(SECRETS, &secret("s")).await.expect(201);
    two.post(SECRETS, &secret("s")).await.expect(201);
    // Whoever can write to the store moves one plane's value to another's key.
    let query = RangeQuery {
        range: &KeyRange::AllPlanes(mica_api::GroupResource::new("", "secrets")),
        at: None,
        after: None,
        limit: 10,
    };
    let records = store.range(query).await.unwrap().records;
    assert_eq!(records.len(), 2);
    for (from, to) in [(0, 1), (1, 0)] {
        let write = mica_store::Write::Put {
            key: records[to].0.clone(),
            value: records[from].1.value.clone(),
            ttl: None,
        };
        let txn = mica_store::Txn {
            compares: Vec::new(),
            writes: vec![write],
        };
        store.commit(txn).await.unwrap();
    }
    for api in [&one, &two] {
        let refused = api.get(&format!("{SECRETS}/s")).await;
        assert_eq!(
            refused.message(),
            "Internal error occurred: cipher: message authentication failed"
        );
    }
}

#[tokio::test]
async fn a_planes_key_goes_with_the_plane() {
    let store: Arc<dyn Store> = Arc::new(MemStore::new());
    let sealing = Arc::new(Sealing::new(table(&provider("planes", &['a']))));
    let world = world(&store, &sealing).await;
    let root = world.root().await;
    let keys = async || {
        let range = mica_store::PlaneKeys::ROOT.resource(&mica_api::GroupResource::new("mica.internal", "planekeys"));
        let query = RangeQuery {
            range: &range,
            at: None,
            after: None,
            limit: 100,
        };
        store.range(query).await.unwrap().records
    };
    let (one, two) = (world.plane("one").await, world.plane("two").await);
    let before = keys().await.len();
    one.get(SECRETS).await.expect(200);
    assert_eq!(keys().await.len(), before, "reading makes none");
    one.post(SECRETS, &secret("s")).await.expect(201);
    two.post(SECRETS, &secret("s")).await.expect(201);
    let made = keys().await;
    assert_eq!(made.len(), before + 2);
    let shown: String = made
        .iter()
        .map(|(_, record)| String::from_utf8_lossy(&record.value).into_owned())
        .collect();
    assert!(shown.contains("keya") && !shown.contains(&key('a')));
    // A copy has a key of its own.
    root.post(&format!("{PLANES}/one/fork"), &json!({"name": "copy"}))
        .await
        .expect(201);
    assert_eq!(plan(&root.at_plane("copy"), "s").await, PLAIN);
    assert_eq!(keys().await.len(), before + 3);
    root.delete(&format!("{PLANES}/one")).await;
    root.until(&format!("{PLANES}/one"), 404).await;
    assert_eq!(keys().await.len(), before + 2);
    // The key that hides keys is exchanged: reading needs the old one, writing hides with the new one.
    sealing.replace(table(&provider("planes", &['b', 'a'])));
    assert_eq!(plan(&two, "s").await, PLAIN);
    two.post(SECRETS, &secret("t")).await.expect(201);
    sealing.replace(table(&provider("planes", &['b'])));
    assert_eq!(plan(&two, "s").await, PLAIN);
    let lost = root.at_plane("copy").get(&format!("{SECRETS}/s")).await;
    assert_eq!(
        lost.message(),
        "Internal error occurred: no matching key was found for the key of the plane"
    );
}

#[tokio::test]
async fn a_snapshot_of_what_is_hidden_is_hidden() {
    let store: Arc<dyn Store> = Arc::new(MemStore::new());
    let sealing = Arc::new(Sealing::new(table(&provider("planes", &['a']))));
    let world = world(&store, &sealing).await;
    let (root, one) = (world.root().await, world.plane("one").await);
    one.post(SECRETS, &secret("s")).await.expect(201);
    let saved = root.get(&format!("{PLANES}/one/snapshot")).await;
    assert_eq!(saved.code(), 200);
    let holds = |needle: &str| saved.body.windows(needle.len()).any(|part| part == needle.as_bytes());
    assert!(!holds(PLAIN) && !holds(&STANDARD.encode(PLAIN)));
    assert!(holds("kube-system") || holds("k8s:enc:snapshot:v1:keya:"));
    let restore = async |api: &Api, name: &str| {
        api.call(
            Method::POST,
            &format!("{PLANES}/{name}/restore"),
            &[],
            saved.body.clone(),
        )
        .await
    };
    restore(&root, "two").await.expect(201);
    assert_eq!(plan(&root.at_plane("two"), "s").await, PLAIN);
    // Another store with the same keys reads it, one without does not.
    let same = world_of(&provider("aesgcm", &['a'])).await;
    let there = same.root().await;
    restore(&there, "two").await.expect(201);
    assert_eq!(plan(&there.at_plane("two"), "s").await, PLAIN);
    for other in [World::start().await, world_of(&provider("aesgcm", &['b'])).await] {
        let refused = restore(&other.root().await, "two").await;
        assert_eq!(refused.code(), 400);
        assert!(
            refused.message().contains("it is encrypted with key \"keya\""),
            "{}",
            refused.message()
        );
    }
}

async fn world_of(providers: &str) -> World {
    let store: Arc<dyn Store> = Arc::new(MemStore::new());
    world(&store, &Arc::new(Sealing::new(table(providers)))).await
}

#[tokio::test]
async fn nothing_plain_reaches_the_disk_and_a_restart_reads_it_all() {
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().join("store");
    let sealing = Arc::new(Sealing::new(table(&provider("planes", &['a']))));
    let open = || EmbeddedStore::open(&directory, Options::default()).unwrap();
    let embedded = open();
    let store: Arc<dyn Store> = Arc::new(embedded.clone());
    let first = world(&store, &sealing).await;
    let api = first.plane("p").await;
    for i in 0..20 {
        api.post(SECRETS, &secret(&format!("s{i}"))).await.expect(201);
    }
    api.post(MAPS, &json!({"metadata": {"name": "m"}, "data": {"plan": PLAIN}}))
        .await
        .expect(201);
    first.stop().await;
    drop(store);
    tokio::task::spawn_blocking(move || embedded.close()).await.unwrap();
    let encoded = STANDARD.encode(PLAIN);
    let files = files_under(&directory);
    assert!(!files.is_empty());
    for file in files {
        let bytes = std::fs::read(&file).unwrap();
        for needle in [PLAIN, encoded.as_str()] {
            let found = bytes.windows(needle.len()).any(|part| part == needle.as_bytes());
            assert!(!found, "{} holds what is hidden", file.display());
        }
    }
    let embedded = open();
    let store: Arc<dyn Store> = Arc::new(embedded.clone());
    // Another process has the same configuration, and nothing else.
    let sealing = Arc::new(Sealing::new(table(&provider("planes", &['a']))));
    let second = world(&store, &sealing).await;
    let api = second.root().await.at_plane("p");
    assert_eq!(plan(&api, "s7").await, PLAIN);
    assert_eq!(
        api.get(SECRETS).await.expect(200)["items"].as_array().unwrap().len(),
        20
    );
    second.stop().await;
    drop(store);
    tokio::task::spawn_blocking(move || embedded.close()).await.unwrap();
}

fn files_under(directory: &Path) -> Vec<std::path::PathBuf> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(files_under(&path));
        } else {
            all.push(path);
        }
    }
    all
}

#[tokio::test]
async fn a_file_that_changes_is_followed_and_a_wrong_one_is_not() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("encryption.yaml");
    let write = |providers: &str| {
        let text = format!(
            "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n\
             - resources: [secrets]\n  providers: [{providers}]\n"
        );
        std::fs::write(&file, text).unwrap();
    };
    write(&provider("aesgcm", &['a']));
    let store: Arc<dyn Store> = Arc::new(MemStore::new());
    let sealing = Arc::new(Sealing::from_file(file.clone()).unwrap());
    let world = world(&store, &sealing).await;
    let api = world.plane("p").await;
    api.post(SECRETS, &secret("one")).await.expect(201);
    write(&provider("secretbox", &['b']).replace(&key('b'), "nonsense"));
    let refused = sealing.reload().err().unwrap().to_string();
    assert!(refused.contains("secret") && !refused.contains("nonsense"), "{refused}");
    assert_eq!(plan(&api, "one").await, PLAIN);
    write(&format!(
        "{}, {}",
        provider("secretbox", &['b']),
        provider("aesgcm", &['a'])
    ));
    sealing.reload().unwrap();
    api.post(SECRETS, &secret("two")).await.expect(201);
    assert!(
        prefix(&store, "//secrets/default/two")
            .await
            .starts_with("k8s:enc:secretbox:v1:keyb:")
    );
    assert_eq!(plan(&api, "one").await, PLAIN);
}

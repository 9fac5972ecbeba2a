//! Moving a plane from one server to another, each with a store of its own.

mod abort;
mod away;
mod hostile;
mod receiver;
mod steps;
mod watch;

use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use mica_store::{EmbeddedStore, MemStore, Store};
use serde_json::{Value, json};

use super::world::{Answer, Api, MAPS, PLANES, World, map, namespace, plane, text};

/// Two servers, and a plane `p` that goes from one to the other.
pub struct Move {
    pub old: World,
    pub new: World,
    pub from: Api,
    pub to: Api,
    _directory: tempfile::TempDir,
}

impl Move {
    /// From a store in memory to one on disk.
    pub async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let options = mica_store::embedded::Options::default();
        let embedded = EmbeddedStore::open(directory.path(), options).unwrap();
        Self::between(Arc::new(MemStore::new()), Arc::new(embedded), directory).await
    }

    async fn between(old: Arc<dyn Store>, new: Arc<dyn Store>, directory: tempfile::TempDir) -> Self {
        Self::of(World::on(old).await, World::on(new).await, directory).await
    }

    async fn of(old: World, new: World, directory: tempfile::TempDir) -> Self {
        let (from, to) = (old.root().await, new.root().await);
        from.create_plane("p").await;
        let mut arriving = plane("p");
        arriving["spec"] = json!({"state": "Arriving"});
        to.post(PLANES, &arriving).await.expect(201);
        Self {
            old,
            new,
            from,
            to,
            _directory: directory,
        }
    }

    /// The plane on the old server.
    pub fn here(&self) -> Api {
        self.from.at_plane("p")
    }

    /// The plane on the new server.
    pub fn there(&self) -> Api {
        self.to.at_plane("p")
    }

    pub async fn taken(&self, query: &str) -> Bytes {
        let snapshot = self.from.get(&format!("{PLANES}/p/snapshot?{query}")).await;
        assert_eq!(snapshot.code(), 200, "{}", snapshot.json());
        snapshot.body
    }

    pub async fn arrive(&self, snapshot: Bytes) -> Answer {
        self.to
            .call(Method::POST, &format!("{PLANES}/p/arrive"), &[], snapshot)
            .await
    }

    /// Sends a whole copy, and returns the revision that it reached.
    pub async fn copy(&self) -> u64 {
        let snapshot = self.taken("revisions=true").await;
        reached(&self.arrive(snapshot).await.expect(200))
    }

    /// Sends what changed since, and returns the revision that it reached.
    pub async fn catch_up(&self, since: u64) -> u64 {
        let changes = self.taken(&format!("since={since}")).await;
        reached(&self.arrive(changes).await.expect(200))
    }

    pub async fn state(&self, state: &str) -> Answer {
        let change = json!({"spec": {"state": state}});
        self.from.patch(&format!("{PLANES}/p"), &change).await
    }

    pub async fn open(&self) -> Answer {
        self.to.post(&format!("{PLANES}/p/open"), &json!({})).await
    }

    pub async fn digests(&self) -> (Value, Value) {
        let path = format!("{PLANES}/p/digest");
        let mut both = Vec::new();
        for side in [&self.from, &self.to] {
            let mut digest = side.get(&path).await.expect(200);
            digest.as_object_mut().unwrap().remove("revision");
            both.push(digest);
        }
        let new = both.remove(1);
        (both.remove(0), new)
    }

    /// Everything after the copy: the last changes, the fence, and opening.
    pub async fn finish(&self, since: u64) -> u64 {
        self.state("Moving").await.expect(200);
        let last = self.catch_up(since).await;
        let (old, new) = self.digests().await;
        assert_eq!(old, new);
        self.open().await.expect(201);
        last
    }

    pub async fn stop(self) {
        self.old.stop().await;
        self.new.stop().await;
    }
}

pub fn reached(answer: &Value) -> u64 {
    text(answer, "/revision").parse().unwrap()
}

/// A plane with something of every sort in it.
pub async fn furnish(api: &Api) {
    api.post("/api/v1/namespaces", &namespace("n")).await.expect(201);
    let owner = api.post(MAPS, &map("owner")).await.expect(201);
    for i in 0..30 {
        let mut owned = map(&format!("m{i}"));
        owned["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": text(&owner, "/metadata/uid")}]);
        api.post(MAPS, &owned).await.expect(201);
    }
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}});
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    api.post(definitions, &definition).await.expect(201);
    api.until(THINGS, 200).await;
    let thing = json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "one"}, "spec": {"a": 1}});
    api.post(THINGS, &thing).await.expect(201);
    // Of what planes are born with, one object is changed and one is gone.
    api.patch(&format!("{MAPS}/kube-root-ca.crt"), &json!({"data": {"mine": "1"}}))
        .await
        .expect(200);
    api.delete("/api/v1/namespaces/kube-public/configmaps/kube-root-ca.crt")
        .await
        .expect(200);
}

pub const THINGS: &str = "/apis/example.com/v1/namespaces/default/things";

/// Every object of some kinds, versions and all.
pub async fn content(api: &Api) -> Vec<Value> {
    let mut all = Vec::new();
    for path in [
        "/api/v1/namespaces",
        "/api/v1/configmaps",
        "/api/v1/serviceaccounts",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        "/apis/example.com/v1/things",
    ] {
        let mut list = api.get(path).await.expect(200);
        all.extend(list["items"].as_array_mut().unwrap().iter_mut().map(Value::take));
    }
    all
}

//! A server, and what the tests here say to it.

use std::sync::Arc;
use std::time::SystemTime;

use http::{Method, StatusCode};
use mica_server::pki::Identity;
use mica_store::{MemStore, Store};
use serde_json::{Value, json};

use crate::world::{self, MAPS, PLANES, Watcher, World};

pub const OBJECTS: &str = "/apis/mica.dev/v1alpha1/objects";
pub const ALL: &str = "/clusters/*/control-plane/apis/mica.dev/v1alpha1/objects";

pub struct Api {
    pub store: Arc<dyn Store>,
    world: World,
    root: world::Api,
}

impl Api {
    pub async fn start() -> Self {
        Self::on(Arc::new(MemStore::new())).await
    }

    pub async fn on(store: Arc<dyn Store>) -> Self {
        let world = World::on(store).await;
        Self {
            store: world.store.clone(),
            root: world.root().await,
            world,
        }
    }

    /// What somebody of another group is answered.
    pub async fn get_as_member_of(&self, group: &str, path: &str) -> (StatusCode, Value) {
        let identity = Identity {
            name: "somebody".to_owned(),
            group: Some(group.to_owned()),
        };
        let issued = self.world.authority.issue_client(&identity, SystemTime::now()).unwrap();
        let somebody = self.root.with(self.world.connect("localhost", Some(&issued)).await);
        let answer = somebody.get(path).await;
        (answer.status, answer.json())
    }

    pub async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> (StatusCode, Value) {
        let headers: &[(&str, &str)] = match method {
            Method::PATCH => &[("content-type", "application/merge-patch+json")],
            _ if body.is_some() => &[("content-type", "application/json")],
            _ => &[],
        };
        let answer = self
            .root
            .call(method, path, headers, body.map(Value::to_string).unwrap_or_default())
            .await;
        (answer.status, answer.json())
    }

    pub async fn accepting(&self, accept: &str, path: &str) -> (StatusCode, Value) {
        let answer = self.root.call(Method::GET, path, &[("accept", accept)], "").await;
        (answer.status, answer.json())
    }

    pub async fn get(&self, path: &str) -> Value {
        self.root.get(path).await.expect(200)
    }

    pub async fn post(&self, path: &str, body: Value) -> Value {
        self.root.post(path, &body).await.expect(201)
    }

    pub async fn patch(&self, path: &str, body: Value) -> Value {
        self.root.patch(path, &body).await.expect(200)
    }

    pub async fn delete(&self, path: &str) {
        self.root.delete(path).await.expect(200);
    }

    /// Makes a plane and returns its id.
    pub async fn plane(&self, name: &str) -> String {
        let plane = self.root.create_plane(name).await;
        plane["status"]["id"].as_str().unwrap().to_owned()
    }

    /// Deletes a plane and waits until it is gone.
    pub async fn drop_plane(&self, name: &str) {
        self.delete(&format!("{PLANES}/{name}")).await;
        self.root.until(&format!("{PLANES}/{name}"), 404).await;
    }

    /// Makes a ConfigMap in the namespace default of a plane and returns its uid. Owners are given by uid.
    pub async fn config_map(&self, plane: &str, name: &str, owners: &[&str]) -> String {
        let metadata = json!({"name": name, "labels": {"app": name}, "ownerReferences": references(owners)});
        let object = self.post(&config_maps(plane), json!({"metadata": metadata})).await;
        object["metadata"]["uid"].as_str().unwrap().to_owned()
    }

    /// Opens a watch; changes made once this returns are seen.
    pub async fn watch(&self, path: &str) -> Watcher {
        self.root.watch(path).await
    }

    pub async fn watch_accepting(&self, accept: &str, path: &str) -> Watcher {
        self.root.watch_with(path, &[("accept", accept)]).await
    }
}

pub fn config_maps(plane: &str) -> String {
    format!("/clusters/{plane}/control-plane{MAPS}")
}

pub fn config_map(plane: &str, name: &str) -> String {
    format!("{}/{name}", config_maps(plane))
}

pub fn references(owners: &[&str]) -> Vec<Value> {
    let reference = |uid| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid});
    owners.iter().map(reference).collect()
}

/// An object in short: `plane kind name`.
pub fn short(object: &Value) -> String {
    let metadata = &object["metadata"];
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let annotation = |name: &str| text(&metadata["annotations"][name]);
    format!(
        "{} {} {}",
        annotation("mica.dev/plane"),
        annotation("mica.dev/kind"),
        text(&metadata["name"])
    )
}

/// The items of a list in short.
pub fn shorts(list: &Value) -> Vec<String> {
    list["items"].as_array().unwrap().iter().map(short).collect()
}

/// The next event in short.
pub async fn next(watch: &mut Watcher) -> String {
    let event = watch.next().await;
    event.map_or_else(
        || "end".to_owned(),
        |event| format!("{} {}", world::text(&event, "/type"), short(&event["object"])),
    )
}

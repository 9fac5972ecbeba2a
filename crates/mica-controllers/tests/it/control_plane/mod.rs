//! Control planes from their creation to their end, through the API alone.

mod addon;
mod census;
mod class;
mod consumer;
mod cost;
mod credential;
mod dedicated;
mod definition;
mod endpoint;
mod life;
mod migration;
mod role;
mod trouble;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mica_api::control_plane::{API_VERSION, management_namespace};
use mica_controllers::control_plane::Settings;
use mica_server::start::Tenancy;
use mica_testkit::TestServer;
use mica_testkit::kube::{Client, Config, config};
use serde_json::{Value, json};

use super::world::{self, Place, World};

const CONTROL_PLANES: &str = "/apis/controlplane.kplane.dev/v1alpha1/controlplanes";
const CLASSES: &str = "/apis/controlplane.kplane.dev/v1alpha1/controlplaneclasses";
const ENDPOINTS: &str = "/apis/controlplane.kplane.dev/v1alpha1/controlplaneendpoints";
const REGISTRATIONS: &str = "/apis/controlplane.kplane.dev/v1alpha1/controlplaneregistrations";
const PLANES: &str = "/apis/mica.dev/v1alpha1/planes";
const BINDING: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/controlplane-admin";

/// A server that runs control planes.
async fn world() -> (World, Place) {
    let world = World::with(server().await, &["*"]).await;
    let root = world.root();
    (world, root)
}

async fn server() -> TestServer {
    TestServer::builder().tenancy(Tenancy::Served).start().await
}

/// A management plane, and the server elsewhere that its control planes are on.
async fn apart() -> (World, Place, World) {
    let shared = World::with(server().await, &["namespace", "garbagecollector"]).await;
    let settings = Settings::new(world::home(&shared.server));
    let management = World::with_settings(server().await, settings).await;
    let root = management.root();
    (management, root, shared)
}

async fn make(root: &Place, path: &str, kind: &str, name: &str, spec: Value) -> Value {
    let object = json!({"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec});
    root.create(path, object).await
}

async fn control_plane(root: &Place, name: &str, spec: Value) -> Value {
    make(root, CONTROL_PLANES, "ControlPlane", name, spec).await
}

async fn until_ready(root: &Place, name: &str) -> Value {
    until_says(root, name, "Ready", "True", "Reconciled").await
}

/// Waits until a condition of a control plane is this, of its present generation.
async fn until_says(root: &Place, name: &str, r#type: &str, status: &str, reason: &str) -> Value {
    let what = format!("{type}={status} {reason}");
    let path = format!("{CONTROL_PLANES}/{name}");
    let says = |found: Option<&Value>| {
        let conditions = found.and_then(|object| object["status"]["conditions"].as_array());
        let generation = found.map(|object| object["metadata"]["generation"].clone());
        conditions.is_some_and(|all| {
            all.iter().any(|one| {
                one["type"] == r#type
                    && one["status"] == status
                    && one["reason"] == reason
                    && Some(&one["observedGeneration"]) == generation.as_ref()
            })
        })
    };
    root.until(&path, &what, says).await.unwrap()
}

/// The message of a condition.
fn message(object: &Value, r#type: &str) -> String {
    let all = object["status"]["conditions"].as_array().unwrap();
    let found = all.iter().find(|one| one["type"] == r#type).unwrap();
    found["message"].as_str().unwrap().to_owned()
}

fn secret_path(name: &str) -> String {
    format!(
        "/api/v1/namespaces/{}/secrets/{}",
        management_namespace(name),
        mica_api::control_plane::kubeconfig_secret(name)
    )
}

/// A kubeconfig of a control plane's Secret.
fn kubeconfig(secret: &Value, key: &str) -> String {
    String::from_utf8(STANDARD.decode(secret["data"][key].as_str().unwrap()).unwrap()).unwrap()
}

/// A client that has nothing but a kubeconfig.
async fn client(kubeconfig: &str) -> Client {
    let kubeconfig = config::Kubeconfig::from_yaml(kubeconfig).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &config::KubeConfigOptions::default()).await;
    Client::try_from(config.unwrap()).unwrap()
}

async fn ask(client: &Client, method: &str, path: &str, body: Value) -> Result<Value, mica_testkit::kube::Error> {
    let body = match body {
        Value::Null => Vec::new(),
        body => body.to_string().into_bytes(),
    };
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", "application/json")
        .body(body)
        .unwrap();
    client.request(request).await
}

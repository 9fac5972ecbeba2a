//! A server with its controllers, and short ways to say what tests do with it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use futures::stream::BoxStream;
use http_body_util::BodyExt as _;
use mica_controllers::control_plane::{Home, Settings};
use mica_controllers::{Api, Options, Selection};
use mica_server::authz::User;
use mica_testkit::kube::client::Body;
use mica_testkit::kube::{self, Client};
use mica_testkit::{Companions, TestServer};
use serde_json::{Value, json};
use tokio_util::sync::{CancellationToken, DropGuard};

/// How long a state may take to come: a machine may be very busy.
const PATIENCE: Duration = Duration::from_secs(90);
const LOOK: Duration = Duration::from_millis(10);
/// How long nothing must be asked for it to be quiet: longer than anything is put off.
const QUIET: Duration = Duration::from_secs(3);

pub struct World {
    pub server: TestServer,
    pub client: Client,
    _stop: DropGuard,
}

/// A control plane of a world.
#[derive(Clone)]
pub struct Place {
    client: Client,
    prefix: String,
}

impl World {
    /// A server with all controllers, which reach it without a connection and are nobody but themselves.
    pub async fn start() -> Self {
        Self::with(TestServer::start().await, &["*"]).await
    }

    pub async fn with(server: TestServer, controllers: &[&str]) -> Self {
        server.server().admit_controllers().await.unwrap();
        let inside = server.client_inside(User::controllers());
        let settings = Settings::new(home(&server));
        Self::run(server, inside, controllers, Some(settings))
    }

    /// A server whose control planes are run like this.
    pub async fn with_settings(server: TestServer, settings: Settings) -> Self {
        let inside = inside(&server);
        Self::with_client(server, inside, &["*"], settings).await
    }

    /// A server that controllers reach by a client of ours.
    pub async fn with_client(server: TestServer, client: Client, controllers: &[&str], settings: Settings) -> Self {
        server.server().admit_controllers().await.unwrap();
        Self::run(server, client, controllers, Some(settings))
    }

    /// A server that controllers take for somebody else's: it has no `objects`, and none of the controllers' work is done.
    pub async fn foreign() -> Self {
        let server = TestServer::builder().companions(Companions::Absent).start().await;
        server.server().admit_controllers().await.unwrap();
        let inside = server.client_inside(User::controllers());
        let without_objects = tower::service_fn(move |request: http::Request<Body>| {
            let inside = inside.clone();
            async move {
                if request.uri().path().starts_with("/apis/mica.dev/") {
                    let mut refused = http::Response::new(Body::empty());
                    *refused.status_mut() = http::StatusCode::NOT_FOUND;
                    return Ok(refused);
                }
                inside.send(request).await
            }
        });
        Self::run(server, Client::new(without_objects, "default"), &["*"], None)
    }

    fn run(server: TestServer, inside: Client, controllers: &[&str], control_planes: Option<Settings>) -> Self {
        let stop = CancellationToken::new();
        let options = Options {
            controllers: Selection::parse(controllers).unwrap(),
            root_ca: Some("a certificate\n".to_owned()),
            control_planes,
        };
        tokio::spawn(mica_controllers::run(inside, options, stop.clone()));
        let client = server.client_inside(User::system());
        Self {
            server,
            client,
            _stop: stop.drop_guard(),
        }
    }

    pub fn root(&self) -> Place {
        Place {
            client: self.client.clone(),
            prefix: String::new(),
        }
    }

    pub async fn plane(&self, name: &str) -> Place {
        self.server.plane(name).await;
        Place {
            client: self.client.clone(),
            prefix: format!("/clusters/{name}/control-plane"),
        }
    }

    /// Root, and a plane.
    pub async fn places(&self) -> [Place; 2] {
        [self.root(), self.plane("p1").await]
    }
}

impl Place {
    async fn send(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value, kube::Error> {
        let form = match method {
            "PATCH" => "application/merge-patch+json",
            _ => "application/json",
        };
        let request = http::Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.prefix))
            .header("content-type", form)
            .body(body.map(|body| body.to_string().into_bytes()).unwrap_or_default())
            .unwrap();
        self.client.request(request).await
    }

    pub async fn create(&self, path: &str, object: Value) -> Value {
        let created = self.send("POST", path, Some(&object)).await;
        created.unwrap_or_else(|error| panic!("creating {object} at {path}: {error}"))
    }

    pub async fn try_create(&self, path: &str, object: Value) -> Result<Value, kube::Error> {
        self.send("POST", path, Some(&object)).await
    }

    /// Opens a watch.
    pub async fn watch(&self, path: &str) -> Watch {
        let request = http::Request::get(format!("{}{path}", self.prefix));
        let response = self.client.send(request.body(Body::empty()).unwrap()).await.unwrap();
        assert_eq!(response.status(), 200, "watching {path}");
        Watch {
            pieces: response.into_body().into_data_stream().boxed(),
            held: Vec::new(),
        }
    }

    /// What is there, if anything is.
    pub async fn get(&self, path: &str) -> Option<Value> {
        match self.send("GET", path, None).await {
            Ok(found) => Some(found),
            Err(kube::Error::Api(status)) if status.code == 404 => None,
            Err(error) => panic!("reading {path}: {error}"),
        }
    }

    pub async fn patch(&self, path: &str, patch: Value) -> Value {
        let patched = self.send("PATCH", path, Some(&patch)).await;
        patched.unwrap_or_else(|error| panic!("patching {path}: {error}"))
    }

    pub async fn delete(&self, path: &str) {
        self.delete_with(path, "Background").await;
    }

    pub async fn delete_with(&self, path: &str, propagation: &str) {
        let deleted = self
            .send("DELETE", path, Some(&json!({"propagationPolicy": propagation})))
            .await;
        deleted.unwrap_or_else(|error| panic!("deleting {path}: {error}"));
    }

    pub async fn try_delete(&self, path: &str) -> Result<Value, kube::Error> {
        self.send("DELETE", path, None).await
    }

    /// Waits until what is at a path is as it should be.
    pub async fn until(&self, path: &str, what: &str, is_so: impl Fn(Option<&Value>) -> bool) -> Option<Value> {
        let looking = async {
            loop {
                let found = self.get(path).await;
                if is_so(found.as_ref()) {
                    return found;
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        match tokio::time::timeout(PATIENCE, looking).await {
            Ok(found) => found,
            Err(_elapsed) => panic!("{path} is not {what}: {:?}", self.get(path).await),
        }
    }

    pub async fn until_gone(&self, path: &str) {
        self.until(path, "gone", |found| found.is_none()).await;
    }

    pub async fn namespace(&self, name: &str) {
        self.create("/api/v1/namespaces", json!({"metadata": {"name": name}}))
            .await;
    }

    /// Makes a ConfigMap with these owners, and returns it.
    pub async fn map(&self, namespace: &str, name: &str, owners: Value) -> Value {
        let path = format!("/api/v1/namespaces/{namespace}/configmaps");
        self.create(&path, json!({"metadata": {"name": name, "ownerReferences": owners}}))
            .await
    }

    /// A definition of `widgets.example.com`, in force.
    pub async fn define_widgets(&self) {
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "widgets.example.com"},
            "spec": {
                "group": "example.com",
                "names": {"plural": "widgets", "kind": "Widget"},
                "scope": "Namespaced",
                "versions": [{
                    "name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
                }],
            },
        });
        const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        self.create(DEFINITIONS, definition).await;
        self.until("/apis/example.com/v1/widgets", "served", |found| found.is_some())
            .await;
    }

    pub async fn widget(&self, namespace: &str, name: &str, metadata: Value) -> Value {
        let mut metadata = metadata;
        metadata["name"] = name.into();
        let object = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": metadata});
        let path = format!("/apis/example.com/v1/namespaces/{namespace}/widgets");
        self.create(&path, object).await
    }
}

/// What controllers reach a server by.
pub fn inside(server: &TestServer) -> Client {
    server.client_inside(User::controllers())
}

/// What was asked of a server, in order; and whether it answers.
#[derive(Clone, Default)]
pub struct Asked(Arc<Mutex<Vec<String>>>, Arc<AtomicBool>);

impl Asked {
    /// A client whose requests are written down here.
    pub fn count(&self, client: Client) -> Client {
        let asked = self.clone();
        let counted = tower::service_fn(move |request: http::Request<Body>| {
            let (client, asked) = (client.clone(), asked.clone());
            async move {
                let line = format!("{} {}", request.method(), request.uri());
                asked.0.lock().unwrap().push(line);
                if asked.1.load(Ordering::Relaxed) {
                    let status = json!({"kind": "Status", "apiVersion": "v1", "code": 503, "message": "out of order"});
                    let mut answer = http::Response::new(Body::from(status.to_string().into_bytes()));
                    *answer.status_mut() = http::StatusCode::SERVICE_UNAVAILABLE;
                    return Ok(answer);
                }
                client.send(request).await
            }
        });
        Client::new(counted, "default")
    }

    /// Nothing is answered well from now on.
    pub fn fail(&self) {
        self.1.store(true, Ordering::Relaxed);
    }

    pub fn recover(&self) {
        self.1.store(false, Ordering::Relaxed);
    }

    pub fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// Waits until so many requests were made.
    pub async fn until_more(&self, count: usize) {
        let waiting = async {
            while self.len() < count {
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::time::timeout(PATIENCE, waiting)
            .await
            .expect("nothing more is asked");
    }

    /// Waits until nothing has been asked for a while.
    pub async fn until_quiet(&self) {
        let begin = Instant::now();
        let (mut known, mut since) = (self.len(), Instant::now());
        while since.elapsed() < QUIET {
            assert!(begin.elapsed() < PATIENCE, "it does not end: {:?}", self.last(20));
            tokio::time::sleep(LOOK).await;
            if self.len() != known {
                (known, since) = (self.len(), Instant::now());
            }
        }
    }

    /// What was asked after so many.
    pub fn since(&self, before: usize) -> Vec<String> {
        self.0.lock().unwrap().split_off(before)
    }

    pub fn last(&self, most: usize) -> Vec<String> {
        let all = self.0.lock().unwrap();
        all[all.len().saturating_sub(most)..].to_vec()
    }
}

/// A server as a place for the planes of control planes.
pub fn home(server: &TestServer) -> Home {
    Home {
        api: Api::new(server.client_inside(User::controllers())),
        url: server.url(),
        ca: Some(server.authority().certificate_pem().to_owned()),
    }
}

/// A watch that is open.
pub struct Watch {
    pieces: BoxStream<'static, Result<bytes::Bytes, kube::Error>>,
    held: Vec<u8>,
}

impl Watch {
    /// The next event that is no bookmark, as its type and the object's name; `None` when the watch has ended.
    pub async fn next(&mut self) -> Option<String> {
        loop {
            while let Some(end) = self.held.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.held.drain(..=end).collect();
                let event: Value = serde_json::from_slice(&line).unwrap();
                if event["type"] != "BOOKMARK" {
                    let (kind, name) = (&event["type"], &event["object"]["metadata"]["name"]);
                    return Some(format!(
                        "{} {}",
                        kind.as_str().unwrap(),
                        name.as_str().unwrap_or_default()
                    ));
                }
            }
            match tokio::time::timeout(PATIENCE, self.pieces.next()).await.unwrap() {
                Some(Ok(piece)) => self.held.extend_from_slice(&piece),
                Some(Err(_)) | None => return None,
            }
        }
    }
}

/// How a dependent names an owner.
pub fn owner(object: &Value, kind: &str) -> Value {
    let api_version = if kind == "Widget" { "example.com/v1" } else { "v1" };
    let meta = &object["metadata"];
    json!({"apiVersion": api_version, "kind": kind, "name": meta["name"], "uid": meta["uid"], "blockOwnerDeletion": true})
}

/// The path of a ConfigMap.
pub fn map_path(namespace: &str, name: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/configmaps/{name}")
}

//! Whole servers over real connections, and a client that speaks to them as kubectl would.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use mica_machinery::kind::Profile;
use mica_machinery::kind::bootstrap::Companions;
use mica_server::admission::{Plugins, PodAccounts};
use mica_server::audit::AuditOptions;
use mica_server::authn::Authenticator;
use mica_server::authz::Chain;
use mica_server::egress::EgressOptions;
use mica_server::fairness::FairnessOptions;
use mica_server::http::{Drain, Envelope, EnvelopeOptions, ListenOptions, Listener};
use mica_server::metrics::{HttpMetrics, Registry};
use mica_server::pki::{Authority, Issued, serving_names};
use mica_server::seal::Sealing;
use mica_server::serve::Server;
use mica_server::start::{ServerOptions, Tenancy};
use mica_server::tls::{ClientRoots, ServingCertificates, certified_key};
use mica_store::{MemStore, Revision, Store};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::client::{Connection, Dial};
use super::fixture::{HTTP2, client_certificate};

/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(30);
/// Bookmarks come quickly here.
pub const BOOKMARKS: Duration = Duration::from_millis(40);

/// One server on a store. Several may share one.
pub struct World {
    pub store: Arc<dyn Store>,
    pub server: Arc<Server>,
    pub addr: SocketAddr,
    pub authority: Arc<Authority>,
    pub admin: Issued,
    drain: CancellationToken,
    tasks: TaskTracker,
    serving: JoinHandle<Drain>,
}

impl World {
    pub async fn start() -> Self {
        Self::on(Arc::new(MemStore::new())).await
    }

    pub async fn on(store: Arc<dyn Store>) -> Self {
        Self::with(store, ListenOptions::default()).await
    }

    /// Where planes may call what the options say.
    pub async fn calling(store: Arc<dyn Store>, egress: EgressOptions) -> Self {
        let options = ServerOptions {
            egress,
            ..ServerOptions::default()
        };
        Self::made(store, ListenOptions::default(), options).await
    }

    /// Where requests are written down, and planes may call what the options say.
    pub async fn auditing(audit: AuditOptions, egress: EgressOptions) -> Self {
        let options = ServerOptions {
            audit,
            egress,
            ..ServerOptions::default()
        };
        Self::made(Arc::new(MemStore::new()), ListenOptions::default(), options).await
    }

    /// Where pods need service accounts, or do not.
    pub async fn requiring(accounts: PodAccounts) -> Self {
        let options = ServerOptions {
            accounts,
            ..ServerOptions::default()
        };
        Self::made(Arc::new(MemStore::new()), ListenOptions::default(), options).await
    }

    /// Where these plugins run.
    pub async fn plugged(plugins: Plugins) -> Self {
        let options = ServerOptions {
            plugins,
            ..ServerOptions::default()
        };
        Self::made(Arc::new(MemStore::new()), ListenOptions::default(), options).await
    }

    /// Where this chain decides.
    pub async fn deciding(authorization: Chain) -> Self {
        let options = ServerOptions {
            authorization,
            ..ServerOptions::default()
        };
        Self::made(Arc::new(MemStore::new()), ListenOptions::default(), options).await
    }

    /// Where requests share so many seats, and wait for one no longer than this.
    pub async fn sharing(seats: u32, patience: Duration) -> Self {
        let options = ServerOptions {
            fairness: FairnessOptions { seats, patience },
            ..ServerOptions::default()
        };
        Self::made(Arc::new(MemStore::new()), ListenOptions::default(), options).await
    }

    /// Where these prove who somebody is, beside certificates.
    pub async fn proving(authenticator: Authenticator) -> Self {
        let options = ServerOptions {
            authenticator,
            ..ServerOptions::default()
        };
        Self::made(Arc::new(MemStore::new()), ListenOptions::default(), options).await
    }

    /// Where some of what the store holds is hidden.
    pub async fn sealed(store: Arc<dyn Store>, sealing: Arc<Sealing>) -> Self {
        let options = ServerOptions {
            encryption: Some(sealing),
            ..ServerOptions::default()
        };
        Self::made(store, ListenOptions::default(), options).await
    }

    /// Where root serves organizations and projects.
    pub async fn tenanted(store: Arc<dyn Store>) -> Self {
        let options = ServerOptions {
            tenancy: Tenancy::Served,
            ..ServerOptions::default()
        };
        Self::made(store, ListenOptions::default(), options).await
    }

    pub async fn with(store: Arc<dyn Store>, listen: ListenOptions) -> Self {
        Self::made(store, listen, ServerOptions::default()).await
    }

    async fn made(store: Arc<dyn Store>, listen: ListenOptions, options: ServerOptions) -> Self {
        let now = SystemTime::now();
        let authority = Arc::new(Authority::generate("test-ca", now).unwrap());
        let metrics = Arc::new(Registry::new());
        let options = ServerOptions {
            profile: Profile::Kubernetes,
            companions: Companions::Done {
                root_ca: authority.certificate_pem().to_owned(),
            },
            authority: Some(authority.clone()),
            issuer: "https://mica.test".to_owned(),
            metrics: metrics.clone(),
            bookmark_interval: BOOKMARKS,
            ..options
        };
        let server = Server::open(store.clone(), options).await.unwrap();
        let (tasks, drain) = (TaskTracker::new(), CancellationToken::new());
        server.start_loops(&tasks, &drain);
        let main = authority.issue_serving("mica", &serving_names([]), now).unwrap();
        let certificates =
            ServingCertificates::new(certified_key(&main).unwrap()).with_hosts(authority.clone(), server.known_hosts());
        let roots = Arc::new(ClientRoots::new(&[authority.certificate().clone()]).unwrap());
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let listener = Listener::bind(any, Arc::new(certificates), roots, listen)
            .await
            .unwrap();
        let addr = listener.local_addr().unwrap();
        let envelope = Envelope::new(server.clone(), EnvelopeOptions::default(), HttpMetrics::new(&metrics));
        let serving = tokio::spawn(listener.serve(Arc::new(envelope), drain.clone()));
        let admin = client_certificate(&authority, "admin");
        Self {
            store,
            server,
            addr,
            authority,
            admin,
            drain,
            tasks,
            serving,
        }
    }

    /// The API of root.
    pub async fn root(&self) -> Api {
        self.as_user(Some(&self.admin)).await
    }

    /// A client of the server under a host of its own choosing.
    pub async fn host(&self, sni: &str, host: &str) -> Api {
        Api {
            sender: self.connect(sni, Some(&self.admin)).await,
            host: host.to_owned(),
            prefix: String::new(),
            acting: None,
        }
    }

    /// A client with another certificate, or with none.
    pub async fn as_user(&self, certificate: Option<&Issued>) -> Api {
        let sender = self.connect("localhost", certificate).await;
        Api {
            sender,
            host: "localhost".to_owned(),
            prefix: String::new(),
            acting: None,
        }
    }

    pub async fn connect(&self, sni: &str, certificate: Option<&Issued>) -> http2::SendRequest<Full<Bytes>> {
        let dial = Dial {
            addr: self.addr,
            authority: self.authority.certificate(),
            host: sni,
            alpn: HTTP2,
            certificate,
        };
        match dial.connect().await.unwrap() {
            Connection::Http2(sender) => sender,
            Connection::Http1(_) => panic!("the server speaks HTTP/2"),
        }
    }

    /// A fresh plane, by its path.
    pub async fn plane(&self, name: &str) -> Api {
        let root = self.root().await;
        root.create_plane(name).await;
        root.at_plane(name)
    }

    pub async fn revision(&self) -> Revision {
        self.store.status().await.unwrap().revision
    }

    /// Begins to stop; what is in flight goes on until it ends.
    pub fn begin_stop(&self) {
        self.drain.cancel();
    }

    pub async fn stop(self) -> Drain {
        self.drain.cancel();
        let drained = self.serving.await.unwrap();
        self.tasks.close();
        self.tasks.wait().await;
        self.server.auditor.close(PATIENCE).await;
        drained
    }
}

/// A client at one address of a server.
#[derive(Clone)]
pub struct Api {
    sender: http2::SendRequest<Full<Bytes>>,
    host: String,
    prefix: String,
    acting: Option<String>,
}

/// A whole answer.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    headers: HeaderMap,
    pub body: Bytes,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&self.body).into()))
    }

    /// The body of an answer that must be of this code.
    #[track_caller]
    pub fn expect(self, status: u16) -> Value {
        let body = self.json();
        assert_eq!(self.status.as_u16(), status, "{body}");
        body
    }

    pub fn message(&self) -> String {
        self.json()["message"].as_str().unwrap_or_default().to_owned()
    }

    /// A header, empty if it is not there.
    pub fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().expect("headers are ASCII"))
    }

    /// Every value of a header.
    pub fn headers(&self, name: &str) -> Vec<&str> {
        let values = self.headers.get_all(name).iter();
        values.map(|value| value.to_str().expect("headers are ASCII")).collect()
    }

    pub fn code(&self) -> u16 {
        self.status.as_u16()
    }
}

impl Api {
    pub fn at(&self, prefix: &str) -> Self {
        Self {
            prefix: prefix.to_owned(),
            ..self.clone()
        }
    }

    /// The same client acting as a user.
    pub fn acting(&self, user: &str) -> Self {
        Self {
            acting: Some(user.to_owned()),
            ..self.clone()
        }
    }

    /// This client at the address of another.
    pub fn like(&self, other: &Self) -> Self {
        self.at(&other.prefix)
    }

    /// The same client over another connection: as somebody else.
    pub fn with(&self, sender: http2::SendRequest<Full<Bytes>>) -> Self {
        Self { sender, ..self.clone() }
    }

    pub fn at_plane(&self, name: &str) -> Self {
        self.at(&format!("/clusters/{name}/control-plane"))
    }

    pub async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> http::Response<Incoming> {
        let uri = format!("https://{}{}{path}", self.host, self.prefix);
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(user) = &self.acting {
            request = request.header("impersonate-user", user);
        }
        let mut sender = self.sender.clone();
        sender.ready().await.unwrap();
        sender
            .send_request(request.body(Full::new(body)).unwrap())
            .await
            .unwrap()
    }

    pub async fn call(&self, method: Method, path: &str, headers: &[(&str, &str)], body: impl Into<Bytes>) -> Answer {
        let answer = self.send(method, path, headers, body.into()).await;
        let (head, body) = answer.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Answer {
            status: head.status,
            headers: head.headers,
            body,
        }
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.call(Method::GET, path, &[], "").await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        self.call(
            Method::POST,
            path,
            &[("content-type", "application/json")],
            body.to_string(),
        )
        .await
    }

    pub async fn put(&self, path: &str, body: &Value) -> Answer {
        self.call(
            Method::PUT,
            path,
            &[("content-type", "application/json")],
            body.to_string(),
        )
        .await
    }

    /// A merge patch.
    pub async fn patch(&self, path: &str, body: &Value) -> Answer {
        self.call(
            Method::PATCH,
            path,
            &[("content-type", "application/merge-patch+json")],
            body.to_string(),
        )
        .await
    }

    pub async fn delete(&self, path: &str) -> Answer {
        self.call(Method::DELETE, path, &[], "").await
    }

    pub async fn watch(&self, path: &str) -> Watcher {
        self.watch_with(path, &[]).await
    }

    pub async fn watch_with(&self, path: &str, headers: &[(&str, &str)]) -> Watcher {
        let answer = self.send(Method::GET, path, headers, Bytes::new()).await;
        let status = answer.status();
        let mut body = answer.into_body();
        if status != StatusCode::OK {
            panic!("{status}: {:?}", (&mut body).collect().await.unwrap().to_bytes());
        }
        Watcher {
            body,
            buffer: BytesMut::new(),
        }
    }

    pub async fn create_plane(&self, name: &str) -> Value {
        self.post(PLANES, &plane(name)).await.expect(201)
    }

    /// Waits until what is at a path is as it should be.
    pub async fn until_it(&self, path: &str, good: impl Fn(&Value) -> bool) -> Value {
        let end = tokio::time::Instant::now() + PATIENCE;
        loop {
            let found = self.get(path).await.json();
            if good(&found) {
                return found;
            }
            assert!(tokio::time::Instant::now() < end, "{path} is still {found}");
            tokio::task::yield_now().await;
        }
    }

    /// Waits until a path answers with this code.
    pub async fn until(&self, path: &str, status: u16) -> Value {
        let end = tokio::time::Instant::now() + PATIENCE;
        loop {
            let answer = self.get(path).await;
            if answer.code() == status {
                return answer.json();
            }
            assert!(
                tokio::time::Instant::now() < end,
                "{path} still answers {}",
                answer.json()
            );
            tokio::task::yield_now().await;
        }
    }
}

/// A watch's events, one at a time.
pub struct Watcher {
    body: Incoming,
    buffer: BytesMut,
}

impl Watcher {
    /// The next event; `None` when the watch has ended cleanly.
    pub async fn next(&mut self) -> Option<Value> {
        tokio::time::timeout(PATIENCE, self.read())
            .await
            .expect("an event in time")
    }

    async fn read(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line = self.buffer.split_to(end + 1);
                return Some(serde_json::from_slice(&line).unwrap());
            }
            match self.body.frame().await {
                Some(frame) => {
                    if let Ok(data) = frame.expect("a watch ends cleanly").into_data() {
                        self.buffer.extend_from_slice(&data);
                    }
                }
                None => {
                    assert!(self.buffer.is_empty(), "a watch ends after a whole event");
                    return None;
                }
            }
        }
    }

    /// The next event as `TYPE name`.
    pub async fn brief(&mut self) -> String {
        self.next()
            .await
            .map_or_else(|| "end".to_owned(), |event| brief(&event))
    }

    pub async fn briefs(&mut self, count: usize) -> Vec<String> {
        let mut all = Vec::new();
        for _ in 0..count {
            all.push(self.brief().await);
        }
        all
    }
}

pub fn brief(event: &Value) -> String {
    format!("{} {}", text(event, "/type"), text(event, "/object/metadata/name"))
}

pub fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

pub fn revision_of(object: &Value) -> u64 {
    text(object, "/metadata/resourceVersion").parse().unwrap()
}

pub fn names(list: &Value) -> Vec<&str> {
    list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| text(item, "/metadata/name"))
        .collect()
}

pub const PLANES: &str = "/apis/mica.dev/v1alpha1/planes";
/// ConfigMaps of the namespace `default`, which the base layer holds one of: `kube-root-ca.crt`.
pub const MAPS: &str = "/api/v1/namespaces/default/configmaps";

pub fn plane(name: &str) -> Value {
    json!({"apiVersion": "mica.dev/v1alpha1", "kind": "Plane", "metadata": {"name": name}})
}

pub fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": "v"}})
}

pub fn labelled(name: &str, label: &str) -> Value {
    let mut map = map(name);
    map["metadata"]["labels"] = json!({"l": label});
    map
}

pub fn held(name: &str, finalizer: &str) -> Value {
    let mut map = map(name);
    map["metadata"]["finalizers"] = json!([finalizer]);
    map
}

pub fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

/// Every `(group version path, resource)` that discovery names.
pub async fn served(api: &Api) -> Vec<(String, Value)> {
    let mut versions = vec!["/api/v1".to_owned()];
    let groups = api.get("/apis").await.expect(200);
    for group in groups["groups"].as_array().unwrap() {
        for version in group["versions"].as_array().unwrap() {
            versions.push(format!("/apis/{}", text(version, "/groupVersion")));
        }
    }
    let mut all = Vec::new();
    for version in versions {
        let list = api.get(&version).await.expect(200);
        for resource in list["resources"].as_array().unwrap() {
            all.push((version.clone(), resource.clone()));
        }
    }
    all
}

//! Whole requests to a server in this process, and what of them is read before anything is known: paths, queries, headers.

use std::cell::RefCell;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Request, Response};
use http_body_util::BodyExt as _;
use mica_machinery::kind::Profile;
use mica_server::http::{Body, Context, Peer, Service as _, is_watch};
use mica_server::negotiate::{self, Asked, Encodings, Route};
use mica_server::options::{self, ListOptions, ListUse, WriteOptions, WriteUse};
use mica_server::request::{self, Query, Verb};
use mica_server::serve::Server;
use mica_server::start::ServerOptions;
use mica_store::MemStore;
use serde_json::Value;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;
use xxhash_rust::xxh3::xxh3_64;

use crate::{line, parts, text};

/// A server for many inputs: opening one takes longer than what most inputs ask of it. Each input that writes has a plane
/// of its own, so that what one wrote does not change what another finds.
struct World {
    runtime: Runtime,
    server: Arc<Server>,
    peer: Arc<Peer>,
    planes: usize,
}

/// How many planes a server gets before another takes its place: they stay.
const MOST_PLANES: usize = 2000;

thread_local! {
    static WORLD: RefCell<Option<World>> = const { RefCell::new(None) };
}

fn with_world(run: impl FnOnce(&World)) {
    WORLD.with_borrow_mut(|world| {
        if world.as_ref().is_none_or(|world| world.planes >= MOST_PLANES) {
            *world = Some(World::new());
        }
        let world = world.as_mut().expect("just made");
        world.planes += 1;
        run(world);
    });
}

/// A whole answer.
struct Answer {
    code: u16,
    is_json: bool,
    body: Bytes,
}

impl World {
    fn new() -> Self {
        // Without the network: no input may reach out of this process.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .expect("a runtime");
        let options = ServerOptions {
            profile: Profile::Kubernetes,
            ..ServerOptions::default()
        };
        let server = runtime
            .block_on(Server::open(Arc::new(MemStore::new()), options))
            .expect("an empty store opens");
        let peer = Arc::new(Peer::in_process(CancellationToken::new()));
        Self {
            runtime,
            server,
            peer,
            planes: 0,
        }
    }

    fn call(&self, method: Method, target: &str, headers: &[(HeaderName, HeaderValue)], body: &[u8]) -> Option<Answer> {
        let mut request = Request::builder().method(method).uri(target);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let request = request.body(Bytes::copy_from_slice(body).into()).ok()?;
        let watch = is_watch(&request);
        let context = Context::new(self.peer.clone());
        self.runtime.block_on(async {
            let response = patient(self.server.call(&context, request)).await;
            Some(read(response, watch).await)
        })
    }

    /// The path of a fresh plane.
    fn plane(&self) -> String {
        let name = format!("input-{}", self.planes);
        let body = format!(r#"{{"metadata":{{"name":"{name}"}}}}"#);
        let answer = self
            .call(Method::POST, PLANES, &[], body.as_bytes())
            .expect("a good target");
        assert_eq!(answer.code, 201, "{}", String::from_utf8_lossy(&answer.body));
        format!("/clusters/{name}/control-plane")
    }

    fn get(&self, target: &str) -> Option<Answer> {
        self.call(Method::GET, target, &[], b"")
    }
}

const PLANES: &str = "/apis/mica.dev/v1alpha1/planes";

/// How long a request may take. Far more than any needs: only what hangs is caught.
const PATIENCE: Duration = Duration::from_secs(60);

async fn patient<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.expect("an answer in time")
}

/// The whole body, or what of a watch is there at once.
async fn read(response: Response<Body>, watch: bool) -> Answer {
    let code = response.status().as_u16();
    let content = response
        .headers()
        .get(http::header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    let is_json = content.is_some_and(|content| content.starts_with("application/json"));
    let mut body = response.into_body();
    if watch && code == 200 {
        let _ = tokio::time::timeout(Duration::from_millis(1), body.frame()).await;
        let body = Bytes::new();
        return Answer {
            code,
            is_json: false,
            body,
        };
    }
    let body = patient(body.collect()).await.map(http_body_util::Collected::to_bytes);
    let body = body.expect("an answer that ends cleanly");
    Answer { code, is_json, body }
}

fn check(answer: &Answer) {
    let shown = || String::from_utf8_lossy(&answer.body).into_owned();
    if answer.is_json {
        let value: Value = serde_json::from_slice(&answer.body).unwrap_or_else(|error| panic!("{error}: {}", shown()));
        if answer.code >= 400 {
            assert_eq!(value["kind"], "Status", "{value}");
            assert_eq!(value["code"], answer.code, "{value}");
        }
        let message = value["message"].as_str().unwrap_or_default();
        for broken in ["stored data is damaged", "filling a plane failed", "panic"] {
            assert!(answer.code < 500 || !message.contains(broken), "{value}");
        }
    }
}

/// Requests: `METHOD target`, header lines, an empty line, the body. Afterwards everything that was written can be read.
pub fn request(data: &[u8]) {
    with_world(|world| requests(world, data));
}

fn requests(world: &World, data: &[u8]) {
    let prefix = world.plane();
    let mut written = Vec::new();
    for part in parts(data).into_iter().take(5) {
        let (first, mut rest) = line(part);
        let Some((method, target)) = first.split_once(' ') else {
            continue;
        };
        let Ok(method) = Method::from_bytes(method.as_bytes()) else {
            continue;
        };
        let mut headers = Vec::new();
        loop {
            let (header, after) = line(rest);
            rest = after;
            let Some((name, value)) = header.split_once(": ") else {
                break;
            };
            if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::from_str(value)) {
                headers.push((name, value));
            }
        }
        // Whatever is not about planes is about the input's own.
        let target = match target {
            _ if target.starts_with("/clusters") || target.contains("/planes") => target.to_owned(),
            _ if target.starts_with('/') => format!("{prefix}{target}"),
            _ => continue,
        };
        if rest.windows(6).any(|bytes| bytes == b"ebhook") {
            continue;
        }
        let Some(answer) = world.call(method.clone(), &target, &headers, rest) else {
            continue;
        };
        check(&answer);
        if answer.code < 300 && method != Method::GET && method != Method::DELETE {
            written.push(target.split('?').next().unwrap_or_default().to_owned());
        }
    }
    for target in written {
        let again = world.get(&target).expect("the target was good once");
        check(&again);
        assert!(
            again.code < 500,
            "{target} cannot be read: {}",
            String::from_utf8_lossy(&again.body)
        );
    }
}

/// What a continue token holds, encoded as one; and the same bytes as the token itself.
pub fn continue_token(data: &[u8]) {
    with_world(|world| tokens(world, data));
}

fn tokens(world: &World, data: &[u8]) {
    let plain: String = data.iter().map(|byte| format!("%{byte:02X}")).collect();
    for path in [
        "/api/v1/configmaps",
        "/clusters/*/control-plane/api/v1/configmaps",
        "/api/v1/nodes",
    ] {
        for token in [&URL_SAFE_NO_PAD.encode(data), &plain] {
            let target = format!("{path}?limit=1&continue={token}");
            // A target that is too long is refused before anything is read.
            let Some(answer) = world.get(&target) else { continue };
            check(&answer);
            assert_ne!(answer.code, 500, "{}", String::from_utf8_lossy(&answer.body));
        }
    }
}

/// A plane's snapshot, as it is and with its checksum made right.
pub fn snapshot(data: &[u8]) {
    with_world(|world| restore(world, data));
}

fn restore(world: &World, data: &[u8]) {
    let mut whole = data.to_vec();
    whole.extend_from_slice(&[0; 8]);
    whole.extend_from_slice(&xxh3_64(&whole).to_le_bytes());
    for (name, body) in [("as-it-is", data), ("made-right", &whole)] {
        let name = format!("{name}-{}", world.planes);
        let target = format!("{PLANES}/{name}/restore");
        let answer = world.call(Method::POST, &target, &[], body).expect("a good target");
        check(&answer);
        if answer.code < 300 {
            let below = format!("/clusters/{name}/control-plane/api/v1/configmaps");
            let answer = world.get(&below).expect("a good target");
            assert!(answer.code < 600);
        }
    }
    arrive(world, data, &whole);
}

/// The same bytes sent to a plane that arrives: a copy, and whatever may follow it.
fn arrive(world: &World, data: &[u8], whole: &[u8]) {
    let name = format!("arriving-{}", world.planes);
    let plane = format!(r#"{{"kind":"Plane","metadata":{{"name":"{name}"}},"spec":{{"state":"Arriving"}}}}"#);
    let json = [(http::header::CONTENT_TYPE, HeaderValue::from_static("application/json"))];
    let made = world.call(Method::POST, PLANES, &json, plane.as_bytes());
    assert_eq!(made.expect("a good target").code, 201);
    for (part, body) in [("arrive", data), ("arrive", whole), ("arrive", whole), ("open", b"")] {
        let target = format!("{PLANES}/{name}/{part}");
        let answer = world.call(Method::POST, &target, &[], body).expect("a good target");
        check(&answer);
        assert_ne!(answer.code, 500, "{}", String::from_utf8_lossy(&answer.body));
    }
    let below = format!("/clusters/{name}/control-plane/api/v1/configmaps");
    for version in ["", "?resourceVersion=3&resourceVersionMatch=Exact"] {
        let answer = world.get(&format!("{below}{version}")).expect("a good target");
        assert!(answer.code < 600);
    }
}

/// A path with its query.
pub fn url(data: &[u8]) {
    let Some(source) = text(data) else { return };
    let (path, query) = source
        .split_once('?')
        .map_or((source, None), |(path, query)| (path, Some(query)));
    let query = Query::parse(query);
    if let Ok(located) = request::locate(path) {
        assert!(
            path.starts_with(&located.prefix) || !path.starts_with('/') || path.starts_with("//"),
            "{located:?}"
        );
        if let Ok(request::Path::Resource(found)) = request::parse(&located.segments) {
            let safe = |name: Option<&str>| name.is_none_or(|name| !name.contains('/') && name != "..");
            assert!(
                safe(found.name.as_deref()) && safe(found.namespace.as_deref()),
                "{found:?}"
            );
            let _ = (found.about(&query), Verb::of(&Method::GET, &found, &query));
        }
    }
    for use_ in [ListUse::List, ListUse::Watch] {
        if let Ok(options) = ListOptions::read(&query, use_) {
            let _ = options::parse_version(&options.resource_version);
        }
    }
    for use_ in [WriteUse::Create, WriteUse::Update, WriteUse::Patch, WriteUse::Apply] {
        let _ = WriteOptions::read(&query, use_);
    }
    let _ = options::delete_options_from_query(&query);
}

/// `Accept`, then `User-Agent`, the query and `Content-Type`.
pub fn negotiate(data: &[u8]) {
    let parts = parts(data);
    let part = |at: usize| parts.get(at).and_then(|part| text(part)).unwrap_or_default();
    let asked = Asked {
        accept: part(0),
        user_agent: part(1),
        query: part(2),
    };
    for route in [Route::Object, Route::Collection, Route::JsonOnly, Route::None] {
        for encodings in [Encodings::All, Encodings::NoProtobuf] {
            let _ = negotiate::output(asked, route, encodings);
            let _ = negotiate::stream(asked, route, encodings);
        }
        let _ = negotiate::patch_type(part(3), route);
        let _ = (
            negotiate::document(asked, route),
            negotiate::discovery(asked, route).is_ok(),
        );
    }
    let _ = negotiate::error_output(asked);
    let _ = negotiate::is_pretty(asked.query, asked.user_agent);
    let _ = negotiate::body_format(part(3));
}

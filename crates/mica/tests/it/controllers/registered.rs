//! Control planes elsewhere, and controllers for what is registered.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::StreamExt as _;
use http::{Request, Response, StatusCode, header};
use http_body_util::BodyExt as _;
use kube::client::Body as ClientBody;
use mica_server::http::{Body, Context, RequestBody, Service};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::super::fake;
use super::super::process::{Up, run};
use super::{Controllers, KUBECONFIG, client, send, until};

const CONTROL_PLANES: &str = "/apis/controlplane.kplane.dev/v1alpha1/controlplanes";
const ENDPOINTS: &str = "/apis/controlplane.kplane.dev/v1alpha1/controlplaneendpoints";
const REGISTRATIONS: &str = "/apis/controlplane.kplane.dev/v1alpha1/controlplaneregistrations";

async fn control_plane(client: &kube::Client, name: &str) {
    let object = json!({"apiVersion": "controlplane.kplane.dev/v1alpha1", "kind": "ControlPlane",
        "metadata": {"name": name}, "spec": {}});
    send(client, "POST", CONTROL_PLANES, &object).await.unwrap();
    let ready = |found: &Result<Value, u16>| {
        let conditions = found
            .as_ref()
            .ok()
            .and_then(|one| one["status"]["conditions"].as_array().cloned());
        let mut all = conditions.into_iter().flatten();
        all.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
    };
    until(client, &format!("{CONTROL_PLANES}/{name}"), ready).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn control_planes_of_one_server_are_made_on_another() {
    let (management, shared) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let _server = Up::start(management.path(), &["--controllers=*,-control-plane"]);
    let other = Up::start(shared.path(), &[]);
    let kubeconfig = shared.path().join(".mica/admin.kubeconfig");
    let arguments = [
        "--controllers",
        "control-plane",
        "--server-kubeconfig",
        kubeconfig.to_str().unwrap(),
    ];
    let operator = Controllers::start(management.path(), &arguments);
    let (here, there) = (client(management.path()).await, client(shared.path()).await);
    control_plane(&here, "shop").await;
    let plane = "/apis/mica.dev/v1alpha1/planes/shop";
    assert!(send(&there, "GET", plane, &Value::Null).await.is_ok());
    assert_eq!(send(&here, "GET", plane, &Value::Null).await.err(), Some(404));
    // The kubeconfig that commands print here leads there.
    let (code, text, error) = run(management.path(), &["control-plane", "kubeconfig", "shop"]);
    assert_eq!(code, 0, "{error}");
    assert!(
        text.contains(&format!("{}/clusters/shop/control-plane", other.url())),
        "{text}"
    );
    assert_eq!(operator.stop(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registration_has_controllers_of_its_own_and_nobody_else_has_them() {
    let home = tempfile::tempdir().unwrap();
    let _server = Up::start(home.path(), &["--controllers=control-plane"]);
    let client = client(home.path()).await;
    control_plane(&client, "bank").await;
    control_plane(&client, "other").await;
    let registration = json!({"apiVersion": "controlplane.kplane.dev/v1alpha1", "kind": "ControlPlaneRegistration",
        "metadata": {"name": "bank-own"},
        "spec": {"controlPlaneRef": {"name": "bank"}, "services": ["controllers"], "mode": "Dedicated"}});
    send(&client, "POST", REGISTRATIONS, &registration).await.unwrap();
    let own = Controllers::start(home.path(), &["--registration", "bank-own"]);
    for plane in ["other", "bank"] {
        let path = format!("/clusters/{plane}/control-plane/api/v1/namespaces");
        send(&client, "POST", &path, &json!({"metadata": {"name": "ns"}}))
            .await
            .unwrap();
    }
    let account = |plane: &str| format!("/clusters/{plane}/control-plane/api/v1/namespaces/ns/serviceaccounts/default");
    until(&client, &account("bank"), Result::is_ok).await;
    assert_eq!(
        send(&client, "GET", &account("other"), &Value::Null).await.err(),
        Some(404)
    );
    let engaged = |found: &Result<Value, u16>| {
        found
            .as_ref()
            .is_ok_and(|one| one["status"]["conditions"].to_string().contains("ControllersEngaged"))
    };
    until(&client, &format!("{REGISTRATIONS}/bank-own"), engaged).await;
    assert_eq!(own.stop(), Some(0));
}

/// An API server that is not ours: what one of ours answers, without what only ours have.
struct Foreign {
    client: kube::Client,
    /// Watches that somebody has open.
    watches: Arc<AtomicUsize>,
}

/// One watch that is open.
struct Open(Arc<AtomicUsize>);

impl Open {
    fn new(watches: &Arc<AtomicUsize>) -> Self {
        watches.fetch_add(1, Ordering::SeqCst);
        Self(watches.clone())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Service for Foreign {
    async fn call(&self, _context: &Context, request: Request<RequestBody>) -> Response<Body> {
        let uri = request.uri().path_and_query().unwrap().to_string();
        let is_watch = uri.contains("watch=1") || uri.contains("watch=true");
        let refused = |code| {
            let mut response = Response::new(Body::full(""));
            *response.status_mut() = code;
            response
        };
        if uri.starts_with("/apis/mica.dev/") || uri.starts_with("/clusters/") {
            return refused(StatusCode::NOT_FOUND);
        }
        let (parts, body) = request.into_parts();
        let mut passed = Request::builder().method(parts.method).uri(uri);
        for name in [header::ACCEPT, header::CONTENT_TYPE] {
            if let Some(value) = parts.headers.get(&name) {
                passed = passed.header(name, value);
            }
        }
        let body = body.collect().await.unwrap().to_bytes();
        let passed = passed.body(ClientBody::from(body.to_vec())).unwrap();
        let Ok(answer) = self.client.send(passed).await else {
            return refused(StatusCode::BAD_GATEWAY);
        };
        let (answered, body) = answer.into_parts();
        let pieces = body.into_data_stream();
        let body = if is_watch {
            let open = Open::new(&self.watches);
            // Held for as long as the watch lasts, which ends with the first error.
            let pieces = pieces.scan(open, |_open, piece| std::future::ready(piece.ok()));
            Body::watch(pieces, CancellationToken::new())
        } else {
            Body::try_stream(pieces)
        };
        let mut response = Response::new(body);
        *response.status_mut() = answered.status;
        if let Some(value) = answered.headers.get(header::CONTENT_TYPE) {
            response.headers_mut().insert(header::CONTENT_TYPE, value.clone());
        }
        response
    }
}

/// Says of a control plane that somebody else runs where it is, and how to reach it.
async fn publish(management: &kube::Client, kubeconfig: &[u8], url: &str) {
    let object = |kind: &str, spec: Value| {
        json!({"apiVersion": "controlplane.kplane.dev/v1alpha1", "kind": kind, "spec": spec,
            "metadata": {"name": "theirs", "annotations": {"controlplane.kplane.dev/managed-by": "somebody"}}})
    };
    let secret = json!({"metadata": {"name": "of-theirs"}, "data": {"kubeconfig": STANDARD.encode(kubeconfig)}});
    for (path, object) in [
        (CONTROL_PLANES, object("ControlPlane", json!({}))),
        (ENDPOINTS, object("ControlPlaneEndpoint", json!({"endpoint": url}))),
        ("/api/v1/namespaces/default/secrets", secret),
    ] {
        send(management, "POST", path, &object).await.unwrap();
    }
}

async fn register(management: &kube::Client) {
    let registration = json!({"apiVersion": "controlplane.kplane.dev/v1alpha1", "kind": "ControlPlaneRegistration",
        "metadata": {"name": "theirs"},
        "spec": {"controlPlaneRef": {"name": "theirs"}, "services": ["controllers"], "mode": "Shared",
            "endpointRef": {"name": "theirs"}, "kubeconfigSecretRef": {"name": "of-theirs", "namespace": "default"}}});
    send(management, "POST", REGISTRATIONS, &registration).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_server_has_controllers_for_as_long_as_it_is_registered() {
    let (home, behind, front) = (
        tempfile::tempdir().unwrap(),
        tempfile::tempdir().unwrap(),
        tempfile::tempdir().unwrap(),
    );
    let _management = Up::start(home.path(), &["--controllers=control-plane"]);
    let _foreign = Up::start(behind.path(), &["--controllers=-*"]);
    let (management, foreign) = (client(home.path()).await, client(behind.path()).await);
    let watches = Arc::new(AtomicUsize::new(0));
    let service = Foreign {
        client: foreign.clone(),
        watches: watches.clone(),
    };
    let url = fake::serve_with(front.path(), service).await;
    let kubeconfig = std::fs::read(front.path().join(KUBECONFIG)).unwrap();
    publish(&management, &kubeconfig, &url).await;

    let controllers = Controllers::start(home.path(), &["--registrations"]);
    let namespaces = "/api/v1/namespaces";
    send(&foreign, "POST", namespaces, &json!({"metadata": {"name": "before"}}))
        .await
        .unwrap();
    register(&management).await;
    until(
        &foreign,
        "/api/v1/namespaces/before/serviceaccounts/default",
        Result::is_ok,
    )
    .await;
    send(&foreign, "DELETE", "/api/v1/namespaces/before", &Value::Null)
        .await
        .unwrap();
    until(&foreign, "/api/v1/namespaces/before", |found| *found == Err(404)).await;
    assert_ne!(watches.load(Ordering::SeqCst), 0);

    send(&management, "DELETE", &format!("{REGISTRATIONS}/theirs"), &Value::Null)
        .await
        .unwrap();
    // Who hears nothing any more does nothing any more.
    until(&foreign, namespaces, |_| watches.load(Ordering::SeqCst) == 0).await;
    send(&foreign, "POST", namespaces, &json!({"metadata": {"name": "after"}}))
        .await
        .unwrap();
    let account = "/api/v1/namespaces/after/serviceaccounts/default";
    assert_eq!(send(&foreign, "GET", account, &Value::Null).await, Err(404));
    register(&management).await;
    until(&foreign, account, Result::is_ok).await;
    assert_eq!(controllers.stop(), Some(0));
}

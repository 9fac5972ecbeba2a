//! Registrations, resolved from what they name and followed from there.

use mica_api::control_plane::{API_VERSION, KUBECONFIG};
use mica_server::start::Tenancy;
use mica_testkit::TestServer;
use serde_json::{Value, json};

use super::world::{Place, World};

pub const GROUP: &str = "/apis/controlplane.kplane.dev/v1alpha1";

/// A server where these controllers run, and nobody else's statuses are in the way.
pub async fn world(controllers: &[&str]) -> (World, Place) {
    let server = TestServer::builder().tenancy(Tenancy::Served).start().await;
    let world = World::with(server, controllers).await;
    let root = world.root();
    (world, root)
}

pub fn path(plural: &str, name: &str) -> String {
    format!("{GROUP}/{plural}/{name}")
}

pub async fn create(root: &Place, kind: &str, name: &str, spec: Value) -> Value {
    let plural = match kind {
        "ControlPlaneClass" => "controlplaneclasses".to_owned(),
        _ => format!("{}s", kind.to_ascii_lowercase()),
    };
    let object = json!({"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec});
    root.create(&format!("{GROUP}/{plural}"), object).await
}

/// Waits until these events are told of an object, each as its type, its reason and words of its message.
pub async fn until_told(root: &Place, kind: &str, name: &str, expected: &[(&str, &str, &str)]) {
    let events = format!(
        "/api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3D{name},involvedObject.kind%3D{kind}"
    );
    let told = |found: Option<&Value>| {
        let all = found.and_then(|found| found["items"].as_array()).unwrap();
        expected.iter().all(|(r#type, reason, words)| {
            all.iter().any(|one| {
                let message = one["message"].as_str().unwrap_or_default();
                one["type"] == *r#type && one["reason"] == *reason && message.contains(words)
            })
        })
    };
    root.until(&events, &format!("telling {expected:?}"), told).await;
}

/// Whether a condition of an object is this, with all that its message has to hold.
pub fn says(object: Option<&Value>, r#type: &str, status: &str, reason: &str, words: &str) -> bool {
    let conditions = object.and_then(|object| object["status"]["conditions"].as_array());
    let mut all = conditions.into_iter().flatten();
    all.any(|one| {
        let message = one["message"].as_str().unwrap_or_default();
        one["type"] == r#type && one["status"] == status && one["reason"] == reason && message.contains(words)
    })
}

fn ready(object: Option<&Value>, reason: &str) -> bool {
    let status = if reason == "Resolved" { "True" } else { "False" };
    let shown = object.is_some_and(|object| object["status"]["ready"] == (status == "True"));
    shown && says(object, "Ready", status, reason, "")
}

async fn secret(root: &Place, namespace: &str, name: &str) {
    let object = json!({"metadata": {"name": name}, "data": {KUBECONFIG: "e30="}});
    root.create(&format!("/api/v1/namespaces/{namespace}/secrets"), object)
        .await;
}

#[tokio::test]
async fn a_registration_becomes_ready_moves_and_degrades_with_what_it_resolves_from() {
    let (_world, root) = world(&["control-plane-registration"]).await;
    let spec = json!({"controlPlaneRef": {"name": "p"}, "services": ["controllers", "Scheduler"], "mode": "Shared"});
    create(&root, "ControlPlaneRegistration", "r", spec).await;
    let (registration, plane) = (path("controlplaneregistrations", "r"), path("controlplanes", "p"));
    root.until(&registration, "without control plane", |found| {
        ready(found, "ControlPlaneNotFound")
    })
    .await;
    create(&root, "ControlPlane", "p", json!({})).await;
    root.until(&registration, "without endpoint", |found| {
        ready(found, "EndpointPending")
    })
    .await;
    let first = "https://one.example/clusters/p/control-plane";
    let status = json!({"status": {"endpoint": first,
        "kubeconfigSecretRef": {"name": "s", "namespace": "kplane-cp-p"}}});
    root.patch(&format!("{plane}/status"), status).await;
    root.until(&registration, "without Secret", |found| {
        ready(found, "KubeconfigPending")
    })
    .await;
    root.namespace("kplane-cp-p").await;
    secret(&root, "kplane-cp-p", "s").await;
    let found = root
        .until(&registration, "ready", |found| ready(found, "Resolved"))
        .await
        .unwrap();
    assert_eq!(found["status"]["resolvedEndpoint"], first);
    let reference = json!({"name": "s", "namespace": "kplane-cp-p"});
    assert_eq!(found["status"]["resolvedKubeconfigSecretRef"], reference);
    assert_eq!(found["status"]["observedGeneration"], found["metadata"]["generation"]);
    assert!(says(Some(&found), "Accepted", "True", "Accepted", ""));

    let second = "https://two.example/clusters/p/control-plane";
    root.patch(&format!("{plane}/status"), json!({"status": {"endpoint": second}}))
        .await;
    let moved = |found: Option<&Value>| {
        ready(found, "Resolved") && found.is_some_and(|one| one["status"]["resolvedEndpoint"] == second)
    };
    root.until(&registration, "moved", moved).await;

    // Nothing that may pass takes away what was published.
    root.patch(&format!("{plane}/status"), json!({"status": {"endpoint": null}}))
        .await;
    let found = root
        .until(&registration, "waiting", |found| ready(found, "EndpointPending"))
        .await
        .unwrap();
    assert_eq!(found["status"]["resolvedEndpoint"], second);
    root.patch(&format!("{plane}/status"), json!({"status": {"endpoint": second}}))
        .await;
    root.until(&registration, "ready again", moved).await;
    root.delete("/api/v1/namespaces/kplane-cp-p/secrets/s").await;
    let found = root
        .until(&registration, "degraded", |found| ready(found, "KubeconfigPending"))
        .await
        .unwrap();
    assert_eq!(found["status"]["resolvedEndpoint"], second);
    secret(&root, "kplane-cp-p", "s").await;
    root.until(&registration, "ready again", moved).await;

    root.delete(&plane).await;
    let found = root
        .until(&registration, "void", |found| ready(found, "ControlPlaneNotFound"))
        .await
        .unwrap();
    assert!(found["status"]["resolvedEndpoint"].is_null(), "{found}");
    let told = [
        ("Warning", "ControlPlaneNotFound", "there is no ControlPlane \"p\""),
        ("Normal", "Ready", "are resolved"),
        (
            "Normal",
            "Moved",
            "from https://one.example/clusters/p/control-plane to https://two.example/",
        ),
        ("Warning", "EndpointPending", "has no endpoint yet"),
        ("Warning", "KubeconfigPending", "there is no Secret \"kplane-cp-p/s\""),
    ];
    until_told(&root, "ControlPlaneRegistration", "r", &told).await;
}

#[tokio::test]
async fn a_registration_with_an_endpoint_and_a_secret_of_its_own_follows_those() {
    let (_world, root) = world(&["control-plane-registration"]).await;
    create(&root, "ControlPlane", "p", json!({})).await;
    create(&root, "ControlPlane", "q", json!({})).await;
    let spec = json!({"controlPlaneRef": {"name": "p"}, "endpointRef": {"name": "e"},
        "kubeconfigSecretRef": {"name": "mine", "namespace": "default"}});
    create(&root, "ControlPlaneRegistration", "r", spec).await;
    let other = json!({"controlPlaneRef": {"name": "q"}});
    create(&root, "ControlPlaneRegistration", "other", other).await;
    let other = path("controlplaneregistrations", "other");
    let before = root
        .until(&other, "told", |found| ready(found, "EndpointPending"))
        .await
        .unwrap();

    let registration = path("controlplaneregistrations", "r");
    root.until(&registration, "without endpoint", |found| {
        ready(found, "EndpointPending")
    })
    .await;
    create(&root, "ControlPlaneEndpoint", "e", json!({"endpoint": "nonsense"})).await;
    root.until(&registration, "told", |found| ready(found, "InvalidEndpoint"))
        .await;
    let endpoint = path("controlplaneendpoints", "e");
    root.patch(&endpoint, json!({"spec": {"externalEndpoint": "https://e.example"}}))
        .await;
    root.until(&registration, "without Secret", |found| {
        ready(found, "KubeconfigPending")
    })
    .await;
    secret(&root, "default", "mine").await;
    let at = |url: &'static str| {
        move |found: Option<&Value>| {
            ready(found, "Resolved") && found.is_some_and(|one| one["status"]["resolvedEndpoint"] == url)
        }
    };
    let url = "https://e.example/clusters/p/control-plane";
    root.until(&registration, "ready", at(url)).await;
    let observed = json!({"status": {"externalEndpoint": "https://seen.example"}});
    root.patch(&format!("{endpoint}/status"), observed).await;
    let url = "https://seen.example/clusters/p/control-plane";
    root.until(&registration, "where a provider saw it", at(url)).await;

    let after = root.get(&other).await.unwrap();
    assert_eq!(
        after["metadata"]["resourceVersion"], before["metadata"]["resourceVersion"],
        "others are left alone"
    );
}

#[tokio::test]
async fn what_consumers_say_in_a_registration_stays() {
    let (_world, root) = world(&["control-plane-registration"]).await;
    create(
        &root,
        "ControlPlaneRegistration",
        "r",
        json!({"controlPlaneRef": {"name": "p"}}),
    )
    .await;
    let registration = path("controlplaneregistrations", "r");
    let found = root
        .until(&registration, "told", |found| ready(found, "ControlPlaneNotFound"))
        .await
        .unwrap();
    let mut conditions = found["status"]["conditions"].as_array().unwrap().clone();
    conditions.push(
        json!({"type": "ControllersEngaged", "status": "True", "reason": "Engaged", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"}),
    );
    root.patch(
        &format!("{registration}/status"),
        json!({"status": {"conditions": conditions}}),
    )
    .await;
    create(&root, "ControlPlane", "p", json!({})).await;
    root.until(&registration, "told with what was there", |found| {
        ready(found, "EndpointPending") && says(found, "ControllersEngaged", "True", "Engaged", "")
    })
    .await;
}

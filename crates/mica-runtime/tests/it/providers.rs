//! Every provider against the API that it follows.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use mica_runtime::provider::{
    Discovery, Draining, KUBECONFIG_LABEL, Kubeconfig, Milo, Naming, Planes, Registrations, SecretLabel,
};
use mica_runtime::{Access, Fleet, FleetEvent};
use mica_testkit::TestServer;
use serde_json::{Value, json};
use std::time::Duration;

use crate::support::{create, define, engaged, fleet, gone, next, root, set_status, soon, synced};

const PROJECT_PATH: &str = "/apis/resourcemanager.miloapis.com/v1alpha1/projects";

fn condition(r#type: &str, status: &str) -> Value {
    json!({"conditions": [{
        "type": r#type, "status": status, "reason": "Test", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]})
}

async fn delete(api: &Api<DynamicObject>, name: &str) {
    api.delete(name, &DeleteParams::default()).await.unwrap();
}

#[tokio::test]
async fn milo_outside_engages_ready_projects_at_their_paths() {
    let server = TestServer::start().await;
    let projects = define(
        &server.client().await,
        "resourcemanager.miloapis.com",
        "Project",
        "projects",
    )
    .await;
    let project = |name: &str| {
        json!({
            "apiVersion": "resourcemanager.miloapis.com/v1alpha1", "kind": "Project",
            "metadata": {"name": name, "labels": {"tier": "gold"}, "finalizers": ["example.dev/hold"]},
        })
    };
    create(&projects, project("slow"), condition("Ready", "Unknown")).await;
    create(&projects, project("shop"), condition("Ready", "True")).await;
    let fleet = fleet();
    let milo = Milo::new(root(&server).at("/ignored"), Discovery::External);
    // The objects are at the root of the server, whatever the path of what reaches projects.
    let milo_at_root = Milo::with_projects(root(&server), root(&server).at("/ignored"), Discovery::External);
    drop(milo);
    fleet.add(milo_at_root.labels("tier=gold")).unwrap();
    let mut events = fleet.events();
    let shop = engaged(&mut events, "shop").await;
    assert_eq!(
        shop.access().url(),
        format!("{}{PROJECT_PATH}/shop/control-plane", server.url())
    );
    assert_eq!(shop.labels()["tier"], "gold");
    synced(&mut events).await;

    set_status(&projects, "slow", condition("Ready", "True")).await;
    engaged(&mut events, "slow").await;
    set_status(&projects, "slow", condition("Ready", "False")).await;
    gone(&mut events, "slow").await;
    // One that is being deleted stays while it is ready: somebody must remove the finalizers in it.
    delete(&projects, "shop").await;
    set_status(&projects, "slow", condition("Ready", "True")).await;
    engaged(&mut events, "slow").await;
    let unlabelled = Patch::Merge(json!({"metadata": {"labels": {"tier": "lead"}}}));
    projects
        .patch("slow", &PatchParams::default(), &unlabelled)
        .await
        .unwrap();
    gone(&mut events, "slow").await;
    let finished = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    projects
        .patch("shop", &PatchParams::default(), &finished)
        .await
        .unwrap();
    gone(&mut events, "shop").await;
    assert!(shop.lifetime().is_cancelled());
}

#[tokio::test]
async fn milo_inside_engages_ready_project_control_planes_at_their_hosts() {
    let server = TestServer::start().await;
    let client = server.client().await;
    let planes = define(
        &client,
        "infrastructure.miloapis.com",
        "ProjectControlPlane",
        "projectcontrolplanes",
    )
    .await;
    let object = json!({
        "apiVersion": "infrastructure.miloapis.com/v1alpha1", "kind": "ProjectControlPlane",
        "metadata": {"name": "shop"},
    });
    // Another kind's condition says nothing.
    create(&planes, object, condition("Ready", "True")).await;
    let fleet = fleet();
    fleet.add(Milo::new(root(&server), Discovery::Internal)).unwrap();
    let mut events = fleet.events();
    synced(&mut events).await;
    set_status(&planes, "shop", condition("ControlPlaneReady", "True")).await;
    let shop = engaged(&mut events, "shop").await;
    assert_eq!(
        shop.access().url(),
        "https://milo-apiserver.project-shop.svc.cluster.local:6443"
    );
    delete(&planes, "shop").await;
    gone(&mut events, "shop").await;
}

#[tokio::test]
async fn planes_are_engaged_while_they_take_requests_and_shown_by_the_wildcard() {
    let server = TestServer::start().await;
    server.plane("a").await;
    let (staying, leaving) = (fleet(), fleet());
    staying.add(Planes::new(root(&server))).unwrap();
    leaving.add(Planes::with(root(&server), Draining::Leave)).unwrap();
    let mut events = staying.events();
    let a = engaged(&mut events, "a").await;
    assert_eq!(a.access().url(), format!("{}/clusters/a/control-plane", server.url()));
    let wildcard = a.wildcard().unwrap();
    assert_eq!((wildcard.server.url(), wildcard.plane.as_str()), (server.url(), "a"));
    assert_eq!(wildcard.plane_id.len(), 12);
    let first = wildcard.plane_id.clone();

    let kind = kube::api::GroupVersionKind::gvk("mica.dev", "v1alpha1", "Plane");
    let kind = kube::api::ApiResource::from_gvk_with_plural(&kind, "planes");
    let planes: Api<DynamicObject> = Api::all_with(server.client().await, &kind);
    let state = async |state: &str| {
        let patch = Patch::Merge(json!({"spec": {"state": state}}));
        planes.patch("a", &PatchParams::default(), &patch).await.unwrap();
    };
    state("Suspended").await;
    gone(&mut events, "a").await;
    state("Active").await;
    let again = engaged(&mut events, "a").await;
    assert_eq!(again.wildcard().unwrap().plane_id, first);

    // What holds the plane's drain up must be seen by whoever can let it go.
    let maps: Api<k8s_openapi::api::core::v1::ConfigMap> = Api::default_namespaced(again.client());
    let held = json!({"metadata": {"name": "held", "finalizers": ["example.dev/hold"]}});
    maps.create(&PostParams::default(), &serde_json::from_value(held).unwrap())
        .await
        .unwrap();
    let mut others = leaving.events();
    engaged(&mut others, "a").await;
    delete(&planes, "a").await;
    gone(&mut others, "a").await;
    let release = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    maps.patch("held", &PatchParams::default(), &release).await.unwrap();
    gone(&mut events, "a").await;
    server.plane("a").await;
    let second = engaged(&mut events, "a").await;
    assert_ne!(second.wildcard().unwrap().plane_id, first, "another plane of that name");
}

fn secret(name: &str, labels: &Value, kubeconfig: &str) -> Secret {
    let secret = json!({
        "metadata": {"name": name, "labels": labels}, "data": {"kubeconfig": STANDARD.encode(kubeconfig)},
    });
    serde_json::from_value(secret).unwrap()
}

async fn replace(secrets: &Api<Secret>, name: &str, kubeconfig: &str) {
    let patch = Patch::Merge(json!({"data": {"kubeconfig": STANDARD.encode(kubeconfig)}}));
    secrets.patch(name, &PatchParams::default(), &patch).await.unwrap();
}

#[tokio::test]
async fn labelled_secrets_are_clusters_and_a_new_certificate_in_one_is_taken_in_place() {
    let server = TestServer::start().await;
    let (a, b) = (server.plane("a").await, server.plane("b").await);
    let secrets: Api<Secret> = Api::default_namespaced(server.client().await);
    let labels = json!({KUBECONFIG_LABEL: "true", "tier": "gold"});
    let make = async |name: &str, labels: &Value, kubeconfig: &str| {
        let secret = secret(name, labels, kubeconfig);
        secrets.create(&PostParams::default(), &secret).await.unwrap();
    };
    make("one", &labels, &a.kubeconfig()).await;
    make("unlabelled", &json!({}), &b.kubeconfig()).await;
    let fleet = fleet();
    fleet.add(SecretLabel::new(root(&server), "default")).unwrap();
    let mut events = fleet.events();
    let one = engaged(&mut events, "one").await;
    assert_eq!((one.access().url(), one.labels()["tier"].as_str()), (a.url(), "gold"));
    synced(&mut events).await;
    // What would run a command here is not taken, and does no harm to the others.
    let exec = a.kubeconfig().replace(
        "client-certificate-data:",
        "client-certificate: /etc/hostname\n    ignored:",
    );
    assert!(matches!(
        Access::from_foreign_kubeconfig(&exec),
        Err(mica_runtime::cluster::AccessError::NotSelfContained(
            "client-certificate"
        ))
    ));
    make("foreign", &labels, &exec).await;
    let other = a.kubeconfig_for(&server.user("other", Some("system:masters")));
    replace(&secrets, "one", &other).await;
    make("two", &labels, &b.kubeconfig()).await;
    assert!(matches!(next(&mut events).await, FleetEvent::Changed(same) if same.is_same(&one)));
    engaged(&mut events, "two").await;
    assert!(!one.lifetime().is_cancelled(), "it is the same cluster");
    let review: Api<k8s_openapi::api::authentication::v1::SelfSubjectReview> = Api::all(one.client());
    let review = review
        .create(&PostParams::default(), &Default::default())
        .await
        .unwrap();
    assert_eq!(review.status.unwrap().user_info.unwrap().username.unwrap(), "other");
    // Another address is another cluster.
    replace(&secrets, "one", &b.kubeconfig()).await;
    gone(&mut events, "one").await;
    engaged(&mut events, "one").await;
    secrets.delete("one", &DeleteParams::default()).await.unwrap();
    gone(&mut events, "one").await;
}

/// A server with definitions and a registration of plane `a` for controllers.
async fn registered(server: &TestServer) -> (Api<DynamicObject>, Api<Secret>) {
    let plane = server.plane("a").await;
    let client = server.client().await;
    let group = "controlplane.kplane.dev";
    let registrations = define(&client, group, "ControlPlaneRegistration", "controlplaneregistrations").await;
    let secrets: Api<Secret> = Api::default_namespaced(client);
    let labels = json!({"controlplane.kplane.dev/name": "a"});
    let bad = plane.kubeconfig_for(&server.user("nobody", None));
    secrets
        .create(&PostParams::default(), &secret("a-kubeconfig", &labels, &bad))
        .await
        .unwrap();
    create(
        &registrations,
        registration("a", &["Controllers"], "Shared"),
        resolved(&plane.url()),
    )
    .await;
    (registrations, secrets)
}

fn registration(name: &str, services: &[&str], mode: &str) -> Value {
    json!({
        "apiVersion": "controlplane.kplane.dev/v1alpha1", "kind": "ControlPlaneRegistration",
        "metadata": {"name": name}, "spec": {"controlPlaneRef": {"name": name}, "services": services, "mode": mode},
    })
}

fn resolved(url: &str) -> Value {
    json!({
        "ready": true, "resolvedEndpoint": url,
        "resolvedKubeconfigSecretRef": {"name": "a-kubeconfig", "namespace": "default"},
        "conditions": [{
            "type": "Ready", "status": "True", "reason": "Resolved", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }],
    })
}

/// Waits until the condition of the service `controllers` has this reason. All conditions.
async fn engaged_condition(registrations: &Api<DynamicObject>, name: &str, wanted: &str) -> Value {
    let waiting =
        kube::runtime::wait::await_condition(registrations.clone(), name, |object: Option<&DynamicObject>| {
            object.is_some_and(|object| find_engaged(object)["reason"] == *wanted)
        });
    let object = soon("the condition", waiting).await.unwrap().unwrap();
    object.data["status"]["conditions"].clone()
}

fn find_engaged(object: &DynamicObject) -> Value {
    let conditions = object.data["status"]["conditions"].as_array();
    let found = conditions
        .into_iter()
        .flatten()
        .find(|found| found["type"] == "ControllersEngaged");
    found.cloned().unwrap_or_default()
}

#[tokio::test]
async fn registrations_are_engaged_where_they_resolve_to_and_told_how_that_is() {
    let server = TestServer::start().await;
    let (registrations, secrets) = registered(&server).await;
    create(
        &registrations,
        registration("other", &["Scheduler"], "Shared"),
        resolved(&server.url()),
    )
    .await;
    create(
        &registrations,
        registration("mode", &["Controllers"], "Dedicated"),
        resolved(&server.url()),
    )
    .await;
    create(
        &registrations,
        registration("pending", &["Controllers"], "Shared"),
        Value::Null,
    )
    .await;
    let fleet: Fleet = fleet();
    let provider = Registrations::new(root(&server)).service("controllers").mode("Shared");
    fleet.add(provider).unwrap();
    let mut events = fleet.events();
    let a = engaged(&mut events, "a").await;
    assert_eq!(a.access().url(), format!("{}/clusters/a/control-plane", server.url()));
    synced(&mut events).await;
    let conditions = engaged_condition(&registrations, "a", "Engaged").await;
    assert_eq!(conditions.as_array().unwrap().len(), 2, "others' stay: {conditions}");

    let elsewhere = json!({"resolvedEndpoint": "https://127.0.0.1:1/clusters/a/control-plane"});
    set_status(&registrations, "a", elsewhere).await;
    // It is what it was, at another place.
    let dead = a;
    soon(
        "it is elsewhere",
        dead.moved_from(&format!("{}/clusters/a/control-plane", server.url())),
    )
    .await;
    let client = dead.client();
    soon("it is given up", async {
        while dead.is_reachable() {
            let _ = client.apiserver_version().await;
        }
    })
    .await;
    let conditions = engaged_condition(&registrations, "a", "Unreachable").await;
    assert!(
        conditions.to_string().contains("cannot connect to https://127.0.0.1:1"),
        "{conditions}"
    );

    set_status(&registrations, "a", json!({"ready": false})).await;
    gone_through(&mut events, "a").await;
    engaged_condition(&registrations, "a", "NotEngaged").await;
    set_status(&registrations, "pending", resolved(&server.url())).await;
    engaged(&mut events, "pending").await;
    secrets.delete("a-kubeconfig", &DeleteParams::default()).await.unwrap();
    delete(&registrations, "pending").await;
    gone(&mut events, "pending").await;
}

#[tokio::test]
async fn dedicated_registrations_have_a_process_to_themselves_and_others_share() {
    let server = TestServer::start().await;
    let (registrations, _secrets) = registered(&server).await;
    let url = format!("{}/clusters/a/control-plane", server.url());
    let mut unsaid = registration("unsaid", &["controllers"], "");
    unsaid["spec"].as_object_mut().unwrap().remove("mode");
    create(&registrations, unsaid, resolved(&url)).await;
    create(
        &registrations,
        registration("own", &["controllers"], "Dedicated"),
        resolved(&url),
    )
    .await;
    let provider = || Registrations::new(root(&server)).service("controllers");

    let own: Fleet = fleet();
    own.add(provider().only("own")).unwrap();
    let mut events = own.events();
    engaged(&mut events, "own").await;
    synced(&mut events).await;
    engaged_condition(&registrations, "own", "Engaged").await;

    let shared: Fleet = fleet();
    shared.add(provider().mode("Shared")).unwrap();
    let mut events = shared.events();
    let mut names = Vec::new();
    for _ in 0..2 {
        match next(&mut events).await {
            FleetEvent::Engaged(cluster) => names.push(cluster.name().as_str().to_owned()),
            other => panic!("{other:?}"),
        }
    }
    synced(&mut events).await;
    names.sort();
    assert_eq!(names, ["a", "unsaid"]);
    engaged_condition(&registrations, "unsaid", "Engaged").await;
    let dedicated = Patch::Merge(json!({"spec": {"mode": "Dedicated"}}));
    registrations
        .patch("unsaid", &PatchParams::default(), &dedicated)
        .await
        .unwrap();
    gone_through(&mut events, "unsaid").await;
    engaged_condition(&registrations, "unsaid", "NotEngaged").await;
    let found = registrations.get("own").await.unwrap();
    assert_eq!(
        find_engaged(&found)["reason"],
        "Engaged",
        "what others engage, they tell of"
    );

    let elsewhere: Fleet = fleet();
    elsewhere.add(provider().except_planes_of(server.url())).unwrap();
    let mut events = elsewhere.events();
    synced(&mut events).await;
}

/// Waits until it is gone, whatever else changes about it before.
async fn gone_through(events: &mut mica_runtime::fleet::Events, name: &str) {
    loop {
        match next(events).await {
            FleetEvent::Changed(_) => {}
            FleetEvent::Gone(gone) if gone.as_str() == name => return,
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_registration_whose_secret_changes_has_new_credentials_and_no_new_engagement() {
    let server = TestServer::start().await;
    let (_, secrets) = registered(&server).await;
    let fleet = fleet();
    fleet.add(Registrations::new(root(&server))).unwrap();
    let mut events = fleet.events();
    let a = engaged(&mut events, "a").await;
    let maps: Api<k8s_openapi::api::core::v1::ConfigMap> = Api::default_namespaced(a.client());
    assert!(maps.list(&Default::default()).await.is_err(), "nobody may list");
    let url = format!("{}/clusters/a/control-plane", server.url());
    replace(&secrets, "a-kubeconfig", &server.kubeconfig_for(&url, server.admin())).await;
    soon("the new certificate", async {
        while maps.list(&Default::default()).await.is_err() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(!a.lifetime().is_cancelled());
}

#[tokio::test]
async fn kubeconfig_files_come_change_and_go() {
    let server = TestServer::start().await;
    let (a, b) = (server.plane("a").await, server.plane("b").await);
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let name = |file: &str| format!("{}+test", path(file).display());
    std::fs::write(path("one.yaml"), a.kubeconfig()).unwrap();
    std::fs::write(path(".hidden"), b.kubeconfig()).unwrap();
    std::fs::write(path("notes.txt"), "- not\n- a kubeconfig\n").unwrap();
    let (whole, globbed) = (fleet(), fleet());
    let every = Duration::from_millis(20);
    whole
        .add(Kubeconfig::new([directory.path().display().to_string()]).every(every))
        .unwrap();
    let pattern = path("*.yaml").display().to_string();
    globbed
        .add(Kubeconfig::new([pattern]).every(every).naming(Naming::Context))
        .unwrap();
    let mut events = whole.events();
    let one = engaged(&mut events, &name("one.yaml")).await;
    assert_eq!(one.access().url(), a.url());
    engaged(&mut globbed.events(), "test").await;

    std::fs::write(path("two.kubeconfig"), b.kubeconfig()).unwrap();
    engaged(&mut events, &name("two.kubeconfig")).await;
    // Half of a file is no reason to let a cluster go; another address is.
    std::fs::write(path("one.yaml"), "clusters: [").unwrap();
    std::fs::remove_file(path("two.kubeconfig")).unwrap();
    gone(&mut events, &name("two.kubeconfig")).await;
    assert!(!one.lifetime().is_cancelled());
    std::fs::write(path("one.yaml"), b.kubeconfig()).unwrap();
    gone(&mut events, &name("one.yaml")).await;
    engaged(&mut events, &name("one.yaml")).await;
    whole.remove("kubeconfig");
    gone(&mut events, &name("one.yaml")).await;
}

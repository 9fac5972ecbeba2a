//! Profiles: a plane serves the kinds of its own, beside planes of another.

use serde_json::{Value, json};

use super::world::{Api, MAPS, PLANES, World, map, names, plane, text};

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const SERVER: &str = "/api/v1/namespaces/default/services/kubernetes";

fn of_profile(name: &str, profile: &str) -> Value {
    let mut plane = plane(name);
    plane["spec"] = json!({"profile": profile});
    plane
}

fn deployment(name: &str) -> Value {
    let labels = json!({"app": name});
    let pod = json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": labels}, "template": pod}})
}

async fn groups(api: &Api) -> Vec<String> {
    let list = api.get("/apis").await.expect(200);
    let groups = list["groups"].as_array().unwrap().iter();
    groups.map(|group| text(group, "/name").to_owned()).collect()
}

async fn documents(api: &Api) -> Vec<String> {
    let index = api.get("/openapi/v3").await.expect(200);
    index["paths"].as_object().unwrap().keys().cloned().collect()
}

#[tokio::test]
async fn each_plane_serves_the_kinds_of_its_profile() {
    let world = World::start().await;
    let root = world.root().await;
    let usual = root.create_plane("usual").await;
    assert_eq!(text(&usual, "/spec/profile"), "Kubernetes", "the server's own");
    root.post(PLANES, &of_profile("small", "Generic")).await.expect(201);
    let (usual, small) = (root.at_plane("usual"), root.at_plane("small"));

    for api in [&usual, &small] {
        api.post(MAPS, &map("m")).await.expect(201);
        assert!(groups(api).await.contains(&"rbac.authorization.k8s.io".to_owned()));
    }
    usual.post(DEPLOYMENTS, &deployment("d")).await.expect(201);
    small.post(DEPLOYMENTS, &deployment("d")).await.expect(404);
    assert!(groups(&usual).await.contains(&"apps".to_owned()));
    assert!(!groups(&small).await.contains(&"apps".to_owned()));
    assert!(documents(&usual).await.contains(&"apis/apps/v1".to_owned()));
    assert!(!documents(&small).await.contains(&"apis/apps/v1".to_owned()));
    for (api, kinds) in [(&usual, true), (&small, false)] {
        let swagger = api.get("/openapi/v2").await.expect(200);
        assert_eq!(
            swagger["definitions"]["io.k8s.api.apps.v1.Deployment"].is_object(),
            kinds
        );
        let services = api.get("/apis/apiregistration.k8s.io/v1/apiservices").await.expect(200);
        assert_eq!(names(&services).contains(&"v1.apps"), kinds);
    }
    usual.get(SERVER).await.expect(200);
    small.get(SERVER).await.expect(404);

    let everywhere = root.get("/clusters/*/control-plane/apis/apps/v1/deployments").await;
    assert_eq!(names(&everywhere.expect(200)), ["d"]);
    let everywhere = root.get("/clusters/*/control-plane/api/v1/configmaps").await;
    assert_eq!(names(&everywhere.expect(200)), ["m", "m"]);
}

#[tokio::test]
async fn a_profile_is_chosen_once_and_a_copy_has_it() {
    let world = World::start().await;
    let root = world.root().await;
    root.post(PLANES, &of_profile("odd", "Tiny")).await.expect(422);
    root.post(PLANES, &of_profile("small", "Generic")).await.expect(201);
    let path = format!("{PLANES}/small");
    let refused = root
        .patch(&path, &json!({"spec": {"profile": "Kubernetes"}}))
        .await
        .expect(422);
    assert_eq!(
        text(&refused, "/message"),
        "Plane.mica.dev \"small\" is invalid: spec.profile: Invalid value: \"Kubernetes\": field is immutable"
    );
    // Who does not know of it leaves it.
    let mut known = root.get(&path).await.expect(200);
    known["spec"] = json!({"state": "Active"});
    let kept = root.put(&path, &known).await.expect(200);
    assert_eq!(text(&kept, "/spec/profile"), "Generic");

    root.post(&format!("{path}/rebase"), &json!({})).await.expect(201);
    root.post(&format!("{path}/fork"), &json!({"name": "copy"}))
        .await
        .expect(201);
    let copy = root.get(&format!("{PLANES}/copy")).await.expect(200);
    assert_eq!(text(&copy, "/spec/profile"), "Generic");
    root.at_plane("copy").get(DEPLOYMENTS).await.expect(404);
    root.at_plane("copy").get(MAPS).await.expect(200);
}

#[tokio::test]
async fn planes_of_a_class_have_its_profile_unless_they_choose() {
    let world = World::start().await;
    let root = world.root().await;
    let classes = "/apis/mica.dev/v1alpha1/planeclasses";
    let class = |profile: &str| json!({"metadata": {"name": "small"}, "spec": {"profile": profile}});
    root.post(classes, &class("Tiny")).await.expect(422);
    root.post(classes, &class("Generic")).await.expect(201);
    let of_class = |name: &str, spec: Value| {
        let mut plane = plane(name);
        plane["spec"] = spec;
        plane["spec"]["className"] = "small".into();
        plane
    };
    let small = root.post(PLANES, &of_class("small", json!({}))).await.expect(201);
    assert_eq!(text(&small, "/spec/profile"), "Generic");
    root.at_plane("small").get(DEPLOYMENTS).await.expect(404);
    root.at_plane("small").get(SERVER).await.expect(404);
    let chosen = of_class("chosen", json!({"profile": "Kubernetes"}));
    root.post(PLANES, &chosen).await.expect(201);
    root.at_plane("chosen").get(DEPLOYMENTS).await.expect(200);
    // What a plane was born with stays; new ones follow the class.
    let changed = json!({"spec": {"profile": "Kubernetes"}});
    root.patch(&format!("{classes}/small"), &changed).await.expect(200);
    root.at_plane("small").get(DEPLOYMENTS).await.expect(404);
    let late = root.post(PLANES, &of_class("late", json!({}))).await.expect(201);
    assert_eq!(text(&late, "/spec/profile"), "Kubernetes");
}

/// The layer of a profile comes to the store with the first plane of it, and the next server finds it there.
#[tokio::test]
async fn a_second_server_serves_planes_of_both_profiles() {
    let world = World::start().await;
    let root = world.root().await;
    root.post(PLANES, &of_profile("small", "Generic")).await.expect(201);
    let second = World::on(world.store.clone()).await;
    let small = second.root().await.at_plane("small");
    small.get("/api/v1/namespaces/kube-system").await.expect(200);
    small.get(SERVER).await.expect(404);
    let again = second.root().await;
    again.post(PLANES, &of_profile("other", "Generic")).await.expect(201);
    root.at_plane("other")
        .get("/api/v1/namespaces/kube-system")
        .await
        .expect(200);
}

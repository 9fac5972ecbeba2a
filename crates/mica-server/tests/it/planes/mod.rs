//! Planes: made, addressed, refused, emptied, copied.

mod class;
mod lifetime;

use std::sync::Arc;
use std::time::Instant;

use futures::{StreamExt as _, stream};
use http::Method;
use mica_store::{EmbeddedStore, KeyRange};
use serde_json::{Value, json};

use super::world::{Api, MAPS, PLANES, World, held, map, names, namespace, plane, revision_of, text};

fn addressed(name: &str, r#type: &str, value: &str) -> Value {
    let mut plane = plane(name);
    plane["spec"] = json!({"addresses": [{"type": r#type, "value": value}]});
    plane
}

#[tokio::test]
async fn a_plane_is_usable_as_soon_as_its_creation_returns_on_every_server() {
    let world = World::start().await;
    let second = World::on(world.store.clone()).await;
    let (here, there) = (world.root().await, second.root().await);
    for i in 0..20 {
        let name = format!("p{i}");
        // Asked for before it exists, so that an answer kept too long would show.
        assert_eq!(there.at_plane(&name).get(MAPS).await.code(), 404);
        here.create_plane(&name).await;
        let created = there.at_plane(&name).post(MAPS, &map("a")).await.expect(201);
        let read = here.at_plane(&name).get(&format!("{MAPS}/a")).await.expect(200);
        assert_eq!(read, created);
        assert_eq!(here.at_plane(&name).get("/version").await.code(), 200);
    }
}

#[tokio::test]
async fn all_forms_of_an_address_lead_to_the_same_plane() {
    let world = World::start().await;
    let root = world.root().await;
    let mut body = plane("p");
    body["spec"] =
        json!({"addresses": [{"type": "Project", "value": "acme"}, {"type": "Host", "value": "p.kplane.example"}]});
    root.post(PLANES, &body).await.expect(201);
    root.create_plane("acme").await;
    root.at_plane("p").post(MAPS, &map("mine")).await.expect(201);
    let one = format!("{MAPS}/mine");
    for prefix in [
        "/clusters/p/control-plane",
        "/clusters/%70/control-plane",
        "/projects/acme/control-plane",
        "/apis/resourcemanager.miloapis.com/v1alpha1/projects/acme/control-plane",
    ] {
        assert_eq!(root.at(prefix).get(&one).await.code(), 200, "{prefix}");
        root.at(prefix)
            .patch(&one, &json!({"data": {"k": "w"}}))
            .await
            .expect(200);
    }
    assert_eq!(root.at_plane("acme").get(&one).await.code(), 404);
    for host in ["milo-apiserver.project-acme.svc.cluster.local", "p.kplane.example"] {
        let api = world.host(host, host).await;
        assert_eq!(api.get(&one).await.code(), 200, "{host}");
        let upper = world.host(host, &host.to_uppercase()).await;
        assert_eq!(upper.get(&one).await.code(), 200, "{host}");
    }
    for (prefix, code) in [
        ("/projects/none/control-plane", 404),
        ("/clusters/none/control-plane", 404),
        ("/clusters/NONE/control-plane", 404),
        ("/clusters/a%2Fb/control-plane", 400),
        ("/clusters/../control-plane", 400),
        ("/clusters/%2E%2E/control-plane", 400),
        (
            "/apis/resourcemanager.miloapis.com/v1alpha1/organizations/o/control-plane",
            404,
        ),
        ("/apis/iam.miloapis.com/v1alpha1/users/u/control-plane", 404),
    ] {
        let answer = root.at(prefix).get(&one).await;
        assert_eq!(answer.code(), code, "{prefix}: {}", answer.json());
    }
}

#[tokio::test]
async fn a_host_that_the_handshake_did_not_name_is_421_if_a_plane_claims_either() {
    let world = World::start().await;
    let root = world.root().await;
    root.post(PLANES, &addressed("p", "Host", "p.kplane.example"))
        .await
        .expect(201);
    root.post(PLANES, &addressed("q", "Host", "q.kplane.example"))
        .await
        .expect(201);
    let code = |sni: &'static str, host: &'static str| {
        let world = &world;
        async move { world.host(sni, host).await.get(MAPS).await.code() }
    };
    assert_eq!(code("p.kplane.example", "p.kplane.example").await, 200);
    assert_eq!(code("p.kplane.example", "q.kplane.example").await, 421);
    assert_eq!(code("p.kplane.example", "localhost").await, 421);
    assert_eq!(code("localhost", "p.kplane.example").await, 421);
    assert_eq!(
        code("localhost", "milo-apiserver.project-x.svc.cluster.local").await,
        421
    );
    // Names of the server itself may be mixed as clients like.
    assert_eq!(code("localhost", "127.0.0.1:6440").await, 200);
    assert_eq!(code("localhost", "mica.example.com").await, 200);
}

#[tokio::test]
async fn an_address_belongs_to_one_plane_and_moves_with_it() {
    let world = World::start().await;
    let second = World::on(world.store.clone()).await;
    let (root, there) = (world.root().await, second.root().await);
    let project = "/projects/acme/control-plane";
    assert_eq!(there.at(project).get(MAPS).await.code(), 404);
    root.post(PLANES, &addressed("p", "Project", "acme")).await.expect(201);
    let taken = root.post(PLANES, &addressed("q", "Project", "acme")).await;
    assert_eq!(taken.code(), 409, "{}", taken.json());
    let message = text(&taken.json(), "/message").to_owned();
    assert!(
        message.ends_with(r#"project "acme" is taken by plane "p""#),
        "{message}"
    );
    assert_eq!(
        root.get(&format!("{PLANES}/q")).await.code(),
        404,
        "nothing of it is left"
    );
    root.create_plane("q").await;
    let claim = json!({"spec": {"addresses": [{"type": "Project", "value": "acme"}]}});
    assert_eq!(root.patch(&format!("{PLANES}/q"), &claim).await.code(), 409);
    root.at(project).post(MAPS, &map("of-p")).await.expect(201);
    root.patch(&format!("{PLANES}/p"), &json!({"spec": {"addresses": []}}))
        .await
        .expect(200);
    assert_eq!(root.at(project).get(MAPS).await.code(), 404);
    root.patch(&format!("{PLANES}/q"), &claim).await.expect(200);
    assert_eq!(root.at(project).get(&format!("{MAPS}/of-p")).await.code(), 404);
    root.at(project).post(MAPS, &map("of-q")).await.expect(201);
    assert_eq!(root.at_plane("q").get(&format!("{MAPS}/of-q")).await.code(), 200);
    there.at(project).until(&format!("{MAPS}/of-q"), 200).await;
    for bad in [("Project", "A B"), ("Host", "-"), ("Other", "x")] {
        assert_eq!(root.post(PLANES, &addressed("r", bad.0, bad.1)).await.code(), 422);
    }
}

#[tokio::test]
async fn names_of_the_server_itself_are_no_planes() {
    let world = World::start().await;
    let root = world.root().await;
    world.server.directory.reserve_hosts(vec!["mica.example".to_owned()]);
    let refused = root.post(PLANES, &addressed("p", "Host", "mica.example")).await;
    assert_eq!(refused.code(), 422, "{}", refused.json());
    root.post(PLANES, &addressed("p", "Host", "p.mica.example"))
        .await
        .expect(201);
    let claim = json!({"spec": {"addresses": [{"type": "Host", "value": "mica.example"}]}});
    assert_eq!(root.patch(&format!("{PLANES}/p"), &claim).await.code(), 422);
    assert_eq!(
        world.host("localhost", "mica.example").await.get(PLANES).await.code(),
        200
    );
}

/// What a plane answers to a read, a write and a question.
async fn answers(api: &Api) -> [String; 3] {
    let brief = |answer: super::world::Answer| match answer.code() {
        200 | 201 => "ok".to_owned(),
        code => format!("{code} {}", text(&answer.json(), "/reason")),
    };
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let write = api
        .patch(&format!("{MAPS}/kube-root-ca.crt"), &json!({"data": {"n": "1"}}))
        .await;
    let question = api
        .post("/apis/authentication.k8s.io/v1/selfsubjectreviews", &review)
        .await;
    [brief(api.get(MAPS).await), brief(write), brief(question)]
}

#[tokio::test]
async fn a_plane_answers_as_its_state_says() {
    let world = World::start().await;
    let (api, root) = (world.plane("p").await, world.root().await);
    let set = |state: &'static str| {
        let root = root.clone();
        async move {
            root.patch(&format!("{PLANES}/p"), &json!({"spec": {"state": state}}))
                .await
                .expect(200)
        }
    };
    assert_eq!(answers(&api).await, ["ok", "ok", "ok"]);
    let open = api
        .watch(&format!("{MAPS}?watch=1&resourceVersion={}", world.revision().await))
        .await;
    assert_eq!(text(&set("ReadOnly").await, "/status/phase"), "ReadOnly");
    assert_eq!(answers(&api).await, ["ok", "403 PlaneReadOnly", "ok"]);
    assert_eq!(text(&set("Suspended").await, "/status/phase"), "Suspended");
    assert_eq!(
        answers(&api).await,
        ["403 PlaneSuspended", "403 PlaneSuspended", "403 PlaneSuspended"]
    );
    for path in [
        format!("{MAPS}/kube-root-ca.crt"),
        format!("{MAPS}?watch=1"),
        format!("{MAPS}?limit=1"),
    ] {
        assert_eq!(api.get(&path).await.code(), 403, "{path}");
    }
    assert_eq!(api.delete(MAPS).await.code(), 403);
    set("Active").await;
    assert_eq!(answers(&api).await, ["ok", "ok", "ok"]);
    drop(open);
    assert_eq!(
        root.patch(&format!("{PLANES}/p"), &json!({"spec": {"state": "Asleep"}}))
            .await
            .code(),
        422
    );
    // Something holds it, so that it drains for as long as we look.
    api.post(MAPS, &held("a", "example.com/hold")).await.expect(201);
    root.delete(&format!("{PLANES}/p")).await.expect(200);
    api.post(MAPS, &map("b")).await.expect(403);
    assert_eq!(
        text(&api.post(MAPS, &map("b")).await.json(), "/reason"),
        "PlaneDraining"
    );
    assert_eq!(answers(&api).await[2], "ok");
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"}, "spec": {}});
    api.post("/apis/coordination.k8s.io/v1/namespaces/default/leases", &lease)
        .await
        .expect(201);
    api.patch(&format!("{MAPS}/a"), &json!({"metadata": {"finalizers": null}}))
        .await
        .expect(200);
    root.until(&format!("{PLANES}/p"), 404).await;
    assert_eq!(api.get(MAPS).await.code(), 404);
}

#[tokio::test]
async fn a_suspended_plane_is_refused_by_other_servers_too() {
    let world = World::start().await;
    let second = World::on(world.store.clone()).await;
    let (root, there) = (world.root().await, second.root().await);
    root.create_plane("p").await;
    there.at_plane("p").get(MAPS).await.expect(200);
    root.patch(&format!("{PLANES}/p"), &json!({"spec": {"state": "Suspended"}}))
        .await
        .expect(200);
    // A write is fenced at once, whatever that server believes; reads follow when it has heard.
    assert_eq!(there.at_plane("p").post(MAPS, &map("a")).await.code(), 403);
    assert_eq!(there.at_plane("p").get(MAPS).await.code(), 403);
}

#[tokio::test]
async fn a_plane_made_again_under_its_name_starts_empty_with_other_ids() {
    let world = World::start().await;
    let second = World::on(world.store.clone()).await;
    let (root, there) = (world.root().await, second.root().await);
    let mut seen: Vec<String> = Vec::new();
    for _ in 0..5 {
        let created = root.create_plane("p").await;
        let api = root.at_plane("p");
        assert_eq!(names(&api.get(MAPS).await.expect(200)), ["kube-root-ca.crt"]);
        let system = api.get("/api/v1/namespaces/kube-system").await.expect(200);
        for id in [
            text(&created, "/status/id"),
            text(&created, "/metadata/uid"),
            text(&system, "/metadata/uid"),
        ] {
            assert!(!id.is_empty() && !seen.contains(&id.to_owned()), "{id} was seen before");
            seen.push(id.to_owned());
        }
        api.post(MAPS, &map("old")).await.expect(201);
        there.at_plane("p").until(&format!("{MAPS}/old"), 200).await;
        root.delete(&format!("{PLANES}/p")).await.expect(200);
        root.until(&format!("{PLANES}/p"), 404).await;
        assert_eq!(api.get(MAPS).await.code(), 404);
        there.at_plane("p").until(MAPS, 404).await;
    }
}

#[tokio::test]
async fn deletion_honours_finalizers_names_what_blocks_and_goes_in_order() {
    let world = World::start().await;
    let (api, root) = (world.plane("p").await, world.root().await);
    let id = world.server.directory.by_name("p").await.unwrap().id;
    api.post("/api/v1/namespaces", &namespace("n")).await.expect(201);
    api.post("/api/v1/namespaces/n/configmaps", &held("a", "example.com/hold"))
        .await
        .expect(201);
    let mut tied = namespace("tied");
    tied["metadata"]["finalizers"] = json!(["example.com/tie"]);
    api.post("/api/v1/namespaces", &tied).await.expect(201);
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "r"}});
    api.post("/apis/rbac.authorization.k8s.io/v1/clusterroles", &role)
        .await
        .expect(201);
    let deleted = root.delete(&format!("{PLANES}/p")).await.expect(200);
    assert_eq!(text(&deleted, "/status/phase"), "Draining");
    let blocked = |what: &'static str| {
        let root = root.clone();
        async move {
            loop {
                let plane = root.get(&format!("{PLANES}/p")).await.expect(200);
                let conditions = plane["status"]["conditions"].as_array().unwrap().clone();
                let drained = conditions.iter().find(|condition| condition["type"] == "Drained");
                if drained.is_some_and(|drained| text(drained, "/message").contains(what)) {
                    return text(drained.unwrap(), "/message").to_owned();
                }
                tokio::task::yield_now().await;
            }
        }
    };
    let message = blocked("\"a\"").await;
    assert_eq!(
        message,
        "configmaps \"a\" in namespace \"n\" waits for finalizers: example.com/hold"
    );
    // Namespaces wait for their content, roles for namespaces.
    assert_eq!(
        text(&api.get("/api/v1/namespaces/n").await.expect(200), "/status/phase"),
        "Active"
    );
    api.patch(
        "/api/v1/namespaces/n/configmaps/a",
        &json!({"metadata": {"finalizers": null}}),
    )
    .await
    .expect(200);
    let message = blocked("\"tied\"").await;
    assert!(
        message.starts_with("namespaces \"tied\" waits for finalizers: example.com/tie"),
        "{message}"
    );
    assert_eq!(
        api.get("/apis/rbac.authorization.k8s.io/v1/clusterroles/r")
            .await
            .code(),
        200
    );
    api.patch("/api/v1/namespaces/tied", &json!({"metadata": {"finalizers": null}}))
        .await
        .expect(200);
    root.until(&format!("{PLANES}/p"), 404).await;
    assert_eq!(world.store.usage(&KeyRange::Plane(id)).await.unwrap().records, 0);
}

#[tokio::test]
async fn a_snapshot_restores_to_the_same_objects_and_uids_and_a_fork_is_one() {
    let world = World::start().await;
    let (api, root) = (world.plane("p").await, world.root().await);
    api.post("/api/v1/namespaces", &namespace("n")).await.expect(201);
    for i in 0..30 {
        api.post("/api/v1/namespaces/n/configmaps", &map(&format!("m{i}")))
            .await
            .expect(201);
    }
    api.patch(&format!("{MAPS}/kube-root-ca.crt"), &json!({"data": {"mine": "1"}}))
        .await
        .expect(200);
    api.delete("/api/v1/namespaces/kube-public/configmaps/kube-root-ca.crt")
        .await
        .expect(200);
    let snapshot = root.get(&format!("{PLANES}/p/snapshot")).await;
    assert_eq!(snapshot.code(), 200);
    api.post(MAPS, &map("later")).await.expect(201);
    let restored = root
        .call(Method::POST, &format!("{PLANES}/r/restore"), &[], snapshot.body.clone())
        .await
        .expect(201);
    assert_eq!(
        (
            text(&restored, "/status/phase"),
            restored["metadata"].get("annotations")
        ),
        ("Ready", None)
    );
    api.delete(&format!("{MAPS}/later")).await.expect(200);
    root.post(&format!("{PLANES}/p/fork"), &json!({"name": "f"}))
        .await
        .expect(201);
    // Everything but resourceVersions is the same.
    async fn content(api: &Api) -> Vec<Value> {
        let mut all = Vec::new();
        for path in [
            "/api/v1/namespaces",
            "/api/v1/configmaps",
            "/api/v1/serviceaccounts",
            "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        ] {
            let mut list = api.get(path).await.expect(200);
            for item in list["items"].as_array_mut().unwrap() {
                item["metadata"].as_object_mut().unwrap().remove("resourceVersion");
                all.push(item.take());
            }
        }
        all
    }
    let original = content(&api).await;
    assert!(original.len() > 60);
    for copy in ["r", "f"] {
        let copy = root.at_plane(copy);
        assert_eq!(content(&copy).await, original);
        copy.post(MAPS, &map("own")).await.expect(201);
    }
    assert_eq!(api.get(&format!("{MAPS}/own")).await.code(), 404);
    assert_eq!(
        root.call(Method::POST, &format!("{PLANES}/r/restore"), &[], snapshot.body)
            .await
            .code(),
        409
    );
    assert_eq!(
        root.post(&format!("{PLANES}/p/fork"), &json!({"name": "f"}))
            .await
            .code(),
        409
    );
    assert_eq!(
        root.post(&format!("{PLANES}/p/fork"), &json!({"name": "Bad Name"}))
            .await
            .code(),
        422
    );
    assert_eq!(
        root.post(&format!("{PLANES}/none/fork"), &json!({"name": "g"}))
            .await
            .code(),
        404
    );
}

#[tokio::test]
async fn a_damaged_snapshot_is_refused_and_leaves_nothing_behind() {
    let world = World::start().await;
    let (api, root) = (world.plane("p").await, world.root().await);
    for i in 0..20 {
        // Finalizers must not hold what was never used.
        api.post(MAPS, &held(&format!("m{i}"), "example.com/hold"))
            .await
            .expect(201);
    }
    let snapshot = root.get(&format!("{PLANES}/p/snapshot")).await.body;
    let before = world.store.usage(&KeyRange::All).await.unwrap().records;
    let mut flipped = snapshot.to_vec();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 1;
    let broken = [
        snapshot.slice(..snapshot.len() - 1),
        snapshot.slice(..snapshot.len() / 2),
        flipped.into(),
        "".into(),
        "{}\n".into(),
    ];
    for body in broken {
        let refused = root.call(Method::POST, &format!("{PLANES}/r/restore"), &[], body).await;
        assert_eq!(refused.code(), 400, "{}", refused.json());
        assert_eq!(root.get(&format!("{PLANES}/r")).await.code(), 404);
        assert_eq!(root.at_plane("r").get(MAPS).await.code(), 404);
        assert_eq!(world.store.usage(&KeyRange::All).await.unwrap().records, before);
    }
    root.call(Method::POST, &format!("{PLANES}/r/restore"), &[], snapshot)
        .await
        .expect(201);
}

#[tokio::test]
async fn a_plane_deleted_while_it_was_being_filled_is_not_held_by_finalizers() {
    let world = World::start().await;
    let root = world.root().await;
    let mut half = plane("half");
    half["metadata"]["annotations"] = json!({"mica.dev/restoring": "true"});
    root.post(PLANES, &half).await.expect(201);
    let answer = root.at_plane("half").get(MAPS).await;
    assert_eq!(
        (answer.code(), text(&answer.json(), "/reason").to_owned()),
        (403, "PlaneRestoring".to_owned())
    );
    root.delete(&format!("{PLANES}/half")).await.expect(200);
    root.until(&format!("{PLANES}/half"), 404).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn planes_survive_a_restart_on_the_embedded_store() {
    let directory = tempfile::tempdir().unwrap();
    let open = || Arc::new(EmbeddedStore::open(directory.path(), mica_store::embedded::Options::default()).unwrap());
    let (uid, rv) = {
        let store = open();
        let world = World::on(store.clone()).await;
        let api = world.plane("p").await;
        let object = api.post(MAPS, &map("a")).await.expect(201);
        world.stop().await;
        store.close();
        (text(&object, "/metadata/uid").to_owned(), revision_of(&object))
    };
    let store = open();
    let world = World::on(store.clone()).await;
    let api = world.root().await.at_plane("p");
    let object = api.get(&format!("{MAPS}/a")).await.expect(200);
    assert_eq!(
        (text(&object, "/metadata/uid"), revision_of(&object)),
        (uid.as_str(), rv)
    );
    assert!(revision_of(&api.post(MAPS, &map("b")).await.expect(201)) > rv);
    world.stop().await;
    store.close();
}

/// How many planes the big test makes.
const MANY: usize = 10_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_planes_come_and_go() {
    let directory = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(directory.path(), mica_store::embedded::Options::default()).unwrap();
    let store = Arc::new(store);
    let world = World::on(store.clone()).await;
    let root = world.root().await;
    let name = |i: usize| format!("p{i:05}");
    let begun = Instant::now();
    stream::iter(0..MANY)
        .for_each_concurrent(64, |i| {
            let root = root.clone();
            async move { drop(root.create_plane(&name(i)).await) }
        })
        .await;
    let created = begun.elapsed();
    let some = root.at_plane(&name(MANY / 2));
    some.post(MAPS, &map("a")).await.expect(201);
    root.delete(PLANES).await.expect(200);
    loop {
        // A selector spares counting what remains.
        let left = root
            .get(&format!("{PLANES}?limit=1&labelSelector=%21x"))
            .await
            .expect(200);
        if names(&left).is_empty() {
            break;
        }
        tokio::task::yield_now().await;
    }
    eprintln!(
        "{MANY} planes created in {created:?}, created and deleted in {:?}",
        begun.elapsed()
    );
    let internal = KeyRange::Resource(
        mica_api::PlaneId::ROOT,
        mica_api::GroupResource::new("mica.internal", "planestates"),
    );
    assert_eq!(
        world.store.usage(&internal).await.unwrap().records,
        1,
        "root's own is left"
    );
    world.stop().await;
    store.close();
}

//! Writes: who wins, what is refused, what nothing but a whole write leaves behind.

use futures::future::join_all;
use http::Method;
use serde_json::{Value, json};

use super::world::{Api, MAPS, PLANES, World, held, map, names, namespace, plane, revision_of, text};

#[tokio::test]
async fn a_hundred_patches_of_one_object_at_once_all_succeed() {
    let world = World::start().await;
    let api = world.plane("p").await;
    api.post(MAPS, &map("a")).await.expect(201);
    let patches = (0..100).map(|i| {
        let (api, body) = (api.clone(), json!({"data": {format!("k{i}"): "v"}}));
        async move { api.patch(&format!("{MAPS}/a"), &body).await.expect(200) }
    });
    join_all(patches).await;
    let object = api.get(&format!("{MAPS}/a")).await.expect(200);
    assert_eq!(object["data"].as_object().unwrap().len(), 101);
}

#[tokio::test]
async fn of_two_updates_from_one_version_one_is_a_conflict() {
    let world = World::start().await;
    let api = world.plane("p").await;
    let mut a = api.post(MAPS, &map("a")).await.expect(201);
    let path = format!("{MAPS}/a");
    a["data"] = json!({"k": "first"});
    api.put(&path, &a).await.expect(200);
    a["data"] = json!({"k": "second"});
    let conflict = api.put(&path, &a).await;
    assert_eq!(
        conflict.message(),
        "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your changes to the latest version and try again"
    );
    let stale = json!({"metadata": {"resourceVersion": text(&a, "/metadata/resourceVersion")}, "data": {"k": "third"}});
    assert_eq!(api.patch(&path, &stale).await.code(), 409);
    // Without a version the last one wins; the same content again is no write.
    a["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    let second = api.put(&path, &a).await.expect(200);
    assert_eq!(revision_of(&api.put(&path, &a).await.expect(200)), revision_of(&second));
    let racing = (0..20).map(|i| {
        let (api, path, mut body) = (api.clone(), path.clone(), second.clone());
        body["data"] = json!({"k": i.to_string()});
        async move { api.put(&path, &body).await.code() }
    });
    let codes = join_all(racing).await;
    assert_eq!(codes.iter().filter(|code| **code == 200).count(), 1, "{codes:?}");
    assert!(codes.iter().all(|code| matches!(code, 200 | 409)));
}

#[tokio::test]
async fn of_many_creations_of_one_name_one_succeeds() {
    let world = World::start().await;
    let api = world.plane("p").await;
    let creations = (0..20).map(|_| async { api.post(MAPS, &map("a")).await.code() });
    let codes = join_all(creations).await;
    assert_eq!(codes.iter().filter(|code| **code == 201).count(), 1);
    assert!(codes.iter().all(|code| matches!(code, 201 | 409)), "{codes:?}");
}

#[tokio::test]
async fn a_dry_run_answers_as_if_and_writes_nothing() {
    let world = World::start().await;
    let api = world.plane("p").await;
    api.post(MAPS, &map("a")).await.expect(201);
    api.post(MAPS, &held("h", "example.com/hold")).await.expect(201);
    let before = api.get(MAPS).await.expect(200);
    let revision = world.revision().await;
    let created = api.post(&format!("{MAPS}?dryRun=All"), &map("b")).await.expect(201);
    assert!(created["metadata"].get("resourceVersion").is_none() && !text(&created, "/metadata/uid").is_empty());
    api.post(&format!("{MAPS}?dryRun=All"), &map("a")).await.expect(409);
    let patched = api
        .patch(&format!("{MAPS}/a?dryRun=All"), &json!({"data": {"k": "w"}}))
        .await
        .expect(200);
    assert_eq!(patched["data"]["k"], "w");
    api.put(&format!("{MAPS}/a?dryRun=All"), &map("a")).await.expect(200);
    api.delete(&format!("{MAPS}/a?dryRun=All")).await.expect(200);
    let marked = api.delete(&format!("{MAPS}/h?dryRun=All")).await.expect(200);
    assert!(!text(&marked, "/metadata/deletionTimestamp").is_empty());
    api.delete(&format!("{MAPS}?dryRun=All")).await.expect(200);
    let base = format!("{MAPS}/kube-root-ca.crt?dryRun=All");
    api.patch(&base, &json!({"data": {"k": "w"}})).await.expect(200);
    api.delete(&base).await.expect(200);
    let root = world.root().await;
    root.post(&format!("{PLANES}?dryRun=All"), &plane("q"))
        .await
        .expect(201);
    root.delete(&format!("{PLANES}/p?dryRun=All")).await.expect(200);
    assert_eq!(root.at_plane("q").get(MAPS).await.code(), 404);
    assert_eq!(
        (api.get(MAPS).await.expect(200)["items"].clone(), world.revision().await),
        (before["items"].clone(), revision)
    );
}

#[tokio::test]
async fn a_refused_write_is_warned_of_what_else_is_wrong() {
    let world = World::start().await;
    let api = world.plane("p").await;
    api.post(MAPS, &map("a")).await.expect(201);
    let owner = json!({"apiVersion": "v1", "kind": "X", "name": "x", "uid": "u"});
    let body = json!({
        "metadata": {"name": "a", "ownerReferences": [owner, owner]}, "data": {"no key": ""}, "typo": 1,
    });
    let unknown = "299 - \"unknown field \\\"typo\\\"\"";
    for (answer, first) in [
        (api.post(MAPS, &body).await, unknown),
        (api.put(&format!("{MAPS}/a"), &body).await, unknown),
        (api.patch(&format!("{MAPS}/a"), &body).await, unknown),
    ] {
        let warnings = answer.headers("warning");
        assert_eq!(
            (answer.code(), warnings[0], warnings.len()),
            (422, first, 2),
            "{warnings:?}"
        );
        assert!(warnings[1].contains("duplicate UID(s) observed: u"), "{warnings:?}");
    }
    let elsewhere = json!({"metadata": {"name": "b", "namespace": "other"}, "typo": 1});
    let answer = api.patch(&format!("{MAPS}/a"), &elsewhere).await;
    assert_eq!(answer.headers("warning"), [unknown]);
    assert!(
        answer.message().contains("the namespace of the provided object"),
        "{}",
        answer.message()
    );
}

#[tokio::test]
async fn put_creates_leases_and_not_configmaps() {
    let world = World::start().await;
    let api = world.plane("p").await;
    api.put(&format!("{MAPS}/a"), &map("a")).await.expect(404);
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"}, "spec": {}});
    let path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/l";
    let racing = (0..10).map(|_| async { api.put(path, &lease).await.code() });
    let codes = join_all(racing).await;
    assert_eq!(codes.iter().filter(|code| **code == 201).count(), 1, "{codes:?}");
    let there = api.get(path).await.expect(200);
    api.put(path, &there).await.expect(200);
}

#[tokio::test]
async fn finalizers_hold_an_object_and_keep_new_ones_off() {
    let world = World::start().await;
    let api = world.plane("p").await;
    api.post(MAPS, &held("a", "example.com/hold")).await.expect(201);
    let path = format!("{MAPS}/a");
    let marked = api.delete(&path).await.expect(200);
    assert!(!text(&marked, "/metadata/deletionTimestamp").is_empty());
    assert_eq!(api.delete(&path).await.expect(200)["metadata"], marked["metadata"]);
    api.post(MAPS, &map("a")).await.expect(409);
    let more = json!({"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}});
    assert_eq!(api.patch(&path, &more).await.code(), 422);
    api.patch(&path, &json!({"metadata": {"finalizers": []}}))
        .await
        .expect(200);
    assert_eq!(api.get(&path).await.code(), 404);
}

#[tokio::test]
async fn generation_counts_changes_of_spec_alone() {
    let world = World::start().await;
    let root = world.root().await;
    let generation = |object: &Value| object["metadata"]["generation"].as_i64();
    let created = root.create_plane("p").await;
    assert_eq!(generation(&created), Some(1));
    let path = format!("{PLANES}/p");
    let labelled = root
        .patch(&path, &json!({"metadata": {"labels": {"a": "b"}}}))
        .await
        .expect(200);
    assert_eq!(generation(&labelled), Some(1));
    let changed = root
        .patch(&path, &json!({"spec": {"state": "ReadOnly"}}))
        .await
        .expect(200);
    assert_eq!(generation(&changed), Some(2));
    let status = json!({"spec": {"state": "Active"}, "status": {"note": "x"}, "metadata": {"generation": 9}});
    let status = root.patch(&format!("{path}/status"), &status).await.expect(200);
    assert_eq!(
        (generation(&status), text(&status, "/spec/state")),
        (Some(2), "ReadOnly")
    );
}

#[tokio::test]
async fn a_collection_is_deleted_by_selector_and_limit() {
    let world = World::start().await;
    let api = world.plane("p").await;
    for i in 0..40 {
        let mut object = map(&format!("m{i:02}"));
        object["metadata"]["labels"] = json!({"l": if i < 10 { "x" } else { "y" }});
        api.post(MAPS, &object).await.expect(201);
    }
    api.post(MAPS, &held("held", "example.com/hold")).await.expect(201);
    let deleted = api.delete(&format!("{MAPS}?labelSelector=l%3Dx")).await.expect(200);
    assert_eq!(
        (deleted["kind"].as_str(), names(&deleted).len()),
        (Some("ConfigMapList"), 10)
    );
    api.delete(&format!("{MAPS}?labelSelector=l%3Dy&limit=7"))
        .await
        .expect(200);
    assert_eq!(
        names(&api.get(&format!("{MAPS}?labelSelector=l")).await.expect(200)).len(),
        23
    );
    api.delete(MAPS).await.expect(200);
    assert_eq!(names(&api.get(MAPS).await.expect(200)), ["held"]);
    assert_eq!(api.delete("/api/v1/namespaces").await.code(), 405);
}

#[tokio::test]
async fn preconditions_and_bodies_must_name_the_object_they_mean() {
    let world = World::start().await;
    let api = world.plane("p").await;
    let a = api.post(MAPS, &map("a")).await.expect(201);
    let path = format!("{MAPS}/a");
    let delete = |options: Value| {
        let (api, path) = (api.clone(), path.clone());
        async move {
            api.call(
                Method::DELETE,
                &path,
                &[("content-type", "application/json")],
                options.to_string(),
            )
            .await
        }
    };
    delete(json!({"preconditions": {"uid": "other"}})).await.expect(409);
    delete(json!({"preconditions": {"resourceVersion": "1"}}))
        .await
        .expect(409);
    let mut other = a.clone();
    other["metadata"]["uid"] = "other".into();
    api.put(&path, &other).await.expect(409);
    api.put(&path, &map("b")).await.expect(400);
    let mut elsewhere = map("c");
    elsewhere["metadata"]["namespace"] = "kube-system".into();
    api.post(MAPS, &elsewhere).await.expect(400);
    let sent = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "d", "uid": "mine",
        "creationTimestamp": "2001-01-01T00:00:00Z", "deletionTimestamp": "2001-01-01T00:00:00Z", "generation": 9}});
    let d = api.post(MAPS, &sent).await.expect(201);
    assert_ne!(text(&d, "/metadata/uid"), "mine");
    assert!(d["metadata"].get("deletionTimestamp").is_none());
    let mut versioned = map("e");
    versioned["metadata"]["resourceVersion"] = "12".into();
    api.post(MAPS, &versioned).await.expect(500);
    delete(json!({"preconditions": {"uid": a["metadata"]["uid"]}}))
        .await
        .expect(200);
}

#[tokio::test]
async fn generated_names_are_distinct_and_ours_to_make() {
    let world = World::start().await;
    let api = world.plane("p").await;
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "g-"}});
    let creations =
        (0..50).map(|_| async { text(&api.post(MAPS, &body).await.expect(201), "/metadata/name").to_owned() });
    let mut all = join_all(creations).await;
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 50);
    assert!(all.iter().all(|name| name.starts_with("g-") && name.len() == 7));
    let range = json!({"apiVersion": "v1", "kind": "LimitRange", "spec": {"limits": []}});
    let range = api
        .post("/api/v1/namespaces/default/limitranges", &range)
        .await
        .expect(201);
    assert_eq!(text(&range, "/metadata/name").len(), 36);
    api.post(MAPS, &json!({"apiVersion": "v1", "kind": "ConfigMap"}))
        .await
        .expect(422);
}

#[tokio::test]
async fn immutable_configmaps_stay() {
    let world = World::start().await;
    let api = world.plane("p").await;
    let mut fixed = map("a");
    fixed["immutable"] = true.into();
    api.post(MAPS, &fixed).await.expect(201);
    let path = format!("{MAPS}/a");
    for change in [
        json!({"data": {"k": "w"}}),
        json!({"immutable": null}),
        json!({"binaryData": {"b": "eA=="}}),
    ] {
        api.patch(&path, &change).await.expect(422);
    }
    api.patch(&path, &json!({"metadata": {"labels": {"a": "b"}}}))
        .await
        .expect(200);
    api.delete(&path).await.expect(200);
}

#[tokio::test]
async fn an_object_needs_a_namespace_that_exists_and_stays() {
    let world = World::start().await;
    let api = world.plane("p").await;
    let maps = "/api/v1/namespaces/n/configmaps";
    assert_eq!(api.post(maps, &map("a")).await.message(), "namespaces \"n\" not found");
    api.post("/api/v1/namespaces", &namespace("n")).await.expect(201);
    api.post(maps, &map("a")).await.expect(201);
    let marked = api.delete("/api/v1/namespaces/n").await.expect(200);
    assert_eq!(text(&marked, "/status/phase"), "Terminating");
    let refused = api.post(maps, &map("b")).await;
    assert_eq!(
        refused.message(),
        "configmaps \"b\" is forbidden: unable to create new content in namespace n because it is being terminated"
    );
    api.patch(&format!("{maps}/a"), &json!({"data": {"k": "w"}}))
        .await
        .expect(200);
    // What a namespace controller does when nothing is left.
    let mut finalized = api.get("/api/v1/namespaces/n").await.expect(200);
    finalized["spec"] = json!({});
    api.put("/api/v1/namespaces/n/finalize", &finalized).await.expect(200);
    assert_eq!(api.get("/api/v1/namespaces/n").await.code(), 404);
    api.delete("/api/v1/namespaces/default").await.expect(403);
}

#[tokio::test]
async fn annotations_of_all_planes_answers_are_stripped_on_every_write() {
    let world = World::start().await;
    let api = world.plane("p").await;
    let reserved = json!({"mica.dev/plane": "x", "mica.dev/plane-id": "y"});
    let mut a = map("a");
    a["metadata"]["annotations"] = reserved.clone();
    let a = api.post(MAPS, &a).await.expect(201);
    assert_eq!(a["metadata"].get("annotations"), None);
    let path = format!("{MAPS}/a");
    let patched = api
        .patch(
            &path,
            &json!({"metadata": {"annotations": {"mica.dev/plane": "x", "mine": "1"}}}),
        )
        .await
        .expect(200);
    assert_eq!(patched["metadata"]["annotations"], json!({"mine": "1"}));
    let operation = json!([{"op": "add", "path": "/metadata/annotations/mica.dev~1plane-id", "value": "z"}]);
    let answer = api
        .call(
            Method::PATCH,
            &path,
            &[("content-type", "application/json-patch+json")],
            operation.to_string(),
        )
        .await;
    assert_eq!(answer.expect(200)["metadata"]["annotations"], json!({"mine": "1"}));
    let wide = api
        .at("/clusters/*/control-plane")
        .get("/api/v1/configmaps?labelSelector=")
        .await
        .expect(200);
    let mut read = wide["items"][0].clone();
    assert_eq!(text(&read, "/metadata/annotations/mica.dev~1plane"), "p");
    read["data"] = json!({"k": "w"});
    let written = api.put(&path, &read).await.expect(200);
    assert_eq!(written["metadata"]["annotations"], json!({"mine": "1"}));
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l", "annotations": reserved}});
    let lease = api
        .put("/apis/coordination.k8s.io/v1/namespaces/default/leases/l", &lease)
        .await
        .expect(201);
    assert_eq!(lease["metadata"].get("annotations"), None);
}

#[tokio::test]
async fn update_names_a_mistake_in_metadata_as_often_as_upstream_does() {
    let world = World::start().await;
    let api = world.plane("p").await;
    let causes = |path: &'static str, object: Value| {
        let api = api.clone();
        async move {
            let name = text(&object, "/metadata/name").to_owned();
            api.post(path, &object).await.expect(201);
            let bad = json!({"metadata": {"labels": {"a": "b c"}}});
            let refused = api.patch(&format!("{path}/{name}"), &bad).await.expect(422);
            refused["details"]["causes"].as_array().unwrap().len()
        }
    };
    assert_eq!(causes(MAPS, map("a")).await, 4);
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"}, "spec": {}});
    assert_eq!(
        causes("/apis/coordination.k8s.io/v1/namespaces/default/leases", lease).await,
        3
    );
    let range = json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "r"}, "spec": {"limits": []}});
    assert_eq!(causes("/api/v1/namespaces/default/limitranges", range).await, 3);
}

async fn write_until_refused(api: Api, writer: usize) -> usize {
    for i in 0.. {
        let code = api.post(MAPS, &map(&format!("w{writer}-{i}"))).await.code();
        match code {
            201 => {}
            403 | 404 => return i,
            code => panic!("{code}"),
        }
    }
    unreachable!("the loop ends by returning")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_write_lands_after_its_plane_was_suspended() {
    let world = World::start().await;
    let (api, root) = (world.plane("p").await, world.root().await);
    let second = World::on(world.store.clone()).await;
    let other = second.root().await.at_plane("p");
    let writers: Vec<_> = (0..8)
        .map(|writer| {
            tokio::spawn(write_until_refused(
                if writer % 2 == 0 { api.clone() } else { other.clone() },
                writer,
            ))
        })
        .collect();
    // Let some writes through first.
    while names(&api.get(MAPS).await.expect(200)).len() < 20 {}
    let suspended = root
        .patch(&format!("{PLANES}/p"), &json!({"spec": {"state": "Suspended"}}))
        .await
        .expect(200);
    let mut written = 0;
    for writer in writers {
        written += writer.await.unwrap();
    }
    root.patch(&format!("{PLANES}/p"), &json!({"spec": {"state": "Active"}}))
        .await
        .expect(200);
    let list = api.get(MAPS).await.expect(200);
    assert_eq!(names(&list).len(), written + 1);
    let after = revision_of(&suspended);
    assert!(
        list["items"]
            .as_array()
            .unwrap()
            .iter()
            .all(|item| revision_of(item) < after)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_write_lands_after_its_plane_was_deleted() {
    let world = World::start().await;
    let (api, root) = (world.plane("p").await, world.root().await);
    let id = world.server.directory.by_name("p").await.unwrap().id;
    let writers: Vec<_> = (0..8)
        .map(|writer| tokio::spawn(write_until_refused(api.clone(), writer)))
        .collect();
    while names(&api.get(MAPS).await.expect(200)).len() < 20 {}
    root.delete(&format!("{PLANES}/p")).await.expect(200);
    for writer in writers {
        writer.await.unwrap();
    }
    root.until(&format!("{PLANES}/p"), 404).await;
    let usage = world.store.usage(&mica_store::KeyRange::Plane(id)).await.unwrap();
    assert_eq!(usage.records, 0);
}

#[tokio::test]
async fn tokens_and_certificates_are_refused_as_upstream_words_it() {
    let world = World::start().await;
    let api = world.plane("p").await;
    let path = "/api/v1/namespaces/default/serviceaccounts/default/token";
    let request = |seconds: i64| json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": [], "expirationSeconds": seconds}});
    let short = api.post(path, &request(5)).await;
    assert_eq!(short.code(), 422);
    assert!(
        short
            .message()
            .contains("may not specify a duration less than 10 minutes"),
        "{}",
        short.message()
    );
    assert_eq!(api.post(path, &request(3600)).await.code(), 201);
    let missing = "/api/v1/namespaces/default/serviceaccounts/missing/token";
    assert_eq!(api.post(missing, &request(3600)).await.code(), 404);
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {}});
    let review = api.post("/apis/authentication.k8s.io/v1/tokenreviews", &review).await;
    assert_eq!(
        (review.code(), review.message()),
        (400, "token is required for TokenReview in authentication".to_owned())
    );
}

#[tokio::test]
async fn only_a_post_takes_away_what_the_server_sets() {
    let world = World::start().await;
    let api = world.plane("p").await;
    let mut object = map("a");
    object["metadata"]["deletionTimestamp"] = json!("2001-01-01T00:00:00Z");
    object["metadata"]["deletionGracePeriodSeconds"] = json!(5);
    let posted = api.post(MAPS, &object).await.expect(201);
    assert_eq!(posted["metadata"]["deletionGracePeriodSeconds"], Value::Null);
    object["metadata"]["name"] = json!("b");
    let headers = [("content-type", "application/apply-patch+yaml")];
    let path = format!("{MAPS}/b?fieldManager=m");
    let applied = api.call(Method::PATCH, &path, &headers, object.to_string()).await;
    assert_eq!(applied.expect(201)["metadata"]["deletionGracePeriodSeconds"], json!(5));
}

#[tokio::test]
async fn applying_what_does_not_fit_its_type_is_told_as_upstream_tells_it() {
    let world = World::start().await;
    let api = world.plane("p").await;
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "a"}, "spec": {"leaseTransitions": 1.5}});
    let path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/a?fieldManager=m";
    let headers = [("content-type", "application/apply-patch+yaml")];
    let refused = api.call(Method::PATCH, path, &headers, lease.to_string()).await;
    assert!(
        refused.message().ends_with(": cannot convert float64 to int32"),
        "{}",
        refused.message()
    );
}

#[tokio::test]
async fn causes_of_a_bad_finalizer_come_in_upstreams_order() {
    let world = World::start().await;
    let api = world.plane("p").await;
    api.post(MAPS, &map("a")).await.expect(201);
    let patch = json!({"metadata": {"finalizers": ["a b"]}});
    let refused = api.patch(&format!("{MAPS}/a"), &patch).await.expect(422);
    let causes = refused["details"]["causes"].as_array().expect("causes");
    let fields: Vec<&str> = causes.iter().filter_map(|cause| cause["field"].as_str()).collect();
    let once = ["metadata.finalizers", "metadata.finalizers[0]"];
    assert_eq!(fields, [once, once].concat());
}

//! The all-planes address: one list and one watch of a resource over every plane but root.

mod custom;

use http::StatusCode;
use mica_server::pki::Identity;
use serde_json::{Value, json};

use super::world::{Api, MAPS, PLANES, World, brief, labelled, map, names, namespace, revision_of, text};

const ALL: &str = "/clusters/*/control-plane";
const EVERYWHERE: &str = "/api/v1/configmaps";

/// `plane/namespace/name` of every item.
fn places(list: &Value) -> Vec<String> {
    let place = |item: &Value| {
        let plane = text(item, "/metadata/annotations/mica.dev~1plane");
        format!(
            "{plane}/{}/{}",
            text(item, "/metadata/namespace"),
            text(item, "/metadata/name")
        )
    };
    let mut places: Vec<String> = list["items"].as_array().unwrap().iter().map(place).collect();
    places.sort();
    places
}

async fn three_planes(world: &World) -> Api {
    let root = world.root().await;
    root.post(MAPS, &map("in-root")).await.expect(201);
    for plane in ["a", "b", "c"] {
        root.create_plane(plane).await;
        let api = root.at_plane(plane);
        api.post("/api/v1/namespaces", &namespace("n")).await.expect(201);
        api.post("/api/v1/namespaces/n/configmaps", &map("x")).await.expect(201);
        api.post(MAPS, &labelled("y", plane)).await.expect(201);
    }
    root.at(ALL)
}

#[tokio::test]
async fn a_list_shows_what_planes_hold_themselves_and_whose_it_is() {
    let world = World::start().await;
    let all = three_planes(&world).await;
    let list = all.get(EVERYWHERE).await.expect(200);
    assert_eq!(
        places(&list),
        ["a/default/y", "a/n/x", "b/default/y", "b/n/x", "c/default/y", "c/n/x"]
    );
    for item in list["items"].as_array().unwrap() {
        let name = text(item, "/metadata/annotations/mica.dev~1plane");
        let id = world.server.directory.by_name(name).await.unwrap().id;
        assert_eq!(text(item, "/metadata/annotations/mica.dev~1plane-id"), id.as_str());
    }
    assert_eq!(list["kind"], "ConfigMapList");
    assert_eq!(
        places(&all.get("/api/v1/namespaces/n/configmaps").await.expect(200)),
        ["a/n/x", "b/n/x", "c/n/x"]
    );
    let encoded = all.at("/clusters/%2A/control-plane").get(EVERYWHERE).await.expect(200);
    assert_eq!(places(&encoded).len(), 6);
    let chosen = |query: &str| {
        let (all, path) = (all.clone(), format!("{EVERYWHERE}?{query}"));
        async move { places(&all.get(&path).await.expect(200)) }
    };
    assert_eq!(chosen("labelSelector=l%3Db").await, ["b/default/y"]);
    assert_eq!(
        chosen("fieldSelector=metadata.name%3Dx").await,
        ["a/n/x", "b/n/x", "c/n/x"]
    );
    assert_eq!(
        chosen("fieldSelector=metadata.namespace%3Ddefault,metadata.name%3Dx")
            .await
            .len(),
        0
    );
    // A table and protobuf say it too.
    let headers = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
    let table = all.call(http::Method::GET, EVERYWHERE, &headers, "").await.expect(200);
    assert_eq!(table["rows"].as_array().unwrap().len(), 6);
    let row = &table["rows"][0]["object"]["metadata"]["annotations"];
    assert!(row.get("mica.dev/plane").is_some(), "{row}");
    let headers = [("accept", "application/vnd.kubernetes.protobuf")];
    let binary = all.call(http::Method::GET, EVERYWHERE, &headers, "").await;
    assert!(binary.status == StatusCode::OK && binary.body.starts_with(b"k8s\0"));
}

#[tokio::test]
async fn pages_are_of_one_revision_and_expire_with_a_way_on() {
    let world = World::start().await;
    let all = three_planes(&world).await;
    for limit in 1..=7 {
        let (mut found, mut token, mut revision) = (Vec::new(), String::new(), None);
        for page in 0.. {
            let late = map(&format!("late-{limit}-{page}"));
            let page = all
                .get(&format!("{EVERYWHERE}?limit={limit}&continue={token}"))
                .await
                .expect(200);
            assert!(names(&page).len() <= limit);
            assert_eq!(*revision.get_or_insert(revision_of(&page)), revision_of(&page));
            found.extend(places(&page));
            // What is written between pages is not seen.
            all.at_plane("b").post(MAPS, &late).await.expect(201);
            token = text(&page, "/metadata/continue").to_owned();
            if token.is_empty() {
                break;
            }
        }
        assert_eq!(
            found.iter().filter(|place| !place.contains("late")).count(),
            6,
            "{found:?}"
        );
        assert!(
            !found.iter().any(|place| place.contains(&format!("late-{limit}"))),
            "{found:?}"
        );
    }
    let first = all.get(&format!("{EVERYWHERE}?limit=2")).await.expect(200);
    world.store.compact(world.revision().await).await.unwrap();
    let token = text(&first, "/metadata/continue");
    all.at_plane("c").post(MAPS, &map("z")).await.expect(201);
    world.store.compact(world.revision().await).await.unwrap();
    let gone = all
        .get(&format!("{EVERYWHERE}?limit=100&continue={token}"))
        .await
        .expect(410);
    let fresh = text(&gone, "/metadata/continue");
    let rest = all
        .get(&format!("{EVERYWHERE}?limit=100&continue={fresh}"))
        .await
        .expect(200);
    // Which plane comes first is chance; all that was there at first is shown, on one page or the other.
    let both = [names(&first), names(&rest)].concat();
    assert_eq!(both.iter().filter(|name| ["x", "y"].contains(*name)).count(), 6);
    assert_eq!(all.get(&format!("{EVERYWHERE}?continue=garbage")).await.code(), 400);
    let future = world.revision().await.0 + 100;
    assert_eq!(
        all.get(&format!("{EVERYWHERE}?resourceVersion={future}")).await.code(),
        504
    );
}

#[tokio::test]
async fn a_watch_follows_every_plane_and_resumes_anywhere() {
    let world = World::start().await;
    let all = three_planes(&world).await;
    let listed = all.get(EVERYWHERE).await.expect(200);
    let from = revision_of(&listed);
    let mut watch = all.watch(&format!("{EVERYWHERE}?watch=1&resourceVersion={from}")).await;
    let mut inside = all
        .watch(&format!(
            "/api/v1/namespaces/n/configmaps?watch=1&resourceVersion={from}"
        ))
        .await;
    let mut chosen = all
        .watch(&format!(
            "{EVERYWHERE}?watch=1&labelSelector=l%3Dq&resourceVersion={from}"
        ))
        .await;
    all.at("").post(MAPS, &map("unseen")).await.expect(201);
    all.at("").create_plane("d").await;
    all.at_plane("d").post(MAPS, &labelled("new", "q")).await.expect(201);
    all.at_plane("a")
        .patch("/api/v1/namespaces/n/configmaps/x", &json!({"data": {"k": "w"}}))
        .await
        .expect(200);
    all.at_plane("b").delete(&format!("{MAPS}/y")).await.expect(200);
    // An object of the base layer is its plane's own from its first change on.
    all.at_plane("c")
        .patch(&format!("{MAPS}/kube-root-ca.crt"), &json!({"data": {"k": "w"}}))
        .await
        .expect(200);
    let mut events = Vec::new();
    for (expected, plane) in [
        ("ADDED new", "d"),
        ("MODIFIED x", "a"),
        ("DELETED y", "b"),
        ("ADDED kube-root-ca.crt", "c"),
    ] {
        let event = watch.next().await.unwrap();
        assert_eq!(brief(&event), expected);
        assert_eq!(text(&event, "/object/metadata/annotations/mica.dev~1plane"), plane);
        events.push(event);
    }
    assert_eq!(inside.brief().await, "MODIFIED x");
    assert_eq!(chosen.brief().await, "ADDED new");
    for (i, event) in events.iter().enumerate() {
        let mut resumed = all
            .watch(&format!(
                "{EVERYWHERE}?watch=1&resourceVersion={}",
                revision_of(&event["object"])
            ))
            .await;
        for expected in &events[i + 1..] {
            assert_eq!(resumed.next().await.as_ref(), Some(expected));
        }
    }
}

#[tokio::test]
async fn a_watch_begins_with_the_state_and_bookmarks_its_way() {
    let world = World::start().await;
    let all = three_planes(&world).await;
    let query = "watch=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    let mut watch = all.watch(&format!("{EVERYWHERE}?{query}")).await;
    for _ in 0..6 {
        assert!(watch.brief().await.starts_with("ADDED "));
    }
    let end = watch.next().await.unwrap();
    assert_eq!(
        text(&end, "/object/metadata/annotations/k8s.io~1initial-events-end"),
        "true"
    );
    let elsewhere = revision_of(&all.at("").post(MAPS, &map("other")).await.expect(201));
    let mut told = revision_of(&end["object"]);
    while told < elsewhere {
        let bookmark = watch.next().await.unwrap();
        assert_eq!(text(&bookmark, "/type"), "BOOKMARK");
        told = revision_of(&bookmark["object"]);
    }
    all.at_plane("a").post(MAPS, &map("z")).await.expect(201);
    world.store.compact(world.revision().await).await.unwrap();
    let mut old = all.watch(&format!("{EVERYWHERE}?watch=1&resourceVersion=1")).await;
    assert_eq!(old.next().await.unwrap()["object"]["code"], 410);
    assert_eq!(old.next().await, None);
}

#[tokio::test]
async fn only_lists_and_watches_are_answered_and_only_for_administrators() {
    let world = World::start().await;
    let all = three_planes(&world).await;
    for (method, path) in [
        (http::Method::POST, MAPS),
        (http::Method::DELETE, MAPS),
        (http::Method::DELETE, EVERYWHERE),
        (http::Method::GET, "/api/v1/namespaces/default/configmaps/y"),
        (http::Method::PUT, "/api/v1/namespaces/default/configmaps/y"),
        (http::Method::PATCH, "/api/v1/namespaces/default/configmaps/y"),
        (http::Method::GET, "/api/v1/namespaces/default/status"),
    ] {
        let answer = all
            .call(method.clone(), path, &[("content-type", "application/json")], "{}")
            .await;
        assert_eq!(answer.code(), 405, "{method} {path}: {}", answer.json());
    }
    assert_eq!(all.get("/api/v1/nothings").await.code(), 404);
    assert_eq!(
        all.get("/apis/authorization.k8s.io/v1/subjectaccessreviews")
            .await
            .code(),
        405
    );
    assert_eq!(all.get("/api/v1").await.code(), 200);
    let identity = Identity {
        name: "somebody".to_owned(),
        group: None,
    };
    let certificate = world
        .authority
        .issue_client(&identity, std::time::SystemTime::now())
        .unwrap();
    let stranger = world.as_user(Some(&certificate)).await.at(ALL);
    for path in [EVERYWHERE, "/api/v1/configmaps?watch=1", "/api/v1/nothings"] {
        let refused = stranger.get(path).await;
        assert_eq!(refused.code(), 403, "{}", refused.json());
    }
    let nobody = world.as_user(None).await;
    assert_eq!(nobody.at(ALL).get(EVERYWHERE).await.code(), 403);
    assert_eq!(nobody.at_plane("a").get(MAPS).await.code(), 403);
    assert_eq!(nobody.at_plane("none").get(MAPS).await.code(), 403);
    assert_eq!(nobody.get(PLANES).await.code(), 403);
}

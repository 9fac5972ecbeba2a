//! Lists: pages, versions, selectors.

use base64::Engine as _;
use mica_store::{Txn, Write};
use serde_json::{Value, json};

use super::world::{Api, MAPS, World, labelled, map, names, revision_of, text};

async fn fill(api: &Api, count: usize) {
    for i in 0..count {
        api.post(MAPS, &map(&format!("m{i:04}"))).await.expect(201);
    }
}

/// All names of a list read in pages, with the revision of each page.
async fn pages(api: &Api, path: &str, limit: usize) -> (Vec<String>, Vec<u64>) {
    let (mut all, mut revisions, mut token) = (Vec::new(), Vec::new(), String::new());
    loop {
        let page = api
            .get(&format!("{path}limit={limit}&continue={token}"))
            .await
            .expect(200);
        all.extend(names(&page).into_iter().map(ToOwned::to_owned));
        revisions.push(revision_of(&page));
        token = text(&page, "/metadata/continue").to_owned();
        if token.is_empty() {
            return (all, revisions);
        }
    }
}

#[tokio::test]
async fn pages_show_one_state_however_much_is_written_meanwhile() {
    let world = World::start().await;
    let api = world.plane("p").await;
    fill(&api, 12).await;
    let first = api.get(&format!("{MAPS}?limit=5")).await.expect(200);
    // 12 of our own and the one of the base layer.
    assert_eq!(first["metadata"]["remainingItemCount"], 8);
    api.post(MAPS, &map("m0005a")).await.expect(201);
    api.delete(&format!("{MAPS}/m0007")).await.expect(200);
    api.delete(&format!("{MAPS}/kube-root-ca.crt")).await.expect(200);
    let token = text(&first, "/metadata/continue");
    let second = api.get(&format!("{MAPS}?limit=5&continue={token}")).await.expect(200);
    assert_eq!(revision_of(&second), revision_of(&first));
    assert_eq!(second["metadata"]["remainingItemCount"], 3);
    assert_eq!(names(&second), ["m0004", "m0005", "m0006", "m0007", "m0008"]);
    let token = text(&second, "/metadata/continue");
    let third = api.get(&format!("{MAPS}?limit=5&continue={token}")).await.expect(200);
    assert_eq!(names(&third), ["m0009", "m0010", "m0011"]);
    assert_eq!(
        (
            text(&third, "/metadata/continue"),
            third["metadata"].get("remainingItemCount")
        ),
        ("", None)
    );
}

#[tokio::test]
async fn a_collection_is_deleted_in_pages_too() {
    let world = World::start().await;
    let api = world.plane("p").await;
    fill(&api, 4).await;
    let first = api.delete(&format!("{MAPS}?limit=2")).await.expect(200);
    assert_eq!(names(&first), ["kube-root-ca.crt", "m0000"]);
    assert_eq!(first["metadata"]["remainingItemCount"], 3);
    let token = text(&first, "/metadata/continue");
    let rest = api
        .delete(&format!("{MAPS}?limit=9&continue={token}"))
        .await
        .expect(200);
    assert_eq!(names(&rest), ["m0001", "m0002", "m0003"]);
    assert_eq!(text(&rest, "/metadata/continue"), "");
    world.stop().await;
}

#[tokio::test]
async fn what_remains_is_counted_over_the_base_layer_and_marks_on_it() {
    let world = World::start().await;
    let api = world.plane("p").await;
    fill(&api, 3).await;
    api.delete("/api/v1/namespaces/kube-system/configmaps/kube-root-ca.crt")
        .await
        .expect(200);
    let changed = json!({"metadata": {"name": "kube-root-ca.crt"}, "data": {"a": "b"}});
    api.put("/api/v1/namespaces/kube-public/configmaps/kube-root-ca.crt", &changed)
        .await
        .expect(200);
    for collection in [
        "/api/v1/configmaps",
        MAPS,
        "/api/v1/namespaces",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    ] {
        let all = names(&api.get(collection).await.expect(200)).len();
        assert!(all > 3, "{collection}");
        for limit in 1..all {
            let page = api.get(&format!("{collection}?limit={limit}")).await.expect(200);
            assert_eq!(
                page["metadata"]["remainingItemCount"],
                all - limit,
                "{collection} limit {limit}"
            );
        }
    }
}

#[tokio::test]
async fn pages_of_every_size_show_the_base_layer_in_its_place() {
    let world = World::start().await;
    let api = world.plane("p").await;
    for name in ["a", "kube-root-ca.crs", "kube-root-ca.crt-0", "z"] {
        api.post(MAPS, &map(name)).await.expect(201);
    }
    let all = "a kube-root-ca.crs kube-root-ca.crt kube-root-ca.crt-0 z";
    for limit in 1..=6 {
        let (found, revisions) = pages(&api, &format!("{MAPS}?"), limit).await;
        assert_eq!(found.join(" "), all, "limit {limit}");
        assert!(revisions.iter().all(|revision| *revision == revisions[0]));
    }
    // Over all namespaces, most of which only the base layer has.
    let whole = api.get("/api/v1/configmaps").await.expect(200);
    let whole: Vec<String> = names(&whole).into_iter().map(ToOwned::to_owned).collect();
    for limit in [1, 2, 3, 7] {
        assert_eq!(pages(&api, "/api/v1/configmaps?", limit).await.0, whole);
    }
}

#[tokio::test]
async fn an_expired_token_is_410_with_one_that_goes_on() {
    let world = World::start().await;
    let api = world.plane("p").await;
    fill(&api, 6).await;
    let first = api.get(&format!("{MAPS}?limit=3")).await.expect(200);
    api.delete(&format!("{MAPS}/m0003")).await.expect(200);
    api.post(MAPS, &map("m0004a")).await.expect(201);
    world.store.compact(world.revision().await).await.unwrap();
    let token = text(&first, "/metadata/continue").to_owned();
    let gone = api.get(&format!("{MAPS}?limit=2&continue={token}")).await.expect(410);
    assert_eq!(text(&gone, "/reason"), "Expired");
    assert!(text(&gone, "/message").starts_with("The provided continue parameter is too old"));
    let fresh = text(&gone, "/metadata/continue").to_owned();
    let rest = api.get(&format!("{MAPS}?limit=2&continue={fresh}")).await.expect(200);
    assert_eq!(names(&rest), ["m0002", "m0004"]);
    assert!(revision_of(&rest) > revision_of(&first));
    assert_eq!(rest["metadata"]["remainingItemCount"], 2, "counted anew");
    let token = text(&rest, "/metadata/continue");
    let last = api.get(&format!("{MAPS}?limit=9&continue={token}")).await.expect(200);
    assert_eq!(
        (names(&last), revision_of(&last)),
        (vec!["m0004a", "m0005"], revision_of(&rest))
    );
}

#[tokio::test]
async fn tokens_of_others_are_refused_or_harmless() {
    let world = World::start().await;
    let api = world.plane("p").await;
    fill(&api, 3).await;
    let encode = |token: Value| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(token.to_string());
    for start in ["default//x", "x/", "//x", "../x", "a/../x", "./x", ""] {
        let token = encode(json!({"v": "meta.k8s.io/v1", "rv": 1, "start": start}));
        let answer = api.get(&format!("{MAPS}?limit=1&continue={token}")).await;
        assert_eq!(answer.code(), 400, "{start:?}: {}", answer.json());
    }
    // Another place of the collection is as good as any, also one that no object can have.
    for (start, first) in [
        ("\0", "kube-root-ca.crt"),
        ("/", "kube-root-ca.crt"),
        ("default/m0000/x", "m0001"),
        ("/default/m0001", "m0002"),
    ] {
        let token = encode(json!({"v": "meta.k8s.io/v1", "rv": -5, "start": start}));
        let page = api.get(&format!("{MAPS}?limit=1&continue={token}")).await.expect(200);
        assert_eq!(names(&page), [first], "{start:?}");
    }
    let token = encode(json!({"v": "meta.k8s.io/v1", "rv": i64::MAX, "start": "a"}));
    let answer = api.get(&format!("{MAPS}?continue={token}")).await;
    assert_eq!(answer.code(), 504);
    let expected = format!("Timeout: Too large resource version: {}, current: ", i64::MAX);
    assert!(answer.message().starts_with(&expected), "{}", answer.message());
    for token in ["x", "e30", "%20"] {
        assert_eq!(api.get(&format!("{MAPS}?continue={token}")).await.code(), 400);
    }
    // A key outside the collection only moves the start.
    let token = encode(json!({"v": "meta.k8s.io/v1", "rv": -1, "start": "zzz/zzz\0"}));
    assert!(names(&api.get(&format!("{MAPS}?continue={token}")).await.expect(200)).is_empty());
    let answer = api.get(&format!("{MAPS}?resourceVersion=5&continue={token}")).await;
    assert_eq!(answer.code(), 400, "{}", answer.json());
}

#[tokio::test]
async fn versions_and_how_they_match_mean_what_upstream_says() {
    let world = World::start().await;
    let api = world.plane("p").await;
    api.post(MAPS, &map("a")).await.expect(201);
    let old = revision_of(&api.get(MAPS).await.expect(200));
    api.post(MAPS, &map("b")).await.expect(201);
    let new = revision_of(&api.get(MAPS).await.expect(200));
    let future = new + 1000;
    let check = |query: String, want: &'static str| {
        let api = api.clone();
        async move {
            let answer = api.get(&format!("{MAPS}?{query}")).await;
            let got = match answer.code() {
                200 => {
                    let list = answer.json();
                    let at = if revision_of(&list) == old { "old" } else { "new" };
                    format!("{at}: {}", names(&list).join(" "))
                }
                code => format!("{code} {}", text(&answer.json(), "/reason")),
            };
            assert_eq!(got, want, "{query}: {}", answer.json());
        }
    };
    let (both, one) = ("new: a b kube-root-ca.crt", "old: a kube-root-ca.crt");
    for limit in ["", "&limit=10"] {
        check(format!("x={limit}"), both).await;
        check(format!("resourceVersion=0{limit}"), both).await;
        check(
            format!("resourceVersion=0&resourceVersionMatch=NotOlderThan{limit}"),
            both,
        )
        .await;
        check(
            format!("resourceVersion={old}&resourceVersionMatch=NotOlderThan{limit}"),
            both,
        )
        .await;
        check(format!("resourceVersion={old}&resourceVersionMatch=Exact{limit}"), one).await;
        check(format!("resourceVersion={new}&resourceVersionMatch=Exact{limit}"), both).await;
        check(
            format!("resourceVersion=0&resourceVersionMatch=Exact{limit}"),
            "422 Invalid",
        )
        .await;
        check(format!("resourceVersionMatch=Exact{limit}"), "422 Invalid").await;
        check(
            format!("resourceVersion={old}&resourceVersionMatch=Other{limit}"),
            "422 Invalid",
        )
        .await;
        check(format!("resourceVersion=x{limit}"), "400 BadRequest").await;
        check(format!("resourceVersion=-1{limit}"), "400 BadRequest").await;
        check(format!("resourceVersion={future}{limit}"), "504 Timeout").await;
        check(
            format!("resourceVersion={future}&resourceVersionMatch=Exact{limit}"),
            "504 Timeout",
        )
        .await;
    }
    check(format!("resourceVersion={old}"), both).await;
    check(format!("resourceVersion={old}&limit=10"), one).await;
    world.store.compact(world.revision().await).await.unwrap();
    check(
        format!("resourceVersion={old}&resourceVersionMatch=Exact"),
        "410 Expired",
    )
    .await;
    check(format!("resourceVersion={old}&limit=10"), "410 Expired").await;
    check(format!("resourceVersion={old}"), both).await;
}

#[tokio::test]
async fn selectors_choose_and_limits_count_what_matches() {
    let world = World::start().await;
    let api = world.plane("p").await;
    for i in 0..10 {
        api.post(MAPS, &labelled(&format!("m{i}"), if i % 3 == 0 { "x" } else { "y" }))
            .await
            .expect(201);
    }
    let page = api
        .get(&format!("{MAPS}?labelSelector=l%3Dx&limit=3"))
        .await
        .expect(200);
    assert_eq!(names(&page), ["m0", "m3", "m6"]);
    assert_eq!(page["metadata"].get("remainingItemCount"), None);
    assert_eq!(
        pages(&api, &format!("{MAPS}?labelSelector=l%3Dx&"), 3).await.0,
        ["m0", "m3", "m6", "m9"]
    );
    let list = |query: &str| {
        let (api, path) = (api.clone(), format!("/api/v1/{query}"));
        async move {
            let list = api.get(&path).await.expect(200);
            names(&list).join(" ")
        }
    };
    assert_eq!(
        list("namespaces/default/configmaps?fieldSelector=metadata.name%3Dm4").await,
        "m4"
    );
    assert_eq!(list("configmaps?fieldSelector=metadata.name%3Dm4").await, "m4");
    assert_eq!(
        list("configmaps?fieldSelector=metadata.name%3Dm4,metadata.namespace%3Ddefault").await,
        "m4"
    );
    assert_eq!(
        list("configmaps?fieldSelector=metadata.name%3Dm4,metadata.namespace%3Dother").await,
        ""
    );
    assert_eq!(
        list("namespaces/default/configmaps?fieldSelector=metadata.namespace%3Dkube-system").await,
        ""
    );
    assert_eq!(
        list("namespaces/default/configmaps?fieldSelector=metadata.name%3Dm4,metadata.name%3Dm5").await,
        ""
    );
    assert_eq!(
        list("namespaces/default/configmaps?fieldSelector=metadata.name%3Dkube-root-ca.crt").await,
        "kube-root-ca.crt"
    );
    assert_eq!(
        list("namespaces/default/configmaps?fieldSelector=metadata.name%3Dkube-root-ca.cr").await,
        ""
    );
    assert_eq!(
        list("namespaces/default/configmaps?fieldSelector=metadata.name%3Da/b").await,
        ""
    );
    assert_eq!(
        list("namespaces/default/configmaps?fieldSelector=metadata.name%21%3Dm0&labelSelector=l%3Dx").await,
        "m3 m6 m9"
    );
    assert_eq!(
        list("namespaces?fieldSelector=metadata.name%3Ddefault").await,
        "default"
    );
    assert_eq!(list("namespaces?fieldSelector=status.phase%3DTerminating").await, "");
    assert_eq!(api.get(&format!("{MAPS}?fieldSelector=data.k%3Dv")).await.code(), 400);
    assert_eq!(api.get(&format!("{MAPS}?labelSelector=%21%21")).await.code(), 400);
}

#[tokio::test]
async fn a_name_selected_by_field_obeys_versions_and_shows_the_base_layer_beneath() {
    let world = World::start().await;
    let api = world.plane("p").await;
    let one = format!("{MAPS}?fieldSelector=metadata.name%3Dkube-root-ca.crt");
    let old = api.get(&one).await.expect(200);
    api.delete(&format!("{MAPS}/kube-root-ca.crt")).await.expect(200);
    assert!(names(&api.get(&one).await.expect(200)).is_empty());
    let exact = format!("{one}&resourceVersionMatch=Exact&resourceVersion={}", revision_of(&old));
    assert_eq!(api.get(&exact).await.expect(200)["items"], old["items"]);
}

#[tokio::test]
async fn options_are_checked_in_upstreams_order_and_words() {
    let world = World::start().await;
    let api = world.plane("p").await;
    for (query, code, part) in [
        ("limit=", 400, "strconv.ParseInt: parsing \"\": invalid syntax"),
        ("timeoutSeconds=", 400, "strconv.ParseInt: parsing \"\": invalid syntax"),
        ("limit=99999999999999999999", 400, "value out of range"),
        (
            "continue=x",
            400,
            "invalid continue token: continue key is not valid: illegal base64 data at input byte 0",
        ),
        ("continue=ab*d", 400, "illegal base64 data at input byte 2"),
        (
            "resourceVersionMatch=x&fieldSelector=a",
            400,
            "invalid selector: 'a'; can't understand 'a'",
        ),
        (
            "sendInitialEvents=true&labelSelector=%3D",
            400,
            "found '=', expected: !, identifier, or 'end of string'",
        ),
        ("sendInitialEvents=true", 422, "sendInitialEvents is forbidden for list"),
        (
            "resourceVersionMatch=Exact",
            422,
            "resourceVersionMatch is forbidden unless resourceVersion is provided",
        ),
        ("resourceVersion=x", 400, "invalid resource version: "),
    ] {
        let answer = api.get(&format!("{MAPS}?{query}")).await;
        assert_eq!(answer.code(), code, "{query}: {}", answer.json());
        assert!(answer.message().contains(part), "{query}: {}", answer.message());
    }
    // A watch of one object by its old path, told to be of another.
    let path = "/api/v1/watch/namespaces/default/configmaps/a?fieldSelector=metadata.name%3Db";
    let message = "fieldSelector metadata.name doesn't match requested name";
    assert_eq!(api.get(path).await.message(), message);
}

#[tokio::test]
async fn whatever_there_is_comes_whole() {
    let world = World::start().await;
    let api = world.plane("p").await;
    for name in ["a", "b", "c"] {
        api.post(MAPS, &map(name)).await.expect(201);
    }
    let whole = api.get(&format!("{MAPS}?limit=1&resourceVersion=0")).await.expect(200);
    assert_eq!(names(&whole).len(), 4);
    let page = api.get(&format!("{MAPS}?limit=1")).await.expect(200);
    assert_eq!(names(&page).len(), 1);
    let token = text(&page, "/metadata/continue");
    let next = api
        .get(&format!("{MAPS}?limit=1&resourceVersion=0&continue={token}"))
        .await
        .expect(200);
    assert_eq!(names(&next).len(), 1);
}

#[tokio::test]
async fn an_empty_list_has_an_empty_array() {
    let world = World::start().await;
    let api = world.plane("p").await;
    let list = api.get("/api/v1/secrets").await.expect(200);
    assert_eq!(list["items"], json!([]));
    let list = api.get("/api/v1/secrets?limit=5").await.expect(200);
    assert_eq!(list["items"], json!([]));
}

fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap();
    status.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_big_list_is_sent_as_it_is_read_and_never_gathered() {
    const OBJECTS: usize = 20_000;
    let world = World::start().await;
    let api = world.plane("p").await;
    let mut big = map("one");
    big["data"]["k"] = "x".repeat(1024).into();
    api.post(MAPS, &big).await.expect(201);
    // One stored value under many keys: what a list does with them is all that is asked.
    let plane = world.server.directory.by_name("p").await.unwrap();
    let resource = mica_api::GroupResource::new("", "configmaps");
    let key = |name: &str| plane.keys().object(&resource, Some("default"), name);
    let value = world.store.get(&key("one")).await.unwrap().unwrap().value;
    for i in 0..OBJECTS {
        let write = Write::Put {
            key: key(&format!("many-{i:06}")),
            value: value.clone(),
            ttl: None,
        };
        world
            .store
            .commit(Txn {
                compares: Vec::new(),
                writes: vec![write],
            })
            .await
            .unwrap();
    }
    let before = resident_bytes();
    let mut unread = Vec::new();
    for _ in 0..20 {
        unread.push(api.send(http::Method::GET, MAPS, &[], "".into()).await);
    }
    let grown = resident_bytes().saturating_sub(before);
    assert!(
        grown < 20 * 20_000_000 / 2,
        "20 lists of 20 MB that nobody reads took {grown} bytes"
    );
    drop(unread);
    let list = api.get(MAPS).await.expect(200);
    assert_eq!(names(&list).len(), OBJECTS + 2);
    let page = api.get(&format!("{MAPS}?limit=15000")).await.expect(200);
    assert_eq!(
        (names(&page).len(), page["metadata"]["remainingItemCount"].as_u64()),
        (15_000, Some(5_002))
    );
}

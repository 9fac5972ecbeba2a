//! What a plane may hold and do: refused beyond that, with a word about which budget it was.

use futures::future::join_all;
use serde_json::{Value, json};

use super::world::{Answer, Api, MAPS, PLANES, World, map};

/// A plane with limits of its own.
async fn limited(world: &World, name: &str, limits: Value) -> Api {
    let root = world.root().await;
    let plane = json!({"metadata": {"name": name}, "spec": {"limits": limits}});
    root.post(PLANES, &plane).await.expect(201);
    root.at_plane(name)
}

#[track_caller]
fn refused(answer: &Answer, code: u16, reason: &str, message: &str) {
    let status = answer.json();
    assert_eq!(answer.code(), code, "{status}");
    assert_eq!(
        (status["reason"].as_str(), answer.message().as_str()),
        (Some(reason), message)
    );
    if code == 429 {
        assert!(answer.header("retry-after").parse::<u64>().unwrap() >= 1);
        assert_eq!(
            status["details"]["retryAfterSeconds"].as_u64(),
            answer.header("retry-after").parse().ok()
        );
    }
}

#[tokio::test]
async fn a_plane_holds_as_many_objects_as_it_may_however_many_writers_there_are() {
    let world = World::start().await;
    let api = limited(&world, "p", json!({"objects": 10})).await;
    let names: Vec<String> = (0..40).map(|n| format!("m{n}")).collect();
    let created = join_all(names.iter().map(|name| {
        let (api, name) = (api.clone(), name.clone());
        async move { api.post(MAPS, &map(&name)).await }
    }));
    let (mut made, mut forbidden) = (Vec::new(), Vec::new());
    for (name, answer) in names.iter().zip(created.await) {
        match answer.code() {
            201 => made.push(name),
            403 => forbidden.push(answer),
            code => panic!("{code}: {}", answer.json()),
        }
    }
    assert_eq!((made.len(), forbidden.len()), (10, 30));
    refused(
        &forbidden[0],
        403,
        "Forbidden",
        "configmaps is forbidden: exceeded budget of control plane \"p\" for objects: limits.objects, requested: 1, used: 10, limited: 10",
    );
    // Changing and deleting go on, and what was freed can be used.
    let path = format!("{MAPS}/{}", made[0]);
    api.patch(&path, &json!({"data": {"k": "v"}})).await.expect(200);
    api.delete(&path).await.expect(200);
    api.post(MAPS, &map("again")).await.expect(201);
    assert_eq!(api.post(MAPS, &map("another")).await.code(), 403);
    let root = world.root().await;
    root.patch(&format!("{PLANES}/p"), &json!({"spec": {"limits": {"objects": 11}}}))
        .await
        .expect(200);
    api.post(MAPS, &map("another")).await.expect(201);
}

#[tokio::test]
async fn a_plane_stores_as_many_bytes_as_it_may() {
    let world = World::start().await;
    let api = limited(&world, "p", json!({"storedBytes": "20Ki"})).await;
    let large = |name: &str, size: usize| json!({"metadata": {"name": name}, "data": {"k": "x".repeat(size)}});
    api.post(MAPS, &large("a", 8000)).await.expect(201);
    api.post(MAPS, &large("b", 8000)).await.expect(201);
    let over = api.post(MAPS, &large("c", 8000)).await;
    assert_eq!(over.code(), 403, "{}", over.json());
    let message = over.message();
    assert!(
        message.starts_with("configmaps is forbidden: exceeded budget of control plane \"p\" for stored bytes: limits.storedBytes, requested: 8")
            && message.ends_with("limited: 20480"),
        "{message}"
    );
    // Growing is refused too; shrinking never is, and makes room.
    let grown = api.put(&format!("{MAPS}/a"), &large("a", 16_000)).await;
    assert_eq!(grown.code(), 403, "{}", grown.json());
    api.put(&format!("{MAPS}/a"), &large("a", 10)).await.expect(200);
    api.post(MAPS, &large("c", 8000)).await.expect(201);
}

#[tokio::test]
async fn a_plane_has_as_many_watches_as_it_may_and_more_when_some_end() {
    let world = World::start().await;
    let api = limited(&world, "p", json!({"watches": 2})).await;
    let path = format!("{MAPS}?watch=1");
    let (one, _two) = (api.watch(&path).await, api.watch(&path).await);
    refused(
        &api.get(&path).await,
        429,
        "TooManyRequests",
        "control plane \"p\" has used up its budget of watches: limits.watches is 2",
    );
    assert_eq!(api.get(MAPS).await.code(), 200, "lists are none");
    drop(one);
    loop {
        let answer = api.send(http::Method::GET, &path, &[], bytes::Bytes::new()).await;
        if answer.status() == 200 {
            break;
        }
    }
}

#[tokio::test]
async fn a_plane_asks_as_often_as_it_may() {
    let world = World::start().await;
    let api = limited(&world, "p", json!({"requestsPerSecond": 3})).await;
    let answers = join_all((0..40).map(|_| api.get(MAPS))).await;
    let over: Vec<&Answer> = answers.iter().filter(|answer| answer.code() == 429).collect();
    assert!(!over.is_empty() && over.len() <= 37, "{}", over.len());
    refused(
        over[0],
        429,
        "TooManyRequests",
        "control plane \"p\" has used up its budget of requests per second: limits.requestsPerSecond is 3",
    );
    // It is nobody else's matter, and passes.
    assert_eq!(world.plane("other").await.get(MAPS).await.code(), 200);
    api.until(MAPS, 200).await;
}

#[tokio::test]
async fn limits_of_a_class_bound_its_planes() {
    let world = World::start().await;
    let root = world.root().await;
    let class = json!({"metadata": {"name": "small"}, "spec": {"limits": {"objects": 1}}});
    root.post("/apis/mica.dev/v1alpha1/planeclasses", &class)
        .await
        .expect(201);
    let plane = json!({"metadata": {"name": "p"}, "spec": {"className": "small"}});
    root.post(PLANES, &plane).await.expect(201);
    let api = root.at_plane("p");
    api.post(MAPS, &map("a")).await.expect(201);
    assert_eq!(api.post(MAPS, &map("b")).await.code(), 403);
}

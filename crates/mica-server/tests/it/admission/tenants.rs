//! Webhooks of many planes: each acts in its own, reaches what it may, and costs nobody else.

use std::sync::Arc;

use mica_server::egress::{EgressOptions, Network};
use mica_store::MemStore;
use serde_json::json;

use super::super::hook::{Answer, Hook};
use super::super::world::{MAPS, PLANES, World, map};
use super::{VALIDATING, answer, validating, webhook, yes};

/// A world whose planes may call this machine.
async fn loopback(store: Arc<MemStore>) -> World {
    let egress = EgressOptions {
        allow: ["127.0.0.1".parse::<Network>().unwrap()].into_iter().collect(),
        ..EgressOptions::default()
    };
    World::calling(store, egress).await
}

#[tokio::test]
async fn a_plane_does_not_reach_this_machine_unless_it_is_allowed_to() {
    let hook = Hook::start(yes).await;
    let world = World::start().await;
    let (root, plane) = (world.root().await, world.plane("p").await);
    for api in [&root, &plane] {
        validating(api, "a", &[webhook(&hook.client_config("/"), |_| {})]).await;
    }
    let refused = plane.post(MAPS, &map("a")).await;
    assert!(
        refused
            .message()
            .ends_with("the address is not one that this control plane may call"),
        "{}",
        refused.message()
    );
    root.post(MAPS, &map("a")).await.expect(201);
    assert_eq!(hook.seen().len(), 1);
}

#[tokio::test]
async fn a_planes_webhooks_are_asked_about_that_plane_alone() {
    let hook = Hook::start(|seen| answer(seen, json!({"allowed": false}))).await;
    let world = loopback(Arc::new(MemStore::new())).await;
    let (one, other) = (world.plane("one").await, world.plane("other").await);
    // What is loaded before it is configured is loaded anew.
    one.post(MAPS, &map("before")).await.expect(201);
    validating(&one, "a", &[webhook(&hook.client_config("/"), |_| {})]).await;
    assert_eq!(one.post(MAPS, &map("a")).await.code(), 400);
    other.post(MAPS, &map("a")).await.expect(201);
    world.root().await.post(MAPS, &map("a")).await.expect(201);
    one.delete(&format!("{VALIDATING}/a")).await.expect(200);
    one.post(MAPS, &map("a")).await.expect(201);
}

#[tokio::test]
async fn a_hanging_webhook_holds_up_nobody_else() {
    let hook = Hook::start(|_| Answer::Hang(Vec::new())).await;
    let world = loopback(Arc::new(MemStore::new())).await;
    let (one, other) = (world.plane("one").await, world.plane("other").await);
    let slow = webhook(&hook.client_config("/"), |hook| hook["timeoutSeconds"] = 1.into());
    validating(&one, "a", &[slow]).await;
    let waiting: Vec<_> = (0..8)
        .map(|at| {
            let one = one.clone();
            tokio::spawn(async move { one.post(MAPS, &map(&format!("m{at}"))).await.message() })
        })
        .collect();
    hook.saw(8).await;
    other.post(MAPS, &map("a")).await.expect(201);
    one.get(&format!("{MAPS}/kube-root-ca.crt")).await.expect(200);
    assert!(waiting.iter().all(|request| !request.is_finished()));
    for request in waiting {
        let message = request.await.unwrap();
        assert!(
            message.ends_with("request canceled (Client.Timeout exceeded while awaiting headers)"),
            "{message}"
        );
    }
}

#[tokio::test]
async fn a_plane_is_deleted_in_spite_of_its_webhooks() {
    let world = World::start().await;
    let (root, plane) = (world.root().await, world.plane("p").await);
    plane.post(MAPS, &map("a")).await.expect(201);
    let all = json!([{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}]);
    let dead = webhook(&json!({"url": "https://203.0.113.1/"}), |hook| hook["rules"] = all);
    validating(&plane, "a", &[dead]).await;
    root.delete(&format!("{PLANES}/p")).await;
    root.until(&format!("{PLANES}/p"), 404).await;
}

#[tokio::test]
async fn a_service_is_where_the_operator_says() {
    let hook = Hook::start(yes).await;
    let mut egress = EgressOptions::default();
    egress
        .services
        .insert("ns/svc:443", &format!("https://{}", hook.addr))
        .unwrap();
    let world = World::calling(Arc::new(MemStore::new()), egress).await;
    let api = world.root().await;
    let mut client = hook.client_config("/");
    client["url"].take();
    let client =
        json!({"service": {"namespace": "ns", "name": "svc", "path": "/check"}, "caBundle": client["caBundle"]});
    validating(&api, "a", &[webhook(&client, |_| {})]).await;
    api.post(MAPS, &map("a")).await.expect(201);
    assert_eq!(hook.seen()[0].path(), "/check?timeout=10s");
}

#[tokio::test]
async fn another_server_of_the_same_store_hears_of_a_webhook() {
    let hook = Hook::start(|seen| answer(seen, json!({"allowed": false}))).await;
    let store = Arc::new(MemStore::new());
    let (one, other) = (World::on(store.clone()).await, World::on(store).await);
    let (one, other) = (one.root().await, other.root().await);
    other.post(MAPS, &map("a")).await.expect(201);
    validating(&one, "a", &[webhook(&hook.client_config("/"), |_| {})]).await;
    // It hears by a watch, soon.
    for at in 0.. {
        let answer = other.post(&format!("{MAPS}?dryRun=All"), &map("b")).await;
        if answer.code() == 400 {
            break;
        }
        assert!(at < 10_000, "the other server never hears of it");
        tokio::task::yield_now().await;
    }
}

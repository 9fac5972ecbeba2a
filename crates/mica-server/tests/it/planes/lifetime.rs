//! A plane from its birth to its end: what it costs to make one, what a copy of one shows, what goes on while one goes.

use http::Method;
use mica_store::{Change, KeyRange, Signal};
use serde_json::{Value, json};

use crate::hook::{Answer, Hook};
use crate::world::{MAPS, PLANES, World, held, map, text};

#[tokio::test]
async fn a_plane_is_born_by_a_handful_of_keys_in_one_transaction_and_none_of_its_own() {
    let world = World::start().await;
    let root = world.root().await;
    let before = world.revision().await;
    let created = root.create_plane("p").await;
    let after = world.revision().await;
    let mut changes = world.store.watch(KeyRange::All, before).await.unwrap();
    let mut written = Vec::new();
    while written.last().is_none_or(|(_, revision)| *revision < after) {
        match changes.next().await.unwrap() {
            Signal::Event(event) => {
                assert!(matches!(event.change, Change::Put(_)), "nothing is deleted");
                written.push((event.key.clone(), event.revision));
            }
            Signal::Dropped(..) => panic!("nothing is dropped"),
        }
    }
    // The Plane, its birth and its state.
    assert_eq!(written.len(), 3, "{written:?}");
    let id = mica_api::PlaneId::parse(text(&created, "/status/id")).unwrap();
    assert!(written.iter().all(|(key, _)| key.plane() == mica_api::PlaneId::ROOT));
    assert_eq!(world.store.usage(&KeyRange::Plane(id)).await.unwrap().records, 0);
    // It is whole all the same, and stays without keys until somebody writes.
    let api = root.at_plane("p");
    api.get("/api/v1/namespaces/kube-system").await.expect(200);
    api.get(&format!("{MAPS}/kube-root-ca.crt")).await.expect(200);
    api.get("/apis/rbac.authorization.k8s.io/v1/clusterroles/cluster-admin")
        .await
        .expect(200);
    assert_eq!(world.store.usage(&KeyRange::Plane(id)).await.unwrap().records, 0);
    api.post(MAPS, &map("a")).await.expect(201);
    assert_eq!(world.store.usage(&KeyRange::Plane(id)).await.unwrap().records, 1);
}

/// What two objects at the two ends of a plane hold. Writers change the first, then the last.
async fn ends(world: &World, plane: &str) -> (u64, u64) {
    let api = world.root().await.at_plane(plane);
    let mut numbers = Vec::new();
    for name in ["a", "z"] {
        let object = api.get(&format!("{MAPS}/{name}")).await.expect(200);
        numbers.push(text(&object, "/data/n").parse().unwrap());
    }
    (numbers[0], numbers[1])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn snapshots_and_forks_are_of_one_moment_however_much_is_written() {
    let world = World::start().await;
    let (api, root) = (world.plane("p").await, world.root().await);
    // More than is read at once lies between the two.
    let names = (0..1200)
        .map(|i| format!("m{i:04}"))
        .chain(["a".to_owned(), "z".to_owned()]);
    let fill = names.map(|name| {
        let api = api.clone();
        let mut object = map(&name);
        object["data"] = json!({"n": "0"});
        async move { api.post(MAPS, &object).await.code() }
    });
    let filled: Vec<u16> =
        futures::StreamExt::collect(futures::StreamExt::buffer_unordered(futures::stream::iter(fill), 32)).await;
    assert!(filled.iter().all(|code| *code == 201));
    let stop = tokio_util::sync::CancellationToken::new();
    let (writing, stopped) = (api.clone(), stop.clone());
    let writer = tokio::spawn(async move {
        let mut round = 0_u64;
        while !stopped.is_cancelled() {
            round += 1;
            for name in ["a", "z"] {
                let change = json!({"data": {"n": round.to_string()}});
                writing.patch(&format!("{MAPS}/{name}"), &change).await.expect(200);
            }
        }
        round
    });
    for copy in 0..4 {
        let before = ends(&world, "p").await;
        let (snapshot, fork) = (format!("s{copy}"), format!("f{copy}"));
        let taken = root.get(&format!("{PLANES}/p/snapshot")).await;
        assert_eq!(taken.code(), 200);
        let restore = format!("{PLANES}/{snapshot}/restore");
        root.call(Method::POST, &restore, &[], taken.body.clone())
            .await
            .expect(201);
        root.post(&format!("{PLANES}/p/fork"), &json!({"name": fork}))
            .await
            .expect(201);
        for plane in [snapshot, fork] {
            let (first, last) = ends(&world, &plane).await;
            assert!(
                first == last || first == last + 1,
                "{plane}: {first} and {last} were never there together"
            );
            assert!(last >= before.1, "{plane}: what was there before is there");
        }
    }
    stop.cancel();
    assert!(writer.await.unwrap() > 4, "writing went on meanwhile");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plane_that_goes_takes_what_its_controllers_need_and_asks_no_webhook_of_its_own() {
    let world = World::start().await;
    let (api, root) = (world.plane("p").await, world.root().await);
    let hook = Hook::start(|_| Answer::Hang(Vec::new())).await;
    api.post(MAPS, &held("a", "example.com/hold")).await.expect(201);
    let rule = json!({"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"]});
    for (kind, plural) in [
        ("ValidatingWebhookConfiguration", "validatingwebhookconfigurations"),
        ("MutatingWebhookConfiguration", "mutatingwebhookconfigurations"),
    ] {
        let webhook = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": "w"},
            "webhooks": [{"name": "w.example.com", "rules": [rule], "clientConfig": hook.client_config("/x"),
                "sideEffects": "None", "admissionReviewVersions": ["v1"], "failurePolicy": "Fail"}]});
        api.post(&format!("/apis/admissionregistration.k8s.io/v1/{plural}"), &webhook)
            .await
            .expect(201);
    }
    root.delete(&format!("{PLANES}/p")).await.expect(200);
    let refused = api.post(MAPS, &map("b")).await;
    assert_eq!(
        (refused.code(), text(&refused.json(), "/reason")),
        (403, "PlaneDraining")
    );
    let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "involvedObject": {"namespace": "default"}});
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"}, "spec": {}});
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}});
    let welcome: [(&str, &Value); 3] = [
        ("/api/v1/namespaces/default/events", &event),
        ("/apis/coordination.k8s.io/v1/namespaces/default/leases", &lease),
        ("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &review),
    ];
    for (path, object) in welcome {
        let answer = api.post(path, object).await;
        assert_eq!(answer.code(), 201, "{path}: {}", answer.json());
    }
    api.patch(&format!("{MAPS}/a"), &json!({"metadata": {"finalizers": null}}))
        .await
        .expect(200);
    root.until(&format!("{PLANES}/p"), 404).await;
    assert_eq!(hook.seen().len(), 0);
    world.stop().await;
}

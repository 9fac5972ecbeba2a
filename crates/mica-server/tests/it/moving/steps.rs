//! A whole move, step by step, and each step again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mica_store::MemStore;
use serde_json::json;

use super::super::world::{MAPS, PLANES, World, map, names, revision_of, text};
use super::{Move, content, furnish, reached};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_moved_plane_is_the_same_with_uids_and_versions() {
    let moving = Move::start().await;
    let here = moving.here();
    furnish(&here).await;
    let copied = moving.copy().await;
    here.patch(&format!("{MAPS}/m1"), &json!({"data": {"k": "2"}}))
        .await
        .expect(200);
    here.delete(&format!("{MAPS}/m2")).await.expect(200);
    here.post(MAPS, &map("m2")).await.expect(201);
    here.delete(&format!("{MAPS}/m3")).await.expect(200);
    let caught_up = moving.catch_up(copied).await;
    here.post(MAPS, &map("late")).await.expect(201);
    here.delete("/api/v1/namespaces/kube-system/configmaps/kube-root-ca.crt")
        .await
        .expect(200);
    let before = content(&here).await;
    moving.finish(caught_up).await;
    let there = moving.there();
    assert_eq!(content(&there).await, before);
    // A version that was read from the old server is good for a write, once.
    let mut object = here.get(&format!("{MAPS}/m1")).await.expect(200);
    object["data"]["k"] = "3".into();
    let written = there.put(&format!("{MAPS}/m1"), &object).await.expect(200);
    assert!(revision_of(&written) > moving.old.revision().await.0);
    assert_eq!(there.put(&format!("{MAPS}/m1"), &object).await.code(), 409);
    // Over all planes objects are shown in the order of the store; that version is as good.
    let everywhere = moving.to.at("/clusters/*/control-plane");
    let list = everywhere
        .get("/api/v1/namespaces/default/configmaps?fieldSelector=metadata.name=m4")
        .await
        .expect(200);
    let mut other = list["items"][0].clone();
    let shown = there.get(&format!("{MAPS}/m4")).await.expect(200);
    assert!(revision_of(&other) > revision_of(&shown) && revision_of(&other) < revision_of(&written));
    other["data"]["k"] = "4".into();
    there.put(&format!("{MAPS}/m4"), &other).await.expect(200);
    // What is owned is known to be.
    let usage = moving.to.get(&format!("{PLANES}/p")).await.expect(200);
    assert_eq!(text(&usage, "/status/phase"), "Ready");
    moving.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_acknowledged_write_is_lost_while_a_plane_moves() {
    let moving = Move::start().await;
    furnish(&moving.here()).await;
    let (switched, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (here, there) = (moving.here(), moving.there());
    let writer = {
        let (switched, done, here, there) = (switched.clone(), done.clone(), here.clone(), there.clone());
        tokio::spawn(async move {
            let (mut acknowledged, mut waited) = (Vec::new(), 0);
            let mut after = 0;
            while !done.load(Ordering::Acquire) || after < 5 {
                let name = format!("w{}", acknowledged.len());
                let side = match switched.load(Ordering::Acquire) {
                    true => &there,
                    false => &here,
                };
                let answer = side.post(MAPS, &map(&name)).await;
                match answer.code() {
                    201 => {
                        after += usize::from(done.load(Ordering::Acquire));
                        acknowledged.push((name, text(&answer.json(), "/metadata/uid").to_owned()));
                    }
                    429 => {
                        assert_eq!(answer.header("retry-after"), "1");
                        assert_eq!(text(&answer.json(), "/reason"), "PlaneMoving");
                        waited += 1;
                        tokio::task::yield_now().await;
                    }
                    other => panic!("{other}: {}", answer.json()),
                }
            }
            (acknowledged, waited)
        })
    };
    let mut at = moving.copy().await;
    for _ in 0..3 {
        at = moving.catch_up(at).await;
    }
    moving.state("Moving").await.expect(200);
    // Reads go on meanwhile.
    here.get(MAPS).await.expect(200);
    moving.catch_up(at).await;
    let (old, new) = moving.digests().await;
    assert_eq!(old, new);
    moving.open().await.expect(201);
    switched.store(true, Ordering::Release);
    done.store(true, Ordering::Release);
    let (acknowledged, _) = writer.await.unwrap();
    assert!(acknowledged.len() > 5);
    for (name, uid) in acknowledged {
        let found = there.get(&format!("{MAPS}/{name}")).await.expect(200);
        assert_eq!(text(&found, "/metadata/uid"), uid);
    }
    moving.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_fence_holds_on_every_server_of_the_store() {
    let store = Arc::new(MemStore::new());
    let (one, other) = (World::on(store.clone()).await, World::on(store).await);
    let (root, api) = (one.root().await, other.root().await.at_plane("p"));
    root.create_plane("p").await;
    for _ in 0..10 {
        api.post(MAPS, &map("a")).await.expect(201);
        root.patch(&format!("{PLANES}/p"), &json!({"spec": {"state": "Moving"}}))
            .await
            .expect(200);
        assert_eq!(api.post(MAPS, &map("b")).await.code(), 429);
        assert_eq!(api.delete(&format!("{MAPS}/a")).await.code(), 429);
        root.patch(&format!("{PLANES}/p"), &json!({"spec": {"state": "Active"}}))
            .await
            .expect(200);
        api.delete(&format!("{MAPS}/a")).await.expect(200);
    }
    one.stop().await;
    other.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_step_can_be_done_again() {
    let moving = Move::start().await;
    let here = moving.here();
    furnish(&here).await;
    let whole = moving.taken("revisions=true").await;
    let copied = reached(&moving.arrive(whole.clone()).await.expect(200));
    // Again, as after a crash: whatever the first brought is replaced.
    assert_eq!(reached(&moving.arrive(whole).await.expect(200)), copied);
    here.post(MAPS, &map("new")).await.expect(201);
    here.delete(&format!("{MAPS}/m5")).await.expect(200);
    let changes = moving.taken(&format!("since={copied}")).await;
    let first = moving.arrive(changes.clone()).await.expect(200);
    assert!(first["received"].as_u64().unwrap() >= 2, "{first}");
    let again = moving.arrive(changes).await.expect(200);
    assert_eq!((reached(&again), &again["received"]), (reached(&first), &json!(0)));
    // Changes that overlap what is there are taken from where it ends; those that leave a gap are refused.
    here.post(MAPS, &map("newer")).await.expect(201);
    let last = moving.catch_up(copied).await;
    here.post(MAPS, &map("newest")).await.expect(201);
    let gap = moving.old.revision().await.0;
    let refused = moving.arrive(moving.taken(&format!("since={gap}")).await).await;
    assert_eq!(refused.code(), 409, "{}", refused.json());
    assert!(refused.message().contains(&last.to_string()), "{}", refused.message());
    for _ in 0..2 {
        moving.state("Moving").await.expect(200);
    }
    let last = moving.catch_up(last).await;
    moving.catch_up(last).await;
    let (old, new) = moving.digests().await;
    assert_eq!(old, new);
    assert!(old["objects"].as_u64().unwrap() > 30, "{old}");
    let first = moving.open().await.expect(201);
    let opened = moving.open().await.expect(200);
    assert_eq!(text(&opened, "/spec/state"), "Active");
    // Of the Plane: a server that started a moment ago may write something else meanwhile.
    assert_eq!(opened["metadata"], first["metadata"], "nothing is written again");
    let refused = moving.arrive(moving.taken("revisions=true").await).await;
    assert_eq!(refused.code(), 409);
    assert_eq!(content(&moving.there()).await, content(&here).await);
    moving.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forgotten_changes_need_a_whole_copy_again() {
    let moving = Move::start().await;
    let here = moving.here();
    furnish(&here).await;
    let copied = moving.copy().await;
    here.delete(&format!("{MAPS}/m7")).await.expect(200);
    here.post(MAPS, &map("new")).await.expect(201);
    let now = moving.old.revision().await;
    moving.old.store.compact(now).await.unwrap();
    let gone = moving.from.get(&format!("{PLANES}/p/snapshot?since={copied}")).await;
    assert_eq!(
        (gone.code(), text(&gone.json(), "/reason").to_owned()),
        (410, "Expired".to_owned())
    );
    let copied = moving.copy().await;
    moving.finish(copied).await;
    let list = moving.there().get(MAPS).await.expect(200);
    assert!(names(&list).contains(&"new") && !names(&list).contains(&"m7"));
    moving.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plane_that_came_can_go_on() {
    let moving = Move::start().await;
    furnish(&moving.here()).await;
    let copied = moving.copy().await;
    moving.finish(copied).await;
    let there = moving.there();
    there.post(MAPS, &map("made-there")).await.expect(201);
    // Back to where it was: the old plane is gone from there, and arrives anew.
    let patch = |state: &str| json!({"spec": {"state": state, "movedTo": {"server": "https://localhost:1/x"}}});
    let path = format!("{PLANES}/p");
    moving.from.patch(&path, &patch("Moved")).await.expect(200);
    let arriving = json!({"spec": {"state": "Arriving", "movedTo": null}});
    moving.from.patch(&path, &arriving).await.expect(200);
    let snapshot = moving.to.get(&format!("{path}/snapshot?revisions=true")).await;
    let arrive = |body| {
        moving
            .from
            .call(http::Method::POST, "/apis/mica.dev/v1alpha1/planes/p/arrive", &[], body)
    };
    let copied = reached(&arrive(snapshot.body).await.expect(200));
    there.delete(&format!("{MAPS}/m1")).await.expect(200);
    moving
        .to
        .patch(&path, &json!({"spec": {"state": "Moving"}}))
        .await
        .expect(200);
    let changes = moving.to.get(&format!("{path}/snapshot?since={copied}")).await;
    arrive(changes.body).await.expect(200);
    let (old, new) = moving.digests().await;
    assert_eq!(old, new);
    moving.from.post(&format!("{path}/open"), &json!({})).await.expect(201);
    assert_eq!(content(&moving.here()).await, content(&there).await);
    moving.here().post(MAPS, &map("home")).await.expect(201);
    moving.stop().await;
}

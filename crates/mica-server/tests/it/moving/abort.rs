//! Giving a move up, and what a plane may be when.

use serde_json::json;

use super::super::world::{MAPS, PLANES, World, held, map, plane, text};
use super::{Move, furnish};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_can_be_given_up_before_the_switch() {
    let moving = Move::start().await;
    let here = moving.here();
    furnish(&here).await;
    // Finalizers must not hold what was never open.
    here.post(MAPS, &held("held", "example.com/hold")).await.expect(201);
    let copied = moving.copy().await;
    moving.state("Moving").await.expect(200);
    moving.catch_up(copied).await;
    assert_eq!(here.post(MAPS, &map("a")).await.code(), 429);
    moving.state("Active").await.expect(200);
    here.post(MAPS, &map("a")).await.expect(201);
    let waiting = moving.there().get(MAPS).await;
    assert_eq!(
        (
            waiting.code(),
            waiting.header("retry-after"),
            text(&waiting.json(), "/reason")
        ),
        (503, "1", "PlaneArriving")
    );
    moving.to.delete(&format!("{PLANES}/p")).await.expect(200);
    moving.to.until(&format!("{PLANES}/p"), 404).await;
    // Nothing of it is left.
    let left = moving
        .new
        .store
        .usage(&mica_store::KeyRange::All)
        .await
        .unwrap()
        .records;
    moving.to.create_plane("q").await;
    moving.to.delete(&format!("{PLANES}/q")).await.expect(200);
    moving.to.until(&format!("{PLANES}/q"), 404).await;
    let then = moving
        .new
        .store
        .usage(&mica_store::KeyRange::All)
        .await
        .unwrap()
        .records;
    assert!(
        then <= left + 1,
        "{left} records were left, and {then} after another plane"
    );
    moving.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_states_of_a_move_follow_each_other() {
    let world = World::start().await;
    let root = world.root().await;
    let path = format!("{PLANES}/p");
    for state in ["Moving", "Moved", "Going"] {
        let mut made = plane("p");
        made["spec"] = json!({"state": state, "movedTo": {"server": "https://localhost:1/x"}});
        assert_eq!(root.post(PLANES, &made).await.code(), 422, "{state}");
    }
    root.create_plane("p").await;
    let to = json!({"server": "https://localhost:1/x"});
    let patch = |state: &str, to: &serde_json::Value| json!({"spec": {"state": state, "movedTo": to}});
    let none = json!(null);
    for (state, to, code) in [
        ("Moved", &to, 422),
        ("Arriving", &none, 422),
        ("Active", &to, 422),
        ("Moving", &none, 200),
        ("Arriving", &none, 422),
        ("Moved", &none, 422),
        ("Moved", &json!({"server": "http://localhost/x"}), 422),
        (
            "Moved",
            &json!({"server": "https://localhost/x", "requests": "Lose"}),
            422,
        ),
        ("Suspended", &none, 200),
        ("Moving", &to, 200),
        ("Moved", &to, 200),
        ("Active", &none, 422),
        ("Moving", &to, 422),
        ("Arriving", &none, 200),
        ("Active", &none, 422),
    ] {
        let answer = root.patch(&path, &patch(state, to)).await;
        assert_eq!(answer.code(), code, "{state}: {}", answer.json());
    }
    let refused = root.post(&format!("{path}/open"), &json!({})).await;
    assert_eq!(refused.code(), 409, "{}", refused.json());
    world.stop().await;
}

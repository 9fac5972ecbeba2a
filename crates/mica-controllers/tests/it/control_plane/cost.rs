//! What control planes cost when nothing happens, and what one costs among many.

use mica_controllers::{Api, control_plane::Home};

use super::*;
use crate::world::Asked;

/// Control planes beside the one that changes.
const MANY: usize = 25;
/// What a look costs, with another for what the first one changed.
const MOST: usize = 60;

#[tokio::test]
async fn at_rest_nothing_is_asked_and_a_change_of_one_looks_at_no_other() {
    let server = server().await;
    let asked = Asked::default();
    let client = asked.count(world::inside(&server));
    let settings = Settings::new(Home {
        api: Api::new(client.clone()),
        ..world::home(&server)
    });
    let world = World::with_client(server, client, &["control-plane"], settings).await;
    let root = world.root();
    make(
        &root,
        CLASSES,
        "ControlPlaneClass",
        "c",
        json!({"services": ["controllers"]}),
    )
    .await;
    for i in 0..MANY {
        control_plane(&root, &format!("many-{i}"), json!({"classRef": {"name": "c"}})).await;
    }
    control_plane(&root, "one", json!({"classRef": {"name": "c"}})).await;
    for i in 0..MANY {
        until_ready(&root, &format!("many-{i}")).await;
    }
    until_ready(&root, "one").await;
    asked.until_quiet().await;
    println!("{} requests for {} control planes", asked.len(), MANY + 1);

    // Whatever a busy machine put off until now is not this change's: then it is tried again.
    let mut last = Vec::new();
    for policy in ["Destroy", "Retain", "Destroy", "Retain", "Destroy"] {
        let before = asked.len();
        root.patch(
            &format!("{CONTROL_PLANES}/one"),
            json!({"spec": {"deletionPolicy": policy}}),
        )
        .await;
        until_ready(&root, "one").await;
        asked.until_quiet().await;
        last = asked.since(before);
        let of_others = |path: &String| path.contains("many-") || path.contains("/controlplanes?");
        if !last.iter().any(of_others) && last.len() <= MOST {
            return;
        }
    }
    panic!("{} requests for one change: {last:?}", last.len());
}

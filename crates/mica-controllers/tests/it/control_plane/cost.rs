//! What control planes cost when nothing happens, and what one costs among many.

use std::time::{Duration, Instant};

use mica_controllers::{Api, control_plane::Home};

use super::*;
use crate::world::Asked;

/// Control planes beside the one that changes.
const MANY: usize = 25;
/// How long nothing must be asked for it to be quiet: longer than anything is put off.
const QUIET: Duration = Duration::from_secs(3);
const PATIENCE: Duration = Duration::from_secs(120);
/// What a look costs, with another for what the first one changed.
const MOST: usize = 60;

/// Waits until nothing has been asked for a while.
async fn until_quiet(asked: &Asked) {
    let begin = Instant::now();
    let (mut known, mut since) = (asked.len(), Instant::now());
    while since.elapsed() < QUIET {
        assert!(begin.elapsed() < PATIENCE, "it does not end: {:?}", asked.last(20));
        tokio::time::sleep(Duration::from_millis(50)).await;
        if asked.len() != known {
            (known, since) = (asked.len(), Instant::now());
        }
    }
}

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
    until_quiet(&asked).await;
    println!("{} requests for {} control planes", asked.len(), MANY + 1);

    let before = asked.len();
    root.patch(
        &format!("{CONTROL_PLANES}/one"),
        json!({"spec": {"deletionPolicy": "Destroy"}}),
    )
    .await;
    until_ready(&root, "one").await;
    until_quiet(&asked).await;
    let since = asked.since(before);
    let others: Vec<&String> = since.iter().filter(|path| path.contains("many-")).collect();
    assert!(others.is_empty(), "{others:?}");
    let lists: Vec<&String> = since.iter().filter(|path| path.contains("/controlplanes?")).collect();
    assert!(lists.is_empty(), "{lists:?}");
    assert!(since.len() <= MOST, "{} requests: {since:?}", since.len());
}

//! What planes cost controllers: two watches for all of them, and work where something happens.

use mica_controllers::control_plane::Settings;
use mica_testkit::TestServer;
use serde_json::json;

use super::world::{self, Asked, World, owner};

/// Planes beside the one in which something happens.
const MANY: usize = 25;

#[tokio::test]
async fn planes_have_no_watch_of_their_own_and_a_change_in_one_asks_nothing_of_the_others() {
    let server = TestServer::start().await;
    let asked = Asked::default();
    let client = asked.count(world::inside(&server));
    let settings = Settings::new(world::home(&server));
    let world = World::with_client(server, client, &["*", "-control-plane"], settings).await;
    for i in 0..MANY {
        let plane = world.plane(&format!("many-{i}")).await;
        plane.namespace("ns").await;
        let account = "/api/v1/namespaces/ns/serviceaccounts/default";
        plane.until(account, "made", |found| found.is_some()).await;
    }
    let one = world.plane("one").await;
    asked.until_quiet().await;
    let before = asked.len();

    // A namespace comes with what it holds, is collected from, and goes.
    one.namespace("ns").await;
    let top = one.map("ns", "top", json!([])).await;
    one.map("ns", "leaf", json!([owner(&top, "ConfigMap")])).await;
    one.delete(&world::map_path("ns", "top")).await;
    one.until_gone(&world::map_path("ns", "leaf")).await;
    one.delete("/api/v1/namespaces/ns").await;
    one.until_gone("/api/v1/namespaces/ns").await;
    asked.until_quiet().await;
    let since = asked.since(before);
    assert!(
        since.iter().any(|request| request.contains("/clusters/one/")),
        "{since:?}"
    );
    let is_watch = |request: &&String| request.contains("watch=");
    let elsewhere: Vec<_> = since
        .iter()
        .filter(|request| !is_watch(request) && !request.contains("/clusters/one/"))
        .collect();
    assert!(elsewhere.is_empty(), "{elsewhere:?}");

    let all = [asked.since(0), since].concat();
    let mut watches: Vec<&str> = all.iter().filter(is_watch).map(|line| path(line)).collect();
    watches.sort_unstable();
    watches.dedup();
    assert_eq!(
        watches,
        [
            "/apis/mica.dev/v1alpha1/objects",
            "/clusters/*/control-plane/apis/mica.dev/v1alpha1/objects"
        ]
    );
}

fn path(request: &str) -> &str {
    let uri = request.split(' ').nth(1).unwrap();
    uri.split('?').next().unwrap()
}

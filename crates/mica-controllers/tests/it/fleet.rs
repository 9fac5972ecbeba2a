//! Controllers for what a fleet engages.

use std::sync::Arc;

use mica_controllers::{Options, Selection, run_fleet};
use mica_runtime::ownership::All;
use mica_runtime::provider::Static;
use mica_runtime::{Access, ClusterName, ClusterSpec, Fleet};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::world::{World, map_path};

#[tokio::test]
async fn what_is_engaged_has_controllers_until_it_is_let_go() {
    let world = World::with(mica_testkit::TestServer::start().await, &["-*"]).await;
    let (served, other) = (world.plane("served").await, world.plane("other").await);
    let url = format!("{}/clusters/served/control-plane", world.server.url());
    let kubeconfig = world.server.kubeconfig_for(&url, world.server.admin());
    let access = Access::from_kubeconfig_yaml(&kubeconfig).unwrap();
    let fleet = Fleet::new(Arc::new(All::new()));
    let spec = ClusterSpec::new(ClusterName::new("served"), access);
    fleet.add(Static::new([spec]).named("fixed")).unwrap();
    let options = Options {
        controllers: Selection::default(),
        root_ca: None,
        control_planes: None,
    };
    let (stop, running) = (CancellationToken::new(), fleet.clone());
    let ended = tokio::spawn({
        let stop = stop.clone();
        async move { run_fleet(&running, options, stop).await }
    });
    for place in [&served, &other] {
        place.namespace("ns").await;
        place.map("ns", "m", json!([])).await;
        place.delete("/api/v1/namespaces/ns").await;
    }
    served.until_gone("/api/v1/namespaces/ns").await;
    assert!(other.get(&map_path("ns", "m")).await.is_some(), "nobody engaged it");
    fleet.remove("fixed");
    stop.cancel();
    ended.await.unwrap();
}

//! The examples, as they are, against a server with dozens of planes.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, Event, Namespace};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, Client, CustomResourceExt as _, ResourceExt as _};
use mica_runtime::conditions::{READY, Status, check, find, status};
use mica_runtime::provider::Planes;
use mica_runtime::{Access, Manager};
use mica_testkit::ControlPlanes;
use serde_json::json;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::wait::{PATIENCE, eventually};

#[path = "../../examples/cross_sync.rs"]
#[allow(dead_code, reason = "only its main function is")]
mod cross_sync;
#[path = "../../examples/hello_fleet.rs"]
#[allow(dead_code, reason = "only its main function is")]
mod hello_fleet;
#[path = "../../examples/policy.rs"]
#[allow(dead_code, reason = "only its main function is")]
mod policy;
#[path = "../../examples/whole.rs"]
#[allow(dead_code, reason = "only its main function is")]
mod whole;

use whole::{Website, WebsiteSpec};

const PLANES: usize = 200;

/// A manager over all planes of a server.
struct Fleet {
    planes: ControlPlanes,
    manager: Manager,
    stop: CancellationToken,
}

impl Fleet {
    async fn new() -> Self {
        let planes = ControlPlanes::new(PLANES).await;
        let server = Access::from_kubeconfig_yaml(&planes.server().kubeconfig()).unwrap();
        let manager = Manager::builder(server.clone()).provider(Planes::new(server));
        Self {
            planes,
            manager: manager.build().unwrap(),
            stop: CancellationToken::new(),
        }
    }

    /// Runs the manager until [`Fleet::end`].
    fn run(&self) -> JoinHandle<()> {
        let (manager, stop) = (self.manager.clone(), self.stop.clone());
        tokio::spawn(async move { manager.run_until(stop.cancelled_owned()).await.unwrap() })
    }

    async fn end(self, running: JoinHandle<()>) {
        self.stop.cancel();
        tokio::time::timeout(PATIENCE, running).await.unwrap().unwrap();
    }
}

fn config_map(name: &str, data: &[(&str, &str)]) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.to_owned());
    let data = data.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    map.data = Some(data.collect());
    map
}

#[tokio::test]
async fn hello_fleet_counts_config_maps_in_every_plane() {
    let fleet = Fleet::new().await;
    for (number, name) in fleet.planes.names().iter().enumerate() {
        let maps = Api::<ConfigMap>::default_namespaced(fleet.planes.client(name).await);
        for i in 0..=number % 3 {
            let map = config_map(&format!("m-{i}"), &[]);
            maps.create(&PostParams::default(), &map).await.unwrap();
        }
    }
    hello_fleet::install(&fleet.manager).await.unwrap();
    let running = fleet.run();
    let counts = Api::<ConfigMap>::default_namespaced(fleet.planes.root().await);
    let told = async |wanted: &BTreeMap<String, String>| {
        eventually(async || {
            let counts = counts.get(hello_fleet::COUNTS).await.unwrap().data.unwrap_or_default();
            (counts == *wanted).then_some(())
        })
        .await;
    };
    let names = fleet.planes.names().iter().enumerate();
    let mut wanted: BTreeMap<_, _> = names.map(|(n, name)| (name.clone(), (n % 3 + 1).to_string())).collect();
    told(&wanted).await;
    let maps = Api::<ConfigMap>::default_namespaced(fleet.planes.client("plane-5").await);
    maps.delete("m-0", &DeleteParams::default()).await.unwrap();
    wanted.insert("plane-5".to_owned(), "2".to_owned());
    told(&wanted).await;
    fleet.end(running).await;
}

#[tokio::test]
async fn cross_sync_copies_between_planes_and_takes_the_copy_away() {
    let fleet = Fleet::new().await;
    cross_sync::install(&fleet.manager).unwrap();
    let running = fleet.run();
    let maps = async |plane: &str| Api::<ConfigMap>::default_namespaced(fleet.planes.client(plane).await);
    let (from, to) = (maps("plane-3").await, maps("plane-31").await);
    let mut source = config_map("shared", &[("k", "1")]);
    source
        .labels_mut()
        .insert(cross_sync::COPY_TO.to_owned(), "plane-31".to_owned());
    from.create(&PostParams::default(), &source).await.unwrap();
    let shows = async |value: &str| {
        eventually(async || {
            let copy = to.get_opt("shared").await.unwrap()?;
            (copy.data?.get("k")? == value).then_some(())
        })
        .await;
    };
    shows("1").await;
    let patch = json!({"data": {"k": "2"}});
    from.patch("shared", &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .unwrap();
    shows("2").await;
    from.delete("shared", &DeleteParams::default()).await.unwrap();
    eventually(async || from.get_opt("shared").await.unwrap().is_none().then_some(())).await;
    assert!(to.get_opt("shared").await.unwrap().is_none(), "the copy goes first");
    fleet.end(running).await;
}

#[tokio::test]
async fn policy_labels_namespaces_in_every_plane_and_puts_labels_back() {
    let fleet = Fleet::new().await;
    policy::install(&fleet.manager).unwrap();
    let running = fleet.run();
    for name in fleet.planes.names() {
        let namespaces = Api::<Namespace>::all(fleet.planes.client(name).await);
        let mut namespace = Namespace::default();
        namespace.metadata.name = Some("team".to_owned());
        namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    }
    let labelled = async |plane: &str| {
        let namespaces = Api::<Namespace>::all(fleet.planes.client(plane).await);
        eventually(async || {
            let tier = namespaces
                .get("team")
                .await
                .unwrap()
                .labels()
                .get(policy::TIER)
                .cloned();
            (tier? == "standard").then_some(())
        })
        .await;
    };
    for name in fleet.planes.names() {
        labelled(name).await;
    }
    let namespaces = Api::<Namespace>::all(fleet.planes.client("plane-9").await);
    let patch = json!({"metadata": {"labels": {policy::TIER: "mine"}}});
    namespaces
        .patch("team", &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .unwrap();
    labelled("plane-9").await;
    fleet.end(running).await;
}

async fn define(client: Client) {
    let definitions = Api::<CustomResourceDefinition>::all(client);
    let name = Website::crd_name();
    let params = PatchParams::apply("test").force();
    definitions
        .patch(name, &params, &Patch::Apply(Website::crd()))
        .await
        .unwrap();
    await_condition(definitions, name, conditions::is_crd_established())
        .await
        .unwrap();
}

#[tokio::test]
async fn the_whole_pattern_publishes_tells_and_cleans_up() {
    let fleet = Fleet::new().await;
    for name in fleet.planes.names() {
        define(fleet.planes.client(name).await).await;
    }
    whole::install(&fleet.manager).unwrap();
    let running = fleet.run();
    let client = fleet.planes.client("plane-8").await;
    let websites = Api::<Website>::default_namespaced(client.clone());
    let spec = |title: &str| WebsiteSpec {
        title: title.to_owned(),
    };
    websites
        .create(&PostParams::default(), &Website::new("home", spec("")))
        .await
        .unwrap();
    let stands = async |wanted: Status, reason: &str| {
        eventually(async || {
            let website = websites.get("home").await.unwrap();
            let conditions = website.status?.conditions;
            check(&conditions).unwrap();
            let same = status(&conditions, READY) == wanted && find(&conditions, READY)?.reason == reason;
            assert!(find(&conditions, READY)?.observed_generation.is_some());
            same.then_some(())
        })
        .await;
    };
    stands(Status::False, "NoTitle").await;
    let patch = json!({"spec": {"title": "Home"}});
    websites
        .patch("home", &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .unwrap();
    stands(Status::True, "Published").await;
    let pages = Api::<ConfigMap>::default_namespaced(client.clone());
    let page = pages.get("home").await.unwrap();
    assert_eq!(page.owner_references()[0].kind, "Website");
    assert_eq!(page.data.unwrap()["index.html"], "<h1>Home</h1>");
    // What it owns is put back.
    pages.delete("home", &DeleteParams::default()).await.unwrap();
    eventually(async || pages.get_opt("home").await.unwrap()).await;
    let events = Api::<Event>::default_namespaced(client);
    eventually(async || {
        let about = ListParams::default().fields("involvedObject.kind=Website");
        let events = events.list(&about).await.unwrap().items;
        let published = events
            .iter()
            .find(|event| event.reason.as_deref() == Some("Published"))?;
        (published.involved_object.name.as_deref() == Some("home")).then_some(())
    })
    .await;
    let entries = Api::<ConfigMap>::default_namespaced(fleet.planes.root().await);
    assert!(entries.get_opt("website-plane-8-home").await.unwrap().is_some());
    websites.delete("home", &DeleteParams::default()).await.unwrap();
    eventually(async || websites.get_opt("home").await.unwrap().is_none().then_some(())).await;
    assert!(entries.get_opt("website-plane-8-home").await.unwrap().is_none());
    fleet.end(running).await;
}

//! What a controller written with kube-rs does: typed and dynamic clients, watchers, apply, status, finalizers.

use std::collections::BTreeMap;

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::runtime::wait::{await_condition, conditions};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, CustomResource, CustomResourceExt as _, ResourceExt as _, discovery};
use mica_testkit::TestServer;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// Something to be greeted.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "example.com",
    version = "v1",
    kind = "Greeting",
    namespaced,
    status = "GreetingStatus"
)]
struct GreetingSpec {
    #[schemars(length(min = 1))]
    whom: String,
    #[serde(default)]
    times: u32,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
struct GreetingStatus {
    said: String,
}

async fn defined(client: &Client) -> Api<Greeting> {
    let definitions = Api::<CustomResourceDefinition>::all(client.clone());
    let apply = PatchParams::apply("test").force();
    let name = Greeting::crd_name();
    definitions
        .patch(name, &apply, &Patch::Apply(Greeting::crd()))
        .await
        .unwrap();
    await_condition(definitions, name, conditions::is_crd_established())
        .await
        .unwrap();
    Api::default_namespaced(client.clone())
}

fn greeting(name: &str, whom: &str) -> Greeting {
    let spec = GreetingSpec {
        whom: whom.to_owned(),
        times: 1,
    };
    Greeting::new(name, spec)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_custom_kind_is_written_read_and_refused() {
    let server = TestServer::start().await;
    let plane = server.plane("p").await;
    let greetings = defined(&plane.client().await).await;
    let made = greetings
        .create(&PostParams::default(), &greeting("a", "world"))
        .await
        .unwrap();
    assert_eq!((made.spec.whom.as_str(), made.metadata.generation), ("world", Some(1)));
    let refused = greetings.create(&PostParams::default(), &greeting("b", "")).await;
    let Err(kube::Error::Api(status)) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!((status.code, status.reason.as_str()), (422, "Invalid"));
    assert!(status.message.contains("spec.whom"), "{}", status.message);

    let status = json!({"status": {"said": "hello"}});
    let merge = PatchParams::default();
    let changed = greetings
        .patch_status("a", &merge, &Patch::Merge(status))
        .await
        .unwrap();
    assert_eq!(changed.status.unwrap().said, "hello");
    assert_eq!(changed.metadata.generation, Some(1), "status is no new generation");
    let mut stale = made.clone();
    stale.spec.times = 7;
    let conflict = greetings.replace("a", &PostParams::default(), &stale).await;
    assert!(matches!(conflict, Err(kube::Error::Api(status)) if status.code == 409));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dynamic_client_finds_kinds_by_discovery() {
    let server = TestServer::start().await;
    let client = server.plane("p").await.client().await;
    let greetings = defined(&client).await;
    greetings
        .create(&PostParams::default(), &greeting("a", "world"))
        .await
        .unwrap();
    let kind = GroupVersionKind::gvk("example.com", "v1", "Greeting");
    let (resource, capabilities) = discovery::pinned_kind(&client, &kind).await.unwrap();
    assert_eq!(resource.plural, "greetings");
    assert!(capabilities.supports_operation(discovery::verbs::WATCH));
    let dynamic = Api::<DynamicObject>::default_namespaced_with(client.clone(), &resource);
    let listed = dynamic.list(&ListParams::default()).await.unwrap();
    assert_eq!(listed.items[0].data["spec"]["whom"], "world");
    let all = discovery::Discovery::new(client).run_aggregated().await.unwrap();
    let groups: Vec<&str> = all.groups().map(discovery::ApiGroup::name).collect();
    assert!(
        groups.contains(&"apps") && groups.contains(&"example.com"),
        "{groups:?}"
    );
}

/// Both ways in which a watcher learns what there is.
#[tokio::test(flavor = "multi_thread")]
async fn a_watcher_sees_what_is_and_what_comes() {
    let server = TestServer::start().await;
    let client = server.plane("p").await.client().await;
    let maps = Api::<ConfigMap>::namespaced(client, "default");
    let labels = BTreeMap::from([("of".to_owned(), "test".to_owned())]);
    let map = |name: &str| {
        let mut map = ConfigMap::default();
        map.metadata.name = Some(name.to_owned());
        map.metadata.labels = Some(labels.clone());
        map
    };
    let post = PostParams::default();
    maps.create(&post, &map("first")).await.unwrap();
    let listing = watcher::Config::default().labels("of=test");
    let streaming = listing.clone().streaming_lists();
    for (round, config) in [listing, streaming].into_iter().enumerate() {
        let mut seen = Box::pin(watcher(maps.clone(), config).applied_objects());
        assert_eq!(seen.try_next().await.unwrap().unwrap().name_any(), "first");
        if round == 1 {
            assert_eq!(seen.try_next().await.unwrap().unwrap().name_any(), "later-0");
        }
        let name = format!("later-{round}");
        maps.create(&post, &map(&name)).await.unwrap();
        assert_eq!(seen.next().await.unwrap().unwrap().name_any(), name);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn appliers_share_an_object_and_learn_of_conflicts() {
    let server = TestServer::start().await;
    let client = server.plane("p").await.client().await;
    let deployments = Api::<Deployment>::default_namespaced(client);
    let deployment = |replicas: u32| {
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
            "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "d"}},
                "template": {"metadata": {"labels": {"app": "d"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}})
    };
    let one = PatchParams::apply("one");
    let made = deployments
        .patch("d", &one, &Patch::Apply(deployment(1)))
        .await
        .unwrap();
    let again = deployments
        .patch("d", &one, &Patch::Apply(deployment(1)))
        .await
        .unwrap();
    assert_eq!(made.resource_version(), again.resource_version(), "nothing to do");
    let other = PatchParams::apply("other");
    let refused = deployments.patch("d", &other, &Patch::Apply(deployment(2))).await;
    let Err(kube::Error::Api(status)) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!((status.code, status.reason.as_str()), (409, "Conflict"));
    assert!(status.message.contains("conflict with \"one\""), "{}", status.message);
    let forced = deployments
        .patch("d", &other.force(), &Patch::Apply(deployment(2)))
        .await
        .unwrap();
    assert_eq!(forced.spec.unwrap().replicas, Some(2));
    let scale = deployments.get_scale("d").await.unwrap();
    assert_eq!(scale.spec.unwrap().replicas, Some(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_finalizer_holds_goes_when_it_lets_go() {
    let server = TestServer::start().await;
    let client = server.plane("p").await.client().await;
    let greetings = defined(&client).await;
    let mut held = greeting("held", "world");
    held.finalizers_mut().push("example.com/hold".to_owned());
    let made = greetings.create(&PostParams::default(), &held).await.unwrap();
    let deleted = greetings.delete("held", &DeleteParams::default()).await.unwrap();
    assert!(deleted.left().unwrap().metadata.deletion_timestamp.is_some());
    let free = json!({"metadata": {"finalizers": null}});
    greetings
        .patch("held", &PatchParams::default(), &Patch::Merge(free))
        .await
        .unwrap();
    let uid = made.uid().unwrap();
    await_condition(greetings, "held", conditions::is_deleted(&uid))
        .await
        .unwrap();
}

//! Servers, planes, users and kubectl.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use kube::api::{ListParams, PostParams};
use kube::{Api, ResourceExt as _};
use mica_testkit::{Companions, ControlPlanes, Profile, TestServer};

fn map(name: &str) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.to_owned());
    map
}

#[tokio::test]
async fn planes_of_one_server_see_nothing_of_each_other() {
    let server = TestServer::start().await;
    let (a, b) = (server.plane("a").await, server.plane("b").await);
    let maps = |client| Api::<ConfigMap>::namespaced(client, "default");
    let (in_a, in_b) = (maps(a.client().await), maps(b.client().await));
    in_a.create(&PostParams::default(), &map("m")).await.unwrap();
    assert!(in_a.get_opt("m").await.unwrap().is_some());
    assert!(in_b.get_opt("m").await.unwrap().is_none());
    assert!(maps(server.client().await).get_opt("m").await.unwrap().is_none());
    assert!(a.url().ends_with("/clusters/a/control-plane"), "{}", a.url());
}

#[tokio::test]
async fn many_planes_are_made_at_once_and_more_come_and_go() {
    let planes = ControlPlanes::new(20).await;
    assert_eq!(planes.names().len(), 20);
    for name in [planes.names().first(), planes.names().last()].into_iter().flatten() {
        let maps = Api::<ConfigMap>::default_namespaced(planes.client(name).await);
        maps.create(&PostParams::default(), &map("m")).await.unwrap();
    }
    planes.add("more").await;
    let maps = Api::<ConfigMap>::default_namespaced(planes.client("more").await);
    assert!(maps.get_opt("m").await.unwrap().is_none());
    planes.remove("more").await;
    let refused = maps.create(&PostParams::default(), &map("m")).await;
    assert!(refused.is_err(), "a plane that is being deleted takes nothing");
}

#[tokio::test]
async fn a_plane_has_the_kinds_of_its_profile() {
    let server = TestServer::builder().profile(Profile::Generic).start().await;
    let whole = server.plane_of("whole", Profile::Kubernetes).await;
    let small = server.plane("small").await;
    let list = ListParams::default();
    let deployments = Api::<Deployment>::default_namespaced(whole.client().await);
    assert_eq!(deployments.list(&list).await.unwrap().items.len(), 0);
    let refused = Api::<Deployment>::default_namespaced(small.client().await)
        .list(&list)
        .await;
    let Err(kube::Error::Api(status)) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(status.code, 404);
}

#[tokio::test]
async fn others_may_do_what_they_are_allowed_to() {
    let server = TestServer::start().await;
    let plane = server.plane("p").await;
    let ann = server.user("ann", None);
    let client = server.client_for(&plane.url(), &ann).await;
    let refused = Api::<ConfigMap>::default_namespaced(client)
        .list(&ListParams::default())
        .await;
    let Err(kube::Error::Api(status)) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(status.code, 403, "{status:?}");
}

#[tokio::test]
async fn a_store_outlives_its_server_and_what_it_is_born_with_can_be_chosen() {
    let first = TestServer::builder().companions(Companions::Absent).start().await;
    let accounts = Api::<ServiceAccount>::all(first.client().await);
    assert_eq!(accounts.list(&ListParams::default()).await.unwrap().items.len(), 0);
    let maps = Api::<ConfigMap>::default_namespaced(first.client().await);
    let made = maps.create(&PostParams::default(), &map("kept")).await.unwrap();
    let (store, authority) = (first.store().clone(), first.authority().clone());
    first.stop().await;
    let second = TestServer::builder().store(store).authority(authority).start().await;
    let maps = Api::<ConfigMap>::default_namespaced(second.client().await);
    assert_eq!(maps.get("kept").await.unwrap().uid(), made.uid());
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_works_in_a_plane() {
    let server = TestServer::start().await;
    let plane = server.plane("p").await;
    let kubectl = plane.kubectl();
    let manifest = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: m\ndata:\n  k: v\n";
    assert_eq!(kubectl.apply(manifest).await, "configmap/m created\n");
    assert_eq!(kubectl.apply(manifest).await, "configmap/m unchanged\n");
    let value = kubectl
        .run(&["get", "configmap", "m", "-o", "jsonpath={.data.k}"])
        .await;
    assert_eq!(value.good(), "v");
    let missing = server.kubectl().run(&["get", "configmap", "m"]).await;
    assert_eq!(missing.code, Some(1));
    assert!(
        missing.stderr.contains("configmaps \"m\" not found"),
        "{}",
        missing.stderr
    );
}

//! What follows from changes of other objects, here and in other clusters; and what comes from elsewhere.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Api;
use kube::api::{DynamicObject, GroupVersionKind, ObjectMeta, PartialObjectMeta, PostParams};
use kube::core::ApiResource;
use mica_runtime::controller::predicate::{Predicate, labels_changed};
use mica_runtime::controller::{BuildError, Watch};
use mica_runtime::reconcile::{Action, Cx, Reconciler};
use mica_runtime::source::{Object, Select};
use mica_runtime::store::Located;
use mica_runtime::{ClusterName, Request};
use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::stage::{NAMESPACE, Plane, Read, Seen, Stage, Watcher, config_map, eventually, request};

fn secret(name: &str, owner: Option<&ConfigMap>) -> Secret {
    let owner = owner.map(|owner| OwnerReference {
        api_version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
        name: owner.metadata.name.clone().unwrap_or_default(),
        uid: owner.metadata.uid.clone().unwrap_or_default(),
        controller: Some(true),
        ..OwnerReference::default()
    });
    Secret {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            owner_references: owner.map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        ..Secret::default()
    }
}

async fn create_secret(plane: &Plane, secret: &Secret) {
    let secrets: Api<Secret> = Api::namespaced(plane.client.clone(), NAMESPACE);
    secrets.create(&PostParams::default(), secret).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_is_reconciled_when_something_of_it_changes() {
    for read in [Read::Alone, Read::Together] {
        let stage = Stage::new().await;
        let plane = stage.plane("p").await;
        let owner = plane.create("owner", "1").await;
        plane.create("other", "1").await;
        let seen = Arc::new(Seen::default());
        stage
            .controllers
            .controller("watcher")
            .for_::<ConfigMap>()
            .owns::<Secret>()
            .reconcile(Watcher(seen.clone()))
            .unwrap();
        stage.sink.upsert(stage.spec("p", &plane, read));
        for name in ["owner", "other"] {
            seen.shows(&request("p", name), Some("1")).await;
        }
        let before = seen.times(&request("p", "owner"));
        create_secret(&plane, &secret("nobodys", None)).await;
        create_secret(&plane, &secret("owned", Some(&owner))).await;
        eventually("the owner is looked at", || seen.times(&request("p", "owner")) > before).await;
        assert_eq!(seen.times(&request("p", "other")), 1, "{read:?}");
        stage.stop().await;
    }
}

/// A Secret's name says which object of which cluster it is about: `cluster.name`.
fn named(located: &Located<Secret>) -> Vec<Request> {
    let name = located.object.metadata.name.as_deref().unwrap_or_default();
    let about = name.split_once('.');
    about
        .map(|(cluster, name)| request(cluster, name))
        .into_iter()
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_of_one_cluster_can_be_about_one_of_another_that_comes_later() {
    let stage = Stage::new().await;
    let planes = stage.planes(["a".to_owned(), "b".to_owned()]).await;
    let seen = Arc::new(Seen::default());
    stage
        .controllers
        .controller("watcher")
        .for_::<ConfigMap>()
        .watches(named)
        .watches_local(named)
        .reconcile(Watcher(seen.clone()))
        .unwrap();
    let root = Plane {
        name: String::new(),
        id: String::new(),
        client: stage.server.client().await,
    };
    create_secret(&planes[0], &secret("b.absent", None)).await;
    create_secret(&root, &secret("b.asked-by-root", None)).await;
    stage.sink.upsert(stage.spec("a", &planes[0], Read::Together));
    planes[0].create("x", "1").await;
    seen.shows(&request("a", "x"), Some("1")).await;
    assert!(seen.of("b").is_empty());
    stage.sink.upsert(stage.spec("b", &planes[1], Read::Together));
    seen.shows(&request("b", "absent"), None).await;
    seen.shows(&request("b", "asked-by-root"), None).await;
    create_secret(&planes[0], &secret("b.later", None)).await;
    seen.shows(&request("b", "later"), None).await;
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn channels_resyncs_and_predicates_decide_when_to_look() {
    let stage = Stage::new().await;
    let plane = stage.plane("p").await;
    plane.create("x", "1").await;
    let (sender, mut receiver) = mpsc::channel(8);
    let (quiet, often) = (Arc::new(Seen::default()), Arc::new(Seen::default()));
    stage
        .controllers
        .controller("quiet")
        .for_::<ConfigMap>()
        .predicate(labels_changed().and(|_: &_| true))
        .on_channel(futures::stream::poll_fn(move |cx| receiver.poll_recv(cx)))
        .reconcile(Watcher(quiet.clone()))
        .unwrap();
    stage
        .controllers
        .controller("often")
        .for_::<ConfigMap>()
        .resync(Duration::from_millis(50))
        .reconcile(Watcher(often.clone()))
        .unwrap();
    stage.sink.upsert(stage.spec("p", &plane, Read::Together));
    quiet.shows(&request("p", "x"), Some("1")).await;
    plane.set("x", "2").await;
    often.shows(&request("p", "x"), Some("2")).await;
    let before = often.times(&request("p", "x"));
    eventually("it is looked at again and again", || {
        often.times(&request("p", "x")) > before + 2
    })
    .await;
    assert_eq!(
        quiet.last(&request("p", "x")),
        Some(Some("1".to_owned())),
        "no label changed"
    );
    sender.send(request("p", "x")).await.unwrap();
    quiet.shows(&request("p", "x"), Some("2")).await;
    stage.stop().await;
}

/// Counts what it sees of any kind.
struct Names<K>(Arc<Mutex<Vec<String>>>, std::marker::PhantomData<fn(K)>);

impl<K> Names<K> {
    fn new() -> (Self, Arc<Mutex<Vec<String>>>) {
        let names = Arc::new(Mutex::default());
        (Self(names.clone(), std::marker::PhantomData), names)
    }
}

#[async_trait::async_trait]
impl<K: Object> Reconciler for Names<K> {
    type Kind = K;
    type Error = std::convert::Infallible;

    async fn reconcile(&self, cx: Cx<K>) -> Result<Action, Self::Error> {
        if cx.object().is_some() {
            self.0.lock().push(cx.request().name.to_string());
        }
        Ok(Action::await_change())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kinds_can_be_dynamic_metadata_only_or_selected() {
    let stage = Stage::new().await;
    let plane = stage.plane("p").await;
    plane.create("x", "1").await;
    let mut labelled = config_map("chosen", "1");
    labelled.metadata.labels = Some([("app".to_owned(), "y".to_owned())].into());
    plane
        .config_maps()
        .create(&PostParams::default(), &labelled)
        .await
        .unwrap();
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "ConfigMap"));
    let (reconciler, dynamic) = Names::<DynamicObject>::new();
    stage
        .controllers
        .controller("dynamic")
        .for_dynamic(kind)
        .reconcile(reconciler)
        .unwrap();
    let (reconciler, partial) = Names::<PartialObjectMeta<ConfigMap>>::new();
    stage
        .controllers
        .controller("partial")
        .for_::<PartialObjectMeta<ConfigMap>>()
        .reconcile(reconciler)
        .unwrap();
    let (reconciler, selected) = Names::<ConfigMap>::new();
    let watch = Watch::new().select(
        Select::all()
            .labels("app=y")
            .prune(|object: &mut ConfigMap| object.data = None),
    );
    stage
        .controllers
        .controller("selected")
        .for_watch(watch)
        .reconcile(reconciler)
        .unwrap();
    for (name, read) in [("alone", Read::Alone), ("together", Read::Together)] {
        stage.sink.upsert(stage.spec(name, &plane, read));
    }
    for (names, wanted) in [(&dynamic, "x"), (&partial, "x"), (&selected, "chosen")] {
        let seen = || names.lock().iter().filter(|name| **name == wanted).count();
        eventually(&format!("{wanted} is seen both ways"), || seen() >= 2).await;
    }
    assert!(!selected.lock().contains(&"x".to_owned()));
    let store = stage
        .controllers
        .view()
        .store::<PartialObjectMeta<ConfigMap>>()
        .unwrap();
    assert!(
        store
            .list()
            .iter()
            .any(|located| located.object.metadata.name.as_deref() == Some("x"))
    );
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_planes_are_born_with_is_seen_too() {
    let stage = Stage::new().await;
    let plane = stage.plane("p").await;
    let (reconciler, names) = Names::<Namespace>::new();
    stage
        .controllers
        .controller("namespaces")
        .for_::<Namespace>()
        .reconcile(reconciler)
        .unwrap();
    stage.sink.upsert(stage.spec("p", &plane, Read::Together));
    for wanted in ["default", "kube-system"] {
        eventually(wanted, || names.lock().iter().any(|name| name == wanted)).await;
    }
    assert!(
        stage.controllers.view().list::<Namespace>().unwrap().is_empty(),
        "and is not kept"
    );
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_finds_objects_of_all_clusters() {
    let stage = Stage::new().await;
    let planes = stage.planes((0..3).map(|i| format!("p{i}"))).await;
    let seen = Arc::new(Seen::default());
    let by_value = |object: &ConfigMap| object.data.iter().flatten().map(|(_, value)| value.clone()).collect();
    let unwatched = stage
        .controllers
        .controller("lost")
        .for_::<Secret>()
        .index::<ConfigMap>("value", by_value);
    let (names, _) = Names::<Secret>::new();
    assert_eq!(
        unwatched.reconcile(names).err(),
        Some(BuildError::IndexOfUnwatched("value".to_owned()))
    );
    stage
        .controllers
        .controller("watcher")
        .for_::<ConfigMap>()
        .index::<ConfigMap>("value", by_value)
        .reconcile(Watcher(seen.clone()))
        .unwrap();
    for (plane, value) in planes.iter().zip(["a", "b", "a"]) {
        plane.create("x", value).await;
        stage.sink.upsert(stage.spec(&plane.name, plane, Read::Together));
        seen.shows(&request(&plane.name, "x"), Some(value)).await;
    }
    let store = stage.controllers.view().store::<ConfigMap>().unwrap();
    let found = || {
        let located = store.by_index("value", "a").into_iter();
        let mut found: Vec<_> = located.map(|located| located.cluster).collect();
        found.sort();
        found
    };
    let wanted = [ClusterName::new("p0"), ClusterName::new("p2")];
    eventually("both are found", || found() == wanted).await;
    eventually("and the other", || {
        store.by_index_in(&ClusterName::new("p1"), "value", "b").len() == 1
    })
    .await;
    stage.stop().await;
}

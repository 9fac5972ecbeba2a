//! What reconcilers are helped with, against a server: finalizers, apply and events.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Event as CoreEvent, Namespace};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, ResourceExt as _};
use mica_runtime::apply::{Applier, ApplyError, OnConflict, own};
use mica_runtime::events::Events;
use mica_runtime::finalizer::{Cleaned, Finalizer, FinalizerError, Stage};
use mica_runtime::{ClusterName, Metrics};
use mica_testkit::TestServer;
use tokio_util::sync::CancellationToken;

use crate::wait::eventually;

static OURS: Finalizer = Finalizer::new("example.com/cleanup");

fn config_map(name: &str) -> ConfigMap {
    let mut object = ConfigMap::default();
    object.metadata.name = Some(name.to_owned());
    object.metadata.namespace = Some("default".to_owned());
    object
}

#[tokio::test]
async fn a_finalizer_keeps_an_object_until_the_cleanup_is_done() {
    let server = TestServer::start().await;
    let api: Api<ConfigMap> = Api::default_namespaced(server.plane("finalizer").await.client().await);
    let made = Arc::new(api.create(&PostParams::default(), &config_map("a")).await.unwrap());

    let lived = OURS.run(
        &api,
        Some(made.clone()),
        async |object| Ok::<_, FinalizerError>(object.finalizers().to_vec()),
        async |_| unreachable!("it lives"),
    );
    assert_eq!(
        lived.await.unwrap(),
        Some(vec![OURS.name().to_owned()]),
        "added before it goes on"
    );
    let stale = OURS.add(&api, &made).await;
    assert!(matches!(stale, Err(FinalizerError::Changed)), "what was read is old");

    api.delete("a", &DeleteParams::default()).await.unwrap();
    let deleting = Arc::new(api.get("a").await.unwrap());
    assert!(matches!(OURS.stage(Some(deleting.clone())), Stage::Cleanup(_)));
    let other = Finalizer::new("example.com/other");
    let refused = other.add(&api, &deleting).await;
    assert!(matches!(refused, Err(FinalizerError::Deleting)));
    let waits = OURS.run(
        &api,
        Some(deleting.clone()),
        async |_| unreachable!("it is being deleted"),
        async |_| Ok::<_, FinalizerError>(Cleaned::NotYet("later")),
    );
    assert_eq!(waits.await.unwrap(), Some("later"));
    assert!(api.get_opt("a").await.unwrap().is_some());
    for _ in 0..2 {
        let done = OURS.run(
            &api,
            Some(deleting.clone()),
            async |_| unreachable!("it is being deleted"),
            async |_| Ok::<_, FinalizerError>(Cleaned::<()>::Done),
        );
        assert_eq!(done.await.unwrap(), None, "also when it is gone already");
        assert!(api.get_opt("a").await.unwrap().is_none());
    }
}

#[tokio::test]
async fn an_intent_is_applied_and_others_fields_stay() {
    let server = TestServer::start().await;
    let client = server.plane("apply").await.client().await;
    let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let owner: Namespace = Api::all(client).get("default").await.unwrap();
    let intent = |key: &str, value: &str| {
        let mut intent = config_map("a");
        intent.data = Some(BTreeMap::from([(key.to_owned(), value.to_owned())]));
        intent
    };
    let (ours, theirs) = (
        Applier::new("ours"),
        Applier::new("theirs").on_conflict(OnConflict::Fail),
    );
    let mut first = intent("x", "1");
    own(&owner, &mut first).unwrap();
    let made = ours.apply(&api, &first).await.unwrap();
    assert_eq!(made.owner_references()[0].name, "default");
    theirs.apply(&api, &intent("y", "1")).await.unwrap();
    let conflict = theirs.apply(&api, &intent("x", "2")).await;
    assert!(matches!(conflict, Err(ApplyError::Refused(kube::Error::Api(status))) if status.is_conflict()));
    let after = ours.apply(&api, &intent("z", "1")).await.unwrap();
    let keys: Vec<_> = after.data.unwrap().into_keys().collect();
    assert_eq!(
        keys,
        ["y", "z"],
        "what the intent lacks is gone, what others have stays"
    );
    assert!(after.metadata.owner_references.is_none());
}

#[tokio::test]
async fn events_are_written_into_the_objects_cluster_and_repeat_as_a_series() {
    let server = TestServer::start().await;
    let client = server.plane("events").await.client().await;
    let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let object = api.create(&PostParams::default(), &config_map("a")).await.unwrap();
    let (metrics, stop) = (Metrics::new(), CancellationToken::new());
    let (events, writer) = Events::new("demo-0", metrics.clone());
    let writer = tokio::spawn(writer.run(stop.clone()));
    let recorder = events.about(&"demo".into(), ClusterName::new("events"), client.clone(), &object, &());

    recorder.normal("Copied", "It was copied.");
    let written: Api<CoreEvent> = Api::default_namespaced(client);
    let list = ListParams::default().fields("involvedObject.name=a");
    let first = eventually(async || written.list(&list).await.unwrap().items.pop()).await;
    assert_eq!(first.reason.as_deref(), Some("Copied"));
    assert_eq!(first.message.as_deref(), Some("It was copied."));
    assert_eq!(first.reporting_component.as_deref(), Some("demo"));
    assert_eq!(first.involved_object.uid, object.uid());
    recorder.normal("Copied", "It was copied.");
    let series = eventually(async || written.list(&list).await.unwrap().items.pop()?.series).await;
    assert_eq!(series.count, Some(2));
    recorder.warning("Failed", "What is recorded before the end is written.");
    stop.cancel();
    writer.await.unwrap();
    assert_eq!(written.list(&list).await.unwrap().items.len(), 2);
    assert!(
        metrics
            .text()
            .contains("mica_runtime_events_total{result=\"written\"} 3")
    );
}

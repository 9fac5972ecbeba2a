//! One reconciler over planes that are read together and planes that are read one by one: it cannot tell.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use mica_runtime::controller::Reach;
use mica_runtime::ownership::All;
use mica_runtime::queue::Priority;

use super::stage::{Plane, Read, Stage, eventually, request};

const PLANES: usize = 24;

fn own(plane: &Plane) -> String {
    format!("alone-{}", plane.name)
}

fn shared(plane: &Plane) -> String {
    format!("together-{}", plane.name)
}

#[tokio::test(flavor = "multi_thread")]
async fn planes_look_the_same_read_together_or_one_by_one() {
    let stage = Stage::new().await;
    let planes = stage.planes((0..PLANES).map(|i| format!("p{i}"))).await;
    for plane in &planes {
        plane.create("early", "1").await;
        plane.create("goes", "1").await;
    }
    let seen = stage.watch();
    for plane in &planes {
        stage.sink.upsert(stage.spec(&own(plane), plane, Read::Alone));
        stage.sink.upsert(stage.spec(&shared(plane), plane, Read::Together));
    }
    for plane in &planes {
        for cluster in [own(plane), shared(plane)] {
            seen.shows(&request(&cluster, "early"), Some("1")).await;
        }
    }
    assert!(
        seen.log.lock().iter().all(|sight| sight.priority == Priority::Low),
        "what was there is not urgent"
    );
    for (i, plane) in planes.iter().enumerate() {
        plane.set("early", "2").await;
        plane.create("late", &i.to_string()).await;
        plane.delete("goes").await;
    }
    for (i, plane) in planes.iter().enumerate() {
        for cluster in [own(plane), shared(plane)] {
            seen.shows(&request(&cluster, "early"), Some("2")).await;
            seen.shows(&request(&cluster, "late"), Some(&i.to_string())).await;
            seen.shows(&request(&cluster, "goes"), None).await;
        }
        eventually("both show the same", || seen.of(&own(plane)) == seen.of(&shared(plane))).await;
    }
    let view = stage.controllers.view();
    let of = |cluster: String| -> Vec<Arc<ConfigMap>> {
        let list = view.list::<ConfigMap>().unwrap().into_iter();
        let ours = |object: &ConfigMap| object.data.as_ref().is_some_and(|data| data.contains_key("v"));
        list.filter(|located| located.cluster.as_str() == cluster && ours(&located.object))
            .map(|located| located.object)
            .collect()
    };
    for plane in &planes {
        eventually("what is kept is the same to the last field", || {
            let kept = of(own(plane));
            kept.len() == 2 && kept == of(shared(plane))
        })
        .await;
        assert!(
            of(own(plane))
                .iter()
                .all(|object| object.metadata.managed_fields.is_none())
        );
    }
    assert_eq!(stage.tap.lists("/clusters/*/control-plane/api/v1/configmaps"), 1);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn planes_that_are_read_together_cost_one_stream_for_each_kind() {
    let stage = Stage::new().await;
    let planes = stage.planes((0..PLANES).map(|i| format!("p{i}"))).await;
    let seen = stage.watch();
    let (first, rest) = planes.split_first().unwrap();
    first.create("x", "1").await;
    for plane in rest {
        plane.create("x", "1").await;
    }
    stage.sink.upsert(stage.spec(&first.name, first, Read::Together));
    seen.shows(&request(&first.name, "x"), Some("1")).await;
    // These come when the stream has told all of them: no further request is needed.
    for plane in rest {
        stage.sink.upsert(stage.spec(&plane.name, plane, Read::Together));
    }
    for plane in rest {
        seen.shows(&request(&plane.name, "x"), Some("1")).await;
    }
    let streams = |request: &str| request.contains("/configmaps") && request.contains("watch=true");
    assert_eq!(stage.tap.count(streams), 1);
    assert_eq!(stage.tap.lists("/clusters/*/control-plane/api/v1/configmaps"), 1);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_provider_the_same_reconciler_works_on_the_local_cluster() {
    let stage = Stage::with(Arc::new(All::new()), Reach::Local).await;
    let seen = stage.watch();
    let root = Plane {
        name: String::new(),
        id: String::new(),
        client: stage.server.client().await,
    };
    root.create("x", "1").await;
    seen.shows(&request("", "x"), Some("1")).await;
    root.delete("x").await;
    seen.shows(&request("", "x"), None).await;
    stage.stop().await;
}

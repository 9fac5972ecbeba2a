//! Servers that do not show all planes at once, or not to everybody: planes are read one by one, and nobody can tell.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, PostParams};
use mica_runtime::ClusterName;
use mica_runtime::controller::Reach;
use mica_runtime::ownership::All;
use mica_testkit::TestServer;
use serde_json::json;

use super::stage::{Plane, Read, Stage, eventually, request};

const TOGETHER: &str = "/clusters/*/";

/// Lets somebody into these planes, each by its name: all planes at once are none of them.
async fn let_in(server: &TestServer, user: &str, planes: &[String]) {
    let client = server.client().await;
    let make = async |kind: &str, rest: serde_json::Value| {
        let kind = GroupVersionKind::gvk("rbac.authorization.k8s.io", "v1", kind);
        let mut object = DynamicObject::new(user, &ApiResource::from_gvk(&kind));
        object.data = rest;
        let api = Api::<DynamicObject>::all_with(client.clone(), &ApiResource::from_gvk(&kind));
        api.create(&PostParams::default(), &object).await.unwrap();
    };
    let rule = json!({"apiGroups": ["mica.dev"], "resources": ["planes/content"], "verbs": ["admin"], "resourceNames": planes});
    make("ClusterRole", json!({"rules": [rule]})).await;
    let bound = json!({
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    });
    make("ClusterRoleBinding", bound).await;
}

/// Watches planes that are said to be shown together, and sees that each is read by itself.
async fn see_planes(stage: &Stage, planes: &[Plane]) {
    let (late, early) = planes.split_last().unwrap();
    for plane in planes {
        plane.create("early", "1").await;
        plane.create("goes", "1").await;
    }
    let seen = stage.watch();
    for plane in early {
        stage.sink.upsert(stage.spec(&plane.name, plane, Read::Together));
    }
    for plane in early {
        seen.shows(&request(&plane.name, "early"), Some("1")).await;
        seen.shows(&request(&plane.name, "kube-root-ca.crt"), Some("")).await;
    }
    let asked = stage.tap.count(|request| request.contains(TOGETHER));
    assert!(asked > 0, "it was tried");
    // One that comes when it is known is read by itself at once.
    stage.sink.upsert(stage.spec(&late.name, late, Read::Together));
    seen.shows(&request(&late.name, "early"), Some("1")).await;
    for plane in planes {
        plane.set("early", "2").await;
        plane.delete("goes").await;
        plane.create("new", "1").await;
    }
    for plane in planes {
        seen.shows(&request(&plane.name, "early"), Some("2")).await;
        seen.shows(&request(&plane.name, "goes"), None).await;
        seen.shows(&request(&plane.name, "new"), Some("1")).await;
        let path = format!("/clusters/{}/control-plane/api/v1/configmaps", plane.name);
        let watches = stage
            .tap
            .count(|request| request.contains(&path) && request.contains("watch=true"));
        assert_eq!(watches, 1, "{path}");
    }
    assert_eq!(
        stage.tap.count(|request| request.contains(TOGETHER)),
        asked,
        "and not tried for ever"
    );

    // One that goes is let go, and is read anew when it comes back.
    let first = &planes[0];
    stage.sink.remove(&ClusterName::new(&first.name));
    let kept = || stage.controllers.view().list::<ConfigMap>().unwrap();
    eventually("it is forgotten", || {
        kept().iter().all(|located| located.cluster.as_str() != first.name)
    })
    .await;
    first.set("early", "3").await;
    stage.sink.upsert(stage.spec(&first.name, first, Read::Together));
    seen.shows(&request(&first.name, "early"), Some("3")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_enter_planes_but_not_all_at_once_reads_them_one_by_one() {
    let names: Vec<String> = (0..5).map(|i| format!("p{i}")).collect();
    let server = TestServer::start().await;
    let_in(&server, "carl", &names).await;
    let carl = server.client_for(&server.url(), &server.user("carl", None)).await;
    let stage = Stage::through(server, carl, Arc::new(All::new()), Reach::Provided).await;
    let planes = stage.planes(names).await;
    see_planes(&stage, &planes).await;
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_the_address_of_all_planes_is_read_plane_by_plane() {
    let stage = Stage::new().await;
    stage.tap.hide(TOGETHER);
    let planes = stage.planes((0..5).map(|i| format!("p{i}"))).await;
    see_planes(&stage, &planes).await;
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kind_that_no_plane_has_yet_is_awaited_where_all_planes_are_shown() {
    let stage = Stage::new().await;
    let plane = stage.plane("p").await;
    let kind = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("example.com", "v1", "Widget"), "widgets");
    let seen = Arc::new(parking_lot::Mutex::new(Vec::new()));
    stage
        .controllers
        .controller("widgets")
        .for_dynamic(kind.clone())
        .reconcile(Widgets(seen.clone()))
        .unwrap();
    stage.sink.upsert(stage.spec("p", &plane, Read::Together));
    let asked = |path: &'static str| stage.tap.count(move |request| request.contains(path));
    eventually("it was asked for twice", || {
        asked("/clusters/*/control-plane/apis/example.com/") >= 2
    })
    .await;
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "names": {"plural": "widgets", "kind": "Widget"}, "scope": "Namespaced",
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    });
    let definitions = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let definitions = Api::<DynamicObject>::all_with(plane.client.clone(), &ApiResource::from_gvk(&definitions));
    let definition = serde_json::from_value(definition).unwrap();
    definitions.create(&PostParams::default(), &definition).await.unwrap();
    let widgets = Api::<DynamicObject>::namespaced_with(plane.client.clone(), "default", &kind);
    crate::wait::eventually(async || {
        let widget = DynamicObject::new("w", &kind);
        widgets.create(&PostParams::default(), &widget).await.ok()
    })
    .await;
    eventually("the widget is seen", || {
        seen.lock().contains(&"cluster://p/default/w".to_owned())
    })
    .await;
    assert_eq!(
        asked("/clusters/p/control-plane/apis/example.com/"),
        0,
        "one stream is enough"
    );
    stage.stop().await;
}

struct Widgets(Arc<parking_lot::Mutex<Vec<String>>>);

#[async_trait::async_trait]
impl mica_runtime::Reconciler for Widgets {
    type Kind = DynamicObject;
    type Error = std::convert::Infallible;

    async fn reconcile(&self, cx: mica_runtime::Cx<DynamicObject>) -> Result<mica_runtime::Action, Self::Error> {
        self.0.lock().push(cx.request().to_string());
        Ok(mica_runtime::Action::await_change())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_about_all_planes_are_counted_like_others() {
    let stage = Stage::new().await;
    let plane = stage.plane("p").await;
    plane.create("x", "1").await;
    let seen = stage.watch();
    stage.sink.upsert(stage.spec("p", &plane, Read::Together));
    seen.shows(&request("p", "x"), Some("1")).await;
    let counted = || -> usize {
        let text = stage.metrics.text();
        let lines = text
            .lines()
            .filter(|line| line.starts_with("rest_client_requests_total{code=\"200\",host=\"process:"));
        lines
            .map(|line| line.rsplit(' ').next().unwrap().parse::<usize>().unwrap())
            .sum()
    };
    eventually("each request is counted", || {
        let sent = stage.tap.count(|request| request.contains(TOGETHER));
        sent > 0 && counted() == sent
    })
    .await;
    stage.stop().await;
}

//! The subresource `scale`, of custom and of built-in objects.

use http::Method;
use serde_json::{Value, json};

use super::world::{Answer, Api, World};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";
const WIDGET: &str = "/apis/example.com/v1/namespaces/default/widgets/a";
const WIDGET_SCALE: &str = "/apis/example.com/v1/namespaces/default/widgets/a/scale";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/default/deployments/a";
const DEPLOYMENT_SCALE: &str = "/apis/apps/v1/namespaces/default/deployments/a/scale";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// Two versions that keep their replicas in different places, and a third that has no scale.
fn definition() -> Value {
    let version = |name: &str, storage: bool, subresources: Value| {
        let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
            "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                "properties": {"n": {"type": "integer", "maximum": 50}}}}});
        json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": schema},
            "subresources": subresources})
    };
    let scale = |path: &str| {
        json!({"status": {}, "scale": {"specReplicasPath": path, "statusReplicasPath": ".status.n",
            "labelSelectorPath": ".status.sel"}})
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"kind": "Widget", "plural": "widgets"},
            "versions": [
                version("v1", true, scale(".spec.n")),
                version("v2", false, scale(".spec.deep.n")),
                version("v3", false, json!({"status": {}})),
            ],
        },
    })
}

fn widget(spec: Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": spec})
}

fn deployment() -> Value {
    let template = json!({"metadata": {"labels": {"app": "x"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "x"}}, "template": template}})
}

fn scale(replicas: i64) -> Value {
    json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "a"}, "spec": {"replicas": replicas}})
}

/// A plane with a widget and a deployment of two replicas each.
async fn scaled(world: &World) -> Api {
    let api = world.plane("one").await;
    api.post(DEFINITIONS, &definition()).await.expect(201);
    api.until(WIDGETS, 200).await;
    api.post(WIDGETS, &widget(json!({"n": 2}))).await.expect(201);
    api.post(DEPLOYMENTS, &deployment()).await.expect(201);
    api
}

async fn apply(api: &Api, path: &str, query: &str, applied: &Value) -> Answer {
    let headers = [("content-type", "application/apply-patch+yaml")];
    let path = format!("{path}?{query}");
    api.call(Method::PATCH, &path, &headers, applied.to_string()).await
}

/// Who owns replicas, as `manager operation subresource`.
fn owners(object: &Value, path: &str) -> Vec<String> {
    let entries = object["metadata"]["managedFields"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let owning = entries.iter().filter(|entry| entry["fieldsV1"].pointer(path).is_some());
    let text = |entry: &Value, field: &str| entry[field].as_str().unwrap_or("-").to_owned();
    owning
        .map(|entry| {
            format!(
                "{} {} {} {}",
                text(entry, "manager"),
                text(entry, "operation"),
                text(entry, "subresource"),
                text(entry, "apiVersion")
            )
        })
        .collect()
}

#[tokio::test]
async fn a_scale_is_read_and_put_and_its_object_follows() {
    let world = World::start().await;
    let api = scaled(&world).await;
    for (object, path, version) in [
        (WIDGET, WIDGET_SCALE, "example.com/v1"),
        (DEPLOYMENT, DEPLOYMENT_SCALE, "apps/v1"),
    ] {
        let before = api.get(path).await.expect(200);
        assert_eq!(
            (&before["kind"], &before["apiVersion"]),
            (&json!("Scale"), &json!("autoscaling/v1"))
        );
        assert_eq!(before["spec"]["replicas"], 2);
        assert_eq!(before["metadata"].get("managedFields"), None);
        let put = format!("{path}?fieldManager=scaler");
        let after = api.put(&put, &scale(5)).await.expect(200);
        assert_eq!(after["spec"]["replicas"], 5);
        assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
        let written = api.get(object).await.expect(200);
        assert_eq!(written["metadata"]["generation"], 2);
        assert_eq!(
            written["metadata"]["resourceVersion"],
            after["metadata"]["resourceVersion"]
        );
        let field = if object == WIDGET {
            "/f:spec/f:n"
        } else {
            "/f:spec/f:replicas"
        };
        assert_eq!(owners(&written, field), [format!("scaler Update scale {version}")]);
    }
}

#[tokio::test]
async fn a_scale_is_patched_and_dry_runs_change_nothing() {
    let world = World::start().await;
    let api = scaled(&world).await;
    for path in [WIDGET_SCALE, DEPLOYMENT_SCALE] {
        let dry = format!("{path}?dryRun=All");
        let patch = json!({"spec": {"replicas": 7}});
        assert_eq!(api.patch(&dry, &patch).await.expect(200)["spec"]["replicas"], 7);
        assert_eq!(api.get(path).await.expect(200)["spec"]["replicas"], 2);
        assert_eq!(api.patch(path, &patch).await.expect(200)["spec"]["replicas"], 7);
        let json_patch = json!([{"op": "test", "path": "/spec/replicas", "value": 7},
            {"op": "remove", "path": "/spec/replicas"}]);
        let headers = [("content-type", "application/json-patch+json")];
        let answer = api.call(Method::PATCH, path, &headers, json_patch.to_string()).await;
        assert_eq!(answer.expect(200)["spec"], json!({}));
        let headers = [("content-type", "application/strategic-merge-patch+json")];
        let answer = api.call(Method::PATCH, path, &headers, patch.to_string()).await;
        assert_eq!(answer.code(), if path == WIDGET_SCALE { 415 } else { 200 });
    }
}

#[tokio::test]
async fn appliers_share_and_lose_replicas_through_a_scale() {
    let world = World::start().await;
    let api = scaled(&world).await;
    for (object, path, field) in [
        (WIDGET, WIDGET_SCALE, "/f:spec/f:n"),
        (DEPLOYMENT, DEPLOYMENT_SCALE, "/f:spec/f:replicas"),
    ] {
        let refused = apply(&api, path, "fieldManager=one", &scale(4)).await;
        assert_eq!(refused.code(), 409);
        assert!(
            refused.message().ends_with("using autoscaling/v1: .spec.replicas"),
            "{}",
            refused.message()
        );
        apply(&api, path, "fieldManager=one&force=true", &scale(4))
            .await
            .expect(200);
        apply(&api, path, "fieldManager=two", &scale(4)).await.expect(200);
        let shared = owners(&api.get(object).await.expect(200), field);
        assert_eq!(shared.len(), 2, "{shared:?}");
        assert!(shared[0].starts_with("one Apply scale") && shared[1].starts_with("two Apply scale"));
        let refused = apply(&api, path, "fieldManager=two", &scale(6)).await;
        assert_eq!(
            refused.message(),
            "Apply failed with 1 conflict: conflict with \"one\" with subresource \"scale\": .spec.replicas"
        );
        api.put(&format!("{path}?fieldManager=put"), &scale(6))
            .await
            .expect(200);
        let left = owners(&api.get(object).await.expect(200), field);
        assert!(left.len() == 1 && left[0].starts_with("put Update scale"), "{left:?}");
    }
}

#[tokio::test]
async fn every_version_scales_in_its_own_place() {
    let world = World::start().await;
    let api = scaled(&world).await;
    let second = WIDGET_SCALE.replace("/v1/", "/v2/");
    assert_eq!(
        api.get(&second).await.message(),
        "Internal error occurred: the spec replicas field \".spec.deep.n\" does not exist"
    );
    let empty = api.patch(&second, &json!({"metadata": {"labels": {"a": "b"}}})).await;
    assert_eq!(
        empty.message(),
        "the spec replicas field \".spec.deep.n\" cannot be empty"
    );
    api.put(&format!("{second}?fieldManager=deep"), &scale(9))
        .await
        .expect(200);
    let object = api.get(WIDGET).await.expect(200);
    assert_eq!(object["spec"], json!({"n": 2, "deep": {"n": 9}}));
    assert_eq!(api.get(&WIDGET_SCALE.replace("/v1/", "/v3/")).await.code(), 404);
}

#[tokio::test]
async fn what_a_scale_may_not_be_is_refused_in_the_words_of_its_kind() {
    let world = World::start().await;
    let api = scaled(&world).await;
    let unread = "no kind is registered for the type v1.Scale in scheme \"k8s.io/apiextensions-apiserver/pkg/apiserver/customresource_handler.go:781\"";
    let modified = "the object has been modified; please apply your changes to the latest version and try again";
    let with = |metadata: Value| {
        let mut scale = scale(3);
        for (field, value) in metadata.as_object().unwrap() {
            scale["metadata"][field] = value.clone();
        }
        scale
    };
    let cases = [
        (WIDGET_SCALE, scale(-1), 422, "Widget.example.com \"a\" is invalid: .spec.n: Invalid value: -1: should be a non-negative integer".to_owned()),
        (WIDGET_SCALE, scale(51), 422, "Widget.example.com \"a\" is invalid: spec.n: Invalid value: 51: spec.n in body should be less than or equal to 50".to_owned()),
        (WIDGET_SCALE, json!({"kind": "Scale", "spec": 3}), 400, unread.to_owned()),
        (WIDGET_SCALE, with(json!({"resourceVersion": "1"})), 409, format!("Operation cannot be fulfilled on widgets.example.com \"a\": {modified}")),
        (DEPLOYMENT_SCALE, scale(-1), 422, "Scale.autoscaling \"a\" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0".to_owned()),
        (DEPLOYMENT_SCALE, json!({"apiVersion": "apps/v1beta1", "kind": "Scale"}), 400, "the API version in the data (apps/v1beta1) does not match the expected API version (autoscaling/v1)".to_owned()),
        (DEPLOYMENT_SCALE, with(json!({"resourceVersion": "1"})), 409, format!("Operation cannot be fulfilled on deployments.apps \"a\": {modified}")),
        (DEPLOYMENT_SCALE, with(json!({"name": "b"})), 400, "the name of the object (b) does not match the name on the URL (a)".to_owned()),
    ];
    for (path, body, code, message) in cases {
        let answer = api.put(path, &body).await;
        assert_eq!((answer.code(), answer.message()), (code, message), "{body}");
    }
    let uid = json!({"metadata": {"uid": "u"}});
    let answer = api.patch(DEPLOYMENT_SCALE, &uid).await;
    assert!(
        answer
            .message()
            .starts_with("Operation cannot be fulfilled on deployments/scale.apps \"a\": Precondition")
    );
    assert_eq!(answer.code(), 409);
    api.patch(WIDGET_SCALE, &uid).await.expect(200);
    let answer = api.put(WIDGET_SCALE, &with(json!({"uid": "u"}))).await;
    assert!(
        answer
            .message()
            .contains("Key: /registry/example.com/widgets/default/a,"),
        "{}",
        answer.message()
    );
    assert_eq!(
        api.put(&WIDGET_SCALE.replace("/a/", "/b/"), &with(json!({"name": "b"})))
            .await
            .code(),
        404
    );
    assert_eq!(api.delete(WIDGET_SCALE).await.code(), 405);
}

#[tokio::test]
async fn a_scale_comes_in_every_form() {
    let world = World::start().await;
    let api = scaled(&world).await;
    let get = async |path: &str, accept: &str| api.call(Method::GET, path, &[("accept", accept)], "").await;
    let table = get(DEPLOYMENT_SCALE, TABLE).await.expect(200);
    let names: Vec<&Value> = table["columnDefinitions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| &c["name"])
        .collect();
    assert_eq!(names, ["Name", "Desired", "Available", "Age"]);
    assert_eq!(
        table["rows"][0]["cells"].as_array().unwrap()[..3],
        [json!("a"), json!(2), json!(0)]
    );
    assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    let table = get(WIDGET_SCALE, TABLE).await.expect(200);
    assert_eq!(table["columnDefinitions"][3]["type"], "date");
    let yaml = get(WIDGET_SCALE, "application/yaml").await;
    assert!(String::from_utf8_lossy(&yaml.body).contains("\nspec:\n  replicas: 2\n"));
    let protobuf = get(DEPLOYMENT_SCALE, PROTOBUF).await;
    assert!(protobuf.body.starts_with(b"k8s\0"));
    assert_eq!(get(WIDGET_SCALE, PROTOBUF).await.code(), 406);
    // What was got in protobuf can be put in it, and says whose Scale it is.
    for (path, code) in [(DEPLOYMENT_SCALE, 200), (WIDGET_SCALE, 409)] {
        let headers = [("content-type", PROTOBUF)];
        let answer = api.call(Method::PUT, path, &headers, protobuf.body.clone()).await;
        assert_eq!(answer.code(), code, "{}", answer.message());
    }
}

#[tokio::test]
async fn unknown_fields_of_a_scale_are_warned_of_or_refused() {
    let world = World::start().await;
    let api = scaled(&world).await;
    let mut body = scale(3);
    body["zz"] = 1.into();
    for path in [WIDGET_SCALE, DEPLOYMENT_SCALE] {
        let answer = api.put(path, &body).await;
        assert_eq!(answer.headers("warning"), ["299 - \"unknown field \\\"zz\\\"\""]);
        answer.expect(200);
        let patch = json!({"spec": {"zz": 1}});
        let answer = api.patch(path, &patch).await;
        assert_eq!(answer.headers("warning"), ["299 - \"unknown field \\\"spec.zz\\\"\""]);
        let strict = format!("{path}?fieldValidation=Strict");
        assert_eq!(api.put(&strict, &body).await.code(), 400);
        assert_eq!(api.patch(&strict, &patch).await.code(), 422);
        let ignore = format!("{path}?fieldValidation=Ignore");
        assert!(api.put(&ignore, &body).await.headers("warning").is_empty());
    }
}

//! What webhooks are asked.

use http::Method;
use serde_json::{Value, json};

use super::super::hook::Hook;
use super::super::world::{MAPS, World, map, namespace};
use super::{briefs, mutating, patch, validating, webhook, yes};

fn everything(client: &Value) -> Value {
    webhook(client, |hook| {
        let all = json!([{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}]);
        hook["rules"] = all;
    })
}

#[tokio::test]
async fn a_review_has_upstreams_fields() {
    let hook = Hook::start(yes).await;
    let world = World::start().await;
    let api = world.root().await;
    validating(&api, "a", &[webhook(&hook.client_config("/"), |_| {})]).await;
    let path = format!("{MAPS}?fieldManager=me&fieldValidation=Strict");
    let made = api.post(&path, &map("a")).await.expect(201);
    let mut review = hook.seen()[0].body.clone();
    let request = review["request"].as_object_mut().unwrap();
    assert_eq!(request.remove("uid").unwrap().as_str().unwrap().len(), 36);
    let object = request.remove("object").unwrap();
    // The certificate's fingerprint.
    let extra = request["userInfo"].as_object_mut().unwrap().remove("extra").unwrap();
    assert!(extra.to_string().contains("X509SHA256="), "{extra}");
    assert_eq!(object["metadata"]["uid"], made["metadata"]["uid"]);
    assert_eq!(
        (&object["kind"], &object["apiVersion"]),
        (&json!("ConfigMap"), &json!("v1"))
    );
    assert_eq!(
        review,
        json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {
            "kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
            "resource": {"group": "", "version": "v1", "resource": "configmaps"},
            "requestKind": {"group": "", "version": "v1", "kind": "ConfigMap"},
            "requestResource": {"group": "", "version": "v1", "resource": "configmaps"},
            "name": "a", "namespace": "default", "operation": "CREATE",
            "userInfo": {"username": "admin", "groups": ["system:masters", "system:authenticated"]},
            "oldObject": null, "dryRun": false,
            "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "me", "fieldValidation": "Strict"}}})
    );
    api.patch(&format!("{MAPS}/a"), &json!({"data": {"k": "w"}}))
        .await
        .expect(200);
    let update = &hook.seen()[1].body["request"];
    assert_eq!(
        (
            &update["object"]["data"],
            &update["oldObject"]["data"],
            &update["options"]
        ),
        (
            &json!({"k": "w"}),
            &json!({"k": "v"}),
            &json!({"kind": "UpdateOptions", "apiVersion": "meta.k8s.io/v1"})
        )
    );
    let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 3, "propagationPolicy": "Background",
        "preconditions": {"uid": made["metadata"]["uid"]}});
    let json = [("content-type", "application/json")];
    let path = format!("{MAPS}/a");
    api.call(Method::DELETE, &path, &json, options.to_string())
        .await
        .expect(200);
    let delete = &hook.seen()[2].body["request"];
    assert_eq!(
        (&delete["object"], &delete["oldObject"]["data"]),
        (&Value::Null, &json!({"k": "w"}))
    );
    let mut sent = options.clone();
    sent["apiVersion"] = "meta.k8s.io/v1".into();
    assert_eq!(delete["options"], sent);
}

#[tokio::test]
async fn every_verb_and_part_is_asked_about() {
    let hook = Hook::start(yes).await;
    let world = World::start().await;
    let api = world.root().await;
    validating(&api, "a", &[everything(&hook.client_config("/"))]).await;
    api.post("/api/v1/namespaces", &namespace("n")).await.expect(201);
    let created = hook.seen()[0].body["request"].clone();
    assert_eq!((&created["name"], &created["namespace"]), (&json!("n"), &json!("n")));
    let maps = "/api/v1/namespaces/n/configmaps";
    for name in ["a", "b", "c"] {
        api.post(maps, &map(name)).await.expect(201);
    }
    api.put(&format!("{maps}/a"), &map("a")).await.expect(200);
    api.delete(&format!("{maps}/a")).await.expect(200);
    api.delete(maps).await.expect(200);
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {
        "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    let deployments = "/apis/apps/v1/namespaces/n/deployments";
    api.post(deployments, &deployment).await.expect(201);
    let status = json!({"status": {"replicas": 1}});
    api.patch(&format!("{deployments}/d/status"), &status).await.expect(200);
    let scale = json!({"spec": {"replicas": 3}});
    api.patch(&format!("{deployments}/d/scale"), &scale).await.expect(200);
    let scaled = hook.seen().last().unwrap().body["request"].clone();
    assert_eq!(
        scaled["kind"],
        json!({"group": "autoscaling", "version": "v1", "kind": "Scale"})
    );
    let replicas = |object: &str| scaled[object]["spec"]["replicas"].clone();
    assert_eq!((replicas("object"), replicas("oldObject")), (json!(3), json!(1)));
    let apply = [("content-type", "application/apply-patch+yaml")];
    let path = format!("{maps}/new?fieldManager=me");
    api.call(Method::PATCH, &path, &apply, map("new").to_string())
        .await
        .expect(201);
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"nonResourceAttributes": {"path": "/", "verb": "get"}}});
    api.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &review)
        .await
        .expect(201);
    api.post("/api/v1/namespaces/n/pods/p/exec?command=ls&container=c", &json!({}))
        .await;
    let exec = hook.seen().last().unwrap().body["request"].clone();
    assert_eq!(exec["object"]["command"], json!(["ls"]));
    let mut seen = briefs(&hook);
    seen[5..8].sort();
    assert_eq!(
        seen,
        [
            "CREATE namespaces n",
            "CREATE configmaps a",
            "CREATE configmaps b",
            "CREATE configmaps c",
            "UPDATE configmaps a",
            "DELETE configmaps a",
            "DELETE configmaps b",
            "DELETE configmaps c",
            "CREATE deployments d",
            "UPDATE deployments/status d",
            "UPDATE deployments/scale d",
            "CREATE configmaps new",
            "CREATE selfsubjectaccessreviews ",
            "CONNECT pods/exec p",
        ]
    );
}

#[tokio::test]
async fn a_webhook_changes_a_scale() {
    let five = json!([{"op": "replace", "path": "/spec/replicas", "value": 5}]);
    let hook = Hook::start(move |seen| patch(seen, five.clone())).await;
    let world = World::start().await;
    let api = world.root().await;
    let rules = webhook(&hook.client_config("/"), |hook| {
        hook["rules"] = json!([{"operations": ["UPDATE"], "apiGroups": ["apps"], "apiVersions": ["v1"],
            "resources": ["deployments/scale"]}]);
    });
    mutating(&api, "a", &[rules]).await;
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {
        "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    api.post(deployments, &deployment).await.expect(201);
    let scale = json!({"spec": {"replicas": 3}});
    let scaled = api.patch(&format!("{deployments}/d/scale"), &scale).await.expect(200);
    assert_eq!(scaled["spec"]["replicas"], 5);
    assert_eq!(
        api.get(&format!("{deployments}/d")).await.expect(200)["spec"]["replicas"],
        5
    );
}

#[tokio::test]
async fn an_equivalent_resource_is_shown_in_the_version_that_the_rule_names() {
    let hook = Hook::start(|seen| {
        let object = &seen.body["request"]["object"];
        assert_eq!(object["apiVersion"], "g.example/v1", "{object}");
        patch(seen, json!([{"op": "add", "path": "/spec", "value": {"by": "hook"}}]))
    })
    .await;
    let world = World::start().await;
    let api = world.root().await;
    let version = |name: &str| {
        json!({"name": name, "served": true, "storage": name == "v2", "schema": {"openAPIV3Schema": {"type": "object",
            "properties": {"spec": {"type": "object", "properties": {"by": {"type": "string"},
                "d": {"type": "string", "default": "dd"}}}}}}})
    };
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.g.example"}, "spec": {"group": "g.example", "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
            "versions": [version("v1"), version("v2")]}});
    api.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition)
        .await
        .expect(201);
    let v2 = "/apis/g.example/v2/namespaces/default/things";
    api.until(v2, 200).await;
    let rule = |hook: &mut Value, policy: &str| {
        hook["rules"] = json!([{"operations": ["CREATE"], "apiGroups": ["g.example"], "apiVersions": ["v1"], "resources": ["things"]}]);
        hook["matchPolicy"] = policy.into();
    };
    mutating(
        &api,
        "a",
        &[webhook(&hook.client_config("/"), |hook| rule(hook, "Equivalent"))],
    )
    .await;
    let thing = |name: &str| json!({"apiVersion": "g.example/v2", "kind": "Thing", "metadata": {"name": name}});
    let made = api.post(v2, &thing("a")).await.expect(201);
    assert_eq!(
        (&made["apiVersion"], &made["spec"]),
        (&json!("g.example/v2"), &json!({"by": "hook", "d": "dd"}))
    );
    let request = hook.seen()[0].body["request"].clone();
    assert_eq!(
        (&request["kind"]["version"], &request["requestKind"]["version"]),
        (&json!("v1"), &json!("v2"))
    );
    api.delete(&format!("{}/a", super::MUTATING)).await.expect(200);
    mutating(
        &api,
        "a",
        &[webhook(&hook.client_config("/"), |hook| rule(hook, "Exact"))],
    )
    .await;
    api.post(v2, &thing("b")).await.expect(201);
    assert_eq!(hook.seen().len(), 1);
}

#[tokio::test]
async fn older_reviews_are_spoken_too() {
    let hook = Hook::start(|seen| {
        assert_eq!(seen.body["apiVersion"], "admission.k8s.io/v1beta1");
        super::super::hook::Answer::Json(json!({"response": {"allowed": false, "status": {"message": "old"}}}))
    })
    .await;
    let world = World::start().await;
    let api = world.root().await;
    let old = webhook(&hook.client_config("/"), |hook| {
        hook["admissionReviewVersions"] = json!(["v7", "v1beta1", "v1"]);
    });
    validating(&api, "a", &[old]).await;
    assert!(
        api.post(MAPS, &map("a"))
            .await
            .message()
            .ends_with("denied the request: old")
    );
}

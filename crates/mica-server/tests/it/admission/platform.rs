//! What the platform asks of planes by their class: policies, parameters and webhooks of root.

use serde_json::{Value, json};

use super::{VALIDATING, answer, webhook};
use crate::hook::Hook;
use crate::world::{Api, MAPS, PLANES, World, map};

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
const CLASSES: &str = "/apis/mica.dev/v1alpha1/planeclasses";

fn annotated(kind: &str, name: &str, classes: &str, spec: Value) -> Value {
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
        "metadata": {"name": name, "annotations": {"mica.dev/plane-classes": classes}}, "spec": spec})
}

fn constraints() -> Value {
    json!({"resourceRules": [{"operations": ["CREATE", "UPDATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]})
}

async fn plane_of(world: &World, name: &str, class: &str) -> Api {
    let root = world.root().await;
    let plane = json!({"metadata": {"name": name}, "spec": {"className": class}});
    root.post(PLANES, &plane).await.expect(201);
    root.at_plane(name)
}

/// Refuses ConfigMaps of a name that is a parameter, in planes of some classes.
async fn refuse_names(root: &Api, classes: &str) {
    let mut forbidden = map("forbidden");
    forbidden["data"] = json!({"name": "bad"});
    root.post(MAPS, &forbidden).await.expect(201);
    let policy = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "names"},
        "spec": {"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}, "matchConstraints": constraints(), "validations": [
            {"expression": "object.metadata.name != params.data.name",
             "messageExpression": "'not in ' + request.userInfo.extra['mica.dev/plane'][0]"}]}});
    root.post(&format!("{GROUP}/validatingadmissionpolicies"), &policy)
        .await
        .expect(201);
    let spec = json!({"policyName": "names", "validationActions": ["Deny"],
        "paramRef": {"name": "forbidden", "namespace": "default", "parameterNotFoundAction": "Deny"}});
    let binding = annotated("ValidatingAdmissionPolicyBinding", "names", classes, spec);
    root.post(&format!("{GROUP}/validatingadmissionpolicybindings"), &binding)
        .await
        .expect(201);
}

#[tokio::test]
async fn a_policy_of_the_platform_acts_in_planes_of_its_classes_and_nowhere_else() {
    let world = World::start().await;
    let root = world.root().await;
    let (small, large) = (
        plane_of(&world, "s", "small").await,
        plane_of(&world, "l", "large").await,
    );
    // What is loaded before is loaded anew.
    small.post(MAPS, &map("before")).await.expect(201);
    refuse_names(&root, "tiny, small").await;
    let refused = "configmaps \"bad\" is forbidden: platform ValidatingAdmissionPolicy 'names' with binding 'names' denied request: not in s";
    assert_eq!(small.post(MAPS, &map("bad")).await.message(), refused);
    small.post(MAPS, &map("good")).await.expect(201);
    large.post(MAPS, &map("bad")).await.expect(201);
    root.post(MAPS, &map("bad")).await.expect(201);
    // Tenants neither see it nor get around it.
    let listed = small
        .get(&format!("{GROUP}/validatingadmissionpolicies"))
        .await
        .expect(200);
    assert_eq!(listed["items"], json!([]));
    let mut own = map("forbidden");
    own["data"] = json!({"name": "other"});
    small.post(MAPS, &own).await.expect(201);
    assert_eq!(small.post(MAPS, &map("bad")).await.message(), refused);
    let mine = annotated(
        "ValidatingAdmissionPolicyBinding",
        "names",
        "*",
        json!({"policyName": "names", "validationActions": ["Audit"]}),
    );
    small
        .post(&format!("{GROUP}/validatingadmissionpolicybindings"), &mine)
        .await
        .expect(201);
    assert_eq!(small.post(MAPS, &map("bad")).await.message(), refused);
    // A plane that goes to another class leaves it behind.
    let moved = json!({"spec": {"className": "large"}});
    root.patch(&format!("{PLANES}/s"), &moved).await.expect(200);
    small.post(MAPS, &map("bad")).await.expect(201);
    // And its end is the end of it.
    root.patch(&format!("{PLANES}/l"), &json!({"spec": {"className": "small"}}))
        .await
        .expect(200);
    assert_eq!(large.put(&format!("{MAPS}/bad"), &map("bad")).await.code(), 422);
    root.delete(&format!("{GROUP}/validatingadmissionpolicybindings/names"))
        .await
        .expect(200);
    large.put(&format!("{MAPS}/bad"), &map("bad")).await.expect(200);
}

#[tokio::test]
async fn the_platform_has_the_last_word_in_mutation() {
    let world = World::start().await;
    let (root, plane) = (world.root().await, world.plane("p").await);
    let set = |value: &str| {
        let expression = format!("Object{{metadata: Object.metadata{{labels: {{'owner': '{value}'}}}}}}");
        json!({"matchConstraints": constraints(), "reinvocationPolicy": "IfNeeded",
            "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}]})
    };
    for (api, classes, value) in [(&root, "*", "platform"), (&plane, "*", "tenant")] {
        let policy = annotated("MutatingAdmissionPolicy", "owner", classes, set(value));
        api.post(&format!("{GROUP}/mutatingadmissionpolicies"), &policy)
            .await
            .expect(201);
        let binding = annotated(
            "MutatingAdmissionPolicyBinding",
            "owner",
            classes,
            json!({"policyName": "owner"}),
        );
        api.post(&format!("{GROUP}/mutatingadmissionpolicybindings"), &binding)
            .await
            .expect(201);
    }
    let made = plane.post(MAPS, &map("a")).await.expect(201);
    assert_eq!(made["metadata"]["labels"]["owner"], "platform");
    let made = root.post(MAPS, &map("a")).await.expect(201);
    assert_eq!(made["metadata"]["labels"], Value::Null, "root is no plane of a class");
}

#[tokio::test]
async fn a_webhook_of_the_platform_reaches_what_the_platform_does_and_is_told_the_plane() {
    let hook = Hook::start(|seen| answer(seen, json!({"allowed": false, "status": {"message": "no"}}))).await;
    let world = World::start().await;
    let (root, plane) = (world.root().await, world.plane("p").await);
    let mut configuration = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "all", "annotations": {"mica.dev/plane-classes": "default"}}});
    configuration["webhooks"] = json!([webhook(&hook.client_config("/"), |_| {})]);
    root.post(VALIDATING, &configuration).await.expect(201);
    let refused = plane.post(MAPS, &map("a")).await.message();
    assert!(refused.ends_with("denied the request: no"), "{refused}");
    let seen = hook.seen().pop().unwrap().body;
    assert_eq!(seen["request"]["userInfo"]["extra"]["mica.dev/plane"], json!(["p"]));
    root.post(MAPS, &map("a")).await.expect(201);
    hook.stop().await;
    let failed = plane.post(MAPS, &map("a")).await.message();
    assert!(
        failed.contains("failed calling platform webhook \"a.hook.example\""),
        "{failed}"
    );
}

#[tokio::test]
async fn a_plane_reaches_what_its_class_lets_it() {
    let hook = Hook::start(super::yes).await;
    let world = World::start().await;
    let root = world.root().await;
    let (near, far) = (
        plane_of(&world, "near", "near").await,
        plane_of(&world, "far", "far").await,
    );
    let class = json!({"metadata": {"name": "near"}, "spec": {"egress": {"allow": ["127.0.0.0/8"]}}});
    root.post(CLASSES, &class).await.expect(201);
    for api in [&near, &far] {
        super::validating(api, "a", &[webhook(&hook.client_config("/"), |_| {})]).await;
    }
    near.post(MAPS, &map("a")).await.expect(201);
    let refused = far.post(MAPS, &map("a")).await.message();
    assert!(
        refused.contains("the address is not one that this control plane may call"),
        "{refused}"
    );
    // What was open stays of no use when the class changes.
    root.patch(
        &format!("{CLASSES}/near"),
        &json!({"spec": {"egress": {"allow": ["10.0.0.0/8"]}}}),
    )
    .await
    .expect(200);
    let refused = near.post(MAPS, &map("b")).await.message();
    assert!(
        refused.contains("the address is not one that this control plane may call"),
        "{refused}"
    );
}

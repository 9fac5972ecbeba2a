//! Objects go with their owners: what upstream's garbage collector does, in root and in planes.

use serde_json::{Value, json};

use super::world::{Place, World, map_path, owner};

/// Whether an object stays for as long as it takes to collect another one that has no owner.
async fn stays(place: &Place, path: &str, witness: &str) {
    let absent = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "nobody", "uid": "0f0f0f0f-0000-4000-8000-000000000000"}]);
    place.map("default", witness, absent).await;
    place.until_gone(&map_path("default", witness)).await;
    assert!(place.get(path).await.is_some(), "{path} is gone");
}

fn widget_path(name: &str) -> String {
    format!("/apis/example.com/v1/namespaces/default/widgets/{name}")
}

#[tokio::test]
async fn dependents_of_all_kinds_go_with_their_owner() {
    let world = World::start().await;
    for place in world.places().await {
        place.define_widgets().await;
        let top = place.map("default", "top", json!([])).await;
        let middle = place
            .widget(
                "default",
                "middle",
                json!({"ownerReferences": [owner(&top, "ConfigMap")]}),
            )
            .await;
        for i in 0..50 {
            place
                .map("default", &format!("leaf{i}"), json!([owner(&middle, "Widget")]))
                .await;
        }
        place.map("default", "other", json!([])).await;
        place.delete(&map_path("default", "top")).await;
        place.until_gone(&widget_path("middle")).await;
        for i in 0..50 {
            place.until_gone(&map_path("default", &format!("leaf{i}"))).await;
        }
        assert!(place.get(&map_path("default", "other")).await.is_some());
    }
}

#[tokio::test]
async fn an_owner_in_the_foreground_stays_until_those_that_block_it_are_gone() {
    let world = World::start().await;
    for place in world.places().await {
        place.define_widgets().await;
        let top = place.map("default", "top", json!([])).await;
        let held = json!({"finalizers": ["example.com/hold"], "ownerReferences": [owner(&top, "ConfigMap")]});
        place.widget("default", "held", held).await;
        place.map("default", "free", json!([owner(&top, "ConfigMap")])).await;
        place.delete_with(&map_path("default", "top"), "Foreground").await;
        place.until_gone(&map_path("default", "free")).await;
        let is_going =
            |found: Option<&Value>| found.is_some_and(|one| one["metadata"].get("deletionTimestamp").is_some());
        place.until(&widget_path("held"), "going", is_going).await;
        let top = place.get(&map_path("default", "top")).await.unwrap();
        assert_eq!(top["metadata"]["finalizers"], json!(["foregroundDeletion"]));
        place
            .patch(&widget_path("held"), json!({"metadata": {"finalizers": null}}))
            .await;
        place.until_gone(&map_path("default", "top")).await;
    }
}

#[tokio::test]
async fn who_does_not_block_does_not_hold_its_owner() {
    let world = World::start().await;
    let place = world.plane("p1").await;
    let top = place.map("default", "top", json!([])).await;
    let mut loose = owner(&top, "ConfigMap");
    loose["blockOwnerDeletion"] = false.into();
    let held = json!({"metadata": {"name": "held", "finalizers": ["example.com/hold"], "ownerReferences": [loose]}});
    place.create("/api/v1/namespaces/default/configmaps", held).await;
    place.delete_with(&map_path("default", "top"), "Foreground").await;
    place.until_gone(&map_path("default", "top")).await;
    let is_going = |found: Option<&Value>| found.is_some_and(|one| one["metadata"].get("deletionTimestamp").is_some());
    place.until(&map_path("default", "held"), "going", is_going).await;
}

#[tokio::test]
async fn orphans_stay_and_forget_their_owner() {
    let world = World::start().await;
    for place in world.places().await {
        let top = place.map("default", "top", json!([])).await;
        for i in 0..20 {
            place
                .map("default", &format!("leaf{i}"), json!([owner(&top, "ConfigMap")]))
                .await;
        }
        place.delete_with(&map_path("default", "top"), "Orphan").await;
        place.until_gone(&map_path("default", "top")).await;
        for i in 0..20 {
            let leaf = place.get(&map_path("default", &format!("leaf{i}"))).await.unwrap();
            assert_eq!(leaf["metadata"].get("ownerReferences"), None, "{leaf}");
        }
    }
}

#[tokio::test]
async fn a_second_owner_saves_a_dependent() {
    let world = World::start().await;
    for place in world.places().await {
        let (a, b) = (
            place.map("default", "a", json!([])).await,
            place.map("default", "b", json!([])).await,
        );
        let (of_a, of_b) = (owner(&a, "ConfigMap"), owner(&b, "ConfigMap"));
        place.map("default", "leaf", json!([of_a, of_b])).await;
        place.delete(&map_path("default", "a")).await;
        let of_b_alone = |found: Option<&Value>| found.unwrap()["metadata"]["ownerReferences"] == json!([of_b]);
        place
            .until(&map_path("default", "leaf"), "owned by b alone", of_b_alone)
            .await;
        place.delete(&map_path("default", "b")).await;
        place.until_gone(&map_path("default", "leaf")).await;
    }
}

#[tokio::test]
async fn dependents_of_nobody_and_of_somebody_elses_name_go() {
    let world = World::start().await;
    for place in world.places().await {
        let top = place.map("default", "top", json!([])).await;
        let mut earlier = owner(&top, "ConfigMap");
        earlier["uid"] = "0f0f0f0f-0000-4000-8000-000000000001".into();
        place.map("default", "of-an-earlier-one", json!([earlier])).await;
        let mut nobody = earlier.clone();
        nobody["name"] = "nobody".into();
        place.map("default", "of-nobody", json!([nobody])).await;
        let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "name": "none", "uid": "0f0f0f0f-0000-4000-8000-000000000002"});
        place.map("default", "of-no-role", json!([role])).await;
        for name in ["of-an-earlier-one", "of-nobody", "of-no-role"] {
            place.until_gone(&map_path("default", name)).await;
        }
        assert!(place.get(&map_path("default", "top")).await.is_some());
    }
}

#[tokio::test]
async fn owners_in_other_namespaces_count_as_absent_and_keep_their_own() {
    let world = World::start().await;
    for place in world.places().await {
        place.namespace("ns").await;
        let top = place.map("ns", "top", json!([])).await;
        place.map("ns", "own", json!([owner(&top, "ConfigMap")])).await;
        let stray = place.map("default", "stray", json!([owner(&top, "ConfigMap")])).await;
        place.until_gone(&map_path("default", "stray")).await;
        let told = |found: Option<&Value>| {
            let events = found.unwrap()["items"].as_array().unwrap().clone();
            events.iter().any(|event| {
                event["reason"] == "OwnerRefInvalidNamespace"
                    && event["involvedObject"]["uid"] == stray["metadata"]["uid"]
                    && event["type"] == "Warning"
                    && event["message"]
                        == format!(
                            "ownerRef [v1/ConfigMap, namespace: default, name: top, uid: {}] does not exist in namespace \"default\"",
                            top["metadata"]["uid"].as_str().unwrap()
                        )
            })
        };
        place
            .until("/api/v1/namespaces/default/events", "telling why", told)
            .await;
        stays(&place, &map_path("ns", "own"), "witness").await;
    }
}

#[tokio::test]
async fn what_cannot_be_resolved_leaves_its_dependents_alone() {
    let world = World::start().await;
    for place in world.places().await {
        let unknown = json!({"apiVersion": "nowhere.example.com/v1", "kind": "Thing", "name": "x", "uid": "0f0f0f0f-0000-4000-8000-000000000003"});
        place.map("default", "of-an-unknown-kind", json!([unknown])).await;
        let top = place.map("default", "top", json!([])).await;
        let role = json!({
            "metadata": {"name": "of-a-namespaced-owner", "ownerReferences": [owner(&top, "ConfigMap")]},
            "rules": [],
        });
        place
            .create("/apis/rbac.authorization.k8s.io/v1/clusterroles", role)
            .await;
        stays(&place, &map_path("default", "of-an-unknown-kind"), "w1").await;
        stays(
            &place,
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/of-a-namespaced-owner",
            "w2",
        )
        .await;
        // Once the kind is known, it is known that there is no such object.
        place.define_widgets().await;
        let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "name": "x", "uid": "0f0f0f0f-0000-4000-8000-000000000004"});
        place.map("default", "of-a-new-kind", json!([widget])).await;
        place.until_gone(&map_path("default", "of-a-new-kind")).await;
    }
}

#[tokio::test]
async fn a_circle_in_the_foreground_goes() {
    let world = World::start().await;
    let place = world.plane("p1").await;
    let a = place.map("default", "a", json!([])).await;
    let b = place.map("default", "b", json!([owner(&a, "ConfigMap")])).await;
    place
        .patch(
            &map_path("default", "a"),
            json!({"metadata": {"ownerReferences": [owner(&b, "ConfigMap")]}}),
        )
        .await;
    place.delete_with(&map_path("default", "a"), "Foreground").await;
    place.until_gone(&map_path("default", "a")).await;
    place.until_gone(&map_path("default", "b")).await;
}

#[tokio::test]
async fn deleting_a_definition_takes_what_its_objects_own() {
    let world = World::start().await;
    for place in world.places().await {
        place.define_widgets().await;
        let top = place.widget("default", "top", json!({})).await;
        place.map("default", "leaf", json!([owner(&top, "Widget")])).await;
        place
            .delete("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com")
            .await;
        place.until_gone(&map_path("default", "leaf")).await;
    }
}

#[tokio::test]
async fn what_a_plane_is_born_with_can_own() {
    let world = World::start().await;
    for place in world.places().await {
        let path = "/api/v1/namespaces/default/serviceaccounts/default";
        let account = place.get(path).await.unwrap();
        place
            .map("default", "leaf", json!([owner(&account, "ServiceAccount")]))
            .await;
        stays(&place, &map_path("default", "leaf"), "w1").await;
        place.delete(path).await;
        place.until_gone(&map_path("default", "leaf")).await;
    }
}

#[tokio::test]
async fn a_kind_that_cannot_be_converted_holds_up_nothing_else() {
    let world = World::start().await;
    for place in world.places().await {
        let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
        let version =
            |name: &str, stored: bool| json!({"name": name, "served": true, "storage": stored, "schema": schema});
        let conversion = json!({
            "strategy": "Webhook",
            "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://127.0.0.1:1/convert"}},
        });
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "brokens.example.org"},
            "spec": {
                "group": "example.org",
                "names": {"plural": "brokens", "kind": "Broken"},
                "scope": "Namespaced",
                "versions": [version("v2", true), version("v1", false)],
                "conversion": conversion,
            },
        });
        place
            .create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
            .await;
        place
            .until("/apis/example.org/v2/brokens", "served", |found| found.is_some())
            .await;
        let broken = json!({"apiVersion": "example.org/v2", "kind": "Broken", "metadata": {"name": "b"}});
        let broken = place
            .create("/apis/example.org/v2/namespaces/default/brokens", broken)
            .await;
        // An owner that can only be read by a conversion that fails: whether it is there cannot be said.
        let unreadable =
            json!({"apiVersion": "example.org/v1", "kind": "Broken", "name": "b", "uid": broken["metadata"]["uid"]});
        for i in 0..40 {
            place.map("default", &format!("stuck{i}"), json!([unreadable])).await;
        }
        let top = place.map("default", "top", json!([])).await;
        place.map("default", "leaf", json!([owner(&top, "ConfigMap")])).await;
        place.delete(&map_path("default", "top")).await;
        place.until_gone(&map_path("default", "leaf")).await;
        stays(&place, &map_path("default", "stuck0"), "witness").await;
    }
}

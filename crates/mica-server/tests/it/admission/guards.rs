//! Plugins that can be switched: pod security, permissions about owners, growing claims.

use http::Method;
use mica_server::admission::Plugins;
use serde_json::{Value, json};

use crate::world::{Api, MAPS, World, map};

const NAMESPACES: &str = "/api/v1/namespaces";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

fn pod(name: &str, spec: Value) -> Value {
    let mut whole = json!({"containers": [{"name": "c", "image": "i"}]});
    for (field, value) in spec.as_object().unwrap() {
        whole[field] = value.clone();
    }
    json!({"metadata": {"name": name}, "spec": whole})
}

fn namespace(name: &str, labels: &[(&str, &str)]) -> Value {
    let labels: serde_json::Map<String, Value> = labels
        .iter()
        .map(|(label, value)| (format!("pod-security.kubernetes.io/{label}"), json!(value)))
        .collect();
    json!({"metadata": {"name": name, "labels": labels}})
}

#[tokio::test]
async fn pods_are_judged_by_what_their_namespace_asks() {
    let world = World::start().await;
    let api = world.plane("p").await;
    api.post(
        NAMESPACES,
        &namespace("strict", &[("enforce", "baseline"), ("warn", "restricted")]),
    )
    .await
    .expect(201);
    let pods = "/api/v1/namespaces/strict/pods";
    let refused = api.post(pods, &pod("a", json!({"hostNetwork": true}))).await;
    assert_eq!(refused.code(), 403);
    assert_eq!(
        refused.message(),
        r#"pods "a" is forbidden: violates PodSecurity "baseline:latest": host namespaces (hostNetwork=true)"#
    );
    let warned = api.post(pods, &pod("a", json!({}))).await;
    let warnings = warned.headers("warning").join("\n");
    assert!(
        warnings.contains(r#"would violate PodSecurity \"restricted:latest\": allowPrivilegeEscalation != false (container \"c\" must set"#),
        "{warnings}"
    );
    warned.expect(201);
    // What makes pods is told, and judged when they come.
    let deployment = json!({"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"hostPID": true, "containers": [{"name": "c", "image": "i"}]}}}});
    let made = api
        .post("/apis/apps/v1/namespaces/strict/deployments", &deployment)
        .await;
    assert!(
        made.headers("warning")
            .join("\n")
            .contains("host namespaces (hostPID=true)"),
        "{made:?}"
    );
    made.expect(201);
    // Elsewhere nothing is asked.
    api.post(
        "/api/v1/namespaces/default/pods",
        &pod("a", json!({"hostNetwork": true})),
    )
    .await
    .expect(201);
    // What is not judged anew may go on as it is.
    let path = format!("{pods}/a");
    let labelled = api.call(
        Method::PATCH,
        &path,
        &[("content-type", "application/merge-patch+json")],
        r#"{"metadata":{"labels":{"x":"y"}}}"#,
    );
    let labelled = labelled.await;
    assert!(labelled.headers("warning").is_empty(), "{labelled:?}");
    labelled.expect(200);
}

#[tokio::test]
async fn a_namespace_that_asks_for_more_is_told_of_its_pods() {
    let world = World::start().await;
    let api = world.plane("p").await;
    let bad = api.post(NAMESPACES, &namespace("n", &[("enforce", "none")])).await;
    assert_eq!(
        bad.message(),
        r#"Namespace "n" is invalid: metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: "none": must be one of privileged, baseline, restricted"#
    );
    api.post(NAMESPACES, &namespace("n", &[])).await.expect(201);
    for name in ["b", "a", "c"] {
        let spec = if name == "c" {
            json!({"hostIPC": true})
        } else {
            json!({"hostPID": true, "hostNetwork": true})
        };
        api.post("/api/v1/namespaces/n/pods", &pod(name, spec))
            .await
            .expect(201);
    }
    let relabel =
        |level: &str| format!(r#"{{"metadata":{{"labels":{{"pod-security.kubernetes.io/enforce":"{level}"}}}}}}"#);
    let headers = [("content-type", "application/merge-patch+json")];
    let warned = api
        .call(Method::PATCH, &format!("{NAMESPACES}/n"), &headers, relabel("baseline"))
        .await;
    assert_eq!(
        warned.headers("warning"),
        [
            r#"299 - "existing pods in namespace \"n\" violate the new PodSecurity enforce level \"baseline:latest\"""#,
            r#"299 - "a (and 2 other pods): host namespaces""#,
        ]
    );
    warned.expect(200);
    let relaxed = api
        .call(
            Method::PATCH,
            &format!("{NAMESPACES}/n"),
            &headers,
            relabel("privileged"),
        )
        .await;
    assert!(relaxed.headers("warning").is_empty());
}

async fn may(api: &Api, name: &str, user: &str, rules: Value) {
    let role = json!({"metadata": {"name": name}, "rules": rules});
    api.post(&format!("{RBAC}/clusterroles"), &role).await.expect(201);
    let binding = json!({"metadata": {"name": name}, "roleRef": {"kind": "ClusterRole", "name": name, "apiGroup": "rbac.authorization.k8s.io"},
        "subjects": [{"kind": "User", "name": user}]});
    api.post(&format!("{RBAC}/clusterrolebindings"), &binding)
        .await
        .expect(201);
}

#[tokio::test]
async fn owners_are_named_by_those_who_may_delete_and_finalize() {
    let plugins = Plugins::new(&["OwnerReferencesPermissionEnforcement"], &[]).unwrap();
    let world = World::plugged(plugins).await;
    let api = world.plane("p").await;
    let owner = api.post(MAPS, &map("owner")).await.expect(201);
    let of = |block: bool| json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"], "blockOwnerDeletion": block}]);
    may(
        &api,
        "writes",
        "ann",
        json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "create", "update"]}]),
    )
    .await;
    let ann = api.acting("ann");
    ann.until(MAPS, 200).await;
    let mut child = map("child");
    child["metadata"]["ownerReferences"] = of(true);
    assert_eq!(
        ann.post(MAPS, &child).await.message(),
        r#"configmaps "child" is forbidden: cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: , <nil>"#
    );
    child["metadata"]["ownerReferences"][0]["kind"] = json!("Nothing");
    assert_eq!(
        ann.post(MAPS, &child).await.message(),
        r#"configmaps "child" is forbidden: cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion v1 Kind Nothing: no matches for kind "Nothing" in version "v1""#
    );
    // Who makes something may say whose it is.
    child["metadata"]["ownerReferences"] = of(false);
    let mut made = ann.post(MAPS, &child).await.expect(201);
    made["metadata"]["ownerReferences"] = json!([]);
    assert_eq!(
        ann.put(&format!("{MAPS}/child"), &made).await.message(),
        r#"configmaps "child" is forbidden: cannot set an ownerRef on a resource you can't delete: , <nil>"#
    );
    made["metadata"]["ownerReferences"] = of(false);
    made["data"] = json!({"k": "v"});
    ann.put(&format!("{MAPS}/child"), &made).await.expect(200);
    may(
        &api,
        "finalizes",
        "ann",
        json!([{"apiGroups": [""], "resources": ["configmaps/finalizers"], "verbs": ["update"]}]),
    )
    .await;
    let mut other = map("other");
    other["metadata"]["ownerReferences"] = of(true);
    loop {
        if ann.post(MAPS, &other).await.code() == 201 {
            break;
        }
        tokio::task::yield_now().await;
    }
    // It is off unless asked for.
    let world = World::start().await;
    let plain = world.plane("p").await;
    may(
        &plain,
        "writes",
        "ann",
        json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "create"]}]),
    )
    .await;
    plain.acting("ann").until(MAPS, 200).await;
    plain.acting("ann").post(MAPS, &other).await.expect(201);
}

#[tokio::test]
async fn a_claim_grows_if_it_is_bound_and_its_class_lets_it() {
    let world = World::start().await;
    let api = world.plane("p").await;
    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    for (class, grows) in [("fixed", false), ("elastic", true)] {
        let made = json!({"metadata": {"name": class}, "provisioner": "x", "allowVolumeExpansion": grows});
        api.post("/apis/storage.k8s.io/v1/storageclasses", &made)
            .await
            .expect(201);
        let claim = json!({"metadata": {"name": class}, "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": class,
            "volumeName": "v", "resources": {"requests": {"storage": "1Gi"}}}});
        api.post(claims, &claim).await.expect(201);
    }
    let patch = async |path: &str, body: &str| {
        let headers = [("content-type", "application/merge-patch+json")];
        api.call(Method::PATCH, path, &headers, body.to_owned()).await
    };
    let grown = r#"{"spec":{"resources":{"requests":{"storage":"2Gi"}}}}"#;
    let elastic = format!("{claims}/elastic");
    let early = patch(&elastic, grown).await;
    assert!(!early.code().to_string().starts_with('2'), "{early:?}");
    for class in ["fixed", "elastic"] {
        let path = format!("{claims}/{class}/status");
        patch(&path, r#"{"status":{"phase":"Bound"}}"#).await.expect(200);
    }
    assert_eq!(
        patch(&format!("{claims}/fixed"), grown).await.message(),
        r#"persistentvolumeclaims "fixed" is forbidden: only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize"#
    );
    patch(&elastic, grown).await.expect(200);
}

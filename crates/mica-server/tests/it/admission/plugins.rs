//! The plugins that are built in: limits, quotas, service accounts, signers.

use std::sync::Arc;

use mica_server::admission::PodAccounts;
use mica_store::MemStore;
use serde_json::{Value, json};

use super::super::hook::Hook;
use super::super::world::{Api, MAPS, World, map};
use super::{mutating, patch, webhook};

const PODS: &str = "/api/v1/namespaces/default/pods";
const QUOTAS: &str = "/api/v1/namespaces/default/resourcequotas";
const LIMITS: &str = "/api/v1/namespaces/default/limitranges";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";

fn pod(name: &str, resources: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": resources}]}})
}

/// A quota whose status says that nothing is used.
async fn quota(api: &Api, name: &str, hard: Value) {
    let quota =
        json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": name}, "spec": {"hard": hard}});
    api.post(QUOTAS, &quota).await.expect(201);
    let used: serde_json::Map<String, Value> = hard
        .as_object()
        .unwrap()
        .keys()
        .map(|key| (key.clone(), "0".into()))
        .collect();
    let status = json!({"status": {"hard": hard, "used": used}});
    api.patch(&format!("{QUOTAS}/{name}/status"), &status).await.expect(200);
}

async fn used(api: &Api, name: &str) -> Value {
    api.get(&format!("{QUOTAS}/{name}")).await.expect(200)["status"]["used"].clone()
}

#[tokio::test]
async fn a_limit_range_fills_in_and_refuses() {
    let world = World::start().await;
    let api = world.root().await;
    let limits = json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l"}, "spec": {"limits": [
        {"type": "Container", "default": {"memory": "64Mi"}, "defaultRequest": {"memory": "32Mi"},
            "max": {"memory": "128Mi"}, "min": {"memory": "16Mi"}},
        {"type": "Pod", "maxLimitRequestRatio": {"memory": "4"}},
        {"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}}]}});
    api.post(LIMITS, &limits).await.expect(201);
    let made = api.post(PODS, &pod("plain", json!({}))).await.expect(201);
    assert_eq!(
        made["spec"]["containers"][0]["resources"],
        json!({"limits": {"memory": "64Mi"}, "requests": {"memory": "32Mi"}})
    );
    assert_eq!(
        made["metadata"]["annotations"]["kubernetes.io/limit-ranger"],
        "LimitRanger plugin set: memory request for container c; memory limit for container c"
    );
    for (name, resources, why) in [
        (
            "large",
            json!({"limits": {"memory": "1Gi"}, "requests": {"memory": "1Gi"}}),
            "maximum memory usage per Container is 128Mi, but limit is 1Gi",
        ),
        (
            "small",
            json!({"limits": {"memory": "16Mi"}, "requests": {"memory": "8Mi"}}),
            "minimum memory usage per Container is 16Mi, but request is 8Mi",
        ),
        (
            "wide",
            json!({"limits": {"memory": "128Mi"}, "requests": {"memory": "16Mi"}}),
            "memory max limit to request ratio per Pod is 4, but provided ratio is 8.000000",
        ),
    ] {
        let refused = api.post(PODS, &pod(name, resources)).await;
        assert_eq!(
            (refused.code(), refused.message()),
            (403, format!("pods \"{name}\" is forbidden: {why}"))
        );
    }
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}}}});
    assert_eq!(
        api.post(CLAIMS, &claim).await.message(),
        "persistentvolumeclaims \"c\" is forbidden: maximum storage usage per PersistentVolumeClaim is 1Gi, but request is 2Gi"
    );
}

#[tokio::test]
async fn plugins_are_asked_again_about_what_webhooks_add() {
    let hook = Hook::start(|seen| {
        let container = json!({"name": "added", "image": "i"});
        patch(
            seen,
            json!([{"op": "add", "path": "/spec/containers/-", "value": container}]),
        )
    })
    .await;
    let world = World::start().await;
    let api = world.root().await;
    let limits = json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l"},
        "spec": {"limits": [{"type": "Container", "default": {"cpu": "1"}}]}});
    api.post(LIMITS, &limits).await.expect(201);
    let pods = webhook(&hook.client_config("/"), |hook| {
        hook["rules"] =
            json!([{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]);
    });
    mutating(&api, "a", &[pods]).await;
    let made = api.post(PODS, &pod("p", json!({}))).await.expect(201);
    let containers = made["spec"]["containers"].as_array().unwrap();
    assert_eq!(containers.len(), 2);
    assert!(
        containers.iter().all(|one| one["resources"]["limits"]["cpu"] == "1"),
        "{containers:?}"
    );
}

#[tokio::test]
async fn a_quota_counts_objects_and_what_pods_ask_for() {
    let world = World::start().await;
    let api = world.root().await;
    // Without a status a quota limits nothing yet.
    let bare = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "bare"}, "spec": {"hard": {"pods": "0"}}});
    api.post(QUOTAS, &bare).await.expect(201);
    api.post(PODS, &pod("free", json!({}))).await.expect(201);
    quota(
        &api,
        "q",
        json!({"configmaps": "2", "count/secrets": "1", "requests.cpu": "1"}),
    )
    .await;
    api.post(MAPS, &map("a")).await.expect(201);
    api.post(&format!("{MAPS}?dryRun=All"), &map("tried")).await.expect(201);
    api.post(MAPS, &map("b")).await.expect(201);
    assert_eq!(
        api.post(MAPS, &map("c")).await.message(),
        "configmaps \"c\" is forbidden: exceeded quota: q, requested: configmaps=1, used: configmaps=2, limited: configmaps=2"
    );
    assert_eq!(used(&api, "q").await["configmaps"], "2");
    assert_eq!(
        api.post(PODS, &pod("silent", json!({}))).await.message(),
        "pods \"silent\" is forbidden: failed quota: q: must specify requests.cpu for: c"
    );
    let half = || json!({"requests": {"cpu": "600m"}});
    api.post(PODS, &pod("one", half())).await.expect(201);
    assert_eq!(used(&api, "q").await["requests.cpu"], "600m");
    assert_eq!(
        api.post(PODS, &pod("two", half())).await.message(),
        "pods \"two\" is forbidden: exceeded quota: q, requested: requests.cpu=600m, used: requests.cpu=600m, limited: requests.cpu=1"
    );
    // What fails otherwise takes nothing.
    assert_eq!(
        api.post(PODS, &pod("one", json!({"requests": {"cpu": "1m"}})))
            .await
            .code(),
        409
    );
    assert_eq!(used(&api, "q").await["requests.cpu"], "600m");
}

#[tokio::test]
async fn a_quotas_scopes_choose_what_it_counts() {
    let world = World::start().await;
    let api = world.root().await;
    let hard = json!({"pods": "1"});
    let scoped = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"},
        "spec": {"hard": hard, "scopes": ["BestEffort"]}});
    api.post(QUOTAS, &scoped).await.expect(201);
    let status = json!({"status": {"hard": hard, "used": {"pods": "0"}}});
    api.patch(&format!("{QUOTAS}/q/status"), &status).await.expect(200);
    for name in ["a", "b"] {
        api.post(PODS, &pod(name, json!({"requests": {"cpu": "1m"}})))
            .await
            .expect(201);
    }
    api.post(PODS, &pod("c", json!({}))).await.expect(201);
    assert_eq!(api.post(PODS, &pod("d", json!({}))).await.code(), 403);
}

#[tokio::test]
async fn many_writers_on_two_servers_never_exceed_a_quota() {
    const ALLOWED: usize = 10;
    let store = Arc::new(MemStore::new());
    let (one, other) = (World::on(store.clone()).await, World::on(store).await);
    let (one, other) = (one.root().await, other.root().await);
    quota(&one, "q", json!({"configmaps": ALLOWED.to_string()})).await;
    // The other server has heard of it once it refuses or counts: reads say so.
    other.until(&format!("{QUOTAS}/q"), 200).await;
    other.post(MAPS, &map("first")).await.expect(201);
    let counted = used(&one, "q").await["configmaps"]
        .as_str()
        .unwrap()
        .parse::<usize>()
        .unwrap();
    let writers: Vec<_> = (0..40)
        .map(|at| {
            let api = if at % 2 == 0 { one.clone() } else { other.clone() };
            tokio::spawn(async move { api.post(MAPS, &map(&format!("m{at}"))).await.code() })
        })
        .collect();
    let mut codes = Vec::new();
    for writer in writers {
        codes.push(writer.await.unwrap());
    }
    assert_eq!(
        codes.iter().filter(|code| **code == 201).count(),
        ALLOWED - counted,
        "{codes:?}"
    );
    assert_eq!(
        codes.iter().filter(|code| **code == 403).count(),
        40 - (ALLOWED - counted),
        "{codes:?}"
    );
    assert_eq!(used(&one, "q").await["configmaps"], ALLOWED.to_string());
}

#[tokio::test]
async fn a_pod_gets_the_service_account_of_its_namespace() {
    let world = World::requiring(PodAccounts::Required).await;
    let api = world.root().await;
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    let mut other = pod("p", json!({}));
    other["spec"]["serviceAccountName"] = "other".into();
    assert_eq!(
        api.post(PODS, &other).await.message(),
        "pods \"p\" is forbidden: error looking up service account default/other: serviceaccount \"other\" not found"
    );
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "other"},
        "imagePullSecrets": [{"name": "pull"}]});
    api.post(accounts, &account).await.expect(201);
    let spec = api.post(PODS, &other).await.expect(201)["spec"].clone();
    assert_eq!(spec["imagePullSecrets"], json!([{"name": "pull"}]));
    let (volume, mount) = (&spec["volumes"][0], &spec["containers"][0]["volumeMounts"][0]);
    assert!(
        volume["name"].as_str().unwrap().starts_with("kube-api-access-"),
        "{volume}"
    );
    assert_eq!(volume["name"], mount["name"]);
    assert_eq!(mount["mountPath"], "/var/run/secrets/kubernetes.io/serviceaccount");
    assert_eq!(
        volume["projected"]["sources"][0]["serviceAccountToken"]["expirationSeconds"],
        3607
    );
}

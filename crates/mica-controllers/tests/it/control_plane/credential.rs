//! Credentials are kept while they are good, and everything that drifts is put right.

use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use mica_api::control_plane::KUBECONFIG;
use mica_testkit::kube;

use super::*;

/// The token in a kubeconfig: the last word of it.
fn token(kubeconfig: &str) -> &str {
    kubeconfig.split("token: ").nth(1).unwrap().trim()
}

/// Makes the token of a control plane as old as it may become, and waits until it is replaced. The kubeconfig then.
pub async fn renew(root: &Place, name: &str) -> String {
    let path = secret_path(name);
    let before = kubeconfig(&root.get(&path).await.unwrap(), KUBECONFIG);
    let old = token(&before);
    let mut claims: Value =
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(old.split('.').nth(1).unwrap()).unwrap()).unwrap();
    for field in ["iat", "exp"] {
        claims[field] = (claims[field].as_i64().unwrap() - 17 * 3600).into();
    }
    let aged = format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims.to_string()));
    let data = STANDARD.encode(before.replace(old, &aged));
    root.patch(&path, json!({"data": {KUBECONFIG: data}})).await;
    let renewed = root
        .until(&path, "renewed", |found| {
            found.is_some_and(|found| !kubeconfig(found, KUBECONFIG).contains(&aged))
        })
        .await
        .unwrap();
    kubeconfig(&renewed, KUBECONFIG)
}

#[tokio::test]
async fn a_fresh_token_is_left_alone_and_an_old_one_is_replaced() {
    let (_world, root) = world().await;
    make(&root, CLASSES, "ControlPlaneClass", "c", json!({})).await;
    control_plane(&root, "a", json!({"classRef": {"name": "c"}})).await;
    until_ready(&root, "a").await;
    let path = secret_path("a");
    let before = root.get(&path).await.unwrap();
    // A look that changes something else leaves the Secret as it is.
    root.patch(&format!("{CLASSES}/c"), json!({"spec": {"limits": {"objects": 1000}}}))
        .await;
    root.until(&format!("{PLANES}/a"), "limited", |found| {
        found.is_some_and(|found| found["spec"]["limits"]["objects"] == 1000)
    })
    .await;
    root.patch(
        &format!("{CONTROL_PLANES}/a"),
        json!({"spec": {"deletionPolicy": "Destroy"}}),
    )
    .await;
    until_ready(&root, "a").await;
    let after = root.get(&path).await.unwrap();
    assert_eq!(
        after["metadata"]["resourceVersion"],
        before["metadata"]["resourceVersion"]
    );
    // One whose life is two thirds over is replaced, and nothing else of the kubeconfig is.
    let kubeconfig_before = kubeconfig(&before, KUBECONFIG);
    let old = token(&kubeconfig_before);
    let renewed = renew(&root, "a").await;
    assert_eq!(renewed.replace(token(&renewed), ""), kubeconfig_before.replace(old, ""));
    let asked = ask(&client(&renewed).await, "GET", "/api/v1/namespaces", Value::Null).await;
    assert!(asked.is_ok());
}

#[tokio::test]
async fn whatever_somebody_takes_away_is_there_again() {
    let (_world, root) = world().await;
    control_plane(&root, "a", json!({})).await;
    let ready = until_ready(&root, "a").await;
    let path = secret_path("a");
    root.delete(&path).await;
    root.until(&path, "made again", |found| found.is_some()).await;
    root.delete("/api/v1/namespaces/kplane-cp-a").await;
    let uid = |found: Option<&Value>| found.map(|found| found["metadata"]["uid"].clone());
    let first = uid(root.get("/api/v1/namespaces/kplane-cp-a").await.as_ref());
    root.until("/api/v1/namespaces/kplane-cp-a", "made again", |found| {
        uid(found).is_some() && (first.is_none() || uid(found) != first)
    })
    .await;
    root.until(&path, "made again", |found| found.is_some()).await;
    let inside = "/clusters/a/control-plane";
    let account = format!("{inside}/api/v1/namespaces/kplane-system/serviceaccounts/controlplane-admin");
    root.delete(&account).await;
    root.until(&account, "made again", |found| found.is_some()).await;
    root.delete(&format!("{inside}{BINDING}")).await;
    root.until(&format!("{inside}{BINDING}"), "made again", |found| found.is_some())
        .await;
    // The account is another, and so the token is.
    let looking = async {
        loop {
            if let Some(secret) = root.get(&path).await {
                let client = client(&kubeconfig(&secret, KUBECONFIG)).await;
                match ask(&client, "GET", "/api/v1/namespaces", Value::Null).await {
                    Ok(_) => return,
                    Err(kube::Error::Api(_)) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(90), looking)
        .await
        .unwrap();
    let now = until_ready(&root, "a").await;
    assert_eq!(now["status"]["endpoint"], ready["status"]["endpoint"]);
}

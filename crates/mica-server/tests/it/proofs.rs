//! Other proofs: a proxy in front, bootstrap tokens, a webhook that knows tokens, and who proves nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use mica_server::authn::{Anonymous, Authenticator, BootstrapTokens, FrontProxy, Headers, ReviewVersion, TokenWebhook};
use mica_server::egress::ClientConfig;
use mica_server::pki::Authority;
use serde_json::json;

use super::fixture::certificate_in;
use super::hook::{Answer, Hook};
use super::world::{Answer as Reply, Api, MAPS, World, text};

const WHO: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";

async fn who(api: &Api, headers: &[(&str, &str)]) -> Reply {
    let headers = [headers, &[("content-type", "application/json")]].concat();
    api.call(Method::POST, WHO, &headers, "{}").await
}

async fn with_token(nobody: &Api, token: &str) -> Reply {
    who(nobody, &[("authorization", &format!("Bearer {token}"))]).await
}

fn front_proxy(authority: &Authority) -> Authenticator {
    let list = |name: &str| vec![name.to_owned()];
    let headers = Headers {
        username: vec!["X-Remote-User".to_owned(), "X-Other-User".to_owned()],
        uid: list("X-Remote-Uid"),
        group: list("X-Remote-Group"),
        extra_prefixes: list("X-Remote-Extra-"),
    };
    let proxy = FrontProxy::new(authority.certificate_pem(), list("front-proxy"), headers).unwrap();
    Authenticator {
        front_proxy: Some(Arc::new(proxy)),
        ..Authenticator::default()
    }
}

#[tokio::test]
async fn a_proxy_in_front_names_users_and_nobody_else_does() {
    let proxies = Authority::generate("proxies", SystemTime::now()).unwrap();
    let world = World::proving(front_proxy(&proxies)).await;
    let named = [
        ("x-remote-user", "ann"),
        ("x-remote-uid", "7"),
        ("x-remote-group", "devs"),
        ("x-remote-group", "ops"),
        ("x-remote-extra-example.com%2fteam", "red"),
    ];
    let proxy = world
        .as_user(Some(&certificate_in(&proxies, "front-proxy", None)))
        .await;
    let me = who(&proxy, &named).await.expect(201)["status"]["userInfo"].clone();
    assert_eq!(
        me,
        json!({"username": "ann", "uid": "7", "groups": ["devs", "ops", "system:authenticated"],
            "extra": {"example.com/team": ["red"]}})
    );
    let me = who(&proxy, &[("x-other-user", "bob")]).await.expect(201);
    assert_eq!(text(&me, "/status/userInfo/username"), "bob");
    // Servers that stand behind this one are told about it.
    let told = world.root().await;
    let told = told.get("/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication");
    let told = told.await.expect(200)["data"].clone();
    assert_eq!(told["requestheader-client-ca-file"], proxies.certificate_pem());
    assert_eq!(
        told["requestheader-username-headers"],
        r#"["X-Remote-User","X-Other-User"]"#
    );
    assert_eq!(told["requestheader-allowed-names"], r#"["front-proxy"]"#);
    // The proxy's authority signs nobody else's certificate: by itself the proxy is nobody.
    assert_eq!(who(&proxy, &[]).await.code(), 401);
    let others = Authority::generate("others", SystemTime::now()).unwrap();
    for (what, certificate, expected) in [
        ("another name", Some(certificate_in(&proxies, "back-proxy", None)), None),
        ("a stranger", Some(certificate_in(&others, "front-proxy", None)), None),
        (
            "a user",
            Some(certificate_in(&world.authority, "front-proxy", None)),
            Some("front-proxy"),
        ),
        ("no certificate", None, Some("system:anonymous")),
    ] {
        let api = world.as_user(certificate.as_ref()).await;
        let answer = who(&api, &named).await;
        match expected {
            None => assert_eq!(answer.code(), 401, "{what}"),
            // Who may not ask who they are is told whom they count as.
            Some("system:anonymous") => {
                assert!(
                    answer.message().contains("\"system:anonymous\""),
                    "{what}: {}",
                    answer.message()
                );
            }
            Some(name) => assert_eq!(text(&answer.expect(201), "/status/userInfo/username"), name, "{what}"),
        }
    }
}

async fn bootstrap_secret(api: &Api, id: &str, changes: &[(&str, &str)]) {
    let mut data = serde_json::Map::new();
    let secret = "0123456789abcdef";
    for (key, value) in [
        ("token-id", id),
        ("token-secret", secret),
        ("usage-bootstrap-authentication", "true"),
        ("auth-extra-groups", "system:bootstrappers:nodes"),
    ]
    .iter()
    .chain(changes)
    {
        data.insert((*key).to_owned(), STANDARD.encode(value).into());
    }
    let object = json!({"metadata": {"name": format!("bootstrap-token-{id}")},
        "type": "bootstrap.kubernetes.io/token", "data": data});
    api.post("/api/v1/namespaces/kube-system/secrets", &object)
        .await
        .expect(201);
}

#[tokio::test]
async fn a_bootstrap_token_counts_in_its_plane_until_it_ends() {
    let world = World::proving(Authenticator {
        bootstrap: BootstrapTokens::Accepted,
        ..Authenticator::default()
    })
    .await;
    let (plane, nobody) = (world.plane("p").await, world.as_user(None).await);
    world.plane("q").await;
    bootstrap_secret(&plane, "aaaaaa", &[("expiration", "2999-01-01T00:00:00Z")]).await;
    bootstrap_secret(&plane, "bbbbbb", &[("expiration", "2020-01-01T00:00:00Z")]).await;
    let me = with_token(&nobody.at_plane("p"), "aaaaaa.0123456789abcdef")
        .await
        .expect(201);
    assert_eq!(text(&me, "/status/userInfo/username"), "system:bootstrap:aaaaaa");
    assert_eq!(
        me["status"]["userInfo"]["groups"],
        json!([
            "system:bootstrappers",
            "system:bootstrappers:nodes",
            "system:authenticated"
        ])
    );
    for (api, token) in [
        (nobody.clone(), "aaaaaa.0123456789abcdef"),
        (nobody.at_plane("q"), "aaaaaa.0123456789abcdef"),
        (nobody.at_plane("p"), "aaaaaa.0123456789abcdee"),
        (nobody.at_plane("p"), "bbbbbb.0123456789abcdef"),
        (nobody.at_plane("p"), "cccccc.0123456789abcdef"),
    ] {
        assert_eq!(with_token(&api, token).await.code(), 401, "{token}");
    }
    // Where such tokens are not wanted they are nothing.
    let world = World::start().await;
    bootstrap_secret(&world.root().await, "aaaaaa", &[]).await;
    let nobody = world.as_user(None).await;
    assert_eq!(with_token(&nobody, "aaaaaa.0123456789abcdef").await.code(), 401);
}

#[tokio::test]
async fn a_webhook_is_asked_once_about_a_token_and_again_after_a_failure() {
    let failures = Arc::new(AtomicUsize::new(1));
    let left = failures.clone();
    let hook = Hook::start(move |seen| {
        let known = match seen.body["spec"]["token"].as_str().unwrap() {
            "good" => {
                json!({"authenticated": true, "user": {"username": "ann", "groups": ["devs"], "extra": {"k": ["v"]}}})
            }
            "for others" => json!({"authenticated": true, "audiences": ["others"], "user": {"username": "bob"}}),
            "flaky"
                if left
                    .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1))
                    .is_ok() =>
            {
                return Answer::Reply {
                    code: 500,
                    content_type: None,
                    body: "s3cret".to_owned(),
                };
            }
            "flaky" => json!({"authenticated": true, "user": {"username": "cleo"}}),
            _ => json!({"authenticated": false, "error": "who is that"}),
        };
        Answer::Json(json!({"kind": "TokenReview", "apiVersion": "authentication.k8s.io/v1", "status": known}))
    })
    .await;
    let to = ClientConfig::from_value(&hook.client_config("/authenticate")).unwrap();
    let webhook = TokenWebhook::new(to, ReviewVersion::V1, Duration::from_secs(600));
    let world = World::proving(Authenticator {
        webhook: Some(Arc::new(webhook)),
        ..Authenticator::default()
    })
    .await;
    let (root, nobody) = (world.root().await, world.as_user(None).await);
    let asked = futures::future::join_all((0..8).map(|_| with_token(&nobody, "good"))).await;
    for answer in asked {
        let me = answer.expect(201)["status"]["userInfo"].clone();
        assert_eq!(
            me,
            json!({"username": "ann", "groups": ["devs", "system:authenticated"], "extra": {"k": ["v"]}})
        );
    }
    assert_eq!(hook.seen().len(), 1, "one question for all");
    let question = &hook.seen()[0];
    assert_eq!(question.body["spec"]["audiences"], json!(["https://mica.test"]));
    assert_eq!(question.body["apiVersion"], "authentication.k8s.io/v1");
    for _ in 0..2 {
        assert_eq!(with_token(&nobody, "bad").await.code(), 401);
        assert_eq!(with_token(&nobody, "for others").await.code(), 401);
    }
    assert_eq!(hook.seen().len(), 3, "noes are kept, too");
    assert_eq!(with_token(&nobody, "flaky").await.code(), 401);
    assert_eq!(with_token(&nobody, "flaky").await.code(), 201);
    let review = |token: &str| json!({"spec": {"token": token}});
    let status = root.post(REVIEWS, &review("bad")).await.expect(201)["status"].clone();
    assert_eq!(
        status,
        json!({"user": {}, "error": "[invalid bearer token, who is that]"})
    );
    let metrics = root.get("/metrics").await;
    let metrics = String::from_utf8_lossy(&metrics.body).into_owned();
    assert!(
        metrics.contains("mica_authentication_webhook_total{result=\"error\"} 1"),
        "{metrics}"
    );
}

#[tokio::test]
async fn nobody_is_somebody_only_where_it_is_said() {
    let world = World::proving(Authenticator {
        anonymous: Anonymous::At(vec!["/livez".to_owned()]),
        ..Authenticator::default()
    })
    .await;
    world.plane("p").await;
    let nobody = world.as_user(None).await;
    for api in [nobody.clone(), nobody.at_plane("p")] {
        assert_eq!(api.get("/livez").await.code(), 200);
        for path in ["/readyz", MAPS, "/livez/ping"] {
            assert_eq!(api.get(path).await.code(), 401, "{path}");
        }
    }
    assert_eq!(world.root().await.get("/readyz").await.code(), 200);
}

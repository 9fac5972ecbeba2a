//! Who decides: chains with webhooks, what those are asked, and what their answers and failures count as.

use std::path::PathBuf;
use std::time::Duration;

use http::Method;
use mica_server::authz::{Chain, LegacyWebhook};
use serde_json::{Value, json};

use super::fixture::certificate_in;
use super::hook::{Answer, Hook, Seen};
use super::world::{Api, MAPS, World, map};

const REVIEWS: &str = "/apis/authorization.k8s.io/v1";

/// A configuration whose webhook is at the hook, and the directory that holds it.
struct Configured {
    _home: tempfile::TempDir,
    path: PathBuf,
    kubeconfig: PathBuf,
}

impl Configured {
    fn new(hook: &Hook, settings: &str, rest: &str) -> Self {
        let home = tempfile::tempdir().unwrap();
        let (path, kubeconfig) = (home.path().join("authz.yaml"), home.path().join("hook.yaml"));
        std::fs::write(&kubeconfig, hook.kubeconfig("/authorize", "s3cret")).unwrap();
        let configured = Self {
            _home: home,
            path,
            kubeconfig,
        };
        configured.write(settings, rest);
        configured
    }

    fn write(&self, settings: &str, rest: &str) {
        let text = format!(
            "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n\
             - {{type: Webhook, name: hook, webhook: {{timeout: 5s, subjectAccessReviewVersion: v1, \
             matchConditionSubjectAccessReviewVersion: v1, connectionInfo: {{type: KubeConfigFile, kubeConfigFile: {}}}, \
             {settings}}}}}\n{rest}",
            self.kubeconfig.display()
        );
        std::fs::write(&self.path, text).unwrap();
    }

    async fn world(&self) -> World {
        let chain = Chain::from_file(&self.path).unwrap();
        World::deciding(chain.reloading_every(Duration::from_millis(20))).await
    }
}

const RBAC: &str = "- {type: RBAC, name: rbac}\n";

async fn user(world: &World, name: &str) -> Api {
    let certificate = certificate_in(&world.authority, name, Some("staff"));
    world.as_user(Some(&certificate)).await
}

fn status(status: Value) -> Answer {
    Answer::Json(json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "status": status}))
}

/// Allows ann everything, denies eve everything, and knows nobody else.
fn by_name(seen: &Seen) -> Answer {
    match seen.body["spec"]["user"].as_str().unwrap() {
        "ann" => status(json!({"allowed": true, "reason": "ann may"})),
        "eve" => status(json!({"allowed": false, "denied": true, "reason": "never eve"})),
        _ => status(json!({"allowed": false, "reason": "nobody I know"})),
    }
}

#[tokio::test]
async fn a_webhook_allows_denies_or_leaves_it_to_the_next() {
    let hook = Hook::start(by_name).await;
    let configured = Configured::new(&hook, "failurePolicy: Deny", RBAC);
    let world = configured.world().await;
    let one = world.plane("one").await;
    one.post(MAPS, &map("m")).await.expect(201);
    assert!(hook.seen().is_empty(), "administrators are not asked about");
    let [ann, eve, bob] = [
        user(&world, "ann").await,
        user(&world, "eve").await,
        user(&world, "bob").await,
    ];
    // In root and in planes, without a role in either.
    ann.post(MAPS, &map("a")).await.expect(201);
    assert_eq!(ann.at_plane("one").get(MAPS).await.code(), 200);
    assert_eq!(
        eve.get(MAPS).await.message(),
        r#"configmaps is forbidden: User "eve" cannot list resource "configmaps" in API group "" in the namespace "default": never eve"#
    );
    assert_eq!(
        bob.get(MAPS).await.message(),
        r#"configmaps is forbidden: User "bob" cannot list resource "configmaps" in API group "" in the namespace "default": nobody I know"#
    );
    // What the next in the chain allows is allowed.
    assert_eq!(bob.get("/version").await.code(), 200);
    assert_eq!(eve.get("/version").await.code(), 403);
    let answer = bob.get("/metrics").await;
    assert_eq!(
        answer.message(),
        r#"forbidden: User "bob" cannot get path "/metrics": nobody I know"#
    );
}

#[tokio::test]
async fn a_webhook_is_told_who_what_where_and_by_which_selectors() {
    let hook = Hook::start(by_name).await;
    let configured = Configured::new(&hook, "failurePolicy: Deny", "");
    let world = configured.world().await;
    let root = world.root().await;
    let parent = json!({"apiGroup": "resourcemanager.miloapis.com", "kind": "Project", "name": "p"});
    let plane = json!({"metadata": {"name": "one"}, "spec": {"parent": parent}});
    root.post("/apis/mica.dev/v1alpha1/planes", &plane).await.expect(201);
    let ann = user(&world, "ann").await.at_plane("one");
    let query = "?fieldSelector=metadata.name!%3Dx&labelSelector=a+in+(1,2),!b";
    ann.get(&format!("{MAPS}{query}")).await.expect(200);
    let seen = hook.seen().pop().unwrap();
    assert_eq!(seen.path(), "/authorize?timeout=5s");
    assert!(
        seen.head.contains("Bearer s3cret") || seen.head.contains("bearer s3cret"),
        "{}",
        seen.head
    );
    let mut spec = seen.body["spec"].clone();
    spec["extra"]["authentication.kubernetes.io/credential-id"].take();
    assert_eq!(
        spec,
        json!({
            "user": "ann",
            "groups": ["staff", "system:authenticated"],
            "extra": {
                "authentication.kubernetes.io/credential-id": null,
                "iam.miloapis.com/parent-api-group": ["resourcemanager.miloapis.com"],
                "iam.miloapis.com/parent-name": ["p"],
                "iam.miloapis.com/parent-type": ["Project"],
                "mica.dev/plane": ["one"],
            },
            "resourceAttributes": {
                "verb": "list", "version": "v1", "resource": "configmaps", "namespace": "default",
                "fieldSelector": {"requirements": [{"key": "metadata.name", "operator": "NotIn", "values": ["x"]}]},
                "labelSelector": {"requirements": [
                    {"key": "a", "operator": "In", "values": ["1", "2"]}, {"key": "b", "operator": "DoesNotExist"},
                ]},
            },
        })
    );
    let mut moved = root.get("/apis/mica.dev/v1alpha1/planes/one").await.expect(200);
    moved["spec"]["parent"]["name"] = json!("other");
    let refused = root.put("/apis/mica.dev/v1alpha1/planes/one", &moved).await;
    assert!(
        refused.message().contains("spec.parent") && refused.message().contains("immutable"),
        "{refused:?}"
    );
}

#[tokio::test]
async fn what_a_client_claims_of_its_parent_is_not_believed() {
    let hook = Hook::start(by_name).await;
    let configured = Configured::new(&hook, "failurePolicy: Deny, scope: {identities: All}", RBAC);
    let world = configured.world().await;
    let (root, one) = (world.root().await, world.plane("one").await);
    let claim = [
        ("impersonate-user", "bob"),
        ("impersonate-extra-iam.miloapis.com%2fparent-name", "theirs"),
        ("impersonate-extra-mica.dev%2fplane", "other"),
        ("impersonate-extra-scopes", "x"),
    ];
    for (api, expected) in [
        (&root, json!({"scopes": ["x"]})),
        (
            &one,
            json!({"scopes": ["x"], "mica.dev/plane": ["one"], "mica.dev/realm": ["plane"]}),
        ),
    ] {
        api.call(Method::GET, MAPS, &claim, "").await.expect(403);
        assert_eq!(hook.seen().pop().unwrap().body["spec"]["extra"], expected);
        let headers = [&claim[..], &[("content-type", "application/json")]].concat();
        let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
        let review = api.call(Method::POST, path, &headers, "{}");
        assert_eq!(
            review.await.expect(201)["status"]["userInfo"]["extra"],
            json!({"scopes": ["x"]})
        );
    }
    let review = json!({"spec": {"user": "bob", "extra": {"iam.miloapis.com/parent-name": ["theirs"], "k": ["v"]},
        "resourceAttributes": {"verb": "get", "resource": "pods"}}});
    root.post(&format!("{REVIEWS}/subjectaccessreviews"), &review)
        .await
        .expect(201);
    let asked = hook.seen().pop().unwrap().body;
    assert_eq!(asked["spec"]["extra"], json!({"k": ["v"]}));
    assert_eq!(
        asked["spec"]["resourceAttributes"],
        json!({"verb": "get", "resource": "pods", "version": "*"})
    );
}

#[tokio::test]
async fn a_webhook_sees_the_planes_and_identities_of_its_scope() {
    let hook = Hook::start(by_name).await;
    let configured = Configured::new(&hook, "failurePolicy: Deny, scope: {planes: Root}", RBAC);
    let world = configured.world().await;
    let one = world.plane("one").await;
    let ann = user(&world, "ann").await;
    assert_eq!(ann.get(MAPS).await.code(), 200);
    assert_eq!(ann.at_plane("one").get(MAPS).await.code(), 403);
    // Somebody whom a tenant calls ann is not the platform's.
    assert_eq!(one.acting("ann").get(MAPS).await.code(), 403);
    let asked = hook.seen().len();
    configured.write("failurePolicy: Deny, scope: {planes: Others}", RBAC);
    ann.until(MAPS, 403).await;
    assert_eq!(ann.at_plane("one").get(MAPS).await.code(), 200);
    assert_eq!(one.acting("ann").get(MAPS).await.code(), 403);
    assert_eq!(hook.seen().len(), asked + 1);
}

#[tokio::test]
async fn answers_are_remembered_for_as_long_as_they_count() {
    let hook = Hook::start(by_name).await;
    let configured = Configured::new(&hook, "failurePolicy: Deny, cacheUnauthorizedRequests: false", "");
    let world = configured.world().await;
    let (ann, bob) = (user(&world, "ann").await, user(&world, "bob").await);
    for _ in 0..3 {
        ann.get(MAPS).await.expect(200);
    }
    assert_eq!(hook.seen().len(), 1);
    for _ in 0..2 {
        bob.get(MAPS).await.expect(403);
    }
    assert_eq!(hook.seen().len(), 3);
    ann.get("/api/v1/namespaces/default/secrets").await.expect(200);
    assert_eq!(hook.seen().len(), 4);
}

#[tokio::test]
async fn a_failure_counts_as_the_policy_says() {
    for (policy, code) in [("NoOpinion", 200), ("Deny", 500)] {
        let hook = Hook::start(|_| Answer::Reply {
            code: 403,
            content_type: Some("text/plain"),
            body: "go <away>".to_owned(),
        })
        .await;
        let configured = Configured::new(&hook, &format!("failurePolicy: {policy}"), RBAC);
        let world = configured.world().await;
        let bob = user(&world, "bob").await;
        assert_eq!(bob.get("/version").await.code(), code, "{policy}");
        // Where nobody else allows it, the failure is told.
        let answer = bob.get(&format!("{MAPS}?limit=1")).await;
        assert_eq!(answer.code(), 500);
        assert_eq!(
            String::from_utf8_lossy(&answer.body),
            "Internal Server Error: \"/api/v1/namespaces/default/configmaps?limit=1\": go &lt;away&gt;\n"
        );
        let review = json!({"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}});
        let review = bob.post(&format!("{REVIEWS}/selfsubjectaccessreviews"), &review).await;
        if policy == "NoOpinion" {
            assert_eq!(
                review.expect(201)["status"],
                json!({"allowed": false, "evaluationError": "go <away>"})
            );
        }
    }
}

#[tokio::test]
async fn conditions_keep_questions_from_a_webhook() {
    let hook = Hook::start(by_name).await;
    let conditions = "failurePolicy: Deny, matchConditions: [{expression: \"has(request.resourceAttributes)\"}, \
         {expression: \"request.resourceAttributes.resource != 'secrets'\"}]";
    let configured = Configured::new(&hook, conditions, RBAC);
    let world = configured.world().await;
    let ann = user(&world, "ann").await;
    assert_eq!(ann.get(MAPS).await.code(), 200);
    assert_eq!(ann.get("/api/v1/namespaces/default/secrets").await.code(), 403);
    assert_eq!(ann.get("/metrics").await.code(), 403);
    assert_eq!(hook.seen().len(), 1);
    let text = world.root().await.get("/metrics").await;
    let text = String::from_utf8_lossy(&text.body).into_owned();
    for line in [
        r#"apiserver_authorization_decisions_total{type="Webhook",name="hook",decision="allowed"} 1"#,
        r#"apiserver_authorization_match_condition_exclusions_total{type="Webhook",name="hook"} 2"#,
        r#"apiserver_authorization_webhook_evaluations_total{name="hook",result="success"} 1"#,
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
}

#[tokio::test]
async fn a_bad_change_of_the_file_changes_nothing() {
    let hook = Hook::start(by_name).await;
    let configured = Configured::new(&hook, "failurePolicy: Deny", RBAC);
    let world = configured.world().await;
    let (root, ann) = (world.root().await, user(&world, "ann").await);
    assert_eq!(ann.get(MAPS).await.code(), 200);
    for (n, (settings, rest)) in [("failurePolicy: Deny", ""), ("failurePolicy: Perhaps", RBAC)]
        .into_iter()
        .enumerate()
    {
        configured.write(settings, rest);
        let line = format!(
            r#"apiserver_authorization_config_controller_automatic_reloads_total{{status="failure"}} {}"#,
            n + 1
        );
        loop {
            let text = root.get("/metrics").await;
            if String::from_utf8_lossy(&text.body).contains(&line) {
                break;
            }
            tokio::task::yield_now().await;
        }
        assert_eq!(ann.get(MAPS).await.code(), 200);
    }
}

#[tokio::test]
async fn what_a_webhook_may_allow_cannot_be_listed() {
    let hook = Hook::start(by_name).await;
    let kubeconfig = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(kubeconfig.path(), hook.kubeconfig("/", "t")).unwrap();
    let webhook = LegacyWebhook {
        config_file: kubeconfig.path().display().to_string(),
        ..LegacyWebhook::default()
    };
    let world = World::deciding(Chain::from_modes(&["RBAC", "Webhook"], &webhook).unwrap()).await;
    let bob = user(&world, "bob").await;
    let question = json!({"spec": {"namespace": "default"}});
    // The older version of reviews, which flags ask for unless told, gets no answer of the newer one.
    let answer = bob.get(MAPS).await;
    assert!(
        String::from_utf8_lossy(&answer.body).contains("authorization.k8s.io/v1beta1"),
        "{answer:?}"
    );
    let status = bob
        .post(&format!("{REVIEWS}/selfsubjectrulesreviews"), &question)
        .await
        .expect(201)["status"]
        .clone();
    assert_eq!(status["incomplete"], json!(true));
    assert_eq!(
        status["evaluationError"],
        json!("webhook authorizer does not support user rule resolution")
    );
    assert!(!status["nonResourceRules"].as_array().unwrap().is_empty());
}

#[tokio::test]
async fn chains_without_webhooks_allow_or_deny_all() {
    let none = LegacyWebhook::default();
    let world = World::deciding(Chain::from_modes(&["AlwaysDeny"], &none).unwrap()).await;
    let refused = user(&world, "bob").await.get("/version").await.message();
    assert_eq!(
        refused,
        r#"forbidden: User "bob" cannot get path "/version": Everything is forbidden."#
    );
    let world = World::deciding(Chain::from_modes(&["AlwaysAllow"], &none).unwrap()).await;
    assert_eq!(user(&world, "bob").await.get(MAPS).await.code(), 200);
    assert_eq!(world.as_user(None).await.get(MAPS).await.code(), 403);
}

//! Audit over real connections: what is written down, where it goes, and what becomes of it when that place fails.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use expect_test::{Expect, expect};
use http::Method;
use mica_machinery::audit::Policy;
use mica_server::audit::{AuditOptions, Batch, LogOptions, Truncate, WebhookOptions};
use mica_server::egress::{ClientConfig, EgressOptions, Network};
use serde_json::{Value, json};

use super::fixture::certificate_in;
use super::hook::{Answer, Hook};
use super::world::{Api, MAPS, PLANES, World, map, text};

const PATIENCE: Duration = Duration::from_secs(30);
const EVERYTHING: &str = "rules: [{level: RequestResponse}]";

fn policy(text: &str) -> Option<Arc<Policy>> {
    let text = format!("apiVersion: audit.k8s.io/v1\nkind: Policy\n{text}");
    Some(Arc::new(Policy::parse(text.as_bytes()).unwrap().0))
}

/// Calls to this machine are allowed.
fn here() -> EgressOptions {
    EgressOptions {
        allow: ["127.0.0.1".parse::<Network>().unwrap()].into_iter().collect(),
        ..EgressOptions::default()
    }
}

/// A world whose requests are written to a file.
struct Audited {
    world: World,
    path: PathBuf,
    _home: tempfile::TempDir,
}

impl Audited {
    async fn start(rules: &str) -> Self {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("audit.log");
        let options = AuditOptions {
            policy: policy(rules),
            log: Some(LogOptions::at(&path)),
            ..AuditOptions::default()
        };
        Self {
            world: World::auditing(options, here()).await,
            path,
            _home: home,
        }
    }

    fn events(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(&self.path).unwrap();
        // The last line may be on its way.
        let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        whole.map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Waits for so many events of one request; they are taken together when the last is there.
    async fn of(&self, id: &str, count: usize) -> Vec<Value> {
        let all = async {
            loop {
                let mut events = self.events();
                events.retain(|event| text(event, "/auditID") == id);
                if events.len() >= count {
                    return events;
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(PATIENCE, all).await.expect("events come")
    }

    /// What is written of the end of one request.
    async fn end(&self, api: &Api, method: Method, path: &str, headers: &[(&str, &str)], body: &str) -> Value {
        let id = uuid();
        let mut headers = headers.to_vec();
        headers.extend([("audit-id", id.as_str()), ("user-agent", "tester/1")]);
        api.call(method, path, &headers, body.to_owned()).await;
        self.of(&id, 2).await.pop().unwrap()
    }

    async fn stop(self) -> Vec<Value> {
        let Self { world, path, _home } = self;
        world.stop().await;
        let text = std::fs::read_to_string(&path).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

fn uuid() -> String {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    format!("id-{}", NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
}

/// An event without what differs each time.
fn check(mut event: Value, expected: &Expect) {
    let fields = event.as_object_mut().unwrap();
    for name in ["auditID", "requestReceivedTimestamp", "stageTimestamp"] {
        assert!(fields.remove(name).is_some_and(|value| value.as_str() != Some("")));
    }
    if let Some(extra) = event.pointer_mut("/user/extra/authentication.kubernetes.io~1credential-id/0") {
        *extra = "X509".into();
    }
    for body in ["requestObject", "responseObject"] {
        for field in ["uid", "resourceVersion", "creationTimestamp", "managedFields"] {
            if let Some(metadata) = event
                .pointer_mut(&format!("/{body}/metadata"))
                .and_then(Value::as_object_mut)
            {
                metadata.remove(field);
            }
        }
    }
    if let Some(details) = event
        .pointer_mut("/responseStatus/details")
        .and_then(Value::as_object_mut)
    {
        details.remove("uid");
    }
    if let Some(details) = event
        .pointer_mut("/responseObject/details")
        .and_then(Value::as_object_mut)
    {
        details.remove("uid");
    }
    expected.assert_eq(&event.to_string());
}

const JSON: (&str, &str) = ("content-type", "application/json");

#[tokio::test]
async fn requests_are_told_of_as_upstream_tells_of_them() {
    let audited = Audited::start(EVERYTHING).await;
    let root = audited.world.root().await;
    let body = r#"{"metadata":{"name":"a"},"data":{"k":"v"}}"#;
    check(
        audited.end(&root, Method::POST, MAPS, &[JSON], body).await,
        &expect![[
            r#"{"annotations":{"authorization.k8s.io/decision":"allow","authorization.k8s.io/reason":"","platform.miloapis.com/scope.type":"global"},"apiVersion":"audit.k8s.io/v1","kind":"Event","level":"RequestResponse","objectRef":{"apiVersion":"v1","name":"a","namespace":"default","resource":"configmaps"},"requestObject":{"apiVersion":"v1","data":{"k":"v"},"kind":"ConfigMap","metadata":{"name":"a"}},"requestURI":"/api/v1/namespaces/default/configmaps","responseObject":{"apiVersion":"v1","data":{"k":"v"},"kind":"ConfigMap","metadata":{"name":"a","namespace":"default"}},"responseStatus":{"code":201,"metadata":{}},"sourceIPs":["127.0.0.1"],"stage":"ResponseComplete","user":{"extra":{"authentication.kubernetes.io/credential-id":["X509"]},"groups":["system:masters","system:authenticated"],"username":"admin"},"userAgent":"tester/1","verb":"create"}"#
        ]],
    );
    let one = format!("{MAPS}/a");
    check(
        audited.end(&root, Method::POST, MAPS, &[JSON], body).await,
        &expect![[
            r#"{"annotations":{"authorization.k8s.io/decision":"allow","authorization.k8s.io/reason":"","platform.miloapis.com/scope.type":"global"},"apiVersion":"audit.k8s.io/v1","kind":"Event","level":"RequestResponse","objectRef":{"apiVersion":"v1","name":"a","namespace":"default","resource":"configmaps"},"requestObject":{"apiVersion":"v1","data":{"k":"v"},"kind":"ConfigMap","metadata":{"name":"a"}},"requestURI":"/api/v1/namespaces/default/configmaps","responseObject":{"apiVersion":"v1","code":409,"details":{"kind":"configmaps","name":"a"},"kind":"Status","message":"configmaps \"a\" already exists","metadata":{},"reason":"AlreadyExists","status":"Failure"},"responseStatus":{"code":409,"details":{"kind":"configmaps","name":"a"},"message":"configmaps \"a\" already exists","metadata":{},"reason":"AlreadyExists","status":"Failure"},"sourceIPs":["127.0.0.1"],"stage":"ResponseComplete","user":{"extra":{"authentication.kubernetes.io/credential-id":["X509"]},"groups":["system:masters","system:authenticated"],"username":"admin"},"userAgent":"tester/1","verb":"create"}"#
        ]],
    );
    let merge = ("content-type", "application/merge-patch+json");
    check(
        audited
            .end(&root, Method::PATCH, &one, &[merge], r#"{"data":{"z":"1"}}"#)
            .await,
        &expect![[
            r#"{"annotations":{"authorization.k8s.io/decision":"allow","authorization.k8s.io/reason":"","platform.miloapis.com/scope.type":"global"},"apiVersion":"audit.k8s.io/v1","kind":"Event","level":"RequestResponse","objectRef":{"apiVersion":"v1","name":"a","namespace":"default","resource":"configmaps"},"requestObject":{"data":{"z":"1"}},"requestURI":"/api/v1/namespaces/default/configmaps/a","responseObject":{"apiVersion":"v1","data":{"k":"v","z":"1"},"kind":"ConfigMap","metadata":{"name":"a","namespace":"default"}},"responseStatus":{"code":200,"metadata":{}},"sourceIPs":["127.0.0.1"],"stage":"ResponseComplete","user":{"extra":{"authentication.kubernetes.io/credential-id":["X509"]},"groups":["system:masters","system:authenticated"],"username":"admin"},"userAgent":"tester/1","verb":"patch"}"#
        ]],
    );
    check(
        audited.end(&root, Method::DELETE, &one, &[], "").await,
        &expect![[
            r#"{"annotations":{"authorization.k8s.io/decision":"allow","authorization.k8s.io/reason":"","platform.miloapis.com/scope.type":"global"},"apiVersion":"audit.k8s.io/v1","kind":"Event","level":"RequestResponse","objectRef":{"apiVersion":"v1","name":"a","namespace":"default","resource":"configmaps"},"requestURI":"/api/v1/namespaces/default/configmaps/a","responseObject":{"apiVersion":"v1","details":{"kind":"configmaps","name":"a"},"kind":"Status","metadata":{},"status":"Success"},"responseStatus":{"code":200,"details":{"kind":"configmaps","name":"a"},"metadata":{},"status":"Success"},"sourceIPs":["127.0.0.1"],"stage":"ResponseComplete","user":{"extra":{"authentication.kubernetes.io/credential-id":["X509"]},"groups":["system:masters","system:authenticated"],"username":"admin"},"userAgent":"tester/1","verb":"delete"}"#
        ]],
    );
    check(
        audited
            .end(&root, Method::GET, "/version", &[("x-forwarded-for", "1.2.3.4")], "")
            .await,
        &expect![[
            r#"{"annotations":{"authorization.k8s.io/decision":"allow","authorization.k8s.io/reason":"","platform.miloapis.com/scope.type":"global"},"apiVersion":"audit.k8s.io/v1","kind":"Event","level":"RequestResponse","requestURI":"/version","responseStatus":{"code":200,"metadata":{}},"sourceIPs":["1.2.3.4","127.0.0.1"],"stage":"ResponseComplete","user":{"extra":{"authentication.kubernetes.io/credential-id":["X509"]},"groups":["system:masters","system:authenticated"],"username":"admin"},"userAgent":"tester/1","verb":"get"}"#
        ]],
    );
    check(
        audited.end(&root, Method::GET, "/apis/nope/v1/things/x", &[], "").await,
        &expect![[
            r#"{"annotations":{"authorization.k8s.io/decision":"allow","authorization.k8s.io/reason":"","platform.miloapis.com/scope.type":"global"},"apiVersion":"audit.k8s.io/v1","kind":"Event","level":"RequestResponse","objectRef":{"apiGroup":"nope","apiVersion":"v1","name":"x","resource":"things"},"requestURI":"/apis/nope/v1/things/x","responseStatus":{"code":404,"metadata":{}},"sourceIPs":["127.0.0.1"],"stage":"ResponseComplete","user":{"extra":{"authentication.kubernetes.io/credential-id":["X509"]},"groups":["system:masters","system:authenticated"],"username":"admin"},"userAgent":"tester/1","verb":"get"}"#
        ]],
    );
    // YAML is shown as JSON; upstream cannot write such an event at all.
    let apply = ("content-type", "application/apply-patch+yaml");
    let yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: ap}\ndata: {q: r}";
    let path = format!("{MAPS}/ap?fieldManager=x");
    let applied = audited.end(&root, Method::PATCH, &path, &[apply], yaml).await;
    assert_eq!(applied["requestObject"]["data"], json!({"q": "r"}));
    // Protobuf too.
    let protobuf = ("accept", "application/vnd.kubernetes.protobuf");
    let path = format!("{MAPS}?fieldSelector=metadata.name%3Dap");
    let listed = audited.end(&root, Method::GET, &path, &[protobuf], "").await;
    assert_eq!(text(&listed, "/responseObject/items/0/metadata/name"), "ap", "{listed}");
    assert_eq!(text(&listed, "/responseObject/kind"), "ConfigMapList");
    assert_eq!(text(&listed, "/objectRef/name"), "ap");
    let garbage = audited.end(&root, Method::PUT, &one, &[JSON], "garbage").await;
    assert!(garbage.get("requestObject").is_none() && garbage["responseStatus"]["code"] == 400);
    let namespace = audited
        .end(&root, Method::GET, "/api/v1/namespaces/default", &[], "")
        .await;
    assert_eq!(text(&namespace, "/objectRef/namespace"), "default");
}

#[tokio::test]
async fn who_is_refused_is_written_down() {
    let audited = Audited::start(EVERYTHING).await;
    let world = &audited.world;
    let (root, nobody) = (world.root().await, world.as_user(None).await);
    let id = uuid();
    let headers = [
        ("audit-id", id.as_str()),
        ("authorization", "Bearer s3cret"),
        ("user-agent", ""),
    ];
    assert_eq!(nobody.call(Method::GET, MAPS, &headers, "").await.code(), 401);
    let events = audited.of(&id, 1).await;
    assert_eq!(events.len(), 1, "{events:?}");
    check(
        events[0].clone(),
        &expect![[
            r#"{"annotations":{"platform.miloapis.com/scope.type":"global"},"apiVersion":"audit.k8s.io/v1","kind":"Event","level":"RequestResponse","objectRef":{"apiVersion":"v1","namespace":"default","resource":"configmaps"},"requestURI":"/api/v1/namespaces/default/configmaps","responseObject":{"apiVersion":"v1","code":401,"kind":"Status","message":"Unauthorized","metadata":{},"reason":"Unauthorized","status":"Failure"},"responseStatus":{"code":401,"message":"Unauthorized","metadata":{},"reason":"Unauthorized","status":"Failure"},"sourceIPs":["127.0.0.1"],"stage":"ResponseStarted","user":{},"verb":"list"}"#
        ]],
    );
    check(
        audited.end(&nobody, Method::GET, "/api/v1/pods", &[], "").await,
        &expect![[
            r#"{"annotations":{"authorization.k8s.io/decision":"forbid","authorization.k8s.io/reason":"","platform.miloapis.com/scope.type":"global"},"apiVersion":"audit.k8s.io/v1","kind":"Event","level":"RequestResponse","objectRef":{"apiVersion":"v1","resource":"pods"},"requestURI":"/api/v1/pods","responseObject":{"apiVersion":"v1","code":403,"details":{"kind":"pods"},"kind":"Status","message":"pods is forbidden: User \"system:anonymous\" cannot list resource \"pods\" in API group \"\" at the cluster scope","metadata":{},"reason":"Forbidden","status":"Failure"},"responseStatus":{"code":403,"details":{"kind":"pods"},"message":"pods is forbidden: User \"system:anonymous\" cannot list resource \"pods\" in API group \"\" at the cluster scope","metadata":{},"reason":"Forbidden","status":"Failure"},"sourceIPs":["127.0.0.1"],"stage":"ResponseComplete","user":{"groups":["system:unauthenticated"],"username":"system:anonymous"},"userAgent":"tester/1","verb":"list"}"#
        ]],
    );
    let acting = [("impersonate-user", "bob"), ("impersonate-group", "g1")];
    let event = audited.end(&root, Method::GET, "/api/v1/pods", &acting, "").await;
    assert_eq!(text(&event, "/user/username"), "admin");
    assert_eq!(
        event["impersonatedUser"],
        json!({"username": "bob", "groups": ["g1", "system:authenticated"]})
    );
    assert_eq!(text(&event, "/annotations/authorization.k8s.io~1decision"), "forbid");
    let ann = certificate_in(&world.authority, "ann", None);
    let ann = world.as_user(Some(&ann)).await;
    let event = audited.end(&ann, Method::GET, "/version", &[], "").await;
    assert!(
        text(&event, "/annotations/authorization.k8s.io~1reason").starts_with("RBAC: allowed by"),
        "{event}"
    );
    let event = audited.end(&ann, Method::GET, "/api/v1/pods", &acting, "").await;
    assert_eq!(event["responseStatus"]["code"], 403);
    assert!(
        event["annotations"].get("authorization.k8s.io/decision").is_none(),
        "{event}"
    );
    let bad = "/clusters/%2e%2e/control-plane/api";
    let id = uuid();
    root.call(Method::GET, bad, &[("audit-id", id.as_str())], "").await;
    assert_eq!(audited.of(&id, 1).await[0]["responseStatus"]["code"], 400);
    for line in audited.stop().await {
        assert!(!line.to_string().contains("s3cret"), "{line}");
    }
}

#[tokio::test]
async fn tokens_are_never_written_down() {
    let audited = Audited::start(EVERYTHING).await;
    let root = audited.world.root().await;
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    root.post(accounts, &json!({"metadata": {"name": "robot"}}))
        .await
        .expect(201);
    let asked = root
        .post(&format!("{accounts}/robot/token"), &json!({}))
        .await
        .expect(201);
    let token = text(&asked, "/status/token").to_owned();
    let reviews = "/apis/authentication.k8s.io/v1/tokenreviews";
    root.post(reviews, &json!({"spec": {"token": token}})).await.expect(201);
    let accept = ("accept", "application/vnd.kubernetes.protobuf");
    let body = json!({"spec": {"token": token}}).to_string();
    root.call(Method::POST, reviews, &[JSON, accept], body).await;
    let events = audited.stop().await;
    let issued = events
        .iter()
        .find(|event| text(event, "/objectRef/subresource") == "token");
    assert!(issued.is_some());
    assert!(events.iter().any(|event| {
        event["annotations"]["authentication.kubernetes.io/issued-credential-id"]
            .as_str()
            .is_some_and(|id| id.starts_with("JTI="))
    }));
    for event in events {
        assert!(!event.to_string().contains(&token), "{event}");
    }
}

#[tokio::test]
async fn a_watch_is_told_of_when_it_begins_and_when_it_ends() {
    let audited = Audited::start(EVERYTHING).await;
    let root = audited.world.root().await;
    let id = uuid();
    let watch = root
        .watch_with(&format!("{MAPS}?watch=1"), &[("audit-id", id.as_str())])
        .await;
    let stages = |events: &[Value]| -> Vec<String> {
        let stages = events.iter().map(|event| text(event, "/stage").to_owned());
        stages.collect()
    };
    let events = audited.of(&id, 2).await;
    assert_eq!(stages(&events), ["RequestReceived", "ResponseStarted"]);
    drop(watch);
    let events = audited.of(&id, 3).await;
    assert_eq!(
        stages(&events),
        ["RequestReceived", "ResponseStarted", "ResponseComplete"]
    );
    assert_eq!(events[2]["responseStatus"], json!({"metadata": {}, "code": 200}));
    assert!(events[2].get("responseObject").is_none());
    let id = uuid();
    let streamed = format!("{MAPS}?limit=0");
    root.call(Method::GET, &streamed, &[("audit-id", id.as_str())], "")
        .await;
    let events = audited.of(&id, 2).await;
    assert_eq!(text(&events[1], "/responseObject/kind"), "ConfigMapList");
}

#[tokio::test]
async fn a_long_list_is_kept_whole_though_it_is_compressed_on_its_way() {
    let audited = Audited::start("omitManagedFields: true\nrules: [{level: RequestResponse, verbs: [list]}]").await;
    let root = audited.world.root().await;
    for i in 0..300 {
        let mut map = map(&format!("m{i}"));
        map["data"]["k"] = "x".repeat(1000).into();
        root.post(MAPS, &map).await.expect(201);
    }
    let event = audited
        .end(&root, Method::GET, MAPS, &[("accept-encoding", "gzip")], "")
        .await;
    let items = event["responseObject"]["items"].as_array().unwrap();
    assert!(items.len() > 300, "{}", items.len());
    assert!(items.iter().all(|item| item["metadata"].get("managedFields").is_none()));
}

#[tokio::test]
async fn events_say_which_plane_they_are_of() {
    let audited = Audited::start("rules: [{level: Metadata}]").await;
    let world = &audited.world;
    let root = world.root().await;
    let scoped = |event: &Value| -> Vec<String> {
        let keys = [
            "platform.miloapis.com/scope.type",
            "platform.miloapis.com/scope.name",
            "mica.dev/plane",
        ];
        let annotations = &event["annotations"];
        keys.iter()
            .filter_map(|key| annotations[*key].as_str().map(ToOwned::to_owned))
            .collect()
    };
    let mut spec = json!({"metadata": {"name": "p"}, "spec": {"addresses": [{"type": "Project", "value": "pro"}]}});
    root.post(PLANES, &spec).await.expect(201);
    spec["metadata"]["name"] = "q".into();
    spec["spec"] = json!({});
    root.post(PLANES, &spec).await.expect(201);
    for (api, expected) in [
        (root.clone(), &["global"][..]),
        (root.at_plane("q"), &["Plane", "q", "q"]),
        (root.at_plane("none"), &["Plane", "none", "none"]),
        (root.at("/projects/pro/control-plane"), &["Project", "pro"]),
        (root.at_plane("p"), &["Project", "p", "p"]),
        (root.at("/clusters/*/control-plane"), &["global", "*"]),
    ] {
        let event = audited.end(&api, Method::GET, MAPS, &[], "").await;
        assert_eq!(scoped(&event), expected, "{event}");
        assert!(event.get("responseObject").is_none());
    }
    let event = audited.end(&root.at_plane("q"), Method::GET, MAPS, &[], "").await;
    assert_eq!(text(&event, "/annotations/mica.dev~1plane-id").len(), 12, "{event}");
}

/// A plane that wants to be told of its requests.
fn told(name: &str, hook: &Hook, level: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"audit": {
        "policy": {"omitStages": ["RequestReceived"], "rules": [{"level": level, "verbs": ["create"]}]},
        "webhook": hook.client_config("/events"),
    }}})
}

const SOON: Batch = Batch {
    max_events: 400,
    max_bytes: 1 << 20,
    max_wait: Duration::from_millis(20),
};

fn ok() -> Answer {
    Answer::Reply {
        code: 200,
        content_type: None,
        body: String::new(),
    }
}

#[tokio::test]
async fn a_plane_is_told_of_its_own_requests_and_of_no_others() {
    let hook = Hook::start(|_| ok()).await;
    let options = AuditOptions {
        plane_batch: Some(SOON),
        ..AuditOptions::default()
    };
    let world = World::auditing(options, here()).await;
    let root = world.root().await;
    root.post(PLANES, &told("a", &hook, "Request")).await.expect(201);
    root.create_plane("b").await;
    for api in [&root, &root.at_plane("b"), &root.at_plane("a")] {
        api.post(MAPS, &map("m")).await.expect(201);
        api.get(&format!("{MAPS}/m")).await.expect(200);
    }
    hook.saw(1).await;
    let seen = hook.seen();
    let list = &seen[0].body;
    assert_eq!(
        (seen[0].path(), text(list, "/kind")),
        ("/events?timeout=30s", "EventList")
    );
    let items = list["items"].as_array().unwrap();
    assert_eq!(items.len(), 1, "{list}");
    assert_eq!(
        text(&items[0], "/requestURI"),
        "/clusters/a/control-plane/api/v1/namespaces/default/configmaps"
    );
    assert_eq!(
        (
            text(&items[0], "/level"),
            text(&items[0], "/requestObject/metadata/name")
        ),
        ("Request", "m")
    );
    // Nothing is kept for a plane that has nothing to tell.
    while world.server.auditor.busy_planes() > 0 {
        tokio::task::yield_now().await;
    }
    // What it says is changed while it runs, on all servers.
    let none = json!({"spec": {"audit": null}});
    root.patch(&format!("{PLANES}/a"), &none).await.expect(200);
    root.at_plane("a").post(MAPS, &map("n")).await.expect(201);
    assert_eq!(world.server.auditor.busy_planes(), 0);
    let wrong = json!({"spec": {"audit": {"policy": {"rules": [{"level": "All"}]}, "webhook": {"url": "http://x"}}}});
    let refused = root.patch(&format!("{PLANES}/a"), &wrong).await;
    expect![[r#"Plane.mica.dev "a" is invalid: [spec.audit.policy.rules[0].level: Unsupported value: "All": supported values: "None", "Metadata", "Request", "RequestResponse", spec.audit.webhook.url: Invalid value: "http": 'https' is the only allowed URL scheme; desired format: https://host[/path]]"#]].assert_eq(&refused.message());
}

#[tokio::test]
async fn a_planes_events_do_not_go_where_the_plane_may_not_call() {
    let hook = Hook::start(|_| ok()).await;
    let options = AuditOptions {
        plane_batch: Some(SOON),
        ..AuditOptions::default()
    };
    let world = World::auditing(options, EgressOptions::default()).await;
    let root = world.root().await;
    root.post(PLANES, &told("a", &hook, "Metadata")).await.expect(201);
    root.at_plane("a").post(MAPS, &map("m")).await.expect(201);
    let auditor = world.server.auditor.clone();
    world.stop().await;
    assert_eq!((hook.seen().len(), hook.connections()), (0, 0));
    assert_eq!(auditor.metrics().dropped("plane"), 1);
}

fn sent_to(hook: &Hook, change: impl FnOnce(&mut WebhookOptions)) -> AuditOptions {
    let to = ClientConfig::from_value(&hook.client_config("/events")).unwrap();
    let mut webhook = WebhookOptions::to(to);
    webhook.batch = SOON;
    webhook.initial_backoff = Duration::from_millis(1);
    change(&mut webhook);
    AuditOptions {
        policy: policy("omitStages: [RequestReceived]\nrules: [{level: RequestResponse, verbs: [create]}]"),
        webhook: Some(webhook),
        ..AuditOptions::default()
    }
}

#[tokio::test]
async fn a_webhook_that_answers_500_for_ever_costs_its_events_and_nothing_else() {
    let hook = Hook::start(|_| Answer::Reply {
        code: 500,
        content_type: None,
        body: "no".to_owned(),
    })
    .await;
    let world = World::auditing(sent_to(&hook, |_| {}), EgressOptions::default()).await;
    let root = world.root().await;
    root.post(MAPS, &map("m")).await.expect(201);
    let auditor = world.server.auditor.clone();
    let given_up = async {
        while auditor.metrics().dropped("webhook") == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, given_up).await.expect("it gives up");
    assert_eq!(hook.seen().len(), 5, "it was offered some times");
    root.post(MAPS, &map("n")).await.expect(201);
    let metrics = world.server.metrics.encode();
    assert!(
        metrics.contains("apiserver_audit_error_total{plugin=\"webhook\"} 1"),
        "{metrics}"
    );
    assert!(metrics.contains("apiserver_audit_requests_rejected_total 0"));
    assert!(
        metrics.contains("apiserver_audit_level_total{level=\"RequestResponse\"} 2"),
        "{metrics}"
    );
}

#[tokio::test]
async fn a_webhook_that_hangs_holds_up_nobody_and_no_more_than_its_buffer_waits() {
    let hook = Hook::start(|_| Answer::Hang(Vec::new())).await;
    let options = sent_to(&hook, |webhook| webhook.buffer = 3);
    let world = World::auditing(options, EgressOptions::default()).await;
    let root = world.root().await;
    for i in 0..10 {
        root.post(MAPS, &map(&format!("m{i}"))).await.expect(201);
    }
    assert_eq!(world.server.auditor.metrics().dropped("webhook"), 7);
    // The end does not wait for it for ever.
    world.begin_stop();
    world.server.auditor.close(Duration::from_millis(50)).await;
}

#[tokio::test]
async fn a_full_disk_costs_events_and_nothing_else() {
    let options = AuditOptions {
        policy: policy(EVERYTHING),
        log: Some(LogOptions::at("/dev/full")),
        ..AuditOptions::default()
    };
    let world = World::auditing(options, EgressOptions::default()).await;
    let root = world.root().await;
    for i in 0..10 {
        root.post(MAPS, &map(&format!("m{i}"))).await.expect(201);
    }
    let auditor = world.server.auditor.clone();
    world.stop().await;
    assert_eq!(auditor.metrics().dropped("log"), 20);
}

#[tokio::test]
async fn a_log_that_cannot_be_opened_is_told_at_the_start() {
    let options = AuditOptions {
        policy: policy(EVERYTHING),
        log: Some(LogOptions::at("/dev/null/audit.log")),
        ..AuditOptions::default()
    };
    let options = mica_server::start::ServerOptions {
        audit: options,
        ..mica_server::start::ServerOptions::default()
    };
    let opened = mica_server::serve::Server::open(Arc::new(mica_store::MemStore::new()), options).await;
    let error = opened.err().unwrap();
    assert!(
        error
            .to_string()
            .contains("the audit log /dev/null/audit.log cannot be opened"),
        "{error}"
    );
}

#[tokio::test]
async fn what_waits_is_delivered_before_the_end_and_large_events_lose_their_bodies() {
    let hook = Hook::start(|_| ok()).await;
    let options = sent_to(&hook, |webhook| {
        webhook.batch.max_wait = Duration::from_secs(3600);
        webhook.truncate = Some(Truncate { max_event: 10_000 });
    });
    let world = World::auditing(options, EgressOptions::default()).await;
    let root = world.root().await;
    root.post(MAPS, &map("small")).await.expect(201);
    let mut large = map("large");
    large["data"]["k"] = "x".repeat(20_000).into();
    root.post(MAPS, &large).await.expect(201);
    world.stop().await;
    let seen = hook.seen();
    let items = seen[0].body["items"].as_array().unwrap().clone();
    assert_eq!((seen.len(), items.len()), (1, 2));
    assert_eq!(text(&items[0], "/requestObject/metadata/name"), "small");
    assert!(items[0].get("kind").is_none() && items[1].get("requestObject").is_none());
    assert_eq!(text(&items[1], "/annotations/audit.k8s.io~1truncated"), "true");
}

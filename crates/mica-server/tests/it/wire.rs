//! What goes over the wire: who is let in, formats of bodies and answers, headers, discovery and its entity tags.

use http::Method;
use mica_machinery::facts::facts;
use mica_machinery::protobuf;
use serde_json::{Value, json};

use super::fixture::certificate_in;
use super::world::{Answer, Api, MAPS, PLANES, World, map, names, text};

const JSON: (&str, &str) = ("content-type", "application/json");
const YAML: (&str, &str) = ("content-type", "application/yaml");
const PROTOBUF: (&str, &str) = ("content-type", "application/vnd.kubernetes.protobuf");

/// Paths that every identity of the platform may read in root, and nobody else.
const DISCOVERY: [&str; 5] = ["/api", "/apis", "/apis/mica.dev/v1alpha1", "/openapi/v2", "/openapi/v3"];

/// Paths of every other sort: resources, planes, all planes, what does not exist.
const GUARDED: [&str; 15] = [
    "/",
    "/metrics",
    "/readyz/etcd",
    "/livez/ping",
    "/nothing",
    "/api/v1/namespaces",
    "/api/v1/namespaces/default/configmaps/a",
    PLANES,
    "/apis/mica.dev/v1alpha1/objects",
    "/apis/mica.dev/v1alpha1/planes/p/snapshot",
    "/clusters/p/control-plane/api/v1/namespaces",
    "/clusters/p/control-plane/metrics",
    "/clusters/none/control-plane/api/v1/namespaces",
    "/clusters/*/control-plane/api/v1/configmaps",
    "/clusters/*/control-plane/apis/mica.dev/v1alpha1/objects?watch=1",
];

#[tokio::test]
async fn strangers_are_let_in_where_upstream_lets_them_in() {
    let world = World::start().await;
    world.plane("p").await;
    let nobody = world.as_user(None).await;
    let somebody = certificate_in(&world.authority, "eve", Some("eves"));
    let somebody = world.as_user(Some(&somebody)).await;
    for path in GUARDED {
        for method in [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
            let answer = nobody.call(method.clone(), path, &[JSON], "{}").await;
            assert_eq!(answer.code(), 403, "{method} {path}: {}", answer.json());
            let answer = somebody.call(method.clone(), path, &[JSON], "{}").await;
            assert_eq!(answer.code(), 403, "{method} {path}: {}", answer.json());
        }
    }
    let refused = somebody.get("/api/v1/namespaces/default/configmaps").await;
    assert_eq!(
        refused.message(),
        "configmaps is forbidden: User \"eve\" cannot list resource \"configmaps\" in API group \"\" in the namespace \"default\""
    );
    for path in DISCOVERY {
        assert_eq!(nobody.get(path).await.code(), 403, "{path}");
        assert_eq!(somebody.get(path).await.code(), 200, "{path}");
        assert_eq!(somebody.call(Method::POST, path, &[], "").await.code(), 403, "{path}");
        assert_eq!(somebody.at_plane("p").get(path).await.code(), 403, "{path}");
    }
    for (path, inside) in [
        ("/clusters/p/control-plane/metrics", "/metrics"),
        ("/clusters/p/control-plane/", "/"),
        ("/none/here", "/none/here"),
    ] {
        let refused = somebody.get(path).await.message();
        let expected = format!("forbidden: User \"eve\" cannot get path \"{inside}\"");
        assert!(refused.starts_with(&expected), "{refused}");
    }
    // As upstream's `system:public-info-viewer` has it.
    for path in ["/healthz", "/livez", "/readyz", "/readyz?verbose", "/version"] {
        assert_eq!(nobody.get(path).await.code(), 200, "{path}");
        assert_eq!(somebody.get(path).await.code(), 200, "{path}");
        assert_eq!(nobody.call(Method::POST, path, &[], "").await.code(), 403, "{path}");
    }
}

#[tokio::test]
async fn whoever_asks_is_told_who_they_are() {
    let world = World::start().await;
    let root = world.root().await;
    let review = json!({"metadata": {}});
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let user = root.post(path, &review).await.expect(201)["status"]["userInfo"].clone();
    assert_eq!(user["username"], "admin");
    assert_eq!(user["groups"], json!(["system:masters", "system:authenticated"]));
    let credential = text(&user, "/extra/authentication.kubernetes.io~1credential-id/0");
    assert!(
        credential.starts_with("X509SHA256=") && credential.len() == 75,
        "{credential}"
    );
    let rules = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    let answer = root
        .post(rules, &json!({"spec": {"namespace": "default"}}))
        .await
        .expect(201);
    assert_eq!((&answer["metadata"], &answer["spec"]), (&json!({}), &json!({})));
    assert_eq!(
        root.post(rules, &json!({"spec": {}})).await.message(),
        "no namespace on request"
    );
}

#[tokio::test]
async fn a_certificate_of_another_authority_is_nobodys() {
    let world = World::start().await;
    let other = World::start().await;
    let stranger = world.connect("localhost", Some(&other.admin)).await;
    let stranger = world.root().await.with(stranger);
    assert_eq!(stranger.get("/api/v1/namespaces").await.code(), 401);
}

#[tokio::test]
async fn bodies_and_answers_are_json_yaml_or_protobuf() {
    let world = World::start().await;
    let api = world.plane("p").await;
    let bare = json!({"metadata": {"name": "json"}, "data": {"k": "v"}});
    let created = api.post(MAPS, &bare).await.expect(201);
    assert_eq!(text(&created, "/kind"), "ConfigMap", "a body need not say what it is");
    let yaml = "metadata:\n  name: yaml\ndata: {k: v}\n";
    api.call(Method::POST, MAPS, &[YAML], yaml).await.expect(201);
    let ty = facts().kind("", "v1", "ConfigMap").unwrap();
    let raw = protobuf::encode(ty, &map("protobuf")).unwrap();
    let sealed = protobuf::seal("v1", "ConfigMap", &raw);
    api.call(Method::POST, MAPS, &[PROTOBUF], sealed).await.expect(201);
    let listed = api.get(MAPS).await.expect(200);
    assert_eq!(names(&listed), ["json", "kube-root-ca.crt", "protobuf", "yaml"]);

    let path = format!("{MAPS}/protobuf");
    let accept = |what| [("accept", what)];
    let yaml = api.call(Method::GET, &path, &accept("application/yaml"), "").await;
    assert_eq!(yaml.header("content-type"), "application/yaml");
    let yaml = String::from_utf8(yaml.body.to_vec()).unwrap();
    assert!(
        yaml.starts_with("apiVersion: v1\ndata:\n  k: v\nkind: ConfigMap\n"),
        "{yaml}"
    );
    let binary = api.call(Method::GET, &path, &accept(PROTOBUF.1), "").await;
    assert_eq!(binary.header("content-type"), PROTOBUF.1);
    assert!(binary.body.starts_with(b"k8s\0"));
    // What was got can be put back as it is.
    let put = api.call(Method::PUT, &path, &[PROTOBUF], binary.body).await.expect(200);
    assert_eq!(put["data"], json!({"k": "v"}));
}

#[tokio::test]
async fn a_body_of_another_kind_is_refused_in_upstreams_words() {
    const EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/default/events";
    const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let world = World::start().await;
    let api = world.plane("p").await;
    for (path, api_version, kind, part) in [
        (
            MAPS,
            "v1",
            "Secret",
            "Secret in version \"v1\" cannot be handled as a ConfigMap: converting (v1.Secret) to (core.ConfigMap): unknown conversion",
        ),
        (
            MAPS,
            "v2",
            "Secret",
            "no kind \"Secret\" is registered for version \"v2\" in scheme \"pkg/api/legacyscheme/scheme.go:30\"",
        ),
        (MAPS, "a/b/c", "ConfigMap", "unexpected GroupVersion string: a/b/c"),
        (
            MAPS,
            "x/",
            "ConfigMap",
            "ConfigMap in version \"\" cannot be handled as a ConfigMap: Object 'apiVersion' is missing in '{",
        ),
        (
            MAPS,
            "/",
            "Foo",
            "Foo in version \"v1\" cannot be handled as a ConfigMap: no kind \"Foo\" is registered for version \"v1\"",
        ),
        (
            EVENTS,
            "v1",
            "ConfigMap",
            "converting (v1.ConfigMap) to (core.Event): unknown conversion",
        ),
        (
            DEFINITIONS,
            "v1",
            "ConfigMap",
            "no kind \"ConfigMap\" is registered for version \"v1\" in scheme \"k8s.io/apiextensions-apiserver/pkg/apiserver/apiserver.go:55\"",
        ),
    ] {
        let body = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "a"}});
        let answer = api.post(path, &body).await;
        assert!(
            answer.code() == 400 && answer.message().contains(part),
            "{}",
            answer.json()
        );
    }
    let known = json!({"apiVersion": "/", "metadata": {"name": "a"}});
    api.post(MAPS, &known).await.expect(201);
    for patch in [json!({"kind": null}), json!({"kind": ""})] {
        let patched = api.patch(&format!("{MAPS}/a"), &patch).await.expect(200);
        assert_eq!(text(&patched, "/kind"), "ConfigMap");
    }
}

#[tokio::test]
async fn what_cannot_be_sent_is_406_and_what_cannot_be_read_is_415() {
    let world = World::start().await;
    let api = world.plane("p").await;
    let refused = |answer: Answer, code: u16| {
        assert_eq!(answer.header("content-type"), "application/json");
        let body = answer.expect(code);
        assert_eq!(text(&body, "/kind"), "Status");
        text(&body, "/message").to_owned()
    };
    let html = [("accept", "text/html")];
    let known = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
    assert_eq!(
        refused(api.call(Method::GET, &format!("{MAPS}/a"), &html, "").await, 406),
        format!("406: Not Acceptable\n\nAvailable representations: {known}")
    );
    let text = [("content-type", "text/plain")];
    assert_eq!(
        refused(api.call(Method::POST, MAPS, &text, "a").await, 415),
        format!("the body of the request was in an unknown format - accepted media types include: {known}")
    );
    let patch = api.call(Method::PATCH, &format!("{MAPS}/a"), &[JSON], "{}").await;
    assert_eq!(refused(patch, 415), "415: Unsupported Media Type");
}

#[tokio::test]
async fn bodies_are_bounded_in_size_and_depth() {
    let world = World::start().await;
    let api = world.plane("p").await;
    let mut large = map("large");
    large["data"]["k"] = "x".repeat(3 << 20).into();
    let answer = api.post(MAPS, &large).await;
    assert_eq!(answer.message(), "Request entity too large: limit is 3145728");
    let body = answer.expect(413);
    assert_eq!(text(&body, "/reason"), "RequestEntityTooLarge");
    for deep in ["[".repeat(200_000), "{\"a\":".repeat(200_000)] {
        for format in [JSON, YAML] {
            let answer = api.call(Method::POST, MAPS, &[format], deep.clone()).await;
            assert_eq!(answer.code(), 400, "{}", answer.json());
        }
        let merge = [("content-type", "application/merge-patch+json")];
        let answer = api
            .call(Method::PATCH, &format!("{MAPS}/kube-root-ca.crt"), &merge, deep)
            .await;
        assert_eq!(answer.code(), 400, "{}", answer.json());
    }
}

#[tokio::test]
async fn answers_carry_upstreams_headers_and_are_pretty_for_people() {
    let world = World::start().await;
    let api = world.plane("p").await;
    let path = format!("{MAPS}/kube-root-ca.crt");
    let lines = |answer: &Answer| answer.body.iter().filter(|byte| **byte == b'\n').count();
    let plain = api.get(&path).await;
    assert_eq!((plain.header("content-type"), lines(&plain)), ("application/json", 1));
    assert_eq!(plain.header("cache-control"), "no-cache, private");
    assert_eq!(plain.header("audit-id").len(), 36);
    let named = api.call(Method::GET, &path, &[("audit-id", "mine")], "").await;
    assert_eq!(named.header("audit-id"), "mine");
    assert!(lines(&api.get(&format!("{path}?pretty=1")).await) > 5);
    for agent in ["curl/8", "Wget/1.2", "Mozilla/5.0"] {
        let agent = [("user-agent", agent)];
        assert!(lines(&api.call(Method::GET, &path, &agent, "").await) > 5);
        let asked = format!("{path}?pretty=0");
        assert_eq!(lines(&api.call(Method::GET, &asked, &agent, "").await), 1);
    }
    // Also of what is refused.
    assert_eq!(api.get("/nothing").await.header("audit-id").len(), 36);
}

#[tokio::test]
async fn aggregated_discovery_has_an_entity_tag() {
    const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let world = World::start().await;
    let (root, plane) = (world.root().await, world.plane("p").await);
    let ask = async |api: &Api, path: &str, tag: &str| {
        let headers = [("accept", AGGREGATED), ("if-none-match", tag)];
        api.call(Method::GET, path, &headers, "").await
    };
    for path in ["/api", "/apis"] {
        let first = ask(&root, path, "\"other\"").await;
        assert_eq!((first.code(), first.header("content-type")), (200, AGGREGATED));
        assert_eq!(text(&first.json(), "/kind"), "APIGroupDiscoveryList");
        let tag = first.header("etag").to_owned();
        let again = ask(&root, path, &tag).await;
        assert_eq!((again.code(), again.body.len()), (304, 0));
        // Root has more groups than planes, of which all have the same.
        let inside = ask(&plane, path, &tag).await;
        assert_eq!(inside.code(), if path == "/api" { 304 } else { 200 });
        let old = root.get(path).await.expect(200);
        let kind = if path == "/api" { "APIVersions" } else { "APIGroupList" };
        assert_eq!(text(&old, "/kind"), kind);
    }
    let version = root.get("/version").await.expect(200);
    assert_eq!((text(&version, "/major"), text(&version, "/minor")), ("1", "36"));
}

#[tokio::test]
async fn probes_may_use_any_method_and_other_documents_only_get() {
    let world = World::start().await;
    let root = world.root().await;
    for (path, code) in [
        ("/healthz", 200),
        ("/readyz", 200),
        ("/livez/ping", 200),
        ("/", 200),
        ("/apis", 200),
        ("/apis/rbac.authorization.k8s.io", 200),
        ("/apis/rbac.authorization.k8s.io/v1", 405),
        ("/metrics", 200),
        ("/version", 405),
        ("/api", 405),
        ("/api/v1", 405),
    ] {
        for method in [Method::HEAD, Method::OPTIONS, Method::POST] {
            let answer = root.call(method.clone(), path, &[], "").await;
            assert_eq!(answer.code(), code, "{method} {path}");
            assert!(method != Method::HEAD || answer.body.is_empty(), "{method} {path}");
        }
    }
}

#[tokio::test]
async fn a_deletion_says_what_becomes_of_dependents() {
    let world = World::start().await;
    let api = world.plane("p").await;
    let delete = async |name: &str, query: &str, body: Value| {
        api.post(MAPS, &map(name)).await;
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let path = format!("{MAPS}/{name}{query}");
        api.call(Method::DELETE, &path, &[JSON], body).await
    };
    for (query, body, finalizer) in [
        ("?propagationPolicy=Foreground", Value::Null, "foregroundDeletion"),
        ("", json!({"propagationPolicy": "Foreground"}), "foregroundDeletion"),
        ("", json!({"propagationPolicy": "Orphan"}), "orphan"),
        ("", json!({"orphanDependents": true}), "orphan"),
    ] {
        let stays = delete("stays", query, body.clone()).await.expect(200);
        assert_eq!(stays["metadata"]["finalizers"], json!([finalizer]), "{query} {body}");
        assert_eq!(stays["metadata"]["deletionGracePeriodSeconds"], 0);
        // Whoever takes care of dependents lets it go.
        let path = format!("{MAPS}/stays");
        api.patch(&path, &json!({"metadata": {"finalizers": null}}))
            .await
            .expect(200);
        api.get(&path).await.expect(404);
    }
    for (query, body) in [
        ("", json!({"propagationPolicy": "Background", "gracePeriodSeconds": 30})),
        ("?propagationPolicy=Background&gracePeriodSeconds=5", Value::Null),
        (
            "",
            json!({"kind": "DeleteOptions", "apiVersion": "v1", "orphanDependents": false}),
        ),
    ] {
        let gone = delete("goes", query, body.clone()).await.expect(200);
        assert_eq!(text(&gone, "/status"), "Success", "{query} {body}");
    }
    for (query, body, code, part) in [
        (
            "",
            json!({"propagationPolicy": "Some"}),
            422,
            "Unsupported value: \"Some\"",
        ),
        (
            "",
            json!({"propagationPolicy": "Orphan", "orphanDependents": true}),
            422,
            "cannot be both set",
        ),
        (
            "",
            json!({"kind": "Other"}),
            400,
            "no kind \"Other\" is registered for version \"meta.k8s.io/v1\"",
        ),
        (
            "",
            json!({"kind": "Status", "apiVersion": "v1"}),
            400,
            "converting (v1.Status) to (v1.DeleteOptions)",
        ),
        (
            "?gracePeriodSeconds=soon",
            Value::Null,
            400,
            "strconv.ParseInt: parsing \"soon\": invalid syntax",
        ),
    ] {
        let refused = delete("kept", query, body.clone()).await;
        assert_eq!(refused.code(), code, "{query} {body}");
        assert!(refused.message().contains(part), "{}", refused.message());
    }
    api.get(&format!("{MAPS}/kept")).await.expect(200);
}

#[tokio::test]
async fn a_body_need_not_say_what_it_is() {
    let world = World::start().await;
    let api = world.plane("p").await;
    for (name, content, body) in [
        ("json", JSON, r#"{"metadata":{"name":"json"}}"#),
        ("yaml", YAML, "metadata:\n  name: yaml\n"),
    ] {
        let made = api.call(Method::POST, MAPS, &[content], body).await.expect(201);
        assert_eq!((text(&made, "/kind"), text(&made, "/apiVersion")), ("ConfigMap", "v1"));
        let path = format!("{MAPS}/{name}");
        api.call(Method::PUT, &path, &[content], body).await.expect(200);
    }
    // Nor all of it.
    for (name, half) in [("kind", r#""kind":"ConfigMap""#), ("version", r#""apiVersion":"v1""#)] {
        let body = format!(r#"{{{half},"metadata":{{"name":"{name}"}}}}"#);
        api.call(Method::POST, MAPS, &[JSON], body).await.expect(201);
    }
}

#[tokio::test]
async fn a_watch_in_protobuf_is_cut_into_frames_of_events() {
    let world = World::start().await;
    let api = world.plane("p").await;
    api.post(MAPS, &map("a")).await.expect(201);
    let accept = [("accept", "application/vnd.kubernetes.protobuf;stream=watch")];
    let path = format!("{MAPS}?watch=1&timeoutSeconds=1&resourceVersion=0");
    let answer = api.call(Method::GET, &path, &accept, "").await;
    assert_eq!(
        answer.header("content-type"),
        "application/vnd.kubernetes.protobuf;stream=watch"
    );
    let (mut rest, mut events) = (&answer.body[..], Vec::new());
    while let Some((length, body)) = rest.split_first_chunk::<4>() {
        let (frame, more) = body.split_at(u32::from_be_bytes(*length) as usize);
        // Field 1 of a WatchEvent is its type, and its object is sealed as objects are.
        assert_eq!(frame[..2], [0x0a, 5], "{frame:?}");
        let kind = String::from_utf8(frame[2..7].to_vec()).unwrap();
        assert!(frame.windows(4).any(|window| window == b"k8s\0"));
        events.push(kind);
        rest = more;
    }
    assert!(rest.is_empty());
    assert_eq!(events, ["ADDED", "ADDED"]);
}

//! Tenants who try to reach what is not theirs, in every way that we could think of.
//!
//! Two planes, each with a treasure. `robot` is a service account of plane `a` that may do everything there, and so may
//! `carol`, whose certificate that plane signed; `ann` is an
//! identity of the platform that root lets into `a` as an administrator; `eve` is one that it lets in nowhere. Whatever they
//! try, nobody sees the treasure of `b` or of root, and nobody learns whether a plane exists that they may not enter.

use bytes::Bytes;
use expect_test::expect;
use http::Method;
use rcgen::DnType;
use serde_json::{Value, json};

use super::certificates::Asking;
use super::fixture::certificate_in;
use super::world::{Answer, Api, MAPS, PLANES, World, map, names, text};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const WHO: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const OBJECTS: &str = "/apis/mica.dev/v1alpha1/objects";
const TREASURE: &str = "the-treasure";

/// Somebody, with what they prove themselves by.
struct Tenant {
    name: &'static str,
    api: Api,
    token: Option<String>,
}

impl Tenant {
    async fn call(&self, method: Method, path: &str, more: &[(&str, &str)], body: &str) -> Answer {
        let bearer = self.token.as_ref().map(|token| format!("Bearer {token}"));
        let mut headers = vec![("content-type", "application/json")];
        headers.extend(bearer.as_deref().map(|bearer| ("authorization", bearer)));
        headers.extend(more);
        self.api
            .call(method, path, &headers, Bytes::from(body.to_owned()))
            .await
    }

    async fn get(&self, path: &str) -> Answer {
        self.call(Method::GET, path, &[], "").await
    }
}

struct Land {
    world: World,
    root: Api,
    robot: Tenant,
    /// With a certificate that plane `a` signed, and everything there.
    carol: Tenant,
    ann: Tenant,
    eve: Tenant,
    nobody: Tenant,
}

fn at(plane: &str, path: &str) -> String {
    format!("/clusters/{plane}/control-plane{path}")
}

fn treasure() -> Value {
    json!({"metadata": {"name": "treasure", "labels": {"k": "v"}}, "data": {"k": TREASURE}})
}

impl Land {
    async fn new() -> Self {
        let world = World::start().await;
        let root = world.root().await;
        root.post(MAPS, &treasure()).await.expect(201);
        for (name, host) in [("a", "a.kplane.example"), ("b", "b.kplane.example")] {
            let addresses = json!([{"type": "Host", "value": host}, {"type": "Project", "value": format!("p{name}")}]);
            let plane = json!({"metadata": {"name": name}, "spec": {"addresses": addresses}});
            root.post(PLANES, &plane).await.expect(201);
        }
        let (a, b) = (root.at_plane("a"), root.at_plane("b"));
        b.post(MAPS, &treasure()).await.expect(201);
        a.post(MAPS, &map("mine")).await.expect(201);
        a.post(ACCOUNTS, &json!({"metadata": {"name": "robot"}}))
            .await
            .expect(201);
        let everything = json!({"metadata": {"name": "robot"}, "roleRef": {"kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": "robot", "namespace": "default"}]});
        a.post(&format!("{RBAC}/clusterrolebindings"), &everything)
            .await
            .expect(201);
        let asked = a.post(&format!("{ACCOUNTS}/robot/token"), &json!({})).await.expect(201);
        let carol = Asking::client(&[(DnType::CommonName, "carol")])
            .issued(&a, "carol")
            .await;
        let mut of_carol = everything.clone();
        of_carol["metadata"]["name"] = "carol".into();
        of_carol["subjects"] = json!([{"kind": "User", "name": "carol"}]);
        a.post(&format!("{RBAC}/clusterrolebindings"), &of_carol)
            .await
            .expect(201);
        let rules = json!([{"apiGroups": ["mica.dev"], "resources": ["planes/content"], "resourceNames": ["a"], "verbs": ["admin"]}]);
        let role = json!({"metadata": {"name": "ann"}, "rules": rules});
        root.post(&format!("{RBAC}/clusterroles"), &role).await.expect(201);
        let bound = json!({"metadata": {"name": "ann"}, "roleRef": {"kind": "ClusterRole", "name": "ann"},
            "subjects": [{"kind": "User", "name": "ann"}]});
        root.post(&format!("{RBAC}/clusterrolebindings"), &bound)
            .await
            .expect(201);
        let mut tenants = Vec::new();
        for name in ["ann", "eve"] {
            let certificate = certificate_in(&world.authority, name, None);
            tenants.push(Tenant {
                name,
                api: world.as_user(Some(&certificate)).await,
                token: None,
            });
        }
        let (eve, ann) = (tenants.pop().unwrap(), tenants.pop().unwrap());
        let anonymous = world.as_user(None).await;
        let carol = Tenant {
            name: "carol",
            api: world.as_user(Some(&carol)).await,
            token: None,
        };
        let robot = Tenant {
            name: "robot",
            api: anonymous.clone(),
            token: Some(text(&asked, "/status/token").to_owned()),
        };
        let nobody = Tenant {
            name: "nobody",
            api: anonymous,
            token: None,
        };
        // All of it counts now.
        for tenant in [&robot, &carol, &ann] {
            while tenant.get(&at("a", MAPS)).await.code() != 200 {
                tokio::task::yield_now().await;
            }
        }
        Self {
            world,
            root,
            robot,
            carol,
            ann,
            eve,
            nobody,
        }
    }

    fn tenants(&self) -> [&Tenant; 5] {
        [&self.robot, &self.carol, &self.ann, &self.eve, &self.nobody]
    }
}

/// An answer that gave nothing away.
#[track_caller]
fn refused(who: &str, what: &str, answer: &Answer) {
    let body = String::from_utf8_lossy(&answer.body);
    let code = answer.code();
    assert!((400..500).contains(&code), "{who} {what}: {code} {body}");
    assert!(!body.contains(TREASURE), "{who} {what}: {code} {body}");
}

/// Addresses by which somebody might hope to reach plane `b`, or root, or all.
fn elsewhere() -> Vec<String> {
    let mut all: Vec<String> = [
        "",
        "/clusters/b/control-plane",
        "/clusters/%62/control-plane",
        "//clusters/b/control-plane",
        "/clusters//b/control-plane",
        "/clusters/b//control-plane",
        "/clusters/./b/control-plane",
        "/clusters/B/control-plane",
        "/clusters/b%00/control-plane",
        "/clusters/b%20/control-plane",
        "/clusters/b./control-plane",
        "/clusters/a,b/control-plane",
        "/clusters/a;b/control-plane",
        "/clusters/a%2Cb/control-plane",
        "/clusters/root/control-plane",
        "/clusters/%2F/control-plane",
        "/clusters/%2e%2e/control-plane",
        "/clusters/*/control-plane",
        "/clusters/%2A/control-plane",
        "/clusters/%252A/control-plane",
        "/clusters/a/control-plane/../../b/control-plane",
        "/clusters/a/control-plane/%2e%2e/%2e%2e/b/control-plane",
        "/clusters/a/control-plane/..%2f..%2fb/control-plane",
        "/clusters/a%2fcontrol-plane%2f..%2f..%2fb/control-plane",
        "/clusters/a/../b/control-plane",
        "/clusters/a/%2e%2e/b/control-plane",
        "/clusters/a/control-plane/clusters/b/control-plane",
        "/clusters/a/control-plane/projects/pb/control-plane",
        "/clusters/a/control-plane/api/v1/namespaces/..%2f..%2f..%2f..%2fb%2fcontrol-plane",
        "/projects/pb/control-plane",
        "/projects/%70b/control-plane",
        "/apis/resourcemanager.miloapis.com/v1alpha1/projects/pb/control-plane",
        "/apis/resourcemanager.miloapis.com/v1alpha1/organizations/b/control-plane",
        "/apis/iam.miloapis.com/v1alpha1/users/ann/control-plane",
    ]
    .map(str::to_owned)
    .into();
    all.push(format!("/clusters/{}/control-plane", "b".repeat(300)));
    all.push(format!("/clusters/{}b/control-plane", "../".repeat(50)));
    all
}

#[tokio::test]
async fn no_address_leads_a_tenant_out_of_its_plane() {
    let land = Land::new().await;
    for prefix in elsewhere() {
        for tenant in land.tenants() {
            for path in [
                MAPS.to_owned(),
                format!("{MAPS}/treasure"),
                "/api/v1/configmaps".to_owned(),
                format!("{MAPS}?watch=1&timeoutSeconds=1"),
                OBJECTS.to_owned(),
                PLANES.to_owned(),
            ] {
                let path = format!("{prefix}{path}");
                refused(tenant.name, &path, &tenant.get(&path).await);
            }
            for (method, path, body) in [
                (Method::POST, MAPS.to_owned(), map("planted").to_string()),
                (Method::PUT, format!("{MAPS}/treasure"), treasure().to_string()),
                (Method::PATCH, format!("{MAPS}/treasure"), "{}".to_owned()),
                (Method::DELETE, format!("{MAPS}/treasure"), String::new()),
                (Method::DELETE, MAPS.to_owned(), String::new()),
            ] {
                let path = format!("{prefix}{path}");
                let answer = tenant.call(method.clone(), &path, &[], &body).await;
                refused(tenant.name, &format!("{method} {path}"), &answer);
            }
        }
    }
    // They do lead somewhere, for who may go there: otherwise nothing was tried above.
    let mut open = Vec::new();
    for prefix in elsewhere() {
        let answer = land.root.get(&format!("{prefix}{MAPS}")).await;
        if answer.json().to_string().contains(TREASURE) {
            open.push(if prefix.is_empty() { "/".to_owned() } else { prefix });
        }
    }
    expect![[r#"
        /
        /clusters/b/control-plane
        /clusters/%62/control-plane
        //clusters/b/control-plane
        /clusters/*/control-plane
        /clusters/%2A/control-plane
        /projects/pb/control-plane
        /projects/%70b/control-plane
        /apis/resourcemanager.miloapis.com/v1alpha1/projects/pb/control-plane"#]]
    .assert_eq(&open.join("\n"));
    for api in [&land.root, &land.root.at_plane("b")] {
        let kept = api.get(&format!("{MAPS}/treasure")).await.expect(200);
        assert_eq!(kept["data"]["k"], TREASURE);
        assert_eq!(api.get(&format!("{MAPS}/planted")).await.code(), 404);
    }
}

#[tokio::test]
async fn a_host_that_another_plane_claims_lets_nobody_in() {
    let land = Land::new().await;
    let sender = land.world.connect("b.kplane.example", None).await;
    let host = land
        .world
        .host("b.kplane.example", "b.kplane.example")
        .await
        .with(sender);
    let robot = Tenant {
        name: "robot",
        api: host,
        token: land.robot.token.clone(),
    };
    refused("robot", "by host", &robot.get(MAPS).await);
    // Named in a header alone, over a connection that was made for the server itself.
    for name in ["host", "x-forwarded-host", "x-original-host", "forwarded"] {
        let answer = land
            .robot
            .call(Method::GET, MAPS, &[(name, "b.kplane.example")], "")
            .await;
        refused("robot", name, &answer);
    }
}

/// An answer as far as it may depend on what was asked: names that differ are made the same.
fn shape(answer: &Answer, name: &str) -> (u16, String) {
    let body = String::from_utf8_lossy(&answer.body);
    (
        answer.code(),
        body.replace(&format!("\"{name}\""), "\"NAME\"")
            .replace(&format!("\\\"{name}\\\""), "\\\"NAME\\\""),
    )
}

#[tokio::test]
async fn who_may_not_enter_a_plane_does_not_learn_whether_it_exists() {
    let land = Land::new().await;
    // Health, version and nothing else of a plane is for everybody, by its own bindings: `nobody` may see those.
    let paths = [
        (Method::GET, MAPS),
        (Method::GET, "/api/v1/namespaces/default/configmaps/x"),
        (Method::GET, "/api/v1/configmaps?watch=1&timeoutSeconds=1"),
        (Method::POST, MAPS),
        (Method::DELETE, MAPS),
        (Method::OPTIONS, MAPS),
        (Method::GET, "/apis/no.such/v1/things"),
        (Method::GET, "/api"),
        (Method::GET, "/apis"),
        (Method::GET, "/apis/apps/v1"),
        (Method::GET, "/openapi/v2"),
        (Method::GET, "/openapi/v3"),
        (Method::GET, "/.well-known/openid-configuration"),
        (Method::GET, "/openid/v1/jwks"),
        (Method::GET, "/metrics"),
        (Method::GET, "/nonsense"),
        (Method::POST, WHO),
    ];
    let public = [
        (Method::GET, "/version"),
        (Method::GET, "/healthz"),
        (Method::GET, "/readyz"),
    ];
    for tenant in land.tenants() {
        let more = if tenant.name == "nobody" { &[][..] } else { &public[..] };
        for (method, path) in paths.iter().chain(more) {
            for headers in [&[][..], &[("impersonate-user", "bob")][..]] {
                let body = if *method == Method::POST { "{}" } else { "" };
                let there = tenant.call(method.clone(), &at("b", path), headers, body).await;
                let absent = tenant.call(method.clone(), &at("absent", path), headers, body).await;
                let (there, absent) = (shape(&there, "b"), shape(&absent, "absent"));
                assert_eq!(there, absent, "{} {method} {path} {headers:?}", tenant.name);
            }
        }
        for (there, absent) in [("/projects/pb/control-plane", "/projects/absent/control-plane")] {
            let there = tenant.get(&format!("{there}{MAPS}")).await.code();
            let absent = tenant.get(&format!("{absent}{MAPS}")).await.code();
            assert_eq!(there, absent, "{} by project", tenant.name);
        }
    }
}

#[tokio::test]
async fn acting_as_somebody_great_is_great_in_one_plane_only() {
    let land = Land::new().await;
    let great = [
        &[("impersonate-user", "admin"), ("impersonate-group", "system:masters")][..],
        &[("impersonate-user", "system:apiserver")],
        &[("impersonate-user", "system:serviceaccount:default:robot")],
        &[("impersonate-user", "ann")],
    ];
    for tenant in land.tenants() {
        for headers in great {
            for prefix in [
                "",
                "/clusters/b/control-plane",
                "/clusters/*/control-plane",
                "/projects/pb/control-plane",
            ] {
                let path = format!("{prefix}{MAPS}");
                let answer = tenant.call(Method::GET, &path, headers, "").await;
                refused(tenant.name, &format!("as {headers:?} {path}"), &answer);
            }
        }
    }
    // In its own plane it is, and no further.
    let (robot, masters) = (&land.robot, great[0]);
    assert_eq!(robot.call(Method::GET, &at("a", MAPS), masters, "").await.code(), 200);
    for path in [&at("a", PLANES), &at("a", &format!("{PLANES}/b/snapshot"))] {
        refused("robot", path, &robot.call(Method::GET, path, masters, "").await);
    }
    let who = robot.call(Method::POST, &at("a", WHO), masters, "{}").await.expect(201);
    assert_eq!(text(&who, "/status/userInfo/username"), "admin");
}

#[tokio::test]
async fn planes_are_not_copied_moved_or_made_by_tenants() {
    let land = Land::new().await;
    let before = names(&land.root.get(PLANES).await.expect(200)).len();
    for tenant in land.tenants() {
        for prefix in ["", "/clusters/a/control-plane", "/clusters/b/control-plane"] {
            for (method, path, body) in [
                (Method::GET, format!("{PLANES}/b/snapshot"), ""),
                (Method::GET, format!("{PLANES}/a/snapshot"), ""),
                (Method::POST, format!("{PLANES}/b/fork"), r#"{"metadata":{"name":"c"}}"#),
                (Method::POST, format!("{PLANES}/a/fork"), r#"{"metadata":{"name":"c"}}"#),
                (Method::POST, format!("{PLANES}/b/restore"), "x"),
                (Method::POST, format!("{PLANES}/b/rebase"), "{}"),
                (Method::POST, PLANES.to_owned(), r#"{"metadata":{"name":"c"}}"#),
                (Method::DELETE, format!("{PLANES}/b"), ""),
                (Method::PUT, format!("{PLANES}/b"), r#"{"metadata":{"name":"b"}}"#),
                (Method::GET, "/apis/mica.dev/v1alpha1/planeclasses".to_owned(), ""),
            ] {
                let path = format!("{prefix}{path}");
                let answer = tenant.call(method.clone(), &path, &[], body).await;
                refused(tenant.name, &format!("{method} {path}"), &answer);
            }
        }
    }
    assert_eq!(names(&land.root.get(PLANES).await.expect(200)).len(), before);
    // The kind is not there: a definition of a tenant's own is the tenant's own.
    let group = land.robot.get(&at("a", "/apis/mica.dev/v1alpha1")).await.expect(200);
    let served: Vec<&str> = group["resources"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| text(one, "/name"))
        .collect();
    assert_eq!(served, ["objects"]);
}

#[tokio::test]
async fn pages_versions_and_watches_of_another_plane_show_nothing_of_it() {
    let land = Land::new().await;
    let b = land.root.at_plane("b");
    for i in 0..5 {
        b.post(MAPS, &map(&format!("b{i}"))).await.expect(201);
    }
    let page = b.get(&format!("{MAPS}?limit=2")).await.expect(200);
    let token = text(&page, "/metadata/continue");
    let revision = text(&page, "/metadata/resourceVersion");
    assert!(!token.is_empty());
    for tenant in [&land.robot, &land.ann] {
        for query in [
            format!("continue={token}&limit=2"),
            format!("continue={token}"),
            format!("resourceVersion={revision}&resourceVersionMatch=Exact"),
            format!("resourceVersion={revision}&resourceVersionMatch=NotOlderThan"),
            format!("labelSelector=k%3Dv&resourceVersion={revision}"),
            "fieldSelector=metadata.name%3Dtreasure".to_owned(),
        ] {
            let answer = tenant.get(&at("a", &format!("{MAPS}?{query}"))).await;
            let body = answer.json().to_string();
            assert!(!body.contains(TREASURE) && !body.contains("\"b0\""), "{query}: {body}");
            assert!(answer.code() < 500, "{query}: {body}");
        }
    }
    // A watch from a version of b hears of a alone.
    let path = format!("{MAPS}?watch=1&allowWatchBookmarks=true&resourceVersion={revision}");
    let bearer = format!("Bearer {}", land.robot.token.as_deref().unwrap());
    let headers = [("authorization", bearer.as_str())];
    let mut watch = land.robot.api.at_plane("a").watch_with(&path, &headers).await;
    b.post(MAPS, &map("loud")).await.expect(201);
    land.root.at_plane("a").post(MAPS, &map("quiet")).await.expect(201);
    loop {
        let event = watch.next().await.unwrap();
        if text(&event, "/type") != "BOOKMARK" {
            assert_eq!(text(&event, "/object/metadata/name"), "quiet");
            break;
        }
        let bookmark = event.to_string();
        assert!(!bookmark.contains(TREASURE) && !bookmark.contains("loud"), "{bookmark}");
    }
}

#[tokio::test]
async fn what_is_reserved_and_what_names_others_gains_nothing() {
    let land = Land::new().await;
    let b = land.root.at_plane("b");
    let owner = b.get(&format!("{MAPS}/treasure")).await.expect(200);
    let uid = text(&owner, "/metadata/uid");
    let claiming = json!({"metadata": {"name": "claiming",
        "annotations": {"mica.dev/plane": "b", "mica.dev/plane-id": "x", "mine": "y"},
        "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "treasure", "uid": uid, "blockOwnerDeletion": true}]}});
    let made = land
        .robot
        .call(Method::POST, &at("a", MAPS), &[], &claiming.to_string())
        .await
        .expect(201);
    assert_eq!(made["metadata"]["annotations"], json!({"mine": "y"}));
    // Neither plane sees the other's through the index of owners.
    let owned = format!("{OBJECTS}?fieldSelector=metadata.ownerReferences.uid%3D{uid}");
    assert_eq!(names(&b.get(&owned).await.expect(200)), Vec::<&str>::new());
    let mine = land.robot.get(&at("a", &owned)).await.expect(200);
    assert_eq!(names(&mine), ["claiming"]);
    b.delete(&format!("{MAPS}/treasure?propagationPolicy=Foreground"))
        .await
        .expect(200);
    land.robot.get(&at("a", &format!("{MAPS}/claiming"))).await.expect(200);
    // A definition that says it is for projects, in a plane that is not root.
    let crd = json!({"metadata": {"name": "things.evil.example", "annotations": {"discovery.miloapis.com/parent-contexts": "Project,Platform"}},
        "spec": {"group": "evil.example", "scope": "Namespaced", "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}});
    let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    land.robot
        .call(Method::POST, &at("a", crds), &[], &crd.to_string())
        .await
        .expect(201);
    land.root.at_plane("a").until("/apis/evil.example/v1/things", 200).await;
    for api in [&land.root, &b, &land.root.at("/projects/pb/control-plane")] {
        assert_eq!(api.get("/apis/evil.example/v1/things").await.code(), 404);
        assert_eq!(api.get(&format!("{crds}/things.evil.example")).await.code(), 404);
    }
}

#[tokio::test]
async fn a_tenants_webhook_reaches_nothing_inside() {
    let land = Land::new().await;
    let hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    for url in [
        "https://127.0.0.1:1/",
        "https://127.1:1/",
        "https://localhost:1/",
        "https://0.0.0.0:1/",
        "https://[::1]:1/",
        "https://[::ffff:127.0.0.1]:1/",
        "https://10.0.0.1/",
        "https://172.16.0.1/",
        "https://192.168.1.1/",
        "https://169.254.169.254/latest/meta-data",
        "https://[fe80::1]/",
        "https://[fd00:ec2::254]/",
        "https://100.64.0.1/",
    ] {
        let hook = json!({"metadata": {"name": "hook"}, "webhooks": [{"name": "a.b.example", "sideEffects": "None",
            "admissionReviewVersions": ["v1"], "timeoutSeconds": 5, "failurePolicy": "Fail", "clientConfig": {"url": url},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]}]});
        let made = land
            .robot
            .call(Method::POST, &at("a", hooks), &[], &hook.to_string())
            .await;
        made.expect(201);
        let answer = land
            .robot
            .call(Method::POST, &at("a", MAPS), &[], &map("x").to_string())
            .await;
        let message = answer.message();
        assert!(
            message.ends_with("the address is not one that this control plane may call")
                || message.contains("no such host"),
            "{url}: {message}"
        );
        let path = at("a", &format!("{hooks}/hook"));
        land.robot.call(Method::DELETE, &path, &[], "").await.expect(200);
    }
}

/// Who runs a plane may see how its own priority levels divide it, and nothing of the process.
fn only_levels(metrics: &str) {
    let told = metrics.lines().filter(|line| !line.starts_with('#'));
    for line in told {
        let (name, _) = line.split_once('{').unwrap_or((line, ""));
        assert!(
            name.starts_with("apiserver_flowcontrol_") && name.ends_with("_seats"),
            "{line}"
        );
    }
}

#[tokio::test]
async fn what_is_the_processs_own_is_not_shown_in_planes() {
    let land = Land::new().await;
    for tenant in land.tenants() {
        for prefix in [
            "",
            "/clusters/a/control-plane",
            "/clusters/b/control-plane",
            "/clusters/*/control-plane",
        ] {
            for path in [
                "/metrics",
                "/debug/pprof/",
                "/debug/flags/v",
                "/logs/",
                "/configz",
                "/statusz",
                "/flagz",
                "/debug/api_priority_and_fairness/dump_priority_levels",
            ] {
                let path = format!("{prefix}{path}");
                let answer = tenant.get(&path).await;
                if path == "/clusters/a/control-plane/metrics" && answer.code() == 200 {
                    only_levels(&String::from_utf8_lossy(&answer.body));
                } else {
                    refused(tenant.name, &path, &answer);
                }
            }
        }
    }
    // What a plane tells the world about its tokens is its own.
    let document = |plane: &'static str| {
        let api = land.root.at_plane(plane);
        async move {
            let issuer = api.get("/.well-known/openid-configuration").await.expect(200);
            let keys = api.get("/openid/v1/jwks").await.expect(200);
            (text(&issuer, "/issuer").to_owned(), keys.to_string())
        }
    };
    let (a, b) = (document("a").await, document("b").await);
    assert_ne!(a.0, b.0);
    assert_ne!(a.1, b.1);
}

//! Every route of root, of a plane and of all planes, asked by everybody: who gets past authorization is written in
//! `access.txt`. A route that is not there yet fails the test until somebody has looked at who may use it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use bytes::Bytes;
use expect_test::expect_file;
use http::Method;
use serde_json::{Value, json};

use super::fixture::certificate_in;
use super::world::{Api, World, served, text};

const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
const ALL: &str = "/clusters/*/control-plane";

/// Paths that are no resources. Discovery names none of them.
const OTHER_PATHS: [&str; 19] = [
    "/",
    "/.well-known/openid-configuration",
    "/api",
    "/api/v1",
    "/apis",
    "/apis/apps",
    "/apis/apps/v1",
    "/healthz",
    "/livez",
    "/livez/ping",
    "/metrics",
    "/nothing",
    "/openapi/v2",
    "/openapi/v3",
    "/openapi/v3/apis/apps/v1",
    "/openid/v1/jwks",
    "/readyz",
    "/readyz/etcd",
    "/version",
];

/// Somebody, and the credentials with which they come.
struct Asker {
    letter: char,
    api: Api,
    bearer: Option<String>,
}

impl Asker {
    /// Whether authorization lets a request through. What is answered then does not matter.
    async fn passes(&self, method: Method, path: &str) -> bool {
        let bearer = self.bearer.as_ref().map(|token| format!("Bearer {token}"));
        let kind = match method {
            Method::PATCH => "application/merge-patch+json",
            _ => "application/json",
        };
        let mut headers = vec![("content-type", kind)];
        headers.extend(bearer.iter().map(|bearer| ("authorization", bearer.as_str())));
        let body = match method {
            Method::GET => Bytes::new(),
            _ => Bytes::from_static(b"{}"),
        };
        let answer = self.api.send(method, path, &headers, body).await;
        !matches!(answer.status().as_u16(), 401 | 403)
    }
}

/// A token of a service account that a cluster role is bound to.
async fn account(api: &Api, name: &str, role: &str) -> String {
    api.post(ACCOUNTS, &json!({"metadata": {"name": name}}))
        .await
        .expect(201);
    let subject = json!({"kind": "ServiceAccount", "name": name, "namespace": "default"});
    let binding =
        json!({"metadata": {"name": name}, "roleRef": {"kind": "ClusterRole", "name": role}, "subjects": [subject]});
    api.post(BINDINGS, &binding).await.expect(201);
    let token = api
        .post(&format!("{ACCOUNTS}/{name}/token"), &json!({}))
        .await
        .expect(201);
    text(&token, "/status/token").to_owned()
}

/// Waits until what was bound counts.
async fn counts(asker: &Asker, path: &str) {
    for _ in 0..600 {
        if asker.passes(Method::GET, path).await {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("a binding never counted: {path}");
}

async fn askers(world: &World, at: &Api, stranger: &str) -> Vec<Asker> {
    let api = world.as_user(None).await.like(at);
    let mut all = vec![
        Asker {
            letter: 'n',
            api: api.clone(),
            bearer: None,
        },
        Asker {
            letter: 's',
            api: api.clone(),
            bearer: Some(stranger.to_owned()),
        },
    ];
    for (letter, name, role) in [
        ('r', "reader", "view"),
        ('w', "writer", "edit"),
        ('a', "admin", "cluster-admin"),
    ] {
        let bearer = Some(account(at, name, role).await);
        let api = api.clone();
        let asker = Asker { letter, api, bearer };
        counts(&asker, "/api/v1/namespaces/default/configmaps").await;
        all.push(asker);
    }
    all
}

/// Which of the askers pass, as their letters.
async fn who(askers: &[Asker], method: Method, path: &str) -> String {
    let asked = askers.iter().map(|asker| asker.passes(method.clone(), path));
    let passed = futures::future::join_all(asked).await;
    let those = askers.iter().zip(passed).filter(|(_, passed)| *passed);
    those.map(|(asker, _)| asker.letter).collect()
}

/// Verbs by who may use them, in one line.
fn line(found: &[(&str, String)]) -> String {
    let mut by: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (verb, letters) in found {
        by.entry(letters).or_default().push(verb);
    }
    let shown: Vec<String> = by
        .iter()
        .map(|(who, verbs)| format!("{who}: {}", verbs.join(" ")))
        .collect();
    shown.join("; ")
}

async fn resource(askers: &[Asker], version: &str, resource: &Value) -> String {
    let name = text(resource, "/name");
    let (plural, subresource) = name
        .split_once('/')
        .map_or((name, None), |(plural, sub)| (plural, Some(sub)));
    let place = match resource["namespaced"].as_bool() {
        Some(true) => format!("{version}/namespaces/default/{plural}"),
        _ => format!("{version}/{plural}"),
    };
    let one = match subresource {
        Some(subresource) => format!("{place}/none/{subresource}"),
        None => format!("{place}/none"),
    };
    let collection = if subresource.is_some() { &one } else { &place };
    // Nothing is changed: what is named does not exist, and the rest is only tried.
    let tried = "?dryRun=All&labelSelector=a%3Dnone";
    let mut found = Vec::new();
    for verb in resource["verbs"].as_array().unwrap() {
        let verb = verb.as_str().unwrap();
        let (method, path) = match verb {
            "create" => (Method::POST, format!("{collection}{tried}")),
            "update" => (Method::PUT, format!("{one}{tried}")),
            "patch" => (Method::PATCH, format!("{one}{tried}")),
            "get" => (Method::GET, one.clone()),
            "list" => (Method::GET, format!("{collection}?limit=1")),
            "watch" => (Method::GET, format!("{collection}?watch=1&timeoutSeconds=1")),
            "delete" => (Method::DELETE, format!("{one}{tried}")),
            "deletecollection" => (Method::DELETE, format!("{collection}{tried}")),
            other => panic!("{name}: nobody has said what {other} is"),
        };
        found.push((verb, who(askers, method, &path).await));
    }
    format!("{} {name}  {}", version.trim_start_matches("/apis/"), line(&found))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_gets_past_authorization_is_written_down() {
    let world = World::start().await;
    let root = world.root().await;
    let plane = world.plane("p").await;
    let other = world.plane("other").await;
    let stranger = account(&other, "stranger", "cluster-admin").await;
    let mut table = String::from(
        "Who may do what, with the roles that planes are born with: nobody, a stranger (administrator of another plane), a reader (view), a\n\
         writer (edit), an administrator (cluster-admin). Of all planes: root's. Written by `UPDATE_EXPECT=1 cargo test -p mica-server access`.\n",
    );
    for (title, at) in [("root", &root), ("a plane", &plane)] {
        let askers = askers(&world, at, &stranger).await;
        writeln!(table, "\n# {title}\n").unwrap();
        for path in OTHER_PATHS {
            writeln!(table, "{path}  {}", who(&askers, Method::GET, path).await).unwrap();
        }
        writeln!(table).unwrap();
        let all = served(at).await;
        let lines = all.iter().map(|(version, found)| resource(&askers, version, found));
        for line in futures::future::join_all(lines).await {
            writeln!(table, "{line}").unwrap();
        }
        if title == "root" {
            writeln!(table, "\n# all planes\n").unwrap();
            for path in [
                "/api",
                "/api/v1/configmaps",
                "/api/v1/secrets",
                "/apis/mica.dev/v1alpha1/objects",
            ] {
                let path = format!("{ALL}{path}");
                writeln!(table, "{path}  {}", who(&askers, Method::GET, &path).await).unwrap();
            }
        }
    }
    let certificate = certificate_in(&world.authority, "somebody", None);
    let somebody = world.as_user(Some(&certificate)).await;
    assert_eq!(somebody.at_plane("p").get("/version").await.code(), 403);
    expect_file!["access.txt"].assert_eq(&table);
}

#[tokio::test]
async fn a_connection_outlasts_thousands_of_refused_writes() {
    let world = World::start().await;
    world.plane("p").await;
    let plane = world.as_user(None).await.at_plane("p");
    let body = format!(
        r#"{{"metadata":{{"name":"a"}},"data":{{"a":"{}"}}}}"#,
        "x".repeat(40_000)
    );
    let headers = [
        ("authorization", "Bearer expired"),
        ("content-type", "application/json"),
    ];
    let maps = "/api/v1/namespaces/default/configmaps";
    let write = || plane.call(Method::POST, maps, &headers, body.clone());
    for _ in 0..30 {
        for answer in futures::future::join_all((0..100).map(|_| write())).await {
            assert_eq!(answer.code(), 401);
        }
    }
}

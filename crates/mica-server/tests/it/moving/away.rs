//! The old address of a plane that has moved.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::super::fixture::certificate_in;
use super::super::world::{Api, MAPS, PLANES, World, map, plane, revision_of, text};
use super::{furnish, reached};

/// An old server, and a new one that lets the old one say who asks for the plane that came from it.
struct Away {
    old: World,
    new: World,
    from: Api,
    to: Api,
}

impl Away {
    /// The plane is on both, and open on the new one.
    async fn moved() -> (Self, u64) {
        let old = World::start().await;
        let new = World::start().await;
        let (from, to) = (old.root().await, new.root().await);
        from.create_plane("p").await;
        furnish(&from.at_plane("p")).await;
        let mut arriving = plane("p");
        let bundle = STANDARD.encode(old.authority.certificate_pem());
        arriving["spec"] = json!({"state": "Arriving", "movedFrom": {"caBundle": bundle}});
        to.post(PLANES, &arriving).await.expect(201);
        let this = Self { old, new, from, to };
        this.from
            .patch(&format!("{PLANES}/p"), &json!({"spec": {"state": "Moving"}}))
            .await
            .expect(200);
        let copy = this.from.get(&format!("{PLANES}/p/snapshot?revisions=true")).await.body;
        let arrived = this
            .to
            .call(http::Method::POST, &format!("{PLANES}/p/arrive"), &[], copy)
            .await;
        let revision = reached(&arrived.expect(200));
        this.to
            .post(&format!("{PLANES}/p/open"), &json!({"revision": revision.to_string()}))
            .await
            .expect(201);
        (this, revision)
    }

    async fn switch(&self, requests: &str) {
        let bundle = STANDARD.encode(self.new.authority.certificate_pem());
        let server = self.server();
        let to = json!({"server": server, "caBundle": bundle, "requests": requests});
        let change = json!({"spec": {"state": "Moved", "movedTo": to}});
        self.from.patch(&format!("{PLANES}/p"), &change).await.expect(200);
    }

    fn server(&self) -> String {
        format!("https://{}/clusters/p/control-plane", self.new.addr)
    }

    async fn stop(self) {
        self.old.stop().await;
        self.new.stop().await;
    }
}

const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";

fn bound(role: &str, user: &str) -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "bound"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]})
}

/// Lets a user of the platform look into the plane.
async fn let_in(root: &Api, user: &str) {
    let rules = json!([{"apiGroups": ["mica.dev"], "resources": ["planes/content"], "verbs": ["view"]}]);
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "looks"}, "rules": rules});
    root.post(ROLES, &role).await.expect(201);
    root.post(BINDINGS, &bound("looks", user)).await.expect(201);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_to_the_old_address_are_passed_on_as_their_users() {
    let (away, _) = Away::moved().await;
    let there = away.to.at_plane("p");
    let_in(&away.to, "vera").await;
    away.switch("Pass").await;
    let here = away.from.at_plane("p");
    // Writes and reads of the old address are those of the new one.
    let made = here.post(MAPS, &map("made-through")).await.expect(201);
    assert_eq!(there.get(&format!("{MAPS}/made-through")).await.expect(200), made);
    let selected = here
        .get(&format!("{MAPS}?fieldSelector=metadata.name%3Dmade-through"))
        .await
        .expect(200);
    assert_eq!(selected["items"].as_array().unwrap().len(), 1);
    assert_eq!(here.get(&format!("{MAPS}/none")).await.code(), 404);
    here.get("/version").await.expect(200);
    // Who asks is who asks there, whatever they claim.
    let vera = certificate_in(&away.old.authority, "vera", None);
    let vera = away.old.as_user(Some(&vera)).await.at_plane("p");
    vera.get(MAPS).await.expect(200);
    let refused = vera.post(MAPS, &map("hers")).await;
    assert_eq!(refused.code(), 403);
    assert!(refused.message().contains("User \"vera\""), "{}", refused.message());
    let claims = [
        ("x-remote-user", "admin"),
        ("x-remote-group", "system:masters"),
        ("content-type", "application/json"),
    ];
    let body = map("hers").to_string();
    let refused = vera.call(http::Method::POST, MAPS, &claims, body).await;
    assert_eq!(refused.code(), 403, "{}", refused.json());
    let nobody = away.old.as_user(None).await.at_plane("p").get(MAPS).await;
    assert_eq!(nobody.code(), 403);
    assert!(nobody.message().contains("system:anonymous"), "{}", nobody.message());
    away.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_old_servers_word_counts_for_its_plane_alone() {
    let (away, _) = Away::moved().await;
    away.to.create_plane("other").await;
    let passer = certificate_in(&away.old.authority, "mica-pass", None);
    let passer = away.new.as_user(Some(&passer)).await;
    let claims = [("x-remote-user", "admin"), ("x-remote-group", "system:masters")];
    let read = async |api: &Api| api.call(http::Method::GET, MAPS, &claims, "").await.code();
    assert_eq!(read(&passer.at_plane("p")).await, 200);
    assert_eq!(read(&passer.at_plane("other")).await, 401);
    assert_eq!(read(&passer).await, 401);
    // Another certificate of that server is nobody's here.
    let other = certificate_in(&away.old.authority, "admin", Some("system:masters"));
    let other = away.new.as_user(Some(&other)).await;
    assert_eq!(read(&other.at_plane("p")).await, 401);
    // It counts until the plane says otherwise.
    let forget = json!({"spec": {"movedFrom": null}});
    away.to.patch(&format!("{PLANES}/p"), &forget).await.expect(200);
    assert_eq!(read(&passer.at_plane("p")).await, 401);
    for from in [
        json!({}),
        json!({"caBundle": ""}),
        json!({"caBundle": STANDARD.encode("none")}),
    ] {
        let patch = json!({"spec": {"movedFrom": from}});
        let refused = away.to.patch(&format!("{PLANES}/p"), &patch).await;
        assert_eq!(refused.code(), 422, "{}", refused.json());
        assert!(
            refused.message().contains("spec.movedFrom.caBundle"),
            "{}",
            refused.message()
        );
    }
    away.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_of_the_plane_stays_one_of_the_plane_and_nobody_else() {
    let (away, _) = Away::moved().await;
    let there = away.to.at_plane("p");
    let account = "system:serviceaccount:default:default";
    there.post(BINDINGS, &bound("view", account)).await.expect(201);
    // Writes are fenced here, and tokens are one: it is asked for before the plane moves again.
    let path = format!("{PLANES}/p");
    away.from
        .patch(&path, &json!({"spec": {"state": "Active"}}))
        .await
        .expect(200);
    let here = away.from.at_plane("p");
    let asked = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let token = here
        .post("/api/v1/namespaces/default/serviceaccounts/default/token", &asked)
        .await
        .expect(201);
    away.from
        .patch(&path, &json!({"spec": {"state": "Moving"}}))
        .await
        .expect(200);
    away.switch("Pass").await;
    let bearer = format!("Bearer {}", text(&token, "/status/token"));
    let nobody = away.old.as_user(None).await.at_plane("p");
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    nobody.call(http::Method::GET, MAPS, &headers, "").await.expect(200);
    let refused = nobody
        .call(http::Method::POST, MAPS, &headers, map("its").to_string())
        .await;
    assert_eq!(refused.code(), 403);
    assert!(refused.message().contains(account), "{}", refused.message());
    // The new server does not know the token, and the same name is nobody in its root.
    let direct = away.new.as_user(None).await;
    assert_eq!(
        direct
            .at_plane("p")
            .call(http::Method::GET, MAPS, &headers, "")
            .await
            .code(),
        401
    );
    away.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_watches_end_with_a_bookmark_and_go_on_at_the_new_address() {
    let (away, revision) = Away::moved().await;
    let here = away.from.at_plane("p");
    let path = |revision: u64| format!("{MAPS}?watch=1&allowWatchBookmarks=true&resourceVersion={revision}");
    let mut watch = here.watch(&path(revision)).await;
    away.switch("Pass").await;
    let mut last = revision;
    while let Some(event) = watch.next().await {
        assert_eq!(text(&event, "/type"), "BOOKMARK", "{event}");
        last = last.max(revision_of(&event["object"]));
    }
    assert!(last > revision, "the last thing said is how far the watch had come");
    // Through the old address, and directly.
    let there = away.to.at_plane("p");
    let mut through = here.watch(&path(last)).await;
    let mut direct = there.watch(&path(last)).await;
    let made = there.post(MAPS, &map("made-there")).await.expect(201);
    for watch in [&mut through, &mut direct] {
        let event = loop {
            let event = watch.next().await.expect("the watch goes on");
            if text(&event, "/type") != "BOOKMARK" {
                break event;
            }
        };
        assert_eq!(text(&event, "/type"), "ADDED");
        assert_eq!(event["object"]["metadata"]["uid"], made["metadata"]["uid"]);
        assert_eq!(revision_of(&event["object"]), revision_of(&made));
    }
    drop((through, direct));
    away.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_the_drain_the_old_address_says_where_the_plane_went() {
    let (away, _) = Away::moved().await;
    away.switch("Pass").await;
    away.switch("Refuse").await;
    let here = away.from.at_plane("p");
    for answer in [
        here.get(MAPS).await,
        here.post(MAPS, &map("a")).await,
        here.get("/version").await,
    ] {
        let body = answer.json();
        assert_eq!((answer.code(), text(&body, "/reason")), (421, "PlaneMoved"), "{body}");
        assert!(answer.message().ends_with(&away.server()), "{body}");
        assert_eq!(text(&body, "/details/causes/0/message"), away.server());
    }
    // What is left of it goes at once, whatever finalizers it has: they are honoured where the plane is.
    away.from.delete(&format!("{PLANES}/p")).await.expect(200);
    away.from.until(&format!("{PLANES}/p"), 404).await;
    away.to.at_plane("p").get(MAPS).await.expect(200);
    away.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_server_that_does_not_answer_is_told_as_such() {
    let (away, _) = Away::moved().await;
    let gone =
        json!({"spec": {"state": "Moved", "movedTo": {"server": "https://127.0.0.1:1/clusters/p/control-plane"}}});
    away.from.patch(&format!("{PLANES}/p"), &gone).await.expect(200);
    let answer = away.from.at_plane("p").get(MAPS).await;
    assert_eq!(
        (answer.code(), answer.header("retry-after")),
        (503, "1"),
        "{}",
        answer.json()
    );
    away.stop().await;
}

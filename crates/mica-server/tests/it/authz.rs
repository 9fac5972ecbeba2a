//! Who may do what: roles and bindings of planes, platform identities as guests, escalation, acting as others.

use http::Method;
use serde_json::{Value, json};

use super::fixture::certificate_in;
use super::world::{Api, MAPS, PLANES, World, map, text};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";

fn role(name: &str, rules: Value) -> Value {
    json!({"metadata": {"name": name}, "rules": rules})
}

fn binding(name: &str, kind: &str, role: &str, user: &str) -> Value {
    json!({"metadata": {"name": name}, "roleRef": {"kind": kind, "name": role}, "subjects": [{"kind": "User", "name": user}]})
}

fn on(resources: &[&str], verbs: &[&str]) -> Value {
    json!([{"apiGroups": [""], "resources": resources, "verbs": verbs}])
}

/// Lets a platform user into planes, as root's administrators do.
async fn let_in(root: &Api, user: &str, verb: &str, planes: &[&str]) {
    let mut rule = json!({"apiGroups": ["mica.dev"], "resources": ["planes/content"], "verbs": [verb]});
    if !planes.is_empty() {
        rule["resourceNames"] = json!(planes);
    }
    let name = format!("{user}-{verb}");
    root.post(&format!("{RBAC}/clusterroles"), &role(&name, json!([rule])))
        .await
        .expect(201);
    let bound = binding(&name, "ClusterRole", &name, user);
    root.post(&format!("{RBAC}/clusterrolebindings"), &bound)
        .await
        .expect(201);
}

#[tokio::test]
async fn a_role_gives_what_it_says_in_its_plane_and_namespace_only() {
    let world = World::start().await;
    let (one, two) = (world.plane("one").await, world.plane("two").await);
    for api in [&one, &two] {
        api.post(MAPS, &map("m")).await.expect(201);
    }
    let ann = one.acting("ann");
    assert_eq!(
        ann.get(MAPS).await.message(),
        r#"configmaps is forbidden: User "ann" cannot list resource "configmaps" in API group "" in the namespace "default""#
    );
    one.post(ROLES, &role("reader", on(&["configmaps"], &["get", "list", "watch"])))
        .await
        .expect(201);
    one.post(BINDINGS, &binding("readers", "Role", "reader", "ann"))
        .await
        .expect(201);
    ann.until(MAPS, 200).await;
    assert_eq!(ann.get(&format!("{MAPS}/m")).await.code(), 200);
    assert_eq!(ann.get("/api/v1/configmaps").await.code(), 403);
    assert_eq!(ann.get("/api/v1/namespaces/kube-system/configmaps").await.code(), 403);
    assert_eq!(ann.delete(&format!("{MAPS}/m")).await.code(), 403);
    assert_eq!(two.acting("ann").get(MAPS).await.code(), 403);
    assert_eq!(world.root().await.acting("ann").get(MAPS).await.code(), 403);
    one.delete(&format!("{BINDINGS}/readers")).await.expect(200);
    ann.until(MAPS, 403).await;
}

#[tokio::test]
async fn what_a_plane_changes_of_its_base_roles_counts_there_alone() {
    let world = World::start().await;
    let (one, two) = (world.plane("one").await, world.plane("two").await);
    let bound = format!("{RBAC}/clusterrolebindings/system:discovery");
    assert_eq!(one.acting("ann").get("/api").await.code(), 200);
    one.delete(&bound).await.expect(200);
    one.acting("ann").until("/api", 403).await;
    assert_eq!(two.acting("ann").get("/api").await.code(), 200);
}

#[tokio::test]
async fn platform_identities_enter_planes_by_what_root_says() {
    let world = World::start().await;
    let (root, one) = (world.root().await, world.plane("one").await);
    world.plane("two").await;
    one.post(SECRETS, &json!({"metadata": {"name": "s"}})).await.expect(201);
    let certificate = certificate_in(&world.authority, "carl", Some("carls"));
    let carl = world.as_user(Some(&certificate)).await;
    let inside = carl.at_plane("one");
    let refused = inside.get(MAPS).await.message();
    assert!(
        refused.contains(r#"planes/content "one" in API group "mica.dev""#),
        "{refused}"
    );
    // What does not exist is refused in the same way.
    let missing = carl.at_plane("none").get(MAPS).await;
    assert_eq!(missing.code(), 403, "{}", missing.message());
    assert_eq!(root.at_plane("none").get(MAPS).await.code(), 404);

    let_in(&root, "carl", "view", &["one"]).await;
    inside.until(MAPS, 200).await;
    assert_eq!(inside.get(SECRETS).await.code(), 403);
    assert_eq!(inside.post(MAPS, &map("m")).await.code(), 403);
    assert_eq!(carl.at_plane("two").get(MAPS).await.code(), 403);
    let all = carl.at("/clusters/*/control-plane");
    assert_eq!(all.get("/api/v1/configmaps").await.code(), 403);

    let_in(&root, "carl", "edit", &["one"]).await;
    inside.until(SECRETS, 200).await;
    inside.post(MAPS, &map("m")).await.expect(201);
    assert_eq!(inside.get(&format!("{RBAC}/clusterroles")).await.code(), 403);

    let_in(&root, "carl", "admin", &["one"]).await;
    inside.until(&format!("{RBAC}/clusterroles"), 200).await;
    assert_eq!(carl.get(PLANES).await.code(), 403, "nothing of it counts in root");
}

#[tokio::test]
async fn all_planes_are_read_by_who_may_view_all() {
    let world = World::start().await;
    let (root, one) = (world.root().await, world.plane("one").await);
    one.post(MAPS, &map("m")).await.expect(201);
    let certificate = certificate_in(&world.authority, "dora", None);
    let all = world.as_user(Some(&certificate)).await.at("/clusters/*/control-plane");
    let_in(&root, "dora", "view", &[]).await;
    all.until("/api/v1/configmaps", 200).await;
    assert_eq!(all.get("/api/v1/secrets").await.code(), 403);
    let_in(&root, "dora", "admin", &[]).await;
    all.until("/api/v1/secrets", 200).await;
}

#[tokio::test]
async fn a_root_service_account_is_not_taken_for_a_planes_own() {
    let world = World::start().await;
    let (root, one) = (world.root().await, world.plane("one").await);
    let account = "system:serviceaccount:default:robot";
    one.post(ROLES, &role("all", on(&["*"], &["*"]))).await.expect(201);
    let mut bound = binding("robots", "Role", "all", "");
    bound["subjects"] = json!([{"kind": "ServiceAccount", "name": "robot", "namespace": "default"}]);
    one.post(BINDINGS, &bound).await.expect(201);
    one.acting(account).until(SECRETS, 200).await;
    let certificate = certificate_in(&world.authority, account, None);
    let guest = world.as_user(Some(&certificate)).await.at_plane("one");
    let_in(&root, account, "view", &["one"]).await;
    guest.until(MAPS, 200).await;
    assert_eq!(guest.get(SECRETS).await.code(), 403);
}

#[tokio::test]
async fn nobody_gives_away_what_they_do_not_have() {
    let world = World::start().await;
    let api = world.plane("p").await;
    let rules = json!([
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]},
        {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings"], "verbs": ["create", "update", "get"]},
    ]);
    api.post(ROLES, &role("own", rules)).await.expect(201);
    api.post(BINDINGS, &binding("own", "Role", "own", "ann"))
        .await
        .expect(201);
    let ann = api.acting("ann");
    ann.until(&format!("{ROLES}/own"), 200).await;
    ann.post(ROLES, &role("same", on(&["secrets"], &["get"])))
        .await
        .expect(201);
    let refused = ann.post(ROLES, &role("more", on(&["secrets"], &["get", "list"]))).await;
    assert_eq!(
        refused.message(),
        "roles.rbac.authorization.k8s.io \"more\" is forbidden: user \"ann\" (groups=[\"system:authenticated\"]) is attempting to \
         grant RBAC permissions not currently held:\n{APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"list\"]}"
    );
    let mut same = api.get(&format!("{ROLES}/same")).await.expect(200);
    same["rules"] = on(&["secrets"], &["*"]);
    assert_eq!(ann.put(&format!("{ROLES}/same"), &same).await.code(), 403);
    let bound = ann
        .post(BINDINGS, &binding("b", "ClusterRole", "cluster-admin", "ann"))
        .await;
    assert_eq!(bound.code(), 403, "{}", bound.message());
    ann.post(BINDINGS, &binding("b", "Role", "same", "bob"))
        .await
        .expect(201);
    let missing = ann.post(BINDINGS, &binding("c", "Role", "none", "bob")).await;
    assert_eq!(
        missing.message(),
        r#"rolebindings.rbac.authorization.k8s.io "none" not found"#
    );
}

#[tokio::test]
async fn a_put_that_creates_needs_create() {
    let world = World::start().await;
    let api = world.plane("p").await;
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    let rule = |verbs: Value| json!([{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": verbs}]);
    api.post(ROLES, &role("r", rule(json!(["update", "patch", "get"]))))
        .await
        .expect(201);
    api.post(BINDINGS, &binding("r", "Role", "r", "ann")).await.expect(201);
    let ann = api.acting("ann");
    ann.until(&format!("{leases}/none"), 404).await;
    let lease = json!({"metadata": {"name": "l"}});
    let refused = ann.put(&format!("{leases}/l"), &lease).await;
    assert_eq!(
        refused.message(),
        r#"leases.coordination.k8s.io "l" is forbidden: User "ann" cannot create resource "leases" in API group "coordination.k8s.io" in the namespace "default""#
    );
    let apply = r#"{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"l"}}"#;
    let headers = [("content-type", "application/apply-patch+yaml")];
    let path = format!("{leases}/l?fieldManager=t");
    assert_eq!(ann.call(Method::PATCH, &path, &headers, apply).await.code(), 403);
    let made = api.put(&format!("{leases}/l"), &lease).await.expect(201);
    ann.put(&format!("{leases}/l"), &made).await.expect(200);
}

#[tokio::test]
async fn acting_as_others_needs_permission_for_each_part() {
    let world = World::start().await;
    let (root, one) = (world.root().await, world.plane("one").await);
    let certificate = certificate_in(&world.authority, "carl", None);
    let carl = world.as_user(Some(&certificate)).await;
    let refused = carl.acting("ann").get(MAPS).await;
    assert_eq!(
        refused.message(),
        r#"users "ann" is forbidden: User "carl" cannot impersonate resource "users" in API group "" at the cluster scope"#
    );
    root.post(
        &format!("{RBAC}/clusterroles"),
        &role(
            "actors",
            json!([
                {"apiGroups": [""], "resources": ["users"], "verbs": ["impersonate"], "resourceNames": ["ann"]},
                {"apiGroups": [""], "resources": ["groups"], "verbs": ["impersonate"], "resourceNames": ["friends"]},
            ]),
        ),
    )
    .await
    .expect(201);
    let bound = binding("actors", "ClusterRole", "actors", "carl");
    root.post(&format!("{RBAC}/clusterrolebindings"), &bound)
        .await
        .expect(201);
    let review = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let ann = carl.acting("ann");
    ann.until("/api", 200).await;
    let user = ann.post(review, &json!({})).await.expect(201);
    assert_eq!(text(&user, "/status/userInfo/username"), "ann");
    for (group, code) in [("friends", 201), ("system:masters", 403)] {
        let headers = [("content-type", "application/json"), ("impersonate-group", group)];
        let answer = ann.call(Method::POST, review, &headers, "{}").await;
        assert_eq!(answer.code(), code, "{group}: {}", answer.json());
    }
    let headers = [("impersonate-uid", "1")];
    assert_eq!(ann.call(Method::GET, "/api", &headers, "").await.code(), 403);
    assert_eq!(carl.acting("bob").get("/api").await.code(), 403);
    // Root's permission is no permission in a plane.
    assert_eq!(carl.at_plane("one").acting("ann").get("/api").await.code(), 403);
    // An administrator of a plane, made by acting as one, is nothing else.
    let headers = [("impersonate-user", "x"), ("impersonate-group", "system:masters")];
    assert_eq!(one.call(Method::GET, SECRETS, &headers, "").await.code(), 200);
}

#[tokio::test]
async fn reviews_answer_by_the_planes_roles() {
    let world = World::start().await;
    let api = world.plane("p").await;
    api.post(ROLES, &role("r", on(&["secrets"], &["list"])))
        .await
        .expect(201);
    api.post(BINDINGS, &binding("b", "Role", "r", "ann")).await.expect(201);
    api.acting("ann").until(SECRETS, 200).await;
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let ask = |namespace: &str| json!({"spec": {"user": "ann", "resourceAttributes": {"namespace": namespace, "resource": "secrets", "verb": "list"}}});
    let status = api.post(path, &ask("default")).await.expect(201)["status"].clone();
    assert_eq!(
        status,
        json!({"allowed": true, "reason": "RBAC: allowed by RoleBinding \"b/default\" of Role \"r\" to User \"ann\""})
    );
    let status = api.post(path, &ask("kube-system")).await.expect(201)["status"].clone();
    assert_eq!(status, json!({"allowed": false}));
    let rules = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    let review = json!({"spec": {"namespace": "default"}});
    let answer = api.acting("ann").post(rules, &review).await.expect(201);
    let held = answer["status"]["resourceRules"].as_array().unwrap();
    let own = json!({"apiGroups": [""], "resources": ["secrets"], "verbs": ["list"]});
    assert!(held.contains(&own), "{answer}");
}

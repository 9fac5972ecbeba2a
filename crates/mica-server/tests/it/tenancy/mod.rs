//! Organizations and projects: how they are made, whose they are, and who sees what of them.

mod owner;
mod project;
mod view;

use std::sync::Arc;

use mica_api::tenancy::{API_VERSION, organization_path, user_path};
use mica_store::MemStore;
use serde_json::{Value, json};

use super::fixture::certificate_in;
use super::world::{Api, World, names, text};

pub const GROUP: &str = "/apis/resourcemanager.miloapis.com/v1alpha1";
pub const ORGANIZATIONS: &str = "/apis/resourcemanager.miloapis.com/v1alpha1/organizations";
pub const MEMBERSHIPS: &str = "/apis/resourcemanager.miloapis.com/v1alpha1/organizationmemberships";
pub const PROJECTS: &str = "/apis/resourcemanager.miloapis.com/v1alpha1/projects";
pub const SUSPENSIONS: &str = "/apis/resourcemanager.miloapis.com/v1alpha1/projectsuspensions";
pub const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// A server with organizations and projects, and its administrator.
pub async fn platform() -> (World, Api) {
    let world = World::tenanted(Arc::new(MemStore::new())).await;
    let root = world.root().await;
    (world, root)
}

pub fn organization(name: &str) -> Value {
    json!({"apiVersion": API_VERSION, "kind": "Organization", "metadata": {"name": name}, "spec": {"type": "Standard"}})
}

pub fn project(name: &str) -> Value {
    json!({"apiVersion": API_VERSION, "kind": "Project", "metadata": {"name": name}})
}

pub fn membership(name: &str, organization: &str, user: &str, roles: &[&str]) -> Value {
    let roles: Vec<Value> = roles.iter().map(|role| json!({"name": role})).collect();
    json!({"apiVersion": API_VERSION, "kind": "OrganizationMembership", "metadata": {"name": name}, "spec": {
        "organizationRef": {"name": organization}, "userRef": {"name": user}, "roles": roles}})
}

/// The memberships of an organization, from root.
pub fn members(organization: &str) -> String {
    format!("{GROUP}/namespaces/organization-{organization}/organizationmemberships")
}

/// This client in an organization's view.
pub fn in_organization(api: &Api, name: &str) -> Api {
    api.at(&organization_path(name))
}

/// This client in a user's view.
pub fn as_seen_by(api: &Api, name: &str) -> Api {
    api.at(&user_path(name))
}

/// Somebody whom root lets do these things, in all of root or in one namespace.
pub async fn somebody(world: &World, name: &str, namespace: Option<&str>, rules: Value) -> Api {
    let root = world.root().await;
    let (roles, bindings, kind) = match namespace {
        None => (
            format!("{RBAC}/clusterroles"),
            format!("{RBAC}/clusterrolebindings"),
            "ClusterRole",
        ),
        Some(namespace) => (
            format!("{RBAC}/namespaces/{namespace}/roles"),
            format!("{RBAC}/namespaces/{namespace}/rolebindings"),
            "Role",
        ),
    };
    root.post(&roles, &json!({"metadata": {"name": name}, "rules": rules}))
        .await
        .expect(201);
    let binding = json!({"metadata": {"name": name}, "roleRef": {"kind": kind, "name": name},
        "subjects": [{"kind": "User", "name": name}]});
    root.post(&bindings, &binding).await.expect(201);
    world.as_user(Some(&certificate_in(&world.authority, name, None))).await
}

pub fn everything() -> Value {
    json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}])
}

#[tokio::test]
async fn the_kinds_are_served_at_once_and_a_restart_writes_nothing() {
    let store = Arc::new(MemStore::new());
    let world = World::tenanted(store.clone()).await;
    let root = world.root().await;
    let served = root.get(GROUP).await.expect(200);
    let mut kinds: Vec<&str> = served["resources"]
        .as_array()
        .unwrap()
        .iter()
        .map(|resource| text(resource, "/name"))
        .filter(|name| !name.contains('/'))
        .collect();
    kinds.sort_unstable();
    assert_eq!(
        kinds,
        [
            "organizationmemberships",
            "organizations",
            "projects",
            "projectsuspensions"
        ]
    );
    root.get("/apis/infrastructure.miloapis.com/v1alpha1/projectcontrolplanes")
        .await
        .expect(200);
    const DEFINITION: &str =
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/projects.resourcemanager.miloapis.com";
    let settled = |definition: &Value| {
        let conditions = definition["status"]["conditions"].as_array();
        conditions.is_some_and(|all| {
            all.iter()
                .any(|one| one["type"] == "Established" && one["status"] == "True")
        })
    };
    let before = root.until_it(DEFINITION, settled).await;
    let again = World::tenanted(store).await;
    let after = again.root().await.get(DEFINITION).await.expect(200);
    assert_eq!(
        before["metadata"]["resourceVersion"],
        after["metadata"]["resourceVersion"]
    );
    // A server that is not to serve them has no such addresses.
    let plain = World::start().await;
    assert_eq!(plain.root().await.get(PROJECTS).await.code(), 404);
}

#[tokio::test]
async fn an_older_definition_is_brought_up_to_date_in_place() {
    let store = Arc::new(MemStore::new());
    let world = World::tenanted(store.clone()).await;
    let root = world.root().await;
    root.post(ORGANIZATIONS, &organization("acme")).await.expect(201);
    const DEFINITION: &str =
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/organizations.resourcemanager.miloapis.com";
    let mut old = root.get(DEFINITION).await.expect(200);
    old["spec"]["versions"][0]["additionalPrinterColumns"] = json!([]);
    old["metadata"]["labels"]["somebodys"] = "own".into();
    root.put(DEFINITION, &old).await.expect(200);
    let again = World::tenanted(store).await;
    let root = again.root().await;
    let now = root.get(DEFINITION).await.expect(200);
    let columns = now["spec"]["versions"][0]["additionalPrinterColumns"].as_array();
    assert_eq!(columns.map(Vec::len), Some(4));
    assert_eq!(text(&now, "/metadata/labels/somebodys"), "own");
    root.get(&format!("{ORGANIZATIONS}/acme")).await.expect(200);
}

#[tokio::test]
async fn a_fresh_object_says_that_nothing_is_known_of_it_yet() {
    let (_world, root) = platform().await;
    let made = root.post(ORGANIZATIONS, &organization("acme")).await.expect(201);
    let read = root.get(&format!("{ORGANIZATIONS}/acme")).await.expect(200);
    for object in [&made, &read] {
        let condition = &object["status"]["conditions"][0];
        let brief =
            ["type", "status", "reason", "lastTransitionTime"].map(|field| text(condition, &format!("/{field}")));
        assert_eq!(brief, ["Ready", "Unknown", "Unknown", "1970-01-01T00:00:00Z"]);
    }
    let table = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
    let table = root
        .call(http::Method::GET, ORGANIZATIONS, &table, "")
        .await
        .expect(200);
    let columns: Vec<&str> = table["columnDefinitions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|column| text(column, "/name"))
        .collect();
    assert_eq!(columns, ["Name", "Display Name", "Type", "Ready", "Age"]);
    assert_eq!(
        table["rows"][0]["cells"].as_array().unwrap()[..4],
        [json!("acme"), Value::Null, json!("Standard"), json!("Unknown")]
    );
    let kept = root
        .patch(&format!("{ORGANIZATIONS}/acme"), &json!({"spec": {"type": "Personal"}}))
        .await;
    assert_eq!(kept.code(), 422, "{}", kept.json());
}

#[tokio::test]
async fn who_makes_an_organization_owns_it_and_its_namespace_comes_with_it() {
    let (world, root) = platform().await;
    let ann = somebody(&world, "ann", None, everything()).await;
    ann.until(ORGANIZATIONS, 200).await;
    let acme = ann.post(ORGANIZATIONS, &organization("acme")).await.expect(201);
    let namespace = root.get("/api/v1/namespaces/organization-acme").await.expect(200);
    let labels = &namespace["metadata"]["labels"];
    assert_eq!(labels["resourcemanager.miloapis.com/organization"], "acme");
    assert_eq!(labels["resourcemanager.miloapis.com/type"], "organization");
    assert_eq!(text(&namespace, "/status/phase"), "Active");
    assert_eq!(
        text(&namespace, "/metadata/ownerReferences/0/uid"),
        text(&acme, "/metadata/uid")
    );
    let member = root.get(&format!("{}/member-ann", members("acme"))).await.expect(200);
    assert_eq!(text(&member, "/spec/userRef/name"), "ann");
    assert_eq!(text(&member, "/spec/organizationRef/name"), "acme");
    assert_eq!(text(&member, "/spec/roles/0/name"), "owner");
    assert_eq!(text(&member, "/status/conditions/0/type"), "Ready");
    // The platform's administrators are nobody's members.
    root.post(ORGANIZATIONS, &organization("ours")).await.expect(201);
    assert!(names(&root.get(&members("ours")).await.expect(200)).is_empty());
}

#[tokio::test]
async fn a_refused_organization_leaves_nothing_behind() {
    let (_world, root) = platform().await;
    let before = root.get("/api/v1/namespaces").await.expect(200);
    let namespaces = names(&before);
    let long = "o".repeat(51);
    let refused = root.post(ORGANIZATIONS, &organization(&long)).await;
    assert_eq!(refused.code(), 422, "{}", refused.json());
    assert_eq!(root.post(ORGANIZATIONS, &organization("a.b")).await.code(), 422);
    let tried = root
        .post(&format!("{ORGANIZATIONS}?dryRun=All"), &organization("acme"))
        .await;
    assert_eq!(tried.code(), 201);
    let mut bad = organization("acme");
    bad["spec"]["type"] = "Huge".into();
    assert_eq!(root.post(ORGANIZATIONS, &bad).await.code(), 422);
    assert_eq!(names(&root.get("/api/v1/namespaces").await.expect(200)), namespaces);
    // A namespace that is somebody's already is not taken over.
    let taken = json!({"metadata": {"name": "organization-acme"}});
    root.post("/api/v1/namespaces", &taken).await.expect(201);
    let refused = root.post(ORGANIZATIONS, &organization("acme")).await;
    assert_eq!(refused.code(), 409, "{}", refused.json());
    assert!(names(&root.get(ORGANIZATIONS).await.expect(200)).is_empty());
    root.post(ORGANIZATIONS, &organization(&"o".repeat(50)))
        .await
        .expect(201);
}

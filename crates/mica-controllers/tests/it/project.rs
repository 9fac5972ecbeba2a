//! Projects and organizations from their creation to their end.

use mica_api::tenancy::{API_VERSION, organization_path, project_path};
use mica_server::start::Tenancy;
use mica_testkit::TestServer;
use serde_json::{Value, json};

use super::world::{Place, World};

const GROUP: &str = "/apis/resourcemanager.miloapis.com/v1alpha1";
const ORGANIZATIONS: &str = "/apis/resourcemanager.miloapis.com/v1alpha1/organizations";
const PROJECTS: &str = "/apis/resourcemanager.miloapis.com/v1alpha1/projects";
const SUSPENSIONS: &str = "/apis/resourcemanager.miloapis.com/v1alpha1/projectsuspensions";
const CONTROL_PLANES: &str = "/apis/infrastructure.miloapis.com/v1alpha1/projectcontrolplanes";

async fn world() -> (World, Place) {
    let server = TestServer::builder().tenancy(Tenancy::Served).start().await;
    let world = World::with(server, &["*"]).await;
    let root = world.root();
    let acme = json!({"apiVersion": API_VERSION, "kind": "Organization",
        "metadata": {"name": "acme", "annotations": {"kubernetes.io/display-name": "Acme"}}});
    root.create(ORGANIZATIONS, acme).await;
    (world, root)
}

async fn project(root: &Place, name: &str) {
    let path = format!("{}{PROJECTS}", organization_path("acme"));
    let object = json!({"apiVersion": API_VERSION, "kind": "Project", "metadata": {"name": name}});
    root.create(&path, object).await;
}

/// Whether an object's condition is this.
fn says(object: Option<&Value>, r#type: &str, status: &str, reason: &str) -> bool {
    let conditions = object.and_then(|object| object["status"]["conditions"].as_array());
    conditions.is_some_and(|all| {
        all.iter()
            .any(|one| one["type"] == r#type && one["status"] == status && one["reason"] == reason)
    })
}

#[tokio::test]
async fn a_project_gets_its_plane_is_suspended_lifted_and_goes_with_everything_in_it() {
    let (_world, root) = world().await;
    project(&root, "web").await;
    let web = format!("{PROJECTS}/web");
    root.until(&web, "ready", |found| says(found, "Ready", "True", "Ready"))
        .await;
    let told = format!("{CONTROL_PLANES}/web");
    root.until(&told, "told", |found| says(found, "ControlPlaneReady", "True", "Ready"))
        .await;
    let maps = format!("{}/api/v1/namespaces/default/configmaps", project_path("web"));
    let held = json!({"metadata": {"name": "held", "finalizers": ["example.com/hold"]}});
    root.create(&maps, held).await;

    let suspension = json!({"apiVersion": API_VERSION, "kind": "ProjectSuspension", "metadata": {"name": "unpaid"},
        "spec": {"projectRef": {"name": "web"}, "reason": "Billing", "reinstateAuthority": "Operator"}});
    root.create(SUSPENSIONS, suspension).await;
    root.until(&web, "suspended", |found| {
        says(found, "Suspended", "True", "Suspended") && says(found, "Ready", "False", "Suspended")
    })
    .await;
    let refused = root.try_create(&maps, json!({"metadata": {"name": "no"}})).await;
    assert!(refused.unwrap_err().to_string().contains("suspended"));
    root.delete(&format!("{SUSPENSIONS}/unpaid")).await;
    root.until(&web, "ready again", |found| {
        says(found, "Suspended", "False", "Active") && says(found, "Ready", "True", "Ready")
    })
    .await;

    root.delete(&web).await;
    let blocked = root
        .until(&web, "blocked by what is held", |found| {
            let all = found.map(ToString::to_string).unwrap_or_default();
            says(found, "ResourceCleanup", "True", "CleanupAwaitingCompletion") && all.contains("held")
        })
        .await;
    assert!(blocked.unwrap().to_string().contains("example.com/hold"));
    let free = json!({"metadata": {"finalizers": null}});
    root.patch(&format!("{maps}/held"), free).await;
    root.until_gone(&web).await;
    root.until_gone("/apis/mica.dev/v1alpha1/planes/project-web").await;
    root.until_gone(&told).await;

    // Under the same name it is another project, and empty.
    project(&root, "web").await;
    root.until(&web, "ready", |found| says(found, "Ready", "True", "Ready"))
        .await;
    assert_eq!(root.get(&format!("{maps}/held")).await, None);
}

#[tokio::test]
async fn organizations_and_memberships_say_that_they_are_ready() {
    let (_world, root) = world().await;
    root.until(&format!("{ORGANIZATIONS}/acme"), "ready", |found| {
        says(found, "Ready", "True", "Ready") && says(found, "OnboardingComplete", "True", "Ready")
    })
    .await;
    let members = format!("{GROUP}/namespaces/organization-acme/organizationmemberships");
    let member = json!({"apiVersion": API_VERSION, "kind": "OrganizationMembership", "metadata": {"name": "ann"},
        "spec": {"organizationRef": {"name": "acme"}, "userRef": {"name": "ann"}, "roles": [{"name": "viewer"}]}});
    root.create(&members, member).await;
    let ann = root
        .until(&format!("{members}/ann"), "ready", |found| {
            says(found, "Ready", "True", "Ready")
        })
        .await
        .unwrap();
    assert_eq!(
        ann["status"]["organization"],
        json!({"type": "Standard", "displayName": "Acme"})
    );
    assert_eq!(
        ann["status"]["appliedRoles"],
        json!([{"name": "viewer", "status": "Pending"}])
    );
}

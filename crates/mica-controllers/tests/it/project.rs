//! Projects and organizations from their creation to their end.

use mica_api::tenancy::{API_VERSION, organization_path, project_path};
use mica_server::start::Tenancy;
use mica_store::KeyRange;
use mica_testkit::TestServer;
use mica_testkit::kube;
use serde_json::{Value, json};

use super::world::{Place, World};

pub const GROUP: &str = "/apis/resourcemanager.miloapis.com/v1alpha1";
pub const ORGANIZATIONS: &str = "/apis/resourcemanager.miloapis.com/v1alpha1/organizations";
pub const PROJECTS: &str = "/apis/resourcemanager.miloapis.com/v1alpha1/projects";
const SUSPENSIONS: &str = "/apis/resourcemanager.miloapis.com/v1alpha1/projectsuspensions";
const CONTROL_PLANES: &str = "/apis/infrastructure.miloapis.com/v1alpha1/projectcontrolplanes";
const PLANES: &str = "/apis/mica.dev/v1alpha1/planes";

/// A platform with an organization, `acme`.
pub async fn world() -> (World, Place) {
    let server = TestServer::builder().tenancy(Tenancy::Served).start().await;
    let world = World::with(server, &["*"]).await;
    let root = world.root();
    organization(&root, "acme").await;
    (world, root)
}

pub async fn organization(root: &Place, name: &str) {
    let object = json!({"apiVersion": API_VERSION, "kind": "Organization",
        "metadata": {"name": name, "annotations": {"kubernetes.io/display-name": "Acme"}}});
    root.create(ORGANIZATIONS, object).await;
}

pub fn project_object(name: &str) -> Value {
    json!({"apiVersion": API_VERSION, "kind": "Project", "metadata": {"name": name}})
}

/// Where an organization has its projects.
pub fn projects_of(organization: &str) -> String {
    format!("{}{PROJECTS}", organization_path(organization))
}

async fn ready_project(root: &Place, name: &str) -> String {
    root.create(&projects_of("acme"), project_object(name)).await;
    let path = format!("{PROJECTS}/{name}");
    until_ready(root, &path).await;
    path
}

pub async fn until_ready(root: &Place, path: &str) {
    root.until(path, "ready", |found| says(found, "Ready", "True", "Ready"))
        .await;
}

/// Where a project has its ConfigMaps.
fn maps_of(project: &str) -> String {
    format!("{}/api/v1/namespaces/default/configmaps", project_path(project))
}

pub async fn suspend(root: &Place, name: &str, project: &str) -> String {
    let suspension = json!({"apiVersion": API_VERSION, "kind": "ProjectSuspension", "metadata": {"name": name},
        "spec": {"projectRef": {"name": project}, "reason": "Billing", "reinstateAuthority": "Operator"}});
    root.create(SUSPENSIONS, suspension).await;
    format!("{SUSPENSIONS}/{name}")
}

async fn until_phase(root: &Place, suspension: &str, phase: &str) {
    root.until(suspension, phase, |found| {
        found.is_some_and(|found| found["status"]["phase"] == phase)
    })
    .await;
}

/// Whether an object's condition is this.
pub fn says(object: Option<&Value>, r#type: &str, status: &str, reason: &str) -> bool {
    let conditions = object.and_then(|object| object["status"]["conditions"].as_array());
    conditions.is_some_and(|all| {
        all.iter()
            .any(|one| one["type"] == r#type && one["status"] == status && one["reason"] == reason)
    })
}

#[tokio::test]
async fn a_project_gets_its_plane_and_is_told_of_to_those_inside() {
    let (_world, root) = world().await;
    ready_project(&root, "web").await;
    let told = format!("{CONTROL_PLANES}/web");
    root.until(&told, "told", |found| says(found, "ControlPlaneReady", "True", "Ready"))
        .await;
    root.create(&maps_of("web"), json!({"metadata": {"name": "a"}})).await;
    let namespaces = format!("{}/api/v1/namespaces", project_path("web"));
    let system = root
        .get(&format!("{namespaces}/milo-system"))
        .await
        .expect("Milo's services look for it");
    assert_eq!(system["metadata"]["labels"]["miloapis.com/system"], "true");
    let default = root.get(&format!("{namespaces}/default")).await.unwrap();
    assert_eq!(default["metadata"]["labels"]["miloapis.com/project-default"], "true");
    root.until(
        &format!("{namespaces}/milo-system/serviceaccounts/default"),
        "there",
        |found| found.is_some(),
    )
    .await;
    let short = "/projects/web/control-plane/api/v1/namespaces/default/configmaps/a";
    assert!(root.get(short).await.is_some(), "by the short address too");
}

#[tokio::test]
async fn a_suspension_says_its_phase_ends_watches_and_is_lifted_cleanly() {
    let (_world, root) = world().await;
    let (web, maps) = (ready_project(&root, "web").await, maps_of("web"));
    let before = root.create(&maps, json!({"metadata": {"name": "before"}})).await;
    let version = before["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let from = format!("{maps}?watch=true&resourceVersion={version}");
    let mut watch = root.watch(&from).await;
    root.create(&maps, json!({"metadata": {"name": "seen"}})).await;
    assert_eq!(watch.next().await.as_deref(), Some("ADDED seen"));

    let unpaid = suspend(&root, "unpaid", "web").await;
    root.until(&web, "suspended", |found| {
        says(found, "Suspended", "True", "Suspended") && says(found, "Ready", "False", "Suspended")
    })
    .await;
    until_phase(&root, &unpaid, "Active").await;
    assert_eq!(watch.next().await, None, "a watch ends");
    let refused = root.try_create(&maps, json!({"metadata": {"name": "no"}})).await;
    let Err(kube::Error::Api(status)) = refused else {
        panic!("a suspended project takes nothing")
    };
    assert_eq!(status.code, 403);
    assert_eq!(status.details.unwrap().causes[0].reason, "ProjectSuspended");

    // Who may reinstate it says so in the suspension, which stays as a record.
    root.patch(&format!("{unpaid}/status"), json!({"status": {"phase": "Lifted"}}))
        .await;
    let lifted = root
        .until(&web, "ready again", |found| {
            says(found, "Suspended", "False", "Active") && says(found, "Ready", "True", "Ready")
        })
        .await;
    assert!(lifted.unwrap()["status"]["suspensions"].is_null());
    root.create(&maps, json!({"metadata": {"name": "after"}})).await;
    let mut watch = root.watch(&from).await;
    for name in ["seen", "after"] {
        assert_eq!(
            watch.next().await,
            Some(format!("ADDED {name}")),
            "nothing is lost or refused"
        );
    }
}

#[tokio::test]
async fn of_two_suspensions_both_are_lifted_before_the_project_goes_on() {
    let (_world, root) = world().await;
    let web = ready_project(&root, "web").await;
    let (unpaid, abused) = (
        suspend(&root, "unpaid", "web").await,
        suspend(&root, "abused", "web").await,
    );
    root.patch(&unpaid, json!({"metadata": {"finalizers": ["example.com/archive"]}}))
        .await;
    for suspension in [&unpaid, &abused] {
        until_phase(&root, suspension, "Active").await;
    }
    root.until(&web, "suspended twice", |found| {
        found.is_some_and(|found| {
            found["status"]["suspensions"]
                .as_array()
                .is_some_and(|all| all.len() == 2)
        })
    })
    .await;
    // Deletion lifts it too; while somebody keeps it, it says so.
    root.delete(&unpaid).await;
    until_phase(&root, &unpaid, "Lifted").await;
    let still = root
        .until(&web, "suspended once", |found| {
            found.is_some_and(|found| {
                found["status"]["suspensions"]
                    .as_array()
                    .is_some_and(|all| all.len() == 1)
            })
        })
        .await;
    assert!(says(still.as_ref(), "Suspended", "True", "Suspended"));
    root.delete(&abused).await;
    until_ready(&root, &web).await;
    root.patch(&unpaid, json!({"metadata": {"finalizers": null}})).await;
    root.until_gone(&unpaid).await;
}

#[tokio::test]
async fn a_class_that_a_project_is_given_reaches_the_plane_it_has() {
    let (world, root) = world().await;
    let class = json!({"metadata": {"name": "small"}, "spec": {"limits": {"objects": 3}}});
    root.create("/apis/mica.dev/v1alpha1/planeclasses", class).await;
    let web = ready_project(&root, "web").await;
    let plane = format!("{PLANES}/project-web");
    let classed = |class: Value| json!({"metadata": {"annotations": {"mica.dev/project-class": class}}});
    root.patch(&web, classed("small".into())).await;
    root.until(&plane, "of the class", |found| {
        found.is_some_and(|plane| plane["spec"]["className"] == "small")
    })
    .await;
    let limits = async || {
        let plane = world.server.server().directory.by_name("project-web").await;
        plane.unwrap().limits().objects
    };
    assert_eq!(limits().await, Some(3));
    root.patch(&web, classed(Value::Null)).await;
    root.until(&plane, "of no class", |found| {
        found.is_some_and(|plane| plane["spec"]["className"].is_null())
    })
    .await;
    assert_eq!(limits().await, None);
}

#[tokio::test]
async fn a_deleted_project_drains_and_names_what_holds_it() {
    let (_world, root) = world().await;
    let (web, maps) = (ready_project(&root, "web").await, maps_of("web"));
    let held = json!({"metadata": {"name": "held", "finalizers": ["example.com/hold"]}});
    root.create(&maps, held).await;
    root.delete(&web).await;
    let blocked = root
        .until(&web, "blocked by what is held", |found| {
            says(found, "ResourceCleanup", "True", "CleanupAwaitingCompletion")
                && found.map(ToString::to_string).is_some_and(|text| text.contains("held"))
        })
        .await
        .unwrap();
    let conditions = blocked["status"]["conditions"].as_array().unwrap();
    let cleanup = conditions.iter().find(|one| one["type"] == "ResourceCleanup").unwrap();
    assert_eq!(
        cleanup["message"],
        "configmaps \"held\" in namespace \"default\" waits for finalizers: example.com/hold"
    );
    root.patch(&format!("{maps}/held"), json!({"metadata": {"finalizers": null}}))
        .await;
    root.until_gone(&web).await;
    root.until_gone(&format!("{PLANES}/project-web")).await;
    root.until_gone(&format!("{CONTROL_PLANES}/web")).await;
}

#[tokio::test]
async fn a_project_made_again_under_its_name_finds_nothing_of_the_one_before() {
    let (world, root) = world().await;
    let directory = &world.server.server().directory;
    let maps = maps_of("web");
    let mut ids = Vec::new();
    for _ in 0..3 {
        let web = ready_project(&root, "web").await;
        let id = directory.by_name("project-web").await.unwrap().id;
        assert!(!ids.contains(&id), "ids are never used again");
        ids.push(id);
        let listed = root.get(&maps).await.unwrap();
        let names: Vec<_> = listed["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| &one["metadata"]["name"])
            .collect();
        assert_eq!(names, ["kube-root-ca.crt"]);
        let prefix = project_path("web");
        root.create(
            &format!("{prefix}/api/v1/namespaces"),
            json!({"metadata": {"name": "team"}}),
        )
        .await;
        for namespace in ["default", "team"] {
            let path = format!("{prefix}/api/v1/namespaces/{namespace}/configmaps");
            root.create(&path, json!({"metadata": {"name": "old"}})).await;
        }
        let role = json!({"metadata": {"name": "old"}, "rules": []});
        root.create(
            &format!("{prefix}/apis/rbac.authorization.k8s.io/v1/clusterroles"),
            role,
        )
        .await;
        assert!(world.server.store().usage(&KeyRange::Plane(id)).await.unwrap().records > 0);
        root.delete(&web).await;
        root.until_gone(&web).await;
        let left = world.server.store().usage(&KeyRange::Plane(id)).await.unwrap();
        assert_eq!(left.records, 0, "every key is gone");
    }
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

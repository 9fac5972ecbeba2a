//! One convention for conditions, over every kind of ours that a server has: its definition, and what is written into it.

use std::collections::BTreeSet;

use mica_api::control_plane;
use mica_api::tenancy::{API_VERSION, organization_path, project_path};
use mica_runtime::conditions::{check, find};
use mica_server::start::Tenancy;
use mica_testkit::TestServer;
use serde_json::{Value, json};

use super::world::{Place, World};

const ORGANIZATIONS: &str = "/apis/resourcemanager.miloapis.com/v1alpha1/organizations";
const PROJECTS: &str = "/apis/resourcemanager.miloapis.com/v1alpha1/projects";
const SUSPENSIONS: &str = "/apis/resourcemanager.miloapis.com/v1alpha1/projectsuspensions";
const PLANES: &str = "/apis/mica.dev/v1alpha1/planes";

/// Kinds of ours, by group: those whose objects say how they stand, and the condition that sums it up. A new kind has a
/// line here.
const SUMS: [(&str, &str); 9] = [
    ("Plane", "Ready"),
    ("Organization", "Ready"),
    ("OrganizationMembership", "Ready"),
    ("Project", "Ready"),
    ("ProjectControlPlane", "ControlPlaneReady"),
    ("ControlPlane", "Ready"),
    ("ControlPlaneClass", "Accepted"),
    ("ControlPlaneEndpoint", "Ready"),
    ("ControlPlaneRegistration", "Ready"),
];
/// Kinds of ours without conditions.
const SILENT: [&str; 3] = ["PlaneClass", "PartialObjectMetadata", "ProjectSuspension"];

/// Groups whose kinds are ours.
fn is_ours(group: &str) -> bool {
    ["mica.dev", "miloapis.com", "kplane.dev"]
        .iter()
        .any(|domain| group == *domain || group.ends_with(&format!(".{domain}")))
}

/// What a schema says, behind its references.
fn resolved<'a>(schemas: &'a Value, schema: &'a Value) -> &'a Value {
    let reference = schema["$ref"].as_str().or(schema["allOf"][0]["$ref"].as_str());
    match reference.and_then(|reference| reference.rsplit('/').next()) {
        Some(name) => resolved(schemas, &schemas[name]),
        None => schema,
    }
}

/// What is wrong with a kind's definition; `None` if it has no conditions.
fn wrong_with(schemas: &Value, kind: &Value) -> Option<Vec<String>> {
    let status = resolved(schemas, &kind["properties"]["status"]);
    let conditions = &status["properties"]["conditions"];
    if conditions.is_null() {
        return None;
    }
    let mut wrong = Vec::new();
    if conditions["x-kubernetes-list-type"] != "map" || conditions["x-kubernetes-list-map-keys"] != json!(["type"]) {
        wrong.push("the list is no map by type".to_owned());
    }
    let item = resolved(schemas, &conditions["items"]);
    for field in [
        "type",
        "status",
        "reason",
        "message",
        "lastTransitionTime",
        "observedGeneration",
    ] {
        if item["properties"][field].is_null() {
            wrong.push(format!("conditions have no {field}"));
        }
    }
    Some(wrong)
}

/// What is wrong with an object's conditions.
fn wrong_in(object: &Value, sum: &str) -> Vec<String> {
    let Ok(conditions) = serde_json::from_value::<Vec<_>>(object["status"]["conditions"].clone()) else {
        return vec!["conditions that are none".to_owned()];
    };
    let mut wrong: Vec<String> = check(&conditions)
        .err()
        .map(|broken| broken.to_string())
        .into_iter()
        .collect();
    if find(&conditions, sum).is_none() {
        wrong.push(format!("it does not say whether it is {sum}"));
    }
    let generation = object["metadata"]["generation"].as_i64();
    for condition in conditions {
        if condition.observed_generation.is_none() || condition.observed_generation > generation {
            let (r#type, observed) = (condition.type_, condition.observed_generation);
            wrong.push(format!("{type} is about {observed:?}, of {generation:?}"));
        }
    }
    wrong
}

/// Planes in every state that a test can bring about.
async fn make_planes(world: &World, root: &Place) {
    for name in ["plain", "suspended", "quiet", "going"] {
        world.server.plane(name).await;
    }
    for (name, state) in [("suspended", "Suspended"), ("quiet", "ReadOnly")] {
        root.patch(&format!("{PLANES}/{name}"), json!({"spec": {"state": state}}))
            .await;
    }
    let kept = json!({"metadata": {"finalizers": ["example.com/kept"]}});
    root.patch(&format!("{PLANES}/going"), kept).await;
    root.delete(&format!("{PLANES}/going")).await;
}

async fn until_says(root: &Place, path: &str, r#type: &str, status: &str) {
    root.until(path, &format!("{type}={status}"), |found| {
        let conditions = found.and_then(|object| object["status"]["conditions"].as_array());
        conditions.is_some_and(|all| all.iter().any(|one| one["type"] == r#type && one["status"] == status))
    })
    .await;
}

/// An organization with a member, and projects in every state that a test can bring about.
async fn make_tenants(root: &Place) {
    let object = |kind: &str, name: &str| json!({"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}});
    root.create(ORGANIZATIONS, object("Organization", "acme")).await;
    until_says(root, &format!("{ORGANIZATIONS}/acme"), "Ready", "True").await;
    let members = "/apis/resourcemanager.miloapis.com/v1alpha1/namespaces/organization-acme/organizationmemberships";
    let mut member = object("OrganizationMembership", "ann");
    member["spec"] =
        json!({"organizationRef": {"name": "acme"}, "userRef": {"name": "ann"}, "roles": [{"name": "viewer"}]});
    root.create(members, member).await;
    until_says(root, &format!("{members}/ann"), "Ready", "True").await;
    let projects = format!("{}{PROJECTS}", organization_path("acme"));
    for name in ["usual", "unpaid", "going"] {
        root.create(&projects, object("Project", name)).await;
        until_says(root, &format!("{PROJECTS}/{name}"), "Ready", "True").await;
    }
    let mut suspension = object("ProjectSuspension", "unpaid");
    suspension["spec"] =
        json!({"projectRef": {"name": "unpaid"}, "reason": "Billing", "reinstateAuthority": "Operator"});
    root.create(SUSPENSIONS, suspension).await;
    until_says(root, &format!("{PROJECTS}/unpaid"), "Suspended", "True").await;
    let maps = format!("{}/api/v1/namespaces/default/configmaps", project_path("going"));
    let held = json!({"metadata": {"name": "held", "finalizers": ["example.com/hold"]}});
    root.create(&maps, held).await;
    root.delete(&format!("{PROJECTS}/going")).await;
    until_says(root, &format!("{PROJECTS}/going"), "ResourceCleanup", "True").await;
}

/// Control planes that are ready and that are not, with what they name and what names them.
async fn make_control_planes(root: &Place) {
    let object = |kind: &str, name: &str, spec: Value| json!({"apiVersion": control_plane::API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec});
    let path = |plural: &str| format!("/apis/{}/{plural}", control_plane::API_VERSION);
    let (planes, classes) = (path(control_plane::CONTROL_PLANES), path(control_plane::CLASSES));
    let (endpoints, registrations) = (path(control_plane::ENDPOINTS), path(control_plane::REGISTRATIONS));
    for (name, spec) in [
        ("small", json!({})),
        ("odd", json!({"endpoints": {"internal": "no address"}})),
    ] {
        root.create(&classes, object("ControlPlaneClass", name, spec)).await;
    }
    for (name, url) in [("good", "https://good.kplane.example"), ("bad", "no address")] {
        let endpoint = object("ControlPlaneEndpoint", name, json!({"endpoint": url}));
        root.create(&endpoints, endpoint).await;
    }
    let named = |class: &str| json!({"classRef": {"name": class}, "endpointRef": {"name": "good"}});
    for (name, class) in [("usual", "small"), ("classless", "absent")] {
        root.create(&planes, object("ControlPlane", name, named(class))).await;
        let registration = object(
            "ControlPlaneRegistration",
            name,
            json!({"controlPlaneRef": {"name": name}}),
        );
        root.create(&registrations, registration).await;
    }
    for (collection, name, r#type, status) in [
        (&classes, "small", "Accepted", "True"),
        (&classes, "odd", "Accepted", "False"),
        (&endpoints, "good", "Ready", "True"),
        (&endpoints, "bad", "Ready", "False"),
        (&planes, "usual", "Ready", "True"),
        (&planes, "classless", "Ready", "False"),
        (&registrations, "usual", "Ready", "True"),
        (&registrations, "classless", "Ready", "False"),
    ] {
        until_says(root, &format!("{collection}/{name}"), r#type, status).await;
    }
}

/// The kinds of a version, with their plurals.
async fn kinds(root: &Place, version: &str) -> Vec<(String, String)> {
    let document = root.get(&format!("/apis/{version}")).await.unwrap();
    let resources = document["resources"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let all = resources.map(|one| (text(&one["kind"]), text(&one["name"])));
    all.filter(|(_, plural)| !plural.contains('/')).collect()
}

#[tokio::test]
async fn every_kind_of_ours_has_conditions_by_one_convention() {
    let server = TestServer::builder().tenancy(Tenancy::Served).start().await;
    let world = World::with(server, &["*"]).await;
    let root = world.root();
    make_planes(&world, &root).await;
    make_tenants(&root).await;
    make_control_planes(&root).await;
    let (mut wrong, mut seen, mut filled) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
    let groups = root.get("/apis").await.unwrap();
    let ours = groups["groups"].as_array().unwrap().iter();
    let ours = ours.filter(|group| is_ours(group["name"].as_str().unwrap()));
    for version in ours.flat_map(|group| group["versions"].as_array().unwrap()) {
        let version = version["groupVersion"].as_str().unwrap();
        let document = root.get(&format!("/openapi/v3/apis/{version}")).await.unwrap();
        let schemas = &document["components"]["schemas"];
        for (kind, plural) in kinds(&root, version).await {
            let named = |schema: &&Value| {
                let kinds = schema["x-kubernetes-group-version-kind"].as_array();
                kinds.is_some_and(|kinds| kinds.iter().any(|one| one["kind"] == *kind))
            };
            let schema = schemas.as_object().unwrap().values().find(named);
            let found = schema.and_then(|schema| wrong_with(schemas, schema));
            let sum = SUMS.iter().find(|(name, _)| *name == kind);
            let (Some(found), Some((_, sum))) = (found, sum) else {
                if !SILENT.contains(&&*kind) {
                    wrong.push(format!("{kind} is not in the table above, or has no conditions"));
                }
                continue;
            };
            wrong.extend(found.into_iter().map(|what| format!("{kind}: {what}")));
            for object in root.get(&format!("/apis/{version}/{plural}")).await.unwrap()["items"]
                .as_array()
                .unwrap()
            {
                let at = format!("{kind} {}", object["metadata"]["name"]);
                wrong.extend(wrong_in(object, sum).into_iter().map(|what| format!("{at}: {what}")));
                filled.insert(kind.clone());
            }
            seen.insert(kind);
        }
    }
    assert!(wrong.is_empty(), "conditions:\n  {}", wrong.join("\n  "));
    let missing: Vec<_> = SUMS.iter().filter(|(kind, _)| !seen.contains(*kind)).collect();
    assert!(missing.is_empty(), "{missing:?} are not served");
    for (kind, _) in SUMS {
        assert!(filled.contains(kind), "there is no {kind}");
    }
}

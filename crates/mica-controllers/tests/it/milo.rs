//! Milo's own scenarios, and the runtime's provider of its projects: what its clients rely on.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::StreamExt as _;
use mica_api::tenancy::{API_VERSION, organization_path, project_path};
use mica_runtime::ownership::All;
use mica_runtime::provider::{Discovery, Milo};
use mica_runtime::{Access, ClusterName, Fleet, FleetEvent};
use mica_testkit::kube;
use parking_lot::Mutex;
use serde_json::json;

use super::project::{GROUP, PROJECTS, organization, project_object, projects_of, suspend, until_ready, world};
use super::world::Place;

#[tokio::test]
async fn project_creation_is_ready_through_its_organization_and_visible_at_root() {
    let (_world, root) = world().await;
    let of_acme = projects_of("acme");
    root.create(&of_acme, project_object("web")).await;
    until_ready(&root, &format!("{of_acme}/web")).await;
    let at_root = root.get(&format!("{PROJECTS}/web")).await.unwrap();
    assert_eq!(
        at_root["spec"]["ownerRef"],
        json!({"kind": "Organization", "name": "acme"})
    );
    assert_eq!(
        at_root["metadata"]["labels"]["resourcemanager.miloapis.com/organization-name"],
        "acme"
    );
}

#[tokio::test]
async fn project_deletion_is_seen_through_its_organization_and_at_root() {
    let (_world, root) = world().await;
    let of_acme = projects_of("acme");
    root.create(&of_acme, project_object("web")).await;
    until_ready(&root, &format!("{of_acme}/web")).await;
    root.delete(&format!("{of_acme}/web")).await;
    for path in [format!("{of_acme}/web"), format!("{PROJECTS}/web")] {
        root.until_gone(&path).await;
    }
}

#[tokio::test]
async fn a_naming_rule_for_one_organization_leaves_the_other_alone() {
    let (_world, root) = world().await;
    organization(&root, "umbrella").await;
    let policy = json!({"metadata": {"name": "acme-names"}, "spec": {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [{"apiGroups": ["resourcemanager.miloapis.com"],
            "apiVersions": ["v1alpha1"], "operations": ["CREATE"], "resources": ["projects"]}]},
        "matchConditions": [{"name": "acme", "expression": "object.spec.ownerRef.name == 'acme'"}],
        "validations": [{"expression": "object.metadata.name.startsWith('acme-')",
            "message": "projects of acme begin with acme-"}],
    }});
    let bound = json!({"metadata": {"name": "acme-names"},
        "spec": {"policyName": "acme-names", "validationActions": ["Deny"]}});
    let group = "/apis/admissionregistration.k8s.io/v1";
    root.create(&format!("{group}/validatingadmissionpolicies"), policy)
        .await;
    root.create(&format!("{group}/validatingadmissionpolicybindings"), bound)
        .await;
    let tried = format!("{}?dryRun=All", projects_of("acme"));
    let refused = loop {
        // It is in force when the server has heard of it.
        if let Err(error) = root.try_create(&tried, project_object("web")).await {
            break error;
        }
        tokio::task::yield_now().await;
    };
    assert!(
        refused.to_string().contains("projects of acme begin with acme-"),
        "{refused}"
    );
    root.create(&projects_of("acme"), project_object("acme-web")).await;
    root.create(&projects_of("umbrella"), project_object("web")).await;
    for name in ["acme-web", "web"] {
        until_ready(&root, &format!("{PROJECTS}/{name}")).await;
    }
}

#[tokio::test]
async fn memberships_are_found_by_their_fields_and_the_last_owner_stays() {
    let (_world, root) = world().await;
    organization(&root, "umbrella").await;
    for (organization, user) in [("acme", "ann"), ("acme", "bob"), ("umbrella", "ann")] {
        let path = format!("{GROUP}/namespaces/organization-{organization}/organizationmemberships");
        let member = json!({"apiVersion": API_VERSION, "kind": "OrganizationMembership", "metadata": {"name": user},
            "spec": {"organizationRef": {"name": organization}, "userRef": {"name": user},
                "roles": [{"name": if user == "ann" { "owner" } else { "viewer" }}]}});
        root.create(&path, member).await;
    }
    let found = async |selector: &str| {
        let path = format!("{GROUP}/organizationmemberships?fieldSelector={selector}");
        let listed = root.get(&path).await.unwrap();
        let place = |one: &serde_json::Value| {
            let text = |field: &str| one["metadata"][field].as_str().unwrap().to_owned();
            format!("{}/{}", text("namespace"), text("name"))
        };
        listed["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(place)
            .collect::<Vec<_>>()
    };
    let of_ann = found("spec.userRef.name%3Dann").await;
    assert_eq!(of_ann, ["organization-acme/ann", "organization-umbrella/ann"]);
    let of_both = found("spec.userRef.name%3Dann,spec.organizationRef.name%3Dacme").await;
    assert_eq!(of_both, ["organization-acme/ann"]);
    assert!(found("spec.organizationRef.name%3Dnobody").await.is_empty());
    // Whoever made the organization owns it as well; without them, the owner that is left stays.
    let acme = format!(
        "{}{GROUP}/namespaces/organization-acme/organizationmemberships",
        organization_path("acme")
    );
    let members = root.get(&acme).await.unwrap();
    let owners = members["items"].as_array().unwrap().iter();
    let mut owners: Vec<String> = owners
        .filter(|one| one["spec"]["roles"].to_string().contains("owner"))
        .map(|one| one["metadata"]["name"].as_str().unwrap().to_owned())
        .collect();
    let last = owners.pop().unwrap();
    for owner in owners {
        root.delete(&format!("{acme}/{owner}")).await;
    }
    let refused = root.try_delete(&format!("{acme}/{last}")).await;
    assert!(matches!(refused, Err(kube::Error::Api(status)) if status.code == 403));
}

/// How often each project came and went.
type Tally = Arc<Mutex<BTreeMap<String, [usize; 2]>>>;

/// Follows projects as the runtime's own provider finds them.
fn follow(kubeconfig: &str, discovery: Discovery) -> (Fleet, Tally) {
    let access = Access::from_kubeconfig_yaml(kubeconfig).unwrap();
    let fleet = Fleet::new(Arc::new(All::new()));
    fleet.add(Milo::new(access, discovery)).unwrap();
    let (mut events, tally) = (fleet.events(), Tally::default());
    let noted = tally.clone();
    tokio::spawn(async move {
        while let Some(event) = events.next().await {
            let (name, which) = match event {
                FleetEvent::Engaged(cluster) => (cluster.name().to_string(), 0),
                FleetEvent::Gone(name) => (name.to_string(), 1),
                FleetEvent::Changed(_) | FleetEvent::Synced => continue,
            };
            noted.lock().entry(name).or_default()[which] += 1;
        }
    });
    (fleet, tally)
}

fn name(i: usize) -> String {
    format!("p{i:03}")
}

/// Waits until every project has come and gone this often, and sees that none did more often.
async fn until_tallied(tallies: &[Tally], wanted: impl Fn(usize) -> [usize; 2], count: usize) {
    let wanted: BTreeMap<String, [usize; 2]> = (0..count).map(|i| (name(i), wanted(i))).collect();
    for tally in tallies {
        let waiting = async {
            loop {
                let reached = {
                    let seen = tally.lock();
                    let at_least = |(name, want): (&String, &[usize; 2])| {
                        seen.get(name).is_some_and(|has| has[0] >= want[0] && has[1] >= want[1])
                    };
                    wanted.iter().all(at_least)
                };
                if reached {
                    break;
                }
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
        };
        let done = tokio::time::timeout(std::time::Duration::from_secs(180), waiting).await;
        assert!(done.is_ok(), "wanted {wanted:?}, but {:?}", tally.lock());
        assert_eq!(*tally.lock(), wanted, "each once, and no other");
    }
}

const COUNT: usize = 200;
/// Requests at once.
const AT_ONCE: usize = 16;

async fn for_each(root: &Place, which: impl Fn(usize) -> bool, act: impl AsyncFn(&Place, usize)) {
    let chosen = (0..COUNT).filter(|i| which(*i));
    futures::stream::iter(chosen)
        .for_each_concurrent(AT_ONCE, async |i| act(root, i).await)
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hundreds_of_projects_come_go_and_are_suspended_and_each_is_engaged_and_let_go_once() {
    let (world, root) = world().await;
    let kubeconfig = world.server.kubeconfig();
    let (external, seen) = follow(&kubeconfig, Discovery::External);
    let (_internal, inside) = follow(&kubeconfig, Discovery::Internal);
    let tallies = [seen, inside];
    let (suspended, deleted) = (|i: usize| i % 5 == 1, |i: usize| i % 4 == 2);
    let of_acme = projects_of("acme");
    for_each(
        &root,
        |_| true,
        async |root, i| {
            root.create(&of_acme, project_object(&name(i))).await;
        },
    )
    .await;
    until_tallied(&tallies, |_| [1, 0], COUNT).await;
    let cluster = external.get(&ClusterName::new(name(7))).unwrap();
    let version = cluster.client().apiserver_version().await.unwrap();
    assert_eq!(version.major, "1", "what is engaged answers");

    for_each(&root, suspended, async |root, i| {
        drop(suspend(root, &name(i), &name(i)).await);
    })
    .await;
    until_tallied(&tallies, |i| [1, usize::from(suspended(i))], COUNT).await;
    for_each(&root, suspended, async |root, i| {
        root.delete(&format!("{GROUP}/projectsuspensions/{}", name(i))).await;
    })
    .await;
    until_tallied(
        &tallies,
        |i| [1 + usize::from(suspended(i)), usize::from(suspended(i))],
        COUNT,
    )
    .await;
    for_each(&root, deleted, async |root, i| {
        root.delete(&format!("{PROJECTS}/{}", name(i))).await;
    })
    .await;
    let gone = |i: usize| usize::from(suspended(i)) + usize::from(deleted(i));
    until_tallied(&tallies, |i| [1 + usize::from(suspended(i)), gone(i)], COUNT).await;
    // What comes last is told last: nothing else was on its way.
    root.create(&of_acme, project_object(&name(COUNT))).await;
    let all = |i: usize| {
        if i == COUNT {
            [1, 0]
        } else {
            [1 + usize::from(suspended(i)), gone(i)]
        }
    };
    until_tallied(&tallies, all, COUNT + 1).await;
}

#[tokio::test]
async fn a_project_that_is_deleted_is_engaged_until_it_is_drained_also_one_that_was_suspended() {
    let (world, root) = world().await;
    let kubeconfig = world.server.kubeconfig();
    let (_external, seen) = follow(&kubeconfig, Discovery::External);
    let (_internal, inside) = follow(&kubeconfig, Discovery::Internal);
    let tallies = [seen, inside];
    for i in [0, 1] {
        root.create(&projects_of("acme"), project_object(&name(i))).await;
    }
    until_tallied(&tallies, |_| [1, 0], 2).await;
    let held = |i| format!("{}/api/v1/namespaces/default/configmaps", project_path(&name(i)));
    for i in [0, 1] {
        let object = json!({"metadata": {"name": "held", "finalizers": ["example.com/hold"]}});
        root.create(&held(i), object).await;
    }
    suspend(&root, "unpaid", &name(1)).await;
    until_tallied(&tallies, |i| [1, i], 2).await;
    for i in [0, 1] {
        let project = format!("{PROJECTS}/{}", name(i));
        root.delete(&project).await;
        root.until(&project, "held", |found| {
            found.is_some_and(|found| found.to_string().contains("waits for finalizers: example.com/hold"))
        })
        .await;
    }
    // Whoever holds something there can let go of it.
    until_tallied(&tallies, |i| [1 + i, i], 2).await;
    for i in [0, 1] {
        let free = json!({"metadata": {"finalizers": null}});
        root.patch(&format!("{}/held", held(i)), free).await;
        root.until_gone(&format!("{PROJECTS}/{}", name(i))).await;
    }
    until_tallied(&tallies, |i| [1 + i, 1 + i], 2).await;
}

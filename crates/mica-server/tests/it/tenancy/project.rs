//! Projects: whose they are, and the planes that are theirs.

use http::Method;
use mica_api::tenancy::API_VERSION;
use serde_json::{Value, json};

use super::super::admission;
use super::super::hook::Hook;
use super::super::world::{PLANES, text};
use super::{ORGANIZATIONS, PROJECTS, SUSPENSIONS, in_organization, organization, platform, project};

#[tokio::test]
async fn a_project_is_made_in_the_view_of_its_organization_and_nowhere_else() {
    let (_world, root) = platform().await;
    let acme = root.post(ORGANIZATIONS, &organization("acme")).await.expect(201);
    let refused = root.post(PROJECTS, &project("p")).await;
    assert_eq!(refused.code(), 403, "{}", refused.json());
    // What a client says of its organization counts for nothing.
    let mut claimed = project("p");
    claimed["spec"] = json!({"ownerRef": {"kind": "Organization", "name": "acme"}});
    assert_eq!(root.post(PROJECTS, &claimed).await.code(), 403);
    let absent = in_organization(&root, "none").post(PROJECTS, &project("p")).await;
    assert_eq!(absent.code(), 404, "{}", absent.json());

    claimed["spec"]["ownerRef"]["name"] = "other".into();
    claimed["metadata"]["labels"] = json!({"resourcemanager.miloapis.com/organization-name": "other"});
    let view = in_organization(&root, "acme");
    let made = view.post(PROJECTS, &claimed).await.expect(201);
    assert_eq!(
        made["metadata"]["labels"]["resourcemanager.miloapis.com/organization-name"],
        "acme"
    );
    assert_eq!(
        made["spec"]["ownerRef"],
        json!({"kind": "Organization", "name": "acme"})
    );
    assert_eq!(
        text(&made, "/metadata/ownerReferences/0/uid"),
        text(&acme, "/metadata/uid")
    );
    let finalizers = json!(["resourcemanager.miloapis.com/project-controller"]);
    assert_eq!(made["metadata"]["finalizers"], finalizers);
    root.get(&format!("{PROJECTS}/p")).await.expect(200);
    let long = view.post(PROJECTS, &project(&"p".repeat(56))).await;
    assert_eq!(long.code(), 422, "{}", long.json());
    view.post(PROJECTS, &project(&"p".repeat(55))).await.expect(201);
    let mut generated = project("");
    generated["metadata"] = json!({"generateName": "team-"});
    let generated = view.post(PROJECTS, &generated).await.expect(201);
    assert_eq!(text(&generated, "/spec/ownerRef/name"), "acme");
}

#[tokio::test]
async fn a_project_cannot_leave_its_organization() {
    let (_world, root) = platform().await;
    for name in ["acme", "other"] {
        root.post(ORGANIZATIONS, &organization(name)).await.expect(201);
    }
    let made = in_organization(&root, "acme")
        .post(PROJECTS, &project("p"))
        .await
        .expect(201);
    let one = format!("{PROJECTS}/p");
    let label = "resourcemanager.miloapis.com/organization-name";
    for change in [
        json!({"metadata": {"labels": {label: "other"}}}),
        json!({"metadata": {"labels": {label: null}}}),
        json!({"metadata": {"labels": null}}),
        json!({"spec": {"ownerRef": {"name": "other"}}}),
    ] {
        let refused = root.patch(&one, &change).await;
        assert_eq!(refused.code(), 422, "{change}: {}", refused.json());
    }
    let freed = root
        .patch(&one, &json!({"metadata": {"ownerReferences": null}}))
        .await
        .expect(200);
    assert_eq!(
        freed["metadata"]["ownerReferences"],
        made["metadata"]["ownerReferences"]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_organization_that_begins_to_go_while_a_project_is_looked_at_does_not_get_it() {
    let (_world, root) = platform().await;
    let mut acme = organization("acme");
    acme["metadata"]["finalizers"] = json!(["example.com/hold"]);
    root.post(ORGANIZATIONS, &acme).await.expect(201);
    let going = root.clone();
    let hook = Hook::start(move |seen| {
        let gone = going.delete("/apis/resourcemanager.miloapis.com/v1alpha1/organizations/acme");
        tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(gone)).expect(200);
        admission::yes(seen)
    })
    .await;
    let rule = json!([{"apiGroups": ["resourcemanager.miloapis.com"], "apiVersions": ["*"], "operations": ["CREATE"],
        "resources": ["projects"]}]);
    let asked = admission::webhook(&hook.client_config("/"), |webhook| webhook["rules"] = rule);
    admission::validating(&root, "late", &[asked]).await;
    let refused = in_organization(&root, "acme").post(PROJECTS, &project("p")).await;
    assert_eq!(refused.code(), 403, "{}", refused.json());
    assert!(!hook.seen().is_empty());
    assert_eq!(root.get(&format!("{PROJECTS}/p")).await.code(), 404);
}

fn plane_of(project: &str) -> Value {
    json!({"metadata": {"name": format!("project-{project}")}, "spec": {
        "parent": {"apiGroup": "resourcemanager.miloapis.com", "kind": "Project", "name": project},
        "addresses": [{"type": "Project", "value": project}]}})
}

#[tokio::test]
async fn only_a_project_that_is_there_gets_its_plane() {
    let (world, root) = platform().await;
    assert_eq!(root.post(PLANES, &plane_of("p")).await.code(), 403);
    root.post(ORGANIZATIONS, &organization("acme")).await.expect(201);
    let view = in_organization(&root, "acme");
    view.post(PROJECTS, &project("p")).await.expect(201);
    let mut lying = plane_of("p");
    lying["spec"]["parent"]["name"] = "q".into();
    assert_eq!(root.post(PLANES, &lying).await.code(), 422);
    lying["spec"] = json!({});
    assert_eq!(root.post(PLANES, &lying).await.code(), 422);
    root.post(PLANES, &plane_of("p")).await.expect(201);
    assert!(!world.server.known_hosts()("milo-apiserver.project-q.svc.cluster.local".to_owned()).await);
    // Both paths, the host, and what says whose it is.
    let who = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let host = "milo-apiserver.project-p.svc.cluster.local";
    for api in [
        root.at("/projects/p/control-plane"),
        root.at(&format!("{PROJECTS}/p/control-plane")),
        world.host(host, host).await,
    ] {
        let answer = api.post(who, &json!({})).await.expect(201);
        let extra = &answer["status"]["userInfo"]["extra"];
        assert_eq!(extra["iam.miloapis.com/parent-type"], json!(["Project"]));
        assert_eq!(extra["iam.miloapis.com/parent-name"], json!(["p"]));
    }
}

#[tokio::test]
async fn a_suspended_project_refuses_with_its_cause_ends_watches_and_comes_back() {
    let (_world, root) = platform().await;
    root.post(ORGANIZATIONS, &organization("acme")).await.expect(201);
    in_organization(&root, "acme")
        .post(PROJECTS, &project("p"))
        .await
        .expect(201);
    root.post(PLANES, &plane_of("p")).await.expect(201);
    let inside = root.at("/projects/p/control-plane");
    let maps = "/api/v1/namespaces/default/configmaps";
    inside.post(maps, &json!({"metadata": {"name": "a"}})).await.expect(201);
    let mut watches = Vec::new();
    for path in [
        format!("{maps}?watch=1&resourceVersion=1"),
        "/apis/mica.dev/v1alpha1/objects?watch=1&resourceVersion=1".to_owned(),
    ] {
        let mut watch = inside.watch(&path).await;
        assert_eq!(watch.brief().await, "ADDED a", "{path}");
        watches.push(watch);
    }
    let plane = format!("{PLANES}/project-p");
    root.patch(&plane, &json!({"spec": {"state": "Suspended"}}))
        .await
        .expect(200);
    for mut watch in watches {
        assert_eq!(watch.brief().await, "end");
    }
    for (method, path) in [
        (Method::GET, maps.to_owned()),
        (Method::GET, format!("{maps}/a")),
        (Method::GET, format!("{maps}?watch=1")),
        (Method::DELETE, format!("{maps}/a")),
    ] {
        let refused = inside.call(method, &path, &[], "").await;
        assert_eq!(refused.code(), 403, "{path}");
        let refused = refused.json();
        assert_eq!(
            text(&refused, "/details/causes/0/reason"),
            "ProjectSuspended",
            "{refused}"
        );
        assert_eq!(text(&refused, "/details/name"), "p");
    }
    root.patch(&plane, &json!({"spec": {"state": "Active"}}))
        .await
        .expect(200);
    inside.get(&format!("{maps}/a")).await.expect(200);
    let mut watch = inside.watch(&format!("{maps}?watch=1&resourceVersion=1")).await;
    assert_eq!(watch.brief().await, "ADDED a");
}

#[tokio::test]
async fn a_suspension_names_a_project_and_stays_as_it_was_made() {
    let (_world, root) = platform().await;
    root.post(ORGANIZATIONS, &organization("acme")).await.expect(201);
    let suspension = json!({"apiVersion": API_VERSION, "kind": "ProjectSuspension", "metadata": {"name": "s"}, "spec": {"projectRef": {"name": "p"}, "reason": "Billing",
        "reinstateAuthority": "Operator", "requestedBy": "finance"}});
    let refused = root.post(SUSPENSIONS, &suspension).await;
    assert_eq!(refused.code(), 422, "{}", refused.json());
    in_organization(&root, "acme")
        .post(PROJECTS, &project("p"))
        .await
        .expect(201);
    root.post(SUSPENSIONS, &suspension).await.expect(201);
    let one = format!("{SUSPENSIONS}/s");
    for change in [
        json!({"spec": {"reason": "Abuse"}}),
        json!({"spec": {"requestedBy": null}}),
        json!({"spec": {"projectRef": {"name": "q"}}}),
    ] {
        let refused = root.patch(&one, &change).await;
        assert_eq!(refused.code(), 422, "{change}: {}", refused.json());
    }
    root.patch(&one, &json!({"spec": {"description": "they have paid"}}))
        .await
        .expect(200);
    let lifted = root
        .patch(&format!("{one}/status"), &json!({"status": {"phase": "Lifted"}}))
        .await
        .expect(200);
    assert_eq!(text(&lifted, "/status/phase"), "Lifted");
}

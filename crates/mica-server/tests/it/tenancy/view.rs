//! The views of organizations and users: nothing that is not theirs, on any verb.

use http::Method;
use serde_json::{Value, json};

use super::super::world::{Api, names, revision_of, text};
use super::{
    GROUP, MEMBERSHIPS, ORGANIZATIONS, PROJECTS, as_seen_by, everything, in_organization, members, membership,
    organization, platform, project, somebody,
};

const WHO: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGETS: &str = "/apis/example.com/v1/widgets";

/// Two organizations with a project, a member and a secret each.
async fn two(root: &Api) -> (Api, Api) {
    for name in ["acme", "other"] {
        root.post(ORGANIZATIONS, &organization(name)).await.expect(201);
        let view = in_organization(root, name);
        view.post(PROJECTS, &project(&format!("{name}-p"))).await.expect(201);
        root.post(&members(name), &membership("ann", name, "ann", &["owner"]))
            .await
            .expect(201);
        let user = format!("{name}-only");
        root.post(&members(name), &membership(&user, name, &user, &[]))
            .await
            .expect(201);
        let secrets = format!("/api/v1/namespaces/organization-{name}/secrets");
        root.post(&secrets, &json!({"metadata": {"name": "s"}}))
            .await
            .expect(201);
    }
    (in_organization(root, "acme"), in_organization(root, "other"))
}

#[tokio::test]
async fn an_organization_sees_its_own_and_nothing_of_others_on_every_verb() {
    let (_world, root) = platform().await;
    let (acme, _other) = two(&root).await;
    assert_eq!(names(&acme.get(PROJECTS).await.expect(200)), ["acme-p"]);
    acme.get(&format!("{PROJECTS}/acme-p")).await.expect(200);
    let foreign = format!("{PROJECTS}/other-p");
    let body = root.get(&foreign).await.expect(200);
    let patch = json!({"metadata": {"labels": {"x": "y"}}});
    let apply = [("content-type", "application/apply-patch+yaml")];
    let applied = json!({"apiVersion": "resourcemanager.miloapis.com/v1alpha1", "kind": "Project",
        "metadata": {"name": "other-p", "labels": {"x": "y"}}});
    for (what, answer) in [
        ("get", acme.get(&foreign).await),
        ("status", acme.get(&format!("{foreign}/status")).await),
        ("put", acme.put(&foreign, &body).await),
        ("patch", acme.patch(&foreign, &patch).await),
        ("patch status", acme.patch(&format!("{foreign}/status"), &patch).await),
        ("delete", acme.delete(&foreign).await),
    ] {
        assert_eq!(answer.code(), 404, "{what}: {}", answer.json());
    }
    let path = format!("{foreign}?fieldManager=t");
    let answer = acme.call(Method::PATCH, &path, &apply, applied.to_string()).await;
    assert_eq!(answer.code(), 409, "{}", answer.json());
    for selector in ["metadata.name%3Dother-p", "metadata.name%21%3Dx"] {
        let list = acme
            .get(&format!("{PROJECTS}?fieldSelector={selector}"))
            .await
            .expect(200);
        assert!(!names(&list).contains(&"other-p"), "{selector}");
    }
    let label = "resourcemanager.miloapis.com/organization-name%3Dother";
    let list = acme.get(&format!("{PROJECTS}?labelSelector={label}")).await.expect(200);
    assert!(names(&list).is_empty());
    let deleted = acme.delete(PROJECTS).await.expect(200);
    assert_eq!(names(&deleted), ["acme-p"]);
    assert_eq!(root.get(&foreign).await.expect(200), body);
}

#[tokio::test]
async fn a_watch_tells_an_organization_of_its_own_projects_only() {
    let (_world, root) = platform().await;
    let (acme, other) = two(&root).await;
    let mut begun = acme.watch(&format!("{PROJECTS}?watch=1")).await;
    assert_eq!(begun.brief().await, "ADDED acme-p");
    let mut named = acme
        .watch(&format!(
            "{PROJECTS}?watch=1&fieldSelector=metadata.name%3Dother-q&resourceVersion=1&allowWatchBookmarks=true"
        ))
        .await;
    let mut old = acme.watch(&format!("{GROUP}/watch/projects?resourceVersion=1")).await;
    assert_eq!(old.brief().await, "ADDED acme-p");
    other.post(PROJECTS, &project("other-q")).await.expect(201);
    other
        .patch(
            &format!("{PROJECTS}/other-p"),
            &json!({"metadata": {"labels": {"x": "y"}}}),
        )
        .await
        .expect(200);
    let last = acme.post(PROJECTS, &project("acme-q")).await.expect(201);
    assert_eq!(begun.brief().await, "ADDED acme-q");
    assert_eq!(old.brief().await, "ADDED acme-q");
    // Its bookmarks pass what it may not see.
    loop {
        let event = named.next().await.expect("the watch goes on");
        assert_eq!(text(&event, "/type"), "BOOKMARK", "{event}");
        if revision_of(&event["object"]) >= revision_of(&last) {
            break;
        }
    }
}

#[tokio::test]
async fn an_organizations_namespace_is_all_that_it_sees_of_namespaces() {
    let (_world, root) = platform().await;
    let (acme, _other) = two(&root).await;
    assert_eq!(
        names(&acme.get("/api/v1/namespaces").await.expect(200)),
        ["organization-acme"]
    );
    assert_eq!(names(&acme.get("/api/v1/secrets").await.expect(200)), ["s"]);
    let mut all = names(&acme.get(MEMBERSHIPS).await.expect(200)).join(" ");
    assert_eq!(all, "acme-only ann");
    all = names(&acme.get(&members("acme")).await.expect(200)).join(" ");
    assert_eq!(all, "acme-only ann");
    for path in [
        members("other"),
        "/api/v1/namespaces/organization-other".to_owned(),
        "/api/v1/namespaces/organization-other/secrets".to_owned(),
        "/api/v1/namespaces/organization-other/secrets/s".to_owned(),
        "/api/v1/namespaces/default/secrets".to_owned(),
        "/api/v1/namespaces/kube-system/configmaps".to_owned(),
    ] {
        assert_eq!(acme.get(&path).await.code(), 404, "{path}");
    }
    let secrets = "/api/v1/namespaces/organization-other/secrets";
    let one = format!("{secrets}/s");
    let body =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "organization-other"},
        "stringData": {"a": "b"}})
        .to_string();
    let before = root.get(secrets).await.expect(200);
    for (method, path, kind) in [
        (Method::POST, secrets, "application/json"),
        (Method::PUT, &one, "application/json"),
        (Method::PATCH, &one, "application/merge-patch+json"),
        (Method::PATCH, &one, "application/apply-patch+yaml"),
        (Method::DELETE, &one, "application/json"),
        (Method::DELETE, secrets, "application/json"),
        (Method::GET, &format!("{secrets}?watch=1"), "application/json"),
        (Method::GET, &format!("{one}?watch=1"), "application/json"),
    ] {
        let said = acme
            .call(method.clone(), path, &[("content-type", kind)], body.clone())
            .await;
        assert_eq!(said.code(), 404, "{method} {path}: {}", said.json());
    }
    // Nor by saying so in what is sent.
    let content = [("content-type", "application/json")];
    for path in ["/api/v1/namespaces/organization-acme/secrets", "/api/v1/secrets"] {
        let said = acme.call(Method::POST, path, &content, body.clone()).await;
        assert!([400, 404, 405].contains(&said.code()), "{path}: {}", said.json());
    }
    assert_eq!(root.get(secrets).await.expect(200)["items"], before["items"]);
    let mut watch = acme.watch("/api/v1/secrets?watch=1").await;
    assert_eq!(watch.brief().await, "ADDED s");
    root.post(secrets, &json!({"metadata": {"name": "theirs"}}))
        .await
        .expect(201);
    root.post(
        "/api/v1/namespaces/organization-acme/secrets",
        &json!({"metadata": {"name": "ours"}}),
    )
    .await
    .expect(201);
    assert_eq!(watch.brief().await, "ADDED ours");
    assert_eq!(acme.delete("/api/v1/namespaces/organization-acme").await.code(), 405);
    // What is in no namespace, and what is the platform's, is not there.
    for path in [
        "/apis/mica.dev/v1alpha1/planes",
        "/apis/mica.dev/v1alpha1/objects",
        DEFINITIONS,
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        ORGANIZATIONS,
        "/apis/resourcemanager.miloapis.com/v1alpha1/organizations/acme",
        "/apis/resourcemanager.miloapis.com/v1alpha1/projectsuspensions",
        "/apis/infrastructure.miloapis.com/v1alpha1/projectcontrolplanes",
    ] {
        assert_eq!(acme.get(path).await.code(), 404, "{path}");
    }
    assert_eq!(in_organization(&root, "none").get(PROJECTS).await.code(), 404);
    assert_eq!(in_organization(&root, "a_b-").get(PROJECTS).await.code(), 400);
}

#[tokio::test]
async fn a_user_sees_what_is_about_them_and_the_organizations_they_are_in() {
    let (world, root) = platform().await;
    two(&root).await;
    root.post(ORGANIZATIONS, &organization("third")).await.expect(201);
    let certificate = super::certificate_in(&world.authority, "acme-only", None);
    let user = world.as_user(Some(&certificate)).await;
    let own = as_seen_by(&user, "acme-only");
    let list = own.get(MEMBERSHIPS).await.expect(200);
    assert_eq!(names(&list), ["acme-only"]);
    assert_eq!(text(&list, "/items/0/spec/organizationRef/name"), "acme");
    own.get(&format!("{ORGANIZATIONS}/acme")).await.expect(200);
    for organization in ["other", "third", "none"] {
        let one = format!("{ORGANIZATIONS}/{organization}");
        assert_eq!(own.get(&one).await.code(), 404, "{organization}");
    }
    assert_eq!(own.get(&format!("{}/ann", members("acme"))).await.code(), 404);
    assert_eq!(own.get(PROJECTS).await.code(), 404);
    // Nobody makes themselves an owner.
    let risen = json!({"spec": {"roles": [{"name": "owner"}]}});
    let refused = own.patch(&format!("{}/acme-only", members("acme")), &risen).await;
    assert_eq!(refused.code(), 403, "{}", refused.json());
    let made = own
        .post(&members("acme"), &membership("z", "acme", "acme-only", &["owner"]))
        .await;
    assert_eq!(made.code(), 403, "{}", made.json());
    // Others' views are others'.
    for (api, path) in [
        (as_seen_by(&user, "ann"), MEMBERSHIPS),
        (in_organization(&user, "acme"), PROJECTS),
        (user.clone(), MEMBERSHIPS),
    ] {
        assert_eq!(api.get(path).await.code(), 403, "{path}");
    }
    let ann = as_seen_by(&root, "ann");
    assert_eq!(names(&ann.get(MEMBERSHIPS).await.expect(200)), ["ann", "ann"]);
    let mut watch = own.watch(&format!("{MEMBERSHIPS}?watch=1")).await;
    assert_eq!(watch.brief().await, "ADDED acme-only");
    root.post(&members("third"), &membership("x", "third", "ann", &[]))
        .await
        .expect(201);
    root.post(&members("third"), &membership("y", "third", "acme-only", &[]))
        .await
        .expect(201);
    assert_eq!(watch.brief().await, "ADDED y");
    // Whoever wants to may leave.
    own.delete(&format!("{}/y", members("third"))).await.expect(200);
    assert_eq!(watch.brief().await, "DELETED y");
    assert_eq!(own.delete(&format!("{}/x", members("third"))).await.code(), 404);
}

#[tokio::test]
async fn roles_in_an_organizations_namespace_count_in_its_view_and_nowhere_else() {
    let (world, root) = platform().await;
    two(&root).await;
    let bob = somebody(&world, "bob", Some("organization-acme"), everything()).await;
    let (acme, other) = (in_organization(&bob, "acme"), in_organization(&bob, "other"));
    let list = acme.until(PROJECTS, 200).await;
    assert_eq!(names(&list), ["acme-p"]);
    acme.post(PROJECTS, &project("bobs")).await.expect(201);
    acme.patch(
        &format!("{PROJECTS}/bobs"),
        &json!({"metadata": {"labels": {"x": "y"}}}),
    )
    .await
    .expect(200);
    assert_eq!(other.get(PROJECTS).await.code(), 403);
    assert_eq!(other.post(PROJECTS, &project("evil")).await.code(), 403);
    assert_eq!(bob.get(PROJECTS).await.code(), 403);
    assert_eq!(bob.get(&format!("{PROJECTS}/bobs")).await.code(), 403);
    // Nobody learns which organizations there are.
    let codes = [
        in_organization(&bob, "none").get(PROJECTS).await.code(),
        other.get(PROJECTS).await.code(),
    ];
    assert_eq!(codes, [403, 403]);
}

#[tokio::test]
async fn what_a_view_is_of_goes_with_every_user_and_claims_of_it_do_not() {
    let (_world, root) = platform().await;
    two(&root).await;
    let extras = |answer: &Value| {
        let extra = &answer["status"]["userInfo"]["extra"];
        ["parent-api-group", "parent-type", "parent-name"]
            .map(|key| text(extra, &format!("/iam.miloapis.com~1{key}/0")).to_owned())
    };
    let acme = in_organization(&root, "acme").post(WHO, &json!({})).await.expect(201);
    assert_eq!(extras(&acme), ["resourcemanager.miloapis.com", "Organization", "acme"]);
    let ann = as_seen_by(&root, "ann").post(WHO, &json!({})).await.expect(201);
    assert_eq!(extras(&ann), ["iam.miloapis.com", "User", "ann"]);
    let claims = [
        ("impersonate-user", "eve"),
        ("impersonate-extra-iam.miloapis.com%2Fparent-type", "Organization"),
        ("impersonate-extra-iam.miloapis.com%2Fparent-name", "other"),
        ("content-type", "application/json"),
    ];
    let claimed = root.call(Method::POST, WHO, &claims, "{}").await.expect(201);
    assert_eq!(extras(&claimed), ["", "", ""]);
    let view = in_organization(&root, "acme");
    let claimed = view.call(Method::POST, WHO, &claims, "{}").await.expect(201);
    assert_eq!(extras(&claimed)[2], "acme");
    let claims = [
        ("x-remote-extra-iam.miloapis.com%2fparent-name", "other"),
        ("content-type", "application/json"),
    ];
    let made = view
        .call(Method::POST, PROJECTS, &claims, project("claimed").to_string())
        .await;
    assert_eq!(text(&made.json(), "/spec/ownerRef/name"), "acme", "{}", made.json());
}

/// A definition of somebody else's, whose objects are in no namespace.
fn widgets(annotations: Value) -> Value {
    json!({"metadata": {"name": "widgets.example.com", "annotations": annotations}, "spec": {"group": "example.com",
        "scope": "Cluster", "names": {"plural": "widgets", "kind": "Widget"}, "versions": [{"name": "v1", "served": true,
        "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}})
}

fn widget(name: &str) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}})
}

async fn kinds(api: &Api) -> Vec<String> {
    let served = api.get(GROUP).await;
    let all = served.json()["resources"].as_array().cloned().unwrap_or_default();
    let mut kinds: Vec<String> = all
        .iter()
        .map(|resource| text(resource, "/name").to_owned())
        .filter(|name| !name.contains('/'))
        .collect();
    kinds.sort_unstable();
    kinds
}

#[tokio::test]
async fn discovery_and_openapi_show_each_context_what_belongs_there() {
    let (_world, root) = platform().await;
    two(&root).await;
    let (acme, ann) = (in_organization(&root, "acme"), as_seen_by(&root, "ann"));
    assert_eq!(kinds(&acme).await, ["organizationmemberships", "projects"]);
    assert_eq!(kinds(&ann).await, ["organizationmemberships"]);
    let groups = |list: &Value| {
        let groups = list["groups"].as_array().cloned().unwrap_or_default();
        groups
            .iter()
            .map(|group| text(group, "/name").to_owned())
            .collect::<Vec<_>>()
    };
    let of_acme = groups(&acme.get("/apis").await.expect(200));
    assert!(of_acme.contains(&"resourcemanager.miloapis.com".to_owned()));
    for hidden in ["mica.dev", "apiextensions.k8s.io", "infrastructure.miloapis.com"] {
        assert!(!of_acme.contains(&hidden.to_owned()), "{hidden}");
    }
    let index = acme.get("/openapi/v3").await.expect(200);
    let paths = index["paths"].as_object().unwrap();
    let ours = &paths["apis/resourcemanager.miloapis.com/v1alpha1"];
    assert!(
        text(ours, "/serverRelativeURL").starts_with("/apis/resourcemanager.miloapis.com/v1alpha1/organizations/acme/")
    );
    assert!(!paths.contains_key("apis/mica.dev/v1alpha1"));
    let document = acme
        .get("/openapi/v3/apis/resourcemanager.miloapis.com/v1alpha1")
        .await
        .expect(200);
    assert!(document.to_string().contains("\"Project\"") && !document.to_string().contains("\"ProjectSuspension\""));
    // However one asks: all at once, by the older document, and about the core group.
    let all_at_once = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    for (path, accept, theirs, nobodys) in [
        ("/apis", all_at_once, "\"projects\"", "\"projectsuspensions\""),
        (
            "/openapi/v2",
            "application/json",
            "v1alpha1.Project\"",
            "v1alpha1.ProjectSuspension\"",
        ),
        ("/api", all_at_once, "\"secrets\"", "\"nodes\""),
        ("/api/v1", "application/json", "\"secrets\"", "\"persistentvolumes\""),
    ] {
        for (api, shown) in [(&acme, true), (&ann, false)] {
            let said = api.call(Method::GET, path, &[("accept", accept)], "").await;
            let said = said.json().to_string();
            assert_eq!(said.contains(theirs), shown, "{path}: {said}");
            assert!(!said.contains(nobodys), "{path}: {said}");
        }
    }
    // A definition of somebody else's, annotated later.
    root.post(DEFINITIONS, &widgets(json!({}))).await.expect(201);
    let widgets = WIDGETS;
    root.until(widgets, 200).await;
    assert_eq!(acme.get(widgets).await.code(), 404);
    let contexts = json!({"metadata": {"annotations": {"discovery.miloapis.com/parent-contexts": "Organization"}}});
    root.patch(&format!("{DEFINITIONS}/widgets.example.com"), &contexts)
        .await
        .expect(200);
    acme.until(widgets, 200).await;
    assert_eq!(ann.get(widgets).await.code(), 404);
    acme.post(widgets, &widget("w")).await.expect(201);
    assert_eq!(names(&acme.get(widgets).await.expect(200)), ["w"]);
    let other = in_organization(&root, "other");
    assert!(names(&other.get(widgets).await.expect(200)).is_empty());
    assert_eq!(other.delete(&format!("{widgets}/w")).await.code(), 404);
}

#[tokio::test]
async fn what_is_given_to_another_organization_leaves_one_watch_and_comes_into_the_other() {
    let (_world, root) = platform().await;
    let (acme, other) = two(&root).await;
    let contexts = json!({"discovery.miloapis.com/parent-contexts": "Organization"});
    root.post(DEFINITIONS, &widgets(contexts)).await.expect(201);
    acme.until(WIDGETS, 200).await;
    acme.post(WIDGETS, &widget("w")).await.expect(201);
    let paths = [
        format!("{WIDGETS}?watch=1"),
        format!("{WIDGETS}?watch=1&fieldSelector=metadata.name%3Dw"),
        "/apis/example.com/v1/watch/widgets/w".to_owned(),
    ];
    let (mut theirs, mut others) = (Vec::new(), Vec::new());
    for path in &paths {
        let mut watch = acme.watch(path).await;
        assert_eq!(watch.brief().await, "ADDED w", "{path}");
        theirs.push(watch);
        others.push(other.watch(path).await);
    }
    let one = format!("{WIDGETS}/w");
    let label = "resourcemanager.miloapis.com/organization-name";
    let given = json!({"metadata": {"labels": {label: "other"}}});
    // Nobody gives from inside, nor takes.
    assert_eq!(acme.patch(&one, &given).await.code(), 403);
    assert_eq!(other.patch(&one, &given).await.code(), 404);
    root.patch(&one, &given).await.expect(200);
    for (path, (mut gives, mut takes)) in paths.iter().zip(theirs.into_iter().zip(others)) {
        assert_eq!(gives.brief().await, "DELETED w", "{path}");
        assert_eq!(takes.brief().await, "ADDED w", "{path}");
    }
    assert_eq!(acme.get(&one).await.code(), 404);
    assert_eq!(names(&other.get(WIDGETS).await.expect(200)), ["w"]);
}

#[tokio::test]
async fn a_long_list_of_an_organization_is_paged_and_whole() {
    let (_world, root) = platform().await;
    let (acme, other) = two(&root).await;
    for i in 0..520 {
        acme.post(PROJECTS, &project(&format!("p{i:03}"))).await.expect(201);
        if i % 130 == 7 {
            other
                .post(PROJECTS, &project(&format!("p{i:03}-other")))
                .await
                .expect(201);
        }
    }
    let all = acme.get(PROJECTS).await.expect(200);
    assert_eq!(names(&all).len(), 521);
    assert!(names(&all).is_sorted());
    // Few among many of another's.
    let few = ["other-p", "p007-other", "p137-other", "p267-other", "p397-other"];
    assert_eq!(names(&other.get(PROJECTS).await.expect(200)), few);
    let first = acme.get(&format!("{PROJECTS}?limit=200")).await.expect(200);
    assert_eq!(first["metadata"]["remainingItemCount"], 321);
    let (mut seen, mut token) = (Vec::new(), String::new());
    loop {
        let page = acme
            .get(&format!("{PROJECTS}?limit=200&continue={token}"))
            .await
            .expect(200);
        seen.extend(names(&page).into_iter().map(str::to_owned));
        token = text(&page, "/metadata/continue").to_owned();
        if token.is_empty() {
            break;
        }
    }
    assert_eq!(seen, names(&all));
    // Kept true when one goes.
    let finalizers = json!({"metadata": {"finalizers": null}});
    acme.patch(&format!("{PROJECTS}/p000"), &finalizers).await.expect(200);
    acme.delete(&format!("{PROJECTS}/p000")).await.expect(200);
    assert_eq!(names(&acme.get(PROJECTS).await.expect(200)).len(), 520);
}

#[tokio::test]
async fn the_kinds_of_views_are_guarded_like_those_of_root() {
    let (world, root) = platform().await;
    two(&root).await;
    let anonymous = world.as_user(None).await;
    for (api, path) in [
        (in_organization(&anonymous, "acme"), PROJECTS),
        (as_seen_by(&anonymous, "system:anonymous"), MEMBERSHIPS),
        (as_seen_by(&anonymous, "ann"), MEMBERSHIPS),
    ] {
        let code = api.get(path).await.code();
        assert!([400, 401, 403].contains(&code), "{path}: {code}");
    }
}

//! Custom resources over all planes: each object by its own plane's definition, and no plane in another's way.

use http::Method;
use serde_json::{Value, json};

use super::super::conversion::review;
use super::super::hook::{Answer, Hook};
use super::super::world::{Api, PLANES, World, names, revision_of, text};
use super::{ALL, places};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.x.io";
const WIDGETS: &str = "/apis/x.io/v1/namespaces/default/widgets";
const EVERYWHERE: &str = "/apis/x.io/v1/widgets";

/// A definition of widgets whose versions are served or not; the first is stored. A size is of this type and default.
fn widgets(versions: &[(&str, bool)], r#type: &str, default: &Value) -> Value {
    let versions: Vec<Value> = versions
        .iter()
        .enumerate()
        .map(|(at, (name, served))| {
            json!({"name": name, "served": served, "storage": at == 0,
                "additionalPrinterColumns": [{"name": "Size", "type": r#type, "jsonPath": ".spec.size"}],
                "selectableFields": [{"jsonPath": ".spec.colour"}],
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": {
                    "colour": {"type": "string"}, "size": {"type": r#type, "default": default}}}}}}})
        })
        .collect();
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.x.io"},
        "spec": {"group": "x.io", "scope": "Namespaced", "versions": versions,
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"}}})
}

fn plain() -> Value {
    widgets(&[("v1", true)], "integer", &json!(3))
}

fn widget(name: &str) -> Value {
    json!({"apiVersion": "x.io/v1", "kind": "Widget", "spec": {"colour": name},
        "metadata": {"name": name, "labels": {"l": name}}})
}

async fn define(api: &Api, definition: &Value) {
    api.post(DEFINITIONS, definition).await.expect(201);
    api.until(WIDGETS, 200).await;
}

/// A plane that defines widgets and has some.
async fn plane_with(world: &World, name: &str, definition: &Value, widgets: &[&str]) -> Api {
    let api = world.plane(name).await;
    define(&api, definition).await;
    for name in widgets {
        api.post(WIDGETS, &widget(name)).await.expect(201);
    }
    api
}

async fn project(root: &Api, name: &str) -> Api {
    let plane = json!({"apiVersion": "mica.dev/v1alpha1", "kind": "Plane", "metadata": {"name": name},
        "spec": {"addresses": [{"type": "Project", "value": name}]}});
    root.post(PLANES, &plane).await.expect(201);
    root.at_plane(name)
}

fn for_projects(mut definition: Value) -> Value {
    definition["metadata"]["annotations"] = json!({"discovery.miloapis.com/parent-contexts": "Project"});
    definition
}

async fn accepted(api: &Api, path: &str, accept: &str) -> Value {
    api.call(Method::GET, path, &[("accept", accept)], "").await.expect(200)
}

/// `TYPE plane/name` of the next event.
async fn next(watch: &mut super::super::world::Watcher) -> String {
    let event = watch.next().await.expect("the watch goes on");
    let plane = text(&event, "/object/metadata/annotations/mica.dev~1plane");
    format!(
        "{} {plane}/{}",
        text(&event, "/type"),
        text(&event, "/object/metadata/name")
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_shows_each_object_by_the_definition_of_its_own_plane() {
    let world = World::start().await;
    let all = world.root().await.at(ALL);
    assert_eq!(all.get(EVERYWHERE).await.code(), 404);
    // What root has is root's alone.
    define(&all.at(""), &plain()).await;
    all.at("").post(WIDGETS, &widget("in-root")).await.expect(201);
    assert_eq!(all.get(EVERYWHERE).await.code(), 404);
    let empty = plane_with(&world, "empty", &plain(), &[]).await;
    let list = all.get(EVERYWHERE).await.expect(200);
    assert_eq!((list["kind"].as_str(), names(&list).len()), (Some("WidgetList"), 0));
    empty.delete(DEFINITION).await.expect(200);
    empty.until(DEFINITION, 404).await;
    assert_eq!(all.get(EVERYWHERE).await.code(), 404);

    plane_with(&world, "a", &plain(), &["one", "two"]).await;
    let strings = widgets(&[("v1", true), ("v2", true)], "string", &json!("big"));
    plane_with(&world, "b", &strings, &["one"]).await;
    world.plane("c").await;
    let list = all.get(EVERYWHERE).await.expect(200);
    assert_eq!(places(&list), ["a/default/one", "a/default/two", "b/default/one"]);
    for item in list["items"].as_array().unwrap() {
        let plane = text(item, "/metadata/annotations/mica.dev~1plane");
        let size = if plane == "a" { json!(3) } else { json!("big") };
        assert_eq!((&item["spec"]["size"], &item["kind"]), (&size, &json!("Widget")));
        let id = world.server.directory.by_name(plane).await.unwrap().id;
        assert_eq!(text(item, "/metadata/annotations/mica.dev~1plane-id"), id.as_str());
    }
    // Only some serve it.
    assert_eq!(
        places(&all.get("/apis/x.io/v2/widgets").await.expect(200)),
        ["b/default/one"]
    );
    let item = &all.get("/apis/x.io/v2/widgets").await.expect(200)["items"][0];
    assert_eq!(item["apiVersion"], "x.io/v2");
    for nobody in [
        "/apis/x.io/v3/widgets",
        "/apis/x.io/v1/gadgets",
        "/apis/y.io/v1/widgets",
    ] {
        assert_eq!(all.get(nobody).await.code(), 404, "{nobody}");
    }
    assert_eq!(all.get(&format!("{WIDGETS}/one")).await.code(), 405);
    assert_eq!(all.post(WIDGETS, &widget("x")).await.code(), 405);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_are_selected_paged_and_formed_as_of_built_in_kinds() {
    let world = World::start().await;
    let all = world.root().await.at(ALL);
    plane_with(&world, "a", &plain(), &["one", "two"]).await;
    plane_with(&world, "b", &plain(), &["one"]).await;
    let chosen = |query: &str| {
        let (all, path) = (all.clone(), format!("{EVERYWHERE}?{query}"));
        async move { places(&all.get(&path).await.expect(200)) }
    };
    assert_eq!(chosen("labelSelector=l%3Dtwo").await, ["a/default/two"]);
    assert_eq!(chosen("fieldSelector=metadata.name%3Done").await.len(), 2);
    assert_eq!(chosen("fieldSelector=metadata.namespace%3Dkube-system").await.len(), 0);
    assert_eq!(
        all.get("/apis/x.io/v1/namespaces/none/widgets").await.expect(200)["items"],
        json!([])
    );
    assert_eq!(places(&all.get(WIDGETS).await.expect(200)).len(), 3);
    // Which fields objects have is not for one plane to say of all.
    let refused = all.get(&format!("{EVERYWHERE}?fieldSelector=spec.colour%3Done")).await;
    assert_eq!(refused.message(), "field label not supported: spec.colour");
    for limit in 1..=3 {
        let (mut found, mut token, mut revision) = (Vec::new(), String::new(), None);
        loop {
            let page = all
                .get(&format!("{EVERYWHERE}?limit={limit}&continue={token}"))
                .await
                .expect(200);
            assert!(names(&page).len() <= limit);
            assert_eq!(*revision.get_or_insert(revision_of(&page)), revision_of(&page));
            found.extend(places(&page));
            token = text(&page, "/metadata/continue").to_owned();
            if token.is_empty() {
                break;
            }
        }
        found.sort();
        assert_eq!(found, ["a/default/one", "a/default/two", "b/default/one"]);
    }
    let now = world.revision().await;
    all.at_plane("b").post(WIDGETS, &widget("late")).await.expect(201);
    assert_eq!(
        chosen(&format!("resourceVersion={now}&resourceVersionMatch=Exact"))
            .await
            .len(),
        3
    );
    let table = accepted(&all, EVERYWHERE, "application/json;as=Table;v=v1;g=meta.k8s.io").await;
    let columns: Vec<&str> = table["columnDefinitions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| text(c, "/name"))
        .collect();
    assert_eq!(columns, ["Name", "Size"]);
    assert_eq!(table["rows"].as_array().unwrap().len(), 4);
    assert!(table["rows"][0]["object"]["metadata"]["annotations"]["mica.dev/plane"].is_string());
    let partial = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
    let partial = accepted(&all, EVERYWHERE, partial).await;
    assert_eq!(places(&partial).len(), 4);
    assert!(partial["items"][0].get("spec").is_none());
    let yaml = all
        .call(Method::GET, EVERYWHERE, &[("accept", "application/yaml")], "")
        .await;
    assert!(String::from_utf8_lossy(&yaml.body).contains("mica.dev/plane: b"));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_follows_planes_that_come_to_serve_the_resource_and_no_plane_can_end_it() {
    let world = World::start().await;
    let all = world.root().await.at(ALL);
    let a = plane_with(&world, "a", &plain(), &["one"]).await;
    let query = "watch=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    let mut watch = all.watch(&format!("{EVERYWHERE}?{query}")).await;
    assert_eq!(next(&mut watch).await, "ADDED a/one");
    let end = watch.next().await.unwrap();
    assert_eq!(
        text(&end, "/object/metadata/annotations/k8s.io~1initial-events-end"),
        "true"
    );
    assert_eq!(text(&end, "/object/kind"), "Widget");
    let from = revision_of(&end["object"]);
    let mut events = Vec::new();
    let mut skim = async |expected: &str, events: &mut Vec<Value>| loop {
        let event = watch.next().await.expect("the watch goes on");
        if event["type"] == "BOOKMARK" {
            continue;
        }
        let plane = text(&event, "/object/metadata/annotations/mica.dev~1plane");
        let brief = format!(
            "{} {plane}/{}",
            text(&event, "/type"),
            text(&event, "/object/metadata/name")
        );
        assert_eq!(brief, expected);
        events.push(event.clone());
        return event;
    };
    let b = plane_with(
        &world,
        "b",
        &widgets(&[("v1", true)], "string", &json!("big")),
        &["late"],
    )
    .await;
    assert_eq!(skim("ADDED b/late", &mut events).await["object"]["spec"]["size"], "big");
    // A plane that defines it anew is shown anew, and those of others go on.
    let grown = json!({"spec": plain()["spec"]});
    a.patch(DEFINITION, &grown).await.expect(200);
    let wide = json!({"spec": widgets(&[("v1", true), ("v2", true)], "integer", &json!(8))["spec"]});
    a.patch(DEFINITION, &wide).await.expect(200);
    a.until("/apis/x.io/v2/namespaces/default/widgets", 200).await;
    a.post(WIDGETS, &widget("two")).await.expect(201);
    assert_eq!(skim("ADDED a/two", &mut events).await["object"]["spec"]["size"], 8);
    a.patch(&format!("{WIDGETS}/one"), &json!({"spec": {"colour": "red"}}))
        .await
        .expect(200);
    skim("MODIFIED a/one", &mut events).await;
    b.delete(&format!("{WIDGETS}/late")).await.expect(200);
    skim("DELETED b/late", &mut events).await;
    for (at, event) in events.iter().enumerate() {
        let since = revision_of(&event["object"]);
        let mut resumed = all
            .watch(&format!("{EVERYWHERE}?watch=1&resourceVersion={since}"))
            .await;
        for expected in &events[at + 1..] {
            assert_eq!(resumed.next().await.as_ref(), Some(expected));
        }
    }
    // Its objects go with it, whether or not it is still there when they are told of.
    a.delete(DEFINITION).await.expect(200);
    a.until(DEFINITION, 404).await;
    let gone = [
        skim("DELETED a/one", &mut events).await,
        skim("DELETED a/two", &mut events).await,
    ];
    assert!(gone.iter().all(|event| event["object"]["apiVersion"] == "x.io/v1"));
    b.post(WIDGETS, &widget("last")).await.expect(201);
    skim("ADDED b/last", &mut events).await;
    let mut chosen = all
        .watch(&format!(
            "{EVERYWHERE}?watch=1&labelSelector=l%3Dlast&resourceVersion={from}"
        ))
        .await;
    assert_eq!(next(&mut chosen).await, "ADDED b/last");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_plane_stops_to_serve_is_not_shown_and_its_deletion_is_told() {
    let world = World::start().await;
    let all = world.root().await.at(ALL);
    let both = widgets(&[("v1", true), ("v2", true)], "integer", &json!(3));
    let a = plane_with(&world, "a", &both, &["one", "two"]).await;
    plane_with(&world, "b", &both, &["one"]).await;
    let v2 = "/apis/x.io/v2/widgets";
    let listed = all.get(v2).await.expect(200);
    assert_eq!(places(&listed).len(), 3);
    let from = revision_of(&listed);
    let mut watch = all.watch(&format!("{v2}?watch=1&resourceVersion={from}")).await;
    let narrow = json!({"spec": widgets(&[("v1", true), ("v2", false)], "integer", &json!(3))["spec"]});
    a.patch(DEFINITION, &narrow).await.expect(200);
    a.until("/apis/x.io/v2/namespaces/default/widgets", 404).await;
    assert_eq!(places(&all.get(v2).await.expect(200)), ["b/default/one"]);
    a.patch(&format!("{WIDGETS}/one"), &json!({"spec": {"colour": "red"}}))
        .await
        .expect(200);
    a.delete(&format!("{WIDGETS}/one")).await.expect(200);
    assert_eq!(next(&mut watch).await, "DELETED a/one");
    // Dropped with its plane: also told.
    all.at("").delete(&format!("{PLANES}/a")).await.expect(200);
    assert_eq!(next(&mut watch).await, "DELETED a/two");
    all.at("").until(&format!("{PLANES}/a"), 404).await;
    assert_eq!(places(&all.get(v2).await.expect(200)), ["b/default/one"]);
    // A fork serves what it was made from.
    all.at("")
        .post(&format!("{PLANES}/b/fork"), &json!({"name": "f"}))
        .await
        .expect(201);
    all.at("").delete(&format!("{PLANES}/b")).await.expect(200);
    all.at("").until(&format!("{PLANES}/b"), 404).await;
    assert_eq!(places(&all.get(v2).await.expect(200)), ["f/default/one"]);
    world.stop().await;
}

fn with_webhook(mut definition: Value, hook: &Hook) -> Value {
    definition["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {
        "clientConfig": hook.client_config("/convert"), "conversionReviewVersions": ["v1"]}});
    definition
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_webhook_of_a_tenant_is_asked_or_waited_for() {
    let world = World::start().await;
    let all = world.root().await.at(ALL);
    let hook = Hook::start(|_| Answer::Hang(Vec::new())).await;
    let both = widgets(&[("v1", true), ("v2", true)], "integer", &json!(3));
    plane_with(&world, "slow", &with_webhook(both.clone(), &hook), &["one"]).await;
    plane_with(&world, "quick", &both, &["one"]).await;
    let (v1, v2) = (EVERYWHERE, "/apis/x.io/v2/widgets");
    assert_eq!(
        places(&all.get(v1).await.expect(200)).len(),
        2,
        "nothing has to be converted"
    );
    let listed = all.get(v2).await.expect(200);
    assert_eq!(places(&listed), ["quick/default/one"]);
    let mut watch = all
        .watch(&format!("{v2}?watch=1&resourceVersion={}", revision_of(&listed)))
        .await;
    all.at_plane("slow").post(WIDGETS, &widget("two")).await.expect(201);
    all.at_plane("quick").post(WIDGETS, &widget("two")).await.expect(201);
    assert_eq!(next(&mut watch).await, "ADDED quick/two");
    assert_eq!(hook.seen().len(), 0);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_platforms_definition_is_in_discovery_and_its_webhook_converts_for_all() {
    let world = World::start().await;
    let all = world.root().await.at(ALL);
    let well = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
    let is_well = well.clone();
    let hook = Hook::start(move |seen| {
        let mut review = review(seen);
        if !is_well.load(std::sync::atomic::Ordering::SeqCst) {
            review["response"]["result"] = json!({"status": "Failed", "message": "I will not"});
        }
        Answer::Json(review)
    })
    .await;
    let (alpha, beta) = (project(&all.at(""), "alpha").await, project(&all.at(""), "beta").await);
    let both = widgets(&[("v1", true), ("v2", true)], "integer", &json!(3));
    define(&all.at(""), &for_projects(with_webhook(both, &hook))).await;
    for api in [&alpha, &beta] {
        api.until(WIDGETS, 200).await;
        api.post(WIDGETS, &widget("one")).await.expect(201);
    }
    all.at("").post(WIDGETS, &widget("in-root")).await.expect(201);
    // A tenant's kinds are not for others to stumble upon.
    let mut rogue = plain();
    rogue["metadata"]["name"] = "configmaps.rogue.io".into();
    rogue["spec"]["group"] = "rogue.io".into();
    rogue["spec"]["names"] =
        json!({"plural": "configmaps", "kind": "ConfigMap", "listKind": "ConfigMapList", "singular": "configmap"});
    let tenant = world.plane("tenant").await;
    tenant.post(DEFINITIONS, &rogue).await.expect(201);
    tenant.until("/apis/rogue.io/v1", 200).await;
    all.until("/apis/x.io/v1", 200).await;
    let groups = all.get("/apis").await.expect(200).to_string();
    assert!(groups.contains("x.io") && !groups.contains("rogue.io"), "{groups}");
    assert_eq!(all.get("/apis/rogue.io/v1/configmaps").await.code(), 200);
    let aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    assert!(
        accepted(&all, "/apis", aggregated)
            .await
            .to_string()
            .contains("widgets")
    );
    assert!(
        all.get("/openapi/v3")
            .await
            .expect(200)
            .to_string()
            .contains("apis/x.io/v1")
    );
    assert!(
        all.get("/openapi/v3/apis/x.io/v1")
            .await
            .expect(200)
            .to_string()
            .contains("Widget")
    );

    let v2 = "/apis/x.io/v2/widgets";
    let listed = all.get(v2).await.expect(200);
    assert_eq!(places(&listed), ["alpha/default/one", "beta/default/one"]);
    assert!(
        listed["items"]
            .as_array()
            .unwrap()
            .iter()
            .all(|item| item["apiVersion"] == "x.io/v2")
    );
    assert_eq!(
        places(
            &all.get(&format!("{v2}?fieldSelector=spec.colour%3Done"))
                .await
                .expect(200)
        )
        .len(),
        2
    );
    let mut watch = all
        .watch(&format!("{v2}?watch=1&resourceVersion={}", revision_of(&listed)))
        .await;
    alpha.post(WIDGETS, &widget("two")).await.expect(201);
    assert_eq!(next(&mut watch).await, "ADDED alpha/two");
    // A plane's own definition hides it, and is shown beside it.
    beta.post(DEFINITIONS, &widgets(&[("v2", true)], "string", &json!("big")))
        .await
        .expect(201);
    let mut own = widget("own");
    own["apiVersion"] = "x.io/v2".into();
    let path = "/apis/x.io/v2/namespaces/default/widgets";
    while beta.post(path, &own).await.code() != 201 {
        tokio::task::yield_now().await;
    }
    assert_eq!(next(&mut watch).await, "ADDED beta/own");
    // What the platform cannot convert it fails at: a list without them would look as if they were gone.
    well.store(false, std::sync::atomic::Ordering::SeqCst);
    let failed = all.get(v2).await;
    assert_eq!(failed.code(), 429, "{}", failed.json());
    assert!(failed.message().contains("I will not"));
    well.store(true, std::sync::atomic::Ordering::SeqCst);
    // The platform ends watches when it changes what is watched.
    let changed = json!({"spec": {"names": {"shortNames": ["wd"]}}});
    all.at("").patch(DEFINITION, &changed).await.expect(200);
    assert_eq!(watch.next().await, None);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_server_shows_what_was_just_defined() {
    let world = World::start().await;
    let other = World::on(world.store.clone()).await;
    let (all, a) = (
        other.root().await.at(ALL),
        plane_with(&world, "a", &plain(), &["one"]).await,
    );
    assert_eq!(places(&all.get(EVERYWHERE).await.expect(200)), ["a/default/one"]);
    let from = world.revision().await;
    let mut watch = all.watch(&format!("{EVERYWHERE}?watch=1&resourceVersion={from}")).await;
    for round in 0..10 {
        let name = format!("p{round}");
        plane_with(&world, &name, &plain(), &["one"]).await;
        assert_eq!(next(&mut watch).await, format!("ADDED {name}/one"));
    }
    a.delete(DEFINITION).await.expect(200);
    assert_eq!(next(&mut watch).await, "DELETED a/one");
    world.stop().await;
    other.stop().await;
}

//! Custom resources: planes have their own, definitions settle, change and go, and what they define goes with them.

use http::Method;
use serde_json::{Value, json};

use super::world::{World, names, text};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGETS: &str = "/apis/x.io/v1/namespaces/default/widgets";

/// A definition with one version, whose spec has these properties.
fn definition(plural: &str, kind: &str, properties: &Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.x.io")},
        "spec": {"group": "x.io", "scope": "Namespaced", "names": {"plural": plural, "kind": kind},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": properties},
                    "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}}]},
    })
}

fn widgets() -> Value {
    definition("widgets", "Widget", &json!({"size": {"type": "integer", "default": 3}}))
}

fn widget(name: &str) -> Value {
    json!({"apiVersion": "x.io/v1", "kind": "Widget", "metadata": {"name": name}, "spec": {}})
}

fn condition<'a>(definition: &'a Value, r#type: &str) -> &'a str {
    let conditions = definition["status"]["conditions"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    conditions
        .iter()
        .find(|condition| condition["type"] == r#type)
        .map_or("", |condition| text(condition, "/status"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_definition_serves_the_plane_that_has_it_and_no_other() {
    let world = World::start().await;
    let (one, two) = (world.plane("one").await, world.plane("two").await);
    one.post(DEFINITIONS, &widgets()).await.expect(201);
    one.until(WIDGETS, 200).await;
    let created = one.post(WIDGETS, &widget("a")).await.expect(201);
    assert_eq!(created["spec"]["size"], 3);
    assert_eq!(created["metadata"]["generation"], 1);
    assert_eq!(two.get(WIDGETS).await.code(), 404);
    assert_eq!(world.root().await.get(WIDGETS).await.code(), 404);
    assert_eq!(two.get("/apis/x.io").await.code(), 404);
    let groups = one.get("/apis").await.expect(200);
    assert!(groups.to_string().contains("x.io"));
    let shown = one.get("/apis/x.io/v1").await.expect(200);
    assert_eq!(shown["resources"][0]["name"], "widgets");
    assert_eq!(shown["resources"][1]["name"], "widgets/status");
    // Another schema under the same name is another kind.
    let other = definition(
        "widgets",
        "Widget",
        &json!({"size": {"type": "string", "default": "big"}}),
    );
    two.post(DEFINITIONS, &other).await.expect(201);
    two.until(WIDGETS, 200).await;
    let created = two.post(WIDGETS, &widget("a")).await.expect(201);
    assert_eq!(created["spec"]["size"], "big");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn planes_with_the_same_definitions_share_what_is_compiled() {
    let world = World::start().await;
    let mut sets = Vec::new();
    for name in ["one", "two", "three"] {
        let api = world.plane(name).await;
        api.post(DEFINITIONS, &widgets()).await.expect(201);
        api.until(WIDGETS, 200).await;
        if name == "three" {
            let more = definition("gadgets", "Gadget", &json!({}));
            api.post(DEFINITIONS, &more).await.expect(201);
            api.until("/apis/x.io/v1/gadgets", 200).await;
        }
        let plane = world.server.directory.by_name(name).await.unwrap();
        // Until the definition is established its set is another.
        api.until("/apis/x.io/v1", 200).await;
        sets.push(world.server.definitions.of(&plane).await.unwrap().set().clone());
    }
    assert!(std::sync::Arc::ptr_eq(&sets[0], &sets[1]));
    assert!(!std::sync::Arc::ptr_eq(&sets[0], &sets[2]));
    let widgets = |set: &mica_server::custom::Set| set.definitions().last().unwrap().versions.clone();
    assert!(std::sync::Arc::ptr_eq(&widgets(&sets[0]), &widgets(&sets[2])));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_definition_that_goes_waits_for_its_objects_and_starts_empty_when_it_comes_back() {
    let world = World::start().await;
    let api = world.plane("p").await;
    api.post(DEFINITIONS, &widgets()).await.expect(201);
    api.until(WIDGETS, 200).await;
    api.post(WIDGETS, &widget("free")).await.expect(201);
    let mut held = widget("held");
    held["metadata"]["finalizers"] = json!(["x.io/hold"]);
    api.post(WIDGETS, &held).await.expect(201);
    let path = format!("{DEFINITIONS}/widgets.x.io");
    let leaving = api.delete(&path).await.expect(200);
    assert_eq!(condition(&leaving, "Terminating"), "True");
    api.until(&format!("{WIDGETS}/free"), 404).await;
    let refused = api.post(WIDGETS, &widget("late")).await;
    assert_eq!(refused.code(), 403, "{}", refused.message());
    assert!(
        refused
            .message()
            .ends_with("create not allowed while custom resource definition is terminating")
    );
    assert_eq!(condition(&api.get(&path).await.expect(200), "Terminating"), "True");
    let free = json!({"metadata": {"finalizers": null}});
    api.patch(&format!("{WIDGETS}/held"), &free).await.expect(200);
    api.until(&path, 404).await;
    api.until(WIDGETS, 404).await;
    api.post(DEFINITIONS, &widgets()).await.expect(201);
    let list = api.until(WIDGETS, 200).await;
    assert!(names(&list).is_empty());
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_is_taken_is_refused_and_accepted_when_its_rival_goes() {
    let world = World::start().await;
    let api = world.root().await;
    api.post(DEFINITIONS, &widgets()).await.expect(201);
    api.until(WIDGETS, 200).await;
    api.post(DEFINITIONS, &definition("gadgets", "Widget", &json!({})))
        .await
        .expect(201);
    let path = format!("{DEFINITIONS}/gadgets.x.io");
    while condition(&api.get(&path).await.expect(200), "NamesAccepted") != "False" {
        tokio::task::yield_now().await;
    }
    assert_eq!(api.get("/apis/x.io/v1/gadgets").await.code(), 404);
    api.delete(&format!("{DEFINITIONS}/widgets.x.io")).await.expect(200);
    api.until("/apis/x.io/v1/gadgets", 200).await;
    let accepted = api.get(&path).await.expect(200);
    assert_eq!(condition(&accepted, "NamesAccepted"), "True");
    assert_eq!(accepted["status"]["acceptedNames"]["kind"], "Widget");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_number_that_is_no_int64_is_the_same_when_it_is_sent_again() {
    let world = World::start().await;
    let api = world.root().await;
    let free = json!({"any": {"x-kubernetes-preserve-unknown-fields": true}});
    api.post(DEFINITIONS, &definition("widgets", "Widget", &free))
        .await
        .expect(201);
    api.until(WIDGETS, 200).await;
    api.post(WIDGETS, &widget("a")).await.expect(201);
    let (path, patch) = (
        format!("{WIDGETS}/a"),
        json!({"spec": {"any": 12_345_678_901_234_567_890_u64}}),
    );
    let once = api.patch(&path, &patch).await.expect(200);
    let again = api.patch(&path, &patch).await.expect(200);
    assert_eq!(once["metadata"], again["metadata"]);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_that_cannot_be_read_are_refused_in_upstreams_words() {
    let world = World::start().await;
    let api = world.root().await;
    api.post(DEFINITIONS, &widgets()).await.expect(201);
    api.until(WIDGETS, 200).await;
    let unread = "the object provided is unrecognized (must be of type Widget): ";
    let first = format!("{unread}couldn't get version/kind; json parse error: ");
    let object = r#"{"apiVersion":"x.io/v1","kind":"Widget","metadata":{"name":"a"},"spec":{"size":1e400}}"#;
    for (query, body, message) in [
        ("", "{", format!("{first}unexpected end of JSON input ({{)")),
        ("", "[]", format!(r#"{first}json: cannot unmarshal array into Go value of type struct {{ APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }} (5b5d)"#)),
        ("", "{}", format!("{unread}Object 'Kind' is missing in '{{}}' ({{}})")),
        (
            "?fieldValidation=Ignore",
            "{}",
            r#"Widget in version "v1" cannot be handled as a Widget: Object 'Kind' is missing in '{}'"#.to_owned(),
        ),
        (
            "",
            object,
            r#"Widget in version "v1" cannot be handled as a Widget: json: cannot unmarshal number 1e400 into Go value of type float64"#.to_owned(),
        ),
    ] {
        let refused = api.call(Method::POST, &format!("{WIDGETS}{query}"), &[], body).await.expect(400);
        assert_eq!(text(&refused, "/message"), message, "{body}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_who_want_a_name_one_has_it_at_any_time() {
    const RIVALS: usize = 8;
    let world = World::start().await;
    let api = world.root().await;
    for n in 0..RIVALS {
        let rival = definition(&format!("rivals{n}"), "Rival", &json!({}));
        api.post(DEFINITIONS, &rival).await.expect(201);
    }
    for left in (1..=RIVALS).rev() {
        let winner = loop {
            let list = api.get(DEFINITIONS).await.expect(200);
            let items = list["items"].as_array().expect("a list has items");
            let rivals: Vec<&Value> = items.iter().filter(|item| item["spec"]["group"] == "x.io").collect();
            let that = |status| {
                let those = rivals
                    .iter()
                    .filter(move |rival| condition(rival, "NamesAccepted") == status);
                those.map(|rival| text(rival, "/metadata/name")).collect::<Vec<_>>()
            };
            let (have, have_not) = (that("True"), that("False"));
            assert!(have.len() <= 1, "{have:?} have the same names");
            if have.len() == 1 && have_not.len() == left - 1 && rivals.len() == left {
                break have[0].to_owned();
            }
            tokio::task::yield_now().await;
        };
        api.delete(&format!("{DEFINITIONS}/{winner}")).await.expect(200);
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_ends_when_its_schema_changes_and_not_when_something_else_does() {
    let world = World::start().await;
    let api = world.plane("p").await;
    api.post(DEFINITIONS, &widgets()).await.expect(201);
    api.until(WIDGETS, 200).await;
    api.until("/apis/x.io/v1", 200).await;
    let mut watch = api.watch(&format!("{WIDGETS}?watch=true")).await;
    let path = format!("{DEFINITIONS}/widgets.x.io");
    let label = json!({"metadata": {"labels": {"l": "1"}}});
    api.patch(&path, &label).await.expect(200);
    api.post(WIDGETS, &widget("a")).await.expect(201);
    assert_eq!(watch.brief().await, "ADDED a");
    let mut changed = api.get(&path).await.expect(200);
    changed["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["colour"] =
        json!({"type": "string", "default": "red"});
    api.put(&path, &changed).await.expect(200);
    assert_eq!(watch.next().await, None);
    // What was stored before shows the new default.
    assert_eq!(
        api.get(&format!("{WIDGETS}/a")).await.expect(200)["spec"]["colour"],
        "red"
    );
    let list = api.get(WIDGETS).await.expect(200);
    assert_eq!(list["items"][0]["spec"], json!({"colour": "red", "size": 3}));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_is_checked_by_the_definition_that_is_there_when_it_commits() {
    let world = World::start().await;
    let api = world.plane("p").await;
    api.post(DEFINITIONS, &widgets()).await.expect(201);
    api.until(WIDGETS, 200).await;
    let plane = world.server.directory.by_name("p").await.unwrap();
    let before = world.server.definitions.of(&plane).await.unwrap();
    let (_, old) = before.find("x.io", "v1", "widgets").unwrap();
    let label = json!({"metadata": {"labels": {"l": "1"}}});
    api.patch(&format!("{DEFINITIONS}/widgets.x.io"), &label)
        .await
        .expect(200);
    let txn = mica_store::Txn {
        compares: vec![old.fence()],
        writes: Vec::new(),
    };
    assert!(matches!(
        world.store.commit(txn).await,
        Err(mica_store::CommitError::Conflict { .. })
    ));
    // Through the server that is tried again with what is there now.
    api.post(WIDGETS, &widget("a")).await.expect(201);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_object_says_that_it_is_is_refused_in_upstreams_words() {
    let world = World::start().await;
    let api = world.plane("p").await;
    let mut deprecated = widgets();
    deprecated["spec"]["versions"][0]["subresources"] = json!({});
    deprecated["spec"]["versions"][0]["deprecated"] = json!(true);
    api.post(DEFINITIONS, &deprecated).await.expect(201);
    api.until(WIDGETS, 200).await;
    api.post(WIDGETS, &widget("a")).await.expect(201);
    let path = format!("{WIDGETS}/a");
    let cases = [
        (
            json!(""),
            500,
            "Internal error occurred: Object 'apiVersion' is missing in 'object has no apiVersion field'",
        ),
        (
            json!("g/v1"),
            422,
            r#"Widget.g "a" is invalid: apiVersion: Invalid value: "g/v1": must be x.io/v1"#,
        ),
        (
            json!("v1"),
            422,
            r#"Widget "a" is invalid: apiVersion: Invalid value: "v1": must be x.io/v1"#,
        ),
        (json!("a/b/c"), 422, "unexpected GroupVersion string: a/b/c"),
        (
            json!(1),
            422,
            "json: cannot unmarshal number into Go struct field .apiVersion of type string",
        ),
    ];
    for (version, code, wanted) in cases {
        let refused = api.patch(&path, &json!({"apiVersion": version})).await.expect(code);
        assert!(text(&refused, "/message").ends_with(wanted), "{version}: {refused}");
    }
    let cases = [
        (
            json!(null),
            r#"Widget in version "" cannot be handled as a Widget: .apiVersion accessor error: <nil> is of the type <nil>, expected string"#,
        ),
        (
            json!("a/b/c"),
            "the object provided is unrecognized (must be of type Widget): unexpected GroupVersion string: a/b/c",
        ),
        (
            json!("/"),
            "the API version in the data () does not match the expected API version (x.io/v1)",
        ),
    ];
    for (version, wanted) in cases {
        let mut body = widget("a");
        body["apiVersion"] = version;
        let refused = api.put(&path, &body).await.expect(400);
        assert!(text(&refused, "/message").starts_with(wanted), "{refused}");
    }
    // Also of a subresource that is not there.
    let missing = api.get(&format!("{path}/status")).await;
    assert_eq!(missing.header("warning"), r#"299 - "x.io/v1 Widget is deprecated""#);
    missing.expect(404);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_of_another_version_is_read_by_that_version() {
    let world = World::start().await;
    let api = world.plane("p").await;
    let mut both = widgets();
    let mut other = both["spec"]["versions"][0].clone();
    other["name"] = "v2".into();
    other["served"] = false.into();
    other["storage"] = false.into();
    other["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"] = json!({"wide": {"type": "integer"}});
    both["spec"]["versions"].as_array_mut().expect("a list").push(other);
    api.post(DEFINITIONS, &both).await.expect(201);
    api.until(WIDGETS, 200).await;
    for (version, warning) in [
        ("x.io/v2", r#"299 - "unknown field \"spec.size\"""#),
        ("x.io/v3", r#"299 - "unknown field \"spec\"""#),
    ] {
        let mut body = widget("a");
        body["apiVersion"] = version.into();
        body["spec"] = json!({"size": 1, "wide": 2});
        let answer = api.post(WIDGETS, &body).await;
        assert_eq!(answer.header("warning"), warning);
        assert!(text(&answer.expect(400), "/message").ends_with("does not match the expected API version (x.io/v1)"));
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_applying_makes_is_as_if_it_were_posted() {
    let world = World::start().await;
    let api = world.plane("p").await;
    api.post(DEFINITIONS, &widgets()).await.expect(201);
    api.until(WIDGETS, 200).await;
    let apply = async |metadata: Value| {
        let mut object = widget("a");
        object["metadata"] = metadata;
        let path = format!("{WIDGETS}/a?fieldManager=m");
        let headers = [("content-type", "application/apply-patch+yaml")];
        api.call(Method::PATCH, &path, &headers, object.to_string()).await
    };
    let refused = apply(json!({"name": "b", "namespace": "other"})).await;
    assert_eq!(
        refused.message(),
        "the namespace of the provided object does not match the namespace sent on the request"
    );
    let refused = apply(json!({"name": "a", "resourceVersion": "x"})).await;
    assert_eq!(
        (refused.code(), refused.message()),
        (500, r#"strconv.ParseUint: parsing "x": invalid syntax"#.to_owned())
    );
    // Nothing is left of what is empty but who manages it.
    let made = apply(
        json!({"name": "a", "annotations": {}, "labels": {"l": null}, "finalizers": [], "ownerReferences": null}),
    );
    let made = made.await.expect(201);
    let metadata = made["metadata"].as_object().expect("metadata");
    let names: Vec<&str> = metadata.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "creationTimestamp",
            "generation",
            "labels",
            "managedFields",
            "name",
            "namespace",
            "resourceVersion",
            "uid"
        ]
    );
    assert_eq!(made["metadata"]["labels"], json!({"l": ""}));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plane_with_definitions_drains_and_names_the_custom_object_that_blocks() {
    let world = World::start().await;
    let (root, api) = (world.root().await, world.plane("p").await);
    api.post(DEFINITIONS, &widgets()).await.expect(201);
    api.until(WIDGETS, 200).await;
    let mut held = widget("held");
    held["metadata"]["finalizers"] = json!(["x.io/hold"]);
    api.post(WIDGETS, &held).await.expect(201);
    let plane = "/apis/mica.dev/v1alpha1/planes/p";
    root.delete(plane).await.expect(200);
    loop {
        let shown = root.get(plane).await.expect(200).to_string();
        if shown.contains("widgets.x.io \\\"held\\\" in namespace \\\"default\\\" waits for finalizers: x.io/hold") {
            break;
        }
        tokio::task::yield_now().await;
    }
    let free = json!({"metadata": {"finalizers": null}});
    api.patch(&format!("{WIDGETS}/held"), &free).await.expect(200);
    root.until(plane, 404).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metadata_of_custom_objects_is_among_all_objects() {
    let world = World::start().await;
    let api = world.plane("p").await;
    api.post(DEFINITIONS, &widgets()).await.expect(201);
    api.until(WIDGETS, 200).await;
    let mut marked = widget("a");
    marked["metadata"]["annotations"] = json!({"k": "v"});
    api.post(WIDGETS, &marked).await.expect(201);
    let selector = "fieldSelector=mica.dev%2Fkind%3DWidget";
    let list = api
        .get(&format!("/apis/mica.dev/v1alpha1/objects?{selector}"))
        .await
        .expect(200);
    let annotations = &list["items"][0]["metadata"]["annotations"];
    assert_eq!(annotations["mica.dev/api-version"], "x.io/v1");
    assert_eq!(annotations["mica.dev/resource"], "widgets");
    assert_eq!(annotations["k"], "v");
    assert!(list["items"][0]["metadata"]["resourceVersion"].is_string());
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn definitions_of_root_that_are_marked_serve_project_planes_without_a_copy() {
    let world = World::start().await;
    let root = world.root().await;
    let addresses = json!([{"type": "Project", "value": "alpha"}]);
    let project = json!({"apiVersion": "mica.dev/v1alpha1", "kind": "Plane", "metadata": {"name": "alpha"},
        "spec": {"addresses": addresses}});
    root.post("/apis/mica.dev/v1alpha1/planes", &project).await.expect(201);
    let (alpha, plain) = (root.at_plane("alpha"), world.plane("plain").await);
    let mut shared = widgets();
    shared["metadata"]["annotations"] = json!({"discovery.miloapis.com/parent-contexts": "Organization,Project"});
    root.post(DEFINITIONS, &shared).await.expect(201);
    let kept = definition("gadgets", "Gadget", &json!({}));
    root.post(DEFINITIONS, &kept).await.expect(201);
    alpha.until(WIDGETS, 200).await;
    root.until("/apis/x.io/v1/gadgets", 200).await;
    assert_eq!(alpha.get("/apis/x.io/v1/gadgets").await.code(), 404);
    assert_eq!(plain.get(WIDGETS).await.code(), 404);
    assert!(names(&alpha.get(DEFINITIONS).await.expect(200)).is_empty());
    alpha.post(WIDGETS, &widget("a")).await.expect(201);
    assert!(names(&root.get(WIDGETS).await.expect(200)).is_empty());
    // It may have its own under the same name.
    let own = definition("widgets", "Widget", &json!({"size": {"type": "integer", "default": 9}}));
    alpha.post(DEFINITIONS, &own).await.expect(201);
    let path = format!("{DEFINITIONS}/widgets.x.io");
    while condition(&alpha.get(&path).await.expect(200), "Established") != "True" {
        tokio::task::yield_now().await;
    }
    assert_eq!(alpha.post(WIDGETS, &widget("b")).await.expect(201)["spec"]["size"], 9);
    alpha.delete(&path).await.expect(200);
    alpha.until(&path, 404).await;
    assert_eq!(alpha.post(WIDGETS, &widget("c")).await.expect(201)["spec"]["size"], 3);
    // Instances go with the definition, wherever they are.
    root.delete(&path).await.expect(200);
    root.until(&path, 404).await;
    alpha.until(WIDGETS, 404).await;
    root.post(DEFINITIONS, &shared).await.expect(201);
    let list = alpha.until(WIDGETS, 200).await;
    assert!(names(&list).is_empty());
    world.stop().await;
}

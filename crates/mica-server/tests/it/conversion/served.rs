//! Custom objects in versions that a webhook converts, through a whole server.

use std::sync::Arc;

use http::Method;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::super::hook::{Answer, Hook};
use super::super::world::{Api, World, names, text};
use super::review;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const V1: &str = "/apis/g.example/v1/namespaces/default/things";
const V2: &str = "/apis/g.example/v2/namespaces/default/things";
const WHY: &str = "conversion webhook for g.example/v1, Kind=Thing failed: I will not";

/// What the webhook does at the moment.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mood {
    Good,
    /// Converts, and adds a field that no schema knows.
    Chatty,
    Refusing,
}

struct Scene {
    world: World,
    api: Api,
    hook: Hook,
    mood: Arc<Mutex<Mood>>,
}

async fn scene() -> Scene {
    let mood = Arc::new(Mutex::new(Mood::Good));
    let now = mood.clone();
    let hook = Hook::start(move |seen| {
        let mut review = review(seen);
        match *now.lock() {
            Mood::Good => {}
            Mood::Chatty => {
                for object in review["response"]["convertedObjects"].as_array_mut().unwrap() {
                    object["spec"]["extra"] = "x".into();
                }
            }
            Mood::Refusing => review["response"]["result"] = json!({"status": "Failed", "message": "I will not"}),
        }
        Answer::Json(review)
    })
    .await;
    let world = World::start().await;
    let api = world.root().await;
    define(&api, &definition(&hook.client_config("/convert"), "v1")).await;
    Scene { world, api, hook, mood }
}

impl Scene {
    fn mood(&self, mood: Mood) {
        *self.mood.lock() = mood;
    }

    /// How often the webhook was asked since this was asked last.
    fn asked(&self, before: &mut usize) -> usize {
        let now = self.hook.seen().len();
        now - std::mem::replace(before, now)
    }
}

fn definition(client: &Value, storage: &str) -> Value {
    let version = |name: &str, spec: Value| {
        json!({"name": name, "served": true, "storage": name == storage, "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "spec": {"type": "object", "properties": spec},
                "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}})
    };
    let string = json!({"type": "string"});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.g.example"},
        "spec": {"group": "g.example", "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
            "conversion": {"strategy": "Webhook", "webhook": {"clientConfig": client, "conversionReviewVersions": ["v1"]}},
            "versions": [
                version("v1", json!({"hostPort": string})),
                version("v2", json!({"host": string, "port": {"type": "string", "pattern": "^[0-9]+$"},
                    "d": {"type": "string", "default": "dd"}}))]}})
}

async fn define(api: &Api, definition: &Value) {
    api.post(DEFINITIONS, definition).await.expect(201);
    api.until(V2, 200).await;
}

fn one(name: &str, host_port: &str) -> Value {
    json!({"apiVersion": "g.example/v1", "kind": "Thing", "metadata": {"name": name}, "spec": {"hostPort": host_port}})
}

fn two(name: &str, host: &str, port: &str) -> Value {
    json!({"apiVersion": "g.example/v2", "kind": "Thing", "metadata": {"name": name}, "spec": {"host": host, "port": port}})
}

async fn apply(api: &Api, path: &str, manager: &str, force: bool, object: &Value) -> super::super::world::Answer {
    let path = format!("{path}?fieldManager={manager}&force={force}");
    let headers = [("content-type", "application/apply-patch+yaml")];
    api.call(Method::PATCH, &path, &headers, object.to_string()).await
}

fn specs(list: &Value) -> Vec<Value> {
    list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["spec"].clone())
        .collect()
}

#[tokio::test]
async fn objects_are_read_and_written_in_every_version() {
    let scene = scene().await;
    let (api, mut before) = (&scene.api, 0);
    api.post(V1, &one("a", "h:1")).await.expect(201);
    assert_eq!(
        api.get(&format!("{V1}/a")).await.expect(200)["spec"],
        json!({"hostPort": "h:1"})
    );
    assert_eq!(names(&api.get(V1).await.expect(200)), ["a"]);
    assert_eq!(scene.asked(&mut before), 0, "nobody needed another version");

    let read = api.get(&format!("{V2}/a")).await.expect(200);
    assert_eq!(read["apiVersion"], "g.example/v2");
    // As upstream: the defaults are those of the version that is stored.
    assert_eq!(read["spec"], json!({"host": "h", "port": "1"}));
    assert_eq!(scene.asked(&mut before), 1);

    let made = api.post(V2, &two("b", "g", "2")).await.expect(201);
    assert_eq!(
        (text(&made, "/apiVersion"), &made["spec"]),
        ("g.example/v2", &json!({"host": "g", "port": "2"}))
    );
    assert_eq!(text(&made, "/metadata/managedFields/0/apiVersion"), "g.example/v2");
    assert_eq!(
        api.get(&format!("{V1}/b")).await.expect(200)["spec"],
        json!({"hostPort": "g:2"})
    );
    let dry = api
        .post(&format!("{V2}?dryRun=All"), &two("c", "g", "2"))
        .await
        .expect(201);
    assert_eq!(dry["spec"], json!({"host": "g", "port": "2"}));
    scene.asked(&mut before);
    let invalid = api.post(V2, &two("c", "g", "x")).await;
    assert_eq!(invalid.code(), 422);
    assert_eq!(scene.asked(&mut before), 0, "what is invalid is not converted");

    let list = api.get(V2).await.expect(200);
    assert_eq!(
        (text(&list, "/apiVersion"), names(&list)),
        ("g.example/v2", vec!["a", "b"])
    );
    assert_eq!(
        specs(&list),
        [json!({"host": "h", "port": "1"}), json!({"host": "g", "port": "2"})]
    );
    assert_eq!(scene.asked(&mut before), 1, "a list is one question");

    let patched = api
        .patch(&format!("{V2}/a"), &json!({"spec": {"port": "7"}}))
        .await
        .expect(200);
    assert_eq!(patched["spec"], json!({"host": "h", "port": "7"}));
    assert_eq!(patched["metadata"]["generation"], 2);
    let status = api
        .patch(&format!("{V2}/a/status"), &json!({"status": {"x": 1}}))
        .await
        .expect(200);
    assert_eq!(
        (&status["status"], &status["metadata"]["generation"]),
        (&json!({"x": 1}), &json!(2))
    );
    let mut put = api.get(&format!("{V2}/a")).await.expect(200);
    put["spec"]["host"] = "put".into();
    let put = api.put(&format!("{V2}/a"), &put).await.expect(200);
    assert_eq!(put["spec"], json!({"host": "put", "port": "7"}));
    let stored = api.get(&format!("{V1}/a")).await.expect(200);
    assert_eq!(
        (&stored["spec"], &stored["status"]),
        (&json!({"hostPort": "put:7"}), &json!({"x": 1}))
    );

    scene.mood(Mood::Chatty);
    assert_eq!(
        api.get(&format!("{V2}/a")).await.expect(200)["spec"],
        json!({"host": "put", "port": "7"}),
        "pruned"
    );
    scene.mood(Mood::Good);
    api.delete(&format!("{V2}/b")).await.expect(200);
    assert_eq!(api.get(&format!("{V1}/b")).await.code(), 404);
    let gone = api.delete(V2).await.expect(200);
    assert_eq!(specs(&gone), [json!({"host": "put", "port": "7"})]);
    assert!(names(&api.get(V1).await.expect(200)).is_empty());
}

#[tokio::test]
async fn lists_of_mixed_stored_versions_come_in_one() {
    let scene = scene().await;
    let api = &scene.api;
    api.post(V1, &one("a", "h:1")).await.expect(201);
    let path = format!("{DEFINITIONS}/things.g.example");
    let mut changed = api.get(&path).await.expect(200);
    changed["spec"] = definition(&scene.hook.client_config("/convert"), "v2")["spec"].take();
    api.put(&path, &changed).await.expect(200);
    api.post(V1, &one("b", "g:2")).await.expect(201);
    let mut before = scene.hook.seen().len();
    let list = api.get(V2).await.expect(200);
    assert_eq!(specs(&list)[0], json!({"host": "h", "port": "1"}));
    // The default of the stored version is there now.
    assert_eq!(specs(&list)[1], json!({"host": "g", "port": "2", "d": "dd"}));
    assert_eq!(scene.asked(&mut before), 1);
    let sent = scene.hook.seen().last().unwrap().body["request"]["objects"].clone();
    assert_eq!(
        sent.as_array().unwrap().len(),
        1,
        "only what is in another version is sent"
    );
    assert_eq!(
        specs(&api.get(V1).await.expect(200)),
        [json!({"hostPort": "h:1"}), json!({"hostPort": "g:2"})]
    );
    // Whatever is written moves to the new version.
    api.patch(&format!("{V1}/a"), &json!({"metadata": {"labels": {"l": "1"}}}))
        .await
        .expect(200);
    let mut before = scene.hook.seen().len();
    assert_eq!(names(&api.get(V2).await.expect(200)), ["a", "b"]);
    assert_eq!(scene.asked(&mut before), 0);
}

#[tokio::test]
async fn managers_are_compared_in_the_versions_they_wrote_in() {
    let scene = scene().await;
    let api = &scene.api;
    let (first, second) = (format!("{V1}/a"), format!("{V2}/a"));
    apply(api, &first, "m1", false, &one("a", "h:1")).await.expect(201);
    let conflict = apply(api, &second, "m2", false, &two("a", "other", "1")).await;
    assert_eq!(conflict.code(), 409);
    assert_eq!(
        conflict.message(),
        "Apply failed with 1 conflict: conflict with \"m1\": .spec.hostPort"
    );
    let forced = apply(api, &second, "m2", true, &two("a", "other", "1"))
        .await
        .expect(200);
    assert_eq!(forced["spec"], json!({"host": "other", "port": "1"}));
    let managers = |object: &Value| -> Vec<String> {
        let entries = object["metadata"]["managedFields"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let brief = |entry: &Value| {
            format!(
                "{} {} {}",
                text(entry, "/manager"),
                text(entry, "/apiVersion"),
                entry["fieldsV1"]
            )
        };
        entries.iter().map(brief).collect()
    };
    let fields = r#"m2 g.example/v2 {"f:spec":{"f:host":{},"f:port":{}}}"#;
    assert_eq!(managers(&forced), [fields]);
    let version = |object: &Value| text(object, "/metadata/resourceVersion").to_owned();
    let again = apply(api, &second, "m2", false, &two("a", "other", "1"))
        .await
        .expect(200);
    assert_eq!(version(&again), version(&forced), "the same again changes nothing");
    // A manager of another version that says the same shares.
    let shared = apply(api, &first, "m1", false, &one("a", "other:1")).await.expect(200);
    assert_eq!(
        managers(&shared),
        [r#"m1 g.example/v1 {"f:spec":{"f:hostPort":{}}}"#, fields]
    );
    let updated = api
        .patch(&second, &json!({"spec": {"host": "third"}}))
        .await
        .expect(200);
    let managed = managers(&updated);
    assert!(
        managed
            .iter()
            .any(|entry| entry == r#"m2 g.example/v2 {"f:spec":{"f:port":{}}}"#),
        "{managed:?}"
    );
    assert!(!managed.iter().any(|entry| entry.starts_with("m1")), "{managed:?}");

    // A webhook that fails fails applying; other writes go on, and nobody manages anything then.
    apply(api, &second, "m2", true, &two("a", "x", "1")).await.expect(200);
    scene.mood(Mood::Refusing);
    let failed = apply(api, &first, "m1", true, &one("a", "y:1")).await;
    assert_eq!((failed.code(), failed.message().as_str()), (500, WHY));
    let written = api
        .patch(&first, &json!({"spec": {"hostPort": "z:1"}}))
        .await
        .expect(200);
    assert_eq!(written["spec"], json!({"hostPort": "z:1"}));
    assert!(managers(&written).is_empty());
}

#[tokio::test]
async fn watches_tell_changes_in_their_version_and_ask_once_for_all() {
    let scene = scene().await;
    let api = &scene.api;
    api.post(V1, &one("a", "h:1")).await.expect(201);
    let mut watchers = Vec::new();
    for _ in 0..5 {
        let mut watcher = api.watch(&format!("{V2}?watch=1")).await;
        let first = watcher.next().await.unwrap();
        assert_eq!(
            (text(&first, "/type"), text(&first, "/object/spec/host")),
            ("ADDED", "h")
        );
        watchers.push(watcher);
    }
    let mut before = scene.hook.seen().len();
    api.post(V1, &one("b", "g:2")).await.expect(201);
    api.patch(&format!("{V1}/b"), &json!({"spec": {"hostPort": "k:3"}}))
        .await
        .expect(200);
    api.delete(&format!("{V1}/b")).await.expect(200);
    for watcher in &mut watchers {
        let mut told = Vec::new();
        for _ in 0..3 {
            let event = watcher.next().await.unwrap();
            assert_eq!(text(&event, "/object/apiVersion"), "g.example/v2");
            told.push(format!("{} {}", text(&event, "/type"), event["object"]["spec"]));
        }
        assert_eq!(
            told,
            [
                r#"ADDED {"host":"g","port":"2"}"#,
                r#"MODIFIED {"host":"k","port":"3"}"#,
                r#"DELETED {"host":"k","port":"3"}"#
            ]
        );
    }
    assert!(
        scene.asked(&mut before) <= 3,
        "one question a change, however many watch"
    );
    // A filter looks at what was before as well.
    let mut labelled = api.watch(&format!("{V2}?watch=1&labelSelector=l")).await;
    api.patch(&format!("{V1}/a"), &json!({"metadata": {"labels": {"l": "1"}}}))
        .await
        .expect(200);
    assert_eq!(labelled.brief().await, "ADDED a");
    api.patch(&format!("{V1}/a"), &json!({"metadata": {"labels": null}}))
        .await
        .expect(200);
    assert_eq!(labelled.brief().await, "DELETED a");
}

#[tokio::test]
async fn a_webhook_that_refuses_fails_what_needs_it_and_nothing_else() {
    let scene = scene().await;
    let api = &scene.api;
    api.post(V1, &one("a", "h:1")).await.expect(201);
    let mut live = api.watch(&format!("{V2}?watch=1")).await;
    assert_eq!(live.brief().await, "ADDED a");
    scene.mood(Mood::Refusing);
    let said = |answer: super::super::world::Answer| (answer.code(), answer.message());
    let plain = (500, WHY.to_owned());
    let written = (500, WHY.replace("/v1", "/v2"));
    let not_ready = format!("storage is (re)initializing: failed to list g.example/v2, Kind=Thing: {WHY}");
    let object = format!("{V2}/a");
    assert_eq!(said(api.get(&object).await), plain);
    let listed = api.get(V2).await;
    assert_eq!(listed.header("retry-after"), "1");
    assert_eq!(said(listed), (429, not_ready.clone()));
    assert_eq!(said(api.get(&format!("{V2}?limit=1")).await), plain);
    assert_eq!(said(api.get(&format!("{V2}?watch=1")).await), (429, not_ready));
    assert_eq!(said(api.post(V2, &two("b", "g", "2")).await), written);
    assert_eq!(
        said(api.post(&format!("{V2}?dryRun=All"), &two("b", "g", "2")).await),
        written
    );
    assert_eq!(said(api.patch(&object, &json!({"spec": {"port": "8"}})).await), plain);
    assert_eq!(said(apply(api, &object, "m", true, &two("a", "g", "2")).await), plain);
    assert_eq!(said(api.delete(&object).await), plain);
    assert_eq!(said(api.delete(V2).await), plain);

    assert_eq!(names(&api.get(V1).await.expect(200)), ["a"]);
    api.post(V1, &one("b", "g:2")).await.expect(201);
    let event = live.next().await.unwrap();
    assert_eq!(
        (
            text(&event, "/type"),
            text(&event, "/object/kind"),
            text(&event, "/object/message")
        ),
        ("ERROR", "Status", WHY)
    );
    assert!(live.next().await.is_none(), "a watch that cannot tell ends");
    api.delete(&format!("{V1}/b")).await.expect(200);

    scene.mood(Mood::Good);
    assert_eq!(api.get(&object).await.expect(200)["spec"]["host"], "h");
    assert_eq!(names(&api.get(V2).await.expect(200)), ["a"]);
}

#[tokio::test]
async fn a_planes_webhook_reaches_no_loopback_and_does_not_hold_its_plane() {
    let scene = scene().await;
    let plane = scene.world.plane("p").await;
    define(&plane, &definition(&scene.hook.client_config("/convert"), "v1")).await;
    plane.post(V1, &one("a", "h:1")).await.expect(201);
    let answer = plane.get(&format!("{V2}/a")).await;
    assert_eq!(answer.code(), 500);
    let message = answer.message();
    assert!(
        message.ends_with("the address is not one that this control plane may call"),
        "{message}"
    );
    assert!(scene.hook.seen().is_empty());
    // Objects of both versions, and no webhook to convert them: the plane goes all the same.
    let path = format!("{DEFINITIONS}/things.g.example");
    let mut changed = plane.get(&path).await.expect(200);
    changed["spec"] = definition(&scene.hook.client_config("/convert"), "v2")["spec"].take();
    plane.put(&path, &changed).await.expect(200);
    plane.post(V2, &two("b", "g", "2")).await.expect(201);
    scene.api.delete("/apis/mica.dev/v1alpha1/planes/p").await;
    scene.api.until("/apis/mica.dev/v1alpha1/planes/p", 404).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_list_fails_whole_when_one_of_its_last_objects_cannot_be_converted() {
    let hook = Hook::start(|seen| {
        let mut review = review(seen);
        let objects = review["response"]["convertedObjects"].as_array().unwrap();
        if objects.iter().any(|object| object["metadata"]["name"] == "n999") {
            review["response"]["result"] = json!({"status": "Failed", "message": "I will not"});
        }
        Answer::Json(review)
    })
    .await;
    let world = World::start().await;
    let api = world.root().await;
    define(&api, &definition(&hook.client_config("/convert"), "v1")).await;
    let made = (100..1000).map(|i| {
        let api = api.clone();
        async move { api.post(V1, &one(&format!("n{i}"), "h:1")).await.code() }
    });
    let made: Vec<u16> =
        futures::StreamExt::collect(futures::StreamExt::buffer_unordered(futures::stream::iter(made), 16)).await;
    assert!(made.iter().all(|code| *code == 201));
    let failed = api.get(V2).await;
    assert_eq!(failed.code(), 429, "nothing of it was sent");
    let expected = format!("storage is (re)initializing: failed to list g.example/v2, Kind=Thing: {WHY}");
    assert_eq!(failed.message(), expected);
    // Pages that do not hold it are whole.
    assert_eq!(names(&api.get(&format!("{V2}?limit=500")).await.expect(200)).len(), 500);
    assert_eq!(names(&api.get(V1).await.expect(200)).len(), 900);
    world.stop().await;
}

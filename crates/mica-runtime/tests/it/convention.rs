//! One convention for conditions, over every kind of ours that a server has.

use http::Request;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Client;
use mica_runtime::conditions::{READY, check, find};
use mica_testkit::TestServer;
use serde_json::{Value, json};

/// Groups whose kinds are ours.
fn is_ours(group: &str) -> bool {
    ["mica.dev", "miloapis.com", "kplane.dev"]
        .iter()
        .any(|domain| group == *domain || group.ends_with(&format!(".{domain}")))
}

async fn read(client: &Client, path: &str) -> Value {
    let request = Request::get(path).body(Vec::new()).unwrap();
    client.request(request).await.unwrap()
}

async fn send(client: &Client, method: &str, path: &str, body: &Value) {
    let content = match method {
        "PATCH" => "application/merge-patch+json",
        _ => "application/json",
    };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", content);
    let request = request.body(serde_json::to_vec(body).unwrap()).unwrap();
    let _: Value = client.request(request).await.unwrap();
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

/// Planes in every state that a test can bring about.
async fn fill(server: &TestServer, client: &Client) {
    const PLANES: &str = "/apis/mica.dev/v1alpha1/planes";
    for name in ["usual", "suspended", "quiet", "going"] {
        server.plane(name).await;
    }
    for (name, state) in [("suspended", "Suspended"), ("quiet", "ReadOnly")] {
        let patch = json!({"spec": {"state": state}});
        send(client, "PATCH", &format!("{PLANES}/{name}"), &patch).await;
    }
    let kept = json!({"metadata": {"finalizers": ["example.com/kept"]}});
    send(client, "PATCH", &format!("{PLANES}/going"), &kept).await;
    send(client, "DELETE", &format!("{PLANES}/going"), &json!({})).await;
}

#[tokio::test]
async fn every_kind_of_ours_has_conditions_by_one_convention() {
    let server = TestServer::start().await;
    let client = server.client().await;
    fill(&server, &client).await;
    let (mut wrong, mut covered, mut objects) = (Vec::new(), Vec::new(), 0);
    let groups = read(&client, "/apis").await;
    let ours = groups["groups"].as_array().unwrap().iter();
    for group in ours.filter(|group| is_ours(group["name"].as_str().unwrap())) {
        for version in group["versions"].as_array().unwrap() {
            let version = version["groupVersion"].as_str().unwrap();
            let document = read(&client, &format!("/openapi/v3/apis/{version}")).await;
            let schemas = &document["components"]["schemas"];
            let resources = read(&client, &format!("/apis/{version}")).await;
            for resource in resources["resources"].as_array().unwrap() {
                let (kind, name) = (&resource["kind"], resource["name"].as_str().unwrap());
                if name.contains('/') {
                    continue;
                }
                let named = |schema: &&Value| {
                    let kinds = schema["x-kubernetes-group-version-kind"].as_array();
                    kinds.is_some_and(|kinds| kinds.iter().any(|one| one["kind"] == *kind))
                };
                let schema = schemas.as_object().unwrap().values().find(named);
                let Some(found) = schema.and_then(|schema| wrong_with(schemas, schema)) else {
                    continue;
                };
                covered.push(kind.as_str().unwrap().to_owned());
                wrong.extend(found.into_iter().map(|what| format!("{kind}: {what}")));
                for object in read(&client, &format!("/apis/{version}/{name}")).await["items"]
                    .as_array()
                    .unwrap()
                {
                    objects += 1;
                    let conditions: Vec<Condition> =
                        serde_json::from_value(object["status"]["conditions"].clone()).unwrap();
                    let at = format!("{kind} {}", object["metadata"]["name"]);
                    wrong.extend(check(&conditions).err().map(|broken| format!("{at}: {broken}")));
                    if find(&conditions, READY).is_none() {
                        wrong.push(format!("{at} does not say whether it is ready"));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "conditions:\n  {}", wrong.join("\n  "));
    assert!(
        covered.contains(&"Plane".to_owned()) && objects >= 4,
        "{covered:?} {objects}"
    );
}

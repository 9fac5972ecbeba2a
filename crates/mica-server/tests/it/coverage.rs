//! Every served resource and verb, and every other path, answers with something that is no failure of the server.

use http::Method;
use serde_json::{Value, json};

use super::world::{Answer, Api, PLANES, World, served, text};

/// Namespaced resources are asked for in this namespace.
const NAMESPACE: &str = "default";

fn check(what: &str, answer: &Answer) {
    let body = answer.json();
    // Upstream refuses a binding without a node with 500, and a service without endpoints with 503.
    let upstreams = (what.contains("binding") && text(&body, "/message") == "target.name: Required value")
        || text(&body, "/message").starts_with("no endpoints available for service");
    // 501 is said of what this server knows it does not do yet.
    assert!(
        answer.code() < 500 || answer.code() == 501 || upstreams,
        "{what}: {} {body}",
        answer.code()
    );
    if answer.code() >= 400 {
        assert_eq!(text(&body, "/kind"), "Status", "{what}: {body}");
    }
}

async fn try_all_verbs(api: &Api, version: &str, resource: &Value) {
    let name = text(resource, "/name");
    let (plural, subresource) = name.split_once('/').map_or((name, ""), |(plural, sub)| (plural, sub));
    let place = if resource["namespaced"] == true {
        format!("{version}/namespaces/{NAMESPACE}/{plural}")
    } else {
        format!("{version}/{plural}")
    };
    let one = if subresource.is_empty() {
        format!("{place}/probe")
    } else {
        format!("{place}/probe/{subresource}")
    };
    let collection = if subresource.is_empty() { place } else { one.clone() };
    let json = [("content-type", "application/json")];
    let merge = [("content-type", "application/merge-patch+json")];
    let kind = text(resource, "/kind");
    let api_version = match (text(resource, "/group"), text(resource, "/version")) {
        ("", "") => version
            .trim_start_matches("/apis/")
            .trim_start_matches("/api/")
            .to_owned(),
        ("", version) => version.to_owned(),
        (group, version) => format!("{group}/{version}"),
    };
    let bare = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "probe"}}).to_string();
    let verbs: Vec<&str> = resource["verbs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|verb| verb.as_str().unwrap())
        .collect();
    for body in [
        "",
        "{}",
        "[]",
        "null",
        "{\"metadata\":[]}",
        "{\"spec\":7,\"status\":[]}",
        bare.as_str(),
    ] {
        let calls = [
            ("create", Method::POST, &collection, &json[..]),
            ("update", Method::PUT, &one, &json),
            ("patch", Method::PATCH, &one, &merge),
            ("get", Method::GET, &one, &[][..]),
            ("list", Method::GET, &collection, &[]),
            ("delete", Method::DELETE, &one, &json),
            ("deletecollection", Method::DELETE, &collection, &json),
        ];
        for (verb, method, path, headers) in calls {
            let answer = api.call(method.clone(), path, headers, body.to_owned()).await;
            check(&format!("{verb} {path} with {body}"), &answer);
            if !verbs.contains(&verb) && !matches!(verb, "list" | "deletecollection") {
                assert!(
                    answer.code() >= 400,
                    "{verb} {path} is not offered and was {}",
                    answer.code()
                );
            }
        }
    }
    if verbs.contains(&"list") {
        check_reads(api, &collection).await;
    }
}

async fn check_reads(api: &Api, collection: &str) {
    for accept in [
        "application/json",
        "application/yaml",
        "application/vnd.kubernetes.protobuf,application/json",
        "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
        "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json",
    ] {
        for query in [
            "",
            "?limit=1",
            "?labelSelector=a",
            "?fieldSelector=metadata.name%3Dprobe",
        ] {
            let answer = api
                .call(Method::GET, &format!("{collection}{query}"), &[("accept", accept)], "")
                .await;
            // Metadata of all kinds is JSON and nothing else.
            let refused = collection.ends_with("/objects") && answer.code() == 406;
            assert!(
                refused || answer.code() == 200,
                "{collection}{query} as {accept}: {}",
                answer.json()
            );
        }
    }
    let answer = api
        .get(&format!(
            "{collection}?watch=1&timeoutSeconds=1&resourceVersion=999999999"
        ))
        .await;
    assert!(answer.code() < 500, "watch {collection}: {}", answer.json());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_resource_answers_every_verb() {
    let world = World::start().await;
    let root = world.root().await;
    for api in [root.clone(), root.at_plane("p")] {
        // Anew each time: among the verbs that root is asked for is to delete all planes.
        root.until(&format!("{PLANES}/p"), 404).await;
        root.create_plane("p").await;
        let all = served(&api).await;
        assert!(all.len() > 40, "{}", all.len());
        let tries = all
            .iter()
            .map(|(version, resource)| try_all_verbs(&api, version, resource));
        futures::future::join_all(tries).await;
    }
}

#[tokio::test]
async fn every_other_path_answers() {
    let world = World::start().await;
    let plane = world.plane("p").await;
    let root = world.root().await;
    for api in [root.clone(), plane, root.at("/clusters/*/control-plane")] {
        for path in [
            "/api",
            "/apis",
            "/api/v1",
            "/apis/apps",
            "/version",
            "/healthz",
            "/livez",
            "/readyz",
            "/readyz?verbose",
            "/livez/ping",
            "/openapi/v3",
            "/openapi/v2",
        ] {
            let answer = api.get(path).await;
            assert!(answer.code() < 500, "{path}: {}", answer.json());
        }
        for path in [
            "/",
            "",
            "/none",
            "/api/v2",
            "/api/v1/",
            "/apis/none",
            "/apis/none/v1",
            "/apis/apps/v9",
            "/api/v1/namespaces//configmaps",
            "//api/v1",
            "/api//v1/configmaps",
            "/api/v1/namespaces/default/configmaps//",
            "/api/v1/namespaces/default/configmaps//data",
            "/api/v1/configmaps/a%2Fb",
            "/api/v1/namespaces/%2E%2E/configmaps",
            "/api/v1/namespaces/default/configmaps/%00",
            "/api/v1/namespaces/default/configmaps/%FF",
            "/clusters",
            "/clusters/",
            "/clusters/p",
            "/projects/x",
            "/%2A",
        ] {
            for method in [
                Method::GET,
                Method::POST,
                Method::DELETE,
                Method::PUT,
                Method::PATCH,
                Method::OPTIONS,
                Method::HEAD,
            ] {
                let answer = api
                    .call(method.clone(), path, &[("content-type", "application/json")], "")
                    .await;
                assert!(
                    answer.code() < 500,
                    "{method} {path}: {} {}",
                    answer.code(),
                    answer.json()
                );
            }
        }
    }
    assert_eq!(root.get("/metrics").await.code(), 200);
}

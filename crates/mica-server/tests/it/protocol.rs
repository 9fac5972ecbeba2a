//! What methods and media types lead to where upstream has routes, and where it has none: custom objects and discovery.

use http::Method;
use serde_json::{Value, json};

use super::world::World;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGETS: &str = "/apis/x.io/v1/namespaces/default/widgets";

/// A definition of objects that hold anything.
fn widgets() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "widgets.x.io"},
        "spec": {"group": "x.io", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]},
    })
}

fn widget(name: &str) -> Value {
    json!({"apiVersion": "x.io/v1", "kind": "Widget", "metadata": {"name": name}})
}

#[tokio::test]
async fn changes_of_a_collection_of_custom_objects_miss_a_name() {
    let world = World::start().await;
    let api = world.plane("p").await;
    api.post(DEFINITIONS, &widgets()).await.expect(201);
    api.until(WIDGETS, 200).await;
    for (method, media, code, message) in [
        (
            Method::PATCH,
            "application/merge-patch+json",
            400,
            "name must be provided",
        ),
        (
            Method::PATCH,
            "application/apply-patch+yaml",
            400,
            "name must be provided",
        ),
        (
            Method::PATCH,
            "application/strategic-merge-patch+json",
            415,
            "the body of the request was in an unknown format - accepted media types include: \
             application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
        ),
        (Method::PUT, "text/plain", 400, "name must be provided"),
    ] {
        let answer = api
            .call(method.clone(), WIDGETS, &[("content-type", media)], "{}")
            .await;
        assert_eq!(answer.expect(code)["message"], message, "{method} {media}");
    }
}

#[tokio::test]
async fn custom_objects_answer_to_head_and_others_do_not() {
    let world = World::start().await;
    let api = world.plane("p").await;
    api.post(DEFINITIONS, &widgets()).await.expect(201);
    api.until(WIDGETS, 200).await;
    api.post(WIDGETS, &widget("a")).await.expect(201);
    for (path, code) in [
        (WIDGETS, 200),
        ("/apis/x.io/v1/widgets", 200),
        ("/apis/x.io/v1/namespaces/default/widgets/a", 200),
        ("/apis/x.io/v1/namespaces/default/widgets/b", 404),
        ("/apis/x.io/v1", 200),
        ("/api/v1/namespaces/default/configmaps", 405),
        ("/api/v1/namespaces/default", 405),
    ] {
        let answer = api.call(Method::HEAD, path, &[], "").await;
        assert_eq!(answer.code(), code, "{path}");
    }
}

#[tokio::test]
async fn discovery_has_no_other_shape_and_routes_only_of_built_in_kinds() {
    let world = World::start().await;
    let api = world.plane("p").await;
    api.post(DEFINITIONS, &widgets()).await.expect(201);
    api.until(WIDGETS, 200).await;
    let table = "application/json;as=Table;g=meta.k8s.io;v=v1";
    let paths = [
        "/apis",
        "/apis/x.io",
        "/apis/x.io/v1",
        "/api",
        "/apis/rbac.authorization.k8s.io/v1",
    ];
    for (at, path) in paths.into_iter().enumerate() {
        let ask = async |accept| api.call(Method::GET, path, &[("accept", accept)], "").await;
        assert_eq!(ask(table).await.code(), 406, "{path}");
        let routed = at >= 3;
        assert_eq!(
            ask("application/*").await.code(),
            if routed { 406 } else { 200 },
            "{path}"
        );
        let refused = ask("text/html").await.expect(406);
        let by_route = refused["message"]
            .as_str()
            .is_some_and(|text| text.starts_with("406: Not Acceptable"));
        assert_eq!(by_route, routed, "{path}");
    }
    let index = api.call(Method::GET, "/", &[("accept", "text/html")], "").await;
    assert!(index.expect(200)["paths"].is_array());
    assert_eq!(
        api.call(Method::GET, "/version", &[("accept", "text/html")], "")
            .await
            .code(),
        406
    );
}

#[tokio::test]
async fn whether_an_answer_has_the_form_asked_for_is_found_last() {
    let world = World::start().await;
    let api = world.plane("p").await;
    api.post(DEFINITIONS, &widgets()).await.expect(201);
    api.until(WIDGETS, 200).await;
    api.post(WIDGETS, &widget("a")).await.expect(201);
    let maps = "/api/v1/namespaces/default/configmaps";
    api.post(maps, &json!({"metadata": {"name": "a"}})).await.expect(201);
    let list = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let object = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
    let table = "application/json;as=Table;g=meta.k8s.io;v=v1";
    for (path, accept, code) in [
        ("configmaps/a", list, 406),
        ("configmaps/none", list, 404),
        ("configmaps", object, 406),
        ("configmaps?resourceVersion=x", object, 400),
        ("configmaps/a?includeObject=Bogus", table, 400),
        ("configmaps/none?includeObject=Bogus", table, 404),
        ("configmaps?limit=x", "foo/bar", 406),
    ] {
        let path = format!("/api/v1/namespaces/default/{path}");
        let answer = api.call(Method::GET, &path, &[("accept", accept)], "").await;
        assert_eq!(answer.code(), code, "{path} {accept}");
    }
    let custom = api
        .call(Method::GET, &format!("{WIDGETS}/a"), &[("accept", list)], "")
        .await;
    assert_eq!(custom.expect(500)["message"], "content is not a list");
    let none = api
        .call(
            Method::GET,
            &format!("{maps}?labelSelector=no"),
            &[("accept", list)],
            "",
        )
        .await;
    assert!(String::from_utf8_lossy(&none.body).contains(r#""items":null"#));
    none.expect(200);
}

#[tokio::test]
async fn a_write_whose_answer_has_no_such_form_is_done() {
    let world = World::start().await;
    let api = world.plane("p").await;
    let list = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let maps = "/api/v1/namespaces/default/configmaps";
    let one = format!("{maps}/a");
    let write = async |method, path: &str, kind: &str, body: Value| {
        let headers = [("accept", list), ("content-type", kind)];
        let answer = api.call(method, path, &headers, body.to_string()).await;
        assert_eq!(answer.code(), 406, "{path}");
        answer
    };
    let json = "application/json";
    let made = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "datum": {}});
    let answer = write(Method::POST, maps, json, made).await;
    assert_eq!(answer.headers("warning"), [r#"299 - "unknown field \"datum\"""#]);
    let put = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"a": "1"}});
    write(Method::PUT, &one, json, put).await;
    let merge = "application/merge-patch+json";
    write(Method::PATCH, &one, merge, json!({"data": {"b": "2"}})).await;
    assert_eq!(api.get(&one).await.expect(200)["data"], json!({"a": "1", "b": "2"}));
    // What says only that it was done has no other form.
    let gone = api.call(Method::DELETE, &one, &[("accept", list)], "").await;
    assert_eq!(gone.expect(200)["kind"], "Status");
    api.get(&one).await.expect(404);
}

#[tokio::test]
async fn tables_are_printed_in_the_order_of_gos_structs() {
    let world = World::start().await;
    let api = world.plane("p").await;
    let maps = "/api/v1/namespaces/default/configmaps";
    api.post(maps, &json!({"metadata": {"name": "a"}, "data": {"b": "c"}}))
        .await
        .expect(201);
    let table = "application/json;as=Table;g=meta.k8s.io;v=v1";
    for (path, object) in [
        (
            "configmaps?fieldSelector=metadata.name%3Da",
            r#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"a","#,
        ),
        (
            "configmaps/a?includeObject=Object",
            r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","#,
        ),
        ("configmaps/a?includeObject=None", "null}]}"),
    ] {
        let path = format!("/api/v1/namespaces/default/{path}");
        let answer = api.call(Method::GET, &path, &[("accept", table)], "").await;
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        let head = r#"{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":""#;
        assert!(text.starts_with(head), "{path}: {text}");
        let columns = r#""columnDefinitions":[{"name":"Name","type":"string","format":"name","description":"Name must"#;
        assert!(text.contains(columns), "{path}: {text}");
        assert!(text.contains(&format!(r#""object":{object}"#)), "{path}: {text}");
    }
}

#[tokio::test]
async fn a_taken_name_beside_a_stem_counts_as_one_that_was_made() {
    let world = World::start().await;
    let api = world.plane("p").await;
    let maps = "/api/v1/namespaces/default/configmaps";
    let body = json!({"metadata": {"name": "a", "generateName": "z-"}});
    api.post(maps, &body).await.expect(201);
    let taken = api.post(maps, &body).await.expect(409);
    assert_eq!(
        taken["message"],
        r#"configmaps "a" already exists, the server was not able to generate a unique name for the object"#
    );
    assert_eq!(taken["details"]["retryAfterSeconds"], 1);
}

#[tokio::test]
async fn definitions_and_namespaces_say_in_their_own_words_that_another_was_meant() {
    let world = World::start().await;
    let api = world.plane("p").await;
    api.post(DEFINITIONS, &widgets()).await.expect(201);
    let other = json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": "x"}}).to_string();
    for (path, what) in [
        (
            format!("{DEFINITIONS}/widgets.x.io"),
            "customresourcedefinitions.apiextensions.k8s.io \"widgets.x.io\"",
        ),
        ("/api/v1/namespaces/default".to_owned(), "namespaces \"default\""),
    ] {
        let uid = api.get(&path).await.expect(200)["metadata"]["uid"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let refused = api
            .call(
                Method::DELETE,
                &path,
                &[("content-type", "application/json")],
                other.clone(),
            )
            .await;
        assert_eq!(
            refused.expect(409)["message"],
            format!(
                "Operation cannot be fulfilled on {what}: Precondition failed: UID in precondition: x, UID in object meta: {uid}"
            )
        );
    }
}

#[tokio::test]
async fn methods_that_are_none_are_refused_as_custom_objects_refuse_them() {
    let world = World::start().await;
    let api = world.plane("p").await;
    api.post(DEFINITIONS, &widgets()).await.expect(201);
    api.until(WIDGETS, 200).await;
    let missing = r#"widgets.x.io "a" not found"#;
    let unsupported = r#" is not supported on resources of kind "widgets.x.io""#;
    let general = "the server does not allow this method on the requested resource";
    let namespaced = "/apis/x.io/v1/namespaces/default/widgets/a";
    for (path, code, message) in [
        (WIDGETS, 405, unsupported),
        (namespaced, 405, unsupported),
        ("/apis/x.io/v1/namespaces/default/widgets/a/odd", 404, missing),
        ("/api/v1/namespaces/default/configmaps", 405, general),
        (
            "/api/v1/absents",
            404,
            "the server could not find the requested resource",
        ),
    ] {
        let answer = api.call(Method::OPTIONS, path, &[], "").await;
        assert_eq!(answer.expect(code)["message"], message, "{path}");
    }
    // Where upstream has no routes, in no form.
    for path in ["/apis/x.io/v1/widgets", "/apis/x.io/v1/absents", "/apis/absent.io/v1/a"] {
        let answer = api.call(Method::OPTIONS, path, &[], "").await;
        assert_eq!(answer.code(), 404, "{path}");
        assert_eq!(answer.body, "404 page not found\n", "{path}");
    }
    // Who may do nothing does not learn what there is.
    let nobody = [("impersonate-user", "nobody")];
    for path in [namespaced, "/apis/x.io/v1/namespaces/default/absents/a"] {
        assert_eq!(api.call(Method::OPTIONS, path, &nobody, "").await.code(), 403, "{path}");
    }
}

#[tokio::test]
async fn discovery_tells_of_versions_what_upstream_tells() {
    let world = World::start().await;
    let api = world.plane("p").await;
    let hash = async |path: &str, name: &str| {
        let list = api.get(path).await.expect(200);
        let mut resources = list["resources"].as_array().unwrap().iter();
        let found = resources.find(|resource| resource["name"] == name).expect(name);
        [
            found["storageVersionHash"].as_str().unwrap_or_default().to_owned(),
            found["version"].as_str().unwrap_or_default().to_owned(),
        ]
    };
    let policies = "/apis/admissionregistration.k8s.io/v1";
    for (path, name, said) in [
        ("/api/v1", "componentstatuses", ["", ""]),
        ("/api/v1", "pods/exec", ["", ""]),
        ("/api/v1", "pods/eviction", ["", "v1"]),
        ("/api/v1", "serviceaccounts/token", ["", "v1"]),
        (
            "/apis/apiextensions.k8s.io/v1",
            "customresourcedefinitions",
            ["jfWCUB31mvA=", ""],
        ),
        (policies, "mutatingadmissionpolicies", ["LYmCf+UMVdg=", ""]),
        (policies, "mutatingadmissionpolicybindings", ["90V5FRZZ3Zg=", ""]),
    ] {
        assert_eq!(hash(path, name).await, said, "{name}");
    }
    let aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let ask = async |tag: &str| {
        let headers = [("accept", aggregated), ("if-none-match", tag)];
        api.call(Method::GET, "/apis", &headers, "").await
    };
    let whole = ask("").await;
    let tag = whole.header("etag");
    let same = ask(tag).await;
    assert_eq!((whole.code(), same.code()), (200, 304));
    for answer in [&whole, &same] {
        assert_eq!(answer.header("cache-control"), "public");
        assert_eq!(answer.header("vary"), "Accept");
    }
}

#[tokio::test]
async fn questions_have_no_tables() {
    let world = World::start().await;
    let api = world.plane("p").await;
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let body = r#"{"spec": {"nonResourceAttributes": {"path": "/", "verb": "get"}}}"#;
    let headers = [
        ("accept", "application/json;as=Table;g=meta.k8s.io;v=v1"),
        ("content-type", "application/json"),
    ];
    let refused = api.call(Method::POST, path, &headers, body).await.expect(406);
    assert_eq!(
        refused["message"],
        "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf"
    );
}

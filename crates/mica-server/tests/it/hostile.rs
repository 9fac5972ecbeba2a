//! Bodies, patches, queries and definitions made to hurt: each gets upstream's refusal, and the server goes on.
//!
//! Codes and messages are those that kube-apiserver 1.36 gave to the same requests.

use base64::Engine as _;
use http::Method;
use serde_json::{Value, json};

use super::world::{Answer, Api, MAPS, World, map, text};

const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const JSON_PATCH: &str = "application/json-patch+json";
const MERGE_PATCH: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?dryRun=All";

async fn send(api: &Api, method: Method, path: &str, content: &str, body: impl Into<Vec<u8>>) -> Answer {
    api.call(method, path, &[("content-type", content)], body.into()).await
}

async fn create(api: &Api, content: &str, body: impl Into<Vec<u8>>) -> Answer {
    send(api, Method::POST, &format!("{MAPS}?dryRun=All"), content, body).await
}

#[track_caller]
fn refused(answer: &Answer, code: u16, message: &str) {
    let got = answer.message();
    let shown: String = got.chars().take(300).collect();
    assert_eq!(answer.code(), code, "{shown}");
    assert!(got.contains(message), "{shown}\nlacks: {message}");
}

/// Each word stands for nine of the one before.
fn bomb() -> String {
    let mut yaml = r#"a: &a ["l","l","l","l","l","l","l","l","l"]"#.to_owned();
    for pair in ["ab", "bc", "cd", "de", "ef", "fg", "gh", "hi"] {
        let (before, word) = pair.split_at(1);
        let nine = vec![format!("*{before}"); 9].join(",");
        yaml += &format!("\n{word}: &{word} [{nine}]");
    }
    yaml
}

fn nested(open: &str, close: &str, depth: usize) -> String {
    format!("{}1{}", open.repeat(depth), close.repeat(depth))
}

#[tokio::test]
async fn yaml_that_explodes_or_nests_for_ever_is_refused() {
    let world = World::start().await;
    let api = world.plane("p").await;
    let aliasing = "yaml: document contains excessive aliasing";
    refused(&create(&api, YAML, bomb()).await, 400, aliasing);
    let applied = send(&api, Method::PATCH, &format!("{MAPS}/a?fieldManager=m"), APPLY, bomb()).await;
    refused(
        &applied,
        400,
        &format!("error decoding YAML: error converting YAML to JSON: {aliasing}"),
    );
    let deleted = send(&api, Method::DELETE, &format!("{MAPS}/a"), YAML, bomb()).await;
    assert_eq!((deleted.code(), deleted.message().as_str()), (400, aliasing));
    for deep in [nested("[", "]", 10_001), "[".repeat(3_000_000), "- ".repeat(20_000)] {
        refused(
            &create(&api, YAML, deep).await,
            400,
            "yaml: exceeded max depth of 10000",
        );
    }
    let controls = "apiVersion: v1\nkind: ConfigMap\ndata: {k: \"a\0b\"}";
    refused(
        &create(&api, YAML, controls).await,
        400,
        "yaml: control characters are not allowed",
    );
}

#[tokio::test]
async fn json_that_nests_for_ever_or_is_none_is_refused() {
    let world = World::start().await;
    let api = world.plane("p").await;
    let with = |field: &str| format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"z"}},{field}}}"#);
    let unread = "the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json parse error: ";
    for (body, why) in [
        (
            with(&format!(r#""x":{}"#, nested("[", "]", 10_001))),
            "invalid character '[' exceeded max depth",
        ),
        (
            with(&format!(r#""data":{}"#, nested(r#"{"a":"#, "}", 10_001))),
            "invalid character '{' exceeded max depth",
        ),
        (with(r#""data":{"k":"a"#), "unexpected end of JSON input"),
        (
            with("\"data\":{\"k\":\"\0\"}"),
            "invalid character '\\x00' in string literal",
        ),
        (String::new(), "unexpected end of JSON input (<empty>)"),
        (
            "\0".to_owned(),
            "invalid character '\\x00' looking for beginning of value (00)",
        ),
    ] {
        refused(&create(&api, JSON, body).await, 400, &format!("{unread}{why}"));
    }
    let huge = format!("1{}", "0".repeat(5000));
    for number in ["1e400", "9223372036854775808", "1.5", &huge] {
        let body = format!(r#"{{"metadata":{{"name":"z","generation":{number}}}}}"#);
        let why = format!(
            "json: cannot unmarshal number {number} into Go struct field ObjectMeta.metadata.generation of type int64"
        );
        refused(&create(&api, JSON, body).await, 400, &why);
    }
    // What is only skipped may nest as deep as Go's reader goes; text that is no UTF-8 is mended, as there.
    let skipped = with(&format!(r#""x":{}"#, nested("[", "]", 9_000)));
    assert_eq!(create(&api, JSON, skipped).await.code(), 201);
    let mut broken = with(r#""data":{"k":"@"}"#).into_bytes();
    let at = broken.iter().position(|byte| *byte == b'@').unwrap();
    broken[at] = 0xff;
    let mended = create(&api, JSON, broken).await.expect(201);
    assert_eq!(text(&mended, "/data/k"), "\u{fffd}");
    refused(
        &create(&api, JSON, " ".repeat(3 * 1024 * 1024 + 1)).await,
        413,
        "Request entity too large: limit is 3145728",
    );
}

#[tokio::test]
async fn long_and_many_things_are_refused_in_bounded_answers() {
    let world = World::start().await;
    let api = world.plane("p").await;
    let named = |metadata: Value| json!({"metadata": metadata}).to_string();
    let long = "k".repeat(300_000);
    for (body, why) in [
        (named(json!({"name": long})), "must be no more than 253 characters"),
        (
            named(json!({"name": "a\0b"})),
            "a lowercase RFC 1123 subdomain must consist of",
        ),
        (
            named(json!({"name": "z", "annotations": {"k": long}})),
            "metadata.annotations: Too long: may not be more than 262144 bytes",
        ),
        (
            named(json!({"name": "z", "finalizers": vec!["x"; 20_000]})),
            "metadata.finalizers[19999]: Invalid value: \"x\": name is neither a standard finalizer name nor is it fully qualified",
        ),
        (
            json!({"metadata": {"name": "z"}, "data": {"k": "v".repeat(1_500_000)}}).to_string(),
            "Too long: may not be more than 1048576 bytes",
        ),
    ] {
        refused(&create(&api, JSON, body).await, 422, why);
    }
    let unknown: serde_json::Map<String, Value> = (0..5000).map(|at| (format!("u{at}"), at.into())).collect();
    let mut body = json!(unknown);
    body["metadata"] = json!({"name": "z"});
    let path = format!("{MAPS}?dryRun=All&fieldValidation=Strict");
    let strict = send(&api, Method::POST, &path, JSON, body.to_string()).await;
    refused(
        &strict,
        400,
        "strict decoding error: unknown field \"u0\", unknown field \"u1\"",
    );
    assert_eq!(strict.message().matches("unknown field").count(), 100);
    let headers = [("content-type", JSON)];
    let path = format!("{MAPS}?dryRun=All");
    let warned = api.send(Method::POST, &path, &headers, body.to_string().into());
    assert_eq!(warned.await.headers().get_all("warning").iter().count(), 100);
    // Long warnings are cut, as upstream cuts them, and told also of a request that fails.
    let long: serde_json::Map<String, Value> = (0..50)
        .map(|at| (format!("{at}{}", "u".repeat(1000)), at.into()))
        .collect();
    let failing = api
        .send(Method::POST, MAPS, &headers, json!(long).to_string().into())
        .await;
    assert_eq!(failing.status(), 422);
    let lengths: Vec<usize> = failing
        .headers()
        .get_all("warning")
        .iter()
        .map(http::HeaderValue::len)
        .collect();
    assert_eq!(lengths, vec![256 + r#"299 - "\""#.len(); 16]);
}

#[tokio::test]
async fn huge_and_deep_patches_are_refused() {
    let world = World::start().await;
    let api = world.plane("p").await;
    api.post(MAPS, &map("a")).await.expect(201);
    let path = format!("{MAPS}/a?dryRun=All&fieldManager=m");
    let patch = |content: &'static str, body: String| send(&api, Method::PATCH, &path, content, body);
    let test = json!({"op": "test", "path": "/data/k", "value": "v"});
    patch(JSON_PATCH, json!(vec![&test; 10_000]).to_string())
        .await
        .expect(200);
    refused(
        &patch(JSON_PATCH, json!(vec![&test; 10_001]).to_string()).await,
        413,
        "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001",
    );
    let doubled: Vec<Value> = (0..30)
        .map(|at| json!({"op": "copy", "from": "", "path": format!("/x{at}")}))
        .collect();
    let far = json!([{"op": "add", "path": "/metadata/managedFields/1000000000", "value": {}}]);
    let long = json!([{"op": "add", "path": "/a".repeat(100_000), "value": 1}]);
    for operations in [json!(doubled), far, long] {
        refused(
            &patch(JSON_PATCH, operations.to_string()).await,
            422,
            "the server rejected our request due to an error in our request",
        );
    }
    let deep = nested(r#"{"a":"#, "}", 10_001);
    let value = format!(r#"[{{"op":"add","path":"/x","value":{deep}}}]"#);
    let body = format!(r#"{{"x":{deep}}}"#);
    let why = "invalid character '{' exceeded max depth";
    refused(&patch(JSON_PATCH, value).await, 400, why);
    refused(&patch(MERGE_PATCH, body.clone()).await, 400, why);
    refused(&patch(STRATEGIC, body.clone()).await, 400, why);
    refused(&patch(APPLY, body).await, 400, "yaml: exceeded max depth of 10000");
    let keys: serde_json::Map<String, Value> = (0..50_000).map(|at| (format!("k{at}"), "v".into())).collect();
    let applied = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": keys});
    let merged = patch(APPLY, applied.to_string()).await.expect(200);
    assert_eq!(merged["data"].as_object().unwrap().len(), 50_001);
}

#[tokio::test]
async fn hostile_protobuf_is_refused() {
    let world = World::start().await;
    let api = world.plane("p").await;
    // An envelope around a message of a config map.
    let sealed = |message: &[u8]| mica_machinery::protobuf::seal("v1", "ConfigMap", message);
    // Groups in groups in groups, none of them ended.
    let groups = b"\x9b\x06".repeat(10_000);
    let kind = "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: ";
    for (message, why) in [
        (&b"\x0a\x05\x0a"[..], "unexpected EOF"),
        (
            b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            "proto: negative length found during unmarshaling",
        ),
        (b"\x0dabcd", "proto: wrong wireType = 5 for field ObjectMeta"),
        (b"\0\0", "proto: ConfigMap: illegal tag 0 (wire type 0)"),
        (&[0xff; 11], "proto: integer overflow"),
        (&groups, "unexpected EOF"),
    ] {
        refused(
            &create(&api, PROTOBUF, sealed(message)).await,
            400,
            &format!("{kind}{why}"),
        );
    }
    let unread = "the object provided is unrecognized (must be of type ConfigMap): ";
    for (body, why) in [
        (&b""[..], "empty data (<empty>)"),
        (b"k8s\0", "empty body (6b387300)"),
        (
            b"{}",
            "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]",
        ),
    ] {
        refused(&create(&api, PROTOBUF, body).await, 400, &format!("{unread}{why}"));
    }
}

#[tokio::test]
async fn enormous_selectors_are_read_and_broken_ones_refused() {
    let world = World::start().await;
    let api = world.plane("p").await;
    let list = |query: String| {
        let api = api.clone();
        async move { api.get(&format!("{MAPS}?{query}")).await }
    };
    let many: Vec<String> = (0..2000).map(|at| format!("k{at}%3Dv")).collect();
    list(format!("labelSelector={}", many.join(","))).await.expect(200);
    let values: Vec<String> = (0..5000).map(|at| format!("v{at}")).collect();
    list(format!("labelSelector=a%20in%20({})", values.join(",")))
        .await
        .expect(200);
    let parens = list(format!("labelSelector={}", "(".repeat(1000))).await;
    refused(&parens, 400, "found '(', expected: !, identifier, or 'end of string'");
    let long = list(format!("labelSelector={}%3Dv", "k".repeat(1000))).await;
    refused(&long, 400, "name part must be no more than 63 bytes");
    let escape = list("fieldSelector=metadata.name%3D%5C".to_owned()).await;
    refused(&escape, 400, "invalid field selector: invalid escape sequence: \\");
    for limit in ["99999999999999999999", "x"] {
        refused(&list(format!("limit={limit}")).await, 400, "strconv.ParseInt: parsing");
    }
    let token = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode("[".repeat(5000));
    refused(
        &list(format!("continue={token}")).await,
        400,
        "invalid continue token: continue key is not valid: unexpected end of JSON input",
    );
}

fn definition(schema: &Value) -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "hs.h.io"},
        "spec": {"group": "h.io", "scope": "Namespaced", "names": {"plural": "hs", "kind": "H"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}})
}

fn spec(spec: Value) -> Value {
    json!({"type": "object", "properties": {"spec": spec}})
}

fn ruled(rule: &str) -> Value {
    spec(
        json!({"type": "object", "x-kubernetes-validations": [{"rule": rule}], "properties": {
        "s": {"type": "string"}, "l": {"type": "array", "items": {"type": "string"}}}}),
    )
}

#[tokio::test]
async fn exponential_schemas_and_rules_are_refused() {
    let world = World::start().await;
    let api = world.plane("p").await;
    let text = |rule: &str| json!({"type": "string", "x-kubernetes-validations": [{"rule": rule}]});
    let listed = |depth: usize| {
        (0..depth).fold(
            text("self.contains('a')"),
            |inner, _| json!({"type": "array", "items": inner}),
        )
    };
    let mapped = |depth: usize| {
        let object = |inner: Value| json!({"type": "object", "additionalProperties": inner});
        (0..depth).fold(text("self.matches('a*b')"), |inner, _| object(inner))
    };
    let over = "Forbidden: estimated rule cost exceeds budget by factor of more than 100x (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)";
    let cases = [
        (spec(listed(3)), over),
        (spec(mapped(3)), over),
        (
            ruled("self.l.all(x, self.l.all(y, self.l.all(z, x == y && y == z)))"),
            over,
        ),
        (
            ruled(&nested("(", ")", 300)),
            "expression recursion limit exceeded: 250",
        ),
        (
            ruled(&format!("1{} > 0", "+1".repeat(300))),
            "max recursion depth exceeded",
        ),
        (
            ruled(&format!("self.s == '{}'", "a".repeat(120_000))),
            "expression code point size exceeds limit",
        ),
        (ruled("\0"), "Syntax error: token recognition error at: '\0'"),
        (
            spec(json!({"type": "object", "$ref": "#"})),
            "$ref: Forbidden: $ref is not supported",
        ),
        (
            spec(json!({"type": "string", "pattern": "(a{1000}){1000}"})),
            "must be a valid regular expression, but isn't: error parsing regexp: invalid repeat count: `{1000}`",
        ),
    ];
    for (schema, why) in cases {
        let answer = send(&api, Method::POST, DEFINITIONS, JSON, definition(&schema).to_string()).await;
        refused(&answer, 422, why);
    }
    // What is merely large is taken.
    let halves = (0..10).fold(json!({"minLength": 1}), |inner, _| json!({"allOf": [inner, inner]}));
    let mut doubled = json!({"type": "string"});
    doubled["allOf"] = halves["allOf"].clone();
    let properties: serde_json::Map<String, Value> = (0..2000)
        .map(|at| (format!("p{at}"), json!({"type": "string"})))
        .collect();
    for schema in [spec(doubled), spec(json!({"type": "object", "properties": properties}))] {
        let body = definition(&schema).to_string();
        send(&api, Method::POST, DEFINITIONS, JSON, body).await.expect(201);
    }
}

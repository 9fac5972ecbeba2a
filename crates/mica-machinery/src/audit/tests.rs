//! Claims about policies and events, in tables.

use std::collections::BTreeMap;

use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::body::{Form, Managed, Omit, shown, status};
use super::*;

fn policy(text: &str) -> Policy {
    let head = "apiVersion: audit.k8s.io/v1\nkind: Policy\n";
    Policy::parse(format!("{head}{text}").as_bytes()).unwrap().0
}

fn refused(text: &str, expected: &Expect) {
    expected.assert_eq(&Policy::parse(text.as_bytes()).unwrap_err().to_string());
}

fn resource<'a>(group: &'a str, path: &'a str, namespace: &'a str, name: &'a str) -> About<'a> {
    let (resource, subresource) = path.split_once('/').unwrap_or((path, ""));
    About::Resource {
        group,
        resource,
        subresource,
        namespace,
        name,
    }
}

#[test]
fn the_first_rule_that_fits_decides() {
    let policy = policy(
        "
omitStages: [RequestReceived]
omitManagedFields: true
rules:
- {level: None, users: [quiet], verbs: [get]}
- {level: Metadata, userGroups: [ops], omitStages: [ResponseStarted], omitManagedFields: false}
- {level: Request, resources: [{group: '', resources: [secrets], resourceNames: [a]}]}
- {level: Request, resources: [{group: apps, resources: ['deployments/*']}, {group: x, resources: ['*/scale']}]}
- {level: RequestResponse, namespaces: ['n', '']}
- {level: Metadata, nonResourceURLs: ['/healthz*', /version]}
",
    );
    let nobody: &[String] = &[];
    let ops = ["ops".to_owned()];
    let plan = |name, groups, verb, about| {
        let user = Some((name, groups));
        policy.plan(&Request { user, verb, about })
    };
    let level = |about| plan("u", nobody, "get", about).level;
    assert_eq!(plan("quiet", &ops, "get", About::Path("/x")).level, Level::None);
    let of_ops = plan("quiet", &ops, "list", About::Path("/x"));
    assert_eq!((of_ops.level, of_ops.omit_managed_fields), (Level::Metadata, false));
    assert!(of_ops.omit.has(Stage::RequestReceived) && of_ops.omit.has(Stage::ResponseStarted));
    for (about, expected) in [
        (resource("", "secrets", "m", "a"), Level::Request),
        (resource("", "secrets", "m", "b"), Level::None),
        (resource("", "secrets/status", "m", "a"), Level::None),
        (resource("apps", "deployments", "m", "a"), Level::Request),
        (resource("apps", "deployments/scale", "m", "a"), Level::Request),
        (resource("x", "things/scale", "m", "a"), Level::Request),
        (resource("x", "things", "m", "a"), Level::None),
        (resource("x", "things", "n", "a"), Level::RequestResponse),
        (resource("x", "things", "", "a"), Level::RequestResponse),
        (About::Path("/healthz/etcd"), Level::Metadata),
        (About::Path("/version"), Level::Metadata),
        (About::Path("/version/x"), Level::None),
    ] {
        assert_eq!(level(about), expected, "{about:?}");
    }
    let rest = plan("u", nobody, "get", About::Path("/other"));
    assert!(rest.omit_managed_fields && rest.omit.has(Stage::RequestReceived));
    let failed = Request {
        user: None,
        verb: "get",
        about: resource("x", "things", "n", "a"),
    };
    assert_eq!(policy.plan(&failed).level, Level::RequestResponse);
}

#[test]
fn what_is_no_policy_is_refused_in_upstreams_words() {
    let head = "apiVersion: audit.k8s.io/v1\nkind: Policy\n";
    refused(
        "kind: Policy\nrules: [{level: None}]",
        &expect!["failed decoding: Object 'apiVersion' is missing in the policy"],
    );
    refused(
        "apiVersion: v1\nkind: Pod",
        &expect![[r#"failed decoding: no kind "Pod" is registered for version "v1""#]],
    );
    refused(
        &format!("{head}rules: [{{level: None, namespaces: [n], verbs: get}}]"),
        &expect![[
            r#"[rules[0].verbs: Invalid value: "get": must be a list of strings, rules[0].namespaces[0]: Invalid value: false: must be a string]"#
        ]],
    );
    refused(head, &expect!["loaded illegal policy with 0 rules"]);
    refused(
        &format!("{head}omitStages: [Foo]\nrules: [{{}}, {{level: FooBar}}]"),
        &expect![[
            r#"[omitStages[0]: Invalid value: "Foo": allowed stages are RequestReceived,ResponseStarted,ResponseComplete,Panic, rules[0].level: Required value, rules[1].level: Unsupported value: "FooBar": supported values: "None", "Metadata", "Request", "RequestResponse"]"#
        ]],
    );
    refused(
        &format!("{head}rules: [{{level: None, nonResourceURLs: [logs, '/a*b'], namespaces: [x]}}]"),
        &expect![[
            r#"[rules[0].nonResourceURLs[0]: Invalid value: "logs": non-resource URL rules must begin with a '/' character, rules[0].nonResourceURLs[1]: Invalid value: "/a*b": non-resource URL wildcards '*' must be the final character of the rule, rules[0].nonResourceURLs: Invalid value: ["logs","/a*b"]: rules cannot apply to both regular resources and non-resource URLs]"#
        ]],
    );
    refused(
        &format!("{head}rules: [{{level: None, resources: [{{group: a/v1, resourceNames: [x]}}]}}]"),
        &expect![[
            r#"[rules[0].resources.group: Invalid value: "a/v1": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*'), rules[0].resources.resourceNames: Invalid value: ["x"]: using resourceNames requires at least one resource]"#
        ]],
    );
}

#[test]
fn unknown_fields_are_told_and_ignored() {
    let text = "apiVersion: audit.k8s.io/v1\nkind: Policy\nlevel: x\nrules: [{level: None, verb: get}]";
    let (_, unknown) = Policy::parse(text.as_bytes()).unwrap();
    assert_eq!(unknown, ["unknown field \"level\"", "unknown field \"rules[0].verb\""]);
}

#[test]
fn an_event_reads_as_upstreams() {
    let groups = ["system:masters".to_owned()];
    let extra = [("k/x".to_owned(), vec!["v".to_owned()])];
    let annotations = BTreeMap::from([("a/b".to_owned(), "c\"d".to_owned())]);
    let status = json!({"kind": "Status", "metadata": {"continue": "x"}, "status": "Failure", "message": "m",
        "reason": "NotFound", "details": {"name": "n"}, "code": 9});
    let ips = ["127.0.0.1".parse().unwrap(), "::1".parse().unwrap()];
    let event = Event {
        level: Level::RequestResponse,
        audit_id: "id",
        stage: Stage::ResponseComplete,
        request_uri: "/api?a=b&c",
        verb: "get",
        user: Some(Person {
            name: "admin",
            uid: "",
            groups: &groups,
            extra: &extra,
        }),
        impersonated: None,
        source_ips: &ips,
        user_agent: "curl/7",
        object: Some(ObjectRef {
            resource: "pods",
            name: "n",
            version: "v1",
            ..ObjectRef::default()
        }),
        code: Some(Code {
            code: 404,
            status: Some(&status),
        }),
        request: None,
        response: Some(b"{}"),
        received: "2026-11-15T14:03:06.4247Z".parse().unwrap(),
        reached: "2026-11-15T14:03:07Z".parse().unwrap(),
        annotations: &annotations,
    };
    expect![[r#"
        {"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"RequestResponse","auditID":"id","stage":"ResponseComplete","requestURI":"/api?a=b&c","verb":"get","user":{"username":"admin","groups":["system:masters"],"extra":{"k/x":["v"]}},"sourceIPs":["127.0.0.1","::1"],"userAgent":"curl/7","objectRef":{"resource":"pods","name":"n","apiVersion":"v1"},"responseStatus":{"metadata":{},"status":"Failure","message":"m","reason":"NotFound","details":{"name":"n"},"code":404},"responseObject":{},"requestReceivedTimestamp":"2026-11-15T14:03:06.424700Z","stageTimestamp":"2026-11-15T14:03:07.000000Z","annotations":{"a/b":"c\"d"}}
    "#]].assert_eq(std::str::from_utf8(&event.to_line()).unwrap());
    expect![[r#"
        2026-11-15T14:03:06.4247Z AUDIT: id="id" stage="ResponseComplete" ip="127.0.0.1" method="get" user="admin" groups="\"system:masters\"" as="<self>" asgroups="<lookup>" user-agent="curl/7" namespace="<none>" uri="/api?a=b&c" response="404"
    "#]].assert_eq(&event.to_legacy());
}

#[test]
fn long_user_agents_are_cut() {
    let shown = shown_user_agent(&"\u{e9}".repeat(600));
    assert!(
        shown.ends_with("...TRUNCATED") && shown.len() == 1024 + 12,
        "{}",
        shown.len()
    );
}

fn seen(body: &str, form: Form, omit: Omit) -> Value {
    serde_json::from_slice(&shown(body.as_bytes(), form, omit).unwrap()).unwrap()
}

#[test]
fn bodies_are_json_on_one_line_without_what_must_not_be_kept() {
    let all = Omit::of("", "pods", "", Managed::Shown);
    assert_eq!(shown(b"{\n \"a\": 1}\n", Form::Json, all).unwrap(), b"{ \"a\": 1}");
    assert_eq!(shown(b"{", Form::Json, all), None);
    assert_eq!(seen("a: 1", Form::Yaml, all), json!({"a": 1}));
    let few = Omit::of("", "pods", "", Managed::Omitted);
    let object = r#"{"metadata":{"name":"x","managedFields":[1]}}"#;
    assert_eq!(seen(object, Form::Json, few), json!({"metadata": {"name": "x"}}));
    assert_eq!(seen(object, Form::Json, all)["metadata"]["managedFields"], json!([1]));
    let escaped = object.replace("managedF", "\\u006danagedF");
    assert_eq!(seen(&escaped, Form::Json, few), json!({"metadata": {"name": "x"}}));
    let list = format!(r#"{{"items":[{object}],"rows":[{{"object":{object}}}]}}"#);
    let bare = json!({"metadata": {"name": "x"}});
    assert_eq!(
        seen(&list, Form::Json, few),
        json!({"items": [bare], "rows": [{"object": bare}]})
    );
    let review = Omit::of("authentication.k8s.io", "tokenreviews", "", Managed::Shown);
    assert_eq!(
        seen(r#"{"spec":{"token":"s3cret"}}"#, Form::Json, review),
        json!({"spec": {}})
    );
    let request = Omit::of("", "serviceaccounts", "token", Managed::Shown);
    assert_eq!(
        seen(r#"{"status":{"token":"s3cret"}}"#, Form::Json, request),
        json!({"status": {}})
    );
}

#[test]
fn a_status_is_known_by_its_beginning() {
    let answer = br#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success"}"#;
    assert_eq!(status(answer, Form::Json).unwrap()["status"], "Success");
    assert_eq!(
        status(br#"{"kind":"Pod","apiVersion":"v1","x":"Status"}"#, Form::Json),
        None
    );
    assert_eq!(status(b"a", Form::Json), None);
}

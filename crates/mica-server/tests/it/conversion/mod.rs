//! Conversion webhooks: what counts as an answer. The texts are those that a kube-apiserver 1.36 gave to the same answers.

use std::sync::Arc;
mod served;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mica_server::conversion::Converter;
use mica_server::egress::{Egress, EgressOptions, Tenant};
use mica_server::metrics::Registry;
use serde_json::{Value, json};

use super::hook::{Answer, Hook, Seen};

const V1: &str = "g.example/v1";
const V2: &str = "g.example/v2";

fn converter() -> (Converter, Arc<Registry>) {
    let metrics = Arc::new(Registry::new());
    (Converter::new(Egress::new(EgressOptions::default()), &metrics), metrics)
}

fn conversion(hook: &Hook, mode: &str, reviews: &[&str]) -> Value {
    json!({"strategy": "Webhook", "webhook": {
        "clientConfig": hook.client_config(&format!("/{mode}")), "conversionReviewVersions": reviews}})
}

fn sample(version: &str, name: &str) -> Value {
    json!({"apiVersion": version, "kind": "Thing", "spec": {"hostPort": "h:1"},
        "metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}"), "generation": 3,
            "labels": {"l": "1"}, "finalizers": ["a/b"]}})
}

/// Moves `hostPort` to `host` and `port`, or back.
pub fn convert_well(object: &Value, desired: &str) -> Value {
    let mut object = object.clone();
    object["apiVersion"] = desired.into();
    let Some(spec) = object["spec"].as_object_mut() else {
        return object;
    };
    if desired.ends_with("v2") {
        if let Some(text) = spec.remove("hostPort") {
            let (host, port) = text.as_str().unwrap().split_once(':').unwrap();
            spec.insert("host".to_owned(), host.into());
            spec.insert("port".to_owned(), port.into());
        }
    } else if let (Some(host), Some(port)) = (spec.remove("host"), spec.remove("port")) {
        let text = format!("{}:{}", host.as_str().unwrap(), port.as_str().unwrap());
        spec.insert("hostPort".to_owned(), text.into());
    }
    object
}

/// The answer of a webhook that does its work.
pub fn review(seen: &Seen) -> Value {
    let request = &seen.body["request"];
    let desired = request["desiredAPIVersion"].as_str().unwrap();
    let objects = request["objects"].as_array().unwrap();
    let converted: Vec<Value> = objects.iter().map(|object| convert_well(object, desired)).collect();
    json!({"kind": "ConversionReview", "apiVersion": seen.body["apiVersion"],
        "response": {"uid": request["uid"], "convertedObjects": converted, "result": {"status": "Success"}}})
}

/// A good answer, spoilt as the path says.
fn spoilt(seen: &Seen) -> Answer {
    let mut review = review(seen);
    let mode = seen
        .path()
        .split('?')
        .next()
        .unwrap_or_default()
        .trim_start_matches('/')
        .to_owned();
    let remove = |value: &mut Value, name: &str| {
        value.as_object_mut().unwrap().remove(name);
    };
    let response = &mut review["response"];
    let first = &mut response["convertedObjects"][0];
    match mode.as_str() {
        "wrongversion" => first["apiVersion"] = "x.example.com/v9".into(),
        "badgv" => first["apiVersion"] = "a/b/c".into(),
        "wrongkind" => first["kind"] = "Other".into(),
        "nokind" => remove(first, "kind"),
        "wrongname" => first["metadata"]["name"] = "other".into(),
        "wrongns" => first["metadata"]["namespace"] = "other".into(),
        "wrongmetauid" => first["metadata"]["uid"] = "other".into(),
        "nometa" => remove(first, "metadata"),
        "badmeta" => first["metadata"] = "x".into(),
        "badlabels" => first["metadata"]["labels"] = "x".into(),
        "numlabel" => first["metadata"]["labels"] = json!({"a": 1}),
        "nulllabel" => first["metadata"]["labels"] = json!({"a": null}),
        "invalidlabel" => first["metadata"]["labels"] = json!({"a": "c d"}),
        "invalidannotation" => first["metadata"]["annotations"] = json!({"a b": "c"}),
        "notobject" => *first = "str".into(),
        "nullobject" => *first = Value::Null,
        "metachange" => {
            first["metadata"]["labels"] = json!({"x": "y"});
            first["metadata"]["finalizers"] = json!(["c/d"]);
            first["metadata"]["generation"] = 99.into();
            first["metadata"]["annotations"] = json!({"n": "1"});
        }
        "nolabels" => remove(&mut first["metadata"], "labels"),
        "nocount" => response["convertedObjects"] = json!([]),
        "nullconverted" => response["convertedObjects"] = Value::Null,
        "wrongtype" => response["convertedObjects"] = "x".into(),
        "extra" => {
            let copy = first.clone();
            response["convertedObjects"].as_array_mut().unwrap().push(copy);
        }
        "failed" => response["result"] = json!({"status": "Failed", "message": "I will not"}),
        "failednomsg" => response["result"] = json!({"status": "Failed"}),
        "noresult" => response["result"] = json!({}),
        "wronguid" => response["uid"] = "nope".into(),
        "nouid" => remove(response, "uid"),
        "numuid" => response["uid"] = 1.into(),
        "noresponse" => remove(&mut review, "response"),
        "otherreview" => {
            let other = match review["apiVersion"].as_str().unwrap() {
                "apiextensions.k8s.io/v1" => "apiextensions.k8s.io/v1beta1",
                _ => "apiextensions.k8s.io/v1",
            };
            review["apiVersion"] = other.into();
        }
        "unknownreview" => review["kind"] = "Other".into(),
        "status" => review = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "m"}),
        "noapiversion" => remove(&mut review, "apiVersion"),
        "nokindreview" => remove(&mut review, "kind"),
        "unknownfield" => review["foo"] = 1.into(),
        "notjson" => {
            return Answer::Reply {
                code: 200,
                content_type: Some("application/json"),
                body: "not json".to_owned(),
            };
        }
        "hang" => return Answer::Hang(Vec::new()),
        "panic" => return Answer::Raw(Vec::new()),
        other => assert_eq!(other, "ok"),
    }
    Answer::Json(review)
}

#[tokio::test]
async fn answers_that_do_not_count_fail_in_upstreams_words() {
    let hook = Hook::start(spoilt).await;
    let (converter, metrics) = converter();
    let label_rule = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
    let key_rule = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
    let cases: Vec<(&str, String)> = vec![
        ("wrongversion", "@ returned invalid object at index 0: invalid groupVersion (expected g.example/v2, received x.example.com/v9)".into()),
        ("wrongkind", "@ returned invalid object at index 0: invalid kind (expected Thing, received Other)".into()),
        ("wrongname", "@ returned invalid object: must have the same name: a != other".into()),
        ("wrongns", "@ returned invalid object: must have the same namespace: default != other".into()),
        ("wrongmetauid", "@ returned invalid object: must have the same UID: uid-a != other".into()),
        ("nometa", "@ returned invalid object: must have the same name: a != ".into()),
        ("badmeta", "@ returned invalid object: must have the same name: a != ".into()),
        ("badlabels", "@ returned invalid metadata: invalid metadata.labels of type string in converted object".into()),
        ("numlabel", "@ returned invalid metadata: metadata.labels[a] must be a string, but is int64 in converted object".into()),
        ("nulllabel", "@ returned invalid metadata: metadata.labels[a] must be a string, but is <nil> in converted object".into()),
        ("invalidlabel", format!("@ returned invalid metadata: metadata.labels: Invalid value: \"c d\": {label_rule}")),
        ("invalidannotation", format!("@ returned invalid metadata: metadata.annotation: Invalid value: \"a b\": {key_rule}")),
        ("notobject", "json: cannot unmarshal string into Go value of type map[string]interface {}".into()),
        ("nullobject", "unexpected end of JSON input".into()),
        ("nocount", "@ returned 0 objects, expected 1".into()),
        ("nullconverted", "@ returned 0 objects, expected 1".into()),
        ("extra", "@ returned 2 objects, expected 1".into()),
        ("wrongtype", "@ failed: json: cannot unmarshal string into Go struct field ConversionResponse.response.convertedObjects of type []runtime.RawExtension".into()),
        ("numuid", "@ failed: json: cannot unmarshal number into Go struct field ConversionResponse.response.uid of type types.UID".into()),
        ("failed", "@ failed: I will not".into()),
        ("failednomsg", "@ failed: response.result.status was 'Failed', not 'Success'".into()),
        ("noresult", "@ failed: response.result.status was '', not 'Success'".into()),
        ("noresponse", "@ failed: no response provided".into()),
        ("otherreview", "@ failed: converting (v1beta1.ConversionReview) to (v1.ConversionReview): unknown conversion".into()),
        ("status", "@ failed: converting (v1.Status) to (v1.ConversionReview): unknown conversion".into()),
        ("unknownreview", "@ failed: no kind \"Other\" is registered for version \"apiextensions.k8s.io/v1\" in scheme \"k8s.io/apiserver/pkg/util/webhook/client.go:71\"".into()),
        ("noapiversion", "@ failed: expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got /, Kind=ConversionReview".into()),
        ("nokindreview", "@ failed: expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got apiextensions.k8s.io/v1, Kind=".into()),
        ("notjson", "@ failed: couldn't get version/kind; json parse error: json: cannot unmarshal string into Go value of type struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }".into()),
        ("panic", format!("@ failed: Post \"https://{}/panic?timeout=30s\": EOF", hook.addr)),
    ];
    let text = async |mode: &str, reviews: &[&str]| {
        let rules = conversion(&hook, mode, reviews);
        let done = converter
            .convert(Tenant::Platform, &rules, V2, vec![sample(V1, "a")])
            .await;
        done.map_err(|error| (error.code().as_u16(), error.message().to_owned()))
    };
    let failures = cases.len();
    for (mode, expected) in cases {
        let expected = expected.replacen('@', "conversion webhook for g.example/v1, Kind=Thing", 1);
        assert_eq!(text(mode, &["v1", "v1beta1"]).await, Err((500, expected)), "{mode}");
    }
    for mode in ["nokind", "badgv"] {
        let (_, message) = text(mode, &["v1"]).await.unwrap_err();
        assert!(
            message.starts_with("Object 'Kind' is missing in '{\"apiVersion\":\""),
            "{message}"
        );
    }
    let (_, message) = text("wronguid", &["v1"]).await.unwrap_err();
    assert!(
        message.contains(" failed: expected response.uid=\"") && message.ends_with(", got \"nope\""),
        "{message}"
    );
    let (_, message) = text("nouid", &["v1"]).await.unwrap_err();
    assert!(message.ends_with("\", got \"\""), "{message}");
    let unsupported = text("ok", &["v2"]).await;
    assert_eq!(
        unsupported,
        Err((500, "no supported conversion review versions".to_owned()))
    );
    assert!(text("unknownfield", &["v1"]).await.is_ok());
    let counted = metrics.encode();
    let count = |kind: &str| {
        let line = counted.lines().find(|line| {
            line.starts_with("apiserver_conversion_webhook_request_total") && line.contains(&format!("\"{kind}\""))
        });
        line.map_or(0, |line| line.rsplit_once(' ').unwrap().1.parse().unwrap())
    };
    let kinds = [
        "conversion_webhook_call_failure",
        "conversion_webhook_malformed_response_failure",
        "conversion_webhook_partial_response_failure",
        "conversion_webhook_invalid_converted_object_failure",
    ];
    assert_eq!(kinds.map(count).iter().sum::<usize>(), failures + 4, "{counted}");
    assert_eq!(count("success"), 1);
}

#[tokio::test]
async fn the_older_review_is_checked_less() {
    let hook = Hook::start(spoilt).await;
    let (converter, _) = converter();
    for mode in ["ok", "wronguid", "nouid", "noapiversion", "nokindreview"] {
        let rules = conversion(&hook, mode, &["v1beta1"]);
        let done = converter
            .convert(Tenant::Platform, &rules, V2, vec![sample(V1, "a")])
            .await;
        assert_eq!(done.unwrap()[0]["spec"], json!({"host": "h", "port": "1"}), "{mode}");
    }
    let rules = conversion(&hook, "otherreview", &["v3", "v1beta1", "v1"]);
    let done = converter
        .convert(Tenant::Platform, &rules, V2, vec![sample(V1, "a")])
        .await;
    assert_eq!(
        done.unwrap_err().message(),
        "conversion webhook for g.example/v1, Kind=Thing failed: converting (v1.ConversionReview) to (v1beta1.ConversionReview): unknown conversion"
    );
    assert_eq!(
        hook.seen().last().unwrap().body["apiVersion"],
        "apiextensions.k8s.io/v1beta1"
    );
}

#[tokio::test]
async fn a_review_asks_for_what_is_not_there_yet_and_only_that() {
    let hook = Hook::start(spoilt).await;
    let (converter, _) = converter();
    let rules = conversion(&hook, "ok", &["v1"]);
    let bare = json!({"apiVersion": V1, "kind": "Thing"});
    let objects = vec![
        sample(V2, "a"),
        sample(V1, "b"),
        bare.clone(),
        sample(V1, "c"),
        sample(V2, "d"),
    ];
    let done = converter.convert(Tenant::Platform, &rules, V2, objects).await.unwrap();
    let names: Vec<&str> = done
        .iter()
        .map(|object| object["metadata"]["name"].as_str().unwrap_or("-"))
        .collect();
    assert_eq!(names, ["a", "b", "-", "c", "d"]);
    assert!(done.iter().all(|object| object["apiVersion"] == V2));
    assert_eq!(done[1]["spec"], json!({"host": "h", "port": "1"}));
    assert_eq!(done[0]["spec"], json!({"hostPort": "h:1"}));
    let seen = hook.seen();
    assert_eq!(seen.len(), 1);
    let body = &seen[0].body;
    let uid = &body["request"]["uid"];
    assert_eq!(uid.as_str().unwrap().len(), 36);
    assert_eq!(
        *body,
        json!({"kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1",
            "request": {"uid": uid, "desiredAPIVersion": V2, "objects": [sample(V1, "b"), sample(V1, "c")]},
            "response": {"uid": "", "convertedObjects": null, "result": {"metadata": {}}}})
    );
    for (objects, desired) in [(vec![], V2), (vec![sample(V2, "a")], V2), (vec![bare], V2)] {
        converter
            .convert(Tenant::Platform, &rules, desired, objects)
            .await
            .unwrap();
    }
    assert_eq!(hook.seen().len(), 1, "nothing to convert is nothing to ask");
}

#[tokio::test]
async fn metadata_stays_but_for_labels_and_annotations() {
    let hook = Hook::start(spoilt).await;
    let (converter, _) = converter();
    let convert = async |mode: &str, object: Value| {
        let rules = conversion(&hook, mode, &["v1"]);
        let done = converter.convert(Tenant::Platform, &rules, V2, vec![object]).await;
        done.map(|mut objects| objects.remove(0)["metadata"].take())
    };
    let mut expected = sample(V1, "a")["metadata"].take();
    expected["labels"] = json!({"x": "y"});
    expected["annotations"] = json!({"n": "1"});
    assert_eq!(convert("metachange", sample(V1, "a")).await.unwrap(), expected);
    let mut expected = sample(V1, "a")["metadata"].take();
    expected.as_object_mut().unwrap().remove("labels");
    assert_eq!(convert("nolabels", sample(V1, "a")).await.unwrap(), expected);
    // Labels that would not be taken today stay if the webhook does.
    let mut old = sample(V1, "a");
    old["metadata"]["labels"] = json!({"a": "not valid"});
    assert_eq!(convert("ok", old.clone()).await.unwrap(), old["metadata"]);
}

#[tokio::test]
async fn lists_go_in_batches_and_come_back_in_order() {
    let hook = Hook::start(spoilt).await;
    let (converter, _) = converter();
    let rules = conversion(&hook, "ok", &["v1"]);
    let objects: Vec<Value> = (0..1050).map(|i| sample(V1, &format!("n{i}"))).collect();
    let done = converter.convert(Tenant::Platform, &rules, V2, objects).await.unwrap();
    for (i, object) in done.iter().enumerate() {
        assert_eq!(object["metadata"]["name"], format!("n{i}"));
        assert_eq!(object["spec"]["host"], "h");
    }
    assert_eq!(hook.seen().len(), 11);
    assert!(hook.connections() <= 4, "a few at once: {}", hook.connections());
    let big: Vec<Value> = (0..3)
        .map(|i| {
            let mut object = sample(V1, &format!("b{i}"));
            object["spec"]["filling"] = "x".repeat(5 << 20).into();
            object
        })
        .collect();
    assert_eq!(
        converter
            .convert(Tenant::Platform, &rules, V2, big)
            .await
            .unwrap()
            .len(),
        3
    );
    assert_eq!(hook.seen().len(), 14, "large objects go alone");
}

#[tokio::test]
async fn one_bad_object_fails_all() {
    let hook = Hook::start(|seen| {
        let mut review = review(seen);
        for object in review["response"]["convertedObjects"].as_array_mut().unwrap() {
            if object["metadata"]["name"] == "n150" {
                object["kind"] = "Other".into();
            }
        }
        Answer::Json(review)
    })
    .await;
    let (converter, _) = converter();
    let rules = conversion(&hook, "ok", &["v1"]);
    let objects: Vec<Value> = (0..300).map(|i| sample(V1, &format!("n{i}"))).collect();
    let failed = converter
        .convert(Tenant::Platform, &rules, V2, objects)
        .await
        .unwrap_err();
    assert!(
        failed
            .message()
            .contains("invalid kind (expected Thing, received Other)"),
        "{failed}"
    );
}

#[tokio::test]
async fn a_webhook_that_hangs_costs_its_time_and_recovers() {
    let well = Arc::new(AtomicBool::new(false));
    let is_well = well.clone();
    let hook = Hook::start(move |seen| match is_well.load(Ordering::SeqCst) {
        true => Answer::Json(review(seen)),
        false => Answer::Hang(Vec::new()),
    })
    .await;
    let (converter, _) = converter();
    let converter = converter.with_timeout(Duration::from_millis(300));
    let rules = conversion(&hook, "x", &["v1"]);
    let failed = converter
        .convert(Tenant::Platform, &rules, V2, vec![sample(V1, "a")])
        .await;
    assert_eq!(
        failed.unwrap_err().message(),
        format!(
            "conversion webhook for g.example/v1, Kind=Thing failed: Post \"https://{}/x?timeout=300ms\": net/http: request canceled (Client.Timeout exceeded while awaiting headers)",
            hook.addr
        )
    );
    well.store(true, Ordering::SeqCst);
    let converter = converter.with_timeout(Duration::from_secs(30));
    let done = converter
        .convert(Tenant::Platform, &rules, V2, vec![sample(V1, "a")])
        .await;
    assert!(done.is_ok());
}

#[tokio::test]
async fn without_a_webhook_only_the_version_changes() {
    let (converter, _) = converter();
    let done = converter
        .convert(
            Tenant::Platform,
            &json!({"strategy": "None"}),
            V2,
            vec![sample(V1, "a")],
        )
        .await;
    assert_eq!(done.unwrap(), [sample(V2, "a")]);
}

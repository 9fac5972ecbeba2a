//! What webhooks' answers do.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use super::super::hook::{Answer, Hook};
use super::super::world::{MAPS, World, labelled, map, namespace};
use super::{MUTATING, VALIDATING, answer, briefs, configuration, mutating, patch, validating, webhook, yes};

fn label(name: &str, value: &str) -> Value {
    json!([{"op": "add", "path": "/metadata/labels", "value": {name: value}}])
}

#[tokio::test]
async fn a_mutating_webhook_changes_what_is_stored() {
    let hook = Hook::start(|seen| patch(seen, label("seen", "yes"))).await;
    let world = World::start().await;
    let api = world.root().await;
    mutating(&api, "a", &[webhook(&hook.client_config("/mutate"), |_| {})]).await;
    let made = api.post(MAPS, &map("a")).await.expect(201);
    assert_eq!(made["metadata"]["labels"], json!({"seen": "yes"}));
    // Nobody manages what a webhook set.
    assert!(!made["metadata"]["managedFields"].to_string().contains("seen"));
    let read = api.get(&format!("{MAPS}/a")).await.expect(200);
    assert_eq!(read["metadata"]["labels"], json!({"seen": "yes"}));
    assert_eq!(hook.seen()[0].path(), "/mutate?timeout=10s");
    let empty = json!({"metadata": {"labels": null}});
    let changed = api.patch(&format!("{MAPS}/a"), &empty).await.expect(200);
    assert_eq!(changed["metadata"]["labels"], json!({"seen": "yes"}));
}

#[tokio::test]
async fn a_refusal_is_answered_as_the_webhook_words_it() {
    let hook = Hook::start(|seen| {
        let name = seen.body["request"]["name"].as_str().unwrap();
        let status = match name {
            "plain" => return answer(seen, json!({"allowed": false})),
            "coded" => {
                json!({"code": 409, "reason": "AlreadyExists", "message": "not again", "details": {"name": "x"}})
            }
            "reasoned" => json!({"reason": "Teapot"}),
            _ => return answer(seen, json!({"allowed": true, "warnings": ["mind the gap"]})),
        };
        answer(
            seen,
            json!({"allowed": false, "status": status, "warnings": ["it was close"]}),
        )
    })
    .await;
    let world = World::start().await;
    let api = world.root().await;
    validating(&api, "a", &[webhook(&hook.client_config("/"), |_| {})]).await;
    let plain = api.post(MAPS, &map("plain")).await;
    let by = "admission webhook \"a.hook.example\" denied the request";
    assert_eq!(
        (plain.code(), plain.message()),
        (400, format!("{by} without explanation"))
    );
    assert_eq!(plain.json().get("reason"), None);
    let coded = api.post(MAPS, &map("coded")).await;
    assert_eq!((coded.code(), coded.message()), (409, format!("{by}: not again")));
    assert_eq!(coded.json()["details"], json!({"name": "x"}));
    assert_eq!(coded.header("warning"), "299 - \"it was close\"");
    let reasoned = api.post(MAPS, &map("reasoned")).await;
    assert_eq!((reasoned.code(), reasoned.message()), (400, format!("{by}: Teapot")));
    let made = api.post(MAPS, &map("fine")).await;
    assert_eq!((made.code(), made.header("warning")), (201, "299 - \"mind the gap\""));
    assert_eq!(api.get(&format!("{MAPS}/coded")).await.code(), 404);
}

#[tokio::test]
async fn a_failed_webhook_fails_its_requests_unless_it_is_to_be_ignored() {
    let hook = Hook::start(|seen| match seen.body["request"]["name"].as_str().unwrap() {
        "uid" => Answer::Json(json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "response": {"uid": "other", "allowed": true}})),
        "none" => Answer::Json(json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"})),
        "patch" => patch(seen, label("a", "b")),
        _ => Answer::Reply {
            code: 503,
            content_type: Some("text/plain"),
            body: "busy".to_owned(),
        },
    })
    .await;
    let world = World::start().await;
    let api = world.root().await;
    validating(&api, "a", &[webhook(&hook.client_config("/"), |_| {})]).await;
    let failed = "Internal error occurred: failed calling webhook \"a.hook.example\": ";
    for (name, why) in [
        ("none", "received invalid webhook response: webhook response was absent"),
        (
            "patch",
            "received invalid webhook response: validating webhook may not return response.patch",
        ),
        (
            "busy",
            "failed to call webhook: the server is currently unable to handle the request",
        ),
    ] {
        let refused = api.post(MAPS, &map(name)).await;
        assert_eq!((refused.code(), refused.message()), (500, format!("{failed}{why}")));
        assert_eq!(refused.json()["reason"], "InternalError");
    }
    let other = api.post(MAPS, &map("uid")).await.message();
    assert!(
        other.contains("expected response.uid=") && other.ends_with("got \"other\""),
        "{other}"
    );
    let ignored = webhook(&hook.client_config("/"), |hook| hook["failurePolicy"] = "Ignore".into());
    let path = format!("{VALIDATING}/a");
    api.delete(&path).await.expect(200);
    validating(&api, "a", &[ignored]).await;
    for name in ["none", "patch", "busy", "uid"] {
        api.post(MAPS, &map(name)).await.expect(201);
    }
}

#[tokio::test]
async fn a_webhook_with_side_effects_refuses_dry_runs() {
    let hook = Hook::start(yes).await;
    let world = World::start().await;
    let api = world.root().await;
    validating(&api, "a", &[webhook(&hook.client_config("/"), |_| {})]).await;
    api.post(&format!("{MAPS}?dryRun=All"), &map("a")).await.expect(201);
    assert_eq!(hook.seen()[0].body["request"]["dryRun"], true);
    // Only what is older than the rule against it may have effects: it is put where it was.
    let key = format!("{VALIDATING}/a");
    let mut stored = api.get(&key).await.expect(200);
    stored["webhooks"][0]["sideEffects"] = "Some".into();
    assert_eq!(api.put(&key, &stored).await.code(), 422);
}

#[tokio::test]
async fn webhooks_are_asked_again_when_those_after_them_change_something() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let first = Hook::start(move |seen| {
        let round = count.fetch_add(1, Ordering::SeqCst);
        let object = &seen.body["request"]["object"];
        assert_eq!(object["metadata"]["labels"].is_object(), round == 1, "{object}");
        yes(seen)
    })
    .await;
    let second = Hook::start(|seen| patch(seen, label("late", "yes"))).await;
    let world = World::start().await;
    let api = world.root().await;
    let again = |client: &Value, policy: &str| webhook(client, |hook| hook["reinvocationPolicy"] = policy.into());
    mutating(&api, "a", &[again(&first.client_config("/"), "IfNeeded")]).await;
    mutating(&api, "b", &[again(&second.client_config("/"), "Never")]).await;
    api.post(MAPS, &map("a")).await.expect(201);
    assert_eq!((asked.load(Ordering::SeqCst), second.seen().len()), (2, 1));
}

#[tokio::test]
async fn configurations_are_asked_in_the_order_of_their_names() {
    let hook = Hook::start(|seen| {
        let path = seen
            .path()
            .split('?')
            .next()
            .unwrap()
            .trim_start_matches('/')
            .to_owned();
        let before = seen.body["request"]["object"]["data"]["k"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        patch(
            seen,
            json!([{"op": "replace", "path": "/data/k", "value": format!("{before}{path}")}]),
        )
    })
    .await;
    let world = World::start().await;
    let api = world.root().await;
    let at = |path: &str, name: &str| webhook(&hook.client_config(path), |hook| hook["name"] = name.into());
    mutating(&api, "b", &[at("/3", "z.hook.example"), at("/4", "a.hook.example")]).await;
    mutating(&api, "a", &[at("/2", "b.hook.example")]).await;
    let made = api.post(MAPS, &map("a")).await.expect(201);
    assert_eq!(made["data"]["k"], "v234");
}

#[tokio::test]
async fn selectors_and_conditions_choose_what_is_asked() {
    let hook = Hook::start(yes).await;
    let world = World::start().await;
    let api = world.root().await;
    let mut chosen = namespace("chosen");
    chosen["metadata"]["labels"] = json!({"chosen": "yes"});
    api.post("/api/v1/namespaces", &chosen).await.expect(201);
    let rules = webhook(&hook.client_config("/"), |hook| {
        hook["namespaceSelector"] = json!({"matchLabels": {"chosen": "yes"}});
        hook["objectSelector"] = json!({"matchLabels": {"l": "in"}});
        hook["matchConditions"] = json!([{"name": "c", "expression": "object == null || object.metadata.name != 'not-me'"},
            {"name": "d", "expression": "authorizer.requestResource.check('create').allowed()"}]);
    });
    validating(&api, "a", &[rules]).await;
    let maps = "/api/v1/namespaces/chosen/configmaps";
    for (path, name, label) in [
        (MAPS, "elsewhere", "in"),
        (maps, "unlabelled", "out"),
        (maps, "not-me", "in"),
        (maps, "me", "in"),
    ] {
        api.post(path, &labelled(name, label)).await.expect(201);
    }
    // Either the old or the new object may be selected.
    let out = json!({"metadata": {"labels": {"l": "out"}}});
    api.patch(&format!("{maps}/me"), &out).await.expect(200);
    api.patch(&format!("{maps}/me"), &out).await.expect(200);
    assert_eq!(briefs(&hook), ["CREATE configmaps me", "UPDATE configmaps me"]);
    let failing = webhook(&hook.client_config("/"), |hook| {
        hook["name"] = "b.hook.example".into();
        hook["matchConditions"] = json!([{"name": "c", "expression": "object.data.nothing == ''"}]);
    });
    validating(&api, "b", &[failing]).await;
    assert_eq!(
        api.post(MAPS, &map("x")).await.message(),
        "configmaps \"x\" is forbidden: expression 'object.data.nothing == ''' resulted in error: no such key: nothing"
    );
}

#[tokio::test]
async fn whoever_breaks_admission_can_mend_it() {
    let world = World::start().await;
    let api = world.root().await;
    let all = json!([{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}]);
    let broken = webhook(&json!({"url": "https://127.0.0.1:1/"}), |hook| hook["rules"] = all);
    validating(&api, "a", std::slice::from_ref(&broken)).await;
    mutating(&api, "a", &[broken]).await;
    let refused = api.post(MAPS, &map("a")).await;
    assert_eq!(
        (refused.code(), refused.message().as_str()),
        (
            500,
            "Internal error occurred: failed calling webhook \"a.hook.example\": failed to call webhook: \
             Post \"https://127.0.0.1:1/?timeout=10s\": dial tcp 127.0.0.1:1: connect: connection refused"
        )
    );
    api.post(VALIDATING, &configuration("ValidatingWebhookConfiguration", "b", &[]))
        .await
        .expect(201);
    api.delete(&format!("{VALIDATING}/a")).await.expect(200);
    api.delete(&format!("{MUTATING}/a")).await.expect(200);
    api.post(MAPS, &map("a")).await.expect(201);
}

#[tokio::test]
async fn what_a_webhook_leaves_is_defaulted_and_validated() {
    let hook = Hook::start(|seen| match seen.body["request"]["name"].as_str().unwrap() {
        "owned" => {
            let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u"});
            patch(
                seen,
                json!([{"op": "add", "path": "/metadata/ownerReferences", "value": [owner, owner]}]),
            )
        }
        "managed" => patch(
            seen,
            json!([{"op": "replace", "path": "/metadata/managedFields/0/operation", "value": "?"}]),
        ),
        "typed" => patch(seen, json!([{"op": "replace", "path": "/data", "value": 7}])),
        _ => patch(seen, label("bad", "not valid!")),
    })
    .await;
    let world = World::start().await;
    let api = world.root().await;
    mutating(&api, "a", &[webhook(&hook.client_config("/"), |_| {})]).await;
    let owned = api.post(MAPS, &map("owned")).await;
    assert!(
        owned
            .header("warning")
            .contains("duplicate entries after mutating admission happens"),
        "{owned:?}"
    );
    assert_eq!(
        owned.expect(201)["metadata"]["ownerReferences"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    let managed = api.post(MAPS, &map("managed")).await;
    assert!(
        managed
            .header("warning")
            .contains(".metadata.managedFields was in an invalid state after admission")
    );
    assert_eq!(
        managed.expect(201)["metadata"]["managedFields"][0]["operation"],
        "Update"
    );
    assert_eq!(api.post(MAPS, &map("bad")).await.code(), 422);
    let typed = api.post(MAPS, &map("typed")).await;
    assert_eq!(typed.code(), 500, "{}", typed.message());
}

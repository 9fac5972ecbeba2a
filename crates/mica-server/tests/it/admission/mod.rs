//! Admission through a whole server: real webhooks over HTTPS, policies, and the plugins that are built in.

mod guards;
mod platform;
mod plugins;
mod policies;
mod reviews;
mod tenants;
mod webhooks;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::hook::{Answer, Hook, Seen};
use super::world::Api;

pub const MUTATING: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
pub const VALIDATING: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

/// A webhook about ConfigMaps of every operation, as `change` changes it.
pub fn webhook(client: &Value, change: impl FnOnce(&mut Value)) -> Value {
    let mut hook = json!({"name": "a.hook.example", "clientConfig": client, "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "rules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]});
    change(&mut hook);
    hook
}

pub fn configuration(kind: &str, name: &str, hooks: &[Value]) -> Value {
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "webhooks": hooks})
}

pub async fn mutating(api: &Api, name: &str, hooks: &[Value]) {
    let made = configuration("MutatingWebhookConfiguration", name, hooks);
    api.post(MUTATING, &made).await.expect(201);
}

pub async fn validating(api: &Api, name: &str, hooks: &[Value]) {
    let made = configuration("ValidatingWebhookConfiguration", name, hooks);
    api.post(VALIDATING, &made).await.expect(201);
}

/// A review's answer with these fields in its response.
pub fn answer(seen: &Seen, mut response: Value) -> Answer {
    response["uid"] = seen.body["request"]["uid"].clone();
    Answer::Json(json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}))
}

pub fn yes(seen: &Seen) -> Answer {
    answer(seen, json!({"allowed": true}))
}

/// A yes with a JSON patch.
pub fn patch(seen: &Seen, operations: Value) -> Answer {
    let patch = STANDARD.encode(operations.to_string());
    answer(seen, json!({"allowed": true, "patchType": "JSONPatch", "patch": patch}))
}

/// `OPERATION resource[/subresource] name` of everything that came, in the order of its coming.
pub fn briefs(hook: &Hook) -> Vec<String> {
    let brief = |seen: &Seen| {
        let request = &seen.body["request"];
        let text = |pointer: &str| request.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let part = match text("/subResource") {
            "" => String::new(),
            part => format!("/{part}"),
        };
        let (operation, resource) = (text("/operation"), text("/resource/resource"));
        format!("{operation} {resource}{part} {}", text("/name"))
    };
    hook.seen().iter().map(brief).collect()
}

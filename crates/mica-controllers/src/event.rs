//! Events about objects, for whoever looks for the reason of something. One that cannot be told is not: nothing waits for it.

use jiff::Timestamp;
use serde_json::json;
use xxhash_rust::xxh3::xxh3_64;

use crate::api::Api;
use crate::meta::{Object, Owner};
use crate::place;

/// Who tells of garbage.
const COMPONENT: &str = "garbage-collector-controller";

/// A dependent names an owner that is not in its namespace. Said once of each: the event's name is made of what it says.
pub async fn owner_is_elsewhere(api: &Api, dependent: &Object, owner: &Owner) {
    let own = dependent.meta.namespace.as_deref().unwrap_or_default();
    let message = format!(
        "ownerRef [{}/{}, namespace: {own}, name: {}, uid: {}] does not exist in namespace {own:?}",
        owner.api_version, owner.kind, owner.name, owner.uid
    );
    // Events of what has no namespace are in this one.
    let namespace = dependent.meta.namespace.as_deref().unwrap_or("default");
    let print = xxh3_64(format!("{}{message}", dependent.meta.uid).as_bytes());
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let event = json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": format!("{}.{print:016x}", dependent.meta.name), "namespace": namespace},
        "involvedObject": {
            "apiVersion": dependent.what.api_version,
            "kind": dependent.what.kind,
            "namespace": own,
            "name": dependent.meta.name,
            "uid": dependent.meta.uid,
        },
        "reason": "OwnerRefInvalidNamespace",
        "message": message,
        "type": "Warning",
        "source": {"component": COMPONENT},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    });
    let path = place::collection(&dependent.place, "v1", "events", Some(namespace));
    match api.create(&path, &event).await {
        Ok(_) => {}
        Err(refusal) if refusal.is_conflict() => {}
        Err(refusal) => tracing::debug!(object = %dependent, %refusal, "an event could not be told"),
    }
}

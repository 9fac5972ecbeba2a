//! Events about objects, for whoever looks for the reason of something. One that cannot be told is not: nothing waits for it.

use jiff::Timestamp;
use serde_json::json;
use xxhash_rust::xxh3::xxh3_64;

use crate::api::Api;
use crate::meta::{Object, Owner};
use crate::place;

/// Something that happened to an object.
pub struct Told {
    pub kind: Severity,
    pub reason: String,
    pub message: String,
}

/// Whether somebody should look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Severity {
    Normal,
    Warning,
}

impl Severity {
    fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// Tells what happened to an object of root, as whoever is named.
pub async fn tell(api: &Api, component: &str, object: &serde_json::Value, told: &Told) {
    let meta = &object["metadata"];
    let namespace = meta["namespace"].as_str().unwrap_or("default");
    let now = Timestamp::now();
    let (name, uid) = (
        meta["name"].as_str().unwrap_or_default(),
        meta["uid"].as_str().unwrap_or_default(),
    );
    let print = xxh3_64(format!("{uid}{}{}{now}", told.reason, told.message).as_bytes());
    let time = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let event = json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": format!("{name}.{print:016x}"), "namespace": namespace},
        "involvedObject": {
            "apiVersion": object["apiVersion"],
            "kind": object["kind"],
            "namespace": meta["namespace"],
            "name": name,
            "uid": uid,
            "resourceVersion": meta["resourceVersion"],
        },
        "reason": told.reason,
        "message": told.message,
        "type": told.kind.as_str(),
        "source": {"component": component},
        "reportingComponent": component,
        "firstTimestamp": time,
        "lastTimestamp": time,
        "count": 1,
    });
    let path = place::collection(&place::Place::root(), "v1", "events", Some(namespace));
    if let Err(refusal) = api.tell(&path, &event).await {
        tracing::debug!(object = name, %refusal, "an event could not be told");
    }
}

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
    match api.tell(&path, &event).await {
        Ok(()) => {}
        Err(refusal) if refusal.is_conflict() => {}
        Err(refusal) => tracing::debug!(object = %dependent, %refusal, "an event could not be told"),
    }
}

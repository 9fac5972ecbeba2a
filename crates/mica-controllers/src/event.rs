//! Events about objects, for whoever looks for the reason of something. One that cannot be told is not: nothing waits for it.

use jiff::Timestamp;
use mica_api::control_plane::reason;
pub use mica_runtime::events::Severity;
use serde_json::{Value, json};
use xxhash_rust::xxh3::xxh3_64;

use crate::api::{Api, Refusal};
use crate::condition::find;
use crate::engine;
use crate::meta::{Object, Owner};
use crate::place::{self, Place};

/// Where events are of what has no namespace, as upstream's are.
const OF_NO_NAMESPACE: &str = "default";

/// Something that happened to an object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Told {
    pub kind: Severity,
    pub reason: String,
    pub message: String,
}

/// What is to be told of a condition, if its status or its reason is another than it was: what is well by the condition's
/// name, and what is wrong by the reason.
pub fn transition(before: &Value, after: &Value, r#type: &str) -> Option<Told> {
    let is = find(after, r#type)?;
    if let Some(was) = find(before, r#type)
        && was["status"] == is["status"]
        && was["reason"] == is["reason"]
    {
        return None;
    }
    let text = |field: &str| is[field].as_str().unwrap_or_default().to_owned();
    let (kind, reason) = match is["status"] == "False" {
        // The end of something is nothing that somebody should look at.
        true if is["reason"] == reason::DELETING => (Severity::Normal, text("reason")),
        true => (Severity::Warning, text("reason")),
        false => (Severity::Normal, r#type.to_owned()),
    };
    Some(Told {
        kind,
        reason,
        message: text("message"),
    })
}

/// Whether a condition was true.
pub fn was_true(before: &Value, r#type: &str) -> bool {
    find(before, r#type).is_some_and(|condition| condition["status"] == "True")
}

/// Tells what happened to an object of root, as whoever is named.
pub async fn tell(api: &Api, component: &str, object: &Value, told: &Told) {
    let meta = &object["metadata"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let about = About {
        api_version: text(&object["apiVersion"]),
        kind: text(&object["kind"]),
        namespace: meta["namespace"].as_str(),
        name: text(&meta["name"]),
        uid: text(&meta["uid"]),
        resource_version: meta["resourceVersion"].as_str(),
    };
    // Each time that it happens is an event of its own.
    let once = Timestamp::now().to_string();
    if let Err(refusal) = send(api, &Place::root(), component, &about, told, &once).await {
        tracing::debug!(object = about.name, %refusal, "an event could not be told");
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
    let told = Told {
        kind: Severity::Warning,
        reason: "OwnerRefInvalidNamespace".to_owned(),
        message,
    };
    let about = About {
        api_version: dependent.what.api_version.to_string(),
        kind: dependent.what.kind.to_string(),
        namespace: dependent.meta.namespace.as_deref(),
        name: dependent.meta.name.to_string(),
        uid: dependent.meta.uid.to_string(),
        resource_version: None,
    };
    match send(api, &dependent.place, COMPONENT, &about, &told, "").await {
        Ok(()) => {}
        Err(refusal) if refusal.is_conflict() => {}
        Err(refusal) => tracing::debug!(object = %dependent, %refusal, "an event could not be told"),
    }
}

/// What an event is about.
struct About<'a> {
    api_version: String,
    kind: String,
    namespace: Option<&'a str>,
    name: String,
    uid: String,
    resource_version: Option<&'a str>,
}

/// Makes an event. Its name is of what it says and of `once`: what has both is the same event.
async fn send(
    api: &Api,
    place: &Place,
    component: &str,
    about: &About<'_>,
    told: &Told,
    once: &str,
) -> Result<(), Refusal> {
    let namespace = about.namespace.unwrap_or(OF_NO_NAMESPACE);
    let print = xxh3_64(format!("{}{}{}{once}", about.uid, told.reason, told.message).as_bytes());
    let now = engine::now();
    let event = json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": format!("{}.{print:016x}", about.name), "namespace": namespace},
        "involvedObject": {
            "apiVersion": about.api_version,
            "kind": about.kind,
            "namespace": about.namespace,
            "name": about.name,
            "uid": about.uid,
            "resourceVersion": about.resource_version,
        },
        "reason": told.reason,
        "message": told.message,
        "type": told.kind.as_str(),
        "source": {"component": component},
        "reportingComponent": component,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    });
    let path = place::collection(place, "v1", "events", Some(namespace));
    api.tell(&path, &event).await
}

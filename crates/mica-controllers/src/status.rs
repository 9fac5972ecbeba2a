//! Writes statuses of objects of the management plane, and tells in events what changed by them.

use mica_api::control_plane::API_VERSION;
use serde_json::{Value, json};

use crate::api::{Api, Refusal};
use crate::event::{self, Told};
use crate::place::{self, Place};

/// Writes what is to change in the status of an object as it was read. Conditions are a list, and others have theirs in it:
/// the patch holds for what was read, and nothing is told of one that somebody was faster than.
pub async fn write(
    api: &Api,
    component: &str,
    plural: &str,
    object: &Value,
    status: &Value,
    told: &[Told],
) -> Result<(), Refusal> {
    let metadata = &object["metadata"];
    let name = metadata["name"].as_str().unwrap_or_default();
    let path = place::object(&Place::root(), API_VERSION, plural, None, name);
    let patch = json!({"metadata": {"resourceVersion": metadata["resourceVersion"]}, "status": status});
    match api.merge(&format!("{path}/status"), &patch).await {
        Ok(_) => {
            let telling = told.iter().map(|told| event::tell(api, component, object, told));
            futures::future::join_all(telling).await;
            Ok(())
        }
        // Somebody wrote meanwhile, which is heard of.
        Err(refusal) if refusal.is_conflict() || refusal.is_object_not_found() => Ok(()),
        Err(refusal) => Err(refusal),
    }
}

//! Writes the status of a registration.

use mica_api::control_plane::{API_VERSION, REGISTRATIONS};
use serde_json::{Value, json};

use super::Registrations;
use super::plan::Observed;
use crate::api::Refusal;
use crate::place::{self, Place};

impl Registrations {
    pub(super) async fn apply(&self, observed: &Observed, status: Value) -> Result<(), Refusal> {
        let metadata = &observed.registration["metadata"];
        let name = metadata["name"].as_str().unwrap_or_default();
        let path = place::object(&Place::root(), API_VERSION, REGISTRATIONS, None, name);
        // Conditions are a list, and consumers have theirs in it: the patch holds for what was read.
        let patch = json!({"metadata": {"resourceVersion": metadata["resourceVersion"]}, "status": status});
        match self.api.merge(&format!("{path}/status"), &patch).await {
            Ok(_) => Ok(()),
            // Somebody wrote meanwhile, which is heard of.
            Err(refusal) if refusal.is_conflict() || refusal.is_object_not_found() => Ok(()),
            Err(refusal) => Err(refusal),
        }
    }
}

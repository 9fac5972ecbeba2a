//! Writes the status of a class.

use mica_api::control_plane::{API_VERSION, CLASSES};
use serde_json::{Value, json};

use super::Classes;
use super::plan::Observed;
use crate::api::Refusal;
use crate::place::{self, Place};

impl Classes {
    pub(super) async fn apply(&self, observed: &Observed, status: Value) -> Result<(), Refusal> {
        let metadata = &observed.class["metadata"];
        let name = metadata["name"].as_str().unwrap_or_default();
        let path = place::object(&Place::root(), API_VERSION, CLASSES, None, name);
        let patch = json!({"metadata": {"resourceVersion": metadata["resourceVersion"]}, "status": status});
        match self.api.merge(&format!("{path}/status"), &patch).await {
            Ok(_) => Ok(()),
            // Somebody wrote meanwhile, which is heard of.
            Err(refusal) if refusal.is_conflict() || refusal.is_object_not_found() => Ok(()),
            Err(refusal) => Err(refusal),
        }
    }
}

//! Writes the status of an endpoint.

use mica_api::control_plane::{API_VERSION, ENDPOINTS};
use serde_json::{Value, json};

use super::Endpoints;
use super::plan::Observed;
use crate::api::Refusal;
use crate::place::{self, Place};

impl Endpoints {
    pub(super) async fn apply(&self, observed: &Observed, status: Value) -> Result<(), Refusal> {
        let metadata = &observed.endpoint["metadata"];
        let name = metadata["name"].as_str().unwrap_or_default();
        let path = place::object(&Place::root(), API_VERSION, ENDPOINTS, None, name);
        let patch = json!({"metadata": {"resourceVersion": metadata["resourceVersion"]}, "status": status});
        match self.api.merge(&format!("{path}/status"), &patch).await {
            Ok(_) => Ok(()),
            // Somebody wrote meanwhile, which is heard of.
            Err(refusal) if refusal.is_conflict() || refusal.is_object_not_found() => Ok(()),
            Err(refusal) => Err(refusal),
        }
    }
}

//! Writes the status of a membership.

use mica_api::tenancy::{API_VERSION, MEMBERSHIPS};
use serde_json::{Value, json};

use super::Memberships;
use super::plan::Observed;
use crate::api::Refusal;
use crate::place::{self, Place};

impl Memberships {
    pub(super) async fn apply(&self, observed: &Observed, namespace: &str, status: Value) -> Result<(), Refusal> {
        let metadata = &observed.membership["metadata"];
        let name = metadata["name"].as_str().unwrap_or_default();
        let path = place::object(&Place::root(), API_VERSION, MEMBERSHIPS, Some(namespace), name);
        let patch = json!({"metadata": {"resourceVersion": metadata["resourceVersion"]}, "status": status});
        match self.api.merge(&format!("{path}/status"), &patch).await {
            Ok(_) => Ok(()),
            // Somebody wrote meanwhile, which is heard of.
            Err(refusal) if refusal.is_conflict() || refusal.is_not_found() => Ok(()),
            Err(refusal) => Err(refusal),
        }
    }
}

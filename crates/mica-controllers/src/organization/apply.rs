//! Writes what an organization needs.

use mica_api::tenancy::{API_VERSION, ORGANIZATIONS};
use serde_json::json;

use super::Organizations;
use super::plan::{Observed, Step};
use crate::api::Refusal;
use crate::place::{self, Place};

impl Organizations {
    pub(super) async fn apply(&self, observed: &Observed, step: Step) -> Result<(), Refusal> {
        let (root, metadata) = (Place::root(), &observed.organization["metadata"]);
        let written = match step {
            Step::CreateNamespace(namespace) => {
                let path = place::collection(&root, "v1", "namespaces", None);
                self.api.create(&path, &namespace).await
            }
            Step::Status(status) => {
                let name = metadata["name"].as_str().unwrap_or_default();
                let path = place::object(&root, API_VERSION, ORGANIZATIONS, None, name);
                let patch = json!({"metadata": {"resourceVersion": metadata["resourceVersion"]}, "status": status});
                self.api.merge(&format!("{path}/status"), &patch).await
            }
        };
        match written {
            Ok(_) => Ok(()),
            // Somebody wrote meanwhile, which is heard of.
            Err(refusal) if refusal.is_conflict() || refusal.is_not_found() => Ok(()),
            Err(refusal) => Err(refusal),
        }
    }
}

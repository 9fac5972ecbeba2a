//! Does what was planned for a project.

use mica_api::tenancy::{
    API_VERSION, INFRASTRUCTURE_API_VERSION, PROJECT_CONTROL_PLANES, PROJECTS, SUSPENSIONS, project_plane,
};
use serde_json::{Value, json};

use super::Projects;
use super::plan::{Observed, Step};
use crate::api::{Absent as _, Refusal};
use crate::place::{self, Place};

const PLANES: &str = "mica.dev/v1alpha1";

impl Projects {
    /// Writes step by step. Returns why the plane could not be made, if somebody has its address.
    pub(super) async fn apply(&self, observed: &Observed, steps: Vec<Step>) -> Result<Option<String>, Refusal> {
        for step in steps {
            match self.write(observed, &step).await {
                Ok(()) => {}
                Err(refusal) if refusal.is_conflict() && matches!(step, Step::CreatePlane(_)) => {
                    return Ok(Some(refusal.to_string()));
                }
                // Somebody wrote meanwhile, or it is gone: the next look knows more.
                Err(refusal) if refusal.is_conflict() || refusal.is_not_found() => return Ok(None),
                Err(refusal) => return Err(refusal),
            }
        }
        Ok(None)
    }

    async fn write(&self, observed: &Observed, step: &Step) -> Result<(), Refusal> {
        let root = Place::root();
        let name = observed.project["metadata"]["name"].as_str().unwrap_or_default();
        let project = place::object(&root, API_VERSION, PROJECTS, None, name);
        let plane = place::object(&root, PLANES, "planes", None, &project_plane(name));
        let told = place::object(&root, INFRASTRUCTURE_API_VERSION, PROJECT_CONTROL_PLANES, None, name);
        match step {
            Step::CreatePlane(object) => {
                let path = place::collection(&root, PLANES, "planes", None);
                self.api.create(&path, object).await.map(drop)
            }
            Step::PatchPlane(patch) => self.api.merge(&plane, patch).await.map(drop),
            Step::DeletePlane => self.api.delete_any(&plane).await.or_absent().map(drop),
            Step::CreateControlPlane(object) => {
                let path = place::collection(&root, INFRASTRUCTURE_API_VERSION, PROJECT_CONTROL_PLANES, None);
                self.api.create(&path, object).await.map(drop)
            }
            Step::ControlPlaneStatus(status) => {
                let patch = json!({"status": status});
                self.api.merge(&format!("{told}/status"), &patch).await.map(drop)
            }
            Step::DeleteControlPlane => self.api.delete_any(&told).await.or_absent().map(drop),
            Step::Status(status) => {
                let patch = self.at_version(observed, json!({"status": status}));
                self.api.merge(&format!("{project}/status"), &patch).await.map(drop)
            }
            Step::Phase { suspension, phase } => {
                let path = place::object(&root, API_VERSION, SUSPENSIONS, None, suspension);
                let patch = json!({"status": {"phase": phase}});
                self.api
                    .merge(&format!("{path}/status"), &patch)
                    .await
                    .or_absent()
                    .map(drop)
            }
            Step::Finalizers(left) => {
                let patch = json!({"metadata": {"finalizers": left}});
                self.api.merge(&project, &patch).await.or_absent().map(drop)
            }
        }
    }

    /// A patch that holds for the project as it was read: conditions are a list, and replace each other.
    fn at_version(&self, observed: &Observed, mut patch: Value) -> Value {
        patch["metadata"]["resourceVersion"] = observed.project["metadata"]["resourceVersion"].clone();
        patch
    }
}

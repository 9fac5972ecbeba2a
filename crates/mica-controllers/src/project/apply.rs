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

/// How much of a plan was done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Applied {
    /// All of it, and what was observed is what is stored now.
    Whole,
    /// Something else has to be known first.
    InPart,
}

impl Projects {
    /// Writes step by step, and keeps what was observed in step.
    pub(super) async fn apply(&self, observed: &mut Observed, steps: Vec<Step>) -> Result<Applied, Refusal> {
        for step in steps {
            match self.write(observed, &step).await {
                Ok(Applied::Whole) => {}
                Ok(Applied::InPart) => return Ok(Applied::InPart),
                // Somebody has its address.
                Err(refusal) if refusal.is_conflict() && matches!(step, Step::CreatePlane(_)) => {
                    observed.conflict = Some(refusal.to_string());
                    return Ok(Applied::InPart);
                }
                // Somebody wrote meanwhile, or it is gone: the next look knows more.
                Err(refusal) if refusal.is_conflict() || refusal.is_not_found() => return Ok(Applied::InPart),
                Err(refusal) => return Err(refusal),
            }
        }
        Ok(Applied::Whole)
    }

    async fn write(&self, observed: &mut Observed, step: &Step) -> Result<Applied, Refusal> {
        let root = Place::root();
        let name = observed.project["metadata"]["name"].as_str().unwrap_or_default();
        let project = place::object(&root, API_VERSION, PROJECTS, None, name);
        let plane = place::object(&root, PLANES, "planes", None, &project_plane(name));
        let told = place::object(&root, INFRASTRUCTURE_API_VERSION, PROJECT_CONTROL_PLANES, None, name);
        match step {
            Step::CreatePlane(object) => {
                let path = place::collection(&root, PLANES, "planes", None);
                let made = self.api.create(&path, object).await?;
                observed.answers = self.answers(name, Some(&made)).await;
                observed.plane = Some(made);
            }
            Step::PatchPlane(patch) => {
                let patched = self.api.merge(&plane, patch).await?;
                observed.answers = self.answers(name, Some(&patched)).await;
                observed.plane = Some(patched);
            }
            Step::DeletePlane => {
                self.api.delete_any(&plane).await.or_absent()?;
                return Ok(Applied::InPart);
            }
            Step::CreateControlPlane(object) => {
                let path = place::collection(&root, INFRASTRUCTURE_API_VERSION, PROJECT_CONTROL_PLANES, None);
                observed.control_plane = Some(self.api.create(&path, object).await?);
            }
            Step::ControlPlaneStatus(status) => {
                let patch = json!({"status": status});
                observed.control_plane = Some(self.api.merge(&format!("{told}/status"), &patch).await?);
            }
            Step::DeleteControlPlane => {
                self.api.delete_any(&told).await.or_absent()?;
                return Ok(Applied::InPart);
            }
            Step::Status(status) => {
                let patch = self.at_version(observed, json!({"status": status}));
                observed.project = self.api.merge(&format!("{project}/status"), &patch).await?;
            }
            Step::Phase { suspension, phase } => {
                let path = place::object(&root, API_VERSION, SUSPENSIONS, None, suspension);
                let patch = json!({"status": {"phase": phase}});
                self.api.merge(&format!("{path}/status"), &patch).await.or_absent()?;
                return Ok(Applied::InPart);
            }
            Step::Finalizers(left) => {
                let patch = json!({"metadata": {"finalizers": left}});
                self.api.merge(&project, &patch).await.or_absent()?;
                return Ok(Applied::InPart);
            }
        }
        Ok(Applied::Whole)
    }

    /// A patch that holds for the project as it was read: conditions are a list, and replace each other.
    fn at_version(&self, observed: &Observed, mut patch: Value) -> Value {
        patch["metadata"]["resourceVersion"] = observed.project["metadata"]["resourceVersion"].clone();
        patch
    }
}

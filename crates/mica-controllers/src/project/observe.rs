//! Everything that is known of a project.

use mica_api::tenancy::{
    API_VERSION, INFRASTRUCTURE_API_VERSION, PROJECT_CONTROL_PLANES, PROJECTS, SUSPENSIONS, project_path, project_plane,
};
use serde_json::Value;

use super::Projects;
use super::plan::{Answers, Observed};
use crate::api::{Absent as _, Refusal};
use crate::place::{self, Place};

impl Projects {
    /// `None` if there is no such project, or it is none of ours to look at: then nothing of it is left.
    pub(super) async fn observe(&self, name: &str) -> Result<Option<Observed>, Refusal> {
        let root = Place::root();
        let path = place::object(&root, API_VERSION, PROJECTS, None, name);
        let Some(project) = self.api.get(&path).await.or_absent()? else {
            return Ok(None);
        };
        let plane = place::object(&root, "mica.dev/v1alpha1", "planes", None, &project_plane(name));
        let plane = self.api.get(&plane).await.or_absent()?;
        let control_plane = place::object(&root, INFRASTRUCTURE_API_VERSION, PROJECT_CONTROL_PLANES, None, name);
        let control_plane = self.api.get(&control_plane).await.or_absent()?;
        let (suspensions, lifted) = self.suspensions(name).await?;
        Ok(Some(Observed {
            suspensions,
            lifted,
            answers: self.answers(name, plane.as_ref()).await,
            project,
            plane,
            control_plane,
            conflict: None,
        }))
    }

    /// The suspensions of a project: those in force, and those that were lifted, by their phase or by their deletion.
    async fn suspensions(&self, project: &str) -> Result<(Vec<Value>, Vec<Value>), Refusal> {
        let path = place::collection(&Place::root(), API_VERSION, SUSPENSIONS, None);
        let query = format!(
            "fieldSelector=spec.projectRef.name{}",
            place::query_value(&format!("={project}"))
        );
        let listed = self.api.list(&path, &query).await?;
        let in_force = |suspension: &Value| {
            suspension["status"]["phase"] != "Lifted" && suspension["metadata"]["deletionTimestamp"].is_null()
        };
        Ok(listed.items.into_iter().partition(in_force))
    }

    /// Whether the plane answers, at the address that clients use.
    pub(super) async fn answers(&self, project: &str, plane: Option<&Value>) -> Answers {
        // One that is deleted takes requests until it is drained, suspended or not.
        let open = ["Ready", "Draining"];
        if !plane.is_some_and(|plane| open.iter().any(|phase| plane["status"]["phase"] == *phase)) {
            return Answers::No;
        }
        match self.api.get(&format!("{}/version", project_path(project))).await {
            Ok(_) => Answers::Yes,
            Err(_) => Answers::No,
        }
    }
}

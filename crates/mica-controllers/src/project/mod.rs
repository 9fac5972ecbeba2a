//! Gives every project its plane, says when it can be used, suspends it, and takes it away with the project.
//!
//! Watches projects, the planes and ProjectControlPlanes that are theirs, and suspensions, all in root. A project is ready
//! when its plane has answered.

mod apply;
mod observe;
pub mod plan;

use async_trait::async_trait;
use mica_api::tenancy::{GROUP, INFRASTRUCTURE_GROUP, PROJECT_CONTROL_PLANES, PROJECTS, SUSPENSIONS, project_of_plane};
use mica_runtime::Request;
use mica_runtime::queue::{Outcome, Queue};

use crate::api::{Api, Refusal};
use crate::engine::{self, Controller};
use crate::meta::{Notice, Object};
use crate::select::Name;

const WORKERS: usize = 16;
/// How often a project is looked at in one go: each look does what the one before made possible.
const LOOKS: usize = 6;

pub struct Projects {
    api: Api,
    queue: Queue,
}

impl Projects {
    pub fn new(api: Api) -> Self {
        Self {
            api,
            queue: engine::queue(),
        }
    }
}

/// The project that an object of root is about.
fn about(object: &Object) -> Option<&str> {
    if object.is(GROUP, PROJECTS) || object.is(INFRASTRUCTURE_GROUP, PROJECT_CONTROL_PLANES) {
        return Some(&object.meta.name);
    }
    if object.is("mica.dev", "planes") {
        return project_of_plane(&object.meta.name);
    }
    if object.is(GROUP, SUSPENSIONS) {
        let mut owners = object.meta.owner_references.iter();
        return owners.find(|owner| owner.kind == "Project").map(|owner| &*owner.name);
    }
    None
}

#[async_trait]
impl Controller for Projects {
    fn name(&self) -> Name {
        Name::Project
    }

    fn queue(&self) -> &Queue {
        &self.queue
    }

    fn workers(&self) -> usize {
        WORKERS
    }

    fn hear(&self, notice: &Notice) {
        engine::hear_in_root(&self.queue, notice, |object| Some((None, about(object)?)));
    }

    async fn work(&self, request: &Request) -> Result<Outcome, Refusal> {
        let mut conflict = None;
        for _ in 0..LOOKS {
            let Some(mut observed) = self.observe(&request.name).await? else {
                return Ok(Outcome::Done);
            };
            observed.conflict = conflict.take();
            let now = engine::now();
            let steps = plan::plan(&observed, &now);
            if steps.is_empty() {
                return Ok(Outcome::Done);
            }
            conflict = self.apply(&observed, steps).await?;
        }
        // What is left is heard of: every step here changes something that is watched.
        Ok(Outcome::Done)
    }
}

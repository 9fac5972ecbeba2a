//! Gives every project its plane, says when it can be used, suspends it, and takes it away with the project.
//!
//! Watches projects, the planes and ProjectControlPlanes that are theirs, and suspensions, all in root. A project is ready
//! when its plane has answered.

mod apply;
mod observe;
pub mod plan;

use std::time::Duration;

use async_trait::async_trait;
use mica_api::tenancy::{GROUP, INFRASTRUCTURE_GROUP, PROJECT_CONTROL_PLANES, PROJECTS, SUSPENSIONS, project_of_plane};
use mica_runtime::Request;
use mica_runtime::queue::{Outcome, Queue};

use crate::api::{Api, Refusal};
use crate::echo::Echoes;
use crate::engine::{self, Controller};
use crate::meta::{Notice, Object, Seen};
use crate::select::Name;
use apply::Applied;

const WORKERS: usize = 16;
/// How many plans are made in one go: each does what the one before made possible.
const PLANS: usize = 8;

pub struct Projects {
    api: Api,
    queue: Queue,
    echoes: Echoes,
}

impl Projects {
    pub fn new(api: Api) -> Self {
        Self {
            api,
            queue: engine::queue(),
            echoes: Echoes::default(),
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
        if matches!(notice.seen, Seen::Restarted) {
            self.echoes.clear();
        }
        engine::hear_in_root(&self.queue, notice, |object| {
            let request = engine::in_root(None, about(object)?);
            self.echoes.is_news(&request, object).then_some(request)
        });
    }

    async fn work(&self, request: &Request) -> Result<Outcome, Refusal> {
        self.echoes.look(&self.queue, request, self.look(&request.name)).await
    }
}

impl Projects {
    async fn look(&self, name: &str) -> Result<Outcome, Refusal> {
        let Some(mut observed) = self.observe(name).await? else {
            return Ok(Outcome::Done);
        };
        for _ in 0..PLANS {
            let steps = plan::plan(&observed, &engine::now());
            if steps.is_empty() {
                return Ok(Outcome::Done);
            }
            if self.apply(&mut observed, steps).await? == Applied::InPart {
                let conflict = observed.conflict.take();
                let Some(now) = self.observe(name).await? else {
                    return Ok(Outcome::Done);
                };
                // Who has its address is nobody else if the plane is there now.
                let conflict = conflict.filter(|_| now.plane.is_none());
                observed = plan::Observed { conflict, ..now };
            }
        }
        Ok(Outcome::Again(Duration::ZERO))
    }
}
